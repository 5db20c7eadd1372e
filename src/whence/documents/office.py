"""Readers of Office files: XML in a ZIP archive. Neither its sizes nor its entities are believed."""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from posixpath import dirname, join, normpath
from typing import Final
from xml.parsers import expat

from whence.documents import Block, Blocks, File, Place, Unreadable
from whence.documents.chunks import Headings
from whence.documents.texts import row_text

MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 192 << 20
"""Of all parts that are read, together."""
MAX_RATIO = 200
"""By how much a part may grow when it is unpacked; looked at from so many bytes on:"""
RATIO_FROM_BYTES = 8 << 20
PIECE_BYTES = 64 << 10
MAX_SHOWN_CHARACTERS = 100
"""Of what a file calls its parts, in what is told of it."""

_HEADING_NAME = re.compile(r"heading ([1-9])")
_DATE_FORM = re.compile(r"[ydhs]|mm")
_NOT_FORM = re.compile(r"\"[^\"]*\"|\[[^\]]*\]|\\.")
_CELL = re.compile(r"([A-Z]{1,3})[0-9]+")
_FIRST_DAY: Final = datetime(1899, 12, 30)
_LAST_DAY = 2_958_466

Attributes = dict[str, str]
Start = Callable[[str, Attributes], None]
End = Callable[[str], None]


class Package:
    """The parts of an archive, each unpacked only as far as it is read, and all of them within bounds."""

    def __init__(self, file: File) -> None:
        try:
            self._archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError):
            raise Unreadable("is damaged or cut off: it cannot be opened as the archive that it should be") from None
        self._parts = {item.filename: item for item in self._archive.infolist()}
        if len(self._archive.infolist()) > MAX_ENTRIES:
            raise Unreadable(f"holds more than {MAX_ENTRIES:,} parts, which no document does")
        self._unpacked = 0

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def parse(self, name: str, start: Start, end: End, text: Callable[[str], None]) -> None:
        """Tells what is in a part, element by element, by names without their namespaces."""
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_definitions
        parser.StartElementHandler = lambda name, attributes: start(_local(name), _locals(attributes))
        parser.EndElementHandler = lambda name: end(_local(name))
        parser.CharacterDataHandler = text
        try:
            for piece in self._pieces(name):
                parser.Parse(piece, False)
            parser.Parse(b"", True)
        except expat.ExpatError:
            raise Unreadable(f"is damaged: {_shown(name)} in it is not valid XML") from None

    def _pieces(self, name: str) -> Iterator[bytes]:
        item = self._parts.get(name)
        if item is None:
            raise Unreadable(f"is damaged: {_shown(name)} is missing in it")
        if item.flag_bits & 1:
            raise Unreadable("is encrypted: remove the password first")
        if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Unreadable("is packed in a way that Office does not use")
        read = 0
        try:
            with self._archive.open(item) as part:
                while piece := part.read(PIECE_BYTES):
                    read += len(piece)
                    self._unpacked += len(piece)
                    self._check(read, item.compress_size)
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError):
            raise Unreadable(f"is damaged: {_shown(name)} in it cannot be unpacked") from None

    def _check(self, read: int, packed: int) -> None:
        if self._unpacked > MAX_UNPACKED_BYTES:
            raise Unreadable(f"unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB")
        if read > RATIO_FROM_BYTES and read > MAX_RATIO * max(packed, 1):
            raise Unreadable(f"unpacks to more than {MAX_RATIO} times its size, as no document does")

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """What a part refers to, by id: the kind of it, and the part."""
        found: dict[str, tuple[str, str]] = {}
        beside = join(dirname(name), "_rels", name.rpartition("/")[2] + ".rels")

        def start(element: str, given: Attributes) -> None:
            if element == "Relationship" and given.get("TargetMode") != "External":
                target = given.get("Target", "")
                whole = target.lstrip("/") if target.startswith("/") else normpath(join(dirname(name), target))
                found[given.get("Id", "")] = (given.get("Type", "").rpartition("/")[2], whole)

        if beside in self:
            self.parse(beside, start, _nothing, _nothing)
        return found


def _refuse_definitions(*_: object) -> None:
    """Entities are defined there, and one may stand for a billion of another."""
    raise Unreadable("defines XML entities, which no Office file does")


def _shown(name: str) -> str:
    return "".join(sign for sign in name if sign.isprintable())[:MAX_SHOWN_CHARACTERS]


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _locals(attributes: Attributes) -> Attributes:
    """Where two are called alike, such as the `id` and the `r:id` of a slide, the one of another namespace counts."""
    return {_local(key): attributes[key] for key in sorted(attributes, key=lambda key: " " in key)}


