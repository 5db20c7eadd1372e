"""How well memories answer a question: signals of several channels, each brought to one scale, summed with weights.

A score is a sum over signals of how far a memory stands out among those that are compared. So it can be told what a
channel adds, and a channel can be left out. Ranks are not fused: they forget by how much the first is better.
"""

import tomllib
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache
from importlib import resources
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from whence.memory.writing import GIVEN_EMBEDDER
from whence.recall.corpus import NOBODY, Corpus, Floats, space_of
from whence.recall.words import Word
from whence.wire import Channel, Intent

K1 = 1.2
B = 0.75
NEAR = 0.35
"""Words that are more alike than this are near."""
FULL_LENGTH = 30
"""Words from which on a text does not count as longer."""
RECENT_SECONDS = 30 * 86_400.0
SHORT_TEXT, LONG_TEXT = 20, 60
"""Words, stop words left out, up to which texts count as short, and from which on as long."""
MOST_WORDS = 64
"""Of a question: the rarest."""


class _Weights(msgspec.Struct, forbid_unknown_fields=True):
    channels: dict[Channel, dict[str, float]]
    intents: dict[Intent, dict[Channel, float]]
    models: dict[Channel, dict[str, float]]
    long: dict[Channel, dict[str, float]]


_READ: Final = msgspec.convert(tomllib.loads((resources.files("whence.recall") / "weights.toml").read_text()), _Weights)
WEIGHTS: Final[dict[Channel, dict[str, float]]] = _READ.channels
INTENTS: Final[dict[Intent, dict[Channel, float]]] = _READ.intents

_TELLING: Final = frozenset({"passage", "near", "meaning", "speaker", "time", "window", "around", "session"})
_LEAST_EVIDENCE: Final = 0.1
"""Of one of these: less is chance, as of two vectors that have nothing to do with each other."""


class Asked(NamedTuple):
    """A question, made ready for scoring."""

    words: list[Word]
    word_vectors: Floats
    vectors: dict[str, Floats]
    """By embedder, of unit length."""
    passage_embedder: str
    """Whose vectors passages have."""
    times: tuple[float, float] | None
    moment: datetime
    """That is asked about."""
    intent: Intent | None


class Scored(NamedTuple):
    """Of the memories that were compared, each with its score and what each channel adds to it."""

    scores: Floats
    parts: dict[Channel, Floats]
    is_evident: npt.NDArray[np.bool_]
    """Whether anything but its own worth speaks for it."""


def score(
    asked: Asked, corpora: Sequence[Corpus], chosen: npt.NDArray[np.bool_] | None, channels: Collection[Channel] | None
) -> Scored:
    """All memories of the corpora, one corpus after the other, compared among the `chosen` ones."""
    wanted: list[Channel] = [channel for channel in WEIGHTS if channels is None or channel in channels]
    seen = [_see(asked, corpus) for corpus in corpora]
    total = sum(len(corpus) for corpus in corpora)
    rarity = np.zeros(0, np.float32)
    if asked.words:
        frequency = np.sum([np.count_nonzero(each.by_memory, axis=1) for each in seen], axis=0)
        rarity = rarity_of(frequency, total)
    found = [_Signals(asked, corpus, each, rarity).of(wanted) for corpus, each in zip(corpora, seen, strict=True)]
    signals = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
    compared = signals if chosen is None else signals[:, chosen]
    if compared.shape[1] == 0:
        return Scored(np.zeros(total, np.float32), {}, np.zeros(total, np.bool_))
    mean = np.add.reduce(compared, axis=1, keepdims=True) / compared.shape[1]
    apart = compared - mean
    spread = np.sqrt(np.einsum("ij,ij->i", apart, apart)[:, None] / compared.shape[1])
    lengths = [each.mean_words for each in corpora if len(each)]
    weights = _weights(asked, wanted, sum(lengths) / len(lengths))
    weights = np.divide(weights, spread, out=np.zeros_like(spread), where=spread > 1e-6)
    weighed = (apart if chosen is None else signals - mean) * weights
    parts: dict[Channel, Floats] = {}
    row = 0
    for channel in wanted:
        rows = len(WEIGHTS[channel])
        parts[channel] = weighed[row] if rows == 1 else weighed[row : row + rows].sum(axis=0)
        row += rows
    telling = [row for row, name in enumerate(name for c in wanted for name in WEIGHTS[c]) if name in _TELLING]
    is_evident: npt.NDArray[np.bool_] = np.any(signals[telling] > _LEAST_EVIDENCE, axis=0)
    return Scored(weighed.sum(axis=0), parts, is_evident)


