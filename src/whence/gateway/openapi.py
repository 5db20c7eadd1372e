"""The OpenAPI document: what Litestar finds in the routes, and what those that read their own bodies do not tell it."""

import re
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
from whence.gateway import (
    chats,
    conversations,
    erasures,
    graph,
    lifecycle,
    memories,
    resources,
    sessions,
    workflows,
    working,
)
from whence.gateway.boundary import KEY_IN_BODY, PUBLIC_PATHS
from whence.gateway.forms import FILE, FORM
from whence.gateway.problems import PROBLEM_JSON
from whence.ledger.events import MAX_BATCH_EVENTS
from whence.memory import MAX_BATCH_MEMORIES
from whence.wire import Assemble, Event, Feedback, ItemsRequest, NewMessage, Problem, Recall, Remember

Document = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"

_BINARY = {"type": "string", "format": "binary"}
_OTLP_BODY: Document = {
    "required": True,
    "content": {
        "application/x-protobuf": {"schema": _BINARY},
        "application/json": {"schema": {"type": "object"}},
    },
}
_FORM_BODY: Document = {
    "required": True,
    "content": {
        FORM: {
            "schema": {
                "type": "object",
                "required": [FILE],
                "properties": {FILE: _BINARY, **{name: {"type": "string"} for name in sorted(resources.FIELDS)}},
                "additionalProperties": False,
            }
        }
    },
}
# What the routes that read their own bodies take: one of these, or a batch of them under a name.
_BODIES: dict[tuple[str, str], type] = {
    ("post", "/v1/events"): Event,
    ("post", "/v1/context"): graph.ContextRequest,
    ("post", "/v1/memories"): Remember,
    ("post", "/v1/recall"): Recall,
    ("post", "/v1/recalls/{recall_id}/feedback"): Feedback,
    ("post", "/v1/assemble"): Assemble,
    ("post", "/v1/items"): ItemsRequest,
    ("post", "/v1/runs"): memories.StartRun,
    ("post", "/v1/runs/{run_id}/episodes"): memories.Episode,
    ("post", "/v1/runs/{run_id}/complete"): memories.Output,
    ("post", "/v1/runs/{run_id}/fail"): memories.Failure,
    ("put", "/v1/canon/{world_id}/{rule_id}"): memories.Rule,
    ("post", "/v1/sessions/{session_id}/close"): sessions.CloseSession,
    ("post", "/v1/actions"): lifecycle.RecordAction,
    ("post", "/v1/workflows"): workflows.AddWorkflow,
    ("post", "/v1/workflows/select"): workflows.SelectWorkflow,
    ("post", "/v1/workflows/outcomes"): workflows.ScoreWorkflow,
    ("put", "/v1/working/{agent}/{instance}/{key}"): working.WorkingRequest,
    ("post", "/v1/conversations"): conversations.StartConversation,
    ("post", "/v1/conversations/{conversation_id}/messages"): NewMessage,
    ("put", "/v1/broadcasts/{key}"): conversations.PublishBroadcast,
    ("post", "/v1/erasures"): erasures.Erase,
    ("post", "/users"): chats.AddUser,
    ("post", "/memories/add"): chats.AddMessages,
    ("post", "/memories/flush"): chats.FlushChat,
    ("post", "/memories/search"): chats.SearchMemories,
    ("post", "/memories/override"): chats.OverrideMemory,
    ("post", "/memories/delete"): chats.DeleteMemory,
}
_BATCHES = {"/v1/events": ("events", MAX_BATCH_EVENTS), "/v1/memories": ("memories", MAX_BATCH_MEMORIES)}
_OTLP_BODIES = frozenset({"/v1/traces", "/v1/logs"})
# What the routes that write their own answers give back.
_ANSWERS: dict[str, Document] = {
    "/v1/events/{event_id}/payload": {"application/json": {"schema": {}}},
    "/v1/events/stream": {"text/event-stream": {"schema": {"type": "string"}}},
    "/v1/subjects/{subject_id}/export": {"application/zip": {"schema": _BINARY}},
    "/v1/traces": _OTLP_BODY["content"],
    "/v1/logs": _OTLP_BODY["content"],
    "/metrics": {"text/plain": {"schema": {"type": "string"}}},
}
_PROBLEMS = {
    "400": "The body is malformed",
    "401": "No valid key",
    "403": "The key is valid, and not for this",
    "404": "Missing, or somebody else's",
    "409": "Stored earlier with other content; of a proof, not sealed yet",
    "413": "Too large",
    "415": "A content type or encoding that is not known",
    "422": "Invalid; `errors` names the fields",
    "429": "More requests than a minute allows",
    "503": "Try again later",
}
# Routes whose parameters or bodies name something that may not be there.
_NAMED_BESIDE = frozenset(
    {
        "/v1/prov",
        "/v1/subgraph",
        "/v1/seals/consistency",
        "/v1/workflows/select",
        "/v1/workflows/outcomes",
        "/v1/erasures",
        "/memories/override",
        "/memories/delete",
    }
)
# Routes that answer with an empty list where nothing is there.
_LISTS = frozenset(
    {
        "/v1/working/{agent}/{instance}",
        "/v1/agents/{agent}/runs",
        "/v1/agents/{agent}/episodes",
        "/v1/canon/{world_id}",
    }
)
# Routes that make what their path names.
_MADE_BY = frozenset(
    {
        ("put", "/v1/working/{agent}/{instance}/{key}"),
        ("put", "/v1/canon/{world_id}/{rule_id}"),
        ("put", "/v1/broadcasts/{key}"),
    }
)
# Routes that are for administrators, or for some things are.
_FOR_ADMINISTRATORS = frozenset(
    {
        "/v1/canon/{world_id}/{rule_id}",
        "/v1/runs/{run_id}/complete",
        "/v1/runs/{run_id}/fail",
        "/v1/workflows/{workflow_id}",
        "/v1/broadcasts/{key}",
        "/v1/erasures",
        "/v1/erasures/{erasure_id}",
        "/v1/subjects/{subject_id}/export",
        "/users",
    }
)
_CONFLICTS = re.compile(
    r"/memories/(add|override)|/v1/(events|items|memories|workflows|workflows/outcomes|runs/\{run_id\}/.+)|.+/proof"
    r"|/v1/conversations(/\{conversation_id\}/messages)?"
)


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
    _, ours = msgspec.json.schema_components([*_BODIES.values(), Problem], ref_template=_REFERENCE)
    schema["components"]["schemas"] |= ours
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return schema


