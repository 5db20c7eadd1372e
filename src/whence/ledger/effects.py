"""Effects: what events of Whence's own do besides being stored, in the transaction that stores them.

An effect is a document for `whence.memory_apply`, which the event's payload holds too: applying the documents of all
events in order gives the same rows again. Vectors travel beside the documents, because JSON would be slow for them.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from psycopg.pq.abc import PGresult

from whence.db import Tx
from whence.db.arrays import Halves
from whence.db.queries import load
from whence.db.trip import Statement, Values
from whence.wire import Event

_SQL = load("whence.ledger")
_APPLY = Statement("apply_effects", _SQL["apply_effects"])
# How Postgres marks the one form of jsonb that it sends and takes.
_JSONB = b"\x01"
# What others depend on that are applied with it: a rule guards what comes after it, a session that has ended goes on as
# another. Quotes in a text are escaped, so no text holds one of these. An object in an item may, and is then applied in
# order, as any could be.
_ORDERED = (b'"effect":"set_rule"', b'"effect":"drop_rule"', b'"effect":"close_session"')


class Vector(msgspec.Struct, frozen=True, gc=False):
    """What a text is like, of unit length, and who says so."""

    embedder: str
    components: npt.NDArray[np.floating[Any]]


class Effect(msgspec.Struct, frozen=True, gc=False):
    document: bytes
    """A JSON object that is not empty."""
    event_id: UUID
    vector: Vector | None = None


class OwnEvent(msgspec.Struct, frozen=True, gc=False):
    """An event that Whence writes itself; its payload travels apart, as it is not what somebody sent."""

    event: Event
    payload: bytes
    effect: Effect | None = None
    is_canonical: bool = False
    """Whether the payload is written as `payloads.canonical` would."""


Placed = list[tuple[int, Effect]]
"""Effects, each with the place of its event among those that are stored together, from 1 on."""

CameOf = dict[int, dict[str, Any]]
"""What was done, by place. Nothing is said of a memory that is stored as it was told."""


def effects_trip(effects: Placed, values: Values) -> list[tuple[Statement, Values]]:
    """The statements that follow those of the events in one trip."""
    if not effects:
        return []
    documents, vectors = _written(effects)
    given: Values = {
        **values,
        "base": None,
        "documents": _JSONB + documents,
        "vectors": vectors.binary,
        "in_order": b"\x01" if _is_ordered(documents) else b"\x00",
    }
    return [(_APPLY, given)]


def came_of_trip(result: PGresult) -> CameOf:
    rows = (result.get_value(row, 0) or b"" for row in range(result.ntuples))
    return _by_place(msgspec.json.decode(row[len(_JSONB) :]) for row in rows)


async def apply(
    tx: Tx,
    workspace_id: str,
    effects: Placed,
    now: datetime | None = None,
    count: int | None = None,
    base: int | None = None,
) -> CameOf:
    """In the caller's transaction: after the `count` events that were just stored there, or at places past `base`.

    Without `now`, the documents say themselves when they were recorded."""
    documents, vectors = _written(effects)
    values = {
        "workspace_id": workspace_id,
        "base": base,
        "count": count,
        "recorded_at": now,
        "documents": documents.decode(),
        "vectors": vectors,
        "in_order": _is_ordered(documents),
    }
    rows = await (await tx.execute(_SQL["apply_effects"], values)).fetchall()
    return _by_place(row[0] for row in rows)


def _by_place(rows: Any) -> CameOf:
    return {row["place"]: row for row in rows}


def _is_ordered(documents: bytes) -> bool:
    return any(mark in documents for mark in _ORDERED)


def _written(effects: Placed) -> tuple[bytes, Halves]:
    """The documents as they travel: each with its place, and with that of its vector among the vectors."""
    documents: list[bytes] = []
    vectors: list[npt.NDArray[np.floating[Any]]] = []
    for place, effect in effects:
        beside = b""
        if effect.vector is not None:
            vectors.append(effect.vector.components)
            beside = b'"embedder":%b,"vector":%d,' % (msgspec.json.encode(effect.vector.embedder), len(vectors))
        documents.append(b'{"place":%d,%b%b' % (place, beside, effect.document[1:]))
    return b"[" + b",".join(documents) + b"]", Halves.of(vectors)
