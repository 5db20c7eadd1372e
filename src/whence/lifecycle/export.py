"""Export: everything that is held on a person as one archive, a ZIP of JSON lines, written as it is read.

However much there is, no more is in memory at once than a page of rows, the positions of the person's events, and what
was written since the reader took the last part.
"""

import hashlib
import io
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from whence.checkpoints import ThreadName, Threads
from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.queries import load
from whence.errors import NotFound, SetupError
from whence.graph.project import Projector
from whence.graph.reading import open_name
from whence.ledger import Ledger
from whence.ledger.payloads import upload_place
from whence.lifecycle.erasure import ERASE_TIMEOUT_MS, check_subject
from whence.wire import StoredEvent

EXPORT_PAGE_ROWS = 500
EXPORT_PAGE_BYTES = 8 << 20
EXPORT_FORM = 1

Progress = Callable[[int, int], None]
Lines = AsyncIterator[list[bytes]]

_SQL = load("whence.lifecycle")
_encode = msgspec.json.Encoder().encode
# Rows that an event of the subject's made, found by its id.
_BY_EVENT = {
    "memories.jsonl": "export_memories",
    "items.jsonl": "export_items",
    "resources.jsonl": "export_resources",
    "conversations.jsonl": "export_conversations",
    "recalls.jsonl": "export_recalls",
    "sessions.jsonl": "export_sessions",
    "actions.jsonl": "export_actions",
    "runs.jsonl": "export_runs",
    "workflows.jsonl": "export_workflows",
    "selections.jsonl": "export_selections",
}


