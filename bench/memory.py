"""Memory: `remember` with a given embedding against mem0 and the LangGraph Postgres store, on one server in one run.

Each side gets as many memories as the others, in rounds by turns, because rates fall as tables and indexes grow: first
from nothing on, then once more where each holds 100,000 already. What a side has stored is counted after the rounds, so
that nothing is compared with writes that failed.
"""

import asyncio
import gc
import itertools
import logging
import os
import random
import statistics
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import psycopg
import uvloop
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from harness import Served, concurrently
from ledger import ROUNDS, Result, versus
from whence.app import App, open_app
from whence.db import embedded
from whence.identity import Principal
from whence.memory import MAX_BATCH_MEMORIES, Remember
from whence.settings import Settings
from whence.wire import Fact

DIMENSIONS = 256
HELD = 100_000
"""Memories of each side before the second half."""
USER = "bench"
MOST_CLIENTS = 8
WORDS = """
    customer prefers tea over coffee and asked for window seat because train was late again so refund order promised
    before noon on friday with new date mail address garden office invoice colour green
""".split()  # noqa: SIM905  a list would take a line for each


@dataclass(frozen=True)
class Memory:
    text: str
    embedding: list[float]


@dataclass(frozen=True)
class Shape:
    name: str
    clients: int
    batch: int
    count: int
    """Memories a round and side."""


SHAPES = (Shape("1 client", 1, 1, 200), Shape("8 clients", 8, 1, 400), Shape("batches of 100", 1, 100, 1000))
FLOORS = {"mem0": (4.0, 10.0, 50.0), "LangGraph store": (2.0, 4.0, 10.0)}
"""For each of the shapes."""


class Side(Protocol):
    async def remember(self, memory: Memory) -> object: ...

    async def remember_all(self, memories: list[Memory]) -> object: ...

    async def fill(self, memories: list[Memory]) -> None:
        """Stores them as it would, in whatever way is quick."""
        ...

    def stored(self, conn: psycopg.Connection) -> list[int]:
        """Rows in each place that a memory goes to; all must be the number of memories sent."""
        ...


@dataclass(frozen=True)
class Whence:
    app: App
    principal: Principal
    said: Literal["plain", "a fact each", "in a session"] = "plain"
    """What is told besides the text: facts are compared with what holds of the same thing, sessions are kept open."""

    async def remember(self, memory: Memory) -> object:
        return await self.app.memory.remember(self.principal, self._command(memory))

    async def remember_all(self, memories: list[Memory]) -> object:
        return await self.app.memory.remember_all(self.principal, [self._command(memory) for memory in memories])

    async def fill(self, memories: list[Memory]) -> None:
        for start in range(0, len(memories), MAX_BATCH_MEMORIES):
            await self.remember_all(memories[start : start + MAX_BATCH_MEMORIES])

    def stored(self, conn: psycopg.Connection) -> list[int]:
        with conn.transaction():
            conn.execute("SET LOCAL ROLE whence_workspace")
            conn.execute("SELECT set_config('app.workspace_id', %s, true)", (self.principal.workspace_id,))
            return [
                first(conn, "SELECT count(DISTINCT body) FROM whence.memories"),
                first(conn, "SELECT count(DISTINCT embedding) FROM whence.memory_vectors"),
            ]

    def _command(self, memory: Memory) -> Remember:
        is_session = self.said == "in a session"
        return Remember(
            agent="gateway",
            tier="session" if is_session else "persistent",
            kind="semantic",
            text=memory.text,
            fact=Fact(memory.text.split()[-1], "asked for", memory.text) if self.said == "a fact each" else None,
            session_id="s1" if is_session else None,
            embedding=memory.embedding,
        )


class Given:
    """In place of the peers' embedders: what is given for a text, at once."""

    def __init__(self) -> None:
        self.embeddings: dict[str, list[float]] = {}

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self.embeddings[text]

    async def embed_all(self, texts: list[str]) -> list[list[float]]:
        return [self.embeddings[text] for text in texts]


