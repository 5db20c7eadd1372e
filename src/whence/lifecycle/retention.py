"""Retention: what is past its time is tombstoned, and disposed of after a grace; what is referred to outlives it.

What is found is written as events of Whence's own, in batches. Whether something refers to a memory is looked at again
when the event is applied, so that an action that is recorded meanwhile still holds what it cites.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from whence.clock import Clock
from whence.db import EVERY_WORKSPACE, Database, Scope
from whence.db.queries import load
from whence.errors import Unavailable
from whence.graph.project import Projector
from whence.graph.rebuild import rebuild as rebuild_graph
from whence.identity import ADMIN_USER, Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.append import Outcome
from whence.lifecycle.archive import Archive, Expired
from whence.lifecycle.conversations import (
    RETENTION_SESSION,
    ConversationRetention,
    DueConversation,
    Threads,
)
from whence.lifecycle.decay import strength_of, temperature
from whence.lifecycle.policies import Policies, Rule, class_of
from whence.memory import Memory
from whence.memory.own import Own
from whence.memory.stubs import RETENTION_TYPE, stub_of
from whence.memory.writing import document_of
from whence.wire import Disposal, Event, Kind, MemoryEntity, MemoryRetention, StoredMemory

MAX_EXPIRED = 1_000
"""Memories that one event tombstones."""
MAX_DISPOSED = 500
MAX_STUB_BYTES = 1 << 19
"""Of one event; a memory that was told very often has more, and then an event of its own."""
MAX_PLANNED = 1_000
MAX_ORPHANS_LISTED = 100
MAX_HOLDERS = 100
MAX_TOLD_CHARACTERS = 200
"""Of a memory's text, in what would go."""
MAX_SUMMARY_CHARACTERS = 2_000
MAX_EXTRACT_CHARACTERS = 200

_SUMMARIES: Final = UUID("5a7b6e2e-2f43-5f0e-9a53-8a2f6e1f4f10")
"""Names the ids of summaries, so that the same memories summed up again are the same event."""
_SQL = load("whence.lifecycle")


class Due(msgspec.Struct, frozen=True):
    """A memory that is past its time. The order of the fields is that of the query."""

    memory_id: UUID
    becomes: str
    """TOMBSTONE, or the disposal of its policy."""
    content_class: str
    since: datetime
    """What the timer counts from."""
    kept_by: str | None
    """Why it is kept all the same."""
    agent: str
    kind: Kind
    user_id: str | None
    text: str


class Total(msgspec.Struct, frozen=True):
    becomes: str
    content_class: str
    kept_by: str | None
    count: int


class Orphan(msgspec.Struct, frozen=True):
    memory_id: UUID
    agent: str
    kind: Kind
    user_id: str | None
    text: str


class Plan(msgspec.Struct, frozen=True):
    """What would go, and why: the oldest first, and the totals of all."""

    due: list[Due]
    totals: list[Total]
    orphans: list[Orphan]
    """Alerts: nothing is done about them."""
    orphan_count: int
    conversations: list[DueConversation]


class Applied(msgspec.Struct, frozen=True):
    expired: int
    disposed: int
    archives: list[str]
    orphan_count: int
    conversations_expired: int
    conversations_disposed: int


