"""The projector: each event once, in whatever steps; what it says, and nothing of anybody else's."""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection, sql

from conftest import Workspace
from lifecycle_time import Time
from samples import event
from whence.app import App
from whence.db import EVERY_WORKSPACE, Scope, embedded
from whence.graph import Anchor, Bounds
from whence.graph.project import LAG_KNOWN_SECONDS
from whence.wire import Atlas

START = datetime(2026, 1, 1, tzinfo=UTC)


def said(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


async def around(app: App, scope: Scope, **anchor: Any) -> Atlas:
    return await app.graph.subgraph(scope, Anchor(**anchor), Bounds(max_depth=10, max_nodes=500))


def edges(atlas: Atlas, edge_type: str) -> set[tuple[str, str]]:
    return {(edge.source, edge.target) for edge in atlas.edges if edge.edge_type == edge_type}


@pytest.fixture
def damage(postgres: embedded.EmbeddedServer, data_dir: Path, workspace: Workspace) -> Iterator[Callable[[str], None]]:
    """What somebody with all rights can do to the test's workspace."""
    with psycopg.connect(embedded._Files(data_dir).login("postgres"), autocommit=True) as conn:
        narrowed = f" AND workspace_id = '{workspace.workspace_id}'"
        yield lambda statement: conn.execute(statement + (narrowed if statement.startswith("UPDATE") else ""))


@pytest.fixture
def rows(owner: Connection, workspace: Workspace) -> Connection:
    """A session that sees the rows of the test's workspace."""
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    return owner


async def test_events_follow_one_another_in_their_session_by_the_time_at_which_they_occurred(
    app: App, workspace: Workspace
) -> None:
    at = {name: START + timedelta(seconds=second) for name, second in (("a", 0), ("b", 10), ("c", 20))}
    first, last = event(occurred_at=at["a"]), event(occurred_at=at["c"])
    elsewhere = event(occurred_at=at["b"], session_id="another")
    await app.ledger.append(workspace.admin, [last, elsewhere, first])
    await app.projector.catch_up(workspace.workspace_id)
    scope = Scope(workspace.workspace_id)
    atlas = await around(app, scope, session_id="s1")
    assert edges(atlas, "FOLLOWS") == {(str(last.event_id), str(first.event_id))}
    assert next(edge for edge in atlas.edges).properties == {"delta_ms": 20_000}

    late, tie = event(occurred_at=at["b"]), event(occurred_at=at["b"])
    await app.ledger.append(workspace.admin, [late, tie])
    await app.projector.catch_up(workspace.workspace_id)
    order = [first, late, tie, last]
    expected = {(str(after.event_id), str(before.event_id)) for before, after in pairwise(order)}
    assert edges(await around(app, scope, session_id="s1"), "FOLLOWS") == expected


async def test_a_parent_that_arrives_after_its_children_is_their_cause(
    app: App, workspace: Workspace, rows: Connection
) -> None:
    parent = event(event_type="agent.invoke")
    children = [event(parent_event_id=parent.event_id) for _ in range(3)]
    await app.ledger.append(workspace.admin, children)
    await app.projector.catch_up(workspace.workspace_id)
    assert rows.execute("SELECT count(*) FROM whence.graph_waiting").fetchone() == (3,)
    await app.ledger.append(workspace.admin, [parent])
    await app.projector.catch_up(workspace.workspace_id)
    assert rows.execute("SELECT count(*) FROM whence.graph_waiting").fetchone() == (0,)
    atlas = await app.graph.lineage(Scope(workspace.workspace_id), parent.event_id, "down", Bounds())
    assert edges(atlas, "CAUSED_BY") == {(str(child.event_id), str(parent.event_id)) for child in children}


async def test_a_tool_call_is_also_caused_by_the_answer_that_asked_for_it(app: App, workspace: Workspace) -> None:
    root = event(event_type="agent.invoke", occurred_at=START)
    earlier, later, after = (
        event(
            event_type="llm.generate",
            parent_event_id=root.event_id,
            occurred_at=START + timedelta(seconds=second),
            ended_at=START + timedelta(seconds=second + 1),
        )
        for second in (1, 3, 8)
    )
    tool = event(tool_name="search", parent_event_id=root.event_id, occurred_at=START + timedelta(seconds=5))
    foreign = event(event_type="llm.generate", trace_id="t2", occurred_at=START + timedelta(seconds=4))
    await app.ledger.append(workspace.admin, [root, later, earlier, foreign, after, tool])
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await app.graph.lineage(Scope(workspace.workspace_id), tool.event_id, "up", Bounds())
    causes = {edge.target: edge.properties["cause"] for edge in atlas.edges if edge.source == str(tool.event_id)}
    assert causes == {str(root.event_id): "direct", str(later.event_id): "inferred"}
    assert str(earlier.event_id) not in atlas.nodes


async def test_entities_are_known_by_their_normal_names_and_likeness_is_told_not_merged(
    app: App, workspace: Workspace
) -> None:
    names = ("Web Search", "web  search", "web_serach", "web_search", "web_search_2", "web_search_3")
    events = [event(tool_name=name, session_id=f"s{place}") for place, name in enumerate(names)]
    await app.ledger.append(workspace.admin, events)
    await app.projector.catch_up(workspace.workspace_id)
    scope = Scope(workspace.workspace_id)
    tools: dict[str, str] = {}
    same: set[tuple[str, str]] = set()
    for one in events:
        atlas = await app.graph.subgraph(scope, Anchor(event_id=one.event_id), Bounds(max_depth=1))
        tools[one.tool_name or ""] = next(edge.target for edge in atlas.edges if edge.edge_type == "REFERENCES")
        same |= edges(await around(app, scope, session_id=one.session_id), "SAME_AS")
    assert tools["Web Search"] == tools["web  search"]
    assert len(set(tools.values())) == 5
    assert ("tool:web_search", "tool:web_serach") in same
    assert not any("_2" in one and "_3" in other for one, other in same)


async def test_an_alias_counts_from_its_event_on(app: App, workspace: Workspace) -> None:
    alias = {"entity_type": "tool", "name": "search", "alias": "the Finder"}
    events = [
        event(tool_name="search", session_id="earlier"),
        event(tool_name="the finder", session_id="before"),
        event(alias, event_type="entity.alias", tool_name=None),
        event(tool_name="The  Finder", session_id="after"),
    ]
    await app.ledger.append(workspace.admin, events)
    await app.projector.catch_up(workspace.workspace_id)
    scope = Scope(workspace.workspace_id)
    before, after = [await around(app, scope, session_id=name) for name in ("before", "after")]
    assert {target for _, target in edges(before, "REFERENCES")} == {"tool:the finder"}
    assert {target for _, target in edges(after, "REFERENCES")} == {"tool:search"}
    assert edges(before, "SAME_AS") == {("tool:the finder", "tool:search")}


async def test_an_alias_for_all_leaves_everybody_their_own_entity(app: App, workspace: Workspace) -> None:
    alias = {"entity_type": "tool", "name": "search", "alias": "finder"}
    events = [
        event(tool_name="search", user_id="bob"),
        event(tool_name="finder", user_id="bob"),
        event(alias, event_type="entity.alias"),
        event(tool_name="Finder", user_id="ann", session_id="after"),
    ]
    await app.ledger.append(workspace.admin, events)
    await app.projector.catch_up(workspace.workspace_id)
    mine = await around(app, Scope(workspace.workspace_id, "ann"), session_id="after")
    assert "tool:search" in mine.nodes


async def test_aliases_of_aliases_lead_to_the_same_and_circles_are_ignored(app: App, workspace: Workspace) -> None:
    def alias(name: str, of: str) -> dict[str, str]:
        return {"entity_type": "tool", "name": of, "alias": name}

    pairs = (("b", "a"), ("c", "b"), ("a", "c"), ("a", "a"), ("x", "y"), ("y", "z"))
    names = ("a", "b", "c", "x", "y", "z")
    events = [event(tool_name=name) for name in names]
    events += [event(alias(name, of), event_type="entity.alias") for name, of in pairs]
    events += [event(tool_name=name, session_id=f"of {name}") for name in names]
    await app.ledger.append(workspace.admin, events)
    await app.projector.catch_up(workspace.workspace_id)
    scope = Scope(workspace.workspace_id)
    meant = [next(iter(edges(await around(app, scope, session_id=f"of {name}"), "REFERENCES")))[1] for name in names]
    assert meant == ["tool:a"] * 3 + ["tool:z"] * 3


async def test_an_alias_that_is_corrected_does_not_say_that_the_two_are_the_same(
    app: App, workspace: Workspace
) -> None:
    events = [
        event({"entity_type": "tool", "name": of, "alias": "finder"}, event_type="entity.alias")
        for of in ("search", "browse")
    ]
    tools = [event(tool_name=name, session_id="after") for name in ("search", "finder", "browse")]
    await app.ledger.append(
        workspace.admin, [event(tool_name=one.tool_name) for one in tools] + [events[0], events[1], *tools]
    )
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await around(app, Scope(workspace.workspace_id), session_id="after")
    assert ("tool:search", "tool:browse") not in edges(atlas, "SAME_AS")
    assert (str(tools[1].event_id), "tool:browse") in edges(atlas, "REFERENCES")


async def test_an_alias_brings_no_text_of_its_payload_into_the_clear(
    app: App, workspace: Workspace, rows: Connection
) -> None:
    texts = ("diagnosis of Bob", "the other name of Bob")
    payloads = [
        {"entity_type": kind, "name": texts[0], "alias": texts[1]} for kind in ("tool", "agent", "resource", "name")
    ]
    events = [event(payload, event_type="entity.alias", user_id="ann", subject_id="bob") for payload in payloads]
    await app.ledger.append(workspace.admin, [event(tool_name="search"), *events])
    await app.projector.catch_up(workspace.workspace_id)
    for table in ("entities", "edges", "waiting", "aliases", "set_aside"):
        found = rows.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("whence", f"graph_{table}"))).fetchall()
        assert "Bob" not in str(found)
        assert "of bob" not in str(found)
    aside = rows.execute("SELECT position, reason FROM whence.graph_set_aside ORDER BY position").fetchall()
    assert [position for position, _ in aside] == [2, 3, 4]