@dataclass(frozen=True)
class Mem0:
    """`Memory` in threads: `AsyncMemory` puts the same calls into threads, and they did not differ beyond noise."""

    memory: Any
    threads: ThreadPoolExecutor
    schema: str
    owner: str

    async def remember(self, memory: Memory) -> object:
        return await self.remember_all([memory])

    async def remember_all(self, memories: list[Memory]) -> object:
        """A list of messages in one call is the only batch it has."""
        messages = [{"role": "user", "content": memory.text} for memory in memories]
        return await asyncio.get_running_loop().run_in_executor(self.threads, self._add, messages)

    async def fill(self, memories: list[Memory]) -> None:
        await asyncio.to_thread(self._fill, memories)

    def _fill(self, memories: list[Memory]) -> None:
        """Like the first that it stored itself."""
        ids = [str(uuid.uuid4()) for _ in memories]
        with psycopg.connect(self.owner, autocommit=True) as conn, without_hnsw(conn, self.schema):
            payload = first(conn, f"SELECT payload FROM {self.schema}.mem0 LIMIT 1")
            with conn.cursor().copy(f"COPY {self.schema}.mem0 (id, vector, payload) FROM STDIN") as copy:
                for memory_id, memory in zip(ids, memories, strict=True):
                    copy.write_row((memory_id, str(memory.embedding), Jsonb(payload | {"data": memory.text})))
        with self.memory.db.connection as history:
            history.executemany("INSERT INTO history (id, memory_id) VALUES (?, ?)", zip(ids, ids, strict=True))

    def stored(self, conn: psycopg.Connection) -> list[int]:
        table = f"{self.schema}.mem0"
        [history] = self.memory.db.connection.execute("SELECT count(DISTINCT memory_id) FROM history").fetchone()
        return [
            first(conn, f"SELECT count(DISTINCT payload->>'data') FROM {table}"),
            first(conn, f"SELECT count(DISTINCT vector) FROM {table}"),
            history,
        ]

    def _add(self, messages: list[dict[str, str]]) -> None:
        added = self.memory.add(messages, user_id=USER, infer=False)
        assert len(added["results"]) == len(messages)


@dataclass(frozen=True)
class Store:
    """`aput` of clients that wait at the same time is joined to one batch by the store itself."""

    store: Any
    schema: str
    owner: str

    async def remember(self, memory: Memory) -> object:
        return await self.store.aput(("memories", USER), str(uuid.uuid4()), {"text": memory.text})

    async def remember_all(self, memories: list[Memory]) -> object:
        from langgraph.store.base import PutOp  # noqa: PLC0415  only this benchmark needs the peers

        puts = [PutOp(("memories", USER), str(uuid.uuid4()), {"text": memory.text}) for memory in memories]
        return await self.store.abatch(puts)

    async def fill(self, memories: list[Memory]) -> None:
        await asyncio.to_thread(self._fill, memories)

    def _fill(self, memories: list[Memory]) -> None:
        keys, prefix = [str(uuid.uuid4()) for _ in memories], f"memories.{USER}"
        with psycopg.connect(self.owner, autocommit=True) as conn, without_hnsw(conn, self.schema):
            with conn.cursor().copy(f"COPY {self.schema}.store (prefix, key, value) FROM STDIN") as copy:
                for key, memory in zip(keys, memories, strict=True):
                    copy.write_row((prefix, key, Jsonb({"text": memory.text})))
            field = first(conn, f"SELECT field_name FROM {self.schema}.store_vectors LIMIT 1")
            into = f"{self.schema}.store_vectors (prefix, key, field_name, embedding)"
            with conn.cursor().copy(f"COPY {into} FROM STDIN") as copy:
                for key, memory in zip(keys, memories, strict=True):
                    copy.write_row((prefix, key, field, str(memory.embedding)))

    def stored(self, conn: psycopg.Connection) -> list[int]:
        return [
            first(conn, f"SELECT count(DISTINCT value->>'text') FROM {self.schema}.store"),
            first(conn, f"SELECT count(DISTINCT embedding) FROM {self.schema}.store_vectors"),
        ]


