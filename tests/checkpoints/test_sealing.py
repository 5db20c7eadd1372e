"""What is sealed: nothing but ids in the files, under keys that are rotated and shredded, beside what is in clear."""

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg import Connection, connect, sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from conftest import Workspace, whence
from saving import Gateway, at, listed, put, said_in
from whence import checkpoints
from whence.app import App
from whence.checkpoints import Threads, thread_name
from whence.checkpoints.sealing import Keys, Sealer, contains
from whence.crypto import LocalKeyProvider, SubjectKey
from whence.db import Scope, embedded
from whence.errors import NotFound, SetupError, Unavailable
from whence.langgraph import CheckpointerGateway
from whence.ledger.payloads import SubjectKeys

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


def holding(folder: Path, mark: str) -> set[str]:
    """The folders of the database in whose files a mark stands."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).parts[0] for path in files if mark.encode() in path.read_bytes()}


async def test_no_file_holds_what_a_sealed_conversation_says(
    gateway: Gateway, workspace: Workspace, postgres: embedded.EmbeddedServer, data_dir: Path
) -> None:
    """Also after it was copied, listed by what it says, sealed anew and pruned. In clear it is found: else this would
    show nothing."""
    clear, sealed = f"mark{uuid4().hex}", f"mark{uuid4().hex}"
    ann, bob = workspace.user("ann"), workspace.user("bob")
    await put(gateway(sealed=False).for_(bob), "t", clear)
    saver = gateway().for_(ann)
    one = await put(saver, "t", sealed, run_id=sealed, assistant={"name": sealed, "tags": [sealed, {"deep": sealed}]})
    await put(saver, "t", sealed, one)
    await saver.acopy_thread("t", "u")
    wanted = {"assistant": {"tags": [{"deep": sealed}]}}
    assert len(await listed(saver, None, filter=wanted)) == 2
    assert (await gateway().rotate(workspace.workspace_id, "ann")).threads == 2
    assert len(await listed(saver, at("u"), filter=wanted | {"run_id": sealed})) == 1
    await saver.aprune(["u"])
    password = (data_dir / f"{embedded.SUPERUSER}.password").read_text()
    superuser = make_conninfo(postgres.app_conninfo, user=embedded.SUPERUSER, password=password)
    with connect(superuser, autocommit=True) as conn:
        conn.execute("CHECKPOINT")
    pgdata = data_dir / "pgdata"
    assert {"base", "pg_wal"} <= holding(pgdata, clear)
    assert await said_in(saver, "t") == [sealed] * 4
    assert holding(pgdata, sealed) == set()


def rows(owner: Connection, workspace: Workspace) -> list[tuple[str, Any]]:
    """Of the workspace, all that stands in the tables of the framework."""
    found: list[tuple[str, Any]] = []
    for table in TABLES:
        statement = sql.SQL("SELECT to_jsonb(t) FROM langgraph.{} t WHERE starts_with(thread_id, %s) ORDER BY 1")
        rows = owner.execute(statement.format(sql.Identifier(table)), [f"{workspace.workspace_id}/"]).fetchall()
        found += [(table, row[0]) for row in rows]
    return found


async def test_what_was_in_clear_stays_readable_beside_what_is_sealed_until_all_is_sealed(
    gateway: Gateway, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    clear, sealed = gateway(sealed=False), gateway()
    one = await put(clear.for_(ann), "t", "old", run_id="r1")
    two = await put(sealed.for_(ann), "t", "new", one, run_id="r2")
    for saver in (clear.for_(ann), sealed.for_(ann)):
        assert await said_in(saver, "t", one) == ["old"] * 4
        assert await said_in(saver, "t", two) == ["new"] * 4
        history = await listed(saver, at("t"))
        assert [each.metadata["said"] for each in history] == ["new", "old"]
        for said in ("old", "new"):
            [found] = await listed(saver, at("t"), filter={"said": said, "step": 1})
            assert found.checkpoint["channel_values"]["name"] == said
        assert await listed(saver, at("t"), filter={"step": True}) == []
        assert len(await listed(saver, None, filter={"step": 1}, limit=1)) == 1
    # A copy is written now, and sealed by what is set now; what was sealed is not opened by copying.
    await sealed.for_(ann).acopy_thread("t", "u")
    await clear.for_(ann).acopy_thread("t", "v")
    stored = [
        (row["thread_id"][-1], "whence.sealed" in row["metadata"])
        for table, row in rows(owner, workspace)
        if table == "checkpoints"
    ]
    assert sorted(stored) == [("t", False), ("t", True), ("u", True), ("u", True), ("v", False), ("v", True)]
    for copied in ("u", "v"):
        assert await said_in(clear.for_(ann), copied, one) == ["old"] * 4
    await clear.delete_threads(workspace.workspace_id, [("ann", "u"), ("ann", "v")])
    with pytest.raises(SetupError, match="checkpoint_encryption"):
        await clear.rotate(workspace.workspace_id)
    done = await sealed.rotate(workspace.workspace_id)
    assert (done.users, done.threads, done.dropped_keys) == (1, 1, 1)
    assert "old" not in str([row["checkpoint"] for table, row in rows(owner, workspace) if table == "checkpoints"])
    saver = sealed.for_(ann)
    assert [await said_in(saver, "t", each) for each in (one, two)] == [["old"] * 4, ["new"] * 4]
    await saver.adelete_for_runs(["r1"])
    assert await said_in(saver, "t", one) is None
    assert {row["channel"] for table, row in rows(owner, workspace) if table == "checkpoint_blobs"} == {"messages"}
    assert await said_in(saver, "t", two) == ["new"] * 4


async def test_keys_are_rotated_while_others_remember_the_old_ones(
    app: App, gateway: Gateway, workspace: Workspace, owner: Connection
) -> None:
    """As another process does, which has read the keys a moment ago."""
    ann = workspace.user("ann")
    here = gateway().for_(ann)
    other = Threads(app.database, app.ledger.keys, app.clock)
    there = CheckpointerGateway(app.database, other, sealed=True).for_(ann)
    marks = [await put(here, "t", "first"), await put(there, "t", "second")]
    assert (await gateway().rotate(workspace.workspace_id)).dropped_keys == 1
    # The other one opens what it has no key for, and seals by a key that is there.
    assert await said_in(there, "t", marks[1]) == ["second"] * 4
    await gateway().rotate(workspace.workspace_id)
    marks.append(await put(there, "t", "third"))
    assert [await said_in(here, "t", mark) for mark in marks] == [[said] * 4 for said in ("first", "second", "third")]
    # In a transaction of the caller's it cannot be tried again, and says so.
    await gateway().rotate(workspace.workspace_id)
    async with app.database.transaction(ann.scope) as tx:
        with pytest.raises(Unavailable, match="try again"):
            await put(CheckpointerGateway(app.database, other, sealed=True).for_(ann, tx=tx), "t", "fourth")
        await tx.rollback()
    with pytest.raises(NotFound):
        await gateway().rotate(workspace.workspace_id, "nobody")
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    assert owner.execute("SELECT count(*) FROM whence.thread_keys").fetchone() == (1,)


async def test_an_export_holds_no_transaction_and_goes_on_while_keys_are_rotated(
    app: App, gateway: Gateway, workspace: Workspace, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAGE_ROWS", 1)
    ann, ws = workspace.user("ann"), workspace.workspace_id
    one = await put(gateway().for_(ann), "t", "first")
    await put(gateway().for_(ann), "t", "second", one)
    other = Threads(app.database, SubjectKeys(app.database, app.ledger.keys._provider, app.clock), app.clock)  # pyright: ignore[reportPrivateUsage]
    held = (
        "SELECT count(*) FROM pg_locks WHERE relation = 'langgraph.checkpoints'::regclass AND pid <> pg_backend_pid()"
    )
    for scope in (ann.scope, Scope(ws)):
        said: list[Any] = []
        async for page in app.threads.opened(scope, thread_name(ws, "ann", "t")):
            assert owner.execute(held).fetchone() == (0,)
            said += page
            assert (await other.rotate(ws, "ann")).dropped_keys == 1
        values = [bytes(row["value"]) for row in said if "value" in row]
        assert [row["metadata"]["said"] for row in said if "metadata" in row] == ["first", "second"]
        assert sorted(values) == [b'["first"]'] * 2 + [b'["second"]'] * 2


async def test_a_key_that_a_transaction_has_sealed_with_is_not_dropped_before_it_ends(
    app: App, gateway: Gateway, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    async with app.database.transaction(ann.scope) as tx:
        mark = await put(gateway().for_(ann, tx=tx), "t", "meanwhile")
        # The thread is not to be seen yet, and its key is not needed by any other.
        await put(gateway().for_(ann), "u", "other")
        keys = await app.threads.keys(workspace.workspace_id, "ann")
        assert keys.newest is not None
        app.threads.forget(workspace.workspace_id, "ann")
        fresh = await app.threads._add_key(workspace.workspace_id, "ann", only_first=False)  # pyright: ignore[reportPrivateUsage]
        await app.threads._reseal_all(workspace.workspace_id, "ann", fresh)  # pyright: ignore[reportPrivateUsage]
        await tx.commit()
    assert await app.threads._drop_unused(workspace.workspace_id, "ann", fresh) == 0  # pyright: ignore[reportPrivateUsage]
    assert await said_in(gateway().for_(ann), "t", mark) == ["meanwhile"] * 4
    assert (await gateway().rotate(workspace.workspace_id)).dropped_keys == 2
    assert await said_in(gateway().for_(ann), "t", mark) == ["meanwhile"] * 4


async def test_what_was_shredded_opens_nothing_when_a_backup_brings_it_back(
    app: App, gateway: Gateway, workspace: Workspace, owner: Connection
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    await put(gateway().for_(ann), "t", "mine")
    await put(gateway().for_(bob), "t", "his")
    backup = rows(owner, workspace)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    kept = {
        table: owner.execute(
            sql.SQL("SELECT * FROM whence.{} WHERE {} = 'ann'").format(sql.Identifier(table), column)
        ).fetchall()
        for table, column in (("subject_keys", sql.SQL("subject_id")), ("thread_keys", sql.SQL("user_id")))
    }
    receipt = await app.erasures.erase(workspace.admin, "ann")
    assert {name: removed.count for name, removed in receipt.removed.items() if name.startswith("thread")} == {
        "threads": 1,
        "thread_keys": 1,
    }
    assert all(check.ok for check in await app.erasures.verify(receipt))
    owner.execute("RESET ROLE")
    assert {row["thread_id"] for _, row in rows(owner, workspace)} == {f"{workspace.workspace_id}/3:bob/t"}
    assert await said_in(gateway().for_(ann), "t") is None
    assert await said_in(gateway().for_(bob), "t") == ["his"] * 4
    with owner.transaction():
        for table, row in backup:
            if "ann" in row["thread_id"]:
                statement = sql.SQL(
                    "INSERT INTO langgraph.{0} SELECT * FROM jsonb_populate_record(NULL::langgraph.{0}, %s)"
                )
                owner.execute(statement.format(sql.Identifier(table)), [Jsonb(row)])
    app.threads.forget(workspace.workspace_id, "ann")
    with pytest.raises(SetupError, match="gone"):
        await said_in(gateway().for_(ann), "t")
    owner.execute("SET ROLE whence_workspace")
    for table, found in kept.items():
        for row in found:
            places = sql.SQL(", ").join([sql.Placeholder()] * len(row))
            owner.execute(sql.SQL("INSERT INTO whence.{} VALUES ({})").format(sql.Identifier(table), places), row)
    with pytest.raises(SetupError, match="erased"):
        await said_in(gateway().for_(ann), "t")


async def test_what_is_moved_to_another_thread_or_changed_does_not_open() -> None:
    key = SubjectKey(uuid4(), SubjectKey.generate())
    keys = Keys({key.key_id: key})
    mine, other = (Sealer(keys, thread_name("w", "ann", name).stored_as) for name in ("t", "u"))
    kind, sealed = mine.seal_value("msgpack", b"\x00said")
    assert mine.open_value(kind, sealed) == ("msgpack", b"\x00said")
    metadata = mine.seal_metadata("1 ", {"said": "x", "parents": {"": "1"}})
    for wrong in (
        lambda: other.open_value(kind, sealed),
        lambda: mine.open_value(kind, sealed[:-1] + bytes([sealed[-1] ^ 1])),
        lambda: mine.open_metadata("2 ", metadata),
        lambda: other.open_metadata("1 ", metadata),
    ):
        with pytest.raises(SetupError, match="does not decrypt"):
            wrong()
    assert repr(key) == f"SubjectKey({key.key_id})"


def test_what_a_filter_contains_is_as_postgres_says(owner: Connection) -> None:
    values = [None, True, 1, 1.0, "1", [], [1], [1, "a"], [[1]], [{"a": 1}, 2], {}, {"a": 1}, {"a": None}, {"a": {}}]
    values += [{"a": {"b": [1, 2]}, "c": "x"}, {"a": {"b": [2]}}, {"a": [{"b": 1}]}, {"c": "x"}, {"a": True}, {"a": []}]
    objects = [value for value in values if isinstance(value, dict)]
    for value in objects:
        for wanted in objects:
            row = owner.execute("SELECT %s::jsonb @> %s::jsonb", [Jsonb(value), Jsonb(wanted)]).fetchone()
            assert (contains(value, wanted),) == row, (value, wanted)
    wrapped = [{"a": value} for value in values]
    for value in wrapped:
        for wanted in wrapped:
            row = owner.execute("SELECT %s::jsonb @> %s::jsonb", [Jsonb(value), Jsonb(wanted)]).fetchone()
            assert (contains(value, wanted),) == row, (value, wanted)


async def test_the_command_seals_what_the_setting_says(
    gateway: Gateway, app: App, workspace: Workspace, data_dir: Path
) -> None:
    ann = workspace.user("ann")
    mark = await put(gateway(sealed=False).for_(ann), "t", "old")
    command = ("checkpoints", "rotate", "--data-dir", data_dir, "-w", workspace.workspace_id, "--json")
    done = whence(*command, WHENCE_CHECKPOINT_ENCRYPTION="true")
    assert json.loads(done.stdout) == {"users": 1, "threads": 1, "dropped_keys": 0}, done.stderr
    assert await said_in(gateway(sealed=False).for_(ann), "t", mark) == ["old"] * 4
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        [thread] = await app.threads.of_user(tx, workspace.workspace_id, "ann")
    assert thread.key_id is not None


async def test_with_another_key_file_nothing_opens(app: App, gateway: Gateway, workspace: Workspace) -> None:
    await put(gateway().for_(workspace.user("ann")), "t", "mine")
    stranger = SubjectKeys(app.database, LocalKeyProvider(SubjectKey.generate()), app.clock)
    wrong = CheckpointerGateway(app.database, Threads(app.database, stranger, app.clock), sealed=True)
    with pytest.raises(SetupError, match="not wrapped"):
        await said_in(wrong.for_(workspace.user("ann")), "t")
