"""What is drawn from messages by rules, measured on a labelled set, and what is never drawn."""

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_facts import LABELLED
from whence.chats.rules import MAX_READ_CHARACTERS, MAX_SENTENCE_CHARACTERS, statements

GATEWAY = Path(__file__).parent.parent.parent / "docs" / "reference" / "gateway.md"


def drawn(text: str) -> set[str]:
    return {statement.says for statement in statements(text)}


def test_what_is_measured_is_documented() -> None:
    right = sum(len(drawn(text) & facts) for text, facts in LABELLED)
    found = sum(len(drawn(text)) for text, _ in LABELLED)
    there = sum(len(facts) for _, facts in LABELLED)
    wrong = {text: drawn(text) - facts for text, facts in LABELLED if drawn(text) - facts}
    missed = {text: facts - drawn(text) for text, facts in LABELLED if facts - drawn(text)}
    print(wrong, missed)
    figures = f"precision {right / found:.2f} and recall {right / there:.2f}"
    assert figures in " ".join(GATEWAY.read_text().split()), figures
    assert f"{len(LABELLED)} messages" in GATEWAY.read_text()
    assert not wrong


@pytest.mark.parametrize("text", [text for text, facts in LABELLED if not facts])
def test_nothing_is_drawn_of_what_says_nothing_of_the_writer(text: str) -> None:
    assert drawn(text) == set()


@given(st.text(alphabet="I livenLyohate '’.,?\n\"`>“”", max_size=200))
def test_quotes_are_places_in_the_message(text: str) -> None:
    for statement in statements(text):
        quote = text[statement.start : statement.end]
        assert quote == quote.strip()
        assert re.match(r"I|[Mm]y|[Cc]all", quote)


@pytest.mark.parametrize(
    "part",
    [
        "‘",
        "“",
        "«",
        "'",
        '"',
        "`",
        "‘a b",
        "“a b ",
        "and I like tea, ",
        "and I like tea. ",
        "I really ",
        "I like a a a a a a ab ",
    ],
)
def test_twice_as_long_a_message_takes_about_twice_as_long(part: str) -> None:
    half, whole = (repeated(part, length) for length in (MAX_READ_CHARACTERS // 2, MAX_READ_CHARACTERS))
    assert seconds_of(whole) < 3 * seconds_of(half) + 0.02


def test_twice_as_long_a_sentence_takes_about_twice_as_long() -> None:
    half, whole = (
        repeated("and I like tea, ", length) for length in (MAX_SENTENCE_CHARACTERS // 2, MAX_SENTENCE_CHARACTERS)
    )
    assert len(list(statements(whole))) == MAX_SENTENCE_CHARACTERS // len("and I like tea, ")
    assert seconds_of(whole) < 3 * seconds_of(half) + 0.02


def test_a_sentence_without_an_end_is_passed_over() -> None:
    assert drawn("I like tea, " * 400) == set()
    assert drawn("I really " * 20_000) == set()
    assert drawn("I like " + "a " * 10_000) == set()


def repeated(part: str, length: int) -> str:
    return (part * length)[:length]


def seconds_of(text: str) -> float:
    """The least of a few times, as others are at work here too."""

    def once() -> float:
        started = time.thread_time()
        list(statements(text))
        return time.thread_time() - started

    return min(once() for _ in range(5))
