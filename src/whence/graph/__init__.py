"""The context graph: why something happened, and how one knows. Derived from the ledger, and rebuildable from it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal
from uuid import UUID

import psycopg

from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import NotFound
from whence.graph import context as contexts
from whence.graph.bounds import Bounds, Cursor, invalid, meta, walk_of
from whence.graph.context import Question
from whence.graph.drawing import (
    MAX_EDGES,
    Drawing,
    Rows,
    Told,
    Wanted,
    edges_from,
    read_edges,
    read_order,
    read_rows,
)
from whence.graph.edges import LINEAGE, STORED, codes
from whence.graph.project import live_build
from whence.ledger import Ledger
from whence.models.embedder import Embedder
from whence.wire import Atlas, AtlasNode, EdgeType, Pagination

WAIT_POLL_SECONDS = 0.02
GRACE_SECONDS = 1.0
"""So long a query about an event waits by itself until the graph has that event."""

_SQL = load("whence.graph")


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
    lacks: int = 0
    """The last position of what was asked about, where the graph has not come to it yet."""


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
        start = Cursor.decode(cursor, walk_of("lineage", event_id, direction, bounds.max_depth))
        asked = _Walk(bounds, start, content)

        async def read(tx: Tx) -> _Page:
            return await self._reach(tx, scope, event_id, direction, LINEAGE, asked)

        return await self._answer(scope, asked, read, wait_for)

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
        asked = _Walk(bounds, Cursor.decode(cursor, walk_of("subgraph", anchor, bounds.max_depth)), content)

        async def read(tx: Tx) -> _Page:
            if anchor.event_id is None:
                return await self._members(tx, scope, anchor, asked)
            kinds: tuple[EdgeType, ...] = ("FOLLOWS", *STORED)
            return await self._reach(tx, scope, anchor.event_id, "both", kinds, asked)

        return await self._answer(scope, asked, read, wait_for)

    async def context(
        self, scope: Scope, question: Question, bounds: Bounds, cursor: str | None = None, wait_for: int | None = None
    ) -> Atlas:
        """What bears on a question or a session, the most relevant first."""
        began = time.perf_counter()
        start = Cursor.decode(cursor, walk_of("context", question, bounds.max_depth))
        waited = await self._wait_for(scope, wait_for, bounds)
        prepared = await asyncio.to_thread(contexts.prepare, question, self._embedder)
        try:
            found = await contexts.search(self._database, self._ledger, scope, prepared, bounds, start)
        except psycopg.errors.QueryCanceled:
            return _timed_out(began, bounds, start)
        return contexts.answer(found, prepared, bounds, began, timed_out=not waited)

    async def _answer(
        self, scope: Scope, walk: _Walk, read: Callable[[Tx], Awaitable[_Page]], wait_for: int | None
    ) -> Atlas:
        began, bounds = time.perf_counter(), walk.bounds
        waited = await self._wait_for(scope, wait_for, bounds)
        try:
            page = await self._read(scope, bounds, read)
            if page.lacks and await self._reaches(scope, page.lacks, min(GRACE_SECONDS, bounds.timeout_ms / 1000)):
                page = await self._read(scope, bounds, read)
        except psycopg.errors.QueryCanceled:
            return _timed_out(began, bounds, walk.start)
        drawing = await Drawing.open(self._ledger, scope, page.rows)
        drawn = [drawing.node(node, told) for node, told in page.nodes.items()]
        return Atlas(
            nodes={node.node_id: node for node in drawn if node is not None},
            edges=drawing.edges(page.nodes),
            pagination=Pagination(page.next and page.next.encoded(), has_more=page.next is not None),
            meta=meta(began, bounds, page.as_of, truncated=page.cut, timed_out=not waited),
        )

    async def _read(self, scope: Scope, bounds: Bounds, read: Callable[[Tx], Awaitable[_Page]]) -> _Page:
        async with self._database.transaction(scope, timeout_ms=bounds.timeout_ms, snapshot=True) as tx:
            return await read(tx)

    async def _wait_for(self, scope: Scope, position: int | None, bounds: Bounds) -> bool:
        """Waits until the graph has come to the position; False when the time was over first."""
        if position is None:
            return True
        head = await self._ledger.heads.read(scope.workspace_id)
        if not 0 <= position <= head:
            raise invalid("wait_for", f"from 0 to {head}, where the ledger ends")
        return await self._reaches(scope, position, bounds.timeout_ms / 1000)

    async def _reaches(self, scope: Scope, position: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            async with self._database.transaction(scope) as tx:
                live = await live_build(tx, scope.workspace_id) or (0, 0)
            if live[1] >= position or time.monotonic() >= deadline:
                return live[1] >= position
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
        values: dict[str, object] = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "event_id": event_id,
            "direction": direction,
            "kinds": codes(kinds),
            "max_depth": bounds.max_depth,
            "max_nodes": bounds.max_nodes,
            "after_depth": start.depth,
            "after_node": start.node,
            "as_of": None if start.is_first else start.as_of,
            "max_edges": MAX_EDGES + 1,
        }
        rows = await (await tx.execute(_SQL["reach"], values, binary=True)).fetchall()
        if not rows:
            raise NotFound("there is no such event")
        _, _, position, build, reached = rows[0][:5]
        as_of = reached if start.is_first else start.as_of
        found = [row for row in rows if row[0] is not None]
        inside = [row for row in found if row[1] <= bounds.max_depth]
        page = inside[: bounds.max_nodes]
        nodes = [row[0] for row in page]
        events = {row[0] >> 6: self._ledger.event(row[10:]) for row in page if row[10] is not None}
        # An edge is given with its source, whether or not its target is within the bounds.
        edges = [edge for row in found if row[5] for edge in edges_from(set(nodes), *row[5:10])]
        cut = len(inside) < len(found) or len(edges) > MAX_EDGES
        if direction == "both":
            edges += await read_order(tx, scope, build, nodes, as_of)
        told = {row[0]: _told(direction, row[1]) for row in page}
        drawn = await read_rows(tx, self._ledger, scope, build, Wanted(nodes, edges, walk.content, events=events))
        last = start.moved(as_of, page[-1][1], page[-1][0]) if len(inside) > len(page) else None
        lacks = position if start.is_first and position > as_of else 0
        return _Page(told, drawn, as_of, last, cut or last is not None, lacks)

    async def _members(self, tx: Tx, scope: Scope, anchor: Anchor, walk: _Walk) -> _Page:
        """Events first, then what they tell of; each in order of its number."""
        bounds, start = walk.bounds, walk.start
        inside = "session" if anchor.trace_id is None else "trace"
        values: dict[str, object] = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "session_id": anchor.session_id,
            "trace_id": anchor.trace_id,
        }
        row = await (await tx.execute(_SQL[f"last_of_{inside}"], values)).fetchone()
        if row is None:
            raise NotFound(f"there is no such {inside}")
        build, reached = await live_build(tx, scope.workspace_id) or (0, 0)
        as_of = reached if start.is_first else start.as_of
        values |= {"build": build, "as_of": as_of}
        found: list[tuple[int, int]] = []
        for depth, statement in enumerate((f"events_of_{inside}", f"entities_of_{inside}")):
            if depth < start.depth or len(found) > bounds.max_nodes:
                continue
            after = start.node if depth == start.depth else -1
            values |= {"after": after if depth else after >> 6, "max_nodes": bounds.max_nodes - len(found)}
            rows = await (await tx.execute(_SQL[statement], values, binary=True)).fetchall()
            found += [(depth, node) for (node,) in rows]
        page = found[: bounds.max_nodes]
        nodes = [node for _, node in page]
        edges = await read_edges(tx, scope, build, nodes, None, STORED, as_of)
        cut = len(edges) > MAX_EDGES
        edges += await read_order(tx, scope, build, nodes, as_of)
        told = {node: Told(f"told of in the {inside}" if depth else f"in the {inside}", {}) for depth, node in page}
        drawn = await read_rows(tx, self._ledger, scope, build, Wanted(nodes, edges, walk.content))
        last = start.moved(as_of, *page[-1]) if len(found) > len(page) else None
        lacks = row[0] if start.is_first and row[0] > reached else 0
        return _Page(told, drawn, as_of, last, cut or last is not None, lacks)


@cache
def _told(direction: str, depth: int) -> Told:
    return Told(_REASONS[direction](depth), {"relevance": round(1 / (1 + depth), 4)})


def _steps(depth: int, what: str, where: str) -> str:
    return f"{what}, {depth} step{'s' * (depth > 1)} {where}" if depth else "asked about"


_REASONS: dict[str, Callable[[int], str]] = {
    "up": lambda depth: _steps(depth, "caused what was asked about", "up"),
    "down": lambda depth: _steps(depth, "came of what was asked about", "down"),
    "both": lambda depth: _steps(depth, "connected with what was asked about", "away"),
}


def _timed_out(began: float, bounds: Bounds, start: Cursor) -> Atlas:
    """Nothing was found in time. The cursor is where this page began, to ask again with more time."""
    nodes: dict[str, AtlasNode] = {}
    told = meta(began, bounds, start.as_of, truncated=True, timed_out=True)
    return Atlas(nodes, [], Pagination(start.encoded(), has_more=True), told)
