"""Text out of documents: what a file is, what it says, and where in it that stands.

Files are anybody's, so reading one is done in a process of its own, which `process` starts and bounds. What stands here
imports nothing of Whence: that process has no keys, no database and no settings to lose.
"""

from collections.abc import Iterable
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

MAX_FILE_BYTES: Final = 25 << 20
CPU_SECONDS: Final = 120
"""Of the process that reads a file, as is its memory."""
MEMORY_BYTES: Final = 1 << 30


class Unreadable(Exception):
    """A file that no text can be had from. Says why, to be shown to who sent it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where in a document something stands, as its format counts."""

    page: int | None = None
    slide: int | None = None
    sheet: str | None = None
    heading: tuple[str, ...] = ()


class Block(NamedTuple):
    """What belongs together: a paragraph, a heading, a row of a table."""

    text: str
    place: Place = Place()
    row: int | None = None
    above: str = ""
    """What the columns are called, of a row."""


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a document that is remembered by itself."""

    text: str
    place: Place
    row: int | None = None
    last_row: int | None = None


class Document(msgspec.Struct, frozen=True):
    content_type: str
    """What the file is, whatever it is called."""
    chunks: list[Chunk]


Blocks = Iterable[Block]
File = BinaryIO | Any
"""Open for reading, and to be read from any place."""
