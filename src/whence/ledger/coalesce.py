"""Coalescing: appends that arrive while a commit is under way share the next one.

Each workspace has one lane, which stores one group at a time. The next group is every small append that arrived
meanwhile, so that each waits for at most two commits: the one under way, and its own. Large batches gain nothing from
sharing a commit; a group takes one of them, in turn, so that the server reads the next while the database stores this.
So do batches that come in parts: a group takes one part, and where it fails those that follow it fail with it.
When a group fails, it is halved until the entry that fails stands alone, or with those that it is to be stored with.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import psycopg
from prometheus_client import CollectorRegistry, Histogram

from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.trip import Said
from whence.errors import FieldError, Overloaded, RepeatsCanon, Unavailable, WhenceError
from whence.ledger.append import Block, Entry, Outcome, accepted, append, head_in, positions_for, statements_of
from whence.ledger.effects import came_of_trip
from whence.logs import tell_failure

MAX_QUEUED_EVENTS = 10_000
MAX_QUEUED_BYTES = 128 << 20
LARGE_BATCH_EVENTS = 200
SLICE_EVENTS = 100
HALVED_WAITERS = 32
"""So many that wait for an idle lane go in two groups."""
HALVED_EFFECTS = 6
"""The same of events that do something, such as memories: to make one ready takes about as long as to store it, and to
make others ready meanwhile is worth a commit more."""
EARLY_EVENTS = 8
EARLY_BYTES = 16 << 10
"""So many events, or fewer, with so much payload together are given their positions while they are sealed and encoded.
From then on other processes that append to the workspace wait, and for more it takes a while."""
ENCODED_WAITERS = 64
"""So many small appends are encoded together as soon as they wait, while the database is busy with others."""
GROUP_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, MAX_QUEUED_EVENTS)

_SAME_TEXT = "memories_same_text"
"""By which the database refuses a memory that is taken to be new and was told before."""
_CANON = "memories_canon"
DONE_BEFORE: Final = FieldError("event", "somebody has done the same before")
"""Of what is to be told once, and would have changed nothing."""
# What the database refuses although the event passed our own checks.
_REFUSED_BY = {
    "effects_once": DONE_BEFORE,
    # Perhaps a while ago and by another process, which the sender cannot know: sent again it is sealed by a new key.
    "payloads_subject_key": FieldError(
        "subject_id", "this subject was erased meanwhile; send it again", Unavailable.code
    ),
    "memories_run_over": FieldError("run_id", "the run is over, or gone"),
    "memories_episode_cap": FieldError("run_id", "the workspace has as many episodes as it may have, 100,000"),
    "workflows_one_name": FieldError("name", "is that of another variant that is in use"),
    "workflows_cap": FieldError("task_type", "has as many variants in use as it may have, 100; retire one"),
    "workflow_selections_in_use": FieldError("workflow_id", "is retired"),
    "memories_overridden_once": FieldError("id", "was overridden or forgotten meanwhile"),
    "conversation_messages_live": FieldError("conversation_id", "there is no such conversation"),
    "conversations_room": FieldError("conversation_id", "has as many messages as it may have"),
}


@dataclass(eq=False, slots=True)
class _Waiting:
    entries: Sequence[Entry]
    size: int
    outcomes: asyncio.Future[list[Outcome]]
    block: Block | None
    """A large batch is encoded before it waits."""
    parts: "Parts | None" = None

    def fail(self, error: WhenceError) -> None:
        if self.parts is not None:
            self.parts.failure = error
        if not self.outcomes.done():
            self.outcomes.set_exception(error)


@dataclass(eq=False, slots=True)
class Parts:
    """A batch that is put part by part. They are stored in this order, and none after one that failed: what is stored
    is what the batch begins with, and who sends it again gets the rest after it."""

    events: int
    """Of all parts, at most. There is room for all of them or for none."""
    is_let_in: bool = False
    failure: WhenceError | None = None


class _Group(NamedTuple):
    """What is stored together: small appends, of which the first may be encoded already, and then a large one."""

    waiting: list[_Waiting]
    encoded: list[Block]

    def block(self, entries: Sequence[Entry]) -> Block | None:
        large = self.waiting[-1].block
        blocks = list(self.encoded)
        between = entries[sum(block.count for block in blocks) : len(entries) - (large.count if large else 0)]
        if between:
            block = _encoded(between)
            if block is None:
                return None
            blocks.append(block)
        return Block.joined([*blocks, large] if large else blocks)


class _Lane:
    def __init__(self) -> None:
        self.small: list[_Waiting] = []
        self.large: deque[_Waiting] = deque()
        self.encoded: list[Block] = []
        """Of the first of the small ones."""
        self.unencoded = 0
        self.busy = False
        self.queued_events = 0
        self.queued_bytes = 0
        self.worker: asyncio.Task[None] | None = None

    def put(self, waiting: _Waiting) -> None:
        self.queued_events += len(waiting.entries)
        self.queued_bytes += waiting.size
        if self.busy or not _is_early(self.queued_events, self.queued_bytes):
            # While the database is busy with others, or before others have their turn here; else while it begins.
            for entry in waiting.entries:
                if entry.payload is not None:
                    entry.payload.done()
        if waiting.block or waiting.parts:
            self.large.append(waiting)
            return
        self.small.append(waiting)
        self.unencoded += 1
        if self.busy and self.unencoded == ENCODED_WAITERS:
            block = _encoded([entry for one in self.small[-ENCODED_WAITERS:] for entry in one.entries])
            if block is not None:
                self.encoded.append(block)
                self.unencoded = 0

    def take(self) -> _Group | None:
        """The next group.

        Many that wait for an idle lane are clients that one commit has answered together. Of them the first group takes
        half: from then on the halves take turns, one here and one in the database.
        """
        count = len(self.small)
        halved = HALVED_EFFECTS if count and self.small[0].entries[0].effect is not None else HALVED_WAITERS
        share = count if self.busy or count < halved else count // 2
        group, self.small = _Group(self.small[:share], self.encoded), self.small[share:]
        self.encoded, self.unencoded = [], len(self.small)
        if self.large:
            group.waiting.append(self.large.popleft())
        self.queued_events -= sum(len(waiting.entries) for waiting in group.waiting)
        self.queued_bytes -= sum(waiting.size for waiting in group.waiting)
        self.busy = bool(group.waiting)
        return group if group.waiting else None


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
        return await (await self.put(workspace_id, entries))

    async def put(
        self, workspace_id: str, entries: Sequence[Entry], parts: Parts | None = None
    ) -> asyncio.Future[list[Outcome]]:
        """Returns when they wait for their turn; what it returns is done when they are committed. `parts` is the batch
        that they are a part of."""
        if not entries:
            nothing: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
            nothing.set_result([])
            return nothing
        size = _bytes_of(entries)
        block = await _encode_in_slices(entries) if len(entries) >= LARGE_BATCH_EVENTS else None
        lane = self._lanes.get(workspace_id)
        if lane is None:
            lane = self._lanes[workspace_id] = _Lane()
        if parts is None or not parts.is_let_in:
            count = len(entries) if parts is None else parts.events
            if lane.queued_events + count > MAX_QUEUED_EVENTS or lane.queued_bytes + size > MAX_QUEUED_BYTES:
                raise Overloaded("too many events are waiting to be stored; try again in a second")
        if parts is not None:
            parts.is_let_in = True
        waiting = _Waiting(entries, size, asyncio.get_running_loop().create_future(), block, parts)
        lane.put(waiting)
        if lane.worker is None:
            lane.worker = asyncio.create_task(self._work(workspace_id, lane))
        return waiting.outcomes

    async def drain(self) -> None:
        """Waits until everything that was accepted is stored."""
        workers = [lane.worker for lane in self._lanes.values() if lane.worker is not None]
        await asyncio.gather(*workers, return_exceptions=True)

    async def _work(self, workspace_id: str, lane: _Lane) -> None:
        """Stores group after group. The next one is sent before the last one's senders are told, and get busy here."""
        tell = _nobody
        try:
            while group := lane.take():
                if tell is _nobody:
                    tell = await self._store_group(workspace_id, group)
                else:
                    storing = asyncio.ensure_future(self._store_group(workspace_id, group))
                    await asyncio.sleep(0)
                    tell()
                    tell = await storing
                if not lane.small and not lane.large:
                    tell()
                    tell = _nobody
        finally:
            tell()
            self._lanes.pop(workspace_id, None)
            for waiting in (*lane.small, *lane.large):
                waiting.fail(Overloaded("shutting down"))

    async def _store_group(self, workspace_id: str, group: _Group) -> Callable[[], None]:
        """Returns what tells the senders, whatever became of their entries."""
        last = group.waiting[-1]
        if last.parts is not None and last.parts.failure is not None:
            last.fail(last.parts.failure)
            if len(group.waiting) == 1:
                return _nobody
            group = group._replace(waiting=group.waiting[:-1])
        entries = [entry for waiting in group.waiting for entry in waiting.entries]
        self._group_sizes.observe(len(entries))
        try:
            outcomes = await self._store(workspace_id, entries, lambda: group.block(entries) or Block.of(entries))
        except BaseException as error:
            for waiting in group.waiting:
                waiting.fail(_as_answer(error))
            if not isinstance(error, Exception):
                raise
            return _nobody
        self._count(outcomes)
        return lambda: self._tell(workspace_id, group.waiting, outcomes)

    def _tell(self, workspace_id: str, told: list[_Waiting], outcomes: list[Outcome]) -> None:
        start = 0
        for waiting in told:
            end = start + len(waiting.entries)
            if not waiting.outcomes.done():
                waiting.outcomes.set_result(outcomes[start:end])
            start = end
        last = max((o.position for o in outcomes if o.status == "accepted" and o.position), default=0)
        if last:
            self._on_commit(workspace_id, last)

    async def _store(
        self, workspace_id: str, entries: Sequence[Entry], encode: Callable[[], Block] | None = None
    ) -> list[Outcome]:
        """As if none was stored before, which is nearly always so; else with a look at each; else in halves.

        `encode` is called while the database begins, or has given the positions; without it the entries are encoded
        before, because a connection is lost where one of them cannot be.
        """
        try:
            try:
                return await self._store_fresh(workspace_id, entries, encode or _done(Block.of(entries)))
            except (psycopg.errors.UniqueViolation, Unavailable):
                # Some are stored already, or the connection was lost and they may be.
                async with self._database.transaction(Scope(workspace_id)) as tx:
                    return await append(tx, workspace_id, entries, self._clock())
        except (psycopg.IntegrityError, psycopg.DataError, ValueError) as error:
            middle = _middle(entries)
            if middle is None:
                for entry in entries:
                    self._on_refusal(workspace_id, entry)
                return [Outcome("rejected", None, (refusal_in(error),))] * len(entries)
        return [
            *await self._store(workspace_id, entries[:middle]),
            *await self._store(workspace_id, entries[middle:]),
        ]

    async def _store_fresh(
        self, workspace_id: str, entries: Sequence[Entry], encode: Callable[[], Block]
    ) -> list[Outcome]:
        positions = positions_for(workspace_id, len(entries))
        is_early = _is_early(len(entries), _bytes_of(entries))
        blocks: list[Block] = []

        def statements() -> Iterator[Said | None]:
            # The database does the first of it while the events are encoded here.
            if is_early:
                yield positions
            yield None
            blocks.append(encode())
            if not is_early:
                yield positions
            yield from statements_of(workspace_id, blocks[0], self._clock())

        scope = Scope(workspace_id)
        try:
            rows = await self._database.one_trip(scope, statements())
        except psycopg.errors.UniqueViolation as error:
            if error.diag.constraint_name != _SAME_TEXT:
                raise
            again = statements_of(workspace_id, blocks[0], self._clock(), told_before=True)
            rows = await self._database.one_trip(scope, [positions, *again])
        head = head_in(rows, workspace_id)
        came_of = came_of_trip(rows[1]) if len(rows) > 1 else {}
        return [accepted(position, head, came_of) for position in range(head + 1, head + len(entries) + 1)]


