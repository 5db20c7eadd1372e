"""Effects: what events of Whence's own do besides being stored, in the transaction that stores them.

An effect is a document for `whence.memory_apply`, which the event's payload holds too: applying the documents of all
events in order gives the same rows again. Vectors travel beside the documents, because JSON would be slow for them. So
do memories that are only to be stored: they travel as columns, and their documents are applied only where it turns out
that one of them was told before.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt
from psycopg.pq.abc import PGresult

from whence.db import Tx
from whence.db.arrays import Array, Byteas, Doubles, Halves, Texts, Times, row_values
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


class Told(NamedTuple):
    """What is to be stored of a memory besides its text and what its event says. It is often the same for a batch."""

    memory_user: str | None
    said_by: str | None
    profile: str
    tier: str
    kind: str
    world_id_context: str | None
    importance: float
    valid_at: datetime | None
    sanitised: str | None
    """As JSON."""
    speaker: str | None
    role: str | None
    teller: str
    embedder: str


class Plain(NamedTuple):
    """A memory that is only to be stored: somebody told it, in no session and in no other's place."""

    body: str
    body_hash: bytes
    told: Told


# How the columns travel.
_TEXTS: dict[str, type[Array]] = {"body": Texts, "body_hash": Byteas, "embedding": Halves}
TOLD: dict[str, type[Array]] = {**dict.fromkeys(Told._fields, Texts), "importance": Doubles, "valid_at": Times}
MAX_TOLD = 256
"""Of which the encoded form is kept: most of what an agent tells says this alike."""


@lru_cache(MAX_TOLD)
def _encoded(told: Told) -> Values:
    return row_values(TOLD, told)


class Effect(msgspec.Struct, frozen=True, gc=False):
    document: bytes
    """A JSON object that is not empty."""
    event_id: UUID
    vector: Vector | None = None
    plain: Plain | None = None
    """What the document says, where that is all there is to do."""


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


class Remembering:
    """Memories that are only to be stored, as the statement `remember_plain` takes them."""

    def __init__(self, plain: Sequence[Plain], vectors: Sequence[Vector]) -> None:
        self._told = [told for _, _, told in plain]
        self._rows = [
            (body, body_hash, vector.components) for (body, body_hash, _), vector in zip(plain, vectors, strict=True)
        ]

    @classmethod
    def of(cls, effects: Placed, count: int) -> "Remembering | None":
        """If that is what all of so many events do."""
        plain = [effect.plain for _, effect in effects if effect.plain is not None]
        vectors = [effect.vector for _, effect in effects if effect.vector is not None]
        return cls(plain, vectors) if len(plain) == len(vectors) == count else None

    @property
    def is_alike(self) -> bool:
        """Whether all say the same besides their texts."""
        return self._told.count(self._told[0]) == len(self._told)

    def values(self, once: bool) -> Values:
        """For statements that take what is said besides the texts once, or each time."""
        texts = row_values(_TEXTS, self._rows[0]) if len(self._rows) == 1 else _arrays(_TEXTS, self._rows)
        return {**texts, **(_encoded(self._told[0]) if once else _arrays(TOLD, self._told))}


def _arrays(columns: Mapping[str, type[Array]], rows: Sequence[tuple[Any, ...]]) -> Values:
    of_columns = zip(columns.items(), zip(*rows, strict=True), strict=True)
    return {name: array.of(values).binary for (name, array), values in of_columns}


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