class Retention:
    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        memory: Memory,
        projector: Projector,
        archive: Archive,
        policies: Policies,
        clock: Clock,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._memory = memory
        self._projector = projector
        self._archive = archive
        self._policies = policies
        self._clock = clock
        self._own = Own(ledger, clock, memory.profiles)
        self._conversations = ConversationRetention(database, ledger, archive, policies, clock, self._own)
        self._orphans: Gauge | None = None
        self._orphan_counts: dict[str, int] = {}

    def measured(self, registry: CollectorRegistry) -> "Retention":
        """Counts orphans into a metric, of all workspaces together."""
        self._orphans = Gauge("whence_orphaned_memories", "Memories all of whose sources are gone", registry=registry)
        return self

    def ending(self, threads: Threads) -> "Retention":
        """With what is kept elsewhere under the ids of conversations, which ends with them."""
        self._conversations.threads = threads
        return self

    # --- look -------------------------------------------------------------------------------------------------------

    async def plan(self, scope: Scope) -> Plan:
        """Changes nothing."""
        values = {**self._due_values(scope, MAX_PLANNED), "text": MAX_TOLD_CHARACTERS}
        async with self._database.transaction(scope, snapshot=True) as tx:
            due: list[Any] = await (await tx.execute(_SQL["due"], values, binary=True)).fetchall()
            totals: list[Any] = await (await tx.execute(_SQL["due_totals"], values, binary=True)).fetchall()
            conversations = await self._conversations.due(tx, scope, MAX_PLANNED)
        orphans, count = await self._orphaned(scope)
        return Plan([Due(*row) for row in due], [Total(*row) for row in totals], orphans, count, conversations)

    async def of(self, scope: Scope, memory_id: UUID) -> MemoryRetention:
        """How long one memory is kept, and what keeps it."""
        memory = await self._memory.get(scope, memory_id)
        values = scope.values(memory_id=memory_id, limit=MAX_HOLDERS)
        async with self._database.transaction(scope, snapshot=True) as tx:
            ((entity, state),) = await (await tx.execute(_SQL["state_of"], values)).fetchall()
            holders = await (await tx.execute(_SQL["held_by"], values)).fetchall()
        content_class = class_of(self._memory.profiles, memory.profile, memory.kind)
        expires_at, disposed_at, disposal = self._times(entity, content_class, memory)
        present = strength_of(memory, self._clock())
        held_by = [row[0] for row in holders]
        return MemoryRetention(
            memory_id, entity, content_class, state, disposal, expires_at, disposed_at, held_by, present,
            temperature(present),
        )  # fmt: skip

    def _times(
        self, entity: MemoryEntity, content_class: str, memory: StoredMemory
    ) -> tuple[datetime | None, datetime | None, Disposal]:
        policy = self._policies.of(entity, content_class)
        started = {
            "recorded_at": memory.recorded_at,
            "invalid_at": _ended(memory),
            "archived_at": memory.archived_at,
        }.get(policy.timer)
        expires_at = None if started is None else started + timedelta(days=policy.active_days)
        gone = memory.deleted_at and memory.deleted_at + timedelta(days=policy.grace_days)
        return (None if memory.deleted_at else expires_at), gone, policy.disposal

    async def _orphaned(self, scope: Scope) -> tuple[list[Orphan], int]:
        values = {"workspace_id": scope.workspace_id, "limit": MAX_ORPHANS_LISTED, "text": MAX_TOLD_CHARACTERS}
        async with self._database.transaction(scope) as tx:
            rows: list[Any] = await (await tx.execute(_SQL["orphans"], values, binary=True)).fetchall()
        return [Orphan(*row[:-1]) for row in rows], rows[0][-1] if rows else 0

    # --- apply ------------------------------------------------------------------------------------------------------

    async def workspaces(self) -> list[str]:
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            return [row[0] for row in await (await tx.execute(_SQL["workspaces"])).fetchall()]

    async def apply(self, workspace_id: str) -> Applied:
        """Everything that is due. Any number may run at once: what one has done, the others find done."""
        scope = Scope(workspace_id)
        expired, disposed, archives = 0, 0, list[str]()
        while True:
            count, file = await self._expire(scope)
            if count == 0:
                break
            expired += count
            archives.append(file)
        while count := await self._dispose(scope):
            disposed += count
        idle, gone = await self._retire(scope, archives)
        if disposed or gone:
            # What left the ledger leaves the graph, which is made from it.
            await rebuild_graph(self._database, self._projector, self._clock, workspace_id, False, _unseen)
        _, orphans = await self._orphaned(scope)
        self._count_orphans(workspace_id, orphans)
        return Applied(expired, disposed, archives, orphans, idle, gone)

    async def _retire(self, scope: Scope, archives: list[str]) -> tuple[int, int]:
        """How many conversations were tombstoned, and how many removed."""
        idle = gone = 0
        while True:
            count, files = await self._conversations.expire(scope)
            archives += files
            if count == 0:
                break
            idle += count
        while count := await self._conversations.dispose(scope):
            gone += count
        return idle, gone

    def _count_orphans(self, workspace_id: str, count: int) -> None:
        if self._orphans is not None:
            self._orphan_counts[workspace_id] = count
            self._orphans.set(sum(self._orphan_counts.values()))

    async def _expire(self, scope: Scope) -> tuple[int, str]:
        """One batch: archived and summed up first, then tombstoned. How many were, and in which file they are."""
        async with self._database.transaction(scope) as tx:
            values = {**self._due_values(scope, MAX_EXPIRED), "tombstone": True}
            found: list[Any] = await (await tx.execute(_SQL["expired"], values, binary=True)).fetchall()
        if not found:
            return 0, ""
        rows = [Expired(*row) for row in found]
        archive = await self._archive.write(scope, rows)
        await self._summarise(scope, rows)
        document = {"expire": [row.memory_id for row in rows], "archive": archive}
        outcome = await self._record(scope, document)
        return (outcome.effect or {}).get("expired", 0), archive.file

    async def _summarise(self, scope: Scope, rows: Sequence[Expired]) -> None:
        """An event for those of each owner, subject and agent. Erasing the subject takes its summaries along."""
        groups: dict[tuple[str | None, str, str], list[Expired]] = defaultdict(list)
        for row in rows:
            groups[row.user_id, row.subject_id, row.agent].append(row)
        events = [_summary(group) for group in groups.values()]
        principal = Principal(scope.workspace_id, ADMIN_USER, is_admin=True)
        for outcome in await self._ledger.append(principal, events):
            if outcome.status == "rejected":
                raise Unavailable(f"a summary was not stored: {outcome.errors[0].message}")

    async def _dispose(self, scope: Scope) -> int:
        async with self._database.transaction(scope) as tx:
            values = {**self._due_values(scope, MAX_DISPOSED), "tombstone": False}
            found: list[Any] = await (await tx.execute(_SQL["disposable"], values, binary=True)).fetchall()
        if not found:
            return 0
        documents = await self._documents(scope, [position for row in found for position in row[2]])
        going = {row[0] for row in found}
        dispose: list[dict[str, Any]] = []
        size = 0
        for memory_id, disposal, positions, others in found:
            beside = next((other for other in others if other not in going), [*others, memory_id][0])
            entry = _disposed(memory_id, disposal, beside, {place: documents.get(place) for place in positions})
            size += len(msgspec.json.encode(entry))
            if dispose and size > MAX_STUB_BYTES:
                break
            dispose.append(entry)
        outcome = await self._record(scope, {"dispose": dispose})
        return (outcome.effect or {}).get("disposed", 0)

    async def _documents(self, scope: Scope, positions: list[int]) -> dict[int, dict[str, Any]]:
        """What the events at these positions said, where their payloads are there."""
        found: dict[int, dict[str, Any]] = {}
        left = sorted(positions)
        while left:
            async with self._database.transaction(scope) as tx:
                sealed = await self._ledger.contents(tx, scope, left)
            if not sealed:
                break
            for content in await self._ledger.opened(scope, sealed):
                if content.body is not None:
                    found[content.position] = document_of(content.body)
            left = [position for position in left if position > sealed[-1].position]
        return found

    async def _record(self, scope: Scope, document: dict[str, Any]) -> Outcome:
        principal = Principal(scope.workspace_id, ADMIN_USER, is_admin=True)
        event_id = new_id()
        event = self._own.event(principal, event_id, RETENTION_TYPE, None, RETENTION_SESSION)
        return await self._own.record(principal, event, {"effect": "apply_retention", "event_id": event_id, **document})

    def _due_values(self, scope: Scope, limit: int) -> dict[str, object]:
        now = self._clock()
        rules: list[Rule] = self._policies.rules(self._memory.profiles)
        return {
            "workspace_id": scope.workspace_id,
            "profiles": [rule.profile for rule in rules],
            "entities": [rule.entity for rule in rules],
            "kinds": [rule.kind for rule in rules],
            "classes": [rule.content_class for rule in rules],
            "timers": [rule.policy.timer for rule in rules],
            "disposals": [rule.policy.disposal for rule in rules],
            "active_before": [now - timedelta(days=rule.policy.active_days) for rule in rules],
            "grace_before": [now - timedelta(days=rule.policy.grace_days) for rule in rules],
            "limit": limit,
        }