def _weights(asked: Asked, channels: Sequence[Channel], words: float) -> Floats:
    """A row for each signal of the channels, for texts of so many words on average."""
    by_model = bool(asked.vectors.keys() - {asked.passage_embedder, GIVEN_EMBEDDER})
    short, long = _weights_by_length(tuple(channels), asked.intent, by_model)
    length = min(max((words - SHORT_TEXT) / (LONG_TEXT - SHORT_TEXT), 0.0), 1.0)
    return (short + length * (long - short)).astype(np.float32)


@lru_cache(maxsize=64)
def _weights_by_length(channels: tuple[Channel, ...], intent: Intent | None, by_model: bool) -> tuple[Floats, Floats]:
    """Of short texts and of long ones."""
    favoured = {} if intent is None else INTENTS.get(intent, {})
    short, long = list[list[float]](), list[list[float]]()
    for channel in channels:
        named = WEIGHTS[channel] | (_READ.models.get(channel, {}) if by_model else {})
        in_long = named | _READ.long.get(channel, {})
        favour = favoured.get(channel, 1.0)
        short += [[favour * weight] for weight in named.values()]
        long += [[favour * in_long[name]] for name in named]
    of_short: Floats = np.array(short, np.float32)
    of_long: Floats = np.array(long, np.float32)
    return of_short, of_long


class _Seen(NamedTuple):
    """How often the words of a question stand in the passages of a corpus, and in its memories."""

    counts: Floats
    by_memory: Floats


def _see(asked: Asked, corpus: Corpus) -> _Seen:
    counts = np.zeros((len(asked.words), len(corpus.passage_words)), np.float32)
    for row, word in enumerate(asked.words):
        term = corpus.terms.get(word.stem)
        if term is not None:
            found, times = corpus.postings.of(term)
            counts[row, found] = times
    if counts.shape[1] == len(corpus):
        return _Seen(counts, counts)
    return _Seen(counts, np.add.reduceat(counts, corpus.passage_starts.rows, axis=1))


