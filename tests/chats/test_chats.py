"""What two do to a chat at once, what is bounded in it, and whose and about whom what it teaches is."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from conftest import Workspace
from whence.app import App
from whence.chats import FLUSHED_AT_ONCE, Chat, Chats, rules
from whence.chats.extraction import (
    MODEL_MESSAGES,
    MODEL_PARTS,
    RULES_CHARACTERS,
    ByModel,
    ByRules,
    Drawn,
    Extraction,
    Heard,
)
from whence.chats.messages import Marker, pieces, read
from whence.crypto import SubjectKey
from whence.errors import InvalidInput, RepeatsCanon
from whence.memory.partitions import DEFAULT_PART, agent_of
from whence.memory.profiles import Profiles
from whence.wire import Message, Recall, Remember

AGENT = agent_of(DEFAULT_PART, DEFAULT_PART)


class StandIn:
    """A model that says something else each time, after something was done meanwhile."""

    name = "stand-in"
    is_failing = False

    def __init__(self, meanwhile: Callable[[], Awaitable[Any]], *places: str) -> None:
        self._meanwhile = meanwhile
        self._places = list(places)

    async def extract(self, heard: Sequence[Heard]) -> Extraction:
        place = self._places.pop(0)
        await self._meanwhile()
        drawn = [
            Drawn(each, rules.Statement("lives in", place, f"lives in {place}", 0, len(each.text))) for each in heard
        ]
        return Extraction(drawn, [], len(heard))


@pytest.fixture
def chat(workspace: Workspace) -> Chat:
    ann = workspace.user("ann")
    return Chat(ann, AGENT, "chat:1", teller=ann)


def chats_with(app: App, extractor: Any) -> Chats:
    return Chats(app.database, app.ledger, app.clock, app.memory, app.recaller, app.queue, extractor)


def said(text: str, at: int = 1) -> Message:
    return Message(sender_id="ann", role="user", timestamp=at, content=text)


async def facts_of(app: App, chat: Chat) -> list[str]:
    page = await app.memory.page(chat.principal.scope, Recall(kinds=("semantic",)), limit=100)
    return [memory.text for memory in page.memories]


async def test_of_two_flushes_that_found_different_facts_one_has_learnt(app: App, chat: Chat) -> None:
    await app.chats.add(chat, [said("Home is where I am")])
    both = asyncio.Barrier(2)
    chats = chats_with(app, StandIn(both.wait, "Lyon", "Paris"))
    done = await asyncio.gather(chats.flush(chat), chats.flush(chat))
    assert sorted(len(each.facts) for each in done) == [0, 1]
    assert [each.position for each in done].count(None) == 1
    assert await facts_of(app, chat) == [fact.text for each in done for fact in each.facts]


@pytest.mark.parametrize("verb", ["delete", "override"])
async def test_nothing_is_learnt_of_a_message_that_goes_while_it_is_read(app: App, chat: Chat, verb: str) -> None:
    [first, second] = (await app.chats.add(chat, [said("Home is here"), said("Home is there", 2)])).memory_ids

    async def meanwhile() -> None:
        if verb == "delete":
            await app.chats.delete(chat, first)
        else:
            await app.chats.override(chat, first, "Home is nowhere")

    done = await chats_with(app, StandIn(meanwhile, "Lyon")).flush(chat)
    assert [fact.source_id for fact in done.facts] == [second]
    assert len(done.dropped) == 1
    assert await facts_of(app, chat) == ["ann lives in Lyon"]
    await app.chats.delete(chat, second)
    assert await facts_of(app, chat) == []


async def test_what_is_said_in_a_chat_does_not_become_the_workspaces(
    app: App, workspace: Workspace, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the profile of its agent is the workspace's by now."""
    chats = chats_with(app, ByRules())
    [told] = (await chats.add(chat, [said("I live in Rome")])).memory_ids
    monkeypatch.setattr(app.memory, "profiles", Profiles({}, {AGENT: "sdr"}))
    for refused in (
        chats.flush(chat),
        chats.add(chat, [said("I live in Oslo", 2)]),
        chats.override(chat, told, "I live in Paris"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await refused
        assert caught.value.detail.startswith("app_id: memory of gateway is the workspace's, by the profile sdr")
    assert (await app.memory.page(workspace.user("bob").scope, Recall())).memories == []
    assert len((await app.memory.page(workspace.admin.scope, Recall())).memories) == 1


async def test_a_delete_that_races_with_a_flush_leaves_no_fact(app: App, chat: Chat) -> None:
    for number in range(5):
        [memory_id] = (await app.chats.add(chat, [said(f"I live in Lyon, in house {number}", number + 1)])).memory_ids
        await asyncio.gather(app.chats.flush(chat), app.chats.delete(chat, memory_id))
        assert await facts_of(app, chat) == []


async def test_a_flush_reads_so_many_messages_and_says_whether_there_are_more(app: App, chat: Chat) -> None:
    for start in (0, FLUSHED_AT_ONCE):
        count = FLUSHED_AT_ONCE if start == 0 else 1
        await app.chats.add(chat, [said(f"Number {start + number}", start + number + 1) for number in range(count)])
    first = await app.chats.flush(chat)
    second = await app.chats.flush(chat)
    assert [(each.message_count, each.is_more) for each in (first, second)] == [(FLUSHED_AT_ONCE, True), (1, False)]
    assert (await app.chats.flush(chat)).is_more is False


class Counted:
    """A model that finds nothing, and counts."""

    name = "counted"
    is_failing = False

    def __init__(self) -> None:
        self.calls = 0

    async def answer(self, *_: Any) -> str:
        self.calls += 1
        return '{"facts": []}'


async def test_a_flush_asks_a_model_a_bounded_number_of_times(app: App, chat: Chat) -> None:
    model = Counted()
    chats = chats_with(app, ByModel(model))  # type: ignore[arg-type]
    await app.chats.add(chat, [said(f"{number} " + "x" * 15_000, number + 1) for number in range(MODEL_PARTS + 2)])
    first = await chats.flush(chat)
    assert (first.message_count, first.is_more, model.calls) == (MODEL_PARTS, True, MODEL_PARTS)
    second = await chats.flush(chat)
    assert (second.message_count, second.is_more, model.calls) == (2, False, MODEL_PARTS + 2)
    assert FLUSHED_AT_ONCE <= MODEL_PARTS * MODEL_MESSAGES


async def test_rules_look_through_a_bounded_number_of_signs() -> None:
    heard = [Heard(uuid4(), number, "x" * 20_000, "ann", datetime.now(UTC)) for number in range(30)]
    assert (await ByRules().extract(heard)).read == RULES_CHARACTERS // 20_000
    assert (await ByRules().extract(heard[:3])).read == 3


async def test_a_fact_that_cannot_be_kept_is_told(app: App, chat: Chat) -> None:
    async def nothing() -> None: ...

    await app.chats.add(chat, [said("Home is where I am")])
    done = await chats_with(app, StandIn(nothing, "x" * 30_000)).flush(chat)
    assert (done.facts, len(done.dropped)) == ([], 1)


async def test_a_fact_is_not_overridden(app: App, chat: Chat) -> None:
    await app.chats.add(chat, [said("I live in Lyon")])
    [fact] = (await app.chats.flush(chat)).facts
    with pytest.raises(InvalidInput, match="override the message"):
        await app.chats.override(chat, fact.memory_id, "ann lives in Paris")
    assert (await app.chats.delete(chat, fact.memory_id)).id == fact.memory_id


async def test_a_text_that_was_known_already_is_answered_with_its_memory(app: App, chat: Chat) -> None:
    async def told(text: str) -> UUID:
        request = Remember(agent=AGENT, tier="persistent", kind="semantic", text=text, session_id="chat:1")
        return (await app.memory.remember(chat.principal, request)).memory_id

    old, known = await told("The gate is green"), await told("The gate is blue")
    for _ in range(2):
        assert (await app.chats.override(chat, old, "The gate is blue")).id == known


async def test_only_memories_of_chats_are_overridden_and_deleted(app: App, chat: Chat) -> None:
    request = Remember(agent=AGENT, tier="persistent", kind="episodic", text="A page", session_id="resource://a")
    memory_id = (await app.memory.remember(chat.principal, request)).memory_id
    elsewhere = chat._replace(session_id="resource://a")
    for done in (app.chats.delete(elsewhere, memory_id), app.chats.override(elsewhere, memory_id, "Another")):
        with pytest.raises(InvalidInput, match="session_id"):
            await done
    assert (await app.memory.get(chat.principal.scope, memory_id)).deleted_at is None


async def test_what_an_administrator_tells_for_a_user_is_the_users_and_says_who_told_it(
    app: App, chat: Chat, workspace: Workspace
) -> None:
    for_ann = chat._replace(teller=workspace.admin)
    [memory_id] = (await app.chats.add(for_ann, [said("I keep bees on the roof")])).memory_ids
    memory = await app.memory.get(chat.principal.scope, memory_id)
    assert (memory.user_id, memory.said_by) == ("ann", workspace.admin.user_id)
    assert (await app.chats.add(chat, [said("I keep bees on the roof")])).results[0].status == "repeated"


async def test_a_long_message_that_is_sent_again_stores_nothing_more(
    app: App, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "The keeper of the lighthouse wrote every night. " * 200
    await app.chats.add(chat, [said(page)])
    await app.recaller.recall(chat.principal, Recall(query="lighthouse", agent=AGENT))
    long = said(f"{page.strip()}\n" + "And so did I, as far as I know. " * 500, 2)
    first = await app.chats.add(chat, [long])
    assert (first.status, len(first.memory_ids), len(first.results[0].recalled)) == ("stored", 1, 1)
    monkeypatch.setattr("whence.chats.lately.RECENT_RECALLS", 0)
    again = await app.chats.add(chat, [long])
    assert (again.status, again.results[0].status) == ("unchanged", "repeated")
    assert (again.memory_ids, again.position) == (first.memory_ids, first.position)


async def test_what_is_taken_out_of_a_long_message_is_told(app: App, chat: Chat) -> None:
    long = "My card is 4111 1111 1111 1111, you know. " + "And so on, as far as I know. " * 1_000
    [result] = (await app.chats.add(chat, [said(long)])).results
    assert len(result.memory_ids) > 1
    assert result.sanitised == {"card": 1}


def test_a_long_message_is_refused_for_what_a_short_one_is(app: App) -> None:
    name, profile = app.memory.profiles.of(AGENT)
    strict = msgspec.structs.replace(profile, sanitise={**profile.sanitise, "card": "refuse"})
    [long] = read([said("My card is 4111 1111 1111 1111, you know. " + "And so on, as far as I know. " * 1_000)])
    with pytest.raises(InvalidInput, match=r"messages\[0\].content: holds what the profile"):
        pieces(long, long.text, Marker(SubjectKey(uuid4(), b"k" * 32), AGENT, "chat:1"), name, strict)


async def test_what_takes_the_place_of_a_memory_is_of_its_world_and_about_the_same_person(
    app: App, workspace: Workspace, chat: Chat
) -> None:
    rule = "Refunds above one hundred euros are paid only after the head of support has approved them in writing."
    await app.memory.set_rule(workspace.admin, "w1", "R-1", rule)
    told = Remember(agent=AGENT, tier="session", kind="semantic", text="Bob is well", session_id=chat.session_id)
    about = msgspec.structs.replace(told, subject_id="bob", world_id_context="w1")
    first = await app.memory.remember(workspace.user("ann"), about)
    with pytest.raises(RepeatsCanon, match="rule R-1"):
        await app.chats.override(chat, first.memory_id, rule)
    done = await app.chats.override(chat, first.memory_id, "Bob is ill")
    assert (await app.memory.get(chat.principal.scope, done.id)).world_id_context == "w1"
    keyed = msgspec.structs.replace(told, kind="procedural", key="tea", text="steep it first")
    procedure = await app.memory.remember(workspace.user("ann"), keyed)
    with pytest.raises(InvalidInput, match="is a procedure: remember another one under its key, tea"):
        await app.chats.override(chat, procedure.memory_id, "boil it first")
    await app.erasures.erase(workspace.admin, "bob")
    page = await app.memory.page(chat.principal.scope, Recall())
    assert [memory.text for memory in page.memories] == ["steep it first"]


async def test_what_a_chat_teaches_is_about_whom_its_message_is_about(
    app: App, workspace: Workspace, chat: Chat
) -> None:
    says = Remember(
        agent=AGENT, tier="session", kind="episodic", text="I live in Rome", session_id=chat.session_id,
        speaker="Bob", role="user", subject_id="bob",
    )  # fmt: skip
    await app.memory.remember(workspace.user("ann"), says)
    await chats_with(app, ByRules()).flush(chat)
    assert await facts_of(app, chat) == ["Bob lives in Rome"]
    await app.erasures.erase(workspace.admin, "bob")
    assert await facts_of(app, chat) == []
