"""Memory: what an agent may remember, how it changes its mind, and why it believes what it does.

Derived from the ledger: every write is an event and its effect in one transaction (see ledger/effects.py), and
`rebuild` makes the same rows again from the events alone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.db.trip import Statement
from whence.errors import (
    Conflict,
    FieldError,
    Forbidden,
    InvalidInput,
    NotFound,
    Unavailable,
    WhenceError,
    refusal_of,
)
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.append import Outcome
from whence.ledger.coalesce import Parts
from whence.ledger.effects import OwnEvent, Vector
from whence.ledger.events import MAX_POSITION
from whence.memory.explaining import explanation, look
from whence.memory.known import as_known
from whence.memory.own import Own, check_limit, check_names
from whence.memory.profiles import Profiles
from whence.memory.sanitise import possible_in
from whence.memory.writing import (
    BETWEEN,
    GIVEN_EMBEDDER,
    MAX_SOURCES,
    MAX_TEXT_CHARACTERS,
    Draft,
    check_name,
    draft,
    event_of,
    keys_between,
    normal,
    owner_in,
    refused,
    told_in,
    units_given,
)
from whence.models.embedder import Embedder
from whence.wire import (
    CanonRule,
    Explanation,
    Fact,
    Location,
    MemoryPage,
    Recall,
    RecallFilters,
    Remember,
    Remembered,
    RememberedItem,
    Run,
    StoredMemory,
)

__all__ = ["MAX_BATCH_MEMORIES", "Memory", "Remember"]

MAX_BATCH_MEMORIES = 500
MAX_PAGE_MEMORIES = 500
MAX_HISTORY = 1_000
MAX_EPISODES = 100_000
"""Of the runs of a workspace. The database holds to the same number (see migration 0005)."""
WARNED_EPISODES = 80_000
MAX_RULE_CHARACTERS = 20_000
MAX_RULES = 10_000
MAX_FACTS_READ = 2_000
"""Of one subject, to find the newest of them. Where there are more and most of them hold, memories are read from the
newest on, which comes sooner to as many as are wanted."""
FORGET_ATTEMPTS = 3
"""Of a memory that its session's close, or somebody else, ends at the same time."""
MAX_SESSIONS_ASKED = 100
"""Named in one recall."""
PART_MEMORIES = 50
"""Of a batch; while the database stores them, the next are made ready."""
LONG_CHARACTERS = 8_000
"""Texts of one call, or of one part of a batch, that are longer than this together are looked through beside the event
loop."""

S = TypeVar("S")
T = TypeVar("T")

_SQL = load("whence.memory")
_decode = msgspec.json.Decoder(dict[str, int]).decode
_decode_location = msgspec.json.Decoder(Location).decode

FOUND = Statement("recall_found", _SQL["found"])
"""Reads what was ranked: whether each holds, whether it never will again, and the fields of a memory."""


class _Wrong(NamedTuple):
    errors: tuple[FieldError, ...]
    drafted: Draft | None = None
    """Of what is wrong by now: its run is over, or what it is derived from is gone. It may have been told before."""


_Drafts = list[Draft | _Wrong]
"""Of requests, or what is wrong with them."""


class _Look(NamedTuple):
    """What is to be known about requests before any of them is remembered."""

    now: datetime
    sources: dict[UUID, bool]
    """Of the ids that they are derived from, those that may be seen, with whether they are memories."""
    runs: dict[UUID, Run]


class _Told(NamedTuple):
    """Handed to the ledger."""

    drafts: _Drafts
    events: list[OwnEvent]
    """Of those that are sound."""
    outcomes: asyncio.Future[list[Outcome]]


