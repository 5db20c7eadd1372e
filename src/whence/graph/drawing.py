"""Drawing: from the numbers of nodes to an atlas, with each node's attributes and provenance."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

import msgspec

from whence.crypto import SubjectKey
from whence.db import Scope, Tx
from whence.db.queries import load
from whence.errors import SetupError
from whence.graph.edges import EDGE_TYPES, codes
from whence.graph.reading import SUMMARY_SUFFIX, OpenName, open_name
from whence.graph.text import UNNAMED_CALL, excerpt
from whence.ledger import Ledger, Sealed
from whence.ledger.payloads import KeyRow
from whence.wire import AtlasEdge, AtlasNode, EdgeType, NodeType, Provenance, StoredEvent

MAX_EDGES = 25_000
MAX_TEXT_BYTES = 4 << 20
"""Payloads that are read for the texts of one answer; events past that have none."""

_SQL = load("whence.graph")
_encode = msgspec.json.Encoder().encode


class Edge(NamedTuple):
    source: int
    target: int
    edge_type: EdgeType
    role: str | None
    score: float | None
    delta_ms: int | None = None


class Entity(NamedTuple):
    node: int
    entity_type: str
    name_key: str
    name: str | None
    sealed_name: bytes | None
    subject_id: str
    owner: str


@dataclass(frozen=True)
class Rows:
    """What was read in a transaction, to be opened and drawn after it."""

    events: dict[int, StoredEvent]
    entities: list[Entity]
    keys: list[KeyRow]
    contents: list[Sealed]
    edges: list[Edge]


def edges_from(nodes: set[int], *columns: Sequence[Any]) -> list[Edge]:
    """The edges of which these nodes are the sources, from columns."""
    return [
        Edge(source, target, EDGE_TYPES[kind], role, score)
        for source, target, kind, role, score in zip(*columns, strict=True)
        if source in nodes
    ]


async def read_edges(
    tx: Tx,
    scope: Scope,
    build: int,
    sources: Sequence[int],
    targets: Iterable[int] | None,
    kinds: Sequence[EdgeType],
    as_of: int,
) -> list[Edge]:
    """One more than there may be says that there are more."""
    values = {
        "workspace_id": scope.workspace_id,
        "user_id": scope.user_id,
        "build": build,
        "sources": list(sources),
        "targets": None if targets is None else list(targets),
        "kinds": codes(kinds),
        "limit": MAX_EDGES + 1,
        "as_of": as_of,
    }
    rows = await (await tx.execute(_SQL["edges_among"], values, binary=True)).fetchall()
    return [Edge(source, target, EDGE_TYPES[kind], role, score) for source, target, kind, role, score in rows]


async def read_order(tx: Tx, scope: Scope, build: int, nodes: Iterable[int], as_of: int) -> list[Edge]:
    """FOLLOWS edges from these nodes to the events before them."""
    values = {
        "workspace_id": scope.workspace_id,
        "user_id": scope.user_id,
        "build": build,
        "as_of": as_of,
        "positions": [node >> 6 for node in nodes if node & 63 == 0],
    }
    rows = await (await tx.execute(_SQL["order_among"], values, binary=True)).fetchall()
    return [Edge(source, target, "FOLLOWS", None, None, delta) for source, target, delta in rows]


class Wanted(NamedTuple):
    """What an answer shows."""

    nodes: Sequence[int]
    edges: list[Edge]
    content: bool
    """Whether events get a line of what their payload says."""
    also: Sequence[int] = ()
    """Nodes that are named only, besides the ends of the edges."""
    events: dict[int, StoredEvent] = {}  # noqa: RUF012 (it is only read)
    """Those that are known already, by position."""


async def read_rows(tx: Tx, ledger: Ledger, scope: Scope, build: int, wanted: Wanted) -> Rows:
    nodes, edges, content, also, known = wanted
    every = {*nodes, *also, *(end for edge in edges for end in (edge.source, edge.target))}
    named = [node for node in every if node & 63]
    missing = {node >> 6 for node in every} - known.keys()
    events = known | (await ledger.at(tx, scope, sorted(missing)) if missing else {})
    entities: list[Entity] = []
    if named:
        values = {
            "workspace_id": scope.workspace_id, "user_id": scope.user_id, "build": build, "nodes": named,
        }  # fmt: skip
        rows = await (await tx.execute(_SQL["entities_at"], values, binary=True)).fetchall()
        entities = [Entity(*row) for row in rows]
    subjects = {entity.subject_id for entity in entities if entity.sealed_name is not None}
    keys = await ledger.keys.read(tx, scope.workspace_id, subjects) if subjects else []
    positions = [node >> 6 for node in nodes if node & 63 == 0] if content else []
    contents = await ledger.contents(tx, scope, positions, MAX_TEXT_BYTES) if positions else []
    return Rows(events, entities, keys, contents, edges)


class Told(NamedTuple):
    """Why a node is in the answer."""

    reason: str
    scores: dict[str, float]


class Drawing:
    """The rows of an answer, opened: gives nodes and edges with the names that callers know."""

    def __init__(self, scope: Scope, rows: Rows, shown: dict[int, OpenName], texts: dict[int, str]) -> None:
        self._rows = rows
        self._shown = shown
        self._entities = {entity.node: entity for entity in rows.entities if entity.node in shown}
        self._texts = texts
        self._ids = {position << 6: _written(event.event_id) for position, event in rows.events.items()}
        self._ids |= {node: _entity_id(scope, entity, shown[node]) for node, entity in self._entities.items()}

    @classmethod
    async def open(cls, ledger: Ledger, scope: Scope, rows: Rows) -> "Drawing":
        """A name that does not open, because its key is gone, is left out."""
        sealed = {item.subject_id: item.key for item in rows.contents} | {row[0]: row for row in rows.keys}
        keys = await ledger.keys.opened(scope.workspace_id, list(sealed.values())) if sealed else {}
        shown = {entity.node: _shown(scope.workspace_id, entity, keys) for entity in rows.entities}
        # Large payloads take long to open and to read; others should not wait for it.
        texts = await asyncio.to_thread(_texts, ledger, scope, rows, keys) if rows.contents else {}
        return cls(scope, rows, {node: name for node, name in shown.items() if name is not None}, texts)

    def text(self, node: int) -> str:
        return self._texts.get(node) or (self._shown[node].name if node in self._shown else "")

    def id_of(self, node: int) -> str | None:
        return self._ids.get(node)

    def node(self, node: int, told: Told) -> AtlasNode | None:
        """None where it may not be seen."""
        event = self._rows.events.get(node >> 6)
        node_id = self._ids.get(node)
        if event is None or node_id is None:
            return None
        entity = self._entities.get(node)
        kind: NodeType
        attributes: dict[str, str | None]
        if entity is None:
            kind = "summary" if event.event_type.endswith(SUMMARY_SUFFIX) else "event"
            attributes = _attributes(event, self._texts.get(node))
        else:
            kind = "agent" if entity.entity_type == "agent" else "entity"
            attributes = {"entity_type": entity.entity_type, "name": self._shown[node].name}
        return AtlasNode(node_id, kind, attributes, _provenance(event), told.scores, told.reason)

    def edges(self, nodes: Iterable[int]) -> list[AtlasEdge]:
        """The edges from these nodes of which both ends may be seen."""
        wanted = self._ids.keys() & set(nodes)
        drawn = [edge for edge in self._rows.edges if edge.source in wanted and edge.target in self._ids]
        return [
            AtlasEdge(self._ids[edge.source], self._ids[edge.target], edge.edge_type, _properties(edge))
            for edge in sorted(drawn, key=lambda edge: (edge.source, edge.edge_type, edge.target))
        ]


def _shown(workspace_id: str, entity: Entity, keys: dict[str, SubjectKey]) -> OpenName | None:
    if entity.sealed_name is None:
        return OpenName(entity.name_key, entity.name or "")
    key = keys.get(entity.subject_id)
    try:
        return None if key is None else open_name(workspace_id, key, entity.sealed_name)
    except SetupError:
        return None


def _entity_id(scope: Scope, entity: Entity, shown: OpenName) -> str:
    """Readable. An entity is one user's, so to who sees those of all users the id says whose it is."""
    whose = quote(entity.owner, safe=" ") if scope.user_id is None and entity.entity_type != "user" else ""
    about = "" if entity.subject_id in ("", entity.owner) else quote(entity.subject_id, safe=" ")
    return f"{entity.entity_type}{'@' * bool(whose)}{whose}{'~' * bool(about)}{about}:{shown.normal}"


