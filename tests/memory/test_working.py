"""Working memory: what was put is there until it expires, within the budget, and nobody else's to see."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import Connection, connect, sql

from conftest import Workspace
from whence.app import App
from whence.clock import system_clock
from whence.db import Scope, embedded
from whence.errors import InvalidInput, NotFound, TooLarge
from whence.memory import working as module
from whence.memory.working import DEFAULT_TTL_S, MAX_INSTANCE_BYTES, MAX_TTL_S, Working
from whence.wire import WorkingStored


class Time:
    """Starts now, because the worker of a served Whence on the same database sweeps by the time that it really is."""

    def __init__(self) -> None:
        self.now = system_clock()

    def __call__(self) -> datetime:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def working(app: App, time: Time) -> Working:
    return Working(app.database, time)


@pytest.fixture
def scope(workspace: Workspace) -> Scope:
    return Scope(workspace.workspace_id, "ann")


async def put(working: Working, scope: Scope, key: str = "k", value: bytes = b"1", **rest: Any) -> WorkingStored:
    return await working.put(scope, "planner", "run-7", key, value, **rest)


async def value_of(working: Working, scope: Scope, key: str = "k") -> bytes:
    return bytes((await working.get(scope, "planner", "run-7", key)).value)


async def keys_of(working: Working, scope: Scope) -> list[str]:
    return [item.key for item in (await working.keys(scope, "planner", "run-7")).keys]


def text(size: int) -> bytes:
    """A JSON value of so many bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b"false",
        b'""',
        b'{"draft": ["a", {"b": null}], "draft": 2}',
        b"123456789012345678901234567890.12345678901234567890",
        b'"\\u0000 \\ud83d\\ude00 \\/"',
        '"žluťoučký 👩\u200d🚀 \u2028"'.encode(),
        b'{\n  "spaced" : 1.0\n}',
    ],
)
async def test_any_json_comes_back_as_it_was_put(working: Working, scope: Scope, value: bytes) -> None:
    await put(working, scope, value=value)
    assert await value_of(working, scope) == value


async def test_a_put_replaces_what_was_there_and_counts_only_the_new(working: Working, scope: Scope) -> None:
    first = await put(working, scope, value=text(100_000))
    assert (first.bytes, first.bytes_left) == (100_001, MAX_INSTANCE_BYTES - 100_001)
    second = await put(working, scope, value=text(MAX_INSTANCE_BYTES - 1))
    assert (second.bytes, second.bytes_left) == (MAX_INSTANCE_BYTES, 0)
    assert len(await value_of(working, scope)) == MAX_INSTANCE_BYTES - 1
    third = await put(working, scope, value=b"1")
    assert (third.bytes, third.bytes_left) == (2, MAX_INSTANCE_BYTES - 2)


async def test_keys_are_listed_in_order_with_what_they_count_for(working: Working, scope: Scope, time: Time) -> None:
    assert (await working.keys(scope, "planner", "run-7")).keys == []
    await put(working, scope, "b", b"[1]", ttl_s=60)
    time.passes(1)
    await put(working, scope, "ä", b"2")
    found = await working.keys(scope, "planner", "run-7")
    assert sorted((item.key, item.bytes) for item in found.keys) == [("b", 4), ("ä", 3)]
    assert (found.bytes, found.bytes_left) == (7, MAX_INSTANCE_BYTES - 7)
    by_key = {item.key: item for item in found.keys}
    assert by_key["b"].expires_at - by_key["b"].updated_at == timedelta(seconds=60)
    assert by_key["ä"].updated_at == time.now


async def test_a_key_is_gone_at_the_moment_it_expires_and_makes_room(
    working: Working, scope: Scope, time: Time
) -> None:
    stored = await put(working, scope, "short", text(MAX_INSTANCE_BYTES - 100), ttl_s=60)
    assert stored.expires_at == time.now + timedelta(seconds=60)
    usual = await put(working, scope, "usual")
    assert usual.expires_at == time.now + timedelta(seconds=DEFAULT_TTL_S)
    time.passes(59.999_999)
    assert await keys_of(working, scope) == ["short", "usual"]
    time.passes(0.000_001)
    assert await keys_of(working, scope) == ["usual"]
    for gone in (working.get, working.delete):
        with pytest.raises(NotFound, match="there is no such key, or it has expired"):
            await gone(scope, "planner", "run-7", "short")
    assert (await put(working, scope, "large", text(100_000))).bytes_left == MAX_INSTANCE_BYTES - 100_005 - 6
    await put(working, scope, "short", b"2")
    assert await value_of(working, scope, "short") == b"2"


