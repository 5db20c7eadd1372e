"""`whence jobs`: what was done, what waits, what failed; and doing it now."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated

import typer
from rich.table import Column

from whence.app import App
from whence.cli.command import AsJson, Call, DatabaseUrl, DataDir, command, with_app
from whence.cli.terminal import print_json, print_plain, print_table, shown
from whence.clock import system_clock
from whence.errors import InvalidInput, NotFound, SetupError
from whence.jobs import JOBS, Upkeep
from whence.settings import load_settings
from whence.wire import QueuedJob

SHOWN_JOBS = 100
WAIT_POLL_SECONDS = 0.2
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_ENDED = ("succeeded", "failed", "cancelled", "aborted")

jobs = typer.Typer(help="Jobs: what was done, what waits, what failed.")

Workspace = Annotated[str | None, typer.Option("--workspace", "-w", help="Only of this workspace.")]


@jobs.callback(invoke_without_command=True)
def listing(
    context: typer.Context,
    workspace: Workspace = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only jobs that have failed for good.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """The last 100 jobs, newest first, and when which is done."""
    if context.invoked_subcommand is not None:
        return

    async def act(app: App) -> None:
        await _known(app, workspace)
        _print(await app.queue.page_of_all(workspace, failed, limit=SHOWN_JOBS), as_json)
        if not as_json and not failed:
            _print_schedules(is_ours=app.purge is not None)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@command(jobs, "run")
async def run(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which job.")],
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="In this workspace, instead of in each that is due.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; exits with 1 if it failed.")] = False,
) -> None:
    """Queue a job now; a worker does it."""
    await _known(call.app, workspace)
    job_id = await _defer(call.app, name, workspace)
    if not wait:
        _print([await call.app.queue.get(job_id)], call.as_json)
        return
    ended = await _ended(call.app, job_id)
    _print([ended], call.as_json)
    if ended.status != "succeeded":
        raise typer.Exit(1)


@command(jobs, "retry")
async def retry(call: Call, job_id: Annotated[int, typer.Argument(metavar="ID", min=1, help="A failed job.")]) -> None:
    """Try a job that has failed once more."""
    await call.app.queue.retry(job_id)
    _print([await call.app.queue.get(job_id)], call.as_json)


async def _known(app: App, workspace: str | None) -> None:
    if workspace is not None and not await app.identity.workspace_exists(workspace):
        raise NotFound(f"there is no workspace {workspace}")


async def _defer(app: App, name: str, workspace: str | None) -> int:
    job = next((each for each in JOBS if each.name == name), None)
    if job is None:
        raise NotFound(f"there is no job {shown(name)}: there are {', '.join(each.name for each in JOBS)}")
    if workspace is None:
        return await app.queue.defer_search(name)
    if isinstance(job, Upkeep):
        raise InvalidInput(f"{name} is not done in a workspace: leave --workspace out")
    return await app.queue.defer(name, workspace)


async def _ended(app: App, job_id: int) -> QueuedJob:
    """As long as there is somebody to do it."""
    while (job := await app.queue.get(job_id)).status not in _ENDED:
        if not await app.queue.is_worked():
            raise SetupError(f"job {job_id} is queued, and no worker runs: start `whence serve` or `whence worker`")
        await asyncio.sleep(WAIT_POLL_SECONDS)
    return job


def _print(found: list[QueuedJob], as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif not found:
        print_plain("there are no such jobs")
    else:
        # The name of a workspace gives way where the terminal is narrow; all of it is in --json.
        whole = [Column(name, no_wrap=True) for name in ("id", "job", "status", "tries", "when")]
        columns = (*whole[:2], Column("workspace", overflow="fold", ratio=1), *whole[2:])
        print_table(columns, (row for job in found for row in _rows(job, system_clock())))


def _rows(job: QueuedJob, now: datetime) -> Iterator[tuple[str, ...]]:
    moment = job.started_at or job.scheduled_at or job.queued_at
    what = (str(job.job_id), job.job, job.workspace_id or "", job.status, str(job.attempts))
    yield (*what, _ago(now - moment))
    if job.error is not None:
        yield ("", f"  {job.error}")


def _ago(since: timedelta) -> str:
    seconds = int(abs(since.total_seconds()))
    size, unit = next((each for each in _UNITS if seconds >= each[0]), (1, "s"))
    return f"{seconds // size}{unit} ago" if since >= timedelta(0) else f"in {seconds // size}{unit}"


def _print_schedules(is_ours: bool) -> None:
    """On a Postgres of one's own, the owner's login is not the server's."""
    rows = [
        (
            job.name,
            "by `whence purge`, with the owner's URL" if job.name == "purge" and not is_ours else spoken(job.schedule),
        )
        for job in JOBS
    ]
    print_plain("")
    print_table(("job", "is done"), rows)


def spoken(schedule: str | None) -> str:
    """A cron expression as people say it, where that is short."""
    if schedule is None:
        return "when it is asked for"
    minute, hour, *days = schedule.split()
    if days == ["*", "*", "*"] and hour == "*":
        if minute == "*":
            return "every minute"
        if minute.isdigit():
            return f"every hour, at {int(minute):02} past"
    if days == ["*", "*", "*"] and minute.isdigit() and hour.isdigit():
        return f"every day, at {int(hour):02}:{int(minute):02} UTC"
    return f"by the cron expression {schedule}, UTC"
