"""Threads of agents: whose they are, what their checkpoints are sealed under, and their end.

The checkpoints themselves are written by LangGraph's own saver, through `whence.langgraph`; nothing here needs the
framework to be installed. A thread belongs to a user of a workspace, and its name is that user's own: the tables of the
framework know it by a longer one, which begins with whose it is.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from whence.checkpoints.sealing import SEALED, Keys, Sealer, UnknownKey, place_of
from whence.clock import Clock
from whence.crypto import SubjectKey
from whence.db import Database, Scope, Tx
from whence.db.arrays import Times, scalar
from whence.db.queries import load
from whence.db.trip import Statement, Values
from whence.errors import FieldError, InvalidInput, NotFound, SetupError, Unavailable
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS, text_problem
from whence.ledger.payloads import KEY_CACHE_SECONDS, KEY_CACHE_SIZE, SubjectKeys

PAGE_ROWS = 50
"""So many rows of a thread are held at once while they are sealed anew, copied or exported."""
RESEAL_TIMEOUT_MS = 10 * 60 * 1000

Progress = Callable[[int, int], None]
Within = Callable[[], AbstractAsyncContextManager[Tx]]

_SQL = load("whence.checkpoints")
_encode = msgspec.json.Encoder().encode
_TOUCH = Statement("touch_thread", _SQL["touch"])


class Thread(NamedTuple):
    user_id: str
    thread_id: str
    stored_as: str
    conversation_id: str | None
    key_id: UUID | None
    created_at: datetime
    used_at: datetime


class Rotated(msgspec.Struct, frozen=True):
    """What became of a rotation."""

    users: int
    threads: int
    """Sealed under the new keys, whatever they were under, or in clear, before."""
    dropped_keys: int


class ThreadName(NamedTuple):
    """A thread as its user names it."""

    workspace_id: str
    user_id: str
    thread_id: str

    @property
    def stored_as(self) -> str:
        """The same as `whence.thread_prefix` makes it."""
        return f"{self.workspace_id}/{len(self.user_id)}:{self.user_id}/{self.thread_id}"


def thread_name(workspace_id: str, user_id: str, thread_id: object) -> ThreadName:
    """Numbers are names too."""
    name = str(thread_id)
    problem = text_problem(name, MAX_IDENTIFIER_CHARACTERS)
    if problem is not None:
        raise InvalidInput(f"thread_id: {problem}", (FieldError("thread_id", problem),))
    return ThreadName(workspace_id, user_id, name)


class Touch(NamedTuple):
    """That a thread is written to, sealed under this key or in clear."""

    name: ThreadName
    conversation_id: str | None
    key_id: UUID | None
    now: datetime

    async def execute(self, tx: Tx) -> None:
        given = {"conversation_id": self.conversation_id, "key_id": self.key_id, "now": self.now}
        await tx.execute(_SQL["touch"], {**self.name._asdict(), **given})

    def of_trip(self) -> tuple[Statement, Values]:
        """The same for a transaction that is one trip."""
        values: dict[str, bytes | None] = {name: value.encode() for name, value in self.name._asdict().items()}
        values["conversation_id"] = None if self.conversation_id is None else self.conversation_id.encode()
        values["key_id"] = None if self.key_id is None else self.key_id.bytes
        values["now"] = scalar(Times, self.now)
        return _TOUCH, values


class Threads:
    def __init__(self, database: Database, subject_keys: SubjectKeys, clock: Clock) -> None:
        self._database = database
        self._subject_keys = subject_keys
        self._clock = clock
        self._cache: dict[tuple[str, str], tuple[float, Keys]] = {}
        self._workspaces: set[str] = set()

    def is_known(self, workspace_id: str) -> bool:
        return workspace_id in self._workspaces

    async def check_workspace(self, tx: Tx, workspace_id: str) -> None:
        """Threads of a workspace whose name is misspelt would be found by no export and no erasure."""
        found = await tx.execute(_SQL["workspace_exists"], {"workspace_id": workspace_id})
        if not found.rowcount:
            raise NotFound(f"there is no workspace {workspace_id}")
        self._workspaces.add(workspace_id)

    async def keys(self, workspace_id: str, user_id: str, make: bool = False, within: Within | None = None) -> Keys:
        """The user's keys. With `make` there is one to seal with. They are read `within` a transaction of the caller's,
        who should not wait for another connection while holding one; only a first key is made in one of its own."""
        until, keys = self._cache.get((workspace_id, user_id), (0.0, None))
        if keys is None or until < time.monotonic() or (make and keys.newest is None):
            keys = await self._read_keys(workspace_id, user_id, within)
            if make and keys.newest is None:
                keys = await self._add_key(workspace_id, user_id, only_first=True)
            if len(self._cache) >= KEY_CACHE_SIZE:
                self._cache.clear()
            self._cache[workspace_id, user_id] = (time.monotonic() + KEY_CACHE_SECONDS, keys)
        return keys

    def forget(self, workspace_id: str, user_id: str) -> None:
        """What is remembered of the user's keys, which were perhaps rotated or erased elsewhere."""
        self._cache.pop((workspace_id, user_id), None)
        self._subject_keys.forget(workspace_id, user_id)

    async def _read_keys(self, workspace_id: str, user_id: str, within: Within | None = None) -> Keys:
        values = {"workspace_id": workspace_id, "user_id": user_id}
        async with within() if within else self._database.transaction(Scope(workspace_id)) as tx:
            rows: list[Any] = await (await tx.execute(_SQL["thread_keys"], values, binary=True)).fetchall()
            subject_rows = await self._subject_keys.read(tx, workspace_id, {user_id}) if rows else []
        if not subject_rows:
            return Keys({})
        subject = (await self._subject_keys.opened(workspace_id, subject_rows))[user_id]
        return Keys({row[0]: SubjectKey(row[0], subject.open(_place(workspace_id, row[0]), row[2])) for row in rows})

    async def _add_key(self, workspace_id: str, user_id: str, only_first: bool) -> Keys:
        """One more, which seals from now on; `only_first`: unless there is one."""
        subject = (await self._subject_keys.ensure(workspace_id, {user_id}))[user_id]
        values = {"workspace_id": workspace_id, "user_id": user_id}
        try:
            async with self._database.transaction(Scope(workspace_id)) as tx:
                await self.beside_erasure(tx, workspace_id, [user_id])
                await tx.execute(_SQL["add_alone"], values)
                now = self._clock()
                rows: list[Any] = await (await tx.execute(_SQL["thread_keys"], values, binary=True)).fetchall()
                if not (rows and only_first):
                    key_id = _next_id(now, rows[-1][0] if rows else None)
                    sealed = subject.seal(_place(workspace_id, key_id), SubjectKey.generate(), b"").ciphertext
                    added = {"key_id": key_id, "subject_key_id": subject.key_id, "sealed_key": sealed, "now": now}
                    await tx.execute(_SQL["add_thread_key"], {**values, **added})
        except psycopg.errors.ForeignKeyViolation as error:
            # The subject's key that is remembered here was shredded elsewhere.
            self.forget(workspace_id, user_id)
            raise Unavailable("the user was erased at this moment: try again") from error
        return await self._read_keys(workspace_id, user_id)

    def touching(self, name: ThreadName, conversation_id: str | None, key: SubjectKey | None) -> "Touch":
        """What is done before anything is written to the thread, in the same transaction."""
        return Touch(name, conversation_id, key and key.key_id, self._clock())

    async def beside_erasure(self, tx: Tx, workspace_id: str, user_ids: Iterable[str]) -> None:
        """First of all in a transaction that holds threads or keys: an erasure of their user holds the head while it
        removes them, and is not to wait for them then."""
        for user_id in sorted(set(user_ids)):
            await tx.execute(_SQL["beside_erasure"], {"workspace_id": workspace_id, "user_id": user_id})

    async def of_user(self, tx: Tx, workspace_id: str, user_id: str) -> list[Thread]:
        values = {"workspace_id": workspace_id, "user_id": user_id}
        return [Thread(*row) for row in await (await tx.execute(_SQL["threads_of_user"], values)).fetchall()]

    async def delete(self, tx: Tx, workspace_id: str, threads: Sequence[tuple[str, str]]) -> int:
        """Users and their threads, with all their checkpoints; says how many there were."""
        values: dict[str, Any] = {"workspace_id": workspace_id}
        values |= {"user_ids": [user for user, _ in threads], "thread_ids": [thread for _, thread in threads]}
        await self.beside_erasure(tx, workspace_id, values["user_ids"])
        return (await tx.execute(_SQL["delete_threads"], values)).rowcount

    async def delete_of_conversations(self, tx: Tx, workspace_id: str, conversation_ids: Sequence[str | UUID]) -> int:
        """The same for threads of conversations whose time is over. In the workspace's scope."""
        values = {"workspace_id": workspace_id, "conversation_ids": list(map(str, conversation_ids))}
        return (await tx.execute(_SQL["delete_threads_of_conversations"], values)).rowcount

    async def delete_runs(self, tx: Tx, workspace_id: str, user_id: str, run_ids: Sequence[str], keys: Keys) -> None:
        """What these runs left in the user's threads, and values that only they referred to."""
        marks = [mark for run_id in run_ids for mark in keys.marks(run_id)]
        values = {"workspace_id": workspace_id, "user_id": user_id, "run_ids": list(run_ids), "marks": marks}
        await self.beside_erasure(tx, workspace_id, [user_id])
        rows = await (await tx.execute(_SQL["hold_runs"], values)).fetchall()
        stored = {"stored_as": [row[0] for row in rows]}
        if rows:
            await tx.execute(_SQL["delete_runs"], {**values, **stored})
            await tx.execute(_SQL["delete_loose_blobs"], stored)

    async def prune(self, tx: Tx, names: Sequence[ThreadName]) -> bool:
        """Leaves the newest checkpoint of each namespace that is not over; says whether it may not, and then changes
        nothing."""
        if not names:
            return False
        stored = {"stored_as": [row[0] for row in await self._hold(tx, names)]}
        if await (await tx.execute(_SQL["delta_threads"], stored)).fetchone() == (True,):
            return True
        for statement in ("prune", "part_with_parents", "delete_loose_blobs"):
            await tx.execute(_SQL[statement], stored)
        return False

    async def _hold(self, tx: Tx, names: Sequence[ThreadName]) -> list[Any]:
        """Threads of one user, those that there are."""
        whose = {"workspace_id": names[0].workspace_id, "user_id": names[0].user_id}
        await self.beside_erasure(tx, names[0].workspace_id, [names[0].user_id])
        values = {**whose, "thread_ids": [name.thread_id for name in names]}
        return await (await tx.execute(_SQL["hold_threads"], values)).fetchall()

    async def find(self, tx: Tx, workspace_id: str, user_id: str, **wanted: Any) -> list[Any]:
        """A page of checkpoints: thread, stored name, namespace, id and metadata as they are stored."""
        values = {"workspace_id": workspace_id, "user_id": user_id, **wanted, "wanted": Jsonb(wanted["wanted"])}
        statement = "find_checkpoints" if values["thread_id"] is None else "find_in_thread"
        return await (await tx.execute(_SQL[statement], values)).fetchall()

    async def copy(
        self, tx: Tx, source: ThreadName, target: ThreadName, keys: Keys, seal_clear: bool, conversation_id: str | None
    ) -> None:
        """All of it, what is sealed sealed anew: it is bound to its thread. A copy ends with the given conversation, or
        with the one that it is in already, or with that of its source."""
        ends_with = {row[1]: row[2] for row in await self._hold(tx, [source, target])}
        if source.thread_id not in ends_with:
            return
        ending = conversation_id or ends_with.get(target.thread_id) or ends_with[source.thread_id]
        await self.touching(target, ending, keys.newest).execute(tx)
        sealers = (Sealer(keys, source.stored_as), Sealer(keys, target.stored_as))
        await _rewrite(tx, source.stored_as, target.stored_as, *sealers, seal_clear)

    async def rotate(
        self, workspace_id: str, user_id: str | None = None, on_progress: Progress = lambda _done, _total: None
    ) -> Rotated:
        """A new key for each user, and everything sealed under it; keys that nothing needs any more are dropped.

        Thread by thread, each in a transaction, so that it may be stopped and begun again, and users go on meanwhile.
        """
        async with self._database.transaction(Scope(workspace_id)) as tx:
            values = {"workspace_id": workspace_id, "user_id": user_id}
            users = [row[0] for row in await (await tx.execute(_SQL["users_with_threads"], values)).fetchall()]
        if user_id is not None and not users:
            raise NotFound(f"the user {user_id} has no threads")
        threads = dropped = 0
        for done, user in enumerate(users):
            on_progress(done, len(users))
            self.forget(workspace_id, user)
            keys = await self._add_key(workspace_id, user, only_first=False)
            self.forget(workspace_id, user)
            threads += await self._reseal_all(workspace_id, user, keys)
            dropped += await self._drop_unused(workspace_id, user, keys)
        on_progress(len(users), len(users))
        return Rotated(len(users), threads, dropped)

    async def _reseal_all(self, workspace_id: str, user_id: str, keys: Keys) -> int:
        async with self._database.transaction(Scope(workspace_id)) as tx:
            threads = await self.of_user(tx, workspace_id, user_id)
        for thread in threads:
            async with self._database.transaction(Scope(workspace_id), timeout_ms=RESEAL_TIMEOUT_MS) as tx:
                await self._reseal(tx, ThreadName(workspace_id, user_id, thread.thread_id), keys)
        return len(threads)

    async def _reseal(self, tx: Tx, name: ThreadName, keys: Keys) -> None:
        """Under the lock of its row nothing is written to the thread meanwhile."""
        await self.beside_erasure(tx, name.workspace_id, [name.user_id])
        if await (await tx.execute(_SQL["hold_thread"], name._asdict())).fetchone() is None:
            return
        assert keys.newest is not None
        if await self.has_checkpoints(tx):
            sealer = Sealer(keys, name.stored_as)
            await _rewrite(tx, name.stored_as, name.stored_as, sealer, sealer, True)
        await tx.execute(_SQL["sealed_anew"], {**name._asdict(), "key_id": keys.newest.key_id})

    async def _drop_unused(self, workspace_id: str, user_id: str, keys: Keys) -> int:
        """A thread that was begun meanwhile with a key that is remembered elsewhere keeps it: the database says so."""
        assert keys.newest is not None
        values = {"workspace_id": workspace_id, "user_id": user_id, "key_id": keys.newest.key_id}
        dropped = 0
        try:
            async with self._database.transaction(Scope(workspace_id)) as tx:
                rows = await (await tx.execute(_SQL["unused_keys"], values)).fetchall()
                for (key_id,) in rows:
                    dropped += (await tx.execute(_SQL["drop_key"], {**values, "key_id": key_id})).rowcount
        except psycopg.errors.ForeignKeyViolation:
            return 0
        return dropped

    async def has_checkpoints(self, tx: Tx) -> bool:
        """Whether LangGraph was ever used with this database."""
        return await (await tx.execute(_SQL["has_checkpoints"])).fetchone() == (True,)

    async def opened(self, scope: Scope, thread: ThreadName) -> AsyncIterator[list[dict[str, Any]]]:
        """What a thread holds, opened and in a form for people, page by page. No transaction is open between two of
        them: whoever reads may be slow."""
        for table in _KEY_COLUMNS:
            after = _FIRST
            while True:
                page, after = await self._opened_page(scope, thread, table, after)
                if not page:
                    break
                yield page

    async def _opened_page(
        self, scope: Scope, thread: ThreadName, table: str, after: Sequence[Any]
    ) -> tuple[list[dict[str, Any]], Sequence[Any]]:
        whose = (thread.workspace_id, thread.user_id)
        keys = await self.keys(*whose)
        async with self._database.transaction(scope) as tx:
            rows, next_after = await _page(tx, table, thread.stored_as, after)
        try:
            return _lines(table, Sealer(keys, thread.stored_as), rows), next_after
        except UnknownKey:
            self.forget(*whose)
        # Keys were rotated elsewhere. At one and the same moment, what is stored and the keys that there are agree.
        async with self._database.transaction(scope, snapshot=True) as tx:
            rows, next_after = await _page(tx, table, thread.stored_as, after)
            keys = await self._read_keys(*whose, partial(nullcontext, tx))
        try:
            return _lines(table, Sealer(keys, thread.stored_as), rows), next_after
        except UnknownKey as error:
            raise SetupError("a checkpoint is sealed under a key that is gone") from error


