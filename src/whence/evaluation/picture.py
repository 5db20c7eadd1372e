"""The figures of a report as bars with their intervals: one SVG that needs nothing else."""

from collections.abc import Iterator
from html import escape
from typing import Final

from whence.evaluation import EVERYTHING, Group, Report
from whence.evaluation.scores import Figure

_SHOWN: Final = (
    ("recall@10", "Recall@10: how much of the evidence is among the first 10 results"),
    ("ndcg@10", "NDCG@10: the same, weighed by how high it stands"),
)
_COLOURS: Final = ("#1d4ed8", "#f59e0b", "#0f766e", "#be185d", "#9333ea", "#64748b", "#65a30d", "#b91c1c")
_MARGIN: Final = 24.0
_AXIS: Final = 34.0
_HEIGHT: Final = 200.0
"""Of a bar that reaches 1."""
_PANEL: Final = 300.0
"""Of a row of bars with its heading and what stands below it."""
_BAR: Final = 30.0
_NARROW_BAR: Final = 20.0
"""Where there are many, whose figures are tooltips only."""
_FEW: Final = 4
_GAP: Final = 26.0
_LEAST_GROUP: Final = 96.0
"""For the name of a category below it."""
_LEAST_WIDTH: Final = 640.0
_CHARACTER: Final = 7.2
"""In pixels at 11 px, of the widest font that a viewer is likely to have."""


def svg(report: Report) -> str:
    groups = list(next(iter(report.methods.values())).by_turn)
    bar = _BAR if len(report.methods) <= _FEW else _NARROW_BAR
    group = max(_LEAST_GROUP, bar * len(report.methods))
    width = max(_LEAST_WIDTH, 2 * _MARGIN + _AXIS + len(groups) * (group + _GAP))
    legend = list(_legend(report, width))
    top = 66 + 18 * len({level for level, _ in legend})
    body = [*_heading(report), *(shown for _, shown in legend)]
    for name, heading in _SHOWN:
        body += [*_axis(top, width, heading), *_bars(report, name, top, bar, group)]
        top += _PANEL
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{top:g}" viewBox="0 0 {width:g} {top:g}"'
        ' font-family="system-ui, sans-serif" font-size="11" fill="#0f172a">\n'
        '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _heading(report: Report) -> Iterator[str]:
    about = report.dataset
    yield _text(_MARGIN, 32, f"Recall on {about.file}", 'font-size="16" font-weight="700"')
    said = (
        f"{about.questions:,} questions about {about.turns:,} turns · Whence {report.whence} · {report.embedder} · "
        "whiskers: 95 % of resampled questions"
    )
    yield _text(_MARGIN, 50, said, 'fill="#64748b"')


def _legend(report: Report, width: float) -> Iterator[tuple[float, str]]:
    x, y = _MARGIN, 74.0
    for number, method in enumerate(report.methods):
        size = 40 + _CHARACTER * len(method)
        if x + size > width - _MARGIN:
            x, y = _MARGIN, y + 18
        square = f'<rect x="{x:g}" y="{y - 9:g}" width="10" height="10" rx="2" fill="{_colour(number)}"/>'
        yield y, square + _text(x + 16, y, method)
        x += size


def _axis(top: float, width: float, heading: str) -> Iterator[str]:
    yield _text(_MARGIN, top + 26, heading, 'font-weight="700" font-size="12"')
    for step in range(6):
        y, colour = _level(top, step / 5), "#e2e8f0" if step else "#94a3b8"
        yield f'<path d="M {_MARGIN + _AXIS:g} {y:g} H {width - _MARGIN:g}" stroke="{colour}"/>'
        yield _text(_MARGIN + _AXIS - 8, y + 4, f"{step / 5:.1f}", 'text-anchor="end" fill="#64748b"')


def _level(top: float, value: float) -> float:
    return top + 46 + _HEIGHT * (1 - value)


def _bars(report: Report, name: str, top: float, bar: float, group: float) -> Iterator[str]:
    x = _MARGIN + _AXIS + _GAP / 2
    first = next(iter(report.methods.values())).by_turn
    for category, counted in first.items():
        start = x + (group - bar * len(report.methods)) / 2
        for number, (method, figures) in enumerate(report.methods.items()):
            found = figures.by_turn[category].figures[name]
            title = f"{category}, {method}: {found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"
            yield _bar(found, start + number * bar, top, bar, _colour(number), title)
        yield from _label(category, counted, x + group / 2, _level(top, 0) + 17)
        x += group + _GAP


def _bar(found: Figure, x: float, top: float, width: float, colour: str, title: str) -> str:
    y, middle = _level(top, found.mean), x + width / 2
    low, high = _level(top, found.low), _level(top, found.high)
    parts = [
        f"<g><title>{escape(title)}</title>",
        f'<rect x="{x + 1:g}" y="{y:.1f}" width="{width - 2:g}" height="{_level(top, 0) - y:.1f}" fill="{colour}"/>',
        f'<path d="M {middle - 4:g} {low:.1f} H {middle + 4:g} M {middle - 4:g} {high:.1f} H {middle + 4:g}'
        f' M {middle:g} {low:.1f} V {high:.1f}" stroke="#0f172a" fill="none"/>',
    ]
    if width == _BAR:
        parts.append(_text(middle, high - 5, f"{found.mean:.2f}", 'text-anchor="middle" font-size="10"'))
    return "".join([*parts, "</g>"])


def _label(category: str, counted: Group, x: float, y: float) -> Iterator[str]:
    """On two lines at most, broken at a hyphen; below them the number of questions."""
    first, second = category, ""
    if len(category) * _CHARACTER > _LEAST_GROUP and "-" in category:
        head, _, second = category.rpartition("-")
        first = f"{head}-"
    weight = ' font-weight="700"' if category == EVERYTHING else ""
    for line in filter(None, (first, second)):
        yield _text(x, y, line, f'text-anchor="middle"{weight}')
        y += 14
    yield _text(x, y, f"{counted.questions:,}", 'text-anchor="middle" fill="#64748b"')


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _text(x: float, y: float, text: str, style: str = "") -> str:
    """XML allows hardly any control character."""
    shown = escape("".join(character for character in text if character.isprintable()))
    return f'<text x="{x:g}" y="{y:g}" {style}>{shown}</text>'
