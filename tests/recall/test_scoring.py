"""How well memories answer: the signals, held against what a textbook says, and the sum of their parts."""

import math
import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalling import entry
from whence.memory import unit_of
from whence.models.embedder import WordLlamaEmbedder
from whence.recall.corpus import Corpus, Entry
from whence.recall.scoring import INTENTS, K1, WEIGHTS, Asked, B, bm25, score
from whence.recall.when import times_in
from whence.recall.words import asked_words
from whence.wire import Channel, Intent

WORDS = WordLlamaEmbedder()
NOW = datetime(2026, 7, 15, tzinfo=UTC)

SAID = (
    "Ann adopted a grey cat from the shelter",
    "The cat sleeps on the sofa all day",
    "Bob bought a red bicycle",
    "He rides it to work every morning",
    "The weather was awful in Oslo",
    "What did you cook yesterday?",
    "We had pasta with mushrooms and a glass of wine",
    "Ann's cat was ill and the vet prescribed antibiotics",
)


def asking(question: str, intent: Intent | None = None) -> Asked:
    words = asked_words(question)
    times = times_in(question, NOW)
    return Asked(
        words,
        WORDS.word_vectors([word.surface for word in words]),
        {WORDS.name: unit_of(WORDS.embed([question])[0])},
        WORDS.name,
        times and (times[0].timestamp(), times[1].timestamp()),
        NOW,
        intent,
    )


def corpus_of(*told: Entry) -> Corpus:
    corpus = Corpus(WORDS)
    corpus.add(told)
    return corpus


def conversation(**more: Any) -> list[Entry]:
    """Two sessions of two people."""
    return [
        entry(text, place + 1, session_id=f"s{place % 2}", speaker=("Ann", "Bob")[place % 2], **more)
        for place, text in enumerate(SAID)
    ]


def best(question: str, corpus: Corpus, channels: tuple[Channel, ...] | None = None) -> int:
    return int(np.argmax(score(asking(question), [corpus], None, channels).scores))


def plain_bm25(counts: list[list[int]], lengths: list[int], rarity: list[float]) -> list[float]:
    mean = sum(lengths) / len(lengths)
    found: list[float] = []
    for document, length in enumerate(lengths):
        total = 0.0
        for term, idf in enumerate(rarity):
            count = counts[term][document]
            total += idf * count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean))
        found.append(total)
    return found


@given(st.integers(0, 10**9), st.integers(1, 4), st.integers(1, 12))
def test_words_that_stand_in_a_text_count_as_a_textbook_says(seed: int, terms: int, documents: int) -> None:
    dice = random.Random(seed)
    counts = [[dice.randrange(4) for _ in range(documents)] for _ in range(terms)]
    lengths = [dice.randrange(1, 60) for _ in range(documents)]
    rarity = [dice.random() * 5 for _ in range(terms)]
    found = bm25(np.array(counts, np.float32), np.array(lengths, np.float32), np.array(rarity, np.float32))
    assert found == pytest.approx(plain_bm25(counts, lengths, rarity), rel=1e-4, abs=1e-4)


def test_a_text_without_words_is_no_division_by_nothing() -> None:
    assert bm25(np.zeros((1, 2), np.float32), np.zeros(2, np.float32), np.ones(1, np.float32)).tolist() == [0, 0]


def test_the_signal_of_words_is_how_rare_those_are_that_stand_in_the_text() -> None:
    """Against documents and frequencies that are counted here."""
    corpus = corpus_of(*conversation())
    question = asking("Is the grey cat ill?")
    stems = [{word.stem for word in asked_words(text)} for text in SAID]
    wanted = {word.stem for word in question.words}
    frequency = Counter(stem for document in stems for stem in document & wanted)

    def idf(stem: str) -> float:
        return math.log(1 + (len(SAID) - frequency[stem] + 0.5) / (frequency[stem] + 0.5))

    plain = np.array([sum(map(idf, document & wanted)) for document in stems])
    scored = score(question, [corpus], None, ["words"])
    expected = WEIGHTS["words"]["passage"] * (plain - plain.mean()) / plain.std()
    assert scored.scores == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ("Which pet did Ann adopt?", 0),
        ("Who has a bicycle?", 2),
        ("What did the vet prescribe?", 7),
        ("the weather in Oslo", 4),
    ],
)
def test_what_answers_stands_out(question: str, place: int) -> None:
    assert best(question, corpus_of(*conversation())) == place


