"""A file on its way in: on disk without a name, so that it is gone with the process, and never whole in memory."""

import hashlib
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from whence.documents import MAX_FILE_BYTES
from whence.errors import FieldError, TooLarge

PART_BYTES = 1 << 19


class Spool:
    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._hash = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()

    def write(self, piece: bytes | bytearray) -> None:
        """What is past the limit is counted and not kept."""
        self.size += len(piece)
        if self.size <= MAX_FILE_BYTES:
            self._hash.update(piece)
            self.file.write(piece)

    def check(self) -> None:
        if self.size > MAX_FILE_BYTES:
            raise too_large()
        self.file.flush()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def parts(self) -> Iterator[bytes]:
        self.file.seek(0)
        while part := self.file.read(PART_BYTES):
            yield part


def too_large() -> TooLarge:
    message = f"is larger than {MAX_FILE_BYTES >> 20} MiB: add it in parts"
    return TooLarge(f"file: {message}", (FieldError("file", message),))
