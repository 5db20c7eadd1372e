"""Benchmarks of the ledger: how fast events go in, as ratios against what Postgres can do by itself in the same run.

Every comparison alternates between the two sides for several rounds and takes the median of the ratios, because a busy
machine changes its mind from one second to the next.
"""

import base64
import gc
import itertools
import re
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import psycopg_pool
import uvloop
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness import Connection, Row, Served, batches, concurrently, http_request, in_processes, make_events, percentiles
from whence.app import open_app
from whence.db import embedded
from whence.gateway.events import _event
from whence.identity import Principal
from whence.ledger import Ledger
from whence.settings import Settings
from whence.wire import Event

ROUNDS = 5
PAYLOAD_BYTES = 500
RECORDING = Path(__file__).parent.parent / "tests" / "data" / "otlp" / "oi-langgraph-openai-http-json-traces.json"

COLUMNS = (
    "workspace_id, global_position, event_id, parent_event_id, occurred_at, ended_at, recorded_at, schema_version,"
    " event_type, session_id, trace_id, agent_id, user_id, tool_name, status"
)
COPY = f"COPY bench.events ({COLUMNS}) FROM STDIN"
INSERT = f"INSERT INTO bench.events ({COLUMNS}) VALUES ({', '.join(['%s'] * 15)})"
Tuple = tuple[object, ...]


@dataclass
class Result:
    """One line of the table: ours against a peer, and the floor that the ratio must reach."""

    name: str
    ours: float
    peer: float | None = None
    floor: float | None = None
    unit: str = "events/s"
    ratio: float | None = None

    @property
    def holds(self) -> bool | None:
        return None if self.floor is None or self.ratio is None else self.ratio >= self.floor


class Raw:
    """Postgres without Whence: the same table with the same indexes, filled by the quickest means."""

    def __init__(self, owner_conninfo: str) -> None:
        self.conninfo = owner_conninfo
        self.conn = psycopg.connect(owner_conninfo, autocommit=True)
        self.conn.execute("CREATE SCHEMA bench")
        self.conn.execute("CREATE TABLE bench.events (LIKE whence.events INCLUDING ALL)")
        self.positions = itertools.count(1)

    def tuples(self, rows: list[Row]) -> list[Tuple]:
        return [self.tuple_of(_event.decode(body)) for body in batches(rows, 1)]

    def tuple_of(self, e: Event) -> Tuple:
        return (
            "default",
            next(self.positions),
            e.event_id,
            e.parent_event_id,
            e.occurred_at,
            e.ended_at,
            datetime.now(UTC),
            1,
            e.event_type,
            e.session_id,
            e.trace_id,
            e.agent_id,
            e.user_id,
            e.tool_name,
            e.status,
        )

    def copy(self, tuples: list[Tuple], size: int) -> float:
        """Rows a second, `size` rows a COPY and a commit. All rows in one is what Postgres can do at best."""
        began = time.perf_counter()
        for start in range(0, len(tuples), size):
            with self.conn.cursor() as cursor, cursor.copy(COPY) as copy:
                for row in tuples[start : start + size]:
                    copy.write_row(row)
        return len(tuples) / (time.perf_counter() - began)


def over_http(target: Served, requests: list[bytes], writers: int) -> tuple[float, list[float]]:
    """Seconds for all requests, spread over writer processes, and the latency of each."""

    def write(number: int) -> list[float]:
        connection, latencies = Connection(target), list[float]()
        for request in requests[number::writers]:
            began = time.perf_counter()
            connection.send(request)
            latencies.append(time.perf_counter() - began)
        return latencies

    return in_processes(write, writers)


def batch_rates(target: Served, raw: Raw, seeds: Iterator[int], count: int) -> list[Result]:
    results: list[Result] = []
    for size, writers, payload, floor in (
        (1000, 1, 0, None),
        (1000, 4, 0, 0.35),
        (1000, 4, PAYLOAD_BYTES, 0.15),
        (100, 4, 0, None),
        (10, 4, 0, None),
        (1, 4, 0, None),
    ):
        events = count if size >= 100 else max(count // 10, 1000)
        ours, peers = list[float](), list[float]()
        for _ in range(ROUNDS):
            rows = make_events(events, next(seeds), payload)
            tuples = raw.tuples(make_events(count, next(seeds)))
            peers.append(raw.copy(tuples, len(tuples)))
            requests = [http_request(target, "/v1/events", body) for body in batches(rows, size)]
            seconds, _ = over_http(target, requests, writers)
            ours.append(events / seconds)
        what = f", {payload} B encrypted payload" if payload else ""
        name = f"HTTP, batches of {size}, {writers} writer{'s' * (writers > 1)}{what}"
        results.append(versus(name, ours, peers, floor))
    return results


def versus(name: str, ours: list[float], peers: list[float], floor: float | None) -> Result:
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, peers, strict=True))
    return Result(name, statistics.median(ours), statistics.median(peers), floor, ratio=ratio)


