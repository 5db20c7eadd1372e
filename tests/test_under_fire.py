"""The promise as a whole: many writers, several followers, a server that is killed, nothing lost or out of order."""

import asyncio
import json
import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from conftest import Server, Workspace, serving
from samples import sample
from whence.app import App
from whence.db import embedded

WRITERS = 8
EVENTS_EACH = 2_000
FOLLOWERS = 3
KILLS = 5
TOTAL = WRITERS * EVENTS_EACH


def batches(seed: int) -> list[list[dict[str, Any]]]:
    """One writer's events, cut into batches of random sizes."""
    dice = random.Random(seed)
    events = [
        sample(event_id=str(uuid.UUID(int=dice.getrandbits(128), version=4)), session_id=f"w{seed}", payload={"n": n})
        for n in range(EVENTS_EACH)
    ]
    cut: list[list[dict[str, Any]]] = []
    while events:
        size = min(len(events), dice.choice((1, 2, 5, 20, 100, 300)))
        cut.append(events[:size])
        events = events[size:]
    return cut


async def follow(url: str, key: str, seen: list[int], until: int, place: "Place | None" = None) -> None:
    """Reads the stream to position `until`, reconnecting with Last-Event-ID whenever it breaks."""
    deadline = time.monotonic() + 240
    while (not seen or seen[-1] < until) and time.monotonic() < deadline:
        headers = {"Authorization": f"Bearer {key}"} | ({"Last-Event-ID": str(seen[-1])} if seen else {})
        try:
            async with (
                httpx.AsyncClient(base_url=place.url if place else url, timeout=20) as client,
                client.stream("GET", "/v1/events/stream", headers=headers) as stream,
            ):
                async for line in stream.aiter_lines():
                    if line.startswith("id: "):
                        seen.append(int(line[4:]))
                        if seen[-1] >= until:
                            return
        except httpx.TransportError:
            await asyncio.sleep(0.1)


async def test_followers_see_all_positions_once_in_order_while_eight_writers_append(
    server: Server, workspace: Workspace
) -> None:
    acknowledged: dict[str, int] = {}

    async def write(seed: int) -> None:
        async with httpx.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {workspace.admin_key}"}, timeout=60
        ) as client:
            for batch in batches(seed):
                answer = (await client.post("/v1/events", json={"events": batch})).json()
                for result in answer["results"]:
                    assert result["status"] == "accepted"
                    acknowledged[result["event_id"]] = result["global_position"]

    seen: list[list[int]] = [[] for _ in range(FOLLOWERS)]
    followers = [asyncio.create_task(follow(server.url, workspace.admin_key, one, TOTAL)) for one in seen]
    await asyncio.gather(*(write(seed) for seed in range(WRITERS)))
    await asyncio.wait_for(asyncio.gather(*followers), 120)
    assert sorted(acknowledged.values()) == list(range(1, TOTAL + 1))
    for one in seen:
        assert one == list(range(1, TOTAL + 1))


class Place:
    """Where the server is at the moment: it comes back on another port after each kill."""

    url = ""


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_and_clients_resend(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("fire")
    place = Place()
    acknowledged: dict[str, int] = {}
    key = ""
    finished = asyncio.Event()

    async def write(seed: int) -> None:
        for batch in batches(1000 + seed):
            while True:
                try:
                    async with httpx.AsyncClient(
                        base_url=place.url, headers={"Authorization": f"Bearer {key}"}, timeout=10
                    ) as client:
                        answer = await client.post("/v1/events", json={"events": batch})
                    if answer.status_code == 200:
                        break
                    assert answer.status_code == 503, answer.text
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)
            for result in answer.json()["results"]:
                assert result["status"] in ("accepted", "duplicate"), result
                assert (
                    acknowledged.setdefault(result["event_id"], result["global_position"]) == result["global_position"]
                )
            await asyncio.sleep(0.01)

    async def run_server() -> None:
        nonlocal key
        for round_ in range(KILLS + 1):
            with serving(folder / "data", folder / "log") as server:
                place.url, key = server.url, server.admin_key
                if round_ == KILLS:
                    await finished.wait()
                    return
                target = len(acknowledged) + TOTAL // (KILLS + 2)
                while len(acknowledged) < min(target, TOTAL - 500):
                    await asyncio.sleep(0.01)
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()

    keeper = asyncio.create_task(run_server())
    while not place.url:
        assert not keeper.done(), keeper
        await asyncio.sleep(0.05)
    seen: list[list[int]] = [[] for _ in range(FOLLOWERS)]
    followers = [asyncio.create_task(follow("", key, one, TOTAL, place)) for one in seen]
    await asyncio.wait_for(asyncio.gather(*(write(seed) for seed in range(WRITERS))), 300)
    await asyncio.wait_for(asyncio.gather(*followers), 120)
    stored = await read_all(place.url, key)
    finished.set()
    await keeper
    assert [event["global_position"] for event in stored] == list(range(1, TOTAL + 1))
    assert {event["event_id"]: event["global_position"] for event in stored} == acknowledged
    for one in seen:
        assert one == list(range(1, TOTAL + 1))


