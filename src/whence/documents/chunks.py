"""Cutting a document into parts that can be found: at headings, paragraphs, sentences, else words."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from whence.documents import Block, Blocks, Chunk, Place, Unreadable

MAX_CHUNK_CHARACTERS = 1_500
MIN_CHUNK_CHARACTERS = 700
"""Of a text that goes on: a better place to cut is looked for behind so many."""
MAX_CHUNKS = 60_000
MAX_TEXT_BYTES = 32 << 20
MAX_HEADING_CHARACTERS = 200
MAX_ABOVE_CHARACTERS = 300

# Control characters, but for tab and line feed.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SPACE_BEFORE_END = re.compile(r"[ \t]+\n")
_EMPTY_LINES = re.compile(r"\n{3,}")
_SENTENCE_END = re.compile(r"[.!?…]['\")\]]*\s|[。！？]")
_WORD = re.compile(r"\w")


def chunks_of(blocks: Blocks) -> Iterator[Chunk]:
    """In order. Raises Unreadable where there is more than is taken."""
    size = 0
    for count, chunk in enumerate(_cut(blocks), 1):
        size += len(chunk.text.encode())
        if count > MAX_CHUNKS or size > MAX_TEXT_BYTES:
            raise Unreadable(f"has more text than the {MAX_TEXT_BYTES >> 20} MiB that are taken: add it in parts")
        yield chunk


@dataclass
class _Open:
    """A chunk that may grow."""

    place: Place
    row: int | None
    last_row: int | None = None
    parts: list[str] = field(default_factory=list[str])
    size: int = 0

    def add(self, text: str, row: int | None) -> None:
        between = "\n" if row is not None else "\n\n"
        self.parts.append(between + text if self.parts else text)
        self.size += len(self.parts[-1])
        self.last_row = row

    def closed(self) -> Chunk | None:
        text = "".join(self.parts).strip()
        last = self.last_row if self.last_row != self.row else None
        return Chunk(text, self.place, self.row, last) if _WORD.search(text) else None


def _cut(blocks: Blocks) -> Iterator[Chunk]:
    opened: _Open | None = None
    for block in blocks:
        for text in pieces(clean(block.text)):
            if opened is not None and not _fits(opened, block, text):
                if (chunk := opened.closed()) is not None:
                    yield chunk
                opened = None
            if opened is None:
                opened = _Open(block.place, block.row)
                above = clean(block.above)[:MAX_ABOVE_CHARACTERS]
                if above and above != text:
                    opened.add(above, block.row)
            opened.add(text, block.row)
    if opened is not None and (chunk := opened.closed()) is not None:
        yield chunk


def _fits(opened: _Open, block: Block, text: str) -> bool:
    return opened.place == block.place and opened.size + len(text) + 2 <= MAX_CHUNK_CHARACTERS


def pieces(text: str) -> Iterator[str]:
    """A text in parts that are not too long; a short one as it is."""
    start = 0
    while len(text) - start > MAX_CHUNK_CHARACTERS:
        end = start + _end_within(text[start : start + MAX_CHUNK_CHARACTERS])
        if part := text[start:end].strip():
            yield part
        start = end
    if rest := text[start:].strip():
        yield rest


def _end_within(part: str) -> int:
    """Where to cut: behind a paragraph, a line, a sentence, a word; within a word only where there is nothing else."""
    for end in (part.rfind("\n\n"), part.rfind("\n")):
        if end >= MIN_CHUNK_CHARACTERS:
            return end + 1
    sentence = 0
    for found in _SENTENCE_END.finditer(part, MIN_CHUNK_CHARACTERS):
        sentence = found.end()
    word = max(part.rfind(" "), part.rfind("\t"))
    return sentence or (word + 1 if word >= MIN_CHUNK_CHARACTERS else len(part))


def clean(text: str) -> str:
    """As it can be stored and shown: without control characters and halves of characters."""
    text = _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0c", "\n"))
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _EMPTY_LINES.sub("\n\n", _SPACE_BEFORE_END.sub("\n", text)).strip("\n")


class Headings:
    """The headings that something stands under, from the outermost to the nearest."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []

    def enter(self, level: int, text: str) -> None:
        self._path = [item for item in self._path if item[0] < level]
        self._path.append((level, " ".join(clean(text).split())[:MAX_HEADING_CHARACTERS]))

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(text for _, text in self._path if text)
