"""Coalescing: appends that arrive while a commit is under way share the next one.

Each workspace has one lane, which stores one group at a time. The next group is every small append that arrived
meanwhile, so that each waits for at most two commits: the one under way, and its own. Large batches gain nothing from
sharing a commit; a group takes one of them, in turn, so that the server reads the next while the database stores this.
When a group fails, it is halved until the entry that fails stands alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psycopg
import structlog
from prometheus_client import CollectorRegistry, Histogram

from whence.clock import Clock
from whence.db import Database, Scope
from whence.errors import FieldError, Overloaded, Unavailable, WhenceError
from whence.ledger.append import Block, Entry, Outcome, append, head_in, trip_of

log = structlog.get_logger()

MAX_QUEUED_EVENTS = 10_000
MAX_QUEUED_BYTES = 128 << 20
LARGE_BATCH_EVENTS = 200
SLICE_EVENTS = 100
HALVED_WAITERS = 32
GROUP_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, MAX_QUEUED_EVENTS)

# What the database refuses although the event passed our own checks.
_REFUSED_BY = {
    "payloads_subject_key": FieldError("subject_id", "the key of this subject is gone; send the event again"),
}


@dataclass(eq=False, slots=True)
class _Waiting:
    entries: Sequence[Entry]
    size: int
    outcomes: asyncio.Future[list[Outcome]]
    block: Block | None
    """A large batch is encoded before it waits, while the database is busy with another."""

    def fail(self, error: WhenceError) -> None:
        if not self.outcomes.done():
            self.outcomes.set_exception(error)


@dataclass
class _Lane:
    small: list[_Waiting] = field(default_factory=list[_Waiting])
    large: deque[_Waiting] = field(default_factory=deque[_Waiting])
    queued_events: int = 0
    queued_bytes: int = 0
    worker: asyncio.Task[None] | None = None

    def put(self, waiting: _Waiting) -> None:
        self.queued_events += len(waiting.entries)
        self.queued_bytes += waiting.size
        (self.large if waiting.block else self.small).append(waiting)

    def take(self, first: bool) -> list[_Waiting]:
        """The next group.

        Many that wait for an idle lane are clients that one commit has answered together. Of them the first group takes
        half: from then on the halves take turns, one here and one in the database.
        """
        share = len(self.small) // 2 if first and len(self.small) >= HALVED_WAITERS else len(self.small)
        group, self.small = self.small[:share], self.small[share:]
        if self.large:
            group.append(self.large.popleft())
        self.queued_events -= sum(len(waiting.entries) for waiting in group)
        self.queued_bytes -= sum(waiting.size for waiting in group)
        return group


def _nobody() -> None:
    """Tells nobody."""


class Coalescer:
    def __init__(
        self,
        database: Database,
        clock: Clock,
        registry: CollectorRegistry,
        on_commit: Callable[[str, int], None],
        on_refusal: Callable[[str, Entry], None],
        count: Callable[[Sequence[Outcome]], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._on_commit = on_commit
        self._on_refusal = on_refusal
        self._count = count
        self._lanes: dict[str, _Lane] = {}
        self._group_sizes = Histogram(
            "whence_append_group_events", "Events in one commit", buckets=GROUP_BUCKETS, registry=registry
        )

    async def store(self, workspace_id: str, entries: Sequence[Entry]) -> list[Outcome]:
        """Returns when the entries are committed. When it raises, some may be: the sender can send all again."""
        size = sum(len(entry.ciphertext or b"") for entry in entries)
        block = await _encode_in_slices(entries) if len(entries) >= LARGE_BATCH_EVENTS else None
        lane = self._lanes.get(workspace_id)
        if lane is None:
            lane = self._lanes[workspace_id] = _Lane()
        if lane.queued_events + len(entries) > MAX_QUEUED_EVENTS or lane.queued_bytes + size > MAX_QUEUED_BYTES:
            raise Overloaded("too many events are waiting to be stored; try again in a second")
        waiting = _Waiting(entries, size, asyncio.get_running_loop().create_future(), block)
        lane.put(waiting)
        if lane.worker is None:
            lane.worker = asyncio.create_task(self._work(workspace_id, lane))
        return await waiting.outcomes

    async def drain(self) -> None:
        """Waits until everything that was accepted is stored."""
        workers = [lane.worker for lane in self._lanes.values() if lane.worker is not None]
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, workspace_id: str, lane: _Lane) -> None:
        """Stores group after group. The next one is sent before the last one's senders are told, and get busy here."""
        tell = _nobody
        first = True
        try:
            while group := lane.take(first):
                storing = asyncio.ensure_future(self._store_group(workspace_id, group))
                await asyncio.sleep(0)
                tell()
                tell, first = await storing, False
                if not lane.small and not lane.large:
                    tell()
                    tell = _nobody
        finally:
            tell()
            self._lanes.pop(workspace_id, None)
            for waiting in (*lane.small, *lane.large):
                waiting.fail(Overloaded("shutting down"))

    async def _store_group(self, workspace_id: str, group: list[_Waiting]) -> Callable[[], None]:
        """Returns what tells the senders, whatever became of their entries."""
        entries = [entry for waiting in group for entry in waiting.entries]
        self._group_sizes.observe(len(entries))
        try:
            outcomes = await self._store(workspace_id, entries, group[-1].block)
        except BaseException as error:
            for waiting in group:
                waiting.fail(_as_answer(error))
            if not isinstance(error, Exception):
                raise
            return _nobody
        self._count(outcomes)
        return lambda: self._tell(workspace_id, group, outcomes)

    def _tell(self, workspace_id: str, group: list[_Waiting], outcomes: list[Outcome]) -> None:
        start = 0
        for waiting in group:
            end = start + len(waiting.entries)
            if not waiting.outcomes.done():
                waiting.outcomes.set_result(outcomes[start:end])
            start = end
        last = max((o.position for o in outcomes if o.status == "accepted" and o.position), default=0)
        if last:
            self._on_commit(workspace_id, last)

    async def _store(self, workspace_id: str, entries: Sequence[Entry], encoded: Block | None = None) -> list[Outcome]:
        """As if none was stored before, which is nearly always so; else with a look at each; else in halves.

        `encoded` is the last of the entries, where they have been encoded already.
        """
        try:
            try:
                return await self._store_fresh(workspace_id, _block(entries, encoded))
            except (psycopg.errors.UniqueViolation, Unavailable):
                # Some are stored already, or the connection was lost and they may be.
                async with self._database.transaction(Scope(workspace_id)) as tx:
                    return await append(tx, workspace_id, entries, self._clock())
        except (psycopg.IntegrityError, psycopg.DataError, ValueError) as error:
            if len(entries) == 1:
                self._on_refusal(workspace_id, entries[0])
                return [Outcome("rejected", None, (_refusal(error),))]
        middle = len(entries) // 2
        return [
            *await self._store(workspace_id, entries[:middle]),
            *await self._store(workspace_id, entries[middle:]),
        ]

    async def _store_fresh(self, workspace_id: str, block: Block) -> list[Outcome]:
        rows = await self._database.one_trip(Scope(workspace_id), trip_of(workspace_id, block, self._clock()))
        head = head_in(rows, workspace_id)
        return [Outcome("accepted", position) for position in range(head + 1, head + block.count + 1)]


