"""A Whence that lives in this process: the server's own routes, called without a socket.

It has a thread and an event loop of its own, so that it goes on with its work whatever the caller does with theirs, and
so that one transport serves both clients. The thread does not keep the interpreter from ending: what was answered is
committed, and the kernel gives back the lease on the database.
"""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, MutableMapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from whence.errors import Unavailable

# What an answer may be ahead of its reader, before whoever writes it waits.
MAX_QUEUED_MESSAGES = 16
# Told as it is, not as a lost connection: nobody would answer if it were sent again.
CLOSED = "this Whence was closed before it had answered"

T = TypeVar("T")
Message = MutableMapping[str, Any]
Asgi = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class Embedded(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Carries the requests of either client to a Whence that opens when it is entered, or asked for the first time."""

    def __init__(self, data_dir: str | PathLike[str] | None, user: str | None, database_url: str | None = None) -> None:
        self._house = _House(None if data_dir is None else Path(data_dir), user, database_url)
        # A client that was dropped without being closed must not leave a Whence behind.
        weakref.finalize(self, self._house.stop).atexit = False

    def __enter__(self) -> Self:
        try:
            self._house.opened().result()
        except BaseException:
            # Who is interrupted while it opens never leaves it, and may remove its folder next.
            self._house.close()
            raise
        return self

    async def __aenter__(self) -> Self:
        try:
            await _awaited(self._house.opened())
        except BaseException:
            self._house.stop()
            raise
        return self

    def key(self) -> str:
        """What its calls are made with, for who must name a key; it ends with this process."""
        return self._house.opened().result().key

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        inside = self._house.opened().result()
        exchange = inside.exchange(request, request.read())
        status, headers = _waited_for(inside.submit(exchange.begin()))
        return httpx.Response(status, headers=headers, stream=_Answer(inside, exchange))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        inside = await _awaited(self._house.opened())
        exchange = inside.exchange(request, await request.aread())
        status, headers = await _awaited(inside.submit(exchange.begin()))
        return httpx.Response(status, headers=headers, stream=_Answer(inside, exchange))

    def close(self) -> None:
        self._house.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self._house.close)


class _House:
    """The thread in which it lives."""

    def __init__(self, data_dir: Path | None, user: str | None, database_url: str | None) -> None:
        self._opened: Future[_Inside] = Future()
        # Many may wait for it, and one of them who gives up must not cancel it for the others.
        self._opened.set_running_or_notify_cancel()
        self._stopping: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._where = data_dir, user, database_url
        self._thread = threading.Thread(target=self._live, name="whence", daemon=True)
        self._beginning = threading.Lock()

    def opened(self) -> "Future[_Inside]":
        """Begun by the first who asks, and not when it is made: who is interrupted before has nothing to give back."""
        with self._beginning:
            if self._thread.ident is None:
                if self._stopping.done():
                    raise Unavailable(CLOSED)
                self._thread.start()
        return self._opened

    def stop(self) -> None:
        with suppress(InvalidStateError):
            self._stopping.set_result(None)

    def close(self) -> None:
        """Waits until all is given back. What failed when it opened is told to whoever calls it, not here."""
        self.stop()
        with self._beginning:
            has_begun = self._thread.ident is not None
        if has_begun:
            self._thread.join()
            self._ended.result()

    def _live(self) -> None:
        try:
            # Not the policy's loop, which may be one that psycopg cannot use.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # a thread has nobody else to tell
            (self._ended if self._opened.done() else self._opened).set_exception(error)
        if not self._ended.done():
            self._ended.set_result(None)

    async def _serve(self) -> None:
        # The only place where the agent's side reaches the server's, and only when it is asked to.
        from whence.inprocess import open_inside  # noqa: PLC0415

        async with open_inside(*self._where) as (asgi, key):
            inside = _Inside(asyncio.get_running_loop(), asgi, key)
            self._opened.set_result(inside)
            await asyncio.wrap_future(self._stopping)
            await inside.shut()


class _Inside:
    """What is reached from other threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, asgi: Asgi, key: str) -> None:
        self.asgi = asgi
        self.tasks: set[asyncio.Task[None]] = set()
        self._loop = loop
        self.key = key
        self._is_shut = False
        self._door = threading.Lock()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Behind a lock, so that nothing is given to a loop that will not run again and nobody waits for it forever."""
        with self._door:
            if not self._is_shut:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        raise Unavailable(CLOSED)

    async def shut(self) -> None:
        with self._door:
            self._is_shut = True
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def exchange(self, request: httpx.Request, body: bytes) -> "_Exchange":
        url = request.url
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [
                *((name.lower(), value) for name, value in request.headers.raw),
                (b"authorization", b"Bearer " + self.key.encode()),
            ],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "server": None,
            "client": None,
        }
        return _Exchange(self, scope, body)


class _Exchange:
    """One request and its answer. Its methods run in the house's loop."""

    def __init__(self, inside: _Inside, scope: Message, body: bytes) -> None:
        self._inside = inside
        self._scope = scope
        self._body: bytes | None = body
        self._messages: asyncio.Queue[Message] = asyncio.Queue(MAX_QUEUED_MESSAGES)
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        self._task = asyncio.create_task(self._run())
        self._inside.tasks.add(self._task)
        self._task.add_done_callback(self._inside.tasks.discard)
        try:
            first = await self._next()
        except asyncio.CancelledError:
            await self.end()
            raise
        return first["status"], list(first["headers"])

    async def chunk(self) -> bytes | None:
        """The next part of the answer; None at its end."""
        if self._task is None:
            return None
        message = await self._next()
        if not message.get("more_body", False):
            await self.end()
        return message.get("body", b"")

    async def end(self) -> None:
        """Also where the reader has had enough."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        await self._inside.asgi(self._scope, self._receive, self._messages.put)

    async def _receive(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            # There is no connection that could be lost; a reader who goes away cancels.
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body, "more_body": False}

    async def _next(self) -> Message:
        assert self._task is not None
        coming = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.wait({coming, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done() and self._messages.empty():
                raise Unavailable(CLOSED)
            return await coming
        finally:
            coming.cancel()


class _Answer(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The body of an answer, part by part."""

    def __init__(self, inside: _Inside, exchange: _Exchange) -> None:
        self._inside = inside
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        while (chunk := _waited_for(self._inside.submit(self._exchange.chunk()))) is not None:
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await _awaited(self._inside.submit(self._exchange.chunk()))) is not None:
            yield chunk

    def close(self) -> None:
        # Without waiting: a forgotten stream is closed when the interpreter ends, and no thread runs any more then.
        with suppress(Unavailable):
            self._inside.submit(self._exchange.end())

    async def aclose(self) -> None:
        with suppress(Unavailable):
            await _awaited(self._inside.submit(self._exchange.end()))


def _waited_for(future: Future[T]) -> T:
    try:
        return future.result()
    except CancelledError:
        raise Unavailable(CLOSED) from None
    except BaseException:
        future.cancel()
        raise


async def _awaited(future: Future[T]) -> T:
    """Its cancellation is the house's end; the caller's own is another thing, and travels."""
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Unavailable(CLOSED) from None
