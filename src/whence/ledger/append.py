"""Appending: many events in one statement, each stored once, on positions without gaps."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import accumulate
from operator import attrgetter
from typing import Any, Literal
from uuid import UUID

import msgspec
from psycopg.pq.abc import PGresult

from whence.crypto import Sealing
from whence.db import Tx
from whence.db.arrays import Array, Byteas, Smallints, Texts, Times, Uuids, row_values, scalar, taking_once
from whence.db.queries import load
from whence.db.trip import Said, Statement
from whence.errors import FieldError, NotFound
from whence.ledger.effects import TOLD, CameOf, Effect, Placed, Remembering, apply, effects_trip
from whence.ledger.payloads import subject_of
from whence.wire import Event, Measures

_SQL = load("whence.ledger")
_decode_measures = msgspec.json.Decoder(Measures).decode

# The columns of an event that its sender decides, with the form in which they travel.
_COLUMNS: dict[str, type[Array]] = {
    "event_id": Uuids,
    "parent_event_id": Uuids,
    "occurred_at": Times,
    "ended_at": Times,
    "schema_version": Smallints,
    "importance_hint": Smallints,
    "event_type": Texts,
    "session_id": Texts,
    "trace_id": Texts,
    "agent_id": Texts,
    "user_id": Texts,
    "subject_id": Texts,
    "tool_name": Texts,
    "status": Texts,
    "data_classification": Texts,
    "payload_ref": Texts,
}
_of_event = attrgetter(*_COLUMNS)
# All that are stored of an entry.
_ENCODED: dict[str, type[Array]] = {
    **_COLUMNS,
    "measures": Texts,
    "payload_commitment": Byteas,
    "payload_subject": Texts,
    "payload_key": Uuids,
    "ciphertext": Byteas,
}
# In which events are alike that differ in the others alone, as Whence's own of one kind and user do.
_ALIKE = _ENCODED.keys() - {"event_id", "occurred_at", "trace_id", "payload_commitment", "ciphertext"}


class _Form:
    """The statements of a trip, made for one event, for such as are alike, or for any."""

    def __init__(self, name: str, once: Collection[str] | None) -> None:
        self.append, self.append_sealed, self.remember_plain = (
            Statement(f"{statement}_{name}", taking_once(_SQL[statement], once))
            for statement in ("append", "append_sealed", "remember_plain")
        )


_TAKE_POSITIONS = Statement("take_positions", _SQL["take_positions"])
_ONE, _ALL_ALIKE, _ANY = _Form("one", None), _Form("alike", _ALIKE | TOLD.keys()), _Form("any", ())

# What makes two events the same event, in the order of the statement `stored_before`.
_CONTENT = (*_COLUMNS, "payload", "measures")


# Many are alive at once, and none is part of a cycle: the garbage collector need not look at them.
class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event that is ready to be stored: checked, and stamped with its user."""

    event: Event
    payload: Sealing | None = None
    effect: Effect | None = None
    together: UUID | None = None
    """What is stored with others or not at all: the same for all of them, which follow one another."""


Status = Literal["accepted", "duplicate", "conflict", "rejected"]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of one entry."""

    status: Status
    position: int | None
    errors: tuple[FieldError, ...] = ()
    effect: dict[str, Any] | None = None
    """What the event's effect was, where it has one."""


class Block:
    """Entries encoded as columns, or one of them as a row, ready to travel. Encoding is most of what an append costs
    this process."""

    __slots__ = ("_columns", "count", "effects", "row")

    def __init__(
        self, count: int, effects: Placed, columns: dict[str, Array] | None, row: dict[str, bytes | None] | None = None
    ) -> None:
        self.count = count
        self.effects = effects
        self.row = row
        self._columns = columns

    @property
    def columns(self) -> dict[str, Array]:
        if self._columns is None:
            assert self.row is not None
            self._columns = {name: array.of_row(self.row[name]) for name, array in _ENCODED.items()}
        return self._columns

    @property
    def has_payloads(self) -> bool:
        return not self.columns["ciphertext"].is_null if self.row is None else self.row["ciphertext"] is not None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Block":
        """Raises ValueError where an entry cannot be encoded."""
        effects = [(place, entry.effect) for place, entry in enumerate(entries, 1) if entry.effect is not None]
        rows = [_row(entry) for entry in entries]
        if len(rows) == 1:
            return cls(1, effects, None, row_values(_ENCODED, rows[0]))
        columns = zip(_ENCODED.items(), zip(*rows, strict=True), strict=True)
        return cls(len(rows), effects, {name: array.of(values) for (name, array), values in columns})

    @classmethod
    def joined(cls, blocks: Sequence["Block"]) -> "Block":
        if len(blocks) == 1:
            return blocks[0]
        columns = {name: Array.joined([block.columns[name] for block in blocks]) for name in _ENCODED}
        starts = accumulate((block.count for block in blocks), initial=0)
        effects = [
            (start + place, effect)
            for start, block in zip(starts, blocks, strict=False)
            for place, effect in block.effects
        ]
        return cls(sum(block.count for block in blocks), effects, columns)


