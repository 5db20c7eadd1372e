"""Items over HTTP and below it: what is written when, by whom, and what becomes of it later."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from msgspec import Raw

from conftest import Server, Workspace
from lifecycle.conftest import assert_replay_is_equal
from lifecycle_time import Time
from people import archive_of
from whence import Whence, items
from whence.app import App, open_app
from whence.clock import system_clock
from whence.db import embedded
from whence.errors import Conflict, Forbidden, InvalidInput, TooLarge
from whence.identity import Principal
from whence.settings import Settings
from whence.wire import (
    DeleteItem,
    GetItem,
    ItemOp,
    ItemOutcome,
    ItemsRequest,
    ListNamespaces,
    PutItem,
    Recall,
    SearchItems,
    Within,
)


def put(key: str, value: dict[str, Any], namespace: tuple[str, ...] = ("n",), **more: Any) -> PutItem:
    return PutItem(namespace=namespace, key=key, value=Raw(json.dumps(value).encode()), **more)


async def do(app: App, who: Principal, *ops: ItemOp, **more: Any) -> list[ItemOutcome]:
    return await app.items.do(who, ItemsRequest(ops=ops, **more))


async def got(app: App, who: Principal, key: str, **more: Any) -> Any:
    (outcome,) = await do(app, who, GetItem(namespace=("n",), key=key), **more)
    return outcome.item and json.loads(bytes(outcome.item.value))


@pytest.fixture
def moment() -> Time:
    return Time(system_clock())


@pytest.fixture
async def later(postgres: embedded.EmbeddedServer, data_dir: Path, moment: Time) -> AsyncIterator[App]:
    async with open_app(Settings(data_dir=data_dir), clock=moment) as app:
        yield app


def test_bad_requests_name_their_field_and_change_nothing(server: Server, admin: httpx.Client) -> None:
    key = admin.post("/users", json={"user_id": "ann"}).json()["user_key"]
    whole = {"op": "put", "namespace": ["n"], "key": "k", "value": {"a": 1}}
    with server.client(key) as ann:
        for change, field, status in (
            ({"op": "keep"}, "ops[0].op", 422),
            ({"value": [1]}, "ops[0].value", 422),
            ({"value": None}, "ops[0].value", 422),
            ({"namespace": ["a.b"]}, "ops[0].namespace", 422),
            ({"namespace": []}, "ops[0].namespace", 422),
            ({"namespace": ["x"] * 33}, "ops[0].namespace", 422),
            ({"namespace": ["x" * 256] * 5}, "ops[0].namespace", 422),
            ({"key": ""}, "ops[0].key", 422),
            ({"ttl_s": 0}, "ops[0].ttl_s", 422),
            ({"ttl_s": 1e12}, "ops[0].ttl_s", 422),
            ({"subject_id": "s" * 257}, "ops[0].subject_id", 422),
            ({"text": "a\x00b"}, "ops[0].text", 422),
            ({"key": "AKIAIOSFODNN7EXAMPLE"}, "ops[0].key", 422),
            ({"value": {"db": "postgres://ann:hunter2@db.example/x"}}, "ops[0].value", 422),
            ({"value": {"a": "x" * 262_144}}, "ops[0].value", 413),
            ({"value": json.loads('{"a":' * 201 + "1" + "}" * 201)}, "ops[0].value", 422),
            ({"valued": 1}, "ops[0].valued", 422),
        ):
            answer = ann.post("/v1/items", json={"ops": [whole | change]})
            assert answer.status_code == status, (change, answer.text)
            assert answer.json()["errors"][0]["field"] == field, (change, answer.text)
            assert "hunter2" not in answer.text
        for body, field in (
            ({"ops": []}, "ops"),
            ({"ops": [whole] * 1_001}, "ops"),
            ({"ops": [{"op": "search"}] * 50 + [{"op": "list"}] * 51}, "ops"),
            ({"ops": [{"op": "search", "query": "kite"}] * 21}, "ops"),
            ({"ops": [whole], "agent": "operations"}, "agent"),
            ({"ops": [whole], "agent": "documents"}, "kind"),
            ({"ops": [whole], "user_id": "bob"}, "user_id"),
            ({"ops": [whole], "within": {"trace_id": ""}}, "within.trace_id"),
        ):
            answer = ann.post("/v1/items", json=body)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field), answer.text
        assert ann.post("/v1/items", json={"ops": [{"op": "search"}]}).json() == {"results": [{}]}
        with Whence(server.url, key=key) as client:
            done = client.items([put("k", json.loads('{"a":' * 200 + "[]" + "}" * 200)["a"])])
            assert done.results[0].memory_id is not None
            done = client.items([DeleteItem(namespace=("n",), key="k")])
            done = client.items([put("k", {"a": 1}), GetItem(namespace=("n",), key="k")])
            assert done.results[0].memory_id is not None
            assert done.results[1].item is None


async def test_what_is_sent_again_is_put_once_and_other_content_under_its_id_is_a_conflict(
    app: App, workspace: Workspace
) -> None:
    ann, given = workspace.user("ann"), uuid4()
    first = put("k", {"v": 1}, memory_id=given, text="one")
    (stored,) = await do(app, ann, first)
    await do(app, ann, put("k", {"v": 2}))
    (again,) = await do(app, ann, first)
    assert (again.memory_id, stored.memory_id) == (given, given)
    assert await got(app, ann, "k") == {"v": 2}
    for who in (ann, workspace.user("bob")):
        with pytest.raises(Conflict, match="other content"):
            await do(app, who, put("beside", {}), put("k", {"v": 3}, memory_id=given, text="one"))
        assert await got(app, who, "beside") is None
    with pytest.raises(InvalidInput, match="once"):
        await do(app, ann, put("a", {}, memory_id=given), put("b", {}, memory_id=given))
    assert await got(app, ann, "k") == {"v": 2}


async def test_of_many_who_put_at_once_one_holds_and_all_are_history(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    done = await asyncio.gather(*(do(app, ann, put("k", {"v": number}, text=f"take {number}")) for number in range(12)))
    last = max(done, key=lambda outcome: outcome[0].position or 0)[0]
    assert last.memory_id is not None
    history = (await app.memory.history(ann.scope, last.memory_id)).memories
    assert len(history) == 12
    assert [memory.memory_id for memory in history if memory.invalid_at is None] == [last.memory_id]
    (item,) = await do(app, ann, GetItem(namespace=("n",), key="k"))
    assert item.item is not None
    assert item.item.memory_id == last.memory_id
    await assert_replay_is_equal(app, workspace)


async def test_an_answer_that_is_too_large_is_refused_and_nothing_is_written(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    get, other = (GetItem(namespace=("n",), key=key) for key in "ab")
    await do(app, ann, *(put(key, {"v": "x" * 92}, text=f"a kite {key}") for key in "ab"))
    monkeypatch.setattr(items, "MAX_ANSWER_BYTES", 250)
    searched = SearchItems(namespace=("n",)), SearchItems(namespace=("n",), query="kite")
    for ops in ([get, other], [get, get], *([search] for search in searched), [ListNamespaces()] * 100):
        await do(app, ann, *ops)
    too_much = (
        [get, other, get],
        [get] * 3,
        *([get, search] for search in searched),
        [get, other, *[ListNamespaces()] * 26],
    )
    for ops in too_much:
        with pytest.raises(TooLarge, match="ask for fewer"):
            await do(app, ann, put("c", {}), *ops)
    # What is put anew, or deleted, is not in the answer.
    (*_, found) = await do(app, ann, *(put(key, {}) for key in "ab"), *(put(f"more{n}", {}) for n in range(9)), get)
    assert found.item is not None
    assert await got(app, ann, "c") is None


async def test_an_item_ends_however_its_memory_ends(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    (kept,) = await do(app, ann, put("k", {"v": 1}, text="a blue kite"))
    assert kept.memory_id is not None
    await app.memory.forget(ann, kept.memory_id)
    assert await got(app, ann, "k") is None
    await assert_replay_is_equal(app, workspace)


async def test_what_is_not_to_be_found_by_a_question_is_found_by_none(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await do(app, ann, put("k", {"text": "a blue kite"}), put("m", {"text": "a red kite"}, text="a red kite"))
    recalled = await app.recaller.recall(ann, Recall(query="kite"))
    assert [hit.text for hit in recalled.hits] == ["a red kite"]
    found = await do(app, ann, SearchItems(query="kite"), SearchItems())
    assert [[item.key for item in outcome.items] for outcome in found] == [["m"], ["m", "k"]]
    await app.ledger.behind.settled()
    explained = await app.memory.explain(ann.scope, recalled.hits[0].memory_id)
    assert len(explained.recalls) == 2
    await assert_replay_is_equal(app, workspace)


async def test_ended_items_go_after_their_time_and_a_replay_gives_the_same(
    later: App, workspace: Workspace, moment: Time
) -> None:
    ann = workspace.user("ann")
    await do(later, ann, put("k", {"v": 1}, text="the first"), put("t", {"v": 1}, text="passing", ttl_s=60))
    moment.pass_by(seconds=30)
    # Read, so it lives on, which only its memory says once it is stripped.
    assert await got(later, ann, "t") == {"v": 1}
    moment.pass_by(days=1)
    await do(later, ann, put("k", {"v": 2}, text="the second"))
    (before,) = await do(later, ann, GetItem(namespace=("n",), key="k"))
    await assert_replay_is_equal(later, workspace)
    moment.pass_by(days=31)
    assert (await later.retention.apply(workspace.workspace_id)).expired == 2
    await assert_replay_is_equal(later, workspace)
    moment.pass_by(days=31)
    assert (await later.retention.apply(workspace.workspace_id)).disposed == 2
    moment.pass_by(days=4_000)
    await later.retention.apply(workspace.workspace_id)
    await assert_replay_is_equal(later, workspace)
    (after,) = await do(later, ann, GetItem(namespace=("n",), key="k"))
    assert after == before
    assert after.item is not None
    assert after.item.created_at < after.item.updated_at


async def test_what_was_deleted_stays_so_in_a_replay_when_only_what_was_put_before_it_is_readable(
    later: App, workspace: Workspace, moment: Time
) -> None:
    """The value before it, which an agent of a long profile has not lost yet, must not come back."""
    ann = workspace.user("ann")
    for number in (1, 2):
        passing = put("t", {"v": number}, ttl_s=60 if number == 1 else None)
        await do(later, ann, put("k", {"v": number}, text=f"take {number}"), passing, agent="x")
        # What has ended by its own time is in nobody's way, and not ended by what comes after it.
        moment.pass_by(seconds=61)
    await do(later, ann, *(DeleteItem(namespace=("n",), key=key) for key in "kt"), agent="x")
    moment.pass_by(days=31)
    await later.retention.apply(workspace.workspace_id)
    await assert_replay_is_equal(later, workspace)
    assert await got(later, ann, "k", agent="x") is None


async def test_a_read_is_an_event_only_where_an_item_has_used_some_of_its_time(
    later: App, workspace: Workspace, moment: Time
) -> None:
    ann = workspace.user("ann")
    await do(later, ann, put("k", {}, ttl_s=100), put("ever", {}))

    async def head_after_reading() -> int:
        await do(later, ann, GetItem(namespace=("n",), key="k"), GetItem(namespace=("n",), key="ever"), SearchItems())
        return await later.ledger.heads.read(workspace.workspace_id)

    assert await head_after_reading() == 2
    moment.pass_by(seconds=5)
    assert await head_after_reading() == 3
    assert await head_after_reading() == 3
    moment.pass_by(seconds=99)
    assert await got(later, ann, "k") == {}
    await assert_replay_is_equal(later, workspace)


async def test_what_is_put_amid_a_run_belongs_to_its_trace(app: App, workspace: Workspace) -> None:
    ann, parent = workspace.user("ann"), uuid4()
    within = Within(session_id="thread-7", trace_id="ab" * 16, parent_event_id=parent)
    (kept,) = await do(app, ann, put("k", {}, text="kept"), within=within)
    assert kept.memory_id is not None
    event = await app.ledger.get(ann.scope, kept.memory_id)
    assert (event.session_id, event.trace_id, event.parent_event_id) == ("thread-7", "ab" * 16, parent)
    # It is no stretch of work that could close, and take the item with it.
    assert (await app.memory.get(ann.scope, kept.memory_id)).session_id is None
    assert (await app.memory.explain(ann.scope, kept.memory_id)).sources[0].source == "session:thread-7"


async def test_what_is_the_workspaces_is_deleted_by_who_put_it_and_by_administrators(
    app: App, workspace: Workspace
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    delete, shared = DeleteItem(namespace=("n",), key="k"), {"agent": "sdr"}
    await do(app, ann, put("k", {"v": 1}), **shared)
    with pytest.raises(Forbidden, match="who put it"):
        await do(app, bob, put("beside", {}), delete, **shared)
    assert await got(app, bob, "k", **shared) == {"v": 1}
    assert await got(app, bob, "beside", **shared) is None
    for who in (ann, workspace.admin):
        await do(app, who, delete, **shared)
        assert await got(app, bob, "k", **shared) is None
        await do(app, ann, put("k", {"v": 2}), **shared)
    # Whoever puts anew is who has put it.
    await do(app, bob, put("k", {"v": 3}), **shared)
    await do(app, bob, delete, **shared)
    assert await got(app, ann, "k", **shared) is None


async def test_a_deletion_is_sealed_as_what_it_deletes(app: App, workspace: Workspace) -> None:
    """Else the erasure of who deleted it would bring it back."""
    service = workspace.user("service")
    await do(app, service, put("k", {"v": 1}, text="about cleo", subject_id="cleo"), put("own", {"v": 1}))
    await do(app, service, DeleteItem(namespace=("n",), key="k"))
    archive = await archive_of(app, workspace, "service")
    assert [json.loads(line)["key"] for line in archive.read("items.jsonl").splitlines()] == ["own"]
    await app.erasures.erase(workspace.admin, "service")
    assert await got(app, workspace.admin, "k", user_id="service") is None
    assert await got(app, workspace.admin, "own", user_id="service") is None
