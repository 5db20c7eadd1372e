"""Words as they are compared, and the passages that they stand in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.recall.words import MAX_PASSAGES, MAX_WORDS, PASSAGE_WORDS, asked_words, only_asks, passages, stem_of, words


def stems(text: str) -> list[str]:
    return [stem for stem, _ in words(text)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running", "runs"),
        ("Painted", "painting"),
        ("cities", "city"),
        ("Anna's", "Anna"),
        ("Anna’s", "anna"),
        ("O'Neill", "ONeill"),
        ("café", "CAFE"),
        ("Žižek", "zizek"),
        ("straße", "STRASSE"),
        ("كِتَاب", "كتاب"),
    ],
)
def test_forms_of_one_word_are_one_word(one: str, other: str) -> None:
    assert stem_of(one) == stem_of(other)


@pytest.mark.parametrize(("one", "other"), [("Rome", "Oslo"), ("cat", "car"), ("كتاب", "كلب"), ("two", "2")])
def test_other_words_stay_apart(one: str, other: str) -> None:
    assert stem_of(one) != stem_of(other)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("東京都", ["東", "京", "東京", "都", "京都"]),
        ("カフェ", ["カ", "フ", "カフ", "ェ", "フェ"]),
        ("東 京", ["東", "京"]),
        ("好cat好", ["好", "cat", "好"]),
        ("I ❤ 🍕🍕", ["❤", "🍕", "🍕"]),
        ("snake_case", ["snake", "case"]),
        ("", []),
        (" \t\n…—!?", []),
    ],
)
def test_signs_of_scripts_without_spaces_count_alone_and_in_pairs(text: str, found: list[str]) -> None:
    assert stems(text) == found


def test_thai_counts_by_its_signs_too() -> None:
    found = stems("กาแฟ")
    assert {"ก", "แฟ"} <= set(found)


def test_words_that_say_nothing_are_left_out_unless_there_are_no_others() -> None:
    assert stems("What did you do with the umbrella?") == ["umbrella"]
    assert stems("who are you") == []
    assert [word.stem for word in asked_words("Who are you?")] == ["who", "are", "you"]
    assert [word.stem for word in asked_words("Who has the umbrella?")] == ["umbrella"]


def test_a_word_is_asked_once_and_is_a_name_where_it_is_written_as_one() -> None:
    found = asked_words("Rose told me. Did Rose like roses?")
    assert [word.stem for word in found] == [stem_of("Rose"), stem_of("told"), stem_of("like")]
    assert found[0].is_name
    [first] = asked_words("Rose?")
    assert not first.is_name


def test_a_text_has_no_more_words_than_are_counted() -> None:
    assert len(words("tea " * (MAX_WORDS + 10))) == MAX_WORDS
    assert len(asked_words(" ".join(map(str, range(MAX_WORDS + 10))))) == MAX_WORDS


def test_a_short_text_is_one_passage() -> None:
    text = "Two sentences. Still short."
    assert passages(text) == [text]
    assert passages("") == [""]


def test_a_long_text_is_cut_into_its_sentences_and_short_ones_are_joined() -> None:
    long = "The quick brown fox jumps over the lazy dog near the river. "
    found = passages(long * 5 + "Yes. No. " + "The end of it is told in this sentence here, as it should be.")
    assert found[:5] == [long.strip()] * 5
    assert found[5].startswith("Yes. No. The end")
    assert len(found) == 6


def test_sentences_end_in_other_scripts_and_at_line_ends_too() -> None:
    lines = "\n".join(f"line {number} has some words of its own in it" for number in range(10))
    assert len(passages(lines)) == 10
    chinese = " ".join(["我 喜 欢 喝 茶 也 喜 欢 咖 啡。"] * 10)
    assert len(passages(chinese)) > 1


def test_what_is_left_of_a_very_long_text_is_in_its_last_passage() -> None:
    sentence = "One two three four five six seven eight nine ten."
    found = passages(" ".join([sentence] * (MAX_PASSAGES + 50)))
    assert len(found) == MAX_PASSAGES
    assert found[-1].count("nine") == 51


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Where are you?", True),
        ("Really? And then?", True),
        ('"Shall we?"', True),
        ("你好吗？", True),
        ("I am here. Where are you?", False),
        ("I am here.", False),
        ("", False),
        ("?", True),
    ],
)
def test_a_text_that_only_asks_is_known(text: str, asks: bool) -> None:
    assert only_asks(text) is asks


anything = st.text(max_size=2_000) | st.text("aB.'’?! \n東ก🍕é", max_size=2_000)


@given(anything)
def test_any_text_has_words_and_passages_within_bounds(text: str) -> None:
    found = words(text)
    assert len(found) <= MAX_WORDS
    assert all(stem or surface for stem, surface in found)
    # What is written in plain letters is read in a quicker way, and the same.
    assert words(f"{text} é") == [*words(text), ("e", "é")][:MAX_WORDS]
    asked = [word.stem for word in asked_words(text)]
    assert len(asked) == len(set(asked))
    parts = passages(text)
    assert 1 <= len(parts) <= MAX_PASSAGES
    assert isinstance(only_asks(text), bool)


@given(st.lists(st.text("abcdefg .?!", min_size=1, max_size=80), min_size=1, max_size=60))
def test_passages_lose_no_word(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert [word for part in passages(text) for word in part.split()] == text.split()
    if len(text.split()) <= PASSAGE_WORDS:
        assert passages(text) == [text]
