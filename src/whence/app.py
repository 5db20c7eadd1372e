"""The wiring: from settings to parts that work together. Nothing else constructs them."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from whence.chats import Chats
from whence.chats.extraction import ByModel, ByRules
from whence.checkpoints import Threads
from whence.clock import Clock, system_clock
from whence.conversations import Conversations
from whence.crypto import LocalKeyProvider
from whence.db import Database, embedded
from whence.db.migrate import migrate, pending
from whence.documents.process import Readers
from whence.errors import Conflict, DatabaseError, SetupError
from whence.graph import Graph
from whence.graph.project import Projector
from whence.identity import Identity
from whence.items import Items
from whence.ledger import Ledger
from whence.ledger.payloads import installed_kek, tie_to_provider
from whence.lifecycle.actions import Actions
from whence.lifecycle.archive import Archive
from whence.lifecycle.erasure import Erasures
from whence.lifecycle.export import Exports
from whence.lifecycle.policies import Policies
from whence.lifecycle.purge import NIGHTLY_LOCK_SECONDS, purge
from whence.lifecycle.retention import Retention
from whence.lifecycle.sessions import Sessions
from whence.memory import Memory
from whence.memory.profiles import Profiles
from whence.memory.reembed import Reembedding
from whence.memory.runs import Runs
from whence.memory.workflows import Workflows
from whence.memory.working import Working
from whence.models import make_embedder, make_language_model, make_reranker
from whence.models.embedder import WordLlamaEmbedder
from whence.queue import Queue
from whence.recall import Recaller
from whence.recall.assembly import Assembler
from whence.recall.distant import Distant
from whence.recall.reranking import Reranking
from whence.resources import Resources
from whence.settings import Settings

DEFAULT_WORKSPACE: Final = "default"


@dataclass(frozen=True)
class App:
    settings: Settings
    clock: Clock
    database: Database
    identity: Identity
    ledger: Ledger
    memory: Memory
    recaller: Recaller
    assembler: Assembler
    chats: Chats
    conversations: Conversations
    items: Items
    distant: Distant
    reembedding: Reembedding
    sessions: Sessions
    graph: Graph
    projector: Projector
    runs: Runs
    working: Working
    workflows: Workflows
    queue: Queue
    actions: Actions
    archive: Archive
    retention: Retention
    erasures: Erasures
    exports: Exports
    resources: Resources
    threads: Threads
    registry: CollectorRegistry
    purge: Callable[[], Awaitable[None]] | None = field(repr=False)
    """Rewrites the files of the database, where it is ours."""
    stopping: asyncio.Event
    """Set when the server begins to stop, so that what never ends by itself does."""


@dataclass(frozen=True)
class Logins:
    """How to reach the database: as the server, and as the owner of the schema."""

    app: str
    owner: str
    revive: Callable[[], Awaitable[None]] | None = None
    """Starts the database again where it is ours to start."""

    def __repr__(self) -> str:
        return "Logins(hidden)"


@asynccontextmanager
async def open_app(
    settings: Settings, clock: Clock = system_clock, dice: random.Random | None = None
) -> AsyncGenerator[App]:
    """Everything that a command or the server works with, on a schema that is up to date.

    `dice` is what chance decides by, unless it is to be the operating system's.
    """
    profiles = Profiles(settings.profiles, settings.agents)
    policies = Policies(settings.retention)
    policies.check(profiles)
    # The graph is compared by digests, so its vectors must be equal on every machine: it keeps the built-in embedder.
    built_in = WordLlamaEmbedder()
    embedder = make_embedder(settings, built_in)
    language_model = make_language_model(settings)
    reranker = make_reranker(settings)
    async with reach_database(settings) as logins:
        if await asyncio.to_thread(pending, logins.app):
            await asyncio.to_thread(_migrate, logins.owner)
        async with Database(logins.app, revive=logins.revive) as database:
            registry = CollectorRegistry()
            ledger = Ledger(database, await _key_provider(settings, database, clock), clock, registry)
            memory = Memory(database, ledger, clock, embedder, profiles)
            projector = Projector(database, ledger, clock, built_in, registry)
            workflows = Workflows(database, ledger, clock, profiles, dice or random.SystemRandom())
            distant = Distant(database)
            reranking = Reranking(reranker, registry)
            recaller = Recaller(database, ledger, clock, memory, built_in, distant, reranking)
            queue = Queue(database, registry)
            extractor = ByRules() if language_model is None else ByModel(language_model)
            archive = Archive(settings.archive_path, database, ledger)
            resources = Resources(database, ledger, memory, clock, Readers())
            threads = Threads(database, ledger.keys, clock)
            retention = Retention(database, ledger, memory, projector, archive, policies, clock)
            try:
                yield App(
                    settings=settings,
                    clock=clock,
                    database=database,
                    identity=Identity(database, clock),
                    ledger=ledger,
                    memory=memory,
                    recaller=recaller,
                    assembler=Assembler(database, ledger, clock, workflows, recaller),
                    chats=Chats(database, ledger, clock, memory, recaller, queue, extractor),
                    conversations=Conversations(database, ledger, clock),
                    items=Items(database, ledger, clock, memory, recaller),
                    distant=distant,
                    reembedding=Reembedding(database, memory, clock, registry),
                    sessions=Sessions(database, ledger, clock, memory),
                    graph=Graph(database, ledger, built_in),
                    projector=projector,
                    runs=Runs(database, ledger, clock, memory),
                    working=Working(database, clock),
                    workflows=workflows,
                    queue=queue,
                    actions=Actions(database, ledger, clock, profiles),
                    archive=archive,
                    retention=retention.ending(threads.delete_of_conversations).measured(registry),
                    erasures=Erasures(database, ledger, memory, projector, clock, threads.delete_of_conversations),
                    exports=Exports(database, ledger, projector, clock, threads),
                    resources=resources,
                    threads=threads,
                    registry=registry,
                    purge=None if settings.database_url else partial(_purge, logins.owner, settings, clock),
                    stopping=asyncio.Event(),
                )
            finally:
                await resources.close()
                await ledger.close()
                embedder.close()
                if language_model is not None:
                    language_model.close()
                reranking.close()


async def _purge(owner: str, settings: Settings, clock: Clock) -> None:
    await asyncio.to_thread(purge, owner, settings.data_dir, clock(), _unseen, NIGHTLY_LOCK_SECONDS)


def _unseen(_done: int, _total: int) -> None:
    """Nobody watches at night."""


async def _key_provider(settings: Settings, database: Database, clock: Clock) -> LocalKeyProvider:
    path = settings.kek_path
    known = await installed_kek(database)
    if known is not None and not path.exists():
        raise SetupError(f"the key file {path} is missing: restore the one with the key {known}")
    provider = LocalKeyProvider.from_file(path)
    await tie_to_provider(database, provider, clock())
    return provider


@asynccontextmanager
async def reach_database(settings: Settings) -> AsyncGenerator[Logins]:
    """The configured database, or the embedded one, which runs as long as somebody uses it."""
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        owner = settings.database_owner_url
        yield Logins(url, url if owner is None else owner.get_secret_value())
        return
    leases: list[embedded.EmbeddedServer] = []

    async def start() -> None:
        leases.append(await asyncio.to_thread(embedded.start, settings.data_dir))
        # One is enough, and each holds a file open.
        while len(leases) > 1:
            await asyncio.to_thread(leases.pop(0).release)

    try:
        await start()
        yield Logins(leases[0].app_conninfo, leases[0].owner_conninfo, revive=start)
    finally:
        for lease in leases:
            await asyncio.to_thread(lease.release)


def _migrate(owner: str) -> None:
    try:
        migrate(owner)
    except DatabaseError as error:
        raise DatabaseError(f"{error.detail}; run `whence migrate` with the owner's URL") from error


def admin_key_file(settings: Settings) -> Path:
    return settings.data_dir / "admin.key"


async def ensure_default_workspace(app: App) -> bool:
    """Makes the workspace `default` where there is none, and keeps its key in a file. Says whether it did."""
    if await app.identity.workspace_exists(DEFAULT_WORKSPACE):
        return False
    kept = admin_key_file(app.settings)
    if kept.exists():
        # Of another database, perhaps one that is about to be restored.
        kept.rename(kept.with_name("admin.key.old"))
    try:
        await app.identity.add_workspace(DEFAULT_WORKSPACE, keep=lambda key: keep_admin_key(app.settings, key))
    except Conflict:
        return False
    return True


def keep_admin_key(settings: Settings, key: str) -> None:
    """Whole or not at all, and readable by its owner only from the first byte on."""
    path = admin_key_file(settings)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(key + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise SetupError(f"the admin key cannot be kept in {path}: {error.strerror}") from error
