"""Items: JSON objects under a namespace and a key, as the stores of agent frameworks have them, kept as memory.

A put is remembered in the place of the one before it, by an event like all else that is remembered: an item has a
history, and is explained, recalled, retained and erased as its memory is. The table of items is what holds now, so that
a get is exact.
"""

import asyncio
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec.structs import replace

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict, FieldError, Forbidden, NotFound, TooLarge
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.effects import Effect, OwnEvent, Vector
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS, text_problem
from whence.ledger.payloads import subject_of
from whence.memory import LONG_CHARACTERS, MAX_PAGE_MEMORIES, Memory
from whence.memory.own import check_limit, check_names, not_stored, own_event
from whence.memory.profiles import Profile, check_cell
from whence.memory.sanitise import sanitise, sanitise_json
from whence.memory.writing import (
    BETWEEN,
    DEFAULT_IMPORTANCE,
    MAX_TEXT_CHARACTERS,
    Document,
    check_clean,
    check_name,
    document_of,
    owner_of,
    refused,
)
from whence.recall import MAX_QUERY_CHARACTERS, Recaller
from whence.wire import (
    DeleteItem,
    Event,
    GetItem,
    ItemOp,
    ItemOutcome,
    ItemsRequest,
    ListNamespaces,
    Namespace,
    PutItem,
    Recall,
    SearchItems,
    StoredItem,
    Within,
)

MAX_OPS = 1_000
MAX_SEARCHES = 100
"""Searches and lists in one request: each is a walk of its own."""
MAX_QUESTIONS = 20
"""Of them, searches with a query: each is a recall."""
MAX_ANSWER_BYTES = 33_554_432
"""Of values and namespaces, in one answer."""
MAX_VALUE_BYTES = 262_144
MAX_VALUE_LEVELS = 200
"""Of objects and lists in each other. What is kept must be readable also where the stack is deep already."""
MAX_LABELS = 32
MAX_PATH_BYTES = 1_024
"""Of a namespace, with a sign after each label."""
MAX_FOUND = 1_000
"""Items, or namespaces, that one search gives."""
MAX_OFFSET = 1_000_000
MAX_CONDITIONS = 32
MIN_TTL_S = 1.0
MAX_TTL_S = 315_360_000.0
RENEWED_PART = 0.05
"""Of its time: so much must have passed before a read is worth an event that an item lives as long again."""
SHOWN_CHARACTERS = 120
"""Of a namespace and a key, as a memory shows them."""

_SIGNS: Final = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""In JSON: the sign that Postgres does not keep."""
_POWER: Final = re.compile(r"\d[eE]\+?\d")
"""Perhaps a number with a power of ten, which Postgres writes out."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[-\d][-+.\deE]*+')
"""In JSON: a whole string or a whole number, so that nothing is looked at twice."""
_TOO_DEEP: Final = f"is nested too deeply: at most {MAX_VALUE_LEVELS} levels"
_PAST_ALL: Final = chr(0x10FFFF)
_SQL = load("whence.items")
_encode = msgspec.json.Encoder(order="deterministic").encode
_object = msgspec.json.Decoder(dict[str, Any])

Op = TypeVar("Op", GetItem, PutItem, DeleteItem, SearchItems, ListNamespaces)


class _Whose(NamedTuple):
    """Of whom and of which agent the items of a request are."""

    principal: Principal
    agent: str
    profile_name: str
    profile: Profile
    user_id: str | None
    """On whom their memories hang."""
    by: str | None
    """Whom their events are by."""
    now: datetime
    within: Within

    @property
    def owner(self) -> str:
        return self.user_id or ""

    @property
    def asker(self) -> Principal:
        """For an administrator who asks for a user, that user: what is recalled is the user's."""
        return self.principal if self.user_id is None else Principal(self.principal.workspace_id, self.user_id, False)

    def values(self, **more: object) -> dict[str, object]:
        return self.principal.scope.values(owner=self.owner, agent=self.agent, now=self.now, **more)


class _Known(NamedTuple):
    """An item as it was found, with what is needed to end it or to have it live longer."""

    ttl_s: float | None
    item: StoredItem
    subject_id: str | None = None
    said_by: str | None = None