async def _nothing() -> None: ...


async def _no_registry() -> None: ...


def _complete(path: str, method: str, operation: Document) -> None:
    if (method, path) == ("post", "/resources"):
        operation["requestBody"] = _FORM_BODY
        # Of a document that is there already.
        operation["responses"]["200"] = operation["responses"]["201"]
    elif path in _OTLP_BODIES:
        operation["requestBody"] = _OTLP_BODY
    elif (method, path) in _BODIES:
        operation["requestBody"] = _body(path, _BODIES[method, path])
    if path in _ANSWERS:
        operation["responses"]["200"]["content"] = _ANSWERS[path]
    # An empty one stands for none: then the key is in the body.
    operation["security"] = (
        [] if path in PUBLIC_PATHS else [{"key": []}, *([{}] if (method.upper(), path) in KEY_IN_BODY else [])]
    )
    if path == "/v1/broadcasts/{key}":
        operation["responses"]["200"] = {**operation["responses"]["201"], "description": "The key was taken already"}
    if path == "/users":
        operation["responses"]["200"] = {**operation["responses"]["201"], "description": "The user was there already"}
    content = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    statuses = _statuses(path, method)
    for status in statuses:
        operation["responses"][status] = {"description": _PROBLEMS[status], "content": content}
    if "400" not in statuses:
        # Litestar assumes 400 for bad parameters; ours are 422, as in every other answer.
        operation["responses"].pop("400", None)


def _body(path: str, kind: type) -> Document:
    schema: Document = {"$ref": _REFERENCE.format(name=kind.__name__)}
    if path in _BATCHES:
        name, most = _BATCHES[path]
        batch: Document = {
            "type": "object",
            "required": [name],
            "additionalProperties": False,
            "properties": {name: {"type": "array", "minItems": 1, "maxItems": most, "items": schema}},
        }
        schema = {"anyOf": [schema, batch]}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _statuses(path: str, method: str) -> list[str]:
    if path in PUBLIC_PATHS:
        return ["503"] if path == "/health/ready" else []
    found = ["401", "422", "429", "503"]
    if method in ("post", "put"):
        found += ["400", "413", "415"]
    if (method == "post" or path.endswith("/proof")) and _CONFLICTS.fullmatch(path):
        found.append("409")
    if ("{" in path and path not in _LISTS and (method, path) not in _MADE_BY) or path in _NAMED_BESIDE:
        found.append("404")
    # A broadcast cannot be deleted.
    if path in _FOR_ADMINISTRATORS or (method, path) == ("delete", "/v1/conversations/{conversation_id}"):
        found.append("403")
    return found
