"""Chats as files: a folder, and in it a file of JSON lines for each session.

A turn is one line, written at once, so that it is there whole or not at all. What a killed process left of a line is
passed over. Files are only added to, but for what is forgotten: then the file is replaced.
"""

import asyncio
import errno
import fcntl
import math
import os
import re
import secrets
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from whence.errors import InvalidInput, SetupError
from whence.hybrid.audit import AuditEvent, Detail

MAX_SESSION_BYTES = 16 << 20
"""Of a file, the end of which is read."""
MAX_SESSIONS = 1_000
"""The newest, which are searched."""
MAX_FOUND = 5
MAX_EXCERPT_CHARACTERS = 600

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_WORD: Final = re.compile(r"\w{2,}")


class Turn(msgspec.Struct, frozen=True, tag="turn", tag_field="kind"):
    """What was asked, and what was answered."""

    prompt: str
    answer: str
    asked_at: datetime
    answered_at: datetime


class Hidden(msgspec.Struct, frozen=True, tag="audit", tag_field="kind"):
    """What became of a call to the gateway: for people who look into the file, and never before a model."""

    name: str
    details: dict[str, Detail]
    at: datetime
    context_visible: bool = False


@dataclass(frozen=True)
class Found:
    session_id: str
    turn: Turn


_records: Final = msgspec.json.Decoder(Turn | Hidden)


class Sessions:
    """The folder is made when something is first kept in it, and read by nobody but its owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_id(self) -> str:
        return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"

    def path(self, session_id: str) -> Path:
        if not _ID.fullmatch(session_id):
            raise InvalidInput("a session is called by up to 100 letters, digits and . _ -")
        return self._folder / f"{session_id}.jsonl"

    def append(self, session_id: str, record: Turn | Hidden) -> None:
        line = msgspec.json.encode(record) + b"\n"
        path = self.path(session_id)
        with self._locked():
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(file).st_size
                # What a killed process left of its line stays a line of its own.
                torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
                _write_whole(file, b"\n" + line if torn else line, size)
                os.fsync(file)
            finally:
                os.close(file)

    def turns(self, session_id: str) -> list[Turn]:
        return [record for _, record in _lines(_end(self.path(session_id))) if isinstance(record, Turn)]

    def search(self, query: str, besides: str) -> list[Found]:
        """Turns of earlier sessions that hold words of the query, rare words before common ones."""
        wanted = _words(query)
        found = [
            (Found(path.stem, turn), wanted & _words(f"{turn.prompt} {turn.answer}"))
            for path in self._newest()
            if path.stem != besides
            for turn in self.turns(path.stem)
        ]
        counts = Counter(word for _, held in found for word in held)

        def worth(each: tuple[Found, set[str]]) -> tuple[float, datetime]:
            return sum(math.log(1 + len(found) / counts[word]) for word in each[1]), each[0].turn.asked_at

        holding = sorted((each for each in found if each[1]), key=worth, reverse=True)
        return [each for each, _ in holding[:MAX_FOUND]]

    def forget(self, text: str) -> int:
        """Turns that asked or answered just this are gone from all files. How many there were."""
        gone = 0
        with self._locked():
            for path in self._all():
                lines = list(_lines(path.read_bytes()))
                kept = [
                    line
                    for line, record in lines
                    if not (isinstance(record, Turn) and text in (record.prompt, record.answer))
                ]
                if len(kept) < len(lines):
                    gone += len(lines) - len(kept)
                    _replace(path, kept)
        return gone

    def _all(self) -> list[Path]:
        return [path for path in self._folder.glob("*.jsonl") if _ID.fullmatch(path.stem)]

    def _newest(self) -> list[Path]:
        return sorted(self._all(), key=lambda path: path.stat().st_mtime, reverse=True)[:MAX_SESSIONS]

    @contextmanager
    def _locked(self) -> Generator[None]:
        """A file of its own, because the others may be replaced. Whoever has it is done at once."""
        # That of the notes too, which mkdir would make for everybody to read.
        self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder.mkdir(exist_ok=True, mode=0o700)
        lock = os.open(self._folder / ".sessions.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


class SessionAudit:
    """Keeps what became of calls to the gateway beside the session's turns."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def record(self, event: AuditEvent) -> None:
        hidden = Hidden(event.name, event.details, datetime.now(UTC))
        await asyncio.to_thread(self._sessions.append, event.session_id, hidden)


def excerpt(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT_CHARACTERS else text[: MAX_EXCERPT_CHARACTERS - 1] + "…"


def _end(path: Path) -> bytes:
    """The whole lines at the end of a file, as far as is read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_SESSION_BYTES))
            end = file.read(MAX_SESSION_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from None
    return end if size <= MAX_SESSION_BYTES else end.partition(b"\n")[2]


def _lines(content: bytes) -> Generator[tuple[bytes, Turn | Hidden | None]]:
    for line in content.splitlines(keepends=True):
        try:
            yield line, _records.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            yield line, None


def _write_whole(file: int, line: bytes, size: int) -> None:
    """A disk that is full takes a part of a line without an error: then the file is as it was."""
    if os.write(file, line) < len(line):
        os.ftruncate(file, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _replace(path: Path, lines: Iterable[bytes]) -> None:
    new = path.with_name(f".{path.name}.new")
    with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
