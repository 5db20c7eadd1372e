"""The stream: what is there, then what comes, each once, from where the client was."""

import asyncio
import json
import time
from collections.abc import Iterator

import httpx
import pytest

from conftest import Server, Workspace, serving
from samples import event, sample
from whence.app import App


def frames(stream: httpx.Response) -> Iterator[tuple[int, dict[str, object]]]:
    position = 0
    for line in stream.iter_lines():
        if line.startswith("id: "):
            position = int(line[4:])
        if line.startswith("data: "):
            yield position, json.loads(line[6:])


def test_the_stream_gives_what_is_there_and_what_comes_in_order(admin: httpx.Client) -> None:
    admin.post("/v1/events", json={"events": [sample() for _ in range(3)]})
    with admin.stream("GET", "/v1/events/stream") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        reading = frames(stream)
        assert [next(reading)[0] for _ in range(3)] == [1, 2, 3]
        sent = sample(tool_name="later")
        admin.post("/v1/events", json=sent)
        position, event = next(reading)
        assert (position, event["event_id"], event["global_position"]) == (4, sent["event_id"], 4)


def test_a_client_that_reconnects_goes_on_where_it_was(admin: httpx.Client) -> None:
    admin.post("/v1/events", json={"events": [sample() for _ in range(5)]})
    with admin.stream("GET", "/v1/events/stream", headers={"Last-Event-ID": "3"}) as stream:
        reading = frames(stream)
        assert [next(reading)[0] for _ in range(2)] == [4, 5]
    with admin.stream("GET", "/v1/events/stream?after=4") as stream:
        assert next(frames(stream))[0] == 5
    for wrong in ("x", "-1", "9" * 19, "1.5"):
        answer = admin.get("/v1/events/stream", headers={"Last-Event-ID": wrong})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "Last-Event-ID")


def test_a_stream_can_be_filtered(admin: httpx.Client) -> None:
    for n in range(4):
        admin.post("/v1/events", json=sample(session_id=f"s{n % 2}"))
    with admin.stream("GET", "/v1/events/stream?session_id=s1") as stream:
        reading = frames(stream)
        assert [next(reading)[0] for _ in range(2)] == [2, 4]


async def test_a_stream_ends_when_its_key_is_revoked(app: App, server: Server, workspace: Workspace) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx.AsyncClient(base_url=server.url, headers=headers, timeout=10) as client,
        client.stream("GET", "/v1/events/stream") as stream,
    ):
        lines = stream.aiter_lines()
        await app.ledger.append(workspace.user("ann"), [event()])
        while not (await anext(lines)).startswith("data:"):
            pass
        await app.identity.revoke_keys(workspace.workspace_id, "ann")
        await asyncio.sleep(1.2)
        await app.ledger.append(workspace.user("ann"), [event()])
        rest = [line async for line in lines]
    assert "event: error" in rest
    assert any('"code":"unauthenticated"' in line for line in rest)
    assert not any('"global_position":2' in line for line in rest)


def test_open_streams_do_not_hold_up_a_stop(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stop")
    with serving(folder / "data", folder / "log") as server, server.client(server.admin_key) as client:
        with client.stream("GET", "/v1/events/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry")
            began = time.monotonic()
            server.process.terminate()
            list(lines)
        assert server.process.wait(20) == 0
        assert time.monotonic() - began < 10
