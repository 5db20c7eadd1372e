"""A part of the graph as a picture: one SVG that needs nothing else, causes on the left.

Boxes and lines carry their full ids as tooltips. Arrows point the way the edges do, from what came later to what it
came from.
"""

import unicodedata
from collections.abc import Iterator
from html import escape

from whence.graph.layout import GRID, Layout, Link, Point, lay_out
from whence.wire import Atlas, AtlasEdge, AtlasNode

MAX_TOOLTIP_CHARACTERS = 2_000

_MARGIN = 24.0
_HEADER = 52.0
_LINE = 16.0
_PADDING = 12.0
_NARROW = frozenset(" !'(),./:;I[]`fijlrt|")
_WIDE = frozenset("%@MWmw—…")

_STYLES = {
    "CAUSED_BY": ("caused by", "#1d4ed8", ""),
    "FOLLOWS": ("follows", "#94a3b8", "2 3"),
    "REFERENCES": ("references", "#0f766e", ""),
    "SUMMARIZES": ("summarizes", "#b45309", ""),
    "DERIVED_FROM": ("derived from", "#be185d", ""),
    "SIMILAR_TO": ("similar to", "#9333ea", "6 3"),
    "SAME_AS": ("same as", "#9333ea", ""),
}
_INFERRED = "5 4"
_PORTS = {"CAUSED_BY": 0, "FOLLOWS": 14, "REFERENCES": -14, "SUMMARIZES": 7, "DERIVED_FROM": -7, "SIMILAR_TO": 21}
"""How far from the middle of a box each type of line ends, so that lines between the same two boxes stay apart."""
_PULLS = {"CAUSED_BY": 8, "SUMMARIZES": 2, "DERIVED_FROM": 2}
"""A cause and its effects should be neighbours even where both mention the same agent."""
_FILLS = {"agent": "#fef9c3", "entity": "#ecfeff", "memory": "#f0fdf4", "summary": "#fff7ed", "session": "#f1f5f9"}
_STATUS_COLOURS = {
    "completed": "#15803d",
    "failed": "#b91c1c",
    "timeout": "#b91c1c",
    "running": "#b45309",
    "pending": "#b45309",
}
_PLAIN = "#64748b"
_AGENT_ROLES = ("agent", "participant")


def svg(atlas: Atlas) -> str:
    nodes = sorted(atlas.nodes.values(), key=lambda node: (node.provenance.global_position, node.node_id))
    edges = [edge for edge in atlas.edges if edge.source in atlas.nodes and edge.target in atlas.nodes]
    layout = lay_out([node.node_id for node in nodes], [_link(edge) for edge in edges])
    width = max(760.0, 2 * _MARGIN + layout.columns * (GRID.box_width + GRID.column_gap) - GRID.column_gap)
    height = _HEADER + layout.height + 2 * _MARGIN
    body = [
        *_header(atlas, edges),
        *(_line(edge, route) for edge, route in zip(edges, layout.routes, strict=True)),
        *(_box(node, layout) for node in nodes),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"'
        f' viewBox="0 0 {width:g} {height:g}" font-family="system-ui, sans-serif" font-size="11" fill="#0f172a">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{_markers()}\n' + "\n".join(body) + "\n</svg>\n"
    )


def _link(edge: AtlasEdge) -> Link:
    """Causes, sources and who acted to the left, what was used or made to the right; the rest wherever it falls."""
    after = {"CAUSED_BY": True, "SUMMARIZES": True, "DERIVED_FROM": True}.get(edge.edge_type)
    if edge.edge_type == "REFERENCES":
        after = edge.properties.get("role") in _AGENT_ROLES
    return Link(edge.source, edge.target, f"{edge.edge_type} {_dashes(edge)}", after, _PULLS.get(edge.edge_type, 1))


