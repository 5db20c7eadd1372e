"""Archives and summaries: written before anything is deleted, and readable as long as the subject's key is there."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import Workspace
from lifecycle.conftest import Time, told
from whence.app import App
from whence.db import Scope
from whence.errors import NotFound, SetupError
from whence.ledger import Filter
from whence.lifecycle.archive import Archive, Archived, Expired
from whence.lifecycle.retention import MAX_SUMMARY_CHARACTERS
from whence.wire import Fact


def files(app: App, workspace: Workspace) -> list[Path]:
    folder = app.settings.archive_path / workspace.workspace_id
    return sorted(folder.iterdir()) if folder.exists() else []


async def test_what_expires_is_archived_sealed_and_read_back(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    first = await timed.memory.remember(ann, told("Ann likes tea."))
    await timed.memory.remember(ann, told("About Carl.", subject_id="carl"))
    time.passes(days=90)
    done = await timed.retention.apply(workspace.workspace_id)
    [path] = files(timed, workspace)
    assert done.archives == [path.name]
    raw = gzip.decompress(path.read_bytes())
    assert b"tea" not in raw
    assert len([json.loads(line) for line in raw.splitlines()]) == 2
    lines = await timed.archive.read(workspace.admin.scope, path.name)
    assert [line.said and line.said.text for line in lines] == ["Ann likes tea.", "About Carl."]
    assert lines[0].envelope.memory_id == first.memory_id
    [listed] = await timed.archive.listed(workspace.admin.scope)
    assert (listed.archive.file, listed.archive.rows, listed.is_intact) == (path.name, 2, True)
    path.write_bytes(b"other")
    assert [item.is_intact for item in await timed.archive.listed(workspace.admin.scope)] == [False]
    with pytest.raises(SetupError):
        await timed.archive.read(workspace.admin.scope, path.name)
    path.unlink()
    assert [item.is_intact for item in await timed.archive.listed(workspace.admin.scope)] == [None]
    for missing in (path.name, "../../admin.key"):
        with pytest.raises(NotFound):
            await timed.archive.read(workspace.admin.scope, missing)


async def test_two_who_archive_the_same_at_once_make_one_archive(
    timed: App, workspace: Workspace, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    await timed.memory.remember(workspace.user("ann"), told("Ann likes tea."))
    time.passes(days=90)
    write = Archive.write

    async def with_another_between(archive: Archive, scope: Scope, rows: Sequence[Expired]) -> Archived:
        monkeypatch.setattr(Archive, "write", write)
        await timed.retention.apply(workspace.workspace_id)
        return await write(archive, scope, rows)

    monkeypatch.setattr(Archive, "write", with_another_between)
    await timed.retention.apply(workspace.workspace_id)
    [listed] = await timed.archive.listed(workspace.admin.scope)
    assert (listed.archive.rows, listed.is_intact) == (1, True)


async def test_a_fact_is_archived_with_what_it_said(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    await timed.memory.remember(ann, told("In Rome.", "semantic", fact=Fact("Ann", "lives in", "Rome", 0.5)))
    await timed.memory.remember(ann, told("In Oslo.", "semantic", fact=Fact("Ann", "lives in", "Oslo")))
    time.passes(days=365)
    [file] = (await timed.retention.apply(workspace.workspace_id)).archives
    [line] = await timed.archive.read(workspace.admin.scope, file)
    assert line.said is not None
    assert line.said.fact == Fact("Ann", "lives in", "Rome", 0.5)


async def test_without_its_subjects_key_a_line_is_its_envelope(
    timed: App, workspace: Workspace, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    await timed.memory.remember(workspace.user("ann"), told("Ann likes tea."))
    time.passes(days=90)
    [file] = (await timed.retention.apply(workspace.workspace_id)).archives

    async def shredded(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(timed.ledger.keys, "read", shredded)
    [line] = await timed.archive.read(workspace.admin.scope, file)
    assert (line.said, line.envelope.agent) == (None, "gateway")


async def test_a_crash_between_archive_and_delete_leaves_one_file_and_one_summary(
    timed: App, workspace: Workspace, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    await timed.memory.remember(ann, told("Ann likes tea."))
    time.passes(days=90)

    async def crashes(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(timed.retention, "_record", crashes)
        with pytest.raises(ConnectionError):
            await timed.retention.apply(workspace.workspace_id)
    [written] = files(timed, workspace)
    before = written.read_bytes()
    time.passes(hours=1)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 1
    assert files(timed, workspace) == [written]
    assert written.read_bytes() == before
    assert len((await timed.ledger.page(ann.scope, 0, 1_000, Filter(event_type="memory.summary"))).events) == 1


async def test_nothing_is_deleted_where_the_archive_cannot_be_written(
    timed: App, workspace: Workspace, time: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    kept = await timed.memory.remember(ann, told("Ann likes tea."))
    time.passes(days=90)
    (tmp_path / "archive").write_text("a file")
    broken = Archive(tmp_path / "archive", timed.database, timed.ledger)
    monkeypatch.setattr(timed.retention, "_archive", broken)
    with pytest.raises(SetupError, match="cannot be written"):
        await timed.retention.apply(workspace.workspace_id)
    assert (await timed.memory.get(ann.scope, kept.memory_id)).deleted_at is None


async def test_a_summary_names_and_extracts_what_it_sums_up(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    long = [told(f"Episode {number}. " + "And more of it. " * 20, importance=0.1) for number in range(200)]
    ids = [item.remembered.memory_id for item in await timed.memory.remember_all(ann, long) if item.remembered]
    matters = await timed.memory.remember(ann, told("The contract was signed! All were glad.", importance=0.9))
    time.passes(days=90)
    await timed.retention.apply(workspace.workspace_id)
    [summary] = (await timed.ledger.page(ann.scope, 0, 1_000, Filter(event_type="memory.summary"))).events
    said = json.loads(await timed.ledger.payload(ann.scope, summary.event_id))
    assert set(said["summarizes"]) == {str(memory_id) for memory_id in (*ids, matters.memory_id)}
    assert "The contract was signed!\n" in said["text"] + "\n"
    assert "All were glad" not in said["text"]
    assert "Episode 0." in said["text"]
    assert len(said["text"]) <= MAX_SUMMARY_CHARACTERS
