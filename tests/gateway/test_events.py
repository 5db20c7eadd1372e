"""Events over HTTP: appended, read back in order, refused with the field that is wrong."""

import gzip
import json
import socket
import time
import zlib
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from conftest import Server, Workspace
from samples import event, new_id, sample
from whence.app import App
from whence.ledger.events import MAX_PAYLOAD_BYTES


def test_one_event_is_stored_and_read_back(admin: httpx.Client) -> None:
    sent = sample(payload={"text": "hello"}, parent_event_id=str(new_id()), status="completed")
    answer = admin.post("/v1/events", json=sent)
    assert answer.status_code == 200
    assert answer.json() == {
        "accepted": 1,
        "rejected": 0,
        "duplicates": 0,
        "results": [{"event_id": sent["event_id"], "global_position": 1, "status": "accepted"}],
    }
    stored = admin.get(f"/v1/events/{sent['event_id']}").json()
    assert {name: stored[name] for name in sent if name != "payload"} == {
        n: v for n, v in sent.items() if n != "payload"
    }
    assert "payload" not in stored
    assert admin.get(f"/v1/events/{sent['event_id']}/payload").json() == {"text": "hello"}
    page = admin.get("/v1/events").json()
    assert page == {"events": [stored], "next": None}


def test_a_batch_of_1000_with_10_bad_items_stores_990_and_names_the_field_of_each(admin: httpx.Client) -> None:
    batch = [sample() for _ in range(1000)]
    ahead = (datetime.now(UTC) + timedelta(seconds=400)).isoformat()
    bad = {
        0: ({"session_id": ""}, "session_id"),
        99: ({"event_id": "not-a-uuid"}, "event_id"),
        200: ({"occurred_at": ahead}, "occurred_at"),
        301: ({"occurred_at": "2026-01-02T03:04:05"}, "occurred_at"),
        402: ({"ended_at": "2025-01-01T00:00:00Z"}, "ended_at"),
        503: ({"parent_event_id": batch[503]["event_id"]}, "parent_event_id"),
        604: ({"payload_ref": "x" * 2049}, "payload_ref"),
        705: ({"payload": "x" * (MAX_PAYLOAD_BYTES + 1)}, "payload"),
        806: ({"importance_hint": "high"}, "importance_hint"),
        999: ({"tool": "typo of tool_name"}, "tool"),
    }
    for place, (change, _) in bad.items():
        batch[place] = batch[place] | change
    answer = admin.post("/v1/events", json={"events": batch}).json()
    assert (answer["accepted"], answer["rejected"], answer["duplicates"]) == (990, 10, 0)
    refused = {n: result for n, result in enumerate(answer["results"]) if result["status"] == "rejected"}
    assert {n: result["errors"][0]["field"] for n, result in refused.items()} == {
        n: field for n, (_, field) in bad.items()
    }
    positions = [result["global_position"] for n, result in enumerate(answer["results"]) if n not in bad]
    assert positions == list(range(1, 991))
    assert [result["event_id"] for result in answer["results"]] == [item["event_id"] for item in batch]
    assert len(admin.get("/v1/events?limit=1000").json()["events"]) == 990


@pytest.mark.parametrize("missing", ["event_id", "event_type", "occurred_at", "session_id", "trace_id"])
def test_what_is_required_is_named_when_it_is_missing(admin: httpx.Client, missing: str) -> None:
    event = sample()
    del event[missing]
    answer = admin.post("/v1/events", json=event)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["errors"] == [{"field": missing, "message": "is required"}]
    assert (problem["code"], problem["status"]) == ("invalid_input", 422)
    in_batch = admin.post("/v1/events", json={"events": [event]}).json()
    assert in_batch["results"][0]["errors"][0]["field"] == missing
    assert admin.get("/v1/events").json()["events"] == []