def _header(atlas: Atlas, edges: list[AtlasEdge]) -> Iterator[str]:
    outside = len(atlas.edges) - len(edges)
    said = [f"{len(atlas.nodes)} nodes and {len(edges)} edges, up to position {atlas.meta.position}"]
    if outside:
        said.append(f"edges to what is not here: {outside}")
    if atlas.meta.truncated or atlas.pagination.has_more:
        said.append(f"cut off: at most {atlas.meta.max_nodes} nodes, {atlas.meta.max_depth} steps deep")
    yield _text(_MARGIN, _MARGIN + 4, " · ".join(said), 'font-weight="600" font-size="13"')
    x = _MARGIN
    for label, colour, dashes, marker in _legend(edges):
        yield _path(f"M {x:g} 50 H {x + 34:g}", colour, dashes, marker)
        yield _text(x + 42, 54, label)
        x += 42 + _width(label) + 22


def _legend(edges: list[AtlasEdge]) -> Iterator[tuple[str, str, str, str]]:
    used = {(edge.edge_type, _dashes(edge)) for edge in edges}
    for edge_type, (label, colour, _) in _STYLES.items():
        for dashes in sorted(dashes for kind, dashes in used if kind == edge_type):
            inferred = edge_type == "CAUSED_BY" and dashes
            yield f"{label}, inferred" if inferred else label, colour, dashes, edge_type


def _dashes(edge: AtlasEdge) -> str:
    return _INFERRED if edge.properties.get("cause") == "inferred" else _STYLES[edge.edge_type][2]


def _markers() -> str:
    heads = (
        f'<marker id="{edge_type}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path d="M 0 0.5 L 8 4 L 0 7.5 z" fill="{colour}"/></marker>'
        for edge_type, (_, colour, _) in _STYLES.items()
    )
    return f"<defs>{''.join(heads)}</defs>"


def _line(edge: AtlasEdge, route: list[Point]) -> str:
    colour = _STYLES[edge.edge_type][1]
    properties = "".join(f"\n{key}: {value}" for key, value in sorted(edge.properties.items()))
    title = f"{edge.source}\n{edge.edge_type}\n{edge.target}{properties}"
    return _path(_way(route, _PORTS.get(edge.edge_type, 0)), colour, _dashes(edge), edge.edge_type, title)


def _way(route: list[Point], port: float) -> str:
    source, target = route[0], route[-1]
    if source.column == target.column:
        return _beside(source, target, port)
    forward = 1 if target.column > source.column else -1
    x, y = _side(source, forward), _top(source) + port
    steps = [f"M {x:g} {y:g}"]
    for point in route[1:]:
        is_end = point is target
        near, level = _side(point, -forward), _top(point) + (port if is_end else 0)
        bend = (near - x) / 2
        steps.append(f"C {x + bend:g} {y:g} {near - bend:g} {level:g} {near:g} {level:g}")
        x, y = _side(point, forward), level
        if not is_end:
            steps.append(f"H {x:g}")
    return " ".join(steps)


def _beside(source: Point, target: Point, port: float) -> str:
    """Neighbours in a column are joined straight; others by a bow in the gap to their right."""
    distance = abs(source.y - target.y)
    down = 1 if target.y > source.y else -1
    if 0 < distance < 1.5 * (GRID.box_height + GRID.row_gap):
        x, half = _left(source) + GRID.box_width / 2 + port, down * GRID.box_height / 2
        return f"M {x:g} {_top(source) + half:g} V {_top(target) - half:g}"
    x, bow = _side(source, 1), min(GRID.column_gap - 10, 24 + distance / 12)
    start, end = _top(source) + down * (6 + abs(port)), _top(target) - down * (6 + abs(port))
    return f"M {x:g} {start:g} C {x + bow:g} {start:g} {x + bow:g} {end:g} {x:g} {end:g}"


def _left(point: Point) -> float:
    return _MARGIN + point.column * (GRID.box_width + GRID.column_gap)


def _side(point: Point, forward: int) -> float:
    return _left(point) + (GRID.box_width if forward > 0 else 0)


def _top(point: Point) -> float:
    """The height of a point in the picture."""
    return _HEADER + _MARGIN + point.y


