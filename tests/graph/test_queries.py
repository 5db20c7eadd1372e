"""Queries of the graph: bounded, paged without gaps or repeats, and each for whoever asks."""

import asyncio
import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection

from conftest import Workspace
from samples import event
from whence.app import App
from whence.db import Scope
from whence.errors import InvalidInput, NotFound
from whence.graph import Anchor, Bounds, Question
from whence.wire import Atlas, Event

START = datetime(2026, 1, 1, tzinfo=UTC)


async def stored(app: App, workspace: Workspace, events: list[Event]) -> Scope:
    for start in range(0, len(events), 1000):
        outcomes = await app.ledger.append(workspace.admin, events[start : start + 1000])
        assert {outcome.status for outcome in outcomes} == {"accepted"}
    await app.projector.catch_up(workspace.workspace_id)
    return Scope(workspace.workspace_id)


async def walked(ask: Any, bounds: Bounds) -> list[Atlas]:
    """All pages."""
    pages: list[Atlas] = [await ask(bounds, None)]
    while pages[-1].pagination.has_more:
        pages.append(await ask(bounds, pages[-1].pagination.cursor))
    return pages


async def test_lineage_goes_up_to_the_root_and_every_node_says_where_it_came_from(
    app: App, workspace: Workspace
) -> None:
    chain: list[Event] = []
    for step in range(6):
        parent = chain[-1].event_id if chain else None
        chain.append(event(parent_event_id=parent, agent_id="planner", session_id=f"s{step}", trace_id=f"t{step}"))
    scope = await stored(app, workspace, chain[::-1])
    atlas = await app.graph.lineage(scope, chain[-1].event_id, "up", Bounds(max_depth=10))
    assert list(atlas.nodes) == [str(one.event_id) for one in chain[::-1]]
    for place, one in enumerate(chain[::-1]):
        node = atlas.nodes[str(one.event_id)]
        assert node.provenance.event_id == one.event_id
        assert (node.provenance.global_position, node.provenance.session_id) == (place + 1, one.session_id)
        assert (node.provenance.trace_id, node.provenance.agent_id) == (one.trace_id, "planner")
        assert node.scores["relevance"] == round(1 / (1 + place), 4)
        assert node.reason
    assert not atlas.meta.truncated
    cut = await app.graph.lineage(scope, chain[-1].event_id, "up", Bounds(max_depth=3))
    assert len(cut.nodes) == 4
    assert cut.meta.truncated
    assert not cut.pagination.has_more


async def test_a_circle_of_parents_ends(app: App, workspace: Workspace) -> None:
    one, other = uuid.uuid4(), uuid.uuid4()
    scope = await stored(
        app, workspace, [event(event_id=one, parent_event_id=other), event(event_id=other, parent_event_id=one)]
    )
    for direction in ("up", "down"):
        atlas = await app.graph.lineage(scope, one, direction, Bounds(max_depth=10))
        assert set(atlas.nodes) == {str(one), str(other)}
        assert len(atlas.edges) == 2
        assert not atlas.meta.truncated


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 7),
    depth=st.integers(1, 5),
    parents=st.sampled_from([2, 4, 60]),
    direction=st.sampled_from(["up", "down", "both"]),
)
async def test_pages_give_every_node_once_while_the_graph_grows(
    app: App, seed: int, size: int, depth: int, parents: int, direction: Literal["up", "down", "both"]
) -> None:
    """With few parents a level has so many nodes that it is not read whole."""
    name = f"w-{uuid.uuid4().hex[:12]}"
    await app.identity.add_workspace(name)
    workspace = Workspace(name, "")
    dice = random.Random(seed)
    events: list[Event] = []
    for number in range(50):
        parent = dice.choice(events[:parents]).event_id if events and dice.random() < 0.9 else None
        kind = dice.choice(["tool.execute", "llm.generate", "chain.run"])
        began = START + timedelta(seconds=dice.randrange(9))
        events.append(event(event_type=kind, parent_event_id=parent, tool_name=f"x{number % 3}", occurred_at=began))
    scope = await stored(app, workspace, events)
    root = dice.choice(events).event_id

    async def ask(bounds: Bounds, cursor: str | None) -> Atlas:
        if direction == "both":
            return await app.graph.subgraph(scope, Anchor(event_id=root), bounds, cursor)
        return await app.graph.lineage(scope, root, direction, bounds, cursor)

    whole = await ask(Bounds(depth, 500), None)
    first = await ask(Bounds(depth, size), None)
    # What arrives now is not of this walk, whatever it is connected with.
    known = [event(parent_event_id=one.event_id, occurred_at=one.occurred_at) for one in events]
    await stored(app, workspace, known)
    seen, edges, page = list(first.nodes), list(first.edges), first
    while page.pagination.has_more:
        page = await ask(Bounds(depth, size), page.pagination.cursor)
        seen += page.nodes
        edges += page.edges
    assert seen == list(whole.nodes)
    assert {(edge.source, edge.target, edge.edge_type) for edge in edges} == {
        (edge.source, edge.target, edge.edge_type) for edge in whole.edges
    }


