"""Workflows over HTTP: add variants, select one, say how well it did."""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, QueryParameter

from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp, Wanted
from whence.gateway.memories import Before
from whence.memory.workflows import MAX_PAGE_WORKFLOWS
from whence.wire import Workflow, WorkflowOutcome, WorkflowPage, WorkflowSelection


class AddWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: str
    task_type: str
    name: str
    spec: Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]


class SelectWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: str
    task_type: str


class ScoreWorkflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    selection_id: UUID
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]


@post("/v1/workflows", status_code=201, summary="Add a variant of a workflow")
async def add_workflow(request: Caller, app: TheApp) -> Workflow:
    """The same variant sent again is the one that is there."""
    asked = await read_as(request, app.settings.max_body_bytes, AddWorkflow)
    return await app.workflows.add(request.user, asked.agent, asked.task_type, asked.name, bytes(asked.spec))


@get("/v1/workflows", summary="Variants and what is known of each, the newest first")
async def list_workflows(
    request: Caller,
    app: TheApp,
    agent: Wanted = None,
    task_type: Wanted = None,
    before: Before = None,
    limit: Annotated[
        int, QueryParameter(ge=1, le=MAX_PAGE_WORKFLOWS, description="At most so many.")
    ] = MAX_PAGE_WORKFLOWS,
) -> WorkflowPage:
    return await app.workflows.page(request.user.scope, agent, task_type, before, limit)


@delete("/v1/workflows/{workflow_id:uuid}", status_code=204, summary="Retire a variant")
async def retire_workflow(request: Caller, app: TheApp, workflow_id: FromPath[UUID]) -> None:
    """It is not selected any more, and stays readable."""
    await app.workflows.retire(request.user, workflow_id)


@post("/v1/workflows/select", status_code=200, summary="Select a variant by Thompson sampling")
async def select_workflow(request: Caller, app: TheApp) -> WorkflowSelection:
    asked = await read_as(request, app.settings.max_body_bytes, SelectWorkflow)
    return await app.workflows.select(request.user, asked.agent, asked.task_type)


@post("/v1/workflows/outcomes", status_code=200, summary="Say how well a selected variant did")
async def record_outcome(request: Caller, app: TheApp) -> WorkflowOutcome:
    """Counts once for each selection, however often it is sent."""
    asked = await read_as(request, app.settings.max_body_bytes, ScoreWorkflow)
    return await app.workflows.record_outcome(request.user, asked.selection_id, asked.score)
