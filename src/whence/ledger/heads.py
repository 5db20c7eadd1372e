"""Heads: waiting until a workspace's ledger has grown.

Appends of this process wake the followers at once. Those of other processes are seen by asking for the head a few
times a second, once a workspace however many follow it, and only while somebody does. Postgres' NOTIFY would tell at
once, but takes a lock that makes all commits of the database queue.
"""

import asyncio
from contextlib import suppress

from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Unavailable

POLL_SECONDS = 0.2

_SQL = load("whence.ledger")


async def head_of(tx: Tx, workspace_id: str) -> int:
    """The last position given out; 0 where there is none."""
    row = await (await tx.execute(_SQL["head"], {"workspace_id": workspace_id})).fetchone()
    return row[0] if row else 0


class Heads:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiters: dict[str, dict[asyncio.Future[None], int]] = {}
        self._pollers: dict[str, asyncio.Task[None]] = {}
        self.any_moved = asyncio.Event()
        """Set by every append of this process; whoever waits for it clears it."""

    def moved(self, workspace_id: str, position: int) -> None:
        self.any_moved.set()
        for waiter, seen in self._waiters.get(workspace_id, {}).items():
            if position > seen and not waiter.done():
                waiter.set_result(None)

    async def wait_beyond(self, workspace_id: str, position: int) -> None:
        """Returns when the head is past `position`."""
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(workspace_id, {})
        waiters[waiter] = position
        if workspace_id not in self._pollers:
            self._pollers[workspace_id] = asyncio.create_task(self._poll(workspace_id))
        try:
            await waiter
        finally:
            waiters.pop(waiter, None)

    async def read(self, workspace_id: str) -> int:
        async with self._database.transaction(Scope(workspace_id)) as tx:
            return await head_of(tx, workspace_id)

    async def close(self) -> None:
        for poller in self._pollers.values():
            poller.cancel()
        await asyncio.gather(*self._pollers.values(), return_exceptions=True)

    async def _poll(self, workspace_id: str) -> None:
        try:
            with suppress(Unavailable):
                while self._waiters.get(workspace_id):
                    self.moved(workspace_id, await self.read(workspace_id))
                    await asyncio.sleep(POLL_SECONDS)
        finally:
            del self._pollers[workspace_id]
            # Whoever still waits looks for itself, and finds out what is wrong.
            for waiter in self._waiters.pop(workspace_id, {}):
                if not waiter.done():
                    waiter.set_result(None)