@asynccontextmanager
async def in_process(target: Served) -> AsyncIterator[Ledger]:
    async with open_app(Settings(data_dir=target.data_dir)) as app:
        yield app.ledger


async def single_rates(target: Served, raw: Raw, seeds: Iterator[int], count: int) -> list[Result]:
    """Appends of one event each, by the ledger's own verb, against a pool of 8 connections doing INSERT and COMMIT."""
    admin = Principal("default", "admin", is_admin=True)
    results: list[Result] = []
    async with (
        in_process(target) as ledger,
        psycopg_pool.AsyncConnectionPool(raw.conninfo, min_size=8, max_size=8, open=False, timeout=120) as pool,
    ):

        async def insert(event: Event) -> None:
            async with pool.connection() as conn:
                await conn.execute(INSERT, raw.tuple_of(event))

        async def append(event: Event) -> None:
            [outcome] = await ledger.append(admin, [event])
            assert outcome.status == "accepted"

        for clients, floor in ((1, 1.0), (8, 1.0), (64, 4.0), (256, 8.0)):
            events = count // 20 if clients == 1 else count // 5
            ours, peers = list[float](), list[float]()
            for _ in range(ROUNDS):
                peers.append(await rate(insert, decoded(events, next(seeds)), clients))
                # As many as on the other side, so that both tables and their indexes grow alike.
                ours.append(await rate(append, decoded(events, next(seeds)), clients))
            results.append(versus(f"single appends, {clients} client{'s' * (clients > 1)}", ours, peers, floor))
    return results


def decoded(count: int, seed: int) -> list[Event]:
    return [_event.decode(body) for body in batches(make_events(count, seed), 1)]


async def rate(verb: Callable[[Event], Awaitable[None]], events: list[Event], clients: int) -> float:
    gc.collect()
    return len(events) / await concurrently(verb, events, clients)


def http_singles(target: Served, seeds: Iterator[int], count: int) -> list[Result]:
    """The same over HTTP, where parsing and answering a request costs more than storing its event."""
    results: list[Result] = []
    for clients in (1, 8):
        requests = [
            http_request(target, "/v1/events", body) for body in batches(make_events(count // 10, next(seeds)), 1)
        ]
        seconds, latencies = over_http(target, requests, clients)
        results.append(Result(f"HTTP single appends, {clients} client{'s' * (clients > 1)}", len(requests) / seconds))
        results += [
            Result(f"  latency {name.removesuffix('_ms')}", value, unit="ms")
            for name, value in percentiles(latencies).items()
        ]
    return results


def otlp_rates(target: Served, count: int) -> list[Result]:
    """Spans of a recorded LangGraph run, with new ids, 512 to a request, end to end."""
    bodies = [span_batch(512) for _ in range(max(count // 512 // 4, 4))]
    requests = [http_request(target, "/v1/traces", body, "application/x-protobuf") for body in bodies]
    seconds, _ = over_http(target, requests, 4)
    return [
        Result("OTLP spans with their content, batches of 512, 4 writers", len(bodies) * 512 / seconds, unit="spans/s")
    ]


def span_batch(count: int) -> bytes:
    recorded = Parse(hex_ids_to_base64(RECORDING.read_text()), ExportTraceServiceRequest())
    spans = recorded.resource_spans[0].scope_spans[0].spans
    patterns = list(spans)
    del spans[:]
    for number in range(count):
        pattern = patterns[number % len(patterns)]
        if number % len(patterns) == 0:
            trace_id = uuid.uuid4().bytes
        copy = spans.add()
        copy.CopyFrom(pattern)
        copy.trace_id = trace_id
    return recorded.SerializeToString()


def hex_ids_to_base64(text: str) -> str:
    """OTLP's JSON writes ids in hexadecimal, protobuf's own JSON in base64."""

    def turn(found: re.Match[str]) -> str:
        return f'"{found[1]}": "{base64.b64encode(bytes.fromhex(found[2])).decode()}"'

    return re.sub(r'"(traceId|spanId|parentSpanId)":\s*"([0-9a-f]*)"', turn, text)


def run(target: Served, quick: bool) -> list[Result]:
    count = 8_000 if quick else 40_000
    seeds = itertools.count(int(time.time()))
    server = embedded.start(target.data_dir)
    try:
        raw = Raw(server.owner_conninfo)
        return [
            *uvloop.run(single_rates(target, raw, seeds, count)),
            *batch_rates(target, raw, seeds, count),
            *http_singles(target, seeds, count),
            *otlp_rates(target, count),
        ]
    finally:
        server.release()
