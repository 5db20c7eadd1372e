"""What goes wrong: told as an error of ours, sent again where that is safe, and never with the key in it."""

import socket
import traceback
import uuid
from typing import Any

import httpx
import msgspec
import pytest

from conftest import Server, Workspace
from whence import AsyncWhence, Whence
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound, Unauthenticated, Unavailable, WhenceError
from whence.wire import DeleteItem, PutItem

NOTE: dict[str, Any] = {"agent": "gateway", "tier": "persistent", "kind": "semantic"}
KEPT: dict[str, Any] = {"namespace": ("n",), "key": "k"}
PLACE = {"event_type": "tool.execute", "session_id": "s1", "trace_id": "t1"}


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


async def test_problems_become_errors_by_their_code(ann: Any) -> None:
    with pytest.raises(NotFound, match="there is no such memory") as missing:
        await ann.memory(uuid.uuid4())
    assert (missing.value.code, missing.value.status) == ("not_found", 404)
    with pytest.raises(InvalidInput) as invalid:
        await ann.remember("x", agent="gateway", tier="nowhere", kind="semantic")
    assert [error.field for error in invalid.value.errors] == ["tier"]
    assert invalid.value.detail.startswith("tier: ")
    with pytest.raises(Forbidden):
        await ann.set_rule("w", "r", "body")
    with pytest.raises(InvalidInput, match="limit"):
        await ann.events(limit=0)
    event_id = (await ann.append(**PLACE)).results[0].event_id
    with pytest.raises(Conflict):
        await ann.append(**{**PLACE, "session_id": "other"}, event_id=event_id)


