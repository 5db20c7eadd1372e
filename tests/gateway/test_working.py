"""Working memory over HTTP: any name in the path, any JSON in the body, and nobody else's key."""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import quote

import httpx
import pytest

from conftest import Server, Workspace
from whence.app import App
from whence.clock import system_clock
from whence.gateway.http import ROUTES
from whence.gateway.openapi import document

KEY = "/v1/working/planner/run-7/draft"


@pytest.fixture
async def ann(app: App, server: Server, workspace: Workspace) -> Iterator[httpx.Client]:
    with server.client(await app.identity.add_user(workspace.workspace_id, "ann")) as client:
        yield client


@pytest.fixture
async def bob(app: App, server: Server, workspace: Workspace) -> Iterator[httpx.Client]:
    with server.client(await app.identity.add_user(workspace.workspace_id, "bob")) as client:
        yield client


def path(*names: str) -> str:
    return "/".join(("/v1/working", *(quote(name, safe="") for name in names)))


def test_a_value_is_put_read_listed_and_deleted(admin: httpx.Client) -> None:
    before = system_clock()
    answer = admin.put(KEY, json={"value": {"step": 3, "notes": ["a"]}})
    assert answer.status_code == 200
    stored = answer.json()
    assert (stored["key"], stored["bytes"], stored["bytes_left"]) == ("draft", 29, 131_072 - 29)
    expires_at = datetime.fromisoformat(stored["expires_at"])
    assert timedelta(0) <= expires_at - before - timedelta(hours=1) < timedelta(seconds=30)
    read = admin.get(KEY).json()
    assert read == {"key": "draft", "value": {"step": 3, "notes": ["a"]}, "expires_at": stored["expires_at"]}
    listed = admin.get("/v1/working/planner/run-7").json()
    (item,) = listed["keys"]
    assert (item["key"], item["bytes"], item["expires_at"]) == ("draft", 29, stored["expires_at"])
    assert (listed["bytes"], listed["bytes_left"]) == (29, 131_072 - 29)
    deleted = admin.delete(KEY)
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert admin.get(KEY).status_code == 404
    assert admin.delete(KEY).status_code == 404
    assert admin.get("/v1/working/planner/run-7").json()["keys"] == []


def test_numbers_keep_their_digits(admin: httpx.Client) -> None:
    admin.put(KEY, content=b'{"ttl_s": 60, "value": [1.10, 12345678901234567890123]}').raise_for_status()
    assert b'"value":[1.10, 12345678901234567890123]' in admin.get(KEY).content


@pytest.mark.parametrize(
    "name",
    [
        "a/b",
        "/a//b/",
        "/",
        "two words",
        "100%",
        "%2F",
        "%252F",
        "a+b&c=d;e?f#g",
        "žluťoučký 👩\u200d🚀",
        "line\nbreak\ttab",
        "\\..\\x",
        "...",
        "v1",
        "stream",
        "{key}",
        ":",
        "x" * 256,
        "🚀" * 256,
    ],
)
def test_any_name_comes_back_from_the_path(admin: httpx.Client, name: str) -> None:
    names = (name, f"i{name}"[:256], name)
    assert admin.put(path(*names), json={"value": name}).json()["key"] == name
    assert admin.get(path(*names)).json()["value"] == name
    assert [item["key"] for item in admin.get(path(*names[:2])).json()["keys"]] == [name]
    # Another spelling of the same path, as some clients send it.
    spelt = "".join(f"%{byte:02X}" for byte in name.encode())
    assert admin.get(f"/v1/working/{spelt}/{path(names[1])[12:]}/{spelt}").json()["value"] == name
    assert admin.delete(path(*names)).status_code == 204


def test_names_that_only_look_alike_are_apart(admin: httpx.Client) -> None:
    names = [("a/b", "c", "d"), ("a", "b/c", "d"), ("a", "b", "c/d"), ("a%2Fb", "c", "d"), ("a", "b", "C/d")]
    for number, each in enumerate(names):
        admin.put(path(*each), json={"value": number}).raise_for_status()
    assert [admin.get(path(*each)).json()["value"] for each in names] == list(range(len(names)))


def test_a_key_of_somebody_else_is_like_one_that_is_not_there(
    admin: httpx.Client, ann: httpx.Client, bob: httpx.Client
) -> None:
    ann.put(KEY, json={"value": "of ann"}).raise_for_status()
    missing = bob.get(f"{KEY}-nothing")
    for other in (bob, admin):
        for answer in (other.get(KEY), other.delete(KEY)):
            assert (answer.status_code, answer.json()) == (404, missing.json())
        assert other.get("/v1/working/planner/run-7").json()["keys"] == []
        assert other.put(KEY, json={"value": "another"}).json()["bytes_left"] == 131_072 - 5 - 9
    assert ann.get(KEY).json()["value"] == "of ann"


