"""Conversations: private ones, broadcasts that every member of a workspace reads, and forks that replies to them make.

Every message is an event, and its text stands in the payload alone. A conversation is seen by its owner and by nobody
else, an administrator included; a broadcast by every member. Something missing, deleted or another's looks the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5
from weakref import WeakValueDictionary

import msgspec
import psycopg

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict, Forbidden, NotFound, Unavailable
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.append import Outcome
from whence.ledger.effects import OwnEvent
from whence.ledger.events import MAX_POSITION, text_problem
from whence.ledger.payloads import WORKSPACE_SUBJECT
from whence.lifecycle.conversations import SESSION, ConversationPayload
from whence.memory.own import check_limit, check_names, not_stored, own_event
from whence.memory.writing import refused
from whence.wire import (
    Conversation,
    ConversationMessage,
    ConversationPage,
    ConversationRead,
    ConversationState,
    Event,
    MessageRole,
    NewMessage,
    Posted,
)

MAX_CONVERSATION_MESSAGES = 10_000
"""Stands in the table's default too."""
MAX_CONTENT_CHARACTERS = 100_000
MAX_TITLE_CHARACTERS = 200
MAX_FIRST_MESSAGES = 100
"""That a conversation or a broadcast begins with."""
MAX_PAGE_CONVERSATIONS = 100
MAX_PAGE_MESSAGES = 500
MAX_PAGE_BYTES = 41_943_040
"""Of what is said on one page, as it is stored; where there is more the page is shorter. Of a fork, of copies and of
replies each. What a conversation may begin with fits."""
MADE_AT_ONCE = 4
"""Workspaces in which conversations are made at a time, one in each; it holds a connection while it waits for the
head of its workspace."""

_SQL = load("whence.conversations")


class Row(NamedTuple):
    """A conversation as it is stored: without its title, which is sealed."""

    conversation_id: UUID
    state: ConversationState
    user_id: str | None
    key: str | None
    forked_from: UUID | None
    message_count: int
    started_at: datetime
    active_at: datetime
    position: int
    titled_at: int | None

    @property
    def is_title_shared(self) -> bool:
        return self.state != "private"


class Said(NamedTuple):
    """A message as it is stored."""

    message_id: UUID
    place: int
    role: MessageRole
    recorded_at: datetime
    position: int
    is_copy: bool
    conversation_id: UUID


