"""The graph: how fast it follows the ledger, how fast it is built again, how fast it answers, at a million events."""

import asyncio
import random
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import uvloop

from harness import Served, percentiles
from ledger import Result
from whence.app import App, open_app
from whence.db import Scope, embedded
from whence.graph import Bounds
from whence.graph.rebuild import rebuild
from whence.identity import Principal
from whence.settings import Settings
from whence.wire import Event

WORKSPACE = "graph"
TREE_EVENTS = 156
"""A root, 5 children, 25 grandchildren and 125 below them: 100 nodes within three steps."""
LOOKUPS = 600
LOOKUP_TURNS = 10
WIDE_CHILDREN = 100_000
WORDS = """
    please look up the order again because customer said that it arrived late and nobody answered about refund which
    we promised last week so send them mail with new date before noon or call
""".split()  # noqa: SIM905  a list would take a line for each
PEOPLE = [f"{first} {last}" for first in ("Ada", "Bo", "Cleo", "Dan", "Eva") for last in ("Stone", "Rivera", "Okafor")]

RAW_LINEAGE = """
WITH RECURSIVE below AS (
    SELECT e.global_position AS position, e.global_position << 6 AS node, 0 AS depth FROM whence.events e
    WHERE e.workspace_id = %(workspace_id)s AND e.event_id = %(event_id)s
    UNION
    SELECT g.source >> 6, g.source, b.depth + 1 FROM below b
    JOIN whence.graph_edges g ON g.workspace_id = %(workspace_id)s AND g.build = %(build)s AND g.target = b.node
        AND g.edge_type = 2
    WHERE b.depth < 3
)
SELECT e.event_id, e.global_position, e.event_type, e.occurred_at, e.session_id, e.trace_id, e.agent_id, b.depth
FROM below b JOIN whence.events e ON e.workspace_id = %(workspace_id)s AND e.global_position = b.position
ORDER BY b.depth, b.node LIMIT 100
"""


def messages(count: int, seed: int) -> Iterator[Event]:
    """The same with a message of about 130 characters each, of which half name somebody."""
    dice = random.Random(seed)
    for event in trees(count, seed):
        words = " ".join(dice.choices(WORDS, k=18))
        text = f"{words} {dice.choice(PEOPLE)} {dice.choice(WORDS)}." if dice.random() < 0.5 else f"{words}."
        payload = {"messages": [{"role": "user", "content": text}]}
        yield msgspec.structs.replace(event, payload=msgspec.Raw(msgspec.json.encode(payload)))


