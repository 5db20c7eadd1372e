"""A gateway that does what networks and servers do. The answer is the same, the loss is bounded, the key is nowhere."""

import asyncio
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hybrid_agent import KEY, Agent, AgentRunResult, Events, Provider, shown
from whence.hybrid import HybridMemory, MemoryConfig

PROMPT, ANSWER = "What is TEXT-OF-THE-PROMPT?", "It is TEXT-OF-THE-ANSWER."
TIMEOUT_SECONDS = 0.5

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    return await reader.readexactly(length)


def answers(status: str, body: bytes | None, *headers: str) -> Behaviour:
    """With the body of the request where none is given: what a careless server says of what it was sent."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        echo = await _request(reader)
        content = echo if body is None else body
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers]
        writer.write("".join(line + "\r\n" for line in lines).encode() + b"\r\n" + content)
        await writer.drain()

    return behave


async def hangs(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await _request(reader)
    await asyncio.sleep(60)


async def never_reads(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drips_headers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def drips_a_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def resets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader)
    writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"results"')
    await writer.drain()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x00\xff\x16\x03\x01" * 100 + await _request(reader))
    await writer.drain()


async def never_ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await _request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


TEN_MEGABYTES = b'{"status":"stored","results":[{"text":"' + b"x" * 10_000_000 + b'"}]}'
FAULTS: dict[str, tuple[Behaviour | None, str, int | None]] = {
    "nobody listens": (None, "network", None),
    "hangs": (hangs, "timeout", None),
    "never reads": (never_reads, "timeout", None),
    "drips headers": (drips_headers, "timeout", None),
    "drips a body": (drips_a_body, "timeout", None),
    "resets": (resets, "network", None),
    "hangs up": (hangs_up, "network", None),
    "garbage": (garbage, "network", None),
    "not JSON": (answers("200 OK", b"<html>"), "invalid_json", None),
    "echo that is not JSON": (answers("200 OK", b"?" + KEY.encode()), "invalid_json", None),
    "a list": (answers("200 OK", b"[]"), "invalid_response", None),
    "packed": (answers("200 OK", b"\x1f\x8b\x08", "Content-Encoding: gzip"), "invalid_json", None),
    "401": (answers("401 Unauthorized", None), "unauthorized", 401),
    "429": (answers("429 Too Many Requests", None, "Retry-After: 30"), "http_error", 429),
    "500": (answers("500 Internal Server Error", None), "http_error", 500),
    "moved": (answers("308 Permanent Redirect", b"", "Location: /elsewhere"), "http_error", 308),
    "10 MB": (answers("200 OK", TEN_MEGABYTES), "too_large", 200),
    "never ends": (never_ends, "too_large", 200),
}


class Faulty:
    """A server that behaves in one way, and counts who came."""

    def __init__(self, behaviour: Behaviour | None) -> None:
        self._behaviour = behaviour
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls = 0
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Faulty"]:
        server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        if self._behaviour is None:
            server.close()
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        task = asyncio.current_task()
        assert task is not None
        assert self._behaviour is not None
        self._tasks.add(task)
        try:
            await self._behaviour(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_gateway_that_fails_costs_its_timeout_at_most_and_changes_nothing(
    fault: str, folder: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    behaviour, category, status = FAULTS[fault]
    before = {path.name: path.read_text() for path in folder.iterdir()}
    events = Events()
    async with Faulty(behaviour).listening() as faulty:
        gateway = {"baseUrl": faulty.url, "userId": "ann", "userKey": KEY, "timeoutSeconds": TIMEOUT_SECONDS}
        config = MemoryConfig.parse({"memory": {"mode": "hybrid", "gateway": gateway}})
        async with HybridMemory(config, folder, audit=events) as memory:
            run = await memory.before_run("41", PROMPT)
            assert run.recalled.error is not None
            events.kept.clear()
            came, began = faulty.calls, time.monotonic()
            agent = Agent(memory, Provider([ANSWER]))
            result = await agent.run("42", PROMPT)
            lost = time.monotonic() - began
            said = shown(run.recalled.error) + repr((memory, run, config, vars(memory), vars(run)))
    assert result == AgentRunResult(ANSWER)
    assert lost < 2 * TIMEOUT_SECONDS + 1, "one timeout before the run, one after it"
    assert events.names == ["recall_failed", "add_failed"]
    for event in events.kept:
        assert (event.details["category"], event.details["status"]) == (category, status)
    assert faulty.calls - came == (2 if behaviour else 0), "nothing is sent again"
    assert len(agent.provider.given[0]) == 2, "and nothing is referred to"
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    everything = "\n".join((said, repr(events.kept), caplog.text, *capfd.readouterr()))
    assert KEY not in everything
    assert "TEXT-OF" not in repr(events.kept) + caplog.text


async def test_a_flush_that_hangs_costs_one_timeout(folder: Path) -> None:
    turns = iter([answers("200 OK", b'{"results": []}'), answers("200 OK", b"{}"), hangs])

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next(turns)(reader, writer)

    events = Events()
    async with Faulty(behave).listening() as faulty:
        gateway = {"baseUrl": faulty.url, "userId": "ann", "userKey": KEY, "timeoutSeconds": TIMEOUT_SECONDS}
        config = MemoryConfig.parse({"memory": {"mode": "hybrid", "gateway": gateway}})
        async with HybridMemory(config, folder, audit=events) as memory:
            began = time.monotonic()
            assert await Agent(memory, Provider([ANSWER])).run("42", PROMPT) == AgentRunResult(ANSWER)
            assert time.monotonic() - began < TIMEOUT_SECONDS + 1
    assert events.names == ["recall_succeeded", "add_succeeded", "flush_failed"]
    assert events.kept[-1].details["add_succeeded"] is True
