"""Erasure: everything that is held on a person is removed, and a receipt says what that was.

One transaction removes the rows, the payloads and the keys, and stores the event that says so. What the person's events
had done to rows of others is settled after it, by replaying what is left. Until that is done a row says so, so that
whoever comes next, or a worker, takes it up where it was stopped.
"""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import psycopg
from psycopg import sql

from whence.clock import Clock
from whence.crypto import Shredded, SubjectKey, commit
from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Damaged, FieldError, InvalidInput, NotFound, NotSealed, Unavailable
from whence.graph.project import Projector
from whence.graph.rebuild import rebuild as rebuild_graph
from whence.identity import AUTHENTICATION_CACHE_SECONDS, Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.effects import Effect, OwnEvent
from whence.ledger.events import EARLIEST, MAX_IDENTIFIER_CHARACTERS, text_problem
from whence.ledger.payloads import WORKSPACE_SUBJECT, canonical
from whence.lifecycle.conversations import Threads, no_threads
from whence.memory import Memory
from whence.memory.rebuild import rebuild as rebuild_memory
from whence.memory.stubs import erased_hash
from whence.wire import Erasure, Event, Removed

ERASE_TIMEOUT_MS = 30 * 60 * 1000
SETTLE_AFTER = timedelta(seconds=60)
"""So long an erasure is left to whoever began it; then a worker takes it up."""
IN_FLIGHT_SECONDS = 0.5
"""More than servers remember keys for, so that requests that were let in have ended."""
HOLD_MS = 500
"""So long an erasure waits for those who write, before it lets go and begins again. That is before the database looks
for circles: somebody's transaction may hold the head and go on to write to a thread, or the other way round."""
HOLD_ATTEMPTS = 120
STEPS = ("rows", "keys", "memory", "graph")

Told = Callable[[str, int, int], None]
"""Is told which step it is at, how much of it is done, and how much there is."""

_SQL = load("whence.lifecycle")
_encode = msgspec.json.Encoder().encode


def nobody(_step: str, _done: int, _total: int) -> None:
    """Tells nobody."""


class Held(msgspec.Struct, frozen=True):
    memory_id: UUID


class Document(msgspec.Struct, frozen=True):
    """What the event of an erasure says. The subject is in it only as a keyed hash."""

    subject_hash: str
    erased_by: str
    removed: dict[str, Removed]
    shredded_keys: list[UUID]
    held: list[Held]


class Check(NamedTuple):
    """One thing that a receipt promises, and whether it is so."""

    what: str
    ok: bool
    detail: str