async def test_a_put_again_renews_the_time(working: Working, scope: Scope, time: Time) -> None:
    await put(working, scope, ttl_s=60)
    time.passes(50)
    await put(working, scope, ttl_s=60)
    time.passes(50)
    assert await value_of(working, scope) == b"1"


async def test_what_does_not_fit_is_refused_with_the_numbers_and_changes_nothing(
    working: Working, scope: Scope
) -> None:
    await put(working, scope, "a", text(100_000))
    await put(working, scope, "b", b'"old"')
    left = MAX_INSTANCE_BYTES - 100_001
    with pytest.raises(TooLarge) as refused:
        await put(working, scope, "b", text(left))
    assert refused.value.detail == (
        f"value: takes {left + 1:,} bytes with its key, and {left:,} of 131,072 are left in this instance:"
        " its other keys take 100,001"
    )
    assert [item.field for item in refused.value.errors] == ["value"]
    assert await value_of(working, scope, "b") == b'"old"'
    assert (await put(working, scope, "b", text(left - 1))).bytes_left == 0
    with pytest.raises(TooLarge, match="takes 2 bytes with its key, and 0 of 131,072 are left"):
        await put(working, scope, "c")


async def test_a_value_larger_than_any_instance_is_refused_before_it_travels(working: Working, scope: Scope) -> None:
    with pytest.raises(TooLarge, match="takes 131,073 bytes with its key, and an instance holds 131,072"):
        await put(working, scope, value=text(MAX_INSTANCE_BYTES))
    with pytest.raises(TooLarge):
        await put(working, scope, value=b"not JSON" * 100_000)


async def test_each_instance_and_each_owner_has_a_budget_of_its_own(working: Working, scope: Scope) -> None:
    full = text(MAX_INSTANCE_BYTES - 1)
    everyone = (scope, Scope(scope.workspace_id, "bob"), Scope(scope.workspace_id))
    for whose in everyone:
        for agent, instance in (("a", "bc"), ("ab", "c"), ("a", "b")):
            assert (await working.put(whose, agent, instance, "k", full)).bytes_left == 0


# Two at once


@pytest.fixture
def sessions(postgres: embedded.EmbeddedServer, scope: Scope) -> Iterator[list[Connection]]:
    """Two raw sessions in the scope of the user, each in a transaction of its own."""
    with connect(postgres.app_conninfo) as first, connect(postgres.app_conninfo) as second:
        for conn in (first, second):
            conn.execute(sql.SQL("SET app.workspace_id = {}").format(scope.workspace_id))
            conn.execute(sql.SQL("SET app.user_id = {}").format(str(scope.user_id)))
            conn.commit()
        yield [first, second]


def put_raw(conn: Connection, scope: Scope, key: str, value: bytes, time: Time) -> Any:
    given = (scope.workspace_id, scope.user_id, "planner", "run-7", key, value.decode(), MAX_INSTANCE_BYTES)
    until = time.now + timedelta(seconds=60)
    statement = "SELECT stored, taken FROM whence.working_put(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
    return conn.execute(statement, (*given, time.now, until)).fetchone()


async def test_a_writer_waits_for_the_one_before_it_and_then_counts_what_that_one_wrote(
    working: Working, scope: Scope, time: Time, sessions: list[Connection]
) -> None:
    first, second = sessions
    assert put_raw(first, scope, "a", text(80_000), time) == (True, 0)
    waiting = asyncio.create_task(asyncio.to_thread(put_raw, second, scope, "b", text(80_000), time))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    first.commit()
    assert await waiting == (False, 80_001)
    second.rollback()
    assert await keys_of(working, scope) == ["a"]


async def test_a_writer_takes_the_room_of_one_that_rolled_back(
    working: Working, scope: Scope, time: Time, sessions: list[Connection]
) -> None:
    first, second = sessions
    put_raw(first, scope, "a", text(80_000), time)
    waiting = asyncio.create_task(asyncio.to_thread(put_raw, second, scope, "b", text(80_000), time))
    await asyncio.sleep(0.1)
    first.rollback()
    assert await waiting == (True, 0)
    second.commit()
    assert await keys_of(working, scope) == ["b"]


