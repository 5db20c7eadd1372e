"""`whence canon` as a person or a script uses it."""

import json
from pathlib import Path

import pytest

from conftest import Workspace, whence
from whence.app import App

RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."


@pytest.fixture
def where(app: App, workspace: Workspace, data_dir: Path) -> tuple[str | Path, ...]:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


def test_a_rule_is_set_guards_and_is_dropped(where: tuple[str | Path, ...]) -> None:
    assert whence("canon", "list", "w1", *where).stdout == "the world w1 has no rules\n"
    assert whence("canon", "set", "w1", "R-1", "anything", *where).stdout == "set\n"
    done = json.loads(whence("canon", "set", "w1", "R-1", RULE, "--json", *where).stdout)
    assert done == {"world_id": "w1", "rule_id": "R-1", "body": RULE}
    lines = whence("canon", "list", "w1", *where).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["rule", "set", "text"]
    assert " ".join(" ".join(lines[1:]).split()[3:]) == RULE
    (rule,) = json.loads(whence("canon", "list", "w1", "--json", *where).stdout)["rules"]
    assert (rule["rule_id"], rule["body"]) == ("R-1", RULE)
    note = ("remember", RULE, "--agent", "sdr", "--world", "w1", *where)
    refused = whence(*note)
    assert refused.returncode == 1
    assert "rule R-1" in refused.stderr
    assert whence("canon", "drop", "w1", "R-1", *where).stdout == "dropped\n"
    assert whence(*note).returncode == 0


def test_what_is_wrong_is_one_line(where: tuple[str | Path, ...]) -> None:
    for arguments, said in (
        (("drop", "w1", "R-9"), "whence: there is no such rule\n"),
        (("set", "", "R-1", "x"), "whence: world_id: 1 to 256 characters\n"),
        (("list", "w1", "-w", "nowhere"), "whence: there is no workspace nowhere\n"),
    ):
        done = whence("canon", *arguments[:1], *where[:2], *arguments[1:], *where[2:])
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