async def test_a_name_too_long_for_an_index_is_known_by_its_hash(app: App, workspace: Workspace) -> None:
    uri = "".join(chr(0x4E00 + (n * 7919) % 20000) for n in range(2048))
    events = [event(payload_ref=uri, session_id=f"s{n}") for n in range(2)]
    await app.ledger.append(workspace.admin, events)
    assert await app.projector.catch_up(workspace.workspace_id) == 2
    atlas = await around(app, Scope(workspace.workspace_id), session_id="s1")
    (target,) = {target for _, target in edges(atlas, "REFERENCES")}
    assert atlas.nodes[target].attributes["name"] == uri


async def test_many_names_that_are_alike_cost_no_more_than_others(app: App, workspace: Workspace) -> None:
    """Counted in comparisons, not in seconds: no event has more than a few of its names compared."""
    names = [f"Bartholomew Montgomery Featherstone Q{chr(97 + n % 26)}{chr(97 + n // 26)}x" for n in range(40)]
    events = [event(said(". And ".join(names)), user_id="ann", trace_id=f"t{n}") for n in range(3)]
    await app.ledger.append(workspace.admin, events)
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await around(app, Scope(workspace.workspace_id), session_id="s1")
    assert len([edge for edge in atlas.edges if edge.edge_type == "SAME_AS"]) <= 4 * 3


