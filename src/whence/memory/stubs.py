"""Stubs: what is left of what an event said, once its payload was disposed of.

A replay puts a stub where the payload was. It has no content, but it takes the same place among the others: what was
told again is known for the same by the id of its memory, and what was told in one place is known by one of those that
are still readable there. So replaying stubs ends with the rows that replaying the payloads gave.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from whence.crypto import SubjectKey
from whence.db import Scope, Tx
from whence.db.queries import load
from whence.errors import NotFound
from whence.ledger import Ledger
from whence.ledger.payloads import WORKSPACE_SUBJECT
from whence.memory.writing import document_of
from whence.wire import Disposal

RETENTION_TYPE: Final = "system.retention_applied"
ERASURE_TYPE: Final = "system.subject_erased"
STUB_EVENTS = 100
"""Events of retention that are read at once."""

_SQL = load("whence.memory")
_CONTENT: Final = ("body", "conflict_key", "fact_object", "fact_predicate", "fact_subject", "item", "object_key")


def stub_of(document: dict[str, Any], memory_id: UUID, disposal: Disposal, beside: UUID) -> dict[str, Any]:
    """`document` told `memory_id`; `beside` is another that was told in the same place, or itself."""
    stub = {name: value for name, value in document.items() if name not in _CONTENT}
    stub["body"] = ""
    stub["body_hash"] = hashlib.sha256(str(memory_id).encode()).hexdigest()
    if "object_key" in document:
        stub["object_key"] = str(memory_id)
    if disposal == "RETAIN_METADATA":
        kept = ("conflict_key", "fact_predicate", "fact_subject")
        stub |= {name: document[name] for name in kept if name in document}
        stub |= {"fact_object": ""} if "fact_object" in document else {}
    elif "conflict_key" in document:
        stub["beside"] = str(beside)
    return stub


def erased_hash(key: SubjectKey, subject_id: str) -> str:
    """How an erasure names whom it erased. Without the workspace's key nobody can find out by trying names."""
    return key.mark(f"erased subject:{subject_id}")


class Stubs:
    """Those of a workspace, read when the first payload is missed. What was told of somebody who was erased later has
    none: it is to be gone without a trace."""

    def __init__(self, ledger: Ledger, scope: Scope) -> None:
        self._ledger = ledger
        self._scope = scope
        self._read_upto = 0
        self._by_position: dict[int, dict[str, Any]] = {}
        self._by_event: dict[str, dict[str, Any]] = {}
        self._beside: defaultdict[str, set[str]] = defaultdict(set)
        self._keys: dict[str, str] = {}
        self._gone: set[int] = set()
        """Where what was disposed of has left nothing to put in its place: nothing is made again of a conversation."""
        self._erased: dict[str, int] = {}
        """By the hash of a subject, where it was erased last."""

    async def read(self, tx: Tx, head: int) -> None:
        """What was disposed of since the last time."""
        while self._read_upto < head:
            values = {
                "workspace_id": self._scope.workspace_id,
                "types": [RETENTION_TYPE, ERASURE_TYPE],
                "after": self._read_upto,
                "until": head,
                "limit": STUB_EVENTS,
            }
            rows = await (await tx.execute(_SQL["own_events"], values, binary=True)).fetchall()
            if not rows:
                self._read_upto = head
                return
            sealed = await self._ledger.contents(tx, self._scope, [position for position, _ in rows])
            for content in await self._ledger.opened(self._scope, sealed):
                if content.body is not None:
                    self._take(content.position, document_of(content.body))
            # What does not fit into one reading is left for the next.
            self._read_upto = sealed[-1].position if sealed else rows[-1][0]

    def _take(self, position: int, document: dict[str, Any]) -> None:
        if "subject_hash" in document:
            self._erased[document["subject_hash"]] = position
        for retired in document.get("retire", ()):
            self._gone.update(retired["positions"])
        for disposed in document.get("dispose", ()):
            for told in disposed["told"]:
                if "stub" in told:
                    self._by_position[told["position"]] = told["stub"]
                    self._link(told["stub"])

    def _link(self, stub: dict[str, Any]) -> None:
        self._by_event[stub["event_id"]] = stub
        if "beside" in stub:
            self._beside[stub["event_id"]].add(stub["beside"])
            self._beside[stub["beside"]].add(stub["event_id"])

    def gone_of(self, positions: Sequence[int]) -> int:
        """How many of these are missed by nobody."""
        return len(self._gone.intersection(positions))

    async def at(self, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The documents that stand at these positions, as far as there are stubs."""
        keys = await self._ledger.keys.ensure(self._scope.workspace_id, {WORKSPACE_SUBJECT})
        found = {place: self._by_position[place] for place in positions if place in self._by_position}
        return {
            place: await self._filled(stub)
            for place, stub in found.items()
            if self._erased.get(erased_hash(keys[WORKSPACE_SUBJECT], stub["subject_id"]), 0) < place
        }

    async def _filled(self, stub: dict[str, Any]) -> dict[str, Any]:
        if "beside" not in stub:
            return stub
        document = {name: value for name, value in stub.items() if name != "beside"}
        return {**document, "conflict_key": await self._key(stub["event_id"])}

    async def _key(self, event_id: str) -> str:
        """What the place is called by one of those in it that is still readable, else a name of its own."""
        if event_id not in self._keys:
            place = self._place(event_id)
            called = f"stubs:{min(place)}"
            for member in sorted(place):
                known = self._by_event.get(member, {}).get("conflict_key") or await self._told(member)
                called = known or called
            self._keys |= dict.fromkeys(place, called)
        return self._keys[event_id]

    def _place(self, event_id: str) -> set[str]:
        """All that were told in one place, as far as stubs lead."""
        found, left = set[str](), [event_id]
        while left:
            member = left.pop()
            if member not in found:
                found.add(member)
                left += self._beside[member]
        return found

    async def _told(self, event_id: str) -> str | None:
        try:
            return document_of(await self._ledger.payload(self._scope, UUID(event_id))).get("conflict_key")
        except (NotFound, KeyError, msgspec.DecodeError):
            return None
