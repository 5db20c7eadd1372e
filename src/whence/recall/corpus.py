"""The memories of one owner as they are searched: held here, so that a search costs one look at the database.

Nothing is found here that the database does not give back to who asks: a search ranks what this holds and then reads
the rows themselves, under the asker's own scope.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from whence.models.embedder import WORD_DIMENSION, WordLlamaEmbedder, unit_rows
from whence.orders import is_order
from whence.recall.words import only_asks, passages, stem_of, words

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int32]

NOBODY: Final = -1
"""Where there is no neighbour."""


class Entry(NamedTuple):
    """A memory as it is searched."""

    memory_id: UUID
    position: int
    agent: str
    tier: str
    kind: str
    session_id: str | None
    text: str
    speaker: str | None
    valid_at: float
    """Seconds since 1970, as are all times here."""
    importance: float
    embedder: str | None
    vector: Floats | None
    is_turn: bool = False
    """Whether somebody said it to somebody: then what was said around it tells what it is about."""


class Grown:
    """An array that grows: rows are added at its end, in amortised constant time."""

    def __init__(self, dtype: Any, width: int | None = None) -> None:
        self._rows: npt.NDArray[Any] = np.zeros((16,) if width is None else (16, width), dtype)
        self._count = 0

    def extend(self, rows: Any) -> None:
        added = len(rows)
        if self._count + added > len(self._rows):
            shape = (max(2 * len(self._rows), self._count + added), *self._rows.shape[1:])
            grown = np.zeros(shape, self._rows.dtype)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        if added:
            self._rows[self._count : self._count + added] = rows
        self._count += added

    def append(self, row: Any) -> None:
        if self._count == len(self._rows):
            self.extend([row])
        else:
            self._rows[self._count] = row
            self._count += 1

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> npt.NDArray[Any]:
        return self._rows[: self._count]

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes


class Postings:
    """Which passages a term stands in, and how often. What is added waits in lists until it is worth sorting."""

    def __init__(self) -> None:
        self._starts: npt.NDArray[np.int64] = np.zeros(1, np.int64)
        self._passages: Numbers = np.zeros(0, np.int32)
        self._counts: Floats = np.zeros(0, np.float32)
        self._new_terms: list[int] = []
        self._new_passages: list[int] = []
        self._new_counts: list[int] = []
        self._new_places: dict[int, list[int]] = {}
        """Where a term stands in these lists, as far as they were gone through."""
        self._gone_through = 0
        self._going_through = threading.Lock()

    def add(self, passage: int, counts: dict[int, int]) -> None:
        """How often each term stands in a passage."""
        self._new_terms.extend(counts)
        self._new_passages.extend([passage] * len(counts))
        self._new_counts.extend(counts.values())

    def settle(self, terms: int) -> None:
        """Sorts in what waits, where that is much of the whole."""
        if len(self._new_terms) * 10 < len(self._passages) + 1_000:
            return
        known = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts))
        all_terms = np.concatenate([known, np.array(self._new_terms, np.int64)])
        order = np.argsort(all_terms, kind="stable")
        self._passages = np.concatenate([self._passages, np.array(self._new_passages, np.int32)])[order]
        self._counts = np.concatenate([self._counts, np.array(self._new_counts, np.float32)])[order]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(all_terms, minlength=terms))])
        for waiting in (self._new_terms, self._new_passages, self._new_counts, self._new_places):
            waiting.clear()
        self._gone_through = 0

    def _waiting(self) -> dict[int, list[int]]:
        """Where each term that waits stands in the lists."""
        # Several threads may ask at once; what waits grows in neither of them meanwhile.
        with self._going_through:
            for place in range(self._gone_through, len(self._new_terms)):
                self._new_places.setdefault(self._new_terms[place], []).append(place)
            self._gone_through = len(self._new_terms)
        return self._new_places

    def of(self, term: int) -> tuple[Numbers, Floats]:
        """The passages of a term, each once, and how often it stands in each."""
        start, end = self._range(term)
        found, counts = self._passages[start:end], self._counts[start:end]
        late = self._waiting().get(term)
        if late:
            found = np.concatenate([found, np.array([self._new_passages[place] for place in late], np.int32)])
            counts = np.concatenate([counts, np.array([self._new_counts[place] for place in late], np.float32)])
        return found, counts

    def of_all(
        self, terms: npt.NDArray[np.int64], values: Floats, rows: npt.NDArray[np.int64]
    ) -> tuple[Numbers, Floats, npt.NDArray[np.int64]]:
        """The passages of several terms, each with the value and the row of its term, in the order of the terms.

        In each row values grow, so that what is written last there is the greatest."""
        starts, ends = self._ranges(terms)
        lengths = ends - starts
        past = np.cumsum(lengths)
        index = np.arange(int(past[-1])) + np.repeat(starts - (past - lengths), lengths)
        found, given, of_row = self._passages[index], np.repeat(values, lengths), np.repeat(rows, lengths)
        waiting = self._waiting()
        late = [
            (self._new_passages[at], place)
            for place, term in enumerate(terms.tolist() if waiting else ())
            for at in waiting.get(term, ())
        ]
        if not late:
            return found, given, of_row
        passages, places = np.array(late, np.int64).T
        found = np.concatenate([found, passages.astype(np.int32)])
        given, of_row = np.concatenate([given, values[places]]), np.concatenate([of_row, rows[places]])
        order = np.lexsort((given, of_row))
        return found[order], given[order], of_row[order]

    def _ranges(self, terms: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the passages of terms begin and end; nowhere for those that wait."""
        last = len(self._starts) - 1
        return self._starts[np.minimum(terms, last)], self._starts[np.minimum(terms + 1, last)]

    def _range(self, term: int) -> tuple[int, int]:
        if term + 1 >= len(self._starts):
            return 0, 0
        return int(self._starts[term]), int(self._starts[term + 1])

    @property
    def nbytes(self) -> int:
        return self._starts.nbytes + self._passages.nbytes + self._counts.nbytes + 200 * len(self._new_terms)


