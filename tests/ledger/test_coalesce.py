"""Coalescing: neighbours share commits, and a poisoned one fails alone."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from psycopg import Connection
from psycopg.pq.abc import PGresult

from conftest import Workspace
from samples import event
from whence.app import App
from whence.crypto import SealedPayload, Sealing, SubjectKey
from whence.db import Database, Scope
from whence.db.trip import Said
from whence.errors import NotFound, Overloaded, Unavailable
from whence.ledger import coalesce
from whence.ledger.append import Entry
from whence.ledger.coalesce import (
    EARLY_BYTES,
    EARLY_EVENTS,
    ENCODED_WAITERS,
    HALVED_EFFECTS,
    LARGE_BATCH_EVENTS,
    Coalescer,
)
from whence.ledger.effects import OwnEvent
from whence.ledger.payloads import subject_of
from whence.wire import Remember


def commits(app: App) -> float:
    return app.registry.get_sample_value("whence_append_group_events_count") or 0


async def test_appends_that_arrive_together_share_commits(app: App, workspace: Workspace) -> None:
    before = commits(app)
    outcomes = await asyncio.gather(*(app.ledger.append(workspace.admin, [event()]) for _ in range(200)))
    assert sorted(outcome.position or 0 for [outcome] in outcomes) == list(range(1, 201))
    assert commits(app) - before <= 10


def note_trips(app: App, monkeypatch: pytest.MonkeyPatch, order: list[str]) -> None:
    """What is said in them, and when it is sent."""
    one_trip = app.database.one_trip

    async def noted(scope: Scope, statements: Iterable[Said | None]) -> list[PGresult]:
        def each() -> Iterator[Said | None]:
            for said in statements:
                order.append("sent" if said is None else said[0].name.decode().removeprefix("whence_"))
                yield said

        return await one_trip(scope, each())

    monkeypatch.setattr(app.database, "one_trip", noted)


@pytest.mark.parametrize("count", [1, EARLY_EVENTS, EARLY_EVENTS + 1])
async def test_few_events_get_their_positions_before_they_are_encoded_and_sealed(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    order, seal = list[str](), SubjectKey.seal

    def sealed(*given: Any) -> SealedPayload:
        order.append("sealed")
        return seal(*given)

    await app.ledger.append(workspace.admin, [event({})])
    monkeypatch.setattr(SubjectKey, "seal", sealed)
    note_trips(app, monkeypatch, order)
    outcomes = await app.ledger.append(workspace.admin, [event({"n": n}) for n in range(count)])
    assert [outcome.position for outcome in outcomes] == list(range(2, count + 2))
    kept = "append_sealed_one" if count == 1 else "append_sealed_alike"
    if count > EARLY_EVENTS:
        assert order == [*["sealed"] * count, "sent", "take_positions", kept]
    else:
        assert order == ["take_positions", "sent", *["sealed"] * count, kept]


async def test_payloads_that_are_large_together_are_sealed_and_encoded_before_positions_are_taken(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, done = list[str](), Sealing.done

    def sealed(sealing: Sealing) -> SealedPayload:
        order.append("sealed")
        return done(sealing)

    monkeypatch.setattr(Sealing, "done", sealed)
    note_trips(app, monkeypatch, order)
    large = "x" * (EARLY_BYTES // 2)
    await app.ledger.append(workspace.admin, [event(large), event(large)])
    assert order.index("sealed") < order.index("sent") < order.index("take_positions")
    order.clear()
    await app.ledger.append(workspace.admin, [event(large), event("small")])
    assert order.index("take_positions") < order.index("sent") < order.index("sealed")


async def test_what_waits_while_others_are_stored_is_sealed_at_once(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (await app.ledger.keys.ensure(workspace.workspace_id, {""}))[""]
    one_trip, is_under_way, may_go = app.database.one_trip, asyncio.Event(), asyncio.Event()

    async def held(*arguments: Any) -> list[PGresult]:
        is_under_way.set()
        await may_go.wait()
        return await one_trip(*arguments)

    monkeypatch.setattr(app.database, "one_trip", held)
    first, second = (Entry(event(), key.sealing(b"", b"{}", b"{}")) for _ in range(2))
    storing = [asyncio.create_task(app.ledger._coalescer.store(workspace.workspace_id, [first]))]
    await is_under_way.wait()
    storing.append(asyncio.create_task(app.ledger._coalescer.store(workspace.workspace_id, [second])))
    await asyncio.sleep(0)
    assert [entry.payload and entry.payload.is_done for entry in (first, second)] == [False, True]
    may_go.set()
    assert [outcome.status for [outcome] in await asyncio.gather(*storing)] == ["accepted"] * 2


async def test_a_queue_that_is_full_by_bytes_refuses_more(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.ledger.keys.ensure(workspace.workspace_id, {""})
    monkeypatch.setattr(coalesce, "MAX_QUEUED_BYTES", 50_000)
    results = await asyncio.gather(
        *(app.ledger.append(workspace.admin, [event("x" * 1_000)]) for _ in range(120)), return_exceptions=True
    )
    refused = [r for r in results if isinstance(r, Overloaded)]
    assert 0 < len(refused) <= 120 - 40
    assert await app.ledger.heads.read(workspace.workspace_id) == 120 - len(refused)


async def test_an_append_waits_for_at_most_two_commits(app: App, workspace: Workspace) -> None:
    """Large batches are queued ahead; a small append is in the group after the one under way all the same."""
    coalescer = app.ledger._coalescer
    groups: list[int] = []
    store = coalescer._store_group

    async def counted(workspace_id: str, group: coalesce._Group) -> Callable[[], None]:
        tell = await store(workspace_id, group)
        groups.append(sum(len(waiting.entries) for waiting in group.waiting))
        return tell

    coalescer._store_group = counted  # type: ignore[method-assign]
    try:
        batches = [
            asyncio.create_task(app.ledger.append(workspace.admin, [event() for _ in range(LARGE_BATCH_EVENTS)]))
            for _ in range(6)
        ]
        while len(coalescer._lanes[workspace.workspace_id].large if coalescer._lanes else ()) < 2:
            assert not all(batch.done() for batch in batches)
            await asyncio.sleep(0)
        before = len(groups)
        await app.ledger.append(workspace.admin, [event()])
        assert len(groups) - before <= 2
        await asyncio.gather(*batches)
    finally:
        del coalescer._store_group
    assert await app.ledger.heads.read(workspace.workspace_id) == 6 * LARGE_BATCH_EVENTS + 1


async def together(app: App, workspace: Workspace, entries: list[Entry]) -> list[str]:
    """Stores the entries as neighbours in one group, past the ledger's own checks, and says what became of each."""
    coalescer = Coalescer(
        app.database,
        app.clock,
        registry=app.registry.__class__(),
        on_commit=lambda *_: None,
        on_refusal=lambda _, entry: app.ledger.keys.forget(workspace.workspace_id, subject_of(entry.event)),
        count=lambda _: None,
    )
    results = await asyncio.gather(*(coalescer.store(workspace.workspace_id, [entry]) for entry in entries))
    return [outcome.status for [outcome] in results]


