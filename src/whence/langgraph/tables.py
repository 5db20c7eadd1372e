"""The tables of LangGraph's saver: made by its own set-up in the schema `langgraph`, by the owner, and by no migration.

Afterwards the server's roles may read and change rows, and nothing else; and row-level security keeps each to the
threads of whom it works for, as everywhere.
"""

import asyncio
from typing import Any, cast

import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg import AsyncConnection

from whence.db import Tx
from whence.db.migrate import reason
from whence.errors import DatabaseError

SCHEMA = "langgraph"
WAIT_SECONDS = 0.1
# Any number will do as long as it stays the same: it is what two processes meet on.
_LOCK = 7_311_946_202

_UP_TO_DATE = b"""
SELECT has_schema_privilege('langgraph', 'USAGE') AND has_table_privilege('langgraph.checkpoint_writes', 'DELETE')
    AND (SELECT max(v) = %(newest)s FROM langgraph.checkpoint_migrations)
"""
_OF_OTHERS = b"""
SELECT EXISTS (SELECT FROM langgraph.checkpoints) AND NOT EXISTS (
    SELECT FROM pg_policy WHERE polrelid = 'langgraph.checkpoints'::regclass AND polname = 'of_workspace'
)
"""
# Not forced on the owner: migrations of the framework may have to change rows.
_GRANTS = b"""
DO $$
DECLARE
    made text;
BEGIN
    GRANT USAGE ON SCHEMA langgraph TO whence_app, whence_workspace;
    GRANT SELECT ON langgraph.checkpoint_migrations TO whence_app;
    FOREACH made IN ARRAY ARRAY['checkpoints', 'checkpoint_blobs', 'checkpoint_writes'] LOOP
        EXECUTE format('ALTER TABLE langgraph.%I ENABLE ROW LEVEL SECURITY', made);
        EXECUTE format('DROP POLICY IF EXISTS of_user ON langgraph.%I', made);
        EXECUTE format('DROP POLICY IF EXISTS of_workspace ON langgraph.%I', made);
        EXECUTE format(
            'CREATE POLICY of_user ON langgraph.%I TO whence_app'
            ' USING (starts_with(thread_id, (SELECT whence.thread_prefix('
            ' current_setting(''app.workspace_id'', true), current_setting(''app.user_id'', true)))))',
            made);
        EXECUTE format(
            'CREATE POLICY of_workspace ON langgraph.%I TO whence_workspace USING (starts_with(thread_id, (SELECT'
            ' current_setting(''app.workspace_id'', true) || ''/'')))',
            made);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON langgraph.%I TO whence_app, whence_workspace', made);
    END LOOP;
END $$
"""


async def set_up(app_conninfo: str, owner_conninfo: str) -> bool:
    """Brings the tables to what the installed saver wants; says whether there was anything to do."""
    try:
        if await _is_up_to_date(app_conninfo):
            return False
        async with await AsyncConnection.connect(owner_conninfo, autocommit=True) as conn:
            await _alone(conn)
            await _set_up(conn)
    except psycopg.Error as error:
        todo = "run `whence checkpoints setup` with the owner's URL"
        raise DatabaseError(f"the tables of LangGraph cannot be made: {reason(error)}; {todo}") from error
    return True


async def _is_up_to_date(conninfo: str) -> bool:
    async with await AsyncConnection.connect(conninfo, autocommit=True) as conn:
        try:
            await conn.execute("SET ROLE whence_app")
            row = await (await conn.execute(_UP_TO_DATE, {"newest": len(AsyncPostgresSaver.MIGRATIONS) - 1})).fetchone()
        except (
            psycopg.errors.InvalidSchemaName,
            psycopg.errors.UndefinedTable,
            psycopg.errors.InsufficientPrivilege,
        ):
            return False
    return row == (True,)


async def _alone(conn: Tx) -> None:
    """By asking again and again: the framework makes indexes concurrently, which wait for everybody who waits."""
    while True:
        if await (await conn.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,))).fetchone() == (True,):
            return
        await asyncio.sleep(WAIT_SECONDS)


async def _is_of_others(conn: Tx) -> bool:
    """Rows without our policies: who reads them by other roles would see none of them any more."""
    there = await (await conn.execute("SELECT to_regclass('langgraph.checkpoints') IS NOT NULL")).fetchone()
    return there == (True,) and await (await conn.execute(_OF_OTHERS)).fetchone() == (True,)


async def _set_up(conn: Tx) -> None:
    """Outside of a transaction, as the framework wants it. The lock ends with the connection."""
    await conn.execute("CREATE SCHEMA IF NOT EXISTS langgraph")
    if await _is_of_others(conn):
        raise DatabaseError("the schema langgraph has checkpoints of a saver that is not Whence's: move them elsewhere")
    await conn.execute("SET search_path = langgraph")
    await AsyncPostgresSaver(cast("Any", conn)).setup()
    await conn.execute("RESET search_path")
    await conn.execute(_GRANTS)
