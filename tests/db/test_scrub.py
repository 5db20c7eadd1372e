"""The write-ahead log of an embedded database is replaced, with what was kept of it for later."""

from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from whence.db import embedded, scrub


def segments_with(data_dir: Path, mark: str) -> list[str]:
    folder = data_dir / "pgdata" / "pg_wal"
    return sorted(path.name for path in folder.iterdir() if path.is_file() and mark.encode() in path.read_bytes())


def test_no_segment_is_left_that_was_there_before_nor_one_that_was_kept_to_be_written_over(tmp_path: Path) -> None:
    data_dir, mark = tmp_path / "data", f"mark-{uuid4()}"
    with embedded.start(data_dir) as server:
        password = (data_dir / f"{embedded.SUPERUSER}.password").read_text()
        login = make_conninfo(server.app_conninfo, user=embedded.SUPERUSER, password=password)
        with psycopg.connect(login, autocommit=True) as conn:
            for _ in range(6):
                conn.execute("SELECT pg_logical_emit_message(false, 'test', %s)", (mark,))
                conn.execute("SELECT pg_switch_wal()")
            conn.execute("CHECKPOINT")
            row = conn.execute("SELECT pg_walfile_name(pg_current_wal_lsn())").fetchone()
            current = row[0] if row else ""
            assert [name for name in segments_with(data_dir, mark) if name > current], "none was kept for later"
            assert scrub.replace_log(data_dir) > 1
            assert segments_with(data_dir, mark) == []
            assert conn.execute("SELECT setting FROM pg_file_settings WHERE name = 'wal_recycle'").fetchall() == []
