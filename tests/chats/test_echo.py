"""What comes back of what was recalled, in a message."""

from uuid import UUID, uuid4

import pytest

from whence.chats.echo import CUT, Echoes, Given, Left

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
    return Echoes([Given(bread, BREAD), Given(heron, HERON), Given(uuid4(), "Thank you")], ["What did she teach me?"])


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
    echoes = Echoes([Given(uuid4(), asked)], [asked])
    assert echoes.left_of(asked, "user") == Left(asked, ())
    assert echoes.left_of(asked, "assistant").text == ""


def test_many_long_texts_are_looked_through_quickly() -> None:
    given = [Given(uuid4(), f"{number} " + "word " * 2_000) for number in range(500)]
    assert Echoes(given, []).left_of("word " * 20_000, "assistant").recalled == ()