def _nothing(_said: str) -> None:
    """Of no interest."""


# Word


def docx(file: File) -> Blocks:
    package = Package(file)
    reader = _Word(_heading_levels(package))
    package.parse("word/document.xml", reader.start, reader.end, reader.text)
    return reader.blocks


def _heading_levels(package: Package) -> dict[str, int]:
    """By the id of a style, which depends on the language of whoever wrote; the name does not."""
    levels: dict[str, int] = {}
    style = ""

    def start(element: str, given: Attributes) -> None:
        nonlocal style
        if element == "style":
            style = given.get("styleId", "")
        elif element == "name":
            name = given.get("val", "").lower()
            if (found := _HEADING_NAME.fullmatch(name)) is not None:
                levels[style] = int(found[1])
            elif name == "title":
                levels[style] = 1

    if "word/styles.xml" in package:
        package.parse("word/styles.xml", start, _nothing, _nothing)
    return levels


class _Word:
    def __init__(self, levels: dict[str, int]) -> None:
        self.blocks: list[Block] = []
        self._levels = levels
        self._headings = Headings()
        self._paragraph: list[str] = []
        self._rows: list[list[list[str]]] = []
        """Of tables within one another, the cells of the row that is being read."""
        self._level = 0
        self._in_text = False
        self._twice = 0

    def start(self, element: str, given: Attributes) -> None:
        match element:
            case "Fallback":
                # The same again, for readers that are older.
                self._twice += 1
            case "t":
                self._in_text = True
            case "tab":
                self._paragraph.append("\t")
            case "br" | "cr":
                self._paragraph.append("\n")
            case "pStyle":
                style = given.get("val", "")
                named = re.fullmatch(r"Heading([1-9])", style)
                self._level = self._levels.get(style) or (int(named[1]) if named else 0)
            case "outlineLvl" if given.get("val", "").isdecimal() and int(given["val"]) < 9:
                self._level = self._level or int(given["val"]) + 1
            case "tr":
                self._rows.append([])
            case "tc" if self._rows:
                self._rows[-1].append([])
            case _:
                pass

    def end(self, element: str) -> None:
        match element:
            case "Fallback":
                self._twice -= 1
            case "t":
                self._in_text = False
            case "p":
                self._end_paragraph()
            case "tr" if self._rows:
                cells = self._rows.pop()
                self._put(row_text({place: " ".join(cell) for place, cell in enumerate(cells)}))
            case _:
                pass

    def text(self, said: str) -> None:
        if self._in_text and not self._twice:
            self._paragraph.append(said)

    def _end_paragraph(self) -> None:
        text = "".join(self._paragraph).strip()
        self._paragraph.clear()
        if text and self._level and not self._rows:
            self._headings.enter(self._level, text)
        self._level = 0
        self._put(text)

    def _put(self, text: str) -> None:
        if text and self._rows and self._rows[-1]:
            self._rows[-1][-1].append(text)
        elif text:
            self.blocks.append(Block(text, Place(heading=self._headings.path)))


# PowerPoint


def pptx(file: File) -> Blocks:
    """Slides in the order in which they are shown, each with its notes."""
    package = Package(file)
    related = package.related("ppt/presentation.xml")
    order: list[str] = []

    def start(element: str, given: Attributes) -> None:
        if element == "sldId" and given.get("id") in related:
            order.append(given["id"])

    package.parse("ppt/presentation.xml", start, _nothing, _nothing)
    for number, relation in enumerate(order, 1):
        name = related[relation][1]
        title, said = _slide(package, name)
        for _, notes in (item for item in package.related(name).values() if item[0] == "notesSlide"):
            said += _slide(package, notes)[1]
        place = Place(slide=number, heading=(title,) if title else ())
        yield from (Block(text, place) for text in said)


def _slide(package: Package, name: str) -> tuple[str, list[str]]:
    """Its title, and all that is said on it."""
    said: list[str] = []
    paragraph: list[str] = []
    title = kind = ""
    in_text = False

    def start(element: str, given: Attributes) -> None:
        nonlocal kind, in_text
        if element == "sp":
            kind = ""
        elif element == "ph":
            kind = given.get("type", "")
        elif element == "t":
            in_text = True
        elif element == "br":
            paragraph.append("\n")

    def end(element: str) -> None:
        nonlocal title, in_text
        if element == "t":
            in_text = False
        elif element == "p":
            text = "".join(paragraph).strip()
            paragraph.clear()
            if text and kind not in ("sldNum", "dt", "ftr"):
                said.append(text)
                title = title or (" ".join(text.split())[:200] if kind in ("title", "ctrTitle") else "")

    def text(piece: str) -> None:
        if in_text:
            paragraph.append(piece)

    package.parse(name, start, end, text)
    return title, said


