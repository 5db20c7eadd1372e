"""Replay: memory made again from the ledger alone, beside the one in use, and compared with it.

The copy is made under the name of a workspace that nobody can have, so that row-level security keeps it apart from
everything, and no statement needs to know of it.
"""

import hashlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

import msgspec
import numpy as np
import psycopg

from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import NotFound, Unavailable
from whence.ids import new_id
from whence.ledger import Content, Ledger
from whence.ledger.coalesce import is_refusal
from whence.ledger.effects import Effect, OwnEvent, Placed, Vector, apply
from whence.ledger.events import OWN_TYPES
from whence.ledger.heads import head_of
from whence.memory import Memory
from whence.memory.own import own_event
from whence.memory.stubs import Stubs
from whence.memory.writing import GIVEN_EMBEDDER, vector_in
from whence.wire import Event

BATCH_EVENTS = 1_000
REBUILD_TIMEOUT_MS = 30 * 60 * 1000
MAX_NAMED = 1_000
"""Events that were left out, of which the ledger is told by id; of the others, how many."""
_ASIDE: Final = "\x1frebuild"
"""Follows the name of a workspace; a name cannot have that character."""
_VECTORS: Final = "memory_vectors"

_SQL = load("whence.memory")


@dataclass(frozen=True)
class MemoryReport:
    workspace_id: str
    position: int
    digest: str
    live_digest: str
    differing: tuple[str, ...]
    replaced: bool
    unreadable: int
    """Events whose payload is gone; what they said cannot be made again."""
    refused: int
    """Events that would not be accepted by now, such as memory that repeats a rule; what they said is left out."""
    seconds: float

    @property
    def equal(self) -> bool:
        return not self.differing


@dataclass
class _Replay:
    """Applies a workspace's own events, in order, to the rows of another name."""

    database: Database
    ledger: Ledger
    memory: Memory
    source: Scope
    target: Scope
    position: int = 0
    unreadable: int = 0
    refused: list[UUID] = field(default_factory=list[UUID])
    """Events that were left out."""
    _stubs: Stubs = field(init=False)

    def __post_init__(self) -> None:
        self._stubs = Stubs(self.ledger, self.source)

    async def upto(self, head: int, on_progress: Callable[[int, int], None], tx: Tx | None = None) -> None:
        """In transactions of its own, or in the caller's."""
        while self.position < head:
            batch, reached = await self._next(head)
            if tx is not None:
                await self._apply(tx, batch)
            elif batch:
                async with self.database.transaction(self.target, timeout_ms=REBUILD_TIMEOUT_MS) as own:
                    await self._apply(own, batch)
            self.position = reached
            on_progress(reached, head)

    async def _next(self, head: int) -> tuple[Placed, int]:
        values = {
            "workspace_id": self.source.workspace_id,
            "types": sorted(OWN_TYPES),
            "after": self.position,
            "until": head,
            "limit": BATCH_EVENTS,
        }
        async with self.database.transaction(self.source) as tx:
            rows = await (await tx.execute(_SQL["own_events"], values, binary=True)).fetchall()
            sealed = await self.ledger.contents(tx, self.source, [position for position, _ in rows])
        if not rows:
            return [], head
        # What does not fit into one reading is left for the next.
        reached = sealed[-1].position if len(sealed) < len(rows) and sealed else rows[-1][0]
        recorded = dict(rows)
        contents = await self.ledger.opened(self.source, sealed)
        present = {content.position for content in contents}
        missing = [position for position in recorded if position <= reached and position not in present]
        stubs = await self._stubs_at(missing)
        self.unreadable += len(missing) - len(stubs) - self._stubs.gone_of(missing)
        effects = await self._effects(contents, recorded)
        effects += [
            (position, _effect(stub, recorded[position], UUID(stub["event_id"]), None))
            for position, stub in stubs.items()
        ]
        return sorted(effects, key=itemgetter(0)), reached

    async def _stubs_at(self, missing: list[int]) -> dict[int, dict[str, Any]]:
        """What is left of what was disposed of. Read again each time: it may have been disposed of since."""
        if not missing:
            return {}
        async with self.database.transaction(self.source) as tx:
            await self._stubs.read(tx, await head_of(tx, self.source.workspace_id))
        return await self._stubs.at(missing)

    async def _effects(self, contents: list[Content], recorded: dict[int, Any]) -> Placed:
        effects: Placed = []
        texts: dict[int, str] = {}
        for content in contents:
            if content.body is None:
                self.unreadable += 1
                continue
            payload = msgspec.json.decode(content.body)
            document = payload["memory"]
            vector = vector_in(payload)
            if document["effect"] == "remember" and vector is None and document["body"]:
                texts[len(effects)] = document["body"]
            effects.append((content.position, _effect(document, recorded[content.position], content.event_id, vector)))
        for place, vector in (await self._vectors(effects, texts)).items():
            position, effect = effects[place]
            effects[place] = (position, msgspec.structs.replace(effect, vector=vector))
        return effects

    async def _vectors(self, effects: Placed, texts: dict[int, str]) -> dict[int, Vector]:
        """Of texts, by place. One that could not be compared is taken as it is: it is not known to be wrong, and
        making it again may cost a call of a hosted model."""
        ids = {effects[place][1].event_id: place for place in texts}
        values = {
            "workspace_id": self.source.workspace_id,
            "ids": list(ids),
            "comparable": _comparable(self.memory),
        }
        async with self.database.transaction(self.source) as tx:
            rows = await (await tx.execute(_SQL["vectors_as_they_are"], values, binary=True)).fetchall()
        found = {ids[memory_id]: Vector(name, np.array(row, np.float32)) for memory_id, name, row in rows}
        missing = [place for place in texts if place not in found]
        made = await self.memory.embedded([texts[place] for place in missing]) if missing else []
        return found | dict(zip(missing, made, strict=True))

    async def _apply(self, tx: Tx, batch: Placed) -> None:
        """Leaves out what the database refuses by now, as it would of a sender: what went before is gone, such as that
        a variant was retired, or the guard of the canon sees more than it did. Nobody's erasure waits for it."""
        if not batch:
            return
        try:
            async with tx.transaction():
                await apply(tx, self.target.workspace_id, batch, base=0)
        except psycopg.IntegrityError as error:
            if not is_refusal(error):
                raise
            if len(batch) == 1:
                self.refused.append(batch[0][1].event_id)
                return
            for part in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                await self._apply(tx, part)