async def _encode_in_slices(entries: Sequence[Entry]) -> Block | None:
    """Lets others run in between: the group under way should not wait for this one's encoding.

    None where an entry cannot be encoded; which one comes out when the group is halved.
    """
    blocks: list[Block] = []
    for start in range(0, len(entries), SLICE_EVENTS):
        try:
            blocks.append(Block.of(entries[start : start + SLICE_EVENTS]))
        except ValueError:
            return None
        await asyncio.sleep(0)
    return Block.joined(blocks)


def _block(entries: Sequence[Entry], encoded: Block | None) -> Block:
    if encoded is None:
        return Block.of(entries)
    others = entries[: len(entries) - encoded.count]
    return Block.joined([Block.of(others), encoded]) if others else encoded


def _refusal(error: Exception) -> FieldError:
    """Names what was refused without the message of the database, which may quote the content."""
    constraint = error.diag.constraint_name if isinstance(error, psycopg.Error) else None
    if constraint in _REFUSED_BY:
        return _REFUSED_BY[constraint]
    return FieldError("event", f"the database refused it: {constraint or type(error).__name__}")


def _as_answer(error: BaseException) -> WhenceError:
    """A group's failure is told to each waiter; a server that stops is a failure to them, not their own end."""
    if isinstance(error, WhenceError):
        return error
    if not isinstance(error, Exception):
        return Overloaded("shutting down")
    # Not one of the events is to blame, so the sender should keep them and try again.
    log.error("events could not be stored", error=type(error).__name__, exc_info=error)
    return Unavailable("the events could not be stored; the log says why")
