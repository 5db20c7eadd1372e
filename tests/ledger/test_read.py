"""Reading and following: in order, each event once, one's own only."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from conftest import Workspace
from samples import event, new_id
from whence.app import App
from whence.db import Database, Scope
from whence.errors import DatabaseError, InvalidInput, NotFound
from whence.ledger import Filter, Ledger
from whence.ledger.upcast import Step
from whence.wire import StoredEvent


async def fill(app: App, workspace: Workspace, count: int = 30) -> None:
    """Three sessions, five traces, two types and two users, interleaved."""
    await app.ledger.append(
        workspace.admin,
        [
            event(
                session_id=f"s{n % 3}",
                trace_id=f"t{n % 5}",
                event_type=("tool.execute", "llm.generate")[n % 2],
                user_id=("ann", "bob")[n % 4 // 2],
            )
            for n in range(1, count + 1)
        ],
    )


FILTERS = [
    (Filter(), lambda n: True),
    (Filter(session_id="s1"), lambda n: n % 3 == 1),
    (Filter(trace_id="t2"), lambda n: n % 5 == 2),
    (Filter(event_type="llm.generate"), lambda n: n % 2 == 1),
    (Filter(session_id="s0", trace_id="t0"), lambda n: n % 15 == 0),
    (Filter(session_id="s0", trace_id="t0", event_type="tool.execute"), lambda n: n % 30 == 0),
    (Filter(session_id="s2", event_type="llm.generate"), lambda n: n % 3 == 2 and n % 2 == 1),
    (Filter(session_id="nowhere"), lambda n: False),
]


@pytest.mark.parametrize(("wanted", "expected"), FILTERS, ids=[str(wanted) for wanted, _ in FILTERS])
@pytest.mark.parametrize("limit", [1, 4, 1000])
async def test_pages_give_every_wanted_event_once_in_order(
    app: App, workspace: Workspace, wanted: Filter, expected: object, limit: int
) -> None:
    await fill(app, workspace)
    for scope, visible in (
        (workspace.admin.scope, lambda n: True),
        (workspace.user("ann").scope, lambda n: n % 4 < 2),
        (workspace.user("eve").scope, lambda n: False),
    ):
        seen: list[int] = []
        after: int | None = 0
        while after is not None:
            page = await app.ledger.page(scope, after, limit, wanted)
            assert len(page.events) <= limit
            seen += [stored.global_position for stored in page.events]
            after = page.next
        assert seen == [n for n in range(1, 31) if expected(n) and visible(n)]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("after", "limit", "field"), [(0, 0, "limit"), (0, 1001, "limit"), (-1, 1, "after"), (1 << 63, 1, "after")]
)
async def test_bounds_of_a_page_are_checked(app: App, workspace: Workspace, after: int, limit: int, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await app.ledger.page(workspace.admin.scope, after, limit)
    assert refused.value.errors[0].field == field


async def test_what_is_missing_and_what_is_somebody_elses_look_the_same(app: App, workspace: Workspace) -> None:
    hers = event({"text": "private"})
    await app.ledger.append(workspace.user("ann"), [hers])
    for scope, event_id in (
        (workspace.user("bob").scope, hers.event_id),
        (Scope("w-somewhere-else"), hers.event_id),
        (workspace.admin.scope, new_id()),
    ):
        for read in (app.ledger.get, app.ledger.payload):
            with pytest.raises(NotFound, match=r"^there is no such event$"):
                await read(scope, event_id)


async def collect(batches: AsyncIterator[list[StoredEvent]], count: int) -> list[int]:
    seen: list[int] = []
    async for events in batches:
        seen += [stored.global_position for stored in events]
        if len(seen) >= count:
            break
    return seen


async def test_a_follower_sees_what_was_there_and_what_comes(app: App, workspace: Workspace) -> None:
    await fill(app, workspace, 5)
    following = asyncio.create_task(collect(app.ledger.follow(workspace.admin.scope, 2), 5))
    await asyncio.sleep(0.1)
    await app.ledger.append(workspace.admin, [event(), event()])
    assert await asyncio.wait_for(following, 5) == [3, 4, 5, 6, 7]


async def test_a_follower_sees_what_another_process_appends(app: App, workspace: Workspace) -> None:
    following = asyncio.create_task(collect(app.ledger.follow(workspace.admin.scope, 0), 1))
    await asyncio.sleep(0.1)
    elsewhere = Ledger(app.database, app.ledger.keys._provider, app.clock, app.registry.__class__())
    await elsewhere.append(workspace.admin, [event()])
    assert await asyncio.wait_for(following, 5) == [1]


async def test_a_follower_with_a_filter_passes_over_the_rest_without_reading_it_again(
    app: App, workspace: Workspace
) -> None:
    await fill(app, workspace)
    reads = 0
    read = app.ledger._read

    async def counted(*arguments: object) -> list[StoredEvent]:
        nonlocal reads
        reads += 1
        return await read(*arguments)  # type: ignore[arg-type]

    app.ledger._read = counted  # type: ignore[method-assign]
    try:
        wanted = Filter(session_id="later")
        following = asyncio.create_task(collect(app.ledger.follow(workspace.admin.scope, 0, wanted), 1))
        await asyncio.sleep(0.7)
        assert reads == 1, "it waits for the head to move"
        await app.ledger.append(workspace.admin, [event(session_id="later")])
        assert await asyncio.wait_for(following, 5) == [31]
    finally:
        del app.ledger._read


async def test_a_user_follows_own_events_only(app: App, workspace: Workspace) -> None:
    following = asyncio.create_task(collect(app.ledger.follow(workspace.user("ann").scope, 0), 2))
    for user in ("bob", "ann", "bob", "ann"):
        await app.ledger.append(workspace.user(user), [event()])
    assert await asyncio.wait_for(following, 5) == [2, 4]


async def test_old_versions_are_read_in_the_newest_form_and_stored_as_they_were(app: App, workspace: Workspace) -> None:
    steps = {
        ("note.taken", 1): Step(payload=lambda p: {"body": p["text"]}),  # type: ignore[index]
        ("note.taken", 2): Step(
            envelope=lambda e: replace(e, tool_name="notebook"),
            payload=lambda p: {"content": p["body"]},  # type: ignore[index]
        ),
    }
    ledger = Ledger(app.database, app.ledger.keys._provider, app.clock, app.registry.__class__(), steps)
    old, newest = (
        event({"text": "hi"}, event_type="note.taken"),
        event({"content": "new"}, event_type="note.taken", schema_version=3),
    )
    await ledger.append(workspace.admin, [old, newest])
    read = await ledger.get(workspace.admin.scope, old.event_id)
    assert (read.schema_version, read.tool_name) == (3, "notebook")
    assert await ledger.payload(workspace.admin.scope, old.event_id) == b'{"content":"hi"}'
    assert await ledger.payload(workspace.admin.scope, newest.event_id) == b'{"content":"new"}'
    plain = await app.ledger.get(workspace.admin.scope, old.event_id)
    assert (plain.schema_version, plain.tool_name) == (1, None)
    [again] = await ledger.append(workspace.admin, [old])
    assert again.status == "duplicate"


async def test_reading_from_a_database_that_went_away_says_unavailable(app: App, postgres: object) -> None:
    with pytest.raises(DatabaseError, match="does not answer"):
        async with Database("host=/nonexistent dbname=x", max_connections=2):
            pass
