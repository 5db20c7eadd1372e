"""`whence jobs`: what was done, what waits, what failed; and doing it now."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from conftest import Server, Workspace, clean_environment, whence
from whence.app import App
from whence.cli.jobs import spoken
from whence.db import EVERY_WORKSPACE
from whence.jobs import JOBS


def jobs(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return whence("jobs", *arguments, "--data-dir", server.data_dir, COLUMNS="200")


def listed(server: Server, *arguments: str) -> list[dict[str, object]]:
    return json.loads(jobs(server, *arguments, "--json").stdout)


async def test_a_job_is_run_now_and_shown(app: App, server: Server, workspace: Workspace) -> None:
    """Others may have been scheduled for the workspace meanwhile."""
    here = ("--workspace", workspace.workspace_id)
    assert not [job for job in listed(server, *here) if job["job"] == "sweep-working"]
    assert jobs(server, *here, "--failed").stdout == "there are no such jobs\n"
    await app.working.put(workspace.admin.scope, "planner", "run-7", "draft", b"1")
    ran = jobs(server, "run", "sweep-working", *here, "--wait")
    assert ran.returncode == 0, ran.stderr
    shown = jobs(server, *here).stdout
    heading, *lines = shown.splitlines()
    (line,) = (line for line in lines if "sweep-working" in line and workspace.workspace_id in line)
    assert heading.split() == ["id", "job", "workspace", "status", "tries", "when"]
    assert line.split()[1:5] == ["sweep-working", workspace.workspace_id, "succeeded", "1"]
    assert line.rstrip().endswith(" ago")
    (job,) = (job for job in listed(server, *here) if job["job"] == "sweep-working")
    assert str(job["job_id"]) == line.split()[0]
    assert (job["error"], job["workspace_id"]) == (None, workspace.workspace_id)
    assert listed(server, *here, "--failed") == []


async def test_a_terminal_of_80_columns_shows_what_matters_and_when_each_is_done(
    app: App, server: Server, workspace: Workspace
) -> None:
    job_id = await app.queue.defer("not-worked-by-anybody", workspace.workspace_id)
    told = whence("jobs", "-w", workspace.workspace_id, "--data-dir", server.data_dir, COLUMNS="80").stdout
    assert max(map(len, told.splitlines())) <= 80
    assert "…" not in told
    assert [line.split()[1:5] for line in told.splitlines() if line.startswith(str(job_id))] == [
        ["not-worked-by-anybody", workspace.workspace_id, "todo", "0"]
    ]
    schedules = dict(line.split(maxsplit=1) for line in told[told.index("is done") :].splitlines()[1:])
    assert schedules.keys() == {job.name for job in JOBS}
    assert schedules["sweep-working"].rstrip() == "every minute"
    assert schedules["apply-retention"].rstrip() == "every hour, at 07 past"
    assert schedules["close-sessions"].rstrip() == "every day, at 03:15 UTC"


def test_a_schedule_that_is_not_short_is_told_as_it_is() -> None:
    assert spoken(None) == "when it is asked for"
    assert spoken("*/5 * * * 1") == "by the cron expression */5 * * * 1, UTC"


async def test_a_job_without_a_workspace_looks_for_those_that_are_due(server: Server) -> None:
    (ran,) = listed(server, "run", "sweep-working", "--wait")
    assert (ran["workspace_id"], ran["status"]) == (None, "succeeded")
    (queued,) = listed(server, "run", "remove-finished-jobs")
    assert queued["job"] == "remove-finished-jobs"


async def test_a_failed_job_is_shown_with_the_type_of_its_error_and_retried(
    app: App, server: Server, workspace: Workspace
) -> None:
    job_id = await app.queue.defer("not-worked", workspace.workspace_id)
    refused = jobs(server, "retry", str(job_id))
    assert (refused.returncode, refused.stderr) == (1, f"whence: job {job_id} has not failed: it is todo\n")
    async with app.database.transaction(EVERY_WORKSPACE) as tx:
        await tx.execute("UPDATE procrastinate_jobs SET status = 'doing' WHERE id = %s", (job_id,))
        await tx.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", (job_id,))
    await app.queue.note_error(job_id, "ValueError")
    here = ("--workspace", workspace.workspace_id, "--failed")
    assert jobs(server, *here).stdout.splitlines()[2].strip() == "ValueError"
    (again,) = listed(server, "retry", str(job_id))
    assert (again["status"], again["attempts"]) == ("todo", 2)
    assert listed(server, *here) == []


async def test_what_does_not_exist_is_told(server: Server) -> None:
    for arguments, said in (
        (("run", "nothing"), "there is no job nothing: there are sweep-working, "),
        (("run", "sweep-working", "-w", "nowhere"), "there is no workspace nowhere"),
        (("--workspace", "nowhere"), "there is no workspace nowhere"),
        (("retry", "1000000000000"), "there is no job 1000000000000"),
        (("run", "remove-finished-jobs", "-w", "default"), "is not done in a workspace"),
    ):
        refused = jobs(server, *arguments)
        assert refused.returncode == 1
        assert said in refused.stderr


async def test_nobody_waits_for_a_worker_that_is_not_there(tmp_path: Path) -> None:
    where = ("--data-dir", tmp_path / "data")
    whence("workspace", "add", "w", *where)
    waiting = whence("jobs", "run", "sweep-working", "--wait", *where)
    assert waiting.returncode == 1
    assert "no worker runs: start `whence serve` or `whence worker`" in waiting.stderr


async def test_a_worker_that_is_told_to_stop_does_so_within_seconds_and_signs_off(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path / "data"))
    whence("workspace", "add", "w", *where)
    command = [sys.executable, "-m", "whence", "worker", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"
        ran = whence("jobs", "run", "sweep-working", "-w", "w", *where)
        assert ran.returncode == 0, ran.stderr
        waited = whence("jobs", "run", "remove-finished-jobs", "--wait", *where)
        assert waited.returncode == 0, waited.stderr
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(10) == 0
    assert "no worker runs" in whence("jobs", "run", "sweep-working", "--wait", *where).stderr
