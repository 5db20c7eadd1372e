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


@pytest.fixture(scope="module", params=["analysed", "as it was filled"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with embedded.start(tmp_path_factory.mktemp("filled") / "data") as running:
        migrate(running.owner_conninfo)
        with connect(running.owner_conninfo, autocommit=True) as owner:
            owner.execute("ALTER DATABASE whence SET plan_cache_mode = force_generic_plan")
            owner.execute("SET ROLE whence_workspace")
            owner.execute("SET app.workspace_id = 'w'")
            owner.execute(sql.SQL(FILL).format(rows=ROWS))
            owner.execute("RESET ROLE")
            if request.param == "analysed":
                owner.execute("ANALYZE whence.memories, whence.memory_sources, whence.sessions")
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
        "sources": 2,
        "tellings": 100,
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
    given, order = values(), list[str]()

    def placed(match: re.Match[str]) -> str:
        if match[1] not in order:
            order.append(match[1])
        return f"${order.index(match[1]) + 1}"

    with filled.transaction(force_rollback=True):
        filled.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        filled.execute("SET LOCAL app.workspace_id = 'w'")
        filled.execute("PREPARE asked AS " + re.sub(r"%\((\w+)\)s", placed, SQL[name].decode()))
        given_values = [given[each] for each in order]
        asked = sql.SQL("EXPLAIN (ANALYZE, BUFFERS) EXECUTE asked ({})").format(
            sql.SQL(", ").join(map(sql.Literal, given_values))
        )
        plan = [row[0] for row in filled.execute(asked).fetchall()]
        filled.execute("DEALLOCATE asked")
    pages = next(line for line in plan if "Buffers" in line)
    assert sum(int(count) for count in re.findall(r"(?:hit|read)=(\d+)", pages)) < MAX_PAGES, "\n".join(plan)
