"""Bounds and cursors: no query of the graph is without limits, and a page is continued where it ended."""

import base64
import binascii
import time
import zlib
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from whence.errors import FieldError, InvalidInput
from whence.wire import AtlasMeta

DEFAULT_DEPTH = 3
MAX_DEPTH = 10
DEFAULT_NODES = 100
MAX_NODES = 500
DEFAULT_TIMEOUT_MS = 5_000
MAX_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class Bounds:
    max_depth: int = DEFAULT_DEPTH
    max_nodes: int = DEFAULT_NODES
    timeout_ms: int = DEFAULT_TIMEOUT_MS

    def __post_init__(self) -> None:
        for name, most in (("max_depth", MAX_DEPTH), ("max_nodes", MAX_NODES), ("timeout_ms", MAX_TIMEOUT_MS)):
            if not 1 <= getattr(self, name) <= most:
                raise invalid(name, f"from 1 to {most:,}")


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended, and which walk it belongs to."""

    walk: int
    as_of: int
    """The position that the graph had come to at the first page; what came later is not in this walk."""
    depth: int
    node: int
    score: float = 0.0

    def encoded(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str | None, walk: int) -> Self:
        """What a caller gave; without it, before the first page."""
        if text is None:
            return cls(walk, -1, -1, -1)
        try:
            cursor = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (binascii.Error, ValueError, msgspec.DecodeError):
            raise invalid("cursor", "is not one that an answer gave") from None
        if cursor.walk != walk:
            raise invalid("cursor", "belongs to another query: ask again with what its answer was asked with")
        if not (-1 <= cursor.as_of < 1 << 57 and -1 <= cursor.depth <= MAX_DEPTH and abs(cursor.node) < 1 << 63):
            raise invalid("cursor", "is not one that an answer gave")
        return cursor

    @property
    def is_first(self) -> bool:
        return self.as_of < 0

    def moved(self, as_of: int, depth: int, node: int, score: float = 0.0) -> Self:
        """Further on in the same walk."""
        return msgspec.structs.replace(self, as_of=as_of, depth=depth, node=node, score=score)


def meta(
    began: float, bounds: Bounds, position: int, truncated: bool, timed_out: bool = False, **more: Any
) -> AtlasMeta:
    return AtlasMeta(
        query_ms=round((time.perf_counter() - began) * 1000, 3),
        truncated=truncated or timed_out,
        max_depth=bounds.max_depth,
        max_nodes=bounds.max_nodes,
        timeout_ms=bounds.timeout_ms,
        timed_out=timed_out,
        position=max(position, 0),
        **more,
    )


def walk_of(*parts: object) -> int:
    """Tells one query from another, so that a cursor is not taken for another query's."""
    return zlib.crc32(repr(parts).encode("utf-8", "replace"))


def invalid(name: str, message: str) -> InvalidInput:
    return InvalidInput(f"{name}: {message}", (FieldError(name, message),))