async def test_writers_of_other_instances_do_not_wait(
    working: Working, scope: Scope, time: Time, sessions: list[Connection]
) -> None:
    put_raw(sessions[0], scope, "a", b"1", time)
    async with asyncio.timeout(5):
        await working.put(scope, "planner", "run-8", "a", b"1")
        await working.put(Scope(scope.workspace_id, "bob"), "planner", "run-7", "a", b"1")
    sessions[0].rollback()


async def test_many_writers_at_once_fill_the_budget_and_never_pass_it(working: Working, scope: Scope) -> None:
    tries = await asyncio.gather(
        *(put(working, scope, f"k{n:02}", text(9_997)) for n in range(40)), return_exceptions=True
    )
    stored = [one for one in tries if isinstance(one, WorkingStored)]
    assert len(stored) == MAX_INSTANCE_BYTES // 10_000
    assert all(isinstance(one, TooLarge) for one in tries if one not in stored)
    assert (await working.keys(scope, "planner", "run-7")).bytes == 130_000
    assert sorted(one.bytes_left for one in stored) == [1_072 + 10_000 * n for n in range(13)]


# Whose it is


async def test_what_one_put_the_others_do_not_have(working: Working, workspace: Workspace) -> None:
    ann, bob, admin = (Scope(workspace.workspace_id, user) for user in ("ann", "bob", None))
    elsewhere = Scope(f"{workspace.workspace_id}-b", "ann")
    await put(working, ann, value=b'"of ann"')
    for other in (bob, admin, elsewhere):
        with pytest.raises(NotFound):
            await value_of(working, other)
        with pytest.raises(NotFound):
            await working.delete(other, "planner", "run-7", "k")
        assert await keys_of(working, other) == []
    await put(working, bob, value=b'"of bob"')
    await put(working, admin, value=b'"of the workspace"')
    await working.delete(bob, "planner", "run-7", "k")
    assert await value_of(working, ann) == b'"of ann"'
    assert await value_of(working, admin) == b'"of the workspace"'


