"""What the lifecycle asks every hour reads little while nothing is due, however much memory there is."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import ClientCursor, Connection, connect, sql

from whence.db import embedded
from whence.db.migrate import migrate
from whence.db.queries import load
from whence.lifecycle.corroboration import MAX_COMPARED_SOURCES, MAX_TELLINGS
from whence.lifecycle.policies import Policies
from whence.memory.profiles import Profiles

ROWS = 30_000
MAX_PAGES = 150
"""The tables have more than a thousand."""

SQL = load("whence.lifecycle")
FILL = """
INSERT INTO whence.memories (workspace_id, memory_id, position, user_id, subject_id, agent, profile, tier, kind,
    session_id, body, body_hash, conflict_key, object_key, importance, valid_at, recorded_at, archived_at)
SELECT 'w', gen_random_uuid(), i, 'u' || i % 10, 'u', 'gateway', 'gateway',
    CASE WHEN i % 5 < 4 THEN 'persistent' ELSE 'session' END, (ARRAY['semantic', 'episodic', 'procedural'])[1 + i % 3],
    CASE WHEN i % 5 = 4 THEN 's' || i / 50 END, 'thing number ' || i, sha256(convert_to(i::text, 'UTF8')),
    CASE WHEN i % 7 = 0 THEN 'k' || i END, CASE WHEN i % 7 = 0 THEN 'o' END, 0.5, now(),
    now() - interval '60 days' * (1 + i % 9 * (i % 3 - 1) * (i % 3)),
    CASE WHEN i % 5 = 4 AND i % 3 = 1 THEN now() - interval '60 days' END
FROM generate_series(1, {rows}) i;
INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id, told_at)
SELECT workspace_id, memory_id, 'user:x', 'told', position, memory_id, recorded_at FROM whence.memories;
INSERT INTO whence.sessions (workspace_id, owner, agent, session_id, number, idle_days, opened_at, first_position,
    last_activity_at, last_position)
SELECT 'w', 'u' || i % 10, 'gateway', 's' || i, 1, 30, now(), i, now() - interval '20 days', i
FROM generate_series(1, {rows}) i;
"""
FACTS = 10
TOLD_IN = 500
"""Sessions in which each fact was told, most of them closed, each time from sources of several sorts."""
FILL_OFTEN = """
INSERT INTO whence.sessions (workspace_id, owner, agent, session_id, number, idle_days, opened_at, first_position,
    last_activity_at, last_position, closed_at, ended_at, close_event_id)
SELECT 'often', 'often', 'gateway', 'o' || i, 1, 30, now(), 100000 + 100 * i, now(), 100099 + 100 * i, c.at, c.at,
    CASE WHEN c.at IS NOT NULL THEN gen_random_uuid() END
FROM generate_series(1, {told_in}) i, LATERAL (SELECT CASE WHEN i < {told_in} THEN now() END AS at) c;
INSERT INTO whence.memories (workspace_id, memory_id, position, user_id, subject_id, agent, profile, tier, kind,
    session_id, body, body_hash, conflict_key, object_key, importance, valid_at, recorded_at, deleted_at)
SELECT 'often', gen_random_uuid(), 100000 + 100 * i + f, 'often', 'often', 'gateway', 'gateway', 'session', 'semantic',
    'o' || i, 'fact ' || f, sha256(convert_to('fact ' || f, 'UTF8')), 'often told ' || f, 'o', 0.5, now(), now(),
    CASE WHEN i < {told_in} THEN now() END
