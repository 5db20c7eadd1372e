"""Corroboration: what several who do not know of each other say, and nobody has said otherwise since.

Tellings of a thing are what was remembered of it, in any session, open or closed. For a fact they are what was said of
its subject and predicate; for a plain text, the same text.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

CORROBORATED_SOURCES = 2
"""So many that do not know of each other make a fact outlive its session."""
MAX_TELLINGS = 100
"""Of one thing: what is remembered for good, and the last ones."""
MAX_COMPARED_SOURCES = 100
"""Of one telling: who told it, and the last of what it was derived from."""


class Telling(NamedTuple):
    memory_id: UUID
    position: int
    is_same: bool
    """Else it says otherwise."""
    is_persistent: bool
    valid_at: datetime
    confidence: float | None
    """Of a fact."""
    sources: Sequence[str]
    """Each with its role, the last ones; without those that come from a telling that says the same."""


class Promotion(NamedTuple):
    rows: tuple[UUID, ...]
    """Of the session, which say it."""
    sources: tuple[UUID, ...]
    """What it is derived from: the first of the rows that has a source, and then the others that have, the last ones
    first."""
    valid_at: datetime
    confidence: float | None
    """Of a fact: of all who say so and do not know of each other; of what is remembered already, of who is new."""

    @property
    def first(self) -> UUID:
        """The row whose words outlive it."""
        return self.sources[0]


def promotions(tellings: Mapping[UUID, Sequence[Telling]]) -> list[Promotion]:
    """What outlives its session, each thing once. `tellings` are those of each row, the rows in order."""
    groups: dict[frozenset[UUID], tuple[list[UUID], Sequence[Telling]]] = {}
    for row, told in tellings.items():
        stands = _standing(told)
        ids = frozenset(each.memory_id for each in stands)
        if row in ids:
            groups.setdefault(ids, ([], stands))[0].append(row)
    return [_promotion(rows, stands) for rows, stands in groups.values() if _outlives(rows, stands)]


def _sources(tellings: Iterable[Telling]) -> set[str]:
    return {source for each in tellings for source in each.sources}


def _outlives(rows: Sequence[UUID], stands: Sequence[Telling]) -> bool:
    """Whether several say so, and the session has it from one of them; of what is remembered already, from one who had
    not said it before."""
    told = _sources(each for each in stands if each.memory_id in rows)
    if any(each.is_persistent for each in stands):
        return bool(told - _sources(each for each in stands if each.memory_id not in rows))
    return bool(told) and len(_sources(stands)) >= CORROBORATED_SOURCES


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
    knowing = [each.memory_id for each in stands if not each.is_persistent and each.sources]
    first = next(row for row in rows if row in knowing)
    others = [each for each in knowing if each != first]
    # What is remembered already is told once more, and not as something that held before it.
    kept = [each.valid_at for each in stands if each.is_persistent]
    since = max(kept) if kept else min(each.valid_at for each in stands)
    return Promotion(tuple(rows), (first, *others), since, _confidence(first, stands, is_known=bool(kept)))


def _confidence(first: UUID, stands: Sequence[Telling], is_known: bool) -> float | None:
    said = [each for each in stands if each.memory_id == first or not (is_known or each.is_persistent)]
    heard, doubt = set[str](), 1.0
    for each in sorted(said, key=lambda each: each.position):
        if each.confidence is None:
            return None
        if not heard.issuperset(each.sources):
            doubt *= 1 - each.confidence
        heard.update(each.sources)
    return 1 - doubt