class Memory:
    def __init__(
        self, database: Database, ledger: Ledger, clock: Clock, embedder: Embedder, profiles: Profiles
    ) -> None:
        self._database = database
        self._ledger = ledger
        self.clock = clock
        self.embedder = embedder
        self._own = Own(ledger, clock, profiles)
        self.profiles = profiles
        self.is_embedder_failing = False
        """Whether it did not answer when it was asked last."""
        self.on_session_ended: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None
        """Called with the workspace and a stretch of a session that new activity has ended."""
        self.on_told: Callable[[str, str], None] | None = None
        """Called with the workspace and the owner of what was just remembered."""

    # --- remember ---------------------------------------------------------------------------------------------------

    async def remember(self, principal: Principal, request: Remember) -> Remembered:
        """Returns after the commit. Raises where it cannot be remembered, and then nothing has changed."""
        [item] = await self.remember_all(principal, [request])
        if item.remembered is not None:
            return item.remembered
        first = item.errors[0]
        if first.field == "memory_id":
            raise Conflict(f"{first.field}: {first.message}", item.errors)
        raise refusal_of(item.errors)

    async def remember_all(self, principal: Principal, requests: Sequence[Remember]) -> list[RememberedItem]:
        """Each that is sound is remembered, in order; says after the commit what became of every one."""
        if not 1 <= len(requests) <= MAX_BATCH_MEMORIES:
            raise refused("memories", f"from 1 to {MAX_BATCH_MEMORIES}")
        look = await self._look(principal.scope, requests)
        # A model that takes its time is asked once.
        size = PART_MEMORIES if self.embedder.is_quick else len(requests)
        if len(requests) <= size:
            return await self._items(principal, await self._tell(principal, requests, look))
        parts, told = Parts(len(requests)), list[_Told]()
        try:
            for start in range(0, len(requests), size):
                told.append(await self._tell(principal, requests[start : start + size], look, parts))
                # The database gets what was told; the next part is made ready meanwhile.
                await asyncio.sleep(0)
        finally:
            await asyncio.gather(*(each.outcomes for each in told), return_exceptions=True)
        return [item for each in told for item in await self._items(principal, each)]

    def _drafts(self, principal: Principal, requests: Sequence[Remember], look: _Look) -> _Drafts:
        drafts: _Drafts = []
        possible, vectors = None, units_given([request.embedding for request in requests])
        if len(requests) > 1:
            # Longer ones are refused, and not looked at before.
            possible = possible_in(r.text for r in requests if len(r.text) <= MAX_TEXT_CHARACTERS)
        for request, vector in zip(requests, vectors, strict=True):
            try:
                drafted = draft(principal, request, self.profiles, None, possible, vector)
            except InvalidInput as error:
                drafts.append(_Wrong(error.errors))
                continue
            wrong = _missing(request, look.sources) or _not_its_run(drafted, look.runs)
            drafts.append(drafted if wrong is None else _Wrong((wrong,), drafted))
        return drafts

    async def _tell(
        self, principal: Principal, requests: Sequence[Remember], look: _Look, parts: Parts | None = None
    ) -> _Told:
        """Hands to the ledger what is sound of them."""
        # Long texts take a while to look through, and others should not wait for it.
        if sum(len(request.text) for request in requests) > LONG_CHARACTERS:
            drafts = await asyncio.to_thread(self._drafts, principal, requests, look)
        else:
            drafts = self._drafts(principal, requests, look)
        sound = [item for item in drafts if isinstance(item, Draft)]
        events = [
            event_of(item, vector, _sources_in(item, look), look.now)
            for item, vector in zip(sound, await self._vectors(sound), strict=True)
        ]
        events = await self._with_origins(principal.scope, sound, events, look)
        return _Told(drafts, events, await self._ledger.put(principal.workspace_id, events, parts))

    async def _items(self, principal: Principal, told: _Told) -> list[RememberedItem]:
        """What became of each, once they are stored."""
        stored = iter(list(zip(told.events, await told.outcomes, strict=True)))
        if self.on_told is not None:
            for owner in {own.event.user_id or "" for own in told.events}:
                self.on_told(principal.workspace_id, owner)
        items: list[RememberedItem] = []
        for item in told.drafts:
            if not isinstance(item, Draft):
                items.append(await self._refused(principal, item))
                continue
            own, outcome = next(stored)
            if outcome.status == "accepted" and outcome.effect is None:
                # Nearly all of them, without a coroutine for each.
                items.append(_stored(item, outcome))
            else:
                items.append(await self._item(principal, item, own.payload, outcome))
        return items

    async def _item(self, principal: Principal, drafted: Draft, payload: bytes, outcome: Outcome) -> RememberedItem:
        if outcome.status == "rejected":
            return RememberedItem(errors=outcome.errors)
        if outcome.status != "accepted":
            return await self._told_before(principal, drafted, payload)
        came_of = outcome.effect or {}
        warnings = await self._ended(principal.workspace_id, came_of["ended"]) if "ended" in came_of else ()
        if "status" not in came_of:
            return _stored(drafted, outcome, warnings)
        count = came_of.get("episodes") or 0
        if count >= WARNED_EPISODES:
            warnings = (*warnings, f"the workspace has {count:,} of at most {MAX_EPISODES:,} episodes")
        return RememberedItem(
            Remembered(
                UUID(came_of["memory_id"]),
                drafted.event_id,
                outcome.position or 0,
                came_of["status"],
                tuple(map(UUID, came_of["superseded"])),
                drafted.sanitised or None,
                warnings,
            )
        )

    async def _ended(self, workspace_id: str, stretch: dict[str, Any]) -> tuple[str, ...]:
        """What was told has found its session to be over. What is stored is stored, whatever becomes of the close."""
        if self.on_session_ended is None:
            return ()
        try:
            await self.on_session_ended(workspace_id, stretch)
        except WhenceError as error:
            return (f"the former session {stretch['session_id']} is over and not closed yet: {error.detail}",)
        return ()

    async def _refused(self, principal: Principal, wrong: _Wrong) -> RememberedItem:
        """What was told before stays told, and is answered as it was then."""
        drafted = wrong.drafted
        if drafted is None or drafted.request.memory_id is None:
            return RememberedItem(errors=wrong.errors)
        sources = dict.fromkeys(drafted.request.derived_from, False)
        again = event_of(drafted, Vector(GIVEN_EMBEDDER, np.zeros(1)), sources, self.clock())
        item = await self._told_before(principal, drafted, again.payload)
        return item if item.remembered is not None else RememberedItem(errors=wrong.errors)

    async def _told_before(self, principal: Principal, drafted: Draft, payload: bytes) -> RememberedItem:
        """The sender has sent it again: what became of it the first time, if it was the same."""
        other = RememberedItem(
            errors=(FieldError("memory_id", "an event with this id was stored earlier with other content"),)
        )
        values = principal.scope.values(event_id=drafted.event_id)
        async with self._database.transaction(principal.scope) as tx:
            row = await (await tx.execute(_SQL["told_by"], values)).fetchone()
        # An event that told no memory has no such payload.
        if row is None:
            return other
        try:
            stored = told_in(await self._ledger.payload(principal.scope, drafted.event_id))
        except NotFound:
            return other
        if stored != told_in(payload):
            return other
        memory_id, position = row
        status = "stored" if memory_id == drafted.event_id else "reinforced"
        return RememberedItem(Remembered(memory_id, drafted.event_id, position, status, (), drafted.sanitised or None))

    async def _look(self, scope: Scope, requests: Sequence[Remember]) -> _Look:
        ids = {source for request in requests for source in request.derived_from[:MAX_SOURCES]}
        run_ids = {request.run_id for request in requests if request.run_id is not None}
        sources: dict[UUID, bool] = {}
        runs: dict[UUID, Run] = {}
        if ids or run_ids:
            await self._ledger.behind.wait(scope.workspace_id, *ids)
            async with self._database.transaction(scope) as tx:
                values = scope.values(ids=list(ids), run_ids=list(run_ids))
                sources = dict(await (await tx.execute(_SQL["known_sources"], values, binary=True)).fetchall())
                rows = await (await tx.execute(_SQL["runs_by_id"], values, binary=True)).fetchall()
                runs = {row[0]: Run(*row) for row in rows}  # pyright: ignore[reportCallIssue]
        return _Look(self.clock(), sources, runs)

    async def _with_origins(
        self, scope: Scope, drafts: list[Draft], events: list[OwnEvent], look: _Look
    ) -> list[OwnEvent]:
        """Events of what is so say which memories stand behind what they are derived from."""
        effects = [
            own.effect
            for item, own in zip(drafts, events, strict=True)
            if item.request.kind == "semantic" and item.request.derived_from
        ]
        documents = [effect.document for effect in effects if effect is not None]
        if not documents:
            return events
        values = scope.values(sources=MAX_SOURCES, documents=f"[{b','.join(documents).decode()}]")
        async with self._database.transaction(scope) as tx:
            rows: list[Any] = await (await tx.execute(_SQL["origins"], values, binary=True)).fetchall()
        origins: dict[UUID, dict[UUID, UUID]] = {}
        for event_id, source, origin in rows:
            origins.setdefault(event_id, {})[source] = origin
        return [
            event_of(item, own.effect.vector, _sources_in(item, look), look.now, origins=origins[item.event_id])
            if item.event_id in origins and own.effect is not None and own.effect.vector is not None
            else own
            for item, own in zip(drafts, events, strict=True)
        ]

    async def _vectors(self, drafts: list[Draft]) -> list[Vector]:
        texts = [drafted.text for drafted in drafts if drafted.vector is None]
        made = iter(await self.embedded(texts) if texts else [])
        return [Vector(GIVEN_EMBEDDER, item.vector) if item.vector is not None else next(made) for item in drafts]

    async def embedded(self, texts: list[str]) -> list[Vector]:
        """Of unit length. A text without a word that the embedder knows is like nothing."""
        is_quick = self.embedder.is_quick and sum(map(len, texts)) <= LONG_CHARACTERS
        return self._embed(texts) if is_quick else await self._beside(self._embed, texts)

    async def embedded_query(self, text: str) -> Vector:
        """Of a question; to be compared with vectors of the same embedder alone."""
        return self._embed_query(text) if self.embedder.is_quick else await self._beside(self._embed_query, text)

    async def _beside(self, embed: Callable[[S], T], what: S) -> T:
        """Beside the event loop, and noted where the embedder does not answer."""
        try:
            made = await asyncio.to_thread(embed, what)
        except Unavailable:
            self.is_embedder_failing = True
            raise
        self.is_embedder_failing = False
        return made

    def _embed(self, texts: list[str]) -> list[Vector]:
        return [Vector(self.embedder.name, unit_of(row)) for row in self.embedder.embed(texts)]

    def _embed_query(self, text: str) -> Vector:
        return Vector(self.embedder.name, unit_of(self.embedder.embed_query(text)))

    # --- look -------------------------------------------------------------------------------------------------------

    async def get(self, scope: Scope, memory_id: UUID) -> StoredMemory:
        async with self._database.transaction(scope) as tx:
            return await self._get(tx, scope, memory_id)

    async def page(
        self, scope: Scope, asked: Recall, before: int | None = None, limit: int = 100, run_id: UUID | None = None
    ) -> MemoryPage:
        """What held, the newest first."""
        check_limit(limit, MAX_PAGE_MEMORIES)
        async with self._database.transaction(scope) as tx:
            found = await self._held(tx, scope, asked, before, limit + 1, run_id)
        return _page(found, limit)

    async def history(
        self, scope: Scope, memory_id: UUID, after: int | None = None, limit: int = MAX_HISTORY
    ) -> MemoryPage:
        """Everything that was ever said in its place, in order of the time from which it was so."""
        check_limit(limit, MAX_HISTORY)
        values = scope.values(memory_id=memory_id, after=after, limit=limit + 1)
        async with self._database.transaction(scope) as tx:
            memory = await self._get(tx, scope, memory_id)
            rows = await (await tx.execute(_SQL["history_of"], values, binary=True)).fetchall()
            if not rows:
                rows = await (await tx.execute(_SQL["overridden_history"], values, binary=True)).fetchall()
        # Where nothing else was said in its place, it is the first page.
        found = list(map(memory_of, rows)) or ([memory] if after is None else [])
        return _page(found, limit)

    async def explain(self, scope: Scope, memory_id: UUID) -> Explanation:
        """Its events, where it came from, what it replaced, who said it, when it was recalled."""
        await self._ledger.behind.settled(scope.workspace_id)
        async with self._database.transaction(scope, snapshot=True) as tx:
            memory = await self._get(tx, scope, memory_id)
            found = await look(tx, self._ledger, scope, memory)
        return await explanation(self._ledger, scope, memory, found)

    async def forget(self, principal: Principal, memory_id: UUID) -> None:
        """It is no longer found. What it said and where it came from stays for who asks for its history."""
        for _ in range(FORGET_ATTEMPTS):
            if await self._forgotten(principal, memory_id):
                return
        raise Unavailable("the memory changes too quickly; try again")

    async def _forgotten(self, principal: Principal, memory_id: UUID) -> bool:
        """Not where it has ended otherwise meanwhile: then another event says that it is forgotten."""
        memory = await self.get(principal.scope, memory_id)
        is_removed = memory.deleted_at is not None and memory.archived_at is None and memory.tier != "persistent"
        if memory.deleted_at is not None and not is_removed:
            return True
        if memory.user_id is None and not principal.is_admin and memory.said_by != principal.user_id:
            raise Forbidden("the memory is the workspace's: who told it or an administrator can forget it")
        event = self._own.event(principal, new_id(), "memory.forgotten", memory.agent, memory.session_id, memory_id)
        # What only its session's close has removed still counts as said.
        effect = "forget_removed" if is_removed else "forget"
        return await self._own.record_once(principal, event, {"effect": effect, "memory_id": memory_id})

    async def _get(self, tx: Tx, scope: Scope, memory_id: UUID) -> StoredMemory:
        values = scope.values(memory_id=memory_id)
        row = await (await tx.execute(_SQL["memory_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such memory")
        return memory_of(row)

    async def _held(
        self, tx: Tx, scope: Scope, asked: Recall, before: int | None, limit: int, run_id: UUID | None
    ) -> list[StoredMemory]:
        values = scope.values(
            **self._wanted(asked), run_id=run_id, before=MAX_POSITION if before is None else before, limit=limit
        )
        whose = "" if scope.user_id is None else "_by_user"
        held = f"memories_held{whose}" if run_id is None else "memories_held_of_run"
        if run_id is None and asked.subject is not None:
            values["from_key"], values["to_key"] = keys_between(asked.subject, asked.predicate)
            values["most"] = MAX_FACTS_READ + 1
            row = await (await tx.execute(_SQL[f"facts_to_read{whose}"], values, binary=True)).fetchone()
            assert row is not None
            count, likely = row
            if count <= MAX_FACTS_READ or likely <= MAX_FACTS_READ // 2:
                held = f"facts_held{whose}"
        rows = await (await tx.execute(_SQL[held], values, binary=True)).fetchall()
        found = list(map(memory_of, rows))
        return found if asked.known_at is None else await as_known(tx, scope, found, asked.known_at)

    async def wanted(
        self, tx: Tx, scope: Scope, asked: Recall, owner: str | None, among: list[UUID] | None = None
    ) -> set[UUID]:
        """Which memories of one owner, or of everybody, are asked about; where some are given, which of them."""
        values = scope.values(**self._wanted(asked), run_id=None, owner=owner, ids=among)
        statement = _SQL["memories_wanted" if among is None else "memories_wanted_among"]
        rows = await (await tx.execute(statement, values, binary=True)).fetchall()
        return {row[0] for row in rows}

    async def held(self, tx: Tx, scope: Scope, ids: list[UUID], asked: Recall) -> list[StoredMemory]:
        """Those that may be seen and held at the time that is asked about, as they were known then."""
        values = scope.values(ids=ids, as_of=asked.as_of or self.clock(), known_at=asked.known_at)
        rows = await (await tx.execute(_SQL["memories_held_by_id"], values, binary=True)).fetchall()
        found = list(map(memory_of, rows))
        return found if asked.known_at is None else await as_known(tx, scope, found, asked.known_at)

    def _wanted(self, asked: Recall) -> dict[str, object]:
        check_asked(asked)
        filters = asked.filters or RecallFilters()
        sessions, beginnings = sessions_of(asked)
        return {
            "agent": asked.agent,
            "tiers": _listed(asked.tiers),
            "kinds": _listed(asked.kinds),
            "session_id": asked.session_id,
            "sessions": sessions,
            "beginnings": beginnings,
            "subject": asked.subject,
            "subject_key": asked.subject and normal(asked.subject),
            "predicate": asked.predicate,
            "predicate_key": asked.predicate and normal(asked.predicate),
            "as_of": asked.as_of or self.clock(),
            "known_at": asked.known_at,
            "speaker": filters.speaker,
            "role": filters.role,
            "world": filters.world_id_context,
            "since": filters.since,
            "until": filters.until,
        }

    # --- canon ------------------------------------------------------------------------------------------------------

    async def set_rule(self, principal: Principal, world_id: str, rule_id: str, body: str) -> None:
        check_names(world_id=world_id, rule_id=rule_id)
        check_name("body", body, MAX_RULE_CHARACTERS)
        document = {"effect": "set_rule", "world_id": world_id, "rule_id": rule_id, "body": body}
        await self._own.record(principal, self._own.event(principal, new_id(), "memory.rule_set", None, None), document)

    async def drop_rule(self, principal: Principal, world_id: str, rule_id: str) -> None:
        check_names(world_id=world_id, rule_id=rule_id)
        values = principal.scope.values(world_id=world_id, rule_id=rule_id)
        async with self._database.transaction(principal.scope) as tx:
            found = await (await tx.execute(_SQL["rule_by_id"], values)).fetchone()
        if found is None:
            raise NotFound("there is no such rule")
        document = {"effect": "drop_rule", "world_id": world_id, "rule_id": rule_id}
        await self._own.record(
            principal, self._own.event(principal, new_id(), "memory.rule_dropped", None, None), document
        )

    async def rules(self, scope: Scope, world_id: str) -> list[CanonRule]:
        check_names(world_id=world_id)
        values = {"workspace_id": scope.workspace_id, "world_id": world_id, "limit": MAX_RULES}
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["rules_of_world"], values, binary=True)).fetchall()
        return [CanonRule(*row) for row in rows]


