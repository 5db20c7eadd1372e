"""A graph that is built again from the ledger is the graph that was there, whatever the steps in which either grew."""

import asyncio
import random
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection

from conftest import Workspace
from samples import event
from whence.app import App
from whence.errors import Conflict
from whence.graph.rebuild import TABLES, Report, digest, rebuild
from whence.wire import Event

START = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = (
    "Alice Johnson asked for a flight to Paris with Air France",
    "alice johnson asked about a flight to Paris with AirFrance",
    "Alice Jonson wants the report of Acme Corp by Friday",
    "see https://example.com/docs/a and mail bob@example.com",
    "The invoice of ACME Corporation is late; Bob Stone called",
    "",
)


def history(seed: int, count: int) -> list[Event]:
    """Sessions that interleave, parents before and after their children, late and equal times, names, summaries."""
    dice = random.Random(seed)
    ids = [uuid.UUID(int=dice.getrandbits(128), version=4) for _ in range(count)]
    events = [_random_event(dice, number, ids) for number in range(count)]
    dice.shuffle(events)
    return events


def _random_event(dice: random.Random, number: int, ids: list[uuid.UUID]) -> Event:
    kind = dice.choice(["tool.execute", "llm.generate", "agent.invoke", "session.summary", "entity.alias", "chain.run"])
    parent = dice.choice([None, uuid.UUID(int=7), *dice.sample(ids, min(4, len(ids)))])
    payload: object = {"messages": [{"role": "user", "content": dice.choice(TEXTS)}]}
    if kind == "session.summary":
        payload = {"text": dice.choice(TEXTS), "summarizes": [str(dice.choice(ids)) for _ in range(dice.randrange(4))]}
    if kind == "entity.alias":
        of = dice.choice(["tool", "agent", "name"])
        names = ["Search", "Planner", "Acme Corp", "the Finder", "Alice Johnson", "web_search_1"]
        payload = {"entity_type": of, "name": dice.choice(names), "alias": dice.choice(names)}
    began = START + timedelta(seconds=dice.randrange(20))
    return event(
        payload if dice.random() < 0.7 or kind == "entity.alias" else None,
        event_id=ids[number],
        event_type=kind,
        occurred_at=began,
        ended_at=began + timedelta(seconds=dice.randrange(5)) if dice.random() < 0.5 else None,
        session_id=f"s{dice.randrange(3)}",
        trace_id=f"t{dice.randrange(4)}",
        user_id=dice.choice([None, "ann", "bob"]),
        agent_id=dice.choice([None, "Planner", "planner ", "Plannner"]),
        tool_name=dice.choice([None, "search", "Search", "the finder", "web_search_1", "web_search_2"]),
        parent_event_id=None if parent == ids[number] else parent,
    )


async def made(app: App, workspace: str) -> str:
    await app.identity.add_workspace(workspace)
    return workspace


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), count=st.integers(1, 60), live=st.integers(1, 7), again=st.integers(1, 40))
async def test_a_rebuilt_graph_has_the_digest_of_the_live_one(
    app: App, seed: int, count: int, live: int, again: int
) -> None:
    workspace = Workspace(await made(app, f"w-{uuid.uuid4().hex[:12]}"), "")
    events = history(seed, count)
    dice = random.Random(seed)
    while events:
        arriving = dice.randrange(1, 9)
        # Some arrive twice, as clients that were not told send again.
        await app.ledger.append(workspace.admin, events[:arriving] + events[: arriving // 3])
        events = events[arriving:]
        if dice.random() < 0.6:
            await app.projector.catch_up(workspace.workspace_id, live)
    report = await rebuild(
        app.database, app.projector, app.clock, workspace.workspace_id, True, lambda *_: None, batch_events=again
    )
    assert report.differing == ()
    assert report.position == count
    assert report.digest == report.live_digest == await digest(app.database, workspace.workspace_id)


async def test_a_rebuild_that_another_has_overtaken_says_so(app: App, workspace: Workspace) -> None:
    name = workspace.workspace_id
    await app.ledger.append(workspace.admin, history(3, 60))
    await app.projector.catch_up(name)

    async def run() -> object:
        return await rebuild(app.database, app.projector, app.clock, name, False, lambda *_: None, batch_events=2)

    results = await asyncio.gather(run(), run(), return_exceptions=True)
    assert any(isinstance(result, Report) and result.equal for result in results)
    assert all(isinstance(result, Report | Conflict) for result in results), results
    report = await run()
    assert isinstance(report, Report)
    assert report.equal


async def test_a_difference_is_found_and_mended(app: App, workspace: Workspace, owner: Connection) -> None:
    name = workspace.workspace_id
    await app.ledger.append(workspace.admin, history(5, 40))
    await app.projector.catch_up(name)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{name}'")
    owner.execute("UPDATE whence.graph_edges SET score = 0.5 WHERE edge_type = 4 AND source & 127 = 0")

    async def run(verify: bool) -> tuple[tuple[str, ...], bool]:
        seen: list[tuple[int, int]] = []
        report = await rebuild(
            app.database, app.projector, app.clock, name, verify, lambda *at: seen.append(at), batch_events=7
        )
        assert seen[-1] == (40, 40)
        return report.differing, report.swapped

    assert await run(verify=True) == (("edges",), False)
    assert await run(verify=False) == (("edges",), True)
    assert await run(verify=True) == ((), False)
    builds = owner.execute("SELECT count(*) FROM whence.graph_builds").fetchone()
    assert builds == (1,)


@pytest.mark.parametrize("table", TABLES)
async def test_every_table_counts(app: App, workspace: Workspace, owner: Connection, table: str) -> None:
    """A digest that leaves a table out would call graphs equal that are not."""
    name = workspace.workspace_id
    await app.ledger.append(
        workspace.admin, [*history(11, 60), event({"summarizes": "all"}, event_type="session.summary")]
    )
    await app.projector.catch_up(name)
    before = await digest(app.database, name)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{name}'")
    removed = owner.execute(
        f"DELETE FROM whence.graph_{table} WHERE ctid = (SELECT min(ctid) FROM whence.graph_{table})"
    ).rowcount
    assert removed == 1, "the history makes no row of this table"
    assert await digest(app.database, name) != before