async def append(tx: Tx, workspace_id: str, entries: Sequence[Entry], now: datetime) -> list[Outcome]:
    """Stores the entries that are new, in order, in the caller's transaction, which is in the workspace's scope."""
    # Under the lock no event can appear between the look and the insert.
    await lock_head(tx, workspace_id)
    values = {"workspace_id": workspace_id, "event_ids": [entry.event.event_id for entry in entries]}
    rows = await (await tx.execute(_SQL["stored_before"], values, binary=True)).fetchall()
    known = {row[1].int: (row[0], _stored_content(row)) for row in rows}
    fresh: dict[int, Entry] = {}
    for entry in entries:
        if entry.event.event_id.int not in known:
            fresh.setdefault(entry.event.event_id.int, entry)
    head, came_of = await append_fresh(tx, workspace_id, Block.of(list(fresh.values())), now) if fresh else (0, {})
    known |= {key: (place, _content(entry)) for place, (key, entry) in enumerate(fresh.items(), head + 1)}
    return [
        accepted(known[entry.event.event_id.int][0], head, came_of)
        if fresh.get(entry.event.event_id.int) is entry
        else _outcome_of_repeat(entry, *known[entry.event.event_id.int])
        for entry in entries
    ]


async def lock_head(tx: Tx, workspace_id: str) -> None:
    """Until the transaction ends, nothing else is appended to the workspace."""
    if await (await tx.execute(_SQL["lock_head"], {"workspace_id": workspace_id})).fetchone() is None:
        raise NotFound(f"there is no workspace {workspace_id}")


async def append_fresh(tx: Tx, workspace_id: str, block: Block, now: datetime) -> tuple[int, CameOf]:
    """Stores events none of which is stored yet; returns the head before them, and what came of their effects."""
    values = block.columns | {"workspace_id": workspace_id, "recorded_at": now, "count": block.count}
    row = await (await tx.execute(_SQL["take_positions"], values)).fetchone()
    await tx.execute(_SQL["append_sealed" if block.has_payloads else "append"], values)
    came_of = await apply(tx, workspace_id, block.effects, now, block.count) if block.effects else {}
    return (row[0] if row else 0), came_of


def accepted(position: int, head: int, came_of: CameOf) -> Outcome:
    return Outcome("accepted", position, (), came_of.get(position - head))


def positions_for(workspace_id: str, count: int) -> Said:
    """What a trip that stores so many events says first, which can be before they are encoded."""
    return _TAKE_POSITIONS, {"workspace_id": workspace_id.encode(), "count": count.to_bytes(8)}


def statements_of(workspace_id: str, block: Block, now: datetime, told_before: bool = False) -> list[Said]:
    """What it says then; the trip fails as a whole where an event is stored already. Unless it is known that some were
    `told_before`, memories that are only to be stored are taken to be new, and all fail where one is not."""
    plain = None if told_before else Remembering.of(block.effects, block.count)
    if block.row is not None:
        form, values = _ONE, dict(block.row)
    elif all(block.columns[name].is_same for name in _ALIKE) and (plain is None or plain.is_alike):
        form = _ALL_ALIKE
        values = {name: array.common if name in _ALIKE else array.binary for name, array in block.columns.items()}
    else:
        form, values = _ANY, {name: array.binary for name, array in block.columns.items()}
    values["workspace_id"] = workspace_id.encode()
    values["recorded_at"] = scalar(Times, now)
    values["count"] = block.count.to_bytes(8)
    if plain is not None:
        values |= plain.values(once=form is not _ANY)
        return [(form.remember_plain, values)]
    append = form.append_sealed if block.has_payloads else form.append
    return [(append, values), *effects_trip(block.effects, values)]


def head_in(rows: list[PGresult], workspace_id: str) -> int:
    """The position before the first event of the trip."""
    if not rows or rows[0].ntuples == 0:
        raise NotFound(f"there is no workspace {workspace_id}")
    return int.from_bytes(rows[0].get_value(0, 0) or b"")


def _encode_measures(measures: Measures) -> str:
    return msgspec.json.encode(measures).decode()


def _row(entry: Entry) -> tuple[object, ...]:
    measures = entry.event.measures and _encode_measures(entry.event.measures)
    if entry.payload is None:
        return (*_of_event(entry.event), measures, None, None, None, None)
    ciphertext, commitment = entry.payload.done()
    sealed = (commitment, subject_of(entry.event), entry.payload.key.key_id, ciphertext)
    return (*_of_event(entry.event), measures, *sealed)


def _content(entry: Entry) -> tuple[object, ...]:
    commitment = entry.payload and entry.payload.done().commitment
    return (*_of_event(entry.event), commitment, entry.event.measures)


def _stored_content(row: tuple[Any, ...]) -> tuple[object, ...]:
    return (*row[1:-1], row[-1] and _decode_measures(row[-1]))


def _outcome_of_repeat(entry: Entry, position: int, stored: tuple[object, ...]) -> Outcome:
    differing = [name for name, was, now in zip(_CONTENT, stored, _content(entry), strict=True) if was != now]
    if not differing:
        return Outcome("duplicate", position)
    # To somebody else than its owner, a stored event must not show what is in it.
    fields = "" if "user_id" in differing else ": " + ", ".join(differing)
    return Outcome("conflict", None, (FieldError("event_id", f"was stored earlier with other content{fields}"),))
