"""How conversations end: by their timer, by their owner, with their owner; and what is held stays."""

import json
from collections.abc import Sequence
from uuid import UUID

import pytest
from psycopg import Connection

from conftest import Workspace
from conversations.test_conversations import assert_replay_is_equal, broadcast, counted
from lifecycle.conftest import Time
from lifecycle.test_erasure import everything
from people import Marks, archive_of
from whence.app import App
from whence.db import Scope, Tx
from whence.errors import NotFound, SetupError
from whence.lifecycle.conversations import no_threads
from whence.lifecycle.policies import Policies
from whence.wire import NewMessage


async def state(app: App, workspace: Workspace, id_: UUID) -> str | None:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        rows = await (await tx.execute("SELECT state FROM whence.retention_states WHERE id = %s", (id_,))).fetchall()
    return rows[0][0] if rows else None


async def test_a_year_after_its_last_message_it_is_tombstoned_and_after_the_grace_gone(
    timed: App, workspace: Workspace, time: Time, owner: Connection
) -> None:
    ann, verbs, ws = workspace.user("ann"), timed.conversations, workspace.workspace_id
    shown = (await broadcast(timed, workspace)).conversation_id
    old = await verbs.start(ann, "Old plans", [NewMessage("first")])
    fork = (await verbs.post(ann, shown, NewMessage("I reply"))).conversation_id
    cited = (await verbs.post(workspace.user("bob"), shown, NewMessage("Agreed"))).conversation_id
    spoken = (await verbs.start(ann, None, [NewMessage("We decide so.")])).messages[0].message_id
    await timed.actions.record(workspace.user("bob"), "change_set.applied", [cited])
    await timed.actions.record(ann, "decision.published", [spoken])
    time.passes(days=300)
    last = (await verbs.post(ann, old.conversation_id, NewMessage("last"))).message.message_id
    time.passes(days=64, hours=23)
    assert (await timed.retention.apply(ws)).conversations_expired == 0
    time.passes(hours=1)
    due = (await timed.retention.plan(workspace.admin.scope)).conversations
    assert [(each.conversation_id, each.becomes) for each in due if not each.kept_by] == [(fork, "TOMBSTONE")]
    assert {each.kept_by for each in due[1:]} == {"an action cites it"}
    assert len(due) == 3
    done = await timed.retention.apply(ws)
    assert (done.conversations_expired, done.conversations_disposed, len(done.archives)) == (1, 0, 1)
    [line] = await timed.archive.read(workspace.admin.scope, done.archives[0])
    assert (line.said and line.said.text, line.envelope.session_id) == ("I reply", f"conversation:{fork}")
    with pytest.raises(NotFound):
        await verbs.get(ann, fork)
    assert await state(timed, workspace, fork) == "TOMBSTONED"
    assert await state(timed, workspace, cited) == await state(timed, workspace, shown) == "REFERENCED"
    assert await state(timed, workspace, old.conversation_id) == "ACTIVE"
    time.passes(days=300)
    done = await timed.retention.apply(ws)
    assert (done.conversations_expired, done.conversations_disposed, len(done.archives)) == (1, 1, 1)
    lines = await timed.archive.read(workspace.admin.scope, done.archives[0])
    assert [each.said and each.said.text for each in lines] == ["Old plans", "first", "last"]
    assert await state(timed, workspace, last) == "TOMBSTONED"
    await assert_replay_is_equal(timed, workspace)
    time.passes(days=29)
    assert (await timed.retention.apply(ws)).conversations_disposed == 0
    ended: list[UUID] = []

    async def threads(tx: Tx, workspace_id: str, ids: Sequence[UUID]) -> None:
        """In the transaction that removes them, where they are still there."""
        assert workspace_id == ws
        assert await (await tx.execute("SELECT FROM whence.conversations WHERE deleted_at IS NOT NULL")).fetchall()
        ended.extend(ids)

    async def failing(*_: object) -> None:
        raise RuntimeError("the threads are not there")

    time.passes(days=1)
    try:
        timed.retention.ending(failing)
        with pytest.raises(RuntimeError):
            await timed.retention.apply(ws)
        assert await state(timed, workspace, old.conversation_id) == "TOMBSTONED"
        timed.retention.ending(threads)
        assert (await timed.retention.apply(ws)).conversations_disposed == 1
    finally:
        timed.retention.ending(no_threads)
    assert ended == [old.conversation_id]
    assert await state(timed, workspace, old.conversation_id) is await state(timed, workspace, last) is None
    for event_id in (old.conversation_id, last):
        assert await timed.ledger.get(ann.scope, event_id)
        with pytest.raises(NotFound):
            await timed.ledger.payload(ann.scope, event_id)
    for _ in range(3):
        time.passes(days=400)
        assert (await timed.retention.apply(ws)).conversations_disposed == 0
    assert [each.content for each in (await verbs.read(workspace.user("bob"), cited)).messages][-1] == "Agreed"
    assert len((await verbs.read(ann, shown)).messages) == 2
    assert await state(timed, workspace, spoken) == "REFERENCED"
    await assert_replay_is_equal(timed, workspace)