def under_a_key_that_is_gone() -> Sealing:
    return SubjectKey(uuid.uuid4(), SubjectKey.generate()).sealing(b"", b"{}", b"{}")


POISON = {
    "a NUL byte": Entry(event(tool_name="a\x00b")),
    "a lone surrogate": Entry(event(session_id="\ud800")),
    "a broken check": Entry(event(importance_hint=99)),
    "a number too large": Entry(event(schema_version=1 << 40)),
    "a key that is gone": Entry(event(subject_id="no such subject"), under_a_key_that_is_gone()),
    "a time that Postgres does not know": Entry(event(ended_at="yesterday")),
}


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("place", [0, 3, 6])
async def test_a_poisoned_append_fails_alone(app: App, workspace: Workspace, poison: str, place: int) -> None:
    entries = [Entry(event()) for _ in range(6)]
    fresh = msgspec.structs.replace(POISON[poison].event, event_id=uuid.uuid4())
    entries.insert(place, msgspec.structs.replace(POISON[poison], event=fresh))
    statuses = await together(app, workspace, entries)
    expected = ["accepted"] * 6
    expected.insert(place, "rejected")
    assert statuses == expected
    page = await app.ledger.page(workspace.admin.scope, 0, 10)
    assert [stored.global_position for stored in page.events] == [1, 2, 3, 4, 5, 6]


