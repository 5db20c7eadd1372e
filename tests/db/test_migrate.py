"""Migrations: once each, in order, under a lock, and no surprise in what they make."""

import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from procrastinate.schema import SchemaManager
from psycopg import connect

from make_schema import SCHEMA, dump
from whence.db import embedded
from whence.db import migrate as migrating
from whence.db.migrate import Migration, check_history, migrate, migrations, pending
from whence.errors import DatabaseError


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[embedded.EmbeddedServer]:
    with embedded.start(tmp_path_factory.mktemp("empty") / "data") as server:
        yield server


def test_processes_that_migrate_at_once_apply_each_migration_once(empty: embedded.EmbeddedServer) -> None:
    assert pending(empty.app_conninfo) == [m.name for m in migrations()]
    applied: list[str] = []
    threads = [threading.Thread(target=lambda: applied.extend(migrate(empty.owner_conninfo))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert applied == [m.name for m in migrations()]
    assert pending(empty.app_conninfo) == []


def test_a_kill_before_the_first_migration_is_done_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded.start(tmp_path / "data") as server:
        broken = Migration(1, migrations()[0].name, b"SELECT 1/0")
        with monkeypatch.context() as patched:
            patched.setattr(migrating, "migrations", lambda: [broken])
            with pytest.raises(DatabaseError):
                migrate(server.owner_conninfo)
        assert pending(server.app_conninfo) == [m.name for m in migrations()]
        assert migrate(server.owner_conninfo)


def test_a_password_with_an_at_sign_is_not_shown() -> None:
    with pytest.raises(DatabaseError) as refused:
        pending("postgresql://me:hun@ter2@127.0.0.1:1/x?connect_timeout=2")
    assert "ter2" not in refused.value.detail


def test_the_chain_of_migrations_makes_the_committed_schema(postgres: embedded.EmbeddedServer) -> None:
    committed = SCHEMA.read_text().split("\n\n", 1)[1]
    assert dump(postgres.owner_conninfo) == committed, "run `make schema` and look at the difference"


def test_who_told_what_is_the_same_after_tellers_have_moved_into_their_memories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (uuid.UUID(int=number) for number in (1, 2, 3))
    with embedded.start(tmp_path / "data") as server:
        with monkeypatch.context() as patched:
            patched.setattr(migrating, "migrations", lambda: [m for m in migrations() if m.version <= 21])
            migrate(server.owner_conninfo)
        with connect(server.owner_conninfo) as conn:
            conn.execute("SET ROLE whence_workspace")
            for workspace in ("a", "b"):
                conn.execute("SELECT set_config('app.workspace_id', %s, false)", (workspace,))
                conn.execute(
                    """INSERT INTO whence.memories (workspace_id, memory_id, position, subject_id, agent, profile, tier,
                           kind, body, body_hash, importance, valid_at, recorded_at)
                       SELECT %s, id, 1, 'ann', 'gateway', 'gateway', 'persistent', 'semantic', id::text,
                           sha256(id::text::bytea), 0.5, now(), now() FROM unnest(%s::uuid[]) id""",
                    (workspace, [first, second, third]),
                )
                conn.cursor().executemany(
                    """INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id,
                           confidence, told_at) VALUES (%s, %s, %s, %s, %s, %s, %s, now())""",
                    [
                        (workspace, first, "session:s1", "told", 1, first, None),
                        (workspace, first, "session:s2", "told", 2, uuid.UUID(int=9), None),
                        (workspace, second, "user:ann", "told", 1, second, 0.6),
                        (workspace, third, str(first), "memory", 1, third, None),
                    ],
                )
            rows = "SELECT memory_id, source, role, position, event_id, confidence FROM whence.{} ORDER BY 1, 4"
            before = conn.execute(rows.format("memory_sources")).fetchall()
        migrate(server.owner_conninfo)
        with connect(server.owner_conninfo) as conn:
            conn.execute("SET ROLE whence_workspace")
            for workspace in ("a", "b"):
                conn.execute("SELECT set_config('app.workspace_id', %s, false)", (workspace,))
                assert conn.execute(rows.format("memory_all_sources")).fetchall() == before
                assert conn.execute(rows.format("memory_sources")).fetchall() == before[1:]
                tellers = dict(conn.execute("SELECT memory_id, teller FROM whence.memories").fetchall())
                assert tellers == {first: "session:s1", second: None, third: None}


def test_a_migration_that_was_edited_after_it_ran_is_refused() -> None:
    known = [Migration(1, "0001_a", b"SELECT 1")]
    with pytest.raises(DatabaseError, match="0001_a is not the one that was applied"):
        check_history({1: b"another digest"}, known)


def test_a_database_of_a_newer_whence_is_refused() -> None:
    with pytest.raises(DatabaseError, match="install a newer one"):
        check_history({1: b"", 2: b""}, [Migration(1, "0001_a", b"SELECT 1")])


def test_a_migration_that_fails_leaves_nothing(empty: embedded.EmbeddedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    migrate(empty.owner_conninfo)
    last = len(migrations())
    broken = Migration(last + 1, "broken", b"CREATE TABLE whence.half_made (id int); SELECT 1/0")
    known = [*migrations(), broken]
    monkeypatch.setattr(migrating, "migrations", lambda: known)
    with pytest.raises(DatabaseError, match="migration failed: division by zero"):
        migrate(empty.owner_conninfo)
    with connect(empty.owner_conninfo) as conn:
        assert conn.execute("SELECT to_regclass('whence.half_made')").fetchone() == (None,)
        assert conn.execute("SELECT max(version) FROM whence.schema_migrations").fetchone() == (last,)


def test_a_database_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot be reached"):
        pending(f"host={tmp_path} dbname=nothing user=nobody")


def test_the_library_of_the_queue_is_found_without_importing_it() -> None:
    folder = Path(SchemaManager.get_migrations_path())
    assert (migrating._library_folder() / "schema.sql").read_text() == SchemaManager.get_schema()
    assert migrating._library_folder() / "migrations" == folder


def test_a_newer_version_of_the_library_brings_its_migrations_and_an_older_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = tmp_path / "sql"
    shutil.copytree(migrating._library_folder(), newer)
    names = ("99.00.00_01_pre_more", "99.00.00_50_post_more")
    added = "ALTER TABLE procrastinate_jobs ADD COLUMN more int; CREATE TABLE procrastinate_more (id bigserial, at int)"
    for name, statement in zip(names, (added, "INSERT INTO procrastinate_more (at) VALUES (1)"), strict=True):
        (newer / "migrations" / f"{name}.sql").write_text(statement)
    with embedded.start(tmp_path / "data") as server:
        migrate(server.owner_conninfo)
        with monkeypatch.context() as patched:
            patched.setattr(migrating, "_library_folder", lambda: newer)
            expected = [f"procrastinate {name}" for name in names]
            assert pending(server.app_conninfo) == expected
            assert migrate(server.owner_conninfo) == expected
            assert pending(server.app_conninfo) == migrate(server.owner_conninfo) == []
        with connect(server.app_conninfo, autocommit=True) as conn:
            conn.execute("SET ROLE whence_worker")
            conn.execute("INSERT INTO whence_jobs.procrastinate_more (at) VALUES (2)")
            assert conn.execute("SELECT count(*) FROM whence_jobs.procrastinate_more").fetchone() == (2,)
        for ask in (pending, migrate):
            with pytest.raises(DatabaseError, match=r"99\.00\.00_50_post_more: install a newer procrastinate"):
                ask(server.owner_conninfo)