class Conversations:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._turns = asyncio.Semaphore(MADE_AT_ONCE)
        # By workspace, as long as somebody is in one.
        self._queues = WeakValueDictionary[str, asyncio.Lock]()

    # --- look -------------------------------------------------------------------------------------------------------

    async def get(self, principal: Principal, conversation_id: UUID) -> Conversation:
        """Raises NotFound where there is none, where it was deleted, and where it is another's."""
        row = await self._row(principal, conversation_id)
        return _conversation(row, (await self._titles(principal, [row])).get(row.position))

    async def check(self, tx: Tx, principal: Principal, conversation_id: UUID) -> None:
        """The same without its title, in the caller's transaction, which is in the scope of the user or of the
        workspace."""
        await _found(tx, _scope(principal).values(conversation_id=conversation_id))

    async def read(
        self, principal: Principal, conversation_id: UUID, after: int = 0, limit: int = 100
    ) -> ConversationRead:
        """With the messages past the place `after`, in order. A page is shorter where its messages are long."""
        check_limit(limit, MAX_PAGE_MESSAGES)
        scope = _scope(principal)
        values = scope.values(conversation_id=conversation_id, after=after, limit=limit + 1)
        async with self._database.transaction(scope, snapshot=True) as tx:
            row = await _found(tx, values)
            found: list[Any] = await (await tx.execute(_SQL["messages_page"], values, binary=True)).fetchall()
        asked = [Said(*each) for each in found[:limit]]
        title = (await self._titles(principal, [row])).get(row.position)
        said, messages = await self._messages(principal, asked, is_shared=row.state == "broadcast")
        whole = msgspec.structs.asdict(_conversation(row, title))
        is_more = len(said) < len(found)
        return ConversationRead(**whole, messages=messages, next=said[-1].place if is_more else None)

    async def page(
        self,
        principal: Principal,
        state: ConversationState | None = None,
        before: int | None = None,
        limit: int = MAX_PAGE_CONVERSATIONS,
    ) -> ConversationPage:
        """The caller's own and the broadcasts, the newest first."""
        check_limit(limit, MAX_PAGE_CONVERSATIONS)
        scope = _scope(principal)
        values = scope.values(state=state, before=MAX_POSITION if before is None else before, limit=limit + 1)
        async with self._database.transaction(scope) as tx:
            found: list[Any] = await (await tx.execute(_SQL["conversations_page"], values, binary=True)).fetchall()
        rows = [Row(*each) for each in found[:limit]]
        titles = await self._titles(principal, rows)
        conversations = [_conversation(row, titles.get(row.position)) for row in rows]
        return ConversationPage(conversations, rows[-1].position if len(found) > limit else None)

    async def _row(self, principal: Principal, conversation_id: UUID) -> Row:
        scope = _scope(principal)
        async with self._database.transaction(scope) as tx:
            return await _found(tx, scope.values(conversation_id=conversation_id))

    async def _titles(self, principal: Principal, rows: Sequence[Row]) -> dict[int, str | None]:
        """By the position of the conversation."""
        places = {row.titled_at: row.is_title_shared for row in rows if row.titled_at is not None}
        payloads, _ = await self._payloads(principal, places)
        return {
            row.position: payloads[row.titled_at].title
            for row in rows
            if row.titled_at is not None and row.titled_at in payloads
        }

    async def _messages(
        self, principal: Principal, said: Sequence[Said], is_shared: bool = False
    ) -> tuple[Sequence[Said], list[ConversationMessage]]:
        """The first of these, as many as fit on a page, and of them those that can be opened: somebody may be erased
        meanwhile."""
        payloads, left = await self._payloads(principal, {each.position: is_shared or each.is_copy for each in said})
        # The first of all is never left.
        cut = next((number for number, each in enumerate(said) if each.position in left), len(said))
        return said[:cut], [
            _message(each, found.content)
            for each in said[:cut]
            for found in [payloads[each.position].message if each.position in payloads else None]
            if found is not None
        ]

    async def _payloads(
        self, principal: Principal, places: dict[int, bool]
    ) -> tuple[dict[int, ConversationPayload], set[int]]:
        """What stands at these positions, each with whether it is a broadcast's, which is nobody's and so not to be
        read in the scope of a user; and which are left because the others are long. That the caller may see it was said
        by the row that names the position."""
        found: dict[int, ConversationPayload] = {}
        left = set[int]()
        for is_shared, scope in ((False, _scope(principal)), (True, Scope(principal.workspace_id))):
            wanted = [place for place, shared in places.items() if shared == is_shared]
            if not wanted:
                continue
            async with self._database.transaction(scope) as tx:
                sealed = await self._ledger.contents(tx, scope, wanted, MAX_PAGE_BYTES)
            for content in await self._ledger.opened(scope, sealed):
                if content.body is not None:
                    found[content.position] = ConversationPayload.of(content.body)
            left |= {place for place in wanted if sealed and place > sealed[-1].position}
        return found, left

    # --- make -------------------------------------------------------------------------------------------------------

    async def start(
        self,
        principal: Principal,
        title: str | None = None,
        messages: Sequence[NewMessage] = (),
        conversation_id: UUID | None = None,
    ) -> ConversationRead:
        """A private one. The same sent again with its id is the one there is."""
        _check_beginning(title, messages)
        made = conversation_id or new_id()
        document = {"effect": "start_conversation", "user_id": principal.user_id}
        events = self._beginning("conversation.started", made, principal.user_id, document, title, messages)

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            ids = [own.event.event_id for own in events]
            return [] if await self._ledger.named(tx, Scope(principal.workspace_id), ids) else events

        is_new = bool(await self._make(principal.workspace_id, principal.user_id, make))
        try:
            found = await self.read(principal, made, limit=MAX_FIRST_MESSAGES)
        except NotFound:
            raise Conflict("conversation_id: an event with this id was stored earlier") from None
        if not is_new and not _begins_so(found, title, messages):
            raise Conflict("conversation_id: a conversation with this id was started earlier, in other words")
        return found

    async def publish(
        self, principal: Principal, key: str, messages: Sequence[NewMessage], title: str | None = None
    ) -> tuple[ConversationRead, bool]:
        """A broadcast, and whether it is new. What was published under the key before stays as it is."""
        if not principal.is_admin:
            raise Forbidden("this needs an administrator's key")
        check_names(key=key)
        _check_beginning(title, messages)
        if not messages:
            raise refused("messages", f"from 1 to {MAX_FIRST_MESSAGES}")
        made = new_id()
        document = {
            "effect": "publish_broadcast",
            "key": key,
            "messages": len(messages),
            "published_by": principal.user_id,
        }
        events = self._beginning("conversation.broadcast", made, None, document, title, messages)
        known: list[UUID] = []

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            values = {"workspace_id": principal.workspace_id, "key": key}
            row = await (await tx.execute(_SQL["broadcast_of_key"], values, binary=True)).fetchone()
            known[:] = [] if row is None else [row[0]]
            return events if row is None else []

        is_new = bool(await self._make(principal.workspace_id, None, make))
        return await self.read(principal, made if is_new else known[0], limit=MAX_FIRST_MESSAGES), is_new

    def _beginning(
        self,
        event_type: str,
        made: UUID,
        owner: str | None,
        document: dict[str, Any],
        title: str | None,
        messages: Sequence[NewMessage],
    ) -> list[OwnEvent]:
        event = _event(event_type, made, owner, made, self._clock)
        titled = {**document, "event_id": made, "titled": True if title else None}
        first = own_event(event, titled, {"title": title} if title else None)
        return [
            first,
            *(self._message(_first_id(made, place), made, owner, message) for place, message in enumerate(messages, 1)),
        ]

    def _message(self, event_id: UUID, conversation_id: UUID, owner: str | None, message: NewMessage) -> OwnEvent:
        event = _event("conversation.message_added", event_id, owner, conversation_id, self._clock, conversation_id)
        document = {
            "effect": "add_message",
            "event_id": event_id,
            "conversation_id": conversation_id,
            "user_id": owner,
            "role": message.role,
        }
        return own_event(event, document, {"message": {"role": message.role, "content": message.content}})

    async def _make(
        self, workspace_id: str, owner: str | None, make: Callable[[Tx], Awaitable[Sequence[OwnEvent]]]
    ) -> list[Outcome]:
        """What must be decided while nothing else is appended, and stored with it: all of it or nothing."""
        subject = owner or WORKSPACE_SUBJECT
        queue = self._queues.setdefault(workspace_id, asyncio.Lock())
        try:
            # They would wait for one another at the head anyway, and there keep those of other workspaces out.
            async with queue, self._turns:
                # Before the head is held: whoever holds it should not wait for a connection.
                await self._ledger.keys.ensure(workspace_id, {subject})
                return await self._ledger.record_together(workspace_id, make)
        except psycopg.IntegrityError as error:
            if error.diag.constraint_name == "conversations_room":
                raise refused("conversation_id", "has as many messages as it may have") from None
            if error.diag.constraint_name == "payloads_subject_key":
                raise Unavailable("the user was erased just now: try again") from error
            raise

    # --- say --------------------------------------------------------------------------------------------------------

    async def post(self, principal: Principal, conversation_id: UUID, message: NewMessage) -> Posted:
        """Returns after the commit. A reply to a broadcast stands in the caller's fork of it, which the first one
        makes. The same sent again with its id is stored once."""
        _check_message("", message)
        row = await self._target(principal, conversation_id)
        repeated = await self._repeated(principal, row, message)
        if repeated is not None:
            return repeated
        event_id = message.message_id or new_id()
        if event_id == row.conversation_id:
            raise Conflict("message_id: an event with this id was stored earlier")
        if row.state == "broadcast":
            outcome = await self._reply(principal, row, event_id, message)
        else:
            own = self._message(event_id, row.conversation_id, principal.user_id, message)
            [outcome] = await self._ledger.record(principal.workspace_id, [own])
        if outcome is not None and outcome.status == "accepted":
            posted = await self._posted(principal, event_id, message.content)
            if posted is None:
                raise _no_such()
            return posted
        if outcome is not None and outcome.status == "rejected":
            # Perhaps because it was deleted meanwhile.
            try:
                await self._row(principal, row.conversation_id)
            except NotFound:
                if row.conversation_id == conversation_id:
                    raise
                # It was a fork: its broadcast is still there, and the reply makes another.
                return await self.post(principal, conversation_id, message)
            raise not_stored(outcome)
        # Somebody has stored an event of this id meanwhile, perhaps this very message.
        repeated = await self._repeated(principal, await self._target(principal, conversation_id), message)
        if repeated is None:
            raise Conflict("message_id: an event with this id was stored earlier")
        return repeated

    async def _target(self, principal: Principal, conversation_id: UUID) -> Row:
        """Where a message goes: of a broadcast, the caller's fork; the broadcast itself where there is none yet."""
        scope = _scope(principal)
        values = scope.values(conversation_id=conversation_id)
        async with self._database.transaction(scope) as tx:
            row = await _found(tx, values)
            return row if row.state != "broadcast" else await _fork_of(tx, values) or row

    async def _reply(self, principal: Principal, broadcast: Row, event_id: UUID, message: NewMessage) -> Outcome | None:
        """With the fork, unless another reply has made it meanwhile. None where the event is stored already."""
        owner, fork_id = principal.user_id, new_id()
        values = _scope(principal).values(conversation_id=broadcast.conversation_id)

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            if await self._ledger.named(tx, Scope(principal.workspace_id), [event_id]):
                return []
            fork = await _fork_of(tx, values)
            if fork is not None:
                return [self._message(event_id, fork.conversation_id, owner, message)]
            event = _event("conversation.forked", fork_id, owner, fork_id, self._clock, broadcast.conversation_id)
            document = {
                "effect": "fork_conversation",
                "event_id": fork_id,
                "user_id": owner,
                "forked_from": broadcast.conversation_id,
            }
            return [own_event(event, document), self._message(event_id, fork_id, owner, message)]

        outcomes = await self._make(principal.workspace_id, owner, make)
        return outcomes[-1] if outcomes else None

    async def _posted(self, principal: Principal, message_id: UUID, content: str | None = None) -> Posted | None:
        """What the caller has posted with this id; `content` is what it says, where that is known."""
        scope = _scope(principal)
        async with self._database.transaction(scope) as tx:
            values = scope.values(message_id=message_id)
            row: Any = await (await tx.execute(_SQL["message_by_id"], values, binary=True)).fetchone()
            if row is None:
                return None
            said = Said(*row)
            conversation = await _found(tx, scope.values(conversation_id=said.conversation_id))
        title = (await self._titles(principal, [conversation])).get(conversation.position)
        messages = [_message(said, content)] if content is not None else (await self._messages(principal, [said]))[1]
        whole = msgspec.structs.asdict(_conversation(conversation, title))
        return Posted(**whole, message=messages[0]) if messages else None

    async def _repeated(self, principal: Principal, target: Row, message: NewMessage) -> Posted | None:
        """What was posted earlier with this id, where it is the same."""
        found = message.message_id and await self._posted(principal, message.message_id)
        if not found:
            return None
        same = (target.conversation_id, message.role, message.content)
        if (found.conversation_id, found.message.role, found.message.content) != same:
            raise Conflict("message_id: a message with this id was posted earlier, elsewhere or in other words")
        return found

    # --- delete -----------------------------------------------------------------------------------------------------

    async def delete(self, principal: Principal, conversation_id: UUID) -> None:
        """Nobody finds it from then on; what was said in it goes after the grace of its policy."""
        row = await self._row(principal, conversation_id)
        if row.state == "broadcast":
            raise Forbidden("a broadcast is not deleted: it ends with its workspace")
        owner = principal.user_id
        event = _event("conversation.deleted", new_id(), owner, conversation_id, self._clock, conversation_id)
        own = own_event(event, {"effect": "delete_conversation", "conversation_id": conversation_id})

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            values = _scope(principal).values(conversation_id=conversation_id)
            await _found(tx, values)
            return [own]

        await self._make(principal.workspace_id, owner, make)


