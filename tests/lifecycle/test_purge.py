"""After a purge no file of an embedded database holds what was erased."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from conftest import Workspace, serving, whence
from people import Marks, live, telemetry
from samples import event
from whence.app import App, ensure_default_workspace, open_app
from whence.db import embedded
from whence.jobs import JOBS, Upkeep
from whence.lifecycle.purge import last_purge
from whence.settings import Settings


def holding(folder: Path, marks: list[str]) -> dict[str, int]:
    """The files below a folder in which a mark stands, and how many do."""
    found: dict[str, int] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes().lower()
            count = sum(mark.lower().encode() in content for mark in marks)
            if count:
                found[str(path.relative_to(folder))] = count
    return found


async def lived(data_dir: Path, log: Path) -> list[str]:
    marks = Marks()
    with serving(data_dir, log) as server:
        async with open_app(Settings(data_dir=data_dir)) as app:
            workspace = Workspace("default", server.admin_key)
            await live(app, workspace, "ann", marks)
            with server.client(server.admin_key) as admin:
                telemetry(admin, "ann", marks)
            await live(app, workspace, "bob", lambda: "kept-by-bob")
            await app.projector.catch_up("default")
    return marks.made


async def test_no_file_holds_a_mark_of_who_was_erased_once_it_is_purged(tmp_path: Path) -> None:
    data_dir, log = tmp_path / "data", tmp_path / "serve.log"
    marks = await lived(data_dir, log)
    # Samples of the planner, which hold values of columns, as a database makes them by itself after a while.
    with embedded.start(data_dir) as running, psycopg.connect(running.owner_conninfo, autocommit=True) as conn:
        conn.execute("ANALYZE")
    before = holding(data_dir, marks)
    assert any(name.startswith("pgdata/base/") for name in before), before
    erased = whence("erase", "ann", "--yes", "--json", "--data-dir", data_dir)
    assert erased.returncode == 0, erased.stderr
    logical = holding(data_dir, marks)
    assert any(name.startswith("pgdata/pg_wal/") for name in logical), "else there would be nothing to purge"
    assert any(name.startswith("pgdata/base/") for name in logical)
    purged = whence("purge", "--json", "--data-dir", data_dir)
    assert purged.returncode == 0, purged.stderr
    report: dict[str, Any] = json.loads(purged.stdout)
    assert "memories" in report["tables"]
    assert report["wal_segments"] > 0
    assert holding(data_dir, marks) == {}
    assert not any(mark in log.read_text() for mark in marks)
    assert holding(data_dir, ["kept-by-bob"])
    assert whence("erase", "--verify", json.loads(erased.stdout)["erasure_id"], "--data-dir", data_dir).returncode == 0
    assert whence("rebuild", "--verify", "--data-dir", data_dir).returncode == 0


async def test_the_planner_keeps_no_samples_of_a_table_that_was_emptied(tmp_path: Path) -> None:
    data_dir, marks, workspace = tmp_path / "data", Marks(), Workspace("default", "")
    async with open_app(Settings(data_dir=data_dir)) as app:
        await ensure_default_workspace(app)
        await live(app, workspace, "ann", marks)
        # Rules have an index on an expression, which has samples of its own.
        await app.memory.set_rule(workspace.admin, "earth", "r1", f"never say {marks()}")
        with embedded.start(data_dir) as running, psycopg.connect(running.owner_conninfo, autocommit=True) as conn:
            conn.execute("CREATE STATISTICS whence.together (mcv) ON body, agent FROM whence.memories")
            conn.execute("ALTER STATISTICS whence.together SET STATISTICS 500")
            assert whence("purge", "--data-dir", data_dir).returncode == 0
            assert holding(data_dir, marks.made)
            await app.memory.drop_rule(workspace.admin, "earth", "r1")
            await app.erasures.erase(workspace.admin, "ann")
            assert whence("purge", "--data-dir", data_dir).returncode == 0
            kept = conn.execute("SELECT stxname, stxstattarget FROM pg_statistic_ext").fetchall()
    assert kept == [("together", 500)]
    assert holding(data_dir, marks.made) == {}


async def test_the_nightly_purge_is_for_those_who_were_erased_since_the_last(tmp_path: Path) -> None:
    data_dir, marks, workspace = tmp_path / "data", Marks(), Workspace("default", "")
    [job] = [job for job in JOBS if isinstance(job, Upkeep) and job.name == "purge"]
    async with open_app(Settings(data_dir=data_dir)) as app:
        await ensure_default_workspace(app)
        await live(app, workspace, "ann", marks)
        await job.run(app)
        assert last_purge(data_dir) is None
        await app.erasures.erase(workspace.admin, "ann")
        await job.run(app)
        purged = last_purge(data_dir)
        assert purged is not None
        assert holding(data_dir, marks.made) == {}
        await job.run(app)
        assert last_purge(data_dir) == purged
        await live(app, workspace, "ann", marks)
        await app.erasures.erase(workspace.admin, "ann")
        await job.run(app)
        assert holding(data_dir, marks.made) == {}


async def test_it_waits_until_what_was_erased_is_settled(app: App, workspace: Workspace) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    before = app.clock()
    # What other tests have left behind in other workspaces is waited for too.
    while left := await app.erasures.unsettled(before):
        await app.erasures.settle(left[0])

    def stop(step: str, *_: int) -> None:
        if step == "keys":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await app.erasures.erase(workspace.admin, "ann", stop)
    assert not await app.erasures.left_in_files(before)
    await app.erasures.settle(workspace.workspace_id)
    assert await app.erasures.left_in_files(before)


async def test_on_a_postgres_of_ones_own_the_server_purges_nothing(
    postgres: embedded.EmbeddedServer, app: App, data_dir: Path
) -> None:
    url = SecretStr(postgres.app_conninfo)
    async with open_app(Settings(data_dir=data_dir, database_url=url)) as own:
        assert own.purge is None
    assert app.purge is not None


def test_there_is_nothing_to_purge_where_there_is_no_data(tmp_path: Path) -> None:
    done = whence("purge", "--data-dir", tmp_path / "none")
    assert done.returncode == 1
    assert "there is no Whence data" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_receipt_is_verified_from_its_file(tmp_path: Path) -> None:
    data_dir, name = tmp_path / "data", "receipt.json"
    assert whence("user", "add", "ann", "--data-dir", data_dir).returncode == 0
    erased = whence("erase", "ann", "--yes", "--json", "--data-dir", data_dir)
    (tmp_path / name).write_text(erased.stdout)
    good = whence("erase", "--verify", tmp_path / name, "--data-dir", data_dir)
    assert (good.returncode, "DIFFERS" in good.stdout) == (0, False)
    receipt = json.loads(erased.stdout)
    for more in ({**receipt, "kept": []}, {**receipt, "removed": {"users": {**receipt["removed"]["users"], "x": 1}}}):
        (tmp_path / name).write_text(json.dumps(more))
        told_more = whence("erase", "--verify", tmp_path / name, "--data-dir", data_dir)
        assert (told_more.returncode, "was changed" in told_more.stderr) == (1, True)
    receipt["removed"]["users"]["count"] = 7
    (tmp_path / name).write_text(json.dumps(receipt))
    bad = whence("erase", "--verify", tmp_path / name, "--data-dir", data_dir)
    assert bad.returncode == 1
    assert "DIFFERS event" in bad.stdout


def test_on_a_served_database_it_rewrites_the_tables_and_says_what_is_left_to_do(
    postgres: embedded.EmbeddedServer, tmp_path: Path
) -> None:
    where = ("--data-dir", tmp_path / "keys", "--json")
    done = whence("purge", "--database-url", postgres.owner_conninfo, *where)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wal_segments"] is None
    assert any("write-ahead log" in item for item in report["left_to_operator"])
    assert not any("permission" in item for item in report["left_to_operator"])
    refused = whence("purge", "--database-url", postgres.app_conninfo, *where)
    assert (refused.returncode, "give the owner's URL" in refused.stderr) == (1, True)
    unreachable = whence("purge", "--database-url", "postgresql://nobody@127.0.0.1:1/none", *where)
    assert (unreachable.returncode, "cannot be rewritten" in unreachable.stderr) == (1, True)
