"""`whence conversations`: what users talk about, for those who may see it."""

from typing import Annotated
from uuid import UUID

import typer

from whence.cli.command import AsUser, Before, command
from whence.cli.terminal import (
    Pair,
    print_fields,
    print_json,
    print_pairs,
    print_plain,
    shown,
    shown_lines,
    to_minute,
    to_second,
)
from whence.conversations import MAX_CONVERSATION_MESSAGES, MAX_PAGE_CONVERSATIONS, MAX_PAGE_MESSAGES
from whence.wire import Conversation, ConversationState

conversations = typer.Typer(no_args_is_help=True, help="Conversations: private ones, broadcasts, and replies to them.")


@command(conversations, "list")
async def list_conversations(
    call: AsUser,
    state: Annotated[ConversationState | None, typer.Option(help="Only those.")] = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE_CONVERSATIONS, help="At most so many.")] = 20,
) -> None:
    """A user's own conversations and the broadcasts, the newest first."""
    page = await call.app.conversations.page(await call.principal(), state, before, limit)
    if call.as_json:
        print_json(page)
        return
    if page.conversations:
        print_pairs(("conversation", "title"), map(_pair, page.conversations))
    else:
        print_plain("there are no conversations")
    if page.next is not None:
        print_plain(f"more: --before {page.next}")


def _pair(one: Conversation) -> Pair:
    what = f"broadcast {one.key}" if one.key else one.state
    said = f"{what}, {one.message_count:,} message{'' if one.message_count == 1 else 's'}"
    return Pair(str(one.conversation_id), one.title or "", f"{to_minute(one.active_at)} {one.user_id or ''}", said)


@command(conversations, "show")
async def show(
    call: AsUser,
    conversation: Annotated[UUID, typer.Argument(metavar="ID", help="The id of a conversation.")],
    after: Annotated[
        int, typer.Option(min=0, max=MAX_CONVERSATION_MESSAGES, help="Only messages past this place.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE_MESSAGES, help="At most so many messages.")] = 100,
) -> None:
    """A conversation and what was said in it."""
    found = await call.app.conversations.read(await call.principal(), conversation, after, limit)
    if call.as_json:
        print_json(found)
        return
    print_fields(
        ("conversation", found.conversation_id),
        ("state", found.state),
        ("title", found.title),
        ("user", found.user_id),
        ("key", found.key),
        ("forked from", found.forked_from),
        ("started", to_second(found.started_at)),
        ("messages", f"{found.message_count:,}"),
    )
    for message in found.messages:
        copied = " (broadcast)" if message.is_copy else ""
        print_plain(f"\n{message.place}  {shown(message.role)}{copied}  {to_second(message.recorded_at)}")
        print_plain(shown_lines(message.content))
    if found.next is not None:
        print_plain(f"\nmore: --after {found.next}")