class Erasures:
    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        memory: Memory,
        projector: Projector,
        clock: Clock,
        threads: Threads = no_threads,
    ) -> None:
        self._database = database
        self.threads = threads
        self._ledger = ledger
        self._memory = memory
        self._projector = projector
        self._clock = clock
        # One at a time in a process: each works with several connections, and many that wait would leave none.
        self._turn = asyncio.Lock()

    async def erase(self, principal: Principal, subject_id: str, told: Told = nobody) -> Erasure:
        """Returns when all is done. For a subject that was erased and of whom nothing came since, the first receipt."""
        check_subject(subject_id)
        workspace_id = principal.workspace_id
        subject_hash = erased_hash(await self._key(workspace_id), subject_id)
        async with self._turn:
            # What an erasure that was stopped has left to do is not what came since.
            if await self._is_unsettled(workspace_id, subject_hash):
                await self._settle_all(workspace_id, told)
            await self._end_keys(workspace_id, subject_id)
            # What is still to be recorded of the person would come after the erasure.
            await self._ledger.behind.settled(workspace_id)
            erasure_id = await self._erase(principal, subject_id, subject_hash, told)
            await self._settle_all(workspace_id, told)
        return await self.get(Scope(workspace_id), erasure_id)

    async def _end_keys(self, workspace_id: str, subject_id: str) -> None:
        """So that nothing comes of the subject after what was there is removed: servers remember keys for a moment."""
        values = {"workspace_id": workspace_id, "subject_id": subject_id, "now": self._clock()}
        async with self._database.transaction(Scope(workspace_id)) as tx:
            ended = (await tx.execute(_SQL["end_keys"], values)).rowcount
        if ended:
            await asyncio.sleep(AUTHENTICATION_CACHE_SECONDS + IN_FLIGHT_SECONDS)

    async def _is_unsettled(self, workspace_id: str, subject_hash: str) -> bool:
        async with self._database.transaction(Scope(workspace_id)) as tx:
            values = {"workspace_id": workspace_id, "subject_hash": subject_hash}
            row = await (await tx.execute(_SQL["is_unsettled"], values)).fetchone()
        return row == (True,)

    async def _erase(self, principal: Principal, subject_id: str, subject_hash: str, told: Told) -> UUID:
        """Removes what is there; the id of the receipt, which is the last one where nothing is."""
        values = {"workspace_id": principal.workspace_id, "subject_id": subject_id, "subject_hash": subject_hash}
        told("rows", 0, 1)
        for _ in range(HOLD_ATTEMPTS):
            erasure_id = await self._try_to_erase(principal, values, told)
            if erasure_id is not None:
                return erasure_id
        raise Unavailable("somebody's transaction writes all the time: try again")

    async def _try_to_erase(self, principal: Principal, values: dict[str, Any], told: Told) -> UUID | None:
        workspace_id, subject_hash = principal.workspace_id, values["subject_hash"]
        erasure_id = new_id()
        async with self._database.transaction(Scope(workspace_id), timeout_ms=ERASE_TIMEOUT_MS) as tx:
            try:
                found = await self._erase_rows(tx, values)
            except psycopg.errors.LockNotAvailable:
                await tx.rollback()
                return None
            if found["removed"]:
                own = _event(erasure_id, principal, subject_hash, found, self._clock)
                position = await self._ledger.record_in(tx, workspace_id, own)
                shredded = _encode(found["keys"]).decode()
                unsettled = {**values, "erasure_id": erasure_id, "now": self._clock(), "shredded": shredded}
                await tx.execute(_SQL["add_unsettled"], unsettled)
                told("rows", 1, 1)
            else:
                erasure_id, position = await _last_of(tx, values), 0
        self._ledger.heads.moved(workspace_id, position)
        return erasure_id

    async def _erase_rows(self, tx: Tx, values: dict[str, Any]) -> dict[str, Any]:
        """Under the lock of the head nothing is added meanwhile."""
        await tx.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await tx.execute(_SQL["become_eraser"])
        await tx.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(HOLD_MS))
        await tx.execute(_SQL["erase_alone"], values)
        await tx.execute(_SQL["hold_head"], values)
        rows = await (await tx.execute(_SQL["conversations_of"], values)).fetchall()
        if rows:
            await self.threads(tx, values["workspace_id"], [row[0] for row in rows])
        ((found,),) = await (await tx.execute(_SQL["erase_rows"], values)).fetchall()
        await tx.execute("SET LOCAL lock_timeout TO DEFAULT")
        return found

    async def settle(self, workspace_id: str) -> bool:
        """Ends what erasures of the workspace have begun; says whether there was anything."""
        async with self._turn:
            return await self._settle_all(workspace_id, nobody)

    async def _settle_all(self, workspace_id: str, told: Told) -> bool:
        values = {"workspace_id": workspace_id}
        async with self._database.transaction(Scope(workspace_id), timeout_ms=ERASE_TIMEOUT_MS) as tx:
            await tx.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await tx.execute(_SQL["settle_alone"], values)
            rows = await (await tx.execute(_SQL["unsettled"], values)).fetchall()
            if rows:
                await self._settle(workspace_id, msgspec.convert([row[1] for row in rows], list[list[Any]]), told)
                await tx.execute(_SQL["settled"], {**values, "erasure_ids": [row[0] for row in rows]})
        return bool(rows)

    async def _settle(self, workspace_id: str, shredded: list[list[Any]], told: Told) -> None:
        """Any of it may be done twice, and does nothing the second time."""
        keys = [Shredded(UUID(key["key_id"]), key["fingerprint"]) for some in shredded for key in some]
        told("keys", 0, 1)
        await self._ledger.keys.shred(workspace_id, keys)
        told("memory", 0, 1)
        memory = (self._database, self._ledger, self._memory, workspace_id, False)
        await rebuild_memory(*memory, lambda done, total: told("memory", done, total))
        told("graph", 0, 1)
        graph = (self._database, self._projector, self._clock, workspace_id, False)
        await rebuild_graph(*graph, lambda done, total: told("graph", done, total))

    async def due(self) -> list[str]:
        """Workspaces with an erasure that whoever began it has not ended in a while."""
        return await self.unsettled(self._clock() - SETTLE_AFTER)

    async def unsettled(self, before: datetime) -> list[str]:
        """Workspaces with an erasure that was begun before then and has not come to its end."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["unsettled_due"], {"before": before})).fetchall()
        return [row[0] for row in rows]

    async def left_in_files(self, since: datetime | None) -> bool:
        """Whether anybody was erased since then, in any workspace; not while one is still being settled."""
        if await self.unsettled(self._clock()):
            return False
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            workspaces = await (await tx.execute(_SQL["workspaces"])).fetchall()
        for (workspace_id,) in workspaces:
            values = {"workspace_id": workspace_id, "since": since or EARLIEST}
            async with self._database.transaction(Scope(workspace_id)) as tx:
                if await (await tx.execute(_SQL["erased_since"], values)).fetchone() == (True,):
                    return True
        return False

    async def get(self, scope: Scope, erasure_id: UUID) -> Erasure:
        async with self._database.transaction(scope) as tx:
            values = {"workspace_id": scope.workspace_id, "erasure_id": erasure_id}
            row = await (await tx.execute(_SQL["erasure_by_id"], values)).fetchone()
        if row is None:
            raise NotFound("there is no such erasure")
        _, position, _, erased_at, _, document, settled = row
        return _receipt(scope.workspace_id, erasure_id, position, erased_at, document.encode(), settled)

    async def verify(self, receipt: Erasure) -> list[Check]:
        """Whether what a receipt says is so: by the ledger, by its seals, and by what is held now. What the erasure has
        left to do is done first."""
        scope = Scope(receipt.workspace_id)
        await self.settle(receipt.workspace_id)
        key = await self._key(receipt.workspace_id)
        return [
            *await self._check_event(scope, receipt, key),
            await self._check_keys(scope, receipt),
            await self._check_rows(scope, receipt, key),
        ]

    async def _check_event(self, scope: Scope, receipt: Erasure, key: SubjectKey) -> list[Check]:
        try:
            event = await self._ledger.get(scope, receipt.erasure_id)
            payload = await self._ledger.payload(scope, receipt.erasure_id)
        except NotFound as error:
            return [Check("event", False, error.detail)]
        if event.event_type != "system.subject_erased":
            return [Check("event", False, f"the event is a {event.event_type}")]
        said = bytes(msgspec.json.decode(payload, type=dict[str, msgspec.Raw])["memory"])
        written = _receipt(scope.workspace_id, event.event_id, event.global_position, event.recorded_at, said, True)
        same = written == receipt
        detail = f"on position {event.global_position}" if same else _difference(receipt, written)
        place = event.event_id.bytes + scope.workspace_id.encode()
        sealed = await self._check_seal(scope, receipt, commit(key.salt(place), canonical(payload)).hex())
        return [Check("event", same, detail), sealed]

    async def _check_seal(self, scope: Scope, receipt: Erasure, commitment: str) -> Check:
        """The proof is checked when it is made; what is left to compare is that the envelope commits to the payload."""
        try:
            proof = await self._ledger.seals.inclusion(scope, receipt.erasure_id)
        except NotSealed:
            return Check("seal", True, "not sealed yet: `whence seal`, and verify again")
        except Damaged as error:
            return Check("seal", False, error.detail)
        leaf = msgspec.json.decode(proof.leaf, type=dict[str, Any])
        same = leaf["payload_commitment"] == commitment
        return Check("seal", same, f"under the root {proof.root} of {proof.size} events" if same else "another payload")

    async def _check_keys(self, scope: Scope, receipt: Erasure) -> Check:
        values = {"workspace_id": scope.workspace_id, "key_ids": receipt.shredded_keys}
        async with self._database.transaction(scope) as tx:
            ((keys, payloads),) = await (await tx.execute(_SQL["keys_left"], values)).fetchall()
        left = f"{keys:,} keys and {payloads:,} payloads are there"
        return Check("keys", not keys and not payloads, left if keys or payloads else "gone, and their payloads")

    async def _check_rows(self, scope: Scope, receipt: Erasure, key: SubjectKey) -> Check:
        """By whoever's hash it is: envelopes go on naming their subjects."""
        values: dict[str, Any] = {"workspace_id": scope.workspace_id, "position": receipt.position}
        async with self._database.transaction(scope, timeout_ms=ERASE_TIMEOUT_MS) as tx:
            rows = await (await tx.execute(_SQL["named_before"], values)).fetchall()
            named = [row[0] for row in rows if erased_hash(key, row[0]) == receipt.subject_hash]
            found: list[Any] = []
            for subject_id in named:
                about = {**values, "subject_id": subject_id, "until": receipt.erased_at}
                found += await (await tx.execute(_SQL["subject_rows"], about)).fetchall()
        left = ", ".join(f"{count:,} in {name}" for name, count in found)
        return Check("rows", not found, f"there are rows of the subject: {left}" if found else "none of the subject")

    async def restored(self, workspace_id: str) -> list[str]:
        """Subjects that were erased, and that a restored backup has brought back."""
        return await self._ledger.keys.restored(workspace_id)

    async def _key(self, workspace_id: str) -> SubjectKey:
        return (await self._ledger.keys.ensure(workspace_id, {WORKSPACE_SUBJECT}))[WORKSPACE_SUBJECT]


