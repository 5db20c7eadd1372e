"""The projector: follows the ledger and writes the graph.

It takes the next events of a workspace, reads their payloads outside of any transaction, and writes everything that
follows from them together with the position that it has come to. So each event is projected once, whoever dies when.
What a batch writes depends on the events up to its end alone, never on where batches begin and end: a graph that is
built again, in other steps, is the same.
"""

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import psycopg
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from whence.clock import Clock
from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict
from whence.graph.batch import Batch, Build, Edges
from whence.graph.edges import EDGE_CODES
from whence.graph.entities import compare_envelopes, write_alias, write_names
from whence.graph.likeness import TEXTS_WINDOW, Like, Text, similar_texts
from whence.graph.reading import Reading, read_all
from whence.ledger import Ledger, Sealed
from whence.models.embedder import Embedder

log = structlog.get_logger()

MAX_BATCH_EVENTS = 1_000
MAX_BATCH_PAYLOADS = 1_000
MAX_BATCH_BYTES = 16 << 20
INFERENCE_WINDOW_EVENTS = 50
MAX_MEASURED_WORKSPACES = 20
BUSY_SECONDS = 0.05
LAG_KNOWN_SECONDS = 5.0

_SQL = load("whence.graph")
_STRUCTURE = ("project_timeline", "project_parents", "project_arrivals", "project_inferred")
# What an event itself can be to blame for, as against a database that does not answer.
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded)