def test_words_that_mean_about_the_same_are_near() -> None:
    corpus = corpus_of(*conversation())
    assert best("kitten", corpus, ("near_words",)) in (0, 1, 7)
    assert best("bike", corpus, ("near_words",)) == 2


def test_who_is_named_is_who_said_it() -> None:
    corpus = corpus_of(*conversation())
    parts = score(asking("What did Bob say?"), [corpus], None, None).parts["speakers"]
    assert [part > 0 for part in parts] == [place % 2 == 1 for place in range(len(SAID))]


def test_what_was_so_when_the_question_says_counts_more() -> None:
    day = 86_400.0
    told = [entry("We met", place + 1, valid_at=NOW.timestamp() - place * day) for place in range(20)]
    corpus = corpus_of(*told)
    parts = score(asking("Whom did we meet three days ago?"), [corpus], None, None).parts["times"]
    assert int(np.argmax(parts)) in (3, 2)
    assert parts[10:].max() < 0
    nothing = score(asking("Whom did we meet?"), [corpus], None, None).parts["times"]
    assert not nothing.any()


def test_a_hit_is_helped_by_what_stands_around_it() -> None:
    told = [
        entry("Do you remember the name of the vet?", 1, session_id="a"),
        entry("Doctor Miller", 2, session_id="a"),
        entry("Doctor Brown", 3, session_id="b"),
        entry("It rained", 4, session_id="c"),
    ]
    parts = score(asking("What is the name of the vet?"), [corpus_of(*told)], None, None).parts["neighbours"]
    assert parts[1] > parts[2]


def test_importance_and_recency_are_worth_something_and_questions_little() -> None:
    told = [
        entry("tea is good", 1, importance=0.1),
        entry("tea is good", 2, importance=0.9),
        entry("is tea good?", 3, importance=0.1),
    ]
    parts = score(asking("tea"), [corpus_of(*told)], None, None).parts["worth"]
    assert parts[1] > parts[0] > parts[2]


def test_every_channel_has_weights_and_a_part() -> None:
    assert set(WEIGHTS) == set(get_args(Channel))
    assert set(score(asking("cat"), [corpus_of(*conversation())], None, None).parts) == set(WEIGHTS)


@pytest.mark.parametrize("question", ["Is the cat ill?", "What did Bob buy last week?", "xyzzy", "who are you", "🍕"])
def test_parts_sum_to_the_score_and_a_channel_left_out_takes_its_part_and_no_other(question: str) -> None:
    corpus = corpus_of(*conversation())
    whole = score(asking(question), [corpus], None, None)
    assert sum(whole.parts.values()) == pytest.approx(whole.scores, abs=1e-4)
    for channel in WEIGHTS:
        others = [name for name in WEIGHTS if name != channel]
        less = score(asking(question), [corpus], None, others)
        assert channel not in less.parts
        assert less.scores == pytest.approx(whole.scores - whole.parts[channel], abs=1e-4)
        for name in others:
            assert less.parts[name] == pytest.approx(whole.parts[name], abs=1e-5)
        alone = score(asking(question), [corpus], None, [channel])
        assert alone.scores == pytest.approx(whole.parts[channel], abs=1e-5)


