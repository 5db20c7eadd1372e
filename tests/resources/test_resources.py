"""What becomes of documents: they are finished whatever happens, and go when they or their owner go."""

import asyncio
import json
import os
import signal
import threading
import time as real_time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg import Connection

from conftest import Server, Workspace, serving
from lifecycle_time import Time
from people import Endless, archive_of, file_of, leave_document
from whence.app import App, open_app
from whence.db import Scope, embedded
from whence.documents import Chunk, Document, Place
from whence.documents.process import Readers
from whence.errors import InvalidInput, NotFound, Unavailable
from whence.memory.partitions import agent_of
from whence.memory.rebuild import rebuild
from whence.resources import BATCH_CHUNKS, MAX_ATTEMPTS, Resources
from whence.settings import Settings
from whence.wire import Recall, Remember, Resource


class Long(Readers):
    """Takes any file for one with so many parts."""

    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts = parts

    async def read(self, file: Any, kind: Any) -> Document:
        return Document("text/plain", [Chunk(f"Part {number}", Place(page=number)) for number in range(self._parts)])


def resources_of(app: App, readers: Readers, clock: Any = None) -> Resources:
    return Resources(app.database, app.ledger, app.memory, clock or app.clock, readers)


async def memories_of(app: App, workspace: Workspace, found: Resource) -> list[str]:
    asked = Recall(session_id=found.uri)
    page = await app.memory.page(workspace.user("ann").scope, asked, limit=500)
    texts = [memory.text for memory in page.memories]
    while page.next is not None:
        page = await app.memory.page(workspace.user("ann").scope, asked, before=page.next, limit=500)
        texts += [memory.text for memory in page.memories]
    return texts[::-1]


async def count(app: App, workspace: Workspace, table: str) -> int:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        row = await (await tx.execute(f"SELECT count(*) FROM whence.{table}")).fetchone()  # type: ignore[arg-type]
    return row[0] if row else 0


async def is_same_when_replayed(app: App, workspace: Workspace) -> bool:
    await app.ledger.behind.settled()
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal, report.differing
    return report.unreadable == 0


async def test_what_a_reader_leaves_is_taken_up_where_it_was(app: App, workspace: Workspace) -> None:
    parts = 2 * BATCH_CHUNKS + 20
    first = resources_of(app, Long(parts))
    stored = 0

    async def record_once(workspace_id: str, make: Any) -> Any:
        nonlocal stored
        stored += 1
        if stored > 1:
            raise Unavailable("the database went away")
        return await app.ledger.record_together(workspace_id, make)

    first._ledger = Failing(app.ledger, record_once)  # type: ignore[assignment]
    ann = workspace.user("ann")
    added, _ = await first.add(ann, file_of(b"A rose"))
    left = await first.settled(ann.scope, added.resource_id)
    assert (left.status, left.chunks) == ("processing", BATCH_CHUNKS)
    assert len(await memories_of(app, workspace, left)) == BATCH_CHUNKS

    later = Time(app.clock())
    second = resources_of(app, Long(parts), later)
    assert workspace.workspace_id not in await second.due()
    assert not await second.take_up(workspace.workspace_id)
    later.pass_by(minutes=1)
    assert workspace.workspace_id in await second.due()
    assert await second.take_up(workspace.workspace_id)
    done = await app.resources.get(ann.scope, added.resource_id)
    assert (done.status, done.chunks) == ("ready", parts)
    assert await memories_of(app, workspace, done) == [f"Part {number}" for number in range(parts)]
    assert await count(app, workspace, "resource_uploads") == 0
    assert not await second.take_up(workspace.workspace_id)
    assert await is_same_when_replayed(app, workspace)


class Failing:
    """The ledger, but for how it records."""

    def __init__(self, ledger: Any, record_together: Any) -> None:
        self._ledger = ledger
        self.record_together = record_together

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


