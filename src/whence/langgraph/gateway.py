"""The one way to LangGraph's saver: who may, in which transaction, sealed or not, and a line in the log.

`CheckpointerGateway` is made once. What it gives for a user, `for_(principal)`, is a saver like any other to a graph:

    graph = builder.compile(checkpointer=gateway.for_(principal))
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, LiteralString, TypeVar, cast
from uuid import UUID
from weakref import WeakKeyDictionary

import psycopg
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_serializable_checkpoint_metadata,
)
from psycopg.rows import tuple_row

from whence.app import DEFAULT_WORKSPACE, App, ensure_default_workspace, open_app, reach_database
from whence.checkpoints import Progress, Rotated, ThreadName, Threads, Touch, thread_name
from whence.checkpoints.sealing import Keys, Sealer, UnknownKey, contains, place_of
from whence.conversations import Conversations
from whence.db import Database, Scope, Tx
from whence.errors import NotFound, SetupError, Unavailable
from whence.identity import Principal, check_user_id
from whence.langgraph.plain import Gatherer, Saver, SealedSerializer, Written, is_inline, of_trip
from whence.langgraph.tables import set_up
from whence.logs import leave_logs_to_host, log
from whence.settings import Settings, load_settings

FIRST_PAGE, NEXT_PAGES = 100, 1_000
"""So many checkpoints are looked at in one transaction while some are searched."""

Admit = Callable[[Principal, str], Awaitable[object]]
"""Raises NotFound where the principal may not have this conversation, or there is none."""

_IN_SCOPE = b"""
SELECT current_setting('app.workspace_id', true) = %(workspace_id)s
    AND (current_setting('app.user_id', true) = %(user_id)s OR current_user = 'whence_workspace')
