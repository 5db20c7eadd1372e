"""Sessions over HTTP: what is open, and closing one."""

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import FromPath, QueryParameter

from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp
from whence.gateway.memories import Before
from whence.lifecycle.sessions import MAX_PAGE_SESSIONS
from whence.wire import SessionClosed, SessionPage


class CloseSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: str | None = None
    """Only the session with this agent."""


@get("/v1/sessions", summary="Sessions, the newest first")
async def list_sessions(
    request: Caller,
    app: TheApp,
    wanted: Annotated[Literal["open", "closed"] | None, QueryParameter(name="state", description="Only those.")] = None,
    before: Before = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_SESSIONS, description="At most so many.")] = 100,
) -> SessionPage:
    return await app.sessions.page(request.user.scope, wanted, before, limit)


@post("/v1/sessions/{session_id:str}/close", status_code=200, summary="Close a session")
async def close_session(request: Caller, app: TheApp, session_id: FromPath[str]) -> SessionClosed:
    """What was learnt in it is kept, its episodes are archived, the rest goes; the answer says what became of each row.
    A session that is closed already is reported as it was."""
    asked = await read_as(request, app.settings.max_body_bytes, CloseSession)
    return SessionClosed(session_id, await app.sessions.close(request.user, session_id, asked.agent))
