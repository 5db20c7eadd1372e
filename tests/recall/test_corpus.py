"""What is held to be searched: arrays that grow, words and where they stand, who spoke before whom."""

from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalling import entry
from whence.models.embedder import WordLlamaEmbedder
from whence.recall.corpus import NOBODY, Corpus, Grown, Postings
from whence.recall.words import stem_of

WORDS = WordLlamaEmbedder()


def test_an_array_grows_and_keeps_what_it_had() -> None:
    plain, wide = Grown(np.int32), Grown(np.float32, 3)
    for number in range(100):
        plain.extend([number, number])
        wide.extend(np.full((number % 3, 3), number, np.float32))
    assert plain.rows.tolist() == [number for number in range(100) for _ in range(2)]
    assert len(plain) == 200
    assert wide.rows.shape == (sum(number % 3 for number in range(100)), 3)
    assert wide.rows[:3, 0].tolist() == [1, 2, 2]
    plain.extend([])
    assert len(plain) == 200
    assert plain.nbytes >= 200 * 4


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.dictionaries(st.integers(0, 12), st.integers(1, 5), max_size=6), max_size=80),
        max_size=5,
    ),
    st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True),
)
def test_postings_are_what_a_dictionary_would_be(batches: list[list[dict[int, int]]], asked: list[int]) -> None:
    """A batch is passages, with how often each term stands in each; every other one is large enough to be sorted in."""
    postings, plain = Postings(), {}
    passage = 0
    for repeats, batch in enumerate(batches):
        for counts in batch * (1 + 20 * (repeats % 2)):
            postings.add(passage, counts)
            for term, count in counts.items():
                plain.setdefault(term, []).append((passage, count))
            passage += 1
        postings.settle(16)
        for term in range(16):
            found, counts = postings.of(term)
            assert sorted(zip(found.tolist(), counts.tolist(), strict=True)) == plain.get(term, [])
    values = np.linspace(0.1, 0.9, len(asked), dtype=np.float32)
    half = len(asked) // 2
    rows = [int(place >= half) for place in range(len(asked))]
    found, given_values, of_row = postings.of_all(np.array(asked, np.int64), values, np.array(rows))
    wanted = [
        (r, p, v) for term, v, r in zip(asked, values.tolist(), rows, strict=True) for p, _ in plain.get(term, [])
    ]
    assert sorted(zip(of_row.tolist(), found.tolist(), given_values.tolist(), strict=True)) == sorted(wanted)
    # The likest is the last of each passage in each row.
    best = np.zeros((2, passage + 1), np.float32)
    best[of_row, found] = given_values
    for row in (0, 1):
        for number in range(passage):
            likest = max((np.float32(v) for r, p, v in wanted if (r, p) == (row, number)), default=0)
            assert best[row, number] == likest


def linked(corpus: Corpus) -> list[tuple[int, int]]:
    return list(zip(corpus.before.rows.tolist(), corpus.after.rows.tolist(), strict=True))


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_who_speaks_before_and_after_is_linked_in_each_session_of_each_agent(at_once: int) -> None:
    told = [
        entry("one", 1, session_id="s1"),
        entry("other session", 2, session_id="s2"),
        entry("two", 3, session_id="s1"),
        entry("other agent", 4, session_id="s1", agent="sdr"),
        entry("no session", 5),
        entry("no session either", 6),
        entry("three", 7, session_id="s1"),
        entry("other session again", 9, session_id="s2"),
    ]
    corpus = Corpus(WORDS)
    for start in range(0, len(told), at_once):
        corpus.add(told[start : start + at_once])
    assert linked(corpus) == [
        (NOBODY, 2), (NOBODY, 7), (0, 6), (NOBODY, NOBODY), (NOBODY, NOBODY), (NOBODY, NOBODY), (2, NOBODY),
        (1, NOBODY),
    ]  # fmt: skip
    sessions = corpus.session.rows.tolist()
    assert sessions[0] == sessions[2] == sessions[6]
    assert len(set(sessions)) == 5
    assert corpus.session_words.rows[sessions[0]] == 3
    assert corpus.until == 9
    assert len(corpus) == 8


def test_a_corpus_knows_its_words_speakers_and_passages() -> None:
    long = " ".join(f"Sentence number {number} has quite a few words in it." for number in range(12))
    told = [
        entry("Ann drinks tea", 1, speaker="Ann Lee"),
        entry(long, 2, speaker="Bob"),
        entry("Tea, tea and tea?", 3, speaker="Ann Lee"),
    ]
    corpus = Corpus(WORDS)
    corpus.add(told)
    assert corpus.place == {each.memory_id: place for place, each in enumerate(told)}
    found, counts = corpus.postings.of(corpus.terms[stem_of("tea")])
    assert counts.tolist() == [1, 3]
    starts = corpus.passage_starts.rows.tolist()
    assert starts[:2] == [0, 1]
    assert starts[2] == len(corpus.passage_words) - 1 > 2
    assert found.tolist() == [0, starts[2]]
    assert corpus.words.rows.tolist()[0] == 3
    assert corpus.only_asks.rows.tolist() == [False, False, True]
    assert corpus.speaker.rows[0] == corpus.speaker.rows[2] == corpus.known_code("speaker", "Ann Lee")
    assert corpus.speaker_stems[corpus.speaker.rows[0]] == {stem_of("Ann"), stem_of("Lee")}
    assert corpus.known_code("speaker", "Eve") == NOBODY
    assert corpus.nbytes > 0


def test_vectors_of_several_embedders_and_widths_live_side_by_side() -> None:
    def given_vector(width: int) -> np.ndarray:
        return np.full(width, width**-0.5, np.float32)

    corpus = Corpus(WORDS)
    corpus.add([entry("one", 1, embedder="given", vector=given_vector(4)), entry("two", 2)])
    corpus.add([entry("three", 3, embedder="given", vector=given_vector(8)), entry("four", 4, embedder=None)])
    corpus.add([entry("five", 5, embedder="given", vector=given_vector(4))])
    assert len(corpus) == 5
    for grown in corpus.vectors.values():
        assert len(grown) == 5
    has = {(name, place) for name, grown in corpus.vectors.items() for place in np.flatnonzero(grown.rows.any(axis=1))}
    assert len(has) == 4


def test_the_same_told_at_once_or_one_by_one_is_the_same_corpus() -> None:
    told = [
        entry(f"Told number {number} of {number % 7}", number + 1, session_id=f"s{number % 3}") for number in range(90)
    ]
    at_once, one_by_one = Corpus(WORDS), Corpus(WORDS)
    at_once.add(told)
    for each in told:
        one_by_one.add([each])
    assert at_once.terms == one_by_one.terms
    assert linked(at_once) == linked(one_by_one)
    for term in at_once.terms.values():
        for one, other in zip(at_once.postings.of(term), one_by_one.postings.of(term), strict=True):
            assert sorted(one.tolist()) == sorted(other.tolist())
    for name in ("words", "session", "session_words", "passage_words", "valid_at", "importance"):
        assert getattr(at_once, name).rows.tolist() == getattr(one_by_one, name).rows.tolist(), name
    assert all(isinstance(found, UUID) for found in at_once.ids)


def test_nothing_added_changes_nothing() -> None:
    corpus = Corpus(WORDS)
    corpus.add([])
    assert (len(corpus), corpus.until) == (0, 0)
    corpus.add([entry("x", 1, memory_id=uuid4())])
    corpus.add([])
    assert (len(corpus), corpus.until) == (1, 1)