def _scope(principal: Principal) -> Scope:
    """That of a user, also of an administrator: a private conversation is its owner's alone."""
    return Scope(principal.workspace_id, principal.user_id)


async def _found(tx: Tx, values: dict[str, object]) -> Row:
    row: Any = await (await tx.execute(_SQL["conversation_by_id"], values, binary=True)).fetchone()
    if row is None:
        raise _no_such()
    return Row(*row)


async def _fork_of(tx: Tx, values: dict[str, object]) -> Row | None:
    row: Any = await (await tx.execute(_SQL["fork_of"], values, binary=True)).fetchone()
    return None if row is None else Row(*row)


def _first_id(conversation_id: UUID, place: int) -> UUID:
    """Of a message that a conversation began with."""
    return uuid5(conversation_id, str(place))


def _begins_so(found: ConversationRead, title: str | None, messages: Sequence[NewMessage]) -> bool:
    first = [said for said in found.messages if said.message_id == _first_id(found.conversation_id, said.place)]
    return (found.title, [(said.role, said.content) for said in first]) == (
        title or None,
        [(message.role, message.content) for message in messages],
    )


def _event(
    event_type: str, event_id: UUID, owner: str | None, conversation_id: UUID, clock: Clock, parent: UUID | None = None
) -> Event:
    """Of whom the conversation is of; of the workspace where it is a broadcast."""
    return Event(
        event_id=event_id,
        event_type=event_type,
        occurred_at=clock(),
        session_id=f"{SESSION}{conversation_id}",
        trace_id=conversation_id.hex,
        user_id=owner,
        parent_event_id=parent,
        status="completed",
    )


