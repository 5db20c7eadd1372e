"""LangGraph through the gateway: whole, somebody's, in the caller's transaction, and told of in the log."""

import asyncio
import operator
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast
from uuid import uuid4

import psycopg
import pytest
import structlog
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from psycopg import AsyncConnection, Connection, sql
from psycopg.rows import dict_row
from structlog.testing import capture_logs

from conftest import Workspace, clean_environment
from lifecycle.conftest import Time
from samples import event
from saving import Gateway, at, listed, put, said_in
from whence.app import App
from whence.checkpoints import Threads, Touch, thread_name
from whence.conversations import Conversations
from whence.db import Database, Scope, Tx, embedded, enter
from whence.db.queries import load
from whence.errors import InvalidInput, NotFound, SetupError
from whence.identity import Principal
from whence.langgraph import CheckpointerGateway
from whence.langgraph.plain import Saver
from whence.ledger.payloads import SubjectKeys
from whence.wire import NewMessage

lifecycle = load("whence.lifecycle")
TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")


@pytest.mark.parametrize("sealed", [False, True], ids=["clear", "sealed"])
async def test_it_conforms_in_full(gateway: Gateway, workspace: Workspace, sealed: bool) -> None:
    @checkpointer_test(name=f"gateway {sealed}")
    async def made() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        yield gateway(sealed).for_(workspace.user("ann"))

    report = await validate(made)
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert len(report.results) == 8


class Talk(TypedDict):
    said: Annotated[list[str], operator.add]
    asked: str


def talk() -> StateGraph[Talk]:
    """Two nodes at once, then one that asks a person."""

    async def left(_: Talk) -> dict[str, Any]:
        return {"said": ["left"]}

    async def right(_: Talk) -> dict[str, Any]:
        return {"said": ["right"]}

    async def ask(_: Talk) -> dict[str, Any]:
        return {"said": [interrupt("may I?")], "asked": "yes"}

    graph = StateGraph(Talk)
    for name, node in (("left", left), ("right", right), ("ask", ask)):
        graph.add_node(name, node)
    for name in ("left", "right"):
        graph.add_edge(START, name)
    graph.add_edge(["left", "right"], "ask")
    graph.add_edge("ask", END)
    return graph


@pytest.mark.parametrize("sealed", [False, True], ids=["clear", "sealed"])
async def test_a_graph_is_interrupted_and_goes_on_elsewhere(
    gateway: Gateway, workspace: Workspace, sealed: bool
) -> None:
    ann = workspace.user("ann")
    first = talk().compile(checkpointer=gateway(sealed).for_(ann))
    stopped = await first.ainvoke({"said": ["hello"], "asked": ""}, at("t"))
    assert [each.value for each in stopped["__interrupt__"]] == ["may I?"]
    second = talk().compile(checkpointer=gateway(sealed).for_(ann))
    done = await second.ainvoke(Command(resume="you may"), at("t"))
    assert done == {"said": ["hello", "left", "right", "you may"], "asked": "yes"}
    history = [state async for state in second.aget_state_history(at("t"))]
    assert [len(state.values.get("said", [])) for state in history] == [4, 3, 1, 0]
    again = await second.ainvoke(None, history[2].config)
    assert again["__interrupt__"]
    fresh = talk().compile(checkpointer=gateway(sealed).for_(workspace.user("bob")))
    assert (await fresh.aget_state(at("t"))).values == {}
    # From a thread that is not the loop's, as the framework's own saver allows it.
    state = await asyncio.to_thread(second.get_state, at("t"))
    assert state.values["said"] == ["hello", "left", "right"]
    with pytest.raises(asyncio.InvalidStateError, match="ainvoke"):
        second.get_state(at("t"))


