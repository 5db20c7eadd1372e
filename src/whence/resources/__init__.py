"""Resources: documents that users add. They are kept until they were read; what they say is remembered part by part.

What was acknowledged is finished, whatever happens: the file is stored, sealed, together with the event that adds it,
and removed together with the event that says how it ended. Between the two any process may read it, and one that finds
that the one before it has ended goes on where that one was: parts have ids that follow from their place.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from uuid import UUID, uuid5

import msgspec
import psycopg

from whence.clock import Clock
from whence.crypto import SubjectKey
from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.documents import Chunk, Document, Unreadable
from whence.documents.kinds import Kind, kind_of
from whence.documents.process import Readers
from whence.errors import FieldError, InvalidInput, NotFound, Overloaded, SetupError, Unavailable, UnsupportedMedia
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.append import lock_head
from whence.ledger.effects import OwnEvent
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS, MAX_POSITION
from whence.ledger.payloads import upload_place
from whence.logs import tell_failure
from whence.memory import MAX_PAGE_MEMORIES, Memory
from whence.memory.own import check_limit, own_event
from whence.memory.partitions import DEFAULT_PART, agent_of
from whence.memory.profiles import check_cell
from whence.memory.sanitise import sanitise
from whence.memory.writing import Draft, draft, event_of, owner_of, refused
from whence.resources.spool import Spool
from whence.wire import Event, Location, Remember, Resource, ResourcePage

DOCUMENTS: Final = "documents"
"""The profile of what documents say."""
RESOURCE_SCHEME: Final = "resource://"
"""Stands in `whence.session_touch` too."""
BATCH_CHUNKS = 250
PROCESSED_AT_ONCE = 2
MAX_RECEIVED_AT_ONCE = 32
"""Uploads, each of which may fill a file on disk."""
TAKEN_SECONDS = 20
"""After so long without a word, a file is taken to be left, and another process takes it up."""
BEAT_SECONDS = 5.0
MAX_ATTEMPTS = 5
"""To read a file. One that comes to no end in so many has failed."""
MAX_NAME_CHARACTERS = 200
MAX_TYPE_CHARACTERS = 128
_BETWEEN: Final = len(b"\n\n")

Progress = Callable[[int, int], None]

_SQL = load("whence.resources")
_encode = msgspec.json.Encoder().encode


class File(NamedTuple):
    """What is added, and what its sender says about it."""

    spool: Spool
    name: str
    declared_type: str | None = None
    user_id: str | None = None
    app_id: str = DEFAULT_PART
    project_id: str = DEFAULT_PART


def unseen(_done: int, _total: int) -> None:
    """Nobody watches."""


class Resources:
    def __init__(self, database: Database, ledger: Ledger, memory: Memory, clock: Clock, readers: Readers) -> None:
        self._database = database
        self._ledger = ledger
        self._memory = memory
        self._clock = clock
        self._readers = readers
        self._turns = asyncio.Semaphore(PROCESSED_AT_ONCE)
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._received = 0
        self._profile = memory.profiles.named(DOCUMENTS)
        if self._profile.anchor != "user":
            raise SetupError(f"setting profiles.{DOCUMENTS}.anchor: must be user, whose documents they are")

    async def close(self) -> None:
        """What is being read is left to whoever takes it up."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @contextmanager
    def receiving(self) -> Generator[None]:
        """One of those uploads that there may be at once."""
        if self._received >= MAX_RECEIVED_AT_ONCE:
            raise Overloaded(f"{MAX_RECEIVED_AT_ONCE} documents are being received: try again in a moment")
        self._received += 1
        try:
            yield
        finally:
            self._received -= 1

    # --- add --------------------------------------------------------------------------------------------------------

    async def add(self, principal: Principal, file: File, on_progress: Progress = unseen) -> tuple[Resource, bool]:
        """Returns after the commit, with whether it is new, and begins to read it. The spool is taken over."""
        try:
            return await self._add(principal, file, on_progress)
        except BaseException:
            file.spool.close()
            raise

    async def _add(self, principal: Principal, file: File, on_progress: Progress) -> tuple[Resource, bool]:
        check_cell(DOCUMENTS, self._profile, "persistent", "episodic")
        owner = owner_of(principal, file.user_id, DOCUMENTS, self._profile)
        assert owner is not None
        agent = agent_of(file.app_id, file.project_id)
        file.spool.check()
        kind = _kind(file)
        same = {"workspace_id": principal.workspace_id, "owner": owner, "agent": agent, "sha256": file.spool.sha256}
        async with self._database.transaction(Scope(principal.workspace_id, owner)) as tx:
            known = await _of_bytes(tx, same)
        if known is None:
            resource_id = new_id()
            own = _added(principal, file, owner, agent, resource_id, self._name(file), self._clock)
            known = await self._store(own, file, kind, same)
            if known.resource_id == resource_id:
                self._begin(principal.workspace_id, known, agent, kind, file.spool, on_progress)
                return known, True
        file.spool.close()
        return known, False

    def _name(self, file: File) -> str:
        """Of a file, for people: without folders, and without what must not be remembered."""
        last = file.name.replace("\\", "/").rpartition("/")[2]
        shown = "".join(sign for sign in last if sign.isprintable()).strip()
        stem, dot, suffix = shown.rpartition(".")
        # By itself, because a number that runs into letters is none of anybody's.
        cleaned, ending = (sanitise(part, self._profile.sanitise).text for part in (stem, dot + suffix))
        return cleaned[: MAX_NAME_CHARACTERS - len(ending)] + ending[-MAX_NAME_CHARACTERS:] or "file"

    async def _store(self, own: OwnEvent, file: File, kind: Kind, same: dict[str, str]) -> Resource:
        """The file and the event that adds it, unless the same bytes were added meanwhile: then those."""
        workspace_id, owner, resource_id = same["workspace_id"], same["owner"], own.event.event_id
        key = (await self._ledger.keys.ensure(workspace_id, {owner}))[owner]
        try:
            async with self._database.transaction(Scope(workspace_id)) as tx:
                await self._store_parts(tx, file.spool, kind, same, resource_id, key)
                # Only now, because nobody can append until this commits.
                await lock_head(tx, workspace_id)
                if (known := await _of_bytes(tx, same)) is not None:
                    raise _KnownError(known)
                position = await self._ledger.record_in(tx, workspace_id, own)
        except _KnownError as error:
            return error.resource
        except psycopg.IntegrityError as error:
            # The key that is remembered here was erased elsewhere.
            self._ledger.keys.forget(workspace_id, owner)
            raise Unavailable("the user was erased just now: try again") from error
        self._ledger.heads.moved(workspace_id, position)
        return await self.get(Scope(workspace_id, owner), resource_id)

    async def _store_parts(
        self, tx: Tx, spool: Spool, kind: Kind, same: dict[str, str], resource_id: UUID, key: SubjectKey
    ) -> None:
        until = self._clock() + timedelta(seconds=TAKEN_SECONDS)
        for part, plain in enumerate(spool.parts()):
            sealed = key.seal(upload_place(same["workspace_id"], resource_id, part), plain, b"")
            values = {
                "workspace_id": same["workspace_id"],
                "owner": same["owner"],
                "resource_id": resource_id,
                "part": part,
                "ciphertext": sealed.ciphertext,
                "taken_until": until if part == 0 else None,
                "kind": kind if part == 0 else None,
            }
            await tx.execute(_SQL["add_part"], values)

    # --- look -------------------------------------------------------------------------------------------------------

    async def get(self, scope: Scope, resource_id: UUID) -> Resource:
        found = await self._find(scope, resource_id)
        if found.status == "deleted":
            raise _no_such()
        return found

    async def _find(self, scope: Scope, resource_id: UUID) -> Resource:
        async with self._database.transaction(scope) as tx:
            values = scope.values(resource_id=resource_id)
            row = await (await tx.execute(_SQL["resource_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise _no_such()
        return Resource(*row)  # pyright: ignore[reportCallIssue] (a row is Any)

    async def page(
        self, scope: Scope, app_id: str, project_id: str, before: int | None = None, limit: int = 100
    ) -> ResourcePage:
        """Of a partition, the newest first."""
        check_limit(limit, MAX_PAGE_MEMORIES)
        values = scope.values(
            agent=agent_of(app_id, project_id),
            before=MAX_POSITION if before is None else before,
            limit=limit + 1,
        )
        async with self._database.transaction(scope) as tx:
            rows: list[Any] = await (await tx.execute(_SQL["resources_page"], values, binary=True)).fetchall()
        found = [Resource(*row) for row in rows[:limit]]
        return ResourcePage(found, found[-1].position if len(rows) > limit else None)

    async def settled(self, scope: Scope, resource_id: UUID, seconds: float | None = None) -> Resource:
        """What became of it: when it is read, or when so many seconds have passed."""
        task = self._running.get(resource_id)
        if task is not None:
            await asyncio.wait({task}, timeout=seconds)
        return await self.get(scope, resource_id)

    # --- delete -----------------------------------------------------------------------------------------------------

    async def delete(self, principal: Principal, resource_id: UUID) -> Resource:
        """It is no longer found, nor is any part of it. Deleting it again changes nothing."""
        found = await self._find(principal.scope, resource_id)
        if found.status != "deleted":
            document = {"effect": "delete_resource", "resource_id": resource_id, "deleted_by": principal.user_id}
            agent = agent_of(found.app_id, found.project_id)
            event = _event("resource.deleted", new_id(), found.user_id, agent, found.uri, self._clock, resource_id)

            async def make(tx: Tx) -> Sequence[OwnEvent]:
                now = await (
                    await tx.execute(
                        _SQL["resource_by_id"], Scope(principal.workspace_id).values(resource_id=resource_id)
                    )
                ).fetchone()
                return [] if now is None or now[3] == "deleted" else [own_event(event, document)]

            await self._ledger.record_together(principal.workspace_id, make)
            task = self._running.get(resource_id)
            if task is not None:
                task.cancel()
        return msgspec.structs.replace(found, status="deleted")

    # --- read -------------------------------------------------------------------------------------------------------

    def _begin(
        self, workspace_id: str, found: Resource, agent: str, kind: Kind, spool: Spool, on_progress: Progress
    ) -> None:
        work = _Work(workspace_id, found, agent)

        def ended(_task: asyncio.Task[None]) -> None:
            self._running.pop(found.resource_id, None)
            # Also where it was cancelled before it began.
            spool.close()

        task = self._running[found.resource_id] = asyncio.create_task(self._watched(work, kind, spool, on_progress))
        task.add_done_callback(ended)

    async def _watched(self, work: "_Work", kind: Kind, spool: Spool, on_progress: Progress) -> None:
        """Nobody awaits it, so what goes wrong is told here; a worker takes the file up again."""
        try:
            await self._process(work, kind, spool, on_progress)
        except Exception as error:
            tell_failure("reading of a resource", error, workspace=work.workspace_id)

    async def due(self) -> list[str]:
        """Workspaces with files that nobody is at."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["workspaces_waiting"], {"now": self._clock()})).fetchall()
        return [row[0] for row in rows]

    async def take_up(self, workspace_id: str) -> bool:
        """Reads the next file that was left; says whether there was one."""
        scope, now = Scope(workspace_id), self._clock()
        until = now + timedelta(seconds=TAKEN_SECONDS)
        async with self._database.transaction(scope) as tx:
            values = {"workspace_id": workspace_id, "now": now, "until": until}
            row = await (await tx.execute(_SQL["take"], values)).fetchone()
        if row is None:
            return False
        resource_id, kind, attempts = row
        found = await self._find(scope, resource_id)
        work = _Work(workspace_id, found, agent_of(found.app_id, found.project_id))
        if attempts > MAX_ATTEMPTS:
            reason = f"the file could not be read in {MAX_ATTEMPTS} attempts"
            await self._end(work, {"status": "failed", "reason": reason})
            return True
        try:
            with Spool() as spool:
                await self._restore(work, spool)
                await self._process(work, kind, spool, unseen)
        except (Unavailable, asyncio.CancelledError):
            with suppress(Unavailable):
                async with self._database.transaction(scope) as tx:
                    await tx.execute(_SQL["not_counted"], scope.values(resource_id=resource_id))
            raise
        return True

    async def _restore(self, work: "_Work", spool: Spool) -> None:
        """The file as it was stored, part by part."""
        scope, owner = Scope(work.workspace_id), work.found.user_id
        key = (await self._ledger.keys.ensure(work.workspace_id, {owner}))[owner]
        part = 0
        while True:
            values = {"workspace_id": work.workspace_id, "resource_id": work.found.resource_id, "part": part}
            async with self._database.transaction(scope) as tx:
                row = await (await tx.execute(_SQL["part_of"], values, binary=True)).fetchone()
            if row is None:
                return
            spool.write(key.open(upload_place(work.workspace_id, work.found.resource_id, part), row[0]))
            part += 1

    async def _process(self, work: "_Work", kind: Kind, spool: Spool, on_progress: Progress) -> None:
        async with self._at_it(work), self._turns:
            try:
                document = await self._readers.read(spool.file, kind)
            except Unreadable as error:
                await self._end(work, {"status": "failed", "reason": f"the file {error.reason}"})
            else:
                await self._remember(work, document, on_progress)

    @asynccontextmanager
    async def _at_it(self, work: "_Work") -> AsyncGenerator[None]:
        """Says so from time to time, so that nobody else takes it up."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_SECONDS)
                until = self._clock() + timedelta(seconds=TAKEN_SECONDS)
                values = {"workspace_id": work.workspace_id, "resource_id": work.found.resource_id, "until": until}
                try:
                    async with self._database.transaction(Scope(work.workspace_id)) as tx:
                        await tx.execute(_SQL["go_on"], values)
                except Exception as error:
                    tell_failure("word of a reader of a resource", error, workspace=work.workspace_id)

        beating = asyncio.create_task(beat())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait({beating})

    async def _remember(self, work: "_Work", document: Document, on_progress: Progress) -> None:
        values = {"workspace_id": work.workspace_id, "resource_id": work.found.resource_id}
        async with self._database.transaction(Scope(work.workspace_id)) as tx:
            rows = await (await tx.execute(_SQL["chunks_stored"], values)).fetchall()
        stored = {row[0] for row in rows}
        cut = _Cut(work, self._memory)
        total = len(document.chunks)
        for start in range(0, total, BATCH_CHUNKS):
            batch = document.chunks[start : start + BATCH_CHUNKS]
            # Beside the event loop: every text is looked through for what must not be remembered.
            made = await asyncio.to_thread(cut.drafts, start, batch)
            fresh = [item for item in made if item[0].event_id not in stored]
            if fresh and not await self._store_chunks(work, fresh):
                return
            on_progress(min(start + BATCH_CHUNKS, total), total)
        if cut.kept == 0:
            reason = "the file holds nothing but what is kept out of memory"
            await self._end(work, {"status": "failed", "reason": reason})
            return
        await self._end(
            work,
            {
                "status": "ready",
                "content_type": document.content_type,
                "chunks": cut.kept,
                "refused": cut.refused or None,
            },
        )

    async def _store_chunks(self, work: "_Work", made: list[tuple[Draft, Location]]) -> bool:
        """In one transaction; not where the resource was deleted meanwhile."""
        vectors = await self._memory.embedded([drafted.text for drafted, _ in made])
        now, source = self._clock(), {work.found.resource_id: False}
        events = [event_of(drafted, vector, source, now) for (drafted, _), vector in zip(made, vectors, strict=True)]
        document = {
            "effect": "locate_chunks",
            "resource_id": work.found.resource_id,
            "user_id": work.found.user_id,
            "chunks": [{"memory_id": drafted.event_id, **msgspec.to_builtins(at)} for drafted, at in made],
        }
        return await self._record(work, [*events, own_event(self._own(work, "resource.read"), document)])

    async def _end(self, work: "_Work", said: dict[str, Any]) -> None:
        document = {"effect": "end_resource", "resource_id": work.found.resource_id, **said}
        await self._record(work, [own_event(self._own(work, "resource.processed"), document)])

    def _own(self, work: "_Work", event_type: str) -> Event:
        found = work.found
        return _event(event_type, new_id(), found.user_id, work.agent, found.uri, self._clock, found.resource_id)

    async def _record(self, work: "_Work", events: list[OwnEvent]) -> bool:
        """Unless the resource is deleted, or ended by another: nothing is added to it then."""
        values = {"workspace_id": work.workspace_id, "resource_id": work.found.resource_id}

        async def make(tx: Tx) -> Sequence[OwnEvent]:
            row = await (await tx.execute(_SQL["is_processing"], values)).fetchone()
            return events if row == (True,) else []

        return bool(await self._ledger.record_together(work.workspace_id, make))


class _KnownError(Exception):
    """Rolls back what was stored for nothing."""

    def __init__(self, resource: Resource) -> None:
        super().__init__()
        self.resource = resource


class _Work(NamedTuple):
    workspace_id: str
    found: Resource
    agent: str

    @property
    def principal(self) -> Principal:
        """Who added it: its user, or an administrator for them."""
        added_by = self.found.added_by
        return Principal(self.workspace_id, added_by, is_admin=added_by != self.found.user_id)


class _Cut:
    """What is remembered of a document, in order; counts what is kept and what is not."""

    def __init__(self, work: _Work, memory: Memory) -> None:
        self._work = work
        self._profiles = memory.profiles
        self._rules = memory.profiles.named(DOCUMENTS).sanitise
        self._cleaned: dict[str, str] = {}
        self._end = 0
        self.kept = self.refused = 0

    def drafts(self, first: int, chunks: Sequence[Chunk]) -> list[tuple[Draft, Location]]:
        made: list[tuple[Draft, Location]] = []
        for place, chunk in enumerate(chunks, first):
            try:
                drafted = draft(self._work.principal, self._request(place, chunk.text), self._profiles, DOCUMENTS)
            except InvalidInput:
                self.refused += 1
                continue
            self.kept += 1
            start = self._end
            end = start + len(drafted.text.encode())
            self._end = end + _BETWEEN
            made.append((drafted, self._location(chunk, start, end)))
        return made

    def _request(self, place: int, text: str) -> Remember:
        found = self._work.found
        return Remember(
            agent=self._work.agent,
            tier="persistent",
            kind="episodic",
            text=text,
            user_id=found.user_id,
            speaker=found.name,
            role="document",
            session_id=found.uri,
            derived_from=(found.resource_id,),
            memory_id=uuid5(found.resource_id, str(place)),
        )

    def _location(self, chunk: Chunk, start: int, end: int) -> Location:
        place = chunk.place
        return Location(
            start=start,
            end=end,
            page=place.page,
            slide=place.slide,
            sheet=place.sheet and self._clean(place.sheet),
            row=chunk.row,
            last_row=chunk.last_row,
            heading=tuple(map(self._clean, place.heading)),
        )

    def _clean(self, name: str) -> str:
        """Many parts stand under the same heading."""
        if name not in self._cleaned:
            self._cleaned[name] = sanitise(name, self._rules).text
        return self._cleaned[name]


def _kind(file: File) -> Kind:
    if file.spool.size == 0:
        raise refused("file", "is empty")
    try:
        return kind_of(file.spool.file, file.name, file.declared_type)
    except Unreadable as error:
        raise UnsupportedMedia(f"file: {error.reason}", (FieldError("file", error.reason),)) from None


def _added(
    principal: Principal, file: File, owner: str, agent: str, resource_id: UUID, name: str, clock: Clock
) -> OwnEvent:
    uri = f"{RESOURCE_SCHEME}{quote(owner, safe='@')}/{resource_id}"
    if len(uri) > MAX_IDENTIFIER_CHARACTERS:
        raise refused("user_id", "is too long to be a part of the URI of a resource")
    declared = "".join(sign for sign in file.declared_type or "" if sign.isprintable())[:MAX_TYPE_CHARACTERS]
    document = {
        "effect": "add_resource",
        "event_id": resource_id,
        "user_id": owner,
        "agent": agent,
        "app_id": file.app_id,
        "project_id": file.project_id,
        "uri": uri,
        "name": name,
        "declared_type": declared or None,
        "size": file.spool.size,
        "sha256": file.spool.sha256,
        "added_by": principal.user_id,
    }
    return own_event(_event("resource.added", resource_id, owner, agent, uri, clock), document)


def _event(
    event_type: str, event_id: UUID, owner: str, agent: str, uri: str, clock: Clock, parent: UUID | None = None
) -> Event:
    """Of the user whose resource it is, whoever asked for it."""
    return Event(
        event_id=event_id,
        event_type=event_type,
        occurred_at=clock(),
        session_id=uri,
        trace_id=(parent or event_id).hex,
        agent_id=agent,
        user_id=owner,
        parent_event_id=parent,
        status="completed",
    )


async def _of_bytes(tx: Tx, same: dict[str, str]) -> Resource | None:
    row = await (await tx.execute(_SQL["resource_of_bytes"], same, binary=True)).fetchone()
    return None if row is None else Resource(*row)  # pyright: ignore[reportCallIssue] (a row is Any)


def _no_such() -> NotFound:
    return NotFound("there is no such resource")