async def test_a_wide_fan_out_is_cut_and_can_be_walked_to_its_end(app: App, workspace: Workspace) -> None:
    root = event(event_type="agent.invoke")
    children = [
        event(parent_event_id=root.event_id, session_id=f"s{n % 50}", trace_id=f"t{n % 500}") for n in range(5000)
    ]
    scope = await stored(app, workspace, [root, *children])

    async def ask(bounds: Bounds, cursor: str | None) -> Atlas:
        return await app.graph.lineage(scope, root.event_id, "down", bounds, cursor)

    first = await ask(Bounds(), None)
    assert len(first.nodes) == 100
    assert first.meta.truncated
    pages = await walked(ask, Bounds(max_nodes=500))
    ids = [node for page in pages for node in page.nodes]
    assert len(ids) == len(set(ids)) == 5001
    assert sum(len(page.edges) for page in pages) == 5000


async def test_the_pages_of_a_session_hold_each_event_and_entity_once(app: App, workspace: Workspace) -> None:
    scope = await stored(app, workspace, [event(tool_name=f"tool {n % 7}", user_id="ann") for n in range(60)])

    async def ask(bounds: Bounds, cursor: str | None) -> Atlas:
        return await app.graph.subgraph(scope, Anchor(session_id="s1"), bounds, cursor)

    pages = await walked(ask, Bounds(max_nodes=9))
    ids = [node for page in pages for node in page.nodes]
    assert len(ids) == len(set(ids)) == 60 + 7 + 1
    assert sum(edge.edge_type == "FOLLOWS" for page in pages for edge in page.edges) == 59