async def test_a_file_whose_reader_is_at_work_is_not_taken_up(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.resources.BEAT_SECONDS", 0.01)
    later = Time(app.clock())
    at_work = resources_of(app, Endless(), later)
    await at_work.add(workspace.user("ann"), file_of(b"A rose"))
    later.pass_by(minutes=10)
    await asyncio.sleep(0.3)
    other = resources_of(app, Long(1), later)
    assert not await other.take_up(workspace.workspace_id)
    await at_work.close()
    later.pass_by(minutes=10)
    assert await other.take_up(workspace.workspace_id)


async def test_a_reader_goes_on_to_say_that_it_is_at_work_after_it_could_not(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.resources.BEAT_SECONDS", 0.01)
    later = Time(app.clock())
    at_work = resources_of(app, Endless(), later)
    await at_work.add(workspace.user("ann"), file_of(b"A rose"))
    failed = 0

    class FailsOnce:
        def transaction(self, scope: Any) -> Any:
            nonlocal failed
            failed += 1
            at_work._database = app.database
            raise ValueError("not foreseen")

    at_work._database = FailsOnce()  # type: ignore[assignment]
    later.pass_by(minutes=10)
    await asyncio.sleep(0.3)
    assert failed == 1
    assert not await resources_of(app, Long(1), later).take_up(workspace.workspace_id)
    await at_work.close()


class Broken(Readers):
    """Fails as it is told."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error
        self.kinds: list[Any] = []

    async def read(self, file: Any, kind: Any) -> Document:
        self.kinds.append(kind)
        raise self._error


async def test_a_file_that_comes_to_no_end_fails_after_some_attempts_and_leaves_nothing(
    app: App, workspace: Workspace
) -> None:
    ann, later = workspace.user("ann"), Time(app.clock())
    first = resources_of(app, Long(BATCH_CHUNKS + 1), later)

    async def record_once(workspace_id: str, make: Any) -> Any:
        first._ledger = Failing(app.ledger, None)  # type: ignore[assignment]
        return await app.ledger.record_together(workspace_id, make)

    first._ledger = Failing(app.ledger, record_once)  # type: ignore[assignment]
    added, _ = await first.add(ann, file_of(b"A rose", "a.md"))
    assert (await first.settled(ann.scope, added.resource_id)).chunks == BATCH_CHUNKS

    async def attempt(error: Exception) -> Broken:
        later.pass_by(minutes=1)
        readers = Broken(error)
        with pytest.raises(type(error)):
            await resources_of(app, readers, later).take_up(workspace.workspace_id)
        return readers

    for _ in range(MAX_ATTEMPTS):
        await attempt(Unavailable("it is out for a while"))
    for _ in range(MAX_ATTEMPTS - 1):
        assert (await attempt(ValueError("not foreseen"))).kinds == ["markdown"]
    assert (await app.resources.get(ann.scope, added.resource_id)).status == "processing"
    later.pass_by(minutes=1)
    assert await resources_of(app, Long(1), later).take_up(workspace.workspace_id)
    failed = await app.resources.get(ann.scope, added.resource_id)
    assert (failed.status, failed.reason) == ("failed", f"the file could not be read in {MAX_ATTEMPTS} attempts")
    assert await memories_of(app, workspace, failed) == []
    assert await count(app, workspace, "resource_uploads") == 0
    assert await is_same_when_replayed(app, workspace)


@pytest.mark.parametrize("user_id", ["", "a\0b", "a" * 257], ids=["empty", "NUL", "long"])
async def test_whose_a_document_is_must_be_the_id_of_a_user(app: App, workspace: Workspace, user_id: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await app.resources.add(workspace.admin, file_of(b"A rose")._replace(user_id=user_id))
    assert [error.field for error in refused.value.errors] == ["user_id"]


async def test_what_is_looked_up_for_a_user_is_looked_up_as_that_user(app: App, workspace: Workspace) -> None:
    """So that the database keeps users apart, whatever a statement says."""
    scopes: list[Any] = []

    class Watched:
        def transaction(self, scope: Any) -> Any:
            scopes.append(scope)
            return app.database.transaction(scope)

    resources = resources_of(app, Endless())
    resources._database = Watched()  # type: ignore[assignment]
    for principal in (workspace.user("ann"), workspace.admin):
        scopes.clear()
        await resources.add(principal, file_of(b"A rose of %s" % principal.user_id.encode())._replace(user_id="ann"))
        assert scopes == [workspace.user("ann").scope, Scope(workspace.workspace_id), workspace.user("ann").scope]
    await resources.close()


async def test_nothing_is_added_to_what_was_deleted(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    added = await leave_document(app, workspace, "ann", b"A rose", "a.txt")
    assert (await app.resources.delete(ann, added.resource_id)).status == "deleted"
    assert await count(app, workspace, "resource_uploads") == 0
    slow = resources_of(app, Long(3))
    other, _ = await slow.add(ann, file_of(b"Another rose"))
    await app.resources.delete(ann, other.resource_id)
    await slow.close()
    assert await memories_of(app, workspace, other) == []
    with pytest.raises(NotFound):
        await app.resources.get(ann.scope, other.resource_id)
    assert await is_same_when_replayed(app, workspace)


async def test_what_another_process_deletes_does_not_stand_in_the_way_of_the_rest(
    app: App, workspace: Workspace, data_dir: Path
) -> None:
    ann = workspace.user("ann")
    await app.memory.remember(
        ann, Remember(agent="gateway", tier="persistent", kind="semantic", text="Tea for part one")
    )
    many = resources_of(app, Long(1_500))
    added, _ = await many.add(ann, file_of(b"A rose"))
    await many.settled(ann.scope, added.resource_id)
    asked = Recall(query="Part 7", agent="gateway", top_k=5)
    async with open_app(Settings(data_dir=data_dir)) as other:
        assert {hit.role for hit in (await other.recaller.recall(ann, asked)).hits} == {"document"}
        await app.resources.delete(ann, added.resource_id)
        assert [hit.text for hit in (await other.recaller.recall(ann, asked)).hits] == ["Tea for part one"]


async def test_a_part_of_a_document_explains_what_ended_it(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    added, _ = await app.resources.add(ann, file_of(b"# Roses\n\nRed.", "a.md"))
    await app.resources.settled(ann.scope, added.resource_id)
    [part] = (await app.memory.page(ann.scope, Recall(session_id=added.uri))).memories
    before = (await app.memory.explain(ann.scope, part.memory_id)).events
    await app.resources.delete(workspace.admin, added.resource_id)
    for scope in (ann.scope, workspace.admin.scope):
        events = (await app.memory.explain(scope, part.memory_id)).events
        assert events[:-1] == before
        assert (events[-1].event_type, events[-1].user_id) == ("resource.deleted", "ann")
        assert (await app.ledger.get(scope, events[-1].event_id)).parent_event_id == added.resource_id


async def test_resources_follow_from_the_ledger(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for number in range(4):
        added, _ = await app.resources.add(ann, file_of(f"# Rose {number}\n\nRed.".encode(), f"{number}.md"))
        await app.resources.settled(ann.scope, added.resource_id)
    await app.resources.delete(ann, added.resource_id)
    broken, _ = await app.resources.add(ann, file_of(b"%PDF-1.7 broken", "b.pdf"))
    assert (await app.resources.settled(ann.scope, broken.resource_id)).status == "failed"
    await app.resources.add(ann, file_of(b"%PDF-1.7 broken", "c.pdf"))
    assert await is_same_when_replayed(app, workspace)


async def test_an_erasure_takes_documents_what_they_say_and_files_that_are_to_be_read(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    added, _ = await app.resources.add(ann, file_of(b"# Roses\n\nZqrose is red.", "Zqname.md"))
    await app.resources.settled(ann.scope, added.resource_id)
    left = await leave_document(app, workspace, "ann", b"Zqleft", "left.txt")
    archive = await archive_of(app, workspace, "ann")
    exported = [json.loads(line) for line in archive.read("resources.jsonl").splitlines()]
    assert [item["name"] for item in exported] == ["Zqname.md", "left.txt"]
    [memory] = [json.loads(line) for line in archive.read("memories.jsonl").splitlines()]
    assert memory["location"]["heading"] == ["Roses"]
    receipt = await app.erasures.erase(workspace.admin, "ann")
    counts = {name: receipt.removed[name].count for name in ("resources", "resource_chunks", "resource_uploads")}
    assert counts == {"resources": 2, "resource_chunks": 1, "resource_uploads": 1}
    assert all(check.ok for check in await app.erasures.verify(receipt))
    for resource_id in (added.resource_id, left.resource_id):
        with pytest.raises(NotFound):
            await app.resources.get(workspace.admin.scope, resource_id)
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal, report.differing


async def test_a_document_is_found_until_it_is_deleted_and_disposed_of_after_the_grace(
    postgres: embedded.EmbeddedServer, data_dir: Path, workspace: Workspace, owner: Connection
) -> None:
    moment = Time()
    async with open_app(Settings(data_dir=data_dir), clock=moment) as app:
        ann = workspace.user("ann")
        added, _ = await app.resources.add(ann, file_of(b"# Roses\n\nRed.", "a.md"))
        await app.resources.settled(ann.scope, added.resource_id)
        moment.pass_by(days=800)
        assert (await app.retention.apply(workspace.workspace_id)).expired == 0
        assert (await app.sessions.page(ann.scope)).sessions == []
        [memory] = (await app.memory.page(ann.scope, Recall(session_id=added.uri))).memories
        await app.memory.forget(ann, memory.memory_id)
        moment.pass_by(days=31)
        assert (await app.retention.apply(workspace.workspace_id)).disposed == 1
        assert await count(app, workspace, "resource_chunks") == 0
        assert await is_same_when_replayed(app, workspace)
        await app.resources.delete(ann, added.resource_id)


async def test_what_a_profile_refuses_is_left_out_and_counted(
    postgres: embedded.EmbeddedServer, data_dir: Path, workspace: Workspace
) -> None:
    documents = {
        "cells": {"persistent": {"episodic": "dominant"}},
        "retention": {"episodic": "until deleted"},
        "sanitise": {"card": "refuse"},
    }
    async with open_app(Settings(data_dir=data_dir, profiles={"documents": documents})) as app:
        ann = workspace.user("ann")
        card = "4111 1111 1111 1111"
        added, _ = await app.resources.add(ann, file_of(f"# A\n\nPaid with {card}.\n\n# B\n\nRoses.".encode(), "a.md"))
        done = await app.resources.settled(ann.scope, added.resource_id)
        assert (done.status, done.chunks, done.refused) == ("ready", 1, 1)
        other, _ = await app.resources.add(ann, file_of(f"Paid with {card}.".encode()))
        failed = await app.resources.settled(ann.scope, other.resource_id)
        assert (failed.status, failed.reason) == ("failed", "the file holds nothing but what is kept out of memory")


async def test_where_documents_have_no_cell_none_is_taken_in(
    postgres: embedded.EmbeddedServer, data_dir: Path, workspace: Workspace
) -> None:
    documents = {"cells": {"session": {"episodic": "dominant"}}}
    async with open_app(Settings(data_dir=data_dir, profiles={"documents": documents})) as app:
        with pytest.raises(InvalidInput, match=r"profile documents.*persistent.*episodic"):
            await app.resources.add(workspace.user("ann"), file_of(b"A rose"))


def test_no_two_partitions_meet() -> None:
    pairs = [
        ("a", "b/c"),
        ("a/b", "c"),
        ("a%2Fb", "c"),
        ("default", "default"),
        ("default", "x"),
        ("gateway", "default"),
    ]
    assert len({agent_of(*pair) for pair in pairs}) == len(pairs)
    assert agent_of("default", "default") == "gateway"


def test_a_server_that_is_killed_leaves_nothing_or_what_becomes_ready(tmp_path: Path) -> None:
    """In the middle of an upload, and in the middle of reading another that was stored."""
    data_dir, log = tmp_path / "data", tmp_path / "serve.log"
    text = "\n\n".join(f"Part {number} of the rose. " * 40 for number in range(2_000)).encode()
    with serving(data_dir, log) as server, server.client(server.admin_key) as client:
        senders = [threading.Thread(target=send, args=(server,)) for send in (half_an_upload, partial(upload, text))]
        for sender in senders:
            sender.start()
        found = until(lambda: next((item for item in listed(client) if item["chunks"]), None))
        assert found["status"] == "processing"
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        for sender in senders:
            sender.join()
    with serving(data_dir, log) as server, server.client(server.admin_key) as client:
        assert [item["resource_id"] for item in listed(client)] == [found["resource_id"]]
        done = until(lambda: next((item for item in listed(client) if item["status"] == "ready"), None))
        assert done["chunks"] == 2_000


def until(look: Any) -> dict[str, Any]:
    ends = real_time.monotonic() + 120
    while real_time.monotonic() < ends:
        if (found := look()) is not None:
            return found
        real_time.sleep(0.1)
    pytest.fail("it took too long")


def listed(client: httpx.Client) -> list[dict[str, Any]]:
    return client.get("/resources").json()["resources"]


def upload(content: bytes, server: Server) -> None:
    with server.client(server.admin_key) as client, pytest.raises(httpx.TransportError):
        client.post("/resources", files={"file": ("long.txt", content)}, data={"user_id": "ann"})


def half_an_upload(server: Server) -> None:
    def parts() -> Any:
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="half.txt"\r\n\r\n'
        while True:
            yield b"A rose. " * 1_000
            real_time.sleep(0.05)

    headers = {"Authorization": f"Bearer {server.admin_key}", "Content-Type": "multipart/form-data; boundary=x"}
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{server.url}/resources", content=parts(), headers=headers, timeout=60)
