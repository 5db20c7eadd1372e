"""What the database enforces by itself, whatever our own filters do. The tables are walked from the catalog."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import Raw
from psycopg import Connection, sql

from conftest import Workspace
from people import add_document, leave_document
from samples import event
from whence import db
from whence.app import App
from whence.checkpoints import thread_name
from whence.errors import Unavailable
from whence.wire import ItemsRequest, NewMessage, PutItem, Recall, Remember

# Tables that hold nothing of any tenant. A new table is a tenant's unless it is named here.
SHARED_ROWS = {
    "items", "memories", "memory_index", "memory_vectors", "memory_sources", "runs", "workflows", "action_cites",
    "memory_all_sources", "memory_tellings", "retention_states", "sessions", "conversations", "conversation_messages",
}  # fmt: skip
DERIVED = (
    "graph_", "items", "memor", "recall", "runs", "canon_", "workflow", "action", "sessions", "erasures", "resource",
    "conversation",
)  # fmt: skip
VIEWS = {"memory_all_sources", "retention_states"}
SHARED_TABLES = {"schema_migrations", "library_migrations", "installation", "edge_types"}


def tables(conn: Connection) -> Iterator[str]:
    rows = conn.execute(
        """SELECT relname FROM pg_class
           WHERE relnamespace = 'whence'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')"""
    ).fetchall()
    yield from sorted(row[0] for row in rows if row[0] not in SHARED_TABLES)


async def test_the_names_of_the_session_variables_are_a_contract() -> None:
    assert db.SESSION_VAR_WORKSPACE_ID == "app.workspace_id"
    assert db.SESSION_VAR_USER_ID == "app.user_id"


async def test_a_transaction_says_who_it_is_with_literal_set_local(app: App, workspace: Workspace) -> None:
    strange = 'o\'brien \\ "x"; DROP TABLE whence.events --'
    async with app.database.transaction(db.Scope(workspace.workspace_id, strange)) as tx:
        cursor = await tx.execute(
            "SELECT current_setting('app.workspace_id'), current_setting('app.user_id'), current_user"
        )
        assert await cursor.fetchone() == (workspace.workspace_id, strange, "whence_app")
    async with app.database.transaction(db.Scope(workspace.workspace_id)) as tx:
        cursor = await tx.execute("SELECT current_user, current_setting('app.user_id', true)")
        role, user = await cursor.fetchone() or ("", "")
        assert role == "whence_workspace"
        assert not user


async def test_nothing_of_a_transaction_is_left_on_its_connection(app: App, workspace: Workspace) -> None:
    async with app.database.transaction(db.Scope(workspace.workspace_id)) as tx:
        await tx.execute("SELECT 1")
    for _ in range(20):
        async with app.database.transaction(None) as tx:
            cursor = await tx.execute("SELECT current_setting('app.workspace_id', true), current_user")
            workspace_id, role = await cursor.fetchone() or ("?", "?")
            assert not workspace_id
            assert role == "whence_app"


async def fill(app: App, workspace: Workspace) -> UUID:
    stored = event({"text": "mine"}, user_id="ann")
    payload = {"messages": [{"role": "user", "content": "Ask Bob Stone"}]}
    alias = {"entity_type": "name", "name": "Bob Stone", "alias": "Bobby"}
    others = [
        event({"text": "nobody's"}),
        event(payload, user_id="ann", agent_id="planner", parent_event_id=uuid4()),
        event(payload, user_id="ann", trace_id="t2", parent_event_id=stored.event_id),
        event(alias, event_type="entity.alias", user_id="ann"),
        event({"summarizes": "all"}, event_type="session.summary", user_id="ann"),
    ]
    await app.ledger.append(workspace.admin, [stored, *others])
    await app.projector.catch_up(workspace.workspace_id)
    await app.ledger.seals.seal(workspace.workspace_id)
    await app.ledger.seals.seal(workspace.workspace_id)
    await app.identity.add_user(workspace.workspace_id, "ann")
    await remember(app, workspace)
    for principal in (workspace.admin, workspace.user("ann")):
        await app.working.put(principal.scope, "planner", "run-7", "draft", b'"mine"')
    await app.threads.keys(workspace.workspace_id, "ann", make=True)
    async with app.database.transaction(workspace.user("ann").scope) as tx:
        await app.threads.touching(thread_name(workspace.workspace_id, "ann", "t1"), None, None).execute(tx)
    for agent in ("store", "sdr"):
        value = Raw(b'{"text": "Bob Stone"}')
        kept = PutItem(namespace=("people",), key="bob", value=value, text="Bob Stone")
        await app.items.do(workspace.user("ann"), ItemsRequest(ops=(kept,), agent=agent))
    await add_document(app, workspace, "ann", b"Said by Bob Stone", "a.txt")
    await leave_document(app, workspace, "ann", b"To be read: Bob Stone", "b.txt")
    shown, _ = await app.conversations.publish(workspace.admin, "welcome", [NewMessage("Ask Bob Stone")])
    await app.conversations.post(workspace.user("ann"), shown.conversation_id, NewMessage("I have"))
    async with app.database.transaction(db.Scope(workspace.workspace_id)) as tx:
        await tx.execute(
            """INSERT INTO whence.memory_index (workspace_id, memory_id, user_id, position, terms)
               SELECT workspace_id, memory_id, user_id, position, '{1}' FROM whence.memories"""
        )
    await erase(app, workspace)
    return stored.event_id


