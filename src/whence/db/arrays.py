"""Columns of values in Postgres' binary array form.

The elements of an array stand one after the other, so columns that were encoded apart are joined by joining bytes. That
lets a request encode its events before it waits for its turn, and costs a third of psycopg's general way.
"""

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import pq
from psycopg.adapt import Buffer, Dumper

_NULL: Final = b"\xff\xff\xff\xff"
_HEADER: Final = struct.Struct("!iiiii").pack
_LENGTH: Final = struct.Struct("!i").pack
_EIGHT_BYTES: Final = struct.Struct("!iq").pack
_TWO_BYTES: Final = struct.Struct("!ih").pack
_VECTOR: Final = struct.Struct("!ihh").pack
_SIXTEEN: Final = _LENGTH(16)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Array:
    """The values of one column, encoded: each its length, then its bytes. `data` is None where all are NULL."""

    __slots__ = ("count", "data")
    type_name: ClassVar[str]
    element_oid: ClassVar[int]
    encode: ClassVar[Callable[[Any], bytes]]

    def __init__(self, count: int, data: bytes | None) -> None:
        self.count = count
        self.data = data

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Raises ValueError where a value cannot be one of this type."""
        if not values:
            return cls(0, None)
        encode, first = cls.encode, values[0]
        try:
            if first == values[-1] and values.count(first) == len(values):
                # Most columns say the same of all.
                return cls(len(values), None if first is None else encode(first) * len(values))
            data = b"".join([_NULL if value is None else encode(value) for value in values])
        except (struct.error, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"a value is not a {cls.type_name}") from error
        return cls(len(values), data)

    @property
    def binary(self) -> bytes | None:
        return None if self.data is None else _HEADER(1, 1, self.element_oid, self.count, 1) + self.data

    @property
    def only(self) -> bytes | None:
        """Of an array of one: its element."""
        assert self.count == 1
        return None if self.data is None else self.data[4:]

    @staticmethod
    def joined(parts: Sequence["Array"]) -> "Array":
        """The parts, of one type, as one."""
        count = sum(part.count for part in parts)
        if all(part.data is None for part in parts):
            return type(parts[0])(count, None)
        data = b"".join([_NULL * part.count if part.data is None else part.data for part in parts])
        return type(parts[0])(count, data)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


def _bytea(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value


def _uuid(value: UUID) -> bytes:
    return _SIXTEEN + value.int.to_bytes(16)


def _timestamptz(value: datetime) -> bytes:
    return _EIGHT_BYTES(8, (value - _EPOCH) // _MICROSECOND)


def _smallint(value: int) -> bytes:
    return _TWO_BYTES(2, value)


class Texts(Array):
    type_name = "text"
    encode = staticmethod(_text)


class Byteas(Array):
    type_name = "bytea"
    encode = staticmethod(_bytea)


class Uuids(Array):
    type_name = "uuid"
    encode = staticmethod(_uuid)


class Times(Array):
    type_name = "timestamptz"
    encode = staticmethod(_timestamptz)


class Smallints(Array):
    type_name = "int2"
    encode = staticmethod(_smallint)


def _halfvec(components: npt.NDArray[np.floating[Any]]) -> bytes:
    halves = components.astype(">f2", copy=False).tobytes()
    # How many there are, and a number that is not used.
    return _VECTOR(4 + len(halves), len(halves) // 2, 0) + halves


class Halves(Array):
    """Vectors as pgvector keeps them, two bytes a component."""

    type_name = "halfvec"
    encode = staticmethod(_halfvec)

    @classmethod
    def of(cls, values: Sequence[npt.NDArray[np.floating[Any]]]) -> Self:
        return cls(len(values), b"".join(map(cls.encode, values)) if values else None)


def of_one(statement: bytes) -> bytes:
    """A statement that reads arrays by `unnest … WITH ORDINALITY`, made to take the elements themselves where there is
    one of each: for a single row Postgres spends longer on two dozen arrays than on storing what is in them."""
    elements = statement.replace(b"unnest(", b"(SELECT ").replace(b") WITH ORDINALITY", b", 1::bigint)")
    return elements.replace(b"[]", b"")


def scalar(array: type[Array], value: Any) -> bytes:
    """One value in the binary form, without the length that stands before it in an array."""
    return array.encode(value)[4:]


class _ArrayDumper(Dumper):
    """An array of NULLs only is sent as NULL: beside longer arrays, `unnest` fills it up."""

    format = pq.Format.BINARY

    def dump(self, obj: Array) -> Buffer | None:
        return obj.binary


def _register(array: type[Array]) -> None:
    # A type of an extension has another number in each database; there Postgres goes by the statement.
    info = psycopg.adapters.types.get(array.type_name)
    array.element_oid = info.oid if info else 0
    members = {"oid": info.array_oid if info else 0}
    psycopg.adapters.register_dumper(array, type(f"{array.__name__}Dumper", (_ArrayDumper,), members))


for _array in (Texts, Byteas, Uuids, Times, Smallints, Halves):
    _register(_array)