"""
_KEYS_HAVE_CHANGED = "the keys of the user have changed at this moment: try again"
_T = TypeVar("_T")


class CheckpointerGateway:
    """Threads belong to the user of a workspace who names them; nobody can name another's.

    `sealed` is the setting `checkpoint_encryption`. `admit` is asked about a conversation before its thread is touched;
    without it, `conversations` are.
    """

    def __init__(
        self,
        database: Database,
        threads: Threads,
        sealed: bool,
        admit: Admit | None = None,
        conversations: Conversations | None = None,
    ) -> None:
        self.threads = threads
        self.sealed = sealed
        self._database = database
        self._admit = admit
        self._conversations = conversations
        self._locks: WeakKeyDictionary[Tx, asyncio.Lock] = WeakKeyDictionary()

    @classmethod
    def of(cls, app: App, admit: Admit | None = None) -> "CheckpointerGateway":
        """For a program that has opened an app, and has called `set_up` once. Without `admit`, a conversation is one of
        Whence's own."""
        leave_logs_to_host()
        return cls(app.database, app.threads, app.settings.checkpoint_encryption, admit, app.conversations)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, data_dir: Path | str | None = None, *, database_url: str | None = None, admit: Admit | None = None
    ) -> "AsyncGenerator[CheckpointerGateway]":
        """With a Whence of its own in this process, on the embedded database or on yours."""
        leave_logs_to_host()
        folder = None if data_dir is None else Path(data_dir)
        settings = load_settings({"data_dir": folder, "database_url": database_url})
        async with open_app(settings) as app:
            await make_tables(settings)
            await ensure_default_workspace(app)
            yield cls.of(app, admit)

    def for_(self, principal: Principal, *, tx: Tx | None = None, conversation_id: str | None = None) -> "Checkpointer":
        """A saver for the threads of this user, also where the user is an administrator.

        With `tx` everything happens on that connection and in that transaction, which is in the scope of the user or of
        the workspace, and whoever opened it commits. Without it, each operation is a transaction of its own.
        """
        check_user_id(principal.user_id)
        return Checkpointer(self, principal, tx, conversation_id)

    def for_user(self, user_id: str, workspace_id: str = DEFAULT_WORKSPACE) -> "Checkpointer":
        """The same for a program that knows its users by itself."""
        return self.for_(Principal(workspace_id, user_id, is_admin=False))

    async def delete_threads(self, workspace_id: str, threads: Sequence[tuple[str, str]], tx: Tx | None = None) -> int:
        """Users and their threads, when their time is over; says how many there were."""
        async with self.scoped(Scope(workspace_id), tx) as conn:
            deleted = await self.threads.delete(conn, workspace_id, threads)
        log.info("checkpoint", op="delete_threads", workspace_id=workspace_id, threads=deleted)
        return deleted

    async def delete_conversations(
        self, workspace_id: str, conversation_ids: Sequence[str], tx: Tx | None = None
    ) -> int:
        """The same for all threads of conversations."""
        async with self.scoped(Scope(workspace_id), tx) as conn:
            deleted = await self.threads.delete_of_conversations(conn, workspace_id, conversation_ids)
        log.info("checkpoint", op="delete_conversations", workspace_id=workspace_id, threads=deleted)
        return deleted

    async def rotate(
        self, workspace_id: str, user_id: str | None = None, on_progress: Progress = lambda _done, _total: None
    ) -> Rotated:
        """New keys, and everything sealed under them, also what was in clear before."""
        if not self.sealed:
            raise SetupError("checkpoints are not encrypted: set checkpoint_encryption, and rotate then")
        return await self.threads.rotate(workspace_id, user_id, on_progress)

    async def admit(self, principal: Principal, conversation_id: str, tx: Tx | None) -> None:
        if self._admit is not None:
            await self._admit(principal, conversation_id)
        elif self._conversations is not None:
            named = _conversation(conversation_id)
            async with self.scoped(Scope(principal.workspace_id, principal.user_id), tx) as conn:
                await self._conversations.check(conn, principal, named)

    async def check_workspace(self, scope: Scope, tx: Tx | None) -> None:
        if not self.threads.is_known(scope.workspace_id):
            async with self.scoped(scope, tx) as conn:
                await self.threads.check_workspace(conn, scope.workspace_id)

    async def check_scope(self, scope: Scope, tx: Tx | None) -> None:
        """In a transaction that is somebody else's every thread would look as if it were empty."""
        async with self.scoped(scope, tx) as conn:
            row = await (await conn.execute(_IN_SCOPE, scope.values())).fetchone()
        if row != (True,):
            raise SetupError("the transaction is not in the scope of this user: begin it so, or call `whence.db.enter`")

    async def store(self, scope: Scope, tx: Tx | None, touch: Touch, written: Sequence[Written]) -> None:
        """In the caller's transaction, or in one of our own, which is a single trip to the database."""
        if tx is None:
            await self._database.one_trip(scope, [touch.of_trip(), *map(of_trip, written)])
            return
        async with self.scoped(scope, tx) as conn, conn.pipeline():
            await touch.execute(conn)
            for statement, values in written:
                await conn.execute(cast("LiteralString", statement), values)

    @asynccontextmanager
    async def scoped(self, scope: Scope, tx: Tx | None) -> AsyncGenerator[Tx]:
        """The caller's connection, one operation at a time, or one of our own. Rows are tuples to us, whatever they are
        to the caller."""
        if tx is None:
            async with self._database.transaction(scope) as conn:
                yield conn
            return
        async with self._locks.setdefault(tx, asyncio.Lock()):
            callers, tx.row_factory = tx.row_factory, tuple_row
            try:
                yield tx
            finally:
                tx.row_factory = callers


def _conversation(conversation_id: str) -> UUID:
    try:
        return UUID(conversation_id)
    except ValueError:
        # Told as one that is not there: an id of another form is no conversation of anybody's.
        raise NotFound("there is no such conversation") from None


async def make_tables(settings: Settings) -> bool:
    """Where they are not there yet, or are of an older saver; says whether there was anything to do."""
    async with reach_database(settings) as logins:
        return await set_up(logins.app, logins.owner)


