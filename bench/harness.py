"""What the benchmarks share: a served Whence of their own, events to send, and clients that cost little."""

import asyncio
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Row = dict[str, object]


@dataclass
class Served:
    host: str
    port: int
    key: str
    data_dir: Path


@contextmanager
def served() -> Iterator[Served]:
    """Without a worker: what follows from the ledger is measured by itself, and must not take cores away here."""
    # The database may take longer to stop than the server, and still be writing.
    with tempfile.TemporaryDirectory(prefix="whence-bench-", ignore_cleanup_errors=True) as folder:
        data_dir = Path(folder) / "data"
        command = [sys.executable, "-m", "whence", "serve", "--data-dir", str(data_dir), "--port", "0", "--no-worker"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("ready "))
            host, port = line.split("//")[1].strip().split(":")
            yield Served(host, int(port), (data_dir / "admin.key").read_text().strip(), data_dir)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def make_events(count: int, seed: int, payload_bytes: int = 0) -> list[Row]:
    """Events as an agent makes them: sessions and traces of a few dozen, parents before children, tools and agents."""
    dice = random.Random(seed)
    start = datetime.now(UTC) - timedelta(hours=1)
    trace, session, parent = "", "", ""
    rows: list[Row] = []
    for number in range(count):
        if number % 24 == 0:
            trace, parent = f"{dice.getrandbits(128):032x}", ""
        if number % 240 == 0:
            session = f"session-{dice.getrandbits(64):016x}"
        event_id = str(uuid.UUID(int=dice.getrandbits(128), version=4))
        began = start + timedelta(milliseconds=number)
        row: Row = {
            "event_id": event_id,
            "event_type": dice.choice(("tool.execute", "llm.generate", "agent.invoke", "chain.run")),
            "occurred_at": began.isoformat(),
            "ended_at": (began + timedelta(milliseconds=40)).isoformat(),
            "session_id": session,
            "trace_id": trace,
            "agent_id": f"agent-{dice.randrange(20)}",
            "user_id": f"user-{dice.randrange(100)}",
            "tool_name": f"tool-{dice.randrange(30)}",
            "status": "completed",
        }
        if parent:
            row["parent_event_id"] = parent
        if payload_bytes:
            row["payload"] = {"text": "".join(dice.choices("abcdefghijklmnop ", k=payload_bytes - 12))}
        parent = event_id
        rows.append(row)
    return rows


def http_request(target: Served, path: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {target.host}\r\nAuthorization: Bearer {target.key}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def batches(rows: list[Row], size: int) -> list[bytes]:
    if size == 1:
        return [json.dumps(row).encode() for row in rows]
    return [json.dumps({"events": rows[i : i + size]}).encode() for i in range(0, len(rows), size)]


class Connection:
    """HTTP over one kept socket, with requests made beforehand: the least that a client can cost."""

    def __init__(self, target: Served) -> None:
        self._socket = socket.create_connection((target.host, target.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def send(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        status = self._file.readline()
        length = 0
        while (line := self._file.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line[15:])
        body = self._file.read(length)
        if b" 200 " not in status:
            raise RuntimeError(f"{status!r} {body[:300]!r}")
        return body


def in_processes(work: Callable[[int], list[float]], count: int) -> tuple[float, list[float]]:
    """Runs `work(n)` in `count` forked processes; the wall time from the common start, and all that they returned."""
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(count + 1)
    queue = context.Queue()

    def child(number: int) -> None:
        gate.wait()
        try:
            queue.put(work(number))
        except BaseException as error:
            queue.put(error)
            raise

    processes = [context.Process(target=child, args=(n,)) for n in range(count)]
    for process in processes:
        process.start()
    gate.wait()
    began = time.perf_counter()
    results = [queue.get() for _ in processes]
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return seconds, [value for result in results for value in result]


async def concurrently(verb: Callable[[Any], Awaitable[None]], items: Iterable[Any], clients: int) -> float:
    """Seconds until `clients` tasks have taken all items, one after the other each."""
    left = iter(items)

    async def client() -> None:
        for item in left:
            await verb(item)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        f"p{p}_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] * 1e3, 3) for p in (50, 95, 99)
    }


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "python": sys.version.split()[0], "platform": sys.platform}