def _difference(receipt: Erasure, written: Erasure) -> str:
    if receipt == msgspec.structs.replace(written, settled=False):
        return "the receipt says that it is not settled, which it is by now: get it again"
    return "the receipt is not what the ledger says"


def check_subject(subject_id: str) -> None:
    problem = text_problem(subject_id, MAX_IDENTIFIER_CHARACTERS)
    if problem is not None:
        raise InvalidInput(f"subject_id: {problem}", (FieldError("subject_id", problem),))


async def _last_of(tx: Tx, values: dict[str, Any]) -> UUID:
    row = await (await tx.execute(_SQL["last_erasure_of"], values)).fetchone()
    if row is None:
        raise NotFound("nothing is held on this subject: check how it is spelt")
    return row[0]


def _event(erasure_id: UUID, principal: Principal, subject_hash: str, found: dict[str, Any], clock: Clock) -> OwnEvent:
    """Of the workspace itself: it must stay readable when the person is forgotten."""
    document = _encode(
        {
            "effect": "erase_subject",
            "event_id": erasure_id,
            "subject_hash": subject_hash,
            "erased_by": principal.user_id,
            "removed": found["removed"],
            "shredded_keys": [key["key_id"] for key in found["keys"]],
            "held": found["held"],
        }
    )
    event = Event(
        event_id=erasure_id,
        event_type="system.subject_erased",
        occurred_at=clock(),
        session_id="erasures",
        trace_id=erasure_id.hex,
        status="completed",
    )
    return OwnEvent(event, _encode({"memory": msgspec.Raw(document)}), Effect(document, erasure_id))


def _receipt(
    workspace_id: str, erasure_id: UUID, position: int, erased_at: Any, document: bytes, settled: bool
) -> Erasure:
    said = msgspec.json.decode(document, type=Document)
    return Erasure(
        erasure_id=erasure_id,
        workspace_id=workspace_id,
        subject_hash=said.subject_hash,
        erased_at=erased_at,
        erased_by=said.erased_by,
        position=position,
        removed=said.removed,
        shredded_keys=said.shredded_keys,
        held=[held.memory_id for held in said.held],
        digest=hashlib.sha256(canonical(document)).hexdigest(),
        settled=settled,
    )
