"""Recall over HTTP: ask, look at what was recalled, say what it was worth; and assembly before a turn."""

from uuid import UUID

from litestar import get, post
from litestar.params import FromPath

from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp
from whence.wire import Assemble, Assembled, Feedback, FeedbackKept, Recall, Recalled, RecallRecord


@post("/v1/recall", status_code=200, summary="Recall what answers a question, and keep that it was recalled")
async def recall(request: Caller, app: TheApp) -> Recalled:
    """Without a query, what held, the newest first. The event of a recall is stored right behind the answer."""
    return await app.recaller.recall(request.user, await read_as(request, app.settings.max_body_bytes, Recall))


@get("/v1/recalls/{recall_id:uuid}", summary="A recall: what was asked, what came out, and why")
async def get_recall(request: Caller, app: TheApp, recall_id: FromPath[UUID]) -> RecallRecord:
    return await app.recaller.recalled(request.user.scope, recall_id)


@post("/v1/recalls/{recall_id:uuid}/feedback", status_code=200, summary="Say which hits helped")
async def give_feedback(request: Caller, app: TheApp, recall_id: FromPath[UUID]) -> FeedbackKept:
    """Hits that helped gain importance, the others lose some."""
    given = await read_as(request, app.settings.max_body_bytes, Feedback)
    return await app.recaller.feedback(request.user, recall_id, given)


@post("/v1/assemble", status_code=200, summary="What an agent needs before its turn")
async def assemble(request: Caller, app: TheApp) -> Assembled:
    """Working memory, a selected workflow, recalled memories and the last episodes, within a budget of tokens."""
    return await app.assembler.assemble(request.user, await read_as(request, app.settings.max_body_bytes, Assemble))