class _Room:
    """What an answer may still hold."""

    def __init__(self) -> None:
        self.bytes = MAX_ANSWER_BYTES

    def take(self, field: str, sizes: Iterable[int]) -> None:
        """Of what was read. It has none where it was left out for want of room."""
        for size in sizes:
            self.bytes -= size
            if size == 0 or self.bytes < 0:
                message = f"an answer has values and namespaces of {MAX_ANSWER_BYTES:,} bytes at most: ask for fewer"
                raise TooLarge(f"{field}: {message}", (FieldError(field, message),))


class _Put(NamedTuple):
    op: PutItem
    conflict_key: str
    text: str
    value: bytes
    sanitised: dict[str, int]


class Items:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock, memory: Memory, recaller: Recaller) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._memory = memory
        self._recaller = recaller

    async def do(self, principal: Principal, request: ItemsRequest) -> list[ItemOutcome]:
        """What is read is read before anything is written. All that is written is committed when this returns; where
        something cannot be, it raises and nothing has changed. Only where somebody gives the same id to something else
        at the same time, that is found when what is beside it is stored."""
        whose = self._whose(principal, request)
        _check_ops(request.ops)
        last = _last_writes(request.ops)
        puts = await self._puts(whose, {place: op for place, op in last.items() if isinstance(op, PutItem)})
        outcomes: dict[int, ItemOutcome] = {}
        room = _Room()
        renewed: list[_Known] = []
        async with self._database.transaction(principal.scope) as tx:
            known = await self._known(tx, whose, request.ops, room)
            ended = {place: known.get(key_of(op.namespace, op.key)) for place, op in last.items()}
            _check_deletions(whose, [found for place, found in ended.items() if place not in puts])
            for place, op in _placed(request.ops, GetItem):
                found = known.get(key_of(op.namespace, op.key))
                outcomes[place] = ItemOutcome(item=found and found.item)
                renewed += [found] if found is not None and op.refresh else []
            for place, op in _placed(request.ops, ListNamespaces):
                outcomes[place] = ItemOutcome(namespaces=await _namespaces(tx, whose, place, op, room))
        for place, op in _placed(request.ops, SearchItems):
            hits = await self._searched(whose, place, op, room)
            outcomes[place] = ItemOutcome(items=[hit.item for hit in hits])
            renewed += hits if op.refresh else []
        outcomes |= await self._write(whose, puts, ended, _due(renewed, whose.now))
        return [outcomes.get(place, ItemOutcome()) for place in range(len(request.ops))]

    def _whose(self, principal: Principal, request: ItemsRequest) -> _Whose:
        within = request.within or Within()
        check_names(
            agent=request.agent,
            user_id=request.user_id,
            **{"within.session_id": within.session_id, "within.trace_id": within.trace_id},
        )
        name, profile = self._memory.profiles.of(request.agent)
        check_cell(name, profile, "persistent", "semantic")
        if profile.canon != "none":
            raise refused("agent", f"the profile {name} has a canon, and items are of no world")
        by = owner_of(principal, request.user_id, name, profile)
        return _Whose(principal, request.agent, name, profile, profile.owner(by), by, self._clock(), within)

    # --- read -------------------------------------------------------------------------------------------------------

    async def _known(self, tx: Tx, whose: _Whose, ops: Iterable[ItemOp], room: _Room) -> dict[str, _Known]:
        """What is under the keys that are named, by key; with the values of those that are to be got."""
        times = Counter[str]()
        for op in ops:
            if isinstance(op, GetItem | PutItem | DeleteItem):
                times[key_of(op.namespace, op.key)] += isinstance(op, GetItem)
        if not times:
            return {}
        values = whose.values(keys=list(times), times=list(times.values()), room=room.bytes)
        rows = await (await tx.execute(_SQL["items_by_key"], values, binary=True)).fetchall()
        found = {key: _Known(ttl_s, _item(row), subject_id, said_by) for key, ttl_s, subject_id, said_by, *row in rows}
        room.take("ops", (_size(known) for key, known in found.items() for _ in range(times[key])))
        return found

    async def _searched(self, whose: _Whose, place: int, op: SearchItems, room: _Room) -> list[_Known]:
        values = whose.values(
            **_path_range(op.namespace),
            room=room.bytes,
            conditions=_encode(list(_conditions(f"ops[{place}].filter", op.filter))).decode(),
            limit=op.limit,
            offset=op.offset,
        )
        if not op.query.strip():
            async with self._database.transaction(whose.principal.scope) as tx:
                rows = await (await tx.execute(_SQL["items_within"], values, binary=True)).fetchall()
            hits = [_Known(row[0], _item(row[1:])) for row in rows]
            room.take(f"ops[{place}]", map(_size, hits))
            return hits
        async with self._database.transaction(whose.principal.scope) as tx:
            rows = await (await tx.execute(_SQL["items_searched"], values, binary=True)).fetchall()
        hits = await self._recalled(whose, op, [row[0] for row in rows], room.bytes) if rows else []
        room.take(f"ops[{place}]", map(_size, hits))
        return hits

    async def _recalled(self, whose: _Whose, op: SearchItems, among: list[UUID], room: int) -> list[_Known]:
        """Those that answer the question best. That they were recalled is an event, as of every recall."""
        asked = Recall(query=op.query, agent=whose.agent, top_k=op.offset + op.limit)
        recalled = await self._recaller.recall(whose.asker, asked, whose.within, among)
        scores = {hit.memory_id: hit.score for hit in recalled.hits[op.offset :]}
        async with self._database.transaction(whose.principal.scope) as tx:
            values = whose.values(ids=list(scores), room=room)
            rows = await (await tx.execute(_SQL["items_of_memories"], values, binary=True)).fetchall()
        found = {row[1]: _Known(row[0], replace(_item(row[1:]), score=scores[row[1]])) for row in rows}
        # What was put anew or deleted since is not there any more.
        return [found[memory_id] for memory_id in scores if memory_id in found]

    # --- write ------------------------------------------------------------------------------------------------------

    async def _puts(self, whose: _Whose, ops: dict[int, PutItem]) -> dict[int, _Put]:
        """Each looked through by the profile; beside the event loop where there is much to look through."""
        size = sum(len(bytes(op.value)) + len(op.text) for op in ops.values())

        def all_of_them() -> dict[int, _Put]:
            return {place: _sound(whose, f"ops[{place}]", op) for place, op in ops.items()}

        return await asyncio.to_thread(all_of_them) if size > LONG_CHARACTERS else all_of_them()

    async def _write(
        self, whose: _Whose, puts: dict[int, _Put], known: dict[int, _Known | None], renewed: list[_Known]
    ) -> dict[int, ItemOutcome]:
        texts = [put.text for put in puts.values() if put.text]
        vectors = iter(await self._memory.embedded(texts) if texts else [])
        events: dict[int, OwnEvent] = {}
        for place, found in known.items():
            put = puts.get(place)
            if put is not None:
                events[place] = _put_event(whose, put, found, next(vectors) if put.text else None)
            elif found is not None:
                events[place] = _delete_event(whose, found)
        await self._check_given(whose, {place: own for place, own in events.items() if _is_given(puts.get(place))})
        own = [*events.values(), *([_renewal(whose, renewed)] if renewed else [])]
        outcomes = await self._ledger.record_all(whose.principal.workspace_id, own) if own else []
        self._recaller.told(whose.principal.workspace_id, whose.by or "")
        done: dict[int, ItemOutcome] = {}
        for (place, event), outcome in zip(events.items(), outcomes, strict=False):
            if outcome.status == "rejected":
                raise not_stored(outcome)
            if outcome.status != "accepted":
                await self._check_repeat(whose, f"ops[{place}]", event)
            put, found = puts.get(place), known[place]
            # A deletion tells what it has deleted, a put what it has made.
            told = found.item.memory_id if put is None and found is not None else event.event.event_id
            taken_out = put.sanitised or None if put is not None else None
            done[place] = ItemOutcome(memory_id=told, position=outcome.position, sanitised=taken_out)
        return done

    async def _check_given(self, whose: _Whose, given: dict[int, OwnEvent]) -> None:
        """Raises where an id was given to something else before, whoever did."""
        if not given:
            return
        scope = Scope(whose.principal.workspace_id)
        async with self._database.transaction(scope) as tx:
            known = await self._ledger.named(tx, scope, [own.event.event_id for own in given.values()])
        for place, own in given.items():
            if own.event.event_id in known:
                await self._check_repeat(whose, f"ops[{place}]", own)

    async def _check_repeat(self, whose: _Whose, field: str, own: OwnEvent) -> None:
        """Raises where what is stored under this id is something else, and not the same sent again."""
        try:
            stored = document_of(await self._ledger.payload(whose.principal.scope, own.event.event_id))
        except (NotFound, KeyError, TypeError):
            stored = None
        if stored is None or _said(stored) != _said(document_of(own.payload)):
            message = "an event with this id was stored earlier with other content"
            raise Conflict(message, (FieldError(f"{field}.memory_id", message),))


