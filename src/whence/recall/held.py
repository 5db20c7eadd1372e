"""What this process holds of memories, to search it: by owner, as much as fits, the least used goes first."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from whence.db import Database, Scope
from whence.db.queries import load
from whence.memory.writing import GIVEN_EMBEDDER
from whence.models.embedder import WordLlamaEmbedder
from whence.recall.corpus import Corpus, Entry
from whence.recall.distant import INDEXED_FROM, Distant, Index

MAX_HELD_BYTES = 512 * 1024 * 1024
OUTDATED_SECONDS = 60.0
"""While vectors are replaced, what is held is read again so often."""
MAX_SEARCHED = 100_000
"""Memories of one owner that are held at most: the newest. So many are, until the others are indexed."""
LOADED_AT_ONCE = 2_000
ADDED_AT_ONCE = 50
"""More than these are read beside the event loop."""
MANY_GONE = 100
"""Found by one question: then more of what is held is gone, such as all of a document."""

_SQL = load("whence.recall")


class Held:
    """One owner's corpus, and whose turn it is to change it."""

    def __init__(self, scope: Scope, owner: str | None, words: WordLlamaEmbedder) -> None:
        self.scope = scope
        self.owner = owner
        """None: everybody's of the workspace."""
        self.corpus = Corpus(words)
        self.turn = asyncio.Lock()
        self.is_loaded = False
        self.is_behind = False
        """Whether this process has told the owner's something since it was read."""
        self.loaded_at = 0.0
        self.loaded_after = 0
        """The position after which what is held begins."""
        self.index = Index()
        self.found_gone = 0
        """By questions, since it was looked for."""

    @property
    def is_indexed(self) -> bool:
        """Whether the owner has more than is held, in the index."""
        return self.index.reaches > 0


