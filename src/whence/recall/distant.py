"""What an owner has beyond what is held here: found by the database, by likeness and by words.

Whoever has more memories than can be compared one by one gets an index of them, all but the newest, which a job fills.
The newest are held as everybody's are, so what was told a moment ago is always compared. Of the others, the likest ones
and those with the rarest words of the question are read, and then compared with what is held as if they were held too.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.memory import sessions_of
from whence.recall.corpus import Corpus, Floats
from whence.recall.scoring import Asked, rarity_of
from whence.recall.words import Word, words
from whence.wire import Recall

INDEXED_FROM = 20_000
"""Memories of one owner from which on they are indexed."""
NEWEST = 2_000
"""These are held, and not indexed."""
RARE = 0.001
"""The share of texts up to which a word is rare enough to be looked for by itself, however many texts there are."""
SEEN = 0.02
"""The same for two words together."""
FEW_ROWS = 2_000
"""Words that so few of an owner's memories have, all together, are looked for too: of 50,000 memories those that one in
25 has."""
MOST_WEIGHED = 12
"""Words of a question, the rarest, that say which of the memories come first."""
COUNTED_AT_ONCE = 20_000
"""Memories of an owner's index that a question counts, until all are counted."""
BATCH_MEMORIES = 500
RUN_MEMORIES = 50_000
"""Of a workspace in one job; then others have their turn."""

_SQL = load("whence.recall")
# The likest come out of the index in order. So long as it has to pass over those of others, it goes on.
_SETTINGS = (
    "SET LOCAL enable_sort = off; SET LOCAL hnsw.ef_search = 200; SET LOCAL hnsw.iterative_scan = relaxed_order;"
    " SET LOCAL hnsw.max_scan_tuples = 100000"
)


@dataclass
class Index:
    """What is known of an owner's index. It is counted bit by bit, a question at a time."""

    reaches: int = 0
    """The position of the last memory in it; 0 where there is none."""
    size: int = 0
    counted: int = 0
    """The position up to which `size` is counted."""
    is_counted: bool = False
    """Whether that is all of it."""


class Telling(NamedTuple):
    """The words of a question that the index is asked for, by their places in it."""

    weights: dict[int, float]
    any_of: list[int]
    """To look for: the rare ones; where there are none, those that are not common."""
    together: list[int]
    """Without which nothing is found: where none is rare, the two rarest."""


