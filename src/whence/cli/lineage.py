"""`whence lineage`: what led to an event, or what came of it, as a tree for people."""

import itertools
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from whence.cli.tail import STATUS_COLOURS
from whence.cli.terminal import shown
from whence.graph.bounds import MAX_DEPTH
from whence.wire import Atlas, AtlasEdge, AtlasNode

_WORDS = {
    "CAUSED_BY": ("caused by", "caused"),
    "DERIVED_FROM": ("derived from", "source of"),
    "SUMMARIZES": ("summarizes", "summarized by"),
    "FOLLOWS": ("follows", "followed by"),
    "REFERENCES": ("refers to", "referred to by"),
    "SIMILAR_TO": ("similar to", "similar to"),
    "SAME_AS": ("same as", "same as"),
}
"""How a node reads beneath the source of its edge, and beneath the target; first those that are walked first."""
_RANKS = {edge_type: rank for rank, edge_type in enumerate(_WORDS)}


class _Branch(NamedTuple):
    edge: AtlasEdge
    to: str
    how: str
    is_back: bool
    """Whether it leads from an edge's target to its source: to what came of a node, not to where it came from."""
    is_again: bool = False
    """Whether the node has its place elsewhere in the tree."""


_Branches = dict[str, list[_Branch]]
_Guides = tuple[str, str]
"""What stands before a node's first line, and before the others."""


def print_lineage(console: Console, atlas: Atlas, root_id: str) -> None:
    """Each node once in full, beneath what it was reached from; another edge to it is one line that names it."""
    forest = _grow(atlas, root_id)
    for index, (top, tree) in enumerate(forest.items()):
        if index == 0 and top != root_id:
            _print(console, Text(f"{shown(root_id)} is not in this answer, which holds:", "yellow"))
        if index == 1 and root_id in forest:
            _print(console, Text("\nAlso in this answer, without a connection to the above:", "dim"))
        for branch, guides in _walk(top, tree):
            _print_node(console, atlas.nodes[branch.to if branch else top], branch, guides)
    if not forest:
        _print(console, Text("Nothing is known of it.", "dim"))
    if atlas.meta.truncated or atlas.meta.timed_out or atlas.pagination.has_more:
        _print_cut(console, atlas, forest.get(root_id, {}))


def _grow(atlas: Atlas, root_id: str) -> dict[str, _Branches]:
    """The tree of the root, and one for each part that it does not reach. An edge is in one place only."""
    steps = _steps(atlas)
    by_position = sorted(atlas.nodes, key=lambda node_id: atlas.nodes[node_id].provenance.global_position)
    forest: dict[str, _Branches] = {}
    seen: set[str] = set()
    for top in (root_id, *by_position):
        if top in atlas.nodes and top not in seen:
            ways = _ways(top, steps)
            seen |= ways.keys()
            forest[top] = _tree(ways, steps)
    return forest


def _ways(top: str, steps: _Branches) -> dict[str, _Branch | None]:
    """The last step of the best way to each node, nearest first; causes, however many, are nearer than another edge."""
    ways: dict[str, _Branch | None] = {}
    order = itertools.count()
    waiting: list[tuple[int, int, int, str, _Branch | None]] = [(0, 0, next(order), top, None)]
    while waiting:
        others, length, _, node_id, way = heappop(waiting)
        if node_id not in ways:
            ways[node_id] = way
            for step in steps.get(node_id, ()):
                cost = others + (step.edge.edge_type != "CAUSED_BY")
                heappush(waiting, (cost, length + 1, next(order), step.to, step))
    return ways


def _tree(ways: dict[str, _Branch | None], steps: _Branches) -> _Branches:
    """The steps that the ways are made of, and every other edge once, beneath its source."""
    placed = {id(way.edge) for way in ways.values() if way}
    tree: _Branches = {}
    for node_id in ways:
        found = steps.get(node_id, [])
        others = [step for step in found if not step.is_back and id(step.edge) not in placed]
        own = [step for step in found if ways[step.to] is step]
        if own or others:
            tree[node_id] = [*own, *(step._replace(is_again=True) for step in others)]
    return tree


