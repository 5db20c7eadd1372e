"""Readers of what is text already: plain text, Markdown, HTML, CSV and JSON."""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, cast

import msgspec

from whence.documents import Block, Blocks, Place
from whence.documents.chunks import Headings

MAX_COLUMNS = 500
SAMPLE_CHARACTERS = 64 << 10
MAX_FIELD_CHARACTERS = 1 << 20

_PARAGRAPH_END = re.compile(r"\n[ \t]*\n\s*")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([A-Za-z0-9._-]{2,40})", re.IGNORECASE)
_TAG = re.compile(r"<[a-zA-Z!/][^<>]{0,200}>")
# fmt: off
_BREAKING = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "center", "dd", "details", "dialog", "div", "dl", "dt",
    "fieldset", "figcaption", "figure", "footer", "form", "head", "header", "hr", "li", "main", "nav", "ol", "option",
    "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "title", "tr", "ul",
})
# fmt: on
_UNSEEN = frozenset({"script", "style", "template", "noscript", "svg", "math"})


def decoded(content: bytes, charset: str | None = None) -> str:
    """As its byte order mark says, else UTF-8, else what it says itself, else as Windows writes western languages."""
    if content.startswith(codecs.BOM_UTF8):
        return content[3:].decode("utf-8", "replace")
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", "replace")
    try:
        # What was cut off in the middle of a character is UTF-8 all the same.
        return codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        pass
    try:
        return content.decode(charset or "cp1252", "replace")
    except LookupError:
        return content.decode("cp1252", "replace")


def plain(text: str) -> Blocks:
    start = 0
    for end in _PARAGRAPH_END.finditer(text):
        yield Block(text[start : end.start()])
        start = end.end()
    yield Block(text[start:])


def markdown(text: str) -> Blocks:
    """A heading stands with what comes under it. What is fenced has no headings and no ends of paragraphs."""
    headings, lines, fence = Headings(), list[str](), ""
    for line in text.replace("\r\n", "\n").split("\n"):
        opened = _FENCE.match(line)
        if fence or opened:
            lines.append(line)
            if not fence and opened:
                fence = opened[1]
            elif opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        heading = _HEADING.fullmatch(line)
        under = _UNDERLINE.fullmatch(line) if len(lines) == 1 and lines[0].strip() else None
        if heading:
            yield from _paragraph(lines, headings)
            headings.enter(len(heading[1]), heading[2] or "")
            yield Block(line.strip(), Place(heading=headings.path))
        elif under:
            headings.enter(1 if under[1][0] == "=" else 2, lines[0])
            lines.append(line)
            yield from _paragraph(lines, headings)
        elif line.strip():
            lines.append(line)
        else:
            yield from _paragraph(lines, headings)
    yield from _paragraph(lines, headings)


def _paragraph(lines: list[str], headings: Headings) -> Iterator[Block]:
    if lines:
        yield Block("\n".join(lines), Place(heading=headings.path))
        lines.clear()


def looks_like_html(text: str) -> bool:
    return _TAG.search(text[:SAMPLE_CHARACTERS]) is not None


def html(content: bytes) -> Blocks:
    found = _CHARSET.search(content[:4096])
    parser = _Html()
    parser.feed(decoded(content, found[1].decode() if found else None))
    parser.close()
    parser.end_block()
    return parser.blocks


class _Html(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self._headings = Headings()
        self._text: list[str] = []
        self._unseen = 0
        self._level = 0
        self._as_it_is = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag in _BREAKING:
            self.end_block()
        elif tag in ("td", "th") and "".join(self._text).strip():
            self._text.append(" | ")
        elif len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.end_block()
            self._level = int(tag[1])
        self._as_it_is += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(self._unseen - 1, 0)
        elif self._level and tag == f"h{self._level}":
            self._headings.enter(self._level, "".join(self._text))
            self.end_block()
            self._level = 0
        elif tag in _BREAKING:
            self.end_block()
        self._as_it_is = max(self._as_it_is - (tag == "pre"), 0)

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._text.append(data if self._as_it_is else re.sub(r"\s+", " ", data))

    def end_block(self) -> None:
        text = "".join(self._text)
        self._text.clear()
        if text.strip():
            self.blocks.append(Block(text.strip("\n" if self._as_it_is else None), Place(heading=self._headings.path)))


def separated(text: str) -> Blocks:
    """Rows of a table, counted from 1. The first one says what the columns are called."""
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    try:
        form = csv.Sniffer().sniff(text[:SAMPLE_CHARACTERS], ",;\t|")
    except csv.Error:
        form = csv.excel
    above = ""
    rows = csv.reader(io.StringIO(text, newline=""), form)
    number = 0
    while True:
        number += 1
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error:
            continue
        if line := row_text(dict(enumerate(values))):
            above = above or line
            yield Block(line, row=number, above=above)


def row_text(cells: dict[int, str]) -> str:
    """The cells of a row, by column; those of a very wide one without the empty ones between them."""
    cells = {column: " ".join(value.split()) for column, value in cells.items() if value.strip()}
    last = max(cells, default=-1)
    columns = range(last + 1) if last < MAX_COLUMNS else sorted(cells)
    return " | ".join(cells.get(column, "") for column in columns)


def json_blocks(value: Any) -> Blocks:
    """A line for each value, with the names that lead to it: `orders[0].total: 12`. What the outermost names is a
    heading, and the items of an outermost list are counted as rows."""
    if isinstance(value, dict):
        for name, part in cast("dict[str, Any]", value).items():
            place = Place(heading=(name,))
            yield from (Block(line, place) for line in _grouped(name, part))
    elif isinstance(value, list):
        for number, part in enumerate(cast("list[Any]", value)):
            yield from (Block(line, row=number + 1) for line in _grouped(f"[{number}]", part))
    else:
        yield Block(_shown(value))


def _grouped(name: str, value: Any) -> Iterator[str]:
    """The lines of a value, as many in one block as make a readable part."""
    lines, size = list[str](), 0
    for line in _lines(name, value):
        if size + len(line) > 1_000 and lines:
            yield "\n".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield "\n".join(lines)


def _lines(name: str, value: Any) -> Iterator[str]:
    """Without recursion: how deep a value may be is not ours to say."""
    waiting: list[tuple[str, Any]] = [(name, value)]
    while waiting:
        path, part = waiting.pop()
        if isinstance(part, dict) and part:
            named = cast("dict[str, Any]", part)
            waiting += [(f"{path}.{key}", inner) for key, inner in reversed(named.items())]
        elif isinstance(part, list) and part:
            listed = cast("list[Any]", part)
            waiting += [(f"{path}[{place}]", inner) for place, inner in reversed(list(enumerate(listed)))]
        else:
            yield f"{path}: {_shown(part)}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
