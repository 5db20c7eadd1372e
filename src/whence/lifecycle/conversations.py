"""Conversations past their time: archived and tombstoned; removed after a grace, with the threads that hang on them.

What is to go is looked for again while nothing is appended, so that what was said or cited meanwhile stays.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import msgspec
import psycopg
from psycopg import sql

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.identity import ADMIN_USER, Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.append import Outcome
from whence.ledger.effects import OwnEvent
from whence.ledger.payloads import WORKSPACE_SUBJECT
from whence.lifecycle.archive import Archive, Archived, Expired
from whence.lifecycle.policies import DEFAULT_CLASS, Policies, Policy
from whence.memory.own import Own, own_event
from whence.memory.stubs import RETENTION_TYPE
from whence.wire import MessageRole, NewMessage

SESSION: Final = "conversation:"
RETENTION_SESSION: Final = "system:retention"
MAX_CONVERSATIONS = 100
"""That one event tombstones or removes."""
MAX_ARCHIVED_MESSAGES = 1_000
"""Of one file."""
THREADS_WAIT_MS = 200
"""So long a batch waits for those who write to its threads; then it is left to the next run."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

Threads = Callable[[Tx, str, Sequence[UUID]], Awaitable[object]]
"""Removes what is kept elsewhere under the ids of conversations of a workspace, in the transaction that removes these.
It runs as `whence_workspace`, or as `whence_eraser`, which has the rights of the former."""

_SQL = load("whence.lifecycle")


async def no_threads(_tx: Tx, _workspace_id: str, _conversation_ids: Sequence[UUID]) -> None:
    """Nothing is kept elsewhere."""


class ConversationPayload(msgspec.Struct, frozen=True):
    """What counts in the payload of an event of a conversation."""

    title: str | None = None
    message: NewMessage | None = None

    @classmethod
    def of(cls, payload: bytes) -> Self:
        return msgspec.json.decode(payload, type=cls)


class DueConversation(msgspec.Struct, frozen=True):
    conversation_id: UUID
    becomes: str
    """TOMBSTONE, or HARD_DELETE."""
    since: datetime
    """What the timer counts from."""
    kept_by: str | None
    """Why it is kept all the same."""
    user_id: str
    message_count: int


class _Told(NamedTuple):
    """An event whose payload is a conversation's: a message, or the title, which nobody says."""

    event_id: UUID
    position: int
    user_id: str
    role: MessageRole | None
    conversation_id: UUID
    recorded_at: datetime