def _unseen(done: int, total: int) -> None:
    """Nobody watches a worker's progress."""


def _disposed(
    memory_id: UUID, disposal: Disposal, beside: UUID, told: dict[int, dict[str, Any] | None]
) -> dict[str, Any]:
    """What the event says of one memory: where it was told, and what is left of that where there was something."""
    stubs = [
        {"position": place}
        if document is None
        else {"position": place, "stub": stub_of(document, memory_id, disposal, beside)}
        for place, document in told.items()
    ]
    return {"memory_id": memory_id, "disposal": disposal, "told": stubs}


def _ended(memory: StoredMemory) -> datetime | None:
    """When it was known that it holds no more: one that is learnt late is not gone at once."""
    if memory.invalid_at is None:
        return None
    return max(memory.invalid_at, memory.invalidated_at or memory.invalid_at, memory.recorded_at)


def _summary(rows: Sequence[Expired]) -> Event:
    """The same event for the same memories, so that what is summed up again after a crash is stored once."""
    first = rows[0]
    event_id = uuid5(_SUMMARIES, "".join(sorted(row.memory_id.hex for row in rows)))
    payload = {
        "text": extract(rows),
        "summarizes": [row.memory_id for row in rows],
        "from": min(row.recorded_at for row in rows),
        "to": max(row.recorded_at for row in rows),
    }
    return Event(
        event_id=event_id,
        event_type="memory.summary",
        occurred_at=max(row.recorded_at for row in rows),
        session_id=f"memory:{first.agent}",
        trace_id=event_id.hex,
        agent_id=first.agent,
        user_id=first.user_id,
        subject_id=None if first.subject_id in ("", first.user_id) else first.subject_id,
        status="completed",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


def extract(rows: Sequence[Expired]) -> str:
    """The first sentences of what mattered most, in the order in which it was told; no model is asked."""
    chosen: list[Expired] = []
    left = MAX_SUMMARY_CHARACTERS
    for row in sorted(rows, key=lambda row: (-row.importance, -row.access_count, row.position)):
        left -= len(_sentence(row.text or "")) + 1
        if left < 0:
            break
        chosen.append(row)
    chosen.sort(key=lambda row: row.position)
    return "\n".join(dict.fromkeys(_sentence(row.text or "") for row in chosen))


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    end = min((at for mark in (". ", "! ", "? ") if (at := line.find(mark)) >= 0), default=len(line))
    return line[: end + 1][:MAX_EXTRACT_CHARACTERS]
