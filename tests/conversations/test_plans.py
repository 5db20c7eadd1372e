"""What is asked of conversations reads little, however many there are, with the plan that fits all values."""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import ClientCursor, Connection, connect, sql

from whence.db import embedded
from whence.db.queries import load

MAX_PAGES = 90
"""The tables have more than five hundred."""
MAX_PAGES_BEFORE = 250
"""Where statistics are of what other tests have left there: all of one user's conversations, say."""

SQL = load("whence.lifecycle") | load("whence.conversations")
FILL = """
INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, broadcast_key, started_at,
    active_at, deleted_at)
SELECT 'plans', md5(i::text)::uuid, i, CASE WHEN i % 100 = 0 THEN 'broadcast' ELSE 'private' END,
    CASE WHEN i % 100 > 0 THEN 'u' || i % 10 END, CASE WHEN i % 100 = 0 THEN 'k' || i END, now(), now(),
    CASE WHEN i % 100 = 1 THEN now() END
FROM generate_series(1, 10000) i;
INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, forked_from, started_at,
    active_at)
SELECT 'plans', gen_random_uuid(), i + 10000, 'fork', 'u' || i, md5('100')::uuid, now(), now()
FROM generate_series(1, 5000) i;
INSERT INTO whence.conversation_messages (workspace_id, conversation_id, place, message_id, position, user_id, role,
    recorded_at)
SELECT workspace_id, conversation_id, n, md5(position || ' ' || n)::uuid, position, user_id, 'user', now()
FROM whence.conversations, generate_series(1, 2) n WHERE workspace_id = 'plans';
"""
# Beside a large workspace there are many small ones, so that a plan for any is not one for the large.
SMALL = """
DO $$
BEGIN
    FOR i IN 1..300 LOOP
        PERFORM set_config('app.workspace_id', 'small' || i, true);
        INSERT INTO whence.conversations (
            workspace_id, conversation_id, position, state, user_id, started_at, active_at)
        VALUES ('small' || i, gen_random_uuid(), 1, 'private', 'ann', now(), now());
    END LOOP;
    PERFORM set_config('app.workspace_id', 'plans', true);
END $$;
"""
# Of a time long past, half of them deleted since.
OLD = """
INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, started_at, active_at,
    deleted_at)
SELECT 'plans', md5('old' || i)::uuid, i + 20000, 'private', 'u' || i % 10, now() - interval '3 years',
    now() - interval '2 years', CASE WHEN i % 2 = 0 THEN now() - interval '1 year' END
FROM generate_series(1, 10000) i;
"""
REMOVED = 40
REMOVE = """
SELECT whence.effect_retire_conversations('plans', 40000, now(), jsonb_build_object('retire',
    (SELECT jsonb_agg(jsonb_build_object('conversation_id', md5('old' || 2 * i)::uuid)) FROM generate_series(1, %s) i)))
"""
ROWS_READ = """
SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables
WHERE relname IN ('conversations', 'conversation_messages')
"""
ASKED = {
    "conversations_page": "whence_app",
    "conversation_by_id": "whence_app",
    "fork_of": "whence_app",
    "messages_page": "whence_app",
    "message_by_id": "whence_app",
    "broadcast_of_key": "whence_workspace",
    "conversations_due": "whence_workspace",
    "conversations_idle": "whence_workspace",
    "conversations_still_idle": "whence_workspace",
    "conversations_tombstoned": "whence_workspace",
    "told_in_conversations": "whence_workspace",
}


def named(text: str) -> UUID:
    return UUID(hashlib.md5(text.encode()).hexdigest())


def values() -> dict[str, Any]:
    now = datetime.now(UTC)
    return {
        "workspace_id": "plans",
        "user_id": "u4",
        "conversation_id": named("100"),
        "message_id": named("4 1"),
        "key": "k500",
        "state": None,
        "before": 1 << 62,
        "after": 0,
        "limit": 5,
        "ids": [named("4"), *(named(f"old{number}") for number in range(1, 10, 2))],
        "active_before": now - timedelta(days=365),
        "grace_before": now - timedelta(days=30),
    }


def test_each_statement_reads_few_pages(postgres: embedded.EmbeddedServer) -> None:
    with connect(postgres.owner_conninfo, cursor_factory=ClientCursor) as conn:
        conn.execute("SET plan_cache_mode = force_generic_plan")
        become(conn, "whence_workspace")
        conn.execute("SET LOCAL app.workspace_id = 'plans'")
        conn.execute("SET LOCAL app.user_id = 'u4'")
        conn.execute(FILL)
        conn.execute(SMALL)
        for most in (MAX_PAGES_BEFORE, MAX_PAGES):
            for name, role in ASKED.items():
                assert_reads_little(conn, name, role, most)
            analyse(conn)
        conn.execute(OLD)
        for most in (MAX_PAGES_BEFORE, MAX_PAGES):
            # All that is due is what the other one tells.
            for name in ASKED.keys() - {"conversations_due"}:
                assert_reads_little(conn, name, ASKED[name], most)
            analyse(conn)
        before = conn.execute(ROWS_READ).fetchone()
        assert conn.execute(REMOVE, [REMOVED]).fetchone() == ({"expired": 0, "disposed": REMOVED},)
        after = conn.execute(ROWS_READ).fetchone()
        assert before is not None
        assert after is not None
        assert after[0] - before[0] < 10 * REMOVED
        conn.rollback()


def become(conn: Connection, role: str) -> None:
    conn.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))


def analyse(conn: Connection) -> None:
    become(conn, "whence_owner")
    conn.execute("ANALYZE whence.conversations, whence.conversation_messages")
    become(conn, "whence_workspace")


def assert_reads_little(conn: Connection, name: str, role: str, most: int) -> None:
    become(conn, role)
    # The first time functions are planned, which reads the catalog.
    _, plan = planned(conn, name), planned(conn, name)
    pages = next(line for line in plan if "Buffers" in line)
    read = sum(int(count) for count in re.findall(r"(?:hit|read)=(\d+)", pages))
    assert read < most, f"{name}\n" + "\n".join(plan)


def planned(conn: Connection, name: str) -> list[str]:
    given, order = values(), list[str]()

    def placed(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    conn.execute("PREPARE asked AS " + re.sub(r"%\((\w+)\)s", placed, SQL[name].decode()))
    arguments = sql.SQL(", ").join(sql.Literal(given[each]) for each in order)
    plan = conn.execute(sql.SQL("EXPLAIN (ANALYZE, BUFFERS) EXECUTE asked ({})").format(arguments)).fetchall()
    conn.execute("DEALLOCATE asked")
    return [row[0] for row in plan]
