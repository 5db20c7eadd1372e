"""A batch: the events that are projected together, and the edges that follow from what they say."""

from dataclasses import dataclass, field
from typing import NamedTuple

from whence.db import Tx
from whence.db.queries import load
from whence.graph.edges import EDGE_CODES
from whence.wire import EdgeType

_SQL = load("whence.graph")


class Build(NamedTuple):
    """A graph of a workspace: the one in use, or one that is filled beside it."""

    workspace_id: str
    number: int


class Batch(NamedTuple):
    build: Build
    lo: int
    """The position before the first event."""
    hi: int
    with_payload: list[int]

    def values(self, **more: object) -> dict[str, object]:
        return {
            "workspace_id": self.build.workspace_id,
            "build": self.build.number,
            "lo": self.lo,
            "hi": self.hi,
            **more,
        }


@dataclass
class Edges:
    """Edges that were found outside of the database, to be stored together."""

    rows: list[tuple[int, int, int, str | None, float | None, str]] = field(
        default_factory=list[tuple[int, int, int, str | None, float | None, str]]
    )

    def add(
        self, source: int, target: int, edge_type: EdgeType, owner: str, role: str | None, score: float | None = None
    ) -> None:
        if source != target:
            self.rows.append((source, target, EDGE_CODES[edge_type], role, score, owner))

    async def store(self, tx: Tx, batch: Batch) -> None:
        if self.rows:
            names = ("sources", "targets", "edge_types", "roles", "scores", "owners")
            columns = {name: list(column) for name, column in zip(names, zip(*self.rows, strict=True), strict=True)}
            await tx.execute(_SQL["add_edges"], batch.values(**columns))
