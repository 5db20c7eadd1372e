"""No loop: a text that a search has given back, and that comes back in a message, is not remembered again.

What counts is what the user was given by the last searches of the same partition. A message that says nothing else is
an echo and not stored. Where such a text stands in a longer message by itself, as a sentence, a line or a quotation, it
is left out of what is stored. Short texts are nobody's: who says "Thank you" again has said it again. And a user who
asks what was asked before, and is given the former question back, has asked again.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from whence.memory.writing import normal

MIN_ECHO_CHARACTERS = 24
"""Of a text that is known when it comes back; a shorter one may be said twice by chance."""
CUT = "[…]"
"""Stands where a text came back inside a message."""

_BEFORE = r"(?:(?<=^)|(?<=[\s\"'“”‘’«»(\[{:>*_`-]))"
_AFTER = r"(?=$|\s*$|\s*\n|[\"'“”‘’«»)\]}<*_`]|[.!?;,:](?:\s|$|[\"'”’»)]))"
_BRACKETS = re.compile(r"\[[^\]]*\]|\([^)]*\)")
_LABEL = re.compile(r"^[\s>*•#-]*(?:\d+[.)])?\s*(?:[\w .#/-]{0,40}:)?")
_WORD = re.compile(r"\w")
_ENDS = (".", "!", "?", "…", '"', "'", "”", "’")


class Given(NamedTuple):
    """What a search gave back."""

    memory_id: UUID
    text: str


class Left(NamedTuple):
    """What is left of a message."""

    text: str
    """Empty where it is nothing but echoes."""
    recalled: tuple[UUID, ...]


class Echoes:
    """The texts that a user was given lately, ready to be found again."""

    def __init__(self, given: Sequence[Given], queries: Sequence[str]) -> None:
        texts = [(normal(each.text), each) for each in given]
        self._given = [(text, each) for text, each in texts if len(text) >= MIN_ECHO_CHARACTERS]
        # A text that holds another is looked for first, so that nothing of it stays.
        self._given.sort(key=lambda known: -len(known[0]))
        self._queries = {normal(query) for query in queries}

    def left_of(self, text: str, role: str) -> Left:
        plain = normal(text)
        if len(plain) < MIN_ECHO_CHARACTERS or (role == "user" and plain in self._queries):
            return Left(text, ())
        found = [(known, each) for known, each in self._given if known in plain]
        recalled: list[UUID] = []
        for known, each in found:
            if known == plain:
                return Left("", (each.memory_id,))
            text, count = _pattern(each.text).subn(CUT, text)
            if count:
                recalled.append(each.memory_id)
        return Left(_without_labels(text), tuple(recalled)) if recalled else Left(text, ())


def _pattern(text: str) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, text.split()))
    after = "" if text.rstrip().endswith(_ENDS) else _AFTER
    return re.compile(f"{_BEFORE}{words}{after}", re.IGNORECASE)


def _without_labels(text: str) -> str:
    """Lines that only say what was given back there go with it."""
    lines = [
        line for line in text.split("\n") if CUT not in line or _WORD.search(_LABEL.sub("", _BRACKETS.sub("", line)))
    ]
    left = "\n".join(lines).strip()
    return left if _WORD.search(left.replace(CUT, "")) else ""