async def test_a_request_that_is_rolled_back_leaves_neither_checkpoint_nor_event(
    app: App, gateway: Gateway, workspace: Workspace
) -> None:
    ann, told = workspace.user("ann"), event({"text": "done"}, user_id="ann")
    outside = gateway().for_(ann)
    for fails in (True, False):
        try:
            async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
                graph = talk().compile(checkpointer=gateway().for_(ann, tx=tx))
                await graph.ainvoke({"said": ["hello"], "asked": ""}, at("t"))
                [outcome] = await app.ledger.append_in(tx, workspace.admin, [told])
                assert outcome.status == "accepted"
                assert await outside.aget_tuple(at("t")) is None
                if fails:
                    raise InterruptedError
        except InterruptedError:
            assert await outside.aget_tuple(at("t")) is None
            assert (await app.ledger.page(workspace.admin.scope, 0, 10)).events == []
            assert await threads_of(app, workspace, "ann") == []
    assert await outside.aget_tuple(at("t")) is not None
    [stored] = (await app.ledger.page(workspace.admin.scope, 0, 10)).events
    assert stored.event_id == told.event_id
    [refused] = await app.ledger.append(workspace.admin, [told])
    assert refused.status == "duplicate"


async def threads_of(app: App, workspace: Workspace, user_id: str) -> list[str]:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        return [each.thread_id for each in await app.threads.of_user(tx, workspace.workspace_id, user_id)]


async def test_a_connection_of_the_callers_own_enters_and_keeps_its_search_path_and_rows(
    gateway: Gateway, workspace: Workspace, postgres: embedded.EmbeddedServer
) -> None:
    """Whatever tables it finds there: none of ours may be looked for by the search path."""
    ann = workspace.user("ann")
    async with await AsyncConnection.connect(postgres.app_conninfo, row_factory=dict_row) as conn:
        await conn.execute("SET search_path = pg_catalog")
        saver = gateway().for_(ann, tx=cast("Tx", conn))
        with pytest.raises(SetupError, match="scope"):
            await saver.aget_tuple(at("t"))
        await enter(conn, ann.scope)
        one = await put(saver, "t", "first")
        await put(saver, "t", "second", one, run_id="r1")
        await saver.acopy_thread("t", "u")
        assert await said_in(saver, "u") == ["second"] * 4
        await saver.adelete_for_runs(["r1"])
        assert await said_in(saver, "u") == ["first"] * 4
        await saver.aprune(["u"])
        assert len(await listed(saver, None, filter={"said": "first"})) == 2
        await saver.adelete_thread("u")
        assert await (await conn.execute("SHOW search_path")).fetchone() == {"search_path": "pg_catalog"}
        await conn.rollback()
    assert await gateway().for_(ann).aget_tuple(at("t")) is None


async def test_nobody_reads_writes_lists_copies_or_deletes_a_thread_of_anybody_else(
    app: App, gateway: Gateway, workspace: Workspace
) -> None:
    elsewhere = Workspace(f"w-{uuid4().hex[:12]}", "")
    await app.identity.add_workspace(elsewhere.workspace_id)
    mine = gateway().for_(workspace.user("ann"))
    mark = await put(mine, "t", "mine", run_id="r1")
    others = [
        workspace.user("bob"),
        workspace.admin,
        elsewhere.user("ann"),
        workspace.user("ann/t"),
        workspace.user("an"),
    ]
    for other in others:
        theirs = gateway().for_(other)
        assert await theirs.aget_tuple(at("t")) is None
        assert await theirs.aget_tuple(at("t", mark)) is None
        assert await listed(theirs, at("t")) == []
        assert await listed(theirs, None) == []
        await theirs.acopy_thread("t", "copied")
        assert await theirs.aget_tuple(at("copied")) is None
        for verb in (
            theirs.adelete_thread("t"),
            theirs.adelete_for_runs(["r1"]),
            theirs.aprune(["t"], strategy="delete"),
        ):
            await verb
        # Under the same name, and beside mine.
        await put(theirs, "t", "theirs", mark)
        assert await said_in(theirs, "t") == ["theirs"] * 4
        assert await said_in(mine, "t") == ["mine"] * 4
        assert len(await listed(mine, None)) == 1
    for odd in ("", "x" * 257, "a\0b"):
        with pytest.raises(InvalidInput, match="thread_id"):
            await mine.aget_tuple(at(odd))


