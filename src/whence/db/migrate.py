"""Forward-only migrations: numbered SQL files, each applied once, in order, in a transaction of its own.

The queue of jobs is procrastinate's, which brings a schema and migrations of its own. Where one of our files says
`-- library: procrastinate`, the schema of the installed version is made in the schema `whence_jobs`; which of the
library's migrations it stands for is recorded. A later version's new ones are applied after all of ours, in order.
"""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import Connection

from whence.errors import DatabaseError

MINIMUM_SERVER_VERSION = 160000
# Any number will do as long as it stays the same: it is what two migrating processes meet on.
_MIGRATION_LOCK = 7_311_946_201
_WITH_AT = re.compile(r"""['"][^'"]*@[^'"]*['"]""")
_LIBRARY = "procrastinate"
_LIBRARY_SCHEMA = b"SET LOCAL search_path = whence_jobs"
_LIBRARY_MARK = b"\n-- library: procrastinate\n"
_BOOTSTRAP = b"""
CREATE SCHEMA IF NOT EXISTS whence;
CREATE TABLE IF NOT EXISTS whence.schema_migrations (
    version integer CONSTRAINT schema_migrations_pkey PRIMARY KEY,
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    sql: bytes

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.sql).digest()


def migrations() -> list[Migration]:
    folder = resources.files("whence.db") / "migrations"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    found = [Migration(int(name[:4]), name.removesuffix(".sql"), (folder / name).read_bytes()) for name in files]
    assert [m.version for m in found] == list(range(1, len(found) + 1)), "migrations are numbered without gaps"
    return found


def pending(conninfo: str) -> list[str]:
    """The migrations that the database still needs. Any login of the database may ask."""
    try:
        with psycopg.connect(conninfo, autocommit=True) as conn:
            applied = _applied(conn)
            of_library = _library_pending(conn)
    except psycopg.Error as error:
        raise DatabaseError(f"the database cannot be reached: {reason(error)}") from error
    known = migrations()
    check_history(applied, known)
    ours = [migration.name for migration in known if migration.version not in applied]
    return ours + [f"{_LIBRARY} {name}" for name in of_library]


def migrate(owner_conninfo: str) -> list[str]:
    """Brings the schema up to date and says which migrations ran. Safe to call from several processes at once."""
    try:
        with psycopg.connect(owner_conninfo, autocommit=True) as conn:
            return _migrate(conn)
    except psycopg.Error as error:
        raise DatabaseError(f"migration failed: {reason(error)}") from error


def _migrate(conn: Connection) -> list[str]:
    if conn.info.server_version < MINIMUM_SERVER_VERSION:
        raise DatabaseError(f"Postgres {conn.info.server_version // 10000} is too old: Whence needs 16 or newer")
    conn.execute("SELECT pg_advisory_lock(%s)", (_MIGRATION_LOCK,))
    try:
        applied = _applied(conn)
        known = migrations()
        check_history(applied, known)
        ours = [_apply(conn, migration) for migration in known if migration.version not in applied]
        return ours + [_apply_of_library(conn, name) for name in _library_pending(conn)]
    finally:
        conn.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATION_LOCK,))


def _applied(conn: Connection) -> dict[int, bytes]:
    there = conn.execute("SELECT to_regclass('whence.schema_migrations') IS NOT NULL").fetchone()
    if there != (True,):
        return {}
    rows = conn.execute("SELECT version, sha256 FROM whence.schema_migrations").fetchall()
    return {version: bytes(digest) for version, digest in rows}


def check_history(applied: dict[int, bytes], known: list[Migration]) -> None:
    """What was applied must be what this version of Whence would have applied."""
    if max(applied, default=0) > len(known):
        raise DatabaseError(
            f"the database is at schema version {max(applied)}, this Whence knows {len(known)}: install a newer one"
        )
    for migration in known:
        digest = applied.get(migration.version)
        if digest is not None and bytes(digest) != migration.sha256:
            raise DatabaseError(
                f"migration {migration.name} is not the one that was applied: another build made this database"
            )


def _apply(conn: Connection, migration: Migration) -> str:
    with conn.transaction():
        if migration.version == 1:
            # With the first migration or not at all: a schema that the server's role cannot look into would stop it.
            conn.execute(_BOOTSTRAP)
        before, mark, after = migration.sql.partition(_LIBRARY_MARK)
        conn.execute(before)
        if mark:
            _make_library_schema(conn)
            conn.execute(after)
        conn.execute(
            "INSERT INTO whence.schema_migrations (version, name, sha256) VALUES (%s, %s, %s)",
            (migration.version, migration.name, migration.sha256),
        )
    return migration.name


def _make_library_schema(conn: Connection) -> None:
    """Whole, as the installed version ships it, which is what all of its migrations add up to."""
    conn.execute(_LIBRARY_SCHEMA)
    conn.execute((_library_folder() / "schema.sql").read_bytes())
    conn.execute("RESET search_path")
    for name in _library_migrations():
        _record_of_library(conn, name)


def _apply_of_library(conn: Connection, name: str) -> str:
    with conn.transaction():
        conn.execute(_LIBRARY_SCHEMA)
        conn.execute((_library_folder() / "migrations" / f"{name}.sql").read_bytes())
        conn.execute("RESET search_path")
        _record_of_library(conn, name)
    return f"{_LIBRARY} {name}"


def _record_of_library(conn: Connection, name: str) -> None:
    conn.execute("INSERT INTO whence.library_migrations (library, name) VALUES (%s, %s)", (_LIBRARY, name))


def _library_pending(conn: Connection) -> list[str]:
    """Nothing where the queue is not made yet: then it is made as the installed version has it."""
    there = conn.execute("SELECT to_regclass('whence.library_migrations') IS NOT NULL").fetchone()
    if there != (True,):
        return []
    rows = conn.execute("SELECT name FROM whence.library_migrations WHERE library = %s", (_LIBRARY,)).fetchall()
    applied, known = {name for (name,) in rows}, _library_migrations()
    if unknown := sorted(applied - set(known)):
        raise DatabaseError(f"the database has {_LIBRARY}'s migration {unknown[-1]}: install a newer {_LIBRARY}")
    return [name for name in known if name not in applied]


def _library_migrations() -> list[str]:
    """In the order in which they are to be applied, which their names are made for."""
    return sorted(path.stem for path in (_library_folder() / "migrations").glob("*.sql"))


def _library_folder() -> Path:
    """Located and not imported, because every command asks whether something is pending, and few work with jobs."""
    spec = find_spec(_LIBRARY)
    assert spec is not None, f"{_LIBRARY} is a dependency"
    assert spec.origin is not None
    return Path(spec.origin).parent / "sql"


def reason(error: psycopg.Error) -> str:
    """One line. A conninfo string that cannot be parsed is quoted in libpq's message, password and all."""
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return "the database URL is not one that Postgres understands"
    # A password with an unescaped @ is taken for a part of the host, which libpq quotes.
    return _WITH_AT.sub("…", str(error).strip().split("\n", 1)[0])
