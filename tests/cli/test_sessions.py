"""`whence session` as a person or a script uses it."""

import json
from pathlib import Path

from conftest import Workspace, whence
from whence.app import App
from whence.wire import Remember

STEPS = ("open the queue", "pick the oldest invoice", "pay it")


async def test_sessions_are_listed_and_closed(app: App, workspace: Workspace, data_dir: Path) -> None:
    where = ("-w", workspace.workspace_id, "--data-dir", data_dir)
    assert whence("session", "list", *where).stdout == "there are no sessions\n"
    for number in range(3):
        for text in STEPS:
            told = Remember(agent="gateway", tier="session", kind="episodic", text=text, session_id=f"s{number}")
            await app.memory.remember(workspace.user("ann"), told)
    lines = whence("session", "list", *where).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines] == ["session", "s2", "s1", "s0"]
    *_, more = whence("session", "list", "-n", "2", *where).stdout.splitlines()
    assert more.startswith("more: --before ")
    assert whence("session", "list", *more.split()[1:], *where).stdout.splitlines()[1].split()[0] == "s0"
    for number in range(2):
        assert "3 archived" in whence("session", "close", f"s{number}", *where).stdout
    said = whence("session", "close", "s2", *where).stdout
    assert "learnt from 3 sessions" in said
    assert "    3. pay it" in said
    again = json.loads(whence("session", "close", "s2", "--json", *where).stdout)
    assert again["reports"][0]["routines"][0]["support"] == 3
    missing = whence("session", "close", "s9", *where)
    assert (missing.returncode, missing.stderr) == (1, "whence: there is no such session\n")
