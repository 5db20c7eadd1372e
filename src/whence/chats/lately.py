"""What users were given lately, as far as it takes to see that a message holds none of it.

Hashes are held and no texts, so there is nothing in it to erase. They are salted anew in each process.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from whence.chats.echo import MIN_ECHO_CHARACTERS, Echoes, Given, compared, query_hash
from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.arrays import Times, Uuids, scalar
from whence.db.queries import load
from whence.db.trip import Statement, rows_of
from whence.ledger import Ledger
from whence.wire import Recalled

RECENT_RECALLS = 20
"""The searches whose results are known when they come back in a message."""
RECENT = timedelta(hours=24)
MAX_GIVEN = 500
"""Texts of those searches, the newest."""
MAX_RECALLS_HELD = 10_000
MAX_BEGINNINGS_HELD = 100_000

_SQL = load("whence.chats")
_RECALLS = Statement("chats_recent_recalls", _SQL["recent_recalls"])
_TEXTS = Statement("chats_texts_given", _SQL["texts_given"])

Key = TypeVar("Key")
Value = TypeVar("Value")


class _Asked(msgspec.Struct):
    query: str = ""


class _Hit(msgspec.Struct):
    memory_id: str


class _Said(msgspec.Struct):
    """What counts in the payload of a recall."""

    asked: _Asked
    hits: list[_Hit]


class _Recalled(NamedTuple):
    query: int
    hits: tuple[str, ...]
    """As text, which is compared sooner than a UUID."""


class Lately:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._recalls: dict[tuple[str, UUID], _Recalled] = {}
        self._beginnings: dict[tuple[str, str], int | None] = {}
        """Of the texts of memories; None where one is too short to be known again. Ids are unique in a workspace."""

    def answered(self, workspace_id: str, query: str, found: Recalled) -> None:
        """A user was given this just now: what is said in it need not be read again."""
        begun = {str(hit.memory_id): _beginning(hit.text) for hit in found.hits}
        recalled = _Recalled(query_hash(query), tuple(begun))
        _hold(self._recalls, workspace_id, {found.recall_id: recalled}, MAX_RECALLS_HELD)
        _hold(self._beginnings, workspace_id, begun, MAX_BEGINNINGS_HELD)

    async def echoes(self, scope: Scope, agent: str, texts: Sequence[str]) -> Echoes:
        """What of that the messages may hold."""
        recalls = await self._recent(scope, agent)
        ids = list(dict.fromkeys(hit for recall in recalls for hit in recall.hits))[:MAX_GIVEN]
        if not ids:
            return Echoes((), ())
        beginnings = await self._begin(scope, agent, ids)
        said = {hash(part) for text in texts for part in _parts(text)}
        held = [memory_id for memory_id in ids if beginnings[memory_id] in said]
        given = await self._given(scope, agent, held) if held else []
        return Echoes(given, {recall.query for recall in recalls})

    async def _recent(self, scope: Scope, agent: str) -> list[_Recalled]:
        """The newest first: what was answered a moment ago is recorded a moment later."""
        waiting = {
            own.event.event_id: own.payload
            for own in reversed(self._ledger.behind.waiting(scope.workspace_id))
            if own.event.event_type == "memory.recalled"
            and (own.event.user_id, own.event.agent_id) == (scope.user_id, agent)
        }
        values = {
            **_owner(scope, agent),
            "since": scalar(Times, self._clock() - RECENT),
            "limit": RECENT_RECALLS.to_bytes(8),
        }
        (found,) = await self._database.one_trip(scope, [(_RECALLS, values)])
        recorded = {event_id: position for position, event_id in rows_of(found)}
        newest = list(waiting | recorded)[:RECENT_RECALLS]
        known = _held(self._recalls, scope, newest)
        new = {each: _recalled(payload) for each, payload in waiting.items() if each not in known}
        unread = [recorded[each] for each in newest if each in recorded and each not in known and each not in new]
        if unread:
            new |= await self._opened(scope, unread)
        if new:
            _hold(self._recalls, scope.workspace_id, new, MAX_RECALLS_HELD)
            known |= new
        return [known[event_id] for event_id in newest if event_id in known]

    async def _opened(self, scope: Scope, positions: list[int]) -> dict[UUID, _Recalled]:
        async with self._database.transaction(scope) as tx:
            sealed = await self._ledger.contents(tx, scope, positions)
        contents = await self._ledger.opened(scope, sealed)
        return {content.event_id: _recalled(content.body) for content in contents if content.body}

    async def _begin(self, scope: Scope, agent: str, ids: list[str]) -> dict[str, int | None]:
        known = _held(self._beginnings, scope, ids)
        new = [memory_id for memory_id in ids if memory_id not in known]
        if new:
            read = {str(each.memory_id): each.text for each in await self._given(scope, agent, new)}
            begun = {memory_id: _beginning(read.get(memory_id, "")) for memory_id in new}
            _hold(self._beginnings, scope.workspace_id, begun, MAX_BEGINNINGS_HELD)
            known |= begun
        return known

    async def _given(self, scope: Scope, agent: str, ids: list[str]) -> list[Given]:
        values = {
            **_owner(scope, agent),
            "ids": Uuids.of(list(map(UUID, ids))).binary,
            "least": MIN_ECHO_CHARACTERS.to_bytes(4),
        }
        (found,) = await self._database.one_trip(scope, [(_TEXTS, values)])
        return [Given(*row) for row in rows_of(found)]


def _owner(scope: Scope, agent: str) -> dict[str, bytes | None]:
    return {
        "workspace_id": scope.workspace_id.encode(),
        "user_id": (scope.user_id or "").encode(),
        "agent": agent.encode(),
    }


def _recalled(payload: bytes) -> _Recalled:
    said = msgspec.json.decode(payload, type=_Said)
    return _Recalled(query_hash(said.asked.query), tuple(hit.memory_id for hit in said.hits))


def _beginning(text: str) -> int | None:
    plain = compared(text)
    return hash(plain[:MIN_ECHO_CHARACTERS]) if len(plain) >= MIN_ECHO_CHARACTERS else None


def _parts(text: str) -> Iterable[str]:
    """All that a text could be found by which stands in this one."""
    plain = compared(text)
    return (plain[at : at + MIN_ECHO_CHARACTERS] for at in range(len(plain) - MIN_ECHO_CHARACTERS + 1))


def _held(held: dict[tuple[str, Key], Value], scope: Scope, keys: Iterable[Key]) -> dict[Key, Value]:
    names = ((key, (scope.workspace_id, key)) for key in keys)
    return {key: held[name] for key, name in names if name in held}


def _hold(held: dict[tuple[str, Key], Value], workspace_id: str, known: dict[Key, Value], most: int) -> None:
    """What has been held longest goes."""
    held.update({(workspace_id, key): value for key, value in known.items()})
    if len(held) > most:
        for name in list(islice(held, len(held) - most)):
            del held[name]
