"""Workspaces, users and their keys.

A key reads `uk_<workspace>.<key id>.<secret>` (`ak_` for an administrator's): it names its workspace, so that looking
it up is a query inside one workspace like any other. Only a hash of the key is stored.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict, FieldError, InvalidInput, NotFound, Unauthenticated

ADMIN_USER: Final = "admin"
AUTHENTICATION_CACHE_SECONDS = 1.0
AUTHENTICATION_CACHE_KEYS = 10_000

_WORKSPACE_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_KEY_FORM = re.compile(r"(?:uk|ak)_([A-Za-z0-9][A-Za-z0-9._@-]{0,127})\.([0-9a-f]{12})\.([A-Za-z0-9_-]{43})")
_SQL = load("whence.identity")

Role = Literal["admin", "member"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request is from."""

    workspace_id: str
    user_id: str
    is_admin: bool

    @property
    def scope(self) -> Scope:
        return Scope(self.workspace_id, None if self.is_admin else self.user_id)


@dataclass(frozen=True, slots=True)
class UserRow:
    user_id: str
    role: Role
    created_at: datetime
    live_keys: int


class Identity:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[bytes, tuple[float, Principal]] = {}
        self._asked: dict[bytes, asyncio.Task[Principal]] = {}

    async def add_workspace(self, workspace_id: str, keep: Callable[[str], None] | None = None) -> str:
        """Makes a workspace and its administrator; returns the administrator's key, which is shown this once.

        `keep` is given the key before the commit, so that no workspace exists whose key nobody has.
        """
        _check_workspace_id(workspace_id)
        async with self._database.transaction(Scope(workspace_id)) as tx:
            cursor = await tx.execute(_SQL["add_workspace"], {"workspace_id": workspace_id, "now": self._clock()})
            if await cursor.fetchone() is None:
                raise Conflict(f"the workspace {workspace_id} exists already")
            await tx.execute(_SQL["add_head"], {"workspace_id": workspace_id})
            key = await self._add_user(tx, workspace_id, ADMIN_USER, "admin")
            if keep is not None:
                keep(key)
            return key

    async def workspace_exists(self, workspace_id: str) -> bool:
        async with self._database.transaction(Scope(workspace_id)) as tx:
            cursor = await tx.execute(_SQL["workspace_exists"], {"workspace_id": workspace_id})
            return await cursor.fetchone() == (True,)

    async def add_user(self, workspace_id: str, user_id: str) -> str:
        """Makes a user; returns the key, which is shown this once."""
        _check_workspace_id(workspace_id)
        check_user_id(user_id)
        async with self._database.transaction(Scope(workspace_id)) as tx:
            return await self._add_user(tx, workspace_id, user_id, "member")

    async def ensure_user(self, workspace_id: str, user_id: str) -> tuple[str | None, datetime]:
        """The same for who may have made the user before: then there is no key to show. And when the user was made."""
        check_user_id(user_id)
        async with self._database.transaction(Scope(workspace_id)) as tx:
            values = {"workspace_id": workspace_id, "user_id": user_id, "role": "member", "now": self._clock()}
            made = await (await tx.execute(_SQL["add_user"], values)).fetchone()
            key = None if made is None else await self._add_key(tx, workspace_id, user_id, "member")
            row = await (await tx.execute(_SQL["user_since"], values)).fetchone()
        assert row is not None
        return key, row[0]

    async def list_users(self, workspace_id: str) -> list[UserRow]:
        await self._require_workspace(workspace_id)
        async with self._database.transaction(Scope(workspace_id)) as tx:
            cursor = await tx.execute(_SQL["list_users"], {"workspace_id": workspace_id, "now": self._clock()})
            return [UserRow(*row) for row in await cursor.fetchall()]

    async def rotate_key(
        self, workspace_id: str, user_id: str, overlap: timedelta, keep: Callable[[str], None] | None = None
    ) -> str:
        """A new key for the user; the older ones go on working for `overlap`. `keep` as in `add_workspace`."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            role = await self._role(tx, workspace_id, user_id)
            await self._expire_keys(tx, workspace_id, user_id, self._clock() + overlap)
            key = await self._add_key(tx, workspace_id, user_id, role)
            if keep is not None:
                keep(key)
            return key

    async def revoke_keys(self, workspace_id: str, user_id: str) -> int:
        """Ends all keys of the user; returns how many that were. They fail everywhere within a second."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            await self._role(tx, workspace_id, user_id)
            ended = await self._expire_keys(tx, workspace_id, user_id, self._clock())
        self._known.clear()
        return ended

    async def authenticate(self, key: str) -> Principal:
        """Who holds this key. Remembered for a second, so that a revoked key stops within one."""
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        task = self._asked.get(digest)
        if task is None:
            task = asyncio.create_task(self._look_up(key, digest))
            self._asked[digest] = task
            task.add_done_callback(lambda _: self._asked.pop(digest, None))
        return await asyncio.shield(task)

    async def _look_up(self, key: str, digest: bytes) -> Principal:
        form = _KEY_FORM.fullmatch(key)
        if form is None:
            raise Unauthenticated("the key is not valid")
        workspace_id, key_id = form[1], form[2]
        async with self._database.transaction(Scope(workspace_id)) as tx:
            values = {"workspace_id": workspace_id, "key_id": key_id, "now": self._clock()}
            row = await (await tx.execute(_SQL["find_key"], values)).fetchone()
        user_id, role, stored = row or ("", "member", bytes(32))
        if not hmac.compare_digest(digest, stored):
            raise Unauthenticated("the key is not valid")
        principal = Principal(workspace_id, user_id, role == "admin")
        if len(self._known) >= AUTHENTICATION_CACHE_KEYS:
            self._known.clear()
        self._known[digest] = (time.monotonic() + AUTHENTICATION_CACHE_SECONDS, principal)
        return principal

    async def _add_user(self, tx: Tx, workspace_id: str, user_id: str, role: Role) -> str:
        values = {"workspace_id": workspace_id, "user_id": user_id, "role": role, "now": self._clock()}
        if await (await tx.execute(_SQL["add_user"], values)).fetchone() is None:
            cursor = await tx.execute(_SQL["workspace_exists"], {"workspace_id": workspace_id})
            if await cursor.fetchone() == (True,):
                raise Conflict(f"the user {user_id} exists already: `whence user rotate` makes a new key")
            raise NotFound(f"there is no workspace {workspace_id}")
        return await self._add_key(tx, workspace_id, user_id, role)

    async def _add_key(self, tx: Tx, workspace_id: str, user_id: str, role: Role) -> str:
        key_id = secrets.token_hex(6)
        key = f"{'ak' if role == 'admin' else 'uk'}_{workspace_id}.{key_id}.{secrets.token_urlsafe(32)}"
        values = {
            "workspace_id": workspace_id,
            "key_id": key_id,
            "user_id": user_id,
            "key_hash": hashlib.sha256(key.encode()).digest(),
            "now": self._clock(),
        }
        await tx.execute(_SQL["add_key"], values)
        return key

    async def _role(self, tx: Tx, workspace_id: str, user_id: str) -> Role:
        cursor = await tx.execute(_SQL["find_user"], {"workspace_id": workspace_id, "user_id": user_id})
        row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"there is no user {user_id} in the workspace {workspace_id}")
        return row[0]

    async def _expire_keys(self, tx: Tx, workspace_id: str, user_id: str, expires_at: datetime) -> int:
        values = {"workspace_id": workspace_id, "user_id": user_id, "expires_at": expires_at}
        return (await tx.execute(_SQL["expire_keys"], values)).rowcount

    async def _require_workspace(self, workspace_id: str) -> None:
        if not await self.workspace_exists(workspace_id):
            raise NotFound(f"there is no workspace {workspace_id}")


def _check_workspace_id(workspace_id: str) -> None:
    if _WORKSPACE_FORM.fullmatch(workspace_id) is None:
        message = "1 to 128 characters: letters, digits and . _ @ -, the first a letter or a digit"
        raise InvalidInput(f"workspace_id: {message}", (FieldError("workspace_id", message),))


def check_user_id(user_id: str) -> None:
    if not 1 <= len(user_id) <= 256 or not user_id.isprintable():
        message = "1 to 256 printable characters"
        raise InvalidInput(f"user_id: {message}", (FieldError("user_id", message),))
