"""Workflows over HTTP, as another program sees them."""

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from conftest import Server, Workspace
from whence.app import App
from whence.gateway.http import ROUTES
from whence.gateway.openapi import document

PLACE = {"agent": "gateway", "task_type": "triage"}


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


def variant(name: str = "short", **more: Any) -> dict[str, Any]:
    return {**PLACE, "name": name, "spec": {"steps": ["ask", "answer"]}, **more}


def test_a_variant_is_added_selected_scored_read_and_retired(ann: httpx.Client) -> None:
    added = ann.post("/v1/workflows", json=variant())
    assert added.status_code == 201, added.text
    workflow = added.json()
    assert ann.post("/v1/workflows", json=variant()).json() == workflow
    chosen = ann.post("/v1/workflows/select", json=PLACE)
    assert chosen.status_code == 200, chosen.text
    assert chosen.json().keys() == {"selection_id", "workflow"}
    assert chosen.json()["workflow"] == workflow
    outcome = {"selection_id": chosen.json()["selection_id"], "score": 1}
    done = ann.post("/v1/workflows/outcomes", json=outcome)
    assert done.status_code == 200, done.text
    assert done.json().keys() == {"selection_id", "workflow_id", "score", "scored_at", "event_id"}
    assert ann.post("/v1/workflows/outcomes", json=outcome).json() == done.json()
    problem = ann.post("/v1/workflows/outcomes", json=outcome | {"score": 0.5})
    assert (problem.status_code, problem.json()["code"]) == (409, "conflict")
    [found] = ann.get("/v1/workflows", params=PLACE).json()["workflows"]
    assert found["spec"] == {"steps": ["ask", "answer"]}
    known = {name: found[name] for name in ("alpha", "beta", "mean", "selections", "outcomes", "retired_at")}
    assert known == {"alpha": 2, "beta": 1, "mean": 2 / 3, "selections": 1, "outcomes": 1, "retired_at": None}
    path = f"/v1/workflows/{workflow['workflow_id']}"
    assert [ann.delete(path).status_code for _ in range(2)] == [204, 204]
    assert ann.get("/v1/workflows").json()["workflows"][0]["retired_at"]
    assert ann.post("/v1/workflows/select", json=PLACE).status_code == 404


def test_an_outcome_leads_up_to_the_workflow(ann: httpx.Client) -> None:
    workflow = ann.post("/v1/workflows", json=variant()).json()
    selection = ann.post("/v1/workflows/select", json=PLACE).json()["selection_id"]
    done = ann.post("/v1/workflows/outcomes", json={"selection_id": selection, "score": 0}).json()
    nodes = ann.get(f"/v1/events/{done['event_id']}/lineage", params={"direction": "up"}).json()["nodes"]
    assert {done["event_id"], selection, workflow["workflow_id"]} <= nodes.keys()


def test_what_is_somebody_elses_is_not_there(ann: httpx.Client, bob: httpx.Client) -> None:
    workflow = ann.post("/v1/workflows", json=variant()).json()
    selection = ann.post("/v1/workflows/select", json=PLACE).json()
    for workflow_id in (workflow["workflow_id"], uuid.uuid4()):
        answer = bob.delete(f"/v1/workflows/{workflow_id}")
        assert (answer.status_code, answer.json()["detail"]) == (404, "there is no such workflow")
    for selection_id in (selection["selection_id"], uuid.uuid4()):
        answer = bob.post("/v1/workflows/outcomes", json={"selection_id": str(selection_id), "score": 1})
        assert (answer.status_code, answer.json()["detail"]) == (404, "there is no such selection")
    answer = bob.post("/v1/workflows/select", json=PLACE)
    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no workflow of the agent gateway for the task type triage"
    assert bob.get("/v1/workflows").json() == {"workflows": [], "next": None}


def test_the_workspaces_own_is_for_everybody_and_retired_by_administrators(
    admin: httpx.Client, ann: httpx.Client
) -> None:
    workflow = admin.post("/v1/workflows", json=variant()).json()
    assert workflow["user_id"] is None
    assert ann.post("/v1/workflows/select", json=PLACE).json()["workflow"] == workflow
    path = f"/v1/workflows/{workflow['workflow_id']}"
    assert ann.delete(path).status_code == 403
    assert admin.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("", variant(name=""), "name"),
        ("", variant(agent="a\x00"), "agent"),
        ("", variant(task_type="x" * 257), "task_type"),
        ("", variant(spec=[1]), "spec"),
        ("", variant(spec={"a": "x" * 65_536}), "spec"),
        ("", variant(extra=1), "extra"),
        ("", PLACE, "name"),
        ("/select", {"agent": "gateway"}, "task_type"),
        ("/select", PLACE | {"user_id": "bob"}, "user_id"),
        ("/outcomes", {"selection_id": "x", "score": 1}, "selection_id"),
        ("/outcomes", {"selection_id": str(uuid.uuid4()), "score": 1.01}, "score"),
        ("/outcomes", {"selection_id": str(uuid.uuid4()), "score": -1}, "score"),
        ("/outcomes", {"selection_id": str(uuid.uuid4()), "score": True}, "score"),
        ("/outcomes", {"selection_id": str(uuid.uuid4())}, "score"),
    ],
)
def test_bad_input_names_its_field(ann: httpx.Client, path: str, body: dict[str, Any], field: str) -> None:
    answer = ann.post(f"/v1/workflows{path}", json=body)
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert ann.get("/v1/workflows").json()["workflows"] == []


def test_events_of_workflows_are_refused_from_senders(ann: httpx.Client) -> None:
    for event_type in ("added", "selected", "scored", "retired"):
        event = {
            "event_id": str(uuid.uuid4()),
            "event_type": f"memory.workflow_{event_type}",
            "occurred_at": "2026-01-01T00:00:00Z",
            "session_id": "s",
            "trace_id": "t",
        }
        [result] = ann.post("/v1/events", json={"events": [event]}).json()["results"]
        assert result["errors"][0]["field"] == "event_type"


def test_the_description_says_what_is_sent_and_answered() -> None:
    paths = document(ROUTES)["paths"]
    assert set(paths["/v1/workflows"]["post"]["responses"]) == {
        "201", "400", "401", "409", "413", "415", "422", "429", "503",
    }  # fmt: skip
    assert set(paths["/v1/workflows"]["get"]["responses"]) == {"200", "401", "422", "429", "503"}
    assert set(paths["/v1/workflows/{workflow_id}"]["delete"]["responses"]) == {
        "204", "401", "403", "404", "422", "429", "503",
    }  # fmt: skip
    assert "404" in paths["/v1/workflows/select"]["post"]["responses"]
    assert {"404", "409"} <= set(paths["/v1/workflows/outcomes"]["post"]["responses"])
    spec = document(ROUTES)["components"]["schemas"]["AddWorkflow"]["properties"]["spec"]
    assert spec["type"] == "object"
