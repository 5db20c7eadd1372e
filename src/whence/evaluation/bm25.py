"""The plain search of words that others are measured against: Okapi BM25 over the turns as they stand."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from whence.evaluation.datasets import Turn

K1 = 1.5
B = 0.75

_WORD: Final = re.compile(r"\w+")


class Bm25:
    """Without stems, stop words and neighbours; whose words they are counts as one of them."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = turns
        self._counts = [Counter(_words(f"{turn.speaker or ''} {turn.text}")) for turn in turns]
        self._lengths = [count.total() for count in self._counts]
        self._mean = sum(self._lengths) / len(turns)
        self._frequency = Counter(word for count in self._counts for word in count)

    def ranked(self, question: str, top_k: int) -> list[str]:
        words = set(_words(question))
        scores = [self._score(words, place) for place in range(len(self._turns))]
        best = sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:top_k]
        return [self._turns[place].turn_id for place in best if scores[place] > 0]

    def _score(self, words: set[str], place: int) -> float:
        counts, norm = self._counts[place], K1 * (1 - B + B * self._lengths[place] / self._mean)
        return sum(
            self._rarity(word) * counts[word] * (K1 + 1) / (counts[word] + norm) for word in words if word in counts
        )

    def _rarity(self, word: str) -> float:
        frequency = self._frequency[word]
        return math.log(1 + (len(self._turns) - frequency + 0.5) / (frequency + 0.5))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
