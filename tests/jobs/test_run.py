"""Working jobs: once each however many work them, again when they fail, by others when a worker is lost."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from psycopg import Connection

from conftest import Workspace, clean_environment
from whence.app import App, open_app
from whence.errors import Unavailable
from whence.jobs import JOBS, Job, Upkeep, remove_finished, run, sweep_working
from whence.jobs.run import Runner, retry_delay
from whence.memory import working
from whence.settings import Settings
from whence.wire import QueuedJob
from whence.worker import _repeat, _until_next_mend, _until_next_try


def new_name() -> str:
    """Of a job that no other worker on this database knows."""
    return f"job-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def working_on(app: App, *jobs: Job | Upkeep, workers: int = 1) -> AsyncIterator[None]:
    """As `worker.work` does it, with other jobs, and as if each worker were in a process of its own."""
    stopping = asyncio.Event()
    runners = [Runner(replace(app, stopping=stopping), jobs) for _ in range(workers)]
    tasks = [
        asyncio.create_task(_repeat(replace(app, stopping=stopping), what, act, idle))
        for runner in runners
        for what, act, idle in (("jobs", runner.run, _until_next_try), ("mending", runner.mend, _until_next_mend))
    ]
    try:
        yield
    finally:
        stopping.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 20)


async def until(ask: Callable[[], Awaitable[Any]], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := await ask()):
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.05)
    return answer


async def until_status(app: App, job_id: int, *wanted: str, seconds: float = 30) -> QueuedJob:
    async def ask() -> QueuedJob | None:
        found = await app.queue.get(job_id)
        return found if found.status in wanted else None

    return await until(ask, seconds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(run, "FIRST_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(run, "RETRY_FACTOR", 2.0)


@pytest.mark.usefixtures("quick")
async def test_two_workers_do_the_job_of_each_of_fifty_workspaces_once(app: App) -> None:
    name, done = new_name(), Counter[str]()
    places = [f"{name}-{n}" for n in range(50)]
    at_once: set[str] = set()

    async def act(_: App, workspace_id: str) -> None:
        assert workspace_id not in at_once
        at_once.add(workspace_id)
        await asyncio.sleep(0.01)
        at_once.remove(workspace_id)
        done[workspace_id] += 1

    async def due(_: App) -> list[str]:
        return places

    async with working_on(app, Job(name, act, due), workers=2):
        job_id = await app.queue.defer_search(name)
        await until_status(app, job_id, "succeeded")
        await until(lambda: asyncio.sleep(0, len(done) == 50))
        await asyncio.sleep(0.3)
    assert done == Counter(places)
    rows = [job for job in await app.queue.page_of_all(None, limit=500) if job.job == name]
    assert Counter(job.status for job in rows) == {"succeeded": 51}


@pytest.mark.usefixtures("quick")
async def test_what_is_asked_for_while_it_runs_is_done_once_more_afterwards(app: App, workspace: Workspace) -> None:
    name, begun, go_on = new_name(), [], asyncio.Event()

    async def act(_: App, workspace_id: str) -> None:
        begun.append(workspace_id)
        await go_on.wait()

    async with working_on(app, Job(name, act), workers=2):
        first = await app.queue.defer(name, workspace.workspace_id)
        await until_status(app, first, "doing")
        second = await app.queue.defer(name, workspace.workspace_id)
        assert second != first
        assert await app.queue.defer(name, workspace.workspace_id) == second
        await asyncio.sleep(0.3)
        assert len(begun) == 1, "not at once"
        go_on.set()
        await until_status(app, second, "succeeded")
    assert len(begun) == 2


@pytest.mark.usefixtures("quick")
async def test_a_job_that_fails_is_tried_again_ever_later_and_then_has_failed(
    app: App, workspace: Workspace, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    name, times, content = new_name(), [], uuid.uuid4().hex

    async def act(_: App, workspace_id: str) -> None:
        times.append(time.monotonic())
        raise ValueError(content)

    async with working_on(app, Job(name, act), workers=2):
        job_id = await app.queue.defer(name, workspace.workspace_id)
        job = await until_status(app, job_id, "failed")
        assert (job.attempts, job.error) == (run.MAX_ATTEMPTS, "ValueError")
        assert len(times) == run.MAX_ATTEMPTS
        waits = [after - before for before, after in pairwise(times)]
        assert all(wait >= retry_delay(n).total_seconds() for n, wait in enumerate(waits))
        (told,) = (await app.queue.page(workspace.admin.scope, only_failed=True)).jobs
        assert told.job_id == job_id
        await app.queue.retry(job_id)
        await until(lambda: asyncio.sleep(0, len(times) > run.MAX_ATTEMPTS))
        await until_status(app, job_id, "failed")
    printed = capsys.readouterr()
    # Where an embedded Whence was opened in this process, its host's logging has the lines.
    said = printed.out + printed.err + caplog.text
    assert "ValueError" in said
    assert content not in said
    counted = {outcome: app.queue.outcomes.labels(name, outcome)._value.get() for outcome in ("retried", "failed")}
    assert counted == {"retried": run.MAX_ATTEMPTS - 1, "failed": 2}


def test_retries_wait_longer_each_time_and_never_longer_than_an_hour() -> None:
    assert [retry_delay(n).total_seconds() for n in range(6)] == [10, 40, 160, 640, 2560, 3600]
    assert retry_delay(1_000 // 10) == timedelta(hours=1)


@pytest.mark.usefixtures("quick")
async def test_a_job_to_be_tried_again_gives_way_to_one_that_waits(app: App, workspace: Workspace) -> None:
    name, attempts, go_on = new_name(), [], asyncio.Event()

    async def act(_: App, workspace_id: str) -> None:
        attempts.append(workspace_id)
        await go_on.wait()
        if len(attempts) == 1:
            raise ValueError

    async with working_on(app, Job(name, act)):
        first = await app.queue.defer(name, workspace.workspace_id)
        await until_status(app, first, "doing")
        second = await app.queue.defer(name, workspace.workspace_id)
        go_on.set()
        await until_status(app, first, "aborted")
        await until_status(app, second, "succeeded")


@pytest.mark.usefixtures("quick")
async def test_a_schedule_fires_once_however_many_work(app: App) -> None:
    name, fired = new_name(), []

    async def act(_: App) -> None:
        fired.append(name)

    async def thrice() -> bool:
        return len(fired) >= 3

    began = time.time()
    async with working_on(app, Upkeep(name, act, schedule="* * * * * */2"), workers=3):
        await until(thrice)
    seconds = time.time() - began
    rows = [job for job in await app.queue.page_of_all(None, limit=500) if job.job == name]
    # What was queued at the last moment may wait for a worker.
    assert len(fired) == sum(job.status == "succeeded" for job in rows)
    # One every two seconds, and the one that was due before they began is made up for.
    assert len(rows) <= seconds / 2 + 2


@pytest.mark.usefixtures("quick")
async def test_a_worker_leaves_alone_what_it_does_not_know(app: App, workspace: Workspace) -> None:
    """During an upgrade the jobs of the newer version wait for its workers."""

    async def act(_: App, workspace_id: str) -> None: ...

    known, unknown = new_name(), new_name()
    waiting = await app.queue.defer(unknown, workspace.workspace_id)
    async with working_on(app, Job(known, act)):
        await until_status(app, await app.queue.defer(known, workspace.workspace_id), "succeeded")
    assert (await app.queue.get(waiting)).status == "todo"


@pytest.mark.usefixtures("quick")
async def test_a_job_that_is_cut_short_by_a_stop_is_queued_again_at_once(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "STOP_SECONDS", 0.2)
    name = new_name()

    async def act(_: App, workspace_id: str) -> None:
        await asyncio.sleep(60)

    async with working_on(app, Job(name, act)):
        job_id = await app.queue.defer(name, workspace.workspace_id)
        await until_status(app, job_id, "doing")
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert (await app.queue.get(job_id)).status == "todo"


# A worker of another process, which is killed while it does a job.
VICTIM = """
import asyncio, sys
from itertools import pairwise
from pathlib import Path
from whence.app import open_app
from whence.jobs import Job
from whence.jobs.run import Runner
from whence.settings import Settings

