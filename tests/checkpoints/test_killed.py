"""A process that is killed in the middle of a request leaves its event and its checkpoint, or neither."""

import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from conftest import Workspace, clean_environment
from saving import Gateway, at, said_in
from whence.app import App

STEPS = ("begun", "event", "checkpoint", "writes", "committed")

# Each step in a process of its own, forked once all is imported, which kills itself there.
REQUESTS = """
import asyncio, os, signal, sys
from pathlib import Path
from langgraph.checkpoint.base import empty_checkpoint
from samples import event
from saving import at
from whence.app import open_app
from whence.db import Scope
from whence.identity import Principal
from whence.langgraph.gateway import CheckpointerGateway
from whence.settings import Settings

def reached(step, last):
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)

async def request(data_dir, workspace, last):
    ann = Principal(workspace, "ann", is_admin=False)
    versions = {"messages": "1", "name": "1"}
    checkpoint = empty_checkpoint() | {"v": 4, "channel_versions": versions}
    checkpoint["channel_values"] = {"messages": ["said"], "name": "said"}
    async with open_app(Settings(data_dir=Path(data_dir))) as app:
        async with app.database.transaction(Scope(workspace)) as tx:
            saver = CheckpointerGateway(app.database, app.threads, sealed=True).for_(ann, tx=tx)
            reached("begun", last)
            await app.ledger.append_in(tx, ann, [event({"text": "said"})])
            reached("event", last)
            stored = await saver.aput(at("t"), checkpoint, {"source": "loop", "step": 1, "said": "said"}, versions)
            reached("checkpoint", last)
            await saver.aput_writes(stored, [("messages", ["said"])], "task-1")
            reached("writes", last)
        reached("committed", last)

data_dir, *requests = sys.argv[1:]
children = []
for workspace, last in zip(requests[::2], requests[1::2]):
    child = os.fork()
    if child == 0:
        asyncio.run(request(data_dir, workspace, last))
        os._exit(0)
    children.append(child)
print(*[os.waitpid(child, 0)[1] for child in children])
"""


async def test_a_kill_between_any_two_steps_leaves_both_or_neither(app: App, gateway: Gateway, data_dir: Path) -> None:
    workspaces = {step: Workspace(f"w-{uuid4().hex[:12]}", "") for step in STEPS}
    for workspace in workspaces.values():
        await app.identity.add_workspace(workspace.workspace_id)
    named = [each for step, workspace in workspaces.items() for each in (workspace.workspace_id, step)]
    paths = {"PYTHONPATH": ":".join([str(Path(__file__).parent.parent), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", REQUESTS, str(data_dir), *named],
        capture_output=True, text=True, timeout=60, env=clean_environment() | paths,
    )  # fmt: skip
    assert done.stdout.split()[-len(STEPS) :] == [str(int(signal.SIGKILL))] * len(STEPS), done.stderr
    for step, workspace in workspaces.items():
        saver = gateway().for_(workspace.user("ann"))
        events = (await app.ledger.page(workspace.admin.scope, 0, 10)).events
        if step == "committed":
            assert len(events) == 1
            assert await said_in(saver, "t") == ["said"] * 4
        else:
            assert events == []
            assert await saver.aget_tuple(at("t")) is None
            # And nothing is left that would hold up the next.
            await saver.adelete_thread("t")
