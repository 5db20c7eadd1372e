"""Forms with a file in them, read as they come: never more of one in memory than what arrived last."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.exceptions.http_exceptions import InternalServerException, RequestEntityTooLarge
from multipart import (
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
)

from whence.errors import FieldError, InvalidInput, MalformedBody, UnsupportedMedia, WhenceError
from whence.resources.spool import Spool, too_large

FORM = "multipart/form-data"
FILE = "file"
MAX_FIELD_BYTES = 4 << 10
MAX_FORM_PARTS = 16
MAX_FORM_BYTES = 64 << 20
"""What is past the largest file is read and not kept, so that its sender hears why; past this it is cut off."""
SILENCE_SECONDS = 60.0
FORM_SECONDS = 600.0
"""A whole form, however steadily it comes."""

Begin = Callable[[dict[str, str]], Awaitable[Spool]]
"""Told the fields that stand before the file, when it begins: where it is to be put, unless they are not enough."""


@dataclass
class Form:
    begin: Begin
    spool: Spool | None = None
    """None where there is no file."""
    fields: dict[str, str] = field(default_factory=dict[str, str])
    name: str = FILE
    content_type: str | None = None

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()


async def read_form(request: Request[Any, Any, Any], known: frozenset[str], form: Form) -> None:
    """What is wrong with a field is told at the end, when whoever sends can hear it; but whoever sends without a key is
    not listened to any longer."""
    kind, options = request.content_type
    if kind != FORM or not options.get("boundary"):
        raise UnsupportedMedia(f"send {FORM}, with the file in a part that is called `{FILE}`")
    wrong: WhenceError | None = None
    try:
        async with asyncio.timeout(FORM_SECONDS):
            with PushMultipartParser(options["boundary"], max_segment_count=MAX_FORM_PARTS) as parser:
                async for segment, content in _parts(parser, request.stream()):
                    try:
                        await _take(form, known, segment, content)
                    except WhenceError as error:
                        if "user" not in request.scope:
                            raise
                        wrong = wrong or error
    except MultipartError:
        raise MalformedBody(f"the body is not complete {FORM}, or has more than {MAX_FORM_PARTS} parts") from None
    except RequestEntityTooLarge:
        raise too_large() from None
    except TimeoutError:
        raise MalformedBody(
            f"nothing of the body came for {SILENCE_SECONDS:.0f} seconds, or not all of it within {FORM_SECONDS:.0f}"
        ) from None
    except InternalServerException:
        # Litestar's word for a client that goes away in the middle; nobody will read the answer.
        raise MalformedBody("the body ended before it was complete") from None
    if wrong is not None:
        raise wrong


async def _parts(
    parser: PushMultipartParser, stream: AsyncGenerator[bytes]
) -> AsyncIterator[tuple[MultipartSegment, bytes | bytearray | None]]:
    """Each part as it begins, without content, and then what comes of it."""
    segment: MultipartSegment | None = None
    while not parser.closed:
        async with asyncio.timeout(SILENCE_SECONDS):
            piece = await anext(stream, b"")
        for item in parser.parse(piece):
            if isinstance(item, MultipartSegment):
                segment = item
                yield segment, None
            elif item and segment is not None:
                yield segment, item
        if not piece:
            return


async def _take(
    form: Form, known: frozenset[str], segment: MultipartSegment, content: bytes | bytearray | None
) -> None:
    name = segment.name or ""
    if name == FILE:
        if content is not None:
            if form.spool is not None:
                form.spool.write(content)
        elif form.spool is not None:
            raise _wrong(FILE, "one at a time")
        else:
            form.spool = await form.begin(form.fields)
            form.name = segment.filename or FILE
            form.content_type = segment.content_type
        return
    if name not in known:
        raise _wrong(name[:40] or "part", "is not a known field")
    if content is None and name in form.fields:
        raise _wrong(name, "is given twice")
    if len(form.fields.get(name, "")) + len(content or b"") > MAX_FIELD_BYTES:
        raise _wrong(name, f"is longer than {MAX_FIELD_BYTES:,} bytes")
    try:
        form.fields[name] = form.fields.get(name, "") + (content or b"").decode()
    except UnicodeDecodeError:
        raise _wrong(name, "is not valid UTF-8") from None


def _wrong(name: str, message: str) -> InvalidInput:
    return InvalidInput(f"{name}: {message}", (FieldError(name, message),))
