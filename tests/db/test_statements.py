"""Every statement of every queries.sql is one that Postgres accepts against the schema as it is."""

import re
from pathlib import Path

import pytest
from psycopg import Connection

import whence
from whence.db.arrays import taking_once
from whence.db.embedded import EmbeddedServer
from whence.db.queries import load
from whence.db.trip import Statement
from whence.langgraph.tables import set_up
from whence.ledger.append import _ALL_ALIKE

_PLACEHOLDER = re.compile(rb"%\((\w+)\)[sbt]")
_SOURCE = Path(whence.__file__).parent
_PACKAGES = sorted(
    ".".join(("whence", *path.parent.relative_to(_SOURCE).parts)) for path in _SOURCE.rglob("queries.sql")
)
_STATEMENTS = [(package, name) for package in _PACKAGES for name in load(package)]


def numbered(statement: bytes) -> bytes:
    """The statement with `$1`, `$2`, … as PREPARE wants them."""
    names: list[bytes] = []

    def number(found: re.Match[bytes]) -> bytes:
        if found[1] not in names:
            names.append(found[1])
        return b"$%d" % (names.index(found[1]) + 1)

    return _PLACEHOLDER.sub(number, statement)


@pytest.fixture(scope="module", autouse=True)
async def tables_of_langgraph(postgres: EmbeddedServer) -> None:
    """Made by its own set-up, and by no migration."""
    await set_up(postgres.app_conninfo, postgres.owner_conninfo)


@pytest.mark.parametrize(("package", "name"), _STATEMENTS)
def test_statement_can_be_prepared(owner: Connection, package: str, name: str) -> None:
    owner.execute("SET ROLE whence_workspace")
    if name in {"installation_kek", "set_installation_kek"}:
        owner.execute("SET ROLE whence_app")
    if package == "whence.queue" and name not in {"defer_own", "own"}:
        owner.execute("SET ROLE whence_worker")
        owner.execute("SET search_path = whence_jobs")
    if name == "become_eraser":
        # Takes no parameters, and cannot be prepared.
        owner.execute("RESET ROLE")
        owner.execute(load(package)[name])
        return
    owner.execute(b"PREPARE s AS " + numbered(load(package)[name]))


@pytest.mark.parametrize("name", ["append", "append_sealed", "remember_plain"])
def test_statement_for_one_row_can_be_prepared(owner: Connection, name: str) -> None:
    owner.execute("SET ROLE whence_workspace")
    statement = taking_once(load("whence.ledger")[name])
    assert b"[]" in load("whence.ledger")[name]
    assert b"unnest" not in statement
    owner.execute(b"PREPARE s AS " + numbered(statement))


@pytest.mark.parametrize("statement", vars(_ALL_ALIKE).values(), ids=vars(_ALL_ALIKE))
def test_statement_for_rows_that_are_alike_can_be_prepared(owner: Connection, statement: Statement) -> None:
    owner.execute("SET ROLE whence_workspace")
    owner.execute(b"PREPARE s AS " + statement.sql)
