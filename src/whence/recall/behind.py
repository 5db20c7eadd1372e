"""What is recorded behind an answer that does not wait for it."""

import asyncio
from collections.abc import Awaitable
from uuid import UUID

import structlog
from prometheus_client import CollectorRegistry, Counter

MAX_BEHIND = 1_000
"""Answered and not recorded yet; whoever comes then waits for its own."""

_log = structlog.get_logger()


class Behind:
    """Records one after the other as fast as the ledger takes them, and is waited for by who needs one to be there."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._lost = Counter(
            "whence_unrecorded_total", "Recalls and selections whose event could not be stored.", registry=registry
        )

    async def record(self, event_id: UUID, recorded: Awaitable[object]) -> None:
        task = asyncio.create_task(self._record(event_id, recorded))
        self._tasks[event_id] = task
        if len(self._tasks) > MAX_BEHIND:
            await asyncio.wait([task])

    async def _record(self, event_id: UUID, recorded: Awaitable[object]) -> None:
        try:
            await recorded
        except Exception as error:
            # Who asked has the answer already; what is left is to say that the ledger does not know of it.
            self._lost.inc()
            _log.error("not_recorded", event_id=str(event_id), error=type(error).__name__)
        finally:
            del self._tasks[event_id]

    async def wait(self, event_id: UUID) -> None:
        """Until it is recorded, where this process is about to."""
        task = self._tasks.get(event_id)
        if task is not None:
            await asyncio.wait([task])

    async def settled(self) -> None:
        """Until all that was answered by now is recorded."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
