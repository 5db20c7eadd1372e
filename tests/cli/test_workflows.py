"""`whence workflow` as a person or a script uses it."""

import json
import uuid
from pathlib import Path

import pytest

from conftest import Workspace, whence
from whence.app import App


@pytest.fixture
def where(app: App, workspace: Workspace, data_dir: Path) -> tuple[str | Path, ...]:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


def test_a_variant_is_added_selected_scored_and_retired(where: tuple[str | Path, ...]) -> None:
    spec = '{"steps": ["look up", 1.10]}'
    added = whence("workflow", "add", "planner", "refunds", "fast", spec, *where)
    assert (added.returncode, added.stderr) == (0, "")
    workflow_id = added.stdout.removeprefix("added ").strip()
    name, shown, hint = whence("workflow", "select", "planner", "refunds", *where).stdout.splitlines()
    assert (name, shown) == ("selected fast", spec)
    *words, _ = hint.partition("whence ")[2].split()
    scored = whence(*words, "0.8", *where)
    assert scored.stdout == "scored 0.8; fast has a mean of 0.60 after 1 outcome\n", scored.stderr
    other = whence(*words, "0.7", *where)
    assert (other.returncode, other.stderr) == (1, "whence: the selection was scored 0.8 before\n")
    heading, first, second = whence("workflow", "list", *where).stdout.splitlines()
    assert heading.split() == ["variant", "mean", "alpha", "beta", "selections", "outcomes"]
    assert first.split() == ["fast", "(planner,", "refunds)", "0.60", "1.80", "1.20", "1", "1"]
    assert second.strip() == workflow_id
    assert max(map(len, (heading, first, second))) <= 80
    assert whence("workflow", "retire", workflow_id, *where).stdout == "retired\n"
    assert "fast, retired (planner" in whence("workflow", "list", *where).stdout
    gone = whence("workflow", "select", "planner", "refunds", *where)
    assert gone.stderr == "whence: there is no workflow of the agent planner for the task type refunds\n"


async def test_scripts_get_json_and_users_have_variants_of_their_own(
    app: App, workspace: Workspace, where: tuple[str | Path, ...]
) -> None:
    await app.identity.add_user(workspace.workspace_id, "ann")
    flags = ("--json", "-u", "ann", *where)
    added = json.loads(whence("workflow", "add", "planner", "refunds", "fast", '{"a": 1.10}', *flags).stdout)
    assert (added["user_id"], added["mean"]) == ("ann", 0.5)
    chosen = json.loads(whence("workflow", "select", "planner", "refunds", *flags).stdout)
    assert chosen["workflow"]["workflow_id"] == added["workflow_id"]
    done = json.loads(whence("workflow", "outcome", chosen["selection_id"], "1", *flags).stdout)
    assert (done["score"], done["workflow_id"]) == (1, added["workflow_id"])
    assert json.loads(whence("workflow", "retire", added["workflow_id"], *flags).stdout)["retired_at"]
    page = json.loads(whence("workflow", "list", "--task-type", "refunds", *flags).stdout)
    assert [(item["alpha"], item["beta"], item["outcomes"]) for item in page["workflows"]] == [(2, 1, 1)]
    assert whence("workflow", "list", "--agent", "nobody", *where).stdout == "there are no workflows\n"


async def test_a_long_list_is_told_in_pages(app: App, workspace: Workspace, where: tuple[str | Path, ...]) -> None:
    for name in ("one", "two"):
        await app.workflows.add(workspace.admin, "planner", "refunds", name, b"{}")
    *_, more = whence("workflow", "list", "--limit", "1", *where).stdout.splitlines()
    assert more == "more: --before 2"
    assert "one" in whence("workflow", "list", *more.split()[1:], *where).stdout


def test_what_is_wrong_is_told(where: tuple[str | Path, ...]) -> None:
    for arguments, said in (
        (("add", "planner", "refunds", "fast", "[]"), "whence: spec: must be a JSON object\n"),
        (("outcome", str(uuid.uuid4()), "1"), "whence: there is no such selection\n"),
        (("retire", str(uuid.uuid4())), "whence: there is no such workflow\n"),
    ):
        done = whence("workflow", *arguments, *where)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert whence("workflow", "outcome", str(uuid.uuid4()), "1.1", *where).returncode == 2
    assert whence("workflow", "add", "planner", "refunds", "fast", "{", *where).returncode == 2
