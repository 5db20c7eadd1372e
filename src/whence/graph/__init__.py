"""The context graph: why something happened, and how one knows. Derived from the ledger, and rebuildable from it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import psycopg

from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import NotFound
from whence.graph import context as contexts
from whence.graph.bounds import Bounds, Cursor, invalid, walk_of
from whence.graph.context import Question
from whence.graph.drawing import MAX_EDGES, Drawing, Rows, Told, read_edges, read_order, read_rows
from whence.graph.edges import LINEAGE, STORED, codes
from whence.graph.project import live_build
from whence.ledger import Ledger
from whence.models.embedder import Embedder
from whence.wire import Atlas, AtlasMeta, AtlasNode, EdgeType, Pagination

WAIT_POLL_SECONDS = 0.02
GRACE_SECONDS = 1.0
"""So long a query about an event waits by itself until the graph has that event."""

_SQL = load("whence.graph")
_START = Cursor(0, -1, -1, -1)


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a subgraph is around: an event, a session or a trace."""

    event_id: UUID | None = None
    session_id: str | None = None
    trace_id: str | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.event_id, self.session_id, self.trace_id)) != 1:
            raise invalid("event_id", "name one of event_id, session_id and trace_id")
        if "\x00" in (self.session_id or self.trace_id or ""):
            raise invalid("session_id" if self.session_id else "trace_id", "must not contain a NUL character")


@dataclass(frozen=True)
class _Walk:
    name: int
    """Tells this walk's cursors from others'."""
    bounds: Bounds
    start: Cursor
    content: bool


@dataclass(frozen=True)
class _Page:
    """A page of a walk, as it was read."""

    nodes: dict[int, Told]
    rows: Rows
    as_of: int
    next: Cursor | None
    cut: bool
    """Whether something beyond the page was left out: by its size, or by the depth."""
    lacks: bool = False
    """Whether the ledger has events of what was asked about that the graph does not have yet."""


