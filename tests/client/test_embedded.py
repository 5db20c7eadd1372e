"""A Whence inside this process, or another one that is no server."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment, serving, whence
from whence import AsyncWhence, Whence
from whence.errors import InvalidInput, NotFound, SetupError, Unavailable

NOTE: dict[str, Any] = {"agent": "concierge", "tier": "persistent", "kind": "semantic"}
PLACE = {"event_type": "tool.execute", "session_id": "s1", "trace_id": "t1"}
READY_SECONDS = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Whence that nobody has opened yet."""
    return tmp_path_factory.mktemp("embedded") / "data"


@pytest.fixture
def ada(home: Path) -> Iterator[Whence]:
    with Whence.embedded(home, user="ada") as client:
        yield client


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", program, *map(str, arguments)]
    return subprocess.run(command, text=True, capture_output=True, timeout=READY_SECONDS, env=clean_environment())


def test_from_a_fresh_folder_what_is_told_is_recalled_and_explained(home: Path, ada: Whence) -> None:
    done = ada.remember("Ada prefers tea", **NOTE)
    assert [hit.text for hit in ada.recall(agent="concierge").hits] == ["Ada prefers tea"]
    assert ada.explain(done.memory_id).summary.startswith("ada told concierge")
    assert (home / "admin.key").exists()
    assert repr(ada) == "<Whence embedded>"


def test_the_graph_and_the_stream_follow(ada: Whence) -> None:
    done = ada.append(**PLACE).results[0]
    assert done.global_position is not None
    assert done.event_id in ada.lineage(str(done.event_id), wait_for=done.global_position).nodes
    for event in ada.follow(after=done.global_position - 1):
        if event.global_position > done.global_position:
            break
        ada.append(**PLACE)
    assert event.global_position == done.global_position + 1


def test_a_document_is_read_in_a_process_of_its_own_here_too(ada: Whence) -> None:
    added = ada.add_resource(b"# Roses\n\nRoses need water.", name="roses.md")
    assert (added.status, added.uri) == ("ready", f"resource://ada/{added.resource_id}")
    hit = ada.recall("What do roses need?", agent="gateway").hits[0]
    assert (hit.session_id, hit.location and hit.location.heading) == (added.uri, ("Roses",))


async def test_the_asynchronous_one_does_the_same(home: Path) -> None:
    async with AsyncWhence.embedded(str(home), user="bob") as bob:
        done = await bob.remember("Bob prefers coffee", **NOTE)
        assert [hit.memory_id for hit in (await bob.recall()).hits] == [done.memory_id]
        many = await asyncio.gather(*(bob.append(**PLACE) for _ in range(20)))
        assert sorted(answer.accepted for answer in many) == [1] * 20
        async for event in bob.follow():
            assert event.user_id == "bob"
            break


def test_many_threads_may_share_one(ada: Whence) -> None:
    before = len(ada.events(limit=1000).events)
    threads = [threading.Thread(target=ada.append, kwargs=PLACE) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ada.events(limit=1000).events) == before + 20


def test_a_user_sees_what_is_theirs_and_an_administrator_everything(home: Path, ada: Whence) -> None:
    mine = ada.remember("Ada has a cat", **NOTE)
    with Whence.embedded(home, user="eve") as eve, pytest.raises(NotFound):
        eve.memory(mine.memory_id)
    with Whence.embedded(home) as administrator:
        assert administrator.memory(mine.memory_id).user_id == "ada"
        administrator.set_rule("w", "r", "A rule.")
        assert [rule.rule_id for rule in administrator.rules("w")] == ["r"]
        administrator.drop_rule("w", "r")


def test_errors_are_the_same_as_over_http(ada: Whence) -> None:
    with pytest.raises(InvalidInput) as caught:
        ada.remember("", **NOTE)
    assert [error.field for error in caught.value.errors] == ["text"]


@pytest.mark.parametrize("user", ["", "a\nb", "x" * 257])
def test_a_user_that_cannot_be_one_is_refused(home: Path, user: str) -> None:
    with pytest.raises(InvalidInput, match="user_id"), Whence.embedded(home, user=user):
        pass


async def test_a_folder_that_cannot_be_used_is_told_by_whoever_calls_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    client = Whence.embedded(tmp_path / "file")
    for _ in range(2):
        with pytest.raises(SetupError):
            client.health()
    client.close()
    with pytest.raises(SetupError):
        async with AsyncWhence.embedded(tmp_path / "file"):
            pass


