"""The ledger: what happened, in the order in which it became known, and nothing lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, get_args
from uuid import UUID, uuid4

import msgspec
import psycopg
from msgspec import UNSET
from prometheus_client import CollectorRegistry, Counter

from whence.clock import Clock
from whence.crypto import KeyProvider, SubjectKey
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import FieldError, InvalidInput, NotFound, SetupError
from whence.identity import Principal
from whence.ledger.append import Block, Entry, Outcome, Status, append, append_fresh, lock_head
from whence.ledger.behind import Behind
from whence.ledger.coalesce import EARLY_EVENTS, SLICE_EVENTS, Coalescer, Parts
from whence.ledger.effects import OwnEvent
from whence.ledger.events import problems
from whence.ledger.heads import Heads, head_of
from whence.ledger.payloads import KeyRow, SubjectKeys, canonical, subject_of
from whence.ledger.seals import Seals
from whence.ledger.upcast import Steps, upcast_event, upcast_payload
from whence.wire import CONTENT_KEYS, Event, EventPage, Measures, StoredEvent

MAX_PAGE_EVENTS = 1_000
MAX_JOINED_CONTENTS = 1_000
MAX_JOINED_BYTES = 8 << 20
SLICE_BYTES = 1 << 20
MAX_CONTENT_BYTES = 32 << 20

_SQL = load("whence.ledger")
_object = msgspec.json.Decoder(dict[str, Any])
_decode_measures = msgspec.json.Decoder(Measures).decode


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a reader wants; None stands for any."""

    session_id: str | None = None
    trace_id: str | None = None
    event_type: str | None = None

    def __post_init__(self) -> None:
        for name in ("session_id", "trace_id", "event_type"):
            if "\x00" in (getattr(self, name) or ""):
                raise InvalidInput(f"{name}: must not contain a NUL character", (FieldError(name, "has a NUL"),))


EVERYTHING = Filter()


class Sealed(NamedTuple):
    """A payload as it is stored, with what is needed to open it."""

    position: int
    event_id: UUID
    event_type: str
    schema_version: int
    user_id: str | None
    trace_id: str
    subject_id: str
    ciphertext: bytes
    key: KeyRow


class Content(NamedTuple):
    """What an event's payload says. `body` is None where it could not be opened; `problem` then says why."""

    position: int
    event_id: UUID
    event_type: str
    user_id: str | None
    trace_id: str
    subject_id: str
    key: SubjectKey
    body: bytes | None
    problem: str | None


