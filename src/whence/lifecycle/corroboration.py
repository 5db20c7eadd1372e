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
    first. Of what is remembered already, the rows that have it from a source that had not said it before."""
    valid_at: datetime
    confidence: float | None
    """Of a fact: of all that it is derived from and that do not know of each other."""

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
    made = (_promotion(rows, stands) for rows, stands in groups.values())
    return [promotion for promotion in made if promotion is not None]


def _standing(told: Sequence[Telling]) -> list[Telling]:
    """Those that say the same, and that nobody has contradicted since: with what holds from then on, or from later."""
    others = [each for each in told if not each.is_same]
    return [
        each
        for each in told
        if each.is_same
        and not any(other.position > each.position and other.valid_at >= each.valid_at for other in others)
    ]


def _promotion(rows: Sequence[UUID], stands: Sequence[Telling]) -> Promotion | None:
    """If several say so, and the session has it from one of them; of what is remembered already, from one who had not
    said it before."""
    known = [each for each in stands if each.is_persistent]
    tellings = [each for each in stands if not each.is_persistent and each.sources]
    fresh = _fresh(tellings, heard={source for each in known for source in each.sources})
    if known:
        # Other sessions tell it themselves, when they are closed.
        tellings = fresh = [each for each in fresh if each.memory_id in rows]
    by_id = {each.memory_id: each for each in tellings}
    first = next((row for row in rows if row in by_id), None)
    if first is None:
        return None
    if not known and len({source for each in tellings for source in each.sources}) < CORROBORATED_SOURCES:
        return None
    # What is remembered already is told once more, and not as something that held before it.
    since = max(each.valid_at for each in known) if known else min(each.valid_at for each in stands)
    return Promotion(tuple(rows), (first, *(each for each in by_id if each != first)), since, _together(fresh))


def _fresh(tellings: Iterable[Telling], heard: set[str]) -> list[Telling]:
    """Those that have it from a source that had not said it before them."""
    fresh: list[Telling] = []
    for each in sorted(tellings, key=lambda each: each.position):
        if not heard.issuperset(each.sources):
            fresh.append(each)
        heard.update(each.sources)
    return fresh


def _together(fresh: Iterable[Telling]) -> float | None:
    doubt = 1.0
    for each in fresh:
        if each.confidence is None:
            return None
        doubt *= 1 - each.confidence
    return 1 - doubt