def trees(count: int, seed: int) -> Iterator[Event]:
    """Traces as trees; each event has an agent, a tool and a user, so that it makes five edges."""
    dice = random.Random(seed)
    start = datetime.now(UTC) - timedelta(hours=2)
    nodes: list[Event] = []
    for number in range(count):
        place = number % TREE_EVENTS
        if place == 0:
            nodes, trace, user = [], f"{dice.getrandbits(128):032x}", f"user-{dice.randrange(100)}"
            session = f"session-{number // TREE_EVENTS // 8}"
        began = start + timedelta(milliseconds=number)
        event = Event(
            event_id=uuid.UUID(int=dice.getrandbits(128), version=4),
            event_type=dice.choice(("tool.execute", "llm.generate", "agent.invoke", "chain.run")),
            occurred_at=began,
            ended_at=began + timedelta(milliseconds=40),
            session_id=session,
            trace_id=trace,
            parent_event_id=nodes[(place - 1) // 5].event_id if place else None,
            agent_id=f"agent-{dice.randrange(20)}",
            tool_name=f"tool-{dice.randrange(30)}",
            user_id=user,
            status="completed",
        )
        nodes.append(event)
        yield event


async def fill(app: App, events: Iterator[Event], workspace: str = WORKSPACE) -> tuple[float, list[uuid.UUID]]:
    """Seconds that the ledger took, and the roots of the trees."""
    admin, roots, batch, seconds = Principal(workspace, "admin", is_admin=True), list[uuid.UUID](), list[Event](), 0.0
    for event in events:
        if event.parent_event_id is None:
            roots.append(event.event_id)
        batch.append(event)
        if len(batch) == 4000:
            seconds += await appended(app, admin, batch)
            batch = []
    return seconds + (await appended(app, admin, batch) if batch else 0.0), roots


async def appended(app: App, admin: Principal, batch: list[Event]) -> float:
    """Four writers of 1,000 each, as over HTTP."""
    began = time.perf_counter()
    await asyncio.gather(
        *(app.ledger.append(admin, batch[start : start + 1000]) for start in range(0, len(batch), 1000))
    )
    return time.perf_counter() - began


async def latencies(verb: Callable[[uuid.UUID], Awaitable[object]], roots: list[uuid.UUID]) -> list[float]:
    found: list[float] = []
    for root in roots:
        began = time.perf_counter()
        await verb(root)
        found.append(time.perf_counter() - began)
    return found


async def measure(target: Served, quick: bool) -> list[Result]:
    count = 50_000 if quick else 1_000_000
    server = embedded.start(target.data_dir)
    try:
        async with open_app(Settings(data_dir=target.data_dir)) as app:
            await app.identity.add_workspace(WORKSPACE)
            return await _measure(app, server.owner_conninfo, count)
    finally:
        server.release()


async def _measure(app: App, owner: str, count: int) -> list[Result]:
    seconds, roots = await fill(app, trees(count, 1))
    ingest = count / seconds
    began = time.perf_counter()
    await app.projector.catch_up(WORKSPACE)
    projected = count / (time.perf_counter() - began)
    results = [
        Result(f"ledger ingest, {count:,} events", ingest),
        Result("projection of them, 5 edges each", projected, ingest, 0.5, ratio=projected / ingest),
    ]
    results += await with_content(app, count // 20)
    raw = await asyncio.to_thread(raw_copy, owner, count)
    report = await rebuild(app.database, app.projector, app.clock, WORKSPACE, False, lambda *_: None)
    assert report.equal
    rebuilt = count / report.seconds
    results.append(
        Result("rebuild, compared and swapped (peer: raw INSERT … SELECT)", rebuilt, raw, ratio=rebuilt / raw)
    )
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute("VACUUM ANALYZE")
    results += await lineage_rates(app, owner, roots)
    return results + await wide(app)


async def with_content(app: App, count: int) -> list[Result]:
    """Texts are decrypted, read for names and compared, which costs more than all else."""
    await app.identity.add_workspace("content")
    seconds, _ = await fill(app, messages(count, 5), "content")
    began = time.perf_counter()
    await app.projector.catch_up("content")
    rate = count / (time.perf_counter() - began)
    label = f"projection of {count:,} events with a message each (peer: their ingest)"
    return [Result(label, rate, count / seconds, ratio=rate * seconds / count)]


def raw_copy(owner: str, count: int) -> float:
    """Events a second at which Postgres writes the same rows with the same indexes, given what they are."""
    with psycopg.connect(owner, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA bench")
        conn.execute(f"SET app.workspace_id = '{WORKSPACE}'")
        tables = ("graph_timeline", "graph_edges")
        for table in tables:
            conn.execute(f"CREATE TABLE bench.{table} (LIKE whence.{table} INCLUDING ALL)")
            conn.execute(f"GRANT INSERT ON bench.{table} TO whence_workspace")
        conn.execute("GRANT USAGE ON SCHEMA bench TO whence_workspace")
        conn.execute("SET ROLE whence_workspace")
        began = time.perf_counter()
        conn.execute("INSERT INTO bench.graph_timeline SELECT * FROM whence.graph_timeline")
        conn.execute("INSERT INTO bench.graph_edges SELECT * FROM whence.graph_edges")
        return count / (time.perf_counter() - began)


async def lineage_rates(app: App, owner: str, roots: list[uuid.UUID]) -> list[Result]:
    chosen = random.Random(2).sample(roots[:-1], min(LOOKUPS, len(roots) - 1))
    scope = Scope(WORKSPACE)
    async with await psycopg.AsyncConnection.connect(owner, autocommit=True, prepare_threshold=0) as conn:
        await conn.execute("SET ROLE whence_workspace")
        await conn.execute(f"SET app.workspace_id = '{WORKSPACE}'")
        # Left to itself the planner expects the walk to reach a large part of the graph, and reads all of it.
        await conn.execute("SET enable_hashjoin = off")
        await conn.execute("SET enable_mergejoin = off")
        row = await (await conn.execute("SELECT build FROM whence.graph_builds WHERE live")).fetchone()
        build = row[0] if row else 0

        async def raw(root: uuid.UUID) -> None:
            values = {"workspace_id": WORKSPACE, "event_id": root, "build": build}
            rows = await (await conn.execute(RAW_LINEAGE, values, binary=True)).fetchall()
            assert len(rows) == 100, len(rows)

        async def ours(root: uuid.UUID) -> None:
            atlas = await app.graph.lineage(scope, root, "down", Bounds(3, 100))
            assert len(atlas.nodes) == 100

        peers, mine = [], []
        # By turns, so that a slow moment of the machine falls on both.
        for part in range(LOOKUP_TURNS):
            peers += await latencies(raw, chosen[part::LOOKUP_TURNS])
            mine += await latencies(ours, chosen[part::LOOKUP_TURNS])
    results = list[Result]()
    for name in ("p50_ms", "p95_ms"):
        value, peer = percentiles(mine)[name], percentiles(peers)[name]
        floor = 1 / 3 if name == "p95_ms" else None
        label = f"lineage, depth 3, 100 nodes, {name.removesuffix('_ms')} (peer: raw recursive query)"
        results.append(Result(label, value, peer, floor, unit="ms", ratio=peer / value))
    return results


async def wide(app: App) -> list[Result]:
    """The first page of a node with 100,000 children, and all of them."""
    root = next(trees(1, 3))
    children = [msgspec.structs.replace(one, parent_event_id=root.event_id) for one in trees(WIDE_CHILDREN, 4)]
    admin = Principal(WORKSPACE, "admin", is_admin=True)
    for start in range(0, len(children) + 1, 1000):
        await app.ledger.append(admin, [root, *children][start : start + 1000])
    await app.projector.catch_up(WORKSPACE)
    scope = Scope(WORKSPACE)
    first, cursor, seen = list[float](), None, 0
    began = time.perf_counter()
    while True:
        page = await app.graph.lineage(scope, root.event_id, "down", Bounds(3, 500), cursor)
        seen += len(page.nodes)
        cursor = page.pagination.cursor
        if cursor is None:
            break
    walked = time.perf_counter() - began
    for _ in range(20):
        start_at = time.perf_counter()
        page = await app.graph.lineage(scope, root.event_id, "down", Bounds(3, 100))
        first.append(time.perf_counter() - start_at)
        assert page.meta.truncated
        assert len(page.nodes) == 100
    assert seen == WIDE_CHILDREN + 1, seen
    return [
        Result(f"first 100 of {WIDE_CHILDREN:,} children", statistics.median(first) * 1000, unit="ms"),
        Result(f"all of {WIDE_CHILDREN:,} children, 500 a page", walked, unit="s"),
    ]


def run(target: Served, quick: bool) -> list[Result]:
    return uvloop.run(measure(target, quick))