class Ledger:
    def __init__(
        self,
        database: Database,
        provider: KeyProvider,
        clock: Clock,
        registry: CollectorRegistry,
        steps: Steps | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._steps = steps or {}
        self.heads = Heads(database)
        self.keys = SubjectKeys(database, provider, clock)
        self.seals = Seals(database, clock)
        self._coalescer = Coalescer(
            database,
            clock,
            registry,
            on_commit=self.heads.moved,
            on_refusal=lambda workspace_id, entry: self.keys.forget(workspace_id, subject_of(entry.event)),
            count=self._count_all,
        )
        self.behind = Behind(self.record, registry)
        outcomes = Counter("whence_events", "Events by what became of them", ["outcome"], registry=registry)
        self._counted = {status: outcomes.labels(status) for status in get_args(Status)}

    async def close(self) -> None:
        await self.behind.settled()
        await self._coalescer.drain()
        await self.heads.close()

    async def append(self, principal: Principal, events: Sequence[Event]) -> list[Outcome]:
        """Stores each event that is sound and new; says after the commit what became of every one, in order."""
        ready: list[Entry | list[FieldError]] = []
        for part in _slices(events):
            ready += await self._prepare(principal, part, len(events) <= EARLY_EVENTS)
            if len(ready) < len(events):
                # A large batch must not hold up everybody else's small append.
                await asyncio.sleep(0)
        entries = [item for item in ready if isinstance(item, Entry)]
        outcomes = await self._coalescer.store(principal.workspace_id, entries)
        if len(entries) == len(ready):
            return outcomes
        self.count("rejected", len(ready) - len(entries))
        stored = iter(outcomes)
        return [next(stored) if isinstance(item, Entry) else Outcome("rejected", None, tuple(item)) for item in ready]

    async def append_in(self, tx: Tx, principal: Principal, events: Sequence[Event]) -> list[Outcome]:
        """The same in the caller's transaction, which is in the workspace's scope: they are stored when it commits.

        Until it ends nothing else is appended to the workspace, so it should end soon.
        """
        ready = await self._prepare(principal, events, few=False)
        entries = [item for item in ready if isinstance(item, Entry)]
        stored = iter(await append(tx, principal.workspace_id, entries, self._clock()) if entries else [])
        return [next(stored) if isinstance(item, Entry) else Outcome("rejected", None, tuple(item)) for item in ready]

    async def record(self, workspace_id: str, events: Sequence[OwnEvent]) -> list[Outcome]:
        """Stores events of Whence's own with what they do. Whoever calls has checked them."""
        return await (await self.put(workspace_id, events))

    async def put(
        self, workspace_id: str, events: Sequence[OwnEvent], parts: Parts | None = None
    ) -> asyncio.Future[list[Outcome]]:
        """The same, without waiting until they are stored; perhaps as a part of a batch."""
        return await self._coalescer.put(workspace_id, await self._own_entries(workspace_id, events), parts)

    async def record_all(self, workspace_id: str, events: Sequence[OwnEvent]) -> list[Outcome]:
        """The same, all of them or none; those that are stored already do not count. Unlike `record_together`, others
        may append before them, and share their commit."""
        entries, together = await self._own_entries(workspace_id, events), uuid4()
        return await self._coalescer.store(
            workspace_id, [msgspec.structs.replace(entry, together=together) for entry in entries]
        )

    async def record_together(
        self, workspace_id: str, make: Callable[[Tx], Awaitable[Sequence[OwnEvent]]]
    ) -> list[Outcome]:
        """Stores all of them or none. They are made while nothing else is appended to the workspace, so that what they
        say about it is so when they are stored."""
        subjects = set[str]()
        try:
            async with self._database.transaction(Scope(workspace_id)) as tx:
                await lock_head(tx, workspace_id)
                made = await make(tx)
                subjects = {subject_of(own.event) for own in made}
                entries = await self._own_entries(workspace_id, made)
                outcomes = await append(tx, workspace_id, entries, self._clock())
        except psycopg.IntegrityError:
            # Perhaps because a key that is remembered here was erased elsewhere.
            for subject in subjects:
                self.keys.forget(workspace_id, subject)
            raise
        self._count_all(outcomes)
        self.heads.moved(workspace_id, max((outcome.position or 0 for outcome in outcomes), default=0))
        return outcomes

    async def record_in(self, tx: Tx, workspace_id: str, own: OwnEvent) -> int:
        """The same for one event in the caller's transaction, which holds the head; returns its position. After the
        commit the caller says so by `heads.moved`."""
        entries = await self._own_entries(workspace_id, [own])
        head, _ = await append_fresh(tx, workspace_id, Block.of(entries), self._clock())
        return head + 1

    async def _own_entries(self, workspace_id: str, events: Sequence[OwnEvent]) -> list[Entry]:
        keys = await self.keys.ensure(workspace_id, {subject_of(own.event) for own in events})
        few = len(events) <= EARLY_EVENTS
        return [_entry(workspace_id, own.event, keys[subject_of(own.event)], own.payload, few, own) for own in events]

    def count(self, status: Status, count: int) -> None:
        """For the metrics; a gateway counts what it rejects before it comes here."""
        self._counted[status].inc(count)

    def _count_all(self, outcomes: Sequence[Outcome]) -> None:
        statuses: list[Status] = [outcome.status for outcome in outcomes]
        for status in set(statuses):
            self.count(status, statuses.count(status))

    async def _prepare(
        self, principal: Principal, events: Sequence[Event], few: bool
    ) -> list[Entry | list[FieldError]]:
        """Each event checked, stamped and sealed, or what is wrong with it. Where there are `few`, payloads are sealed
        later, when they wait or when it costs no time."""
        now = self._clock()
        checked = [_checked(principal, event, now) for event in events]
        subjects = {subject_of(item) for item in checked if isinstance(item, Event) and item.payload is not UNSET}
        keys = await self.keys.ensure(principal.workspace_id, subjects) if subjects else {}
        workspace_id = principal.workspace_id
        return [_sealed(workspace_id, item, keys, few) if isinstance(item, Event) else item for item in checked]

    async def page(self, scope: Scope, after: int, limit: int, wanted: Filter = EVERYTHING) -> EventPage:
        """Events past position `after`, in order of position."""
        if not 1 <= limit <= MAX_PAGE_EVENTS:
            raise InvalidInput("limit is out of range", (FieldError("limit", f"from 1 to {MAX_PAGE_EVENTS}"),))
        if not 0 <= after < 1 << 63:
            raise InvalidInput("after is out of range", (FieldError("after", "a position, 0 or greater"),))
        async with self._database.transaction(scope) as tx:
            events = await self._read(tx, scope, after, limit + 1, wanted)
        more = len(events) > limit
        return EventPage(events[:limit], events[limit - 1].global_position if more else None)

    async def follow(self, scope: Scope, after: int, wanted: Filter = EVERYTHING) -> AsyncIterator[list[StoredEvent]]:
        """Everything past `after`, each event once, in order, as it is committed; never ends."""
        while True:
            async with self._database.transaction(scope) as tx:
                # Read first: up to here no event can appear later, so what the filter passes over is done with.
                head = await head_of(tx, scope.workspace_id)
                events = await self._read(tx, scope, after, MAX_PAGE_EVENTS, wanted)
            if events:
                yield events
                after = events[-1].global_position
            if len(events) < MAX_PAGE_EVENTS:
                after = max(after, head)
                await self.heads.wait_beyond(scope.workspace_id, after)

    async def get(self, scope: Scope, event_id: UUID) -> StoredEvent:
        await self.behind.wait(scope.workspace_id, event_id)
        async with self._database.transaction(scope) as tx:
            return await self._get(tx, scope, event_id)

    async def payload(self, scope: Scope, event_id: UUID) -> bytes:
        """The event's payload as JSON, completed by what log records said about it, whichever came first."""
        await self.behind.wait(scope.workspace_id, event_id)
        async with self._database.transaction(scope) as tx:
            event = await self._get(tx, scope, event_id)
            values = scope.values(
                event_id=event_id,
                trace_id=event.trace_id,
                owner=event.user_id,
                limit=MAX_JOINED_CONTENTS,
                max_bytes=MAX_JOINED_BYTES,
            )
            rows = await (await tx.execute(_SQL["payloads_of_event"], values, binary=True)).fetchall()
            key_rows = await self.keys.read(tx, scope.workspace_id, {row[3] for row in rows})
        # A subject may be erased between the two.
        readable = {row[0] for row in key_rows}
        rows = [row for row in rows if row[3] in readable]
        if not rows:
            raise NotFound("the event has no payload, or it was erased")
        keys = await self.keys.opened(scope.workspace_id, key_rows)
        opened = [self._open(scope.workspace_id, keys, row) for row in rows]
        own = None if rows[0][5] else opened.pop(0)
        if own is not None and rows[0][6] == 1:
            return own
        return _joined(own, opened, truncated=len(rows) < rows[0][6])

    async def contents(
        self, tx: Tx, scope: Scope, positions: Sequence[int], max_bytes: int = MAX_CONTENT_BYTES
    ) -> list[Sealed]:
        """The payloads of these events as they are stored, in order of position, as many as fit into so many bytes.
        They are to be opened after the transaction."""
        values = scope.values(positions=list(positions), max_bytes=max_bytes)
        rows = await (await tx.execute(_SQL["contents_at"], values, binary=True)).fetchall()
        keys = {row[0]: row for row in await self.keys.read(tx, scope.workspace_id, {row[6] for row in rows})}
        # A subject may be erased between the two.
        return [Sealed(*row, keys[row[6]]) for row in rows if row[6] in keys]  # pyright: ignore[reportCallIssue] (a row is Any)

    async def opened(self, scope: Scope, sealed: Sequence[Sealed]) -> list[Content]:
        """What the payloads say. Opening many takes a while, so it is done beside the event loop."""
        keys = await self.keys.opened(scope.workspace_id, list({item.subject_id: item.key for item in sealed}.values()))
        return await asyncio.to_thread(self.open_all, scope, sealed, keys) if sealed else []

    def open_all(self, scope: Scope, sealed: Sequence[Sealed], keys: dict[str, SubjectKey]) -> list[Content]:
        """With keys that are open already. Content that cannot be opened says why in its place."""
        return [self._content(scope.workspace_id, item, keys[item.subject_id]) for item in sealed]

    def _content(self, workspace_id: str, item: Sealed, key: SubjectKey) -> Content:
        row = (item.event_id, item.event_type, item.schema_version, item.subject_id, item.ciphertext)
        try:
            body, problem = self._open(workspace_id, {item.subject_id: key}, row), None
        except SetupError as error:
            body, problem = None, error.detail
        return Content(
            item.position,
            item.event_id,
            item.event_type,
            item.user_id,
            item.trace_id,
            item.subject_id,
            key,
            body,
            problem,
        )

    async def at(self, tx: Tx, scope: Scope, positions: Sequence[int]) -> dict[int, StoredEvent]:
        """The events at these positions that the scope may see."""
        values = scope.values(positions=list(positions))
        rows = await (await tx.execute(_SQL["events_at"], values, binary=True)).fetchall()
        return {event.global_position: event for event in map(self.event, rows)}

    async def named(self, tx: Tx, scope: Scope, event_ids: Sequence[UUID]) -> dict[UUID, StoredEvent]:
        """The events with these ids that the scope may see."""
        values = scope.values(event_ids=list(event_ids))
        rows = await (await tx.execute(_SQL["events_named"], values, binary=True)).fetchall()
        return {event.event_id: event for event in map(self.event, rows)}

    async def _get(self, tx: Tx, scope: Scope, event_id: UUID) -> StoredEvent:
        values = scope.values(event_id=event_id)
        row = await (await tx.execute(_SQL["event_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such event")
        return self.event(row)

    async def _read(self, tx: Tx, scope: Scope, after: int, limit: int, wanted: Filter) -> list[StoredEvent]:
        values = scope.values(
            after=after,
            limit=limit,
            session_id=wanted.session_id,
            trace_id=wanted.trace_id,
            event_type=wanted.event_type,
        )
        rows = await (await tx.execute(_SQL[_statement(scope, wanted)], values, binary=True)).fetchall()
        return [self.event(row) for row in rows]

    def event(self, row: tuple[Any, ...]) -> StoredEvent:
        """An envelope as it was read, in its newest form."""
        measures = row[-2] and _decode_measures(row[-2])
        event = StoredEvent(*row[:-2], measures, row[-1])  # pyright: ignore[reportCallIssue] (a row is Any)
        return upcast_event(self._steps, event)

    def _open(self, workspace_id: str, keys: dict[str, SubjectKey], row: tuple[Any, ...]) -> bytes:
        event_id, event_type, version, subject_id, ciphertext, *_ = row
        payload = keys[subject_id].open(_place(workspace_id, event_id), ciphertext)
        return upcast_payload(self._steps, event_type, version, payload)


def _slices(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    """Parts that take a few milliseconds each, going by their number and by the size of their payloads."""
    start = size = 0
    for place, event in enumerate(events):
        size += 0 if event.payload is UNSET else memoryview(event.payload).nbytes
        if place - start >= SLICE_EVENTS or (size > SLICE_BYTES and place > start):
            yield events[start:place]
            start, size = place, 0
    yield events[start:]


def _checked(principal: Principal, event: Event, now: datetime) -> Event | list[FieldError]:
    """A user's events are that user's; only an administrator writes for others."""
    errors = problems(event, now)
    if not principal.is_admin and event.user_id != principal.user_id:
        if event.user_id is None:
            event = msgspec.structs.replace(event, user_id=principal.user_id)
        else:
            errors.append(FieldError("user_id", "must be left out or be the user whose key this is"))
    return errors or event


def _entry(
    workspace_id: str, event: Event, key: SubjectKey, payload: bytes, few: bool, own: OwnEvent | None = None
) -> Entry:
    """Raises what `canonical` raises where the payload cannot be read."""
    form = payload if own is not None and own.is_canonical else canonical(payload)
    sealing = key.sealing(_place(workspace_id, event.event_id), payload, form)
    if not few:
        sealing.done()
    return Entry(event, sealing, None if own is None else own.effect)


def _sealed(workspace_id: str, event: Event, keys: dict[str, SubjectKey], few: bool) -> Entry | list[FieldError]:
    if event.payload is UNSET:
        return Entry(event)
    try:
        return _entry(workspace_id, event, keys[subject_of(event)], bytes(event.payload), few)
    except (RecursionError, msgspec.DecodeError, UnicodeError):
        return [
            FieldError(
                "payload",
                "is not JSON that can be read: malformed, nested too deeply, or with a number that is too large",
            )
        ]


def _place(workspace_id: str, event_id: UUID) -> bytes:
    return event_id.bytes + workspace_id.encode()


def _statement(scope: Scope, wanted: Filter) -> str:
    """The statement whose index narrows most; what it does not filter by index it filters by row."""
    if wanted.trace_id is not None:
        return "events_of_trace_after"
    if wanted.session_id is not None:
        return "events_of_session_after"
    if wanted.event_type is not None:
        return "events_of_type_after"
    return "events_after" if scope.user_id is None else "events_of_user_after"


def _joined(own: bytes | None, contents: list[bytes], truncated: bool) -> bytes:
    """A span's payload keeps what it has; log records fill in what it lacks, and their messages follow one another."""
    whole: Any = {} if own is None else msgspec.json.decode(own)
    if not isinstance(whole, dict):
        return own or b""
    added: dict[str, Any] = {"contents_truncated": True} if truncated else {}
    for content in map(_decode_object, contents):
        for key in CONTENT_KEYS & content.keys():
            if isinstance(content[key], list) and isinstance(added.get(key), list):
                added[key] = added[key] + content[key]
            else:
                added.setdefault(key, content[key])
    return msgspec.json.encode({**added, **whole})


def _decode_object(payload: bytes) -> dict[str, Any]:
    """Anybody can send an event of the type `llm.content`, with a payload of any form."""
    try:
        return _object.decode(payload)
    except msgspec.ValidationError:
        return {}
