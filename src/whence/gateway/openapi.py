"""The OpenAPI document: what Litestar finds in the routes, and what those that read their own bodies do not tell it."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from whence import __version__
from whence.gateway.boundary import PUBLIC_PATHS
from whence.gateway.graph import ContextRequest
from whence.gateway.problems import PROBLEM_JSON, Problem
from whence.gateway.working import WorkingRequest
from whence.wire import Event

Document = dict[str, Any]


def _body_of(struct: type[msgspec.Struct]) -> Document:
    schema = {"$ref": f"#/components/schemas/{struct.__name__}"}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


_BINARY = {"type": "string", "format": "binary"}
_OTLP_BODY: Document = {
    "required": True,
    "content": {
        "application/x-protobuf": {"schema": _BINARY},
        "application/json": {"schema": {"type": "object"}},
    },
}
_REQUEST_BODIES: dict[str, Document] = {
    "/v1/events": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {"$ref": "#/components/schemas/Event"},
                        {
                            "type": "object",
                            "required": ["events"],
                            "additionalProperties": False,
                            "properties": {
                                "events": {
                                    "type": "array",
                                    "minItems": 1,
                                    "maxItems": 1000,
                                    "items": {"$ref": "#/components/schemas/Event"},
                                }
                            },
                        },
                    ]
                }
            }
        },
    },
    "/v1/context": _body_of(ContextRequest),
    "/v1/working/{agent}/{instance}/{key}": _body_of(WorkingRequest),
    "/v1/traces": _OTLP_BODY,
    "/v1/logs": _OTLP_BODY,
}
_WITH_BODIES = (Event, ContextRequest, WorkingRequest)
# What the routes that write their own answers give back.
_ANSWERS: dict[str, Document] = {
    "/v1/events/{event_id}/payload": {"application/json": {"schema": {}}},
    "/v1/events/stream": {"text/event-stream": {"schema": {"type": "string"}}},
    "/v1/traces": _OTLP_BODY["content"],
    "/v1/logs": _OTLP_BODY["content"],
    "/metrics": {"text/plain": {"schema": {"type": "string"}}},
}
_PROBLEMS = {
    "400": "The body is malformed",
    "401": "No valid key",
    "404": "Missing, or somebody else's",
    "409": "Stored earlier with other content; of a proof, not sealed yet",
    "413": "Too large",
    "415": "A content type or encoding that is not known",
    "422": "Invalid; `errors` names the fields",
    "503": "Try again later",
}
# Routes whose parameters name something that may not be there.
_NAMED_BY_QUERY = frozenset({"/v1/seals/consistency"})
# Routes that answer with an empty list where nothing is there.
_LISTS = frozenset({"/v1/working/{agent}/{instance}"})


@cache
def document(routes: Sequence[HTTPRouteHandler]) -> Document:
    config = OpenAPIConfig(
        title="Whence",
        version=__version__,
        description="Memory for AI agents that knows where it came from.",
        use_handler_docstrings=True,
        components=Components(security_schemes={"key": SecurityScheme(type="http", scheme="bearer")}),
    )
    # Litestar describes an application; this one is never called, so what its routes depend on can be anything.
    stand_ins = {"app": Provide(_nothing), "registry": Provide(_no_registry)}
    found = Litestar(list(routes), openapi_config=config, dependencies=stand_ins, logging_config=None)
    schema: Document = found.openapi_schema.to_schema()
    _, ours = msgspec.json.schema_components([*_WITH_BODIES, Problem], ref_template="#/components/schemas/{name}")
    schema["components"]["schemas"] |= ours
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return schema


async def _nothing() -> None: ...


async def _no_registry() -> None: ...


def _complete(path: str, method: str, operation: Document) -> None:
    if method in ("post", "put") and path in _REQUEST_BODIES:
        operation["requestBody"] = _REQUEST_BODIES[path]
    if path in _ANSWERS:
        operation["responses"]["200"]["content"] = _ANSWERS[path]
    operation["security"] = [] if path in PUBLIC_PATHS else [{"key": []}]
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    statuses = _statuses(path, method)
    for status in statuses:
        operation["responses"][status] = {"description": _PROBLEMS[status], "content": content}
    if "400" not in statuses:
        # Litestar assumes 400 for bad parameters; ours are 422, as in every other answer.
        operation["responses"].pop("400", None)


def _statuses(path: str, method: str) -> list[str]:
    if path in PUBLIC_PATHS:
        return ["503"] if path == "/health/ready" else []
    if method == "post":
        return ["400", "401", "409", "413", "415", "422", "503"]
    if method == "put":
        return ["400", "401", "413", "415", "422", "503"]
    if path in _LISTS:
        return ["401", "422", "503"]
    if path.endswith("/proof"):
        return ["401", "404", "409", "422", "503"]
    return ["401", "404", "422", "503"] if "{" in path or path in _NAMED_BY_QUERY else ["401", "422", "503"]
