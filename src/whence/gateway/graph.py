"""The context graph over HTTP. Every answer is an atlas: nodes with where they came from, and why they are here."""

from typing import Annotated, Literal
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, QueryParameter

from whence.gateway.body import decode_as, read_body
from whence.gateway.events import Caller, TheApp
from whence.graph import Anchor, Bounds, Question
from whence.graph.bounds import (
    DEFAULT_DEPTH,
    DEFAULT_NODES,
    DEFAULT_TIMEOUT_MS,
    MAX_DEPTH,
    MAX_NODES,
    MAX_TIMEOUT_MS,
)
from whence.graph.prov import document
from whence.ledger.events import MAX_POSITION
from whence.wire import Atlas, Intent

MAX_CURSOR_CHARACTERS = 512

Depth = Annotated[int, QueryParameter(ge=1, le=MAX_DEPTH, description="At most so many steps away.")]
Nodes = Annotated[int, QueryParameter(ge=1, le=MAX_NODES, description="At most so many nodes in the answer.")]
Timeout = Annotated[int, QueryParameter(ge=1, le=MAX_TIMEOUT_MS, description="The database stops looking after this.")]
Continued = Annotated[
    str | None,
    QueryParameter(
        max_length=MAX_CURSOR_CHARACTERS, description="Where the last answer ended: its `pagination.cursor`."
    ),
]
WaitFor = Annotated[
    int | None,
    QueryParameter(ge=0, le=MAX_POSITION, description="Answer when the graph has come to this position."),
]
WithText = Annotated[bool, QueryParameter(description="Give each event a line of what its payload says.")]
Named = Annotated[str | None, QueryParameter(min_length=1, max_length=256)]


class ContextRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: str | None = None
    session_id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    intent: Intent | None = None
    max_depth: int = DEFAULT_DEPTH
    max_nodes: int = DEFAULT_NODES
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_tokens: int | None = None
    cursor: Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_CHARACTERS)] | None = None
    wait_for: int | None = None


@get("/v1/events/{event_id:uuid}/lineage", summary="What caused an event, or what came of it")
async def get_lineage(  # noqa: PLR0913, PLR0917 (parameters of a query)
    request: Caller,
    app: TheApp,
    event_id: FromPath[UUID],
    direction: Annotated[Literal["up", "down"], QueryParameter()] = "up",
    max_depth: Depth = DEFAULT_DEPTH,
    max_nodes: Nodes = DEFAULT_NODES,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    cursor: Continued = None,
    wait_for: WaitFor = None,
    text: WithText = False,
) -> Atlas:
    bounds = Bounds(max_depth, max_nodes, timeout_ms)
    return await app.graph.lineage(request.user.scope, event_id, direction, bounds, cursor, wait_for, text)


@get("/v1/subgraph", summary="Everything around an event, or in a session or a trace")
async def get_subgraph(  # noqa: PLR0913, PLR0917
    request: Caller,
    app: TheApp,
    event_id: Annotated[UUID | None, QueryParameter()] = None,
    session_id: Named = None,
    trace_id: Named = None,
    max_depth: Depth = DEFAULT_DEPTH,
    max_nodes: Nodes = DEFAULT_NODES,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    cursor: Continued = None,
    wait_for: WaitFor = None,
    text: WithText = False,
) -> Atlas:
    anchor, bounds = Anchor(event_id, session_id, trace_id), Bounds(max_depth, max_nodes, timeout_ms)
    return await app.graph.subgraph(request.user.scope, anchor, bounds, cursor, wait_for, text)


@post("/v1/context", status_code=200, summary="What bears on a question or a session")
async def get_context(request: Caller, app: TheApp) -> Atlas:
    """The most relevant nodes first, by the intent that is named or that the question shows."""
    asked = decode_as(await read_body(request, app.settings.max_body_bytes), ContextRequest)
    question = Question(asked.query, asked.session_id, asked.intent, asked.max_tokens)
    bounds = Bounds(asked.max_depth, asked.max_nodes, asked.timeout_ms)
    return await app.graph.context(request.user.scope, question, bounds, asked.cursor, asked.wait_for)


@get("/v1/prov", summary="The provenance of an event, a session or a trace as W3C PROV-JSON")
async def get_prov(  # noqa: PLR0913, PLR0917
    request: Caller,
    app: TheApp,
    event_id: Annotated[UUID | None, QueryParameter()] = None,
    session_id: Named = None,
    trace_id: Named = None,
    max_depth: Depth = MAX_DEPTH,
    max_nodes: Nodes = MAX_NODES,
    timeout_ms: Timeout = DEFAULT_TIMEOUT_MS,
    cursor: Continued = None,
    wait_for: WaitFor = None,
) -> Response[bytes]:
    """A document has no place for a cursor: where more follows, the answer has a `Link` header with `rel="next"`."""
    anchor, bounds = Anchor(event_id, session_id, trace_id), Bounds(max_depth, max_nodes, timeout_ms)
    atlas = await app.graph.subgraph(request.user.scope, anchor, bounds, cursor, wait_for)
    headers = {"X-Truncated": "true"} if atlas.meta.truncated else {}
    if atlas.pagination.cursor is not None:
        asked = {name: value for name, value in request.query_params.items() if name != "cursor"}
        query = urlencode({**asked, "cursor": atlas.pagination.cursor})
        headers["Link"] = f'</v1/prov?{query}>; rel="next"'
    content = document(atlas, request.user.workspace_id)
    return Response(content, media_type="application/json", headers=headers)
