"""Appending: positions without gaps, repeats recognised, conflicts reported, nothing changed."""

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import Workspace
from samples import event, new_id
from whence.app import App
from whence.db import Scope
from whence.ledger.append import Block, Entry, append, append_fresh
from whence.wire import Event, Measures


async def positions(app: App, workspace: Workspace) -> list[int]:
    page = await app.ledger.page(workspace.admin.scope, 0, 1000)
    return [stored.global_position for stored in page.events]


async def test_events_take_the_positions_from_one_in_input_order(app: App, workspace: Workspace) -> None:
    events = [event() for _ in range(5)]
    outcomes = await app.ledger.append(workspace.admin, events)
    assert [(o.status, o.position) for o in outcomes] == [("accepted", n) for n in range(1, 6)]
    page = await app.ledger.page(workspace.admin.scope, 0, 10)
    assert [stored.event_id for stored in page.events] == [sent.event_id for sent in events]


async def test_in_the_callers_transaction_events_are_stored_when_it_commits(app: App, workspace: Workspace) -> None:
    first, wrong = event(user_id="ann"), event(occurred_at=datetime(2999, 1, 1, tzinfo=UTC))
    for ends in (False, True):
        async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
            outcomes = await app.ledger.append_in(tx, workspace.admin, [first, wrong, first, event()])
            assert [(o.status, o.position) for o in outcomes] == [
                ("accepted", 1), ("rejected", None), ("duplicate", 1), ("accepted", 2),
            ]  # fmt: skip
            assert await positions(app, workspace) == []
            await (tx.commit() if ends else tx.rollback())
    assert await positions(app, workspace) == [1, 2]
    # A user writes as that user, here as everywhere.
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        [outcome] = await app.ledger.append_in(tx, workspace.user("bob"), [event(user_id="ann")])
        assert outcome.status == "rejected"


async def test_everything_that_was_sent_comes_back(app: App, workspace: Workspace) -> None:
    sent = event(
        {"text": "hello"},
        agent_id="planner",
        user_id="ann",
        parent_event_id=new_id(),
        tool_name="search",
        payload_ref="s3://bucket/key",
        ended_at=datetime(2026, 1, 2, 3, 4, 6, 789_012, tzinfo=UTC),
        status="completed",
        schema_version=3,
        importance_hint=7,
        data_classification="internal",
        subject_id="customer-9",
        measures=Measures(model="m", input_tokens=3, finish_reasons=("stop",)),
    )
    [outcome] = await app.ledger.append(workspace.admin, [sent])
    stored = await app.ledger.get(workspace.admin.scope, sent.event_id)
    for name in Event.__struct_fields__:
        if name != "payload":
            assert getattr(stored, name) == getattr(sent, name), name
    assert stored.global_position == outcome.position
    assert stored.has_payload
    assert await app.ledger.payload(workspace.admin.scope, sent.event_id) == b'{"text":"hello"}'


async def test_a_repeat_answers_with_the_stored_position_and_stores_nothing(app: App, workspace: Workspace) -> None:
    first, second = event({"b": 1, "a": [2, 3.5]}, measures=Measures(output_tokens=4)), event()
    await app.ledger.append(workspace.admin, [first, second])
    respelled = msgspec.structs.replace(first, payload=msgspec.Raw(b'{ "a": [2,3.50], "b":1 }'))
    outcomes = await app.ledger.append(workspace.admin, [second, event(), respelled])
    assert [(o.status, o.position) for o in outcomes] == [("duplicate", 2), ("accepted", 3), ("duplicate", 1)]
    assert await positions(app, workspace) == [1, 2, 3]


CHANGES: list[dict[str, Any]] = [
    {"event_type": "llm.generate"},
    {"occurred_at": datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=UTC)},
    {"session_id": "s2"},
    {"trace_id": "t2"},
    {"agent_id": "other"},
    {"user_id": "eve"},
    {"parent_event_id": new_id()},
    {"tool_name": None},
    {"payload_ref": "x"},
    {"ended_at": datetime(2027, 1, 1, tzinfo=UTC)},
    {"status": "failed"},
    {"schema_version": 2},
    {"importance_hint": 1},
    {"data_classification": "secret"},
    {"subject_id": "other"},
    {"measures": Measures(model="m2")},
    {"payload": msgspec.Raw(b'{"text":"other"}')},
    {"payload": msgspec.UNSET},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
async def test_the_same_id_with_other_content_is_a_conflict_that_changes_nothing(
    app: App, workspace: Workspace, change: dict[str, Any]
) -> None:
    first = event({"text": "first"}, tool_name="search", user_id="ann", measures=Measures(model="m1"))
    await app.ledger.append(workspace.admin, [first])
    before = await app.ledger.get(workspace.admin.scope, first.event_id)
    other = msgspec.structs.replace(first, **change)
    [outcome] = await app.ledger.append(workspace.admin, [other])
    assert (outcome.status, outcome.position) == ("conflict", None)
    assert outcome.errors[0].field == "event_id"
    if "user_id" not in change:
        assert next(iter(change)) in outcome.errors[0].message
    assert await app.ledger.get(workspace.admin.scope, first.event_id) == before
    assert await app.ledger.payload(workspace.admin.scope, first.event_id) == b'{"text":"first"}'
    assert await positions(app, workspace) == [1]


async def test_a_conflict_tells_a_stranger_nothing_about_the_stored_event(app: App, workspace: Workspace) -> None:
    hers = event({"text": "private"}, tool_name="bank")
    await app.ledger.append(workspace.user("ann"), [hers])
    [outcome] = await app.ledger.append(workspace.user("bob"), [hers])
    assert (outcome.status, outcome.position) == ("conflict", None)
    assert outcome.errors[0].message == "was stored earlier with other content"


