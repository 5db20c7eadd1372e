"""The queue: who may put what into it, who sees what of it, and that it is no place for content."""

import psycopg
import pytest
from psycopg import Connection, sql

from conftest import Workspace
from whence.app import App
from whence.db import EVERY_WORKSPACE, Scope
from whence.errors import Conflict, NotFound
from whence.queue import defer


async def test_a_job_is_deferred_with_the_transaction_that_asks_for_it_or_not_at_all(
    app: App, workspace: Workspace
) -> None:
    scope = Scope(workspace.workspace_id)
    async with app.database.transaction(scope) as tx:
        await defer(tx, "not-worked")
        await tx.rollback()
    assert (await app.queue.page(scope)).jobs == []
    async with app.database.transaction(scope) as tx:
        job_id = await defer(tx, "not-worked")
    (job,) = (await app.queue.page(scope)).jobs
    assert (job.job_id, job.job, job.workspace_id, job.status) == (
        job_id,
        "not-worked",
        workspace.workspace_id,
        "todo",
    )
    assert (job.attempts, job.started_at, job.ended_at, job.error) == (0, None, None, None)


async def test_a_job_that_waits_is_not_queued_again(app: App, workspace: Workspace) -> None:
    first = await app.queue.defer("not-worked", workspace.workspace_id)
    assert await app.queue.defer("not-worked", workspace.workspace_id) == first
    assert await app.queue.defer_due("not-worked", [workspace.workspace_id]) == [first]
    assert await app.queue.defer("another", workspace.workspace_id) != first


async def test_what_waits_for_a_retry_is_done_now_if_somebody_asks_and_not_because_it_is_due_again(
    app: App, workspace: Workspace
) -> None:
    job_id = await app.queue.defer("not-worked", workspace.workspace_id)
    async with app.database.transaction(EVERY_WORKSPACE) as tx:
        await tx.execute("UPDATE procrastinate_jobs SET scheduled_at = now() + '1 h' WHERE id = %s", (job_id,))
    assert await app.queue.defer_due("not-worked", [workspace.workspace_id]) == [job_id]
    assert (await app.queue.get(job_id)).scheduled_at is not None
    assert await app.queue.defer("not-worked", workspace.workspace_id) == job_id
    assert (await app.queue.get(job_id)).scheduled_at is None


async def test_a_workspace_sees_and_defers_its_own_jobs_alone(
    app: App, workspace: Workspace, raw_app: Connection
) -> None:
    await app.queue.defer("not-worked", workspace.workspace_id)
    page = "SELECT * FROM whence.jobs_of_workspace(false, 9223372036854775807, 10)"
    with raw_app.transaction():
        raw_app.execute("SET LOCAL ROLE whence_workspace")
        assert raw_app.execute(page).fetchall() == [], "without a workspace, nothing"
        raw_app.execute("SET LOCAL app.workspace_id = 'somebody-else'")
        assert raw_app.execute(page).fetchall() == []
        raw_app.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(workspace.workspace_id))
        assert len(raw_app.execute(page).fetchall()) == 1
    for role, statement in (
        ("whence_app", page),
        ("whence_app", "SELECT whence.defer_job('not-worked')"),
        ("whence_worker", "SELECT whence.defer_job('not-worked')"),
        ("whence_workspace", "SELECT whence.defer_job('not-worked')"),
        ("whence_workspace", "SELECT whence_jobs.defer('not-worked', ARRAY['w'], true)"),
    ):
        raw_app.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw_app.execute(statement)


async def test_only_the_type_of_an_error_can_be_noted(app: App, workspace: Workspace) -> None:
    job_id = await app.queue.defer("not-worked", workspace.workspace_id)
    await app.queue.note_error(job_id, "Unavailable")
    await app.queue.note_error(job_id, "ZeroDivisionError")
    assert (await app.queue.get(job_id)).error == "ZeroDivisionError"
    with pytest.raises(psycopg.errors.CheckViolation):
        await app.queue.note_error(job_id, "ValueError: ann@example.com")


async def test_only_what_has_failed_is_retried(app: App, workspace: Workspace) -> None:
    job_id = await app.queue.defer("not-worked", workspace.workspace_id)
    with pytest.raises(Conflict, match="has not failed: it is todo"):
        await app.queue.retry(job_id)
    with pytest.raises(NotFound):
        await app.queue.retry(1 << 60)


async def test_jobs_come_in_pages_newest_first(app: App, workspace: Workspace) -> None:
    scope = Scope(workspace.workspace_id)
    ids = [await app.queue.defer(f"not-worked-{n}", workspace.workspace_id) for n in range(5)]
    first = await app.queue.page(scope, limit=3)
    assert [job.job_id for job in first.jobs] == ids[:1:-1]
    assert first.next is not None
    rest = await app.queue.page(scope, before=first.next, limit=3)
    assert ([job.job_id for job in rest.jobs], rest.next) == (ids[1::-1], None)