async def test_an_edge_between_two_users_events_is_neither_ones(
    app: App, workspace: Workspace, rows: Connection
) -> None:
    """Else one could ask whether an id is taken, by pointing at it and looking whether something was cut off."""
    foreign = event(user_id="bob")
    mine = [event(user_id="ann", parent_event_id=foreign.event_id) for _ in range(2)]
    summary = event({"summarizes": [str(foreign.event_id)]}, event_type="session.summary", user_id="ann")
    await app.ledger.append(workspace.admin, [mine[0], foreign, mine[1], summary])
    await app.projector.catch_up(workspace.workspace_id)
    owners = rows.execute("SELECT DISTINCT user_id FROM whence.graph_edges WHERE edge_type IN (2, 5)").fetchall()
    assert owners == [(None,)]
    ann = Scope(workspace.workspace_id, "ann")
    for one in (*mine, summary):
        atlas = await app.graph.lineage(ann, one.event_id, "up", Bounds(max_nodes=1))
        assert (atlas.meta.truncated, atlas.pagination.cursor) == (False, None)


async def test_why_an_event_was_set_aside_is_told_without_its_content(
    app: App, workspace: Workspace, rows: Connection
) -> None:
    bad = [
        event({"entity_type": "diagnosis of Bob", "name": "x", "alias": "y"}, event_type="entity.alias"),
        event({"summarizes": ["diagnosis of Bob"]}, event_type="session.summary"),
        event({"summarizes": [str(uuid.uuid4()) for _ in range(1001)]}, event_type="session.summary"),
        event({"entity_type": "tool", "name": "a\x1b[31m", "alias": "y"}, event_type="entity.alias"),
    ]
    await app.ledger.append(workspace.admin, bad)
    await app.projector.catch_up(workspace.workspace_id)
    reasons = rows.execute("SELECT reason FROM whence.graph_set_aside ORDER BY position").fetchall()
    assert len(reasons) == 4
    assert "Bob" not in str(reasons)


