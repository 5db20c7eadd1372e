"""`whence working` as a person or a script uses it."""

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from conftest import Workspace, clean_environment
from whence.app import App


class Command:
    def __init__(self, workspace: Workspace, data_dir: Path) -> None:
        self._where = ("-w", workspace.workspace_id, "--data-dir", str(data_dir))

    def run(self, verb: str, *arguments: str | bytes, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "whence", "working", verb, *self._where, *flags, "--", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())


@pytest.fixture
def working(app: App, workspace: Workspace, data_dir: Path) -> Command:
    return Command(workspace, data_dir)


def test_a_value_is_set_shown_listed_and_deleted(working: Command) -> None:
    empty = working.run("list", "planner", "run-7")
    assert (empty.returncode, empty.stdout) == (0, "0 of 131,072 bytes are taken\n")
    done = working.run("set", "planner", "run-7", "a/b", '{"step": 1.10}')
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("17 bytes until 20")
    assert done.stdout.endswith("; 131,055 are left\n")
    assert working.run("get", "planner", "run-7", "a/b").stdout == '{"step": 1.10}\n'
    heading, row, taken = working.run("list", "planner", "run-7").stdout.splitlines()
    assert heading.split() == ["key", "bytes", "written", "expires"]
    assert row.split()[:2] == ["a/b", "17"]
    assert taken == "17 of 131,072 bytes are taken"
    assert working.run("delete", "planner", "run-7", "a/b").stdout == "deleted\n"
    gone = working.run("get", "planner", "run-7", "a/b")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr == "whence: there is no such key, or it has expired\n"


def test_scripts_get_json(working: Command) -> None:
    flags = ("--json",)
    done = working.run("set", "planner", "run-7", "k", "[1]", flags=(*flags, "--ttl", "60"))
    stored = json.loads(done.stdout)
    assert (stored["key"], stored["bytes"], stored["bytes_left"]) == ("k", 4, 131_068)
    read = json.loads(working.run("get", "planner", "run-7", "k", flags=flags).stdout)
    assert read == {"key": "k", "value": [1], "expires_at": stored["expires_at"]}
    (item,) = json.loads(working.run("list", "planner", "run-7", flags=flags).stdout)["keys"]
    until, since = (datetime.fromisoformat(item[name]) for name in ("expires_at", "updated_at"))
    assert until - since == timedelta(seconds=60)
    assert working.run("set", "planner", "run-7", "k", "[1]", flags=("--ttl", "0")).returncode == 2


async def test_a_user_has_working_memory_of_their_own(app: App, workspace: Workspace, working: Command) -> None:
    await app.identity.add_user(workspace.workspace_id, "ann")
    await app.working.put(workspace.user("ann").scope, "planner", "run-7", "k", b'"of ann"')
    assert working.run("get", "planner", "run-7", "k").returncode == 1
    assert working.run("get", "planner", "run-7", "k", flags=("--user", "ann")).stdout == '"of ann"\n'
    assert working.run("list", "planner", "run-7", flags=("-u", "eve")).stderr == (
        f"whence: there is no user eve in the workspace {workspace.workspace_id}\n"
    )


def test_what_is_wrong_is_one_line(working: Command) -> None:
    for arguments, said in (
        (("set", "planner", "run-7", b"\xff", "1"), "whence: key: is not valid Unicode\n"),
        (("set", "planner", "", "k", "1"), "whence: instance: 1 to 256 characters\n"),
        (("delete", "planner", "run-7", "nothing"), "whence: there is no such key, or it has expired\n"),
    ):
        done = working.run(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(said)
        assert done.stderr.count("\n") == 1
    for value in ("hello", b'"\xff"', "NaN", "[" * 100_000):
        wrong = working.run("set", "planner", "run-7", "k", value)
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert "is not valid JSON; a text needs its quotes" in wrong.stderr


async def test_a_terminal_is_not_told_what_to_do(app: App, workspace: Workspace, working: Command) -> None:
    value = '{"a": "\x9b31m \u202e \U000e0001 ž"}'
    await app.working.put(workspace.admin.scope, "planner", "run-7", "\x1b[31m", value.encode())
    shown = working.run("get", "planner", "run-7", "\x1b[31m").stdout
    assert shown == '{"a": "\\u009b31m \\u202e \\udb40\\udc01 ž"}\n'
    assert json.loads(shown) == json.loads(value)
    assert "\x1b" not in working.run("list", "planner", "run-7").stdout
