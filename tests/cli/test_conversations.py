"""`whence conversations`: lists and shows, as a user would see it."""

import json
from pathlib import Path

from conftest import Workspace, whence
from whence.app import App
from whence.wire import NewMessage


async def test_a_user_sees_own_conversations_and_broadcasts(app: App, workspace: Workspace, data_dir: Path) -> None:
    shown, _ = await app.conversations.publish(
        workspace.admin, "welcome", [NewMessage("Welcome", "assistant")], "Hello"
    )
    fork = await app.conversations.post(workspace.user("ann"), shown.conversation_id, NewMessage("Thank\x1byou"))
    where = ("--data-dir", data_dir, "-w", workspace.workspace_id)
    listed = whence("conversations", "list", *where, "-u", "ann", "--json")
    assert [each["state"] for each in json.loads(listed.stdout)["conversations"]] == ["fork", "broadcast"]
    text = whence("conversations", "list", *where).stdout
    assert "broadcast welcome, 1 messages" in text
    assert str(fork.conversation_id) not in text
    told = whence("conversations", "show", str(fork.conversation_id), *where, "-u", "ann").stdout
    assert "1  assistant (broadcast)" in told
    assert "Thank·you" in told
    unseen = whence("conversations", "show", str(fork.conversation_id), *where)
    assert (unseen.returncode, unseen.stderr) == (1, "whence: there is no such conversation\n")