def first(conn: psycopg.Connection, query: Any) -> Any:
    row = conn.execute(query).fetchone()
    assert row is not None
    return row[0]


@contextmanager
def without_hnsw(conn: psycopg.Connection, schema: str) -> Iterator[None]:
    """Builds such indexes anew afterwards, which is much quicker than row by row."""
    found = conn.execute(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND indexdef LIKE '%% USING hnsw %%'",
        (schema,),
    ).fetchall()
    for name, _ in found:
        conn.execute(f"DROP INDEX {schema}.{name}")
    yield
    conn.execute("SET maintenance_work_mem = '1GB'")
    for _, definition in found:
        conn.execute(definition)


def own_schema(owner: str, schema: str) -> str:
    """Beside Whence's in its database, the only one with pgvector; its owner may make schemas and no databases."""
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute(f"CREATE SCHEMA {schema}")
    return make_conninfo(owner, options=f"-c search_path={schema},public")


@asynccontextmanager
async def open_mem0(owner: str, schema: str, given: Given, indexed: bool) -> AsyncIterator[Mem0]:
    """With its defaults: a pool of up to 5, an HNSW and a text index, its history in SQLite."""
    with (
        tempfile.TemporaryDirectory(prefix="whence-bench-mem0-") as folder,
        ThreadPoolExecutor(MOST_CLIENTS) as threads,
    ):
        # Read when it is imported, and it would ask the network otherwise.
        os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": folder}
        logging.getLogger("mem0").setLevel(logging.ERROR)
        from mem0 import Memory as Mem0Memory  # noqa: PLC0415

        store = {
            "connection_string": own_schema(owner, schema),
            "embedding_model_dims": DIMENSIONS,
            "hnsw": indexed,
        }
        # Both models are made when it starts, and neither is called.
        unused = {"provider": "openai", "config": {"api_key": "unused"}}
        memory = Mem0Memory.from_config(
            {
                "vector_store": {"provider": "pgvector", "config": store},
                "embedder": unused,
                "llm": unused,
                "history_db_path": f"{folder}/history.db",
            }
        )
        memory.embedding_model, memory.llm = given, None
        try:
            yield Mem0(memory, threads, schema, owner)
        finally:
            memory.vector_store.connection_pool.close()
            memory.close()


@asynccontextmanager
async def open_store(owner: str, schema: str, given: Given, indexed: bool) -> AsyncIterator[Store]:
    """With its defaults, of which one is an HNSW index, and a connection for each client."""
    from langgraph.store.postgres import AsyncPostgresStore  # noqa: PLC0415

    async with AsyncPostgresStore.from_conn_string(
        own_schema(owner, schema),
        pool_config={"min_size": MOST_CLIENTS, "max_size": MOST_CLIENTS},
        index={"dims": DIMENSIONS, "embed": given.embed_all, "fields": ["text"]},
    ) as store:
        await store.setup()
        if not indexed:
            with psycopg.connect(owner, autocommit=True) as conn:
                conn.execute(f"DROP INDEX {schema}.store_vectors_embedding_idx")
        yield Store(store, schema, owner)


class Source:
    """Memories that differ in text, about 100 characters, and in embedding, a unit vector."""

    def __init__(self, given: Given) -> None:
        self._given = given
        self._dice = random.Random(1)
        self._vectors = np.random.default_rng(1)
        self._numbers = itertools.count(1)

    def take(self, count: int) -> list[Memory]:
        vectors = self._vectors.standard_normal((count, DIMENSIONS))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        made = [Memory(self._text(), vector) for vector in vectors.tolist()]
        self._given.embeddings = {memory.text: memory.embedding for memory in made}
        return made

    def _text(self) -> str:
        return f"{' '.join(self._dice.choices(WORDS, k=15))} {next(self._numbers)}."


async def rate(side: Side, memories: list[Memory], shape: Shape) -> float:
    gc.collect()
    if shape.batch == 1:
        return len(memories) / await concurrently(side.remember, memories, shape.clients)
    parts = [memories[start : start + shape.batch] for start in range(0, len(memories), shape.batch)]
    return len(memories) / await concurrently(side.remember_all, parts, shape.clients)


