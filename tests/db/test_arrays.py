"""Columns as arrays, and statements over them: over one row, or with what is the same for all rows sent once."""

from uuid import UUID

import pytest

from conftest import Workspace
from whence.app import App
from whence.db import Scope
from whence.db.arrays import (
    Array,
    Doubles,
    Smallints,
    Texts,
    Uuids,
    row_values,
    taking_once,
)
from whence.db.trip import Statement, Values, rows_of


@pytest.mark.parametrize(
    "values", [[], [None], ["a"], ["a", "a", "a"], ["a", None, "a"], [None, None], ["a", "b", "a"]]
)
async def test_an_array_is_read_as_it_was_made(app: App, workspace: Workspace, values: list[str | None]) -> None:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        row = await (await tx.execute("SELECT %b::text[]", (Texts.of(values),))).fetchone()
    assert row == (values if any(values) else None,)


READ = b"""
SELECT name, number, place FROM unnest(
    %(name)b::text[], %(number)b::uuid[]
) WITH ORDINALITY AS t (name, number, place)
"""
COLUMNS: dict[str, type[Array]] = {"name": Texts, "number": Uuids}
NUMBER = UUID(int=7)


async def read(app: App, workspace: Workspace, statement: Statement, values: Values) -> list[tuple[object, ...]]:
    [result] = await app.database.one_trip(Scope(workspace.workspace_id), [(statement, values)])
    return rows_of(result)


@pytest.mark.parametrize(("name", "number"), [("ann", NUMBER), ("", None), (None, NUMBER), (None, None)])
async def test_one_row_is_read_as_from_arrays(
    app: App, workspace: Workspace, name: str | None, number: UUID | None
) -> None:
    one = Statement("test_one", taking_once(READ))
    assert b"unnest" not in one.sql
    assert await read(app, workspace, one, row_values(COLUMNS, (name, number))) == [(name, number, 1)]


@pytest.mark.parametrize("number", [NUMBER, None])
@pytest.mark.parametrize("names", [["ann", "bob", None], ["ann", "ann", "ann"], ["ann"]])
async def test_what_is_the_same_for_all_rows_may_be_sent_once(
    app: App, workspace: Workspace, names: list[str | None], number: UUID | None
) -> None:
    """The rows are counted by the columns that are sent as arrays, of which all values may be the same too."""
    numbers = Uuids.of([number] * len(names))
    assert numbers.is_same
    alike = Statement("test_alike", taking_once(READ, {"number"}))
    found = await read(app, workspace, alike, {"name": Texts.of(names).binary, "number": numbers.common})
    assert found == [(name, number, place) for place, name in enumerate(names, 1)]
    many = {"name": Texts.of(names).binary, "number": numbers.binary}
    assert await read(app, workspace, Statement("test_many", READ), many) == found


def test_a_statement_that_takes_nothing_once_is_as_it_was() -> None:
    assert taking_once(READ, ()) == READ


PARTS: list[list[str | None]] = [[None], [None, None], ["a"], ["a", "a"], ["b"], ["a", None], ["a", "b"]]


@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", PARTS)
def test_arrays_are_joined_as_if_their_values_had_been(first: list[str | None], second: list[str | None]) -> None:
    joined, at_once = Array.joined([Texts.of(first), Texts.of(second)]), Texts.of(first + second)
    assert (joined.count, joined.binary, joined.common) == (at_once.count, at_once.binary, at_once.common)
    assert isinstance(joined, Texts)


def test_a_row_is_joined_with_arrays() -> None:
    rows = [row_values(COLUMNS, row) for row in (("ann", NUMBER), (None, None))]
    for name, array in COLUMNS.items():
        values = {"name": ["ann", None], "number": [NUMBER, None]}[name]
        assert Array.joined([array.of_row(row[name]) for row in rows]).binary == array.of(values).binary


@pytest.mark.parametrize(("array", "value"), [(Smallints, 70_000), (Doubles, "1"), (Uuids, "x")])
def test_a_value_that_is_not_of_the_type_is_a_value_error(array: type[Array], value: object) -> None:
    with pytest.raises(ValueError, match="a value is not"):
        array.of([value, value])
    with pytest.raises(ValueError, match="a value is not"):
        row_values({"column": array}, (value,))
