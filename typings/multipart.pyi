# What `whence.gateway.forms` uses of the package `multipart`: a type checker would find another one of this name where
# the OpenAI Agents SDK is installed: python-multipart puts a folder beside it, which gives way to it at run time only.
from collections.abc import Iterator
from types import TracebackType
from typing import Self

class MultipartError(ValueError): ...

class MultipartSegment:
    name: str
    filename: str | None
    content_type: str | None

class PushMultipartParser:
    closed: bool
    def __init__(self, boundary: str | bytes, *, max_segment_count: int = ...) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def parse(self, chunk: bytes | bytearray) -> Iterator[MultipartSegment | bytearray | None]: ...
