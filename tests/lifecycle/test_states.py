"""The view of states against what it is defined as, on any graph of references and tombstones."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from psycopg import Connection, sql

from whence.lifecycle import decay

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GONE = -1
"""A source that has no row any more."""


def expected(
    sources: list[list[tuple[str, int]]], deleted: list[bool], cited: list[bool], told_again_cited: list[bool]
) -> list[str]:
    """As docs/explanation/retention.md says it."""

    def of(place: int) -> str:
        if deleted[place]:
            return "TOMBSTONED"
        derived = any(
            ("memory", place) in given and not deleted[other] and other != place for other, given in enumerate(sources)
        )
        if cited[place] or told_again_cited[place] or derived:
            return "REFERENCED"
        if sources[place] and all(
            role == "memory" and (source == GONE or deleted[source]) for role, source in sources[place]
        ):
            return "ORPHANED"
        return "ACTIVE"

    return [of(place) for place in range(len(deleted))]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[tuple[str, int]]], list[bool], list[bool], list[bool]]:
    count = draw(st.integers(1, 7))
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    source = st.tuples(st.sampled_from(["memory", "memory", "event", "told"]), st.integers(GONE, count - 1))
    sources = [draw(st.lists(source, max_size=3, unique=True)) for _ in range(count)]
    return sources, draw(flags), draw(flags), draw(flags)


def stored(
    owner: Connection,
    workspace_id: str,
    graph: tuple[list[list[tuple[str, int]]], list[bool], list[bool], list[bool]],
) -> list[UUID]:
    sources, deleted, cited, told_again_cited = graph
    ids = [uuid4() for _ in deleted]
    for place, memory_id in enumerate(ids):
        owner.execute(
            """INSERT INTO whence.memories (workspace_id, memory_id, position, user_id, subject_id, agent, profile,
                 tier, kind, body, body_hash, importance, valid_at, recorded_at, deleted_at)
               VALUES (%s, %s, %s, 'ann', 'ann', 'a', 'gateway', 'persistent', 'episodic', 'x', '', 0.5, %s, %s, %s)""",
            (workspace_id, memory_id, place + 1, NOW, NOW, NOW if deleted[place] else None),
        )
        again = uuid4()
        for role, source in sources[place]:
            text = str(uuid4() if source == GONE else ids[source]) if role == "memory" else f"{role}:{source}"
            owner.execute(
                """INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id,
                     user_id, told_at) VALUES (%s, %s, %s, %s, 1, %s, 'ann', %s)""",
                (workspace_id, memory_id, text, role, memory_id, NOW),
            )
        for is_cited, what in ((cited[place], memory_id), (told_again_cited[place], again)):
            if is_cited:
                owner.execute(
                    """INSERT INTO whence.action_cites (workspace_id, action_id, cited, place, user_id)
                       VALUES (%s, %s, %s, 1, 'ann')""",
                    (workspace_id, uuid4(), what),
                )
        owner.execute(
            """INSERT INTO whence.memory_tellings (workspace_id, event_id, memory_id, position, user_id)
               VALUES (%s, %s, %s, 1, 'ann')""",
            (workspace_id, again, memory_id),
        )
    return ids


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs())
def test_the_view_is_what_it_is_defined_as(
    owner: Connection, graph: tuple[list[list[tuple[str, int]]], list[bool], list[bool], list[bool]]
) -> None:
    workspace_id = f"view-{uuid4().hex}"
    with owner.transaction(force_rollback=True):
        owner.execute("SET LOCAL ROLE whence_workspace")
        owner.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(workspace_id))
        ids = stored(owner, workspace_id, graph)
        states = dict(owner.execute("SELECT id, state FROM whence.retention_states").fetchall())
        assert [states[memory_id] for memory_id in ids] == expected(*graph)
        # Whoever may see all of it sees the same.
        owner.execute("SET LOCAL ROLE whence_app")
        owner.execute("SET LOCAL app.user_id = 'ann'")
        assert dict(owner.execute("SELECT id, state FROM whence.retention_states").fetchall()) == states
        owner.execute("SET LOCAL app.user_id = 'bob'")
        assert owner.execute("SELECT id, state FROM whence.retention_states").fetchall() == []


def test_the_thresholds_are_in_order() -> None:
    assert 0 < decay.WARM_STRENGTH < decay.HOT_STRENGTH < 1
