"""Recall: the best evidence for a question, each hit with where it came from.

Memories are ranked by what this process holds of them, and then read from the database under the asker's own scope:
what was told a moment ago is there, what does not hold any more is not, and nobody is shown what is another's.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

import msgspec
import numpy as np
import numpy.typing as npt

from whence.clock import Clock
from whence.db import Database, Scope, Tx
from whence.db.arrays import Times, Uuids, scalar
from whence.db.queries import load
from whence.db.trip import Statement, rows_of
from whence.errors import NotFound
from whence.identity import Principal
from whence.ledger import Ledger
from whence.ledger.events import text_problem
from whence.memory import FOUND, MAX_PAGE_MEMORIES, Memory, check_asked, memory_of, quoted, sessions_of, unit_of
from whence.memory.own import Own, check_limit, own_event
from whence.memory.writing import GIVEN_EMBEDDER, refused, unit_given
from whence.models.embedder import WordLlamaEmbedder
from whence.orders import is_order
from whence.recall.behind import Behind
from whence.recall.corpus import WORD_DIMENSION, Corpus, Floats
from whence.recall.distant import Distant
from whence.recall.held import Corpora, Held, add
from whence.recall.reranking import RERANKED, Reranked, Reranking
from whence.recall.scoring import MOST_WORDS, Asked, Scored, score
from whence.recall.trust import flags_of, trust_of
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
    Turn,
    Within,
)

MAX_QUERY_CHARACTERS = 200_000
READ_CHARACTERS = 4_000
"""Of a question; what comes later does not count."""
MAX_NEIGHBOURS = 5
MAX_RANKED = 1_000
"""Rows that are read for one recall."""
MAX_SOURCES_SHOWN = 20
"""Of one hit."""
MAX_TOKENS = 10_000_000
ALIKE = 0.98
"""Texts that are more alike than this say the same: one of them comes first, the others after all else."""
FEW = 3
"""Hits, where nothing speaks for any memory: the likest."""
LARGE = 5_000
"""Memories; more are compared beside the event loop."""
CHARACTERS_A_TOKEN = 4

_SQL = load("whence.recall")
_FRESH = Statement("recall_fresh", _SQL["entries_of_owner"])
_FRESH_OF_ALL = Statement("recall_fresh_of_all", _SQL["entries_of_all"])
_SOURCES = Statement("recall_sources", _SQL["sources_found"])


class _Ranked(NamedTuple):
    order: list[tuple[Held, int]]
    """The best first."""
    scored: Scored
    starts: dict[int, int]
    """Where the memories of each corpus begin, by its id."""
    searched: int


class _Found(NamedTuple):
    hits: list[Hit]
    distinct: int
    """How many of them, the first, say what no other does."""
    question: Asked
    searched: int


class Recaller:
    def __init__(  # noqa: PLR0913, PLR0917 (what it is wired with, once)
        self,
        database: Database,
        ledger: Ledger,
        clock: Clock,
        memory: Memory,
        words: WordLlamaEmbedder,
        behind: Behind,
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
        self._behind = behind
        self._reranking = reranking

    def forget(self, workspace_id: str) -> None:
        self._corpora.forget(workspace_id)

    async def settled(self, workspace_id: str) -> None:
        """Until what was recalled in the workspace by now is recorded."""
        await self._behind.settled(workspace_id)

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
        kept, tokens = _within(ranked.hits, asked.max_tokens)
        recall_id = uuid4()
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
            _hit(memory, 0.0, {}, is_order(memory.text), sources.get(memory.memory_id, [])) for memory in page.memories
        ]

    async def _search(self, scope: Scope, asked: Recall, among: Sequence[UUID] | None) -> _Found:
        now = self._clock()
        question = await self._asked(asked, now)
        everything = self._corpora.of(scope)
        needs_a_look = among is not None or _needs_a_look(asked)
        for held in everything:
            if needs_a_look or not held.is_loaded:
                await self._corpora.load(scope, held)
        if needs_a_look:
            return await self._search_among(scope, asked, question, everything, among)
        wanted, is_current = asked.top_k, False
        distant = await self._distant_of(scope, asked, question, everything)
        while True:
            ranked = await self._ranked(question, asked, [*everything, *distant], None, wanted + wanted // 4 + 3)
            rows, sources, fresh = await self._read(scope, everything, ranked, asked.neighbours, now)
            if any(fresh):
                for held, newer in zip(everything, fresh, strict=True):
                    async with held.turn:
                        await add(held.corpus, newer)
                    if len(newer) == MAX_RANKED:
                        # There is more than a look brings, such as a long document.
                        await self._corpora.load(scope, held)
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
        chosen, distinct = _diverse(found, asked.top_k)
        return _Found(_shown(ranked, rows, sources, chosen, asked.neighbours), distinct, question, ranked.searched)

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
            chosen, distinct = _diverse(ranked.order, asked.top_k)
            near = _with_neighbours(chosen, asked.neighbours)
            ids = [held.corpus.ids[index] for held, index in near]
            rows = {memory.memory_id: memory for memory in await self._memory.held(tx, scope, ids, asked)}
            sources = await _sources_of(tx, scope, ids)
        distinct = len(_held_among(chosen[:distinct], rows))
        hits = _shown(ranked, rows, sources, _held_among(chosen, rows), asked.neighbours)
        return _Found(hits, distinct, question, ranked.searched)

    async def _distant_of(
        self, scope: Scope, asked: Recall, question: Asked, everything: list[Held], also: list[UUID] | None = None
    ) -> list[Held]:
        """What the index finds of those who have more than is held."""
        distant: list[Held] = []
        for held in everything:
            if held.owner is not None and held.is_indexed:
                reaches, rows = await self._distant.found(scope, held.owner, question, asked, held.corpus, also)
                self._corpora.reached(held, reaches)
                found = Held(scope, held.owner, self.built_in)
                found.is_indexed = True
                await add(found.corpus, rows)
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
            vectors[GIVEN_EMBEDDER] = unit_given(asked.embedding)
        times = times_in(text, asked.as_of or now) if text else None
        return Asked(
            words,
            self.built_in.word_vectors([word.surface for word in words], WORD_DIMENSION),
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
    ) -> _Ranked:
        """Nothing is added meanwhile to what is held. `every`: also what nothing speaks for."""
        size = sum(len(held.corpus) for held in everything)
        if size <= LARGE and not any(held.turn.locked() for held in everything):
            # Nobody else comes to their turn before this returns.
            return _rank(question, asked, everything, allowed, count, every)
        async with AsyncExitStack() as turns:
            for held in everything:
                await turns.enter_async_context(held.turn)
            return await asyncio.to_thread(_rank, question, asked, everything, allowed, count, every)

    async def _read(
        self, scope: Scope, everything: Sequence[Held], ranked: _Ranked, neighbours: int, now: datetime
    ) -> tuple[dict[UUID, StoredMemory], dict[UUID, list[HitSource]], list[list[tuple[Any, ...]]]]:
        """The rows of what was ranked that hold, their sources, and what was told since: one look at the database."""
        near = _with_neighbours(ranked.order, neighbours)
        ids = Uuids.of([held.corpus.ids[index] for held, index in near])
        workspace = scope.workspace_id.encode()
        found: dict[str, bytes | None] = {
            "workspace_id": workspace,
            "ids": ids.binary,
            "now": scalar(Times, now),
            "limit": MAX_SOURCES_SHOWN.to_bytes(8),
        }
        statements: list[tuple[Statement, dict[str, bytes | None]]] = [(FOUND, found), (_SOURCES, found)]
        for held in everything:
            values: dict[str, bytes | None] = {
                "workspace_id": workspace,
                "owner": None if held.owner is None else held.owner.encode(),
                "after": held.corpus.until.to_bytes(8),
                "limit": MAX_RANKED.to_bytes(8),
            }
            statements.append((_FRESH_OF_ALL if held.owner is None else _FRESH, values))
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
        return rows, _sources(rows_of(second)), [rows_of(result) for result in later]

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
        recalled = own_event(event, document, {"asked": asked, "hits": scores, **by})
        await self._behind.record(principal.workspace_id, recalled)

    async def recalled(self, scope: Scope, recall_id: UUID) -> RecallRecord:
        """What was asked, what came out, and why."""
        await self._behind.wait(recall_id)
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
        event_id = uuid4()
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


def _rank(
    question: Asked,
    asked: Recall,
    everything: Sequence[Held],
    allowed: list[set[UUID]] | None,
    count: int,
    every: bool = False,
) -> _Ranked:
    searched = [held for held in everything if len(held.corpus)]
    corpora = [held.corpus for held in searched]
    if not corpora:
        return _Ranked([], Scored(np.zeros(0, np.float32), {}, np.zeros(0, np.bool_)), {}, 0)
    each = [
        _chosen(held.corpus, asked, among)
        for held, among in zip(everything, allowed or [None] * len(everything), strict=True)
        if len(held.corpus)
    ]
    chosen = each[0] if len(each) == 1 else np.concatenate(each)
    scored = score(question, corpora, None if chosen.all() else chosen, asked.channels)
    starts = dict(zip(map(id, searched), np.cumsum([0, *map(len, corpora[:-1])]).tolist(), strict=True))
    if asked.channels is None and asked.embedding is None and not every:
        evident = chosen & scored.is_evident
        chosen = evident if evident.any() or not question.words else _likest(chosen, scored)
    places = np.flatnonzero(chosen)
    scores = scored.scores[places]
    count = min(count, MAX_RANKED, len(places))
    best = np.argpartition(-scores, count - 1)[:count] if count < len(places) else np.arange(len(places))
    # What was told later comes first among equals.
    best = best[np.lexsort((-places[best], -scores[best]))]
    if len(searched) == 1:
        return _Ranked([(searched[0], place) for place in places[best].tolist()], scored, starts, len(places))
    first = np.array(list(starts.values()))
    whose = np.searchsorted(first, places[best], side="right") - 1
    order: list[tuple[Held, int]] = [
        (searched[which], place)
        for which, place in zip(whose.tolist(), (places[best] - first[whose]).tolist(), strict=True)
    ]
    return _Ranked(order, scored, starts, len(places))


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


def _likest(chosen: npt.NDArray[np.bool_], scored: Scored) -> npt.NDArray[np.bool_]:
    """Where nothing speaks for any: a few, for who asks may know better than words and vectors do."""
    places = np.flatnonzero(chosen)
    likest = places[np.argsort(-scored.parts["vectors"][places], kind="stable")[:FEW]] if len(places) else places
    found = np.zeros_like(chosen)
    found[likest] = True
    return found


def _needs_a_look(asked: Recall) -> bool:
    return any(
        value is not None for value in (asked.as_of, asked.known_at, asked.subject, asked.predicate, asked.filters)
    )


def _chosen(corpus: Corpus, asked: Recall, among: set[UUID] | None) -> npt.NDArray[np.bool_]:
    """Which memories of a corpus are asked about."""
    if among is not None:
        chosen = np.zeros(len(corpus), np.bool_)
        chosen[[corpus.place[memory_id] for memory_id in among if memory_id in corpus.place]] = True
        return chosen
    chosen = ~corpus.gone.rows
    if asked.agent is not None:
        chosen &= corpus.agent.rows == corpus.known_code("agent", asked.agent)
    if asked.tiers is not None:
        chosen &= np.isin(corpus.tier.rows, [corpus.known_code("tier", tier) for tier in asked.tiers])
    if asked.kinds is not None:
        chosen &= np.isin(corpus.kind.rows, [corpus.known_code("kind", kind) for kind in asked.kinds])
    if asked.session_id is not None:
        chosen &= np.isin(corpus.session.rows, _sessions_named(corpus, [asked.session_id], []))
    sessions, beginnings = sessions_of(asked)
    if sessions is not None:
        chosen &= np.isin(corpus.session.rows, _sessions_named(corpus, sessions, beginnings))
    return chosen


def _sessions_named(corpus: Corpus, names: list[str], beginnings: list[str]) -> list[int]:
    begin = tuple(beginnings)
    return [code for (_, name), code in corpus.sessions.items() if name in names or name.startswith(begin)]


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
    return _sources(await (await tx.execute(_SQL["sources_found"], values, binary=True)).fetchall())


def _sources(rows: Iterable[tuple[Any, ...]]) -> dict[UUID, list[HitSource]]:
    """What memories were derived from, as far as the asker may see it."""
    found: dict[UUID, list[HitSource]] = {}
    for memory_id, source, role, position, *event, first, last, quote in rows:
        within = None if first is None else (first, last)
        told = HitSource(source, position, role, *event)
        if within is not None:
            told = msgspec.structs.replace(told, byte_range=within, quote=quoted(quote))
        found.setdefault(memory_id, []).append(told)
    return found


def _with_neighbours(places: Sequence[tuple[Held, int]], count: int) -> list[tuple[Held, int]]:
    if count == 0:
        return list(places)
    found = dict.fromkeys(places)
    for held, index in places:
        for turns in (held.corpus.before.rows, held.corpus.after.rows):
            found.update(dict.fromkeys((held, turn) for turn in _turns(turns, index, count)))
    return list(found)


def _turns(turns: npt.NDArray[np.int32], index: int, count: int) -> Iterable[int]:
    for _ in range(count):
        index = int(turns[index])
        if index < 0:
            return
        yield index


def _diverse(places: list[tuple[Held, int]], count: int) -> tuple[list[tuple[Held, int]], int]:
    """The first ones, of which no two say the same, and how many these are; then the others."""
    rows = _vectors(places)
    if rows is None:
        return places[:count], count
    alike = rows @ rows.T > ALIKE
    np.logical_and(alike, _EARLIER[: len(rows), : len(rows)], out=alike)
    if not alike[:count].any():
        return places[:count], count
    is_again: list[bool] = np.any(alike, axis=1).tolist()  # pyright: ignore[reportAssignmentType]
    order = sorted(range(len(places)), key=is_again.__getitem__)
    return [places[row] for row in order[:count]], min(is_again.count(False), count)


_EARLIER: Final = np.tri(MAX_RANKED, k=-1, dtype=np.bool_)


def _vectors(places: Sequence[tuple[Held, int]]) -> Floats | None:
    """Of each, a row; zeros where it has none of the kind that most have."""
    by_held: dict[int, tuple[Held, list[int], list[int]]] = {}
    for row, (held, index) in enumerate(places):
        _, rows, indexes = by_held.setdefault(id(held), (held, [], []))
        rows.append(row)
        indexes.append(index)
    found: Floats | None = None
    for held, rows, indexes in by_held.values():
        for grown in held.corpus.vectors.values():
            vectors = grown.rows[indexes]
            if found is None:
                found = np.zeros((len(places), vectors.shape[1]), np.float32)
            if vectors.shape[1] == found.shape[1]:
                found[rows] += vectors
    return found


def _shown(
    ranked: _Ranked,
    rows: dict[UUID, StoredMemory],
    sources: dict[UUID, list[HitSource]],
    places: Sequence[tuple[Held, int]],
    neighbours: int,
) -> list[Hit]:
    at = [ranked.starts[id(held)] + index for held, index in places]
    scores = np.round(ranked.scored.scores[at].astype(np.float64), 4).tolist()
    channels = list(ranked.scored.parts)
    parts = np.round(np.array([part[at] for part in ranked.scored.parts.values()], np.float64), 4).T.tolist()
    hits: list[Hit] = []
    for (held, index), whole, each in zip(places, scores, parts, strict=True):
        corpus = held.corpus
        memory = rows[corpus.ids[index]]
        before, after = (
            tuple(_turn(rows[corpus.ids[turn]]) for turn in _turns(side, index, neighbours) if corpus.ids[turn] in rows)
            if neighbours
            else ()
            for side in (corpus.before.rows, corpus.after.rows)
        )
        found = sources.get(memory.memory_id, [])
        of_channels = dict(zip(channels, each, strict=True))
        hits.append(_hit(memory, whole, of_channels, bool(corpus.is_order.rows[index]), found, before[::-1], after))
    return hits


def _turn(memory: StoredMemory) -> Turn:
    return Turn(memory.memory_id, memory.text, memory.speaker)


def _hit(
    memory: StoredMemory,
    score_of_it: float,
    parts: dict[Any, float],
    orders: bool,
    sources: list[HitSource],
    before: tuple[Turn, ...] = (),
    after: tuple[Turn, ...] = (),
) -> Hit:
    told = HitSource(
        memory.memory_id,
        memory.position,
        "told",
        memory.recorded_at,
        memory.session_id,
        memory.run_id.hex if memory.run_id else memory.memory_id.hex,
        memory.agent,
    )
    tool = next((source.tool_name for source in sources if source.tool_name), None)
    return Hit(
        *msgspec.structs.astuple(memory),
        score=score_of_it,
        parts=parts,
        trust=trust_of(memory, tool),
        flags=flags_of(memory, orders),
        provenance=(told, *sources),
        before=before,
        after=after,
    )


def _within(hits: list[Hit], max_tokens: int | None) -> tuple[list[Hit], int]:
    """The first hits whose texts fit together, and about how many tokens they take."""
    total, kept = 0, 0
    for hit in hits:
        size = sum(map(tokens_of, (hit.text, *(turn.text for turn in (*hit.before, *hit.after)))))
        if max_tokens is not None and total + size > max_tokens:
            break
        total += size
        kept += 1
    return hits[:kept], total


def tokens_of(text: str) -> int:
    """About as many as models count: four letters make one, and so does a sign of a script without spaces."""
    wide = sum(ord(sign) > 0x2E7F for sign in text) if not text.isascii() else 0
    return wide + -(-(len(text) - wide) // CHARACTERS_A_TOKEN)