class Graph:
    def __init__(self, database: Database, ledger: Ledger, embedder: Embedder) -> None:
        self._database = database
        self._ledger = ledger
        self._embedder = embedder

    async def lineage(
        self,
        scope: Scope,
        event_id: UUID,
        direction: Literal["up", "down"],
        bounds: Bounds,
        cursor: str | None = None,
        wait_for: int | None = None,
        content: bool = False,
    ) -> Atlas:
        """What caused the event, and what caused that, nearest first; or (down) what came of it."""
        walk = walk_of("lineage", event_id, direction, bounds.max_depth)
        start = _START if cursor is None else Cursor.decode(cursor, walk)

        async def read(tx: Tx) -> _Page:
            return await self._reach(tx, scope, event_id, direction, LINEAGE, _Walk(walk, bounds, start, content))

        return await self._answer(scope, bounds, read, cursor, wait_for)

    async def subgraph(
        self,
        scope: Scope,
        anchor: Anchor,
        bounds: Bounds,
        cursor: str | None = None,
        wait_for: int | None = None,
        content: bool = False,
    ) -> Atlas:
        """Everything around an event, or in a session or a trace, with all kinds of edges."""
        walk = walk_of("subgraph", anchor, bounds.max_depth)
        start = _START if cursor is None else Cursor.decode(cursor, walk)

        async def read(tx: Tx) -> _Page:
            if anchor.event_id is None:
                return await self._members(tx, scope, anchor, _Walk(walk, bounds, start, content))
            kinds: tuple[EdgeType, ...] = ("FOLLOWS", *STORED)
            return await self._reach(tx, scope, anchor.event_id, "both", kinds, _Walk(walk, bounds, start, content))

        return await self._answer(scope, bounds, read, cursor, wait_for)

    async def context(
        self, scope: Scope, question: Question, bounds: Bounds, cursor: str | None = None, wait_for: int | None = None
    ) -> Atlas:
        """What bears on a question or a session, the most relevant first."""
        began = time.perf_counter()
        walk = walk_of("context", question, bounds.max_depth)
        start = None if cursor is None else Cursor.decode(cursor, walk)
        waited = await self._wait_for(scope, wait_for, bounds)
        prepared = await asyncio.to_thread(contexts.prepare, question, self._embedder)
        try:
            found = await contexts.search(self._database, self._ledger, scope, prepared, bounds, start, walk)
        except psycopg.errors.QueryCanceled:
            return _timed_out(began, bounds, cursor)
        return contexts.answer(found, prepared, bounds, began, timed_out=not waited)

    async def _answer(
        self, scope: Scope, bounds: Bounds, read: Callable[[Tx], Any], cursor: str | None, wait_for: int | None
    ) -> Atlas:
        began = time.perf_counter()
        waited = await self._wait_for(scope, wait_for, bounds)
        patience = time.monotonic() + min(GRACE_SECONDS, bounds.timeout_ms / 1000)
        try:
            while True:
                async with self._database.transaction(scope, timeout_ms=bounds.timeout_ms) as tx:
                    page: _Page = await read(tx)
                if not page.lacks or time.monotonic() >= patience:
                    break
                await asyncio.sleep(WAIT_POLL_SECONDS)
        except psycopg.errors.QueryCanceled:
            return _timed_out(began, bounds, cursor)
        drawing = await Drawing.open(self._ledger, scope, page.rows)
        drawn = [drawing.node(node, told) for node, told in page.nodes.items()]
        return Atlas(
            nodes={node.node_id: node for node in drawn if node is not None},
            edges=drawing.edges(page.nodes),
            pagination=Pagination(page.next and page.next.encoded(), has_more=page.next is not None),
            meta=meta(began, bounds, page.as_of, truncated=page.cut, timed_out=not waited),
        )

    async def _wait_for(self, scope: Scope, position: int | None, bounds: Bounds) -> bool:
        """Waits until the graph has come to the position; False when the time was over first."""
        if position is None:
            return True
        head = await self._ledger.heads.read(scope.workspace_id)
        if not 0 <= position <= head:
            raise invalid("wait_for", f"from 0 to {head}, where the ledger ends")
        deadline = time.monotonic() + bounds.timeout_ms / 1000
        while True:
            async with self._database.transaction(scope) as tx:
                live = await live_build(tx, scope.workspace_id)
            if live is not None and live[1] >= position:
                return True
            if time.monotonic() >= deadline:
                return position == 0
            await asyncio.sleep(WAIT_POLL_SECONDS)

    async def _reach(
        self,
        tx: Tx,
        scope: Scope,
        event_id: UUID,
        direction: Literal["up", "down", "both"],
        kinds: Sequence[EdgeType],
        walk: _Walk,
    ) -> _Page:
        bounds, start = walk.bounds, walk.start
        values = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "event_id": event_id,
            "direction": direction,
            "kinds": codes(kinds),
            "max_depth": bounds.max_depth,
            "max_nodes": bounds.max_nodes,
            "after_depth": start.depth,
            "after_node": start.node,
            "as_of": None if start.as_of < 0 else start.as_of,
        }
        found = await (await tx.execute(_SQL["reach"], values, binary=True)).fetchall()
        if not found:
            if start is _START:
                raise NotFound("there is no such event")
            return _Page({}, Rows({}, [], [], [], []), start.as_of, None, cut=False)
        build, as_of = found[0][2], found[0][3] if start.as_of < 0 else start.as_of
        lacks = start is _START and found[0][0] >> 6 > as_of
        inside = [row for row in found if row[1] <= bounds.max_depth]
        rows = inside[: bounds.max_nodes]
        nodes = [row[0] for row in rows]
        # An edge is given with its source, whether or not its target is within the bounds.
        edges = await read_edges(tx, scope, build, nodes, None, kinds) if nodes else []
        if direction == "both":
            edges += await read_order(tx, scope, build, nodes, as_of)
        more = len(inside) > len(rows)
        cut = more or len(inside) < len(found) or len(edges) > MAX_EDGES
        last = Cursor(walk.name, as_of, rows[-1][1], rows[-1][0]) if more else None
        told = {
            node: Told(_REASONS[direction](depth), {"relevance": round(1 / (1 + depth), 4)}) for node, depth, *_ in rows
        }
        drawn = await read_rows(tx, self._ledger, scope, build, nodes, edges, walk.content)
        return _Page(told, drawn, as_of, last, cut, lacks)

    async def _members(self, tx: Tx, scope: Scope, anchor: Anchor, walk: _Walk) -> _Page:
        bounds, start = walk.bounds, walk.start
        inside = "session" if anchor.trace_id is None else "trace"
        values: dict[str, object] = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "session_id": anchor.session_id,
            "trace_id": anchor.trace_id,
            "after_node": start.node,
            "max_nodes": bounds.max_nodes,
        }
        row = await (await tx.execute(_SQL[f"last_of_{inside}"], values)).fetchone()
        if row is None:
            raise NotFound(f"there is no such {inside}")
        live = await live_build(tx, scope.workspace_id) or (0, 0)
        lacks = start is _START and row[0] > live[1]
        build, as_of = live[0], live[1] if start.as_of < 0 else start.as_of
        values |= {"build": build, "as_of": as_of}
        found = await (await tx.execute(_SQL[f"members_of_{inside}"], values, binary=True)).fetchall()
        nodes = [row[0] for row in found[: bounds.max_nodes]]
        more = len(found) > len(nodes)
        edges = await read_edges(tx, scope, build, nodes, None, STORED)
        cut = more or len(edges) > MAX_EDGES
        edges += await read_order(tx, scope, build, nodes, as_of)
        told = {node: Told(f"in the {inside}" if node & 63 == 0 else f"told of in the {inside}", {}) for node in nodes}
        drawn = await read_rows(tx, self._ledger, scope, build, nodes, edges, walk.content)
        last = Cursor(walk.name, as_of, 0, nodes[-1]) if more else None
        return _Page(told, drawn, as_of, last, cut, lacks)


def _steps(depth: int, what: str, where: str) -> str:
    return f"{what}, {depth} step{'s' * (depth > 1)} {where}" if depth else "asked about"


_REASONS: dict[str, Callable[[int], str]] = {
    "up": lambda depth: _steps(depth, "caused what was asked about", "up"),
    "down": lambda depth: _steps(depth, "came of what was asked about", "down"),
    "both": lambda depth: _steps(depth, "connected with what was asked about", "away"),
}


def meta(began: float, bounds: Bounds, position: int, truncated: bool, timed_out: bool, **more: Any) -> AtlasMeta:
    return AtlasMeta(
        query_ms=round((time.perf_counter() - began) * 1000, 3),
        truncated=truncated or timed_out,
        max_depth=bounds.max_depth,
        max_nodes=bounds.max_nodes,
        timeout_ms=bounds.timeout_ms,
        timed_out=timed_out,
        position=max(position, 0),
        **more,
    )


def _timed_out(began: float, bounds: Bounds, cursor: str | None) -> Atlas:
    """Nothing was found in time. The cursor is the one that was given, to ask again with more time."""
    nodes: dict[str, AtlasNode] = {}
    return Atlas(nodes, [], Pagination(cursor, has_more=True), meta(began, bounds, 0, truncated=True, timed_out=True))