class Checkpointer(BaseCheckpointSaver[str]):
    """The threads of one user, as LangGraph wants a saver.

    Synchronous calls work from threads other than the loop's, as those of the framework's own saver do.
    """

    def __init__(
        self, gateway: CheckpointerGateway, principal: Principal, tx: Tx | None, conversation_id: str | None
    ) -> None:
        super().__init__()
        self._gateway = gateway
        self._principal = principal
        self._scope = Scope(principal.workspace_id, principal.user_id)
        self._tx = tx
        self._conversation_id = conversation_id
        self._is_in_scope = tx is None
        self._loop = asyncio.get_running_loop()

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        name, ns = self._name(config), str(_given(config).get("checkpoint_ns", ""))
        place = place_of(ns, checkpoint["id"])
        stored_config = _config(name.stored_as, ns, get_checkpoint_id(config))
        whole = cast("dict[str, Any]", get_serializable_checkpoint_metadata(config, metadata))

        async def act(saver: Saver, sealer: Sealer | None) -> None:
            stored, told = checkpoint, whole
            if sealer is not None:
                values = checkpoint["channel_values"]
                apart = {channel for channel, value in values.items() if not is_inline(value)}
                made = sealer.seal_checkpoint(place, cast("dict[str, Any]", checkpoint), apart)
                stored, told = cast("Checkpoint", made), sealer.seal_metadata(place, whole)
            await saver.aput(stored_config, stored, cast("CheckpointMetadata", told), new_versions)

        await self._write("put", name, act)
        return _config(name.thread_id, ns, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        name, ns = self._name(config), str(_given(config).get("checkpoint_ns", ""))
        stored_config = _config(name.stored_as, ns, get_checkpoint_id(config))

        async def act(saver: Saver, sealer: Sealer | None) -> None:
            await saver.aput_writes(stored_config, writes, task_id, task_path)

        await self._write("put_writes", name, act)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        name = self._name(config)
        await self._begin("get_tuple", name.thread_id)
        return await self._with_keys(lambda conn, keys: self._get(conn, keys, name, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Newest first. Without a thread, of all threads of the user. What is sealed is opened to be compared."""
        name = None if config is None else self._name(config)
        given = {} if config is None else _given(config)
        wanted: dict[str, Any] = {
            "thread_id": None if name is None else name.thread_id,
            "checkpoint_ns": given.get("checkpoint_ns"),
            "checkpoint_id": None if config is None else get_checkpoint_id(config),
            "before": None if before is None else get_checkpoint_id(before),
            "wanted": filter or {},
            "past": None,
        }
        await self._begin("list", name and name.thread_id)
        if config is not None and name is not None and not filter:
            for each in await self._with_keys(partial(self._list_thread, name, config, before, limit)):
                yield each
            return
        left = limit
        while left is None or left > 0:
            page, wanted["past"] = await self._with_keys(partial(self._list_page, wanted, left))
            for each in page:
                yield each
            if wanted["past"] is None:
                return
            left = None if left is None else left - len(page)

    async def _list_thread(
        self,
        name: ThreadName,
        config: RunnableConfig,
        before: RunnableConfig | None,
        limit: int | None,
        conn: Tx,
        keys: Keys,
    ) -> "Sequence[CheckpointTuple]":
        """All at once, as the framework reads them."""
        given = _given(config) | {"thread_id": name.stored_as}
        sealer = Sealer(keys, name.stored_as)
        saver = Saver(conn, SealedSerializer(self.serde, sealer))
        found = saver.alist({"configurable": given}, before=before, limit=limit)
        return [_opened(each, name, sealer) async for each in found]

    async def _list_page(
        self, wanted: dict[str, Any], left: int | None, conn: Tx, keys: Keys
    ) -> "tuple[Sequence[CheckpointTuple], Sequence[str] | None]":
        """What of the next checkpoints is wanted, and where the page ended, if there may be more."""
        looked_at = FIRST_PAGE if wanted["past"] is None else NEXT_PAGES
        rows = await self._gateway.threads.find(conn, *self._who, **wanted, limit=looked_at)
        found: list[CheckpointTuple] = []
        for thread_id, stored_as, ns, checkpoint_id, metadata in rows:
            told = Sealer(keys, stored_as).open_metadata(place_of(ns, checkpoint_id), metadata)
            if contains(told, wanted["wanted"]) and (left is None or len(found) < left):
                one = await self._get(
                    conn, keys, ThreadName(*self._who, thread_id), _config(thread_id, ns, checkpoint_id)
                )
                found += [] if one is None else [one]
        return found, [rows[-1][3], rows[-1][1], rows[-1][2]] if len(rows) == looked_at else None

    async def adelete_thread(self, thread_id: str) -> None:
        name = thread_name(*self._who, thread_id)
        await self._begin("delete_thread", name.thread_id)
        async with self._gateway.scoped(self._scope, self._tx) as conn:
            await self._gateway.threads.delete(conn, name.workspace_id, [(name.user_id, name.thread_id)])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._begin("delete_for_runs", None)
        given = [str(run_id) for run_id in run_ids]
        self._forget()
        await self._with_keys(lambda conn, keys: self._gateway.threads.delete_runs(conn, *self._who, given, keys))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        source, target = thread_name(*self._who, source_thread_id), thread_name(*self._who, target_thread_id)
        await self._begin("copy_thread", source.thread_id)

        async def act(conn: Tx, keys: Keys) -> None:
            given = (keys, self._gateway.sealed, self._conversation_id)
            await self._gateway.threads.copy(conn, source, target, *given)

        await self._with_keys(act, make=self._gateway.sealed)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if isinstance(thread_ids, str):
            raise TypeError("thread_ids must be a sequence of thread IDs, not a str")
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"Unknown prune strategy: {strategy!r}")
        names = [thread_name(*self._who, thread_id) for thread_id in thread_ids]
        await self._begin("prune", None)
        async with self._gateway.scoped(self._scope, self._tx) as conn:
            if strategy == "delete":
                pairs = [(name.user_id, name.thread_id) for name in names]
                await self._gateway.threads.delete(conn, self._principal.workspace_id, pairs)
            elif await self._gateway.threads.prune(conn, names):
                raise NotImplementedError("keep_latest can't prune threads that use a DeltaChannel")

    def get_next_version(self, current: str | None, channel: None) -> str:
        return Saver.get_next_version(cast("Saver", self), current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._from_thread(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def all_of_them() -> "Sequence[CheckpointTuple]":
            return [each async for each in self.alist(config, filter=filter, before=before, limit=limit)]

        return iter(self._from_thread(all_of_them()))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._from_thread(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._from_thread(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._from_thread(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._from_thread(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._from_thread(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._from_thread(self.aprune(thread_ids, strategy=strategy))

    async def _write(self, op: str, name: ThreadName, act: Callable[[Saver, Sealer | None], Awaitable[object]]) -> None:
        """What the framework's saver writes, after the thread was touched."""
        await self._begin(op, name.thread_id)
        for again in (self._tx is None, False):
            keys = await self._keys(make=True) if self._gateway.sealed else None
            sealer = None if keys is None else Sealer(keys, name.stored_as)
            saver = Gatherer(self.serde if sealer is None else SealedSerializer(self.serde, sealer))
            await act(saver, sealer)
            touch = self._gateway.threads.touching(name, self._conversation_id, None if keys is None else keys.newest)
            try:
                return await self._gateway.store(self._scope, self._tx, touch, saver.written)
            except psycopg.errors.ForeignKeyViolation as error:
                # The key that is remembered here was dropped or erased elsewhere.
                self._forget()
                if not again:
                    raise Unavailable(_KEYS_HAVE_CHANGED) from error

    async def _with_keys(self, act: Callable[[Tx, Keys], Awaitable[_T]], make: bool = False) -> _T:
        """Once more where something is sealed under a key that was made elsewhere since keys were read."""
        try:
            keys = await self._keys(make)
            async with self._gateway.scoped(self._scope, self._tx) as conn:
                return await act(conn, keys)
        except UnknownKey:
            self._forget()
        except psycopg.errors.ForeignKeyViolation as error:
            self._forget()
            if self._tx is not None:
                raise Unavailable(_KEYS_HAVE_CHANGED) from error
        keys = await self._keys(make)
        try:
            async with self._gateway.scoped(self._scope, self._tx) as conn:
                return await act(conn, keys)
        except UnknownKey as error:
            raise SetupError("a checkpoint is sealed under a key that is gone") from error

    async def _get(self, conn: Tx, keys: Keys, name: ThreadName, config: RunnableConfig) -> CheckpointTuple | None:
        sealer = Sealer(keys, name.stored_as)
        ns = str(_given(config).get("checkpoint_ns", ""))
        saver = Saver(conn, SealedSerializer(self.serde, sealer))
        found = await saver.aget_tuple(_config(name.stored_as, ns, get_checkpoint_id(config)))
        return None if found is None else _opened(found, name, sealer)

    @property
    def _who(self) -> tuple[str, str]:
        return self._principal.workspace_id, self._principal.user_id

    def _name(self, config: RunnableConfig) -> ThreadName:
        return thread_name(*self._who, _given(config)["thread_id"])

    async def _begin(self, op: str, thread_id: str | None) -> None:
        """Nothing is touched before it is known that the principal may, and every operation is told once."""
        if not self._is_in_scope:
            await self._gateway.check_scope(self._scope, self._tx)
            self._is_in_scope = True
        await self._gateway.check_workspace(self._scope, self._tx)
        if self._conversation_id is not None:
            await self._gateway.admit(self._principal, self._conversation_id, self._tx)
        log.info(
            "checkpoint",
            op=op,
            workspace_id=self._principal.workspace_id,
            user_id=self._principal.user_id,
            conversation_id=self._conversation_id,
            thread_id=thread_id,
        )

    async def _keys(self, make: bool = False) -> Keys:
        within = partial(self._gateway.scoped, self._scope, self._tx)
        return await self._gateway.threads.keys(*self._who, make, within)

    def _forget(self) -> None:
        self._gateway.threads.forget(*self._who)

    def _from_thread(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        try:
            if asyncio.get_running_loop() is self._loop:
                coroutine.close()
                raise asyncio.InvalidStateError("in the loop's own thread, use the asynchronous methods: `ainvoke`")
        except RuntimeError:
            pass
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _given(config: RunnableConfig) -> dict[str, Any]:
    """What names a thread, a namespace and a checkpoint."""
    return config.get("configurable", {})


def _config(thread_id: str, checkpoint_ns: str, checkpoint_id: str | None) -> RunnableConfig:
    named = {"thread_id": thread_id, "checkpoint_ns": checkpoint_ns}
    return {"configurable": named if checkpoint_id is None else {**named, "checkpoint_id": checkpoint_id}}


def _opened(found: CheckpointTuple, name: ThreadName, sealer: Sealer) -> CheckpointTuple:
    """Under the name that its user gave the thread."""
    ns: str = _given(found.config)["checkpoint_ns"]
    checkpoint_id: str = _given(found.config)["checkpoint_id"]
    parent = None if found.parent_config is None else _given(found.parent_config)["checkpoint_id"]
    place = place_of(ns, checkpoint_id)
    checkpoint = sealer.open_checkpoint(place, cast("dict[str, Any]", found.checkpoint))
    metadata = sealer.open_metadata(place, cast("dict[str, Any]", found.metadata))
    return found._replace(
        config=_config(name.thread_id, ns, checkpoint_id),
        checkpoint=cast("Checkpoint", checkpoint),
        metadata=cast("CheckpointMetadata", metadata),
        parent_config=None if parent is None else _config(name.thread_id, ns, parent),
    )