def _lines(table: str, sealer: Sealer, rows: Sequence[Any]) -> list[dict[str, Any]]:
    if table == "checkpoints":
        return [
            {
                "checkpoint_ns": row[0],
                "checkpoint_id": row[1],
                "parent_checkpoint_id": row[2],
                "checkpoint": sealer.open_checkpoint(place_of(row[0], row[1]), row[3]),
                "metadata": sealer.open_metadata(place_of(row[0], row[1]), row[4]),
            }
            for row in rows
        ]
    if table == "blobs":
        return [
            {"checkpoint_ns": ns, "channel": channel, "version": version, **_value(sealer, kind, blob)}
            for ns, channel, version, kind, blob in rows
        ]
    return [
        {"checkpoint_ns": row[0], "checkpoint_id": row[1], "task_id": row[2], "channel": row[4]}
        | _value(sealer, row[6], row[7])
        for row in rows
    ]


def _value(sealer: Sealer, kind: str | None, blob: bytes | None) -> dict[str, Any]:
    if kind is None or blob is None:
        return {"type": kind, "value": None}
    inner, plain = sealer.open_value(kind, blob)
    return {"type": inner, "value": _readable(inner, plain)}


def _readable(kind: str, data: bytes) -> msgspec.Raw:
    """As JSON, so that a person can read it; what cannot be, in base 64."""
    try:
        value = _unpacked(data) if kind == "msgpack" else msgspec.json.decode(data) if kind == "json" else data
        return msgspec.Raw(_encode(value))
    except (msgspec.MsgspecError, TypeError, RecursionError):
        return msgspec.Raw(_encode(data))


