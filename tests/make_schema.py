"""Writes schema.sql: what the migrations make, as Postgres itself tells it. `make schema` runs this."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from whence.db import embedded
from whence.db.migrate import migrate

SCHEMA = Path(embedded.__file__).parent / "schema.sql"
# Lines that change from run to run or from one minor version to the next.
_PASSING = re.compile(r"^(--.*|\\(un)?restrict .*|SET .*;|SELECT pg_catalog\.set_config.*;)\n", re.MULTILINE)


def dump(owner_conninfo: str) -> str:
    """The schema of a migrated database, in a form that only a change of the schema changes."""
    password = str(conninfo_to_dict(owner_conninfo)["password"])
    command = [embedded.binary("pg_dump"), "--schema-only", "--schema=whence", owner_conninfo]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PGPASSWORD": password}
    )
    return re.sub(r"\n{3,}", "\n\n", _PASSING.sub("", done.stdout)).strip() + "\n"


def fresh_dump() -> str:
    with tempfile.TemporaryDirectory() as folder, embedded.start(Path(folder) / "data") as server:
        migrate(server.owner_conninfo)
        return dump(server.owner_conninfo)


if __name__ == "__main__":
    SCHEMA.write_text("-- Made by `make schema` from the migrations; a test compares it with them.\n\n" + fresh_dump())
