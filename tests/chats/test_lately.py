"""What comes back is known: whether it was given a moment ago, by another process, or is not held any more."""

from collections.abc import Callable

import pytest

from conftest import Workspace
from whence.app import App
from whence.chats import Chat, lately
from whence.chats.lately import Lately
from whence.memory.partitions import DEFAULT_PART, agent_of
from whence.wire import Message, Recall

AGENT = agent_of(DEFAULT_PART, DEFAULT_PART)
BREAD = "Grandmother taught me to bake sourdough bread."
HERON = "A grey heron stands at the pond each morning."


@pytest.fixture
async def chat(app: App, workspace: Workspace) -> Chat:
    ann = workspace.user("ann")
    chat = Chat(ann, AGENT, "chat:1", teller=ann)
    said = [Message(sender_id="ann", role="user", timestamp=at, content=text) for at, text in enumerate([BREAD, HERON])]
    await app.chats.add(chat, said)
    return chat


@pytest.fixture
def another(app: App) -> Callable[[], Lately]:
    """As it begins in another process."""
    return lambda: Lately(app.database, app.ledger, app.clock)


async def left_of(known: Lately, chat: Chat, text: str) -> str:
    return (await known.echoes(chat.principal.scope, AGENT, [text])).left_of(text, "assistant").text


async def test_what_is_not_recorded_yet_counts_and_what_another_process_recorded(
    app: App, chat: Chat, another: Callable[[], Lately]
) -> None:
    known = another()
    assert await left_of(known, chat, BREAD) == BREAD
    await app.recaller.recall(chat.principal, Recall(query="bread", agent=AGENT, top_k=1))
    assert app.ledger.behind.waiting(chat.principal.workspace_id)
    assert await left_of(known, chat, BREAD) == ""
    await app.ledger.behind.settled()
    assert not app.ledger.behind.waiting(chat.principal.workspace_id)
    for each in (known, another()):
        assert await left_of(each, chat, f"I know:  {BREAD.upper()}\n{HERON}") == HERON
        assert await left_of(each, chat, HERON) == HERON


async def test_what_is_held_no_more_is_read_again(
    app: App, chat: Chat, another: Callable[[], Lately], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "MAX_RECALLS_HELD", 1)
    monkeypatch.setattr(lately, "MAX_BEGINNINGS_HELD", 1)
    known = another()
    for query in ("bread", "heron"):
        await app.recaller.recall(chat.principal, Recall(query=query, agent=AGENT, top_k=1))
    await app.ledger.behind.settled()
    for _ in range(2):
        assert await left_of(known, chat, f"{BREAD} {HERON}") == ""


async def test_it_is_of_one_user_and_one_partition(app: App, chat: Chat, workspace: Workspace) -> None:
    await app.recaller.recall(chat.principal, Recall(query="bread", agent=AGENT, top_k=1))
    known = Lately(app.database, app.ledger, app.clock)
    bob = workspace.user("bob")
    assert await left_of(known, Chat(bob, AGENT, "chat:1", teller=bob), BREAD) == BREAD
    assert (await known.echoes(chat.principal.scope, "another", [BREAD])).left_of(BREAD, "user").text == BREAD


async def test_what_this_process_has_answered_is_not_read_for_it(
    app: App, chat: Chat, another: Callable[[], Lately], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = another()
    found = await app.recaller.recall(chat.principal, Recall(query="bread", agent=AGENT, top_k=1))
    known.answered(chat.principal.workspace_id, "bread", found)
    await app.ledger.behind.settled()
    read: list[str] = []
    for name in ("_opened", "_given"):
        monkeypatch.setattr(known, name, lambda *_, name=name: read.append(name))
    assert await left_of(known, chat, HERON) == HERON
    assert read == []
    monkeypatch.undo()
    assert await left_of(known, chat, BREAD) == ""


async def test_a_search_says_what_it_has_answered(app: App, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Lately, "answered", lambda _, workspace, query, found: told.append(query))
    await app.chats.search(chat.principal, AGENT, "bread", ["all_user_memory"], None, 1)
    assert told == ["bread"]


async def test_what_is_held_of_many_recalls_is_not_read_for_the_one_that_waits(
    app: App, chat: Chat, another: Callable[[], Lately], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "RECENT_RECALLS", 3)
    known = another()
    for _ in range(3):
        await app.recaller.recall(chat.principal, Recall(query="bread", agent=AGENT, top_k=1))
    await app.ledger.behind.settled()
    assert await left_of(known, chat, BREAD) == ""
    await app.recaller.recall(chat.principal, Recall(query="bread", agent=AGENT, top_k=1))
    assert app.ledger.behind.waiting(chat.principal.workspace_id)
    opened: list[object] = []
    monkeypatch.setattr(known, "_opened", lambda *asked: opened.append(asked))
    assert await left_of(known, chat, BREAD) == ""
    assert opened == []
