"""Jobs: what time or a request brings up, done by whichever worker is free. `run` works them.

To add one, write a function that does its work for one workspace, and name it in `JOBS`:

    Job("purge-notes", purge_notes, due=workspaces_with_notes, schedule="15 3 * * *")

A job can be attempted again, after a failure or when its worker was lost, and in rare cases while a worker that was
taken for lost still does it. So each transaction of it must take up the work where it finds it. Two jobs of one name
and workspace do not run at once otherwise, and do not both wait. What follows from the ledger, the graph and the seals,
are not jobs: a position that lags behind shows itself, needs no queue, and is seen to five times a second.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from whence.app import App
from whence.lifecycle.purge import last_purge
from whence.memory.reembed import JOB as REEMBED
from whence.memory.working import SWEEP_ROWS

log = structlog.get_logger()

INDEX: Final = "index-memories"


async def every_workspace(app: App) -> list[str]:
    """For jobs that must look into a workspace to know whether there is something to do."""
    return await app.queue.every_workspace()


@dataclass(frozen=True)
class Job:
    """Work in workspaces: in the one that asks for it, or, when it is scheduled, in each that is due."""

    name: str
    run: Callable[[App, str], Awaitable[None]]
    due: Callable[[App], Awaitable[Iterable[str]]] = every_workspace
    schedule: str | None = None
    """A cron expression, in UTC; without one, the job is run when it is asked for."""

    async def act(self, app: App, workspace_id: str | None) -> None:
        if workspace_id is None:
            await app.queue.defer_due(self.name, await self.due(app))
        else:
            await self.run(app, workspace_id)


@dataclass(frozen=True)
class Upkeep:
    """Work on what is no workspace's."""

    name: str
    run: Callable[[App], Awaitable[None]]
    schedule: str

    async def act(self, app: App, workspace_id: str | None) -> None:
        await self.run(app)


async def sweep_working(app: App, workspace_id: str) -> None:
    """What expires meanwhile, or is left when Whence stops, waits for the next time."""
    while await app.working.sweep(workspace_id) == SWEEP_ROWS and not app.stopping.is_set():
        pass


async def expired_workspaces(app: App) -> list[str]:
    return await app.working.due()


async def close_sessions(app: App, workspace_id: str) -> None:
    await app.sessions.close_due(workspace_id, app.stopping)


async def idle_workspaces(app: App) -> list[str]:
    return await app.sessions.due()


async def settle_erasures(app: App, workspace_id: str) -> None:
    """Ends those that were stopped on their way."""
    await app.erasures.settle(workspace_id)


async def unsettled_workspaces(app: App) -> list[str]:
    return await app.erasures.due()


async def apply_retention(app: App, workspace_id: str) -> None:
    """What falls due meanwhile waits for the next time."""
    done = await app.retention.apply(workspace_id)
    if done.orphan_count:
        log.warning("memories without sources", workspace=workspace_id, count=done.orphan_count)


async def remembering_workspaces(app: App) -> list[str]:
    return await app.retention.workspaces()


async def reembed(app: App, workspace_id: str) -> None:
    """A part of a large workspace at a time, so that others have their turn."""
    if await app.reembedding.run(workspace_id, app.stopping):
        await app.queue.defer(REEMBED, workspace_id)


async def workspaces_to_reembed(app: App) -> list[str]:
    return await app.reembedding.due(await every_workspace(app))


async def index_memories(app: App, workspace_id: str) -> None:
    """A part of a large workspace at a time, so that others have their turn."""
    if await app.distant.fill(workspace_id):
        await app.queue.defer(INDEX, workspace_id)


async def indexed_workspaces(app: App) -> list[str]:
    return await app.distant.due()


async def purge_erased(app: App) -> None:
    """Only where the database is ours, and only when somebody was erased since the last time."""
    if app.purge is not None and await app.erasures.left_in_files(last_purge(app.settings.data_dir)):
        await app.purge()


async def remove_finished(app: App) -> None:
    # The library's own query knows best what of a job is to go; who only adds jobs need not import it.
    from whence.jobs.run import remove_finished_jobs  # noqa: PLC0415

    await remove_finished_jobs(app)


JOBS: Final[tuple[Job | Upkeep, ...]] = (
    Job("sweep-working", sweep_working, due=expired_workspaces, schedule="* * * * *"),
    Job("settle-erasures", settle_erasures, due=unsettled_workspaces, schedule="* * * * *"),
    Job("close-sessions", close_sessions, due=idle_workspaces, schedule="15 3 * * *"),
    Job("apply-retention", apply_retention, due=remembering_workspaces, schedule="7 * * * *"),
    Job(REEMBED, reembed, due=workspaces_to_reembed, schedule="*/5 * * * *"),
    Job(INDEX, index_memories, due=indexed_workspaces, schedule="* * * * *"),
    Upkeep("purge", purge_erased, schedule="45 3 * * *"),
    Upkeep("remove-finished-jobs", remove_finished, schedule="17 * * * *"),
)