async def read_all(url: str, key: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    after: int | None = 0
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        while after is not None:
            page = (await client.get("/v1/events", params={"after": after, "limit": 1000})).json()
            events += page["events"]
            after = page["next"]
    return events


async def test_a_server_whose_postgres_is_killed_starts_it_again(tmp_path: Path) -> None:
    with serving(tmp_path / "data", tmp_path / "log") as server, server.client(server.admin_key) as client:
        assert client.post("/v1/events", json=sample()).json()["accepted"] == 1
        event = sample()
        pid = next(
            process.info["pid"]
            # A zombie has no command line, and process_iter gives None for what it may not read.
            for process in psutil.process_iter(["pid", "name", "cmdline"])
            if process.info["name"] == "postgres" and str(server.data_dir) in " ".join(process.info["cmdline"] or ())
        )
        os.kill(pid, signal.SIGKILL)
        until_answered(lambda: client.post("/v1/events", json=event))
        # What was killed has left backends, and one of them may have stored it before it ended.
        assert len(until_answered(lambda: client.get("/v1/events")).json()["events"]) == 2
        assert until_answered(lambda: client.post("/v1/events", json=event)).json()["duplicates"] == 1


def until_answered(ask: Callable[[], httpx.Response]) -> httpx.Response:
    for _ in range(100):
        answer = ask()
        if answer.status_code == 200:
            break
        assert answer.status_code == 503
        time.sleep(0.1)
    return answer.raise_for_status()


async def test_personal_text_is_nowhere_in_clear_in_the_data_directory_or_the_log(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("marker")
    markers = [f"Marker-{uuid.uuid4().hex}" for _ in range(6)]
    with serving(folder / "data", folder / "log", "--log-level", "debug") as server:
        key = server.admin_key
        with server.client(key) as client:
            events = [
                sample(payload={"text": marker, "deep": [{"again": marker}]}, subject_id=f"p{n}")
                for n, marker in enumerate(markers)
            ]
            assert client.post("/v1/events", json={"events": events}).json()["accepted"] == len(events)
            # Refused, repeated and conflicting content must not leak either.
            for broken in (
                events[0],
                events[0] | {"payload": markers[1]},
                sample(payload=markers[2], importance_hint=99),
                sample(tool_name="\x00", payload=markers[3]),
            ):
                client.post("/v1/events", json=broken)
            client.post("/v1/events", content=json.dumps(sample(payload=markers[4]))[:-1])
            client.post("/v1/traces", content=markers[5].encode(), headers={"Content-Type": "application/x-protobuf"})
            client.get("/v1/events", headers={"Authorization": f"Bearer {key[:-1]}"})
            client.get(f"/v1/events?session_id={markers[0]}")
            for event in events:
                assert client.get(f"/v1/events/{event['event_id']}/payload").json()["text"] in markers
        checkpoint(server.data_dir)
        secrets = [*(marker.encode() for marker in markers), key.rsplit(".", 1)[1].encode()]
        looked_at = search(folder, secrets, allowed={server.data_dir / "admin.key"})
    assert looked_at > 100
    assert "request" in (folder / "log").read_text(), "the debug log says something"
    search(folder, secrets, allowed={server.data_dir / "admin.key"})


def checkpoint(data_dir: Path) -> None:
    """Makes Postgres write everything that it has in memory; the superuser's login is the cluster's own."""
    with psycopg.connect(embedded._Files(data_dir).login(embedded.SUPERUSER), autocommit=True) as conn:
        conn.execute("CHECKPOINT")


def search(folder: Path, secrets: list[bytes], allowed: set[Path]) -> int:
    looked_at = 0
    for path in folder.rglob("*"):
        if path.is_file() and path not in allowed:
            looked_at += 1
            content = path.read_bytes()
            for secret in secrets:
                assert secret not in content, f"{secret!r} is in {path}"
                assert secret.hex().encode() not in content
    return looked_at


async def test_two_servers_on_one_data_directory_keep_one_order(
    app: App, server: Server, workspace: Workspace, tmp_path: Path
) -> None:
    """What one process appends, the follower of the other sees; positions are shared."""
    with serving(server.data_dir, tmp_path / "log") as second:
        headers = {"Authorization": f"Bearer {workspace.admin_key}"}
        seen: list[int] = []
        following = asyncio.create_task(follow(second.url, workspace.admin_key, seen, 200))

        async def write(url: str) -> None:
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                for _ in range(50):
                    assert (await client.post("/v1/events", json={"events": [sample(), sample()]})).status_code == 200

        await asyncio.gather(write(server.url), write(second.url))
        await asyncio.wait_for(following, 30)
        assert seen == list(range(1, 201))
