"""Conversations over HTTP."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from conftest import Server, Workspace
from whence.app import App


@pytest.fixture
async def people(app: App, server: Server, workspace: Workspace) -> dict[str, httpx.Client]:
    keys = {who: await app.identity.add_user(workspace.workspace_id, who) for who in ("ann", "bob")}
    return {who: server.client(key) for who, key in keys.items()}


@pytest.fixture
def ann(people: dict[str, httpx.Client]) -> Iterator[httpx.Client]:
    with people["ann"] as client:
        yield client


@pytest.fixture
def bob(people: dict[str, httpx.Client]) -> Iterator[httpx.Client]:
    with people["bob"] as client:
        yield client


def test_a_broadcast_is_published_read_replied_to_and_neither_changed_nor_deleted(
    admin: httpx.Client, ann: httpx.Client, bob: httpx.Client
) -> None:
    body = {"title": "Hello", "messages": [{"role": "assistant", "content": "Welcome"}]}
    first = admin.put("/v1/broadcasts/welcome%2F2026", json=body)
    assert (first.status_code, first.json()["key"], first.json()["state"]) == (201, "welcome/2026", "broadcast")
    again = admin.put("/v1/broadcasts/welcome%2F2026", json={"messages": [{"content": "Other words"}]})
    assert (again.status_code, again.json()) == (200, first.json())
    assert ann.put("/v1/broadcasts/mine", json=body).status_code == 403
    where = f"/v1/conversations/{first.json()['conversation_id']}"
    assert ann.get(where).json() == first.json()
    posted = ann.post(f"{where}/messages", json={"content": "Thanks"})
    fork = posted.json()
    assert (posted.status_code, fork["state"], fork["forked_from"], fork["user_id"]) == (
        201, "fork", first.json()["conversation_id"], "ann",
    )  # fmt: skip
    assert (fork["message"]["place"], fork["message"]["content"], fork["message_count"]) == (2, "Thanks", 2)
    assert ann.post(f"{where}/messages", json={"content": "More"}).json()["conversation_id"] == fork["conversation_id"]
    assert bob.get(f"/v1/conversations/{fork['conversation_id']}").status_code == 404
    for client in (ann, admin):
        assert client.delete(where).status_code == 403
    listed = ann.get("/v1/conversations").json()["conversations"]
    assert [each["state"] for each in listed] == ["fork", "broadcast"]
    assert [each["state"] for each in bob.get("/v1/conversations").json()["conversations"]] == ["broadcast"]


def test_foreign_missing_and_deleted_ones_answer_the_same(
    admin: httpx.Client, ann: httpx.Client, bob: httpx.Client
) -> None:
    made = ann.post("/v1/conversations").json()["conversation_id"]
    gone = bob.post("/v1/conversations", json={"title": "Gone"}).json()["conversation_id"]
    assert bob.delete(f"/v1/conversations/{gone}").status_code == 204
    answers: set[str] = set()
    for client, unseen in ((bob, made), (admin, made), (bob, gone), (bob, uuid4())):
        for answer in (
            client.get(f"/v1/conversations/{unseen}"),
            client.delete(f"/v1/conversations/{unseen}"),
            client.post(f"/v1/conversations/{unseen}/messages", json={"content": "x"}),
        ):
            answers.add(f"{answer.status_code} {answer.text}")
    assert len(answers) == 1
    assert answers.pop().startswith("404 ")


def test_a_message_sent_again_is_stored_once_and_what_is_wrong_names_its_field(ann: httpx.Client) -> None:
    started: dict[str, Any] = {"conversation_id": str(uuid4()), "messages": [{"content": "a"}]}
    made = ann.post("/v1/conversations", json=started)
    assert (made.status_code, ann.post("/v1/conversations", json=started).json()) == (201, made.json())
    assert ann.post("/v1/conversations", json={**started, "title": "T"}).status_code == 409
    where = f"/v1/conversations/{started['conversation_id']}"
    message = {"content": "b", "role": "assistant", "message_id": str(uuid4())}
    first = ann.post(f"{where}/messages", json=message)
    assert ann.post(f"{where}/messages", json=message).json() == first.json()
    assert ann.post(f"{where}/messages", json={**message, "content": "c"}).status_code == 409
    assert [each["content"] for each in ann.get(where, params={"limit": 1}).json()["messages"]] == ["a"]
    assert [each["content"] for each in ann.get(where, params={"after": 1}).json()["messages"]] == ["b"]
    for path, body, field in (
        (f"{where}/messages", {"content": ""}, "content"),
        (f"{where}/messages", {}, "content"),
        (f"{where}/messages", {"content": "x", "role": "robot"}, "role"),
        (f"{where}/messages", {"content": "x", "text": "y"}, "text"),
        ("/v1/conversations", {"title": "x" * 201}, "title"),
        ("/v1/conversations", {"messages": [{"content": "x"}, {"content": ""}]}, "messages[1].content"),
    ):
        answer = ann.post(path, json=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    for query in ({"state": "shared"}, {"limit": 0}, {"before": 0}, {"stat": "fork"}):
        assert ann.get("/v1/conversations", params=query).status_code == 422
    assert ann.get(where).json()["message_count"] == 2
