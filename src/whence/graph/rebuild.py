"""Replay: the graph built again from the ledger beside the one in use, compared with it, and put in its place."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict
from whence.graph.batch import Build
from whence.graph.project import Projector, live_build

BATCH_EVENTS = 10_000
DROP_ROWS = 50_000
MAX_TOLD_ASIDE = 10
DIGEST_TIMEOUT_MS = 30 * 60 * 1000

# The tables of a build. What is not the same each time (the nonce of a sealed name) is not in a digest.
TABLES = ("timeline", "edges", "entities", "aliases", "waiting", "vectors", "set_aside")

_SQL = load("whence.graph")


@dataclass(frozen=True)
class Report:
    workspace_id: str
    position: int
    """Both graphs hold everything up to here."""
    digest: str
    live_digest: str
    differing: tuple[str, ...]
    """The tables in which the graph that was in use differed from the one that was built."""
    swapped: bool
    set_aside: tuple[tuple[int, str], ...]
    """The first few events that the rebuilt graph could not take in, or not wholly, and why."""
    seconds: float

    @property
    def equal(self) -> bool:
        return not self.differing


async def rebuild(
    database: Database,
    projector: Projector,
    clock: Clock,
    workspace_id: str,
    verify: bool,
    on_progress: Callable[[int, int], None],
    batch_events: int = BATCH_EVENTS,
) -> Report:
    """Builds the graph anew. With `verify` it is only compared and thrown away, else it replaces the one in use."""
    began = time.monotonic()
    scope = Scope(workspace_id)
    await projector.catch_up(workspace_id)
    await _drop_unused(database, scope)
    aside = await _start(database, scope, clock)
    await _follow(database, projector, aside, on_progress, batch_events)
    async with database.transaction(scope, timeout_ms=DIGEST_TIMEOUT_MS) as tx:
        live, position = await _hold_live(tx, workspace_id)
        # Nobody projects now, so the two end at the same event.
        await _fill(projector, aside, position, batch_events)
        values = {"workspace_id": workspace_id, "build": aside.number, "limit": MAX_TOLD_ASIDE}
        aside_events = await (await tx.execute(_SQL["list_set_aside"], values)).fetchall()
        ours, theirs = await _digests(tx, aside), await _digests(tx, live)
        if not verify:
            await _swap(tx, aside)
    await _drop_unused(database, scope)
    return Report(
        workspace_id,
        position,
        _whole(ours),
        _whole(theirs),
        tuple(table for table in TABLES if ours[table] != theirs[table]),
        swapped=not verify,
        set_aside=tuple(aside_events),
        seconds=time.monotonic() - began,
    )


async def _start(database: Database, scope: Scope, clock: Clock) -> Build:
    async with database.transaction(scope) as tx:
        values = {"workspace_id": scope.workspace_id, "now": clock()}
        row = await (await tx.execute(_SQL["add_build"], values)).fetchone()
    if row is None:
        raise Conflict("the workspace has no graph in use")
    return Build(scope.workspace_id, row[0])


async def _follow(
    database: Database, projector: Projector, aside: Build, on_progress: Callable[[int, int], None], batch_events: int
) -> None:
    """Up to where the graph in use is, which may move on meanwhile; until what is missing is little."""
    position = 0
    while True:
        async with database.transaction(Scope(aside.workspace_id)) as tx:
            live = await live_build(tx, aside.workspace_id)
        upto = live[1] if live else 0
        if position and upto - position < batch_events:
            return
        while position < upto:
            position = await _fill(projector, aside, min(position + batch_events, upto), batch_events)
            on_progress(position, upto)
        if position == 0:
            return


async def _fill(projector: Projector, aside: Build, upto: int, batch_events: int) -> int:
    while True:
        reached = await projector.step(aside, batch_events, upto=upto)
        if reached is None:
            raise Conflict("another rebuild of this workspace has taken its place")
        if reached >= upto:
            return reached


async def _hold_live(tx: Tx, workspace_id: str) -> tuple[Build, int]:
    await tx.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    row = await (await tx.execute(_SQL["hold_live"], {"workspace_id": workspace_id})).fetchone()
    if row is None:
        raise Conflict("another rebuild of this workspace has just ended")
    return Build(workspace_id, row[0]), row[1]


async def _swap(tx: Tx, aside: Build) -> None:
    values = {"workspace_id": aside.workspace_id, "build": aside.number}
    ((last_build,),) = await (await tx.execute(_SQL["retire_live"], values)).fetchall()
    made = await tx.execute(_SQL["make_live"], {**values, "last_build": last_build})
    if made.rowcount != 1:
        raise Conflict("another rebuild of this workspace has taken its place")


async def digest(database: Database, workspace_id: str) -> str:
    """The digest of the graph in use."""
    async with database.transaction(Scope(workspace_id), timeout_ms=DIGEST_TIMEOUT_MS) as tx:
        live = await live_build(tx, workspace_id)
        return _whole(await _digests(tx, Build(workspace_id, live[0] if live else 0)))


async def _digests(tx: Tx, build: Build) -> dict[str, bytes]:
    values = {"workspace_id": build.workspace_id, "build": build.number}
    found: dict[str, bytes] = {}
    for table in TABLES:
        rows = await (await tx.execute(_SQL[f"digest_{table}"], values, binary=True)).fetchall()
        # Of an empty table there is none.
        found[table] = rows[0][0] or b""
    return found


def _whole(digests: dict[str, bytes]) -> str:
    return hashlib.sha256(b"".join(table.encode() + b"\0" + digests[table] for table in TABLES)).hexdigest()


async def _drop_unused(database: Database, scope: Scope) -> None:
    """Removes builds that are not in use, a few rows at a time so that no transaction is long. The entry goes last, so
    that what is left is found again; whoever still fills the build is told that it is gone."""
    values: dict[str, object] = {"workspace_id": scope.workspace_id, "limit": DROP_ROWS}
    async with database.transaction(scope) as tx:
        rows = await (await tx.execute(_SQL["begin_drop"], values)).fetchall()
    for (build,) in rows:
        for table in TABLES:
            while True:
                async with database.transaction(scope) as tx:
                    removed = await tx.execute(_SQL[f"drop_{table}"], {**values, "build": build})
                if removed.rowcount < DROP_ROWS:
                    break
        async with database.transaction(scope) as tx:
            await tx.execute(_SQL["drop_build"], {**values, "build": build})