def _is_given(put: _Put | None) -> bool:
    return put is not None and put.op.memory_id is not None


def _said(document: dict[str, Any]) -> dict[str, Any]:
    """What was put: when its key was first put was looked up, so it is not part of that."""
    item = {name: value for name, value in document.get("item", {}).items() if name != "created_at"}
    return {**document, "item": item}


def key_of(namespace: Namespace, key: str) -> str:
    """What stands for a namespace and a key among memories: how they are shown, and a hash that tells them apart."""
    shown = "/".join((*namespace, key)).replace(BETWEEN, " ")[:SHOWN_CHARACTERS]
    return f"{shown}{BETWEEN}{hashlib.sha256(_encode([*namespace, key])).hexdigest()}"


def _placed(ops: Sequence[ItemOp], kind: type[Op]) -> Iterator[tuple[int, Op]]:
    return ((place, op) for place, op in enumerate(ops) if isinstance(op, kind))


def _last_writes(ops: Sequence[ItemOp]) -> dict[int, PutItem | DeleteItem]:
    """Of several writes of one key, the last."""
    places: dict[tuple[Namespace, str], int] = {}
    for place, op in enumerate(ops):
        if isinstance(op, PutItem | DeleteItem):
            places[op.namespace, op.key] = place
    return {place: cast("PutItem | DeleteItem", ops[place]) for place in sorted(places.values())}