def _texts(ledger: Ledger, scope: Scope, rows: Rows, keys: dict[str, SubjectKey]) -> dict[int, str]:
    return {
        item.position << 6: _text(rows.events.get(item.position), excerpt(item.event_type, item.body))
        for item in ledger.open_all(scope, rows.contents, keys)
        if item.body is not None
    }


def _text(event: StoredEvent | None, text: str) -> str:
    """A payload may hold the arguments only; the envelope knows the tool."""
    if event is not None and event.tool_name and text.startswith(UNNAMED_CALL):
        return f"-> {event.tool_name}({text.removeprefix(UNNAMED_CALL)}"
    return text


def _attributes(event: StoredEvent, text: str | None) -> dict[str, str | None]:
    found = {
        "event_type": event.event_type,
        "tool_name": event.tool_name,
        "status": event.status,
        "user_id": event.user_id,
        "ended_at": event.ended_at and _written(event.ended_at),
    }
    return found if text is None else {**found, "text": text}


def _written(value: UUID | datetime) -> str:
    """As JSON has it; several times as fast as the value's own methods, and there are hundreds in an answer."""
    return _encode(value)[1:-1].decode()


def _provenance(event: StoredEvent) -> Provenance:
    return Provenance(
        event.event_id, event.global_position, event.occurred_at, event.session_id, event.trace_id, event.agent_id
    )


def _properties(edge: Edge) -> dict[str, Any]:
    if edge.edge_type == "CAUSED_BY":
        return {"cause": edge.role}
    found: dict[str, str | int | float | None] = {
        "role": edge.role,
        "score": None if edge.score is None else round(edge.score, 6),
        "delta_ms": edge.delta_ms,
    }
    return {name: value for name, value in found.items() if value is not None}