async def test_a_poisoned_event_in_a_large_batch_fails_alone(app: App, workspace: Workspace) -> None:
    entries = [Entry(event()) for _ in range(LARGE_BATCH_EVENTS)]
    entries[150] = Entry(event(schema_version=1 << 40))
    outcomes = await app.ledger._coalescer.store(workspace.workspace_id, entries)
    assert [n for n, outcome in enumerate(outcomes) if outcome.status != "accepted"] == [150]
    assert await app.ledger.heads.read(workspace.workspace_id) == LARGE_BATCH_EVENTS - 1


@pytest.mark.parametrize("place", [None, 3, ENCODED_WAITERS - 1, 2 * ENCODED_WAITERS])
async def test_appends_that_wait_are_encoded_while_others_are_stored(
    app: App, workspace: Workspace, place: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order in which they came, whether or not one of them cannot be encoded."""
    count = 2 * ENCODED_WAITERS + 9
    entries = [Entry(event()) for _ in range(count)]
    if place is not None:
        entries[place] = Entry(event(schema_version=1 << 40))
    coalescer = app.ledger._coalescer
    one_trip = app.database.one_trip
    is_under_way, all_wait = asyncio.Event(), asyncio.Event()

    async def held(*arguments: Any) -> list[PGresult]:
        is_under_way.set()
        await all_wait.wait()
        return await one_trip(*arguments)

    monkeypatch.setattr(app.database, "one_trip", held)
    first = asyncio.create_task(coalescer.store(workspace.workspace_id, [Entry(event())]))
    await is_under_way.wait()
    results = asyncio.gather(*(coalescer.store(workspace.workspace_id, [entry]) for entry in entries))
    await asyncio.sleep(0)
    all_wait.set()
    assert len(coalescer._lanes[workspace.workspace_id].encoded) == (2 if place is None or place == count - 9 else 0)
    outcomes = [outcome for [outcome] in await results]
    await first
    assert [n for n, outcome in enumerate(outcomes) if outcome.status != "accepted"] == ([place] if place else [])
    positions = [outcome.position for outcome in outcomes if outcome.position]
    assert positions == list(range(2, len(positions) + 2))


async def test_a_conflicting_append_fails_alone(app: App, workspace: Workspace) -> None:
    first = event()
    await app.ledger.append(workspace.admin, [first])
    changed = msgspec.structs.replace(first, session_id="other")
    entries = [Entry(event()), Entry(changed), Entry(first), Entry(event())]
    assert await together(app, workspace, entries) == ["accepted", "conflict", "duplicate", "accepted"]


async def test_a_repeat_beside_a_refused_append_does_not_spoil_the_others(app: App, workspace: Workspace) -> None:
    first = event()
    await app.ledger.append(workspace.admin, [first])
    entries = [Entry(first), Entry(event(importance_hint=99)), Entry(event())]
    assert await together(app, workspace, entries) == ["duplicate", "rejected", "accepted"]


async def test_what_is_not_the_events_fault_is_told_as_unavailable(
    app: App, workspace: Workspace, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0
    one_trip = app.database.one_trip

    async def counted(*arguments: Any) -> list[PGresult]:
        nonlocal attempts
        attempts += 1
        return await one_trip(*arguments)

    monkeypatch.setattr(app.database, "one_trip", counted)
    owner.execute("REVOKE INSERT ON whence.events FROM whence_workspace")
    try:
        with pytest.raises(Unavailable):
            await app.ledger.append(workspace.admin, [event() for _ in range(20)])
    finally:
        owner.execute("GRANT INSERT ON whence.events TO whence_workspace")
    assert attempts == 1, "the group is not halved"
    [outcome] = await app.ledger.append(workspace.admin, [event()])
    assert outcome.status == "accepted"


async def test_what_the_database_refused_is_named_without_quoting_it(app: App, workspace: Workspace) -> None:
    coalescer = app.ledger._coalescer
    [[checked], [keyless]] = await asyncio.gather(
        coalescer.store(workspace.workspace_id, [Entry(event(importance_hint=99, tool_name="secret tool"))]),
        coalescer.store(workspace.workspace_id, [Entry(event(), under_a_key_that_is_gone())]),
    )
    assert checked.errors[0].message == "the database refused it: events_importance_range"
    assert keyless.errors[0].field == "subject_id"


@pytest.mark.parametrize(
    ("wrong", "constraint"),
    [
        ({"importance_hint": 0}, "events_importance_range"),
        ({"schema_version": 0}, "events_schema_version_from_one"),
        ({"status": "odd"}, "events_status_known"),
        ({"payload_ref": "x" * 2049}, "events_payload_ref_length"),
        ({"occurred_at": datetime(1969, 12, 31, tzinfo=UTC)}, "events_time_range"),
        ({"ended_at": datetime(2262, 1, 1, tzinfo=UTC)}, "events_time_range"),
        ({"ended_at": datetime(2020, 1, 1, tzinfo=UTC)}, "events_ended_after_start"),
    ],
)
async def test_the_database_knows_what_an_event_may_say(
    app: App, workspace: Workspace, wrong: dict[str, Any], constraint: str
) -> None:
    """By types and constraints, whose names it tells."""
    coalescer = app.ledger._coalescer
    [outcome] = await coalescer.store(workspace.workspace_id, [Entry(event(**wrong))])
    assert outcome.errors[0].message == f"the database refused it: {constraint}"
    outcomes = await coalescer.store(workspace.workspace_id, [Entry(event()), Entry(event(**wrong))])
    assert [outcome.status for outcome in outcomes] == ["accepted", "rejected"]


async def test_a_commitment_has_its_length(app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sealing, "done", lambda _: SealedPayload(b"sealed", b"short"))
    entry = Entry(event(), under_a_key_that_is_gone())
    [outcome] = await app.ledger._coalescer.store(workspace.workspace_id, [entry])
    assert outcome.errors[0].message == "the database refused it: events_commitment_length"


@pytest.mark.parametrize("differing", [False, True])
async def test_events_that_are_alike_and_such_that_differ_are_stored_as_they_were_sent(
    app: App, workspace: Workspace, differing: bool
) -> None:
    many: list[dict[str, Any]] = [
        {"agent_id": f"a{n}" if differing else "a", "tool_name": None if n else "t", "user_id": "ann"} for n in range(4)
    ]
    sent = [event({"n": n}, **(each if differing else many[0])) for n, each in enumerate(many)]
    outcomes = await app.ledger.append(workspace.admin, sent)
    for each, outcome in zip(sent, outcomes, strict=True):
        kept = await app.ledger.get(workspace.admin.scope, each.event_id)
        assert (kept.global_position, kept.agent_id, kept.tool_name, kept.user_id) == (
            outcome.position,
            each.agent_id,
            each.tool_name,
            "ann",
        )
        payload = await app.ledger.payload(workspace.admin.scope, each.event_id)
        assert payload == bytes(each.payload)  # pyright: ignore[reportArgumentType]


async def test_a_key_that_vanished_is_made_anew_for_the_next_event(app: App, workspace: Workspace) -> None:
    """The key is in this process' memory, but not in the database any more."""
    await app.ledger.keys.ensure(workspace.workspace_id, {"ann"})
    ghost = await app.ledger.keys.ensure(workspace.workspace_id, {"ghost"})
    app.ledger.keys._cache[workspace.workspace_id, "gone"] = (float("inf"), ghost["ghost"])
    [outcome] = await app.ledger.append(workspace.admin, [event({"n": 1}, subject_id="gone")])
    assert (outcome.status, outcome.errors[0].field) == ("rejected", "subject_id")
    [outcome] = await app.ledger.append(workspace.admin, [event({"n": 1}, subject_id="gone")])
    assert outcome.status == "accepted"


async def test_a_full_queue_refuses_instead_of_growing(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalesce, "MAX_QUEUED_EVENTS", 50)
    results = await asyncio.gather(
        *(app.ledger.append(workspace.admin, [event()]) for _ in range(120)), return_exceptions=True
    )
    refused = [r for r in results if isinstance(r, Overloaded)]
    stored = [r for r in results if isinstance(r, list)]
    assert refused
    assert len(stored) + len(refused) == 120
    assert await app.ledger.heads.read(workspace.workspace_id) == len(stored)


async def test_a_workspace_that_does_not_exist_stores_nothing(app: App) -> None:
    with pytest.raises(NotFound):
        await app.ledger._coalescer.store("w-nowhere", [Entry(event())])


async def test_every_waiter_is_told_when_the_database_does_not_answer(app: App, workspace: Workspace) -> None:
    class Gone(Database):
        async def one_trip(self, *_: object) -> list[PGresult]:
            raise Unavailable("the database does not answer")

        def transaction(self, scope: object) -> object:  # type: ignore[override]
            raise Unavailable("the database does not answer")

    coalescer = Coalescer(
        Gone.__new__(Gone),
        app.clock,
        app.registry.__class__(),
        on_commit=lambda *_: None,
        on_refusal=lambda *_: None,
        count=lambda _: None,
    )
    results = await asyncio.gather(
        *(coalescer.store(workspace.workspace_id, [Entry(event())]) for _ in range(5)), return_exceptions=True
    )
    assert [type(result) for result in results] == [Unavailable] * 5


async def test_a_client_that_gives_up_does_not_undo_its_neighbours(app: App, workspace: Workspace) -> None:
    tasks = [asyncio.create_task(app.ledger.append(workspace.admin, [event()])) for _ in range(10)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[3], asyncio.CancelledError)
    assert all(isinstance(result, list) for n, result in enumerate(results) if n != 3)


async def test_what_is_to_be_stored_together_is_stored_or_refused_as_a_whole(app: App, workspace: Workspace) -> None:
    """Beside others, which do not suffer for it."""

    def own(*subjects: str) -> list[OwnEvent]:
        return [OwnEvent(event(user_id=subject, subject_id=subject), b"{}") for subject in subjects]

    good, bad, plain = own("ann", "ann", "ann"), own("bob", "bob", "cut\x00off", "bob"), own("eve")
    outcomes = await asyncio.gather(
        app.ledger.record_all(workspace.workspace_id, good),
        app.ledger.record_all(workspace.workspace_id, bad),
        app.ledger.record(workspace.workspace_id, plain),
        return_exceptions=True,
    )
    assert [outcome.status for outcome in outcomes[0]] == 3 * ["accepted"]
    assert isinstance(outcomes[1], Exception) or {outcome.status for outcome in outcomes[1]} == {"rejected"}
    assert [outcome.status for outcome in outcomes[2]] == ["accepted"]
    again = await app.ledger.record_all(workspace.workspace_id, [*good, *own("ann")])
    assert [outcome.status for outcome in again] == [*3 * ["duplicate"], "accepted"]


@pytest.mark.parametrize(
    ("marks", "middle"),
    [
        ("....", 2),
        ("aaaa", None),
        ("aabb", 2),
        ("abbb", 1),
        ("aaab", 3),
        ("a.bb", 2),
        (".aaaa", 1),
        ("a", None),
        (".", None),
    ],
)
def test_groups_are_halved_beside_what_is_to_be_stored_together(marks: str, middle: int | None) -> None:
    named = {mark: uuid.uuid4() for mark in set(marks) - {"."}}
    assert coalesce._middle([Entry(event(), together=named.get(mark)) for mark in marks]) == middle


async def test_memories_that_come_together_go_in_halves_and_events_as_one(app: App, workspace: Workspace) -> None:
    """One half is made ready while the other is stored; to make an event ready takes too little time for that."""
    ann = workspace.user("ann")
    told = [
        Remember(agent="gateway", tier="persistent", kind="semantic", text=f"note {number}")
        for number in range(HALVED_EFFECTS + 1)
    ]
    await app.memory.remember(ann, told.pop())  # The key of the subject is known from here on.
    before = commits(app)
    await asyncio.gather(*(app.memory.remember(ann, each) for each in told))
    assert commits(app) - before == 2
    await asyncio.gather(*(app.ledger.append(ann, [event()]) for _ in range(HALVED_EFFECTS)))
    assert commits(app) - before == 3
