"""LangGraph's own Postgres saver, told where its tables are and how values are serialised."""

import json
import re
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple, cast

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from psycopg.types.json import Jsonb

from whence.checkpoints.sealing import Sealer
from whence.db import Tx
from whence.db.trip import Statement, Values

_TABLE = re.compile(r"(?i)\b(from|join|into)\s+(checkpoints|checkpoint_blobs|checkpoint_writes)\b")


def _placed(statement: str) -> str:
    """With the schema named: the search path is the caller's, who may have tables of the same names."""
    return _TABLE.sub(r"\1 langgraph.\2", statement)


class Saver(AsyncPostgresSaver):
    """The saver on one connection, for reading."""

    SELECT_SQL = _placed(AsyncPostgresSaver.SELECT_SQL)
    SELECT_PENDING_SENDS_SQL = _placed(AsyncPostgresSaver.SELECT_PENDING_SENDS_SQL)
    UPSERT_CHECKPOINT_BLOBS_SQL = _placed(AsyncPostgresSaver.UPSERT_CHECKPOINT_BLOBS_SQL)
    UPSERT_CHECKPOINTS_SQL = _placed(AsyncPostgresSaver.UPSERT_CHECKPOINTS_SQL)
    UPSERT_CHECKPOINT_WRITES_SQL = _placed(AsyncPostgresSaver.UPSERT_CHECKPOINT_WRITES_SQL)
    INSERT_CHECKPOINT_WRITES_SQL = _placed(AsyncPostgresSaver.INSERT_CHECKPOINT_WRITES_SQL)

    def __init__(self, conn: Tx | None, serde: SerializerProtocol) -> None:
        super().__init__(cast("Any", conn), None, serde)


Written = tuple[str, Sequence[Any]]
"""A statement, and its values."""


class Gatherer(Saver):
    """The saver without a connection: what it would write is gathered, to be sent together with what else there is."""

    def __init__(self, serde: SerializerProtocol) -> None:
        super().__init__(None, serde)
        self.written: list[Written] = []

    @asynccontextmanager
    async def _cursor(self, *, pipeline: bool = False) -> AsyncGenerator[Any]:
        yield self

    async def execute(self, statement: str, values: Sequence[Any]) -> None:
        self.written.append((statement, values))

    async def executemany(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self.written += [(statement, row) for row in rows]


class _Insert(NamedTuple):
    statement: Statement
    integers: frozenset[int]
    """Which of its values are integers: the places of writes. The others are texts, bytes or JSON."""


_inserts: dict[str, _Insert] = {}


def of_trip(written: Written) -> tuple[Statement, Values]:
    """The same for a transaction that is one trip, where values travel in binary."""
    text, values = written
    insert = _inserts.get(text)
    if insert is None:
        insert = _inserts[text] = _insert(text, f"langgraph_{len(_inserts)}")
    return insert.statement, {
        f"p{place}": struct.pack("!i", value) if place in insert.integers else _binary(value)
        for place, value in enumerate(values)
    }


def _insert(text: str, name: str) -> _Insert:
    """`INSERT INTO … (columns) VALUES (%s, …)`, as all of the saver's are."""
    number = count()
    named = re.sub("%s", lambda _: f"%(p{next(number)})s", text).strip().rstrip(";")
    columns = text[text.index("(") + 1 : text.index(")")].split(",")
    integers = frozenset(place for place, column in enumerate(columns) if column.strip() == "idx")
    return _Insert(Statement(name, named.encode()), integers)


def _binary(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, Jsonb):
        return b"\x01" + json.dumps(value.obj).encode()
    # Versions of channels may be numbers, and are kept as texts.
    return str(value).encode()


class SealedSerializer(SerializerProtocol):
    """Seals what another serialiser makes of a value; opens what is sealed, and leaves what is not as it is."""

    def __init__(self, inner: SerializerProtocol, sealer: Sealer) -> None:
        self._inner = inner
        self._sealer = sealer

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return self._sealer.seal_value(*self._inner.dumps_typed(obj))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._inner.loads_typed(self._sealer.open_value(*data))


def is_inline(value: Any) -> bool:
    """Whether the framework keeps a channel's value in the checkpoint itself, and not apart."""
    return value is None or isinstance(value, (str, int, float, bool))
