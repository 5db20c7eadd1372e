"""Memory over HTTP, as another program sees it."""

import json
import uuid
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest

from conftest import Server, Workspace
from samples import sample
from whence.app import App
from whence.graph.intents import Intent

RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."


def note(text: str = "likes tea", **more: Any) -> dict[str, Any]:
    return {"agent": "gateway", "tier": "persistent", "kind": "semantic", "text": text, **more}


@pytest.fixture
async def ann(app: App, server: Server, workspace: Workspace) -> Iterator[httpx.Client]:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with server.client(key) as client:
        yield client


@pytest.fixture
async def bob(app: App, server: Server, workspace: Workspace) -> Iterator[httpx.Client]:
    key = await app.identity.add_user(workspace.workspace_id, "bob")
    with server.client(key) as client:
        yield client


def test_a_memory_is_told_read_explained_and_forgotten(ann: httpx.Client) -> None:
    told = ann.post("/v1/memories", json=note(fact={"subject": "Ann", "predicate": "likes", "object": "tea"}))
    assert told.status_code == 200, told.text
    done = told.json()
    assert {"memory_id", "event_id", "position", "status"} <= done.keys()
    path = f"/v1/memories/{done['memory_id']}"
    assert ann.get(path).json()["fact"]["object"] == "tea"
    assert [item["memory_id"] for item in ann.get("/v1/memories", params={"subject": "ann"}).json()["memories"]] == [
        done["memory_id"]
    ]
    recalled = ann.post("/v1/recall", json={"subject": "Ann", "top_k": 3}).json()
    explained = ann.get(f"{path}/explain").json()
    assert [found["recall_id"] for found in explained["recalls"]] == [recalled["recall_id"]]
    assert ann.delete(path).status_code == 204
    assert ann.get("/v1/memories").json() == {"memories": [], "next": None}
    history = ann.get(f"{path}/history", params={"limit": 1}).json()
    assert history["memories"][0]["deleted_at"]
    assert history["next"] is None
    lineage = ann.get(
        f"/v1/events/{done['event_id']}/lineage", params={"direction": "down", "wait_for": done["position"]}
    )
    assert done["event_id"] in lineage.json()["nodes"]


def test_an_id_that_is_taken_is_named(ann: httpx.Client) -> None:
    memory_id = str(uuid.uuid4())
    assert ann.post("/v1/memories", json=note(memory_id=memory_id)).status_code == 200
    problem = ann.post("/v1/memories", json=note("something else", memory_id=memory_id)).json()
    assert (problem["status"], [error["field"] for error in problem["errors"]]) == (409, ["memory_id"])
    assert problem["detail"] == "memory_id: an event with this id was stored earlier with other content"


def test_pages_of_memories_fit_together(ann: httpx.Client) -> None:
    ann.post("/v1/memories", json={"memories": [note(f"note {number}") for number in range(25)]})
    texts, before = [], None
    while True:
        page = ann.get("/v1/memories", params={"limit": 10} | ({"before": before} if before else {})).json()
        texts += [memory["text"] for memory in page["memories"]]
        before = page["next"]
        if before is None:
            break
    assert texts == [f"note {number}" for number in reversed(range(25))]


def test_each_item_of_a_batch_stands_for_itself(ann: httpx.Client) -> None:
    items = [note("one"), note("two", tier="nowhere"), {"agent": "gateway"}, note("", kind="episodic"), note("five")]
    answer = ann.post("/v1/memories", json={"memories": items})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["stored"], body["rejected"]) == (2, 3)
    fields = [result["errors"][0]["field"] for result in body["results"] if "errors" in result]
    assert fields == ["tier", "tier", "text"]


def test_an_item_that_is_not_unicode_costs_only_itself(ann: httpx.Client) -> None:
    items = b",".join(json.dumps(note(text)).encode() for text in ("one", "two"))
    answer = ann.post("/v1/memories", content=b'{"memories":[%s]}' % items.replace(b"two", b"\xff"))
    assert answer.status_code == 200, answer.text
    assert [item.get("errors") for item in answer.json()["results"]] == [
        None,
        [{"field": "body", "message": "is not valid Unicode"}],
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (note(agent="operations", kind="episodic"), "kind"),
        (note(unknown=1), "unknown"),
        (note(valid_at="2026-01-01T00:00:00"), "valid_at"),
        (note(memory_id="x"), "memory_id"),
        ({"memories": []}, "memories"),
        ({"memories": [note()] * 501}, "memories"),
    ],
)
def test_bad_input_names_its_field(ann: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = ann.post("/v1/memories", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


TIERS = "must be one of interaction, session, persistent"
KINDS = "must be one of episodic, semantic, procedural"


@pytest.mark.parametrize(
    ("path", "body", "field", "said"),
    [
        ("/v1/memories", note(tier="forever"), "tier", TIERS),
        ("/v1/memories", note(kind=""), "kind", KINDS),
        ("/v1/recall", {"tiers": ["session", "x"]}, "tiers[1]", TIERS),
        ("/v1/events", sample(status="done"), "status", "must be one of pending, running, completed, failed, timeout"),
        ("/v1/context", {"query": "why", "intent": "x"}, "intent", f"must be one of {', '.join(get_args(Intent))}"),
    ],
)
def test_a_field_with_a_few_values_lists_them(
    ann: httpx.Client, path: str, body: dict[str, Any], field: str, said: str
) -> None:
    answer = ann.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"] == [{"field": field, "message": said}]
    assert answer.json()["detail"] == f"{field}: {said}"


def test_items_of_a_batch_and_parameters_list_them_too(ann: httpx.Client) -> None:
    answer = ann.post("/v1/memories", json={"memories": [note(), note(tier="forever")]})
    assert answer.json()["results"][1]["errors"] == [{"field": "tier", "message": TIERS}]
    answer = ann.get("/v1/memories", params={"kind": "x", "tier": "y", "limit": 0})
    assert answer.status_code == 422, answer.text
    told = {error["field"]: error["message"] for error in answer.json()["errors"]}
    assert (told["kind"], told["tier"]) == (KINDS, TIERS)
    assert f"kind: {KINDS}" in answer.json()["detail"]
    answer = ann.get(f"/v1/events/{uuid.uuid4()}/lineage", params={"direction": "left"})
    assert answer.json()["errors"] == [{"field": "direction", "message": "must be one of up, down"}]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/v1/memories"), ("POST", "/v1/context"), ("PUT", "/v1/working/a/i/k")]
)
def test_a_body_that_must_say_something_is_not_left_out(ann: httpx.Client, method: str, path: str) -> None:
    answer = ann.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")


@pytest.mark.parametrize("said", ["5", "1.5", "-5", "1e9", " 5"])
def test_a_number_is_no_time_in_a_query_as_in_a_body(ann: httpx.Client, said: str) -> None:
    for name in ("as_of", "known_at"):
        answer = ann.get("/v1/memories", params={name: said})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, name)
        assert ann.post("/v1/recall", content=f'{{"{name}": {said}}}').status_code == 422


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00 and more", "\\ud800\\u0041"])
def test_half_a_character_is_told_as_such(ann: httpx.Client, text: str) -> None:
    body = json.dumps(note("HALF")).replace("HALF", text)
    for content in (body, f'{{"memories": [{body}]}}'):
        answer = ann.post("/v1/memories", content=content)
        assert answer.status_code == 400
        assert "one half of a surrogate pair" in answer.json()["detail"]
    cut = ann.post("/v1/memories", content='{"text": "a')
    assert cut.json()["detail"] == "the body is not valid JSON: Input data was truncated"


