"""A transaction in one round trip: all of it or nothing, and the connection is good for the next one."""

import asyncio
import gc
import os
import struct
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg
import pytest
import uvloop

from conftest import Workspace
from whence.app import App
from whence.db import Database, Scope
from whence.db.embedded import EmbeddedServer
from whence.db.trip import MAX_KEPT, Said, Statement, Values
from whence.errors import Unavailable

SELECT = Statement("test_select", b"SELECT octet_length(%(data)s::bytea)::bigint, current_user::text")
BUMP = Statement(
    "test_bump",
    b"""UPDATE whence.workspace_heads SET last_position = last_position + 1
        WHERE workspace_id = %(workspace_id)s RETURNING last_position""",
)
DIVIDE = Statement("test_divide", b"SELECT 1 / %(number)s::bigint")
WHO = Statement("test_who", b"SELECT pg_backend_pid()::text")
SCOPE = Statement("test_scope", b"SELECT current_setting('app.workspace_id') || ' ' || current_setting('app.user_id')")
SLEEPER = Statement("test_sleeper", b'SELECT pg_sleep(%(seconds)s::float8)::text AS "the sleeper"')
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


async def test_connections_that_are_gone_leave_no_descriptor_behind(app: App, workspace: Workspace) -> None:
    given = values(workspace) | {"seconds": struct.pack("!d", 0.2)}
    scope, counts = Scope(workspace.workspace_id), list[int]()
    for _ in range(6):
        task = asyncio.create_task(app.database.one_trip(scope, [(SLEEP, given)]))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await app.database.one_trip(scope, [(BUMP, given)])
        del task
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    # The pool may open as many connections as it likes to have; each has a socket and its duplicate.
    assert counts[-1] <= counts[1] + 2, counts


async def test_a_connection_that_the_server_has_ended_keeps_nobody_busy(app: App, workspace: Workspace) -> None:
    scope, given = Scope(workspace.workspace_id), values(workspace)
    [row] = await app.database.one_trip(scope, [(WHO, given)])
    async with app.database.transaction(None) as tx:
        await tx.execute("SELECT pg_terminate_backend(%s)", (int(row.get_value(0, 0) or b""),))
    await asyncio.sleep(0.05)
    began = time.process_time()
    await asyncio.sleep(0.5)
    assert time.process_time() - began < 0.25, "the loop is told again and again that it can read"
    with pytest.raises(Unavailable):
        await app.database.one_trip(scope, [(BUMP, given)])
    await app.database.one_trip(scope, [(BUMP, given)])


async def test_who_waits_for_a_connection_gets_the_next_one(postgres: EmbeddedServer, workspace: Workspace) -> None:
    """It is not kept for a trip that may come."""
    given, scope = values(workspace), Scope(workspace.workspace_id)
    done: list[str] = []

    async def trip(name: str, seconds: float) -> None:
        await database.one_trip(scope, [(SLEEP, {**given, "seconds": struct.pack("!d", seconds)})])
        done.append(name)

    async with Database(postgres.app_conninfo, 2) as database:
        await asyncio.gather(trip("long", 1.5), trip("short", 0.1), trip("waits", 0.0))
    assert done == ["short", "waits", "long"]


