"""`whence erase` and `whence export`."""

import json
import uuid
import zipfile
from pathlib import Path

import pytest

from conftest import Workspace, whence
from samples import event
from whence.app import App


@pytest.fixture
def where(app: App, workspace: Workspace) -> tuple[str, ...]:
    return ("--workspace", workspace.workspace_id, "--data-dir", str(app.settings.data_dir))


async def test_erasing_asks_first_and_prints_a_receipt_that_verifies(
    app: App, workspace: Workspace, where: tuple[str, ...]
) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    asked = whence("erase", "ann", *where)
    assert asked.returncode == 1
    assert "Erase all data of ann" in asked.stderr
    assert (await app.ledger.page(workspace.admin.scope, 0, 10)).events[-1].event_type == "tool.execute"
    done = whence("erase", "ann", "--yes", *where)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if len(line.split()) > 1)
    assert said["payloads"].split()[0] == "1"
    assert whence("erase", "--receipt", said["receipt"], *where).stdout == done.stdout
    receipt = json.loads(whence("erase", "--receipt", said["receipt"], "--json", *where).stdout)
    assert (receipt["erasure_id"], receipt["digest"]) == (said["receipt"], said["digest"])
    checked = whence("erase", "--verify", said["receipt"], *where)
    assert checked.returncode == 0
    assert [line.split()[:2] for line in checked.stdout.splitlines()] == [
        ["ok", "event"],
        ["ok", "seal"],
        ["ok", "keys"],
        ["ok", "rows"],
    ]


async def test_erasing_says_what_it_was_not_given(where: tuple[str, ...]) -> None:
    for arguments in ((), ("ann", "--restored"), ("ann", "--receipt", str(uuid.uuid4()))):
        wrong = whence("erase", *arguments, *where)
        assert wrong.returncode == 2
        assert "--restored" in wrong.stderr
    unknown = whence("erase", "--receipt", str(uuid.uuid4()), *where)
    assert (unknown.returncode, unknown.stderr) == (1, "whence: there is no such erasure\n")
    missing = whence("erase", "nobody", "--yes", *where)
    assert (missing.returncode, "spelt" in missing.stderr) == (1, True)
    assert "brought anybody back" in whence("erase", "--restored", *where).stdout


async def test_an_export_is_a_private_file_that_replaces_none(
    app: App, workspace: Workspace, where: tuple[str, ...], tmp_path: Path
) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    path = tmp_path / "ann.zip"
    done = whence("export", "ann", path, "--json", *where)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"file": str(path), "bytes": path.stat().st_size}
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"hi" in zipfile.ZipFile(path).read("events.jsonl")
    again = whence("export", "ann", path, *where)
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
