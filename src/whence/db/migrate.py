"""Forward-only migrations: numbered SQL files, each applied once, in order, in a transaction of its own."""

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

import psycopg
from psycopg import Connection

from whence.errors import DatabaseError

MINIMUM_SERVER_VERSION = 160000
# Any number will do as long as it stays the same: it is what two migrating processes meet on.
_MIGRATION_LOCK = 7_311_946_201
_WITH_AT = re.compile(r"""['"][^'"]*@[^'"]*['"]""")
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
    except psycopg.Error as error:
        raise DatabaseError(f"the database cannot be reached: {reason(error)}") from error
    known = migrations()
    check_history(applied, known)
    return [migration.name for migration in known if migration.version not in applied]


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
        return [_apply(conn, migration) for migration in known if migration.version not in applied]
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
        conn.execute(migration.sql)
        conn.execute(
            "INSERT INTO whence.schema_migrations (version, name, sha256) VALUES (%s, %s, %s)",
            (migration.version, migration.name, migration.sha256),
        )
    return migration.name


def reason(error: psycopg.Error) -> str:
    """One line. A conninfo string that cannot be parsed is quoted in libpq's message, password and all."""
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return "the database URL is not one that Postgres understands"
    # A password with an unescaped @ is taken for a part of the host, which libpq quotes.
    return _WITH_AT.sub("…", str(error).strip().split("\n", 1)[0])