class Corpora:
    def __init__(
        self,
        database: Database,
        distant: Distant,
        words: WordLlamaEmbedder,
        embedder: str,
        max_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self._database = database
        self._distant = distant
        self._embedder = embedder
        self._words = words
        self._max_bytes = max_bytes
        self._held: OrderedDict[tuple[str, str | None], Held] = OrderedDict()

    def of(self, scope: Scope) -> list[Held]:
        """What a scope may see: its user's and the workspace's own, or everybody's."""
        owners = (None,) if scope.user_id is None else (scope.user_id, "")
        return [self._of(scope, owner) for owner in owners]

    def _of(self, scope: Scope, owner: str | None) -> Held:
        name = (scope.workspace_id, owner)
        held = self._held.get(name)
        if held is not None and self._is_outdated(held):
            held = None
        if held is None:
            held = self._held[name] = Held(scope, owner, self._words)
        self._held.move_to_end(name)
        return held

    def _is_outdated(self, held: Held) -> bool:
        """Whether vectors of another embedder are held, which are being replaced in the database."""
        others = held.corpus.embedders - {self._embedder, GIVEN_EMBEDDER}
        return bool(others) and time.monotonic() - held.loaded_at > OUTDATED_SECONDS

    def told(self, workspace_id: str, owner: str) -> None:
        for name in ((workspace_id, owner), (workspace_id, None)):
            held = self._held.get(name)
            if held is not None:
                held.is_behind = True

    def forget(self, workspace_id: str) -> None:
        """Somebody was erased, or rows were made anew: what is held of the workspace is not to be searched again."""
        for name in [name for name in self._held if name[0] == workspace_id]:
            del self._held[name]

    async def end_session(self, workspace_id: str, session_id: str) -> None:
        """All of a session was forgotten at once."""
        for held in [held for (workspace, _), held in self._held.items() if workspace == workspace_id]:
            async with held.turn:
                codes = [code for (_, name), code in held.corpus.sessions.items() if name == session_id]
                held.corpus.gone.rows[np.isin(held.corpus.session.rows, codes)] = True

    def weigh(self, workspace_id: str, importance: Mapping[UUID, float]) -> None:
        """Memories have become more or less important."""
        for (workspace, _), held in self._held.items():
            places = held.corpus.place if workspace == workspace_id else {}
            rows = held.corpus.importance.rows
            for memory_id in importance.keys() & places.keys():
                # One that is being added meanwhile was read with what it weighs now.
                if places[memory_id] < len(rows):
                    rows[places[memory_id]] = importance[memory_id]

    async def sweep(self, scope: Scope, everything: Sequence[Held]) -> bool:
        """Marks what another process has forgotten, where a question came upon much of it; says whether it did."""
        swept = [held for held in everything if held.found_gone >= MANY_GONE]
        for held in swept:
            async with self._database.transaction(scope) as tx:
                values = scope.values(owner=held.owner)
                rows = await (await tx.execute(_SQL["gone_of_owner"], values, binary=True)).fetchall()
            async with held.turn:
                places = [held.corpus.place[row[0]] for row in rows if row[0] in held.corpus.place]
                held.corpus.gone.rows[places] = True
            held.found_gone = 0
        return bool(swept)

    def drop(self, held: Held) -> None:
        name = (held.scope.workspace_id, held.owner)
        if self._held.get(name) is held:
            del self._held[name]

    async def load(self, scope: Scope, held: Held) -> None:
        """Reads what was told since it was read last."""
        async with held.turn:
            held.is_behind = False
            if not held.is_loaded:
                held.corpus.until = await self._before_newest(scope, held, MAX_SEARCHED)
                if held.owner is not None:
                    await self._look_at_index(scope, held, held.owner)
                held.loaded_after = held.corpus.until
            while True:
                async with self._database.transaction(scope) as tx:
                    statement = _SQL["entries_of_all" if held.owner is None else "entries_of_owner"]
                    values = scope.values(owner=held.owner, after=held.corpus.until, limit=LOADED_AT_ONCE)
                    rows = await (await tx.execute(statement, values, binary=True)).fetchall()
                await add(held.corpus, rows)
                if len(rows) < LOADED_AT_ONCE:
                    break
            held.is_loaded = True
            held.loaded_at = time.monotonic()
        self._make_room(held)

    async def _look_at_index(self, scope: Scope, held: Held, owner: str) -> None:
        """What is indexed need not be held."""
        await self._distant.look(scope, owner, held.index)
        if not held.index.reaches and await self._before_newest(scope, held, INDEXED_FROM):
            await self._distant.begin(scope.workspace_id, owner)
            await self._distant.look(scope, owner, held.index)
        held.corpus.until = max(held.corpus.until, held.index.reaches)

    def reached(self, held: Held) -> None:
        """The index was looked at: what is held of what it has is let go of, now and then. Where it is gone, as after a
        rebuild, the owner is read anew."""
        is_old = time.monotonic() - held.loaded_at > OUTDATED_SECONDS
        is_much = len(held.corpus) > INDEXED_FROM and held.index.reaches > held.loaded_after
        if not held.index.reaches or (is_much and is_old):
            self.drop(held)

    async def _before_newest(self, scope: Scope, held: Held, count: int) -> int:
        statement = _SQL["before_newest_of_all" if held.owner is None else "before_newest"]
        async with self._database.transaction(scope) as tx:
            values = scope.values(owner=held.owner, limit=count)
            row = await (await tx.execute(statement, values)).fetchone()
        return row[0] if row else 0

    def _make_room(self, kept: Held) -> None:
        total = sum(held.corpus.nbytes for held in self._held.values())
        for name, held in list(self._held.items()):
            if total <= self._max_bytes:
                return
            if held is not kept:
                total -= held.corpus.nbytes
                del self._held[name]


async def add(corpus: Corpus, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows of `entries_of_owner` that are newer than what the corpus has."""
    fresh = [row for row in rows if row[1] > corpus.until]
    if len(fresh) > ADDED_AT_ONCE:
        await asyncio.to_thread(_add, corpus, fresh)
    elif fresh:
        _add(corpus, fresh)


def _add(corpus: Corpus, rows: Sequence[tuple[Any, ...]]) -> None:
    start = len(corpus)
    corpus.add([_entry(row) for row in rows])
    corpus.gone.rows[start:] = [row[12] for row in rows]


def _entry(row: tuple[Any, ...]) -> Entry:
    vector = None
    if row[11] is not None:
        # Two numbers of two bytes stand before the components: how many there are, and one that is not used.
        vector = np.frombuffer(row[11], ">f2", offset=4).astype(np.float32)
    return Entry(*row[:11], vector, row[13])  # pyright: ignore[reportCallIssue] (a row is Any)
