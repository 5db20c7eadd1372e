"""A transaction in one round trip, spoken to libpq directly.

Appends and recalls wait for one of these, so what it costs this process counts. psycopg's pipeline takes three times as
long for the same statements, and sends them only when the event loop comes round again, by when the loop may be busy.
This sends at once. Most else in Whence goes through psycopg's cursors.
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
"""Commands that are prepared on one connection; those beyond are parsed each time they are said."""


class Statement:
    """A statement that is prepared once on each connection. Its values travel in binary."""

    def __init__(self, name: str, statement: bytes) -> None:
        self.name = b"whence_" + name.encode()
        self.parameters = tuple(dict.fromkeys(name.decode() for name in _PLACEHOLDER.findall(statement)))
        places = {name: b"$%d" % place for place, name in enumerate(self.parameters, 1)}
        self.sql = _PLACEHOLDER.sub(lambda found: places[found[1].decode()], statement)


Said = tuple[Statement, Values]


def rows_of(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    """What a statement gave, as psycopg reads it."""
    if result.ntuples == 0:
        return []
    transformer = Transformer()
    transformer.set_pgresult(result)
    return transformer.load_rows(0, result.ntuples, tuple)


async def one_trip(
    conn: Connection, begin: Sequence[bytes], who: Sequence[bytes], statements: Iterable[Said | None]
) -> list[pq.abc.PGresult]:
    """Begins, runs the statements and commits; returns what gave rows.

    `begin` is prepared and `who` is not: there are too many users, and nothing here is to remember one. None among the
    statements says that the next takes a while to make: those before it are sent, and the database works on them
    meanwhile. It takes the transaction to be idle from then on, and ends it in time if the rest does not come. Raises
    the first error; the transaction is then the caller's to roll back.
    """
    line = _lines.get(conn) or _Line(conn)
    sending = _Sending(line, conn.pgconn)
    # Before anything can fail, after which nothing would be prepared.
    for command in (*begin, _COMMIT):
        sending.keep(command)
    for command in (*begin, *who):
        sending.say(command)
    syncs = 1
    for each in statements:
        if each is None:
            conn.pgconn.pipeline_sync()
            conn.pgconn.flush()
            syncs += 1
            continue
        statement, values = each
        sending.prepare(statement)
        sending.run(statement, values)
    sending.say(_COMMIT)
    conn.pgconn.pipeline_sync()
    results = await line.results(syncs)
    conn.pgconn.exit_pipeline_mode()
    sending.learn(results)
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return [result for result in results if result.status == pq.ExecStatus.TUPLES_OK]


class _Sending:
    """What is sent on a connection in one go. What is not prepared there yet is prepared on the way."""

    def __init__(self, line: "_Line", pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._line = line
        self._statements: set[bytes] = set()
        self._commands: dict[bytes, bytes] = {}
        """What this prepares, as in what is known."""
        self._sent: list[bytes | None] = []
        """Of everything that has a result, what it prepares."""
        self._pgconn.enter_pipeline_mode()

    def keep(self, command: bytes) -> None:
        """Prepares a command, which SQL itself cannot. Under a number: the database knows names apart by their first
        63 bytes, and commands that say whose rows are to be seen may begin with as many that are the same."""
        number = len(self._line.commands) + len(self._commands)
        if command not in self._line.commands and number < MAX_KEPT:
            self._commands[command] = b"whence_command_%d" % number
            self._prepare(command, self._commands[command], command)

    def prepare(self, statement: Statement) -> None:
        if statement.name not in self._line.statements and statement.name not in self._statements:
            self._statements.add(statement.name)
            self._prepare(statement.name, statement.name, statement.sql)

    def say(self, command: bytes) -> None:
        name = self._line.commands.get(command) or self._commands.get(command)
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
        if not self._statements and not self._commands:
            return
        for what, result in zip(self._sent, results, strict=False):
            if what is None or result.status != pq.ExecStatus.COMMAND_OK:
                continue
            if what in self._statements:
                self._line.statements.add(what)
            else:
                self._line.commands[what] = self._commands[what]

    def _prepare(self, what: bytes, name: bytes, sql: bytes) -> None:
        self._pgconn.send_prepare(name, sql)
        self._sent.append(what)


class _Line:
    """What is known of a connection, which sends and reads when the event loop says that it can.

    The loop is told of the socket once, and not in every trip, which took it nine calls of the system. It is told of a
    duplicate, because whoever else waits on this connection does so by its socket's own number, and takes that number
    from the loop afterwards.
    """

    def __init__(self, conn: Connection) -> None:
        self.statements: set[bytes] = set()
        """What the database has prepared, by names."""
        self.commands: dict[bytes, bytes] = {}
        """The same, with their names."""
        self._pgconn = conn.pgconn
        self._socket = os.dup(conn.pgconn.socket)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._read: list[pq.abc.PGresult] = []
        self._syncs = 0
        """Those that are still to come back."""
        self._ended: asyncio.Future[None] | None = None
        _lines[conn] = self
        self.close = finalize(conn, self._close)
        """Does it once, at the latest when the connection is gone."""

    async def results(self, syncs: int) -> list[pq.abc.PGresult]:
        """Everything that comes back, up to the last of so many syncs."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            loop.add_reader(self._socket, self._readable)
            self._loop = loop
        self._read, self._syncs, self._ended = [], syncs, loop.create_future()
        unsent = 0
        try:
            unsent = self._pgconn.flush()
            if unsent:
                loop.add_writer(self._socket, self._writable)
            if self._poll.poll(0):
                # Too soon for an answer: the server has ended the connection. The loop may have told that with the last
                # answer, and uvloop then tells it no more.
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
            if self._has_ended():
                self._ended.set_result(None)
            elif self._pgconn.status == pq.ConnStatus.BAD:
                self._ended.set_exception(psycopg.OperationalError("the connection is lost"))
            elif self._loop is not None and self._poll.poll(0):
                # Up to the last byte, with turns for others in between: uvloop watches a socket no longer after it has
                # told once that it is in error, and what a server says before it dies is read before the error is.
                self._loop.call_soon(self._read_on, self._ended)
        except psycopg.Error as error:
            self._ended.set_exception(error)

    def _read_on(self, ended: asyncio.Future[None]) -> None:
        if self._ended is ended and not ended.done():
            self._readable()

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
            if result.status != pq.ExecStatus.PIPELINE_SYNC:
                self._read.append(result)
                continue
            self._syncs -= 1
            if self._syncs == 0:
                return True
        return False

    def _unwatch(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket)
        self._loop = None

    def _close(self) -> None:
        self._unwatch()
        os.close(self._socket)


_lines: WeakKeyDictionary[Connection, _Line] = WeakKeyDictionary()


async def close(conn: Connection) -> None:
    """At once: while a number of its socket is open, the server waits for the rest of what it was being sent, with its
    locks."""
    line = _lines.pop(conn, None)
    if line is not None:
        line.close()
    await conn.close()
