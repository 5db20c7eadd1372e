"""Recall: 100 users' memories searched by Whence and by its peers, same vectors, on one server in one run.

Every side finds the 10 likest of a user's memories. What it finds is compared with an exact search, so that nothing is
fast by finding less. Whence is asked twice: by the vector alone, as the peers are, and by all channels together.
"""

import asyncio
import gc
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import uvloop
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from harness import Served
from ledger import Result
from memory import DIMENSIONS, MOST_CLIENTS, Given, open_mem0, open_store, own_schema
from whence.app import App, open_app
from whence.db import embedded
from whence.identity import Principal
from whence.settings import Settings
from whence.wire import Assemble, Recall, Remember

USERS = 100
SIZES = (1_000, 10_000, 100_000)
TOP = 10
QUESTIONS = 300
"""A round, client count and side."""
ROUNDS = 3
FILL = 500
VECTOR_FLOOR = 2.0
FULL_FLOOR = 1 / 1.5
FOUND_FLOOR = 0.99
OURS, OURS_FULL = "Whence, vectors", "Whence, all channels"


@dataclass(frozen=True)
class Memory:
    memory_id: uuid.UUID
    user: str
    text: str
    embedding: list[float]


@dataclass(frozen=True)
class Question:
    user: str
    text: str
    embedding: list[float]
    written: str
    """The vector as Postgres reads it, made before the clock runs."""


class Side(Protocol):
    async def fill(self, memories: list[Memory]) -> None: ...

    async def search(self, question: Question) -> list[str]:
        """The ids of the likest, the likest first."""
        ...


@dataclass(frozen=True)
class Whence:
    app: App

    async def fill(self, memories: list[Memory]) -> None:
        by_user: dict[str, list[Memory]] = {}
        for memory in memories:
            by_user.setdefault(memory.user, []).append(memory)
        for user, theirs in by_user.items():
            done = await self.app.memory.remember_all(_user(user), [_remember(memory) for memory in theirs])
            assert all(item.remembered is not None for item in done)

    async def search(self, question: Question) -> list[str]:
        asked = Recall(embedding=tuple(question.embedding), channels=("vectors",), top_k=TOP)
        return await self._ids(question.user, asked)

    async def search_fully(self, question: Question) -> list[str]:
        return await self._ids(question.user, Recall(query=question.text, embedding=tuple(question.embedding)))

    async def assemble(self, question: Question) -> list[str]:
        asked = Assemble(agent="gateway", instance="bench", query=question.text, task_type="answer")
        return [str(hit.memory_id) for hit in (await self.app.assembler.assemble(_user(question.user), asked)).hits]

    async def _ids(self, user: str, asked: Recall) -> list[str]:
        return [str(hit.memory_id) for hit in (await self.app.recaller.recall(_user(user), asked)).hits]


def _user(name: str) -> Principal:
    return Principal("default", name, is_admin=False)


def _remember(memory: Memory) -> Remember:
    return Remember(
        agent="gateway",
        tier="persistent",
        kind="semantic",
        text=memory.text,
        memory_id=memory.memory_id,
        embedding=tuple(memory.embedding),
    )


@dataclass(frozen=True)
class Mem0:
    memory: Any
    threads: ThreadPoolExecutor

    async def fill(self, memories: list[Memory]) -> None:
        """By the method that its own `add` ends in, many at once."""
        vectors = [memory.embedding for memory in memories]
        ids = [str(memory.memory_id) for memory in memories]
        payloads = [{"data": memory.text, "user_id": memory.user, "hash": str(memory.memory_id)} for memory in memories]
        await asyncio.to_thread(self.memory.vector_store.insert, vectors, payloads, ids)

    async def search(self, question: Question) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self.threads, self._search, question)

    def _search(self, question: Question) -> list[str]:
        found = self.memory.search(question.text, filters={"user_id": question.user}, top_k=TOP, threshold=0.0)
        return [hit["id"] for hit in found["results"]]


