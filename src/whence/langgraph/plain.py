"""LangGraph's own Postgres saver, told where its tables are and how values are serialised."""

import re
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from whence.checkpoints.sealing import Sealer
from whence.db import Tx

_TABLE = re.compile(r"(?i)\b(from|join|into)\s+(checkpoints|checkpoint_blobs|checkpoint_writes)\b")


def _placed(statement: str) -> str:
    """With the schema named: the search path is the caller's, who may have tables of the same names."""
    return _TABLE.sub(r"\1 langgraph.\2", statement)


class Saver(AsyncPostgresSaver):
    SELECT_SQL = _placed(AsyncPostgresSaver.SELECT_SQL)
    SELECT_PENDING_SENDS_SQL = _placed(AsyncPostgresSaver.SELECT_PENDING_SENDS_SQL)
    UPSERT_CHECKPOINT_BLOBS_SQL = _placed(AsyncPostgresSaver.UPSERT_CHECKPOINT_BLOBS_SQL)
    UPSERT_CHECKPOINTS_SQL = _placed(AsyncPostgresSaver.UPSERT_CHECKPOINTS_SQL)
    UPSERT_CHECKPOINT_WRITES_SQL = _placed(AsyncPostgresSaver.UPSERT_CHECKPOINT_WRITES_SQL)
    INSERT_CHECKPOINT_WRITES_SQL = _placed(AsyncPostgresSaver.INSERT_CHECKPOINT_WRITES_SQL)

    def __init__(self, conn: Tx, pipe: Any = None, serde: SerializerProtocol | None = None) -> None:
        super().__init__(conn, pipe, serde)  # pyright: ignore[reportArgumentType] (its cursors say what rows are)


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
