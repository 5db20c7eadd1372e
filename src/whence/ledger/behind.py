"""What is recorded behind an answer that does not wait for it: a few at a time, a moment later."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter

from whence.ledger.append import Outcome
from whence.ledger.effects import OwnEvent

BEHIND_SECONDS = 0.02
"""How long an event waits for others, to be stored with them."""
MAX_BEHIND = 1_000
"""Answered and not recorded yet, in one workspace; whoever comes then waits for its own."""

_log = structlog.get_logger()


class Behind:
    def __init__(
        self, store: Callable[[str, Sequence[OwnEvent]], Awaitable[list[Outcome]]], registry: CollectorRegistry
    ) -> None:
        self._store_now = store
        self._waiting: dict[str, list[OwnEvent]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ids: dict[tuple[str, UUID], OwnEvent] = {}
        """By workspace and id, the newest last."""
        self._stored: dict[str, asyncio.Event] = {}
        """Of each workspace that somebody waits for: set when the next of its events are stored, or lost."""
        self._hurry = asyncio.Event()
        """Set while somebody waits for what is behind."""
        self._lost = Counter(
            "whence_unrecorded_total", "Recalls and selections whose event could not be stored.", registry=registry
        )

    async def record(self, workspace_id: str, own: OwnEvent) -> None:
        waiting = self._waiting.setdefault(workspace_id, [])
        waiting.append(own)
        self._ids[workspace_id, own.event.event_id] = own
        if workspace_id not in self._tasks:
            self._tasks[workspace_id] = asyncio.create_task(self._store(workspace_id))
        if len(waiting) > MAX_BEHIND:
            await self.wait(workspace_id, own.event.event_id)

    async def wait(self, workspace_id: str, *event_ids: UUID) -> None:
        """Until they are recorded, where this process is about to."""
        for event_id in event_ids:
            await self._wait(workspace_id, event_id)

    async def _wait(self, workspace_id: str, event_id: UUID) -> None:
        while (workspace_id, event_id) in self._ids:
            stored = self._stored.setdefault(workspace_id, asyncio.Event())
            self._hurry.set()
            try:
                await stored.wait()
            finally:
                self._hurry.clear()

    async def settled(self, workspace_id: str | None = None) -> None:
        """Until all that was answered by now is recorded, of one workspace or of all. Who answers more meanwhile does
        not hold this up."""
        for named, event_id in list(self._ids):
            if workspace_id in (None, named):
                await self._wait(named, event_id)

    def waiting(self, workspace_id: str) -> list[OwnEvent]:
        """What was answered in a workspace and is not recorded yet, the newest last."""
        return [own for (named, _), own in self._ids.items() if named == workspace_id]

    async def _store(self, workspace_id: str) -> None:
        """Until nothing waits. Who asked has the answer already; what is left where it fails is to say so."""
        try:
            while self._waiting.get(workspace_id):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), BEHIND_SECONDS)
                events = self._waiting.pop(workspace_id)
                try:
                    outcomes = await self._store_now(workspace_id, events)
                    lost = sum(outcome.status != "accepted" for outcome in outcomes)
                    why = "Rejected"
                except Exception as error:
                    # Whatever it was: what comes next is to be recorded all the same.
                    lost, why = len(events), type(error).__name__
                finally:
                    self._tell(workspace_id, events)
                if lost:
                    self._lost.inc(lost)
                    _log.error("not_recorded", workspace_id=workspace_id, events=lost, error=why)
        finally:
            del self._tasks[workspace_id]
            self._tell(workspace_id, self._waiting.pop(workspace_id, []))

    def _tell(self, workspace_id: str, events: list[OwnEvent]) -> None:
        """Whoever waits for one of them need not any more."""
        for own in events:
            del self._ids[workspace_id, own.event.event_id]
        stored = self._stored.pop(workspace_id, None)
        if stored is not None:
            stored.set()
