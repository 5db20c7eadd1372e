"""Actions and retention over HTTP."""

import uuid

import httpx

from conftest import Server, Workspace
from whence.app import App

NOTE = {"agent": "gateway", "tier": "persistent", "kind": "episodic", "text": "The price was agreed.", "user_id": "ann"}


def test_an_action_is_recorded_listed_and_holds(admin: httpx.Client) -> None:
    memory = admin.post("/v1/memories", json=NOTE).raise_for_status().json()["memory_id"]
    about = admin.get(f"/v1/memories/{memory}/retention").raise_for_status().json()
    assert (about["state"], about["content_class"], about["temperature"]) == ("ACTIVE", "episodes", "hot")
    assert about["expires_at"] is not None
    body = {"kind": "decision.published", "cites": [memory], "action_id": str(uuid.uuid4())}
    first = admin.post("/v1/actions", json=body)
    assert first.status_code == 201
    assert admin.post("/v1/actions", json=body).json() == first.json()
    assert admin.post("/v1/actions", json=body | {"kind": "rule.promoted"}).status_code == 409
    assert admin.get(f"/v1/actions/{body['action_id']}").json() == first.json()
    assert admin.get("/v1/actions", params={"cites": memory, "limit": 1}).json()["actions"] == [first.json()]
    about = admin.get(f"/v1/memories/{memory}/retention").json()
    assert (about["state"], about["held_by"]) == ("REFERENCED", [body["action_id"]])


async def test_missing_and_somebody_elses_look_the_same(
    admin: httpx.Client, server: Server, app: App, workspace: Workspace
) -> None:
    memory = admin.post("/v1/memories", json=NOTE).raise_for_status().json()["memory_id"]
    action = admin.post("/v1/actions", json={"kind": "rule.promoted", "cites": [memory]}).json()["action_id"]
    key = await app.identity.add_user(workspace.workspace_id, "bob")
    with server.client(key) as bob:
        told = [
            bob.post("/v1/actions", json={"kind": "rule.promoted", "cites": [cited]}).json()["errors"][0]["message"]
            for cited in (memory, str(uuid.uuid4()))
        ]
        assert len({message[:27] for message in told}) == 1
        for path in (f"/v1/actions/{action}", f"/v1/memories/{memory}/retention"):
            assert bob.get(path).status_code == 404
        assert bob.get("/v1/actions").json() == {"actions": [], "next": None}


def test_what_is_wrong_is_named(admin: httpx.Client) -> None:
    for body, field in (
        ({"kind": "Rule", "cites": [str(uuid.uuid4())]}, "kind"),
        ({"kind": "a.b", "cites": []}, "cites"),
    ):
        answer = admin.post("/v1/actions", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