def _unpacked(data: bytes | memoryview) -> Any:
    """Objects of Python are packed inside as the names and values that they are made of."""
    return msgspec.msgpack.decode(data, ext_hook=lambda _code, inside: _unpacked(inside))


_KEY_COLUMNS = {"checkpoints": 2, "blobs": 3, "writes": 4}


_FIRST: Sequence[Any] = ("", "", "", -(1 << 31))


async def _page(tx: Tx, table: str, stored_as: str, after: Sequence[Any]) -> tuple[list[Any], Sequence[Any]]:
    """The next rows of a thread in order of their keys, and where they end."""
    values = {f"after_{place}": value for place, value in enumerate(after, 1)}
    values |= {"stored_as": stored_as, "limit": PAGE_ROWS}
    rows: list[Any] = await (await tx.execute(_SQL[f"{table}_after"], values, binary=True)).fetchall()
    return rows, rows[-1][: _KEY_COLUMNS[table]] if rows else after


async def _pages(tx: Tx, table: str, stored_as: str) -> AsyncIterator[list[Any]]:
    rows, after = await _page(tx, table, stored_as, _FIRST)
    while rows:
        yield rows
        rows, after = await _page(tx, table, stored_as, after)


async def _rewrite(tx: Tx, source: str, target: str, opener: Sealer, sealer: Sealer, seal_clear: bool) -> None:
    """Every row of a thread, opened and sealed under the newest key, to the same thread or to another."""
    async for page in _pages(tx, "checkpoints", source):
        made = [_checkpoint_anew(row, opener, sealer, seal_clear) for row in page]
        columns = ("checkpoint_ns", "checkpoint_id", "parent", "checkpoint", "metadata")
        await tx.execute(_SQL["set_checkpoints"], _columns(target, columns, made))
    async for page in _pages(tx, "blobs", source):
        made = [(*row[:3], *_value_anew(row[3], row[4], opener, sealer, seal_clear)) for row in page]
        columns = ("checkpoint_ns", "channel", "version", "type", "blob")
        await tx.execute(_SQL["set_blobs"], _columns(target, columns, made))
    async for page in _pages(tx, "writes", source):
        made = [(*row[:6], *_value_anew(row[6], row[7], opener, sealer, seal_clear)) for row in page]
        columns = ("checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "task_path", "type", "blob")
        await tx.execute(_SQL["set_writes"], _columns(target, columns, made))


def _columns(target: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return {"stored_as": target, **{name: [row[place] for row in rows] for place, name in enumerate(names)}}


def _value_anew(
    kind: str | None, blob: bytes | None, opener: Sealer, sealer: Sealer, seal_clear: bool
) -> tuple[str | None, bytes | None]:
    """Of a channel that is empty there is nothing to seal."""
    if kind is None or blob is None:
        return kind, blob
    inner, plain = opener.open_value(kind, blob)
    if inner == kind and not seal_clear:
        return kind, blob
    return sealer.seal_value(inner, plain)


def _checkpoint_anew(row: Any, opener: Sealer, sealer: Sealer, seal_clear: bool) -> tuple[Any, ...]:
    ns, checkpoint_id, parent, checkpoint, metadata, apart = row
    place = place_of(ns, checkpoint_id)
    if seal_clear or SEALED in checkpoint:
        apart_now = set(checkpoint["channel_values"]) if SEALED in checkpoint else set(apart)
        opened = opener.open_checkpoint(place, checkpoint)
        checkpoint = sealer.seal_checkpoint(place, opened, apart_now)
    if seal_clear or SEALED in metadata:
        metadata = sealer.seal_metadata(place, opener.open_metadata(place, metadata))
    return ns, checkpoint_id, parent, Jsonb(checkpoint), Jsonb(metadata)


def _place(workspace_id: str, key_id: UUID) -> bytes:
    return b"thread key " + key_id.bytes + workspace_id.encode()


def _next_id(now: datetime, last: UUID | None) -> UUID:
    """Ordered by time, as version 7 of UUIDs is, and past the last one whatever the clock says."""
    milliseconds = int(now.timestamp() * 1000)
    if last is not None:
        milliseconds = max(milliseconds, (last.int >> 80) + 1)
    made = milliseconds << 80 | 7 << 76 | 2 << 62 | int.from_bytes(os.urandom(7)) & ((1 << 56) - 1)
    return UUID(int=made)
