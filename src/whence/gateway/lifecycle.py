"""The lifecycle over HTTP: actions, and how long a memory is kept."""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.params import FromPath, QueryParameter

from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp, Wanted
from whence.gateway.memories import Before
from whence.lifecycle.actions import MAX_PAGE_ACTIONS
from whence.wire import Action, ActionPage, MemoryRetention


class RecordAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    cites: tuple[UUID, ...]
    action_id: UUID | None = None


@post("/v1/actions", status_code=201, summary="Record an act that holds what it cites")
async def record_action(request: Caller, app: TheApp) -> Action:
    """The same sent again with its `action_id` is the one that is there."""
    asked = await read_as(request, app.settings.max_body_bytes, RecordAction)
    return await app.actions.record(request.user, asked.kind, asked.cites, asked.action_id)


@get("/v1/actions", summary="Actions, the newest first")
async def list_actions(
    request: Caller,
    app: TheApp,
    kind: Wanted = None,
    cites: Annotated[UUID | None, QueryParameter(description="Only those that cite this event or memory.")] = None,
    before: Before = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_ACTIONS, description="At most so many.")] = MAX_PAGE_ACTIONS,
) -> ActionPage:
    return await app.actions.page(request.user.scope, kind, cites, before, limit)


@get("/v1/actions/{action_id:uuid}", summary="One action")
async def get_action(request: Caller, app: TheApp, action_id: FromPath[UUID]) -> Action:
    return await app.actions.get(request.user.scope, action_id)


@get("/v1/memories/{memory_id:uuid}/retention", summary="How long a memory is kept, and what keeps it")
async def get_retention(request: Caller, app: TheApp, memory_id: FromPath[UUID]) -> MemoryRetention:
    return await app.retention.of(request.user.scope, memory_id)
