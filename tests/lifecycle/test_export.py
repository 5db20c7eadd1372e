"""Everything that is held on a person, in one archive."""

import hashlib
import io
import json
import zipfile
from typing import Any
from uuid import uuid4

import httpx
import pytest

from conftest import Server, Workspace
from people import Marks, archive_of, live, telemetry
from samples import event
from whence.app import App
from whence.errors import NotFound
from whence.lifecycle import export as exporting
from whence.wire import Recall


def lines(archive: zipfile.ZipFile, name: str) -> list[Any]:
    return [json.loads(line) for line in archive.read(name).splitlines()]


async def test_an_export_has_all_that_a_person_said_and_nothing_of_others(
    app: App, workspace: Workspace, admin: httpx.Client, server: Server
) -> None:
    marks, others = Marks(), Marks()
    user_key = await app.identity.add_user(workspace.workspace_id, "ann")
    await live(app, workspace, "ann", marks)
    telemetry(admin, "ann", marks)
    await live(app, workspace, "bob", others)
    [memory, *_] = (await app.memory.page(workspace.user("ann").scope, Recall())).memories
    await app.actions.record(workspace.user("ann"), "decision.published", [memory.memory_id])
    answer = admin.get("/v1/subjects/ann/export")
    assert answer.headers["content-type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    said = b"".join(archive.read(name) for name in archive.namelist()).decode()
    assert marks.found_in(said) == marks.made
    assert others.found_in(said) == []
    manifest = json.loads(archive.read("manifest.json"))
    assert (manifest["subject_id"], manifest["workspace_id"]) == ("ann", workspace.workspace_id)
    assert set(manifest["parts"]) == set(archive.namelist()) - {"manifest.json"}
    for name, part in manifest["parts"].items():
        content = archive.read(name)
        count = 1 if name.startswith("uploads/") else content.count(b"\n")
        assert part == {"count": count, "sha256": hashlib.sha256(content).hexdigest()}, name
        assert part["count"] > 0, name
    assert any(item["name"] in marks.made for item in lines(archive, "names.jsonl"))
    assert all(item["sources"] for item in lines(archive, "memories.jsonl"))
    keys = {item["kind"]: item for item in lines(archive, "account.jsonl")}
    assert set(keys["subject_key"]) == {"kind", "key_id", "created_at"}
    assert user_key not in said
    assert "hash" not in keys["user_key"]


async def test_an_export_is_written_in_parts(app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "EXPORT_PAGE_ROWS", 7)
    monkeypatch.setattr(exporting, "EXPORT_PAGE_BYTES", 3_000)
    sent = [event({"text": f"{number} " + str(uuid4()) * 20}) for number in range(30)]
    sent[5:5] = [event(), event()]
    await app.ledger.append(workspace.user("ann"), sent)
    for number in range(20):
        await app.working.put(workspace.user("ann").scope, "planner", f"i{number % 3}", f"k{number}", b"1")
    made = await app.exports.begin(workspace.admin.scope, "ann")
    parts = [part async for part in made.archive()]
    assert max(map(len, parts)) < 10_000
    archive = zipfile.ZipFile(io.BytesIO(b"".join(parts)))
    exported = lines(archive, "events.jsonl")
    assert [item["event"]["event_id"] for item in exported] == [str(item.event_id) for item in sent]
    assert sum("payload" in item for item in exported) == 30
    assert len(lines(archive, "working.jsonl")) == 20


async def test_what_an_erased_person_left_is_envelopes(app: App, workspace: Workspace) -> None:
    await live(app, workspace, "ann", marks := Marks())
    await app.erasures.erase(workspace.admin, "ann")
    archive = await archive_of(app, workspace, "ann")
    said = b"".join(archive.read(name) for name in archive.namelist()).decode()
    assert marks.found_in(said) == []
    assert not any("payload" in item for item in lines(archive, "events.jsonl"))
    parts = json.loads(archive.read("manifest.json"))["parts"]
    assert {name for name, part in parts.items() if part["count"]} == {"events.jsonl"}


async def test_of_a_name_that_nobody_has_there_is_nothing_to_export(app: App, workspace: Workspace) -> None:
    with pytest.raises(NotFound, match="spelt"):
        await app.exports.begin(workspace.admin.scope, "nobody")
