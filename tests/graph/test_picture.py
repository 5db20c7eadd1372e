"""Pictures: well-formed, self-contained, boxes that do not overlap, and quick enough for the largest answer."""

import itertools
import random
import re
import time
from typing import get_args
from xml.etree import ElementTree

from hypothesis import given

from atlases import UNHURRIED, agent_run, atlas, atlases, edge, event, node
from whence.graph.layout import GRID, Link, lay_out
from whence.graph.picture import svg
from whence.wire import Atlas, EdgeType

SVG = "{http://www.w3.org/2000/svg}"


def drawn(subject: Atlas) -> ElementTree.Element:
    return ElementTree.fromstring(svg(subject))


def boxes(picture: ElementTree.Element) -> list[tuple[float, float]]:
    rectangles = [group.find(f"{SVG}rect") for group in picture.findall(f"{SVG}g")]
    return [(float(box.attrib["x"]), float(box.attrib["y"])) for box in rectangles if box is not None]


def lines(picture: ElementTree.Element) -> list[ElementTree.Element]:
    return [path for path in picture.findall(f"{SVG}path") if path.find(f"{SVG}title") is not None]


@UNHURRIED
@given(atlases())
def test_any_atlas_is_well_formed_with_a_box_a_node_and_a_line_an_edge(subject: Atlas) -> None:
    picture = drawn(subject)
    inside = [link for link in subject.edges if link.source in subject.nodes and link.target in subject.nodes]
    assert len(boxes(picture)) == len(subject.nodes)
    assert len(lines(picture)) == len(inside)


@UNHURRIED
@given(atlases())
def test_no_two_boxes_overlap_and_all_are_inside(subject: Atlas) -> None:
    picture = drawn(subject)
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    found = boxes(picture)
    for x, y in found:
        assert 0 <= x <= width - GRID.box_width
        assert 0 <= y <= height - GRID.box_height
    for (x, y), (other_x, other_y) in itertools.combinations(found, 2):
        assert x != other_x or abs(y - other_y) >= GRID.box_height


def test_causes_are_left_of_effects() -> None:
    links = [Link("c", "b", "x", True), Link("b", "a", "x", True), Link("c", "a", "x", True)]
    layout = lay_out(["c", "a", "b"], links)
    assert [layout.places[box].column for box in "abc"] == [0, 1, 2]
    assert len(layout.routes[2]) == 3, "the long line goes around the box between"


def test_a_circle_of_causes_is_laid_out_all_the_same() -> None:
    links = [Link("a", "b", "x", True), Link("b", "c", "x", True), Link("c", "a", "x", True)]
    assert sorted(point.column for point in lay_out(["a", "b", "c"], links).places.values()) == [0, 1, 2]


def test_a_box_says_what_who_how_and_when() -> None:
    texts = [text.text for text in drawn(agent_run()).iter(f"{SVG}text")]
    for said in ("tool.execute", "web_search", "failed", "#4", "could not reach the host <timeout>"):
        assert said in texts
    assert "2026-01-15 09:00:04" in texts
    assert {"caused by", "caused by, inferred", "follows", "references"} <= set(texts)
    assert "same as" not in texts, "the legend names only what is drawn"


def test_tooltips_hold_the_full_ids() -> None:
    titles = [title.text or "" for title in drawn(agent_run()).iter(f"{SVG}title")]
    assert any(title.startswith("event 00000000-0000-0000-0000-000000000004\n") for title in titles)
    assert any("CAUSED_BY\n00000000-0000-0000-0000-000000000002\ncause: direct" in title for title in titles)


def test_text_is_escaped_and_control_characters_are_dropped() -> None:
    odd = '"</text><script>\x1b[31m\x00\u202e&amp;'
    text = svg(atlas([node(odd, "entity", 1, name=odd, text=odd), event(2, odd, status=odd, tool_name=odd)], []))
    ElementTree.fromstring(text)
    assert "<script" not in text
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


def test_long_text_is_cut_to_the_box() -> None:
    texts = [text.text or "" for text in drawn(atlas([event(1, "a.b", text="word " * 100)], [])).iter(f"{SVG}text")]
    assert any(text.endswith("…") and len(text) < 60 for text in texts)


def test_the_picture_says_what_it_leaves_out() -> None:
    texts = [text.text or "" for text in drawn(atlas([event(2, "a.b")], [edge(2, 1, "CAUSED_BY")], True)).iter()]
    assert any("edges to what is not here: 1" in text and "cut off: at most 100 nodes" in text for text in texts)


def test_the_largest_answer_takes_well_under_a_second() -> None:
    chance = random.Random(4)
    nodes = [event(number, "llm.generate", text="some words") for number in range(1, 501)]
    edges = [edge(number, chance.randint(1, number - 1), "CAUSED_BY", cause="direct") for number in range(2, 501)]
    edges += [edge(number, number - 1, "FOLLOWS") for number in range(2, 501)]
    edges += [edge(number, chance.randint(1, 500), chance.choice(get_args(EdgeType))) for number in range(1, 201)]
    start = time.process_time()
    svg(atlas(nodes, edges))
    assert time.process_time() - start < 1
