"""Seals: roots of one growing Merkle tree a workspace, and the proofs made from it.

Leaf n - 1 of the tree is the envelope on position n. A seal is the root over all positions up to its size. The next one
adds to the same tree, so that any two can be shown to agree. A root that is kept elsewhere pins everything below it.
"""

import asyncio
from datetime import timedelta
from uuid import UUID

from whence.clock import Clock
from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Damaged, FieldError, InvalidInput, NotFound, NotSealed
from whence.ledger.heads import head_of
from whence.ledger.leaves import hash_of_leaf, leaf_of, position_of
from whence.ledger.tree import (
    add_seal,
    last_seal,
    lock_tiles,
    put_tiles,
    read_leaves,
    read_tiles,
    seals_after,
    seals_of_sizes,
)
from whence.ledger.verify import Expected, Progress, Verification, Verifier
from whence.merkle import (
    Log,
    MissingHashes,
    Range,
    consistency_ranges,
    edge_tiles,
    hash_of,
    inclusion_ranges,
    tiles_of,
    verify_consistency,
    verify_inclusion,
)
from whence.wire import ConsistencyProof, InclusionProof, Seal, SealPage

MAX_SEAL_EVENTS = 65_536
SEAL_AT_EVENTS = 10_000
SEAL_AFTER = timedelta(seconds=60)
MAX_PAGE_SEALS = 1_000
CHUNK_EVENTS = 1_024

_SQL = load("whence.ledger")
_DAMAGED = "what is stored is not what was sealed: `whence verify` says where"


class Seals:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def seal(self, workspace_id: str) -> Seal | None:
        """Seals what is stored now; the last seal that it made, or None where nothing was new.

        A seal takes a bounded number of events, in one transaction. So whatever stops this on the way leaves the seals
        that it has made, and they are whole."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            head = await head_of(tx, workspace_id)
            last = await last_seal(tx, workspace_id)
        made = None
        while last.size < head and (sealed := await self._seal_next(workspace_id, head)) is not None:
            made = last = sealed
        return made

    async def _seal_next(self, workspace_id: str, head: int) -> Seal | None:
        """The next seal on the way to `head`; None where another sealer has come that far."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            await lock_tiles(tx, workspace_id)
            last = await last_seal(tx, workspace_id)
            if last.size >= head:
                return None
            log = await _resumed(tx, workspace_id, last)
            await _extend(tx, workspace_id, log, min(head, last.size + MAX_SEAL_EVENTS))
            seal = Seal(log.size, log.root().hex(), self._clock())
            await put_tiles(tx, workspace_id, log.take_full() | log.edge())
            await add_seal(tx, workspace_id, seal)
        return seal

    async def due(self) -> list[str]:
        """Workspaces that should be sealed now: with many new events, or with some that have waited for a while."""
        values = {"many": SEAL_AT_EVENTS, "before": self._clock() - SEAL_AFTER}
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["seals_due"], values)).fetchall()
        return [row[0] for row in rows]

    async def last(self, scope: Scope) -> Seal:
        """The last seal; one of size 0 where there is none."""
        async with self._database.transaction(scope) as tx:
            return await last_seal(tx, scope.workspace_id)

    async def page(self, scope: Scope, after: int, limit: int) -> SealPage:
        """Seals of more than `after` events, in order of size."""
        if not 1 <= limit <= MAX_PAGE_SEALS:
            raise InvalidInput("limit is out of range", (FieldError("limit", f"from 1 to {MAX_PAGE_SEALS}"),))
        if not 0 <= after < 1 << 63:
            raise InvalidInput("after is out of range", (FieldError("after", "a size, 0 or greater"),))
        async with self._database.transaction(scope) as tx:
            seals = await seals_after(tx, scope.workspace_id, after, limit + 1)
        return SealPage(seals[:limit], seals[limit - 1].size if len(seals) > limit else None)

    async def inclusion(self, scope: Scope, event_id: UUID) -> InclusionProof:
        """That the event is under the last seal. A proof is checked before it is given out."""
        values = {"workspace_id": scope.workspace_id, "user_id": scope.user_id, "event_id": event_id}
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["leaf_by_id"], values, binary=True)).fetchone()
            if row is None:
                raise NotFound("there is no such event")
            last = await last_seal(tx, scope.workspace_id)
            index = position_of(row) - 1
            if index >= last.size:
                raise NotSealed(f"the event is on position {index + 1}, and the last seal ends at {last.size}")
            path = await _path(tx, scope.workspace_id, inclusion_ranges(index, last.size))
        leaf = leaf_of(row)
        if not verify_inclusion(leaf, index, last.size, path, bytes.fromhex(last.root)):
            raise Damaged(_DAMAGED)
        return InclusionProof(event_id, index + 1, leaf.decode(), index, last.size, last.root, _hex(path))

    async def consistency(self, scope: Scope, old_size: int, new_size: int | None = None) -> ConsistencyProof:
        """That the later seal, the last one unless it is named, adds to the earlier one and changes nothing."""
        async with self._database.transaction(scope) as tx:
            new_size = new_size or (await last_seal(tx, scope.workspace_id)).size
            seals = await seals_of_sizes(tx, scope.workspace_id, {old_size, new_size})
            if {seal.size for seal in seals} != {old_size, new_size}:
                raise NotFound("there is no seal of that size: `from` and `to` are sizes of seals")
            if old_size > new_size:
                raise InvalidInput("from: is larger than to", (FieldError("from", "is larger than to"),))
            path = await _path(tx, scope.workspace_id, consistency_ranges(old_size, new_size))
        old, new = seals[0], seals[-1]
        if not verify_consistency(old.size, new.size, bytes.fromhex(old.root), bytes.fromhex(new.root), path):
            raise Damaged(_DAMAGED)
        return ConsistencyProof(old.size, new.size, old.root, new.root, _hex(path))

    async def verify(
        self, workspace_id: str, on_progress: Progress | None = None, expect: Expected | None = None
    ) -> Verification:
        """Reads every envelope, tile and seal again, and names what does not fit together."""
        return await Verifier(self._database, workspace_id, on_progress, expect).run()


async def _resumed(tx: Tx, workspace_id: str, last: Seal) -> Log:
    """The tree as the last seal left it. On hashes that were changed since, nothing is built."""
    try:
        log = Log(last.size, await read_tiles(tx, workspace_id, edge_tiles(last.size)))
    except MissingHashes as error:
        raise Damaged(_DAMAGED) from error
    if log.root().hex() != last.root:
        raise Damaged(_DAMAGED)
    return log


async def _extend(tx: Tx, workspace_id: str, log: Log, up_to: int) -> None:
    while log.size < up_to:
        end = min(log.size + CHUNK_EVENTS, up_to)
        rows = await read_leaves(tx, workspace_id, log.size, end)
        if list(map(position_of, rows)) != list(range(log.size + 1, end + 1)):
            raise Damaged(f"positions from {log.size + 1} to {end} are not all there: `whence verify` says which")
        log.extend(map(hash_of_leaf, rows))
        # Whoever else this process serves must not wait for a whole seal.
        await asyncio.sleep(0)


async def _path(tx: Tx, workspace_id: str, ranges: list[Range]) -> list[bytes]:
    tiles = await read_tiles(tx, workspace_id, tiles_of(ranges))
    try:
        return [hash_of(part, tiles) for part in ranges]
    except MissingHashes as error:
        raise Damaged(_DAMAGED) from error


def _hex(path: list[bytes]) -> list[str]:
    return [item.hex() for item in path]
