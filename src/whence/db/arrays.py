"""Columns of values in Postgres' binary array form.

The elements of an array stand one after the other, so columns that were encoded apart are joined by joining bytes. That
lets a request encode its events before it waits for its turn, and costs a third of psycopg's general way.
"""

import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
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
_FLOAT: Final = struct.Struct("!id").pack
_VECTOR: Final = struct.Struct("!ihh").pack
_SIXTEEN: Final = _LENGTH(16)
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_UNFIT: Final = (struct.error, TypeError, AttributeError, OverflowError)
"""What encoding raises where a value is not of the type."""


class Array:
    """The values of one column, encoded: each its length, then its bytes.

    Where all are the same, `same` is that one value and there is no `data`; where all are NULL, there is neither."""

    __slots__ = ("count", "data", "same")
    type_name: ClassVar[str]
    element_oid: ClassVar[int]
    encode: ClassVar[Callable[[Any], bytes]]

    def __init__(self, count: int, data: bytes | None, same: bytes | None = None) -> None:
        self.count = count
        self.data = data
        self.same = same

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Raises ValueError where a value cannot be one of this type."""
        if not values:
            return cls(0, None)
        encode, first = cls.encode, values[0]
        try:
            if first == values[-1] and values.count(first) == len(values):
                # Most columns say the same of all.
                return cls(len(values), None, None if first is None else encode(first))
            data = b"".join([_NULL if value is None else encode(value) for value in values])
        except _UNFIT as error:
            raise ValueError(f"a value is not a {cls.type_name}") from error
        return cls(len(values), data)

    @classmethod
    def of_row(cls, value: bytes | None) -> Self:
        """Of one value that is encoded, as `row_values` gives it."""
        return cls(1, None, None if value is None else _LENGTH(len(value)) + value)

    @property
    def is_null(self) -> bool:
        return self.data is None and self.same is None

    @property
    def is_same(self) -> bool:
        """Whether `common` says it all."""
        return self.data is None

    @property
    def binary(self) -> bytes | None:
        if self.data is not None:
            return _HEADER(1, 1, self.element_oid, self.count, 1) + self.data
        return None if self.same is None else _HEADER(1, 0, self.element_oid, self.count, 1) + self.same * self.count

    @property
    def common(self) -> bytes | None:
        """What all are."""
        return None if self.same is None else self.same[4:]

    @staticmethod
    def joined(parts: Sequence["Array"]) -> "Array":
        """The parts, of one type, as one."""
        count, first = sum(part.count for part in parts), parts[0]
        if all(part.data is None and part.same == first.same for part in parts):
            return type(first)(count, None, first.same)
        return type(first)(count, b"".join([part._elements for part in parts]))

    @property
    def _elements(self) -> bytes:
        return (self.same or _NULL) * self.count if self.data is None else self.data


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


def _double(value: float) -> bytes:
    return _FLOAT(8, value)


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


class Doubles(Array):
    type_name = "float8"
    encode = staticmethod(_double)


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
        """Not compared with each other, as others are: arrays of numbers are not one thing that is equal or not."""
        return cls(len(values), b"".join(map(cls.encode, values)) if values else None)


_ROWS: Final = re.compile(rb"unnest\((.+?)\) WITH ORDINALITY AS (\w+) \((.+?)\)", re.DOTALL)


def taking_once(statement: bytes, names: Collection[str] | None = None) -> bytes:
    """A statement that reads its rows by `unnest … WITH ORDINALITY`, made to take these columns as one value for all
    rows; or all columns, for a single row.

    Postgres keeps what each array says in a store of its own: for a single row it spends longer on two dozen arrays
    than on storing what is in them."""

    def rewritten(rows: re.Match[bytes]) -> bytes:
        arrays, aliases = ([part.strip() for part in rows[group].split(b",")] for group in (1, 3))
        columns = list(zip(arrays, aliases[:-1], strict=True))
        once = [column for column in columns if names is None or _parameter(column[0]) in names]
        values = b", ".join(b"%b AS %b" % (array.removesuffix(b"[]"), alias) for array, alias in once)
        many = [column for column in columns if column not in once]
        if not once:
            return rows[0]
        if not many:
            return b"(SELECT %b, 1::bigint AS %b) AS %b" % (values, aliases[-1], rows[2])
        listed = b", ".join(array for array, _ in many), b", ".join([*(alias for _, alias in many), aliases[-1]])
        return b"(SELECT %b, v.* FROM unnest(%b) WITH ORDINALITY AS v (%b)) AS %b" % (values, *listed, rows[2])

    return _ROWS.sub(rewritten, statement)


def _parameter(array: bytes) -> str:
    return array[2 : array.index(b")")].decode()


def scalar(array: type[Array], value: Any) -> bytes:
    """One value in the binary form, without the length that stands before it in an array."""
    return array.encode(value)[4:]


def row_values(columns: Mapping[str, type[Array]], row: Sequence[Any]) -> dict[str, bytes | None]:
    """The same for one row, each column by its name. Raises ValueError as arrays do."""
    try:
        return {
            name: None if value is None else array.encode(value)[4:]
            for (name, array), value in zip(columns.items(), row, strict=True)
        }
    except _UNFIT as error:
        raise ValueError("a value is not of its column's type") from error


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


for _array in (Texts, Byteas, Uuids, Times, Smallints, Doubles, Halves):
    _register(_array)