class Projector:
    def __init__(
        self, database: Database, ledger: Ledger, clock: Clock, embedder: Embedder, registry: CollectorRegistry
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._embedder = embedder
        self._measuring = asyncio.Lock()
        self._lag: tuple[datetime, float] | None = None
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

    async def measure(self) -> float:
        """Sets the metrics of how far the graph is behind; the age, in seconds, is that of those with most to do."""
        rows = await self.behind()
        now = self._clock()
        most = sorted(rows, key=lambda row: row[2] - row[1])[:MAX_MEASURED_WORKSPACES]
        oldest = [await self._waiting_since(workspace_id, at) for workspace_id, _, at in most]
        self._lag_events.set(sum(head - at for _, head, at in rows))
        seconds = max(((now - since).total_seconds() for since in oldest if since), default=0.0)
        self._lag_seconds.set(seconds)
        return seconds

    async def lag(self) -> float:
        """The same age, asked for once in a while, however often and by however many at once it is wanted."""
        async with self._measuring:
            now = self._clock()
            if self._lag is None or not self._lag[0] <= now < self._lag[0] + timedelta(seconds=LAG_KNOWN_SECONDS):
                self._lag = (now, await self.measure())
            return self._lag[1]

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
        """Projects what is there now; returns the position that the graph has come to. What comes meanwhile is left to
        the next one, because somebody who writes on without a pause would never let this end."""
        head = await self._ledger.heads.read(workspace_id)
        while True:
            reached = await self.step(await self.live(workspace_id), max_events, upto=head)
            if reached is None:
                await asyncio.sleep(BUSY_SECONDS)
            elif reached >= head:
                return reached

    async def step(self, build: Build, max_events: int = MAX_BATCH_EVENTS, upto: int | None = None) -> int | None:
        """Projects the next events, at most so many; returns the position that the build has come to.

        None where another works on the build, or it is gone. A batch that the database refuses is taken in halves,
        until the event that it refuses stands alone and is set aside.
        """
        found = await self._next(build, max_events, upto)
        if found is None:
            return None
        batch, sealed = found
        if batch.hi == batch.lo:
            return batch.lo
        contents = await self._ledger.opened(Scope(build.workspace_id), sealed)
        readings = await asyncio.to_thread(read_all, contents, self._embedder) if contents else []
        try:
            return await self._write(batch, readings)
        except _REFUSED as error:
            if batch.hi - batch.lo > 1:
                return await self.step(build, (batch.hi - batch.lo) // 2, upto)
            return await self._set_aside(batch, error)

    async def _next(self, build: Build, max_events: int, upto: int | None) -> tuple[Batch, list[Sealed]] | None:
        scope = Scope(build.workspace_id)
        async with self._database.transaction(scope) as tx:
            values = {"workspace_id": build.workspace_id, "build": build.number, "limit": max_events}
            if await (await tx.execute(_SQL["lock_build"], values)).fetchone() is None:
                return None
            row = await (await tx.execute(_SQL["next_batch"], values, binary=True)).fetchone()
            assert row is not None
            lo, head, alias, positions, sizes = row
            hi = min(lo + max_events, head if upto is None else min(head, upto), alias or head)
            batch = _cut(Batch(build, lo, max(lo, hi), positions), sizes)
            sealed = await self._ledger.contents(tx, scope, batch.with_payload) if batch.with_payload else []
        return batch, sealed

    async def _write(self, batch: Batch, readings: Sequence[Reading]) -> int | None:
        """Everything that follows from the batch, and the position, in one transaction."""
        edges = Edges()
        async with self._database.transaction(Scope(batch.build.workspace_id)) as tx:
            row = await (await tx.execute(_SQL["lock_build"], batch.values())).fetchone()
            if row is None or row[0] != batch.lo:
                # Another worker is or was here.
                return None if row is None else row[0]
            if readings and not await _are_there(tx, batch, readings):
                return batch.lo
            values = batch.values(window=INFERENCE_WINDOW_EVENTS, now=self._clock())
            async with tx.pipeline():
                for name in _STRUCTURE:
                    await tx.execute(_SQL[name], values)
                cursor = await tx.execute(_SQL["project_references"], values)
                fresh = await cursor.fetchall()
            await compare_envelopes(tx, batch, fresh, edges)
            aside = await self._write_readings(tx, batch, readings, edges) if readings else []
            for position, reason in aside:
                await _note(tx, batch, position, reason)
            await edges.store(tx, batch)
            await tx.execute(_SQL["move_build"], values)
        self._projected.inc(batch.hi - batch.lo)
        self._aside.inc(len(aside))
        return batch.hi

    async def _write_readings(
        self, tx: Tx, batch: Batch, readings: Sequence[Reading], edges: Edges
    ) -> list[tuple[int, str]]:
        """What the payloads add; returns what could not be read, and why."""
        problems = [(item.content.position, item.problem) for item in readings if item.problem is not None]
        await write_names(tx, batch, readings, edges)
        await self._write_texts(tx, batch, readings, edges)
        pointers = [(item, pointer) for item in readings for pointer in item.pointers]
        if pointers:
            values = batch.values(
                sources=[item.node for item, _ in pointers],
                event_ids=[pointer.event_id for _, pointer in pointers],
                edge_types=[EDGE_CODES[pointer.edge_type] for _, pointer in pointers],
                owners=[item.owner for item, _ in pointers],
            )
            await tx.execute(_SQL["project_pointers"], values)
        for item in readings:
            if item.alias is not None:
                problem = await write_alias(tx, batch, item, item.alias, edges)
                problems += [(item.content.position, problem)] if problem else []
        return problems

    async def _write_texts(self, tx: Tx, batch: Batch, readings: Sequence[Reading], edges: Edges) -> None:
        groups: dict[tuple[str, str], list[Text]] = {}
        for item in readings:
            if item.vector is not None:
                text = Text(item.node, item.content.trace_id, item.vector)
                groups.setdefault((item.owner, item.content.subject_id), []).append(text)
        if not groups:
            return
        values = batch.values(
            owners=[owner for owner, _ in groups],
            subject_ids=[subject_id for _, subject_id in groups],
            node=(batch.lo + 1) << 6,
            limit=TEXTS_WINDOW,
        )
        rows = await (await tx.execute(_SQL["texts_before"], values, binary=True)).fetchall()
        found = await asyncio.to_thread(_similar, rows, list(groups.values()))
        for (owner, _), likes in zip(groups, found, strict=True):
            for like in likes:
                edges.add(like.node, like.other, "SIMILAR_TO", owner, None, like.score)
        await self._add_vectors(tx, batch, groups)

    async def _add_vectors(self, tx: Tx, batch: Batch, groups: dict[tuple[str, str], list[Text]]) -> None:
        texts = [(*place, text) for place, some in groups.items() for text in some]
        values = batch.values(
            owners=[owner for owner, _, _ in texts],
            subject_ids=[subject_id for _, subject_id, _ in texts],
            nodes=[text.node for _, _, text in texts],
            trace_ids=[text.trace_id for _, _, text in texts],
            # All in one piece: an array of byte strings takes as long to write as all else together.
            vectors=b"".join(text.vector.tobytes() for _, _, text in texts),
            size=self._embedder.dimension,
        )
        await tx.execute(_SQL["add_vectors"], values)

    async def _set_aside(self, batch: Batch, error: Exception) -> int | None:
        """The event's reason names the kind of failure only: the database's own message may quote content."""
        constraint = error.diag.constraint_name if isinstance(error, psycopg.Error) else None
        reason = f"{type(error).__name__}{f' ({constraint})' if constraint else ''}"
        async with self._database.transaction(Scope(batch.build.workspace_id)) as tx:
            row = await (await tx.execute(_SQL["lock_build"], batch.values())).fetchone()
            if row is None or row[0] != batch.lo:
                return None if row is None else row[0]
            await _note(tx, batch, batch.hi, reason)
            await tx.execute(_SQL["move_build"], batch.values(now=self._clock()))
        log.warning("event set aside", workspace=batch.build.workspace_id, position=batch.hi, reason=reason)
        self._aside.inc()
        return batch.hi


async def live_build(tx: Tx, workspace_id: str) -> tuple[int, int] | None:
    """The number of the build that readers use, and the position that it has come to."""
    row: Any = await (await tx.execute(_SQL["live_build"], {"workspace_id": workspace_id})).fetchone()
    return row


async def _are_there(tx: Tx, batch: Batch, readings: Sequence[Reading]) -> bool:
    """Whether nothing of what was read has been erased since; else it must be read again."""
    values = batch.values(positions=[item.content.position for item in readings])
    async with tx.pipeline():
        await tx.execute(_SQL["beside_erasures"], values)
        cursor = await tx.execute(_SQL["payloads_left"], values)
        row = await cursor.fetchone()
    return row == (len(readings),)


async def _note(tx: Tx, batch: Batch, position: int, reason: str) -> None:
    await tx.execute(_SQL["set_aside"], batch.values(position=position, reason=reason))


def _cut(batch: Batch, sizes: Sequence[int]) -> Batch:
    """Ends the batch where its payloads would be too many or too large together; one is always taken."""
    total = 0
    for place, (position, size) in enumerate(zip(batch.with_payload, sizes, strict=True)):
        total += size
        if position > batch.hi:
            return batch._replace(with_payload=batch.with_payload[:place])
        if place and (total > MAX_BATCH_BYTES or place >= MAX_BATCH_PAYLOADS):
            return batch._replace(hi=position - 1, with_payload=batch.with_payload[:place])
    return batch


def _similar(rows: Sequence[Any], groups: Sequence[Sequence[Text]]) -> list[list[Like]]:
    """`rows` are the texts before, with the number of their group, the latest first."""
    before = {
        place: [Text(node, trace_id, np.frombuffer(vector, np.int8)) for _, node, trace_id, vector in some][::-1]
        for place, some in groupby(rows, key=itemgetter(0))
    }
    return [similar_texts(before.get(place, []), group) for place, group in enumerate(groups, 1)]
