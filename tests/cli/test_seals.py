"""`whence seal` and `whence verify` as a person or a script uses them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg import Connection

from conftest import Workspace, clean_environment
from samples import event
from whence.app import App


class Command:
    def __init__(self, workspace: Workspace, data_dir: Path) -> None:
        self._where = ("-w", workspace.workspace_id, "--data-dir", str(data_dir))

    def words(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "whence", *arguments, *self._where]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self.words(*arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())


@pytest.fixture
def whence(app: App, workspace: Workspace, data_dir: Path) -> Command:
    return Command(workspace, data_dir)


async def add(app: App, workspace: Workspace, count: int) -> None:
    await app.ledger.append(workspace.admin, [event() for _ in range(count)])


def change(owner: Connection, workspace: Workspace, position: int) -> None:
    with owner.transaction():
        owner.execute("ALTER TABLE whence.events NO FORCE ROW LEVEL SECURITY")
        owner.execute(
            "UPDATE whence.events SET session_id = 'x' WHERE workspace_id = %s AND global_position = %s",
            (workspace.workspace_id, position),
        )
        owner.execute("ALTER TABLE whence.events FORCE ROW LEVEL SECURITY")


async def test_seal_prints_a_root_that_verify_takes(app: App, workspace: Workspace, whence: Command) -> None:
    assert whence.run("seal").stdout == "there is nothing to seal\n"
    await add(app, workspace, 3)
    said, kept, _ = whence.run("seal").stdout.splitlines()
    assert said == "sealed 3 new events"
    assert re.fullmatch(r"3:[0-9a-f]{64}", kept)
    again = whence.run("seal").stdout.splitlines()
    assert again[:2] == ["nothing is new since the last seal", kept]
    await add(app, workspace, 1)
    done = whence.run("verify", "--expect", kept)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "read     3 events and 1 seal",
        f"sealed   {kept}",
        "unsealed 1 event past the last seal: `whence seal`",
        "ok       everything that was sealed is as it was sealed, and has the expected root",
    ]


async def test_json_is_for_scripts(app: App, workspace: Workspace, whence: Command) -> None:
    empty = json.loads(whence.run("seal", "--json").stdout)
    assert (empty["size"], empty["new_events"]) == (0, 0)
    assert empty["root"].startswith("e3b0c442")
    await add(app, workspace, 2)
    sealed = json.loads(whence.run("seal", "--json").stdout)
    assert (sealed["size"], sealed["new_events"]) == (2, 2)
    found = json.loads(whence.run("verify", "--json").stdout)
    assert found == {
        "ok": True,
        "workspace_id": workspace.workspace_id,
        "events": 2,
        "seals": 1,
        "sealed": 2,
        "root": sealed["root"],
        "unsealed": 0,
        "found": 0,
        "differences": [],
    }


async def test_verify_names_what_was_changed_and_fails(
    app: App, workspace: Workspace, whence: Command, owner: Connection
) -> None:
    await add(app, workspace, 5)
    whence.run("seal")
    change(owner, workspace, 2)
    change(owner, workspace, 3)
    change(owner, workspace, 5)
    done = whence.run("verify")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines()[-3:] == [
        "DIFFERS  3 places are not as they were sealed:",
        "  positions 2 to 3: the envelope is not the one that was sealed",
        "  position 5: the envelope is not the one that was sealed",
    ]
    found = whence.run("verify", "--json")
    assert found.returncode == 1
    assert [(item["kind"], item["first"], item["last"]) for item in json.loads(found.stdout)["differences"]] == [
        ("changed", 2, 3),
        ("changed", 5, 5),
    ]


async def test_a_root_that_is_not_the_expected_one_fails(app: App, workspace: Workspace, whence: Command) -> None:
    await add(app, workspace, 2)
    whence.run("seal")
    done = whence.run("verify", "--expect", "2:" + "00" * 32)
    assert done.returncode == 1
    assert "not the one that was expected" in done.stdout
    for wrong in ("2", "0:" + "00" * 32, "x:" + "00" * 32, "2:00", "2:" + "zz" * 32, ""):
        assert whence.run("verify", "--expect", wrong).returncode == 2, wrong


def test_a_workspace_that_is_not_there_is_one_line(app: App, data_dir: Path) -> None:
    nowhere = Command(Workspace("nowhere", ""), data_dir)
    for command in ("seal", "verify"):
        done = nowhere.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "whence: there is no workspace nowhere\n")


async def test_a_terminal_sees_how_far_it_is(app: App, workspace: Workspace, whence: Command) -> None:
    await add(app, workspace, 2)
    whence.run("seal")
    reader, terminal = os.openpty()
    environment = clean_environment() | {"TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        whence.words("verify"), stdout=subprocess.PIPE, stderr=terminal, timeout=60, env=environment, check=True
    )
    os.close(terminal)
    assert "verifying" in os.read(reader, 65536).decode()
    os.close(reader)
    assert b"verifying" not in done.stdout
    assert b"ok " in done.stdout