@dataclass(frozen=True)
class Store:
    store: Any
    given: Given

    async def fill(self, memories: list[Memory]) -> None:
        from langgraph.store.base import PutOp  # noqa: PLC0415  only this benchmark needs the peers

        self.given.embeddings = {memory.text: memory.embedding for memory in memories}
        await self.store.abatch(
            [PutOp(("memories", memory.user), str(memory.memory_id), {"text": memory.text}) for memory in memories]
        )

    async def search(self, question: Question) -> list[str]:
        found = await self.store.asearch(("memories", question.user), query=question.text, limit=TOP)
        return [item.key for item in found]


@dataclass(frozen=True)
class Chroma:
    collection: Any
    threads: ThreadPoolExecutor

    async def fill(self, memories: list[Memory]) -> None:
        await asyncio.to_thread(
            self.collection.add,
            ids=[str(memory.memory_id) for memory in memories],
            embeddings=[memory.embedding for memory in memories],
            documents=[memory.text for memory in memories],
            metadatas=[{"user": memory.user} for memory in memories],
        )

    async def search(self, question: Question) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self.threads, self._search, question)

    def _search(self, question: Question) -> list[str]:
        found = self.collection.query(
            query_embeddings=[question.embedding], n_results=TOP, where={"user": question.user}
        )
        return found["ids"][0]


@dataclass(frozen=True)
class Raw:
    """A table, an index and the statement that everybody writes."""

    pool: AsyncConnectionPool
    table: str

    async def fill(self, memories: list[Memory]) -> None:
        async with self.pool.connection() as conn:
            copy = f"COPY {self.table} (id, user_id, body, embedding) FROM STDIN"
            async with conn.cursor().copy(copy) as rows:
                for memory in memories:
                    await rows.write_row((memory.memory_id, memory.user, memory.text, str(memory.embedding)))

    async def search(self, question: Question) -> list[str]:
        async with self.pool.connection() as conn:
            cursor = await conn.execute(
                f"SELECT id, body FROM {self.table} WHERE user_id = %s ORDER BY embedding <=> %s::vector LIMIT {TOP}",
                (question.user, question.written),
                prepare=True,
                binary=True,
            )
            return [str(row[0]) for row in await cursor.fetchall()]


@asynccontextmanager
async def open_raw(owner: str, schema: str, hnsw: bool) -> AsyncIterator[Raw]:
    conninfo = own_schema(owner, schema)
    async with AsyncConnectionPool(conninfo, min_size=MOST_CLIENTS, kwargs={"autocommit": True}) as pool:
        table = f"{schema}.memories"
        async with pool.connection() as conn:
            await conn.execute(
                f"CREATE TABLE {table} (id uuid PRIMARY KEY, user_id text, body text, embedding vector({DIMENSIONS}))"
            )
            await conn.execute(f"CREATE INDEX ON {table} (user_id)")
            if hnsw:
                await conn.execute(f"CREATE INDEX ON {table} USING hnsw (embedding vector_cosine_ops)")
        yield Raw(pool, table)


@asynccontextmanager
async def open_chroma() -> AsyncIterator[Chroma]:
    import chromadb  # noqa: PLC0415
    from chromadb.config import Settings as ChromaSettings  # noqa: PLC0415

    with (
        tempfile.TemporaryDirectory(prefix="whence-bench-chroma-") as folder,
        ThreadPoolExecutor(MOST_CLIENTS) as threads,
    ):
        client = chromadb.PersistentClient(folder, ChromaSettings(anonymized_telemetry=False))
        collection = client.create_collection(
            "memories", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
        )
        yield Chroma(collection, threads)


