"""A transaction in one round trip: all of it or nothing, and the connection is good for the next one."""

import asyncio
import struct

import psycopg
import pytest

from conftest import Workspace
from whence.app import App
from whence.db import Scope
from whence.db.trip import Statement, Values

SELECT = Statement("test_select", b"SELECT octet_length(%(data)s::bytea)::bigint, current_user::text")
BUMP = Statement(
    "test_bump",
    b"""UPDATE whence.workspace_heads SET last_position = last_position + 1
        WHERE workspace_id = %(workspace_id)s RETURNING last_position""",
)
DIVIDE = Statement("test_divide", b"SELECT 1 / %(number)s::bigint")
SLEEP = Statement("test_sleep", b"SELECT pg_sleep(%(seconds)s::float8)::text")


def values(workspace: Workspace) -> Values:
    return {"workspace_id": workspace.workspace_id.encode(), "number": (0).to_bytes(8), "data": b"x" * (8 << 20)}


async def test_what_is_larger_than_the_sockets_buffer_arrives_whole_and_in_the_scope(
    app: App, workspace: Workspace
) -> None:
    for _ in range(2):
        [row] = await app.database.one_trip(Scope(workspace.workspace_id), [(SELECT, values(workspace))])
        assert int.from_bytes(row.get_value(0, 0) or b"") == 8 << 20
        assert row.get_value(0, 1) == b"whence_workspace"


async def test_it_is_committed_when_it_returns(app: App, workspace: Workspace) -> None:
    given = values(workspace)
    rows = await app.database.one_trip(Scope(workspace.workspace_id), [(BUMP, given), (BUMP, given)])
    assert [int.from_bytes(row.get_value(0, 0) or b"") for row in rows] == [1, 2]
    assert await app.ledger.heads.read(workspace.workspace_id) == 2


async def test_an_error_undoes_all_of_it_and_the_connection_goes_on(app: App, workspace: Workspace) -> None:
    given = values(workspace)
    scope = Scope(workspace.workspace_id)
    for _ in range(20):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await app.database.one_trip(scope, [(BUMP, given), (DIVIDE, given), (BUMP, given)])
    assert await app.ledger.heads.read(workspace.workspace_id) == 0
    await app.database.one_trip(scope, [(BUMP, given)])
    assert await app.ledger.heads.read(workspace.workspace_id) == 1


async def test_who_gives_up_in_the_middle_leaves_the_connections_usable(app: App, workspace: Workspace) -> None:
    """What was sent may be committed all the same: the database has all of it. Appends can be sent again."""
    given = values(workspace) | {"seconds": struct.pack("!d", 0.5)}
    scope = Scope(workspace.workspace_id)
    for _ in range(10):
        task = asyncio.create_task(app.database.one_trip(scope, [(BUMP, given), (SLEEP, given)]))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    rows = await app.database.one_trip(scope, [(BUMP, given)])
    assert 1 <= int.from_bytes(rows[0].get_value(0, 0) or b"") <= 11


def test_parameters_are_numbered_by_their_first_use() -> None:
    statement = Statement("x", b"SELECT %(b)s, %(a)b, %(b)s")
    assert statement.parameters == ("b", "a")
    assert statement.sql == b"SELECT $1, $2, $1"
