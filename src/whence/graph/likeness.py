"""What is like what came before it. Pure, and bounded whatever the names and texts are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from whence.graph.names import ALIKE, nearest
from whence.models.embedder import similarity

NAMES_WINDOW = 200
"""A new name is compared with so many that came before it, the latest."""
MAX_SAME = 3
TEXTS_WINDOW = 200
"""A new text is compared with so many of the same user and subject that came before it."""
MAX_SIMILAR = 3
SIMILAR_THRESHOLD = 0.85


class Called(NamedTuple):
    node: int
    normal: str


class Text(NamedTuple):
    node: int
    trace_id: str
    vector: npt.NDArray[np.int8]


class Like(NamedTuple):
    node: int
    other: int
    score: float


def alike_names(before: Sequence[Called], fresh: Sequence[Called]) -> list[Like]:
    """For each new name the earlier ones that may mean the same. `before` has the latest first, `fresh` the first."""
    window = list(before[:NAMES_WINDOW])
    found: list[Like] = []
    for called in fresh:
        near = nearest(called.normal, [known.normal for known in window], ALIKE)
        found += [Like(called.node, window[place].node, score) for place, score in near[:MAX_SAME]]
        window.insert(0, called)
        del window[NAMES_WINDOW:]
    return found


def similar_texts(before: Sequence[Text], fresh: Sequence[Text]) -> list[Like]:
    """For each new text the most similar of those before it in other traces: within one, the same text is passed on.

    Both have the first first. Texts are taken a window at a time, so that many together need no more memory.
    """
    known, found = list(before[-TEXTS_WINDOW:]), list[Like]()
    for start in range(0, len(fresh), TEXTS_WINDOW):
        some = fresh[start : start + TEXTS_WINDOW]
        found += _similar(known, some)
        known = [*known, *some][-TEXTS_WINDOW:]
    return found


def _similar(before: Sequence[Text], fresh: Sequence[Text]) -> list[Like]:
    texts = [*before, *fresh]
    traces = np.array([text.trace_id for text in texts])
    vectors = np.stack([text.vector for text in texts])
    scores = similarity(vectors[len(before) :], vectors)
    found: list[Like] = []
    for row, text in enumerate(fresh):
        end = len(before) + row
        first = max(0, end - TEXTS_WINDOW)
        near = np.flatnonzero((scores[row, first:end] > SIMILAR_THRESHOLD) & (traces[first:end] != text.trace_id))
        ranked = sorted((-float(scores[row, first + place]), -texts[first + place].node) for place in near)
        found += [Like(text.node, -node, -score) for score, node in ranked[:MAX_SIMILAR]]
    return found
