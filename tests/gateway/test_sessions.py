"""Sessions over HTTP, as an agent's author uses them."""

from collections.abc import Iterator

import httpx
import pytest

from conftest import Server, Workspace
from whence.app import App

NOTE = {"agent": "gateway", "tier": "session", "kind": "episodic"}


@pytest.fixture
async def ann(app: App, server: Server, workspace: Workspace) -> Iterator[httpx.Client]:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with server.client(key) as client:
        yield client


def tell(client: httpx.Client, session: str, *texts: str) -> None:
    memories = [{**NOTE, "session_id": session, "text": text} for text in texts]
    assert client.post("/v1/memories", json={"memories": memories}).status_code == 200


def test_a_session_is_listed_closed_and_reported(ann: httpx.Client) -> None:
    tell(ann, "chat:1", "asked for a refund", "was given one")
    [session] = ann.get("/v1/sessions", params={"state": "open"}).json()["sessions"]
    assert (session["session_id"], session["number"], session["idle_days"]) == ("chat:1", 1, 30)
    closed = ann.post("/v1/sessions/chat:1/close")
    assert closed.status_code == 200
    [report] = closed.json()["reports"]
    assert (report["counts"], [row["fate"] for row in report["rows"]]) == ({"archived": 2}, ["archived", "archived"])
    assert "asked for a refund" in report["summary"]
    assert ann.post("/v1/sessions/chat:1/close", json={}).json() == closed.json()
    assert ann.get("/v1/sessions", params={"state": "open"}).json()["sessions"] == []
    assert ann.get("/v1/memories").json()["memories"] == []
    row = report["rows"][0]["memory_id"]
    assert ann.get(f"/v1/memories/{row}").json()["archived_at"]


def test_pages_go_on_where_the_last_one_ended(ann: httpx.Client) -> None:
    for number in range(3):
        tell(ann, f"s{number}", "hello")
    first = ann.get("/v1/sessions", params={"limit": 2}).json()
    second = ann.get("/v1/sessions", params={"limit": 2, "before": first["next"]}).json()
    names = [session["session_id"] for session in (*first["sessions"], *second["sessions"])]
    assert (names, second["next"]) == (["s2", "s1", "s0"], None)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [({"agnet": "x"}, 422, "agnet"), ({"agent": 5}, 422, "agent"), ({"agent": ""}, 422, "agent")],
)
def test_what_is_wrong_is_told_by_its_field(ann: httpx.Client, body: object, status: int, field: str) -> None:
    tell(ann, "s1", "hello")
    answer = ann.post("/v1/sessions/s1/close", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, field)
    listed = ann.get("/v1/sessions", params={"state": "shut"})
    assert listed.status_code == 422
    assert listed.json()["errors"] == [{"field": "state", "message": "must be one of open, closed"}]


def test_a_session_that_is_not_there_is_404(ann: httpx.Client, admin: httpx.Client) -> None:
    tell(ann, "s1", "hello")
    assert ann.post("/v1/sessions/nowhere/close").status_code == 404
    assert admin.post("/v1/sessions/s1/close").json()["reports"][0]["counts"] == {"archived": 1}