async def act(app, workspace_id):
    print("begun", flush=True)
    await asyncio.sleep(600)

async def main():
    async with open_app(Settings(data_dir=Path(sys.argv[1]))) as app:
        await Runner(app, [Job(sys.argv[2], act)]).run()

asyncio.run(main())
"""


@pytest.mark.usefixtures("quick")
async def test_the_job_of_a_worker_that_was_killed_is_done_by_another(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, done = new_name(), []

    async def act(_: App, workspace_id: str) -> None:
        done.append(workspace_id)

    job_id = await app.queue.defer(name, workspace.workspace_id)
    command = [sys.executable, "-c", VICTIM, str(app.settings.data_dir), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as victim:
        assert victim.stdout is not None
        assert await asyncio.to_thread(victim.stdout.readline) == "begun\n"
        monkeypatch.setattr(run, "LOST_SECONDS", 1.0)
        monkeypatch.setattr("whence.worker.MEND_POLL_SECONDS", 0.2)
        monkeypatch.setattr(run, "HEARTBEAT_SECONDS", 0.2)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    async with working_on(app, Job(name, act), workers=2):
        job = await until_status(app, job_id, "succeeded")
    assert done == [workspace.workspace_id]
    assert (job.attempts, job.error) == (2, "WorkerLost")


@pytest.mark.usefixtures("quick")
async def test_jobs_go_on_when_postgres_was_killed_and_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LOST_SECONDS", 2.0)
    monkeypatch.setattr(run, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr("whence.worker.MEND_POLL_SECONDS", 0.2)
    name, attempts = new_name(), Counter[str]()
    async with open_app(Settings(data_dir=tmp_path / "data")) as app:
        await app.identity.add_workspace("w")

        async def act(_: App, workspace_id: str) -> None:
            attempts[workspace_id] += 1
            if attempts[workspace_id] == 1:
                await asyncio.to_thread(kill_postgres, tmp_path / "data")
            await app.database.schema_version()

        async with working_on(app, Job(name, act), workers=2):
            job_id = await app.queue.defer(name, "w")

            async def done() -> bool:
                try:
                    return (await app.queue.get(job_id)).status == "succeeded"
                except Exception:
                    return False

            await until(done, 60)
            again = await app.queue.defer(name, "w")
            await until_status(app, again, "succeeded")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_how_a_job_ended_is_written_down_although_the_database_was_away(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, is_written: bool, fails: bool
) -> None:
    """By the worker that did it, which lives, so that no other would do it again."""
    name, done, lost = new_name(), list[int](), list[str]()

    async def act(_: App, workspace_id: str) -> None:
        done.append(len(done))
        if fails and len(done) == 1:
            raise ValueError(workspace_id)

    def losing(write: str) -> None:
        whole = getattr(run.JobManager, write)

        async def lose(*arguments: Any, **options: Any) -> None:
            if len(lost) < 3:
                lost.append(write)
                if is_written and len(lost) == 1:
                    await whole(*arguments, **options)
                raise Unavailable("the database does not answer")
            await whole(*arguments, **options)

        monkeypatch.setattr(run.JobManager, write, lose)

    losing("retry_job" if fails else "finish_job")
    job_id = await app.queue.defer(name, workspace.workspace_id)
    async with working_on(app, Job(name, act)):
        job = await until_status(app, job_id, "succeeded")
        again = await app.queue.defer(name, workspace.workspace_id)
        await until_status(app, again, "succeeded")
    assert len(done) == job.attempts + 1 == (3 if fails else 2)
    assert lost


def kill_postgres(data_dir: Path) -> None:
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        if process.info["name"] == "postgres" and str(data_dir) in " ".join(process.info["cmdline"] or ()):
            os.kill(process.info["pid"], signal.SIGKILL)


async def test_expired_working_memory_is_found_and_swept_in_batches(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("a", "b", "c"):
        await app.working.put(workspace.admin.scope, "planner", "run-7", key, b"1", ttl_s=60)
    later = app.clock() + timedelta(seconds=61)
    monkeypatch.setattr(app.working, "_clock", lambda: later)
    for module in (working, sys.modules["whence.jobs"]):
        monkeypatch.setattr(module, "SWEEP_ROWS", 2)
    (job,) = [job for job in JOBS if isinstance(job, Job) and job.run is sweep_working]
    assert workspace.workspace_id in await job.due(app)
    await job.act(app, workspace.workspace_id)
    assert workspace.workspace_id not in await job.due(app)


async def test_finished_jobs_are_removed_after_a_while_and_failed_ones_later(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ids = {}
    for status, days in (("succeeded", 0), ("succeeded", 2), ("failed", 2), ("failed", 15), ("todo", 30)):
        job_id = ids[status, days] = await app.queue.defer(new_name(), workspace.workspace_id)
        owner.execute("SET search_path = whence_jobs")
        if status != "todo":
            owner.execute("UPDATE procrastinate_jobs SET status = 'doing' WHERE id = %s", (job_id,))
            owner.execute("UPDATE procrastinate_jobs SET status = %s WHERE id = %s", (status, job_id))
        aged = "UPDATE procrastinate_events SET at = at - make_interval(days => %s) WHERE job_id = %s"
        owner.execute(aged, (days, job_id))
    await remove_finished(app)
    left = {job.job_id for job in (await app.queue.page(workspace.admin.scope)).jobs}
    assert left == {ids["succeeded", 0], ids["failed", 2], ids["todo", 30]}


def test_commands_that_work_no_jobs_do_not_import_the_library() -> None:
    code = "import sys, whence.cli; sys.exit('procrastinate' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=clean_environment()).returncode == 0
