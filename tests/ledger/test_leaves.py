"""Leaves: one form for each row, which any JSON library can make."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from whence.ledger.leaves import Leaf, hash_of_leaf, leaf_of, position_of
from whence.merkle import leaf_hash

NUMBERS = {"global_position": st.integers(1, 2**63 - 1), "schema_version": st.integers(1, 32_767)}
# As Postgres stores it: any characters but NUL and halves of characters.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
measures = st.dictionaries(texts, st.none() | texts | st.integers() | st.lists(texts, max_size=3), max_size=4)


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """By column, with `measures` as the value that it holds."""
    columns = {name: NUMBERS.get(name, texts) for name in Leaf.__struct_fields__} | {"measures": measures}
    return {name: draw(st.none() | values) for name, values in columns.items()}


def stored(row: dict[str, Any]) -> tuple[Any, ...]:
    """As the ledger reads it: `measures` is text, in whatever order and spacing Postgres chooses."""
    texts = {"measures": None if row["measures"] is None else json.dumps(row["measures"])}
    return tuple((row | texts).values())


@given(rows())
def test_a_leaf_is_sorted_json_without_nulls(row: dict[str, Any]) -> None:
    known = {name: value for name, value in row.items() if value is not None}
    expected = json.dumps(known, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert leaf_of(stored(row)) == expected
    assert hash_of_leaf(stored(row)) == leaf_hash(expected)
    assert position_of(stored(row)) == row["global_position"]


@given(rows(), rows())
def test_no_two_rows_share_a_leaf(row: dict[str, Any], other: dict[str, Any]) -> None:
    assert (leaf_of(stored(row)) == leaf_of(stored(other))) == (row == other)


def test_columns_are_sorted_so_that_leaves_are() -> None:
    assert list(Leaf.__struct_fields__) == sorted(Leaf.__struct_fields__)