async def test_the_database_refuses_what_a_wrong_filter_would_ask_for(
    app: App, gateway: Gateway, workspace: Workspace, raw_app: Connection
) -> None:
    """The framework's own saver, given the name under which a thread of somebody else is stored."""
    mine = gateway(sealed=False).for_(workspace.user("ann"))
    await put(mine, "t", "mine")
    stored_as = thread_name(workspace.workspace_id, "ann", "t").stored_as
    async with app.database.transaction(workspace.user("ann").scope) as tx:
        assert await Saver(tx, AsyncPostgresSaver.serde).aget_tuple(at(stored_as)) is not None
    for scope in (Scope(workspace.workspace_id, "bob"), Scope("elsewhere", "ann"), Scope("elsewhere"), None):
        async with app.database.transaction(scope) as tx:
            assert await Saver(tx, AsyncPostgresSaver.serde).aget_tuple(at(stored_as)) is None
            for table in TABLES:
                deleted = await tx.execute(sql.SQL("DELETE FROM langgraph.{}").format(sql.Identifier(table)))
                assert deleted.rowcount == 0
                rows = await tx.execute(
                    sql.SQL("SELECT FROM langgraph.{} WHERE thread_id = %s").format(sql.Identifier(table)), [stored_as]
                )
                assert await rows.fetchall() == []
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await tx.execute(
                    "INSERT INTO langgraph.checkpoint_blobs VALUES (%s, '', 'c', '1', 'null', '')", [stored_as]
                )
            await tx.rollback()
    assert await said_in(mine, "t") == ["mine"] * 4
    # Rights to rows, and no others.
    for role in ("whence_app", "whence_workspace"):
        raw_app.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        for table in (sql.Identifier("langgraph", name) for name in TABLES):
            for forbidden in (
                "TRUNCATE {}",
                "DROP TABLE {}",
                "ALTER TABLE {} ADD x int",
                "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    raw_app.execute(sql.SQL(forbidden).format(table))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw_app.execute("CREATE TABLE langgraph.x (id int)")
    owners = raw_app.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'langgraph'").fetchall()
    assert owners == [("whence_owner",)]
    migrated = raw_app.execute("SELECT count(*) FROM whence.schema_migrations WHERE name ~ 'langgraph'").fetchone()
    assert migrated == (0,)


async def test_every_operation_is_one_line_that_says_whose_and_never_what(
    gateway: Gateway, workspace: Workspace
) -> None:
    saver = gateway().for_(workspace.user("ann"), conversation_id="c1")
    with capture_logs() as lines:
        await put(saver, "t", "secret", run_id="secret")
        await said_in(saver, "t")
        await listed(saver, at("t"))
        await listed(saver, None, filter={"said": "secret"})
        await saver.acopy_thread("t", "u")
        await saver.aprune(["t"])
        await saver.adelete_for_runs(["secret"])
        await saver.adelete_thread("t")
    ops = ["put", "put_writes", "get_tuple", "list", "list", "copy_thread", "prune", "delete_for_runs", "delete_thread"]
    assert [line["op"] for line in lines] == ops
    whose = {"workspace_id": workspace.workspace_id, "user_id": "ann", "conversation_id": "c1"}
    for line in lines:
        assert set(line) == {*whose, "event", "log_level", "op", "thread_id"}
        assert whose.items() <= line.items()
        assert line["thread_id"] in ({None} if line["op"] in ("prune", "delete_for_runs") else {"t", None})
    assert "secret" not in str(lines)


def test_inside_another_program_lines_go_to_logging(app: App) -> None:
    before = structlog.get_config() if structlog.is_configured() else {}
    structlog.reset_defaults()
    try:
        CheckpointerGateway.of(app)
        assert isinstance(structlog.get_config()["logger_factory"], structlog.stdlib.LoggerFactory)
    finally:
        structlog.configure(**before)


async def test_a_workspace_that_does_not_exist_has_no_threads(app: App, gateway: Gateway, tables: None) -> None:
    for sealed in (False, True):
        saver = gateway(sealed).for_user("ann", "misspelt")
        for verb in (put(saver, "t", "x"), said_in(saver, "t"), saver.acopy_thread("t", "u")):
            with pytest.raises(NotFound, match="there is no workspace misspelt"):
                await verb
    async with app.database.transaction(Scope("misspelt")) as tx:
        assert await (await tx.execute("SELECT FROM whence.threads")).fetchone() is None


async def test_a_conversation_is_asked_for_before_its_thread_is_touched_and_ends_with_it(
    app: App, gateway: Gateway, workspace: Workspace
) -> None:
    async def admit(principal: Principal, conversation_id: str) -> None:
        if (principal.user_id, conversation_id) != ("ann", "c1"):
            raise NotFound("there is no such conversation")

    guarded = gateway(admit=admit)
    ann = workspace.user("ann")
    await put(guarded.for_(ann, conversation_id="c1"), "t", "mine")
    await put(guarded.for_(ann), "by itself", "mine")
    for principal, conversation_id in ((ann, "c2"), (workspace.user("bob"), "c1")):
        saver = guarded.for_(principal, conversation_id=conversation_id)
        for verb in (
            saver.aget_tuple(at("t")),
            put(saver, "t", "no"),
            listed(saver, at("t")),
            saver.adelete_thread("t"),
        ):
            with pytest.raises(NotFound, match="no such conversation"):
                await verb
    assert await guarded.delete_conversations("elsewhere", ["c1"]) == 0
    assert await guarded.delete_conversations(workspace.workspace_id, ["c1", "c2"]) == 1
    assert await threads_of(app, workspace, "ann") == ["by itself"]
    assert await said_in(guarded.for_(ann), "t") is None
    given = [("ann", "by itself"), ("bob", "by itself"), ("ann", "t")]
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        assert await guarded.delete_threads(workspace.workspace_id, given, tx) == 1
        await tx.rollback()
    assert await guarded.delete_threads(workspace.workspace_id, given) == 1
    assert await guarded.delete_threads(workspace.workspace_id, given) == 0
    assert await said_in(guarded.for_(ann), "by itself") is None


async def test_threads_of_a_conversation_of_whence_are_its_owners_and_end_with_it(
    timed: App, workspace: Workspace, time: Time, tables: None
) -> None:
    ann, bob, ws = workspace.user("ann"), workspace.user("bob"), workspace.workspace_id
    gateway = CheckpointerGateway.of(timed)
    talk = (await timed.conversations.start(ann, "Plans", [NewMessage("first")])).conversation_id
    saver = gateway.for_(ann, conversation_id=str(talk))
    await put(saver, "t", "mine")
    for who, named in ((bob, str(talk)), (ann, str(uuid4())), (ann, "no uuid")):
        with pytest.raises(NotFound, match="there is no such conversation"):
            await put(gateway.for_(who, conversation_id=named), "t", "no")
    await timed.conversations.delete(ann, talk)
    with pytest.raises(NotFound):
        await said_in(saver, "t")
    time.passes(days=29)
    await timed.retention.apply(ws)
    assert await threads_of(timed, workspace, "ann") == ["t"]
    time.passes(days=1)
    async with timed.database.transaction(Scope(ws)) as tx:
        # Left to the next run while somebody writes to the thread, and the head goes on.
        await put(gateway.for_(ann, tx=tx), "t", "late")
        assert (await timed.retention.apply(ws)).conversations_disposed == 0
        [outcome] = await timed.ledger.append_in(tx, workspace.admin, [event({"text": "done"})])
        assert outcome.status == "accepted"
    assert (await timed.retention.apply(ws)).conversations_disposed == 1
    assert await threads_of(timed, workspace, "ann") == []
    assert await said_in(gateway.for_(ann), "t") is None


async def test_in_a_callers_transaction_no_other_connection_is_waited_for(
    app: App, gateway: Gateway, workspace: Workspace, postgres: embedded.EmbeddedServer
) -> None:
    ann = workspace.user("ann")
    talk = str((await app.conversations.start(ann, "Plans")).conversation_id)
    theirs = str((await app.conversations.start(workspace.user("bob"), "Plans")).conversation_id)
    mark = await put(gateway().for_(ann), "t", "first")
    keys = SubjectKeys(app.database, app.ledger.keys._provider, app.clock)  # pyright: ignore[reportPrivateUsage]
    async with Database(postgres.app_conninfo, max_connections=2) as small:
        talks = Conversations(small, app.ledger, app.clock)
        cold = CheckpointerGateway(small, Threads(small, keys, app.clock), True, None, talks)
        for scope in (ann.scope, Scope(workspace.workspace_id)):
            async with small.transaction(None), small.transaction(scope) as tx:
                saver = cold.for_(ann, tx=tx, conversation_id=talk)
                await put(saver, "t", "second", mark)
                assert await said_in(saver, "t", mark) == ["first"] * 4
                assert len(await listed(saver, None, filter={"said": "second"})) == 1
                for other in (theirs, "c1"):
                    with pytest.raises(NotFound, match="no such conversation"):
                        await said_in(cold.for_(ann, tx=tx, conversation_id=other), "t")
                await tx.rollback()
            cold.threads.forget(workspace.workspace_id, "ann")


@pytest.mark.parametrize("sealed", [False, True], ids=["clear", "sealed"])
async def test_a_call_of_a_subgraph_is_pruned_with_the_checkpoint_that_it_began_from(
    gateway: Gateway, workspace: Workspace, owner: Connection, sealed: bool
) -> None:
    saver = gateway(sealed).for_(workspace.user("ann"))
    old = await put(saver, "t", "old")
    new = await put(saver, "t", "new", old)
    unsaved = empty_checkpoint()["id"]
    for ns, root in (("call:1", old), ("call:2", new), ("call:3", unsaved), ("lasting", old), ("call:1|deep:1", old)):
        checkpoint = empty_checkpoint() | {"channel_versions": {"said": "1"}, "channel_values": {"said": ["x"]}}
        stored = await saver.aput(at("t", ns=ns), checkpoint, {"parents": {"": root}}, {"said": "1"})
        await saver.aput_writes(stored, [("said", ["x"])], "task-1")
    await saver.aprune(["t"])
    stored_as = thread_name(workspace.workspace_id, "ann", "t").stored_as
    for table in TABLES:
        statement = sql.SQL("SELECT checkpoint_ns FROM langgraph.{} WHERE thread_id = %s ORDER BY 1")
        left = owner.execute(statement.format(sql.Identifier(table)), [stored_as]).fetchall()
        assert left == [("",), ("call:2",), ("call:3",), ("lasting",)], table


async def waits(app: App, *tasks: "asyncio.Task[Any]") -> None:
    """Until all of them wait for a lock; or one does not, and is done."""
    while not any(task.done() for task in tasks):
        async with app.database.transaction(None) as tx:
            row = await (await tx.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).fetchone()
        if row is not None and row[0] >= len(tasks):
            return


@pytest.mark.parametrize("sealed", [False, True], ids=["clear", "sealed"])
@pytest.mark.parametrize("puts_first", [False, True], ids=["append first", "put first"])
async def test_a_first_write_beside_an_erasure_goes_with_it_or_comes_after_it(
    app: App, gateway: Gateway, workspace: Workspace, sealed: bool, puts_first: bool
) -> None:
    """Whichever of the head and the thread a transaction holds first, neither it nor the erasure fails."""
    ann, told = workspace.user("ann"), event({"text": "done"}, user_id="ann")
    await app.threads.keys(workspace.workspace_id, "ann", make=True)
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        saver = gateway(sealed).for_(ann, tx=tx)
        steps = [lambda: app.ledger.append_in(tx, workspace.admin, [told]), lambda: put(saver, "t", "mine")]
        first, second = reversed(steps) if puts_first else steps
        await first()
        erasing = asyncio.create_task(app.erasures.erase(workspace.admin, "ann"))
        await waits(app, erasing)
        await second()
    receipt = await erasing
    assert receipt.removed["threads"].count == 1
    assert await threads_of(app, workspace, "ann") == []
    # One that waits for an erasure is of after it: as long as it waited.
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        await tx.execute(lifecycle["erase_alone"], {"workspace_id": workspace.workspace_id, "subject_id": "ann"})
        saver, touch = (
            gateway(sealed),
            Touch(thread_name(workspace.workspace_id, "ann", "t"), None, None, receipt.erased_at),
        )
        touching = asyncio.create_task(saver.store(ann.scope, None, touch, []))
        await waits(app, touching)
        assert not touching.done()
        since = app.clock()
        await waits(app, touching)
        over = app.clock()
    await touching
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        [thread] = await app.threads.of_user(tx, workspace.workspace_id, "ann")
    assert thread.created_at - receipt.erased_at > over - since
    assert all(check.ok for check in await app.erasures.verify(receipt))


async def test_a_run_is_deleted_and_a_thread_copied_whole_beside_somebody_who_writes(
    app: App, gateway: Gateway, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    saver = gateway().for_(ann, conversation_id="c1")
    one = await put(saver, "t", "first", run_id="r1")
    found = await saver.aget_tuple(at("t"))
    assert found is not None
    async with app.database.transaction(ann.scope) as tx:
        # The next one has nothing new to say: it refers to what the first one has said.
        checkpoint = found.checkpoint | {"id": empty_checkpoint()["id"]}
        stored = await gateway().for_(ann, tx=tx).aput(at("t", one), checkpoint, {"run_id": "r2", "said": "first"}, {})
        beside = gateway().for_(ann)
        tasks = [
            asyncio.create_task(verb) for verb in (beside.acopy_thread("t", "u"), beside.acopy_thread("no such", "v"))
        ]
        await waits(app, tasks[0])
        tasks.append(asyncio.create_task(beside.adelete_for_runs(["r1"])))
        await waits(app, tasks[0], tasks[2])
    await asyncio.gather(*tasks)
    newest = stored["configurable"]["checkpoint_id"]
    assert await said_in(saver, "t", one) is None
    assert await said_in(saver, "t", newest) == ["first"] * 3
    assert await said_in(saver, "u", newest) == ["first"] * 3
    # A copy ends with what it is a copy of, unless it is said or known already with what it does.
    await beside.acopy_thread("t", "w")
    await gateway().for_(ann, conversation_id="c2").acopy_thread("t", "x")
    await beside.acopy_thread("u", "x")
    assert await gateway().delete_conversations(workspace.workspace_id, ["c1"]) == 3
    assert await threads_of(app, workspace, "ann") == ["x"]


def test_the_page_of_the_how_to_runs(tables: None, data_dir: Path) -> None:
    """Twice, on whatever user of the database has no thread yet."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "keep-checkpoints.md"
    program = page.read_text().split("```python\n")[1].split("```")[0]
    again = program.replace("asyncio.run(main())", "asyncio.run(main())\nasyncio.run(main())")
    environment = clean_environment() | {"WHENCE_DATA_DIR": str(data_dir)}
    done = subprocess.run([sys.executable, "-c", again], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout == "You have said 1 things.\nYou have said 3 things.\n", done.stderr