async def test_the_time_is_bounded_by_the_database_and_reported(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    root = event()
    scope = await stored(app, workspace, [root])
    # A lock that the query has to wait for stands in for a query that takes long.
    with owner.transaction():
        owner.execute("LOCK TABLE whence.graph_edges IN ACCESS EXCLUSIVE MODE")
        atlas = await app.graph.lineage(scope, root.event_id, "up", Bounds(timeout_ms=50))
        context = await app.graph.context(scope, Question("why?"), Bounds(timeout_ms=50))
    for cut in (atlas, context):
        assert cut.meta.timed_out
        assert cut.meta.truncated
        assert cut.pagination.has_more
        assert cut.meta.query_ms >= 50
    again = await app.graph.lineage(scope, root.event_id, "up", Bounds(), atlas.pagination.cursor)
    assert set(again.nodes) == {str(root.event_id)}


async def test_one_reads_ones_own_writes(app: App, workspace: Workspace, owner: Connection) -> None:
    parent = event(event_type="agent.invoke")
    child = event(parent_event_id=parent.event_id)
    outcomes = await app.ledger.append(workspace.admin, [parent, child])
    scope = Scope(workspace.workspace_id)
    asking = asyncio.create_task(
        app.graph.lineage(scope, child.event_id, "up", Bounds(), wait_for=outcomes[-1].position)
    )
    await asyncio.sleep(0.1)
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await asking
    assert set(atlas.nodes) == {str(parent.event_id), str(child.event_id)}
    # Whoever projects has to wait for this lock.
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    with owner.transaction():
        owner.execute("SELECT FROM whence.graph_builds FOR UPDATE")
        await app.ledger.append(workspace.admin, [event()])
        late = await app.graph.lineage(scope, child.event_id, "up", Bounds(timeout_ms=50), wait_for=3)
        assert late.meta.timed_out
        assert late.meta.position == 2
    with pytest.raises(InvalidInput, match="wait_for"):
        await app.graph.lineage(scope, child.event_id, "up", Bounds(), wait_for=4)


async def test_a_user_sees_own_nodes_only(app: App, workspace: Workspace) -> None:
    root = event(user_id="bob", tool_name="secret of bob")
    mine = event(user_id="ann", parent_event_id=root.event_id, tool_name="search")
    below = event(user_id="bob", parent_event_id=mine.event_id)
    await stored(app, workspace, [root, mine, below])
    ann = Scope(workspace.workspace_id, "ann")
    for ask in (
        app.graph.lineage(ann, mine.event_id, "up", Bounds()),
        app.graph.lineage(ann, mine.event_id, "down", Bounds()),
    ):
        atlas = await ask
        assert set(atlas.nodes) == {str(mine.event_id)}
        assert atlas.edges == []
    atlas = await app.graph.subgraph(ann, Anchor(session_id="s1"), Bounds())
    assert set(atlas.nodes) == {str(mine.event_id), "tool:search", "user:ann"}
    context = await app.graph.context(ann, Question("the secret of bob, why?", "s1"), Bounds())
    assert set(context.nodes) <= {str(mine.event_id), "tool:search", "user:ann"}
    for foreign in (root.event_id, uuid.uuid4()):
        with pytest.raises(NotFound, match="there is no such event"):
            await app.graph.lineage(ann, foreign, "up", Bounds())


async def test_a_cursor_is_for_its_own_query(app: App, workspace: Workspace) -> None:
    chain = [event()]
    for _ in range(5):
        chain.append(event(parent_event_id=chain[-1].event_id))
    scope = await stored(app, workspace, chain)
    page = await app.graph.lineage(scope, chain[-1].event_id, "up", Bounds(max_nodes=2))
    cursor = page.pagination.cursor
    assert cursor
    for wrong in (
        app.graph.lineage(scope, chain[0].event_id, "up", Bounds(max_nodes=2), cursor),
        app.graph.lineage(scope, chain[-1].event_id, "down", Bounds(max_nodes=2), cursor),
        app.graph.lineage(scope, chain[-1].event_id, "up", Bounds(max_nodes=2), "nonsense"),
        app.graph.lineage(scope, chain[-1].event_id, "up", Bounds(max_nodes=2), cursor[:-4]),
        app.graph.lineage(scope, chain[-1].event_id, "up", Bounds(max_nodes=2), "é"),
    ):
        with pytest.raises(InvalidInput, match="cursor"):
            await wrong


def message(text: str, **fields: Any) -> Event:
    return event({"messages": [{"role": "user", "content": text}]}, **fields)


async def test_context_starts_from_what_the_question_names_and_follows_its_intent(
    app: App, workspace: Workspace
) -> None:
    asked = message(
        "Please book a hotel in Lisbon for Alice Johnson",
        event_type="agent.invoke",
        user_id="ann",
        agent_id="Concierge",
    )
    answer = message("Please book a hotel", event_type="llm.generate", user_id="ann", parent_event_id=asked.event_id)
    booking = event(
        {"arguments": {"city": "Lisbon"}}, tool_name="book_hotel", user_id="ann", parent_event_id=asked.event_id
    )
    noise = [
        message(f"Water the plants in room {n}", session_id="other", trace_id=f"n{n}", user_id="ann") for n in range(30)
    ]
    await stored(app, workspace, [*noise, asked, answer, booking])
    scope = Scope(workspace.workspace_id, "ann")
    why = await app.graph.context(scope, Question("Why was book_hotel called?"), Bounds())
    assert max(why.meta.intents or {}, key=lambda name: (why.meta.intents or {})[name]) == "why"
    assert "why" in (why.meta.inferred_by or "")
    ranked = list(why.nodes)
    assert ranked[0] == "tool:book_hotel"
    assert str(booking.event_id) in ranked[:3]
    assert ranked.index(str(asked.event_id)) < 8
    assert all(node.reason and "relevance" in node.scores for node in why.nodes.values())
    who = await app.graph.context(scope, Question("alice johnson", intent="who_is"), Bounds())
    assert who.meta.intents == {"who_is": 1.0}
    assert who.meta.inferred_by == "named by the caller"
    assert next(iter(who.nodes)) == "name:alice johnson"
    named = await app.graph.context(scope, Question(f"what is {booking.event_id}?"), Bounds())
    assert next(iter(named.nodes)) == str(booking.event_id)
    here = await app.graph.context(scope, Question(session_id="s1"), Bounds(max_depth=1))
    assert (here.meta.channels or {}).get("session")
    assert set(here.nodes) >= {str(one.event_id) for one in (asked, answer, booking)}
    nothing = await app.graph.context(scope, Question(), Bounds())
    assert set(nothing.meta.channels or {}) == {"recent"}


async def test_context_weighs_edges_by_intent(app: App, workspace: Workspace) -> None:
    """The same start; asked why, the cause comes before the neighbour in time; asked when, after it."""
    cause = event(event_type="chain.run", session_id="elsewhere", occurred_at=START)
    before = event(event_type="chain.run", trace_id="t2", occurred_at=START)
    start = event(event_type="chain.run", parent_event_id=cause.event_id, occurred_at=START + timedelta(seconds=1))
    scope = await stored(app, workspace, [cause, before, start])

    async def order(intent: Any) -> list[str]:
        atlas = await app.graph.context(scope, Question(str(start.event_id), intent=intent), Bounds(max_depth=1))
        return list(atlas.nodes)

    assert await order("why") == [str(one.event_id) for one in (start, cause, before)]
    assert await order("when") == [str(one.event_id) for one in (start, before, cause)]


async def test_context_is_paged_and_keeps_to_a_budget_of_tokens(app: App, workspace: Workspace) -> None:
    events = [
        message(f"Order {n} of Bob Stone is late", trace_id=f"t{n}", tool_name=f"tool {n % 5}") for n in range(40)
    ]
    scope = await stored(app, workspace, events)

    async def ask(bounds: Bounds, cursor: str | None, max_tokens: int | None = None) -> Atlas:
        question = Question("orders of Bob Stone", max_tokens=max_tokens)
        return await app.graph.context(scope, question, bounds, cursor)

    whole = await ask(Bounds(max_nodes=500), None)
    pages = await walked(ask, Bounds(max_nodes=7))
    await app.ledger.append(workspace.admin, [message("Bob Stone again")])
    assert [node for page in pages for node in page.nodes] == list(whole.nodes)
    small = await ask(Bounds(), None, max_tokens=30)
    assert 1 <= len(small.nodes) < 10
    assert small.meta.truncated
    assert small.pagination.has_more


@pytest.mark.parametrize(
    "query", ["", "   ", "🙂🙂", "مرحبا كيف حالك", "為什麼？", "x" * 8000, "'; DROP TABLE x; --", "%s {}"]
)
async def test_any_question_gets_an_answer(app: App, workspace: Workspace, query: str) -> None:
    scope = await stored(app, workspace, [message("Hello")])
    assert (await app.graph.context(scope, Question(query), Bounds())).meta.intents


async def test_a_workspace_without_a_graph_has_answers_too(app: App, workspace: Workspace) -> None:
    scope = Scope(workspace.workspace_id)
    assert (await app.graph.context(scope, Question("why?"), Bounds())).nodes == {}
    one = event()
    await app.ledger.append(workspace.admin, [one])
    atlas = await app.graph.lineage(scope, one.event_id, "up", Bounds(timeout_ms=50))
    assert set(atlas.nodes) == {str(one.event_id)}


async def test_a_question_about_an_event_waits_a_little_until_the_graph_has_it(app: App, workspace: Workspace) -> None:
    parent = event(event_type="agent.invoke")
    child = event(parent_event_id=parent.event_id)
    await app.ledger.append(workspace.admin, [parent, child])
    scope = Scope(workspace.workspace_id)
    asking = [
        asyncio.create_task(app.graph.lineage(scope, child.event_id, "up", Bounds())),
        asyncio.create_task(app.graph.subgraph(scope, Anchor(session_id="s1"), Bounds())),
        asyncio.create_task(app.graph.subgraph(scope, Anchor(trace_id="t1"), Bounds())),
    ]
    await asyncio.sleep(0.1)
    await app.projector.catch_up(workspace.workspace_id)
    for atlas in await asyncio.gather(*asking):
        assert set(atlas.nodes) == {str(parent.event_id), str(child.event_id)}