class Distant:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self, scope: Scope, owner: str, index: Index) -> None:
        """Sees how far it reaches, and counts on."""
        async with self._database.transaction(scope) as tx:
            await _look(tx, scope, owner, index)

    async def begin(self, workspace_id: str, owner: str) -> None:
        """Indexes the first ones; the job goes on with who has begun."""
        await self._fill(Scope(workspace_id), owner)

    async def due(self) -> list[str]:
        """Workspaces in which somebody has begun."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            return [row[0] for row in await (await tx.execute(_SQL["indexed_workspaces"])).fetchall()]

    async def fill(self, workspace_id: str) -> bool:
        """Indexes what has become old enough. Whether there may be more. Any number may run at once."""
        scope, done = Scope(workspace_id), 0
        async with self._database.transaction(scope) as tx:
            owners = [row[0] for row in await (await tx.execute(_SQL["indexed_owners"], scope.values())).fetchall()]
        for owner in owners:
            while added := await self._fill(scope, owner):
                done += added
                if done >= RUN_MEMORIES:
                    return True
        return False

    async def _fill(self, scope: Scope, owner: str) -> int:
        """One batch; how many memories it has looked at."""
        async with self._database.transaction(scope) as tx:
            values = scope.values(owner=owner, newest=NEWEST, limit=BATCH_MEMORIES)
            rows = await (await tx.execute(_SQL["texts_to_index"], values, binary=True)).fetchall()
            if not rows:
                return 0
            terms = [sorted({term_of(scope.workspace_id, owner, stem) for stem, _ in words(row[1])}) for row in rows]
            ends = np.cumsum([len(each) for each in terms])
            made = {
                "ids": [row[0] for row in rows],
                "terms": [term for each in terms for term in each],
                "first": [1, *(ends[:-1] + 1).tolist()],
                "last": ends.tolist(),
            }
            await tx.execute(_SQL["add_to_index"], scope.values(**made))
        return len(rows)

    async def found(
        self,
        scope: Scope,
        owner: str,
        question: Asked,
        asked: Recall,
        telling: Telling,
        index: Index,
        also: Sequence[UUID] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Entries out of the index that may answer the question. `also` is given where another time is asked about than
        now: what holds then, as far as it is known."""
        terms = [term_of(scope.workspace_id, owner, word.stem) for word in question.words]
        sessions, beginnings = sessions_of(asked)
        values = scope.values(
            owner=owner,
            agent=asked.agent,
            tiers=None if asked.tiers is None else list(asked.tiers),
            kinds=None if asked.kinds is None else list(asked.kinds),
            session_id=asked.session_id,
            sessions=sessions,
            beginnings=beginnings,
            telling=[terms[place] for place in telling.any_of],
            together=[terms[place] for place in telling.together],
            words=[terms[place] for place in telling.weights],
            weights=list(telling.weights.values()),
            now=question.moment if also is None else None,
            ids=list(also or ()),
        )
        # At once: neither needs the other, and a database has several cores.
        try:
            async with asyncio.TaskGroup() as both:
                named = both.create_task(self._named(scope, values, index))
                alike = both.create_task(self._alike(scope, values, question.vectors))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return sorted({row[0]: row for row in (*named.result(), *alike.result())}.values(), key=lambda row: row[1])

    async def _named(self, scope: Scope, values: dict[str, Any], index: Index) -> list[tuple[Any, ...]]:
        """What is given by its id or has the words."""
        rows: list[tuple[Any, ...]] = []
        async with self._database.transaction(scope) as tx:
            await _look(tx, scope, values["owner"], index)
            if values["ids"]:
                rows += await (await tx.execute(_SQL["entries_by_id"], values, binary=True)).fetchall()
            if values["telling"]:
                rows += await (await tx.execute(_SQL["distant_with_words"], values, binary=True)).fetchall()
        return rows

    async def _alike(
        self, scope: Scope, values: dict[str, Any], vectors: Mapping[str, Floats]
    ) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        async with self._database.transaction(scope) as tx:
            await tx.execute(_SETTINGS, prepare=False)
            for embedder, vector in vectors.items():
                asked = values | {"embedder": embedder, "vector": _written(vector)}
                rows += await (await tx.execute(_like(len(vector)), asked, binary=True, prepare=True)).fetchall()
        return rows


async def _look(tx: Tx, scope: Scope, owner: str, index: Index) -> None:
    counted = index.counted
    values = scope.values(owner=owner, counted=counted, limit=COUNTED_AT_ONCE)
    row = await (await tx.execute(_SQL["index_reaches"], values)).fetchone()
    # Somebody else may have counted the same meanwhile.
    if row is not None and index.counted == counted:
        index.reaches, more, last = row
        index.size += more
        index.counted = last or counted
        index.is_counted = more < COUNTED_AT_ONCE


def telling_of(asked: Sequence[Word], held: Corpus, index: Index) -> Telling:
    """What is held says how rare words are."""
    counts = [0 if (term := held.terms.get(word.stem)) is None else len(held.postings.of(term)[0]) for word in asked]
    texts = max(len(held.passage_words), 1)
    ranked = sorted(range(len(asked)), key=counts.__getitem__)
    rarities = rarity_of(np.array(counts), texts).tolist()
    weights = {place: rarities[place] for place in ranked[:MOST_WEIGHED]}
    few = 0
    if index.is_counted:
        rows = np.cumsum([(counts[place] + 0.5) / texts * index.size for place in ranked])
        few = int(np.searchsorted(rows, FEW_ROWS))
    # Where there are few, what only the others have would not be among the first.
    rare = ranked[:few] if few > 1 else [place for place in ranked if counts[place] <= RARE * texts]
    if rare:
        return Telling(weights, rare, [])
    seen = [place for place in ranked if counts[place] <= SEEN * texts]
    return Telling(weights, seen, seen[:2]) if len(seen) > 1 else Telling(weights, [], [])


def term_of(workspace_id: str, owner: str, stem: str) -> int:
    """A number for a word of an owner, so that no list in the index is of several owners' memories."""
    name = f"{workspace_id}\x1f{owner}\x1f{stem}"
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


@lru_cache(maxsize=16)
def _like(dimension: int) -> bytes:
    """An index is of vectors of one length, which stands in the statement."""
    return _SQL["distant_like"].replace(b"256", b"%d" % dimension)


def _written(vector: Floats) -> str:
    return f"[{','.join(map(str, vector.tolist()))}]"