def _is_early(events: int, payload_bytes: int) -> bool:
    return events <= EARLY_EVENTS and payload_bytes <= EARLY_BYTES


def _bytes_of(entries: Sequence[Entry]) -> int:
    return sum(entry.payload.size for entry in entries if entry.payload is not None)


def _done(block: Block) -> Callable[[], Block]:
    return lambda: block


def _middle(entries: Sequence[Entry]) -> int | None:
    """Where to halve them: not between those that are to be stored together. None where there is no such place."""
    middle = len(entries) // 2
    places = (
        place
        for distance in range(middle + 1)
        for place in (middle - distance, middle + distance)
        if 0 < place < len(entries)
    )
    for place in places:
        before, after = entries[place - 1].together, entries[place].together
        if before is None or before != after:
            return place
    return None


async def _encode_in_slices(entries: Sequence[Entry]) -> Block | None:
    """Lets others run in between: the group under way should not wait for this one's encoding."""
    blocks: list[Block] = []
    for start in range(0, len(entries), SLICE_EVENTS):
        block = _encoded(entries[start : start + SLICE_EVENTS])
        if block is None:
            return None
        blocks.append(block)
        await asyncio.sleep(0)
    return Block.joined(blocks)


def _encoded(entries: Sequence[Entry]) -> Block | None:
    """None where an entry cannot be encoded; which one comes out when its group is halved."""
    try:
        return Block.of(entries)
    except ValueError:
        return None


def is_refusal(error: psycopg.Error) -> bool:
    """Whether the sender is to blame, who could not know it or was not asked."""
    return error.diag.constraint_name in {_CANON, *_REFUSED_BY}


def refusal_in(error: Exception) -> FieldError:
    """Names what was refused without the message of the database, which may quote the content."""
    constraint = error.diag.constraint_name if isinstance(error, psycopg.Error) else None
    if isinstance(error, psycopg.Error) and constraint == _CANON:
        # The detail names the rule and holds no text.
        field = "fact.object" if error.diag.column_name == "fact_object" else "text"
        return FieldError(field, f"repeats a rule of its world: {error.diag.message_detail}", RepeatsCanon.code)
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
    tell_failure("storing of events", error)
    return Unavailable("the events could not be stored; the log says why")