def _path(way: str, colour: str, dashes: str, marker: str, title: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    inner = f"<title>{_clean(title)}</title>" if title else ""
    return (
        f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.4"{dashed}'
        f' marker-end="url(#{marker})">{inner}</path>'
    )


def _box(node: AtlasNode, layout: Layout) -> str:
    point = layout.places[node.node_id]
    x, y = _left(point), _top(point) - GRID.box_height / 2
    colour = _STATUS_COLOURS.get(node.attributes.get("status") or "", _PLAIN)
    round_by = 4 if node.node_type in ("event", "session") else 16
    return "\n".join(
        [
            f"<g><title>{_clean(_tooltip(node))}</title>",
            f'<rect x="{x:g}" y="{y:g}" width="{GRID.box_width:g}" height="{GRID.box_height:g}" rx="{round_by}"'
            f' fill="{_FILLS.get(node.node_type, "#ffffff")}" stroke="{colour}" stroke-width="1.3"/>',
            *_lines(node, x, y, colour),
            "</g>",
        ]
    )


def _lines(node: AtlasNode, x: float, y: float, colour: str) -> Iterator[str]:
    """What, at which position; who, how it ended; an excerpt; when."""
    origin, attributes = node.provenance, node.attributes
    what = _first(attributes, "event_type", "name") or node.node_id
    who = _first(attributes, "tool_name", "tool", "agent_id") or origin.agent_id
    kind = _first(attributes, "entity_type") or node.node_type
    is_event = node.node_type == "event"
    when = f"{origin.occurred_at:%Y-%m-%d %H:%M:%S}"
    rows = [
        (what, f"#{origin.global_position}" if is_event else kind, 'font-weight="700" font-size="12"', _PLAIN),
        (who if is_event else f"since #{origin.global_position}", attributes.get("status"), "", colour),
        (_first(attributes, "text"), None, 'fill="#334155"', ""),
        (when, None, f'fill="{_PLAIN}" font-size="10"', ""),
    ]
    for index, (left, right, style, right_colour) in enumerate(rows):
        level = y + 17 + index * _LINE
        room = GRID.box_width - 2 * _PADDING
        if right:
            shown = _cut(right, room / 2)
            room -= _width(shown) + 8
            at_end = f'text-anchor="end" fill="{right_colour}"'
            yield _text(x + GRID.box_width - _PADDING, level, shown, at_end)
        if left:
            yield _text(x + _PADDING, level, _cut(left, room / (1.22 if not index else 1)), style)


def _tooltip(node: AtlasNode) -> str:
    origin = node.provenance
    facts = {
        "session": origin.session_id,
        "trace": origin.trace_id,
        "agent": origin.agent_id,
        "event" if node.node_type == "event" else "first told by": str(origin.event_id),
        "position": str(origin.global_position),
        "time": origin.occurred_at.isoformat(),
        **node.attributes,
        "reason": node.reason,
    }
    told = [f"{node.node_type} {node.node_id}", *(f"{name}: {value}" for name, value in facts.items() if value)]
    return "\n".join(told)[:MAX_TOOLTIP_CHARACTERS]


def _first(attributes: dict[str, str | None], *names: str) -> str | None:
    return next((value for name in names if (value := attributes.get(name))), None)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{_clean(text)}</text>'


def _cut(text: str, room: float) -> str:
    """On one line, and no longer than the room."""
    flat = " ".join(text.split())
    if _width(flat) <= room:
        return flat
    taken, kept = _width("…"), 0
    while taken + _width(flat[kept]) <= room:
        taken += _width(flat[kept])
        kept += 1
    return flat[:kept].rstrip() + "…"


def _width(text: str) -> float:
    return sum(map(_character_width, text))


def _character_width(character: str) -> float:
    """In pixels at 11 px, after the widest of the fonts that a viewer is likely to have."""
    if unicodedata.east_asian_width(character) in "WF":
        return 13.0
    if character in _WIDE:
        return 11.0
    return 4.6 if character in _NARROW else 8.2 if character.isupper() else 7.1


def _clean(text: str) -> str:
    """XML allows hardly any control character, and one that turns the direction of text would garble the rest."""
    return escape("".join(character for character in text if character.isprintable() or character == "\n"))