FROM generate_series(1, {told_in}) i, generate_series(1, {facts}) f;
INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id, told_at, origin)
SELECT m.workspace_id, m.memory_id, s.source, s.role, m.position, m.memory_id, now(), s.origin
FROM whence.memories m, LATERAL (
    SELECT 'session:' || m.session_id AS source, 'told' AS role, NULL::uuid AS origin
    UNION ALL
    SELECT gen_random_uuid()::text, 'event', NULL FROM generate_series(1, 3)
    UNION ALL
    (SELECT gen_random_uuid()::text, 'event', n.memory_id FROM whence.memories n
     WHERE n.conflict_key = m.conflict_key AND n.workspace_id = m.workspace_id ORDER BY n.position LIMIT 3)
    UNION ALL
    (SELECT n.memory_id::text, 'memory', NULL FROM whence.memories n
     WHERE n.conflict_key = m.conflict_key AND n.workspace_id = m.workspace_id AND n.position < m.position
     ORDER BY n.position DESC LIMIT 3)
) s
WHERE m.owner = 'often';
INSERT INTO whence.recall_hits (workspace_id, memory_id, recall_id, rank)
SELECT m.workspace_id, m.memory_id, gen_random_uuid(), 1
FROM whence.memories m, generate_series(1, 5) WHERE m.owner = 'often';
"""


@pytest.fixture(scope="module", params=["analysed", "as it was filled"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with embedded.start(tmp_path_factory.mktemp("filled") / "data") as running:
        migrate(running.owner_conninfo)
        with connect(running.owner_conninfo, autocommit=True) as owner:
            owner.execute("ALTER DATABASE whence SET plan_cache_mode = force_generic_plan")
            owner.execute("SET ROLE whence_workspace")
            owner.execute("SET app.workspace_id = 'w'")
            owner.execute(sql.SQL(FILL).format(rows=ROWS))
            owner.execute("SET app.workspace_id = 'often'")
            owner.execute(sql.SQL(FILL_OFTEN).format(facts=FACTS, told_in=TOLD_IN))
            owner.execute("RESET ROLE")
            if request.param == "analysed":
                tables = "memories, whence.memory_sources, whence.sessions, whence.recall_hits"
                owner.execute(f"ANALYZE whence.{tables}")  # pyright: ignore[reportArgumentType] (no name of a user)
        with connect(running.app_conninfo, autocommit=True, cursor_factory=ClientCursor) as conn:
            yield conn


def values() -> dict[str, Any]:
    now, rules = datetime.now(UTC), Policies({}).rules(Profiles({}, {}))
    return {
        "workspace_id": "w",
        "now": now,
        "limit": 1_000,
        "text": 200,
        "tombstone": True,
        "owner": "u4",
        "agent": "gateway",
        "session_id": "s20",
        "number": 0,
        "active_at": None,
        "first": 1,
        "until": ROWS,
        "sources": MAX_COMPARED_SOURCES,
        "tellings": MAX_TELLINGS,
        "profiles": [rule.profile for rule in rules],
        "entities": [rule.entity for rule in rules],
        "kinds": [rule.kind for rule in rules],
        "classes": [rule.content_class for rule in rules],
        "timers": [rule.policy.timer for rule in rules],
        "disposals": [rule.policy.disposal for rule in rules],
        "active_before": [now - timedelta(days=rule.policy.active_days) for rule in rules],
        "grace_before": [now - timedelta(days=rule.policy.grace_days) for rule in rules],
    }


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("expired", "whence_workspace"),
        ("disposable", "whence_workspace"),
        ("orphans", "whence_workspace"),
        ("stretches_to_close", "whence_workspace"),
        ("workspaces_to_close", "whence_worker"),
        ("tellings", "whence_workspace"),
    ],
)
def test_it_reads_few_pages_while_nothing_is_due(filled: Connection, name: str, role: str) -> None:
    pages, plan = pages_of(filled, name, role, values())
    assert pages < MAX_PAGES, "\n".join(plan)


def test_a_close_reads_little_of_each_telling_however_often_a_fact_was_told(filled: Connection) -> None:
    """Of each fact all tellings are looked at and the last ones compared, each with ten sources: a few pages each."""
    asked = {"workspace_id": "often", "owner": "often", "session_id": f"o{TOLD_IN}", "until": 10**9}
    pages, plan = pages_of(filled, "tellings", "whence_workspace", values() | asked)
    assert pages < FACTS * (TOLD_IN + 40 * MAX_TELLINGS), "\n".join(plan)


def pages_of(filled: Connection, name: str, role: str, given: dict[str, Any]) -> tuple[int, list[str]]:
    """That a statement reads, with its plan."""
    order = list[str]()

    def placed(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    with filled.transaction(force_rollback=True):
        filled.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        filled.execute("SELECT set_config('app.workspace_id', %s, true)", [given["workspace_id"]])
        filled.execute("PREPARE asked AS " + re.sub(r"%\((\w+)\)s", placed, SQL[name].decode()))
        given_values = [given[each] for each in order]
        asked = sql.SQL("EXPLAIN (ANALYZE, BUFFERS) EXECUTE asked ({})").format(
            sql.SQL(", ").join(map(sql.Literal, given_values))
        )
        plan = [row[0] for row in filled.execute(asked).fetchall()]
        filled.execute("DEALLOCATE asked")
    pages = next(line for line in plan if "Buffers" in line)
    return sum(int(count) for count in re.findall(r"(?:hit|read)=(\d+)", pages)), plan