def unit_of(row: npt.NDArray[np.int8]) -> npt.NDArray[np.float32]:
    """The same on every machine: sums of squares of small integers are exact."""
    vector = row.astype(np.float64)
    length = float(np.sqrt(vector @ vector))
    return (vector / (length or 1.0)).astype(">f2").astype(np.float32)


def memory_of(row: tuple[Any, ...]) -> StoredMemory:
    subject, predicate, about, confidence, key = row[12:17]
    fact = None if subject is None else Fact(subject, predicate, about, confidence)
    shown = key.partition(BETWEEN)[0] if fact is None and key is not None else None
    sanitised, *later, location = row[30:]
    found = sanitised and _decode(sanitised)
    stands = location and _decode_location(location)
    fields: tuple[Any, ...] = (*row[:12], fact, shown, *row[17:30], found, *later, stands)
    return StoredMemory(*fields)  # pyright: ignore[reportCallIssue] (a row is Any)


def _page(found: list[StoredMemory], limit: int) -> MemoryPage:
    """`found` has one more than asked for, where there are more."""
    return MemoryPage(found[:limit], found[limit - 1].position if len(found) > limit else None)


def _stored(drafted: Draft, outcome: Outcome, warnings: tuple[str, ...] = ()) -> RememberedItem:
    """As it was told."""
    position, sanitised = outcome.position or 0, drafted.sanitised or None
    return RememberedItem(Remembered(drafted.event_id, drafted.event_id, position, "stored", (), sanitised, warnings))