class Race:
    """All sides on the same memories, and what each has stored compared with what was sent."""

    def __init__(self, sides: dict[str, Side], source: Source, owner: str) -> None:
        self._sides = sides
        self._source = source
        self._owner = owner
        self._sent = 0

    async def rounds(self, shape: Shape, turns: Iterator[int]) -> dict[str, list[float]]:
        await self._round(replace(shape, count=shape.batch * shape.clients), next(turns))  # to warm up
        found: dict[str, list[float]] = {name: [] for name in self._sides}
        for _ in range(ROUNDS):
            for name, value in (await self._round(shape, next(turns))).items():
                found[name].append(value)
        await asyncio.to_thread(self._check)
        return found

    async def fill(self, count: int) -> None:
        """Up to so many of each side."""
        memories = self._source.take(count - self._sent)
        for side in self._sides.values():
            await side.fill(memories)
        self._sent = count
        await asyncio.to_thread(self._check)

    async def _round(self, shape: Shape, turn: int) -> dict[str, float]:
        """Another side goes first each time."""
        memories = self._source.take(shape.count)
        names = list(self._sides)
        first = turn % len(names)
        rates = {name: await rate(self._sides[name], memories, shape) for name in names[first:] + names[:first]}
        self._sent += len(memories)
        return rates

    def _check(self) -> None:
        with psycopg.connect(self._owner, autocommit=True) as conn:
            for name, side in self._sides.items():
                stored = side.stored(conn)
                if set(stored) != {self._sent}:
                    raise RuntimeError(f"{name} was sent {self._sent} memories and stored {stored}")


async def measure(target: Served, quick: bool) -> list[Result]:
    server = embedded.start(target.data_dir)
    try:
        async with AsyncExitStack() as stack:
            return await _measure(stack, target, server.owner_conninfo, quick)
    finally:
        server.release()


async def _measure(stack: AsyncExitStack, target: Served, owner: str, quick: bool) -> list[Result]:
    given = Given()
    app = await stack.enter_async_context(open_app(Settings(data_dir=target.data_dir)))
    ours = "Whence"
    sides: dict[str, Side] = {ours: Whence(app, Principal("default", USER, is_admin=False))}
    for suffix, schema, indexed in (("", "", True), (", no HNSW", "_plain", False)):
        mem0 = open_mem0(owner, f"mem0{schema}", given, indexed)
        store = open_store(owner, f"langgraph{schema}", given, indexed)
        sides[f"mem0{suffix}"] = await stack.enter_async_context(mem0)
        sides[f"LangGraph store{suffix}"] = await stack.enter_async_context(store)
    # What the peers have imported is large, and a process that serves memory has none of it to look through.
    gc.collect()
    gc.freeze()
    source = Source(given)
    race, turns, results = Race(sides, source, owner), itertools.count(), list[Result]()
    for held in (0, HELD):
        if held:
            await race.fill(held // 5 if quick else held)
        for number, shape in enumerate(SHAPES):
            rates = await race.rounds(replace(shape, count=shape.count // 5) if quick else shape, turns)
            mine = rates.pop(ours)
            for peer, theirs in rates.items():
                floor = FLOORS[peer][number] if peer in FLOORS else None
                name = f"remember, {shape.name}{f', {held:,} held' if held else ''} (peer: {peer})"
                results.append(replace(versus(name, mine, theirs, floor), unit="memories/s"))
    for said in ("a fact each", "in a session"):
        side = Whence(app, Principal("default", said, is_admin=False), said)
        for shape in SHAPES:
            count = shape.count // 5 if quick else shape.count
            rates = [await rate(side, source.take(count), shape) for _ in range(ROUNDS)]
            results.append(Result(f"remember, {shape.name}, {said}", statistics.median(rates), unit="memories/s"))
    return results


def run(target: Served, quick: bool) -> list[Result]:
    return uvloop.run(measure(target, quick))