def _item(row: Sequence[Any]) -> StoredItem:
    memory_id, position, namespace, key, value, *times = row
    return StoredItem(memory_id, position, tuple(namespace), key, msgspec.Raw((value or "").encode()), *times)


def _size(known: _Known) -> int:
    return memoryview(known.item.value).nbytes


def _check_deletions(whose: _Whose, ended: Iterable[_Known | None]) -> None:
    """As memories are forgotten."""
    who = whose.principal
    if whose.user_id is not None or who.is_admin:
        return
    if any(found.said_by != who.user_id for found in ended if found is not None):
        raise Forbidden("the item is the workspace's: who put it or an administrator can delete it")


def _due(known: Iterable[_Known], now: datetime) -> list[_Known]:
    """Items with a time to live of which enough has passed, each once."""
    return list(
        {
            found.item.memory_id: found
            for found in known
            if found.ttl_s is not None
            and found.item.expires_at is not None
            and found.item.expires_at - now <= timedelta(seconds=found.ttl_s * (1 - RENEWED_PART))
        }.values()
    )


async def _namespaces(tx: Tx, whose: _Whose, place: int, op: ListNamespaces, room: _Room) -> list[Namespace]:
    for number, condition in enumerate(op.conditions):
        _check_labels(f"ops[{place}].conditions[{number}].path", condition.path)
    values = whose.values(
        conditions=_encode(op.conditions).decode(), depth=op.max_depth, limit=op.limit, offset=op.offset
    )
    rows = await (await tx.execute(_SQL["namespaces"], values, binary=True)).fetchall()
    room.take(f"ops[{place}]", (sum(len(label.encode()) + 1 for label in row[0]) for row in rows))
    return [tuple(row[0]) for row in rows]


def _path_range(namespace: Namespace) -> dict[str, str]:
    """Between which paths those are that begin with these labels: the sign after a full stop is a slash."""
    first = "".join(f"{label}." for label in namespace)
    return {"first": first, "last": f"{first[:-1]}/" if first else _PAST_ALL}


# --- what may be asked ----------------------------------------------------------------------------------------------


