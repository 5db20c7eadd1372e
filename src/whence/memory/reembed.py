"""Vectors made again where another embedder made them: in the background, while the old ones stay in use.

What is remembered has a vector of the embedder in use from the start. What was remembered before it was chosen is
brought up to it here, a few hundred at a time, in place.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from prometheus_client import CollectorRegistry, Gauge

from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.arrays import Halves
from whence.db.queries import load
from whence.memory import Memory
from whence.memory.writing import GIVEN_EMBEDDER

JOB: Final = "re-embed"
BATCH_VECTORS = 256
RUN_VECTORS = 5_000
"""Of a workspace in one job; then others have their turn."""
LOOK_AGAIN = timedelta(days=1)

_SQL = load("whence.memory")


class Reembedding:
    def __init__(self, database: Database, memory: Memory, clock: Clock, registry: CollectorRegistry) -> None:
        self._database = database
        self._memory = memory
        self._clock = clock
        self._left: dict[str, tuple[int, datetime]] = {}
        self._gauge = Gauge(
            "whence_vectors_to_replace", "Vectors of another embedder than the one in use", registry=registry
        )
        # Not known before somebody has looked.
        self._gauge.set(float("nan"))

    async def due(self, workspaces: Sequence[str]) -> list[str]:
        """Those with vectors to replace. Where there are none, only somebody with other settings can add some: that
        is looked at again after a while."""
        kept, now = await self._kept(), self._clock()
        self._left = {
            workspace_id: self._left[workspace_id] for workspace_id in workspaces if workspace_id in self._left
        }
        for workspace_id in workspaces:
            count, looked = self._left.get(workspace_id, (1, now))
            if count or now - looked > LOOK_AGAIN:
                self._tell(workspace_id, await self._count(workspace_id, kept))
        return [workspace_id for workspace_id in workspaces if self._left[workspace_id][0]]

    async def run(self, workspace_id: str, stopping: asyncio.Event) -> bool:
        """Replaces vectors, the newest memories first. Whether there may be more. Any number may run at once."""
        scope, kept = Scope(workspace_id), await self._kept()
        values = {"workspace_id": workspace_id, "kept": kept, "limit": RUN_VECTORS}
        async with self._database.transaction(scope) as tx:
            ids = [row[0] for row in await (await tx.execute(_SQL["vectors_to_replace"], values)).fetchall()]
        for start in range(0, len(ids), BATCH_VECTORS):
            if stopping.is_set():
                return False
            await self._replace(scope, ids[start : start + BATCH_VECTORS], kept)
        self._tell(workspace_id, await self._count(workspace_id, kept))
        return len(ids) == RUN_VECTORS

    async def _replace(self, scope: Scope, ids: list[UUID], kept: list[str]) -> None:
        """The model is asked between two transactions; what others did meanwhile is left as it is."""
        values = {"workspace_id": scope.workspace_id, "kept": kept}
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["texts_to_embed"], {**values, "ids": ids}, binary=True)).fetchall()
        if not rows:
            return
        vectors = await self._memory.embedded([text for _, text in rows])
        made = {
            "ids": [memory_id for memory_id, _ in rows],
            "embedder": vectors[0].embedder,
            "vectors": Halves.of([vector.components for vector in vectors]),
        }
        async with self._database.transaction(scope) as tx:
            await tx.execute(_SQL["replace_vectors"], {**values, **made})

    async def _kept(self) -> list[str]:
        """By whom vectors are that stay. The name may be a digest of large files."""
        return [GIVEN_EMBEDDER, await asyncio.to_thread(lambda: self._memory.embedder.name)]

    async def _count(self, workspace_id: str, kept: list[str]) -> int:
        values = {"workspace_id": workspace_id, "kept": kept}
        async with self._database.transaction(Scope(workspace_id)) as tx:
            row = await (await tx.execute(_SQL["count_vectors_to_replace"], values)).fetchone()
        return row[0] if row else 0

    def _tell(self, workspace_id: str, count: int) -> None:
        self._left[workspace_id] = (count, self._clock())
        self._gauge.set(sum(left for left, _ in self._left.values()))