def _steps(atlas: Atlas) -> _Branches:
    """Both ways along every edge, causes first and then by position; edges that lead out of the answer are left out."""
    steps: _Branches = {}
    for edge in atlas.edges:
        if edge.source in atlas.nodes and edge.target in atlas.nodes:
            forward, back = (word + _detail(edge) for word in _WORDS[edge.edge_type])
            steps.setdefault(edge.source, []).append(_Branch(edge, edge.target, forward, is_back=False))
            steps.setdefault(edge.target, []).append(_Branch(edge, edge.source, back, is_back=True))
    for found in steps.values():
        found.sort(key=lambda step: (_RANKS[step.edge.edge_type], atlas.nodes[step.to].provenance.global_position))
    return steps


def _detail(edge: AtlasEdge) -> str:
    detail = edge.properties.get("cause") or edge.properties.get("role")
    return f" ({shown(str(detail))})" if detail else ""


def _walk(top: str, tree: _Branches) -> Iterator[tuple[_Branch | None, _Guides]]:
    """Depth first, with a stack of its own: a chain may be longer than Python's."""
    yield None, ("", "│ " if top in tree else "  ")
    stack = _pushed(tree.get(top, []), "")
    while stack:
        branch, indent, is_last = stack.pop()
        inner = indent + ("  " if is_last else "│ ")
        children = [] if branch.is_again else tree.get(branch.to, [])
        yield branch, (indent + ("└ " if is_last else "├ "), inner + ("│ " if children else "  "))
        stack += _pushed(children, inner)


def _pushed(branches: list[_Branch], indent: str) -> list[tuple[_Branch, str, bool]]:
    return [(branch, indent, branch is branches[-1]) for branch in reversed(branches)]


def _print_node(console: Console, node: AtlasNode, branch: _Branch | None, guides: _Guides) -> None:
    first, other = (guide[-(console.width // 2) :] for guide in guides)
    if branch and branch.is_again:
        _print(console, Text.assemble((first, "dim"), (f"also {branch.how} ", "dim"), _headline(node)))
        return
    headline = Text.assemble((first, "dim"), _headline(node))
    node_id = f"  {shown(node.node_id)}"
    if headline.cell_len + cell_len(node_id) <= console.width and not headline.plain.endswith(node_id.strip()):
        headline.append(node_id, "dim")
    _print(console, headline)
    when = f"{node.provenance.occurred_at:%Y-%m-%d %H:%M:%S}"
    said = [*([branch.how] if branch else []), when, " ".join((node.attributes.get("text") or "").split())]
    _print(console, Text.assemble((other, "dim"), (" · ".join(shown(part) for part in said if part), "dim")))


def _headline(node: AtlasNode) -> Text:
    """What a person looks for first: where, what, by whom, and how it ended."""
    attributes = node.attributes
    is_event = node.node_type == "event"
    what = attributes.get("event_type") if is_event else attributes.get("entity_type")
    who = (
        attributes.get("tool_name") or node.provenance.agent_id if is_event else attributes.get("name") or node.node_id
    )
    status = attributes.get("status")
    line = Text(f"#{node.provenance.global_position}", "bold")
    line.append(f" {shown(what or node.node_type)}", "cyan")
    if who:
        line.append(f" {shown(who)}")
    if status:
        line.append(f" {shown(status)}", STATUS_COLOURS.get(status, "green"))
    return line


def _print_cut(console: Console, atlas: Atlas, tree: _Branches) -> None:
    meta = atlas.meta
    bound = f"{meta.timeout_ms:,} ms" if meta.timed_out else f"{meta.max_depth} steps or {meta.max_nodes} nodes"
    _print(console, Text(f"\nThere is more: this was cut off at {bound}.", "yellow"))
    if meta.max_depth < MAX_DEPTH:
        _print(console, Text(f"  see further with: --depth, up to {MAX_DEPTH}"))
    steps = [branch for branches in tree.values() for branch in branches if not branch.is_again]
    ends = [branch for branch in steps if atlas.nodes[branch.to].node_type == "event"]
    if ends:
        down = " --down" if ends[-1].is_back else ""
        _print(console, Text(f"  go on with: whence lineage {shown(ends[-1].to)}{down}"))


def _print(console: Console, line: Text) -> None:
    """One line each, however narrow the terminal; a file or a pipe has the width of 80 that rich gives it."""
    line.truncate(max(console.width, 20), overflow="ellipsis")
    console.print(line, soft_wrap=True, highlight=False)