async def erase(app: App, workspace: Workspace) -> None:
    """Somebody, and not to the end."""

    def stop(step: str, *_: int) -> None:
        if step == "keys":
            raise Unavailable("stopped")

    await app.ledger.append(workspace.admin, [event({"text": "gone"}, subject_id="cid")])
    with pytest.raises(Unavailable):
        await app.erasures.erase(workspace.admin, "cid", stop)


async def remember(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await app.memory.set_rule(workspace.admin, "w1", "R-1", "Nobody tells.")
    run = await app.runs.start(ann, "gateway", "one")
    await app.runs.add_episode(ann, run.run_id, "asked Bob Stone")
    everybodys = Remember(agent="sdr", tier="persistent", kind="semantic", text="everybody's")
    for _ in range(2):
        shared = await app.memory.remember(ann, everybodys)
    await app.actions.record(ann, "rule.promoted", [shared.memory_id])
    await app.recaller.recall(ann, Recall())
    await app.ledger.behind.settled()
    for agent in ("gateway", "sdr"):
        await app.workflows.add(ann, agent, "triage", "short", b"{}")
    for principal in (ann, workspace.admin):
        selection = await app.workflows.select(principal, "sdr", "triage")
        await app.workflows.record_outcome(principal, selection.selection_id, 1)


async def test_every_tenant_table_forces_row_level_security_and_starts_its_keys_with_the_workspace(
    owner: Connection,
) -> None:
    found = list(tables(owner))
    assert "events" in found
    for name in found:
        if name in VIEWS:
            # A view has no rows of its own; as its caller, it sees what the caller sees.
            found_options = owner.execute(
                "SELECT reloptions FROM pg_class WHERE oid = %s::regclass", (f"whence.{name}",)
            ).fetchone()
            assert found_options == (["security_invoker=true"],)
            continue
        forced = owner.execute(
            "SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = %s::regclass", (f"whence.{name}",)
        ).fetchone()
        assert forced == (True,), f"{name} has no forced row-level security"
        keys = owner.execute(
            """SELECT c.conname, a.attname FROM pg_constraint c
               JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
               WHERE c.conrelid = %s::regclass AND c.contype IN ('p', 'u', 'f')""",
            (f"whence.{name}",),
        ).fetchall()
        assert keys
        assert {column for _, column in keys} == {"workspace_id"}, f"{name}: {keys}"


def queue_tables(conn: Connection) -> list[str]:
    rows = conn.execute(
        """SELECT relname FROM pg_class
           WHERE relnamespace = 'whence_jobs'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')"""
    ).fetchall()
    return sorted(row[0] for row in rows)


async def test_the_queue_of_jobs_is_the_one_place_without_row_level_security_and_the_worker_alone_reaches_it(
    owner: Connection, raw_app: Connection
) -> None:
    """A schema that is not named here would be walked by no test."""
    schemas = owner.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
    ).fetchall()
    # Who is who in the last of them, which is there where LangGraph is used, is tested with the gateway to it.
    assert {name for (name,) in schemas} - {"langgraph"} == {"public", "whence", "whence_jobs"}
    assert owner.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone() == (0,)
    found = queue_tables(owner)
    assert "procrastinate_jobs" in found
    for name in found:
        everything = sql.SQL("SELECT * FROM whence_jobs.{}").format(sql.Identifier(name))
        for role in ("whence_app", "whence_workspace"):
            raw_app.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw_app.execute(everything)
        raw_app.execute("SET ROLE whence_worker")
        raw_app.execute(everything)
        for forbidden in (
            "TRUNCATE whence_jobs.{}",
            "DROP TABLE whence_jobs.{}",
            "ALTER TABLE whence_jobs.{} ADD x int",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw_app.execute(sql.SQL(forbidden).format(sql.Identifier(name)))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        raw_app.execute("CREATE TABLE whence_jobs.x (id int)")


async def test_the_worker_role_reads_how_far_each_workspace_is_and_no_content(
    app: App, workspace: Workspace, owner: Connection, raw_app: Connection
) -> None:
    await fill(app, workspace)
    raw_app.execute("SET ROLE whence_worker")
    readable: set[str] = set()
    for name in tables(owner):
        try:
            raw_app.execute(sql.SQL("SELECT * FROM whence.{}").format(sql.Identifier(name)))
            readable.add(name)
        except psycopg.errors.InsufficientPrivilege:
            pass
    assert readable == {"workspaces", "workspace_heads", "graph_builds", "seals"}


@pytest.mark.parametrize(
    "smuggled",
    [
        {"args": '{"workspace_id": "w", "subject": "ann@example.com"}'},
        {"args": '{"workspace_id": {"name": "Ann"}}'},
        {"args": '{"workspace_id": "Ann Smith, 12 High Street"}'},
        {"args": '{"timestamp": "ann@example.com"}'},
        {"lock": "j/ann@example.com"},
        {"queueing_lock": "j/ann@example.com"},
        {"task_name": "erase ann@example.com"},
        {"queue_name": "ann"},
    ],
    ids=str,
)
async def test_a_job_holds_a_name_and_the_id_of_a_workspace_and_nothing_else(
    raw_app: Connection, smuggled: dict[str, str]
) -> None:
    row = {"queue_name": "j", "task_name": "j", "lock": "j/w", "queueing_lock": "j/w", "args": '{"workspace_id": "w"}'}
    raw_app.execute("SET ROLE whence_worker")
    raw_app.execute("SET search_path = whence_jobs")
    insert = """INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
                VALUES (%(queue_name)s, %(task_name)s, %(lock)s, %(queueing_lock)s, %(args)s)"""
    with raw_app.transaction(force_rollback=True):
        raw_app.execute(insert, row)
    with pytest.raises(psycopg.errors.CheckViolation):
        raw_app.execute(insert, row | smuggled)


async def test_a_session_of_the_server_without_variables_sees_and_writes_nothing(
    app: App, workspace: Workspace, owner: Connection, raw_app: Connection
) -> None:
    await fill(app, workspace)
    for role in ("whence_app", "whence_workspace"):
        raw_app.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        for name in tables(owner):
            count = raw_app.execute(sql.SQL("SELECT count(*) FROM whence.{}").format(sql.Identifier(name))).fetchone()
            assert count == (0,), f"{role} sees rows of {name}"
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw_app.execute("INSERT INTO whence.workspaces (workspace_id, created_at) VALUES ('intruder', now())")


async def test_no_table_shows_rows_of_another_workspace_or_user_even_without_a_filter(
    app: App, workspace: Workspace, owner: Connection, raw_app: Connection
) -> None:
    await fill(app, workspace)
    for name in tables(owner):
        everything = sql.SQL("SELECT * FROM whence.{}").format(sql.Identifier(name))
        with raw_app.transaction():
            raw_app.execute("SET LOCAL ROLE whence_workspace")
            raw_app.execute("SET LOCAL app.workspace_id = 'somebody-else'")
            assert raw_app.execute(everything).fetchall() == [], name
        with raw_app.transaction():
            raw_app.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(workspace.workspace_id))
            raw_app.execute("SET LOCAL app.user_id = 'bob'")
            cursor = raw_app.execute(everything)
            columns = [column.name for column in cursor.description or ()]
            if "user_id" in columns:
                # What hangs on the workspace is for everybody in it.
                shared = name in SHARED_ROWS
                rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
                assert all(shared and row["user_id"] is None for row in rows), name


