"""Archives: what a timer ended, in compressed files, written before anything is deleted.

A line is a memory. What it says is sealed under its subject's key, so who erases the subject makes it unreadable here
too; the rest of the line is its envelope. A file is called after the memories in it, so one that was written before a
crash is found again instead of written twice.
"""

import asyncio
import base64
import gzip
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from whence.crypto import SubjectKey
from whence.db import Database, Scope
from whence.errors import NotFound, SetupError
from whence.ledger import Filter, Ledger
from whence.memory.stubs import RETENTION_TYPE
from whence.memory.writing import document_of
from whence.wire import Fact, Kind, Tier

MAX_ARCHIVES_LISTED = 1_000
SUFFIX: Final = ".jsonl.gz"
_FILE_FORM: Final = re.compile(r"[0-9a-f]{64}\.jsonl\.gz")


class Expired(msgspec.Struct, frozen=True):
    """A memory that is about to be tombstoned. The order of the fields is that of the query."""

    memory_id: UUID
    position: int
    user_id: str | None
    subject_id: str
    said_by: str | None
    agent: str
    profile: str
    tier: Tier
    kind: Kind
    session_id: str | None
    interaction_id: str | None
    run_id: UUID | None
    world_id_context: str | None
    text: str | None
    fact_subject: str | None
    fact_predicate: str | None
    fact_object: str | None
    confidence: float | None
    importance: float
    valid_at: datetime
    invalid_at: datetime | None
    recorded_at: datetime
    told_count: int
    access_count: int
    accessed_at: datetime | None


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a memory, which is sealed."""

    text: str
    fact: Fact | None = None


class Line(msgspec.Struct, frozen=True):
    envelope: Expired
    """Without its content."""
    sealed: str
    said: Said | None = None
    """What was sealed, when it is read back; none where the subject's key is gone."""


class Archived(msgspec.Struct, frozen=True):
    """A file, and what the ledger says of it."""

    file: str
    sha256: str
    rows: int


class Listed(msgspec.Struct, frozen=True):
    archive: Archived
    archived_at: datetime
    is_intact: bool | None
    """Whether the file is the one that was written; none where it is not there."""


class Archive:
    def __init__(self, folder: Path, database: Database, ledger: Ledger) -> None:
        self._folder = folder
        self._database = database
        self._ledger = ledger

    async def write(self, scope: Scope, rows: Sequence[Expired]) -> Archived:
        """On disk when this returns."""
        keys = await self._ledger.keys.ensure(scope.workspace_id, {row.subject_id for row in rows})
        return await asyncio.to_thread(self._write, scope.workspace_id, rows, keys)

    def _write(self, workspace_id: str, rows: Sequence[Expired], keys: dict[str, SubjectKey]) -> Archived:
        ids = b"".join(row.memory_id.bytes for row in rows)
        path = self._folder / workspace_id / f"{hashlib.sha256(ids).hexdigest()}{SUFFIX}"
        try:
            if not path.exists():
                lines = b"".join(_line(workspace_id, row, keys[row.subject_id]) for row in rows)
                _put(path, gzip.compress(lines, mtime=0))
            return Archived(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), len(rows))
        except OSError as error:
            raise SetupError(f"the archive {path} cannot be written: {error.strerror}") from error

    async def listed(self, scope: Scope) -> list[Listed]:
        """The files that the ledger names, in order, as they are found. Of two that archived the same memories at once
        both name the file, and it is one."""
        page = await self._ledger.page(scope, 0, MAX_ARCHIVES_LISTED, Filter(event_type=RETENTION_TYPE))
        found: dict[str, Listed] = {}
        for event in page.events:
            try:
                document = document_of(await self._ledger.payload(scope, event.event_id))
            except NotFound:
                continue
            if "archive" in document:
                archive = msgspec.convert(document["archive"], Archived)
                intact = await asyncio.to_thread(self._is_intact, scope.workspace_id, archive)
                found.setdefault(archive.file, Listed(archive, event.recorded_at, intact))
        return list(found.values())

    def _is_intact(self, workspace_id: str, archive: Archived) -> bool | None:
        try:
            content = (self._folder / workspace_id / archive.file).read_bytes()
        except OSError:
            return None
        return hashlib.sha256(content).hexdigest() == archive.sha256

    async def read(self, scope: Scope, file: str) -> list[Line]:
        """Its memories, opened with the keys that there are."""
        lines = await asyncio.to_thread(lambda: list(self._lines(scope.workspace_id, file)))
        async with self._database.transaction(scope) as tx:
            subjects = {line.envelope.subject_id for line in lines}
            rows = await self._ledger.keys.read(tx, scope.workspace_id, subjects)
        keys = await self._ledger.keys.opened(scope.workspace_id, rows)
        return [_opened(scope.workspace_id, line, keys.get(line.envelope.subject_id)) for line in lines]

    def _lines(self, workspace_id: str, file: str) -> Iterator[Line]:
        if _FILE_FORM.fullmatch(file) is None:
            raise NotFound(f"there is no archive {file}; `whence archive list` shows those there are")
        try:
            with gzip.open(self._folder / workspace_id / file) as stream:
                for line in stream:
                    yield msgspec.json.decode(line, type=Line)
        except FileNotFoundError:
            raise NotFound(f"there is no archive {file}; `whence archive list` shows those there are") from None
        except (OSError, EOFError, msgspec.DecodeError) as error:
            raise SetupError(f"the archive {file} cannot be read: it was changed, or cut off") from error


def _line(workspace_id: str, row: Expired, key: SubjectKey) -> bytes:
    fact = row.fact_subject and Fact(row.fact_subject, row.fact_predicate or "", row.fact_object or "", row.confidence)
    said = msgspec.json.encode(Said(row.text or "", fact or None))
    sealed = key.seal(_place(workspace_id, row.memory_id), said, b"").ciphertext
    envelope = msgspec.structs.replace(row, text=None, fact_subject=None, fact_predicate=None, fact_object=None)
    return msgspec.json.encode({"envelope": envelope, "sealed": base64.b64encode(sealed).decode()}) + b"\n"


def _opened(workspace_id: str, line: Line, key: SubjectKey | None) -> Line:
    """A key that was made anew after an erasure opens nothing of before."""
    if key is None:
        return line
    try:
        said = key.open(_place(workspace_id, line.envelope.memory_id), base64.b64decode(line.sealed))
    except SetupError:
        return line
    return msgspec.structs.replace(line, said=msgspec.json.decode(said, type=Said))


def _place(workspace_id: str, memory_id: UUID) -> bytes:
    return b"archive of " + memory_id.bytes + workspace_id.encode()


def _put(path: Path, content: bytes) -> None:
    """Whole or not at all, and on disk, its name too, before it is relied on."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            # The first to link its file wins, so that two who write it name the same bytes.
            os.link(fresh, path)
        except FileExistsError:
            return
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        os.unlink(fresh)
