"""From a file to the parts of it that are remembered."""

import msgspec

from whence.documents import Blocks, Chunk, Document, File, Unreadable
from whence.documents.chunks import chunks_of
from whence.documents.kinds import CONTENT_TYPES, Kind
from whence.documents.texts import decoded, html, json_blocks, looks_like_html, markdown, plain, separated


def read(file: File, kind: Kind) -> Document:
    """Raises Unreadable, with a reason for who sent the file."""
    file.seek(0)
    found, blocks = _blocks(file, kind)
    chunks: list[Chunk] = list(chunks_of(blocks))
    if not chunks:
        scanned = ": its pages may be images" if found == "pdf" else ""
        raise Unreadable(f"has no text{scanned}")
    return Document(CONTENT_TYPES[found], chunks)


def _blocks(file: File, kind: Kind) -> tuple[Kind, Blocks]:
    """What it is after all, and what it says. Only the reader that is needed is loaded: there are two large ones."""
    match kind:
        case "pdf":
            from whence.documents.pdf import pdf  # noqa: PLC0415

            return kind, pdf(file)
        case "docx" | "pptx" | "xlsx":
            from whence.documents import office  # noqa: PLC0415

            return kind, {"docx": office.docx, "pptx": office.pptx, "xlsx": office.xlsx}[kind](file)
        case _:
            return _text_blocks(file.read(), kind)


def _text_blocks(content: bytes, kind: Kind) -> tuple[Kind, Blocks]:
    """What is not what it claims to be is text."""
    if kind == "json":
        try:
            return kind, json_blocks(msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf")))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return "text", plain(decoded(content))
    text = decoded(content)
    if kind == "html" and looks_like_html(text):
        return kind, html(content)
    if kind == "markdown":
        return kind, markdown(text)
    if kind == "csv":
        return kind, separated(text)
    return "text", plain(text)
