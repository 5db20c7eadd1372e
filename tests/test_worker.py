"""The worker: every workspace has its turn, whatever is wrong with one; it ends when it is told to."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from conftest import Workspace
from samples import event
from whence import worker
from whence.app import App
from whence.db import Scope
from whence.errors import Unavailable
from whence.graph.batch import Build
from whence.ledger.seals import SEAL_AFTER, SEAL_AT_EVENTS
from whence.lifecycle.erasure import SETTLE_AFTER
from whence.memory import working
from whence.worker import Turns, project_all, seal_all, settle_all, sweep_all


async def test_a_workspace_that_fails_does_not_hold_up_the_others(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.identity.add_workspace(f"{workspace.workspace_id}-b")
    other = Workspace(f"{workspace.workspace_id}-b", "")
    for one in (workspace, other):
        await app.ledger.append(one.admin, [event()])
    step, behind = app.projector.step, app.projector.behind
    failed: list[str] = []

    async def failing(build: Build, *arguments: Any) -> int | None:
        if build.workspace_id == workspace.workspace_id:
            failed.append(build.workspace_id)
            raise Unavailable("the database does not answer")
        return await step(build, *arguments)

    async def both_behind() -> list[tuple[str, int, int]]:
        """The worker of a served Whence on the same database may have been here first."""
        found = await behind()
        known = {name for name, _, _ in found}
        return [(one.workspace_id, 1, 0) for one in (workspace, other) if one.workspace_id not in known] + found

    monkeypatch.setattr(app.projector, "step", failing)
    monkeypatch.setattr(app.projector, "behind", both_behind)
    await project_all(app, Turns("projection"))
    assert failed == [workspace.workspace_id]
    assert other.workspace_id not in {name for name, _, _ in await behind()}


async def test_seals_are_made_of_many_events_at_once_and_of_few_after_a_while(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = Scope(workspace.workspace_id)
    await app.ledger.append(workspace.admin, [event()])
    assert workspace.workspace_id not in await app.ledger.seals.due()
    later = app.clock() + SEAL_AFTER + timedelta(seconds=1)
    monkeypatch.setattr(app.ledger.seals, "_clock", lambda: later)
    assert workspace.workspace_id in await app.ledger.seals.due()
    assert await seal_all(app, Turns("sealing"))
    assert (await app.ledger.seals.last(scope)).size == 1
    assert workspace.workspace_id not in await app.ledger.seals.due()
    for _ in range(SEAL_AT_EVENTS // 1000):
        await asyncio.gather(app.ledger.append(workspace.admin, [event() for _ in range(1000)]))
    assert workspace.workspace_id in await app.ledger.seals.due()


async def test_expired_entries_are_swept_and_a_full_batch_is_followed_by_another(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b", "c"):
        await app.working.put(workspace.admin.scope, "planner", "run-7", key, b"1", ttl_s=60)
    later = app.clock() + timedelta(seconds=61)
    monkeypatch.setattr(app.working, "_clock", lambda: later)
    for module in (working, worker):
        monkeypatch.setattr(module, "SWEEP_ROWS", 2)
    assert workspace.workspace_id in await app.working.due()
    assert await sweep_all(app, Turns("sweeping"))
    while await sweep_all(app, Turns("sweeping")):
        pass
    assert workspace.workspace_id not in await app.working.due()


async def test_an_erasure_that_was_stopped_is_ended_after_a_while(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])

    def stop(step: str, *_: int) -> None:
        if step == "memory":
            raise Unavailable("stopped")

    with pytest.raises(Unavailable, match="stopped"):
        await app.erasures.erase(workspace.admin, "ann", stop)
    assert workspace.workspace_id not in await app.erasures.due()
    later = app.clock() + SETTLE_AFTER + timedelta(seconds=1)
    monkeypatch.setattr(app.erasures, "_clock", lambda: later)
    assert workspace.workspace_id in await app.erasures.due()
    assert await settle_all(app, Turns("settling"))
    assert workspace.workspace_id not in await app.erasures.due()
    assert (await app.erasures.erase(workspace.admin, "ann")).settled
