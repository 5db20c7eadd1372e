"""Conversations over HTTP: start, list, read, say, delete; and broadcasts, which administrators publish."""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromPath, QueryParameter

from whence.conversations import MAX_CONVERSATION_MESSAGES, MAX_PAGE_CONVERSATIONS, MAX_PAGE_MESSAGES
from whence.gateway.body import read_as
from whence.gateway.events import Caller, TheApp
from whence.gateway.memories import Before, administrator
from whence.wire import ConversationPage, ConversationRead, ConversationState, NewMessage, Posted


class StartConversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    title: str | None = None
    messages: tuple[NewMessage, ...] = ()
    conversation_id: UUID | None = None


class PublishBroadcast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages: tuple[NewMessage, ...]
    title: str | None = None


@post("/v1/conversations", status_code=201, summary="Start a private conversation")
async def start_conversation(request: Caller, app: TheApp) -> ConversationRead:
    """The same sent again with its `conversation_id` is the one that is there."""
    asked = await read_as(request, app.settings.max_body_bytes, StartConversation)
    return await app.conversations.start(request.user, asked.title, asked.messages, asked.conversation_id)


@get("/v1/conversations", summary="One's own conversations and the broadcasts, the newest first")
async def list_conversations(
    request: Caller,
    app: TheApp,
    wanted: Annotated[ConversationState | None, QueryParameter(name="state", description="Only those.")] = None,
    before: Before = None,
    limit: Annotated[
        int, QueryParameter(ge=1, le=MAX_PAGE_CONVERSATIONS, description="At most so many.")
    ] = MAX_PAGE_CONVERSATIONS,
) -> ConversationPage:
    return await app.conversations.page(request.user, wanted, before, limit)


@get("/v1/conversations/{conversation_id:uuid}", summary="A conversation and what was said in it")
async def get_conversation(
    request: Caller,
    app: TheApp,
    conversation_id: FromPath[UUID],
    after: Annotated[
        int, QueryParameter(ge=0, le=MAX_CONVERSATION_MESSAGES, description="Only messages past this place.")
    ] = 0,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_MESSAGES, description="At most so many messages.")] = 100,
) -> ConversationRead:
    return await app.conversations.read(request.user, conversation_id, after, limit)


@delete("/v1/conversations/{conversation_id:uuid}", status_code=204, summary="Delete a conversation")
async def delete_conversation(request: Caller, app: TheApp, conversation_id: FromPath[UUID]) -> None:
    """Nobody finds it from then on; what was said in it goes after a grace. A broadcast cannot be deleted."""
    await app.conversations.delete(request.user, conversation_id)


@post("/v1/conversations/{conversation_id:uuid}/messages", status_code=201, summary="Say something in a conversation")
async def post_message(request: Caller, app: TheApp, conversation_id: FromPath[UUID]) -> Posted:
    """A reply to a broadcast is said in one's own fork of it, which the first reply makes: the answer is the fork. The
    same sent again with its `message_id` is stored once."""
    message = await read_as(request, app.settings.max_body_bytes, NewMessage)
    return await app.conversations.post(request.user, conversation_id, message)


@put("/v1/broadcasts/{key:str}", status_code=201, summary="Publish a broadcast: 201, or 200 for a key that is taken")
async def publish_broadcast(request: Caller, app: TheApp, key: FromPath[str]) -> Response[ConversationRead]:
    """What was published under the key before stays as it is, and is the answer."""
    principal = administrator(request.user)
    asked = await read_as(request, app.settings.max_body_bytes, PublishBroadcast)
    found, is_new = await app.conversations.publish(principal, key, asked.messages, asked.title)
    return Response(found, status_code=201 if is_new else 200)