def test_a_key_expires(admin: httpx.Client) -> None:
    admin.put(KEY, json={"value": 1, "ttl_s": 1}).raise_for_status()
    assert admin.get(KEY).status_code == 200
    time.sleep(1.1)
    problem = admin.get(KEY)
    assert (problem.status_code, problem.json()["code"]) == (404, "not_found")
    assert admin.get("/v1/working/planner/run-7").json()["keys"] == []


def test_what_does_not_fit_is_413_with_the_numbers(admin: httpx.Client) -> None:
    admin.put(KEY, json={"value": "x" * 100_000}).raise_for_status()
    problem = admin.put(f"{KEY}2", json={"value": "x" * 50_000}).json()
    assert (problem["status"], problem["code"]) == (413, "too_large")
    message = (
        "takes 50,008 bytes with its key, and 31,065 of 131,072 are left in this instance: its other keys take 100,007"
    )
    assert problem["errors"] == [{"field": "value", "message": message}]
    assert admin.get(f"{KEY}2").status_code == 404
    assert admin.put(KEY, json={"value": "x" * 131_072}).status_code == 413
    assert len(admin.get(KEY).json()["value"]) == 100_000


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"[1]", 422, "body"),
        (b"{}", 422, "value"),
        (b'{"ttl_s": 5}', 422, "value"),
        (b'{"value": 1, "ttl": 5}', 422, "ttl"),
        (b'{"value": 1, "ttl_s": 0}', 422, "ttl_s"),
        (b'{"value": 1, "ttl_s": 2592001}', 422, "ttl_s"),
        (b'{"value": 1, "ttl_s": "60"}', 422, "ttl_s"),
        (b'{"value": 1, "ttl_s": 1.5}', 422, "ttl_s"),
        (b'{"value": 1, "ttl_s": null}', 422, "ttl_s"),
        (b'{"value": "\xff"}', 422, "value"),
        (b'{"value": 1e999}', 422, "value"),
        (b'{"value": ' + b"[" * 60_000 + b"]" * 60_000 + b"}", 400, None),
    ],
)
def test_a_body_that_is_wrong_is_told_by_its_field(
    admin: httpx.Client, body: bytes, status: int, field: str | None
) -> None:
    problem = admin.put(KEY, content=body).json()
    assert problem["status"] == status
    assert [item["field"] for item in problem.get("errors", ())] == ([field] if field else [])
    assert admin.get(KEY).status_code == 404


def test_a_path_that_is_wrong_is_told(admin: httpx.Client) -> None:
    for where, status, field in (
        (path("a", "i", "x" * 257), 422, "key"),
        (path("a", "x" * 257, "k"), 422, "instance"),
        (path("a\x00", "i", "k"), 422, "agent"),
        ("/v1/working/a/i/%FF", 422, "key"),
        ("/v1/working/a/i/%ED%A0%80", 422, "key"),
        ("/v1/working/a/i/k?ttl_s=5", 422, "ttl_s"),
        ("/v1/working/a/i/k?key=k", 422, "key"),
        ("/v1/working/a/i/k/more", 404, None),
        ("/v1/working/a", 404, None),
        ("/v1/working", 404, None),
    ):
        problem = admin.put(where, json={"value": 1}).json()
        assert (problem["status"], [item["field"] for item in problem.get("errors", ())]) == (
            status,
            [field] if field else [],
        ), where
    assert admin.put("/v1/working/a/i", json={"value": 1}).status_code == 405
    assert admin.post(KEY, json={"value": 1}).status_code == 405


def test_it_needs_a_key_however_the_path_is_spelt(server: Server) -> None:
    with server.client(None) as anyone:
        for where in (KEY, "/v1%2Fworking/a/i/k", "/v1/working/..%2F..%2F..%2Fhealth/i/k", "/%68ealth"):
            assert anyone.get(where).status_code == 401, where


def test_metrics_have_the_route_and_not_the_names(admin: httpx.Client, server: Server) -> None:
    admin.put(path("planner", "run/7", "telltale"), json={"value": "telltale"}).raise_for_status()
    with server.client(None) as anyone:
        text = anyone.get("/metrics").text
    assert 'method="PUT",route="/v1/working/{agent}/{instance}/{key}",status="200"' in text
    assert "telltale" not in text


def test_the_description_says_what_is_sent_and_answered() -> None:
    described = document(ROUTES)
    operations = described["paths"]["/v1/working/{agent}/{instance}/{key}"]
    assert set(operations["put"]["responses"]) == {"200", "400", "401", "413", "415", "422", "429", "503"}
    assert set(operations["get"]["responses"]) == {"200", "401", "404", "422", "429", "503"}
    assert set(operations["delete"]["responses"]) == {"204", "401", "404", "422", "429", "503"}
    listed = described["paths"]["/v1/working/{agent}/{instance}"]["get"]
    assert set(listed["responses"]) == {"200", "401", "422", "429", "503"}
    assert "requestBody" not in operations["get"]
    sent = described["components"]["schemas"]["WorkingRequest"]
    assert operations["put"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/WorkingRequest")
    assert sent["required"] == ["value"]
    assert sent["properties"]["ttl_s"] == {"type": "integer", "minimum": 1, "maximum": 2_592_000, "default": 3_600}
