"""Calls as values: paths, attempts and the frames of a stream."""

import math
import uuid
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given as given_that
from hypothesis import strategies as st

from whence import AsyncWhence, Whence
from whence.client.calls import (
    MAX_ATTEMPTS,
    MAX_PAUSE_SECONDS,
    Attempts,
    Frames,
    at,
    authorization,
    base_of,
    failure_of,
    post,
    put,
    read,
)
from whence.errors import InvalidInput, Overloaded, Unauthenticated, Unavailable, WhenceError
from whence.wire import Fact, Remember, StoredEvent

BASE = httpx.URL("http://joe:secret@example.test:8010/api")


def stored(position: int, session_id: str) -> StoredEvent:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    nothing = (None,) * 7
    return StoredEvent(
        uuid.UUID(int=position), position, "a.b", now, now, session_id, "t", *nothing, 1, None, None, None, None, False
    )


def test_names_in_a_path_are_encoded_and_cannot_lead_elsewhere() -> None:
    assert at("/v1/working/{}/{}", "a/b c", "100%?") == "/v1/working/a%2Fb%20c/100%25%3F"
    assert at("/v1/canon/{}/{}", "..", ".") == "/v1/canon/%2E%2E/%2E"
    with pytest.raises(InvalidInput):
        at("/v1/canon/{}/{}", "world", "")


def test_what_is_asked_is_written_as_the_server_reads_it() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    call = read("/p", str, {"text": True, "as_of": when, "limit": 5, "agent": None, "id": uuid.UUID(int=1)})
    assert call.query == {
        "text": "true",
        "as_of": "2026-01-01T00:00:00+00:00",
        "limit": "5",
        "id": "00000000-0000-0000-0000-000000000001",
    }


LOST, REFUSED, LATE = httpx.ReadError("lost"), httpx.ConnectError("refused"), httpx.ReadTimeout("late")


@pytest.mark.parametrize(
    ("outcome", "repeatable", "attempts"),
    [
        (LOST, True, MAX_ATTEMPTS),
        (LOST, False, 1),
        (REFUSED, True, MAX_ATTEMPTS),
        (REFUSED, False, MAX_ATTEMPTS),
        (LATE, True, 1),
        (LATE, False, 1),
        (httpx.Response(503), True, MAX_ATTEMPTS),
        (httpx.Response(503), False, 1),
        (httpx.Response(500), True, 1),
        (httpx.Response(200), True, 1),
    ],
    ids=str,
)
def test_only_what_is_safe_is_sent_again_and_not_for_ever(
    outcome: httpx.Response | httpx.TransportError, repeatable: bool, attempts: int
) -> None:
    counted, made = Attempts(repeatable), 1
    while counted.pause_after(outcome) is not None:
        made += 1
    assert made == attempts


@pytest.mark.parametrize(
    ("said", "pause"), [("2", 2.0), ("0", 0.2), ("86400", MAX_PAUSE_SECONDS), ("Thu, 01 Jan", 0.2), ("-1", 0.2)]
)
def test_a_server_says_how_long_to_wait_within_bounds(said: str, pause: float) -> None:
    assert Attempts(True).pause_after(httpx.Response(503, headers={"Retry-After": said})) == pause


@given_that(
    sessions=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5),
    cuts=st.lists(st.integers(0, 2_000)),
)
def test_frames_are_read_however_they_are_cut(sessions: list[str], cuts: list[int]) -> None:
    events = [stored(number, session) for number, session in enumerate(sessions, 1)]
    whole = b"retry: 1000\n\n: keep-alive\n\n" + b"".join(
        b"id: %d\ndata: %b\n\n" % (event.global_position, msgspec.json.encode(event)) for event in events
    )
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    frames = Frames()
    chunks = [whole[start:end] for start, end in pairwise(places)]
    assert [event for chunk in chunks for event in frames.feed(chunk)] == events


def test_a_greeting_alone_is_no_sign_of_life() -> None:
    frames = Frames()
    assert list(frames.feed(b"retry: 1000\n\n")) == []
    assert not frames.alive
    assert list(frames.feed(b": keep-alive\n\n")) == []
    assert frames.alive


