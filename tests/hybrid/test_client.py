"""The memory gateway over HTTP: what is sent, how long it may take, and what an error says."""

import asyncio
import copy
import itertools
import json
import logging
import pickle
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hybrid_agent import KEY, Fault, Gateway, behind, shown
from whence.errors import Unavailable
from whence.hybrid import GatewayError
from whence.hybrid.client import MAX_ANSWER_BYTES, MAX_FLUSHED_PARTS, GatewayClient, Operation

MESSAGES = [
    {"sender_id": "ann", "role": "user", "timestamp": 1780000000000, "content": "I live in Lyon"},
    {"sender_id": "assistant", "role": "assistant", "timestamp": 1780000001000, "content": "Noted"},
]
CALLS: dict[Operation, Callable[[GatewayClient], Awaitable[Any]]] = {
    "search": lambda client: client.search("42", "Where does Ann live?"),
    "add": lambda client: client.add("chat:42", MESSAGES),
    "flush": lambda client: client.flush("chat:42"),
}
operations = pytest.mark.parametrize("operation", CALLS)


@asynccontextmanager
async def client_of(gateway: Gateway, **more: Any) -> AsyncIterator[GatewayClient]:
    config = gateway.config(**more).gateway
    assert config is not None
    client = GatewayClient(config, gateway.wire)
    yield client
    await client.close()


def raising(error: Exception) -> Fault:
    def fault(_: httpx.Request) -> httpx.Response:
        raise error

    return fault


def answering(status: int, content: bytes) -> Fault:
    return lambda _: httpx.Response(status, content=content)


async def failure(gateway: Gateway, operation: Operation, **more: Any) -> GatewayError:
    async with client_of(gateway, **more) as client:
        with pytest.raises(GatewayError) as failed:
            await CALLS[operation](client)
    return failed.value


# As docs/reference/hybrid.md lists it


async def test_paths_and_bodies_are_exactly_those_of_the_gateway(gateway: Gateway) -> None:
    async with client_of(gateway, appId="crm", scope=["current_chat", "resources"], topK=8) as client:
        for call in CALLS.values():
            await call(client)
    who = {"user_id": "ann", "user_key": gateway.key, "app_id": "crm", "project_id": "default"}
    asked = {"conversation_id": "42", "query": "Where does Ann live?", "top_k": 8}
    assert gateway.wire.sent == [
        ("/memories/search", who | asked | {"scope": ["current_chat", "resources"]}),
        ("/memories/add", who | {"session_id": "chat:42", "messages": MESSAGES}),
        ("/memories/flush", who | {"session_id": "chat:42"}),
    ]
    for request in gateway.wire.requests:
        assert request.method == "POST"
        assert str(request.url).startswith(gateway.url + "/memories/")
        assert gateway.key not in str(request.headers)
        assert "transfer-encoding" not in request.headers


@operations
async def test_the_configured_timeout_is_that_of_the_whole_call(made_up: Gateway, operation: Operation) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    made_up.wire.faults[f"/memories/{operation}"] = lambda _: httpx.Response(200, content=drip())
    began = time.monotonic()
    error = await failure(made_up, operation, timeoutSeconds=0.3)
    assert 0.25 < time.monotonic() - began < 2
    assert error.category == "timeout"
    (request,) = made_up.wire.requests
    assert set(request.extensions["timeout"].values()) == {0.3}


@operations
@pytest.mark.parametrize(
    ("category", "status", "fault"),
    [
        ("unauthorized", 401, answering(401, KEY.encode())),
        ("http_error", 404, answering(404, KEY.encode())),
        ("http_error", 500, answering(500, KEY.encode())),
        ("http_error", 307, lambda _: httpx.Response(307, headers={"Location": "http://elsewhere.test/"})),
        ("network", None, raising(httpx.ConnectError(KEY))),
        ("network", None, raising(httpx.RemoteProtocolError(KEY))),
        ("network", None, raising(OSError(KEY))),
        ("network", None, raising(Unavailable(KEY))),
        ("network", None, raising(httpx.InvalidURL(KEY))),
        ("network", None, raising(ExceptionGroup(KEY, [OverflowError(KEY)]))),
        ("network", None, lambda _: httpx.Response(307, headers={"Location": "http://xn--"})),
        ("timeout", None, raising(httpx.ReadTimeout(KEY))),
        ("invalid_json", None, answering(200, b"<html>" + KEY.encode())),
        ("invalid_json", None, answering(200, b"")),
        ("invalid_json", None, answering(200, b"\xff\xfe")),
        ("invalid_json", None, answering(200, b"[" * 200_000)),
        ("invalid_response", None, answering(200, b"[]")),
        ("invalid_response", None, answering(200, json.dumps(KEY).encode())),
        ("too_large", 200, answering(200, b" " * (MAX_ANSWER_BYTES + 1))),
    ],
)
async def test_what_goes_wrong_is_told_by_its_kind_and_nothing_else(
    made_up: Gateway, operation: Operation, category: str, status: int | None, fault: Fault
) -> None:
    made_up.wire.faults[f"/memories/{operation}"] = fault
    error = await failure(made_up, operation)
    assert (error.operation, error.path) == (operation, f"/memories/{operation}")
    assert (error.category, error.http_status) == (category, status)
    assert str(error) == f"POST /memories/{operation} failed: {category}" + (f" ({status})" if status else "")
    assert list(behind(error)) == [error], "an error behind it would hold the request"
    assert len(made_up.wire.sent) == 1, "nothing is sent again"