async def test_where_one_connection_is_lost_the_one_that_is_kept_is_looked_at(
    postgres: EmbeddedServer, workspace: Workspace
) -> None:
    scope = Scope(workspace.workspace_id)
    given = {**values(workspace), "seconds": struct.pack("!d", 5.0)}
    async with Database(postgres.app_conninfo, 4) as database:
        running = asyncio.create_task(database.one_trip(scope, [(SLEEPER, given)]))
        await asyncio.sleep(0.2)
        [row] = await database.one_trip(scope, [(WHO, given)])
        async with database.transaction(None) as tx:
            await tx.execute("SELECT pg_terminate_backend(%s)", (int(row.get_value(0, 0) or b""),))
            await tx.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE pid <> pg_backend_pid() AND query LIKE '%%the sleeper%%'"""
            )
        with pytest.raises(Unavailable):
            await running
        await database.one_trip(scope, [(WHO, given)])


@pytest.mark.parametrize("first", [None, BUMP])
async def test_the_database_works_while_what_takes_a_while_is_made(
    postgres: EmbeddedServer, workspace: Workspace, first: Statement | None
) -> None:
    scope, given, seen = Scope(workspace.workspace_id), values(workspace), list[str]()
    said = "SET LOCAL app.workspace_id" if first is None else "UPDATE whence.workspace_heads"

    def made() -> Iterator[Said | None]:
        if first is not None:
            yield first, given
        yield None
        with psycopg.connect(postgres.app_conninfo, autocommit=True) as conn:
            deadline = time.monotonic() + 10
            while not seen and time.monotonic() < deadline:
                rows = conn.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchall()
                seen.extend(query for (query,) in rows if query.startswith(said))
        yield BUMP, given

    async with Database(postgres.app_conninfo, 2) as database:
        [row] = await database.one_trip(scope, [(WHO, given)])
        pid = int(row.get_value(0, 0) or b"")
        *_, row = await database.one_trip(scope, made())
    assert int.from_bytes(row.get_value(0, 0) or b"") == (1 if first is None else 2)
    assert seen, "nothing was sent before the statements were made"


async def test_a_trip_of_which_the_rest_does_not_come_is_ended_by_the_database(
    postgres: EmbeddedServer, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or others would wait for its locks as long as this process stands still."""
    monkeypatch.setattr("whence.db.STALLED_SECONDS", 0.5)
    scope, given, left = Scope(workspace.workspace_id), values(workspace), [1]

    def made() -> Iterator[Said | None]:
        yield BUMP, given
        yield None
        deadline = time.monotonic() + 30
        with psycopg.connect(postgres.app_conninfo, autocommit=True) as conn:
            while left != [0] and time.monotonic() < deadline:
                row = conn.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone()
                left[:] = row or ()
        yield BUMP, given

    async with Database(postgres.app_conninfo, 2) as database:
        [row] = await database.one_trip(scope, [(WHO, given)])
        pid = int(row.get_value(0, 0) or b"")
        with pytest.raises(Unavailable):
            await database.one_trip(scope, made())
        assert left == [0]
        [row] = await database.one_trip(scope, [(BUMP, given)])
    assert int.from_bytes(row.get_value(0, 0) or b"") == 1


async def test_statements_that_cannot_be_made_leave_the_connections_usable(app: App, workspace: Workspace) -> None:
    scope, given = Scope(workspace.workspace_id), values(workspace)

    def made() -> Iterator[Said]:
        yield BUMP, given
        raise ValueError("one of them is not to be had")

    for _ in range(20):
        with pytest.raises(ValueError, match="not to be had"):
            await app.database.one_trip(scope, made())
    await app.database.one_trip(scope, [(BUMP, given)])
    assert await app.ledger.heads.read(workspace.workspace_id) == 1


async def test_scopes_that_begin_alike_are_told_apart_however_many_there_are(
    postgres: EmbeddedServer, workspace: Workspace
) -> None:
    """The database tells names of what is prepared apart by their first 63 bytes."""
    async with Database(postgres.app_conninfo, 2) as database:
        for _ in range(2):
            for number in range(MAX_KEPT + 20):
                scope = Scope("w-" + "x" * 80 + str(number), f"u'{number}")
                [row] = await database.one_trip(scope, [(SCOPE, {})])
                assert row.get_value(0, 0) == f"{scope.workspace_id} {scope.user_id}".encode()