class Exports:
    def __init__(
        self, database: Database, ledger: Ledger, projector: Projector, clock: Clock, threads: Threads
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._threads = threads
        self._projector = projector
        self._clock = clock

    async def begin(self, scope: Scope, subject_id: str) -> "Export":
        """Raises before anything is written where there is nothing to export."""
        check_subject(subject_id)
        head = await self._ledger.heads.read(scope.workspace_id)
        # The graph finds names after events are stored.
        await self._projector.catch_up(scope.workspace_id)
        values = {"workspace_id": scope.workspace_id, "subject_id": subject_id, "upto": head}
        async with self._database.transaction(scope, timeout_ms=ERASE_TIMEOUT_MS) as tx:
            events: list[Any] = await (await tx.execute(_SQL["subject_events"], values, binary=True)).fetchall()
            bounds = {**values, "position": head, "until": self._clock()}
            rows = await (await tx.execute(_SQL["subject_rows"], bounds)).fetchall()
        if not events and not rows:
            raise NotFound("nothing is held on this subject: check how it is spelt")
        about = {"subject_id": subject_id, "workspace_id": scope.workspace_id, "position": head}
        about |= {"exported_at": self._clock(), "form": EXPORT_FORM}
        return Export(self._database, self._ledger, self._threads, scope, about, events)


class Export:
    """One archive."""

    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        threads: Threads,
        scope: Scope,
        about: dict[str, Any],
        events: list[tuple[int, UUID]],
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._threads = threads
        self._scope = scope
        self._about = about
        self._events = events
        self._values = {"workspace_id": scope.workspace_id, "subject_id": about["subject_id"]}

    async def archive(self, on_progress: Progress = lambda _done, _total: None) -> AsyncIterator[bytes]:
        """The bytes of the archive. The manifest comes last, because it names the digests of the parts."""
        sink = _Sink()
        parts = {"account.jsonl": self._account, "events.jsonl": self._payloads}
        parts |= {name: self._rows_of(statement) for name, statement in _BY_EVENT.items()}
        parts |= {"working.jsonl": self._working, "checkpoints.jsonl": self._checkpoints, "names.jsonl": self._names}
        written: dict[str, dict[str, Any]] = {}
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # pyright: ignore[reportArgumentType]
            for done, (name, lines) in enumerate(parts.items()):
                on_progress(done, len(parts))
                digest, count = hashlib.sha256(), 0
                with archive.open(name, "w", force_zip64=True) as part:
                    async for page in lines():
                        for line in page:
                            digest.update(line + b"\n")
                            part.write(line + b"\n")
                        count += len(page)
                        yield sink.taken()
                written[name] = {"count": count, "sha256": digest.hexdigest()}
            async for name, content in self._uploads():
                archive.writestr(name, content)
                written[name] = {"count": 1, "sha256": hashlib.sha256(content).hexdigest()}
                yield sink.taken()
            archive.writestr("manifest.json", _encode({**self._about, "parts": written}))
        on_progress(len(parts), len(parts))
        yield sink.taken()

    def _slices(self) -> list[Sequence[tuple[int, UUID]]]:
        return [
            self._events[start : start + EXPORT_PAGE_ROWS] for start in range(0, len(self._events), EXPORT_PAGE_ROWS)
        ]

    async def _payloads(self) -> Lines:
        """Each event with what it says; payloads are read as many at a time as fit."""
        for part in self._slices():
            left = [position for position, _ in part]
            while left:
                async with self._database.transaction(self._scope) as tx:
                    sealed = await self._ledger.contents(tx, self._scope, left, EXPORT_PAGE_BYTES)
                    # Up to where the payloads went that fit; all where the rest has none.
                    reached = sealed[-1].position if sealed else left[-1]
                    taken = [position for position in left if position <= reached]
                    envelopes = await self._ledger.at(tx, self._scope, taken)
                contents = {item.position: item for item in await self._ledger.opened(self._scope, sealed)}
                yield [_event_line(envelopes[position], contents.get(position)) for position in taken]
                left = left[len(taken) :]

    async def _uploads(self) -> AsyncIterator[tuple[str, bytes]]:
        """Files that are still to be read, a part of each at a time."""
        subject_id = self._about["subject_id"]
        async with self._database.transaction(self._scope) as tx:
            rows = await (await tx.execute(_SQL["export_uploads"], self._values, binary=True)).fetchall()
            key_rows = await self._ledger.keys.read(tx, self._scope.workspace_id, {subject_id})
        keys = await self._ledger.keys.opened(self._scope.workspace_id, key_rows)
        for resource_id, part in rows:
            values = {**self._values, "resource_id": resource_id, "part": part}
            async with self._database.transaction(self._scope) as tx:
                row = await (await tx.execute(_SQL["export_upload"], values, binary=True)).fetchone()
            if row is not None and subject_id in keys:
                place = upload_place(self._scope.workspace_id, resource_id, part)
                yield f"uploads/{resource_id}/{part:04}", keys[subject_id].open(place, row[0])

    def _rows_of(self, statement: str) -> Callable[[], Lines]:
        async def lines() -> Lines:
            for part in self._slices():
                values = {**self._values, "event_ids": [event_id for _, event_id in part]}
                async with self._database.transaction(self._scope) as tx:
                    rows = await (await tx.execute(_SQL[statement], values)).fetchall()
                yield [row[0].encode() for row in rows]

        return lines

    async def _account(self) -> Lines:
        async with self._database.transaction(self._scope) as tx:
            rows = await (await tx.execute(_SQL["export_account"], self._values)).fetchall()
        yield [row[0].encode() for row in rows]

    async def _working(self) -> Lines:
        instance, key = "", ""
        while True:
            values = {**self._values, "after_instance": instance, "after_key": key, "limit": EXPORT_PAGE_ROWS}
            async with self._database.transaction(self._scope) as tx:
                rows = await (await tx.execute(_SQL["export_working"], values)).fetchall()
            if not rows:
                return
            yield [row[2].encode() for row in rows]
            instance, key = rows[-1][0], rows[-1][1]

    async def _checkpoints(self) -> Lines:
        """What agents kept of each thread: checkpoints, then values of channels, then writes."""
        whose = (self._scope.workspace_id, self._about["subject_id"])
        async with self._database.transaction(self._scope) as tx:
            threads = await self._threads.of_user(tx, *whose) if await self._threads.has_checkpoints(tx) else []
        for thread in threads:
            of = {"thread_id": thread.thread_id, "conversation_id": thread.conversation_id}
            async for page in self._threads.opened(self._scope, ThreadName(*whose, thread.thread_id)):
                yield [_encode(of | row) for row in page]

    async def _names(self) -> Lines:
        after, subject_id = -1, self._about["subject_id"]
        while True:
            values = {**self._values, "after": after, "limit": EXPORT_PAGE_ROWS}
            async with self._database.transaction(self._scope) as tx:
                rows = await (await tx.execute(_SQL["export_names"], values, binary=True)).fetchall()
                key_rows = await self._ledger.keys.read(tx, self._scope.workspace_id, {subject_id})
            keys = await self._ledger.keys.opened(self._scope.workspace_id, key_rows)
            if not rows or subject_id not in keys:
                return
            named = [(row[0], row[1], _name(self._scope, keys[subject_id], row[2])) for row in rows]
            yield [_encode({"position": node >> 6, "kind": kind, "name": name}) for node, kind, name in named]
            after = rows[-1][0]


def _event_line(event: StoredEvent, content: Any) -> bytes:
    said: dict[str, Any] = {"event": event}
    if content is not None:
        said["payload"] = msgspec.Raw(content.body) if content.body is not None else None
    return _encode(said)


def _name(scope: Scope, key: Any, sealed: bytes) -> str | None:
    try:
        return open_name(scope.workspace_id, key, sealed).name
    except SetupError:
        return None


class _Sink(io.RawIOBase):
    """Where the archive is written to; what it holds is taken away part by part, so there is no going back in it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any, /) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)