def test_a_stream_that_ends_with_a_problem_raises_it() -> None:
    problem = b'{"type":"t","title":"T","status":401,"detail":"the key is not valid","code":"unauthenticated"}'
    with pytest.raises(Unauthenticated, match="the key is not valid"):
        list(Frames().feed(b"event: error\ndata: " + problem + b"\n\n"))


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (503, b'{"type":"","title":"","status":503,"detail":"d","code":"overloaded"}', Overloaded),
        (418, b'{"type":"","title":"","status":418,"detail":"d","code":"of a newer server"}', WhenceError),
        (502, b"<html>Bad gateway</html>", Unavailable),
        (404, b"<html>Not found</html>", WhenceError),
        (301, b"", WhenceError),
        (500, b"\xff", WhenceError),
    ],
)
def test_every_failure_becomes_an_error_of_ours(status: int, content: bytes, kind: type[WhenceError]) -> None:
    error = failure_of(httpx.Response(status, content=content), BASE)
    assert type(error) is kind
    assert "secret" not in str(error)


@pytest.mark.parametrize("key", ["", "  ", "with space", "line\nbreak", "ž", "a\x00b", None, 5])
def test_a_key_that_cannot_be_one_is_refused_and_not_quoted(key: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        authorization(key)
    assert [error.field for error in caught.value.errors] == ["key"]
    assert not str(key).strip() or str(key) not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["nonsense", "", "127.0.0.1:8010", "localhost:8010", "http://", "ftp://x", "http://x:p", "http://\ud800", None],
)
def test_an_address_that_cannot_be_one_is_refused_when_the_client_is_made(url: Any) -> None:
    for kind in (AsyncWhence, Whence):
        with pytest.raises(InvalidInput, match="url: must be one such as http://"):
            kind(url, key="uk_w.abc.s")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_has_not_is_refused_by_its_field(number: float) -> None:
    fact = Fact("a", "b", "c", number)
    told = Remember(agent="a", tier="persistent", kind="semantic", text="t", fact=fact)
    for body, field in (
        ({"importance": number}, "importance"),
        ({"fact": {"confidence": number}}, "fact.confidence"),
        ({"fact": fact}, "fact.confidence"),
        ({"memories": [{"text": "x"}, told]}, "memories[1].fact.confidence"),
        ({"embedding": (0.5, number)}, "embedding[1]"),
        ({"value": number}, "value"),
    ):
        for make in (lambda body=body: post("/p", str, body), lambda body=body: put("/p", str, body)):
            with pytest.raises(InvalidInput, match="is not a finite number") as caught:
                make()
            assert [error.field for error in caught.value.errors] == [field]
    assert put("/p", str, {"value": [None, 1.5, "null"]}).body == b'{"value":[null,1.5,"null"]}'


def test_what_json_would_make_something_else_of_is_refused_by_its_field() -> None:
    loop: dict[str, object] = {}
    loop["again"] = loop
    told = Remember(agent="a", tier="persistent", kind="semantic", text=b"t")  # pyright: ignore[reportArgumentType]
    for value, field, message in (
        ({"text": b"Ann likes tea"}, "text", "is of the type bytes, which JSON has not"),
        ({"value": {"a": [1, {2}]}}, "value.a[1]", "is of the type set"),
        ({"memories": [told]}, "memories[0].text", "is of the type bytes"),
        ({"value": object()}, "body", "Encoding objects of type object is unsupported"),
        ({"value": loop}, "body", "is nested too deeply, or in itself"),
    ):
        with pytest.raises(InvalidInput, match=message) as caught:
            post("/p", str, value)
        assert [error.field for error in caught.value.errors] == [field]
    assert post("/p", str, {"fact": Fact("a", "b", "c"), "embedding": (0.5, 1)}).body is not None


def test_half_a_character_is_refused_by_its_field() -> None:
    for make, field in (
        (lambda: post("/p", str, {"text": "a\ud800"}), "text"),
        (lambda: put("/p", str, {"value": {"a": ["\udc00"]}}), "value.a[0]"),
        (lambda: put("/p", str, {"value": {"\udc00": 1}}), "value"),
        (lambda: read("/p", str, {"agent": "\ud800"}), "agent"),
        (lambda: at("/v1/canon/{}", "\ud800"), "path"),
    ):
        with pytest.raises(InvalidInput, match="is not valid Unicode") as caught:
            make()
        assert [error.field for error in caught.value.errors] == [field]


@pytest.mark.parametrize("url", ["ftp://joe:secret@host", "http://joe:secret@host:port"])
def test_an_address_that_is_refused_is_not_quoted(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        base_of(url)
    assert "secret" not in str(caught.value)


def test_a_key_from_a_file_may_end_its_line() -> None:
    assert authorization("ak_w.1.s\n") == {"Authorization": "Bearer ak_w.1.s"}
