"""A transaction in one round trip, spoken to libpq directly.

Every append waits for one of these, so what it costs this process counts. psycopg's pipeline takes three times as long
for the same statements, and sends them only when the event loop comes round again, by when the loop may be busy. This
sends at once. Everything else in Whence goes through psycopg's cursors.
"""

import asyncio
import os
import re
import select
from collections.abc import Iterable, Mapping, Sequence
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
MAX_KEPT = 256
"""Of what is prepared on one connection: commands beyond it are parsed each time they are said."""

_prepared: WeakKeyDictionary[Connection, dict[bytes, bytes]] = WeakKeyDictionary()
"""By commands, and by the names of statements: the name under which the database knows each."""


class Statement:
    """A statement that is prepared once on each connection. Its values travel in binary."""

    def __init__(self, name: str, statement: bytes) -> None:
        self.name = b"whence_" + name.encode()
        self.parameters = tuple(dict.fromkeys(name.decode() for name in _PLACEHOLDER.findall(statement)))
        places = {name: b"$%d" % place for place, name in enumerate(self.parameters, 1)}
        self.sql = _PLACEHOLDER.sub(lambda found: places[found[1].decode()], statement)


def rows_of(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    """What a statement gave, as psycopg reads it."""
    if result.ntuples == 0:
        return []
    transformer = Transformer()
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


async def one_trip(
    conn: Connection, begin: Sequence[bytes], statements: Iterable[tuple[Statement, Values]]
) -> list[pq.abc.PGresult]:
    """Begins, runs the statements and commits; returns what gave rows.

    Statements that are made as they are asked for are made while the database begins. Raises the first error; the
    transaction is then the caller's to roll back.
    """
    sending = _Sending(conn)
    # Before anything can fail, after which nothing would be prepared.
    for command in (*begin, _COMMIT):
        sending.keep(command)
    for command in begin:
        sending.say(command)
    if not isinstance(statements, Sequence):
        conn.pgconn.flush()
    made = list(statements)
    for statement, _ in made:
        sending.prepare(statement)
    for statement, values in made:
        sending.run(statement, values)
    sending.say(_COMMIT)
    conn.pgconn.pipeline_sync()
    results = await (_exchanges.get(conn) or _Exchange(conn)).results()
    conn.pgconn.exit_pipeline_mode()
    sending.learn(results)
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return [result for result in results if result.status == pq.ExecStatus.TUPLES_OK]


class _Sending:
    """What is sent on a connection in one go. What is not prepared there yet is prepared on the way."""

    def __init__(self, conn: Connection) -> None:
        self._pgconn = conn.pgconn
        self._known = _prepared.setdefault(conn, {})
        self._fresh: dict[bytes, bytes] = {}
        self._sent: list[bytes | None] = []
        """Of everything that has a result, what it prepares."""
        self._pgconn.enter_pipeline_mode()

    def keep(self, command: bytes) -> None:
        """Prepares a command, which SQL itself cannot. Under a number: the database knows names apart by their first
        63 bytes, and commands that say whose rows are to be seen may begin with as many that are the same."""
        number = len(self._known) + len(self._fresh)
        if command not in self._known and number < MAX_KEPT:
            self._prepare(command, b"whence_command_%d" % number, command)

    def prepare(self, statement: Statement) -> None:
        if statement.name not in self._known and statement.name not in self._fresh:
            self._prepare(statement.name, statement.name, statement.sql)

    def say(self, command: bytes) -> None:
        name = self._known.get(command) or self._fresh.get(command)
        if name is None:
            self._pgconn.send_query_params(command, None)
        else:
            self._pgconn.send_query_prepared(name, None)
        self._sent.append(None)

    def run(self, statement: Statement, values: Values) -> None:
        given = [values[name] for name in statement.parameters]
        self._pgconn.send_query_prepared(statement.name, given, [_BINARY] * len(given), result_format=_BINARY)
        self._sent.append(None)

    def learn(self, results: Sequence[pq.abc.PGresult]) -> None:
        """What the database has prepared stays so, whatever became of the rest."""
        if self._fresh:
            for what, result in zip(self._sent, results, strict=False):
                if what is not None and result.status == pq.ExecStatus.COMMAND_OK:
                    self._known[what] = self._fresh[what]

    def _prepare(self, what: bytes, name: bytes, sql: bytes) -> None:
        self._pgconn.send_prepare(name, sql)
        self._fresh[what] = name
        self._sent.append(what)


class _Exchange:
    """Sends and reads on a connection when the event loop says that it can.

    The loop is told of the socket once, and not in every trip, which took it nine calls of the system. It is told of a
    duplicate, because whoever else waits on this connection does so by its socket's own number, and takes that number
    from the loop afterwards.
    """

    def __init__(self, conn: Connection) -> None:
        self._pgconn = conn.pgconn
        self._socket = os.dup(conn.pgconn.socket)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
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
            if self._poll.poll(0):
                # Too soon for an answer: the server has ended the connection, which the loop may have told already.
                self._readable()
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
            # Up to the last byte: uvloop watches a socket no longer after it has told once that it is in error, and
            # what a server says before it dies is read before the error is.
            while not (ended := self._has_ended()) and self._poll.poll(0):
                self._pgconn.consume_input()
            if ended:
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
