"""What was known at an earlier time: memories as sure as they were then, and with the times that were known then."""

from datetime import datetime
from functools import reduce
from uuid import UUID

from msgspec.structs import replace

from whence.db import Scope, Tx
from whence.db.queries import load
from whence.wire import StoredMemory

End = tuple[datetime, datetime, UUID]
"""When something stopped being so, when that was learnt, and by which memory."""

_SQL = load("whence.memory")


async def as_known(tx: Tx, scope: Scope, found: list[StoredMemory], known_at: datetime) -> list[StoredMemory]:
    facts = [memory.memory_id for memory in found if memory.fact is not None]
    again = [memory.memory_id for memory in found if memory.told_count > 1]
    ended = [memory.memory_id for memory in found if _is_later(memory.invalidated_at, known_at)]
    told = await _confidences(tx, scope, facts, known_at) if facts else {}
    ends = await _ends(tx, scope, ended, known_at) if ended else {}
    began = await _beginnings(tx, scope, again, known_at) if again else {}
    return [
        _as_it_was(
            replace(memory, valid_at=began.get(memory.memory_id, memory.valid_at)),
            told.get(memory.memory_id),
            ends,
            known_at,
        )
        for memory in found
    ]


def _as_it_was(
    memory: StoredMemory, told: list[float] | None, ends: dict[UUID, End], known_at: datetime
) -> StoredMemory:
    if memory.fact is not None and told is not None:
        memory = replace(memory, fact=replace(memory.fact, confidence=reduce(_corroborated, told)))
    if _is_later(memory.superseded_at, known_at):
        memory = replace(memory, superseded_at=None, superseded_by=None)
    if _is_later(memory.invalidated_at, known_at):
        # It may have been known to end otherwise, before what was learnt later.
        ended, learnt, by = ends.get(memory.memory_id, (None, None, None))
        memory = replace(memory, invalid_at=ended, invalidated_at=learnt, invalidated_by=by)
    return memory


def _is_later(moment: datetime | None, known_at: datetime) -> bool:
    return moment is not None and moment > known_at


async def _confidences(tx: Tx, scope: Scope, ids: list[UUID], known_at: datetime) -> dict[UUID, list[float]]:
    """Of those who had told each fact by then."""
    values = {"workspace_id": scope.workspace_id, "ids": ids, "known_at": known_at}
    return dict(await (await tx.execute(_SQL["confidences_told"], values, binary=True)).fetchall())


async def _beginnings(tx: Tx, scope: Scope, ids: list[UUID], known_at: datetime) -> dict[UUID, datetime]:
    values = {"workspace_id": scope.workspace_id, "ids": ids, "known_at": known_at}
    return dict(await (await tx.execute(_SQL["beginnings_known"], values, binary=True)).fetchall())


async def _ends(tx: Tx, scope: Scope, ids: list[UUID], known_at: datetime) -> dict[UUID, End]:
    values = {"workspace_id": scope.workspace_id, "ids": ids, "known_at": known_at}
    rows = await (await tx.execute(_SQL["ends_known"], values, binary=True)).fetchall()
    return {memory_id: (ended, learnt, by) for memory_id, ended, learnt, by in rows}


def _corroborated(before: float, by: float) -> float:
    """Sources that do not know of each other: the chance that both are wrong. As the database reckons it."""
    return 1 - (1 - before) * (1 - by)