async def test_one_request_may_hold_the_same_event_several_times(app: App, workspace: Workspace) -> None:
    one, two = event({"n": 1}), event({"n": 2})
    changed = msgspec.structs.replace(one, session_id="s9")
    outcomes = await app.ledger.append(workspace.admin, [one, two, one, changed, two])
    assert [(o.status, o.position) for o in outcomes] == [
        ("accepted", 1),
        ("accepted", 2),
        ("duplicate", 1),
        ("conflict", None),
        ("duplicate", 2),
    ]


async def test_bad_items_are_rejected_alone(app: App, workspace: Workspace) -> None:
    outcomes = await app.ledger.append(
        workspace.admin, [event(), event(session_id=""), event(), event(importance_hint=0)]
    )
    assert [o.status for o in outcomes] == ["accepted", "rejected", "accepted", "rejected"]
    assert [error.field for o in outcomes for error in o.errors] == ["session_id", "importance_hint"]
    assert await positions(app, workspace) == [1, 2]


async def test_a_user_writes_in_own_name_only(app: App, workspace: Workspace) -> None:
    unnamed, own, foreign = event(), event(user_id="ann"), event(user_id="bob")
    outcomes = await app.ledger.append(workspace.user("ann"), [unnamed, own, foreign])
    assert [o.status for o in outcomes] == ["accepted", "accepted", "rejected"]
    assert outcomes[2].errors[0].field == "user_id"
    page = await app.ledger.page(workspace.admin.scope, 0, 10)
    assert [stored.user_id for stored in page.events] == ["ann", "ann"]


async def test_an_append_in_the_callers_transaction_is_undone_with_it(app: App, workspace: Workspace) -> None:
    first, second = event(), event()
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        await append(tx, workspace.workspace_id, [Entry(first)], app.clock())

    async def fail() -> None:
        async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
            outcomes = await append(tx, workspace.workspace_id, [Entry(second), Entry(first)], app.clock())
            assert [(o.status, o.position) for o in outcomes] == [("accepted", 2), ("duplicate", 1)]
            raise RuntimeError("the caller changes its mind")

    with pytest.raises(RuntimeError):
        await fail()
    [outcome] = await app.ledger.append(workspace.admin, [event()])
    assert outcome.position == 2, "the position of the undone append is taken again"


async def test_a_later_position_waits_for_an_earlier_one_to_commit(app: App, workspace: Workspace) -> None:
    """Two transactions, interleaved: what the second stores cannot be seen before the first has ended."""
    scope = Scope(workspace.workspace_id)
    async with app.database.transaction(scope) as first:
        await append_fresh(first, workspace.workspace_id, Block.of([Entry(event())]), app.clock())
        second = asyncio.create_task(app.ledger.append(workspace.admin, [event()]))
        await asyncio.sleep(0.3)
        assert not second.done()
        assert await positions(app, workspace) == []
    [outcome] = await second
    assert outcome.position == 2
    assert await positions(app, workspace) == [1, 2]


async def test_a_writer_whose_rival_rolls_back_leaves_no_gap(app: App, workspace: Workspace) -> None:
    scope = Scope(workspace.workspace_id)

    async def rival() -> None:
        async with app.database.transaction(scope) as tx:
            await append_fresh(tx, workspace.workspace_id, Block.of([Entry(event())]), app.clock())
            await asyncio.sleep(0.2)
            raise RuntimeError

    racing = asyncio.create_task(rival())
    await asyncio.sleep(0.05)
    [outcome] = await app.ledger.append(workspace.admin, [event()])
    with pytest.raises(RuntimeError):
        await racing
    assert outcome.position == 1


async def test_two_writers_of_the_same_event_store_it_once(app: App, workspace: Workspace) -> None:
    """The second looks before the first has committed; the lock on the head makes it look again."""
    same = event({"n": 1})
    entry = Entry(same)
    now = app.clock()

    async def write() -> str:
        async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
            [outcome] = await append(tx, workspace.workspace_id, [entry], now)
            await asyncio.sleep(0.05)
            return outcome.status

    assert sorted(await asyncio.gather(*(write() for _ in range(5)))) == ["accepted", *["duplicate"] * 4]


async def test_an_event_is_never_changed_or_deleted_by_the_server(app: App, workspace: Workspace) -> None:
    await app.ledger.append(workspace.admin, [event()])
    for statement in ("UPDATE whence.events SET status = 'failed'", "DELETE FROM whence.events"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
                await tx.execute(statement)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
async def test_any_mix_of_new_repeated_and_changed_events_keeps_the_ledger_gapless(app: App, seed: int) -> None:
    dice = random.Random(seed)
    workspace_id = f"w-{new_id().hex[:12]}"
    workspace = Workspace(workspace_id, await app.identity.add_workspace(workspace_id))
    pool = [event({"n": n}) for n in range(12)]
    known: dict[int, int] = {}
    for _ in range(6):
        batch = [dice.randrange(len(pool)) for _ in range(dice.randrange(1, 9))]
        outcomes = await app.ledger.append(workspace.admin, [pool[n] for n in batch])
        for n, outcome in zip(batch, outcomes, strict=True):
            assert outcome.status == ("duplicate" if n in known else "accepted")
            assert outcome.position == known.setdefault(n, len(known) + 1)
    assert await positions(app, workspace) == list(range(1, len(known) + 1))
