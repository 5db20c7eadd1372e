"""Why a memory is believed: its events, what it was drawn from, what it took the place of, and who recalled it."""

from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from whence.db import Scope, Tx
from whence.db.queries import load
from whence.ledger import Ledger, Sealed
from whence.memory.writing import document_of
from whence.wire import Explanation, MemoryEvent, MemoryRecall, MemorySource, StoredEvent, StoredMemory

MAX_EXPLAINED = 1_000
"""Events that told one memory, its sources, and feedback on it, the first of each, and its recalls, the last of them.
What ended it is always there."""

_SQL = load("whence.memory")


class Found(NamedTuple):
    """What one moment of the database says of a memory."""

    events: list[MemoryEvent]
    sources: list[MemorySource]
    superseded: list[UUID]
    recalls: list[MemoryRecall]
    judged: list[MemoryEvent]
    """Events of feedback on those recalls; which hits they are about is in their payloads."""
    judgements: list[Sealed]


async def look(tx: Tx, ledger: Ledger, scope: Scope, memory: StoredMemory) -> Found:
    values = scope.values(memory_id=memory.memory_id, limit=MAX_EXPLAINED)
    events = await (await tx.execute(_SQL["events_of"], values, binary=True)).fetchall()
    rows = await (await tx.execute(_SQL["sources_of"], values, binary=True)).fetchall()
    replaced = await (await tx.execute(_SQL["replaced_by"], values, binary=True)).fetchall()
    recalls = await (await tx.execute(_SQL["recalls_of"], values, binary=True)).fetchall()
    of_recalls = scope.values(recall_ids=[row[0] for row in recalls], limit=MAX_EXPLAINED)
    judged = await (await tx.execute(_SQL["feedback_on"], of_recalls, binary=True)).fetchall() if recalls else []
    return Found(
        [MemoryEvent(*row) for row in events],
        await _sources(tx, ledger, scope, rows),
        [row[0] for row in replaced],
        [MemoryRecall(*row) for row in recalls],  # pyright: ignore[reportCallIssue] (a row is Any)
        [MemoryEvent(*row) for row in judged],
        await ledger.contents(tx, scope, [row[2] for row in judged]) if judged else [],
    )


async def explanation(ledger: Ledger, scope: Scope, memory: StoredMemory, found: Found) -> Explanation:
    """After the transaction, because payloads are opened for it."""
    contents = await ledger.opened(scope, found.judgements)
    said = {each.position: document_of(each.body) for each in contents if each.body is not None}
    judged = [
        replace(event, helpful=is_helpful)
        for event in found.judged
        for is_helpful, name in ((True, "helpful"), (False, "unhelpful"))
        if str(memory.memory_id) in said.get(event.position, {}).get(name, ())
    ]
    return Explanation(
        memory,
        _in_a_sentence(memory, found),
        sorted([*found.events, *judged], key=lambda event: event.position),
        found.sources,
        found.superseded,
        found.recalls,
    )


async def _sources(tx: Tx, ledger: Ledger, scope: Scope, rows: list[Any]) -> list[MemorySource]:
    named = [UUID(row[0]) for row in rows if row[1] != "told"] + [row[11] for row in rows if row[11] is not None]
    envelopes = await ledger.named(tx, scope, named) if named else {}
    seen = dict(await (await tx.execute(_SQL["known_sources"], scope.values(ids=named))).fetchall())
    tellers = dict(await (await tx.execute(_SQL["tellers_of"], scope.values(ids=named))).fetchall())
    return [_source(row, envelopes, seen, tellers) for row in rows]


def _source(
    row: tuple[Any, ...], envelopes: dict[UUID, StoredEvent], seen: dict[UUID, bool], tellers: dict[UUID, str | None]
) -> MemorySource:
    """An id that the caller may not see is told as somebody else's."""
    source, role = row[:2]
    if role == "told":
        return MemorySource(*row[:7])  # pyright: ignore[reportCallIssue] (a row is Any)
    shown = source if UUID(source) in seen else "somebody else's"
    first, last, quote, is_own, origin = row[7:]
    told = MemorySource(shown, *row[1:7])  # pyright: ignore[reportCallIssue]
    return replace(
        told,
        event=envelopes.get(UUID(source)),
        told_by=tellers.get(UUID(source)),
        byte_range=None if first is None else (first, last),
        quote=quoted(quote),
        is_own=is_own,
        origin=origin if origin in seen else None,
    )


def quoted(said: bytes | None) -> str | None:
    """The words at a place that the sender named, who may have cut a sign in two."""
    return None if said is None else said.decode(errors="replace")


def _in_a_sentence(memory: StoredMemory, found: Found) -> str:
    """For people."""
    is_forgotten = any(event.event_type == "memory.forgotten" for event in found.events)
    said = f"{memory.said_by} told {memory.agent}" if memory.said_by else f"{memory.agent} was told"
    since = f"on {memory.recorded_at:%Y-%m-%d %H:%M} UTC, holding from {memory.valid_at:%Y-%m-%d %H:%M} UTC"
    until = f" until {memory.invalid_at:%Y-%m-%d %H:%M} UTC" if memory.invalid_at else ""
    derived = [source for source in found.sources if source.role != "told"]
    drawn = f", drawn from {len(derived)} {'source' if len(derived) == 1 else 'sources'}" if derived else ""
    if own := sum(source.is_own for source in derived):
        drawn += f", {own} of which had it from here"
    again = f"; told {memory.told_count} times" if memory.told_count > 1 else ""
    gone = "; superseded" if memory.superseded_at else ""
    if memory.deleted_at:
        gone = "; forgotten" if is_forgotten else "; no longer remembered"
    return f"{said} {since}{until}{drawn}{again}{gone}."
