"""Chats: what was said is kept as it comes, found at once, put right and deleted; what it teaches is drawn from it.

messages    from a message to what is remembered of it
echo        what comes back of what was recalled
lately      whether a message may hold any of that
extraction  facts with the words that say so: by rules, or by a model
rules       what people say about themselves in so many words
results     from the hits of a recall to what a search answers
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import psycopg

from whence.chats.echo import MIN_ECHO_CHARACTERS, Left
from whence.chats.extraction import Drawn, Extractor, Heard
from whence.chats.lately import Lately
from whence.chats.messages import Marker, Said, piece_ids, pieces, read, remembered
from whence.chats.results import results_of
from whence.clock import Clock
from whence.db import Database, Tx
from whence.db.queries import load
from whence.errors import Conflict, InvalidInput, NotFound, WhenceError, refusal_of
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.append import Outcome
from whence.ledger.coalesce import is_refusal, refusal_in
from whence.ledger.effects import OwnEvent, Vector
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS
from whence.memory import LONG_CHARACTERS, Memory, unit_of
from whence.memory.own import Own, check_names, own_event
from whence.memory.reembed import JOB as REEMBED
from whence.memory.writing import MAX_TEXT_CHARACTERS, Draft, check_name, draft, event_of, normal, refused
from whence.queue import Queue
from whence.recall import Recaller
from whence.resources import RESOURCE_SCHEME
from whence.wire import (
    Added,
    Deleted,
    ExtractedFact,
    Flushed,
    Message,
    MessageResult,
    Overridden,
    Recall,
    Remember,
    Searched,
    SearchMeta,
    SearchScope,
    StoredMemory,
)

CHAT: Final = "chat:"
MAX_MESSAGES = 500
MAX_RESULTS = 100
STORED_AT_ONCE = 4
"""Large adds that are stored at a time; the others wait their turn, so that the queue of writes is not full."""
LARGE_ADD = 20
"""Messages."""
FLUSHED_AT_ONCE = 500
"""Messages that one flush reads and marks as read; the rest are for the next."""

_SQL = load("whence.chats")
T = TypeVar("T")
_GONE: Final = "the message that says a fact was deleted or overridden meanwhile"


class Chat(NamedTuple):
    """One chat of a user in a partition."""

    principal: Principal
    agent: str
    session_id: str
    teller: Principal
    """Who says what is told in it: the user, or an administrator for the user."""


class _Kept(NamedTuple):
    """A message with what is to be stored of it."""

    said: Said
    result: MessageResult
    drafts: list[Draft]
    position: int | None = None
    """Of what was stored of it before."""


class Chats:
    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        clock: Clock,
        memory: Memory,
        recaller: Recaller,
        queue: Queue,
        extractor: Extractor,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._memory = memory
        self._recaller = recaller
        self._queue = queue
        self._extractor = extractor
        self._lately = Lately(database, ledger, clock)
        self._own = Own(ledger, clock, memory.profiles)
        self._room = asyncio.Semaphore(STORED_AT_ONCE)

    @property
    def is_model_failing(self) -> bool:
        return self._extractor.is_failing

    # --- add --------------------------------------------------------------------------------------------------------

    async def add(self, chat: Chat, messages: Sequence[Message]) -> Added:
        """All of them or none; returns after the commit. No model is asked: where the embedder is slow, the vectors of
        the built-in one stand in until a job has replaced them."""
        if not 1 <= len(messages) <= MAX_MESSAGES:
            raise refused("messages", f"from 1 to {MAX_MESSAGES}")
        said = read(messages)
        check_chat(chat.session_id)
        self._check_own(chat)
        async with AsyncExitStack() as turn:
            if len(messages) > LARGE_ADD:
                await turn.enter_async_context(self._room)
            mark = await self._marker(chat)
            lefts = await self._lefts(chat, said)
            before = await self._stored_before(chat, said, lefts, mark)
            kept = await self._beside(said, lambda: self._keep(chat, said, lefts, mark, before))
            return await self._stored(chat, kept)

    def _check_own(self, chat: Chat) -> None:
        """What is said in a chat is the user's, and so is what it teaches."""
        name, profile = self._memory.profiles.of(chat.agent)
        if profile.anchor != "user":
            whose = f"memory of {chat.agent} is the workspace's, by the profile {name}, and a chat is a user's own"
            raise refused("app_id", whose)

    async def _stored_before(
        self, chat: Chat, said: Sequence[Said], lefts: Sequence[Left], mark: Marker
    ) -> dict[int, _Kept]:
        """Those that are sent again, by their number, where another look at them could find something else: a message
        is no echo of itself, and one that is cut in pieces now may have been cut elsewhere then."""
        ids = {
            number: piece_ids(each, mark)
            for number, each in enumerate(said)
            if lefts[number].recalled or len(each.text) > MAX_TEXT_CHARACTERS
        }
        if not ids:
            return {}
        async with self._database.transaction(chat.principal.scope) as tx:
            stored = await self._ledger.named(
                tx, chat.principal.scope, [each for some in ids.values() for each in some]
            )
        before: dict[int, _Kept] = {}
        for number, pieces_then in ids.items():
            if pieces_then[0] in stored:
                known = tuple(each for each in pieces_then if each in stored)
                result = MessageResult("repeated", known, skipped_parts=said[number].skipped)
                before[number] = _Kept(said[number], result, [], stored[known[-1]].global_position)
        return before

    def _keep(
        self, chat: Chat, said: Sequence[Said], lefts: Sequence[Left], mark: Marker, before: dict[int, _Kept]
    ) -> list[_Kept]:
        now = self._clock()
        return [
            before.get(number) or self._kept(chat, each, left, mark, now)
            for number, (each, left) in enumerate(zip(said, lefts, strict=True))
        ]

    def _kept(self, chat: Chat, said: Said, left: Left, mark: Marker, now: datetime) -> _Kept:
        told = MessageResult("no_text", skipped_parts=said.skipped)
        if not said.text.strip():
            return _Kept(said, told, [])
        if not left.text:
            result = msgspec.structs.replace(told, status="echo", memory_ids=left.recalled, recalled=left.recalled)
            return _Kept(said, result, [])
        cut = pieces(said, left.text, mark, *self._memory.profiles.of(chat.agent))
        drafts = [
            self._draft(chat, said, remembered(said, piece, chat.agent, chat.session_id, now, left.recalled))
            for piece in cut.pieces
        ]
        if not drafts:
            return _Kept(said, told, [])
        found = Counter[str](cut.sanitised)
        for drafted in drafts:
            found.update(drafted.sanitised)
        result = msgspec.structs.replace(
            told,
            status="stored",
            memory_ids=tuple(drafted.event_id for drafted in drafts),
            recalled=left.recalled,
            sanitised=dict(found) or None,
        )
        return _Kept(said, result, drafts)

    def _draft(self, chat: Chat, said: Said, request: Remember) -> Draft:
        try:
            return self._drafted(chat, request)
        except InvalidInput as error:
            # As the sender calls it.
            names = {"text": f"{said.place}.content", "speaker": f"{said.place}.sender_id"}
            wrong = error.errors[0]
            raise refused(names.get(wrong.field, wrong.field), wrong.message) from None

    def _drafted(self, chat: Chat, request: Remember) -> Draft:
        """The user's, said by whoever tells it."""
        told = msgspec.structs.replace(request, user_id=chat.principal.user_id)
        return draft(chat.teller, told, self._memory.profiles)

    async def _stored(self, chat: Chat, kept: Sequence[_Kept]) -> Added:
        drafts = {drafted.event_id: drafted for each in kept for drafted in each.drafts}
        told = await self._tell(chat, list(drafts.values()))
        fresh = {event_id for event_id, outcome in told.items() if outcome.status == "accepted"}
        results: list[MessageResult] = []
        for each in kept:
            # One that came twice in these messages is stored by the first.
            is_fresh = any(drafted.event_id in fresh for drafted in each.drafts)
            fresh -= {drafted.event_id for drafted in each.drafts}
            again = each.result.status == "stored" and not is_fresh
            results.append(msgspec.structs.replace(each.result, status="repeated") if again else each.result)
        stored = any(result.status == "stored" for result in results)
        return Added(
            len(kept),
            "stored" if stored else "unchanged",
            list(dict.fromkeys(memory_id for result in results for memory_id in result.memory_ids)),
            max(
                (*(outcome.position or 0 for outcome in told.values()), *(each.position or 0 for each in kept)),
                default=None,
            )
            or None,
            results,
        )

    async def _tell(self, chat: Chat, drafts: Sequence[Draft]) -> dict[UUID, Outcome]:
        """Stores them, all or none, and says what became of each. What is stored already is a duplicate: ids are made
        of what is said, under the user's own key, so it can be nothing else."""
        events = await self._events(drafts)
        if not events:
            return {}
        outcomes = await self._ledger.record_all(chat.principal.workspace_id, events)
        rejected = next((outcome for outcome in outcomes if outcome.status == "rejected"), None)
        if rejected is not None:
            raise _rejection(rejected)
        told = dict(zip((own.event.event_id for own in events), outcomes, strict=True))
        again = [event_id for event_id, outcome in told.items() if outcome.status != "accepted"]
        if again:
            async with self._database.transaction(chat.principal.scope) as tx:
                stored = await self._ledger.named(tx, chat.principal.scope, again)
            told |= {event_id: Outcome("duplicate", event.global_position) for event_id, event in stored.items()}
        self._recaller.told(chat.principal.workspace_id, chat.principal.user_id)
        await self._embed_later(chat, len(events) - len(again))
        return told

    async def _tell_together(self, chat: Chat, make: Callable[[Tx], Awaitable[list[OwnEvent]]]) -> dict[UUID, Outcome]:
        """Stores what is made while nothing else is stored, and says what became of each."""
        made: list[OwnEvent] = []

        async def make_and_keep(tx: Tx) -> list[OwnEvent]:
            made[:] = await make(tx)
            return made

        try:
            outcomes = await self._ledger.record_together(chat.principal.workspace_id, make_and_keep)
        except psycopg.IntegrityError as error:
            if is_refusal(error):
                raise refusal_of((refusal_in(error),)) from None
            raise
        self._recaller.told(chat.principal.workspace_id, chat.principal.user_id)
        await self._embed_later(chat, sum(own.effect is not None and own.effect.vector is not None for own in made))
        return dict(zip((own.event.event_id for own in made), outcomes, strict=True))

    async def _events(self, drafts: Sequence[Draft]) -> list[OwnEvent]:
        vectors = await self._vectors([drafted.text for drafted in drafts])
        # What it comes from was found among the memories of the same user.
        return [
            event_of(drafted, vector, dict.fromkeys(drafted.request.derived_from, True), self._clock())
            for drafted, vector in zip(drafts, vectors, strict=True)
        ]

    async def _embed_later(self, chat: Chat, count: int) -> None:
        if count and not self._memory.embedder.is_quick:
            await self._queue.defer(REEMBED, chat.principal.workspace_id)

    async def _vectors(self, texts: list[str]) -> list[Vector]:
        if not texts:
            return []
        if self._memory.embedder.is_quick:
            return await self._memory.embedded(texts)
        built_in = self._recaller.built_in
        return [Vector(built_in.name, unit_of(row)) for row in await asyncio.to_thread(built_in.embed, texts)]

    async def _marker(self, chat: Chat) -> Marker:
        user_id = chat.principal.user_id
        keys = await self._ledger.keys.ensure(chat.principal.workspace_id, {user_id})
        return Marker(keys[user_id], chat.agent, chat.session_id)

    async def _lefts(self, chat: Chat, said: Sequence[Said]) -> list[Left]:
        """What of each message does not come from what the user was given lately in this partition."""
        texts = [each.text for each in said if len(each.text) >= MIN_ECHO_CHARACTERS]
        if not texts:
            return [Left(each.text, ()) for each in said]
        echoes = await self._lately.echoes(chat.principal.scope, chat.agent, texts)
        return await self._beside(said, lambda: [echoes.left_of(each.text, each.message.role) for each in said])

    async def _beside(self, said: Sequence[Said], work: Callable[[], T]) -> T:
        """Beside the event loop where it takes longer than to go there."""
        is_short = sum(len(each.text) for each in said) <= LONG_CHARACTERS
        return work() if is_short else await asyncio.to_thread(work)

    # --- search -----------------------------------------------------------------------------------------------------

    async def search(
        self,
        principal: Principal,
        agent: str,
        query: str,
        scopes: Sequence[SearchScope],
        conversation_id: str | None,
        top_k: int,
        as_of: datetime | None = None,
    ) -> Searched:
        """One ranked recall over all that the scopes name together."""
        if not scopes:
            raise refused("scope", "name at least one of current_chat, resources, all_user_memory")
        if not 1 <= top_k <= MAX_RESULTS:
            raise refused("top_k", f"from 1 to {MAX_RESULTS}")
        if "current_chat" in scopes and conversation_id is None:
            raise refused("conversation_id", "is needed for the scope current_chat")
        if conversation_id is not None:
            # Who sends the name of the session means the conversation in it.
            conversation_id = conversation_id.removeprefix(CHAT)
            check_name("conversation_id", conversation_id, MAX_IDENTIFIER_CHARACTERS - len(CHAT))
        chat = f"{CHAT}{conversation_id}"
        is_narrow = "all_user_memory" not in scopes
        asked = Recall(
            query=query,
            agent=agent,
            sessions=(chat,) if is_narrow and "current_chat" in scopes else None,
            session_prefixes=(RESOURCE_SCHEME,) if is_narrow and "resources" in scopes else None,
            top_k=top_k,
            as_of=as_of,
        )
        found = await self._recaller.recall(principal, asked)
        self._lately.answered(principal.workspace_id, query, found)
        return Searched(
            results_of(found.hits, scopes, chat),
            SearchMeta(
                found.recall_id,
                found.meta.query_ms,
                found.meta.searched,
                found.meta.embedder,
                found.meta.vectors_to_come,
            ),
        )

    # --- put right, delete ------------------------------------------------------------------------------------------

    async def override(self, chat: Chat, memory_id: UUID, text: str) -> Overridden:
        """Another text takes the place of a memory, which stays in its history. Facts that only it taught go too."""
        self._check_own(chat)
        memory = await self._get(chat, memory_id)
        if memory.fact is not None:
            raise refused("id", "is a fact that was drawn from a message: override the message, or delete the fact")
        if memory.key is not None:
            raise refused("id", f"is a procedure: remember another one under its key, {memory.key}")
        mark = await self._marker(chat)
        new_id = mark.id_of("override", str(memory_id), text)
        request = Remember(
            agent=chat.agent,
            tier=memory.tier,
            kind=memory.kind,
            text=text,
            subject_id=await self._about(chat, memory_id),
            world_id_context=memory.world_id_context,
            speaker=memory.speaker,
            role=memory.role,
            session_id=memory.session_id,
            interaction_id=memory.interaction_id,
            valid_at=memory.valid_at if memory.kind == "episodic" else None,
            derived_from=(memory_id,),
            importance=memory.importance,
            memory_id=new_id,
        )
        events = await self._events([self._drafted(chat, request)])
        document = {"effect": "override", "memory_id": memory_id, "superseded_by": new_id}
        event_id = mark.id_of("overridden", str(memory_id), text)
        overridden = self._own.event(
            chat.principal, event_id, "memory.overridden", chat.agent, chat.session_id, memory_id
        )
        facts: list[UUID] = []

        async def make(tx: Tx) -> list[OwnEvent]:
            deleted_at, superseded_by = await self._state(tx, chat, memory_id)
            if deleted_at is not None:
                raise _not_there()
            if superseded_by not in (None, new_id):
                raise Conflict("the memory was overridden meanwhile: search again")
            facts[:] = await self._facts_of_only(tx, chat, memory_id)
            forgetting = [self._forgetting(chat, fact) for fact in facts]
            # To override it again with the same text changes nothing.
            return forgetting if superseded_by else [*events, own_event(overridden, document), *forgetting]

        await self._tell_together(chat, make)
        held_by, position = await self._held_by(chat, new_id)
        return Overridden(held_by, memory.session_id, memory_id, facts, position)

    async def delete(self, chat: Chat, memory_id: UUID) -> Deleted:
        """It is no longer found, nor are facts that only it taught. To delete it again changes nothing."""
        memory = await self._get(chat, memory_id)
        facts: list[UUID] = []

        async def make(tx: Tx) -> list[OwnEvent]:
            deleted_at, _ = await self._state(tx, chat, memory_id)
            facts[:] = await self._facts_of_only(tx, chat, memory_id)
            return [self._forgetting(chat, each) for each in (*(() if deleted_at else (memory_id,)), *facts)]

        await self._tell_together(chat, make)
        return Deleted(memory_id, memory.session_id, facts)

    async def _get(self, chat: Chat, memory_id: UUID) -> StoredMemory:
        """One of this chat. What is missing, somebody else's or of another chat is told in the same way."""
        check_chat(chat.session_id)
        try:
            memory = await self._memory.get(chat.principal.scope, memory_id)
        except NotFound:
            raise _not_there() from None
        if (memory.user_id, memory.agent, memory.session_id) != (
            chat.principal.user_id,
            chat.agent,
            chat.session_id,
        ):
            raise _not_there()
        return memory

    async def _about(self, chat: Chat, memory_id: UUID) -> str | None:
        """Whom it is about, if not the user. What takes its place is about the same person, and erased with them."""
        scope = chat.principal.scope
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["about"], scope.values(memory_id=memory_id))).fetchone()
        return row[0] if row else None

    async def _state(self, tx: Tx, chat: Chat, memory_id: UUID) -> tuple[datetime | None, UUID | None]:
        """When it was deleted, and what has taken its place."""
        values = chat.principal.scope.values(memory_id=memory_id)
        row = await (await tx.execute(_SQL["state_of"], values)).fetchone()
        if row is None:
            raise _not_there()
        return row[0], row[1]

    async def _held_by(self, chat: Chat, event_id: UUID) -> tuple[UUID, int]:
        """The memory that holds what an event told, where the text was known another one, and the event's position."""
        scope = chat.principal.scope
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["held_by"], scope.values(event_id=event_id))).fetchone()
        if row is None:
            # Whoever it was of has been erased since.
            raise _not_there()
        return row[0], row[1]

    async def _facts_of_only(self, tx: Tx, chat: Chat, memory_id: UUID) -> list[UUID]:
        values = chat.principal.scope.values(memory_id=memory_id)
        return [row[0] for row in await (await tx.execute(_SQL["facts_of_only"], values)).fetchall()]

    def _forgetting(self, chat: Chat, memory_id: UUID) -> OwnEvent:
        event = self._own.event(chat.principal, new_id(), "memory.forgotten", chat.agent, chat.session_id, memory_id)
        return own_event(event, {"effect": "forget", "memory_id": memory_id})

    # --- flush ------------------------------------------------------------------------------------------------------

    async def flush(self, chat: Chat) -> Flushed:
        """Draws from the chat what it taught since the last time, as much as is read at once, and marks how far."""
        check_chat(chat.session_id)
        self._check_own(chat)
        rows = await self._unread(chat)
        is_more = len(rows) > FLUSHED_AT_ONCE
        rows = rows[:FLUSHED_AT_ONCE]
        if not rows:
            return Flushed("no_extraction", chat.session_id, 0, [], self._extractor.name, [], None, is_more=False)
        # Outside of any transaction: a model may take its time.
        heard = [Heard(*row[:4], *row[5:]) for row in rows if row[4] == "user" and row[3]]
        extraction = await self._extractor.extract(heard)
        if extraction.read < len(heard):
            is_more = True
            rows = [row for row in rows if row[1] < heard[extraction.read].position]
        facts, dropped, position = await self._learn(chat, rows[-1][0], rows[-1][1], extraction.drawn)
        return Flushed(
            "extracted" if facts else "no_extraction",
            chat.session_id,
            len(rows),
            facts,
            self._extractor.name,
            extraction.dropped + dropped,
            position,
            is_more,
        )

    async def _unread(self, chat: Chat) -> list[tuple[Any, ...]]:
        """What a flush reads, and one more where there is more."""
        scope = chat.principal.scope
        values = scope.values(agent=chat.agent, session_id=chat.session_id, limit=FLUSHED_AT_ONCE + 1)
        async with self._database.transaction(scope) as tx:
            values["after"] = await self._boundary(tx, chat)
            return await (await tx.execute(_SQL["messages_after"], values, binary=True)).fetchall()

    async def _boundary(self, tx: Tx, chat: Chat) -> int:
        values = chat.principal.scope.values(agent=chat.agent, session_id=chat.session_id)
        row = await (await tx.execute(_SQL["boundary_of"], values)).fetchone()
        return row[0] if row else 0

    async def _learn(
        self, chat: Chat, last: UUID, position: int, drawn: Sequence[Drawn]
    ) -> tuple[list[ExtractedFact], list[str], int | None]:
        """The facts and the mark, in one transaction. Of two who read the same messages, one has learnt them. What was
        drawn from a message that is gone by then is not learnt."""
        mark = await self._marker(chat)
        drafts, dropped = await self._facts(chat, mark, drawn)
        events = await self._events([drafted for drafted, _ in drafts.values()])
        flush_id = mark.id_of("flush", str(last))
        flushed = self._own.event(chat.principal, flush_id, "memory.flushed", chat.agent, chat.session_id, last)
        gone: list[UUID] = []

        async def make(tx: Tx) -> list[OwnEvent]:
            if await self._boundary(tx, chat) >= position:
                return []
            sources = {each.heard.memory_id for _, each in drafts.values()}
            values = chat.principal.scope.values(ids=list(sources))
            rows = await (await tx.execute(_SQL["still_said"], values, binary=True)).fetchall()
            gone.extend(sources - {row[0] for row in rows})
            learnt = [own for own in events if drafts[own.event.event_id][1].heard.memory_id not in gone]
            drawn_by = {"extractor": self._extractor.name, "facts": [own.event.event_id for own in learnt]}
            return [*learnt, own_event(flushed, {"effect": "flush", "event_id": flush_id}, drawn_by)]

        told = await self._tell_together(chat, make)
        facts = [
            ExtractedFact(
                # Where it was known already, the one that says so.
                UUID((told[fact_id].effect or {}).get("memory_id", fact_id.hex)),
                drafted.text,
                each.quote,
                each.heard.memory_id,
                each.byte_range,
            )
            for fact_id, (drafted, each) in drafts.items()
            if fact_id in told and told[fact_id].status == "accepted"
        ]
        dropped += [_GONE for _, each in drafts.values() if each.heard.memory_id in gone]
        return facts, dropped, told[flush_id].position if flush_id in told else None

    async def _facts(
        self, chat: Chat, mark: Marker, drawn: Sequence[Drawn]
    ) -> tuple[dict[UUID, tuple[Draft, Drawn]], list[str]]:
        """What is to be learnt, and why something is not."""
        held: dict[str, str] = {}
        drafts: dict[UUID, tuple[Draft, Drawn]] = {}
        dropped: list[str] = []
        for each in drawn:
            if each.statement.ends is not None and not await self._did_hold(chat, each, held):
                continue
            fact_id = mark.id_of("fact", str(each.heard.memory_id), each.statement.predicate, each.statement.object)
            try:
                drafts[fact_id] = (self._drafted(chat, each.as_told(chat.agent, chat.session_id, fact_id)), each)
            except InvalidInput:
                dropped.append("a fact holds what the profile refuses, or is longer than a fact may be")
                continue
            held[f"{each.heard.speaker} {each.statement.predicate}"] = each.statement.object
        return drafts, dropped

    async def _did_hold(self, chat: Chat, drawn: Drawn, held: dict[str, str]) -> bool:
        """Whether what is said to be over held until now: who left Lyon may live in Paris already."""
        statement = drawn.statement
        known = held.get(f"{drawn.heard.speaker} {statement.predicate}")
        if known is None:
            asked = Recall(agent=chat.agent, subject=drawn.heard.speaker, predicate=statement.predicate)
            page = await self._memory.page(chat.principal.scope, asked, limit=1)
            known = next((memory.fact.object for memory in page.memories if memory.fact), None)
        return known is not None and normal(known) == normal(statement.ends or "")


def check_chat(session_id: str) -> None:
    if not session_id.startswith(CHAT) or not session_id.removeprefix(CHAT).strip():
        raise refused("session_id", "must be `chat:` and the id of a conversation")
    check_names(session_id=session_id)


def _not_there() -> NotFound:
    return NotFound("there is no such memory in this session")


def _rejection(outcome: Outcome) -> WhenceError:
    wrong = outcome.errors[0]
    if wrong.field == "id":
        return Conflict(f"{wrong.field}: {wrong.message}", outcome.errors)
    return refusal_of(outcome.errors)
