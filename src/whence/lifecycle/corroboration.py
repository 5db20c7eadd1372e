"""Corroboration: what several who do not know of each other say, and nobody has said otherwise since.

Tellings of a thing are what was remembered of it, in any session, open or closed. For a fact they are what was said of
its subject and predicate; for a plain text, the same text.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

CORROBORATED_SOURCES = 2
"""So many that do not know of each other make a fact outlive its session."""
MAX_TELLINGS = 100
"""Of one thing: the last ones."""


class Telling(NamedTuple):
    memory_id: UUID
    position: int
    is_same: bool
    """Else it says otherwise."""
    is_persistent: bool
    valid_at: datetime
    sources: Sequence[str]
    """Each with its role; as many as make a difference, without those that know of a telling that says the same."""


class Promotion(NamedTuple):
    rows: tuple[UUID, ...]
    """Of the session, which say it."""
    sources: tuple[UUID, ...]
    """What it is derived from: the first of the rows, and then the others that say it, the last ones first."""
    valid_at: datetime


def promotions(tellings: Mapping[UUID, Sequence[Telling]]) -> list[Promotion]:
    """What outlives its session, each thing once. `tellings` are those of each row, the rows in order."""
    groups: dict[frozenset[UUID], tuple[list[UUID], Sequence[Telling]]] = {}
    for row, told in tellings.items():
        stands = _standing(told)
        ids = frozenset(each.memory_id for each in stands)
        sources = {source for each in stands for source in each.sources}
        if row in ids and len(sources) >= CORROBORATED_SOURCES:
            groups.setdefault(ids, ([], stands))[0].append(row)
    return [_promotion(rows, stands) for rows, stands in groups.values()]


def _standing(told: Sequence[Telling]) -> list[Telling]:
    """Those that say the same, and that nobody has contradicted since: with what holds from then on, or from later."""
    others = [each for each in told if not each.is_same]
    return [
        each
        for each in told
        if each.is_same
        and not any(other.position > each.position and other.valid_at >= each.valid_at for other in others)
    ]


def _promotion(rows: Sequence[UUID], stands: Sequence[Telling]) -> Promotion:
    others = [each.memory_id for each in stands if not each.is_persistent and each.memory_id != rows[0]]
    # What is remembered already is told once more, and not as something that held before it.
    kept = [each.valid_at for each in stands if each.is_persistent]
    return Promotion(tuple(rows), (rows[0], *others), max(kept) if kept else min(each.valid_at for each in stands))
