"""The plain search that others are compared with."""

import math
from datetime import UTC, datetime

import pytest

from whence.evaluation.bm25 import Bm25
from whence.evaluation.datasets import Turn


def turn(turn_id: str, text: str, speaker: str | None = None) -> Turn:
    return Turn(turn_id, "s", speaker, "user", text, datetime(2023, 1, 1, tzinfo=UTC))


def test_a_rare_word_counts_for_more_than_a_common_one() -> None:
    search = Bm25([turn("a", "the red boat"), turn("b", "the red house"), turn("c", "the old boat house")])
    assert search.ranked("old red", 9) == ["c", "a", "b"]


def test_what_has_none_of_the_words_is_not_found() -> None:
    search = Bm25([turn("a", "one"), turn("b", "two")])
    assert search.ranked("two?", 9) == ["b"]
    assert search.ranked("three", 9) == []
    assert search.ranked("one two", 1) == ["a"]


def test_the_speaker_is_one_of_the_words() -> None:
    assert Bm25([turn("a", "hello", "Ann"), turn("b", "hello", "Bob")]).ranked("What did Bob say?", 9) == ["b"]


def test_a_score_is_what_it_is_by_hand() -> None:
    search = Bm25([turn("a", "x x y"), turn("b", "y")])
    # One of two texts has x: ln(1 + 1.5/1.5). It stands twice in a text of 3 words, where 2 are the mean.
    norm = 1.5 * (0.25 + 0.75 * 3 / 2)
    assert search._score({"x"}, 0) == pytest.approx(math.log(2) * 2 * 2.5 / (2 + norm))
