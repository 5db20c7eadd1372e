"""`whence remember`, `explain` and the memory's part of `rebuild` as a person or a script uses them."""

import json
from pathlib import Path

import pytest
from psycopg import Connection

from conftest import Workspace, whence
from whence.app import App


@pytest.fixture
def where(app: App, workspace: Workspace, data_dir: Path) -> tuple[str | Path, ...]:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


def test_something_is_remembered_and_explains_itself(where: tuple[str | Path, ...]) -> None:
    done = whence(
        "remember", "ask before a release", "--user", "ann", "--kind", "procedural", "--key", "release", *where
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("remembered as ")
    again = whence(
        "remember", "never ask", "--user", "ann", "--kind", "procedural", "--key", "release", "--json", *where
    )
    answer = json.loads(again.stdout)
    assert len(answer["superseded"]) == 1
    told = whence("explain", answer["memory_id"], *where)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0] == "never ask"
    assert lines[1].startswith("admin told gateway on ")
    assert f"in place of memory {answer['superseded'][0]}" in told.stdout


def test_what_cannot_be_remembered_says_why_in_one_line(where: tuple[str | Path, ...]) -> None:
    done = whence("remember", "something", *where)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith("user_id: is needed: memory of the profile gateway hangs on a user")


def test_a_rebuild_compares_memory_too(where: tuple[str | Path, ...], workspace: Workspace, owner: Connection) -> None:
    whence("remember", "likes tea", "--user", "ann", *where)
    done = whence("rebuild", "--verify", *where)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("equal") == 2
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    owner.execute("UPDATE whence.memories SET importance = 1")
    done = whence("rebuild", "--verify", *where)
    assert done.returncode == 1
    assert "the memory in use differed in: memories" in done.stdout
    answer = json.loads(whence("rebuild", "--json", *where).stdout)
    assert answer["memory"]["replaced"] is True
    assert whence("rebuild", "--verify", *where).returncode == 0
