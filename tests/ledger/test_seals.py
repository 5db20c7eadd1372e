"""Seals: everything that was sealed can be proved, and nothing of it can be changed without being found."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql
from psycopg.rows import dict_row

from conftest import Workspace
from samples import event, new_id
from whence.app import App, open_app
from whence.db import Scope, Tx, embedded
from whence.db.migrate import migrate
from whence.errors import Damaged, InvalidInput, NotFound, NotSealed
from whence.ledger import seals as sealing
from whence.ledger.leaves import Leaf
from whence.ledger.seals import Seals
from whence.ledger.tree import add_seal
from whence.ledger.verify import MAX_DIFFERENCES, Expected, Verification
from whence.merkle import Log, leaf_hash, verify_consistency, verify_inclusion
from whence.settings import Settings
from whence.wire import Event, Measures, Seal

TABLES = ("events", "workspace_heads", "seals", "seal_tiles")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of its own: these tests lift constraints, which would wait for a worker, and it for them."""
    return tmp_path_factory.mktemp("seals") / "data"


@pytest.fixture(scope="module")
def postgres(data_dir: Path) -> Iterator[embedded.EmbeddedServer]:
    with embedded.start(data_dir) as server:
        migrate(server.owner_conninfo)
        yield server


@pytest.fixture(scope="module")
async def app(postgres: embedded.EmbeddedServer, data_dir: Path) -> AsyncIterator[App]:
    async with open_app(Settings(data_dir=data_dir)) as app:
        yield app


def full_event(**fields: Any) -> Event:
    """With something in every column."""
    given: dict[str, Any] = {
        "agent_id": "planner",
        "user_id": "ann",
        "subject_id": "carl",
        "parent_event_id": new_id(),
        "tool_name": 'über "tool" \\ \x01 \U0001f600',
        "payload_ref": "s3://bucket/key",
        "ended_at": datetime(2026, 1, 2, 3, 4, 6, 120_000, tzinfo=UTC),
        "status": "completed",
        "importance_hint": 5,
        "data_classification": "internal",
        "measures": Measures(model="m", input_tokens=5, finish_reasons=("stop", "length")),
    }
    return event({"text": "hello"}, **(given | fields))


async def fill(app: App, workspace: Workspace, count: int) -> list[Event]:
    """Full events and bare ones in turn."""
    events = [full_event() if n % 2 else event() for n in range(count)]
    for start in range(0, count, 1000):
        outcomes = await app.ledger.append(workspace.admin, events[start : start + 1000])
        assert {outcome.status for outcome in outcomes} == {"accepted"}
    return events


