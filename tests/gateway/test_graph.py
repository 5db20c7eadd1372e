"""The context graph over HTTP, on recorded runs of real agents and on small ones of our own."""

import json
import re
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from prov.model import ProvDocument

from conftest import Server, Workspace
from samples import sample, stored
from whence.app import App

RECORDINGS = Path(__file__).parent.parent / "data" / "otlp"
# A recording, the tool that it calls, and the user's message that led to it.
RUNS = (
    ("oi-langgraph-openai-http-json-traces.json-wire", "application/json"),
    ("oi-langgraph-fake-http-proto-traces.pb", "application/x-protobuf"),
    ("oi-openai-agents-grpc-traces.pb", "application/x-protobuf"),
    ("genai-langgraph-openai-grpc-traces.pb", "application/x-protobuf"),
)


def sent(admin: httpx.Client, *events: dict[str, Any]) -> int:
    """Sends the events; the position of the last."""
    answer = admin.post("/v1/events", json={"events": list(events)}).raise_for_status().json()
    assert answer["accepted"] == len(events)
    return answer["results"][-1]["global_position"]


def lineage(admin: httpx.Client, event_id: str, **query: Any) -> dict[str, Any]:
    return admin.get(f"/v1/events/{event_id}/lineage", params=query).raise_for_status().json()


@pytest.mark.parametrize(("recording", "content_type"), RUNS)
def test_why_a_tool_was_called_leads_up_to_the_users_message(
    admin: httpx.Client, recording: str, content_type: str
) -> None:
    body = (RECORDINGS / recording).read_bytes()
    admin.post("/v1/traces", content=body, headers={"Content-Type": content_type}).raise_for_status()
    if recording.startswith("genai"):
        logs = (RECORDINGS / recording.replace("traces", "logs")).read_bytes()
        admin.post("/v1/logs", content=logs, headers={"Content-Type": content_type}).raise_for_status()
    events = stored(admin)
    tools = [event for event in events if event["event_type"] == "tool.execute"]
    assert tools
    for tool in tools:
        atlas = lineage(admin, tool["event_id"], max_depth=10, text=True, wait_for=events[-1]["global_position"])
        nodes = list(atlas["nodes"].values())
        assert nodes[0]["node_id"] == tool["event_id"]
        assert not atlas["meta"]["truncated"]
        for node in nodes:
            provenance = node["provenance"]
            assert set(provenance) == {
                "event_id", "global_position", "occurred_at", "session_id", "trace_id", "agent_id"
            }  # fmt: skip
            assert all(provenance[name] for name in provenance), provenance
            assert node["reason"]
        causes = {edge["properties"]["cause"] for edge in atlas["edges"]}
        assert causes == {"direct", "inferred"}
        assert any(re.search(r"\buser: \w", node["attributes"].get("text", "")) for node in nodes), nodes


def test_lineage_is_an_atlas_with_provenance(admin: httpx.Client) -> None:
    root = sample(event_type="agent.invoke", agent_id="planner")
    middle = sample(parent_event_id=root["event_id"], event_type="chain.run")
    leaf = sample(parent_event_id=middle["event_id"], tool_name="search")
    last = sent(admin, leaf, middle, root)
    atlas = lineage(admin, leaf["event_id"], wait_for=last)
    assert list(atlas["nodes"]) == [leaf["event_id"], middle["event_id"], root["event_id"]]
    assert [(edge["source"], edge["target"], edge["edge_type"]) for edge in atlas["edges"]] == [
        (leaf["event_id"], middle["event_id"], "CAUSED_BY"),
        (middle["event_id"], root["event_id"], "CAUSED_BY"),
    ]
    assert atlas["nodes"][root["event_id"]]["provenance"]["global_position"] == 3
    assert atlas["meta"]["position"] == 3
    assert lineage(admin, leaf["event_id"], max_depth=1)["meta"]["truncated"] is True
    down = lineage(admin, root["event_id"], direction="down")
    assert list(down["nodes"]) == [root["event_id"], middle["event_id"], leaf["event_id"]]