# Excel


def xlsx(file: File) -> Blocks:
    package = Package(file)
    related = package.related("xl/workbook.xml")
    sheets: list[tuple[str, str]] = []

    def start(element: str, given: Attributes) -> None:
        if element == "sheet" and given.get("id") in related:
            sheets.append((given.get("name", ""), related[given["id"]][1]))

    package.parse("xl/workbook.xml", start, _nothing, _nothing)
    texts, dates = _shared_texts(package), _date_styles(package)
    for name, part in sheets:
        reader = _Sheet(name, texts, dates)
        package.parse(part, reader.start, reader.end, reader.text)
        yield from reader.blocks


def _shared_texts(package: Package) -> list[str]:
    texts: list[str] = []
    parts: list[str] = []
    is_text = is_sound = False

    def start(element: str, _given: Attributes) -> None:
        nonlocal is_text, is_sound
        is_text = element == "t"
        # How it is pronounced.
        is_sound = is_sound or element == "rPh"

    def end(element: str) -> None:
        nonlocal is_text, is_sound
        is_text = False
        if element == "rPh":
            is_sound = False
        elif element == "si":
            texts.append("".join(parts))
            parts.clear()

    def text(piece: str) -> None:
        if is_text and not is_sound:
            parts.append(piece)

    if "xl/sharedStrings.xml" in package:
        package.parse("xl/sharedStrings.xml", start, end, text)
    return texts


def _date_styles(package: Package) -> set[int]:
    """The styles whose numbers are days since the end of 1899."""
    forms = {*range(14, 23), *range(45, 48)}
    styles: list[int] = []
    in_cells = False

    def start(element: str, given: Attributes) -> None:
        nonlocal in_cells
        number = int(given["numFmtId"]) if given.get("numFmtId", "").isdecimal() else 0
        if element == "numFmt" and _DATE_FORM.search(_NOT_FORM.sub("", given.get("formatCode", "").lower())):
            forms.add(number)
        elif element == "cellXfs":
            in_cells = True
        elif element == "xf" and in_cells:
            styles.append(number)

    def end(element: str) -> None:
        nonlocal in_cells
        in_cells = in_cells and element != "cellXfs"

    if "xl/styles.xml" in package:
        package.parse("xl/styles.xml", start, end, _nothing)
    return {style for style, form in enumerate(styles) if form in forms}


class _Sheet:
    def __init__(self, name: str, texts: list[str], dates: set[int]) -> None:
        self.blocks: list[Block] = []
        self._place = Place(sheet=name[:200] or None)
        self._texts = texts
        self._dates = dates
        self._above = ""
        self._number = self._column = 0
        self._cells: dict[int, str] = {}
        self._kind = ""
        self._style = 0
        self._value: list[str] = []
        self._in_value = False

    def start(self, element: str, given: Attributes) -> None:
        if element == "row":
            self._number = int(given["r"]) if given.get("r", "").isdecimal() else self._number + 1
            self._column = -1
        elif element == "c":
            place = _CELL.fullmatch(given.get("r", ""))
            self._column = _column(place[1]) if place else self._column + 1
            self._kind = given.get("t", "n")
            self._style = int(given["s"]) if given.get("s", "").isdecimal() else 0
        elif element in ("v", "t"):
            self._in_value = True

    def end(self, element: str) -> None:
        if element in ("v", "t"):
            self._in_value = False
        elif element == "c":
            self._cells[self._column] = self._shown("".join(self._value))
            self._value.clear()
        elif element == "row":
            text = row_text(self._cells)
            self._cells = {}
            if text:
                self._above = self._above or text
                self.blocks.append(Block(text, self._place, self._number, self._above))

    def text(self, said: str) -> None:
        if self._in_value:
            self._value.append(said)

    def _shown(self, value: str) -> str:
        if self._kind == "s":
            place = int(value) if value.isdecimal() else -1
            return self._texts[place] if 0 <= place < len(self._texts) else ""
        if self._kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if self._kind == "n" and self._style in self._dates:
            return _day(value)
        return value


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _day(value: str) -> str:
    try:
        days = float(value)
    except ValueError:
        return value
    if not 0 <= days < _LAST_DAY:
        return value
    moment = _FIRST_DAY + timedelta(days=days)
    if days < 1:
        return f"{moment:%H:%M:%S}"
    return f"{moment:%Y-%m-%d}" if days == int(days) else f"{moment:%Y-%m-%d %H:%M:%S}"
