"""`whence action`, `whence retention` and `whence archive` as a person or a script uses them."""

import json
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import Workspace, whence
from whence.app import App, open_app
from whence.clock import system_clock
from whence.settings import Settings
from whence.wire import Remember

Where = tuple[str | Path, ...]

COLD = "The coffee was cold, and nobody said a word about it."


@pytest.fixture
def where(app: App, workspace: Workspace, data_dir: Path) -> Where:
    return ("-w", workspace.workspace_id, "--data-dir", data_dir)


async def long_ago(workspace: Workspace, data_dir: Path, *texts: str) -> list[str]:
    """Episodes of a hundred days ago, and their ids."""
    async with open_app(Settings(data_dir=data_dir), clock=lambda: system_clock() - timedelta(days=100)) as app:
        requests = [Remember(agent="gateway", tier="persistent", kind="episodic", text=text) for text in texts]
        done = await app.memory.remember_all(workspace.user("ann"), requests)
        return [str(item.remembered.memory_id) for item in done if item.remembered]


async def test_what_is_due_is_told_done_and_read_back(where: Where, workspace: Workspace, data_dir: Path) -> None:
    cited, going = await long_ago(workspace, data_dir, "The price was agreed.", COLD)
    recorded = whence("action", "record", "decision.published", cited, *where)
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout.endswith(", which holds 1\n")
    dry = whence("retention", "--dry-run", *where).stdout
    heading, *rows = dry.splitlines()
    assert heading.split() == ["memory", "becomes", "class", "since"]
    assert rows[0].split()[:3] == [going, "TOMBSTONE", "episodes"]
    assert rows[1].strip() == f"{COLD[:33]}…"
    assert "1 TOMBSTONE (episodes)" in rows
    assert "1 TOMBSTONE (episodes, kept: an action cites it)" in rows
    plan = json.loads(whence("retention", "--dry-run", "--json", *where).stdout)
    assert [(due["memory_id"], due["kept_by"]) for due in plan["due"]] == [(going, None), (cited, "an action cites it")]
    first, archived = whence("retention", *where).stdout.splitlines()
    assert first == "tombstoned 1, disposed of 0"
    file = archived.removeprefix("archived in ")
    assert whence("archive", "list", *where).stdout.split()[0] == file
    shown = whence("archive", "show", file, *where)
    assert shown.stdout.startswith(going)
    assert shown.stdout.endswith(f"{COLD}\n")
    [line] = json.loads(whence("archive", "show", file, "--json", *where).stdout)
    assert line["said"]["text"] == COLD
    again = json.loads(whence("retention", "--json", *where).stdout)
    nothing = {"expired": 0, "disposed": 0, "archives": [], "orphan_count": 0}
    assert again == nothing | {"conversations_expired": 0, "conversations_disposed": 0}


async def test_actions_are_listed_with_what_they_cite(where: Where, workspace: Workspace, data_dir: Path) -> None:
    [cited] = await long_ago(workspace, data_dir, "The price was agreed.")
    action_id = str(uuid.uuid4())
    for _ in range(2):
        done = whence("action", "record", "rule.promoted", cited, "--id", action_id, *where)
        assert done.stdout.startswith(f"recorded {action_id}"), done.stderr
    listed = whence("action", "list", *where).stdout.splitlines()
    assert listed[1].split()[:2] == [action_id, "rule.promoted"]
    assert listed[2].strip() == cited
    [action] = json.loads(whence("action", "list", "--cites", cited, "--json", *where).stdout)["actions"]
    assert action["cites"] == [cited]
    shown = whence("action", "show", action_id, *where).stdout.splitlines()
    assert (shown[0].split(), shown[1].split()) == (["action", action_id], ["kind", "rule.promoted"])
    assert (shown[-2].split(maxsplit=1), shown[-1].split()) == (["by", "an administrator"], ["cites", cited])
    assert json.loads(whence("action", "show", action_id, "--json", *where).stdout) == action
    missing = whence("action", "show", cited, *where)
    assert (missing.returncode, missing.stderr) == (1, "whence: there is no such action\n")
    wrong = whence("action", "record", "rule.promoted", str(uuid.uuid4()), *where)
    assert (wrong.returncode, "there is no event or memory" in wrong.stderr) == (1, True)


def test_where_there_is_nothing_it_says_so(where: Where) -> None:
    assert whence("action", "list", *where).stdout == "there are no actions\n"
    assert whence("archive", "list", *where).stdout == "there are no archives\n"
    assert whence("retention", "--dry-run", *where).stdout == "nothing is due\n"
    missing = whence("archive", "show", "x.jsonl.gz", *where)
    assert (missing.returncode, missing.stderr.startswith("whence: there is no archive")) == (1, True)