def _check_ops(ops: Sequence[ItemOp]) -> None:
    check_limit(len(ops), MAX_OPS, "ops")
    ids = [op.memory_id for op in ops if isinstance(op, PutItem) and op.memory_id is not None]
    if len(set(ids)) < len(ids):
        raise refused("ops", "each memory_id can be given once")
    searches = [op for op in ops if isinstance(op, SearchItems | ListNamespaces)]
    if len(searches) > MAX_SEARCHES:
        raise refused("ops", f"at most {MAX_SEARCHES} searches and lists at once")
    if sum(isinstance(op, SearchItems) and bool(op.query.strip()) for op in searches) > MAX_QUESTIONS:
        raise refused("ops", f"at most {MAX_QUESTIONS} searches with a query at once")
    for place, op in enumerate(ops):
        field = f"ops[{place}]"
        if isinstance(op, GetItem | PutItem | DeleteItem):
            _check_labels(f"{field}.namespace", op.namespace)
            if not op.namespace:
                raise refused(f"{field}.namespace", "must have a label")
            check_name(f"{field}.key", op.key, MAX_IDENTIFIER_CHARACTERS)
            continue
        check_limit(op.limit, MAX_FOUND, f"{field}.limit")
        if not 0 <= op.offset <= MAX_OFFSET:
            raise refused(f"{field}.offset", f"from 0 to {MAX_OFFSET:,}")
        if isinstance(op, SearchItems):
            _check_search(field, op)
        elif op.max_depth is not None:
            check_limit(op.max_depth, MAX_LABELS, f"{field}.max_depth")
        if isinstance(op, ListNamespaces) and len(op.conditions) > MAX_CONDITIONS:
            raise refused(f"{field}.conditions", f"at most {MAX_CONDITIONS}")


def _check_search(field: str, op: SearchItems) -> None:
    _check_labels(f"{field}.namespace", op.namespace)
    if op.query.strip():
        check_name(f"{field}.query", op.query, MAX_QUERY_CHARACTERS)
        if op.offset + op.limit > MAX_PAGE_MEMORIES:
            raise refused(f"{field}.limit", f"with a query, at most {MAX_PAGE_MEMORIES} together with the offset")
    if len(list(_conditions(f"{field}.filter", op.filter))) > MAX_CONDITIONS:
        raise refused(f"{field}.filter", f"at most {MAX_CONDITIONS} conditions")


def _check_labels(field: str, namespace: Namespace) -> None:
    if len(namespace) > MAX_LABELS:
        raise refused(field, f"at most {MAX_LABELS} labels")
    for label in namespace:
        check_name(field, label, MAX_IDENTIFIER_CHARACTERS)
        if "." in label:
            raise refused(field, "a label must not contain a full stop")
    if sum(len(label.encode()) + 1 for label in namespace) > MAX_PATH_BYTES:
        raise refused(field, f"at most {MAX_PATH_BYTES:,} bytes, with one after each label")


