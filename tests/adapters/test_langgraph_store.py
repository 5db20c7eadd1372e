"""WhenceStore as LangGraph uses a store: what its own stores are held to, and what only this one does."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid5

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from conftest import Server, Workspace
from lifecycle_time import Time
from whence import AsyncWhence, Whence
from whence.app import App, open_app
from whence.clock import system_clock
from whence.db import embedded
from whence.errors import InvalidInput, NotFound, SetupError, TooLarge
from whence.gateway.http import build
from whence.langgraph import WhenceStore
from whence.settings import Settings
from whence.wire import SPAN_NAMESPACE


@pytest.fixture
async def ann_key(app: App, workspace: Workspace) -> str:
    return await app.identity.add_user(workspace.workspace_id, "ann")


@pytest.fixture
def whence_of_ann(server: Server, ann_key: str) -> Iterator[Whence]:
    with Whence(server.url, key=ann_key) as client:
        yield client


@pytest.fixture
def store(whence_of_ann: Whence) -> WhenceStore:
    return WhenceStore(whence_of_ann)


def within(app: App, key: str) -> AsyncWhence:
    """A client of an app in this process."""
    client = AsyncWhence("http://whence", key=key)
    headers = client._http.headers
    routes = httpx.ASGITransport(build(replace(app, registry=CollectorRegistry())))
    client._http = httpx.AsyncClient(base_url="http://whence", headers=headers, transport=routes)
    return client


@pytest.fixture
async def here(app: App, ann_key: str) -> AsyncIterator[WhenceStore]:
    async with within(app, ann_key) as client:
        yield WhenceStore(client)


def keys(found: list[Any]) -> list[str]:
    return [item.key for item in found]


# --- put, get, delete -----------------------------------------------------------------------------------------------


def test_what_is_put_is_got_exactly_and_what_is_deleted_is_not(store: WhenceStore) -> None:
    value = {
        "text": "naïve ☕ \u2028 \"quoted\"", "n": 1, "f": 0.1, "big": 2**80, "neg": -1.5e-7, "none": None, "yes": True,
        "list": [1, "2", [3.0]], "nested": {"a.b": {"": "empty name"}}, "": [],
    }  # fmt: skip
    store.put(("users", "ann"), "profile", value)
    first = store.get(("users", "ann"), "profile")
    assert first is not None
    assert first.value == value
    assert (first.namespace, first.key) == (("users", "ann"), "profile")
    assert first.created_at == first.updated_at
    store.put(("users", "ann"), "profile", {"n": 2})
    second = store.get(("users", "ann"), "profile")
    assert second is not None
    assert second.value == {"n": 2}
    assert second.created_at == first.created_at
    assert second.updated_at > first.updated_at
    assert store.get(("users", "ann"), "other") is None
    assert store.get(("users",), "profile") is None
    store.delete(("users", "ann"), "profile")
    store.delete(("users", "ann"), "profile")
    assert store.get(("users", "ann"), "profile") is None
    assert store.search(("users",)) == []
    store.put(("users", "ann"), "profile", {})
    again = store.get(("users", "ann"), "profile")
    assert again is not None
    assert again.value == {}
    assert again.created_at > first.created_at


async def test_a_batch_is_one_request_reads_what_was_before_it_and_keeps_the_last_write_of_a_key(
    here: WhenceStore, app: App, workspace: Workspace
) -> None:
    await here.aput(("n",), "a", {"v": 0})
    head = await app.ledger.heads.read(workspace.workspace_id)
    got, _, _, _, found, names, missing, _ = await here.abatch(
        [
            GetOp(("n",), "a"),
            PutOp(("n",), "a", {"v": 1}),
            PutOp(("n",), "a", {"v": 2}),
            PutOp(("n", "m"), "b", {"v": 3}),
            SearchOp(("n",)),
            ListNamespacesOp(),
            GetOp(("n", "m"), "b"),
            PutOp(("n",), "never", None),
        ]
    )
    assert got.value == {"v": 0}
    assert [item.value for item in found] == [{"v": 0}]
    assert names == [("n",)]
    assert missing is None
    assert await app.ledger.heads.read(workspace.workspace_id) == head + 2
    after = await here.abatch([GetOp(("n",), "a"), GetOp(("n", "m"), "b"), PutOp(("n",), "a", None)])
    assert [item and item.value for item in after] == [{"v": 2}, {"v": 3}, None]
    await here.abatch([PutOp(("n",), "a", {"v": 9}), PutOp(("n",), "a", None)])
    assert await here.aget(("n",), "a") is None
    assert await here.abatch([]) == []


async def test_a_batch_that_is_refused_changes_nothing(here: WhenceStore) -> None:
    wrong = [
        (PutOp(("n",), "k" * 257, {}), "ops[1].key"),
        (PutOp(("n",), "b", {"key": "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}), "ops[1].value"),
        (PutOp(("n",), "b", {"a": "x\x00y"}), "ops[1].value"),
        (PutOp(("n",), "b", {}, ttl=-1), "ops[1].ttl_s"),
        (SearchOp(("n",), limit=0), "ops[1].limit"),
        (SearchOp(("n",), filter={"a": {"$in": [1]}}), "ops[1].filter"),
        (SearchOp(("n",), query="x", limit=400, offset=400), "ops[1].limit"),
        (ListNamespacesOp(max_depth=0), "ops[1].max_depth"),
    ]
    for op, field in wrong:
        with pytest.raises(InvalidInput) as refusal:
            await here.abatch([PutOp(("n",), "a", {"v": 1}), op])
        assert refusal.value.errors[0].field == field
        assert "AKIA" not in str(refusal.value)
    with pytest.raises(TooLarge, match=r"ops\[0\]\.value"):
        await here.aput(("n",), "a", {"v": "x" * 262_144})
    for value in ({"when": system_clock()}, {"set": {1}}, {"nan": float("nan")}, {"in": [{1: 2}]}):
        with pytest.raises((TypeError, ValueError)):
            await here.aput(("n",), "a", value)
    assert await here.asearch(()) == []


async def test_numbers_of_every_size_come_back_equal_and_of_their_kind(here: WhenceStore) -> None:
    value = {
        "floats": [1e16, 1e23, -1.5e30, 1.7976931348623157e308, 5e-324, 1.0, 0.1, 1e22],
        "integers": [10**23, -(2**63), 0],
        'a "1e23': 'as text: 1e23, "1e23", \\',
    }
    await here.aput(("n",), "k", value)
    item = await here.aget(("n",), "k")
    assert item is not None
    assert item.value == value
    assert {type(each) for each in item.value["floats"]} == {float}
    with pytest.raises(TooLarge):
        await here.aput(("n",), "k", {"v": [1e308] * 2_000})


async def test_labels_are_refused_as_langgraph_does(here: WhenceStore) -> None:
    for namespace in ((), ("a.b",), ("a", ""), ("langgraph", "x"), ("a", 1), ("a\x00",)):
        with pytest.raises(InvalidNamespaceError):
            await here.aput(namespace, "k", {})  # type: ignore[arg-type]
    for op in (
        PutOp((), "k", {}), PutOp(("a.b",), "k", {}), GetOp(("",), "k"), SearchOp(("a.b",)),
        ListNamespacesOp((MatchCondition("prefix", ("a.b",)),)),
    ):  # fmt: skip
        with pytest.raises(InvalidNamespaceError):
            await here.abatch([op])


# --- search and namespaces ------------------------------------------------------------------------------------------


async def test_namespaces_that_begin_alike_do_not_leak_into_each_other(here: WhenceStore) -> None:
    spaces = [("a",), ("ab",), ("a", "b"), ("a-b",), ("a/b",), ("a_",), ("A",), ("a", "b", "c"), ("a%",), ("b", "a")]
    await here.abatch([PutOp(space, "k", {"at": list(space)}) for space in spaces])

    async def under(*prefix: str) -> set[tuple[str, ...]]:
        return {item.namespace for item in await here.asearch(prefix, limit=100)}

    assert await under() == set(spaces)
    assert await under("a") == {("a",), ("a", "b"), ("a", "b", "c")}
    assert await under("a", "b") == {("a", "b"), ("a", "b", "c")}
    assert await under("ab") == {("ab",)}
    assert await under("a%") == {("a%",)}
    assert await under("a", "c") == set()
    for space in spaces:
        item = await here.aget(space, "k")
        assert item is not None
        assert item.value == {"at": list(space)}
    assert await here.aget(("a", "b"), "k/c") is None


async def test_namespaces_are_listed_by_beginning_end_and_depth(here: WhenceStore) -> None:
    spaces = [
        ("a", "b", "c"), ("a", "b", "d", "e"), ("a", "b", "d", "i"), ("a", "b", "f"), ("a", "c", "f"),
        ("users", "1", "prefs"), ("users", "2", "prefs"), ("users", "2", "settings"),
    ]  # fmt: skip
    await here.abatch([PutOp(space, "k", {}) for space in spaces])
    listed = here.alist_namespaces
    assert await listed() == spaces
    assert await listed(prefix=("a", "b")) == spaces[:4]
    assert await listed(prefix=("a", "b"), max_depth=3) == [("a", "b", "c"), ("a", "b", "d"), ("a", "b", "f")]
    assert await listed(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert await listed(prefix=("users", "*", "prefs")) == [("users", "1", "prefs"), ("users", "2", "prefs")]
    assert await listed(suffix=("*", "settings")) == [("users", "2", "settings")]
    assert await listed(prefix=("users",), suffix=("prefs",), max_depth=1) == [("users",)]
    assert await listed(prefix=("a", "b", "c", "d", "e")) == []
    assert await listed(limit=2, offset=3) == spaces[3:5]
    await here.adelete(("users", "1"), "k")
    await here.adelete(("users", "1", "prefs"), "k")
    assert await listed(suffix=("prefs",)) == [("users", "2", "prefs")]


async def test_filters_compare_as_the_values_are(here: WhenceStore) -> None:
    await here.abatch(
        [
            PutOp(("d",), "one", {"n": 9, "s": "b", "tags": ["x"], "m": {"lang": "en", "deep": {"n": 1}}, "z": None}),
            PutOp(("d",), "two", {"n": 10.5, "s": "a", "ok": True, "m": {"lang": "de"}}),
            PutOp(("d",), "three", {"n": "10", "s": "B", "ok": False}),
        ]
    )

    async def where(wanted: dict[str, Any]) -> set[str]:
        return set(keys(await here.asearch(("d",), filter=wanted)))

    assert await where({}) == {"one", "two", "three"}
    assert await where({"s": "a"}) == {"two"}
    assert await where({"s": {"$eq": "a"}}) == {"two"}
    assert await where({"s": {"$ne": "a"}}) == {"one", "three"}
    assert await where({"ok": {"$ne": True}}) == {"three"}
    assert await where({"n": {"$gt": 9}}) == {"two"}
    assert await where({"n": {"$gte": 9}}) == {"one", "two"}
    assert await where({"n": {"$lt": 10}}) == {"one"}
    assert await where({"n": {"$lte": 10.5, "$gt": 9}}) == {"two"}
    assert await where({"n": {"$lte": "10"}}) == {"three"}
    assert await where({"s": {"$gt": "B"}}) == {"one", "two"}
    assert await where({"n": 9.0, "s": "b"}) == {"one"}
    assert await where({"n": 9, "s": "a"}) == set()
    assert await where({"tags": ["x"]}) == {"one"}
    assert await where({"m": {"lang": "en"}}) == {"one"}
    assert await where({"m": {"deep": {"n": {"$gte": 1}}}}) == {"one"}
    assert await where({"z": None}) == {"one"}
    assert await where({"missing": {"$ne": 1}}) == set()
    assert await where({"n": {"$lt": 2**80}}) == {"one", "two"}
    assert await where({"n": {"$gt": -(2**80)}, "s": {"$gte": "b"}}) == {"one"}
    assert keys(await here.asearch(("d",), query="  ", limit=1)) == ["three"]


async def test_without_a_query_the_last_put_comes_first_and_pages_fit_together(here: WhenceStore) -> None:
    await here.abatch([PutOp(("p", str(number % 3)), f"k{number}", {"n": number}) for number in range(25)])
    await here.aput(("p", "0"), "k3", {"n": 3, "again": True})
    wanted = ["k3", *(f"k{number}" for number in reversed(range(25)) if number != 3)]
    pages = [keys(await here.asearch(("p",), limit=10, offset=offset)) for offset in (0, 10, 20, 30)]
    assert [key for page in pages for key in page] == wanted
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert keys(await here.asearch(("p",), filter={"n": {"$lt": 6}}, limit=2, offset=1)) == ["k5", "k4"]
    assert all(item.score is None for item in await here.asearch(("p",)))


async def test_a_question_orders_what_is_indexed_and_says_how_well_it_answers(here: WhenceStore) -> None:
    await here.abatch(
        [
            PutOp(("docs",), "coffee", {"text": "Ann drinks two espressos every morning", "lang": "en"}),
            PutOp(("docs",), "bike", {"text": "The bicycle has a flat tyre", "lang": "en"}),
            PutOp(("docs", "old"), "tax", {"text": "Taxes are due in April", "lang": "de"}),
            PutOp(("docs",), "hidden", {"text": "espresso espresso espresso"}, index=False),
            PutOp(("docs",), "title", {"text": "espresso", "title": "A sailing trip"}, index=["title"]),
            PutOp(
                ("docs",), "parts", {"pages": [{"body": "Snow"}, {"body": "Rust on the chain"}], "x": "espresso"},
                index=["pages[*].body"],
            ),
            PutOp(("elsewhere",), "more", {"text": "espresso machines"}),
        ]
    )  # fmt: skip
    found = await here.asearch(("docs",), query="What coffee does she have in the morning?")
    assert found[0].key == "coffee"
    # All that have a text, in order; LangGraph's own stores leave nothing out either.
    assert set(keys(found)) == {"coffee", "bike", "tax", "title", "parts"}
    scores = [item.score or 0.0 for item in found]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]
    assert keys(await here.asearch(("docs",), query="a rusty chain", limit=1)) == ["parts"]
    assert keys(await here.asearch(("docs",), query="sailing", limit=1)) == ["title"]
    assert keys(await here.asearch(("docs",), query="espresso", filter={"lang": "de"})) == ["tax"]
    one_by_one = [await here.asearch(("docs",), query="flat tyre", limit=1, offset=place) for place in range(6)]
    assert keys(one_by_one[0]) == ["bike"]
    assert sorted(key for page in one_by_one for key in keys(page)) == sorted(keys(found))
    # What was put in its place is what counts, and at once.
    await here.aput(("docs",), "bike", {"text": "A train to Lyon"})
    assert keys(await here.asearch(("docs",), query="train to Lyon", limit=1)) == ["bike"]
    await here.adelete(("docs",), "coffee")
    assert "coffee" not in keys(await here.asearch(("docs",), query="espressos in the morning"))
    assert await here.asearch(("nowhere",), query="espresso") == []
    quiet = WhenceStore(here._client, index=False)
    await quiet.aput(("docs",), "quiet", {"text": "a submarine"})
    assert "quiet" not in keys(await here.asearch(("docs",), query="a submarine"))
    assert "quiet" in keys(await here.asearch(("docs",)))
    with pytest.raises(SetupError, match="embedder"):
        WhenceStore(here._client, index={"dims": 3, "embed": len})  # type: ignore[arg-type]


# --- time to live ---------------------------------------------------------------------------------------------------


async def test_what_has_expired_is_gone_at_once_and_what_is_read_lives_on(
    postgres: embedded.EmbeddedServer, data_dir: Path, ann_key: str, workspace: Workspace
) -> None:
    moment = Time(system_clock())
    async with open_app(Settings(data_dir=data_dir), clock=moment) as later, within(later, ann_key) as client:
        timed = WhenceStore(client, ttl={"default_ttl": 10, "refresh_on_read": True})
        await timed.aput(("t",), "read", {"text": "an umbrella"})
        await timed.aput(("t",), "short", {"text": "a raincoat"}, ttl=1)
        await timed.aput(("t",), "ever", {"text": "a hat"}, ttl=None)
        moment.pass_by(seconds=59)
        assert set(keys(await timed.asearch(("t",), refresh_ttl=False))) == {"read", "short", "ever"}
        moment.pass_by(seconds=1)
        assert await timed.aget(("t",), "short") is None
        assert set(keys(await timed.asearch(("t",), refresh_ttl=False))) == {"read", "ever"}
        assert "short" not in keys(await timed.asearch(("t",), query="a raincoat", refresh_ttl=False))
        assert [hit.text for hit in (await client.recall("a raincoat")).hits if "raincoat" in hit.text] == []
        moment.pass_by(minutes=8)
        assert await timed.aget(("t",), "read") is not None
        moment.pass_by(minutes=9)
        assert keys(await timed.asearch(("t",), query="an umbrella", limit=1)) == ["read"]
        moment.pass_by(minutes=9)
        assert await timed.aget(("t",), "read", refresh_ttl=False) is not None
        moment.pass_by(minutes=1)
        assert await timed.aget(("t",), "read") is None
        assert await timed.alist_namespaces() == [("t",)]
        await timed.adelete(("t",), "ever")
        assert await timed.alist_namespaces() == []
        # One that comes after an expired one is new.
        await timed.aput(("t",), "short", {"text": "a raincoat"})
        item = await timed.aget(("t",), "short")
        assert item is not None
        assert item.created_at == moment()


# --- whose it is, and where it came from ------------------------------------------------------------------------------


async def test_users_do_not_see_each_others_items(here: WhenceStore, app: App, workspace: Workspace) -> None:
    bob_key = await app.identity.add_user(workspace.workspace_id, "bob")
    await here.aput(("shared",), "k", {"text": "ann's secret plan"})
    async with within(app, bob_key) as client, within(app, workspace.admin_key) as admin:
        bobs = WhenceStore(client)
        assert await bobs.aget(("shared",), "k") is None
        assert await bobs.asearch(()) == []
        assert await bobs.asearch((), query="secret plan") == []
        assert await bobs.alist_namespaces() == []
        await bobs.aput(("shared",), "k", {"text": "bob's"})
        await bobs.adelete(("shared",), "k")
        mine = await here.aget(("shared",), "k")
        assert mine is not None
        assert mine.value == {"text": "ann's secret plan"}
        other = WhenceStore(client, agent="another")
        with pytest.raises(InvalidInput, match="user_id"):
            await WhenceStore(client, user="ann").aget(("shared",), "k")
        await other.aput(("shared",), "k", {"of": "another agent"})
        assert await bobs.aget(("shared",), "k") is None
        # An administrator says whose.
        with pytest.raises(InvalidInput, match="user_id"):
            await WhenceStore(admin).aget(("shared",), "k")
        for_ann = WhenceStore(admin, user="ann")
        assert keys(await for_ann.asearch((), query="secret plan")) == ["k"]
        await for_ann.aput(("shared",), "k", {"text": "put right"})
        mine = await here.aget(("shared",), "k")
        assert mine is not None
        assert mine.value == {"text": "put right"}
        # What a profile anchors on the workspace is everybody's.
        await WhenceStore(client, agent="sdr").aput(("team",), "rule", {"text": "Call before noon"})
        assert keys(await WhenceStore(here._client, agent="sdr").asearch(("team",), query="when to call")) == ["rule"]


async def test_an_item_is_explained_has_a_history_and_goes_with_its_subject(
    here: WhenceStore, app: App, workspace: Workspace
) -> None:
    client = here._client
    assert isinstance(client, AsyncWhence)
    people = WhenceStore(client, subject=lambda namespace: namespace[1] if namespace[0] == "people" else None)
    await people.aput(("people", "cleo"), "likes", {"text": "Cleo likes tea"})
    await people.aput(("people", "cleo"), "likes", {"text": "Cleo likes coffee"})
    await people.aput(("people", "dan"), "likes", {"text": "Dan likes juice"})
    await people.aput(("people", "cleo"), "gone", {"text": "Cleo was here"})
    await people.adelete(("people", "cleo"), "gone")
    explained = await people.aexplain(("people", "cleo"), "likes")
    assert explained.memory.text == "text: Cleo likes coffee"
    assert explained.memory.key == "people/cleo/likes"
    assert explained.memory.said_by == "ann"
    history = (await client.history(explained.memory.memory_id)).memories
    assert [memory.text for memory in history] == ["text: Cleo likes tea", "text: Cleo likes coffee"]
    assert explained.superseded == [history[0].memory_id]
    before = await client.recall("What does Cleo like?", as_of=history[0].valid_at)
    assert before.hits[0].text == "text: Cleo likes tea"
    assert (await client.recall("What does Cleo like?")).hits[0].text == "text: Cleo likes coffee"
    payload = await client.payload(explained.memory.memory_id)
    assert payload["memory"]["item"]["value"] == {"text": "Cleo likes coffee"}
    with pytest.raises(NotFound):
        await people.aexplain(("people", "cleo"), "gone")
    receipt = await app.erasures.erase(workspace.admin, "cleo")
    assert receipt.removed["items"].count == 1
    assert await people.aget(("people", "cleo"), "likes") is None
    assert {item.namespace for item in await people.asearch(())} == {("people", "dan")}
    assert all(check.ok for check in await app.erasures.verify(receipt))
    assert not [hit for hit in (await client.recall("Cleo")).hits if "Cleo" in hit.text]


# --- in a graph -------------------------------------------------------------------------------------------------------


def remembering(state: MessagesState) -> dict[str, Any]:
    """A node that is not async: LangGraph runs it beside the event loop."""
    store = get_store()
    said = str(state["messages"][-1].content)
    known = [item.value["text"] for item in store.search(("notes",), query=said, limit=1)]
    store.put(("notes",), said[:20], {"text": said})
    return {"messages": [AIMessage(f"I know: {known}")]}


async def test_a_graph_keeps_what_it_is_told_across_threads(here: WhenceStore, store: WhenceStore) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("remember", remembering)
    builder.add_edge(START, "remember")
    config = {"configurable": {"thread_id": "thread-1"}}
    other = {"configurable": {"thread_id": "thread-2"}}
    graph = builder.compile(store=here)
    await graph.ainvoke({"messages": [("user", "My boat is called Wanderer")]}, config)
    told = await graph.ainvoke({"messages": [("user", "What is my boat called?")]}, other)
    assert "Wanderer" in told["messages"][-1].content
    served = builder.compile(store=store)
    told = await asyncio.to_thread(served.invoke, {"messages": [("user", "My boat?")]}, other)
    assert "boat" in told["messages"][-1].content
    client = here._client
    assert isinstance(client, AsyncWhence)
    told_in = {event.session_id for event in (await client.events(event_type="memory.remembered")).events}
    assert told_in == {"thread-1", "thread-2"}
    with pytest.raises(SetupError, match="aput"):
        here.put(("n",), "k", {})


class Calling(GenericFakeChatModel):
    def bind_tools(self, *_: Any, **__: Any) -> "Calling":
        return self


async def test_what_is_stored_amid_a_span_is_caused_by_it(here: WhenceStore, app: App, workspace: Workspace) -> None:
    with TracerProvider().get_tracer("test").start_as_current_span("step") as span:
        await here.aput(("n",), "k", {"text": "kept"})
        await here.asearch(("n",), query="kept")
    context = span.get_span_context()
    parent = uuid5(SPAN_NAMESPACE, f"{context.trace_id:032x}:{context.span_id:016x}")
    await app.ledger.behind.settled()
    events = (await app.ledger.page(workspace.user("ann").scope, 0, 10)).events
    assert [(event.event_type, event.parent_event_id, event.trace_id) for event in events] == [
        (kind, parent, f"{context.trace_id:032x}") for kind in ("memory.remembered", "memory.recalled")
    ]


async def test_an_agents_tool_reaches_the_store(here: WhenceStore) -> None:
    @tool
    async def note(text: str) -> str:
        """Notes something."""
        await get_store().aput(("notes",), "n1", {"text": text})
        return "noted"

    call = {"name": "note", "args": {"text": "The key is under the mat"}, "id": "1", "type": "tool_call"}
    model = Calling(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))
    agent = create_agent(model, tools=[note], store=here)
    told = await agent.ainvoke({"messages": [("user", "Note where the key is")]})
    assert told["messages"][-1].content == "Done."
    assert keys(await here.asearch(("notes",), query="Where is the key?")) == ["n1"]


def test_the_same_lines_work_without_a_server(postgres: embedded.EmbeddedServer, data_dir: Path) -> None:
    with WhenceStore.embedded(data_dir, user="eve") as mine:
        mine.put(("a",), "k", {"text": "a red door"})
        item = asyncio.run(mine.aget(("a",), "k"))
        assert item is not None
        assert item.value == {"text": "a red door"}
        assert keys(mine.search(("a",), query="which door?")) == ["k"]
        assert mine.explain(("a",), "k").memory.said_by == "eve"
