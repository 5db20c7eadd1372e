"""Kinds of edges and the numbers that stand for them in the database (whence.edge_types)."""

from collections.abc import Sequence
from typing import Final

from whence.wire import EdgeType

EDGE_CODES: Final[dict[EdgeType, int]] = {
    "FOLLOWS": 1,
    "CAUSED_BY": 2,
    "SIMILAR_TO": 3,
    "REFERENCES": 4,
    "SUMMARIZES": 5,
    "DERIVED_FROM": 6,
    "SAME_AS": 7,
}
EDGE_TYPES: Final[dict[int, EdgeType]] = {code: edge_type for edge_type, code in EDGE_CODES.items()}
LINEAGE: Final[tuple[EdgeType, ...]] = ("CAUSED_BY", "DERIVED_FROM", "SUMMARIZES")
# FOLLOWS is the order of the sessions, and is not stored.
STORED: Final[tuple[EdgeType, ...]] = (
    "CAUSED_BY",
    "SIMILAR_TO",
    "REFERENCES",
    "SUMMARIZES",
    "DERIVED_FROM",
    "SAME_AS",
)


def codes(kinds: Sequence[EdgeType]) -> list[int]:
    return [EDGE_CODES[kind] for kind in kinds]
