"""Purge: what was removed is gone from the files too.

A database that removes a row marks it, and goes on holding its bytes: in the table and its indexes, in the samples that
its planner keeps, and in the write-ahead log. Here the tables are rewritten, their samples dropped and taken anew, and
on the embedded database the log is replaced as well. On a served one the log is its operator's, who is told.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import psycopg
from psycopg import Connection, sql

from whence.db import scrub
from whence.db.migrate import reason
from whence.errors import DatabaseError, Unavailable

LOCK_SECONDS = 60
"""So long a table is waited for that somebody works with."""
NIGHTLY_LOCK_SECONDS = 2
"""The same beside a server: who asks for the table meanwhile waits too. It is tried again later."""

Progress = Callable[[int, int], None]

# Those of LangGraph too, where they are ours.
_TABLES = b"""
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND (n.nspname = 'whence' OR n.nspname = 'langgraph' AND EXISTS (
    SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'of_workspace'))
ORDER BY n.nspname DESC, c.relname
"""
_BYTES = b"""
SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname IN ('whence', 'langgraph')
"""
_MARK: Final = "purged"
"""A file beside the database."""
_CLEARING_VERSION = 180_000
"""The first Postgres that lets the owner of a table drop its samples."""

# Of a table that is empty no samples are taken anew: those of rows that are gone would stay. Indexes on expressions
# have samples of their own.
_CLEAR = b"""
SELECT pg_clear_attribute_stats(c.relnamespace::regnamespace::text, c.relname::text, a.attname::text, inherited)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid, unnest(ARRAY[false, true]) inherited
WHERE a.attnum > 0 AND NOT a.attisdropped
  AND (c.oid = %(table)s::regclass OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = %(table)s::regclass))
"""
# Samples of several columns together, where somebody has asked for them.
_TOGETHER = b"""
SELECT stxnamespace::regnamespace::text, stxname, pg_get_statisticsobjdef(oid), stxstattarget
FROM pg_statistic_ext WHERE stxrelid = %(table)s::regclass
"""
_OPERATOR = (
    "the write-ahead log: switch and checkpoint, and let archived segments age out",
    "replicas: they follow by themselves once the log is replayed",
    "backups and snapshots from before: let them age out, and never restore them together with the key folder",
    "transactions that were open meanwhile may have kept rows alive: run this again when they have ended",
)
_BEFORE_CLEARING = (
    "samples of tables that are empty now, which the owner can drop from Postgres 18 on: as a superuser, delete their"
    " rows in pg_statistic, and vacuum it in full"
)
_OWNER_OF_FILES = ("backups and snapshots of the data directory from before: let them age out",)


class Purged(msgspec.Struct, frozen=True):
    tables: list[str]
    bytes_before: int
    bytes_after: int
    wal_segments: int | None
    """Of the embedded database's log, how many were replaced."""
    left_to_operator: tuple[str, ...]


def last_purge(data_dir: Path) -> datetime | None:
    """When the last one of an embedded database began."""
    try:
        return datetime.fromisoformat((data_dir / _MARK).read_text())
    except (OSError, ValueError):
        return None


def purge(
    owner: str, data_dir: Path | None, now: datetime, on_progress: Progress, lock_seconds: int = LOCK_SECONDS
) -> Purged:
    """As the owner of the schema; with the folder of an embedded database, its log too."""
    if data_dir is not None:
        scrub.wait_for_old_transactions(data_dir)
    skipped: list[str] = []
    try:
        with psycopg.connect(owner, autocommit=True) as conn:
            # What the login may not rewrite is passed over with a warning.
            conn.add_notice_handler(lambda notice: skipped.append(notice.message_primary or ""))
            before = _asked(conn, _BYTES)
            tables: list[tuple[str, str]] = conn.execute(_TABLES).fetchall()
            _rewrite(conn, tables, on_progress, lock_seconds)
            if skipped:
                raise DatabaseError(f"the tables cannot be rewritten: {skipped[0]}; give the owner's URL")
            # The samples of the planner hold values of columns. They were taken anew; here are the old ones.
            conn.execute("VACUUM (FULL) pg_catalog.pg_statistic, pg_catalog.pg_statistic_ext_data")
            if conn.info.server_version < _CLEARING_VERSION:
                skipped.append(_BEFORE_CLEARING)
            after = _asked(conn, _BYTES)
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(f"the tables cannot be rewritten: {reason(error)}; give the owner's URL") from error
    except psycopg.Error as error:
        raise DatabaseError(f"the tables cannot be rewritten: {reason(error)}") from error
    segments = None
    if data_dir is not None:
        segments = scrub.replace_log(data_dir)
        (data_dir / _MARK).write_text(now.isoformat())
    on_progress(len(tables) + 1, len(tables) + 1)
    left = _OPERATOR if data_dir is None else _OWNER_OF_FILES
    names = [name if schema == "whence" else f"{schema}.{name}" for schema, name in tables]
    return Purged(names, before, after, segments, (*skipped, *left))


def _rewrite(conn: Connection, tables: list[tuple[str, str]], on_progress: Progress, lock_seconds: int) -> None:
    conn.execute(sql.SQL("SET lock_timeout = {}").format(f"{lock_seconds}s"))
    try:
        for done, table in enumerate(tables):
            on_progress(done, len(tables) + 1)
            _drop_samples(conn, table)
            conn.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(*table)))
    except psycopg.errors.LockNotAvailable as error:
        raise Unavailable("a table is in use without end: stop what uses it, and purge again") from error


def _drop_samples(conn: Connection, table: tuple[str, str]) -> None:
    values = {"table": ".".join(table)}
    with conn.transaction():
        if conn.info.server_version >= _CLEARING_VERSION:
            conn.execute(_CLEAR, values)
        for schema, name, definition, target in conn.execute(_TOGETHER, values).fetchall():
            made = sql.Identifier(schema, name)
            conn.execute(sql.SQL("DROP STATISTICS {}").format(made))
            conn.execute(definition)
            if target is not None:
                conn.execute(sql.SQL("ALTER STATISTICS {} SET STATISTICS {}").format(made, target))


def _asked(conn: Connection, statement: bytes) -> int:
    row = conn.execute(statement).fetchone()
    return row[0] if row else 0