async def test_what_its_owner_deletes_goes_after_the_grace_with_its_messages_unless_it_is_cited(
    timed: App, workspace: Workspace, time: Time
) -> None:
    ann, verbs = workspace.user("ann"), timed.conversations
    gone = await verbs.start(ann, "Gone", [NewMessage("bye")])
    held = await verbs.start(ann, "Held", [NewMessage("stays")])
    await timed.actions.record(ann, "decision.published", [held.conversation_id])
    for each in (gone, held):
        await verbs.delete(ann, each.conversation_id)
        assert await state(timed, workspace, each.messages[0].message_id) == "TOMBSTONED"
    time.passes(days=29)
    assert (await timed.retention.apply(workspace.workspace_id)).conversations_disposed == 0
    time.passes(days=1)
    done = await timed.retention.apply(workspace.workspace_id)
    assert (done.conversations_disposed, done.archives) == (1, [])
    assert await counted(timed, workspace, "conversations") == await counted(timed, workspace, "conversation_messages")
    assert b"stays" in await timed.ledger.payload(ann.scope, held.messages[0].message_id)
    await assert_replay_is_equal(timed, workspace)


async def test_who_is_erased_leaves_nothing_and_others_and_broadcasts_lose_nothing(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann, bob, mark = workspace.user("ann"), workspace.user("bob"), Marks()
    shown = await broadcast(app, workspace)
    kept = await app.conversations.post(bob, shown.conversation_id, NewMessage("Kept by Bob"))
    made = await app.conversations.start(ann, f"About {mark()}", [NewMessage(f"Ask {mark()} Stone", "system")])
    await app.conversations.post(ann, made.conversation_id, NewMessage(f"I saw {mark()} in {mark()}"))
    fork = await app.conversations.post(ann, shown.conversation_id, NewMessage(f"Says {mark()}"))
    deleted = await app.conversations.start(ann, mark(), [NewMessage(mark())])
    await app.conversations.delete(ann, deleted.conversation_id)
    await app.actions.record(ann, "decision.published", [fork.conversation_id])
    await app.projector.catch_up(workspace.workspace_id)
    archive = await archive_of(app, workspace, "ann")
    lines = [json.loads(line) for line in archive.read("conversations.jsonl").splitlines()]
    assert {line["conversation_id"] for line in lines} == {str(each.conversation_id) for each in (made, fork, deleted)}
    assert [each["is_copy"] for each in lines[1]["messages"]] == [True, True, False]
    assert set(mark.found_in(archive.read("events.jsonl").decode())) == set(mark.made)
    assert mark.found_in("".join(everything(owner, workspace.workspace_id).values())) == []
    ended: list[UUID] = []

    async def threads(tx: Tx, workspace_id: str, ids: Sequence[UUID]) -> None:
        ended.extend(ids)

    app.erasures.threads, before = threads, app.erasures.threads
    try:
        receipt = await app.erasures.erase(workspace.admin, "ann")
    finally:
        app.erasures.threads = before
    assert set(ended) == {each.conversation_id for each in (made, fork, deleted)}
    assert receipt.removed["conversations"].count == 3
    assert receipt.removed["conversation_messages"].count == 2 + 3 + 1
    assert all(check.ok for check in await app.erasures.verify(receipt))
    with pytest.raises(NotFound):
        await app.conversations.get(ann, fork.conversation_id)
    assert await app.conversations.read(bob, shown.conversation_id) == shown
    assert (await app.conversations.read(bob, kept.conversation_id)).messages[-1].content == "Kept by Bob"
    assert await counted(app, workspace, "conversations") == 2
    again = await app.conversations.post(ann, shown.conversation_id, NewMessage("Back again"))
    assert (again.message_count, again.title) == (3, "Welcome")
    assert all(check.ok for check in await app.erasures.verify(receipt))


async def test_a_message_that_comes_while_it_is_archived_keeps_it(
    timed: App, workspace: Workspace, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    made = await timed.conversations.start(ann, None, [NewMessage("long ago")])
    time.passes(days=365)
    write = timed.archive.write

    async def and_meanwhile(*given: object) -> object:
        await timed.conversations.post(ann, made.conversation_id, NewMessage("just now"))
        return await write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(timed.archive, "write", and_meanwhile)
    assert (await timed.retention.apply(workspace.workspace_id)).conversations_expired == 0
    assert (await timed.conversations.get(ann, made.conversation_id)).message_count == 2


@pytest.mark.parametrize(
    ("own", "match"),
    [
        ({"conversation": {"default": {"disposal": "STRIP_PAYLOAD"}}}, "conversation.default.disposal"),
        ({"conversation": {"default": {"timer": "recorded_at"}}}, "conversation.default.timer"),
        ({"memory": {"default": {"timer": "active_at"}}}, "memory.default.timer"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(own: dict[str, object], match: str) -> None:
    with pytest.raises(SetupError, match=match):
        Policies(own)


def test_the_policy_is_a_year_and_thirty_days_then_nothing_is_left() -> None:
    policy = Policies({}).of("conversation", "PLATFORM")
    assert (policy.active_days, policy.grace_days, policy.disposal, policy.timer) == (
        365,
        30,
        "HARD_DELETE",
        "active_at",
    )
