"""A transaction in one round trip, spoken to libpq directly.

Every append waits for one of these, so what it costs this process counts. psycopg's pipeline takes three times as long
for the same statements, and sends them only when the event loop comes round again, by when the loop may be busy. This
sends at once. Everything else in Whence goes through psycopg's cursors.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

Connection = AsyncConnection[tuple[Any, ...]]
Values = Mapping[str, bytes | None]

_PLACEHOLDER = re.compile(rb"%\((\w+)\)[sb]")
_BINARY = pq.Format.BINARY
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
    for command in begin:
        conn.pgconn.send_query_params(command, None)
    for statement, values in statements:
        statement.send(conn, values)
    conn.pgconn.send_query_params(b"COMMIT", None)
    conn.pgconn.pipeline_sync()
    results = await _results(conn.pgconn)
    conn.pgconn.exit_pipeline_mode()
    for result in results:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    return [result for result in results if result.status == pq.ExecStatus.TUPLES_OK]


async def _results(pgconn: pq.abc.PGconn) -> list[pq.abc.PGresult]:
    """Everything that comes back, up to the end of the pipeline."""
    results: list[pq.abc.PGresult] = []
    while True:
        await _exchange(pgconn)
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                # The end of one statement's results; the next one's follow.
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)


async def _exchange(pgconn: pq.abc.PGconn) -> None:
    """Sends what is left to send, and waits until there is something to read or room to send more."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    unsent = pgconn.flush()
    loop.add_reader(pgconn.socket, wake)
    if unsent:
        loop.add_writer(pgconn.socket, wake)
    try:
        await woken
    finally:
        loop.remove_reader(pgconn.socket)
        if unsent:
            loop.remove_writer(pgconn.socket)
    pgconn.consume_input()
    if pgconn.status == pq.ConnStatus.BAD:
        raise psycopg.OperationalError("the connection is lost")
