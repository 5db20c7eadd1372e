"""`whence conversations`: lists and shows, as a user would see it."""

from datetime import timedelta
from pathlib import Path

import pytest

from conftest import Workspace, whence
from whence.app import App, open_app
from whence.cli.lifecycle import _print_plan  # pyright: ignore[reportPrivateUsage]
from whence.clock import system_clock
from whence.settings import Settings
from whence.wire import NewMessage


async def test_a_user_sees_own_conversations_and_broadcasts(app: App, workspace: Workspace, data_dir: Path) -> None:
    shown, _ = await app.conversations.publish(
        workspace.admin, "welcome", [NewMessage("Welcome", "assistant")], "Hello"
    )
    fork = await app.conversations.post(workspace.user("ann"), shown.conversation_id, NewMessage("Thank\x1byou"))
    where = ("--data-dir", data_dir, "-w", workspace.workspace_id)
    text = whence("conversations", "list", *where).stdout
    assert "broadcast welcome, 1 message" in text
    assert "1 messages" not in text
    assert str(fork.conversation_id) not in text
    told = whence("conversations", "show", str(fork.conversation_id), *where, "-u", "ann").stdout
    assert told.startswith(f"conversation {fork.conversation_id}\nstate        fork\ntitle        Hello\n")
    assert "1  assistant (broadcast)" in told
    assert "Thank·you" in told


async def test_what_is_past_its_time_is_told_and_done(
    app: App, workspace: Workspace, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_app(Settings(data_dir=data_dir), clock=lambda: system_clock() - timedelta(days=400)) as then:
        made = await then.conversations.start(workspace.user("ann"), "Old", [NewMessage("x"), NewMessage("y")])
    _print_plan(await app.retention.plan(workspace.admin.scope))
    told = capsys.readouterr().out.splitlines()
    assert told[1].split()[:3] == [str(made.conversation_id), "TOMBSTONE", "conversation"]
    assert told[2].strip() == "2 messages"
    done = whence("retention", "--data-dir", data_dir, "-w", workspace.workspace_id)
    assert done.stdout.splitlines()[1] == "conversations: tombstoned 1, removed 0"