async def test_names_in_payloads_are_found_and_are_nowhere_in_clear(
    app: App, workspace: Workspace, rows: Connection
) -> None:
    events = [
        event(said("Ask Alice Johnson about Paris"), user_id="ann", trace_id="t1"),
        event(said("Did Alice Jonson answer?"), user_id="ann", trace_id="t2"),
        event(said("Alice Johnson is on holiday"), user_id="bob", trace_id="t3"),
    ]
    await app.ledger.append(workspace.admin, events)
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await around(app, Scope(workspace.workspace_id), session_id="s1")
    named = {"name@ann:alice johnson", "name@ann:alice jonson", "name@ann:paris", "name@bob:alice johnson"}
    assert named <= set(atlas.nodes)
    assert edges(atlas, "SAME_AS") == {("name@ann:alice jonson", "name@ann:alice johnson")}
    for table in ("entities", "edges", "vectors", "waiting", "aliases", "timeline"):
        text = str(
            rows.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("whence", f"graph_{table}"))).fetchall()
        )
        assert "lice" not in text
    mine = await around(app, Scope(workspace.workspace_id, "bob"), session_id="s1")
    assert set(mine.nodes) == {str(events[2].event_id), "name:alice johnson", "user:bob"}


async def test_texts_that_are_alike_in_other_traces_are_connected(app: App, workspace: Workspace) -> None:
    texts = (
        ("t1", "Please book me a train from Berlin to Munich tomorrow morning"),
        ("t1", "Please book me a train from Berlin to Munich tomorrow morning"),
        ("t2", "Please book me a train from Berlin to Munich tomorrow"),
        ("t3", "The quarterly numbers of the sales team look wrong"),
    )
    events = [event(said(text), trace_id=trace, user_id="ann") for trace, text in texts]
    elsewhere = event(said(texts[0][1]), trace_id="t9", user_id="bob")
    await app.ledger.append(workspace.admin, [*events, elsewhere])
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await around(app, Scope(workspace.workspace_id), session_id="s1")
    ids = [str(one.event_id) for one in events]
    assert edges(atlas, "SIMILAR_TO") == {(ids[2], ids[0]), (ids[2], ids[1])}
    scores = [edge.properties["score"] for edge in atlas.edges if edge.edge_type == "SIMILAR_TO"]
    assert all(0.85 <= float(score) <= 1 for score in scores)


async def test_a_summary_points_at_what_it_sums_up_whichever_comes_first(app: App, workspace: Workspace) -> None:
    early, late = event(), event()
    ids = [str(early.event_id), str(late.event_id)]
    summary = event({"text": "they did it", "summarizes": ids}, event_type="session.summary")
    await app.ledger.append(workspace.admin, [early, summary])
    await app.projector.catch_up(workspace.workspace_id)
    await app.ledger.append(workspace.admin, [late])
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await app.graph.lineage(Scope(workspace.workspace_id), summary.event_id, "up", Bounds())
    assert edges(atlas, "SUMMARIZES") == {(str(summary.event_id), one) for one in ids}
    assert atlas.nodes[str(summary.event_id)].node_type == "summary"