def test_a_single_event_that_cannot_be_stored_is_a_problem(admin: httpx.Client) -> None:
    first = sample()
    admin.post("/v1/events", json=first)
    assert admin.post("/v1/events", json=first).json()["duplicates"] == 1
    conflict = admin.post("/v1/events", json=first | {"session_id": "other"})
    assert (conflict.status_code, conflict.json()["code"]) == (409, "conflict")
    assert conflict.headers["content-type"] == "application/problem+json"
    refused = admin.post("/v1/events", json=sample(importance_hint=11, session_id=""))
    assert refused.status_code == 422
    assert [e["field"] for e in refused.json()["errors"]] == ["session_id", "importance_hint"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_body"),
        (b"{", 400, "malformed_body"),
        (b'{"a": nonsense}', 400, "malformed_body"),
        (b"\xff\xfe", 400, "malformed_body"),
        (b'{"session_id": "\xff"}', 400, "malformed_body"),
        (b"[]", 422, "invalid_input"),
        (b"null", 422, "invalid_input"),
        (b"7", 422, "invalid_input"),
        (b'{"events": []}', 422, "invalid_input"),
        (b'{"events": {}}', 422, "invalid_input"),
        (b'{"events": [1]}', 200, None),
        (b'{"events": [{}], "extra": 1}', 422, "invalid_input"),
        (b'{"events": [' + b"{}," * 1000 + b"{}]}", 422, "invalid_input"),
        (b'{"events": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "malformed_body"),
        (b'{"a": ' + b"[" * 100_000, 400, "malformed_body"),
    ],
)
def test_a_body_that_is_not_events_is_refused(admin: httpx.Client, body: bytes, status: int, code: str | None) -> None:
    answer = admin.post("/v1/events", content=body)
    assert answer.status_code == status, answer.text
    if code:
        assert answer.json()["code"] == code
        assert answer.json()["status"] == status
    assert admin.get("/v1/events").json()["events"] == []


@pytest.mark.parametrize("payload", ['"\\ud800"', "[" * 5000 + "]" * 5000, '{"a":1e999}'])
def test_a_strange_payload_is_stored_as_it_is_or_refused_alone(admin: httpx.Client, payload: str) -> None:
    event = sample()
    body = json.dumps({"events": [sample(), event]})
    body = body.replace(f'"{event["event_id"]}"', f'"{event["event_id"]}", "payload": {payload}')
    answer = admin.post("/v1/events", content=body)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200 and answer.json()["accepted"] == 2:
        assert admin.get(f"/v1/events/{event['event_id']}/payload").text == payload


