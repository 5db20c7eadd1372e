"""Working memory: what an agent jots down between two steps, under a key, until it expires.

It belongs to one instance of an agent, and to whoever wrote it: a user, or the workspace itself. It is in no ledger, so
nothing is derived from it and nothing can bring it back.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from whence.clock import Clock
from whence.db import EVERY_WORKSPACE, Database, Scope
from whence.db.queries import load
from whence.db.trip import Statement
from whence.errors import FieldError, InvalidInput, NotFound, TooLarge
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS, check_text
from whence.memory.writing import refused
from whence.wire import WorkingEntry, WorkingKey, WorkingKeys, WorkingStored

MAX_INSTANCE_BYTES = 131_072
DEFAULT_TTL_S = 3_600
MIN_TTL_S = 1
MAX_TTL_S = 2_592_000
SWEEP_ROWS = 1_000

_SQL = load("whence.memory.working")
VALUES = Statement("working_values", _SQL["values"])


class Working:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def put(
        self, scope: Scope, agent: str, instance: str, key: str, value: bytes, ttl_s: int = DEFAULT_TTL_S
    ) -> WorkingStored:
        """Stores a JSON value for `ttl_s` seconds, in place of what was there; or changes nothing, where it is refused.

        The keys and values of an instance may take a number of bytes together. That is exact, also when many write at
        once, and what has expired does not count.
        """
        if not MIN_TTL_S <= ttl_s <= MAX_TTL_S:
            raise refused("ttl_s", f"from {MIN_TTL_S} to {MAX_TTL_S:,} seconds")
        values = self._values(scope, agent, instance, key)
        text = _json_text(key, value)
        expires_at: datetime = values["now"] + timedelta(seconds=ttl_s)
        values |= {"value": text, "budget": MAX_INSTANCE_BYTES, "expires_at": expires_at}
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["put"], values)).fetchone()
        assert row is not None
        stored, size, taken = row
        left = MAX_INSTANCE_BYTES - taken
        if not stored:
            raise _too_large(
                f"takes {size:,} bytes with its key, and {left:,} of {MAX_INSTANCE_BYTES:,} are left in this instance:"
                f" its other keys take {taken:,}"
            )
        return WorkingStored(key, expires_at, size, left - size)

    async def get(self, scope: Scope, agent: str, instance: str, key: str) -> WorkingEntry:
        async with self._database.transaction(scope) as tx:
            cursor = await tx.execute(_SQL["get"], self._values(scope, agent, instance, key))
            row = await cursor.fetchone()
        if row is None:
            raise NotFound("there is no such key, or it has expired")
        return WorkingEntry(key, msgspec.Raw(row[0].encode()), row[1])

    async def keys(self, scope: Scope, agent: str, instance: str) -> WorkingKeys:
        """All keys of the instance, in order; the budget bounds how many there can be."""
        async with self._database.transaction(scope) as tx:
            cursor = await tx.execute(_SQL["keys"], self._values(scope, agent, instance))
            found = [WorkingKey(*row) for row in await cursor.fetchall()]
        taken = sum(item.bytes for item in found)
        return WorkingKeys(found, taken, MAX_INSTANCE_BYTES - taken)

    async def delete(self, scope: Scope, agent: str, instance: str, key: str) -> None:
        async with self._database.transaction(scope) as tx:
            cursor = await tx.execute(_SQL["delete"], self._values(scope, agent, instance, key))
        if cursor.rowcount == 0:
            raise NotFound("there is no such key, or it has expired")

    async def due(self) -> list[str]:
        """Workspaces with something to sweep."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["due"], {"now": self._clock()})).fetchall()
        return [row[0] for row in rows]

    async def sweep(self, workspace_id: str) -> int:
        """Removes entries that have expired, at most `SWEEP_ROWS`; says how many. Nobody could see them any more."""
        values = {"workspace_id": workspace_id, "now": self._clock(), "limit": SWEEP_ROWS}
        async with self._database.transaction(Scope(workspace_id)) as tx:
            return (await tx.execute(_SQL["sweep"], values)).rowcount

    def _values(self, scope: Scope, agent: str, instance: str, key: str | None = None) -> dict[str, Any]:
        """What every statement is given, once the names are known to be such that there could be something."""
        found: list[FieldError] = []
        names = {"agent": agent, "instance": instance} | ({} if key is None else {"key": key})
        for field, name in names.items():
            check_text(found, field, name, MAX_IDENTIFIER_CHARACTERS)
        if found:
            raise InvalidInput("; ".join(f"{item.field}: {item.message}" for item in found), tuple(found))
        whose = {"workspace_id": scope.workspace_id, "user_id": scope.user_id, "owner": scope.user_id or ""}
        return {**whose, "now": self._clock(), **names}


def _json_text(key: str, value: bytes) -> str:
    """The value as it is stored: as it was sent, so that its numbers keep their digits."""
    size = len(key.encode()) + len(value)
    if size > MAX_INSTANCE_BYTES:
        raise _too_large(f"takes {size:,} bytes with its key, and an instance holds {MAX_INSTANCE_BYTES:,}")
    try:
        msgspec.json.decode(value)
        return value.decode()
    except RecursionError:
        raise refused("value", "is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused("value", f"is not valid JSON: {error}") from None


def _too_large(message: str) -> TooLarge:
    return TooLarge(f"value: {message}", (FieldError("value", message),))
