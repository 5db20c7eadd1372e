"""Recall: the best evidence for a question, each hit with where it came from.

Memories are ranked by what this process holds of them, and then read from the database under the asker's own scope:
what was told a moment ago is there, what does not hold any more is not, and nobody is shown what is another's.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.arrays import Times, Uuids, scalar
from whence.db.queries import load
from whence.db.trip import Statement, rows_of
from whence.errors import NotFound
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.events import text_problem
from whence.memory import FOUND, MAX_PAGE_MEMORIES, Memory, check_asked, memory_of, unit_of
from whence.memory.own import Own, check_limit, own_event
from whence.memory.writing import GIVEN_EMBEDDER, refused, unit_given
from whence.models.embedder import WordLlamaEmbedder
from whence.orders import is_order
from whence.recall.corpus import Floats  # noqa: TC001  a block of its own would hide it among the imports
from whence.recall.distant import Distant, telling_of
from whence.recall.held import Corpora, Held, add
from whence.recall.ranking import MAX_RANKED, Ranked, diverse, rank, with_neighbours
from whence.recall.reranking import RERANKED, Reranked, Reranking
from whence.recall.scoring import MOST_WORDS, Asked
from whence.recall.showing import hit_of, shown, sources_in, within_budget
from whence.recall.when import times_in
from whence.recall.words import asked_words
from whence.wire import (
    Feedback,
    FeedbackKept,
    Hit,
    HitSource,
    Recall,
    Recalled,
    RecalledHit,
    RecallMeta,
    RecallRecord,
    StoredMemory,
    Within,
)

MAX_QUERY_CHARACTERS = 200_000
READ_CHARACTERS = 4_000
"""Of a question; what comes later does not count."""
MAX_NEIGHBOURS = 5
MAX_SOURCES_SHOWN = 20
"""Of one hit."""
MAX_TOKENS = 10_000_000
LARGE = 5_000
"""Memories; more are compared beside the event loop."""

_SQL = load("whence.recall")
_FRESH = Statement("recall_fresh", _SQL["entries_of_owner"])
_FRESH_OF_ALL = Statement("recall_fresh_of_all", _SQL["entries_of_all"])
_SOURCES = Statement("recall_sources", _SQL["sources_found"])


class _Found(NamedTuple):
    hits: list[Hit]
    distinct: int
    """How many of them, the first, say what no other does."""
    question: Asked
    searched: int


class Recaller:
    def __init__(
        self,
        database: Database,
        ledger: Ledger,
        clock: Clock,
        memory: Memory,
        words: WordLlamaEmbedder,
        distant: Distant,
        reranking: Reranking,
    ) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._memory = memory
        self.built_in = words
        self._own = Own(ledger, clock, memory.profiles)
        self._distant = distant
        self._corpora = Corpora(database, distant, words, memory.embedder.name)
        self._reranking = reranking
        memory.on_told = self.told

    def forget(self, workspace_id: str) -> None:
        self._corpora.forget(workspace_id)

    def told(self, workspace_id: str, owner: str) -> None:
        """Something of an owner's was just stored by this process: the next question reads it before it is ranked. What
        others store is found too, and then everything is ranked once more."""
        self._corpora.told(workspace_id, owner)

    async def forget_session(self, workspace_id: str, session_id: str) -> None:
        await self._corpora.end_session(workspace_id, session_id)

    # --- recall -----------------------------------------------------------------------------------------------------

    async def recall(
        self, principal: Principal, asked: Recall, within: Within | None = None, among: Sequence[UUID] | None = None
    ) -> Recalled:
        """What answers the question best, the best first. That it was recalled is an event that follows the answer;
        `within` is amid which work it was asked, where the session is not the one that is asked about. `among` are the
        memories that are asked about, where the asker knows: then all of them are put in order, whatever speaks for
        them."""
        started = time.perf_counter()
        check(asked)
        if _is_question(asked):
            found, ranked = await self._answered(principal.scope, asked, among)
        else:
            found, ranked = None, Reranked(await self._newest(principal.scope, asked))
        kept, tokens = within_budget(ranked.hits, asked.max_tokens)
        recall_id = new_id()
        await self._record(
            principal, asked, within or Within(session_id=asked.session_id), recall_id, ranked._replace(hits=kept)
        )
        times = found and found.question.times
        return Recalled(
            recall_id,
            kept,
            RecallMeta(
                query_ms=round((time.perf_counter() - started) * 1000, 3),
                searched=0 if found is None else found.searched,
                tokens=tokens,
                embedder=None if found is None else self._memory.embedder.name,
                times=times and (datetime.fromtimestamp(times[0], UTC), datetime.fromtimestamp(times[1], UTC)),
                truncated=len(kept) < len(ranked.hits),
                vectors_to_come=0
                if found is None
                else _vectors_to_come(self._corpora.of(principal.scope), self._memory.embedder.name),
                reranker=ranked.reranker,
                not_reranked=ranked.failed,
            ),
        )

    async def _answered(self, scope: Scope, asked: Recall, among: Sequence[UUID] | None) -> tuple[_Found, Reranked]:
        """What was found, and its hits in order: by a model, where one is set and the asker does not decline it."""
        if not self._reranking.is_wanted(asked):
            found = await self._search(scope, asked, among)
            return found, Reranked(found.hits)
        found = await self._search(scope, msgspec.structs.replace(asked, top_k=max(asked.top_k, RERANKED)), among)
        ranked = await self._reranking.ordered(asked.query[:READ_CHARACTERS], found.hits, found.distinct)
        return found, ranked._replace(hits=ranked.hits[: asked.top_k])

    async def _newest(self, scope: Scope, asked: Recall) -> list[Hit]:
        page = await self._memory.page(scope, asked, limit=asked.top_k)
        async with self._database.transaction(scope) as tx:
            sources = await _sources_of(tx, scope, [memory.memory_id for memory in page.memories])
        return [
            hit_of(memory, 0.0, {}, is_order(memory.text), sources.get(memory.memory_id, []))
            for memory in page.memories
        ]

    async def _search(self, scope: Scope, asked: Recall, among: Sequence[UUID] | None) -> _Found:
        now = self._clock()
        question = await self._asked(asked, now)
        everything = self._corpora.of(scope)
        needs_a_look = among is not None or _needs_a_look(asked)
        for held in everything:
            if needs_a_look or not held.is_loaded:
                await self._corpora.load(scope, held)
            elif held.is_behind:
                await self._catch_up(scope, held)
        if needs_a_look:
            return await self._search_among(scope, asked, question, everything, among)
        wanted, is_current = asked.top_k, False
        distant = await self._distant_of(scope, asked, question, everything)
        while True:
            ranked = await self._ranked(question, asked, [*everything, *distant], None, wanted + wanted // 4 + 3)
            rows, sources, fresh = await self._read(scope, everything, ranked, asked.neighbours, now)
            if any(fresh):
                for held, newer in zip(everything, fresh, strict=True):
                    await self._add(scope, held, newer)
                if not is_current:
                    # Once: what is told meanwhile was told after the question.
                    is_current = all(len(newer) < MAX_RANKED for newer in fresh)
                    continue
            if await self._corpora.sweep(scope, everything):
                continue
            found = _held_among(ranked.order, rows)
            if len(found) >= asked.top_k or len(ranked.order) >= min(ranked.searched, MAX_RANKED):
                break
            wanted *= 5
        chosen, distinct = diverse(found, asked.top_k)
        return _Found(shown(ranked, rows, sources, chosen, asked.neighbours), distinct, question, ranked.searched)

    async def _catch_up(self, scope: Scope, held: Held) -> None:
        held.is_behind = False
        (newer,) = await self._database.one_trip(scope, [_told_since(held)])
        await self._add(scope, held, rows_of(newer))

    async def _add(self, scope: Scope, held: Held, newer: list[tuple[Any, ...]]) -> None:
        async with held.turn:
            await add(held.corpus, newer)
        if len(newer) == MAX_RANKED:
            # There is more than a look brings, such as a long document.
            await self._corpora.load(scope, held)

    async def _search_among(
        self, scope: Scope, asked: Recall, question: Asked, everything: list[Held], among: Sequence[UUID] | None
    ) -> _Found:
        """Of what the database says is asked about: at another time, of a subject, of a speaker; or what is given."""
        if any(held.is_indexed for held in everything):
            if among is None:
                newest = await self._memory.page(scope, asked, limit=MAX_PAGE_MEMORIES)
                also = [memory.memory_id for memory in newest.memories]
            else:
                also = list(among[:MAX_PAGE_MEMORIES])
            everything = [*everything, *await self._distant_of(scope, asked, question, everything, also)]
        async with self._database.transaction(scope, snapshot=True) as tx:
            allowed = (
                [set(among)] * len(everything)
                if among is not None
                else [
                    await self._memory.wanted(
                        tx, scope, asked, held.owner, held.corpus.ids if held.is_indexed else None
                    )
                    for held in everything
                ]
            )
            count, every = 2 * asked.top_k + 10, among is not None
            ranked = await self._ranked(question, asked, everything, allowed, count, every)
            chosen, distinct = diverse(ranked.order, asked.top_k)
            near = with_neighbours(chosen, asked.neighbours)
            ids = [held.corpus.ids[index] for held, index in near]
            rows = {memory.memory_id: memory for memory in await self._memory.held(tx, scope, ids, asked)}
            sources = await _sources_of(tx, scope, ids)
        distinct = len(_held_among(chosen[:distinct], rows))
        hits = shown(ranked, rows, sources, _held_among(chosen, rows), asked.neighbours)
        return _Found(hits, distinct, question, ranked.searched)

    async def _distant_of(
        self, scope: Scope, asked: Recall, question: Asked, everything: list[Held], also: list[UUID] | None = None
    ) -> list[Held]:
        """What the index finds of those who have more than is held."""
        distant: list[Held] = []
        for held in everything:
            if held.owner is not None and held.is_indexed:
                async with held.turn:
                    telling = telling_of(question.words, held.corpus, held.index)
                rows = await self._distant.found(scope, held.owner, question, asked, telling, held.index, also)
                self._corpora.reached(held)
                found = Held(scope, held.owner, self.built_in)
                found.index = held.index
                await add(found.corpus, [row for row in rows if row[0] not in held.corpus.place])
                distant.append(found)
        return distant

    async def _asked(self, asked: Recall, now: datetime) -> Asked:
        text = asked.query[:READ_CHARACTERS]
        words = asked_words(text)[:MOST_WORDS]
        vectors: dict[str, Floats] = {}
        if text.strip():
            vector = await self._memory.embedded_query(text)
            vectors[vector.embedder] = vector.components
            if self.built_in.name not in vectors:
                vectors[self.built_in.name] = unit_of(self.built_in.embed([text])[0])
        if asked.embedding is not None:
            vectors[GIVEN_EMBEDDER] = unit_given(asked.embedding).astype(np.float32)
        times = times_in(text, asked.as_of or now) if text else None
        return Asked(
            words,
            self.built_in.word_vectors([word.surface for word in words]),
            vectors,
            self.built_in.name,
            times and (times[0].timestamp(), times[1].timestamp()),
            asked.as_of or now,
            asked.intent,
        )

    async def _ranked(
        self,
        question: Asked,
        asked: Recall,
        everything: Sequence[Held],
        allowed: list[set[UUID]] | None,
        count: int,
        every: bool = False,
    ) -> Ranked:
        """Nothing is added meanwhile to what is held. `every`: also what nothing speaks for."""
        size = sum(len(held.corpus) for held in everything)
        if size <= LARGE and not any(held.turn.locked() for held in everything):
            # Nobody else comes to their turn before this returns.
            return rank(question, asked, everything, allowed, count, every)
        async with AsyncExitStack() as turns:
            for held in everything:
                await turns.enter_async_context(held.turn)
            return await asyncio.to_thread(rank, question, asked, everything, allowed, count, every)

    async def _read(
        self, scope: Scope, everything: Sequence[Held], ranked: Ranked, neighbours: int, now: datetime
    ) -> tuple[dict[UUID, StoredMemory], dict[UUID, list[HitSource]], list[list[tuple[Any, ...]]]]:
        """The rows of what was ranked that hold, their sources, and what was told since: one look at the database."""
        near = with_neighbours(ranked.order, neighbours)
        ids = Uuids.of([held.corpus.ids[index] for held, index in near])
        workspace = scope.workspace_id.encode()
        found: dict[str, bytes | None] = {
            "workspace_id": workspace,
            "ids": ids.binary,
            "now": scalar(Times, now),
            "limit": MAX_SOURCES_SHOWN.to_bytes(8),
        }
        statements: list[tuple[Statement, dict[str, bytes | None]]] = [(FOUND, found), (_SOURCES, found)]
        statements.extend(map(_told_since, everything))
        first, second, *later = await self._database.one_trip(scope, statements)
        places = {held.corpus.ids[index]: (held, index) for held, index in near}
        rows: dict[UUID, StoredMemory] = {}
        seen: set[UUID] = set()
        for holds, gone, *row in rows_of(first):
            seen.add(row[0])
            held, index = places[row[0]]
            if holds:
                memory = rows[row[0]] = memory_of(tuple(row))
                # Another process may have been given feedback.
                held.corpus.importance.rows[index] = memory.importance
            elif gone:
                held.corpus.gone.rows[index] = True
                held.found_gone += 1
        absent = places.keys() - seen
        for held in {id(places[memory_id][0]): places[memory_id][0] for memory_id in absent}.values():
            # Rows were removed, by an erasure perhaps: what is held is not to be searched again.
            self._corpora.drop(held)
        return rows, sources_in(rows_of(second)), [rows_of(result) for result in later]

    # --- what was recalled --------------------------------------------------------------------------------------------

    async def _record(
        self, principal: Principal, asked: Recall, within: Within, recall_id: UUID, shown: Reranked
    ) -> None:
        """Behind the answer, which does not wait for a disk."""
        document = {
            "effect": "recall",
            "event_id": recall_id,
            "user_id": principal.scope.user_id,
            "agent": asked.agent,
            "hits": [hit.memory_id for hit in shown.hits],
        }
        event = self._own.event(
            principal,
            recall_id,
            "memory.recalled",
            asked.agent,
            within.session_id,
            within.parent_event_id,
            within.trace_id,
        )
        scores = [RecalledHit(hit.memory_id, hit.score, hit.parts, hit.rerank) for hit in shown.hits]
        by = {} if shown.reranker is None else {"reranker": shown.reranker}
        recalled = own_event(event, document, {"asked": asked, "hits": scores, **by}, is_canonical=True)
        await self._ledger.behind.record(principal.workspace_id, recalled)

    async def recalled(self, scope: Scope, recall_id: UUID) -> RecallRecord:
        """What was asked, what came out, and why."""
        await self._ledger.behind.wait(scope.workspace_id, recall_id)
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["recall_by_id"], scope.values(recall_id=recall_id))).fetchone()
        if row is None:
            raise NotFound("there is no such recall")
        said = msgspec.json.decode(await self._ledger.payload(scope, recall_id), type=_Said)
        return RecallRecord(recall_id, row[0], row[1], said.asked, said.hits, said.reranker)

    async def feedback(self, principal: Principal, recall_id: UUID, given: Feedback) -> FeedbackKept:
        """Moves the importance of hits: of those that helped up, of the others down."""
        record = await self.recalled(principal.scope, recall_id)
        hits = {hit.memory_id for hit in record.hits}
        for field, ids in (("helpful", given.helpful), ("unhelpful", given.unhelpful)):
            for memory_id in ids:
                if memory_id not in hits:
                    raise refused(field, f"{memory_id} is no hit of this recall")
        both = set(given.helpful) & set(given.unhelpful)
        if both:
            raise refused("unhelpful", f"{min(both)} is among the helpful ones too")
        if not given.helpful and not given.unhelpful:
            raise refused("helpful", "name at least one hit here or in unhelpful")
        event_id = new_id()
        document = {
            "effect": "feedback",
            "event_id": event_id,
            "recall_id": recall_id,
            "helpful": list(dict.fromkeys(given.helpful)),
            "unhelpful": list(dict.fromkeys(given.unhelpful)),
        }
        event = self._own.event(principal, event_id, "memory.feedback", record.asked.agent, None, recall_id)
        outcome = await self._own.record(principal, event, document)
        async with self._database.transaction(principal.scope) as tx:
            moved = await self._memory.held(tx, principal.scope, [*given.helpful, *given.unhelpful], Recall())
        self._corpora.weigh(principal.workspace_id, {memory.memory_id: memory.importance for memory in moved})
        return FeedbackKept(event_id, (outcome.effect or {}).get("changed", 0))


def _told_since(held: Held) -> tuple[Statement, dict[str, bytes | None]]:
    values: dict[str, bytes | None] = {
        "workspace_id": held.scope.workspace_id.encode(),
        "owner": None if held.owner is None else held.owner.encode(),
        "after": held.corpus.until.to_bytes(8),
        "limit": MAX_RANKED.to_bytes(8),
    }
    return _FRESH_OF_ALL if held.owner is None else _FRESH, values


class _Said(msgspec.Struct):
    asked: Recall
    hits: list[RecalledHit]
    reranker: str | None = None


def check(asked: Recall) -> None:
    """Before anything is looked up: an event that cannot be stored would be lost behind the answer."""
    check_asked(asked)
    check_limit(asked.top_k, MAX_PAGE_MEMORIES, "top_k")
    if asked.max_tokens is not None:
        check_limit(asked.max_tokens, MAX_TOKENS, "max_tokens")
    if not 0 <= asked.neighbours <= MAX_NEIGHBOURS:
        raise refused("neighbours", f"from 0 to {MAX_NEIGHBOURS}")
    if asked.neighbours and not _is_question(asked):
        raise refused("neighbours", "needs a query")
    if asked.channels is not None and not asked.channels:
        raise refused("channels", "name at least one, or leave it out")
    problem = text_problem(asked.query, MAX_QUERY_CHARACTERS) if asked.query else None
    if problem is not None:
        raise refused("query", problem)


def _is_question(asked: Recall) -> bool:
    return asked.embedding is not None or bool(asked.query.strip())


def _needs_a_look(asked: Recall) -> bool:
    return any(
        value is not None for value in (asked.as_of, asked.known_at, asked.subject, asked.predicate, asked.filters)
    )


def _vectors_to_come(everything: Sequence[Held], embedder: str) -> int:
    """Memories that another embedder than the one in use has seen; what senders gave is theirs."""
    total = 0
    for held in everything:
        corpus = held.corpus
        others = [
            corpus.known_code("embedder", space)
            for space in list(corpus.vectors)
            if space.rpartition("/")[0] not in (embedder, GIVEN_EMBEDDER)
        ]
        if others:
            # Some may be added meanwhile, to one array after the other.
            gone = corpus.gone.rows
            total += int(np.count_nonzero(np.isin(corpus.embedder.rows[: len(gone)], others) & ~gone))
    return total


def _held_among(places: list[tuple[Held, int]], rows: dict[UUID, StoredMemory]) -> list[tuple[Held, int]]:
    return [place for place in places if place[0].corpus.ids[place[1]] in rows]


async def _sources_of(tx: Tx, scope: Scope, ids: list[UUID]) -> dict[UUID, list[HitSource]]:
    values = {"workspace_id": scope.workspace_id, "ids": ids, "limit": MAX_SOURCES_SHOWN}
    return sources_in(await (await tx.execute(_SQL["sources_found"], values, binary=True)).fetchall())
