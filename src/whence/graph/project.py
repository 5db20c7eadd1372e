"""The projector: follows the ledger and writes the graph.

It takes the next events of a workspace, reads their payloads outside of any transaction, and writes everything that
follows from them together with the position that it has come to. So each event is projected once, whoever dies when.
What a batch writes depends on the events up to its end alone, never on where batches begin and end: a graph that is
built again, in other steps, is the same.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import psycopg
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from whence.clock import Clock
from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict
from whence.graph import reading
from whence.graph.edges import EDGE_CODES
from whence.graph.names import nearest, normalise
from whence.graph.reading import Reading
from whence.ledger import Ledger
from whence.models.embedder import Embedder, similarity
from whence.wire import EdgeType

log = structlog.get_logger()

MAX_BATCH_EVENTS = 1_000
MAX_BATCH_BYTES = 16 << 20
INFERENCE_WINDOW_EVENTS = 50
SIMILAR_WINDOW_EVENTS = 500
SIMILAR_THRESHOLD = 0.85
MAX_SIMILAR = 3
SAME_THRESHOLD = 0.9
SAME_WINDOW_NAMES = 2_000
MAX_SAME = 3
MAX_REMEMBERED_OWNERS = 256
FIRST_NAMED_PLACE = 8
MAX_REASON_CHARACTERS = 500
MAX_MEASURED_WORKSPACES = 20

_SQL = load("whence.graph")
_STRUCTURE = ("project_timeline", "project_parents", "project_arrivals", "project_inferred")


# What an event itself can be to blame for, as against a database that does not answer.
_POISON = (psycopg.DataError, psycopg.IntegrityError, ValueError, TypeError, LookupError, ArithmeticError)


class Build(NamedTuple):
    workspace_id: str
    number: int


class _Batch(NamedTuple):
    build: Build
    lo: int
    hi: int
    with_payload: list[int]

    def values(self, **more: object) -> dict[str, object]:
        return {
            "workspace_id": self.build.workspace_id,
            "build": self.build.number,
            "lo": self.lo,
            "hi": self.hi,
            **more,
        }


class _Key(NamedTuple):
    """By what an entity is known again."""

    entity_type: str
    name_key: str
    owner: str
    subject_id: str


class _Entity(NamedTuple):
    node: int
    key: _Key
    name: str | None
    sealed_name: bytes | None


class _Alias(NamedTuple):
    """What a name stands for, and how that is called."""

    target: _Key
    name: str | None
    sealed_name: bytes | None


@dataclass
class _Names:
    """The latest names of one owner and kind, to compare new ones with."""

    nodes: list[int] = field(default_factory=list[int])
    normals: list[str] = field(default_factory=list[str])


@dataclass
class _Lately:
    """What the projector remembers of one owner and subject, so that it need not be read for every batch."""

    nodes: list[int]
    traces: list[str]
    vectors: npt.NDArray[np.int8]
    names: dict[str, _Names] = field(default_factory=dict[str, _Names])


@dataclass
class _Edges:
    rows: list[tuple[int, int, int, str | None, float | None, str]] = field(
        default_factory=list[tuple[int, int, int, str | None, float | None, str]]
    )

    def add(
        self, source: int, target: int, edge_type: EdgeType, owner: str, role: str | None, score: float | None = None
    ) -> None:
        if source != target:
            self.rows.append((source, target, EDGE_CODES[edge_type], role, score, owner))


class Projector:
    def __init__(
        self, database: Database, ledger: Ledger, clock: Clock, embedder: Embedder, registry: CollectorRegistry
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._embedder = embedder
        self._lately: OrderedDict[tuple[Build, str, str], _Lately] = OrderedDict()
        self._reached: dict[Build, int] = {}
        self._projected = Counter("whence_projected_events", "Events that the graph has taken in", registry=registry)
        self._aside = Counter("whence_set_aside_events", "Events that the graph could not take in", registry=registry)
        self._lag_events = Gauge(
            "whence_projection_lag_events", "Events that the graph does not have yet", registry=registry
        )
        self._lag_seconds = Gauge(
            "whence_projection_lag_seconds", "Age of the oldest event that the graph does not have", registry=registry
        )

    async def behind(self) -> list[tuple[str, int, int]]:
        """Workspaces whose graph is behind: their ids, where the ledger ends, where the graph is."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows: list[Any] = await (await tx.execute(_SQL["behind"])).fetchall()
        return rows

    async def measure(self) -> None:
        """Sets the metrics of how far the graph is behind."""
        rows = await self.behind()
        now = self._clock()
        oldest = [await self._waiting_since(workspace_id, at) for workspace_id, _, at in rows[:MAX_MEASURED_WORKSPACES]]
        self._lag_events.set(sum(head - at for _, head, at in rows))
        self._lag_seconds.set(max(((now - since).total_seconds() for since in oldest if since), default=0.0))

    def forget_measures(self) -> None:
        """What cannot be known must not look as it did when it could."""
        self._lag_events.set(math.nan)
        self._lag_seconds.set(math.nan)

    async def _waiting_since(self, workspace_id: str, position: int) -> datetime | None:
        async with self._database.transaction(Scope(workspace_id)) as tx:
            values = {"workspace_id": workspace_id, "position": position}
            row = await (await tx.execute(_SQL["recorded_after"], values)).fetchone()
        return row[0] if row else None

    async def live(self, workspace_id: str) -> Build:
        """The build that readers use; made where there is none."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            row = await live_build(tx, workspace_id)
            if row is None:
                await tx.execute(_SQL["add_first_build"], {"workspace_id": workspace_id, "now": self._clock()})
                row = await live_build(tx, workspace_id)
        if row is None:
            raise Conflict("another process makes the graph of this workspace")
        return Build(workspace_id, row[0])

    async def catch_up(self, workspace_id: str, max_events: int = MAX_BATCH_EVENTS) -> int:
        """Projects what is there; returns the position that the graph has come to."""
        build = await self.live(workspace_id)
        position = -1
        while (reached := await self.step(build, max_events)) != position:
            position = reached
        return position

    async def step(self, build: Build, max_events: int = MAX_BATCH_EVENTS, upto: int | None = None) -> int:
        """Projects the next events, at most so many; returns the position that the build has come to.

        A batch that fails is taken in halves, until the event that fails stands alone and is set aside.
        """
        batch, sealed = await self._next(build, max_events, upto)
        if batch.hi == batch.lo:
            return batch.lo
        contents = await self._ledger.opened(Scope(build.workspace_id), sealed)
        try:
            readings = await asyncio.to_thread(reading.read_all, contents, self._embedder) if contents else []
            return await self._write(batch, readings)
        except _POISON as error:
            if batch.hi - batch.lo > 1:
                return await self.step(build, (batch.hi - batch.lo) // 2, upto)
            return await self._set_aside(batch, error)

    async def _next(self, build: Build, max_events: int, upto: int | None) -> tuple[_Batch, list[Any]]:
        scope = Scope(build.workspace_id)
        async with self._database.transaction(scope) as tx:
            values = {"workspace_id": build.workspace_id, "build": build.number, "limit": max_events}
            row = await (await tx.execute(_SQL["next_batch"], values, binary=True)).fetchone()
            if row is None:
                raise Conflict("the build is gone: another rebuild has taken its place")
            lo, head, alias, positions, sizes = row
            hi = min(lo + max_events, head if upto is None else min(head, upto), alias or head)
            batch = _cut(_Batch(build, lo, max(lo, hi), positions), sizes)
            sealed = await self._ledger.contents(tx, scope, batch.with_payload) if batch.with_payload else []
        return batch, sealed

    async def _write(self, batch: _Batch, readings: Sequence[Reading]) -> int:
        """Everything that follows from the batch, and the position, in one transaction."""
        try:
            reached = await self._write_in_transaction(batch, readings)
        except BaseException:
            # What is remembered may hold what was not stored.
            self._forget(batch.build)
            raise
        # Not before the batch is stored: what is read again in its midst would lack its first half.
        while len(self._lately) > MAX_REMEMBERED_OWNERS:
            self._lately.popitem(last=False)
        return reached

    async def _write_in_transaction(self, batch: _Batch, readings: Sequence[Reading]) -> int:
        edges = _Edges()
        async with self._database.transaction(Scope(batch.build.workspace_id)) as tx:
            row = await (await tx.execute(_SQL["lock_build"], batch.values())).fetchone()
            if row is None or row[0] != batch.lo:
                # Another worker was here first.
                return row[0] if row else batch.lo
            values = batch.values(window=INFERENCE_WINDOW_EVENTS, now=self._clock())
            async with tx.pipeline():
                for name in _STRUCTURE:
                    await tx.execute(_SQL[name], values)
                cursor = await tx.execute(_SQL["project_references"], values)
                fresh = await cursor.fetchall()
            await self._compare_clear(tx, batch, fresh, edges)
            if readings:
                await self._write_readings(tx, batch, readings, edges)
            await _add_edges(tx, batch, edges)
            await tx.execute(_SQL["move_build"], values)
        self._reached[batch.build] = batch.hi
        self._projected.inc(batch.hi - batch.lo)
        return batch.hi

    async def _set_aside(self, batch: _Batch, error: Exception) -> int:
        """The event's reason names the kind of failure only: the database's own message may quote content."""
        constraint = error.diag.constraint_name if isinstance(error, psycopg.Error) else None
        reason = f"{type(error).__name__}{f' ({constraint})' if constraint else ''}"
        log.warning("event set aside", workspace=batch.build.workspace_id, position=batch.hi, reason=reason)
        async with self._database.transaction(Scope(batch.build.workspace_id)) as tx:
            row = await (await tx.execute(_SQL["lock_build"], batch.values())).fetchone()
            if row is not None and row[0] == batch.lo:
                await self._note(tx, batch, batch.hi, reason)
                await tx.execute(_SQL["move_build"], batch.values(now=self._clock()))
        return batch.hi

    async def _note(self, tx: Tx, batch: _Batch, position: int, reason: str) -> None:
        values = batch.values(position=position, reason=reason[:MAX_REASON_CHARACTERS])
        await tx.execute(_SQL["set_aside"], values)
        self._aside.inc()

    async def _compare_clear(self, tx: Tx, batch: _Batch, fresh: Sequence[Any], edges: _Edges) -> None:
        """New agents and tools against those that came before, in the same batch or earlier."""
        groups: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for node, entity_type, name_key, owner in fresh:
            groups.setdefault((owner, entity_type), []).append((node, name_key))
        if not groups:
            return
        values = batch.values(
            owners=[owner for owner, _ in groups],
            entity_types=[entity_type for _, entity_type in groups],
            nodes=[names[-1][0] for names in groups.values()],
            subject_id="",
            limit=SAME_WINDOW_NAMES + len(fresh),
        )
        rows = await (await tx.execute(_SQL["names_before"], values)).fetchall()
        for place, ((owner, _), names) in enumerate(groups.items(), 1):
            known = [(row[1], row[2]) for row in rows if row[0] == place]
            for node, name_key in names:
                before = [item for item in known if item[0] < node][:SAME_WINDOW_NAMES]
                for other, score in nearest(name_key, [item[1] for item in before], SAME_THRESHOLD)[:MAX_SAME]:
                    edges.add(node, before[other][0], "SAME_AS", owner, "alike", score)

    async def _write_readings(self, tx: Tx, batch: _Batch, readings: Sequence[Reading], edges: _Edges) -> None:
        if self._reached.get(batch.build) != batch.lo:
            self._forget(batch.build)
        for item in readings:
            if item.problem is not None:
                await self._note(tx, batch, item.content.position, item.problem)
        await self._write_names(tx, batch, readings, edges)
        await self._write_vectors(tx, batch, readings, edges)
        pointers = [(item, event_id) for item in readings for event_id in item.summarizes]
        if pointers:
            values = batch.values(
                sources=[item.node for item, _ in pointers],
                event_ids=[event_id for _, event_id in pointers],
                edge_types=[EDGE_CODES["SUMMARIZES"]] * len(pointers),
                owners=[item.owner for item, _ in pointers],
            )
            await tx.execute(_SQL["project_pointers"], values)
        for item in readings:
            if item.alias is not None:
                await self._write_alias(tx, batch, item, item.alias, edges)

    async def _write_names(self, tx: Tx, batch: _Batch, readings: Sequence[Reading], edges: _Edges) -> None:
        """Names of payloads: known ones are referred to, new ones are added and compared with those before."""
        mentions = [
            (item, place, mention, reading.name_key(item.content, mention.name.entity_type, mention.name.normal))
            for item in readings
            for place, mention in enumerate(item.mentions, FIRST_NAMED_PLACE)
        ]
        keys = [_Key(m.name.entity_type, key, item.owner, item.content.subject_id) for item, _, m, key in mentions]
        aliases = await _aliases(tx, batch, list(dict.fromkeys(keys)))
        known = await _known(
            tx, batch, list(dict.fromkeys(aliases[key].target if key in aliases else key for key in keys))
        )
        fresh: list[_Entity] = []
        for key, (item, place, mention, _) in zip(keys, mentions, strict=True):
            alias = aliases.get(key)
            meant = key if alias is None else alias.target
            if meant not in known:
                known[meant] = node = item.node + place
                sealed = alias.sealed_name if alias else self._seal(batch, item, mention.name.name)
                fresh.append(_Entity(node, meant, None, sealed))
                if meant.entity_type == "name":
                    normal = mention.name.normal if alias is None else self._opened(batch, item, alias.sealed_name)
                    await self._compare_sealed(tx, batch, item, node, normal, edges)
            edges.add(item.node, known[meant], "REFERENCES", item.owner, mention.role)
        await _add_entities(tx, batch, fresh)

    def _seal(self, batch: _Batch, item: Reading, name: str) -> bytes:
        return reading.seal_name(batch.build.workspace_id, item.content, name)

    def _opened(self, batch: _Batch, item: Reading, sealed: bytes | None) -> str:
        return normalise(reading.open_name(batch.build.workspace_id, item.content, sealed or b""))

    async def _compare_sealed(
        self, tx: Tx, batch: _Batch, item: Reading, node: int, normal: str, edges: _Edges
    ) -> None:
        names = await self._names(tx, batch, item)
        for place, score in nearest(normal, names.normals, SAME_THRESHOLD)[:MAX_SAME]:
            edges.add(node, names.nodes[place], "SAME_AS", item.owner, "alike", score)
        # The latest first, as they are read.
        names.nodes.insert(0, node)
        names.normals.insert(0, normal)
        del names.nodes[SAME_WINDOW_NAMES:], names.normals[SAME_WINDOW_NAMES:]

    async def _names(self, tx: Tx, batch: _Batch, item: Reading) -> _Names:
        lately = await self._remembered(tx, batch, item)
        if "name" not in lately.names:
            values = batch.values(
                owners=[item.owner],
                entity_types=["name"],
                nodes=[(batch.lo + 1) << 6],
                subject_id=item.content.subject_id,
                limit=SAME_WINDOW_NAMES,
            )
            rows = await (await tx.execute(_SQL["names_before"], values, binary=True)).fetchall()
            normals = [self._opened(batch, item, row[3]) for row in rows]
            lately.names["name"] = _Names([row[1] for row in rows], normals)
        return lately.names["name"]

    async def _write_vectors(self, tx: Tx, batch: _Batch, readings: Sequence[Reading], edges: _Edges) -> None:
        groups: dict[tuple[str, str], list[Reading]] = {}
        for item in readings:
            if item.vector is not None:
                groups.setdefault((item.owner, item.content.subject_id), []).append(item)
        for (owner, _), items in groups.items():
            _add_similar(await self._remembered(tx, batch, items[0]), items, owner, edges)
        compared = [item for items in groups.values() for item in items]
        if compared:
            values = batch.values(
                nodes=[item.node for item in compared],
                owners=[item.owner for item in compared],
                subject_ids=[item.content.subject_id for item in compared],
                # All in one piece: an array of byte strings takes as long to write as all else together.
                vectors=b"".join(item.vector.tobytes() for item in compared if item.vector is not None),
                size=self._embedder.dimension,
            )
            await tx.execute(_SQL["add_vectors"], values)

    async def _write_alias(self, tx: Tx, batch: _Batch, item: Reading, alias: reading.Alias, edges: _Edges) -> None:
        """An alias is the last of its batch: what comes after it is read with it, what came before is not."""
        target, name = await self._alias_keys(tx, item, alias)
        meant = (await _aliases(tx, batch, [target])).get(target)
        sealed = alias.entity_type in reading.SEALED_TYPES
        if meant is None:
            own = (None, self._seal(batch, item, alias.name)) if sealed else (alias.name, None)
            meant = _Alias(target, *own)
        if meant.target == name:
            # It stands for itself, perhaps by way of others.
            return
        known = await _known(tx, batch, [name, meant.target])
        if name in known:
            if meant.target not in known:
                known[meant.target] = item.node + FIRST_NAMED_PLACE
                await _add_entities(tx, batch, [_Entity(known[meant.target], *meant)])
            edges.add(known[name], known[meant.target], "SAME_AS", item.owner, "alias", 1.0)
        values = batch.values(
            **name._asdict(), target_key=meant.target.name_key, name=meant.name, sealed_name=meant.sealed_name
        )
        await tx.execute(_SQL["add_alias"], values)
        await tx.execute(_SQL["move_aliases"], values)
        self._forget(batch.build)

    async def _alias_keys(self, tx: Tx, item: Reading, alias: reading.Alias) -> tuple[_Key, _Key]:
        """By what the name and its alias are known."""
        if alias.entity_type in reading.SEALED_TYPES:
            keys = [
                reading.name_key(item.content, alias.entity_type, normalise(name)) for name in (alias.name, alias.alias)
            ]
            subject_id = item.content.subject_id
        else:
            values = {"entity_type": alias.entity_type, "name": alias.name, "alias": alias.alias}
            (keys,) = await (await tx.execute(_SQL["name_keys"], values)).fetchall()
            subject_id = ""
        target, name = (_Key(alias.entity_type, key, item.owner, subject_id) for key in keys)
        return target, name

    async def _remembered(self, tx: Tx, batch: _Batch, item: Reading) -> _Lately:
        place = (batch.build, item.owner, item.content.subject_id)
        if place not in self._lately:
            values = batch.values(owner=item.owner, subject_id=item.content.subject_id, limit=SIMILAR_WINDOW_EVENTS)
            rows = await (await tx.execute(_SQL["vectors_before"], values, binary=True)).fetchall()
            rows.reverse()
            vectors = np.frombuffer(b"".join(row[1] for row in rows), np.int8).reshape(-1, self._embedder.dimension)
            self._lately[place] = _Lately([row[0] for row in rows], [row[2] for row in rows], vectors)
        self._lately.move_to_end(place)
        return self._lately[place]

    def _forget(self, build: Build) -> None:
        for place in [place for place in self._lately if place[0] == build]:
            del self._lately[place]
        self._reached.pop(build, None)


async def live_build(tx: Tx, workspace_id: str) -> tuple[int, int] | None:
    """The number of the build that readers use, and the position that it has come to."""
    row: Any = await (await tx.execute(_SQL["live_build"], {"workspace_id": workspace_id})).fetchone()
    return row


def _cut(batch: _Batch, sizes: Sequence[int]) -> _Batch:
    """Ends the batch where its payloads would be too large together; one is always taken."""
    total = 0
    for place, (position, size) in enumerate(zip(batch.with_payload, sizes, strict=True)):
        total += size
        if position > batch.hi:
            return batch._replace(with_payload=batch.with_payload[:place])
        if total > MAX_BATCH_BYTES and place:
            return batch._replace(hi=position - 1, with_payload=batch.with_payload[:place])
    return batch


def _add_similar(lately: _Lately, items: Sequence[Reading], owner: str, edges: _Edges) -> None:
    """Edges to the most similar of the texts before each, in other traces: within one, the same text is passed on."""
    fresh = np.stack([item.vector for item in items if item.vector is not None])
    start = len(lately.nodes)
    nodes = lately.nodes + [item.node for item in items]
    traces = np.array(lately.traces + [item.content.trace_id for item in items])
    vectors = np.concatenate([lately.vectors, fresh]) if start else fresh
    scores = similarity(fresh, vectors)
    for row, item in enumerate(items):
        first, end = max(0, start + row - SIMILAR_WINDOW_EVENTS), start + row
        alike = np.flatnonzero(
            (scores[row, first:end] > SIMILAR_THRESHOLD) & (traces[first:end] != item.content.trace_id)
        )
        ranked = sorted((-float(scores[row, first + place]), -nodes[first + place]) for place in alike)
        for score, node in ranked[:MAX_SIMILAR]:
            edges.add(item.node, -node, "SIMILAR_TO", owner, None, -score)
    lately.nodes = nodes[-SIMILAR_WINDOW_EVENTS:]
    lately.traces = [str(trace) for trace in traces[-SIMILAR_WINDOW_EVENTS:]]
    lately.vectors = vectors[-SIMILAR_WINDOW_EVENTS:]


async def _aliases(tx: Tx, batch: _Batch, keys: Sequence[_Key]) -> dict[_Key, _Alias]:
    """What these names stand for, where they are aliases."""
    if not keys:
        return {}
    rows = await (await tx.execute(_SQL["known_aliases"], _key_values(batch, keys), binary=True)).fetchall()
    found: dict[_Key, _Alias] = {}
    for place, target_key, name, sealed_name in rows:
        key = keys[int(place) - 1]
        found[key] = _Alias(key._replace(name_key=target_key), name, sealed_name)
    return found


async def _known(tx: Tx, batch: _Batch, keys: Sequence[_Key]) -> dict[_Key, int]:
    if not keys:
        return {}
    rows = await (await tx.execute(_SQL["known_entities"], _key_values(batch, keys))).fetchall()
    return {keys[row[0] - 1]: row[1] for row in rows if row[1] is not None}


def _key_values(batch: _Batch, keys: Sequence[_Key]) -> dict[str, object]:
    return batch.values(
        entity_types=[key.entity_type for key in keys],
        name_keys=[key.name_key for key in keys],
        owners=[key.owner for key in keys],
        subject_ids=[key.subject_id for key in keys],
    )


async def _add_entities(tx: Tx, batch: _Batch, entities: Sequence[_Entity]) -> None:
    if entities:
        values = _key_values(batch, [entity.key for entity in entities]) | {
            "nodes": [entity.node for entity in entities],
            "names": [entity.name for entity in entities],
            "sealed": [entity.sealed_name for entity in entities],
        }
        await tx.execute(_SQL["add_entities"], values)


async def _add_edges(tx: Tx, batch: _Batch, edges: _Edges) -> None:
    if edges.rows:
        names = ("sources", "targets", "edge_types", "roles", "scores", "owners")
        columns = {name: list(column) for name, column in zip(names, zip(*edges.rows, strict=True), strict=True)}
        await tx.execute(_SQL["add_edges"], batch.values(**columns))
