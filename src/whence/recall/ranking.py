"""The memories of corpora in the order in which they answer a question; of those that say the same, one first."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from whence.memory import sessions_of
from whence.recall.corpus import Corpus, Floats
from whence.recall.held import Held
from whence.recall.scoring import Asked, Scored, score
from whence.wire import Recall

MAX_RANKED = 1_000
"""Rows that are read for one recall."""
ALIKE = 0.98
"""Texts that are more alike than this say the same: one of them comes first, the others after all else."""
FEW = 3
"""Hits, where nothing speaks for any memory: the likest."""


class Ranked(NamedTuple):
    order: list[tuple[Held, int]]
    """The best first."""
    scored: Scored
    starts: dict[int, int]
    """Where the memories of each corpus begin, by its id."""
    searched: int


def rank(
    question: Asked,
    asked: Recall,
    everything: Sequence[Held],
    allowed: list[set[UUID]] | None,
    count: int,
    every: bool = False,
) -> Ranked:
    """`every`: also what nothing speaks for."""
    searched = [held for held in everything if len(held.corpus)]
    corpora = [held.corpus for held in searched]
    if not corpora:
        return Ranked([], Scored(np.zeros(0, np.float32), {}, np.zeros(0, np.bool_)), {}, 0)
    each = [
        _chosen(held.corpus, asked, among)
        for held, among in zip(everything, allowed or [None] * len(everything), strict=True)
        if len(held.corpus)
    ]
    chosen = each[0] if len(each) == 1 else np.concatenate(each)
    scored = score(question, corpora, None if chosen.all() else chosen, asked.channels)
    starts = dict(zip(map(id, searched), np.cumsum([0, *map(len, corpora[:-1])]).tolist(), strict=True))
    if asked.channels is None and asked.embedding is None and not every:
        evident = chosen & scored.is_evident
        chosen = evident if evident.any() or not question.words else _likest(chosen, scored)
    places = np.flatnonzero(chosen)
    scores = scored.scores[places]
    count = min(count, MAX_RANKED, len(places))
    best = np.argpartition(-scores, count - 1)[:count] if count < len(places) else np.arange(len(places))
    # What was told later comes first among equals.
    best = best[np.lexsort((-places[best], -scores[best]))]
    if len(searched) == 1:
        return Ranked([(searched[0], place) for place in places[best].tolist()], scored, starts, len(places))
    first = np.array(list(starts.values()))
    whose = np.searchsorted(first, places[best], side="right") - 1
    order: list[tuple[Held, int]] = [
        (searched[which], place)
        for which, place in zip(whose.tolist(), (places[best] - first[whose]).tolist(), strict=True)
    ]
    return Ranked(order, scored, starts, len(places))


def _likest(chosen: npt.NDArray[np.bool_], scored: Scored) -> npt.NDArray[np.bool_]:
    """Where nothing speaks for any: a few, for who asks may know better than words and vectors do."""
    places = np.flatnonzero(chosen)
    likest = places[np.argsort(-scored.parts["vectors"][places], kind="stable")[:FEW]] if len(places) else places
    found = np.zeros_like(chosen)
    found[likest] = True
    return found


def _chosen(corpus: Corpus, asked: Recall, among: set[UUID] | None) -> npt.NDArray[np.bool_]:
    """Which memories of a corpus are asked about."""
    if among is not None:
        chosen = np.zeros(len(corpus), np.bool_)
        chosen[[corpus.place[memory_id] for memory_id in among if memory_id in corpus.place]] = True
        return chosen
    chosen = ~corpus.gone.rows
    if asked.agent is not None:
        chosen &= corpus.agent.rows == corpus.known_code("agent", asked.agent)
    if asked.tiers is not None:
        chosen &= np.isin(corpus.tier.rows, [corpus.known_code("tier", tier) for tier in asked.tiers])
    if asked.kinds is not None:
        chosen &= np.isin(corpus.kind.rows, [corpus.known_code("kind", kind) for kind in asked.kinds])
    if asked.session_id is not None:
        chosen &= np.isin(corpus.session.rows, _sessions_named(corpus, [asked.session_id], []))
    sessions, beginnings = sessions_of(asked)
    if sessions is not None:
        chosen &= np.isin(corpus.session.rows, _sessions_named(corpus, sessions, beginnings))
    return chosen


def _sessions_named(corpus: Corpus, names: list[str], beginnings: list[str]) -> list[int]:
    begin = tuple(beginnings)
    return [code for (_, name), code in corpus.sessions.items() if name in names or name.startswith(begin)]


def diverse(places: list[tuple[Held, int]], count: int) -> tuple[list[tuple[Held, int]], int]:
    """The first ones, of which no two say the same, and how many these are; then the others."""
    rows = _vectors(places)
    if rows is None:
        return places[:count], count
    alike = rows @ rows.T > ALIKE
    np.logical_and(alike, _EARLIER[: len(rows), : len(rows)], out=alike)
    if not alike[:count].any():
        return places[:count], count
    is_again: list[bool] = np.any(alike, axis=1).tolist()  # pyright: ignore[reportAssignmentType]
    order = sorted(range(len(places)), key=is_again.__getitem__)
    return [places[row] for row in order[:count]], min(is_again.count(False), count)


_EARLIER: Final = np.tri(MAX_RANKED, k=-1, dtype=np.bool_)


def _vectors(places: Sequence[tuple[Held, int]]) -> Floats | None:
    """Of each, a row; zeros where it has none of the kind that most have."""
    by_held: dict[int, tuple[Held, list[int], list[int]]] = {}
    for row, (held, index) in enumerate(places):
        _, rows, indexes = by_held.setdefault(id(held), (held, [], []))
        rows.append(row)
        indexes.append(index)
    by_width: dict[int, Floats] = {}
    for held, rows, indexes in by_held.values():
        for grown in held.corpus.vectors.values():
            vectors = grown.rows[indexes]
            width = vectors.shape[1]
            if width not in by_width:
                by_width[width] = np.zeros((len(places), width), np.float32)
            by_width[width][rows] += vectors
    if len(by_width) < 2:
        return next(iter(by_width.values()), None)
    return max(by_width.values(), key=lambda found: np.count_nonzero(found.any(axis=1)))


def with_neighbours(places: Sequence[tuple[Held, int]], count: int) -> list[tuple[Held, int]]:
    if count == 0:
        return list(places)
    found = dict.fromkeys(places)
    for held, index in places:
        for turns in (held.corpus.before.rows, held.corpus.after.rows):
            found.update(dict.fromkeys((held, turn) for turn in turns_from(turns, index, count)))
    return list(found)


def turns_from(turns: npt.NDArray[np.int32], index: int, count: int) -> Iterable[int]:
    for _ in range(count):
        index = int(turns[index])
        if index < 0:
            return
        yield index
