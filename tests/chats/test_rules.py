"""What is drawn from messages by rules, measured on a labelled set, and what is never drawn."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_facts import LABELLED
from whence.chats.rules import statements

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


def test_a_long_message_takes_no_longer_than_it_should() -> None:
    assert drawn("I really " * 20_000) == set()
    assert drawn("I like " + "a " * 10_000) == set()
    assert drawn('"' * 20_000 + "'" * 20_000) == set()
