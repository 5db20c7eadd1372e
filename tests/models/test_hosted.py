"""Hosted models, against a server on loopback that speaks their API."""

import logging
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr

from tiny_models import Hosted, hosted, vector_of
from whence.errors import SetupError, Unavailable
from whence.models import host as module
from whence.models.embedder import Embedder, quantised
from whence.models.host import MAX_CALLS
from whence.models.hosted import MAX_CALL_TEXTS, HostedEmbedder

KEY = "sk-not-to-be-told"


@pytest.fixture(scope="module")
def served() -> Iterator[Hosted]:
    with hosted() as state:
        yield state


@pytest.fixture
def server(served: Hosted) -> Hosted:
    served.asked.clear()
    served.headers.clear()
    served.answer = lambda body, number: (200, {}, served.vectors(body))
    return served


class Slept(list[float]):
    """How long it would have slept."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def slept() -> Slept:
    return Slept()


@pytest.fixture
def embedder(server: Hosted, slept: Slept) -> Iterator[HostedEmbedder]:
    made = HostedEmbedder("tiny", server.url, SecretStr(KEY), None, slept, random.Random(1))
    yield made
    made.close()


def test_texts_are_sent_and_their_vectors_put_in_order(embedder: HostedEmbedder, server: Hosted) -> None:
    made: Embedder = embedder
    vectors = made.embed(["cat", "dog"])
    assert np.array_equal(vectors, quantised(np.stack([vector_of("cat", 8), vector_of("dog", 8)])))
    assert np.array_equal(made.embed_query("dog"), vectors[1])
    asked = {"path": "/v1/embeddings", "model": "tiny", "input": ["cat", "dog"], "encoding_format": "float"}
    assert server.asked[0] == asked
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert (made.dimension, made.is_quick, made.is_exact) == (8, False, False)


def test_a_server_may_want_no_key_and_be_told_a_dimension(server: Hosted) -> None:
    made = HostedEmbedder("tiny", f"{server.url}/embeddings/", None, 5)
    assert made.embed(["cat"]).shape == (1, 5)
    assert "Authorization" not in server.headers[0]
    assert (server.asked[0]["dimensions"], server.asked[0]["path"]) == (5, "/v1/embeddings")
    made.close()


def test_names_tell_models_servers_and_dimensions_apart_without_asking(server: Hosted) -> None:
    host = server.url.removeprefix("http://").removesuffix("/v1")
    assert HostedEmbedder("tiny", server.url, None, None).name == f"openai:tiny@{host}"
    assert HostedEmbedder("tiny", server.url, SecretStr(KEY), 5).name == f"openai:tiny@{host}:5"
    assert HostedEmbedder("m", "https://api.openai.com/v1", None, 512).name == "openai:m@api.openai.com:512"
    assert server.asked == []


def test_the_dimension_is_asked_for_where_nobody_said_it(embedder: HostedEmbedder, server: Hosted) -> None:
    assert embedder.dimension == 8
    assert embedder.dimension == 8
    assert len(server.asked) == 1


def test_many_texts_are_sent_in_parts(embedder: HostedEmbedder, server: Hosted) -> None:
    texts = [f"text {number}" for number in range(2 * MAX_CALL_TEXTS + 1)]
    vectors = embedder.embed(texts)
    assert [len(asked["input"]) for asked in server.asked] == [MAX_CALL_TEXTS, MAX_CALL_TEXTS, 1]
    assert np.array_equal(vectors[200], quantised(vector_of("text 200", 8)[np.newaxis])[0])


def test_what_has_no_word_is_not_sent(embedder: HostedEmbedder, server: Hosted) -> None:
    vectors = embedder.embed([" ", "cat", ""])
    assert server.asked[0]["input"] == ["cat"]
    assert [bool(row.any()) for row in vectors] == [False, True, False]
    assert embedder.embed([]).shape == (0, 8)


# Failures that pass


def test_it_is_asked_again_ever_later(embedder: HostedEmbedder, server: Hosted, slept: Slept) -> None:
    server.answer = lambda body, number: (500, {}, b"") if number < 3 else (200, {}, server.vectors(body))
    assert embedder.embed(["cat"]).any()
    assert len(server.asked) == 3
    assert 0.25 <= slept[0] <= 0.5 <= slept[1] <= 1


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [
        ("7", 7.0, 7.0),
        ("in 15 seconds, as a date", 10.0, 15.0),
        ("soon", 0.25, 0.5),
    ],
)
def test_the_server_says_when_to_ask_again(
    embedder: HostedEmbedder, server: Hosted, slept: Slept, said: str, least: float, most: float
) -> None:
    if said.endswith("date"):
        said = format_datetime(datetime.now(UTC) + timedelta(seconds=15), usegmt=True)
    server.answer = lambda body, number: (
        (429, {"Retry-After": said}, b"") if number < 2 else (200, {}, server.vectors(body))
    )
    assert embedder.embed(["cat"]).any()
    assert least <= slept[0] <= most


def test_one_that_asks_for_too_long_a_pause_has_failed(embedder: HostedEmbedder, server: Hosted, slept: Slept) -> None:
    server.answer = lambda body, number: (429, {"Retry-After": "3600"}, b"")
    with pytest.raises(Unavailable, match="too many requests"):
        embedder.embed(["cat"])
    assert (len(server.asked), slept) == (1, [])


# Failures that stay


@pytest.mark.parametrize(
    ("status", "problem", "calls"),
    [
        (500, "failed .500.; the setting embedder_url", MAX_CALLS),
        (429, "too many requests", MAX_CALLS),
        (401, "see the setting embedder_key", 1),
        (403, "see the setting embedder_key", 1),
        (404, "does not embed with tiny .404.: see the settings embedder and embedder_url", 1),
        (307, "does not embed with tiny", 1),
    ],
)
def test_a_failure_names_the_setting_and_no_secret(
    embedder: HostedEmbedder, server: Hosted, caplog: pytest.LogCaptureFixture, status: int, problem: str, calls: int
) -> None:
    echoed = {"error": {"message": f"Incorrect API key provided: {KEY}. cat"}}
    server.answer = lambda body, number: (status, {}, echoed)
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable, match=problem) as raised:
        embedder.embed(["cat"])
    assert len(server.asked) == calls
    seen: BaseException | None = raised.value
    while seen is not None:
        assert KEY not in f"{seen!r} {seen}"
        seen = seen.__cause__
    assert KEY not in caplog.text
    assert KEY not in repr(embedder)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"<html>", "does not speak the embeddings API"),
        ({"data": "none"}, "does not speak"),
        ({"data": [{"index": 0, "embedding": "AACAPw=="}]}, "does not speak"),
        ({"data": []}, "answered 1 texts with 0 vectors"),
        ({"data": [{"index": 1, "embedding": [1.0]}]}, "in no order"),
        ({"data": [{"index": 0, "embedding": []}]}, "0 components"),
        ({"data": [{"index": 0, "embedding": [0.5] * 1536}]}, "1,536 components.*embedder_dimension"),
    ],
)
def test_answers_of_another_shape_are_told(embedder: HostedEmbedder, server: Hosted, answer: Any, problem: str) -> None:
    server.answer = lambda body, number: (200, {}, answer)
    with pytest.raises(Unavailable, match=problem):
        embedder.embed(["cat"])


def test_another_dimension_than_asked_for_is_told(server: Hosted) -> None:
    made = HostedEmbedder("tiny", server.url, None, 4)
    server.answer = lambda body, number: (200, {}, server.vectors({**body, "dimensions": 8}))
    with pytest.raises(Unavailable, match="8 components instead of 4"):
        made.embed(["cat"])
    made.close()


def test_an_answer_without_end_is_not_read_to_it(
    embedder: HostedEmbedder, server: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 100)
    with pytest.raises(Unavailable, match="more than it was asked for"):
        embedder.embed(["cat"])


def test_one_that_nobody_serves_is_told(slept: Slept) -> None:
    made = HostedEmbedder("tiny", "http://127.0.0.1:1/v1", SecretStr(KEY), None, slept)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached .ConnectError.: see .*embedder_url"):
        made.embed(["cat"])
    assert len(slept) == MAX_CALLS - 1
    made.close()


def test_a_text_that_is_too_long_for_the_model_is_cut(embedder: HostedEmbedder, server: Hosted) -> None:
    def answer(body: dict[str, Any], number: int) -> tuple[int, dict[str, str], Any]:
        fits = all(len(text) <= 2_000 for text in body["input"])
        return (200, {}, server.vectors(body)) if fits else (400, {}, b"")

    server.answer = answer
    vectors = embedder.embed(["cat", "x" * 8_000, "dog"])
    short = np.stack([vector_of(text, 8) for text in ("cat", "x" * 2_000, "dog")])
    assert np.array_equal(vectors, quantised(short))


def test_what_is_refused_however_short_it_is_is_told(embedder: HostedEmbedder, server: Hosted) -> None:
    server.answer = lambda body, number: (400, {}, b"")
    with pytest.raises(Unavailable, match=r"refuses to embed with tiny .400.*embedder_dimension"):
        embedder.embed([f"{'long ' * 1_600}{number}" for number in range(MAX_CALL_TEXTS)])
    assert len(server.asked) < 20


def test_an_answer_that_drips_is_not_waited_for_without_end(
    embedder: HostedEmbedder, server: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.models.host.ANSWER_SECONDS", 0.2)

    def drops() -> Iterator[bytes]:
        for _ in range(300):
            time.sleep(0.02)
            yield b" "

    server.answer = lambda body, number: (200, {}, drops())
    started = time.monotonic()
    with pytest.raises(Unavailable, match="ReadTimeout"):
        embedder.embed(["cat"])
    assert time.monotonic() - started < 4
    assert len(server.asked) == MAX_CALLS


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://host/v1", "begins with http"),
        ("api.openai.com/v1", "begins with http"),
        ("http://host:port/v1", "not an address"),
        ("https://me:hunter2@host/v1", "embedder_key"),
    ],
)
def test_addresses_that_cannot_be_any_are_refused(url: str, problem: str) -> None:
    with pytest.raises(SetupError, match=problem) as raised:
        HostedEmbedder("tiny", url, None, None)
    assert "hunter2" not in raised.value.detail


def test_keys_that_cannot_be_any_are_refused() -> None:
    with pytest.raises(SetupError, match="embedder_key") as raised:
        HostedEmbedder("tiny", "https://host/v1", SecretStr("sk-…"), None)
    assert "sk-" not in raised.value.detail