def _sources_in(drafted: Draft, look: _Look) -> dict[UUID, bool]:
    """What it is derived from, each with whether it is a memory."""
    return {source: look.sources[source] for source in drafted.request.derived_from}


def _missing(request: Remember, known: dict[UUID, bool]) -> FieldError | None:
    for source in request.derived_from:
        if source not in known:
            return FieldError("derived_from", f"there is no event or memory {source}")
    return None


def _not_its_run(drafted: Draft, runs: dict[UUID, Run]) -> FieldError | None:
    request = drafted.request
    if request.run_id is None:
        return None
    run = runs.get(request.run_id)
    if run is None:
        return FieldError("run_id", "there is no such run")
    # What a run has taught is often found when it is over; nothing more happens in it then.
    if request.kind == "episodic" and run.status != "running":
        return FieldError("run_id", f"the run is {run.status}")
    owner = owner_in(drafted)
    if run.agent != request.agent or run.user_id != owner:
        return FieldError("run_id", "a run has memory of its own agent and user")
    return None


def _listed(values: Sequence[str] | None) -> list[str] | None:
    return None if values is None else list(values)


def sessions_of(asked: Recall) -> tuple[list[str] | None, list[str]]:
    """The sessions that are asked for by name, and what others may begin with; None and nothing where any will do."""
    if asked.sessions is None and asked.session_prefixes is None:
        return None, []
    return list(asked.sessions or ()), list(asked.session_prefixes or ())


def check_asked(asked: Recall) -> None:
    check_names(agent=asked.agent, session_id=asked.session_id, subject=asked.subject, predicate=asked.predicate)
    for field, wanted in (("tiers", asked.tiers), ("kinds", asked.kinds)):
        if wanted is not None and not wanted:
            raise refused(field, "name at least one, or leave it out")
    _check_moments(as_of=asked.as_of, known_at=asked.known_at)
    for field, names in (("sessions", asked.sessions), ("session_prefixes", asked.session_prefixes)):
        check_names(**{f"{field}[{place}]": name for place, name in enumerate(names or ())})
        if names is not None and not 1 <= len(names) <= MAX_SESSIONS_ASKED:
            raise refused(field, f"from 1 to {MAX_SESSIONS_ASKED}")
    if asked.filters is not None:
        within = asked.filters
        check_names(**{"filters.speaker": within.speaker, "filters.world_id_context": within.world_id_context})
        _check_moments(**{"filters.since": within.since, "filters.until": within.until})


def _check_moments(**moments: datetime | None) -> None:
    for field, value in moments.items():
        if value is not None and value.tzinfo is None:
            raise refused(field, "needs a time zone, such as a final Z")