async def test_the_tables_are_not_empty_in_these_tests(app: App, workspace: Workspace, owner: Connection) -> None:
    """Else they would show nothing."""
    await fill(app, workspace)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    for name in tables(owner):
        count = owner.execute(sql.SQL("SELECT count(*) FROM whence.{}").format(sql.Identifier(name))).fetchone()
        assert count != (0,), f"{name} has no rows"


async def test_a_user_reads_own_rows_without_a_filter(app: App, workspace: Workspace, raw_app: Connection) -> None:
    mine = await fill(app, workspace)
    with raw_app.transaction():
        raw_app.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(workspace.workspace_id))
        raw_app.execute("SET LOCAL app.user_id = 'ann'")
        assert (mine,) in raw_app.execute("SELECT event_id FROM whence.events").fetchall()
        for name in ("events", "payloads", "graph_timeline", "graph_edges", "graph_entities", "working_memory"):
            owners = raw_app.execute(
                sql.SQL("SELECT DISTINCT user_id FROM {}").format(sql.Identifier("whence", name))
            ).fetchall()
            assert owners == [("ann",)], name


async def test_the_server_role_owns_nothing_and_cannot_reach_beyond_its_rows(
    owner: Connection, raw_app: Connection
) -> None:
    rights = raw_app.execute(
        """SELECT rolsuper, rolbypassrls, rolcreatedb, rolcreaterole, rolreplication
           FROM pg_roles WHERE rolname = current_user"""
    ).fetchone()
    assert rights == (False, False, False, False, False)
    owned = raw_app.execute(
        """SELECT count(*) FROM pg_class WHERE relowner IN (
               SELECT oid FROM pg_roles WHERE rolname LIKE 'whence\\_%%' AND rolname <> 'whence_owner')"""
    ).fetchone()
    assert owned == (0,)
    for role in ("whence_app", "whence_workspace", "whence_worker"):
        raw_app.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        for name in (*tables(owner), *SHARED_TABLES):
            if name in VIEWS:
                continue
            table = sql.Identifier("whence", name)
            passing = name.startswith(DERIVED) and role == "whence_workspace"
            # A payload can be forgotten; its envelope cannot.
            passing |= name == "payloads" and role == "whence_workspace"
            passing |= name in ("working_memory", "threads") and role != "whence_worker"
            passing |= name == "thread_keys" and role == "whence_workspace"
            for forbidden in (
                sql.SQL("TRUNCATE {}").format(table),
                *([] if passing else [sql.SQL("DELETE FROM {}").format(table)]),
                sql.SQL("ALTER TABLE {} ADD COLUMN x int").format(table),
                sql.SQL("ALTER TABLE {} DISABLE ROW LEVEL SECURITY").format(table),
                sql.SQL("DROP TABLE {}").format(table),
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    raw_app.execute(forbidden)
        for forbidden in (
            "CREATE TABLE whence.x (id int)",
            "CREATE TABLE public.x (id int)",
            "CREATE SCHEMA x",
            "CREATE ROLE x",
            "SELECT rolpassword FROM pg_authid",
            "SELECT pg_read_file('postgresql.conf')",
            "SET ROLE whence_owner",
            "UPDATE whence.events SET session_id = 'x'",
            "COPY whence.events TO PROGRAM 'true'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw_app.execute(forbidden)


async def test_keys_and_accounts_are_deleted_by_an_erasure_alone(raw_app: Connection) -> None:
    """The server becomes that role for the one transaction; events not even then. Payloads go with what retention
    disposes of, too."""
    for name in ("subject_keys", "users", "user_keys", "events", "seals", "seal_tiles"):
        statement = sql.SQL("DELETE FROM {}").format(sql.Identifier("whence", name))
        raw_app.execute("SET ROLE whence_workspace")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw_app.execute(statement)
        raw_app.execute("RESET ROLE")
        raw_app.execute("SET ROLE whence_eraser")
        if name in ("events", "seals", "seal_tiles"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw_app.execute(statement)
        else:
            assert raw_app.execute(statement).rowcount == 0, "without a workspace it sees nothing"


async def test_even_the_owner_of_the_schema_sees_no_rows(app: App, workspace: Workspace, owner: Connection) -> None:
    """But for the rules of the canon, which the guard reads as the owner."""
    await fill(app, workspace)
    for name in tables(owner):
        count = owner.execute(sql.SQL("SELECT count(*) FROM whence.{}").format(sql.Identifier(name))).fetchone()
        assert count == (0,) or name == "canon_rules", name


async def test_connections_that_died_in_the_pool_are_replaced_before_anybody_notices(
    app: App, workspace: Workspace, owner: Connection, postgres: db.embedded.EmbeddedServer
) -> None:
    with psycopg.connect(postgres.app_conninfo, autocommit=True) as conn:
        ended = conn.execute(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE usename = 'whence_app' AND pid <> pg_backend_pid()"""
        ).fetchone()
    assert ended
    assert ended[0] >= 2
    for _ in range(3):
        assert await app.identity.workspace_exists(workspace.workspace_id)
    [outcome] = await app.ledger.append(workspace.admin, [event()])
    assert outcome.status == "accepted"