class ConversationRetention:
    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        archive: Archive,
        policies: Policies,
        clock: Clock,
        own: Own,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._archive = archive
        self._policies = policies
        self._clock = clock
        self._own = own
        self.threads: Threads = no_threads

    async def due(self, tx: Tx, scope: Scope, limit: int) -> list[DueConversation]:
        """The oldest first, those that something keeps too."""
        rows: list[Any] = await (
            await tx.execute(_SQL["conversations_due"], self._values(scope, limit=limit), binary=True)
        ).fetchall()
        return [DueConversation(*row) for row in rows]

    async def expire(self, scope: Scope) -> tuple[int, list[str]]:
        """One batch: archived first, then tombstoned. How many were, and in which files they are."""
        async with self._database.transaction(scope) as tx:
            values = self._values(scope, limit=MAX_CONVERSATIONS)
            found = await (await tx.execute(_SQL["conversations_idle"], values)).fetchall()
        ids = _some([(row[0], row[1]) for row in found])
        if not ids:
            return 0, []
        archives = [archived async for archived in self._archived(scope, ids)]

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            values = self._values(scope, ids=ids)
            rows = await (await tx.execute(_SQL["conversations_still_idle"], values)).fetchall()
            # Of several files each is named by an event, the last by the one that tombstones.
            said: list[dict[str, Any]] = [{"archive": archived} for archived in archives] or [{}]
            said[-1]["expire"] = [row[0] for row in rows]
            return [self._event(document) for document in said]

        return _count(await self._together(scope, make), "expired"), [archived.file for archived in archives]

    async def dispose(self, scope: Scope) -> int:
        """One batch of what was tombstoned long enough ago."""

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            values = self._values(scope, limit=MAX_CONVERSATIONS)
            rows = await (await tx.execute(_SQL["conversations_tombstoned"], values, binary=True)).fetchall()
            gone = set(_some([(row[0], len(row[1])) for row in rows]))
            if not gone:
                return []
            if not await self._end_threads(tx, scope.workspace_id, sorted(gone)):
                return []
            retire = [{"conversation_id": row[0], "positions": row[1]} for row in rows if row[0] in gone]
            return [self._event({"retire": retire})]

        return _count(await self._together(scope, make), "disposed")

    async def _end_threads(self, tx: Tx, workspace_id: str, conversation_ids: Sequence[UUID]) -> bool:
        """Says whether nobody was writing to them: whoever holds the head, as this does, should not wait for them."""
        try:
            async with tx.transaction():
                await tx.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(THREADS_WAIT_MS))
                await self.threads(tx, workspace_id, conversation_ids)
                await tx.execute("SET LOCAL lock_timeout TO DEFAULT")
        except psycopg.errors.LockNotAvailable:
            return False
        return True

    async def _together(self, scope: Scope, make: Callable[[Tx], Awaitable[Sequence[OwnEvent]]]) -> list[Outcome]:
        # Before the head is held: whoever holds it should not wait for a connection.
        await self._ledger.keys.ensure(scope.workspace_id, {WORKSPACE_SUBJECT})
        return await self._ledger.record_together(scope.workspace_id, make)

    def _event(self, document: dict[str, Any]) -> OwnEvent:
        event_id = new_id()
        event = self._own.event(_NOBODY, event_id, RETENTION_TYPE, None, RETENTION_SESSION)
        return own_event(event, {"effect": "retire_conversations", "event_id": event_id, **document})

    async def _archived(self, scope: Scope, ids: list[UUID]) -> AsyncIterator[Archived]:
        """A part at a time: what was said in a year may be much."""
        async with self._database.transaction(scope) as tx:
            values = {"workspace_id": scope.workspace_id, "ids": ids}
            rows: list[Any] = await (await tx.execute(_SQL["told_in_conversations"], values, binary=True)).fetchall()
        left: list[_Told] = [_Told(*row) for row in rows]
        while left:
            part = left[:MAX_ARCHIVED_MESSAGES]
            async with self._database.transaction(scope) as tx:
                sealed = await self._ledger.contents(tx, scope, [told.position for told in part])
            if not sealed:
                # Of somebody who is being erased.
                left = left[len(part) :]
                continue
            by_position = {told.position: told for told in part}
            lines = [
                _line(by_position[content.position], content.body)
                for content in await self._ledger.opened(scope, sealed)
                if content.body is not None
            ]
            if lines:
                yield await self._archive.write(scope, lines)
            left = [told for told in left if told.position > sealed[-1].position]

    def _values(self, scope: Scope, **more: object) -> dict[str, object]:
        policy: Policy = self._policies.of("conversation", DEFAULT_CLASS)
        now = self._clock()
        idle = _NEVER if policy.timer == "none" else now - timedelta(days=policy.active_days)
        grace = now - timedelta(days=policy.grace_days)
        return {"workspace_id": scope.workspace_id, "active_before": idle, "grace_before": grace, **more}


_NOBODY = Principal("", ADMIN_USER, is_admin=True)
"""Events of a workspace itself name no user, and the workspace is not said in an event."""


def _some(found: Sequence[tuple[UUID, int]]) -> list[UUID]:
    """As many as have so many messages together, and one at least."""
    ids: list[UUID] = []
    total = 0
    for conversation_id, count in found:
        total += count
        if ids and total > MAX_ARCHIVED_MESSAGES:
            break
        ids.append(conversation_id)
    return ids


def _count(outcomes: Sequence[Outcome], what: str) -> int:
    return sum((outcome.effect or {}).get(what, 0) for outcome in outcomes)


def _line(told: _Told, body: bytes) -> Expired:
    """As a memory of its thread, which is how an archive is written and read."""
    payload = ConversationPayload.of(body)
    return Expired(
        memory_id=told.event_id,
        position=told.position,
        user_id=told.user_id,
        subject_id=told.user_id,
        said_by=told.role,
        agent="conversation",
        profile="",
        tier="interaction",
        kind="episodic",
        session_id=f"{SESSION}{told.conversation_id}",
        interaction_id=str(told.conversation_id),
        run_id=None,
        world_id_context=None,
        text=payload.message.content if payload.message else payload.title,
        fact_subject=None,
        fact_predicate=None,
        fact_object=None,
        confidence=None,
        importance=0.5,
        valid_at=told.recorded_at,
        invalid_at=None,
        recorded_at=told.recorded_at,
        told_count=1,
        access_count=0,
        accessed_at=None,
    )