def _check_beginning(title: str | None, messages: Sequence[NewMessage]) -> None:
    if title and (problem := text_problem(title, MAX_TITLE_CHARACTERS)) is not None:
        raise refused("title", problem)
    if len(messages) > MAX_FIRST_MESSAGES:
        raise refused("messages", f"at most {MAX_FIRST_MESSAGES}")
    for place, message in enumerate(messages):
        _check_message(f"messages[{place}].", message)
        if message.message_id is not None:
            raise refused(f"messages[{place}].message_id", "is given by the conversation's id here")


def _check_message(where: str, message: NewMessage) -> None:
    if (problem := text_problem(message.content, MAX_CONTENT_CHARACTERS)) is not None:
        raise refused(f"{where}content", problem)


def _conversation(row: Row, title: str | None) -> Conversation:
    return Conversation(
        conversation_id=row.conversation_id,
        state=row.state,
        user_id=row.user_id,
        key=row.key,
        forked_from=row.forked_from,
        title=title,
        message_count=row.message_count,
        started_at=row.started_at,
        active_at=row.active_at,
        position=row.position,
    )


def _message(said: Said, content: str) -> ConversationMessage:
    return ConversationMessage(
        message_id=said.message_id,
        place=said.place,
        role=said.role,
        content=content,
        recorded_at=said.recorded_at,
        position=said.position,
        is_copy=said.is_copy,
    )


def _no_such() -> NotFound:
    return NotFound("there is no such conversation")
