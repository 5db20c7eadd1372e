"""The queue of jobs, as those see it who defer jobs and who ask what became of them. `jobs` works them.

A job is a name and at most the id of a workspace. The queue holds nothing else, so what a job is about, such as whom to
erase, stands in a table of the workspace, where the job finds it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge
from psycopg.errors import UniqueViolation

from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict, NotFound
from whence.wire import JobPage, QueuedJob

MAX_PAGE_JOBS = 500
HEARTBEAT_SECONDS = 5.0
# A worker that was not heard of for so long is taken for dead, and its jobs are given to others.
LOST_SECONDS = 30.0
LAST_JOB_ID: Final = (1 << 63) - 1
OUTCOMES: Final = ("succeeded", "retried", "failed")

_SQL = load("whence.queue")


async def defer(tx: Tx, name: str) -> int:
    """Queues a job for the workspace whose transaction this is, and commits with it.

    Returns the job's id. Where one of this name waits already, that one will do, and waits for no retry any more.
    """
    row = await (await tx.execute(_SQL["defer_own"], {"job": name})).fetchone()
    assert row is not None
    return row[0]


class Queue:
    def __init__(self, database: Database, registry: CollectorRegistry) -> None:
        self._database = database
        self.outcomes = Counter(
            "whence_jobs_total",
            "Attempts at jobs in this process, by how they ended",
            ("job", "outcome"),
            registry=registry,
        )
        self._depth = Gauge("whence_jobs_waiting", "Jobs that wait for a worker", ("job",), registry=registry)

    async def defer(self, name: str, workspace_id: str) -> int:
        """Queues a job for a workspace. To do so together with something else, call `defer` in its transaction."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            return await defer(tx, name)

    async def defer_due(self, name: str, workspaces: Iterable[str]) -> list[int]:
        """Queues a job for each of them; where it waits already, for a retry perhaps, that is left as it is."""
        # Sorted, because two that insert the same in different order could wait for each other.
        return await self._defer_each(name, sorted(workspaces), at_once=False)

    async def defer_search(self, name: str) -> int:
        """Queues the job that looks for workspaces with work; its id."""
        (job_id,) = await self._defer_each(name, [None], at_once=True)
        return job_id

    async def _defer_each(self, name: str, workspaces: Sequence[str | None], at_once: bool) -> list[int]:
        values = {"job": name, "workspaces": workspaces, "at_once": at_once}
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["defer_each"], values)).fetchall()
        return [row[0] for row in rows]

    async def page(
        self, scope: Scope, only_failed: bool = False, before: int = LAST_JOB_ID, limit: int = MAX_PAGE_JOBS
    ) -> JobPage:
        """The jobs of the workspace, newest first. Only it can ask: the database looks at its scope."""
        values = {"only_failed": only_failed, "before": before, "limit": limit}
        async with self._database.transaction(Scope(scope.workspace_id)) as tx:
            rows = await (await tx.execute(_SQL["own"], values)).fetchall()
        return JobPage([QueuedJob(*row) for row in rows], rows[-1][0] if len(rows) == limit else None)

    async def page_of_all(
        self, workspace_id: str | None, only_failed: bool = False, before: int = LAST_JOB_ID, limit: int = MAX_PAGE_JOBS
    ) -> list[QueuedJob]:
        """The same for whoever runs Whence: of one workspace, or of all and of none."""
        values = {"workspace_id": workspace_id, "only_failed": only_failed, "before": before, "limit": limit}
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["of_all"], values)).fetchall()
        return [QueuedJob(*row) for row in rows]

    async def get(self, job_id: int) -> QueuedJob:
        for found in await self.page_of_all(None, before=job_id + 1, limit=1):
            if found.job_id == job_id:
                return found
        raise NotFound(f"there is no job {job_id}")

    async def retry(self, job_id: int) -> None:
        """One more attempt at a job that has failed, now."""
        try:
            async with self._database.transaction(EVERY_WORKSPACE) as tx:
                taken = (await tx.execute(_SQL["retry"], {"job_id": job_id})).rowcount
        except UniqueViolation:
            raise Conflict(f"another job like {job_id} waits already") from None
        if not taken:
            found = await self.get(job_id)
            raise Conflict(f"job {job_id} has not failed: it is {found.status}")

    async def note_error(self, job_id: int, error: str) -> None:
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            await tx.execute(_SQL["note_error"], {"job_id": job_id, "error": error})

    async def is_worked(self) -> bool:
        """Whether a worker lives, as far as its heartbeat tells."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            row = await (await tx.execute(_SQL["workers"], {"seconds": LOST_SECONDS})).fetchone()
        return row is not None and row[0] > 0

    async def every_workspace(self) -> list[str]:
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["every_workspace"])).fetchall()
        return [row[0] for row in rows]

    async def measure(self) -> None:
        """Sets the metric of how many jobs wait."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["depth"])).fetchall()
        self.forget_measures()
        for name, count in rows:
            self._depth.labels(name).set(count)

    def forget_measures(self) -> None:
        """What cannot be known must not look as it did when it could."""
        self._depth.clear()
