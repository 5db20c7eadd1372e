"""Routines: what somebody did in the same order in several sessions, whatever was done in between.

Steps are compared by what they say, without their numbers, so that the invoice of this month is that of the last. A
routine is what a session has in common with several others, one after the other: the longest common subsequence, which
takes time by the product of lengths and never more, whereas mining all frequent subsequences can take forever.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple
from uuid import UUID

from rapidfuzz.distance import LCSseq

from whence.memory.writing import normal

MIN_SUPPORT = 3
"""Sessions in which a routine was seen."""
MIN_STEPS = 3
MAX_SESSIONS = 30
"""The last ones, which a session is compared with."""
MAX_STEPS = 200
"""The last ones of a session."""
MAX_ROUTINES = 20

_CHANGING = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9][0-9.,:/-]*")

Labels = tuple[str, ...]


class Step(NamedTuple):
    event_id: UUID
    text: str

    @property
    def label(self) -> str:
        return _CHANGING.sub("#", normal(self.text))


class Routine(NamedTuple):
    labels: Labels
    steps: tuple[str, ...]
    """What was done, in the words of the last time."""
    occurrences: tuple[tuple[UUID, ...], ...]
    """The events of each session that it was seen in, the last session first."""

    @property
    def support(self) -> int:
        return len(self.occurrences)


def routines(session: Sequence[Step], earlier: Sequence[Sequence[Step]]) -> list[Routine]:
    """What the session has in common with earlier ones, what explains most first. `earlier` has the newest first."""
    sessions = [_last(session), *map(_last, earlier[:MAX_SESSIONS])]
    labels = [tuple(step.label for step in steps) for steps in sessions]
    often = Counter(label for each in labels for label in set(each))
    left = [tuple(label for label in each if often[label] >= MIN_SUPPORT) for each in labels]
    found: list[Routine] = []
    while len(found) < MAX_ROUTINES and (best := _best(left)):
        found.append(_routine(best, sessions, labels))
        # What is explained is taken out, and what is left may have a routine of its own.
        left = [tuple(label for label in each if label not in best) for each in left]
    return found


def _last(steps: Sequence[Step]) -> Sequence[Step]:
    return steps[-MAX_STEPS:]


def _common(session: Labels, others: Sequence[Labels]) -> set[Labels]:
    """With one other session, and with two: what a pair has in common by chance, a third one has not."""
    pairs = {_shared(session, other) for other in others}
    return pairs | {_shared(_shared(session, one), other) for one, other in combinations(others, 2)}


def _shared(one: Labels, other: Labels) -> Labels:
    """The longest common subsequence."""
    return tuple(
        label
        for part in LCSseq.opcodes(one, other)
        if part.tag == "equal"
        for label in one[part.src_start : part.src_end]
    )


def _best(sessions: Sequence[Labels]) -> Labels | None:
    """Of what is long and frequent enough, that which explains most: its steps in all sessions together."""
    support = {
        candidate: sum(_contains(labels, candidate) for labels in sessions)
        for candidate in _common(sessions[0], sessions[1:])
        if len(candidate) >= MIN_STEPS
    }
    enough = [candidate for candidate, count in support.items() if count >= MIN_SUPPORT]
    return min(enough, key=lambda each: (-support[each] * len(each), -len(each), each), default=None)


def _contains(labels: Labels, candidate: Labels) -> bool:
    rest = iter(labels)
    return all(label in rest for label in candidate)


def _routine(candidate: Labels, sessions: Sequence[Sequence[Step]], labels: Sequence[Labels]) -> Routine:
    seen = [
        tuple(_occurrence(candidate, steps))
        for steps, each in zip(sessions, labels, strict=True)
        if _contains(each, candidate)
    ]
    steps = tuple(step.text for step in seen[0])
    return Routine(candidate, steps, tuple(tuple(step.event_id for step in occurrence) for occurrence in seen))


def _occurrence(candidate: Labels, steps: Sequence[Step]) -> Iterator[Step]:
    """The last one in a session, each step as late as it can be: what was begun and given up is passed over."""
    rest = iter(reversed(steps))
    found = [next(step for step in rest if step.label == label) for label in reversed(candidate)]
    return reversed(found)
