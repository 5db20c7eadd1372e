"""Lineage in the terminal: a tree that fits, says how things are connected, and obeys nobody's control characters."""

import io
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from atlases import UNHURRIED, agent_run, atlas, atlases, edge, event, node
from whence.cli.lineage import print_lineage
from whence.wire import Atlas


def printed(subject: Atlas, root: int | str, width: int = 80) -> str:
    out = io.StringIO()
    root_id = str(UUID(int=root)) if isinstance(root, int) else root
    print_lineage(Console(file=out, width=width), subject, root_id)
    return out.getvalue()


def test_a_tree_says_what_who_when_how_and_how_it_ended() -> None:
    nodes = [
        event(1, "agent.invoke", status="completed", text="Which suppliers\ncan deliver?"),
        event(2, "llm.generate", status="completed"),
        event(3, "tool.execute", status="failed", tool_name="web_search", text="no answer"),
    ]
    edges = [edge(3, 2, "CAUSED_BY", cause="inferred"), edge(2, 1, "CAUSED_BY", cause="direct")]
    assert printed(atlas(nodes, edges), 3) == (
        "#3 tool.execute web_search failed  00000000-0000-0000-0000-000000000003\n"
        "│ 2026-01-15 09:00:03 · no answer\n"
        "└ #2 llm.generate planner completed  00000000-0000-0000-0000-000000000002\n"
        "  │ caused by (inferred) · 2026-01-15 09:00:02\n"
        "  └ #1 agent.invoke planner completed  00000000-0000-0000-0000-000000000001\n"
        "      caused by (direct) · 2026-01-15 09:00:01 · Which suppliers can deliver?\n"
    )


def test_what_came_of_an_event_reads_the_other_way_round() -> None:
    nodes = [event(1, "agent.invoke"), event(2, "llm.generate"), event(3, "tool.execute")]
    edges = [edge(2, 1, "CAUSED_BY", cause="direct"), edge(3, 1, "CAUSED_BY", cause="direct")]
    assert [line[:19].rstrip() for line in printed(atlas(nodes, edges), 1).splitlines()] == [
        "#1 agent.invoke pla",
        "│ 2026-01-15 09:00:",
        "├ #2 llm.generate p",
        "│   caused (direct)",
        "└ #3 tool.execute p",
        "    caused (direct)",
    ]


def test_a_second_way_to_a_node_is_one_line() -> None:
    nodes = [event(number, "llm.generate") for number in (1, 2, 3)]
    edges = [
        edge(3, 2, "CAUSED_BY", cause="direct"),
        edge(3, 1, "CAUSED_BY", cause="inferred"),
        edge(2, 1, "CAUSED_BY", cause="direct"),
    ]
    said = printed(atlas(nodes, edges), 3)
    assert said.count("00000000-0000-0000-0000-000000000001") == 1
    assert "also caused by (direct) #1 llm.generate planner" in said


def test_causes_are_followed_before_anything_else() -> None:
    said = printed(agent_run(), 9)
    assert said.index("#5 llm.generate") < said.index("#2 llm.generate") < said.index("#1 agent.invoke")
    assert "also similar to #1 agent.invoke planner completed" in said
    assert "Also in this answer, without a connection to the above:\n#1 session s1" in said


def test_it_says_when_it_was_cut_off_and_how_to_get_more() -> None:
    nodes = [event(number, "llm.generate") for number in (1, 2)]
    up = printed(atlas(nodes, [edge(2, 1, "CAUSED_BY", cause="direct")], truncated=True), 2)
    assert "There is more: this was cut off at 3 steps or 100 nodes." in up
    assert "--depth, up to 10" in up
    assert up.endswith("go on with: whence lineage 00000000-0000-0000-0000-000000000001\n")
    down = printed(atlas(nodes, [edge(2, 1, "CAUSED_BY", cause="direct")], truncated=True), 1)
    assert down.endswith("go on with: whence lineage 00000000-0000-0000-0000-000000000002 --down\n")
    assert "There is more" not in printed(atlas(nodes, []), 1)


def test_a_root_that_is_not_there_is_told() -> None:
    assert printed(atlas([], []), "x") == "Nothing is known of it.\n"
    assert printed(atlas([event(1, "a.b")], []), "x").startswith("x is not in this answer, which holds:\n#1 a.b")


def test_control_characters_are_made_visible() -> None:
    nodes = [node("\x1b]0;owned\x07", "entity", 1, name="\x1b[31mred", text="a\u202eb\x00"), event(1, "\x9b31m")]
    said = printed(atlas(nodes, [edge(1, "\x1b]0;owned\x07", "REFERENCES", role="\x1b[0m")]), 1)
    assert "·[31mred" in said
    assert all(character.isprintable() or character == "\n" for character in said)


@UNHURRIED
@given(atlases(), st.integers(20, 200))
def test_any_atlas_fits_the_terminal(subject: Atlas, width: int) -> None:
    said = printed(subject, next(iter(subject.nodes), ""), width)
    assert all(cell_len(line) <= width for line in said.splitlines())
    assert all(character.isprintable() or character == "\n" for character in said)


def test_a_chain_longer_than_the_stack_is_printed() -> None:
    nodes = [event(number, "llm.generate") for number in range(1, 1_501)]
    edges = [edge(number, number - 1, "CAUSED_BY", cause="direct") for number in range(2, 1_501)]
    assert "#1 llm.generate" in printed(atlas(nodes, edges), 1_500)
