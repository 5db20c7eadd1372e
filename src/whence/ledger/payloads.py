"""Payloads: sealed under their subject's key before they are stored, opened when they are read.

Keys are made on first use and remembered in memory, bounded and for a short time only, so that a key that was
shredded elsewhere is soon gone here as well.
"""

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec

from whence.clock import Clock
from whence.crypto import KeyProvider, Shredded, ShreddedKey, SubjectKey, Wrapped
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import SetupError
from whence.wire import Event

# No subject or user can be called this, because an id has at least one character.
WORKSPACE_SUBJECT = ""
KEY_CACHE_SECONDS = 60.0
KEY_CACHE_SIZE = 10_000

_SQL = load("whence.ledger")


def subject_of(event: Event) -> str:
    """Whose data a payload is: the named subject's, else the user's, else the workspace's."""
    return event.subject_id or event.user_id or WORKSPACE_SUBJECT


def canonical(payload: bytes | memoryview) -> bytes:
    """The same for any spelling of the same JSON value, so that a repeat is known by what it says."""
    return msgspec.json.encode(msgspec.json.decode(payload), order="deterministic")


def upload_place(workspace_id: str, resource_id: UUID, part: int) -> bytes:
    """What binds a part of a file that is still to be read to where it belongs."""
    return b"resource part %d " % part + resource_id.bytes + workspace_id.encode()


async def tie_to_provider(database: Database, provider: KeyProvider, now: datetime) -> None:
    """A database is tied to the key that its first start had; with another one nothing could be read."""
    async with database.transaction(None) as tx:
        await tx.execute(_SQL["set_installation_kek"], {"kek_id": provider.kek_id, "now": now})
    known = await installed_kek(database)
    if known != provider.kek_id:
        raise SetupError(
            f"the database was written with the key {known}, the key file holds {provider.kek_id}:"
            " restore the right key file, or name it with WHENCE_KEY_FILE"
        )


async def installed_kek(database: Database) -> str | None:
    """The name of the key that the database is tied to."""
    async with database.transaction(None) as tx:
        row = await (await tx.execute(_SQL["installation_kek"])).fetchone()
    return row[0] if row else None


KeyRow = tuple[str, UUID, str, bytes]
"""Subject, id of the key, name of the key-encryption key, wrapped key."""


class SubjectKeys:
    def __init__(self, database: Database, provider: KeyProvider, clock: Clock) -> None:
        self._database = database
        self._provider = provider
        self._clock = clock
        self._cache: dict[tuple[str, str], tuple[float, SubjectKey]] = {}

    def remembered(self, workspace_id: str, subject_ids: Iterable[str]) -> dict[str, SubjectKey] | None:
        """The keys, if all of them are in memory."""
        now = time.monotonic()
        keys: dict[str, SubjectKey] = {}
        for subject_id in subject_ids:
            entry = self._cache.get((workspace_id, subject_id))
            if entry is None or entry[0] < now:
                return None
            keys[subject_id] = entry[1]
        return keys

    async def ensure(self, workspace_id: str, subject_ids: set[str]) -> dict[str, SubjectKey]:
        """The subjects' keys; makes those that do not exist."""
        keys = self.remembered(workspace_id, subject_ids)
        if keys is not None:
            return keys
        async with self._database.transaction(Scope(workspace_id)) as tx:
            rows = await self.read(tx, workspace_id, subject_ids)
        missing = sorted(subject_ids - {row[0] for row in rows})
        if missing:
            await self._add(workspace_id, missing)
            async with self._database.transaction(Scope(workspace_id)) as tx:
                rows += await self.read(tx, workspace_id, set(missing))
        return await self.opened(workspace_id, rows)

    async def read(self, tx: Tx, workspace_id: str, subject_ids: set[str]) -> list[KeyRow]:
        """The subjects' keys as they are stored, to be opened after the transaction: a provider may be far away."""
        values = {"workspace_id": workspace_id, "subject_ids": list(subject_ids)}
        rows: list[Any] = await (await tx.execute(_SQL["subject_keys"], values)).fetchall()
        return rows

    async def opened(self, workspace_id: str, rows: list[KeyRow]) -> dict[str, SubjectKey]:
        unwrapped = await self._provider.unwrap([Wrapped(kek_id, key) for _, _, kek_id, key in rows])
        keys = {
            row[0]: ShreddedKey(row[1]) if key is None else SubjectKey(row[1], key)
            for row, key in zip(rows, unwrapped, strict=True)
        }
        self._remember(workspace_id, keys)
        return keys

    async def shred(self, workspace_id: str, keys: Sequence[Shredded]) -> None:
        """After they are gone from the database: no copy of them will open anything either."""
        shredded = {key.key_id for key in keys}
        self._cache = {
            place: entry
            for place, entry in self._cache.items()
            if place[0] != workspace_id or entry[1].key_id not in shredded
        }
        if keys:
            await self._provider.shred(keys)

    async def restored(self, workspace_id: str) -> list[str]:
        """The subjects whose keys were shredded and are in the database all the same, as after a restored backup."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            rows: list[Any] = await (
                await tx.execute(_SQL["all_subject_keys"], {"workspace_id": workspace_id})
            ).fetchall()
        unwrapped = await self._provider.unwrap([Wrapped(kek_id, key) for _, _, kek_id, key in rows])
        return [row[0] for row, key in zip(rows, unwrapped, strict=True) if key is None]

    def forget(self, workspace_id: str, subject_id: str) -> None:
        self._cache.pop((workspace_id, subject_id), None)

    async def _add(self, workspace_id: str, subject_ids: list[str]) -> None:
        values = {
            "workspace_id": workspace_id,
            "subject_ids": subject_ids,
            "key_ids": [uuid4() for _ in subject_ids],
            "wrapped_keys": await self._provider.wrap([SubjectKey.generate() for _ in subject_ids]),
            "kek_id": self._provider.kek_id,
            "now": self._clock(),
        }
        async with self._database.transaction(Scope(workspace_id)) as tx:
            await tx.execute(_SQL["add_subject_keys"], values)

    def _remember(self, workspace_id: str, keys: dict[str, SubjectKey]) -> None:
        now = time.monotonic()
        self._cache = {place: entry for place, entry in self._cache.items() if entry[0] > now}
        if len(self._cache) + len(keys) > KEY_CACHE_SIZE:
            self._cache.clear()
        until = now + KEY_CACHE_SECONDS
        for subject_id, key in keys.items():
            self._cache[workspace_id, subject_id] = (until, key)
