"""What every answer has: a request id, a problem document when it failed, a place in metrics and description."""

import inspect
import re
from collections.abc import Iterator

import httpx
import pytest
from psycopg import Connection

from conftest import Server
from whence.gateway.boundary import KEY_IN_BODY, PUBLIC_PATHS
from whence.gateway.http import ROUTES, only_known_parameters


@pytest.fixture
def anyone(server: Server) -> Iterator[httpx.Client]:
    with server.client(None) as client:
        yield client


def test_health_says_that_the_parts_work(anyone: httpx.Client) -> None:
    for path in ("/health", "/health/live", "/health/ready"):
        answer = anyone.get(path)
        assert answer.status_code == 200
        assert answer.json()["status"] == "ok"


def test_a_server_beside_a_newer_schema_is_not_ready(anyone: httpx.Client, owner: Connection) -> None:
    owner.execute("INSERT INTO whence.schema_migrations (version, name, sha256) VALUES (9999, 'later', '')")
    try:
        refused = anyone.get("/health/ready")
        assert (refused.status_code, anyone.get("/health").json()["status"]) == (503, "degraded")
        assert "migrated by a newer Whence" in anyone.get("/health").json()["failing"]["database"]
    finally:
        owner.execute("DELETE FROM whence.schema_migrations WHERE version = 9999")
    assert anyone.get("/health/ready").status_code == 200


def test_every_answer_has_a_request_id(admin: httpx.Client, anyone: httpx.Client) -> None:
    assert admin.get("/v1/events", headers={"X-Request-ID": "my-id.1"}).headers["x-request-id"] == "my-id.1"
    given = admin.get("/v1/events", headers={"X-Request-ID": "bad id!"}).headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{16}", given)
    for answer in (
        anyone.get("/v1/events"),
        anyone.get("/health"),
        admin.get("/nothing"),
        admin.put("/v1/events"),
        admin.post("/v1/events", content=b"{"),
    ):
        assert answer.headers["x-request-id"]


def test_nothing_is_asked_in_a_thread_at_every_request() -> None:
    """As Litestar does with what is not async: under load a thread waits its turn for milliseconds."""
    for called in (only_known_parameters, *(route.fn for route in ROUTES)):
        assert inspect.iscoroutinefunction(called), called


@pytest.mark.parametrize("sent", ["%F0%9F", "a%ff", "%C3%28&limit=5"])
def test_a_parameter_that_is_not_valid_unicode_is_refused_by_its_name(admin: httpx.Client, sent: str) -> None:
    for path in ("/v1/memories?agent=", "/v1/events?limit=1&session_id="):
        answer = admin.get(f"{path}{sent}")
        assert answer.status_code == 422, answer.text
        name = path.rpartition("?")[2].rpartition("&")[2].removesuffix("=")
        assert answer.json()["errors"] == [{"field": name, "message": "is not valid Unicode"}]
    assert admin.get("/v1/memories?agent=%F0%9F%8D%B5%20a+b").json()["memories"] == []


def test_failures_are_problem_documents(admin: httpx.Client) -> None:
    for answer, status, code in (
        (admin.get("/nothing"), 404, "not_found"),
        (admin.get("/v1/events/not-a-uuid"), 404, "not_found"),
        (admin.delete("/v1/events"), 405, "method_not_allowed"),
        (admin.get("/v1/events?limit=x"), 422, "invalid_input"),
    ):
        problem = answer.json()
        assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert problem["type"] == f"urn:whence:error:{code}"
        assert problem["title"]
        assert problem["detail"] not in {"", problem["title"]}


def test_metrics_count_requests_and_events_by_route_and_outcome(admin: httpx.Client, anyone: httpx.Client) -> None:
    admin.get("/v1/events")
    admin.get("/v1/events/00000000-0000-4000-8000-000000000000")
    text = anyone.get("/metrics").text
    assert re.search(r'whence_http_requests_total\{method="GET",route="/v1/events",status="200"\} \d', text)
    assert "00000000-0000-4000" not in text
    assert "whence_append_group_events_bucket" in text


def test_the_description_names_every_route_and_what_it_needs(anyone: httpx.Client) -> None:
    document = anyone.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    described = {(method.upper(), path) for path, operations in document["paths"].items() for method in operations}
    routes = {
        (method, re.sub(r"\{(\w+):\w+\}", r"{\1}", path))
        for route in ROUTES
        if route.include_in_schema is not False
        for path in route.paths
        for method in route.http_methods
    }
    assert described == routes
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"]
            keys = [{"key": []}, {}] if (method.upper(), path) in KEY_IN_BODY else [{"key": []}]
            assert operation["security"] == ([] if path in PUBLIC_PATHS else keys)
            if path not in PUBLIC_PATHS:
                assert "401" in operation["responses"]
    assert document["paths"]["/v1/events"]["post"]["requestBody"]
    assert set(document["components"]["schemas"]["Event"]["required"]) == {
        "event_id",
        "event_type",
        "occurred_at",
        "session_id",
        "trace_id",
    }
    assert_references_resolve(document, document)


def assert_references_resolve(document: object, part: object) -> None:
    if isinstance(part, dict):
        if "$ref" in part:
            target: object = document
            for step in part["$ref"].removeprefix("#/").split("/"):
                assert isinstance(target, dict)
                assert step in target, part["$ref"]
                target = target[step]
        for value in part.values():
            assert_references_resolve(document, value)
    elif isinstance(part, list):
        for value in part:
            assert_references_resolve(document, value)