def _effect(document: dict[str, Any], recorded_at: Any, event_id: UUID, vector: Vector | None) -> Effect:
    return Effect(msgspec.json.encode({**document, "recorded_at": recorded_at}), event_id, vector)


async def rebuild(
    database: Database,
    ledger: Ledger,
    memory: Memory,
    workspace_id: str,
    verify: bool,
    on_progress: Callable[[int, int], None],
) -> MemoryReport:
    """Compares what is in use with what the ledger gives. Where they differ it is replaced, unless `verify` is set.

    Those of one workspace would build in the same place: each waits until the one before it has ended."""
    began = time.monotonic()
    scope, aside = Scope(workspace_id), Scope(workspace_id + _ASIDE)
    replay = _Replay(database, ledger, memory, scope, aside)
    async with _alone(database, scope):
        await _clear(database, aside)
        await replay.upto(await _head(database, scope), on_progress)
        async with database.transaction(scope, timeout_ms=REBUILD_TIMEOUT_MS) as tx:
            await tx.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            row = await (await tx.execute(_SQL["hold_head"], {"workspace_id": workspace_id})).fetchone()
            told = head = row[0] if row else 0
            await replay.upto(head, on_progress)
            async with database.transaction(aside, timeout_ms=REBUILD_TIMEOUT_MS) as beside:
                ours = await _digests(beside, aside)
                theirs = await _digests(tx, scope)
                if ours[_VECTORS] != theirs[_VECTORS]:
                    # Perhaps only in what cannot be compared, such as one that was made again meanwhile.
                    ours[_VECTORS] = await _digest_of_vectors(beside, aside, memory)
                    theirs[_VECTORS] = await _digest_of_vectors(tx, scope, memory)
            differing = tuple(name for name in ours if ours[name] != theirs[name])
            replaced = bool(differing) and not verify
            if replaced:
                await tx.execute(_SQL["clear"], {"workspace_id": workspace_id})
                again = _Replay(database, ledger, memory, scope, scope)
                await again.upto(head, on_progress, tx)
                if again.refused:
                    told = await ledger.record_in(tx, workspace_id, _left_out(again.refused, memory.clock()))
        ledger.heads.moved(workspace_id, told)
        await _clear(database, aside)
    seconds = time.monotonic() - began
    return MemoryReport(
        workspace_id,
        head,
        _whole(ours),
        _whole(theirs),
        differing,
        replaced,
        replay.unreadable,
        len(replay.refused),
        seconds,
    )


@asynccontextmanager
async def _alone(database: Database, scope: Scope) -> AsyncGenerator[None]:
    async with database.transaction(scope, timeout_ms=REBUILD_TIMEOUT_MS) as turn:
        await turn.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        try:
            await turn.execute(_SQL["rebuild_alone"], {"workspace_id": scope.workspace_id})
        except psycopg.errors.QueryCanceled:
            raise Unavailable("another rebuild of this workspace does not end: try again later") from None
        yield


def _left_out(event_ids: list[UUID], now: datetime) -> OwnEvent:
    """What was acknowledged and is remembered no more is told in the ledger, whoever began the replay."""
    event_id = new_id()
    event = Event(
        event_id=event_id,
        event_type="system.memory_left_out",
        occurred_at=now,
        session_id="rebuilds",
        trace_id=event_id.hex,
        status="completed",
    )
    document = {"effect": "leave_out", "event_id": event_id, "count": len(event_ids)}
    return own_event(event, document, {"left_out": event_ids[:MAX_NAMED]}, is_canonical=True)


async def _head(database: Database, scope: Scope) -> int:
    async with database.transaction(scope) as tx:
        row = await (await tx.execute(_SQL["head"], {"workspace_id": scope.workspace_id})).fetchone()
    if row is None:
        raise NotFound(f"there is no workspace {scope.workspace_id}")
    return row[0]


async def _clear(database: Database, scope: Scope) -> None:
    async with database.transaction(scope, timeout_ms=REBUILD_TIMEOUT_MS) as tx:
        await tx.execute(_SQL["clear"], {"workspace_id": scope.workspace_id})


def _comparable(memory: Memory) -> list[str]:
    """By whom vectors are that are the same each time they are made. Those of another embedder than the one in use
    wait until it has made them again."""
    return [GIVEN_EMBEDDER, *([memory.embedder.name] if memory.embedder.is_exact else [])]


async def _digest_of_vectors(tx: Tx, scope: Scope, memory: Memory) -> bytes:
    values = {"workspace_id": scope.workspace_id, "comparable": _comparable(memory)}
    row = await (await tx.execute(_SQL["digest_of_vectors"], values, binary=True)).fetchone()
    assert row is not None
    return row[0] or b""


async def _digests(tx: Tx, scope: Scope) -> dict[str, bytes]:
    rows = await (await tx.execute(_SQL["digests"], {"workspace_id": scope.workspace_id}, binary=True)).fetchall()
    return dict(rows)


def _whole(digests: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(name.encode() + b"\0" + digests[name] for name in sorted(digests))).hexdigest()