def test_pages_are_walked_with_the_cursor(admin: httpx.Client) -> None:
    root = sample(event_type="agent.invoke")
    children = [sample(parent_event_id=root["event_id"]) for _ in range(25)]
    last = sent(admin, root, *children)
    seen, cursor = [], None
    while True:
        query = {"direction": "down", "max_nodes": 10, "wait_for": last} | ({"cursor": cursor} if cursor else {})
        page = lineage(admin, root["event_id"], **query)
        seen += page["nodes"]
        cursor = page["pagination"]["cursor"]
        assert page["pagination"]["has_more"] == (cursor is not None)
        if cursor is None:
            break
    assert seen == [root["event_id"], *(child["event_id"] for child in children)]


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/events/{id}/lineage?max_depth=11", "max_depth"),
        ("/v1/events/{id}/lineage?max_depth=0", "max_depth"),
        ("/v1/events/{id}/lineage?max_nodes=501", "max_nodes"),
        ("/v1/events/{id}/lineage?timeout_ms=30001", "timeout_ms"),
        ("/v1/events/{id}/lineage?direction=sideways", "direction"),
        ("/v1/events/{id}/lineage?cursor=x", "cursor"),
        ("/v1/events/{id}/lineage?wait_for=99", "wait_for"),
        ("/v1/events/{id}/lineage?wait_for=-1", "wait_for"),
        ("/v1/events/{id}/lineage?dept=3", "dept"),
        ("/v1/subgraph", "event_id"),
        ("/v1/subgraph?session_id=s1&trace_id=t1", "event_id"),
        ("/v1/subgraph?session_id=a%00b", "session_id"),
        ("/v1/prov?event_id=x", "event_id"),
        ("/v1/prov", "event_id"),
        ("/v1/actions?kind=a%00b", "kind"),
    ],
)
def test_a_wrong_parameter_is_named(admin: httpx.Client, path: str, field: str) -> None:
    event = sample()
    sent(admin, event)
    answer = admin.get(path.format(id=event["event_id"]))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"intent": "whence"}, "intent"),
        ({"max_depth": 11}, "max_depth"),
        ({"max_nodes": 0}, "max_nodes"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"query": 3}, "query"),
        ({"query": "x" * 8001}, "query"),
        ({"session_id": ""}, "session_id"),
        ({"query": "a\0b"}, "query"),
        ({"session_id": "a\0b"}, "session_id"),
        ({"cursor": "abc"}, "cursor"),
        ({"wait_for": 9}, "wait_for"),
        ({"wait_for": -1}, "wait_for"),
        ({"wait_for": 1 << 70}, "wait_for"),
        ({"sesion_id": "x"}, "sesion_id"),
    ],
)
def test_a_wrong_field_of_a_question_is_named(admin: httpx.Client, body: dict[str, Any], field: str) -> None:
    answer = admin.post("/v1/context", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


def test_context_answers_with_an_atlas(admin: httpx.Client) -> None:
    root = sample(
        event_type="agent.invoke", payload={"messages": [{"role": "user", "content": "Find a hotel in Rome"}]}
    )
    tool = sample(tool_name="find_hotel", parent_event_id=root["event_id"])
    last = sent(admin, root, tool)
    answer = admin.post("/v1/context", json={"query": "Why did find_hotel run?", "wait_for": last})
    atlas = answer.raise_for_status().json()
    assert list(atlas["nodes"])[:2] == ["tool:find_hotel", tool["event_id"]]
    assert atlas["meta"]["intents"].keys() == {"why"}
    assert atlas["meta"]["channels"]
    assert atlas["nodes"][root["event_id"]]["attributes"]["text"] == "user: Find a hotel in Rome"


def test_prov_is_read_back_by_the_library(admin: httpx.Client) -> None:
    root = sample(event_type="agent.invoke", agent_id="planner", user_id="ann", session_id="chat 1/ä")
    tools = [
        sample(tool_name="search", parent_event_id=root["event_id"], session_id="chat 1/ä", user_id="ann")
        for _ in range(20)
    ]
    last = sent(admin, root, *tools)
    query: dict[str, Any] = {"session_id": "chat 1/ä", "wait_for": last}
    answer = admin.get("/v1/prov", params=query).raise_for_status()
    document = ProvDocument.deserialize(content=answer.text, format="json")
    again = ProvDocument.deserialize(content=document.serialize(format="json"), format="json")
    assert document == again
    for event in (root, *tools):
        assert event["event_id"] in answer.text
    assert "Link" not in answer.headers
    pages = [admin.get("/v1/prov", params=query | {"max_nodes": 7}).raise_for_status()]
    while (link := pages[-1].headers.get("Link")) is not None:
        found = re.fullmatch(r'<(/v1/prov\?.*)>; rel="next"', link)
        assert found
        pages.append(admin.get(found[1]).raise_for_status())
    assert len(pages) > 2
    assert all(sum(event["event_id"] in json.dumps(page.json()) for page in pages) for event in (root, *tools))


async def test_another_users_nodes_are_indistinguishable_from_none(
    app: App, server: Server, workspace: Workspace, admin: httpx.Client
) -> None:
    event = sample(user_id="bob", tool_name="of bob", session_id="bob's")
    last = sent(admin, event)
    lineage(admin, event["event_id"], wait_for=last)
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with server.client(key) as ann:
        for path in ("/v1/events/{}/lineage", "/v1/subgraph?event_id={}", "/v1/prov?event_id={}"):
            answers = [ann.get(path.format(one)) for one in (event["event_id"], uuid.uuid4())]
            assert [answer.status_code for answer in answers] == [404, 404]
            bodies = [answer.json() for answer in answers]
            assert bodies[0] == bodies[1]
        for name in ("bob's", "nobody's"):
            assert ann.get("/v1/subgraph", params={"session_id": name}).status_code == 404
        atlas = ann.post("/v1/context", json={"query": "of bob", "session_id": "bob's"}).raise_for_status().json()
        assert atlas["nodes"] == {}


def test_the_lag_is_among_the_metrics(admin: httpx.Client) -> None:
    sent(admin, sample())
    text = admin.get("/metrics").text
    for name in ("whence_projection_lag_seconds", "whence_projection_lag_events"):
        assert re.search(rf"^{name} [0-9.e+-]+$", text, re.MULTILINE), name