async def test_the_database_keeps_users_from_writing_for_each_other_even_without_a_filter(
    working: Working, scope: Scope, time: Time, sessions: list[Connection]
) -> None:
    await put(working, scope, value=b'"of ann"')
    await put(working, Scope(scope.workspace_id), value=b'"of the workspace"')
    session = sessions[0]
    session.execute("SET app.user_id = 'bob'")
    session.commit()
    assert session.execute("UPDATE whence.working_memory SET value = '0'").rowcount == 0
    assert session.execute("DELETE FROM whence.working_memory").rowcount == 0
    for whose in (scope, Scope(scope.workspace_id)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            put_raw(session, whose, "planted", b"1", time)
        session.rollback()
    assert await value_of(working, scope) == b'"of ann"'


async def test_a_worker_sees_when_entries_expire_and_neither_whose_nor_what(
    working: Working, scope: Scope, raw_app: Connection
) -> None:
    await put(working, scope)
    raw_app.execute("SET ROLE whence_worker")
    assert raw_app.execute("SELECT workspace_id, expires_at FROM whence.working_memory").fetchall()
    for column in ("user_id", "owner", "agent", "instance", "key", "value", "bytes", "*"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw_app.execute(f"SELECT {column} FROM whence.working_memory".encode())


async def test_nothing_of_it_is_in_the_ledger(app: App, working: Working, workspace: Workspace) -> None:
    await put(working, workspace.admin.scope)
    await working.delete(workspace.admin.scope, "planner", "run-7", "k")
    assert await app.ledger.heads.read(workspace.workspace_id) == 0


# What is taken


async def test_names_may_be_as_long_as_they_may_be_all_at_once(working: Working, workspace: Workspace) -> None:
    wide = "".join(chr(0x1F300 + n) for n in range(256))
    scope = Scope(workspace.workspace_id, wide)
    await working.put(scope, wide, wide[::-1], wide, b"1")
    assert bytes((await working.get(scope, wide, wide[::-1], wide)).value) == b"1"
    assert [item.key for item in (await working.keys(scope, wide, wide[::-1])).keys] == [wide]


@pytest.mark.parametrize("name", ["", "x" * 257, "a\x00b", "half \ud83d"])
async def test_names_that_cannot_be_stored_are_refused_by_their_field(
    working: Working, scope: Scope, name: str
) -> None:
    for field, names in (("agent", (name, "i", "k")), ("instance", ("a", name, "k")), ("key", ("a", "i", name))):
        for verb in (working.get(scope, *names), working.delete(scope, *names), working.put(scope, *names, b"1")):
            with pytest.raises(InvalidInput) as refused:
                await verb
            assert [item.field for item in refused.value.errors] == [field]
    with pytest.raises(InvalidInput):
        await working.keys(scope, name, "i")


@pytest.mark.parametrize(
    "value", [b"", b"hello", b"{", b"[1,]", b"NaN", b'"\xff"', b'"\\ud800"', b"1 2", b'"\x00"', b"\xef\xbb\xbf1"]
)
async def test_what_is_not_json_is_refused(working: Working, scope: Scope, value: bytes) -> None:
    with pytest.raises(InvalidInput, match="value: is not valid JSON"):
        await put(working, scope, value=value)
    assert await keys_of(working, scope) == []


async def test_json_that_is_nested_too_deeply_is_refused(working: Working, scope: Scope) -> None:
    with pytest.raises(InvalidInput, match="value: is nested too deeply"):
        await put(working, scope, value=b"[" * 60_000 + b"]" * 60_000)


@pytest.mark.parametrize("ttl_s", [-1, 0, MAX_TTL_S + 1, 10**30])
async def test_a_time_out_of_bounds_is_refused(working: Working, scope: Scope, ttl_s: int) -> None:
    with pytest.raises(InvalidInput, match="ttl_s: from 1 to 2,592,000 seconds"):
        await put(working, scope, ttl_s=ttl_s)


# The sweep


def stored_rows(owner: Connection, scope: Scope) -> list[str]:
    """What is in the table, expired or not."""
    with owner.transaction():
        owner.execute("SET LOCAL ROLE whence_workspace")
        owner.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(scope.workspace_id))
        return [row[0] for row in owner.execute("SELECT key FROM whence.working_memory ORDER BY key").fetchall()]


async def test_the_sweep_removes_what_has_expired_of_everybody_and_nothing_else(
    working: Working, scope: Scope, time: Time, owner: Connection
) -> None:
    await put(working, scope, "a", ttl_s=60)
    await put(working, Scope(scope.workspace_id), "b", ttl_s=60)
    await put(working, scope, "c", ttl_s=120)
    assert scope.workspace_id not in await working.due()
    assert await working.sweep(scope.workspace_id) == 0
    time.passes(60)
    assert stored_rows(owner, scope) == ["a", "b", "c"]
    assert scope.workspace_id in await working.due()
    assert await working.sweep(scope.workspace_id) == 2
    assert stored_rows(owner, scope) == ["c"]
    assert scope.workspace_id not in await working.due()


async def test_a_sweep_is_bounded_and_takes_the_longest_expired_first(
    working: Working, scope: Scope, time: Time, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, ttl_s in (("second", 70), ("first", 60), ("third", 80)):
        await put(working, scope, key, ttl_s=ttl_s)
    monkeypatch.setattr(module, "SWEEP_ROWS", 2)
    time.passes(100)
    assert await working.sweep(scope.workspace_id) == 2
    assert stored_rows(owner, scope) == ["third"]
    assert await working.sweep(scope.workspace_id) == 1


async def test_a_sweep_passes_over_what_is_being_written_and_keeps_what_was(
    working: Working, scope: Scope, time: Time, owner: Connection, sessions: list[Connection]
) -> None:
    await put(working, scope, "again", ttl_s=60)
    await put(working, scope, "gone", ttl_s=60)
    time.passes(60)
    put_raw(sessions[0], scope, "again", b"2", time)
    async with asyncio.timeout(5):
        assert await working.sweep(scope.workspace_id) == 1
    sessions[0].commit()
    assert await working.sweep(scope.workspace_id) == 0
    assert await value_of(working, scope, "again") == b"2"


async def test_a_put_over_what_is_being_swept_waits_and_is_stored(
    working: Working, scope: Scope, time: Time, sessions: list[Connection]
) -> None:
    await put(working, scope, ttl_s=60)
    time.passes(60)
    sweeping, writing = sessions
    sweeping.execute("DELETE FROM whence.working_memory")
    waiting = asyncio.create_task(asyncio.to_thread(put_raw, writing, scope, "k", b"2", time))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    sweeping.commit()
    assert await waiting == (True, 0)
    writing.commit()
    assert await value_of(working, scope) == b"2"
