"""Leaves: the bytes that stand for an envelope in the tree of its workspace.

A leaf is the stored row as JSON (RFC 8785): every column that is not null, keys sorted, no white space, UTF-8. Ids are
lower-case text, times RFC 3339 in UTC with six digits of a second, the commitment lower-case hexadecimal. It is made
from the row as it is, not from what readers are given, because old versions of an event are read in the newest form
and a leaf must never change. So a column that is added later must be null in the rows that are there already.
"""

from collections.abc import Callable
from decimal import Decimal
from hashlib import sha256
from operator import itemgetter
from typing import Any

import msgspec

_decode_exact = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode


class Leaf(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of whence.events, sorted, as the fragment `leaf` of queries.sql gives them."""

    agent_id: str | None = None
    data_classification: str | None = None
    ended_at: str | None = None
    event_id: str | None = None
    event_type: str | None = None
    global_position: int | None = None
    importance_hint: int | None = None
    measures: msgspec.Raw | str | None = None
    occurred_at: str | None = None
    parent_event_id: str | None = None
    payload_commitment: str | None = None
    payload_ref: str | None = None
    recorded_at: str | None = None
    schema_version: int | None = None
    session_id: str | None = None
    status: str | None = None
    subject_id: str | None = None
    tool_name: str | None = None
    trace_id: str | None = None
    user_id: str | None = None
    workspace_id: str | None = None


Row = tuple[Any, ...]

position_of: Callable[[Row], int] = itemgetter(Leaf.__struct_fields__.index("global_position"))
_MEASURES = Leaf.__struct_fields__.index("measures")


def leaf_of(row: Row) -> bytes:
    if row[_MEASURES] is not None:
        row = (*row[:_MEASURES], _canonical(row[_MEASURES]), *row[_MEASURES + 1 :])
    return _encode(Leaf(*row))


def hash_of_leaf(row: Row) -> bytes:
    """The same as `merkle.leaf_hash` of the leaf, without a call for each of millions."""
    return sha256(b"\x00" + leaf_of(row)).digest()


def _canonical(measures: str) -> msgspec.Raw | str:
    """Exact, so that no two values share a form. What no server of ours can have written is taken as text."""
    try:
        return msgspec.Raw(_encode(_decode_exact(measures)))
    except (msgspec.DecodeError, RecursionError):
        return measures
