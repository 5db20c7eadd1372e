"""Hosted rerankers, against a server on loopback that speaks their API."""

import logging
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from tiny_models import Hosted, hosted
from whence.errors import SetupError, Unavailable
from whence.models.host import MAX_CALLS
from whence.models.hosted_reranker import HostedReranker

KEY = "sk-not-to-be-told"
TEXTS = ["a dog", "the cat sat", "a fish"]


@pytest.fixture(scope="module")
def served() -> Iterator[Hosted]:
    with hosted() as state:
        yield state


@pytest.fixture
def server(served: Hosted) -> Hosted:
    served.asked.clear()
    served.headers.clear()
    served.answer = served.well
    return served


@pytest.fixture
def reranker(server: Hosted) -> Iterator[HostedReranker]:
    made = HostedReranker("tiny", server.url, SecretStr(KEY), 30.0, lambda _: None, random.Random(1))
    yield made
    made.close()


def test_a_question_is_sent_with_all_texts_and_scores_are_put_in_their_order(
    reranker: HostedReranker, server: Hosted
) -> None:
    assert reranker.score("the cat", TEXTS) == [0.0, 0.2, 0.0]
    asked = {"path": "/v1/rerank", "model": "tiny", "query": "the cat", "documents": TEXTS, "top_n": 3}
    assert server.asked == [asked]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_a_server_may_want_no_key_and_its_address_may_be_whole(server: Hosted) -> None:
    made = HostedReranker("tiny", f"{server.url}/rerank/", None)
    assert made.score("cat", ["cat"]) == [0.1]
    assert server.asked[0]["path"] == "/v1/rerank"
    assert "Authorization" not in server.headers[0]
    assert made.name == f"hosted:tiny@{server.url.removeprefix('http://').removesuffix('/v1')}"
    made.close()


def test_a_failure_that_passes_is_asked_again(reranker: HostedReranker, server: Hosted) -> None:
    server.answer = lambda body, number: (503, {}, b"") if number < 3 else server.well(body, number)
    assert reranker.score("cat", TEXTS) == [0.0, 0.1, 0.0]
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "problem", "calls"),
    [
        (500, "failed .500.; the setting reranker_url", MAX_CALLS),
        (429, "too many requests", MAX_CALLS),
        (401, "see the setting reranker_key", 1),
        (404, "does not rank with tiny .404.: see the settings reranker and reranker_url", 1),
        (400, "refuses to rank with tiny .400.: see the setting reranker", 1),
    ],
)
def test_a_failure_names_the_setting_and_no_secret(
    reranker: HostedReranker, server: Hosted, caplog: pytest.LogCaptureFixture, status: int, problem: str, calls: int
) -> None:
    server.answer = lambda body, number: (status, {}, {"message": f"invalid api token {KEY}: the cat sat"})
    with caplog.at_level(logging.DEBUG), pytest.raises(Unavailable, match=problem) as raised:
        reranker.score("cat", TEXTS)
    assert len(server.asked) == calls
    seen: BaseException | None = raised.value
    while seen is not None:
        assert KEY not in f"{seen!r} {seen}"
        assert "sat" not in f"{seen!r} {seen}"
        seen = seen.__cause__
    assert KEY not in caplog.text
    assert KEY not in repr(reranker)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"<html>", "does not speak the rerank API"),
        ([{"index": 0, "score": 0.1}], "does not speak"),
        ({"results": [{"index": 0, "relevance_score": None}]}, "does not speak"),
        ({"results": [{"index": 0, "relevance_score": 0.1}]}, "answered 3 texts with 1 scores"),
        ({"results": [{"index": place, "relevance_score": 1} for place in (0, 1, 3)]}, "answered 3 texts"),
        ({"results": [{"index": place, "relevance_score": 1} for place in (0, 1, 1)]}, "answered 3 texts"),
    ],
)
def test_answers_of_another_shape_are_told(reranker: HostedReranker, server: Hosted, answer: Any, problem: str) -> None:
    server.answer = lambda body, number: (200, {}, answer)
    with pytest.raises(Unavailable, match=problem):
        reranker.score("cat", TEXTS)


def test_texts_that_are_too_long_for_the_model_are_cut(reranker: HostedReranker, server: Hosted) -> None:
    def answer(body: dict[str, Any], number: int) -> tuple[int, dict[str, str], Any]:
        fits = all(len(text) <= 2_000 for text in body["documents"])
        return server.well(body, number) if fits else (400, {}, b"")

    server.answer = answer
    assert reranker.score("cat", ["cat", "x" * 9_000]) == [0.1, 0.0]
    assert [len(text) for text in server.asked[-1]["documents"]] == [3, 2_000]


def test_a_server_that_is_silent_is_not_waited_for(server: Hosted) -> None:
    def answer(body: dict[str, Any], number: int) -> tuple[int, dict[str, str], Any]:
        time.sleep(1)
        return server.well(body, number)

    server.answer = answer
    made = HostedReranker("tiny", server.url, None, 0.2)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        made.score("cat", TEXTS)
    assert time.monotonic() - started < 0.9
    made.close()


def test_it_is_not_asked_again_when_that_would_be_too_late(server: Hosted) -> None:
    server.answer = lambda body, number: (503, {"Retry-After": "4"}, b"")
    made = HostedReranker("tiny", server.url, None, 2.0)
    with pytest.raises(Unavailable, match=r"failed .503."):
        made.score("cat", TEXTS)
    assert len(server.asked) == 1
    made.close()


@pytest.mark.parametrize(
    ("url", "key", "problem"),
    [
        ("ftp://host/v1", None, "setting reranker_url: .*begins with http"),
        ("https://me:hunter2@host/v1", None, "reranker_key"),
        ("https://host/v1", "sk-…", "setting reranker_key"),
    ],
)
def test_addresses_and_keys_that_cannot_be_any_are_refused(url: str, key: str | None, problem: str) -> None:
    with pytest.raises(SetupError, match=problem) as raised:
        HostedReranker("tiny", url, None if key is None else SecretStr(key))
    assert "hunter2" not in raised.value.detail
    assert "sk-" not in raised.value.detail
