"""What a file is, by its bytes. What it is called decides only between texts, which look alike."""

from pathlib import PurePath
from typing import Final, Literal

from whence.documents import File, Unreadable

Kind = Literal["pdf", "docx", "pptx", "xlsx", "html", "markdown", "csv", "json", "text"]

CONTENT_TYPES: Final[dict[Kind, str]] = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "markdown": "text/markdown",
    "csv": "text/csv",
    "json": "application/json",
    "text": "text/plain",
}
KNOWN: Final = "PDF, DOCX, PPTX, XLSX, HTML, Markdown, CSV, JSON and plain text"
LOOKED_AT_BYTES = 8 << 10
LISTED_BYTES = 1 << 20
"""At the end of an archive, where the names in it are listed."""

_SUFFIXES: Final[dict[str, Kind]] = {
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
}
_TEXT_TYPES: Final[dict[str, Kind]] = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/json": "json",
}
_IN_ARCHIVE: Final[dict[bytes, Kind]] = {
    b"word/document": "docx",
    b"ppt/presentation": "pptx",
    b"xl/workbook": "xlsx",
}
# How files begin that people take for documents and that cannot be read here.
_OTHERS: Final[dict[bytes, str]] = {
    b"\xd0\xcf\x11\xe0": "an Office file of the old form or with a password: save it as DOCX, PPTX or XLSX without one",
    b"{\\rtf": "RTF: save it as DOCX or PDF",
    b"\x89PNG": "an image",
    b"\xff\xd8\xff": "an image",
    b"GIF8": "an image",
    b"%!PS": "PostScript: save it as PDF",
    b"\x1f\x8b": "a packed file: unpack it first",
    b"7z\xbc\xaf": "an archive: unpack it first",
    b"Rar!": "an archive: unpack it first",
}
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


def kind_of(file: File, name: str, declared: str | None) -> Kind:
    """Raises Unreadable where it is nothing that can be read here. A text is what it claims to be; whether that holds
    is seen when it is read."""
    file.seek(0)
    start = file.read(LOOKED_AT_BYTES)
    if not start:
        raise Unreadable("the file is empty")
    if b"%PDF-" in start[:1024]:
        return "pdf"
    if start.startswith(b"PK"):
        return _in_archive(file, start)
    for mark, what in _OTHERS.items():
        if start.startswith(mark):
            raise Unreadable(f"is {what}")
    if not start.startswith(_BYTE_ORDER_MARKS) and (b"\x00" in start or _signs(start) > len(start) // 20):
        raise Unreadable(f"is none of the formats that can be read: {KNOWN}")
    if start.lstrip(b"\xef\xbb\xbf \t\r\n")[:14].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    return claimed(name, declared)


def claimed(name: str, declared: str | None) -> Kind:
    """What a text says that it is, by its name, else by its content type."""
    bare = (declared or "").partition(";")[0].strip().lower()
    return _SUFFIXES.get(PurePath(name).suffix.lower()) or _TEXT_TYPES.get(bare, "text")


def _in_archive(file: File, start: bytes) -> Kind:
    """By the names in it, without opening it: that is left to the process that is made for it."""
    file.seek(0, 2)
    file.seek(max(file.tell() - LISTED_BYTES, 0))
    listed = start + file.read(LISTED_BYTES)
    found: list[Kind] = [kind for name, kind in _IN_ARCHIVE.items() if name in listed]
    if not found:
        raise Unreadable(f"is an archive: unpack it first, and add the documents in it; known are {KNOWN}")
    return found[0]


def _signs(start: bytes) -> int:
    """Bytes that no text has."""
    return sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in start)