class Source:
    """Memories of 15 words out of thousands, which most have in common and few make them differ, as texts do."""

    def __init__(self) -> None:
        self._dice = random.Random(1)
        self._vectors = np.random.default_rng(1)
        syllables = [first + vowel for first in "bdfgklmnprst" for vowel in "aeiou"]
        self._words = ["".join(self._dice.choices(syllables, k=3)) for _ in range(5_000)]
        self._weights = list(accumulate(1 / (rank + 10) for rank in range(len(self._words))))
        self.memories: list[Memory] = []

    def take(self, count: int) -> list[Memory]:
        made = [
            Memory(uuid.UUID(int=self._dice.getrandbits(128), version=4), f"user-{n % USERS}", self.text(), vector)
            for n, vector in enumerate(self.units(count).tolist(), len(self.memories))
        ]
        self.memories += made
        return made

    def questions(self, count: int) -> list[Question]:
        """Near to one of the memories each, as questions are."""
        found: list[Question] = []
        for noise in self.units(count):
            memory = self._dice.choice(self.memories)
            vector = np.asarray(memory.embedding) + noise
            vector /= np.linalg.norm(vector)
            words = [*self._dice.sample(memory.text.split(), 4), *self._some_words(3)]
            text = f"{' '.join(words)} {len(found)}?"
            found.append(Question(memory.user, text, vector.tolist(), str(vector.tolist())))
        return found

    def units(self, count: int) -> npt.NDArray[np.float64]:
        vectors = self._vectors.standard_normal((count, DIMENSIONS))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def text(self) -> str:
        return " ".join(self._some_words(15))

    def _some_words(self, count: int) -> list[str]:
        return self._dice.choices(self._words, cum_weights=self._weights, k=count)

    def exact(self, questions: list[Question]) -> list[set[str]]:
        by_user: dict[str, list[Memory]] = {}
        for memory in self.memories:
            by_user.setdefault(memory.user, []).append(memory)
        matrices = {user: np.array([memory.embedding for memory in theirs]) for user, theirs in by_user.items()}
        return [
            {
                str(by_user[question.user][index].memory_id)
                for index in np.argsort(-(matrices[question.user] @ np.array(question.embedding)))[:TOP]
            }
            for question in questions
        ]


Search = Callable[[Question], Awaitable[list[str]]]


async def asked(search: Search, questions: list[Question], clients: int) -> tuple[list[float], list[list[str]]]:
    """The seconds that each took, and what came out."""
    took: list[float] = [0.0] * len(questions)
    found: list[list[str]] = [[]] * len(questions)
    left = iter(enumerate(questions))

    async def client() -> None:
        for number, question in left:
            began = time.perf_counter()
            found[number] = await search(question)
            took[number] = time.perf_counter() - began

    gc.collect()
    await asyncio.gather(*(client() for _ in range(clients)))
    return took, found


@dataclass
class Measured:
    took: dict[int, list[float]]
    """By the number of clients."""
    found: list[float]
    first: list[float] = field(default_factory=list[float])
    """Of the first question of each user after a write."""

    def percentile(self, clients: int, share: float) -> float:
        ordered = sorted(self.took[clients])
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1_000


async def compare(searches: dict[str, Search], source: Source, given: Given, count: int) -> dict[str, Measured]:
    """Every side is asked the same, by turns; another one goes first each time."""
    measured = {name: Measured({1: [], MOST_CLIENTS: []}, []) for name in searches}
    names = list(searches)
    # One of every user, to warm up: what Whence reads of a user first is a line of its own.
    firsts = list({question.user: question for question in source.questions(USERS * 20)}.values())
    given.embeddings = {question.text: question.embedding for question in firsts}
    for name in names:
        took, _ = await asked(searches[name], firsts, 1)
        measured[name].first = took
    for turn in range(ROUNDS):
        for clients in (1, MOST_CLIENTS):
            questions = source.questions(count)
            given.embeddings = {question.text: question.embedding for question in questions}
            exact = source.exact(questions)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                await asked(searches[name], questions[:20], clients)  # to warm up
                took, found = await asked(searches[name], questions, clients)
                measured[name].took[clients] += took
                measured[name].found += [
                    len(set(ids) & wanted) / len(wanted) for ids, wanted in zip(found, exact, strict=True)
                ]
    return measured