async def test_what_was_not_prepared_because_of_a_failure_is_prepared_later(
    postgres: EmbeddedServer, workspace: Workspace
) -> None:
    scope, given = Scope(workspace.workspace_id), values(workspace)
    wrong = Statement("test_wrong", b"SELECT nothing FROM whence.nowhere")
    async with Database(postgres.app_conninfo, 2) as database:
        for _ in range(3):
            with pytest.raises(psycopg.errors.UndefinedTable):
                await database.one_trip(scope, [(wrong, given), (DIVIDE, given), (BUMP, given)])
        with pytest.raises(psycopg.errors.DivisionByZero):
            await database.one_trip(scope, [(DIVIDE, given), (BUMP, given)])
        [row] = await database.one_trip(scope, [(BUMP, given)])
    assert int.from_bytes(row.get_value(0, 0) or b"") == 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_server_that_dies_with_its_farewell_said_is_noticed(
    postgres: EmbeddedServer, workspace: Workspace, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """With what it was sent unread, so that the socket is in error: uvloop tells that once."""
    scope = Scope(workspace.workspace_id)
    given = {**values(workspace), "seconds": struct.pack("!d", 60.0), "data": b"x" * (64 << 10)}

    async def killed() -> None:
        async with Database(postgres.app_conninfo, 2) as database:
            for _ in range(8):
                [row] = await database.one_trip(scope, [(WHO, given)])
                trip = asyncio.create_task(database.one_trip(scope, [(SLEEP, given), (SELECT, given)]))
                await asyncio.sleep(0.1)
                with psycopg.connect(postgres.app_conninfo, autocommit=True) as conn:
                    conn.execute("SELECT pg_terminate_backend(%s)", (int(row.get_value(0, 0) or b""),))
                with pytest.raises(Unavailable):
                    await asyncio.wait_for(trip, 20)

    run(killed())


async def test_who_gives_up_while_a_connection_is_handed_over_is_heard(app: App, workspace: Workspace) -> None:
    """In whichever turn of the loop that is; and every connection comes back."""
    scope, given = Scope(workspace.workspace_id), values(workspace)

    async with Database(app.database._pool.conninfo, 2) as database:

        async def hold() -> list[Any]:
            return await database.one_trip(scope, [(SLEEP, {**given, "seconds": struct.pack("!d", 0.02)})])

        given_up = 0
        for turns in range(60):
            holding = [asyncio.create_task(hold()) for _ in range(2)]
            asking = asyncio.create_task(database.one_trip(scope, [(WHO, given)]))
            await asyncio.wait(holding[:1])
            for _ in range(turns % 6):
                await asyncio.sleep(0)
            if asking.done():
                continue
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            given_up += 1
            await asyncio.gather(*holding)
        await asyncio.gather(*(hold() for _ in range(4)))
    assert given_up > 0


async def test_a_trip_that_is_given_up_half_sent_leaves_no_backend_behind(
    postgres: EmbeddedServer, workspace: Workspace
) -> None:
    """Even while somebody holds on to what it raised."""
    scope, given = Scope(workspace.workspace_id), values(workspace)
    async with Database(postgres.app_conninfo, 2) as database:
        [row] = await database.one_trip(scope, [(WHO, given)])
        pid = int(row.get_value(0, 0) or b"")
        sleeping = {**given, "seconds": struct.pack("!d", 1.0), "data": b"x" * (32 << 20)}
        trip = asyncio.create_task(database.one_trip(scope, [(BUMP, given), (SLEEP, sleeping), (SELECT, sleeping)]))
        await asyncio.sleep(0.3)
        trip.cancel()
        with pytest.raises(asyncio.CancelledError) as held:
            await trip
        with psycopg.connect(postgres.app_conninfo, autocommit=True) as conn:
            deadline = time.monotonic() + 20
            while conn.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is not None:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        assert held.value is not None


async def test_a_connection_on_which_nothing_is_prepared_any_more_is_replaced(
    postgres: EmbeddedServer, workspace: Workspace
) -> None:
    scope, given = Scope(workspace.workspace_id), values(workspace)
    async with Database(postgres.app_conninfo, 2) as database:
        for _ in range(3):
            await database.one_trip(scope, [(BUMP, given)])
            with pytest.raises(Unavailable) as failed:
                await database.one_trip(scope, [(Statement("test_forget", b"DEALLOCATE ALL"), {})])
            assert isinstance(failed.value.__cause__, psycopg.errors.InvalidSqlStatementName)
        [row] = await database.one_trip(scope, [(BUMP, given)])
    assert int.from_bytes(row.get_value(0, 0) or b"") == 4


async def test_an_error_of_the_database_while_statements_are_made_is_told_as_it_is(
    app: App, workspace: Workspace
) -> None:
    def made() -> Iterator[Said]:
        yield BUMP, values(workspace)
        raise psycopg.DataError("one of them is not to be had")

    with pytest.raises(psycopg.DataError, match="not to be had"):
        await app.database.one_trip(Scope(workspace.workspace_id), made())
    assert await app.ledger.heads.read(workspace.workspace_id) == 0


async def test_no_user_is_named_in_what_is_prepared(postgres: EmbeddedServer, workspace: Workspace) -> None:
    prepared = Statement("test_prepared", b"SELECT string_agg(statement, ' ') FROM pg_prepared_statements")
    async with Database(postgres.app_conninfo, 2) as database:
        await database.one_trip(Scope(workspace.workspace_id, "ann-the-user"), [(SCOPE, {})])
        [row] = await database.one_trip(Scope(workspace.workspace_id), [(prepared, {})])
    said = (row.get_value(0, 0) or b"").decode()
    assert workspace.workspace_id in said
    assert "ann-the-user" not in said


def test_parameters_are_numbered_by_their_first_use() -> None:
    statement = Statement("x", b"SELECT %(b)s, %(a)b, %(b)s")
    assert statement.parameters == ("b", "a")
    assert statement.sql == b"SELECT $1, $2, $1"
