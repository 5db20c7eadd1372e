"""Recall of one user who has very many memories, against one who has a thousand, on one server in one run.

The many are indexed as the job does it, but for the order: rows first, then the two indexes over all of them, which
gives the same in a tenth of the time.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import uvloop

from harness import Served
from ledger import Result
from recall import Source
from whence.app import App, open_app
from whence.db import embedded
from whence.identity import Principal
from whence.settings import Settings
from whence.wire import Recall, Remember

MANY, FEW = 1_000_000, 1_000
QUICK_MANY = 50_000
FILL = 500
QUESTIONS = 300
ROUNDS = 3
FLOOR = 0.1
_INDEXES = ("memory_index_by_terms", "memory_index_like_256")
_TABLES = ("memory_index", "memories", "memory_vectors", "events")


async def fill(app: App, who: Principal, source: Source, count: int) -> list[str]:
    """Returns some of the texts, from the oldest to the newest, to ask for."""
    asked: list[str] = []
    for _ in range(0, count, FILL):
        texts = [source.text() for _ in range(FILL)]
        made = [Remember(agent="gateway", tier="persistent", kind="semantic", text=text) for text in texts]
        done = await app.memory.remember_all(who, made)
        assert all(item.remembered is not None for item in done)
        asked += texts[:10]
    return asked


def without_indexes(owner: str) -> list[str]:
    """Drops the two; returns what makes them again."""
    with psycopg.connect(owner, autocommit=True) as conn:
        made = [
            str(row[0])
            for name in _INDEXES
            for row in conn.execute("SELECT pg_get_indexdef(%s::regclass)", (f"whence.{name}",)).fetchall()
        ]
        for name in _INDEXES:
            conn.execute(f"DROP INDEX whence.{name}")  # pyright: ignore[reportArgumentType]
    return made


def make_indexes(owner: str, made: Sequence[str]) -> None:
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute("SET maintenance_work_mem = '3GB'")
        for statement in made:
            conn.execute(statement)  # pyright: ignore[reportArgumentType]
        for table in _TABLES:
            conn.execute(f"VACUUM ANALYZE whence.{table}")  # pyright: ignore[reportArgumentType]


def read_into_memory(owner: str, data_dir: Path) -> None:
    """As all of it is on a machine in use. What was written an hour ago may be on the disk only, and then the first
    thousand questions read it from there, page by page."""
    password = (data_dir / "postgres.password").read_text()
    with psycopg.connect(owner, user="postgres", password=password, autocommit=True) as conn:
        conn.execute("CREATE EXTENSION IF NOT EXISTS pg_prewarm")
        for table in _TABLES:
            conn.execute("SELECT pg_prewarm(%s::regclass)", (f"whence.{table}",))
            conn.execute(
                "SELECT pg_prewarm(indexrelid) FROM pg_index WHERE indrelid = %s::regclass", (f"whence.{table}",)
            )


@dataclass
class Measured:
    took: list[float] = field(default_factory=list[float])
    found: int = 0

    def percentile(self, share: float) -> float:
        return sorted(self.took)[int(len(self.took) * share)]


async def ask(
    app: App, who: Principal, texts: Sequence[str], dice: random.Random, vectors: bool, measured: Measured
) -> None:
    for _ in range(QUESTIONS):
        text = dice.choice(texts)
        query = " ".join(dice.sample(text.split(), 6))
        began = time.perf_counter()
        answer = await app.recaller.recall(who, Recall(query=query, channels=("vectors",) if vectors else None))
        measured.took.append((time.perf_counter() - began) * 1_000)
        measured.found += any(hit.text == text for hit in answer.hits)
    await app.ledger.behind.settled()


async def measure(target: Served, quick: bool) -> list[Result]:
    server = embedded.start(target.data_dir)
    source, dice = Source(), random.Random(3)
    small, large = (Principal("default", name, is_admin=False) for name in ("small", "large"))
    many = QUICK_MANY if quick else MANY
    try:
        async with open_app(Settings(data_dir=target.data_dir)) as app:
            texts = {small: await fill(app, small, source, FEW), large: await fill(app, large, source, many)}
            made = await asyncio.to_thread(without_indexes, server.owner_conninfo)
            await app.distant.begin("default", "large")
            while await app.distant.fill("default"):
                pass
            await asyncio.to_thread(make_indexes, server.owner_conninfo, made)
            await asyncio.to_thread(read_into_memory, server.owner_conninfo, target.data_dir)
            measured = {(who, vectors): Measured() for who in (small, large) for vectors in (False, True)}
            for who in (small, large):  # to warm up
                await ask(app, who, texts[who], dice, False, Measured())
            for _ in range(ROUNDS):
                for vectors in (False, True):
                    for who in (small, large):
                        await ask(app, who, texts[who], dice, vectors, measured[who, vectors])
    finally:
        server.release()
    return [
        line
        for vectors in (False, True)
        for line in lines(many, vectors, measured[small, vectors], measured[large, vectors])
    ]


def lines(many: int, vectors: bool, small: Measured, large: Measured) -> list[Result]:
    what = "vectors" if vectors else "all channels"
    results: list[Result] = []
    for share, floor in ((0.5, None), (0.95, FLOOR)):
        name = f"{what}: one user with {many:,} memories against one with {FEW:,}, p{share * 100:.0f}"
        ours, peer = large.percentile(share), small.percentile(share)
        results.append(Result(name, ours, peer, floor, "ms", peer / ours))
    for measured, count in ((small, FEW), (large, many)):
        found = measured.found / len(measured.took)
        results.append(Result(f"{what}: asked for and among 10 hits, of {count:,}", found, None, None, "", found))
    return results


def run(target: Served, quick: bool) -> list[Result]:
    return uvloop.run(measure(target, quick))
