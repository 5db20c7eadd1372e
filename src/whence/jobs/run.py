"""Working jobs, with procrastinate. Nothing else imports it: it takes longer to import than a command takes to run."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
import structlog
from procrastinate import exceptions
from procrastinate.job_context import JobContext
from procrastinate.jobs import Job as Attempt
from procrastinate.jobs import Status
from procrastinate.manager import JobManager
from procrastinate.retry import BaseRetryStrategy, RetryDecision

from whence.app import App
from whence.db import EVERY_WORKSPACE, Database, Tx
from whence.errors import Unavailable
from whence.jobs import JOBS, Job, Upkeep
from whence.logs import tell_failure
from whence.queue import HEARTBEAT_SECONDS, LOST_SECONDS, OUTCOMES

log = structlog.get_logger()

JOBS_AT_ONCE = 4
POLL_SECONDS = 1.0
ABORT_POLL_SECONDS = 60.0
RUN_SECONDS = 3_600.0
STOP_SECONDS = 5.0
MAX_ATTEMPTS = 6
# 10 s, 40 s, 160 s and so on, up to an hour: a database that restarts is soon back, and what is wrong for longer is
# wrong for reasons that trying does not mend.
FIRST_RETRY_SECONDS = 10.0
RETRY_FACTOR = 4.0
MAX_RETRY_SECONDS = 3_600.0
# What was due while nothing ran is made up for: a laptop sleeps at night, when most jobs are scheduled.
MAKE_UP_SECONDS = 90_000.0
KEEP_SUCCEEDED_HOURS = 24
KEEP_FAILED_HOURS = 336
# Any number will do as long as it stays the same: it is what two workers that look for lost jobs meet on.
_MENDING_LOCK = 7_311_946_202
_WORKER_NAME = "whence"


class _Transactions:
    """What the library takes for a pool: each of its statements is a transaction as the role that may see the queue.

    So it has the connections, the time limits and the revival of a dead server that everything else has.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def connection(self) -> AbstractAsyncContextManager[Tx]:
        return self._database.transaction(EVERY_WORKSPACE)


class _Connector(procrastinate.PsycopgConnector):
    def __init__(self, database: Database) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._transactions: Any = _Transactions(database)

    @property
    def pool(self) -> Any:
        return self._transactions


class _Manager(JobManager):
    async def retry_job(self, job: Attempt, *arguments: Any, **options: Any) -> None:
        """Where another of the same lock waits already, that one does the work, and this one ends."""
        try:
            await super().retry_job(job, *arguments, **options)
        except exceptions.UniqueViolation:
            await self.finish_job(job, status=Status.ABORTED, delete_job=False)


class _WorkersManager(_Manager):
    """Writes down how a job ended however often it takes: nobody takes a job from a worker that is heard of, so it
    would stay in work, and keep others of its lock waiting, for as long as this process lives."""

    async def retry_job(self, job: Attempt, *arguments: Any, **options: Any) -> None:
        await self._written(job, super().retry_job, *arguments, **options)

    async def finish_job(self, job: Attempt, *arguments: Any, **options: Any) -> None:
        await self._written(job, super().finish_job, *arguments, **options)

    async def _written(
        self, job: Attempt, write: Callable[..., Awaitable[None]], *arguments: Any, **options: Any
    ) -> None:
        """A worker that can no longer say that it lives ends once this is done; one that is told to stop waits a few
        seconds for it."""
        is_first = True
        while True:
            try:
                # Where the answer was lost, it may have been written.
                if is_first or await self._is_at_work(job):
                    await write(job, *arguments, **options)
            except Unavailable as error:
                if is_first:
                    tell_failure("writing down how a job ended", error, job=job.task_name, job_id=job.id)
            else:
                return
            is_first = False
            await asyncio.sleep(POLL_SECONDS)

    async def _is_at_work(self, job: Attempt) -> bool:
        found = await self.list_jobs_async(id=job.id, status=Status.DOING.value, worker_id=job.worker_id)
        return any(one.attempts == job.attempts for one in found)


class _Retry(BaseRetryStrategy):
    def get_retry_decision(self, *, exception: BaseException, job: Attempt) -> RetryDecision | None:
        # Cut short because the worker stops, which is nobody's fault.
        if isinstance(exception, asyncio.CancelledError):
            return RetryDecision(retry_at=datetime.now(UTC))
        if _is_last(job):
            return None
        return RetryDecision(retry_at=datetime.now(UTC) + retry_delay(job.attempts))


def _is_last(attempt: Attempt) -> bool:
    return attempt.attempts + 1 >= MAX_ATTEMPTS


def retry_delay(attempts: int) -> timedelta:
    """After a failure that `attempts` others came before."""
    return timedelta(seconds=min(FIRST_RETRY_SECONDS * RETRY_FACTOR**attempts, MAX_RETRY_SECONDS))