class _Signals:
    """What the memories of one corpus have to do with a question."""

    def __init__(self, asked: Asked, corpus: Corpus, seen: _Seen, rarity: Floats) -> None:
        self._asked = asked
        self._corpus = corpus
        self._seen = seen
        self._rarity = rarity
        self._passages: Floats | None = None
        self._near: Floats | None = None
        self._likeness: tuple[Floats, Floats] | None = None

    def of(self, channels: Sequence[Channel]) -> Floats:
        """A row for each signal of the channels, in the order of the weights."""
        rows = [row for channel in channels for row in _CHANNELS[channel](self)]
        return np.stack(rows) if rows else np.zeros((0, len(self._corpus)), np.float32)

    def words(self) -> list[Floats]:
        return [self._best_passage(self._passage_words())]

    def near_words(self) -> list[Floats]:
        return [self._best_passage(self._passage_near())]

    def vectors(self) -> list[Floats]:
        return list(self._meaning())

    def speakers(self) -> list[Floats]:
        asked_for = {word.stem for word in self._asked.words}
        wanted = [code for code, stems in self._corpus.speaker_stems.items() if stems & asked_for]
        if not wanted:
            return [np.zeros(len(self._corpus), np.float32)]
        return [np.isin(self._corpus.speaker.rows, wanted).astype(np.float32)]

    def times(self) -> list[Floats]:
        """Within what the question says, or as near to it as that is long."""
        if self._asked.times is None:
            return [np.zeros(len(self._corpus), np.float32)]
        since, until = self._asked.times
        when = self._corpus.valid_at.rows
        away = np.maximum(np.maximum(since - when, when - until), 0.0) / max(until - since, 86_400.0)
        return [np.maximum(1.0 - away, 0.0).astype(np.float32)]

    def neighbours(self) -> list[Floats]:
        corpus, own, rarity = self._corpus, self._seen.by_memory, self._rarity
        words = bm25(own, corpus.words.rows, rarity)
        passages = self._best_passage(self._passage_words() + self._passage_near())
        likeness, _ = self._meaning()
        is_turn = corpus.is_turn.rows
        # What is no turn of a conversation is its own window and its own session.
        alone = [words, words, words, passages, likeness, likeness]
        if not is_turn.any():
            return alone
        before, after = np.where(is_turn, (corpus.before.rows, corpus.after.rows), NOBODY)
        before2, after2 = _step(before), _step(after)
        # A column of zeros at the end stands for a neighbour that is not there.
        counts = np.concatenate([own, np.zeros((len(own), 1), np.float32)], axis=1)
        lengths = np.append(corpus.words.rows, np.float32(0))
        window = own + counts[:, before] + counts[:, before2]
        window_words = corpus.words.rows + lengths[before] + lengths[before2]
        around = window + counts[:, after] + counts[:, after2]
        around_words = window_words + lengths[after] + lengths[after2]
        sessions, size = corpus.session.rows, len(corpus.session_words)
        in_session = np.zeros((len(own), size), np.float32)
        for row, each in enumerate(own):
            in_session[row] = np.bincount(sessions, each, size)
        padded = np.append(likeness, np.float32(0))
        together = likeness + padded[before] + padded[before2] + padded[after]
        count = 1 + (before != NOBODY) + (before2 != NOBODY) + (after != NOBODY)
        window_likeness = (together / np.sqrt(count)).astype(np.float32)
        together_with = [
            bm25(window, window_words, rarity),
            bm25(around, around_words, rarity),
            bm25(in_session, corpus.session_words.rows, rarity)[sessions],
            _best_of_group(passages, sessions, size),
            window_likeness,
            _best_of_group(window_likeness, sessions, size),
        ]
        if is_turn.all():
            return together_with
        return [np.where(is_turn, turn, lone) for turn, lone in zip(together_with, alone, strict=True)]

    def worth(self) -> list[Floats]:
        corpus = self._corpus
        age = np.maximum(self._asked.moment.timestamp() - corpus.valid_at.rows, 0.0)
        return [
            np.log1p(np.minimum(corpus.words.rows, FULL_LENGTH)),
            corpus.only_asks.rows,
            corpus.importance.rows,
            (1.0 / (1.0 + age / RECENT_SECONDS)).astype(np.float32),
        ]

    def _best_passage(self, passages: Floats) -> Floats:
        if len(passages) == len(self._corpus):
            return passages
        return np.maximum.reduceat(passages, self._corpus.passage_starts.rows)

    def _passage_words(self) -> Floats:
        if self._passages is None:
            self._passages = self._rarity @ (self._seen.counts > 0)
        return self._passages

    def _passage_near(self) -> Floats:
        """For each word of the question that a passage has not, the likest one that it has, by how rare the word is."""
        if self._near is not None:
            return self._near
        corpus, asked = self._corpus, self._asked
        total = np.zeros(len(corpus.passage_words), np.float32)
        self._near = total
        if not asked.words or not len(corpus.term_vectors):
            return total
        likeness = asked.word_vectors @ corpus.term_vectors.rows.T
        rows, terms = np.nonzero(likeness > NEAR)
        if not len(rows):
            return total
        values = likeness[rows, terms]
        # The likest of a word comes last, and is what stays.
        order = np.lexsort((values, rows))
        best = np.zeros(self._seen.counts.shape, np.float32)
        found, given, of_word = corpus.postings.of_all(terms[order], values[order], rows[order])
        best[of_word, found] = given
        best[self._seen.counts > 0] = 0
        total += self._rarity @ best
        return total

    def _meaning(self) -> tuple[Floats, Floats]:
        """How like the question each text is, and how like it the likest of its passages."""
        if self._likeness is not None:
            return self._likeness
        corpus, asked = self._corpus, self._asked
        whole = best = np.zeros(len(corpus), np.float32)
        for name, vector in asked.vectors.items():
            held = corpus.vectors.get(space_of(name, vector) or "")
            if held is not None:
                likeness = held.rows @ vector
                whole = whole + likeness
                best = likeness if name == asked.passage_embedder else best
        vector = asked.vectors.get(asked.passage_embedder)
        if vector is not None and len(corpus.aside_vectors):
            best = best.copy()
            np.maximum.at(best, corpus.aside_of.rows, corpus.aside_vectors.rows @ vector)
        self._likeness = whole, best
        return self._likeness


_CHANNELS: Final = {channel: getattr(_Signals, channel) for channel in WEIGHTS}


def _step(neighbour: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The neighbour of the neighbour."""
    return np.where(neighbour == NOBODY, NOBODY, neighbour[neighbour])


def _best_of_group(values: Floats, groups: npt.NDArray[np.int32], size: int) -> Floats:
    best = np.full(size, -np.inf, np.float32)
    np.maximum.at(best, groups, values)
    return best[groups]


def rarity_of(frequency: npt.NDArray[np.integer], total: int) -> Floats:
    """Of words that so many of the texts have."""
    return np.log(1 + (total - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)


def bm25(counts: Floats, words: Floats, rarity: Floats) -> Floats:
    """Of texts that have the words of a question so often, and so many words in all."""
    mean = float(words.mean()) if len(words) else 0.0
    norm = K1 * (1 - B + B * words / (mean or 1.0))
    return ((rarity * (K1 + 1)) @ (counts / (counts + norm))).astype(np.float32)
