"""The memory gateway over HTTP: users, and the messages of their chats added, read, searched, put right and deleted.

A key comes as a bearer token, as everywhere, or in the body with the id of its user.
"""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, post
from msgspec import Meta

from whence.app import App
from whence.chats import MAX_MESSAGES, MAX_RESULTS, Chat
from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp
from whence.gateway.keys import holder
from whence.gateway.memories import administrator
from whence.identity import Principal, check_user_id
from whence.memory.partitions import DEFAULT_PART, agent_of
from whence.memory.writing import refused
from whence.wire import (
    Added,
    AwareTime,
    Deleted,
    Flushed,
    Message,
    Overridden,
    Searched,
    SearchScope,
    UserMade,
)


class AddUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user_id: str


class _Keyed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What all of these calls take: who is asking, and for which partition."""

    user_id: str | None = None
    user_key: str | None = None
    app_id: str = DEFAULT_PART
    project_id: str = DEFAULT_PART


class AddMessages(_Keyed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    session_id: str
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MAX_MESSAGES)]


class FlushChat(_Keyed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    session_id: str


class SearchMemories(_Keyed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    query: str
    scope: Annotated[list[SearchScope], Meta(min_length=1)]
    top_k: Annotated[int, Meta(ge=1, le=MAX_RESULTS)] = 10
    conversation_id: str | None = None
    as_of: AwareTime | None = None


class OverrideMemory(_Keyed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: UUID
    session_id: str
    text: str


class DeleteMemory(_Keyed, frozen=True, forbid_unknown_fields=True, kw_only=True):
    id: UUID
    session_id: str


@post("/users", status_code=201, summary="Make a user, whose key is shown this once")
async def add_user(request: Caller, app: TheApp) -> Response[UserMade]:
    """A user who is there already is answered with 200 and no key."""
    principal = administrator(request.user)
    asked = await read_as(request, app.settings.max_body_bytes, AddUser)
    key, since = await app.identity.ensure_user(principal.workspace_id, asked.user_id)
    return Response(UserMade(asked.user_id, key, since), status_code=200 if key is None else 201)


@post("/memories/add", status_code=200, summary="Add 1 to 500 messages of a chat")
async def add_messages(request: Caller, app: TheApp) -> Added:
    """All of them are stored or none, and found from then on. One that was added before is stored once."""
    asked = await read_as(request, app.settings.max_body_bytes, AddMessages)
    return await app.chats.add(await _chat(request, app, asked, asked.session_id), asked.messages)


@post("/memories/flush", status_code=200, summary="Draw from a chat what it taught since the last time")
async def flush_chat(request: Caller, app: TheApp) -> Flushed:
    """Facts and preferences, each with the words that say so. To flush again changes nothing."""
    asked = await read_as(request, app.settings.max_body_bytes, FlushChat)
    return await app.chats.flush(await _chat(request, app, asked, asked.session_id))


@post("/memories/search", status_code=200, summary="Search what a user said and stored")
async def search_memories(request: Caller, app: TheApp) -> Searched:
    """One ranking over all that the scopes name together."""
    asked = await read_as(request, app.settings.max_body_bytes, SearchMemories)
    principal = _user_of(await holder(request, app, asked.user_id, asked.user_key), asked)
    agent = agent_of(asked.app_id, asked.project_id)
    return await app.chats.search(
        principal, agent, asked.query, asked.scope, asked.conversation_id, asked.top_k, asked.as_of
    )


@post("/memories/override", status_code=200, summary="Put another text in the place of a memory")
async def override_memory(request: Caller, app: TheApp) -> Overridden:
    """The old one is no longer found, and stays in the history of the new one."""
    asked = await read_as(request, app.settings.max_body_bytes, OverrideMemory)
    chat = await _chat(request, app, asked, asked.session_id)
    return await app.chats.override(chat, asked.id, asked.text)


@post("/memories/delete", status_code=200, summary="Delete a memory")
async def delete_memory(request: Caller, app: TheApp) -> Deleted:
    """It is no longer found, nor are facts that only it taught. The erasure of a person is another call."""
    asked = await read_as(request, app.settings.max_body_bytes, DeleteMemory)
    return await app.chats.delete(await _chat(request, app, asked, asked.session_id), asked.id)


async def _chat(request: Caller, app: App, asked: _Keyed, session_id: str) -> Chat:
    sender = await holder(request, app, asked.user_id, asked.user_key)
    return Chat(_user_of(sender, asked), agent_of(asked.app_id, asked.project_id), session_id, teller=sender)


def _user_of(sender: Principal, asked: _Keyed) -> Principal:
    """Whose chats are meant."""
    if not sender.is_admin:
        if asked.user_id not in (None, sender.user_id):
            raise refused("user_id", "must be left out or be the user whose key this is")
        return sender
    # An administrator acts for somebody, as elsewhere.
    if asked.user_id is None:
        raise refused("user_id", "is needed: an administrator acts for a user")
    check_user_id(asked.user_id)
    return Principal(sender.workspace_id, asked.user_id, is_admin=False)
