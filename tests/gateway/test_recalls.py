"""Recall and assembly over HTTP, as another program sees them."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, get_args

import httpx
import pytest

from conftest import Server, Workspace
from whence.app import App
from whence.wire import Channel


def note(text: str = "likes tea", **more: Any) -> dict[str, Any]:
    return {"agent": "gateway", "tier": "persistent", "kind": "episodic", "text": text, **more}


@pytest.fixture
async def ann(app: App, server: Server, workspace: Workspace) -> AsyncIterator[httpx.Client]:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with server.client(key) as client:
        yield client


@pytest.fixture
async def bob(app: App, server: Server, workspace: Workspace) -> AsyncIterator[httpx.Client]:
    key = await app.identity.add_user(workspace.workspace_id, "bob")
    with server.client(key) as client:
        yield client


def told(client: httpx.Client, *texts: str, **more: Any) -> list[str]:
    answer = client.post("/v1/memories", json={"memories": [note(text, **more) for text in texts]}).json()
    return [result["remembered"]["memory_id"] for result in answer["results"]]


def ask(client: httpx.Client, query: str, **more: Any) -> dict[str, Any]:
    return client.post("/v1/recall", json={"query": query, **more}).raise_for_status().json()


def test_a_question_is_answered_explained_and_judged(ann: httpx.Client) -> None:
    cat, *_ = told(ann, "The grey cat sleeps on the sofa", "The train leaves at nine", speaker="Ann", role="assistant")
    answer = ask(ann, "Where does the cat sleep?", top_k=1)
    [hit] = answer["hits"]
    assert (hit["memory_id"], hit["trust"], hit["speaker"]) == (cat, "assistant", "Ann")
    assert hit["provenance"][0]["event_id"] == cat
    assert set(hit["parts"]) <= set(get_args(Channel))
    assert answer["meta"]["tokens"] > 0
    path = f"/v1/recalls/{answer['recall_id']}"
    record = ann.get(path).json()
    assert record["asked"]["query"] == "Where does the cat sleep?"
    assert record["hits"] == [{name: hit[name] for name in ("memory_id", "score", "parts")}]
    kept = ann.post(f"{path}/feedback", json={"helpful": [cat]})
    assert (kept.status_code, kept.json()["changed"]) == (200, 1)
    memory = ann.get(f"/v1/memories/{cat}").json()
    assert memory["importance"] == pytest.approx(0.55)
    assert memory["access_count"] == 1
    explained = ann.get(f"/v1/memories/{cat}/explain").json()
    assert [found["recall_id"] for found in explained["recalls"]] == [answer["recall_id"]]


def test_an_empty_body_recalls_the_newest(ann: httpx.Client) -> None:
    told(ann, "one", "two")
    for content in (b"", b"{}"):
        answer = ann.post("/v1/recall", content=content)
        assert answer.status_code == 200, answer.text
        assert [hit["text"] for hit in answer.json()["hits"]] == ["two", "one"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"query": 1}, "query"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": "many"}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"neighbours": 6}, "neighbours"),
        ({"channels": []}, "channels"),
        ({"channels": ["words", "x"]}, "channels[1]"),
        ({"embedding": [0, 0]}, "embedding"),
        ({"as_of": "2026-01-01T00:00:00"}, "as_of"),
        ({"filters": {"role": "king"}}, "filters.role"),
        ({"filters": {"speaker": ""}}, "filters.speaker"),
        ({"filters": {"since": "yesterday"}}, "filters.since"),
        ({"filters": {"unknown": 1}}, "filters.unknown"),
        ({"intent": "x"}, "intent"),
        ({"agent": ""}, "agent"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_bad_input_names_its_field_and_changes_nothing(
    ann: httpx.Client, admin: httpx.Client, body: dict[str, Any], field: str
) -> None:
    told(ann, "The cat")
    before = len(admin.get("/v1/events").json()["events"])
    answer = ann.post("/v1/recall", json={"query": "cat"} | body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field
    assert len(admin.get("/v1/events").json()["events"]) == before


def test_what_is_somebody_elses_is_not_there(ann: httpx.Client, bob: httpx.Client) -> None:
    [cat] = told(ann, "The cat")
    recall_id = ask(ann, "cat")["recall_id"]
    assert ask(bob, "cat")["hits"] == []
    for named in (recall_id, uuid.uuid4()):
        for answer in (
            bob.get(f"/v1/recalls/{named}"),
            bob.post(f"/v1/recalls/{named}/feedback", json={"helpful": [cat]}),
        ):
            assert (answer.status_code, answer.json()["detail"]) == (404, "there is no such recall")
    other = ann.post(f"/v1/recalls/{recall_id}/feedback", json={"unhelpful": [str(uuid.uuid4())]})
    assert (other.status_code, other.json()["errors"][0]["field"]) == (422, "unhelpful")
    assert ann.post(f"/v1/recalls/{recall_id}/feedback", json={"helpful": ["x"]}).status_code == 422


def test_a_question_without_a_key_is_not_answered(server: Server) -> None:
    with server.client(None) as anyone:
        for path in ("/v1/recall", "/v1/assemble", f"/v1/recalls/{uuid.uuid4()}/feedback"):
            assert anyone.post(path, json={}).status_code == 401


def test_a_long_question_in_any_script_is_taken(ann: httpx.Client) -> None:
    told(ann, "我喜欢喝绿茶", "القطة نائمة", "Pizza 🍕")
    for query in ("绿茶", "القطة", "🍕", "cat " * 25_000):
        answer = ask(ann, query)
        assert ann.get(f"/v1/recalls/{answer['recall_id']}").json()["asked"]["query"] == query
    assert ask(ann, "🍕")["hits"][0]["text"] == "Pizza 🍕"
    half = json.dumps({"query": "HALF"}).replace("HALF", "\\ud800")
    assert ann.post("/v1/recall", content=half).status_code == 400


def test_what_an_agent_needs_comes_in_one_call(ann: httpx.Client) -> None:
    told(ann, "The grey cat sleeps on the sofa")
    ann.put("/v1/working/gateway/one/draft", json={"value": {"to": "Bob"}})
    ann.post(
        "/v1/workflows", json={"agent": "gateway", "task_type": "triage", "name": "short", "spec": {"steps": []}}
    ).raise_for_status()
    body = {"agent": "gateway", "instance": "one", "query": "Where is the cat?", "task_type": "triage"}
    answer = ann.post("/v1/assemble", json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["working"][0]["value"] == {"to": "Bob"}
    assert found["hits"][0]["text"] == "The grey cat sleeps on the sofa"
    assert found["hits"][0]["memory_id"] in found["text"]
    selection = found["workflow"]["selection_id"]
    scored = ann.post("/v1/workflows/outcomes", json={"selection_id": selection, "score": 1})
    assert scored.status_code == 200, scored.text
    assert ann.get(f"/v1/recalls/{found['meta']['recall_id']}").json()["asked"]["query"] == "Where is the cat?"
    for body, field in (({"agent": "gateway"}, "instance"), ({"agent": "", "instance": "one"}, "agent")):
        answer = ann.post("/v1/assemble", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)


def test_whether_a_model_is_to_order_hits_is_part_of_what_is_asked(ann: httpx.Client) -> None:
    told(ann, "The grey cat sleeps on the sofa")
    for rerank, why in ((None, None), (False, None), (True, "no_reranker")):
        answer = ask(ann, "cat", rerank=rerank)
        assert answer["meta"].get("not_reranked") == why
        assert "reranker" not in answer["meta"]
        assert "rerank" not in answer["hits"][0]
    assert ann.post("/v1/recall", json={"query": "cat", "rerank": "yes"}).status_code == 422
    body = {"agent": "gateway", "instance": "one", "query": "cat", "rerank": True}
    assert ann.post("/v1/assemble", json=body).json()["meta"]["not_reranked"] == "no_reranker"
    described = ann.get("/openapi.json").json()["components"]["schemas"]
    assert "rerank" in described["Recall"]["properties"]
    assert "rerank" in described["Assemble"]["properties"]
