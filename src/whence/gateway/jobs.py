"""Jobs over HTTP: what an administrator sees of those of the own workspace."""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from whence.gateway.events import Caller, TheApp
from whence.gateway.memories import administrator
from whence.queue import LAST_JOB_ID, MAX_PAGE_JOBS
from whence.wire import JobPage

Failed = Annotated[bool, QueryParameter(description="Only jobs that have failed for good.")]
Before = Annotated[int, QueryParameter(ge=1, le=LAST_JOB_ID, description="Only jobs that were queued before this one.")]
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_JOBS, description="At most so many jobs.")]


@get("/v1/jobs", summary="The jobs of the workspace, newest first; for administrators")
async def list_jobs(
    request: Caller, app: TheApp, failed: Failed = False, before: Before = LAST_JOB_ID, limit: Limit = 100
) -> JobPage:
    return await app.queue.page(administrator(request.user).scope, failed, before, limit)