@contextmanager
def unwatched(owner: Connection) -> Iterator[None]:
    """The owner of the tables lifts their row-level security for a moment, and can then change anything."""
    with owner.transaction():
        for name in TABLES:
            owner.execute(sql.SQL("ALTER TABLE {} NO FORCE ROW LEVEL SECURITY").format(sql.Identifier("whence", name)))
        yield
        for name in TABLES:
            owner.execute(sql.SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY").format(sql.Identifier("whence", name)))


def tamper(owner: Connection, workspace: Workspace, *statements: str, **values: Any) -> None:
    with unwatched(owner):
        for statement in statements:
            done = owner.execute(statement.encode(), {"w": workspace.workspace_id, **values})
            assert done.rowcount > 0, statement


def rows_of(owner: Connection, workspace: Workspace) -> list[dict[str, Any]]:
    with unwatched(owner), owner.cursor(row_factory=dict_row) as cursor:
        query = "SELECT * FROM whence.events WHERE workspace_id = %s ORDER BY global_position"
        return cursor.execute(query, (workspace.workspace_id,)).fetchall()


def as_documented(row: dict[str, Any]) -> bytes:
    """A leaf as an auditor makes it, with nothing of ours."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if isinstance(value, uuid.UUID):
            return str(value)
        return value.hex() if isinstance(value, bytes) else value

    known = {name: plain(value) for name, value in row.items() if value is not None}
    return json.dumps(known, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def root_over(rows: list[dict[str, Any]]) -> bytes:
    log = Log()
    log.extend(leaf_hash(as_documented(row)) for row in rows)
    return log.root()


async def verified(app: App, workspace: Workspace, expect: Expected | None = None) -> Verification:
    return await app.ledger.seals.verify(workspace.workspace_id, expect=expect)


def told(found: Verification) -> set[tuple[str, int, int]]:
    return {(item.kind, item.first, item.last) for item in found.differences}


# Leaves


async def test_a_leaf_covers_every_column_of_an_event(owner: Connection) -> None:
    rows = owner.execute(
        """SELECT attname FROM pg_attribute
           WHERE attrelid = 'whence.events'::regclass AND attnum > 0 AND NOT attisdropped"""
    ).fetchall()
    assert sorted(row[0] for row in rows) == list(Leaf.__struct_fields__), "leaves, and their fragment in queries.sql"


async def test_a_leaf_is_the_stored_row_in_the_documented_form(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    events = await fill(app, workspace, 300)
    sealed = await app.ledger.seals.seal(workspace.workspace_id)
    rows = rows_of(owner, workspace)
    assert set(rows[1]) == set(json.loads(as_documented(rows[1]))), "nothing is left out"
    assert sealed
    assert sealed.root == root_over(rows).hex()
    for place in (0, 1, 299):
        proof = await app.ledger.seals.inclusion(Scope(workspace.workspace_id), events[place].event_id)
        assert proof.leaf.encode() == as_documented(rows[place])


# Sealing


async def test_a_seal_covers_everything_stored_and_the_next_one_adds_to_it(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    seals = app.ledger.seals
    assert await seals.seal(workspace.workspace_id) is None, "there is nothing to seal"
    made = []
    for count in (1, 254, 1, 1, 300):
        await fill(app, workspace, count)
        made.append(await seals.seal(workspace.workspace_id))
        assert await seals.seal(workspace.workspace_id) is None, "nothing is new"
    assert [seal and seal.size for seal in made] == [1, 255, 256, 257, 557]
    rows = rows_of(owner, workspace)
    for seal in made:
        assert seal
        assert seal.root == root_over(rows[: seal.size]).hex()
    scope = Scope(workspace.workspace_id)
    assert await seals.last(scope) == made[-1]
    first = await seals.page(scope, 0, 2)
    assert (first.seals, first.next) == (made[:2], 255)
    rest = await seals.page(scope, 255, 3)
    assert (rest.seals, rest.next) == (made[2:], None)
    found = await verified(app, workspace)
    assert (found.ok, found.events, found.seals, found.sealed, found.unsealed) == (True, 557, 5, 557, 0)
    assert found.root == made[-1].root


async def test_what_stops_a_sealer_leaves_whole_seals_and_the_next_one_goes_on(
    app: App, workspace: Workspace, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "MAX_SEAL_EVENTS", 300)
    monkeypatch.setattr(sealing, "CHUNK_EVENTS", 70)
    await fill(app, workspace, 1000)

    async def fail(tx: Tx, workspace_id: str, seal: Seal) -> None:
        if seal.size > 300:
            raise ConnectionError("the tiles of the second seal are written, and the seal is not")
        await add_seal(tx, workspace_id, seal)

    with monkeypatch.context() as patched:
        patched.setattr(sealing, "add_seal", fail)
        with pytest.raises(ConnectionError):
            await app.ledger.seals.seal(workspace.workspace_id)
    scope = Scope(workspace.workspace_id)
    assert [seal.size for seal in (await app.ledger.seals.page(scope, 0, 10)).seals] == [300]
    assert (await verified(app, workspace)).ok
    task = asyncio.create_task(app.ledger.seals.seal(workspace.workspace_id))
    await asyncio.sleep(0.02)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await verified(app, workspace)).ok
    await app.ledger.seals.seal(workspace.workspace_id)
    sizes = [seal.size for seal in (await app.ledger.seals.page(scope, 0, 10)).seals]
    assert sizes == [300, 600, 900, 1000]
    assert (await app.ledger.seals.last(scope)).root == root_over(rows_of(owner, workspace)).hex()


async def test_sealers_at_once_make_one_tree_while_events_come_in(
    app: App, workspace: Workspace, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "MAX_SEAL_EVENTS", 100)
    await fill(app, workspace, 400)
    another = Seals(app.database, app.clock)
    for _ in range(5):
        await asyncio.gather(
            fill(app, workspace, 30),
            *(seals.seal(workspace.workspace_id) for seals in (app.ledger.seals, another, another)),
        )
    await app.ledger.seals.seal(workspace.workspace_id)
    rows = rows_of(owner, workspace)
    page = await app.ledger.seals.page(Scope(workspace.workspace_id), 0, 1000)
    assert page.seals[-1].size == len(rows) == 550
    for seal in page.seals:
        assert seal.root == root_over(rows[: seal.size]).hex()
    assert (await verified(app, workspace)).ok


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM whence.events WHERE workspace_id = %(w)s AND global_position = 310",
        "UPDATE whence.seals SET root = sha256(root) WHERE workspace_id = %(w)s",
        "UPDATE whence.seal_tiles SET hashes = substr(hashes, 1, 32) WHERE workspace_id = %(w)s AND tile = 1",
        "UPDATE whence.seal_tiles SET hashes = set_byte(hashes, 1, get_byte(hashes, 1) # 1)"
        " WHERE workspace_id = %(w)s AND level = 1",
    ],
)
async def test_nothing_is_sealed_on_top_of_what_was_changed(
    app: App, workspace: Workspace, owner: Connection, statement: str
) -> None:
    await fill(app, workspace, 300)
    last = await app.ledger.seals.seal(workspace.workspace_id)
    await fill(app, workspace, 20)
    tamper(owner, workspace, statement)
    with pytest.raises(Damaged, match="whence verify"):
        await app.ledger.seals.seal(workspace.workspace_id)
    assert last
    assert (await app.ledger.seals.last(Scope(workspace.workspace_id))).size == last.size
    assert not (await verified(app, workspace)).ok


async def test_the_server_cannot_change_a_seal(app: App, workspace: Workspace) -> None:
    await fill(app, workspace, 1)
    await app.ledger.seals.seal(workspace.workspace_id)
    for scope in (Scope(workspace.workspace_id), Scope(workspace.workspace_id, "ann")):
        for statement in (
            "UPDATE whence.seals SET size = 5",
            "DELETE FROM whence.seals",
            "DELETE FROM whence.seal_tiles",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                async with app.database.transaction(scope) as tx:
                    await tx.execute(statement.encode())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        async with app.database.transaction(Scope(workspace.workspace_id, "ann")) as tx:
            await tx.execute(b"UPDATE whence.seal_tiles SET hashes = ''")


# Proofs


async def test_every_event_can_be_proved_and_all_seals_agree(app: App, workspace: Workspace) -> None:
    scope, events = Scope(workspace.workspace_id), list[Event]()
    for count in (3, 253, 2, 300):
        events += await fill(app, workspace, count)
        await app.ledger.seals.seal(workspace.workspace_id)
    last = await app.ledger.seals.last(scope)
    for place in (0, 2, 3, 254, 255, 256, 400, len(events) - 1):
        proof = await app.ledger.seals.inclusion(scope, events[place].event_id)
        assert (proof.event_id, proof.global_position, proof.index) == (events[place].event_id, place + 1, place)
        assert (proof.size, proof.root) == (last.size, last.root)
        path = [bytes.fromhex(item) for item in proof.path]
        assert verify_inclusion(proof.leaf.encode(), proof.index, proof.size, path, bytes.fromhex(last.root))
    sizes = [seal.size for seal in (await app.ledger.seals.page(scope, 0, 10)).seals]
    for old in sizes:
        for new in [size for size in sizes if size >= old]:
            proof = await app.ledger.seals.consistency(scope, old, new)
            roots = (bytes.fromhex(proof.old_root), bytes.fromhex(proof.new_root))
            assert verify_consistency(old, new, *roots, [bytes.fromhex(item) for item in proof.path])
        assert (await app.ledger.seals.consistency(scope, old)).new_size == last.size


async def test_a_user_proves_own_events_and_cannot_tell_anothers_from_none(app: App, workspace: Workspace) -> None:
    mine, yours, nobodys = event(user_id="ann"), event(user_id="bob"), event()
    await app.ledger.append(workspace.admin, [mine, yours, nobodys])
    seal = await app.ledger.seals.seal(workspace.workspace_id)
    ann = Scope(workspace.workspace_id, "ann")
    proof = await app.ledger.seals.inclusion(ann, mine.event_id)
    assert seal
    assert (proof.root, proof.size) == (seal.root, 3)
    assert (await app.ledger.seals.page(ann, 0, 10)).seals == [seal]
    assert (await app.ledger.seals.consistency(ann, 3)).path == []
    for hidden in (yours.event_id, nobodys.event_id, new_id()):
        with pytest.raises(NotFound, match=r"^there is no such event$"):
            await app.ledger.seals.inclusion(ann, hidden)


async def test_another_workspace_sees_no_seal_and_no_proof(app: App, workspace: Workspace) -> None:
    events = await fill(app, workspace, 3)
    await app.ledger.seals.seal(workspace.workspace_id)
    other = f"w-{uuid.uuid4().hex[:12]}"
    await app.identity.add_workspace(other)
    for scope in (Scope(other), Scope(other, "ann")):
        assert (await app.ledger.seals.page(scope, 0, 10)).seals == []
        with pytest.raises(NotFound):
            await app.ledger.seals.inclusion(scope, events[0].event_id)
        with pytest.raises(NotFound):
            await app.ledger.seals.consistency(scope, 3)
    assert await app.ledger.seals.seal(other) is None
    assert (await app.ledger.seals.verify(other)).ok


async def test_an_event_past_the_last_seal_is_told_as_not_sealed(app: App, workspace: Workspace) -> None:
    [stored] = await fill(app, workspace, 1)
    scope = Scope(workspace.workspace_id)
    with pytest.raises(NotSealed, match="position 1, and the last seal ends at 0"):
        await app.ledger.seals.inclusion(scope, stored.event_id)
    await app.ledger.seals.seal(workspace.workspace_id)
    assert (await app.ledger.seals.inclusion(scope, stored.event_id)).path == []


async def test_sizes_that_are_no_seals_and_bounds_are_refused(app: App, workspace: Workspace) -> None:
    scope = Scope(workspace.workspace_id)
    for count in (2, 3):
        await fill(app, workspace, count)
        await app.ledger.seals.seal(workspace.workspace_id)
    for old, new in ((1, 5), (2, 4), (6, None), (2, 6)):
        with pytest.raises(NotFound):
            await app.ledger.seals.consistency(scope, old, new)
    with pytest.raises(InvalidInput):
        await app.ledger.seals.consistency(scope, 5, 2)
    for after, limit in ((-1, 1), (1 << 63, 1), (0, 0), (0, sealing.MAX_PAGE_SEALS + 1)):
        with pytest.raises(InvalidInput):
            await app.ledger.seals.page(scope, after, limit)


async def test_no_proof_is_given_that_does_not_hold(app: App, workspace: Workspace, owner: Connection) -> None:
    scope = Scope(workspace.workspace_id)
    first = await fill(app, workspace, 3)
    await app.ledger.seals.seal(workspace.workspace_id)
    await fill(app, workspace, 3)
    await app.ledger.seals.seal(workspace.workspace_id)
    changed = "UPDATE whence.events SET trace_id = 'x' WHERE workspace_id = %(w)s AND global_position = 1"
    tamper(owner, workspace, changed)
    with pytest.raises(Damaged):
        await app.ledger.seals.inclusion(scope, first[0].event_id)
    await app.ledger.seals.inclusion(scope, first[1].event_id)
    await app.ledger.seals.consistency(scope, 3, 6)
    tamper(owner, workspace, "UPDATE whence.seal_tiles SET hashes = '' WHERE workspace_id = %(w)s")
    with pytest.raises(Damaged):
        await app.ledger.seals.inclusion(scope, first[1].event_id)
    with pytest.raises(Damaged):
        await app.ledger.seals.consistency(scope, 3, 6)


# Verifying

POSITION = 4
# A value that differs from the one that is stored, as little as the column lets it.
OTHER_VALUES = {
    "workspace_id": "workspace_id || 'x'",
    "global_position": "global_position + 1000",
    "event_id": "translate(event_id::text, '0123456789abcdef', '1032547698badcfe')::uuid",
    "parent_event_id": "overlay(parent_event_id::text placing 'abcdabcd' from 1)::uuid",
    "occurred_at": "occurred_at - interval '1 microsecond'",
    "ended_at": "ended_at + interval '1 microsecond'",
    "recorded_at": "recorded_at + interval '1 microsecond'",
    "schema_version": "schema_version + 1",
    "importance_hint": "importance_hint + 1",
    "status": "'failed'",
    "payload_commitment": "set_byte(payload_commitment, 31, get_byte(payload_commitment, 31) # 1)",
    "measures": "jsonb_set(measures, '{input_tokens}', '6')",
}


@pytest.mark.parametrize("column", Leaf.__struct_fields__)
async def test_one_changed_byte_in_any_column_is_found_and_its_position_named(
    app: App, workspace: Workspace, owner: Connection, column: str
) -> None:
    await fill(app, workspace, 8)
    await app.ledger.seals.seal(workspace.workspace_id)
    other = OTHER_VALUES.get(column, f"overlay({column} placing 'X' from 1)")
    where = "WHERE workspace_id = %(w)s AND global_position = %(n)s"
    tamper(owner, workspace, f"UPDATE whence.events SET {column} = {other} {where}", n=POSITION)
    found = await verified(app, workspace)
    moved = column in ("workspace_id", "global_position")
    assert ("missing" if moved else "changed", POSITION, POSITION) in told(found)
    if column != "global_position":
        assert found.found == 1


async def test_a_value_that_was_removed_or_added_is_found(app: App, workspace: Workspace, owner: Connection) -> None:
    rows = owner.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'whence.events'::regclass AND attnum > 0 AND NOT attnotnull"
    ).fetchall()
    columns = [row[0] for row in rows]
    assert "measures" in columns
    await fill(app, workspace, 2 * len(columns) + 2)
    await app.ledger.seals.seal(workspace.workspace_id)
    for place, column in enumerate(columns):
        # Positions with an odd number are bare, those with an even number full; the last two stay as they are.
        tamper(
            owner,
            workspace,
            f"UPDATE whence.events e SET {column} = f.{column} FROM whence.events f"
            " WHERE e.workspace_id = %(w)s AND e.global_position = %(odd)s"
            " AND f.workspace_id = %(w)s AND f.global_position = %(full)s",
            f"UPDATE whence.events SET {column} = NULL WHERE workspace_id = %(w)s AND global_position = %(odd)s + 1",
            odd=2 * place + 1,
            full=2 * len(columns) + 2,
        )
    assert told(await verified(app, workspace)) == {("changed", 1, 2 * len(columns))}


@pytest.mark.parametrize(
    "change",
    [
        "recorded_at = (recorded_at::timestamp::text || ' BC')::timestamp AT TIME ZONE 'UTC'",
        "recorded_at = 'infinity'",
        "measures = measures || '{\"output_tokens\": null}'",
        "measures = jsonb_set(measures, '{input_tokens}', '5.0')",
        "measures = to_jsonb(measures::text)",
        "measures = jsonb_set(measures, '{input_tokens}', ('1' || repeat('0', 9000))::jsonb)",
        "measures = 'null'",
        "tool_name = tool_name || chr(8203)",
        "event_type = ''",
    ],
)
async def test_what_no_server_would_have_written_is_found(
    app: App, workspace: Workspace, owner: Connection, change: str
) -> None:
    await fill(app, workspace, 4)
    await app.ledger.seals.seal(workspace.workspace_id)
    where = f"WHERE workspace_id = %(w)s AND global_position = {POSITION}"
    tamper(owner, workspace, f"UPDATE whence.events SET {change} {where}")
    assert told(await verified(app, workspace)) == {("changed", POSITION, POSITION)}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        pytest.param(
            ["DELETE FROM whence.events WHERE workspace_id = %(w)s AND global_position IN (5, 300, 301)"],
            {("missing", 5, 5), ("missing", 300, 301)},
            id="deleted",
        ),
        pytest.param(
            ["DELETE FROM whence.events WHERE workspace_id = %(w)s AND global_position > 590"],
            {("missing", 591, 600)},
            id="the last ones deleted",
        ),
        pytest.param(
            [
                "DELETE FROM whence.events WHERE workspace_id = %(w)s AND global_position > 590",
                "UPDATE whence.workspace_heads SET last_position = 590 WHERE workspace_id = %(w)s",
            ],
            {("missing", 591, 600)},
            id="the last ones deleted, and the head moved back",
        ),
        pytest.param(["DELETE FROM whence.events WHERE workspace_id = %(w)s"], {("missing", 1, 600)}, id="all deleted"),
        pytest.param(
            [
                "UPDATE whence.events SET global_position = 9999 WHERE workspace_id = %(w)s AND global_position = 10",
                "UPDATE whence.events SET global_position = 10 WHERE workspace_id = %(w)s AND global_position = 20",
                "UPDATE whence.events SET global_position = 20 WHERE workspace_id = %(w)s AND global_position = 9999",
            ],
            {("changed", 10, 10), ("changed", 20, 20)},
            id="two swapped",
        ),
        pytest.param(
            [
                "INSERT INTO whence.events SELECT (jsonb_populate_record(e, jsonb_build_object("
                "'global_position', 601, 'event_id', gen_random_uuid()))).* FROM whence.events e"
                " WHERE workspace_id = %(w)s AND global_position = 4"
            ],
            {("head", 601, 601)},
            id="one inserted past the end",
        ),
        pytest.param(
            [
                "UPDATE whence.events SET global_position = -global_position"
                " WHERE workspace_id = %(w)s AND global_position >= 100",
                "UPDATE whence.events SET global_position = 1 - global_position"
                " WHERE workspace_id = %(w)s AND global_position < 0",
                "INSERT INTO whence.events SELECT (jsonb_populate_record(e, jsonb_build_object("
                "'global_position', 100, 'event_id', gen_random_uuid()))).* FROM whence.events e"
                " WHERE workspace_id = %(w)s AND global_position = 4",
                "UPDATE whence.workspace_heads SET last_position = 601 WHERE workspace_id = %(w)s",
            ],
            {("changed", 100, 600)},
            id="one inserted in between",
        ),
        pytest.param(
            ["UPDATE whence.events SET global_position = -3 WHERE workspace_id = %(w)s AND global_position = 7"],
            {("head", -3, 0), ("missing", 7, 7)},
            id="one put before the first",
        ),
        pytest.param(
            [
                "UPDATE whence.seal_tiles SET hashes = set_byte(hashes, 70, get_byte(hashes, 70) # 1)"
                " WHERE workspace_id = %(w)s AND level = 0 AND tile = 1"
            ],
            {("tile", 259, 259)},
            id="a stored hash changed",
        ),
        pytest.param(
            ["DELETE FROM whence.seal_tiles WHERE workspace_id = %(w)s AND level = 0 AND tile = 1"],
            {("tile", 257, 512)},
            id="a tile deleted",
        ),
        pytest.param(
            [
                "UPDATE whence.seal_tiles SET hashes = set_byte(hashes, 40, get_byte(hashes, 40) # 1)"
                " WHERE workspace_id = %(w)s AND level = 1"
            ],
            {("tile", 257, 512)},
            id="a hash of the second level changed",
        ),
        pytest.param(
            ["DELETE FROM whence.seal_tiles WHERE workspace_id = %(w)s AND level = 1"],
            {("tile", 1, 512)},
            id="the second level deleted",
        ),
        pytest.param(
            ["UPDATE whence.seals SET root = sha256(root) WHERE workspace_id = %(w)s AND size = 400"],
            {("seal", 400, 400)},
            id="a seal changed",
        ),
        pytest.param(
            ["UPDATE whence.seals SET root = sha256(root) WHERE workspace_id = %(w)s AND size = 600"],
            {("seal", 401, 600)},
            id="the last seal changed",
        ),
        pytest.param(
            ["UPDATE whence.seals SET size = 1000000000000 WHERE workspace_id = %(w)s AND size = 600"],
            {("missing", 601, 1_000_000_000_000)},
            id="a seal over what was never there",
        ),
        pytest.param(
            [
                "UPDATE whence.events SET trace_id = 'x' WHERE workspace_id = %(w)s AND global_position = 300",
                "UPDATE whence.seal_tiles SET hashes = set_byte(hashes, 70, get_byte(hashes, 70) # 1)"
                " WHERE workspace_id = %(w)s AND level = 0 AND tile = 0",
            ],
            # The seal of 200 agrees with the envelopes, so up to there it is the hash that was changed.
            {("tile", 3, 3), ("changed", 300, 300), ("seal", 201, 400)},
            id="an event and a stored hash changed",
        ),
        pytest.param(
            ["UPDATE whence.events SET trace_id = 'x' WHERE workspace_id = %(w)s"],
            {("changed", 1, 600)},
            id="all changed",
        ),
    ],
)
async def test_tampering_is_found_and_named(
    app: App, workspace: Workspace, owner: Connection, statements: list[str], expected: set[tuple[str, int, int]]
) -> None:
    for _ in range(3):
        await fill(app, workspace, 200)
        await app.ledger.seals.seal(workspace.workspace_id)
    assert (await verified(app, workspace)).ok
    with owner.transaction():
        # Whoever can do this can also lift a constraint for as long as it takes.
        owner.execute("ALTER TABLE whence.events DROP CONSTRAINT events_position_from_one")
        tamper(owner, workspace, *statements)
    try:
        found = await verified(app, workspace)
        assert told(found) == expected
        assert found.found >= len(expected)
    finally:
        with unwatched(owner):
            owner.execute("DELETE FROM whence.events WHERE global_position < 1")
        owner.execute("ALTER TABLE whence.events ADD CONSTRAINT events_position_from_one CHECK (global_position >= 1)")


async def test_a_position_that_is_taken_twice_is_found(app: App, workspace: Workspace, owner: Connection) -> None:
    await fill(app, workspace, 5)
    await app.ledger.seals.seal(workspace.workspace_id)
    owner.execute("ALTER TABLE whence.events DROP CONSTRAINT events_pkey")
    try:
        again = """INSERT INTO whence.events
            SELECT (jsonb_populate_record(e, jsonb_build_object('event_id', gen_random_uuid()))).*
            FROM whence.events e WHERE workspace_id = %(w)s AND global_position = 3"""
        tamper(owner, workspace, again)
        assert ("twice", 3, 3) in told(await verified(app, workspace))
    finally:
        tamper(owner, workspace, "DELETE FROM whence.events WHERE workspace_id = %(w)s")
        owner.execute(
            "ALTER TABLE whence.events ADD CONSTRAINT events_pkey PRIMARY KEY (workspace_id, global_position)"
        )


async def test_a_deleted_last_seal_is_found_by_a_root_that_was_kept(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    for _ in range(2):
        await fill(app, workspace, 200)
        kept = await app.ledger.seals.seal(workspace.workspace_id)
    assert kept
    expect = Expected(kept.size, bytes.fromhex(kept.root))
    assert (await verified(app, workspace, expect)).ok
    tamper(owner, workspace, "DELETE FROM whence.seals WHERE workspace_id = %(w)s AND size = 400")
    unnoticed = await verified(app, workspace)
    assert (unnoticed.ok, unnoticed.unsealed) == (True, 200), "nobody can tell that it was ever sealed"
    assert told(await verified(app, workspace, expect)) == {("seal", 400, 400)}
    tamper(
        owner,
        workspace,
        "DELETE FROM whence.events WHERE workspace_id = %(w)s AND global_position > 300",
        "UPDATE whence.workspace_heads SET last_position = 300 WHERE workspace_id = %(w)s",
    )
    assert (await verified(app, workspace)).ok
    assert told(await verified(app, workspace, expect)) == {("expected", 301, 400)}


async def test_a_ledger_forged_with_its_seals_is_found_by_a_root_that_was_kept(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    await fill(app, workspace, 300)
    kept = await app.ledger.seals.seal(workspace.workspace_id)
    assert kept
    tamper(
        owner,
        workspace,
        "UPDATE whence.events SET trace_id = 'forged' WHERE workspace_id = %(w)s AND global_position = 7",
        "DELETE FROM whence.seals WHERE workspace_id = %(w)s",
        "DELETE FROM whence.seal_tiles WHERE workspace_id = %(w)s",
    )
    await app.ledger.seals.seal(workspace.workspace_id)
    assert (await verified(app, workspace)).ok
    assert told(await verified(app, workspace, Expected(kept.size, bytes.fromhex(kept.root)))) == {("expected", 1, 300)}


async def test_gaps_past_the_last_seal_are_found(app: App, workspace: Workspace, owner: Connection) -> None:
    await fill(app, workspace, 10)
    await app.ledger.seals.seal(workspace.workspace_id)
    await fill(app, workspace, 10)
    tamper(owner, workspace, "DELETE FROM whence.events WHERE workspace_id = %(w)s AND global_position IN (11, 15, 16)")
    found = await verified(app, workspace)
    assert told(found) == {("missing", 11, 11), ("missing", 15, 16)}
    assert (found.found, found.sealed, found.unsealed) == (3, 10, 10)


async def test_only_the_first_differences_are_told_and_all_are_counted(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    await fill(app, workspace, 600)
    await app.ledger.seals.seal(workspace.workspace_id)
    tamper(
        owner,
        workspace,
        "UPDATE whence.events SET trace_id = 'x' WHERE workspace_id = %(w)s AND global_position %% 2 = 0",
    )
    found = await verified(app, workspace)
    assert (found.found, len(found.differences)) == (300, MAX_DIFFERENCES)
    assert [item.first for item in found.differences] == list(range(2, 2 * MAX_DIFFERENCES + 1, 2))


async def test_verifying_goes_on_beside_appends_and_seals_and_tells_how_far_it_is(
    app: App, workspace: Workspace
) -> None:
    await fill(app, workspace, 5000)
    await app.ledger.seals.seal(workspace.workspace_id)

    async def grow() -> None:
        for _ in range(60):
            await fill(app, workspace, 7)
            await app.ledger.seals.seal(workspace.workspace_id)

    growing = asyncio.create_task(grow())
    while not growing.done():
        steps: list[tuple[int, int]] = []
        found = await app.ledger.seals.verify(
            workspace.workspace_id, lambda done, total, steps=steps: steps.append((done, total))
        )
        assert found.ok, found.differences
        assert steps[0][0] < steps[-1][0] == steps[-1][1] == found.sealed
    await growing
