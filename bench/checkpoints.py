"""Checkpoints: `aput` through the gateway against LangGraph's own saver, on one server in one run.

The peer is `AsyncPostgresSaver.from_conn_string`, with its tables in a schema of its own: one connection, nobody's
threads, no log, nothing sealed. Puts go by turns, one of each side after the other, so that all meet the same disk.
"""

import asyncio
import itertools
import os
import statistics
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psycopg
import structlog
import uvloop
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.conninfo import make_conninfo

from harness import Served
from ledger import ROUNDS, Result
from whence.app import open_app
from whence.db import embedded
from whence.identity import Principal
from whence.langgraph.gateway import CheckpointerGateway, make_tables
from whence.settings import Settings

PEER, CLEAR, SEALED = "AsyncPostgresSaver", "gateway", "gateway, encrypted"
CEILINGS = {CLEAR: 1.3, SEALED: 2.0}
"""How many times as long as the peer a put may take."""
PUTS = 300
"""A round and side."""
TEXT = "The customer prefers tea, asked for a window seat, and wants the refund that was promised before noon. "


def run(target: Served, quick: bool) -> list[Result]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure(target, PUTS // 5 if quick else PUTS))


async def measure(target: Served, puts: int) -> list[Result]:
    server = embedded.start(target.data_dir)
    try:
        async with AsyncExitStack() as stack:
            return await rounds(await sides(stack, target, server.owner_conninfo), puts)
    finally:
        server.release()


async def sides(stack: AsyncExitStack, target: Served, owner: str) -> dict[str, BaseCheckpointSaver[Any]]:
    settings = Settings(data_dir=target.data_dir)
    # One line an operation is part of what is measured.
    lines = stack.enter_context(Path(os.devnull).open("w"))  # noqa: SIM115  the stack closes it
    structlog.configure(
        processors=[structlog.processors.TimeStamper(fmt="iso"), structlog.processors.JSONRenderer()],
        logger_factory=structlog.WriteLoggerFactory(lines),
        cache_logger_on_first_use=True,
    )
    app = await stack.enter_async_context(open_app(settings))
    await make_tables(settings)
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA langgraph_peer")
    peer = AsyncPostgresSaver.from_conn_string(make_conninfo(owner, options="-c search_path=langgraph_peer"))
    saver = await stack.enter_async_context(peer)
    await saver.setup()
    who = Principal("default", "bench", is_admin=False)
    return {
        PEER: saver,
        CLEAR: CheckpointerGateway(app.database, app.threads, sealed=False).for_(who),
        SEALED: CheckpointerGateway(app.database, app.threads, sealed=True).for_(who),
    }


async def rounds(savers: dict[str, BaseCheckpointSaver[Any]], puts: int) -> list[Result]:
    await one_round(savers, puts // 5, itertools.count())  # to warm up
    found = [await one_round(savers, puts, itertools.count(number)) for number in range(ROUNDS)]
    results: list[Result] = []
    for share, label in ((0.5, "p50"), (0.95, "p95")):
        taken = {name: [at(round_[name], share) for round_ in found] for name in savers}
        for name, ceiling in CEILINGS.items():
            ratio = statistics.median(peer / ours for ours, peer in zip(taken[name], taken[PEER], strict=True))
            ours, peer = statistics.median(taken[name]), statistics.median(taken[PEER])
            results.append(Result(f"put, {name}, {label}", ours, peer, 1 / ceiling, "ms", ratio))
    return results


async def one_round(
    savers: dict[str, BaseCheckpointSaver[Any]], puts: int, turns: "itertools.count[int]"
) -> dict[str, list[float]]:
    """Milliseconds of every put. Each side has a thread, which a conversation makes longer."""
    thread, names = uuid.uuid4().hex, list(savers)
    taken: dict[str, list[float]] = {name: [] for name in names}
    parents = dict.fromkeys(names, None)
    for step in range(puts):
        first = next(turns) % len(names)
        for name in names[first:] + names[:first]:
            config, checkpoint, metadata, versions = made(name + thread, parents[name], step, savers[name])
            begun = time.perf_counter()
            stored = await savers[name].aput(config, checkpoint, metadata, versions)
            taken[name].append((time.perf_counter() - begun) * 1000)
            parents[name] = stored["configurable"]["checkpoint_id"]
    return taken


def made(thread: str, parent: str | None, step: int, saver: BaseCheckpointSaver[Any]) -> Any:
    """As a graph of two nodes leaves it: ten messages that have changed, and channels that hold plain values."""
    talk = [kind(f"{TEXT}{step} {place}") for place in range(5) for kind in (HumanMessage, AIMessage)]
    version = f"{step + 1:032}.0"
    values = {"messages": talk, "customer": "Ann", "step": step, "done": False, "branch:to:model": None}
    versions = dict.fromkeys(values, version)
    checkpoint = {
        "v": 4,
        # Ids that grow, as those of graphs do.
        "id": f"1f{step:06x}-0000-6000-8000-{uuid.uuid4().hex[:12]}",
        "ts": "2026-07-01T12:00:00+00:00",
        "channel_values": values,
        "channel_versions": versions,
        "versions_seen": {"__input__": {}, "model": {"branch:to:model": version}, "tools": {}},
        "updated_channels": ["messages"],
    }
    metadata = {"source": "loop", "step": step, "parents": {}, "run_id": thread}
    return (
        {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": parent}},
        checkpoint,
        metadata,
        versions,
    )


def at(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]
