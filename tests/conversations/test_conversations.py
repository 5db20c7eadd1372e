"""Conversations: who sees what, one fork for each who replies, and nothing half done."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import Connection, sql

from conftest import Workspace
from samples import event
from whence import conversations
from whence.app import App
from whence.conversations import MADE_AT_ONCE
from whence.db import Scope
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound
from whence.graph.rebuild import rebuild as rebuild_graph
from whence.identity import Principal
from whence.ledger.append import lock_head
from whence.ledger.events import OWN_TYPES
from whence.memory.rebuild import rebuild as rebuild_memory
from whence.wire import ConversationMessage, ConversationRead, NewMessage

HELLO = (NewMessage("Welcome to the team.", "assistant"), NewMessage("Ask me anything.", "assistant"))


async def broadcast(app: App, workspace: Workspace, key: str = "welcome") -> ConversationRead:
    made, _ = await app.conversations.publish(workspace.admin, key, HELLO, "Welcome")
    return made


def said(found: ConversationRead) -> list[tuple[str, str, bool]]:
    return [(each.role, each.content, each.is_copy) for each in found.messages]


async def counted(app: App, workspace: Workspace, table: str) -> int:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        statement = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("whence", table))
        ((count,),) = await (await tx.execute(statement)).fetchall()
    return count


async def assert_replay_is_equal(app: App, workspace: Workspace) -> None:
    memory = await rebuild_memory(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert (memory.differing, memory.unreadable) == ((), 0)
    await app.projector.catch_up(workspace.workspace_id)
    graph = await rebuild_graph(app.database, app.projector, app.clock, workspace.workspace_id, True, lambda *_: None)
    assert graph.differing == ()


async def test_a_private_conversation_is_its_owners_alone(app: App, workspace: Workspace) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    made = await app.conversations.start(ann, "Plans", [NewMessage("Be brief.", "system")])
    posted = await app.conversations.post(ann, made.conversation_id, NewMessage("What is next?"))
    assert (posted.conversation_id, posted.message.place, posted.message_count) == (made.conversation_id, 2, 2)
    found = await app.conversations.read(ann, made.conversation_id)
    assert (found.title, found.state, found.user_id, found.key, found.forked_from) == (
        "Plans", "private", "ann", None, None,
    )  # fmt: skip
    assert said(found) == [("system", "Be brief.", False), ("user", "What is next?", False)]
    deleted = await app.conversations.start(bob)
    await app.conversations.delete(bob, deleted.conversation_id)
    elsewhere = Workspace((await other(app)), "")
    answers = set[str]()
    for who, unseen in (
        (bob, made.conversation_id),
        (workspace.admin, made.conversation_id),
        (elsewhere.user("ann"), made.conversation_id),
        (bob, uuid4()),
        (bob, deleted.conversation_id),
    ):
        for verb in (
            app.conversations.get(who, unseen),
            app.conversations.read(who, unseen),
            app.conversations.post(who, unseen, NewMessage("x")),
            app.conversations.delete(who, unseen),
        ):
            with pytest.raises(NotFound) as caught:
                await verb
            answers.add(caught.value.detail)
    assert answers == {"there is no such conversation"}
    assert (await app.conversations.page(bob)).conversations == []
    await assert_replay_is_equal(app, workspace)


async def other(app: App) -> str:
    workspace_id = f"w-{uuid4().hex[:12]}"
    await app.identity.add_workspace(workspace_id)
    return workspace_id


async def test_a_broadcast_is_read_by_all_written_by_nobody_and_published_once(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    first, is_new = await app.conversations.publish(workspace.admin, "welcome", HELLO, "Welcome")
    again, is_again = await app.conversations.publish(workspace.admin, "welcome", [NewMessage("Other words")], "Other")
    assert (is_new, is_again) == (True, False)
    assert again == first
    assert (first.state, first.user_id, first.key, first.title) == ("broadcast", None, "welcome", "Welcome")
    assert await app.conversations.read(ann, first.conversation_id) == first
    with pytest.raises(Forbidden):
        await app.conversations.publish(ann, "mine", HELLO)
    for who in (ann, workspace.admin):
        with pytest.raises(Forbidden):
            await app.conversations.delete(who, first.conversation_id)
    fork = await app.conversations.post(workspace.admin, first.conversation_id, NewMessage("An administrator's reply"))
    assert (fork.state, fork.forked_from, fork.user_id) == ("fork", first.conversation_id, "admin")
    assert await app.conversations.read(ann, first.conversation_id) == first
    # Also by an event that says so, whoever makes it.
    forged = app.conversations._message(uuid4(), first.conversation_id, None, NewMessage("Not by me"))  # pyright: ignore
    [outcome] = await app.ledger.record(workspace.workspace_id, [forged])
    assert (outcome.status, outcome.errors[0].field) == ("rejected", "conversation_id")
    made = await asyncio.gather(*(broadcast(app, workspace, "raced") for _ in range(5)))
    assert len({each.conversation_id for each in made}) == 1
    await assert_replay_is_equal(app, workspace)


async def test_fifty_who_reply_at_once_have_a_fork_each(app: App, workspace: Workspace) -> None:
    first = await broadcast(app, workspace)
    users = [workspace.user(f"u{number}") for number in range(50)]
    posted = await asyncio.gather(
        *(app.conversations.post(who, first.conversation_id, NewMessage(f"I am {who.user_id}")) for who in users)
    )
    assert len({each.conversation_id for each in posted}) == 50
    assert {each.forked_from for each in posted} == {first.conversation_id}
    for who, each in zip(users, posted, strict=True):
        found = await app.conversations.read(who, each.conversation_id)
        assert (found.title, found.user_id) == ("Welcome", who.user_id)
        assert said(found) == [
            *((message.role, message.content, True) for message in HELLO),
            ("user", f"I am {who.user_id}", False),
        ]
    assert await counted(app, workspace, "conversations") == 51
    await assert_replay_is_equal(app, workspace)


async def test_one_who_replies_twenty_times_at_once_has_one_fork(app: App, workspace: Workspace) -> None:
    ann, first = workspace.user("ann"), await broadcast(app, workspace)
    await asyncio.gather(
        *(app.conversations.post(ann, first.conversation_id, NewMessage(f"reply {number}")) for number in range(20))
    )
    [fork] = (await app.conversations.page(ann, "fork")).conversations
    found = await app.conversations.read(ann, fork.conversation_id)
    assert [each.place for each in found.messages] == list(range(1, 23))
    assert [each.is_copy for each in found.messages] == [True] * 2 + [False] * 20
    assert {each.content for each in found.messages[2:]} == {f"reply {number}" for number in range(20)}
    events = (await app.ledger.page(ann.scope, 0, 100)).events
    assert sum(each.event_type == "conversation.forked" for each in events) == 1
    assert {each.session_id for each in events} == {f"conversation:{fork.conversation_id}"}
    # Later replies go to the fork by either id; one that was deleted is in nobody's way.
    for target in (first.conversation_id, fork.conversation_id):
        assert (await app.conversations.post(ann, target, NewMessage("later"))).conversation_id == fork.conversation_id
    await app.conversations.delete(ann, fork.conversation_id)
    afresh = await app.conversations.post(ann, first.conversation_id, NewMessage("again"))
    assert (afresh.conversation_id != fork.conversation_id, afresh.message_count) == (True, 3)
    await assert_replay_is_equal(app, workspace)


async def test_a_reply_whose_fork_is_deleted_meanwhile_makes_another(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, first = workspace.user("ann"), await broadcast(app, workspace)
    fork = await app.conversations.post(ann, first.conversation_id, NewMessage("first"))
    record = app.ledger.record

    async def late(workspace_id: str, events: Any) -> Any:
        monkeypatch.setattr(app.ledger, "record", record)
        await app.conversations.delete(ann, fork.conversation_id)
        return await record(workspace_id, events)

    monkeypatch.setattr(app.ledger, "record", late)
    afresh = await app.conversations.post(ann, first.conversation_id, NewMessage("second"))
    assert (afresh.conversation_id != fork.conversation_id, afresh.message_count) == (True, 3)
    with pytest.raises(Conflict, match="message_id"):
        await app.conversations.post(ann, afresh.conversation_id, NewMessage("x", message_id=afresh.conversation_id))
    # What is sent to the fork itself has nowhere to go.
    fork = afresh
    monkeypatch.setattr(app.ledger, "record", late)
    with pytest.raises(NotFound):
        await app.conversations.post(ann, fork.conversation_id, NewMessage("third"))


async def test_the_same_message_sent_again_with_its_id_is_stored_once(app: App, workspace: Workspace) -> None:
    ann, bob, first = workspace.user("ann"), workspace.user("bob"), await broadcast(app, workspace)
    reply = NewMessage("Hello", message_id=uuid4())
    raced = await asyncio.gather(*(app.conversations.post(ann, first.conversation_id, reply) for _ in range(10)))
    assert len({each.message for each in raced}) == 1
    assert await app.conversations.post(ann, raced[0].conversation_id, reply) == raced[0]
    own = await app.conversations.start(ann)
    taken = event(user_id="bob")
    await app.ledger.append(bob, [taken])
    stored = await counted(app, workspace, "events")
    for who, target, message in (
        (ann, first.conversation_id, NewMessage("Other words", message_id=reply.message_id)),
        (ann, first.conversation_id, NewMessage("Hello", "assistant", reply.message_id)),
        (ann, own.conversation_id, reply),
        (bob, first.conversation_id, reply),
        (bob, first.conversation_id, NewMessage("Hello", message_id=taken.event_id)),
    ):
        with pytest.raises(Conflict):
            await app.conversations.post(who, target, message)
    assert await counted(app, workspace, "events") == stored
    assert (await app.conversations.page(bob, "fork")).conversations == []
    made_id, words = uuid4(), [NewMessage("a"), NewMessage("b")]
    started = await asyncio.gather(*(app.conversations.start(ann, "T", words, made_id) for _ in range(5)))
    assert len({each.position for each in started}) == 1
    await app.conversations.post(ann, made_id, NewMessage("c"))
    assert (await app.conversations.start(ann, "T", words, made_id)).message_count == 3
    for who, title, first_words in ((ann, "T", words[:1]), (ann, None, words), (bob, "T", words)):
        with pytest.raises(Conflict):
            await app.conversations.start(who, title, first_words, made_id)


async def test_what_is_given_up_or_refused_leaves_no_row_and_no_event(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, first = workspace.user("ann"), await broadcast(app, workspace)
    before = [await counted(app, workspace, name) for name in ("events", "payloads", "conversations")]
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        await tx.execute("SELECT FROM whence.workspace_heads FOR UPDATE")
        # In the middle of its transaction, which waits for the head.
        reply = asyncio.create_task(app.conversations.post(ann, first.conversation_id, NewMessage("Hello")))
        while not await waiting(app):
            await asyncio.sleep(0.01)
        reply.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reply
    assert [await counted(app, workspace, name) for name in ("events", "payloads", "conversations")] == before
    made = await app.conversations.start(ann)
    row = await app.conversations._target(ann, made.conversation_id)  # pyright: ignore[reportPrivateUsage]
    await app.conversations.delete(ann, made.conversation_id)
    before = [await counted(app, workspace, name) for name in ("events", "payloads", "conversations")]

    async def a_moment_ago(*_: object) -> object:
        return row

    with monkeypatch.context() as patched:
        patched.setattr(app.conversations, "_target", a_moment_ago)
        with pytest.raises(NotFound):
            await app.conversations.post(ann, made.conversation_id, NewMessage("too late"))
    monkeypatch.setattr(conversations, "_check_message", lambda *_: None)
    bad = [NewMessage("fine"), NewMessage("no", "robot")]  # type: ignore[arg-type]
    with pytest.raises(psycopg.errors.CheckViolation):
        await app.conversations.start(ann, "Plans", bad)
    with pytest.raises(psycopg.errors.CheckViolation):
        await app.conversations.post(ann, first.conversation_id, bad[1])
    assert [await counted(app, workspace, name) for name in ("events", "payloads", "conversations")] == before


async def waiting(app: App) -> bool:
    async with app.database.transaction(None) as tx:
        row = await (await tx.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")).fetchone()
    return row is not None and row[0] > 0


async def test_what_is_wrong_names_its_field(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    made = await app.conversations.start(ann)
    long = "x" * (conversations.MAX_CONTENT_CHARACTERS + 1)
    for field, verb in (
        ("content", app.conversations.post(ann, made.conversation_id, NewMessage(""))),
        ("content", app.conversations.post(ann, made.conversation_id, NewMessage(long))),
        ("content", app.conversations.post(ann, made.conversation_id, NewMessage("\x00"))),
        ("title", app.conversations.start(ann, "x" * 201)),
        ("messages", app.conversations.start(ann, None, [NewMessage("x")] * 101)),
        ("messages[1].content", app.conversations.start(ann, None, [NewMessage("x"), NewMessage("")])),
        ("messages[0].message_id", app.conversations.start(ann, None, [NewMessage("x", message_id=uuid4())])),
        ("messages", app.conversations.publish(workspace.admin, "k", [])),
        ("key", app.conversations.publish(workspace.admin, " ", HELLO)),
        ("limit", app.conversations.page(ann, limit=101)),
        ("limit", app.conversations.read(ann, made.conversation_id, limit=0)),
    ):
        with pytest.raises(InvalidInput) as caught:
            await verb
        assert caught.value.errors[0].field == field


async def test_a_conversation_holds_so_many_messages_and_no_more(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    made = await app.conversations.start(ann)
    await as_workspace(owner, workspace)
    [(most,)] = owner.execute("SELECT max_messages FROM whence.conversations").fetchall()
    assert most == conversations.MAX_CONVERSATION_MESSAGES
    owner.execute("UPDATE whence.conversations SET message_count = max_messages")
    with pytest.raises(InvalidInput, match="as many messages"):
        await app.conversations.post(ann, made.conversation_id, NewMessage("one more"))


async def test_lists_and_messages_come_in_pages(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    made: list[UUID] = []
    for number in range(3):
        made += [(await broadcast(app, workspace, f"k{number}")).conversation_id]
        made += [(await app.conversations.start(ann, f"T{number}")).conversation_id]
    await app.conversations.start(workspace.user("bob"))
    seen: list[Any] = []
    before = None
    while True:
        page = await app.conversations.page(ann, None, before, 2)
        seen += page.conversations
        before = page.next
        if before is None:
            break
    assert [each.conversation_id for each in seen] == made[::-1]
    assert [each.title for each in seen] == ["T2", "Welcome", "T1", "Welcome", "T0", "Welcome"]
    for state, count in (("private", 3), ("broadcast", 3), ("fork", 0)):
        assert len((await app.conversations.page(ann, state)).conversations) == count  # type: ignore[arg-type]
    for number in range(5):
        await app.conversations.post(ann, made[1], NewMessage(f"m{number}"))
    first = await app.conversations.read(ann, made[1], limit=2)
    rest = await app.conversations.read(ann, made[1], after=first.next or 0, limit=3)
    assert (first.next, rest.next) == (2, None)
    assert [each.content for each in (*first.messages, *rest.messages)] == [f"m{number}" for number in range(5)]


async def test_a_page_is_shorter_where_its_messages_are_long(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    long = [NewMessage(f"{number}" + "x" * 3_000) for number in range(5)]
    made, _ = await app.conversations.publish(workspace.admin, "long", long)
    for message in long:
        fork = await app.conversations.post(ann, made.conversation_id, message)
    whole = await app.conversations.read(ann, fork.conversation_id)
    assert (len(whole.messages), whole.next) == (10, None)
    monkeypatch.setattr(conversations, "MAX_PAGE_BYTES", 8_000)
    sizes, seen, after = list[int](), list[ConversationMessage](), 0
    while after is not None:
        page = await app.conversations.read(ann, fork.conversation_id, after)
        sizes.append(len(page.messages))
        seen += page.messages
        after = page.next
    assert seen == whole.messages
    assert sizes == [2, 2, 3, 2, 1]


async def test_who_waits_in_one_workspace_is_in_nobodys_way_in_another(app: App, workspace: Workspace) -> None:
    ann, other = workspace.user("ann"), Principal(f"w-{uuid4().hex[:12]}", "ann", is_admin=False)
    await app.identity.add_workspace(other.workspace_id)
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        await lock_head(tx, workspace.workspace_id)
        waiting = [asyncio.create_task(app.conversations.start(ann)) for _ in range(2 * MADE_AT_ONCE)]
        # Each goes as far as it can.
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await app.conversations.start(other)
        assert not any(task.done() for task in waiting)
    assert len({made.conversation_id for made in await asyncio.gather(*waiting)}) == len(waiting)


async def as_workspace(owner: Connection, workspace: Workspace) -> None:
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))


INSERT = """INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, broadcast_key,
    forked_from, deleted_at, started_at, active_at)
    VALUES (%(workspace)s, coalesce(%(id)s, gen_random_uuid()), 1, %(state)s, %(user)s, %(key)s, %(fork)s, %(gone)s,
        now(), now())"""


async def test_the_database_refuses_what_is_no_state(app: App, workspace: Workspace, owner: Connection) -> None:
    first = (await broadcast(app, workspace)).conversation_id
    await as_workspace(owner, workspace)
    nothing = {"workspace": workspace.workspace_id, "id": None, "user": None, "key": None, "fork": None, "gone": None}
    itself = uuid4()
    refused: list[tuple[str, dict[str, Any]]] = [
        ("conversations_state", {"state": state, "user": user, "key": key, "fork": fork})
        for state in ("private", "broadcast", "fork", "shared")
        for user in (None, "ann")
        for key in (None, "k")
        for fork in (None, first)
        if (state, user, key, fork)
        not in {("private", "ann", None, None), ("broadcast", None, "k", None), ("fork", "ann", None, first)}
    ]
    refused += [
        ("conversations_broadcast_stays", {"state": "broadcast", "key": "k", "gone": "2026-01-01T00:00Z"}),
        ("conversations_names", {"state": "private", "user": ""}),
        ("conversations_names", {"state": "broadcast", "key": ""}),
        ("conversations_not_of_itself", {"state": "fork", "user": "ann", "fork": itself, "id": itself}),
        ("conversations_fork_of", {"state": "fork", "user": "ann", "fork": uuid4()}),
        ("conversations_one_key", {"state": "broadcast", "key": "welcome"}),
    ]
    assert len(refused) == 29 + 6
    owner.execute(INSERT, nothing | {"state": "fork", "user": "bob", "fork": first})
    refused += [("conversations_one_fork", {"state": "fork", "user": "bob", "fork": first})]
    for constraint, row in refused:
        with pytest.raises(psycopg.errors.IntegrityError) as caught:
            owner.execute(INSERT, nothing | row)
        assert caught.value.diag.constraint_name == constraint, row
    insert = "INSERT INTO whence.conversation_messages VALUES (%s, %s, %s, %s, 1, %s, %s, %s, now(), %s)"
    for constraint, place, user, role, is_copy, gone in (
        ("conversation_messages_role", 9, None, "robot", False, None),
        ("conversation_messages_place", 0, None, "user", False, None),
        ("conversation_messages_copy_is_owned", 9, None, "user", True, None),
        ("conversation_messages_broadcast_stays", 9, None, "user", False, "2026-01-01T00:00Z"),
        ("conversation_messages_pkey", 1, None, "user", False, None),
    ):
        with pytest.raises(psycopg.errors.IntegrityError) as caught:
            owner.execute(insert, (workspace.workspace_id, first, place, uuid4(), user, role, is_copy, gone))
        assert caught.value.diag.constraint_name == constraint


async def test_a_raw_session_of_a_user_sees_own_rows_and_broadcasts_and_changes_none(
    app: App, workspace: Workspace, raw_app: Connection
) -> None:
    first = (await broadcast(app, workspace)).conversation_id
    made = {
        who: {
            (await app.conversations.start(workspace.user(who), "T", [NewMessage("x")])).conversation_id,
            (await app.conversations.post(workspace.user(who), first, NewMessage("y"))).conversation_id,
        }
        for who in ("ann", "bob")
    }
    with raw_app.transaction():
        raw_app.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(workspace.workspace_id))
        for who in ("ann", "bob", "cid"):
            raw_app.execute(sql.SQL("SET LOCAL app.user_id = {}").format(who))
            for table in ("conversations", "conversation_messages"):
                rows = raw_app.execute(
                    sql.SQL("SELECT DISTINCT conversation_id FROM {}").format(sql.Identifier("whence", table))
                ).fetchall()
                assert {row[0] for row in rows} == made.get(who, set()) | {first}
        for forbidden in (
            "UPDATE whence.conversations SET user_id = 'cid'",
            "DELETE FROM whence.conversation_messages",
            "INSERT INTO whence.conversation_messages SELECT * FROM whence.conversation_messages",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), raw_app.transaction():
                raw_app.execute(forbidden)


async def test_events_of_conversations_are_written_by_whence_alone_and_hold_no_text(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann, mark = workspace.user("ann"), f"Zq{uuid4().hex}"
    made = await app.conversations.start(ann, f"About {mark}", [NewMessage(f"Said {mark}")])
    posted = await app.conversations.post(ann, made.conversation_id, NewMessage(f"Again {mark}"))
    await as_workspace(owner, workspace)
    for table in ("events", "conversations", "conversation_messages"):
        rows = owner.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier("whence", table))).fetchall()
        assert rows
        assert all(mark not in row[0] for row in rows), table
    assert mark in (await app.ledger.payload(ann.scope, posted.message.message_id)).decode()
    for name in sorted(each for each in OWN_TYPES if each.startswith("conversation.")):
        [outcome] = await app.ledger.append(workspace.admin, [event({"memory": {}}, event_type=name)])
        assert (outcome.status, outcome.errors[0].field) == ("rejected", "event_type")
