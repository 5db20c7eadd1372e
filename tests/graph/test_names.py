"""Names in text: which are found, what they are compared by, and when two may mean the same."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.graph.names import (
    ALIKE,
    MAX_NAME_CHARACTERS,
    MAX_NAMES,
    Name,
    likeness,
    names_in,
    nearest,
    normalise,
)


def found(text: str) -> list[str]:
    return [name.name for name in names_in(text)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("He heard Ludwig van Beethoven play.", ["Ludwig van Beethoven"]),
        ("Books by J. R. Tolkien and J.R.R. Tolkien.", ["J. R. Tolkien", "J.R.R. Tolkien"]),
        ("It was shipped by Acme Corp. on Friday.", ["Acme Corp."]),
        ("It was shipped by Acme, Inc. on Friday.", ["Acme, Inc."]),
        ("Carol Smith-Jones's order and Alice’s.", ["Carol Smith-Jones", "Alice"]),
        ("the University of Oxford, the Lord of the Rings", ["University of Oxford", "Lord of the Rings"]),
        ("for Johnson & Johnson with AT&T", ["Johnson & Johnson", "AT&T"]),
        ("Ask Dr. Smith and Mr. O'Brien.", ["Dr. Smith", "Mr. O'Brien"]),
        ("Zoë Müller, Élodie Dupont, Иван Петров", ["Zoë Müller", "Élodie Dupont", "Иван Петров"]),
        ("I met Bob. Alice Moore came too.", ["Bob", "Alice Moore"]),
        ("flights to New York City", ["New York City"]),
    ],
)
def test_names_of_several_words(text: str, names: list[str]) -> None:
    assert found(text) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Weather in Paris?", ["Paris"]),
        ("The flight to Paris leaves on Monday in March.", ["Paris"]),
        ("Yesterday Alice called.", ["Alice"]),
        ("Weather is nice. Nothing else. It's late. Don't worry.", []),
        ("Note: Check the log. - Deploy it\n* Restart", []),
        ('She said "Yes" and (No) to The Plan of This', ["Plan"]),
        ("by NASA and ESA over HTTP with JSON, OK", ["NASA", "ESA"]),
        ("PLEASE HELP ME NOW IMMEDIATELY", []),
        ("SELECT id FROM users WHERE name IS NOT NULL", []),
        ("GPT-4o and LangGraph by OpenAI's team", ["GPT-4o", "LangGraph", "OpenAI"]),
        ("order INV-2041, see SOME_CONSTANT and getWeather", ["INV-2041"]),
        ("it is new. New things, the New one", []),
        ("plan A or plan B", []),
    ],
)
def test_names_of_one_word(text: str, names: list[str]) -> None:
    assert found(text) == names


@pytest.mark.parametrize(("text", "names"), [("Paris", ["Paris"]), (" Berlin ", ["Berlin"])])
def test_a_value_that_is_one_capitalised_word_is_a_name(text: str, names: list[str]) -> None:
    assert found(text) == names


@pytest.mark.parametrize("text", ["Hello", "Thanks", "Yes", "Completed", "New", "Monday", "paris", "Ok", "X", ""])
def test_an_everyday_word_is_no_name(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("see https://Example.COM/Path/#top.", [("https://Example.COM/Path", "https://example.com/Path")]),
        ("(http://example.com/a_(b)?q=1)", [("http://example.com/a_(b)?q=1", "http://example.com/a_(b)?q=1")]),
        ("(http://example.com/a).", [("http://example.com/a", "http://example.com/a")]),
        ("www.Example.org, or", [("www.Example.org", "https://www.example.org")]),
        ("to Bob.Smith@Example.com.", [("Bob.Smith@Example.com", "bob.smith@example.com")]),
        ("thanks @alice_w!", [("@alice_w", "@alice_w")]),
        ("www.a.org/?u=http://b.c", [("www.a.org/?u=http://b.c", "https://www.a.org/?u=http://b.c")]),
        (
            "https://example.com/@alice and ssh user@host",
            [("https://example.com/@alice", "https://example.com/@alice")],
        ),
        ("http://localhost:80 a@b @x @ a@@b.c http:// www.", []),
    ],
)
def test_links_are_found_and_compared_without_what_does_not_count(text: str, links: list[tuple[str, str]]) -> None:
    assert names_in(text) == [Name("link", *link) for link in links]


def test_a_password_in_a_link_is_not_kept() -> None:
    assert found("from https://bob:hunter2@example.com/x now") == ["https://example.com/x"]
    assert found("https://b:hunter2@a.com/?u=http://b.com") == ["https://a.com/?u=http://b.com"]
    assert found(f"https://bob:hunter2@example.com/{'x' * 200}") == []
    assert found("by postgres://bob:hunter2@db.example.com/x") == []


def test_a_long_query_is_left_out_and_a_long_link_is_none() -> None:
    assert found(f"https://example.com/x?token={'y' * 200}") == ["https://example.com/x"]
    assert found(f"https://example.com/{'y' * 200}") == []


def test_a_name_is_told_once_in_the_form_that_came_first() -> None:
    assert found("by ACME, then Acme Ltd, then acme") == ["ACME"]


def test_names_come_in_the_order_of_the_text() -> None:
    assert found("from Alice to bob@example.com about Paris") == ["Alice", "bob@example.com", "Paris"]


@pytest.mark.parametrize("text", ["北京的天气怎么样?", "ما هو الطقس في باريس", "दिल्ली", "ราคาเท่าไหร่", "🙂🙂"])
def test_scripts_without_capitals_have_no_names(text: str) -> None:
    assert found(text) == []


WORDS = st.sampled_from(
    [
        "Alice",
        "van",
        "Corp.",
        "the",
        "of",
        "J.",
        "@bob",
        "a@b.co",
        "http://x.yz/",
        "NASA",
        "GPT-4o",
        "'s",
        ",",
        ".",
        "\n",
        "(",
        "Ünal",
    ]
)


@given(st.text(max_size=500) | st.lists(WORDS).map(" ".join) | st.lists(WORDS).map("".join))
def test_any_text_has_bounded_names(text: str) -> None:
    names = names_in(text)
    assert names == names_in(text)
    assert len(names) <= MAX_NAMES
    assert len({name.normal for name in names}) == len(names)
    for name in names:
        assert 0 < len(name.name) <= MAX_NAME_CHARACTERS
        assert name.normal
        assert name.entity_type == "link" or name.normal == normalise(name.name)


def test_at_most_so_many_names_are_found() -> None:
    text = ", ".join(f"by Name{number}" for number in range(100))
    assert found(text) == [f"Name{number}" for number in range(MAX_NAMES)]


PATHOLOGICAL = [
    "A ",
    "a@",
    "(",
    "Ab ",
    "A.",
    "A-",
    "http://",
    "www.",
    "a",
    "A",
    "Ab van ",
    "Ab of the ",
    "@a.",
    "A'",
    "'",
]


@pytest.mark.parametrize("piece", PATHOLOGICAL)
def test_time_grows_with_the_text_and_not_with_its_square(piece: str) -> None:
    def seconds(characters: int) -> float:
        text = piece * (characters // len(piece)) + "@"
        times: list[float] = []
        for _ in range(3):
            start = time.thread_time()
            names_in(text)
            normalise(text)
            times.append(time.thread_time() - start)
        return min(times)

    # Sixteen times the text: 256 times the time if it grew with the square. The constant is what a clock cannot tell.
    assert seconds(160_000) < 64 * seconds(10_000) + 0.02


# Comparing


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("ACME  Corp.'s", "acme"),
        ("“Acme GmbH & Co. KG”", "acme"),
        ("Acme, Inc.", "acme"),
        ("Acme B.V.", "acme"),
        ("Inc.", "inc"),
        ("  Straße\t1 ", "strasse 1"),
        ("Ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("ﬁne", "fine"),
        ("C#", "c#"),
        ("C++", "c++"),
        ("दिल्ली", "दिल्ली"),
        ("...", ""),
    ],
)
def test_what_a_name_is_compared_by(name: str, normal: str) -> None:
    assert normalise(name) == normal


@given(
    st.text() | st.lists(st.sampled_from(["Acme", "Co", "Ltd.", "'s", " ", "’s", ".", "ß", "İ", "ﬁ", "#"])).map("".join)
)
def test_a_normal_form_is_its_own(name: str) -> None:
    assert normalise(normalise(name)) == normalise(name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("john smith", "smith john"),
        ("smith, john", "john smith"),
        ("jon smith", "john smith"),
        ("microsoft", "microsft"),
        ("alice smith", "alice b smith"),
    ],
)
def test_names_that_are_alike(one: str, other: str) -> None:
    assert ALIKE <= likeness(one, other) == likeness(other, one) <= 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("agent-1", "agent-2"),
        ("gpt-3", "gpt-4"),
        ("gpt-4", "gpt-4o"),
        ("tool_12", "tool_13"),
        ("customer support agent 1", "customer support agent 11"),
        ("quarterly report 2023", "quarterly report 2024"),
        ("iran", "iraq"),
        ("bob", "rob"),
        ("robert", "roberto"),
        ("daniel smith", "daniela smith"),
        ("east berlin office", "west berlin office"),
        ("deployment-a", "deployment-b"),
        ("henry iv of england", "henry vi of england"),
        ("world war i", "world war ii"),
        ("paris", "london"),
    ],
)
def test_names_that_must_not_be_confused(one: str, other: str) -> None:
    assert likeness(one, other) < ALIKE
    assert likeness(other, one) < ALIKE
    assert nearest(one, [other]) == []


def test_the_nearest_come_first_and_the_earlier_of_equals() -> None:
    others = ["london", "jon smith", "john smith", "smith john", "john smith", "john smyth"]
    hits = nearest("john smith", others)
    assert [index for index, _ in hits] == [2, 3, 4, 1, 5]
    assert hits[0][1] == 1.0
    assert nearest("john smith", []) == []
    assert nearest("ibm", ["ibm", "ibn"]) == [(0, 1.0)]


NAMES = st.lists(
    st.sampled_from(["john", "jon", "smith", "smyth", "smit", "agent", "1", "2", "acme", "east", "west"]), max_size=3
).map(" ".join)


@given(NAMES, st.lists(NAMES, max_size=8))
def test_the_nearest_are_all_that_are_alike_enough(name: str, others: list[str]) -> None:
    alike = [(index, likeness(name, other)) for index, other in enumerate(others)]
    wanted = sorted((hit for hit in alike if hit[1] >= ALIKE), key=lambda hit: (-hit[1], hit[0]))
    assert nearest(name, others) == wanted