class Corpus:
    """What one owner has, in the order in which it was told."""

    def __init__(self, words: WordLlamaEmbedder) -> None:
        """`words` says what single words and passages are like, quickly enough to be asked whenever this is made."""
        self._words = words
        self.until = 0
        """The position of the last memory that is held."""
        self.ids: list[UUID] = []
        self.place: dict[UUID, int] = {}
        self.postings = Postings()
        self.terms: dict[str, int] = {}
        self.term_vectors = Grown(np.float32, WORD_DIMENSION)
        self.passage_starts = Grown(np.int64)
        """Of each memory, its first passage: all of one stand in a row."""
        self.passage_words = Grown(np.float32)
        self.words = Grown(np.float32)
        self._word_count = 0
        self.before = Grown(np.int32)
        """The memory that was told before this one in the same session."""
        self.after = Grown(np.int32)
        self.session = Grown(np.int32)
        self.is_turn = Grown(np.bool_)
        self.session_words = Grown(np.float32)
        self.speaker = Grown(np.int32)
        self.agent = Grown(np.int32)
        self.tier = Grown(np.int32)
        self.kind = Grown(np.int32)
        self.valid_at = Grown(np.float64)
        self.importance = Grown(np.float32)
        self.only_asks = Grown(np.float32)
        self._orders: dict[int, bool] = {}
        self.gone = Grown(np.bool_)
        """What was seen to hold no more, and so never will."""
        self.embedders: set[str] = set()
        """Whose vectors are held."""
        self.embedder = Grown(np.int32)
        """The space of a memory's vector, by its code."""
        self.vectors: dict[str, Grown] = {}
        """By embedder and width (see `space_of`); zeros where a memory has a vector of another."""
        self.aside_vectors = Grown(np.float32, words.dimension)
        """Of the passages of long texts, and of texts whose own vector is by another embedder."""
        self.aside_of = Grown(np.int32)
        """Of each of them, the memory that it stands in."""
        self.codes: dict[tuple[str, ...], int] = {}
        self.sessions: dict[tuple[str, str], int] = {}
        self._last_of_session: dict[int, int] = {}
        self._session_count = 0
        self.speaker_stems: dict[int, frozenset[str]] = {}

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def mean_words(self) -> float:
        return self._word_count / max(len(self.ids), 1)

    def is_order(self, index: int, text: str) -> bool:
        """Whether a memory's text reads like an order, looked at when it is first shown: most never are."""
        known = self._orders.get(index)
        if known is None:
            known = self._orders[index] = is_order(text)
        return known

    def code(self, *name: str) -> int:
        """A number for a name; the same for the same name."""
        return self.codes.setdefault(name, len(self.codes))

    def known_code(self, *name: str) -> int:
        return self.codes.get(name, NOBODY)

    def add(self, entries: Sequence[Entry]) -> None:
        """In order of their positions, each newer than what is held."""
        new_terms: list[str] = []
        asides: list[tuple[int, str]] = []
        lengths: list[int] = []
        starts = [self._add_words(entry, new_terms, asides, lengths) for entry in entries]
        self.passage_starts.extend(starts)
        self.passage_words.extend(lengths)
        self.speaker.extend([self._speaker(entry.speaker) for entry in entries])
        self.agent.extend([self.code("agent", entry.agent) for entry in entries])
        self.tier.extend([self.code("tier", entry.tier) for entry in entries])
        self.kind.extend([self.code("kind", entry.kind) for entry in entries])
        # What was drawn from a conversation is no turn of it.
        self.is_turn.extend([entry.is_turn and entry.kind != "semantic" for entry in entries])
        self.valid_at.extend([entry.valid_at for entry in entries])
        self.importance.extend([entry.importance for entry in entries])
        self.only_asks.extend([only_asks(entry.text) for entry in entries])
        spaces = [space_of(entry.embedder, entry.vector) for entry in entries]
        self.embedder.extend([NOBODY if space is None else self.code("embedder", space) for space in spaces])
        self.gone.extend([False] * len(entries))
        if new_terms:
            self.term_vectors.extend(self._words.word_vectors(new_terms))
        if asides:
            self.aside_vectors.extend(unit_rows(self._words.embed([passage for _, passage in asides])))
            self.aside_of.extend([index for index, _ in asides])
        self.postings.settle(len(self.terms))
        if entries:
            self._add_vectors(entries)
            self.until = entries[-1].position

    def _add_words(self, entry: Entry, new_terms: list[str], asides: list[tuple[int, str]], lengths: list[int]) -> int:
        """Where its passages begin; how many words each has is added to `lengths`."""
        index = len(self.ids)
        self.ids.append(entry.memory_id)
        self.place[entry.memory_id] = index
        start = len(self.passage_words) + len(lengths)
        total = 0
        parts = passages(entry.text)
        if len(parts) > 1 or entry.embedder != self._words.name:
            asides += [(index, part) for part in parts]
        terms = self.terms
        for number, passage in enumerate(parts, start):
            counts: dict[int, int] = {}
            found = words(passage)
            for stem, surface in found:
                term = terms.get(stem)
                if term is None:
                    term = terms[stem] = len(terms)
                    new_terms.append(surface)
                counts[term] = counts.get(term, 0) + 1
            self.postings.add(number, counts)
            lengths.append(len(found))
            total += len(found)
        self.words.append(total)
        self._word_count += total
        self._join_session(entry, index, total)
        return start

    def _speaker(self, name: str | None) -> int:
        if not name:
            return NOBODY
        speaker = self.code("speaker", name)
        if speaker not in self.speaker_stems:
            self.speaker_stems[speaker] = frozenset(stem_of(part) for part in name.split())
        return speaker

    def _join_session(self, entry: Entry, index: int, total: int) -> None:
        if entry.session_id is None:
            # By itself: neither before nor after anything.
            session = self._session_count
            self._session_count += 1
            self.session_words.append(total)
            self.before.append(NOBODY)
        else:
            name = (entry.agent, entry.session_id)
            session = self.sessions.get(name, NOBODY)
            if session == NOBODY:
                session = self.sessions[name] = self._session_count
                self._session_count += 1
                self.session_words.append(0)
            self.session_words.rows[session] += total
            is_in_line = entry.kind != "semantic"
            previous = self._last_of_session.get(session, NOBODY) if is_in_line else NOBODY
            self.before.append(previous)
            if previous != NOBODY:
                self.after.rows[previous] = index
            if is_in_line:
                self._last_of_session[session] = index
        self.after.append(NOBODY)
        self.session.append(session)

    def _add_vectors(self, entries: Sequence[Entry]) -> None:
        spaces = [space_of(entry.embedder, entry.vector) for entry in entries]
        widths = {
            space: len(e.vector) for space, e in zip(spaces, entries, strict=True) if space and e.vector is not None
        }
        self.embedders |= {e.embedder for e in entries if e.embedder is not None and e.vector is not None}
        for space in {**self.vectors, **widths}:
            held = self.vectors.get(space)
            if held is None:
                held = self.vectors[space] = Grown(np.float32, widths[space])
                held.extend(np.zeros((len(self.ids) - len(entries), widths[space]), np.float32))
            zeros = np.zeros(held.rows.shape[1], np.float32)
            held.extend([e.vector if own == space else zeros for own, e in zip(spaces, entries, strict=True)])

    @property
    def nbytes(self) -> int:
        arrays: Iterable[Grown] = (value for value in vars(self).values() if isinstance(value, Grown))
        vectors = self.vectors.values()
        return sum(array.nbytes for array in (*arrays, *vectors)) + self.postings.nbytes + 500 * len(self.ids)


def space_of(embedder: str | None, vector: Floats | None) -> str | None:
    """Vectors can be compared within one: senders give theirs in any width."""
    return None if embedder is None or vector is None else f"{embedder}/{len(vector)}"