def test_what_is_somebody_elses_is_not_there(ann: httpx.Client, bob: httpx.Client) -> None:
    done = ann.post("/v1/memories", json=note()).json()
    run = ann.post("/v1/runs", json={"agent": "gateway", "instance": "i"}).json()
    for memory_id in (done["memory_id"], uuid.uuid4()):
        for method, path in (
            ("GET", ""),
            ("GET", "/history"),
            ("GET", "/explain"),
            ("DELETE", ""),
        ):
            answer = bob.request(method, f"/v1/memories/{memory_id}{path}")
            assert (answer.status_code, answer.json()["detail"]) == (404, "there is no such memory")
    for run_id in (run["run_id"], uuid.uuid4()):
        for path, body in (("episodes", {"text": "x"}), ("complete", {}), ("fail", {})):
            answer = bob.post(f"/v1/runs/{run_id}/{path}", json=body)
            assert (answer.status_code, answer.json()["detail"]) == (404, "there is no such run")
    assert bob.get("/v1/memories").json()["memories"] == []
    assert bob.get("/v1/agents/gateway/runs").json() == {"runs": []}
    assert bob.post("/v1/recall", json={}).json()["hits"] == []


def test_a_run_over_http(ann: httpx.Client) -> None:
    run = ann.post("/v1/runs", json={"agent": "gateway", "instance": "a/b c", "input": {"q": 1}})
    assert run.status_code == 201
    run_id = run.json()["run_id"]
    assert ann.post(f"/v1/runs/{run_id}/episodes", json={"text": "looked it up"}).json()["status"] == "stored"
    assert ann.post(f"/v1/runs/{run_id}/complete", json={"output": 42}).json()["status"] == "completed"
    assert ann.post(f"/v1/runs/{run_id}/fail").status_code == 409
    assert ann.get("/v1/agents/gateway/runs", params={"instance": "a/b c"}).json()["runs"][0]["turn"] == 1
    [episode] = ann.get("/v1/agents/gateway/episodes").json()["memories"]
    assert (episode["text"], episode["run_id"]) == ("looked it up", run_id)


def test_the_canon_is_kept_by_administrators_and_guards_everybody(admin: httpx.Client, ann: httpx.Client) -> None:
    assert ann.put("/v1/canon/w1/R-1", json={"body": RULE}).status_code == 403
    assert admin.put("/v1/canon/w1/R-1", json={"body": RULE}).status_code == 204
    assert [rule["rule_id"] for rule in ann.get("/v1/canon/w1").json()["rules"]] == ["R-1"]
    answer = ann.post("/v1/memories", json=note(RULE, world_id_context="w1"))
    assert answer.status_code == 422
    assert answer.json()["code"] == "repeats_canon"
    assert answer.json()["errors"][0]["field"] == "text"
    assert "rule R-1" in answer.json()["errors"][0]["message"]
    batch = {"memories": [note("short", world_id_context="w1"), note(RULE, world_id_context="w1")]}
    [good, bad] = ann.post("/v1/memories", json=batch).json()["results"]
    assert good["remembered"]["status"] == "stored"
    assert [(error["field"], error["code"]) for error in bad["errors"]] == [("text", "repeats_canon")]
    assert admin.delete("/v1/canon/w1/R-1").status_code == 204
    assert admin.delete("/v1/canon/w1/R-1").status_code == 404
    assert ann.post("/v1/memories", json=note(RULE, world_id_context="w1")).status_code == 200


def test_the_document_tells_of_every_body(admin: httpx.Client) -> None:
    schema = admin.get("/openapi.json").json()
    for path, operations in schema["paths"].items():
        for method in ("post", "put"):
            if method in operations:
                assert "requestBody" in operations[method], f"{method} {path}"
    assert "Remember" in schema["components"]["schemas"]