def lines(size: int, measured: dict[str, Measured]) -> list[Result]:
    results: list[Result] = []
    for clients in (1, MOST_CLIENTS):
        for share in (0.5, 0.95):
            values = {name: each.percentile(clients, share) for name, each in measured.items()}
            peers = {name: value for name, value in values.items() if name not in (OURS, OURS_FULL, "assembly")}
            fastest = min(peers, key=lambda name: peers[name])
            what = f"{size:,} memories, {clients} client{'s' if clients > 1 else ''}, p{share * 100:.0f}"
            for name, floor in ((OURS, VECTOR_FLOOR), (OURS_FULL, FULL_FLOOR)):
                results.append(
                    Result(
                        f"{name}: {what} (fastest peer: {fastest})",
                        values[name],
                        peers[fastest],
                        floor,
                        "ms",
                        peers[fastest] / values[name],
                    )
                )
            results.append(
                Result(
                    f"assembly: {what} (recall inside it)",
                    values["assembly"],
                    values[OURS_FULL],
                    1 / 1.5,
                    "ms",
                    values[OURS_FULL] / values["assembly"],
                )
            )
            results += [Result(f"  {name}: {what}", value, None, None, "ms") for name, value in peers.items()]
    first = statistics.median(measured[OURS].first) * 1_000
    results.append(Result(f"{OURS}: {size:,} memories, first question of a user, p50", first, None, None, "ms"))
    for name, each in measured.items():
        if name not in (OURS_FULL, "assembly"):
            found = statistics.mean(each.found)
            floor = FOUND_FLOOR if name == OURS else None
            results.append(Result(f"{name}: {size:,} memories, found of the exact 10", found, None, floor, "", found))
    return results


async def fill(sides: dict[str, Side], source: Source, upto: int) -> None:
    while len(source.memories) < upto:
        memories = source.take(min(FILL, upto - len(source.memories)))
        for side in sides.values():
            await side.fill(memories)


async def measure(target: Served, quick: bool) -> list[Result]:
    server = embedded.start(target.data_dir)
    try:
        async with AsyncExitStack() as stack:
            return await _measure(stack, target, server.owner_conninfo, quick)
    finally:
        server.release()


async def _measure(stack: AsyncExitStack, target: Served, owner: str, quick: bool) -> list[Result]:
    given, source = Given(), Source()
    whence = Whence(await stack.enter_async_context(open_app(Settings(data_dir=target.data_dir))))
    mem0 = await stack.enter_async_context(open_mem0(owner, "mem0", given, True))
    store = await stack.enter_async_context(open_store(owner, "langgraph", given, True))
    sides: dict[str, Side] = {
        OURS: whence,
        "mem0": Mem0(mem0.memory, mem0.threads),
        "LangGraph store": Store(store.store, given),
        "chroma": await stack.enter_async_context(open_chroma()),
        "pgvector, exact": await stack.enter_async_context(open_raw(owner, "raw", False)),
        "pgvector, HNSW": await stack.enter_async_context(open_raw(owner, "raw_hnsw", True)),
    }
    searches: dict[str, Search] = {name: side.search for name, side in sides.items()}
    searches |= {OURS_FULL: whence.search_fully, "assembly": whence.assemble}
    await whence.app.workflows.add(Principal("default", "admin", is_admin=True), "gateway", "answer", "plain", b"{}")
    gc.collect()
    gc.freeze()
    results: list[Result] = []
    for size in SIZES[:2] if quick else SIZES:
        await fill(sides, source, size)
        await whence.app.ledger.behind.settled()
        await asyncio.to_thread(_analyse, owner)
        results += lines(size, await compare(searches, source, given, QUESTIONS // 3 if quick else QUESTIONS))
    return results


def _analyse(owner: str) -> None:
    """As the database does by itself after a while."""
    import psycopg  # noqa: PLC0415

    with psycopg.connect(owner, autocommit=True) as conn:
        for schema in ("mem0", "langgraph", "raw", "raw_hnsw", "whence"):
            rows = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
            for (table,) in rows:
                conn.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(schema, table)))


def run(target: Served, quick: bool) -> list[Result]:
    return uvloop.run(measure(target, quick))
