"""PDF, page by page."""

from collections.abc import Iterator

from pypdf import PdfReader
from pypdf.errors import LimitReachedError, PyPdfError

from whence.documents import Block, Blocks, File, Place, Unreadable
from whence.documents.texts import plain

MAX_PAGES = 20_000

# What the library raises where a file is not what it says, besides errors of its own.
_BROKEN = (
    PyPdfError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    AssertionError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    OSError,
    ZeroDivisionError,
)


def pdf(file: File) -> Blocks:
    try:
        reader = PdfReader(file)
        # Many are encrypted with no password at all, so that they are only asked not to be printed.
        is_closed = reader.is_encrypted and not reader.decrypt("")
        count = 0 if is_closed else len(reader.pages)
    except _BROKEN:
        raise Unreadable("is damaged or cut off: it cannot be opened as a PDF") from None
    if is_closed:
        raise Unreadable("is encrypted: remove the password first")
    if count > MAX_PAGES:
        raise Unreadable(f"has more than {MAX_PAGES:,} pages: add it in parts")
    return _pages(reader, count)


def _pages(reader: PdfReader, count: int) -> Iterator[Block]:
    """A page that cannot be read is passed over; a file all of whose pages are is damaged."""
    broken = 0
    for number in range(count):
        try:
            page = reader.pages[number]
            text = page.extract_text()
            if not text:
                # The library passes over what is too large, which is to be told.
                page.get_contents()
        except LimitReachedError:
            raise Unreadable("unpacks to more than a document does") from None
        except _BROKEN:
            broken += 1
            continue
        for block in plain(text):
            yield block._replace(place=Place(page=number + 1))
    if broken and broken == count:
        raise Unreadable("is damaged: none of its pages can be read")
