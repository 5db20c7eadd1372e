"""Effects: what events of Whence's own do besides being stored, in the transaction that stores them.

An effect is a document for `whence.memory_apply`, which the event's payload holds too: applying the documents of all
events in order gives the same rows again. Vectors travel beside the documents, because JSON would be slow for them.
"""

from datetime import datetime
from itertools import accumulate
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from psycopg.pq.abc import PGresult

from whence.db import Tx
from whence.db.arrays import Array, Integers, Reals, Texts, Uuids
from whence.db.queries import load
from whence.db.trip import Statement, Values
from whence.wire import Event

_SQL = load("whence.ledger")
_APPLY = Statement("apply_effects", _SQL["apply_effects"])
_ADD_VECTORS = Statement("add_vectors", _SQL["add_vectors"])
# How Postgres marks the one form of jsonb that it sends and takes.
_JSONB = b"\x01"


class Vector(msgspec.Struct, frozen=True, gc=False):
    """What a text is like, of unit length, and who says so."""

    embedder: str
    components: npt.NDArray[np.float32]


class Effect(msgspec.Struct, frozen=True, gc=False):
    document: bytes
    """A JSON object that is not empty."""
    event_id: UUID
    vector: Vector | None = None


class OwnEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that Whence writes itself; its payload travels apart, as it is not what somebody sent."""

    event: Event
    payload: bytes
    effect: Effect


Placed = list[tuple[int, Effect]]
"""Effects, each with the place of its event among those that are stored together, from 1 on."""

CameOf = dict[int, dict[str, Any]]
"""What was done, by place."""


def effects_trip(effects: Placed, values: Values) -> list[tuple[Statement, Values]]:
    """The statements that follow those of the events in one trip."""
    if not effects:
        return []
    values = {**values, "base": None, "documents": _JSONB + _documents(effects)}
    trip: list[tuple[Statement, Values]] = [(_APPLY, values)]
    vectors = _vectors(effects)
    if vectors:
        trip.append((_ADD_VECTORS, values | {name: array.binary for name, array in vectors.items()}))
    return trip


def came_of_trip(result: PGresult) -> CameOf:
    rows = (result.get_value(row, 0) or b"" for row in range(result.ntuples))
    return _by_place(msgspec.json.decode(row[len(_JSONB) :]) for row in rows)


async def apply(
    tx: Tx, workspace_id: str, effects: Placed, now: datetime, count: int | None = None, base: int | None = None
) -> CameOf:
    """In the caller's transaction: after the `count` events that were just stored there, or at places past `base`."""
    values: dict[str, object] = {
        "workspace_id": workspace_id,
        "base": base,
        "count": count,
        "recorded_at": now,
        "documents": _documents(effects).decode(),
    }
    rows = await (await tx.execute(_SQL["apply_effects"], values)).fetchall()
    vectors = _vectors(effects)
    if vectors:
        await tx.execute(_SQL["add_vectors"], values | vectors)
    return _by_place(row[0] for row in rows)


def _by_place(rows: Any) -> CameOf:
    return {row["place"]: row for row in rows}


def _documents(effects: Placed) -> bytes:
    return b"[" + b",".join(b'{"place":%d,%b' % (place, effect.document[1:]) for place, effect in effects) + b"]"


def _vectors(effects: Placed) -> dict[str, Array]:
    """The columns of `add_vectors`, or nothing where there is no vector."""
    found = [(effect.event_id, effect.vector) for _, effect in effects if effect.vector is not None]
    if not found:
        return {}
    sizes = [len(vector.components) for _, vector in found]
    starts = list(accumulate(sizes, initial=0))[:-1]
    return {
        "vector_of": Uuids.of([event_id for event_id, _ in found]),
        "embedder": Texts.of([vector.embedder for _, vector in found]),
        "start": Integers.of(starts),
        "dimension": Integers.of(sizes),
        "components": Reals.of_vectors([vector.components for _, vector in found]),
    }
