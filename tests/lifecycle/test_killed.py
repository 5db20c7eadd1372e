"""A worker that is killed while it closes sessions, again and again, ends where one that lived would have."""

import random
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from conftest import Workspace, clean_environment
from lifecycle_time import Time
from whence.app import App
from whence.identity import Principal
from whence.memory.rebuild import rebuild
from whence.wire import Recall, Remember

ROUTINE = ("open the queue", "pick the oldest invoice", "compare it with the order", "ask for approval", "pay it")
SESSIONS = 8

CLOSE = """
import asyncio, sys
from datetime import datetime
from pathlib import Path
from whence.app import open_app
from whence.settings import Settings

async def main(data_dir, workspace, now):
    async with open_app(Settings(data_dir=Path(data_dir)), clock=lambda: datetime.fromisoformat(now)) as app:
        print("closing", flush=True)
        while await app.sessions.close_due(workspace):
            pass
    print("done", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def filled(app: App, who: Principal) -> None:
    """The same for every workspace: sessions that share a routine, with other things done in between."""
    for number in range(SESSIONS):
        dice = random.Random(number)
        texts = list(ROUTINE)
        for letter in "abc":
            texts.insert(dice.randrange(len(texts) + 1), f"something else, {chr(97 + number)}{letter}")
        told = [
            Remember(agent="gateway", tier="session", kind="episodic", text=text, session_id=f"s{number}")
            for text in texts
        ]
        await app.memory.remember_all(who, told)


async def outcome(app: App, workspace: Workspace) -> tuple[object, ...]:
    """What is there, without what differs between any two workspaces."""
    who = workspace.user("ann")
    procedures = (await app.memory.page(who.scope, Recall(kinds=("procedural",)))).memories
    sessions = (await app.sessions.page(who.scope)).sessions
    events = (await app.ledger.page(workspace.admin.scope, 0, 1000)).events
    closes = sorted(event.session_id for event in events if event.event_type == "session.closed")
    reports = [(await app.sessions.close(who, f"s{number}"))[0] for number in range(SESSIONS)]
    return (
        [(memory.text, memory.support) for memory in procedures],
        sorted((session.session_id, session.number, session.closed_at is not None) for session in sessions),
        closes,
        [
            (report.counts, [(each.support, each.steps) for each in report.routines], report.summary)
            for report in reports
        ],
    )


def close(data_dir: Path, workspace: Workspace, moment: Time) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CLOSE, str(data_dir), workspace.workspace_id, moment.now.isoformat()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment())


@pytest.fixture
async def other(later: App) -> Workspace:
    name = "w-unharmed-" + random.SystemRandom().randbytes(4).hex()
    return Workspace(name, await later.identity.add_workspace(name))


async def test_a_worker_that_is_killed_again_and_again_ends_where_one_that_lives_does(
    later: App, workspace: Workspace, other: Workspace, data_dir: Path, moment: Time
) -> None:
    for one in (workspace, other):
        await filled(later, one.user("ann"))
    moment.now += timedelta(days=31)
    while await later.sessions.close_due(other.workspace_id):
        pass
    dice, kills = random.Random(5), 0
    while True:
        process = close(data_dir, workspace, moment)
        assert process.stdout is not None
        assert process.stdout.readline() == "closing\n"
        try:
            process.wait(dice.uniform(0.005, 0.12) if kills < 5 else 60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        if process.returncode == 0:
            break
    assert kills > 2
    assert await outcome(later, workspace) == await outcome(later, other)
    report = await rebuild(
        later.database, later.ledger, later.memory, workspace.workspace_id, verify=True, on_progress=lambda *_: None
    )
    assert report.equal, report.differing