@operations
@pytest.mark.parametrize("fault", [answering(500, KEY.encode()), raising(OSError(KEY)), answering(200, KEY.encode())])
async def test_no_error_holds_the_key(
    made_up: Gateway, operation: Operation, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    made_up.wire.faults[f"/memories/{operation}"] = fault
    error = await failure(made_up, operation)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.category) == (str(error), error.category)
    for each in (error, again, copy.copy(error)):
        assert KEY not in shown(each)
    assert KEY not in caplog.text


# More of the same


@pytest.mark.parametrize("results", [None, {}, "none", 1])
async def test_a_search_must_answer_with_a_list(made_up: Gateway, results: Any) -> None:
    made_up.wire.faults["/memories/search"] = lambda _: httpx.Response(200, json={"results": results})
    assert (await failure(made_up, "search")).category == "invalid_response"


async def test_no_more_results_are_taken_than_were_asked_for(made_up: Gateway) -> None:
    made_up.wire.faults["/memories/search"] = lambda _: httpx.Response(200, json={"results": [1, 2, 3]})
    async with client_of(made_up, topK=2) as client:
        assert await client.search("42", "?") == [1, 2]


async def test_an_answer_that_comes_packed_is_not_unpacked(made_up: Gateway) -> None:
    packed = {"Content-Encoding": "gzip"}
    made_up.wire.faults["/memories/search"] = lambda _: httpx.Response(
        200, headers=packed, stream=httpx.ByteStream(b"\x1f\x8b")
    )
    assert (await failure(made_up, "search")).category == "invalid_json"
    assert made_up.wire.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("parts", "calls", "is_more"), [(0, 1, False), (3, 4, False), (1_000, MAX_FLUSHED_PARTS, True)]
)
async def test_a_flush_goes_on_while_there_is_more(made_up: Gateway, parts: int, calls: int, is_more: bool) -> None:
    left = itertools.count(parts, -1)
    made_up.wire.faults["/memories/flush"] = lambda _: httpx.Response(200, json={"is_more": next(left) > 0})
    async with client_of(made_up) as client:
        assert await client.flush("chat:42") is is_more
    assert made_up.wire.paths == ["/memories/flush"] * calls


async def test_all_parts_of_a_flush_have_the_time_of_one_call(made_up: Gateway) -> None:
    async def slowly(request: httpx.Request) -> httpx.Response:
        made_up.wire.sent.append((request.url.path, {}))
        await asyncio.sleep(0.1)
        return httpx.Response(200, json={"is_more": True})

    made_up.wire.handle_async_request = slowly  # pyright: ignore[reportAttributeAccessIssue]
    began = time.monotonic()
    async with client_of(made_up, timeoutSeconds=0.35) as client:
        assert await client.flush("chat:42") is True
    assert time.monotonic() - began < 2
    assert 1 < len(made_up.wire.sent) <= 4


async def test_a_part_of_a_flush_that_fails_is_told(made_up: Gateway) -> None:
    answers = iter([httpx.Response(200, json={"is_more": True}), httpx.Response(500)])
    made_up.wire.faults["/memories/flush"] = lambda _: next(answers)
    assert (await failure(made_up, "flush")).category == "http_error"


async def test_what_json_cannot_say_is_not_sent(made_up: Gateway) -> None:
    async with client_of(made_up) as client:
        with pytest.raises(GatewayError) as failed:
            await client.search("42", "half of a pair: \ud83d")
    assert failed.value.category == "unsendable"
    assert KEY not in shown(failed.value)
    assert not made_up.wire.sent


async def test_an_address_may_have_a_path_and_a_slash_at_its_end(made_up: Gateway) -> None:
    made_up.url += "/whence/"
    made_up.wire.faults["/whence/memories/flush"] = answering(200, b"{}")
    async with client_of(made_up) as client:
        await client.flush("chat:42")
    assert made_up.wire.paths == ["/whence/memories/flush"]


@operations
async def test_who_stops_waiting_is_not_told_of_a_gateway_that_failed(made_up: Gateway, operation: Operation) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.sleep(60)
        yield b""

    made_up.wire.faults[f"/memories/{operation}"] = lambda _: httpx.Response(200, content=nothing())
    async with client_of(made_up) as client:
        call = asyncio.ensure_future(CALLS[operation](client))
        while not made_up.wire.sent:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError) as stopped:
            await call
    assert KEY not in shown(stopped.value)


@operations
async def test_what_goes_wrong_with_a_real_gateway_is_told_in_the_same_way(
    served: Gateway, operation: Operation
) -> None:
    late = await failure(served, operation, timeoutSeconds=0.0001)
    assert late.category == "timeout"
    right, served.key = served.key, served.key[:-4] + "0000"
    refused = await failure(served, operation)
    assert (refused.category, refused.http_status) == ("unauthorized", 401)
    # Nobody listens there.
    served.url = "http://127.0.0.1:9"
    absent = await failure(served, operation)
    assert absent.category == "network"
    for error in (late, refused, absent):
        assert right not in shown(error)
        assert served.key not in shown(error)
