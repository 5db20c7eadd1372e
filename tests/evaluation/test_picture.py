"""The picture of a report: well-formed, and with all that it should show."""

from xml.etree import ElementTree

import pytest

from whence.evaluation import Group, MethodReport, Report, SetReport
from whence.evaluation.picture import svg
from whence.evaluation.scores import FIGURES, Figure


def report(methods: int, *categories: str) -> Report:
    figures = {name: Figure(0.5, 0.25, 1.0) for name in FIGURES}
    groups = {category: Group(7, figures) for category in (*categories, "all")}
    made = {f"method-{number}": MethodReport(None, groups, {}, {}, {"p50": 1, "p95": 2}) for number in range(methods)}
    about = SetReport("<set>&.json", "", "locomo", 1, 2, 7, 0)
    return Report("0.1.0", None, 50, 1, 2, about, made, [])


@pytest.mark.parametrize("methods", [1, 4, 12])
def test_every_bar_has_its_figure_and_its_whiskers_inside_the_picture(methods: int) -> None:
    root = ElementTree.fromstring(svg(report(methods, "single-session-preference", "b")))
    bars = root.findall("{*}g")
    # Of two figures, for each of two categories and all.
    assert len(bars) == 2 * 3 * methods
    titles = [bar.findtext("{*}title") for bar in bars]
    assert titles[0] == "single-session-preference, method-0: 0.500 (0.250 to 1.000)"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height


def test_names_are_escaped_and_long_ones_broken() -> None:
    root = ElementTree.fromstring(svg(report(1, "single-session-preference")))
    said = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Recall on <set>&.json" in said
    assert {"single-session-", "preference"} <= set(said)
