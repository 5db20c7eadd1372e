"""A transaction in one round trip, spoken to libpq directly.

Every append waits for one of these, so what it costs this process counts. psycopg's pipeline takes three times as long
for the same statements, and sends them only when the event loop comes round again, by when the loop may be busy. This
sends at once. Everything else in Whence goes through psycopg's cursors.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, finalize

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

Connection = AsyncConnection[tuple[Any, ...]]
Values = Mapping[str, bytes | None]

_PLACEHOLDER = re.compile(rb"%\((\w+)\)[sb]")
_BINARY = pq.Format.BINARY
_COMMIT = b"COMMIT"
_prepared: WeakKeyDictionary[Connection, set[bytes]] = WeakKeyDictionary()


class Statement:
    """A statement that is prepared once on each connection. Its values travel in binary."""

    def __init__(self, name: str, statement: bytes) -> None:
        self.name = b"whence_" + name.encode()
        self.parameters = tuple(dict.fromkeys(name.decode() for name in _PLACEHOLDER.findall(statement)))
        places = {name: b"$%d" % place for place, name in enumerate(self.parameters, 1)}
        self.sql = _PLACEHOLDER.sub(lambda found: places[found[1].decode()], statement)

    async def prepare(self, conn: Connection) -> None:
        known = _prepared.setdefault(conn, set())
        if self.name not in known:
            await conn.execute(b"PREPARE %b AS %b" % (self.name, self.sql), prepare=False)
            known.add(self.name)

    def send(self, conn: Connection, values: Values) -> None:
        given = [values[name] for name in self.parameters]
        conn.pgconn.send_query_prepared(self.name, given, [_BINARY] * len(given), result_format=_BINARY)


def rows_of(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    """What a statement gave, as psycopg reads it."""
    if result.ntuples == 0:
        return []
    transformer = Transformer()
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


async def one_trip(
    conn: Connection, begin: Sequence[bytes], statements: Sequence[tuple[Statement, Values]]
) -> list[pq.abc.PGresult]:
    """Begins, runs the statements and commits; returns what gave rows.

    Raises the first error; the transaction is then the caller's to roll back.
    """
    for statement, _ in statements:
        await statement.prepare(conn)
    conn.pgconn.enter_pipeline_mode()
    # Before anything can fail, after which nothing would be prepared.
    for command in (*begin, _COMMIT):
        _keep(conn, command)
    for command in begin:
        _say(conn, command)
    for statement, values in statements:
        statement.send(conn, values)
    _say(conn, _COMMIT)
    conn.pgconn.pipeline_sync()
    results = await (_exchanges.get(conn) or _Exchange(conn)).results()
    conn.pgconn.exit_pipeline_mode()
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return [result for result in results if result.status == pq.ExecStatus.TUPLES_OK]


def _keep(conn: Connection, command: bytes) -> None:
    """Prepares a command that is the same each time, because it says no value; SQL itself cannot prepare such ones."""
    known = _prepared.setdefault(conn, set())
    if command not in known and b"'" not in command:
        conn.pgconn.send_prepare(command, command)
        known.add(command)


def _say(conn: Connection, command: bytes) -> None:
    if command in _prepared[conn]:
        conn.pgconn.send_query_prepared(command, None)
    else:
        conn.pgconn.send_query_params(command, None)


class _Exchange:
    """Sends and reads on a connection when the event loop says that it can.

    The loop is told of the socket once, and not in every trip, which took it nine calls of the system. It is told of a
    duplicate, because whoever else waits on this connection does so by its socket's own number, and takes that number
    from the loop afterwards.
    """

    def __init__(self, conn: Connection) -> None:
        self._pgconn = conn.pgconn
        self._socket = os.dup(conn.pgconn.socket)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._read: list[pq.abc.PGresult] = []
        self._ended: asyncio.Future[None] | None = None
        _exchanges[conn] = self
        finalize(conn, self._close)

    async def results(self) -> list[pq.abc.PGresult]:
        """Everything that comes back, up to the end of the pipeline."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            loop.add_reader(self._socket, self._readable)
            self._loop = loop
        self._read, self._ended = [], loop.create_future()
        unsent = 0
        try:
            unsent = self._pgconn.flush()
            if unsent:
                loop.add_writer(self._socket, self._writable)
            await self._ended
        finally:
            self._ended = None
            if unsent:
                loop.remove_writer(self._socket)
        return self._read

    def _readable(self) -> None:
        if self._ended is None or self._ended.done():
            # Nobody will read it here: the server has ended the connection, or somebody else uses it.
            self._unwatch()
            return
        try:
            self._pgconn.consume_input()
            if self._has_ended():
                self._ended.set_result(None)
            elif self._pgconn.status == pq.ConnStatus.BAD:
                self._ended.set_exception(psycopg.OperationalError("the connection is lost"))
        except psycopg.Error as error:
            self._ended.set_exception(error)

    def _writable(self) -> None:
        if self._loop is None or self._ended is None or self._ended.done():
            return
        try:
            if not self._pgconn.flush():
                self._loop.remove_writer(self._socket)
        except psycopg.Error as error:
            self._ended.set_exception(error)

    def _has_ended(self) -> bool:
        while not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                # The end of one statement's results; the next one's follow.
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return True
            self._read.append(result)
        return False

    def _unwatch(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._loop = None

    def _close(self) -> None:
        self._unwatch()
        os.close(self._socket)


_exchanges: WeakKeyDictionary[Connection, _Exchange] = WeakKeyDictionary()