class Runner:
    """Works the jobs that it is given, beside any number of others that do."""

    def __init__(self, app: App, jobs: Sequence[Job | Upkeep] = JOBS) -> None:
        self._app = app
        self._names = [job.name for job in jobs]
        connector = _Connector(app.database)
        self._library = procrastinate.App(connector=connector, periodic_defaults={"max_delay": MAKE_UP_SECONDS})
        self._library.job_manager = _WorkersManager(connector)
        self._manager = _Manager(connector)
        _listen_to_library()
        for job in jobs:
            _register(self._library, app, job)
            for outcome in OUTCOMES:
                app.queue.outcomes.labels(job.name, outcome)

    async def run(self) -> bool:
        """Until the app stops, or until the database could not be asked. Jobs that run then have a moment to end."""
        running = asyncio.create_task(self._work())
        stopping = asyncio.ensure_future(self._app.stopping.wait())
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await _ended(running)
        return False

    async def _work(self) -> None:
        await self._library.run_worker_async(
            name=_WORKER_NAME,
            queues=self._names,
            concurrency=JOBS_AT_ONCE,
            fetch_job_polling_interval=POLL_SECONDS,
            abort_job_polling_interval=ABORT_POLL_SECONDS,
            shutdown_graceful_timeout=STOP_SECONDS,
            # Asking is what is left when a notification was missed, and it is cheap: see ADR 0007.
            listen_notify=False,
            install_signal_handlers=False,
            update_heartbeat_interval=HEARTBEAT_SECONDS,
            stalled_worker_timeout=LOST_SECONDS,
        )

    async def mend(self) -> bool:
        """Takes jobs from workers that are not heard of any more: for another attempt, or as failed."""
        async with self._app.database.transaction(EVERY_WORKSPACE) as tx:
            # One at a time, or a job that one has given back and another has begun would be given back again.
            row = await (await tx.execute("SELECT pg_try_advisory_xact_lock(%s)", (_MENDING_LOCK,))).fetchone()
            if row == (True,):
                for job in await self._manager.get_stalled_jobs(seconds_since_heartbeat=LOST_SECONDS):
                    if job.queue in self._names:
                        await self._give_back(job)
        return False

    async def _give_back(self, job: Attempt) -> None:
        assert job.id is not None
        log.warning("a worker was lost", job=job.task_name, job_id=job.id, **_where(job))
        await self._app.queue.note_error(job.id, "WorkerLost")
        if _is_last(job):
            await self._manager.finish_job(job, status=Status.FAILED, delete_job=False)
        else:
            await self._manager.retry_job(job)


async def _ended(running: asyncio.Task[None]) -> None:
    """A cancellation that comes while the library starts, or asks the database, can be lost on the way."""
    while not running.done():
        running.cancel()
        await asyncio.wait({running}, timeout=STOP_SECONDS + 1)
    with suppress(asyncio.CancelledError):
        running.result()


def _register(library: procrastinate.App, app: App, job: Job | Upkeep) -> None:
    lock = f"{job.name}/"

    @library.task(name=job.name, queue=job.name, lock=lock, queueing_lock=lock, pass_context=True, retry=_Retry())
    async def attempt(context: JobContext, timestamp: int | None = None, workspace_id: str | None = None) -> None:
        await _attempt(app, job, context.job, workspace_id)

    if job.schedule is not None:
        # The library gives the time by its name, and its types ask for a first argument.
        library.periodic(cron=job.schedule)(attempt)  # pyright: ignore[reportArgumentType]


async def _attempt(app: App, job: Job | Upkeep, attempt: Attempt, workspace_id: str | None) -> None:
    try:
        async with asyncio.timeout(RUN_SECONDS):
            await job.act(app, workspace_id)
    except Exception as error:
        assert attempt.id is not None
        again = not _is_last(attempt)
        app.queue.outcomes.labels(job.name, "retried" if again else "failed").inc()
        tell_failure(job.name, error, again=again, job_id=attempt.id, **_where(attempt))
        # Where the database is gone, the error that is noted is that the worker was lost.
        with suppress(Unavailable):
            await app.queue.note_error(attempt.id, type(error).__name__)
        raise
    app.queue.outcomes.labels(job.name, "succeeded").inc()


def _where(attempt: Attempt) -> dict[str, str]:
    workspace_id = attempt.task_kwargs.get("workspace_id")
    return {} if workspace_id is None else {"workspace": str(workspace_id)}


async def remove_finished_jobs(app: App) -> None:
    manager = JobManager(_Connector(app.database))
    await manager.delete_old_jobs(nb_hours=KEEP_SUCCEEDED_HOURS)
    await manager.delete_old_jobs(
        nb_hours=KEEP_FAILED_HOURS, include_failed=True, include_cancelled=True, include_aborted=True
    )


class _Told(logging.Handler):
    """What the library has to say, without what an error says, which may quote what it failed at."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[0] if record.exc_info else None
        log.warning("jobs are held up", reason=getattr(record, "action", None), error=error and error.__name__)


def _listen_to_library() -> None:
    """To our own worker alone: a program that Whence is part of may use the library too."""
    ours = logging.getLogger(f"procrastinate.worker.{_WORKER_NAME}")
    ours.setLevel(logging.WARNING)
    ours.propagate = False
    ours.handlers = [_Told()]
    logging.getLogger("procrastinate.worker").addFilter(_is_not_ours)


def _is_not_ours(record: logging.LogRecord) -> bool:
    """How a job of ours ended was told already, and here it is told with all that the error says."""
    worker: dict[str, Any] = getattr(record, "worker", {})
    return worker.get("name") != _WORKER_NAME