async def test_a_poisoned_event_is_set_aside_and_the_rest_goes_on(
    app: App, workspace: Workspace, rows: Connection, damage: Callable[[str], None]
) -> None:
    events = [event(said(f"Message {number} for Bob Stone"), user_id="ann") for number in range(9)]
    await app.ledger.append(workspace.admin, events)
    damage("UPDATE whence.payloads SET ciphertext = ciphertext || '\\x00' WHERE global_position = 3")
    # What follows from the sixth event is there already, so the database refuses it.
    place = {"w": workspace.workspace_id, "at": events[5].occurred_at}
    rows.execute("INSERT INTO whence.graph_timeline VALUES (%(w)s, 1, 's1', %(at)s, 6, 'ann')", place)
    assert await app.projector.catch_up(workspace.workspace_id) == 9
    aside = rows.execute("SELECT position, reason FROM whence.graph_set_aside ORDER BY position").fetchall()
    assert [position for position, _ in aside] == [3, 6]
    assert "decrypt" in aside[0][1]
    assert aside[1][1] == "UniqueViolation (graph_timeline_pkey)"
    told = rows.execute(
        "SELECT DISTINCT source >> 6 FROM whence.graph_edges WHERE source & 63 = 0 ORDER BY 1"
    ).fetchall()
    assert [position for (position,) in told] == [1, 2, 3, 4, 5, 7, 8, 9]


async def test_two_workers_project_each_event_once(app: App, workspace: Workspace, rows: Connection) -> None:
    events = [event(said(f"Message {n} for Bob Stone"), agent_id="a", user_id="ann") for n in range(300)]
    await app.ledger.append(workspace.admin, events)
    await asyncio.gather(*(app.projector.catch_up(workspace.workspace_id, 7) for _ in range(4)))
    assert rows.execute("SELECT count(*) FROM whence.graph_timeline").fetchone() == (300,)
    assert rows.execute("SELECT position FROM whence.graph_builds").fetchall() == [(300,)]


async def test_two_who_take_turns_read_the_payloads_of_what_they_take(
    app: App, workspace: Workspace, rows: Connection
) -> None:
    """One may come to the build in the moment in which the other lets it go."""
    build = await app.projector.live(workspace.workspace_id)
    for start in range(0, 300, 10):
        sent = [event(said(f"Letter {start + number} for Bob Stone")) for number in range(10)]
        await app.ledger.append(workspace.admin, sent)

        async def project(most: int, head: int = start + 10) -> None:
            while (await app.projector.step(build, most) or 0) < head:
                await asyncio.sleep(0)

        await asyncio.gather(project(1), project(2), project(3))
    assert rows.execute("SELECT count(*) FROM whence.graph_set_aside").fetchone() == (0,)
    assert rows.execute("SELECT count(*) FROM whence.graph_vectors").fetchone() == (300,)


async def test_the_worker_sees_how_far_workspaces_are_and_nothing_of_what_is_in_them(
    app: App, workspace: Workspace, raw_app: Connection
) -> None:
    await app.ledger.append(workspace.admin, [event(user_id="ann")])
    assert (workspace.workspace_id, 1, 0) in await app.projector.behind()
    with raw_app.transaction():
        raw_app.execute("SET LOCAL ROLE whence_worker")
        for table in ("events", "payloads", "users", "user_keys", "subject_keys", "graph_edges", "graph_entities"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), raw_app.transaction():
                raw_app.execute(sql.SQL("SELECT 1 FROM {}").format(sql.Identifier("whence", table)))
    async with app.database.transaction(EVERY_WORKSPACE) as tx:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await tx.execute("UPDATE whence.graph_builds SET position = 0")


async def test_lag_is_measured(app: App, workspace: Workspace) -> None:
    await app.ledger.append(workspace.admin, [event(event_id=uuid.uuid4()) for _ in range(5)])
    await app.projector.measure()
    assert (app.registry.get_sample_value("whence_projection_lag_events") or 0) >= 5
    assert (app.registry.get_sample_value("whence_projection_lag_seconds") or 0) > 0


async def test_how_far_it_is_behind_is_asked_once_in_a_while_however_often_it_is_wanted(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def behind() -> list[tuple[str, int, int]]:
        nonlocal asked
        asked += 1
        return []

    later = Time(app.clock())
    monkeypatch.setattr(app.projector, "behind", behind)
    monkeypatch.setattr(app.projector, "_clock", later)
    later.pass_by(seconds=LAG_KNOWN_SECONDS)
    assert await asyncio.gather(*(app.projector.lag() for _ in range(20))) == [0.0] * 20
    assert asked == 1
    later.pass_by(seconds=LAG_KNOWN_SECONDS)
    await app.projector.lag()
    assert asked == 2
