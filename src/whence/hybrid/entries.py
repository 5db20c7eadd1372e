"""The entries of a file as people write them: items of a list, or paragraphs. Pure functions over its text.

An entry begins at an item of a list at the margin, or after an empty line, and goes on to the next one. What stands
indented under an item is part of it, also after an empty line. Headings and rulers are no entries. A change replaces
the lines of one entry and leaves every other character as it is.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from whence.orders import is_order

Flag = Literal["instruction", "hidden"]

_ITEM = re.compile(r"(?:[-*+]|\d{1,3}[.)])[ \t]+(?=\S)")
_HEADING = re.compile(r"#{1,6}(?:[ \t]|$)|(?:[-*_=][ \t]*){3,}$")
_BULLET: Final = "- "
# Signs without a shape, and separators that no editor shows: what is written with them is read by a model only.
_HIDDEN: Final = frozenset({"Cf", "Cs", "Co", "Zl", "Zp"})
# They join letters and emoji, and are seen by what they join.
_JOINERS: Final = frozenset("\u200c\u200d")


@dataclass(frozen=True)
class Entry:
    text: str
    start: int
    """Its first line."""
    end: int
    """The line after its last one."""
    marker: str = ""
    """What makes it an item of a list; empty for a paragraph."""

    @property
    def flags(self) -> tuple[Flag, ...]:
        return flags_of(self.text)


def flags_of(text: str) -> tuple[Flag, ...]:
    """`instruction` for what reads like an order to a model, `hidden` for what holds signs that nobody sees."""
    seen = "".join(sign for sign in text if not _is_hidden(sign))
    found: list[Flag] = []
    if is_order(seen):
        found.append("instruction")
    if len(seen) < len(text):
        found.append("hidden")
    return tuple(found)


def entries_of(text: str) -> list[Entry]:
    lines = _lines(text)
    found: list[Entry] = []
    at = 0
    while at < len(lines):
        if not lines[at].strip() or _HEADING.match(lines[at]):
            at += 1
            continue
        item = _ITEM.match(lines[at])
        marker = item[0] if item else ""
        end = _end(lines, at, is_item=item is not None)
        found.append(Entry(_text(lines[at:end], marker), at, end, marker))
        at = end
    return found


def is_read_back(entry: str) -> bool:
    """Whether it is an entry, and the same one, once it is written as an item of a list."""
    return [each.text for each in entries_of(added("", entry))] == [entry]


def added(text: str, entry: str) -> str:
    """At the end, as an item of a list."""
    newline = _newline(text)
    before = text.rstrip()
    if not before:
        return newline.join(_written(entry, _BULLET)) + newline
    last = entries_of(before)[-1:]
    # A list goes on; after a paragraph or a heading one begins.
    goes_on = bool(last) and bool(last[0].marker) and last[0].end == len(_lines(before))
    gap = newline if goes_on else newline * 2
    return before + gap + newline.join(_written(entry, _BULLET)) + newline


def replaced(text: str, entry: Entry, new: str) -> str:
    # A paragraph that holds an empty line, or would read as something else, becomes an item.
    marker = entry.marker or ("" if entries_of(new) == [Entry(new, 0, new.count("\n") + 1)] else _BULLET)
    return _spliced(text, entry, _written(new, marker))


def removed(text: str, entry: Entry) -> str:
    return _spliced(text, entry, [])


def _end(lines: Sequence[str], start: int, *, is_item: bool) -> int:
    at = start + 1
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            below = next((number for number in range(at, len(lines)) if lines[number].strip()), len(lines))
            if not is_item or below == len(lines) or not lines[below].startswith((" ", "\t")):
                return at
            at = below
        elif _ITEM.match(line) or _HEADING.match(line):
            return at
        at += 1
    return at


def _text(lines: Sequence[str], marker: str) -> str:
    indent = " " * len(marker)
    rest = [line.removeprefix(indent) if line.startswith(indent) else line.lstrip() for line in lines[1:]]
    return "\n".join(line.rstrip() for line in (lines[0][len(marker) :], *rest))


def _written(entry: str, marker: str) -> list[str]:
    first, *rest = entry.split("\n")
    return [marker + first, *(" " * len(marker) + line if line else "" for line in rest)]


def _spliced(text: str, entry: Entry, new: Sequence[str]) -> str:
    lines = text.split("\n")
    before, after = lines[: entry.start], lines[entry.end :]
    if not new and after and not after[0].strip():
        # Of the empty lines around what is gone one is enough.
        if not before:
            after = after[1:]
        elif not before[-1].strip():
            before = before[:-1]
    ending = "\r" if _newline(text) == "\r\n" else ""
    return "\n".join([*before, *(line + ending for line in new), *after])


def _lines(text: str) -> list[str]:
    """Only the line breaks of editors count: a text may hold others."""
    return text.replace("\r\n", "\n").split("\n")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _is_hidden(sign: str) -> bool:
    return sign not in _JOINERS and unicodedata.category(sign) in _HIDDEN