async def test_a_field_that_is_not_there_is_refused_by_the_server(ann: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        await ann.recall(agnet="gateway")
    assert [error.field for error in caught.value.errors] == ["agnet"]


async def test_a_wrong_key_is_told_and_not_quoted(opened: Any, server: Server, workspace: Workspace) -> None:
    wrong = workspace.admin_key[:-4] + "AAAA"
    client = opened(server.url, wrong)
    for act in (client.events(), anext(client.follow())):
        with pytest.raises(Unauthenticated) as caught:
            await act
        assert wrong not in "".join(traceback.format_exception(caught.value))


async def test_a_server_that_is_not_there_is_told_with_what_to_do(opened: Any, ann_key: str) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    client = opened(url, ann_key)
    for act in (client.health(), client.start_run("a", "i"), anext(client.follow())):
        with pytest.raises(Unavailable, match="start `whence serve`, or check the URL") as caught:
            await act
        assert url in str(caught.value)
        assert ann_key not in "".join(traceback.format_exception(caught.value))


async def test_a_client_that_was_closed_says_so(opened: Any, server: Server, ann_key: str) -> None:
    client = opened(server.url, ann_key)
    await client.close()
    for act in (client.health(), anext(client.follow())):
        with pytest.raises(Unavailable, match="this client was closed"):
            await act


async def test_what_is_no_whence_is_told(opened: Any, ann_key: str, network: Any) -> None:
    client = opened(network.url, ann_key)
    network.answer = (200, b"<html>hello</html>")
    with pytest.raises(WhenceError, match="not a Whence of this version"):
        await client.health()
    network.answer = (404, b"<html>hello</html>")
    with pytest.raises(WhenceError, match="answered 404, and not as Whence does"):
        await client.health()


async def test_a_server_that_takes_too_long_is_given_up(opened: Any, ann_key: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        client = opened(f"http://127.0.0.1:{silent.getsockname()[1]}", ann_key, timeout_s=0.2)
        with pytest.raises(Unavailable, match="did not answer in time"):
            await client.events()


@pytest.mark.parametrize("kind", [AsyncWhence, Whence])
async def test_a_client_does_not_show_its_key(kind: Any) -> None:
    client = kind("http://joe:word@127.0.0.1:9", key="uk_w.abc.topsecret")
    shown = repr(client) + str(client) + repr(vars(client)) + repr(vars(client)["_http"].headers)
    assert "topsecret" not in shown
    assert repr(client) == f"<{kind.__name__} http://127.0.0.1:9>"
    await client.close() if kind is AsyncWhence else client.close()


async def test_variables_of_the_environment_do_not_reroute_the_key(
    opened: Any, server: Server, ann_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    assert (await opened(server.url, ann_key).health()).status == "ok"


async def test_a_lost_answer_to_what_has_an_id_is_asked_for_again_and_stored_once(
    opened: Any, ann_key: str, network: Any, ann: Any
) -> None:
    client = opened(network.url, ann_key)
    for act in (
        lambda: client.remember("Ann likes tea", **NOTE),
        lambda: client.remember_all([{**NOTE, "text": "Ann likes cake"}]),
        lambda: client.append(**PLACE),
        lambda: client.append_all([PLACE, PLACE]),
        lambda: client.items([PutItem(**KEPT, value=msgspec.Raw(b"{}"))]),
    ):
        network.seen.clear()
        network.lose_answers = 2
        await act()
        assert len(network.seen) == 3
    assert [memory.text for memory in (await ann.memories()).memories] == ["", "Ann likes cake", "Ann likes tea"]
    assert [memory.told_count for memory in (await ann.memories()).memories] == [1, 1, 1]
    kinds = [event.event_type for event in (await ann.events()).events]
    assert kinds == ["memory.remembered"] * 2 + ["tool.execute"] * 3 + ["memory.remembered"]


async def test_an_episode_and_the_end_of_its_run_are_stored_once(
    opened: Any, ann_key: str, network: Any, ann: Any
) -> None:
    client = opened(network.url, ann_key)
    run = await client.start_run("gateway", "i")
    for act in (lambda: client.add_episode(run.run_id, "looked"), lambda: client.complete_run(run.run_id, 42)):
        network.lose_answers = 1
        await act()
    assert len(await ann.episodes("gateway")) == 1


async def test_what_would_happen_twice_is_not_sent_twice(opened: Any, ann_key: str, network: Any, ann: Any) -> None:
    client = opened(network.url, ann_key)
    await ann.put_working("a", "i", "k", 1)
    await ann.add_workflow("gateway", "triage", "short", {})
    for act in (
        lambda: client.start_run("gateway", "i"),
        lambda: client.recall(),
        lambda: client.select_workflow("gateway", "triage"),
        lambda: client.delete_working("a", "i", "k"),
        lambda: client.items([DeleteItem(**KEPT)]),
    ):
        network.seen.clear()
        network.lose_answers = 1
        with pytest.raises(Unavailable, match="was lost before it answered"):
            await act()
        assert len(network.seen) == 1
        network.refuse, network.lose_answers = 1, 0
        with pytest.raises(Unavailable, match="later"):
            await act()
        network.refuse = 0
    assert len(await ann.runs("gateway")) == 1


async def test_a_busy_server_is_asked_again_but_not_for_ever(opened: Any, ann_key: str, network: Any) -> None:
    client = opened(network.url, ann_key)
    network.refuse = 2
    assert (await client.events()).events == []
    network.seen.clear()
    network.refuse = 99
    with pytest.raises(Unavailable, match="later"):
        await client.events()
    assert len(network.seen) == 3


async def test_a_stream_that_is_cut_goes_on_where_it_was(opened: Any, ann_key: str, network: Any, ann: Any) -> None:
    await ann.append_all([PLACE] * 12)
    network.cut_bytes = len(await first_frames(network.upstream, ann_key, 3)) + 20
    positions = []
    async for event in opened(network.url, ann_key).follow():
        positions.append(event.global_position)
        if len(positions) == 7:
            break
    assert positions == [1, 2, 3, 4, 5, 6, 7]
    starts = [int(request.partition("after=")[2] or 0) for request in network.seen]
    assert starts == [0, 3, 6]


async def first_frames(url: str, key: str, count: int) -> bytes:
    seen = b""
    async with (
        httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client,
        client.stream("GET", "/v1/events/stream") as stream,
    ):
        async for chunk in stream.aiter_bytes():
            seen += chunk
            if seen.count(b"\n\n") > count:
                break
    return b"\n\n".join(seen.split(b"\n\n")[: count + 1]) + b"\n\n"
