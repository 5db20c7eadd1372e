"""Both clients behind one face, so that a test of a verb is a test of both."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from conftest import Server, Workspace
from whence import AsyncWhence, Whence
from whence.app import App


class Awaited:
    """The synchronous client, each call in a thread, as if it were the other one."""

    def __init__(self, client: Whence) -> None:
        self.client = client

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.client, verb)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **named)

        return call

    async def follow(self, **asked: Any) -> AsyncIterator[Any]:
        events = self.client.follow(**asked)
        try:
            while True:
                yield await asyncio.to_thread(next, events)
        finally:
            await asyncio.to_thread(events.close)  # pyright: ignore[reportAttributeAccessIssue]


Open = Callable[..., Any]


@pytest.fixture(params=["async", "sync"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens a client of either kind; all are closed when the test ends."""
    clients: list[AsyncWhence | Whence] = []

    def open_client(url: str, key: str, **more: Any) -> Any:
        client = (AsyncWhence if request.param == "async" else Whence)(url, key=key, **more)
        clients.append(client)
        return client if isinstance(client, AsyncWhence) else Awaited(client)

    yield open_client
    for client in clients:
        await client.close() if isinstance(client, AsyncWhence) else client.close()


@pytest.fixture
async def ann_key(app: App, workspace: Workspace) -> str:
    return await app.identity.add_user(workspace.workspace_id, "ann")


@pytest.fixture
async def ann(opened: Open, server: Server, ann_key: str) -> Any:
    """A client with a user's key."""
    return opened(server.url, ann_key)


@pytest.fixture
async def administrator(opened: Open, server: Server, workspace: Workspace) -> Any:
    return opened(server.url, workspace.admin_key)


@dataclass
class Between:
    """Stands between a client and a server, and does to answers what networks do."""

    upstream: str
    url: str = ""
    seen: list[str] = field(default_factory=list)
    lose_answers: int = 0
    """Of so many requests the answer is lost, after the server has done what they ask for."""
    refuse: int = 0
    """So many requests are answered with 503 instead of being passed on."""
    answer: tuple[int, bytes] | None = None
    """What everything is answered with, where it is set."""
    cut_bytes: int = 0
    """Streams are cut after so many bytes."""


@contextmanager
def between(upstream: str) -> Iterator[Between]:
    state = Between(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            state.seen.append(f"{self.command} {self.path}")
            if state.refuse:
                state.refuse -= 1
                problem = {"type": "t", "title": "T", "status": 503, "detail": "later", "code": "overloaded"}
                self.give(503, json.dumps(problem).encode(), {"Retry-After": "0"})
                return
            if state.answer is not None:
                self.give(*state.answer, {})
                return
            headers = {"Authorization": self.headers["authorization"]}
            if state.cut_bytes:
                self.relay(headers)
                return
            answer = httpx.request(self.command, state.upstream + self.path, content=body, headers=headers)
            if state.lose_answers:
                state.lose_answers -= 1
                self.close_connection = True
                return
            self.give(answer.status_code, answer.content, {})

        do_GET = do_POST = do_PUT = do_DELETE = handle_one

        def give(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def relay(self, headers: dict[str, str]) -> None:
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            left = state.cut_bytes
            with httpx.stream("GET", state.upstream + self.path, headers=headers) as answer:
                for chunk in answer.iter_bytes():
                    self.wfile.write(chunk[:left])
                    left -= len(chunk)
                    if left <= 0:
                        return

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        state.url = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            listener.shutdown()
            thread.join()


@pytest.fixture
def network(server: Server) -> Iterator[Between]:
    with between(server.url) as state:
        yield state