def _conditions(field: str, wanted: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """A filter as a list of comparisons. A name with a sign compares; without one it leads further in."""
    for name, value in wanted.items():
        if _NUL.search(_encode([name, value]).decode()):
            raise refused(field, "must not contain a NUL character")
        if path and name.startswith("$"):
            if name not in _SIGNS:
                raise refused(field, f"{name} is no comparison; known: {', '.join(sorted(_SIGNS))}")
            yield {"path": path, "sign": name, "value": value}
        elif isinstance(value, dict) and value:
            yield from _conditions(field, cast("dict[str, Any]", value), (*path, name))
        else:
            yield {"path": (*path, name), "sign": "$eq", "value": value}


def _sound(whose: _Whose, field: str, op: PutItem) -> _Put:
    """A put that can be remembered, with what its profile keeps out of memory taken out. Raises where it refuses."""
    check_clean(
        whose.profile_name, whose.profile, **{f"{field}.namespace": " ".join(op.namespace), f"{field}.key": op.key}
    )
    if op.subject_id is not None:
        check_name(f"{field}.subject_id", op.subject_id, MAX_IDENTIFIER_CHARACTERS)
    if op.ttl_s is not None and not (math.isfinite(op.ttl_s) and MIN_TTL_S <= op.ttl_s <= MAX_TTL_S):
        raise refused(f"{field}.ttl_s", f"from {MIN_TTL_S:g} to {MAX_TTL_S:,.0f} seconds")
    value = _json(f"{field}.value", bytes(op.value))
    done = sanitise_json(value, whose.profile.sanitise)
    _check_refused(whose, f"{field}.value", done.refused)
    text = op.text.strip()[:MAX_TEXT_CHARACTERS]
    problem = text_problem(text, MAX_TEXT_CHARACTERS) if text else None
    if problem is not None:
        raise refused(f"{field}.text", problem)
    cleaned = sanitise(text, whose.profile.sanitise)
    _check_refused(whose, f"{field}.text", cleaned.refused)
    found: dict[str, int] = {**cleaned.found, **done.found}
    return _Put(op, key_of(op.namespace, op.key), cleaned.text, done.text.encode(), found)


def _check_refused(whose: _Whose, field: str, categories: Sequence[str]) -> None:
    if categories:
        what = ", ".join(category.replace("_", " ") for category in categories)
        raise refused(field, f"holds what the profile {whose.profile_name} refuses: {what}")


def _json(field: str, sent: bytes) -> str:
    _check_size(field, len(sent))
    try:
        value = _object.decode(sent)
        text = sent.decode()
    except RecursionError:
        raise refused(field, _TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused(field, f"is not a JSON object: {error}") from None
    if _is_too_deep(value):
        raise refused(field, _TOO_DEEP)
    if _NUL.search(text):
        raise refused(field, "must not contain a NUL character")
    if _POWER.search(text):
        text = _TOKEN.sub(_written_out, text)
        _check_size(field, len(text.encode()))
    return text


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_VALUE_LEVELS):
        level = [child for each in level for child in _children(each) if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    whole = cast("dict[str, object] | list[object]", value)
    return whole.values() if isinstance(whole, dict) else whole


def _check_size(field: str, size: int) -> None:
    if size > MAX_VALUE_BYTES:
        message = f"takes {size:,} bytes, and at most {MAX_VALUE_BYTES:,} are kept"
        raise TooLarge(f"{field}: {message}", (FieldError(field, message),))


def _written_out(found: re.Match[str]) -> str:
    """1e23 as what has a point: without one it would come back as an integer, which to Python is another number."""
    number = found[0]
    if number.startswith('"') or not _POWER.search(number):
        return number
    digits = f"{Decimal(number):f}"
    return digits if "." in digits else f"{digits}.0"


# --- what is written ------------------------------------------------------------------------------------------------


def _event(
    whose: _Whose, event_id: UUID, event_type: str, subject_id: str | None = None, parent: UUID | None = None
) -> Event:
    return Event(
        event_id=event_id,
        event_type=event_type,
        occurred_at=whose.now,
        session_id=whose.within.session_id or f"memory:{whose.agent}",
        trace_id=whose.within.trace_id or event_id.hex,
        agent_id=whose.agent,
        user_id=whose.by,
        subject_id=subject_id,
        parent_event_id=parent or whose.within.parent_event_id,
        status="completed",
    )


def _put_event(whose: _Whose, put: _Put, known: _Known | None, vector: Vector | None) -> OwnEvent:
    """Always another memory than the one before it, also where it says the same: it was put again."""
    op = put.op
    event_id = op.memory_id or new_id()
    event = _event(whose, event_id, "memory.remembered", op.subject_id)
    item: dict[str, Any] = {"namespace": op.namespace, "key": op.key, "value": msgspec.Raw(put.value)}
    if known is not None:
        item["created_at"] = known.item.created_at
    teller = f"session:{whose.within.session_id}" if whose.within.session_id else f"user:{whose.principal.user_id}"
    document = Document(
        agent=whose.agent,
        body=put.text,
        body_hash=hashlib.sha256(event_id.bytes).hexdigest(),
        conflict="validity",
        conflict_key=put.conflict_key,
        effect="remember",
        event_id=event_id,
        importance=DEFAULT_IMPORTANCE,
        item=item,
        kind="semantic",
        object_key=event_id.hex,
        profile=whose.profile_name,
        said_by=whose.principal.user_id,
        sanitised=put.sanitised or None,
        sources=[{"source": teller, "role": "told"}],
        subject_id=subject_of(event),
        tier="persistent",
        ttl_s=op.ttl_s,
        user_id=whose.user_id,
    )
    written = _encode(document)
    return OwnEvent(event, b'{"memory":%b}' % written, Effect(written, event_id, vector))


def _delete_event(whose: _Whose, known: _Known) -> OwnEvent:
    """Sealed as what it ends is: were the one erased without the other, a replay would bring the item back."""
    subject_id = known.subject_id if known.subject_id not in ("", whose.by) else None
    event = _event(whose, new_id(), "memory.forgotten", subject_id, known.item.memory_id)
    return own_event(event, {"effect": "forget", "memory_id": known.item.memory_id})


def _renewal(whose: _Whose, known: Sequence[_Known]) -> OwnEvent:
    event = _event(whose, new_id(), "memory.items_renewed")
    renewed = [{"memory_id": found.item.memory_id, "ttl_s": found.ttl_s} for found in known]
    return own_event(event, {"effect": "renew_items", "renewed": renewed})
