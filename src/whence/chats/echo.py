"""No loop: a text that a search has given back, and that comes back in a message, is not remembered again.

What counts is what the user was given by the last searches of the same partition. A message that says nothing else is
an echo and not stored. Where such a text stands in a longer message by itself, as a sentence, a line or a quotation, it
is left out of what is stored. Short texts are nobody's: who says "Thank you" again has said it again. And a user who
asks what was asked before, and is given the former question back, has asked again.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from whence.memory.writing import normal

MIN_ECHO_CHARACTERS = 24
"""Of a text that is known when it comes back; a shorter one may be said twice by chance."""
CUT = "[…]"
"""Stands where a text came back inside a message."""

_BEFORE = frozenset("\"'“”‘’«»([{:>*_`-")
_AFTER = re.compile(r"\s*\Z|\s*\n|[\"'“”‘’«»)\]}<*_`]|[.!?…;,:](?:\s|\Z|[\"'”’»)<}\]])")
_BRACKETS = re.compile(r"\[[^\[\]]{0,200}\]|\([^()]{0,200}\)")
_LABEL = re.compile(r"^[\s>*•#-]*(?:\d+[.)])?\s*(?:[\w .#/-]{0,40}:)?")
_MARKUP = re.compile(r"<[^<>]{0,100}>|[\"'][\w-]{1,40}[\"']\s*:")
_WORD = re.compile(r"\w")
# A sign with the marks that are put on it, and the parts of a Korean syllable: one sign where texts are compared.
_TOGETHER = re.compile(r".[\u0300-\u036f\u1160-\u11ff\u3099\u309a]*", re.DOTALL)
_STOPS = ".!?… "
_QUOTES = str.maketrans("’‘‛´`“”„‟«»", '\'\'\'\'\'""""""')


class Given(NamedTuple):
    """What a search gave back."""

    memory_id: UUID
    text: str
    holds: bool = True
    """Whether it is still remembered. What was deleted or put right may be said again by the user, by nobody else."""


class Left(NamedTuple):
    """What is left of a message."""

    text: str
    """Empty where it is nothing but echoes."""
    recalled: tuple[UUID, ...]


class Echoes:
    """The texts that a user was given lately, ready to be found again."""

    def __init__(self, given: Sequence[Given], queries: Collection[int]) -> None:
        texts = [(compared(each.text), each) for each in given]
        self._given = [(text, each) for text, each in texts if len(text) >= MIN_ECHO_CHARACTERS]
        # A text that holds another is looked for first, so that nothing of it stays.
        self._given.sort(key=lambda known: -len(known[0]))
        self._queries = queries

    def left_of(self, text: str, role: str) -> Left:
        is_user = role == "user"
        if is_user and query_hash(text) in self._queries:
            return Left(text, ())
        plain = compared(text)
        found = [(known, each) for known, each in self._given if (each.holds or not is_user) and known in plain]
        if not found:
            return Left(text, ())
        if found[0][0] == plain:
            return Left("", (found[0][1].memory_id,))
        placed = _Placed(text)
        recalled = tuple(each.memory_id for known, each in found if placed.cut(known))
        return Left(_without_labels(placed.left()), recalled) if recalled else Left(text, ())


class _Placed:
    """A text as texts are compared, where each sign knows its place: what is looked for is never made a pattern, which
    would be kept beyond an erasure."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: list[int] = []
        self._ends: list[int] = []
        signs: list[str] = []
        is_parted = False
        for found in _TOGETHER.finditer(text):
            sign = _sign(found[0])
            if not sign:
                # Space counts once, and only between what is seen. What is not seen at all does not count.
                is_parted = is_parted or any(each.isspace() for each in found[0])
                continue
            if is_parted and signs:
                self._add(signs, " ", self._ends[-1], found.start())
            is_parted = False
            self._add(signs, sign, *found.span())
        self._plain = "".join(signs)
        self._cut: list[tuple[int, int]] = []
        self._taken = bytearray(len(text))

    def _add(self, signs: list[str], sign: str, start: int, end: int) -> None:
        signs.append(sign)
        self._starts += [start] * len(sign)
        self._ends += [end] * len(sign)

    def cut(self, known: str) -> bool:
        """Takes it out wherever it stands by itself; says whether it did."""
        before = len(self._cut)
        at = self._plain.find(known)
        while at >= 0:
            start, end = self._starts[at], self._ends[at + len(known) - 1]
            if self._is_apart(start, end) and self._taken.find(1, start, end) < 0:
                # The stop of a sentence goes with it.
                end += self._text[end : end + 1] in tuple(".!?…")
                self._cut.append((start, end))
                self._taken[start:end] = b"\x01" * (end - start)
            # Past it in any case, so that what repeats itself is read once.
            at = self._plain.find(known, at + len(known))
        return len(self._cut) > before

    def _is_apart(self, start: int, end: int) -> bool:
        if start and not self._text[start - 1].isspace() and self._text[start - 1] not in _BEFORE:
            return False
        return _AFTER.match(self._text, end) is not None

    def left(self) -> str:
        parts: list[str] = []
        last = 0
        for start, end in sorted(self._cut):
            parts += (self._text[last:start], CUT)
            last = end
        return "".join((*parts, self._text[last:]))


def _without_labels(text: str) -> str:
    """Lines that only say what was given back there go with it."""
    lines = [line for line in text.split("\n") if CUT not in line or _says_more(line)]
    left = "\n".join(lines).strip()
    # A heading of what was given back is no message.
    says = any(_WORD.search(line.replace(CUT, "")) and not line.rstrip().endswith(":") for line in lines)
    return left if says else ""


def _says_more(line: str) -> bool:
    """Than what stood where it is cut, and how that is marked up."""
    bare = _BRACKETS.sub("", _MARKUP.sub("", line.replace(CUT, "")))
    return _WORD.search(_LABEL.sub("", bare)) is not None


def query_hash(query: str) -> int:
    """By which a question is known when it is asked again."""
    return hash(normal(query))


def compared(text: str) -> str:
    """A text as it is compared with others."""
    return _sign(text).rstrip(_STOPS)


def _sign(text: str) -> str:
    """Marks of quotation are all the same: models write them as they like."""
    return normal(text).translate(_QUOTES)
