"""A statement over arrays, and the same over the elements where there is one of each."""

from uuid import UUID

import pytest

from conftest import Workspace
from whence.app import App
from whence.db import Scope
from whence.db.arrays import Texts, Uuids, of_one
from whence.db.trip import Statement, rows_of


@pytest.mark.parametrize(
    "values", [[], [None], ["a"], ["a", "a", "a"], ["a", None, "a"], [None, None], ["a", "b", "a"]]
)
async def test_an_array_is_read_as_it_was_made(app: App, workspace: Workspace, values: list[str | None]) -> None:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        row = await (await tx.execute("SELECT %b::text[]", (Texts.of(values),))).fetchone()
    assert row == (values if any(values) else None,)


READ = b"""
SELECT name, number, place FROM unnest(
    %(names)b::text[], %(numbers)b::uuid[]
) WITH ORDINALITY AS t (name, number, place)
"""
NUMBER = UUID(int=7)


@pytest.mark.parametrize(("name", "number"), [("ann", NUMBER), ("", None), (None, NUMBER)])
async def test_one_of_each_is_read_as_from_arrays(
    app: App, workspace: Workspace, name: str | None, number: UUID | None
) -> None:
    names, numbers = Texts.of([name]), Uuids.of([number])
    scope = Scope(workspace.workspace_id)
    many = (Statement("test_many", READ), {"names": names.binary, "numbers": numbers.binary})
    one = (Statement("test_one", of_one(READ)), {"names": names.only, "numbers": numbers.only})
    assert b"unnest" not in one[0].sql
    found = [rows_of(result) for result in await app.database.one_trip(scope, [many, one])]
    assert found == [[(name, number, 1)]] * 2