def test_bodies_may_be_compressed(admin: httpx.Client) -> None:
    for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        body = pack(json.dumps(sample()).encode())
        assert admin.post("/v1/events", content=body, headers={"Content-Encoding": encoding}).status_code == 200
    bomb = gzip.compress(b" " * (200 << 20))
    answer = admin.post("/v1/events", content=bomb, headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    for body, encoding, status in (
        (b"not gzip", "gzip", 400),
        (gzip.compress(b"{}" * 99)[:-9], "gzip", 400),
        (b"{}", "br", 415),
    ):
        assert admin.post("/v1/events", content=body, headers={"Content-Encoding": encoding}).status_code == status


def test_a_body_over_the_limit_is_refused_early(admin: httpx.Client) -> None:
    answer = admin.post("/v1/events", content=b" " * ((32 << 20) + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    def endless() -> object:
        for _ in range(40):
            yield b" " * (1 << 20)

    answer = admin.post("/v1/events", content=endless())  # type: ignore[arg-type]
    assert answer.status_code == 413


def test_events_are_read_by_session_trace_and_type(admin: httpx.Client) -> None:
    for n in range(6):
        admin.post("/v1/events", json=sample(session_id=f"s{n % 2}", trace_id=f"t{n % 3}", event_type=f"a.b{n % 2}"))

    def positions(query: str) -> list[int]:
        return [e["global_position"] for e in admin.get(f"/v1/events?{query}").json()["events"]]

    assert positions("session_id=s0") == [1, 3, 5]
    assert positions("trace_id=t2") == [3, 6]
    assert positions("event_type=a.b1") == [2, 4, 6]
    assert positions("event_type=a.b1&session_id=s0") == []
    assert positions("session_id=s1&after=2&limit=1") == [4]
    page = admin.get("/v1/events?limit=4").json()
    assert (len(page["events"]), page["next"]) == (4, 4)
    assert admin.get("/v1/events?limit=4&after=4").json()["next"] is None


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("after=-1", "after"),
        ("after=9223372036854775808", "after"),
        ("session_id=", "session_id"),
        ("session_id=a%00b", "session_id"),
        ("sesion_id=s1", "sesion_id"),
        ("request=1", "request"),
    ],
)
def test_a_wrong_parameter_is_named(admin: httpx.Client, query: str, field: str) -> None:
    answer = admin.get(f"/v1/events?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


async def test_no_route_gives_a_key_anything_of_another_workspace_or_user(
    app: App, server: Server, workspace: Workspace
) -> None:
    """All routes are tried with keys of a stranger in the workspace, of another workspace, and with none."""
    other = await app.identity.add_workspace(f"{workspace.workspace_id}-other")
    stranger = await app.identity.add_user(workspace.workspace_id, "stranger")
    owner = await app.identity.add_user(workspace.workspace_id, "ann")
    secret = sample(
        payload={"text": "ann's secret"}, session_id="ann-session", trace_id="ann-trace", tool_name="ann-tool"
    )
    event_id = secret["event_id"]
    with server.client(owner) as client:
        assert client.post("/v1/events", json=secret).json()["accepted"] == 1
        assert client.get(f"/v1/events/{event_id}").status_code == 200
    for key in (other, stranger):
        with server.client(key) as client:
            missing = client.get(f"/v1/events/{new_id()}")
            for path in ("", "/payload", "/lineage"):
                answer = client.get(f"/v1/events/{event_id}{path}")
                assert (answer.status_code, answer.json()) == (404, missing.json())
            for query in (
                "",
                "?session_id=ann-session",
                "?trace_id=ann-trace",
                "?event_type=tool.execute",
                "?after=0&limit=1000",
            ):
                assert client.get(f"/v1/events{query}").json() == {"events": [], "next": None}
            with client.stream("GET", "/v1/events/stream") as stream:
                client.post("/v1/events", json=sample(session_id="mine"))
                lines = (line for line in stream.iter_lines() if line.startswith("data:"))
                assert json.loads(next(lines)[5:])["session_id"] == "mine"
    with server.client(None) as client:
        for path in (
            "/v1/events",
            f"/v1/events/{event_id}",
            f"/v1/events/{event_id}/payload",
            f"/v1/events/{event_id}/lineage",
            "/v1/events/stream",
            "/v1/nothing",
        ):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), path
            assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/events", "/v1/traces", "/v1/logs"):
            assert client.post(path, content=b"{}").status_code == 401


async def test_an_event_that_belongs_to_nobody_is_the_administrators_alone(
    app: App, server: Server, workspace: Workspace
) -> None:
    await app.ledger.append(workspace.admin, [event()])
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    with server.client(key) as client:
        assert client.get("/v1/events").json()["events"] == []


def test_a_gzip_body_may_have_several_members_and_nothing_after_them(admin: httpx.Client) -> None:
    body = json.dumps(sample()).encode()
    for packed, status in (
        (gzip.compress(body[:50]) + gzip.compress(body[50:]), 200),
        (gzip.compress(body) + b"junk", 400),
        (gzip.compress(b" " * (31 << 20)) + gzip.compress(b" " * (2 << 20)), 413),
    ):
        answer = admin.post("/v1/events", content=packed, headers={"Content-Encoding": "gzip"})
        assert answer.status_code == status


def test_a_gzip_body_of_very_many_members_is_refused(admin: httpx.Client) -> None:
    answer = admin.post("/v1/events", content=gzip.compress(b"") * 50_000, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 400


def test_a_time_that_could_not_be_read_back_is_refused(admin: httpx.Client) -> None:
    for field, value in (("ended_at", "9999-12-31T23:59:59-01:00"), ("occurred_at", "0001-01-01T00:00:00+01:00")):
        answer = admin.post("/v1/events", json=sample(**{field: value}))
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    assert admin.get("/v1/events").status_code == 200
    assert admin.get("/v1/events/stream?after=99999999999999999999").status_code == 422


def test_times_come_back_in_utc_whatever_they_were_sent_in(admin: httpx.Client) -> None:
    sent = sample(occurred_at="2026-01-02T05:04:05.123456+02:00")
    admin.post("/v1/events", json=sent)
    assert admin.get(f"/v1/events/{sent['event_id']}").json()["occurred_at"] == "2026-01-02T03:04:05.123456Z"


def test_half_a_character_costs_only_its_own_item(admin: httpx.Client) -> None:
    good, bad = sample(), sample(session_id="HALF")
    body = json.dumps({"events": [bad, good]}).replace("HALF", "\\ud800")
    answer = admin.post("/v1/events", content=body)
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["results"]
    assert (first["status"], second["status"]) == ("rejected", "accepted")
    assert "half of a surrogate pair" in first["errors"][0]["message"]


def test_a_client_that_goes_away_in_the_middle_is_not_a_fault_of_the_server(
    server: Server, workspace: Workspace
) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {workspace.admin_key}\r\n"
        connection.sendall(f"{head}Content-Length: 500\r\n\r\n{{".encode())
    with server.client(None) as client:
        for _ in range(50):
            metrics = client.get("/metrics").text
            if 'route="/v1/events",status="400"' in metrics:
                break
            time.sleep(0.05)
    assert 'route="/v1/events",status="400"' in metrics
    assert 'status="500"' not in metrics
