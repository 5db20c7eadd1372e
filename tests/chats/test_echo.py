"""What comes back of what was recalled, in a message."""

import re
import time
import unicodedata
from uuid import UUID, uuid4

import pytest

from whence.chats.echo import CUT, Echoes, Given, Left, query_hash

BREAD = "My grandmother taught me to bake rye bread"
HERON = "A heron stood in the pond this morning."


@pytest.fixture
def bread() -> UUID:
    return uuid4()


@pytest.fixture
def heron() -> UUID:
    return uuid4()


@pytest.fixture
def echoes(bread: UUID, heron: UUID) -> Echoes:
    return Echoes(
        [Given(bread, BREAD), Given(heron, HERON), Given(uuid4(), "Thank you")], [query_hash("What did she teach me?")]
    )


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_a_message_that_says_nothing_else_is_an_echo(echoes: Echoes, bread: UUID, role: str) -> None:
    for text in (BREAD, f"  {BREAD.upper()} \n", BREAD.replace(" ", "\n")):
        assert echoes.left_of(text, role) == Left("", (bread,))


def test_several_that_come_back_together_are_an_echo(echoes: Echoes, bread: UUID, heron: UUID) -> None:
    left = echoes.left_of(f"[1] {BREAD}\n[2] memory: {HERON}\n", "assistant")
    assert (left.text, set(left.recalled)) == ("", {bread, heron})


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (f'You said "{BREAD}" once.', f'You said "{CUT}" once.'),
        (f"> {BREAD}\nReally?", "Really?"),
        (f"I remember: {HERON} It was grey.", f"I remember: {CUT} It was grey."),
        (f"{BREAD}, you said. And now?", f"{CUT}, you said. And now?"),
    ],
)
def test_what_stands_by_itself_in_a_message_is_cut_out(echoes: Echoes, said: str, left: str) -> None:
    found = echoes.left_of(said, "assistant")
    assert found.text == left
    assert len(found.recalled) == 1


@pytest.mark.parametrize(
    "said",
    [
        "Thank you",
        f"{BREAD} and cakes",
        f"not{BREAD}",
        "What did she teach me?",
        "My grandmother taught me to bake wheat bread",
        "",
    ],
)
def test_all_else_stays_as_it_is(echoes: Echoes, said: str) -> None:
    assert echoes.left_of(said, "user") == Left(said, ())


def test_a_user_who_asks_again_has_asked_again() -> None:
    asked = "What is on my calendar today, please?"
    echoes = Echoes([Given(uuid4(), asked)], [query_hash(asked)])
    assert echoes.left_of(asked, "user") == Left(asked, ())
    assert echoes.left_of(asked, "assistant").text == ""


def test_width_and_signs_that_are_not_seen_make_no_difference(echoes: Echoes, bread: UUID) -> None:
    wide = "".join(chr(ord(sign) + 0xFEE0) if sign.isalpha() else sign for sign in BREAD)
    assert echoes.left_of(f"Once more:\n{wide}\nYes?", "assistant") == Left("Once more:\nYes?", (bread,))
    assert echoes.left_of(f'"{BREAD[:20]}\u200b{BREAD[20:]}" - yes', "assistant").text == f'"{CUT}" - yes'


def test_a_text_with_marks_on_its_letters_is_cut_out_however_it_is_written() -> None:
    known = "Ma grand-mère préférait le café brûlé"
    echoes = Echoes([Given(uuid4(), known)], [])
    left = echoes.left_of(f'Tu dis: "{unicodedata.normalize("NFD", known)}" – vrai?', "assistant")
    assert left.text == f'Tu dis: "{CUT}" – vrai?'


def test_no_pattern_is_made_of_what_was_said(echoes: Echoes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(re, "compile", lambda *_: pytest.fail("a pattern was made"))
    assert len(echoes.left_of(f'You said "{BREAD}" once.', "assistant").recalled) == 1


@pytest.mark.parametrize("part", ["[", "(", "[(", "x ", f"{BREAD}\n", f"x{BREAD} "])
def test_twice_as_long_a_message_takes_about_twice_as_long(echoes: Echoes, part: str) -> None:
    half, whole = (f"{BREAD} " + (part * length)[:length] + f"\n{BREAD}" for length in (10_000, 20_000))
    assert seconds_of(echoes, whole) < 3 * seconds_of(echoes, half) + 0.02


def test_twice_as_many_long_texts_take_about_twice_as_long() -> None:
    given = [Given(uuid4(), f"{number} " + "word " * 2_000) for number in range(500)]
    few, all_of_them = Echoes(given[:250], []), Echoes(given, [])
    text = "word " * 20_000
    assert all_of_them.left_of(text, "assistant").recalled == ()
    assert seconds_of(all_of_them, text) < 3 * seconds_of(few, text) + 0.02


def seconds_of(echoes: Echoes, text: str) -> float:
    """The least of a few times, as others are at work here too."""

    def once() -> float:
        started = time.thread_time()
        echoes.left_of(text, "assistant")
        return time.thread_time() - started

    return min(once() for _ in range(5))


def test_a_stop_and_marks_of_quotation_make_no_other_text() -> None:
    known = uuid4()
    echoes = Echoes([Given(known, "It's the doctor's brother who keeps bees.")], [])
    for said in ("It’s the doctor’s brother who keeps bees", "IT'S THE DOCTOR'S BROTHER WHO KEEPS BEES!"):
        assert echoes.left_of(said, "user") == Left("", (known,))
    for said in ("<li>{}</li>", 'Recalled memory:\n[{{"text": "{}"}}]', "> {}"):
        assert echoes.left_of(said.format("It's the doctor's brother who keeps bees."), "assistant").text == ""


def test_what_is_deleted_may_be_said_again_by_the_user_alone() -> None:
    text = "My office key is under the third flower pot."
    echoes = Echoes([Given(uuid4(), text, holds=False)], [])
    assert echoes.left_of(text, "user") == Left(text, ())
    assert echoes.left_of(text, "assistant").text == ""
