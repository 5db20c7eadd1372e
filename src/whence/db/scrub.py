"""What only the superuser of the embedded database can do for a purge: see who still reads, and replace the log.

The write-ahead log repeats every row that was ever written. A segment that a checkpoint needs no more is removed or,
to save the making of a new one, renamed to be written over later, and until then keeps what is in it.
"""

import time
from pathlib import Path

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from whence.db.embedded import SUPERUSER, start
from whence.errors import DatabaseError, Unavailable

OLD_TRANSACTIONS_SECONDS = 60.0
SCRUB_POLL_SECONDS = 0.1
RELOAD_SECONDS = 10.0

_SEGMENTS = b"SELECT name FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"
_OLD = b"""
SELECT count(*) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_xmin IS NOT NULL AND xact_start < %s
"""


def wait_for_old_transactions(data_dir: Path) -> None:
    """A row that somebody can still see is copied when its table is rewritten."""
    with start(data_dir) as server, _superuser(data_dir, server.app_conninfo) as conn:
        began = conn.execute("SELECT clock_timestamp()").fetchone()
        deadline = time.monotonic() + OLD_TRANSACTIONS_SECONDS
        while conn.execute(_OLD, began).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise Unavailable("a transaction that began earlier has not ended: purge again when it has")
            time.sleep(SCRUB_POLL_SECONDS)


def replace_log(data_dir: Path) -> int:
    """Writes on until every segment that is there now has been left behind and removed; returns how many those were."""
    with start(data_dir) as server, _superuser(data_dir, server.app_conninfo) as conn:
        _set_recycling(data_dir, server.app_conninfo, conn, "off")
        try:
            conn.execute("CHECKPOINT")
            stale = _segments(conn)
            # Each round leaves one segment; some may have been kept for later, before recycling was switched off.
            for _ in range(len(stale) + 2):
                conn.execute("SELECT pg_create_restore_point('whence purge')")
                conn.execute("SELECT pg_switch_wal()")
                conn.execute("CHECKPOINT")
                if not stale & _segments(conn):
                    return len(stale)
        finally:
            _set_recycling(data_dir, server.app_conninfo, conn, "on")
    raise DatabaseError("the write-ahead log is kept, perhaps for a replica or an archive: see pg_replication_slots")


def _superuser(data_dir: Path, app_conninfo: str) -> Connection:
    password = (data_dir / f"{SUPERUSER}.password").read_text()
    return psycopg.connect(make_conninfo(app_conninfo, user=SUPERUSER, password=password), autocommit=True)


def _segments(conn: Connection) -> set[str]:
    return {row[0] for row in conn.execute(_SEGMENTS).fetchall()}


def _set_recycling(data_dir: Path, app_conninfo: str, conn: Connection, wanted: str) -> None:
    """A session that begins after the server has read its settings again shows the new one, and by then the process
    that makes checkpoints has been told as well."""
    conn.execute("ALTER SYSTEM SET wal_recycle = off" if wanted == "off" else "ALTER SYSTEM RESET wal_recycle")
    conn.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + RELOAD_SECONDS
    while True:
        with _superuser(data_dir, app_conninfo) as fresh:
            if fresh.execute("SHOW wal_recycle").fetchone() == (wanted,):
                return
        if time.monotonic() > deadline:
            raise DatabaseError("the embedded database does not take up its settings")
        time.sleep(SCRUB_POLL_SECONDS)