@pytest.mark.parametrize("intent", get_args(Intent))
def test_an_intent_favours_channels_and_leaves_the_others_as_they_are(intent: Intent) -> None:
    corpus = corpus_of(*conversation())
    question = "When did Ann tell of her cat? Yesterday?"
    plain = score(asking(question), [corpus], None, None)
    meant = score(asking(question, intent), [corpus], None, None)
    for channel in WEIGHTS:
        factor = INTENTS.get(intent, {}).get(channel, 1.0)
        assert meant.parts[channel] == pytest.approx(plain.parts[channel] * factor, abs=1e-4)
    assert sum(meant.parts.values()) == pytest.approx(meant.scores, abs=1e-4)


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_two_corpora_together_are_one_with_all_of_it(cut: int) -> None:
    told = [entry(text, place + 1, speaker="Ann") for place, text in enumerate(SAID)]
    one = corpus_of(*told)
    two = [corpus_of(*told[:cut]), corpus_of(*told[cut:])]
    channels: tuple[Channel, ...] = ("words", "near_words", "vectors", "speakers", "times", "worth")
    for question in ("Is Ann's cat ill?", "weather", "xyzzy"):
        together = score(asking(question), two, None, channels)
        whole = score(asking(question), [one], None, channels)
        assert together.scores == pytest.approx(whole.scores, abs=1e-4)
        assert together.is_evident.tolist() == whole.is_evident.tolist()
        for channel in channels:
            assert together.parts[channel] == pytest.approx(whole.parts[channel], abs=1e-4)


def test_only_the_chosen_are_compared_with_each_other() -> None:
    told = conversation()
    chosen = np.array([place % 2 == 0 for place in range(len(told))])
    channels: tuple[Channel, ...] = ("vectors",)
    among = score(asking("cat"), [corpus_of(*told)], chosen, channels)
    alone = score(asking("cat"), [corpus_of(*told[::2])], None, channels)
    assert among.scores[chosen] == pytest.approx(alone.scores, abs=1e-4)
    nothing = score(asking("cat"), [corpus_of(*told)], np.zeros(len(told), np.bool_), None)
    assert not nothing.scores.any()
    assert not nothing.is_evident.any()


def test_nothing_is_held() -> None:
    for corpora in ([corpus_of()], [corpus_of(), corpus_of()]):
        scored = score(asking("anything"), corpora, None, None)
        assert (len(scored.scores), len(scored.is_evident)) == (0, 0)
    beside = score(asking("grey cat"), [corpus_of(), corpus_of(*conversation())], None, None)
    assert beside.scores == pytest.approx(score(asking("grey cat"), [corpus_of(*conversation())], None, None).scores)


def test_a_question_of_which_no_word_is_known_finds_no_evidence_in_words() -> None:
    scored = score(asking("xyzzy"), [corpus_of(*conversation())], None, ["words", "worth"])
    assert not scored.is_evident.any()
    assert np.isfinite(scored.scores).all()


def test_a_single_memory_stands_out_among_none() -> None:
    scored = score(asking("grey cat"), [corpus_of(conversation()[0])], None, None)
    assert scored.scores.tolist() == [0.0]
    assert scored.is_evident.tolist() == [True]


def test_a_long_text_is_found_by_one_of_its_sentences() -> None:
    aside = "By the way, my sister Clara plays the harp in an orchestra of the town."
    filler = " ".join(f"In chapter {number} the ship sails on across the wide and empty sea." for number in range(30))
    corpus = corpus_of(*conversation(), entry(f"{filler} {aside} {filler}", 50))
    assert best("Who plays the harp?", corpus, ("words", "near_words", "vectors")) == len(SAID)


@given(st.text(max_size=200))
def test_any_question_gives_numbers(question: str) -> None:
    scored = score(asking(question), [CORPUS], None, None)
    assert np.isfinite(scored.scores).all()
    assert sum(scored.parts.values()) == pytest.approx(scored.scores, abs=1e-3)


CORPUS = corpus_of(*conversation(), entry("東京で猫を飼っています", 20), entry("قطة رمادية", 21), entry("🍕🍕", 22))
