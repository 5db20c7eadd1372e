"""The tree of a workspace as it is stored: leaves by position, tiles by place, seals by size."""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from whence.db import Tx
from whence.db.queries import load
from whence.ledger.leaves import Row
from whence.merkle import EMPTY_ROOT, Tile, Tiles
from whence.wire import Seal

_SQL = load("whence.ledger")

UNSEALED = Seal(0, EMPTY_ROOT.hex(), datetime.fromtimestamp(0, UTC))
"""What stands for the last seal before there is one."""


async def read_leaves(tx: Tx, workspace_id: str, after: int, up_to: int) -> list[Row]:
    values = {"workspace_id": workspace_id, "after": after, "up_to": up_to}
    return await (await tx.execute(_SQL["leaves"], values, binary=True)).fetchall()


async def last_seal(tx: Tx, workspace_id: str) -> Seal:
    rows = await _seals(tx, "last_seal", workspace_id)
    return rows[0] if rows else UNSEALED


async def seals_after(tx: Tx, workspace_id: str, after: int, limit: int) -> list[Seal]:
    return await _seals(tx, "seals_after", workspace_id, after=after, limit=limit)


async def seals_between(tx: Tx, workspace_id: str, after: int, up_to: int) -> list[Seal]:
    return await _seals(tx, "seals_between", workspace_id, after=after, up_to=up_to)


async def seals_of_sizes(tx: Tx, workspace_id: str, sizes: Collection[int]) -> list[Seal]:
    return await _seals(tx, "seals_of_sizes", workspace_id, sizes=list(sizes))


async def _seals(tx: Tx, statement: str, workspace_id: str, **values: Any) -> list[Seal]:
    found = await tx.execute(_SQL[statement], {"workspace_id": workspace_id, **values}, binary=True)
    return [Seal(*row) for row in await found.fetchall()]


async def add_seal(tx: Tx, workspace_id: str, seal: Seal) -> None:
    values = {
        "workspace_id": workspace_id,
        "size": seal.size,
        "root": bytes.fromhex(seal.root),
        "sealed_at": seal.sealed_at,
    }
    await tx.execute(_SQL["add_seal"], values)


async def lock_tiles(tx: Tx, workspace_id: str) -> None:
    """Whoever seals a workspace waits here until the one before has committed."""
    await tx.execute(_SQL["lock_tiles"], {"workspace_id": workspace_id})


async def read_tiles(tx: Tx, workspace_id: str, wanted: Collection[Tile]) -> Tiles:
    values = {
        "workspace_id": workspace_id,
        "levels": [tile.level for tile in wanted],
        "tiles": [tile.number for tile in wanted],
    }
    rows = await (await tx.execute(_SQL["tiles"], values, binary=True)).fetchall() if wanted else []
    return {Tile(level, number): hashes for level, number, hashes in rows}


async def put_tiles(tx: Tx, workspace_id: str, tiles: Tiles) -> None:
    values = {
        "workspace_id": workspace_id,
        "levels": [tile.level for tile in tiles],
        "tiles": [tile.number for tile in tiles],
        "hashes": list(tiles.values()),
    }
    await tx.execute(_SQL["put_tiles"], values)