def test_it_works_beside_a_server_on_the_same_data(home: Path, tmp_path: Path) -> None:
    with (
        serving(home, tmp_path / "log") as server,
        Whence.embedded(home) as inside,
        Whence(server.url, key=server.admin_key) as outside,
    ):
        told = outside.append(**PLACE).results[0]
        assert str(inside.event(str(told.event_id)).event_id) == told.event_id
        back = inside.append(**PLACE).results[0]
        assert (back.global_position or 0) == (told.global_position or 0) + 1
        assert outside.event(str(back.event_id)).global_position == back.global_position


def test_it_works_with_an_administrators_key_that_was_replaced(home: Path, ada: Whence) -> None:
    key = home / "admin.key"
    kept = key.read_text()
    assert whence("user", "rotate", "admin", "--data-dir", home).returncode == 0
    key.unlink(missing_ok=True)
    try:
        with Whence.embedded(home) as administrator:
            assert administrator.health().status == "ok"
            administrator.set_rule("w", "r", "A rule.")
    finally:
        key.write_text(kept)


def test_it_says_nothing_by_itself_and_tells_logging_what_is_wrong(home: Path) -> None:
    program = """
import sys
from whence import Whence
with Whence.embedded(sys.argv[1], user="ada") as w:
    w.remember("said in another process", agent="concierge", tier="persistent", kind="semantic")
    print(w.recall(agent="concierge", top_k=1).hits[0].text)
"""
    done = run(program, home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "said in another process\n", "")
    loud = run("import logging; logging.basicConfig(level=logging.DEBUG)\n" + program, home)
    assert "whence.gateway.boundary" in loud.stderr
    assert "route='/v1/memories'" in loud.stderr


def test_a_forgotten_close_does_not_hold_up_the_end_of_a_program(home: Path) -> None:
    program = """
import sys
from whence import Whence
w = Whence.embedded(sys.argv[1], user="ada")
print(w.append(event_type="a.b", session_id="forgotten", trace_id="t").accepted)
stream = w.follow()
next(stream)
"""
    began = time.monotonic()
    done = run(program, home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert time.monotonic() - began < 20
    with Whence.embedded(home, user="ada") as ada:
        assert len(ada.events(session_id="forgotten").events) == 1


def test_a_program_that_fails_before_it_has_opened_ends(home: Path) -> None:
    done = run("import sys; from whence import Whence; w = Whence.embedded(sys.argv[1]); sys.exit(3)", home)
    assert (done.returncode, done.stderr) == (3, "")


def living() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "whence"]


def test_a_client_that_was_dropped_ends_its_whence(home: Path) -> None:
    client = Whence.embedded(home)
    client.health()
    (thread,) = living()
    del client
    thread.join(READY_SECONDS)
    assert not thread.is_alive()


def test_who_is_interrupted_while_it_opens_leaves_nothing_open(home: Path) -> None:
    program = """
import signal, sys, threading
from whence import Whence
client = Whence.embedded(sys.argv[1])
assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    client.__enter__()
except KeyboardInterrupt as error:
    print([thread.name for thread in threading.enumerate()])
"""
    done = run(program, home)
    assert (done.stdout, done.stderr) == ("['MainThread']\n", "")


def test_closing_ends_streams_and_further_calls(home: Path) -> None:
    client = Whence.embedded(home, user="ada")
    client.append(**PLACE)
    failed: list[Unavailable] = []

    def follow() -> None:
        try:
            for _ in client.follow():
                started.set()
        except Unavailable as error:
            failed.append(error)

    started = threading.Event()
    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(READY_SECONDS)
    client.close()
    client.close()
    thread.join(READY_SECONDS)
    assert not thread.is_alive()
    assert [str(error) for error in failed] == ["this Whence was closed before it had answered"]
    assert not living()
    with pytest.raises(Unavailable, match="closed"):
        client.health()


async def test_a_caller_who_gives_up_waiting_does_not_stop_the_others(home: Path) -> None:
    client = AsyncWhence.embedded(home, user="ada")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.health(), 0.01)
    assert (await client.health()).status == "ok"
    await client.append(**PLACE)
    stream = client.follow(after=10_000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.3)
    assert (await client.health()).status == "ok"
    await client.close()
    assert not living()
