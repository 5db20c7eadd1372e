"""Request bodies: read up to a limit, unpacked up to the same limit."""

import zlib
from typing import Any, TypeVar

import msgspec
from litestar import Request
from litestar.exceptions.http_exceptions import InternalServerException, RequestEntityTooLarge

from whence.errors import MalformedBody, TooLarge, UnsupportedMedia
from whence.gateway.problems import decode_failure

MAX_GZIP_MEMBERS = 16

# Tells zlib to take gzip as well as zlib streams.
_ANY_WRAPPER = 32 + zlib.MAX_WBITS

_Body = TypeVar("_Body")


async def read_as(request: Request[Any, Any, Any], limit: int, kind: type[_Body]) -> _Body:
    """The body as one of these; an empty one says nothing."""
    return decode_as(await read_body(request, limit) or b"{}", kind)


def decode_as(body: bytes, kind: type[_Body]) -> _Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise decode_failure(error, kind, body) from None


async def read_body(request: Request[Any, Any, Any], limit: int) -> bytes:
    try:
        body = await request.body()
    except RequestEntityTooLarge:
        raise TooLarge(f"the body is larger than {limit:,} bytes") from None
    except InternalServerException:
        # Litestar's word for a client that goes away in the middle; nobody will read the answer.
        raise MalformedBody("the body ended before it was complete") from None
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise UnsupportedMedia(f"the content encoding {encoding[:40]!r} is not known: use gzip, deflate or none")
    return inflate(body, limit)


def inflate(body: bytes, limit: int) -> bytes:
    """Never holds more than the limit, whatever the body claims to unpack to. A gzip body may have several members."""
    parts: list[bytes] = []
    left, room = body, limit
    while left:
        # Each member copies what follows it, so many small ones would cost the square of their number.
        if len(parts) == MAX_GZIP_MEMBERS:
            raise MalformedBody(f"the compressed body has more than {MAX_GZIP_MEMBERS} members")
        unpacker = zlib.decompressobj(_ANY_WRAPPER)
        try:
            parts.append(unpacker.decompress(left, room + 1))
        except zlib.error as error:
            raise MalformedBody("the body is not what its content encoding says") from error
        room -= len(parts[-1])
        if room < 0:
            raise TooLarge(f"the body unpacks to more than {limit:,} bytes")
        if not unpacker.eof:
            raise MalformedBody("the compressed body ends too early")
        left = unpacker.unused_data
    return b"".join(parts)
