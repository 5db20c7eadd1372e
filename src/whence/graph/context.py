"""Context by intent: start from what the question names, and follow the edges that its intent cares for.

Channels give the first nodes: the session, ids and names in the question, texts that are like it, else the latest
events. From them, step by step, the best nodes lead to their neighbours; a step along an edge keeps a share of the
score that grows with the edge's weight. Everything that is looked at is bounded, and the answer says when a bound cut.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

import numpy as np
import numpy.typing as npt

from whence.db import Database, Scope, Tx
from whence.db.queries import load
from whence.graph.bounds import Bounds, Cursor, invalid, meta
from whence.graph.drawing import MAX_EDGES, Drawing, Told, Wanted, read_edges, read_order, read_rows
from whence.graph.edges import EDGE_TYPES, STORED, codes
from whence.graph.intents import Inference, Intent, infer, weights
from whence.graph.names import normalise
from whence.graph.project import live_build
from whence.ledger import Ledger
from whence.models.embedder import Embedder, similarity
from whence.wire import Atlas, EdgeType, Pagination

MAX_QUERY_CHARACTERS = 8_000
MAX_CONTEXT_TOKENS = 1_000_000
CHARACTERS_A_TOKEN = 4
SESSION_SEEDS = 20
RECENT_SEEDS = 10
SIMILAR_SEEDS = 8
SIMILAR_FLOOR = 0.3
SIMILAR_VECTORS = 5_000
NAMED_SEEDS = 50
MAX_SUBJECTS = 100
SUBJECT_NAMES = 5_000
MAX_RUN_WORDS = 4
MAX_RUN_CHARACTERS = 256
MAX_RUNS = 400
BEAM_NODES = 60
FAN_OUT = 8
MAX_CANDIDATES = 2_000
STRONGEST_WEIGHT = 5.0
DAMPING = 0.8


Channel = Literal["session", "named", "similar", "recent"]

_SQL = load("whence.graph")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_WORD = re.compile(r"[^\s,;!?()\[\]{}\"“”]+")


@dataclass(frozen=True, slots=True)
class Question:
    query: str | None = None
    session_id: str | None = None
    intent: Intent | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.query is not None and len(self.query) > MAX_QUERY_CHARACTERS:
            raise invalid("query", f"at most {MAX_QUERY_CHARACTERS:,} characters")
        for name, text in (("query", self.query), ("session_id", self.session_id)):
            if "\x00" in (text or ""):
                raise invalid(name, "must not contain a NUL character")
        if self.max_tokens is not None and not 1 <= self.max_tokens <= MAX_CONTEXT_TOKENS:
            raise invalid("max_tokens", f"from 1 to {MAX_CONTEXT_TOKENS:,}")


@dataclass(frozen=True)
class Prepared:
    """A question, with all that can be known of it without the database."""

    question: Question
    inference: Inference
    weights: dict[EdgeType, float]
    event_ids: list[UUID]
    names: list[str]
    """Every run of a few words of the question: each may be somebody's name."""
    vector: npt.NDArray[np.int8] | None


class Found(NamedTuple):
    score: float
    reason: str
    channel: Channel
    origin: int | None = None
    """The node that led to it; None for what a channel gave."""


@dataclass
class Result:
    drawing: Drawing
    page: list[tuple[int, Found]]
    as_of: int
    next: Cursor | None
    cut: bool
    channels: dict[str, int] = field(default_factory=dict[str, int])


def prepare(question: Question, embedder: Embedder) -> Prepared:
    query = question.query or ""
    if question.intent is not None:
        inference = Inference({question.intent: 1.0}, "named by the caller")
    else:
        inference = infer(query)
    vector = embedder.embed([query])[0] if query.strip() else None
    ids = list(dict.fromkeys(UUID(found) for found in _UUID.findall(query)))
    return Prepared(
        question,
        inference,
        weights(inference.intents),
        ids[:NAMED_SEEDS],
        _runs(query),
        vector if vector is not None and vector.any() else None,
    )


def _runs(query: str) -> list[str]:
    """Every run of a few words, as a name may be in it, in the order of the question."""
    words = [word.strip(".:'’") for word in _WORD.findall(query)]
    runs = (
        " ".join(words[start : start + length])
        for start in range(len(words))
        for length in range(1, min(MAX_RUN_WORDS, len(words) - start) + 1)
    )
    return list(dict.fromkeys(run for run in runs if 1 < len(run) <= MAX_RUN_CHARACTERS))[:MAX_RUNS]


async def search(
    database: Database, ledger: Ledger, scope: Scope, prepared: Prepared, bounds: Bounds, start: Cursor
) -> Result:
    """A page of the ranking. Each page ranks anew what the first one ranked, as of the same position."""
    marks = await _marks(database, ledger, scope, prepared.names, bounds) if prepared.names else []
    async with database.transaction(scope, timeout_ms=bounds.timeout_ms, snapshot=True) as tx:
        build, reached = await live_build(tx, scope.workspace_id) or (0, 0)
        as_of = reached if start.is_first else start.as_of
        search = _Search(tx, scope, build, as_of, prepared)
        found, cut = await search.run(bounds.max_depth, marks)
        ranked = sorted(found.items(), key=lambda item: (-item[1].score, item[0]))
        rest = [item for item in ranked if start.is_first or (-item[1].score, item[0]) > (-start.score, start.node)]
        page = rest[: bounds.max_nodes]
        nodes = [node for node, _ in page]
        edges = await read_edges(tx, scope, build, nodes, found, STORED, as_of)
        cut |= len(edges) > MAX_EDGES
        edges += [edge for edge in await read_order(tx, scope, build, nodes, as_of) if edge.target in found]
        origins = [item.origin for _, item in page if item.origin is not None]
        rows = await read_rows(tx, ledger, scope, build, Wanted(nodes, edges, content=True, also=origins))
    drawing = await Drawing.open(ledger, scope, rows)
    page = _within(page, drawing, prepared.question.max_tokens)
    more = len(page) < len(rest)
    last = start.moved(as_of, 0, page[-1][0], page[-1][1].score) if more and page else None
    channels = dict(Counter(item.channel for item in found.values()))
    return Result(drawing, page, as_of, last, cut or more, channels)


def _within(page: list[tuple[int, Found]], drawing: Drawing, max_tokens: int | None) -> list[tuple[int, Found]]:
    """As many as the budget holds, and one in any case."""
    if max_tokens is None:
        return page
    left = max_tokens * CHARACTERS_A_TOKEN
    for place, (node, _) in enumerate(page):
        left -= len(drawing.text(node)) + CHARACTERS_A_TOKEN
        if left < 0:
            return page[: max(place, 1)]
    return page


async def _marks(database: Database, ledger: Ledger, scope: Scope, names: Sequence[str], bounds: Bounds) -> list[str]:
    """By what names in payloads are known, under the key of each subject that the latest of them are sealed for."""
    async with database.transaction(scope, timeout_ms=bounds.timeout_ms) as tx:
        build, _ = await live_build(tx, scope.workspace_id) or (0, 0)
        values = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "build": build,
            "names": SUBJECT_NAMES,
            "limit": MAX_SUBJECTS,
        }
        statement = "subjects_of_all" if scope.user_id is None else "subjects_of_user"
        subjects = {row[0] for row in await (await tx.execute(_SQL[statement], values)).fetchall()}
        rows = await ledger.keys.read(tx, scope.workspace_id, subjects) if subjects else []
    keys = await ledger.keys.opened(scope.workspace_id, rows) if rows else {}
    normals = list(dict.fromkeys(normalise(name) for name in names))
    return [key.mark(f"{kind}:{normal}") for key in keys.values() for kind in ("name", "link") for normal in normals]


class _Search:
    def __init__(self, tx: Tx, scope: Scope, build: int, as_of: int, prepared: Prepared) -> None:
        self._tx = tx
        self._prepared = prepared
        self._values: dict[str, object] = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "build": build,
            "as_of": as_of,
        }
        self._found: dict[int, Found] = {}

    async def run(self, max_depth: int, marks: Sequence[str]) -> tuple[dict[int, Found], bool]:
        """Every node that was found, with its best score; and whether a bound kept others out."""
        await self._seed(marks)
        frontier = self._best(self._found)
        cut = False
        for _ in range(max_depth):
            if not frontier or len(self._found) >= MAX_CANDIDATES:
                break
            fresh, more = await self._step(frontier)
            cut |= more or len(fresh) > BEAM_NODES
            frontier = self._best(fresh)
        return self._found, cut or await self._leads_further(frontier)

    async def _leads_further(self, frontier: Sequence[int]) -> bool:
        """Whether the depth has cut something off."""
        rows = await self._neighbours(frontier) if frontier else []
        return any(row[1] not in self._found for row in rows)

    async def _neighbours(self, frontier: Sequence[int]) -> list[Any]:
        return await self._rows("neighbours", nodes=list(frontier), kinds=codes(STORED), fan_out=FAN_OUT)

    def _best(self, nodes: Iterable[int]) -> list[int]:
        return sorted(nodes, key=lambda node: (-self._found[node].score, node))[:BEAM_NODES]

    async def _rows(self, statement: str, **values: object) -> list[Any]:
        return await (await self._tx.execute(_SQL[statement], {**self._values, **values}, binary=True)).fetchall()

    def _keep(self, node: int, found: Found) -> bool:
        known = self._found.get(node)
        if known is not None and known.score >= found.score:
            return False
        self._found[node] = found
        return known is None

    async def _seed(self, marks: Sequence[str]) -> None:
        question = self._prepared.question
        await self._seed_named(marks)
        if self._prepared.vector is not None:
            await self._seed_similar(self._prepared.vector)
        if question.session_id is not None:
            rows = await self._rows("latest_in_session", session_id=question.session_id, limit=SESSION_SEEDS)
            for place, (position,) in enumerate(rows):
                self._keep(position << 6, Found(1.0 - place / 40, "among the latest of the session", "session"))
        if not self._found:
            for place, (position,) in enumerate(await self._rows("latest_of_all", limit=RECENT_SEEDS)):
                self._keep(position << 6, Found(0.3 - place / 100, "among the latest events", "recent"))

    async def _seed_named(self, marks: Sequence[str]) -> None:
        if self._prepared.event_ids:
            for (position,) in await self._rows("events_by_ids", event_ids=self._prepared.event_ids):
                self._keep(position << 6, Found(1.0, "named in the question", "named"))
        rows: list[Any] = []
        if self._prepared.names:
            rows += await self._rows("entities_called", names=self._prepared.names, limit=NAMED_SEEDS)
        if marks:
            rows += await self._rows("entities_marked", marks=list(marks), limit=NAMED_SEEDS)
        for (node,) in rows:
            self._keep(node, Found(0.9, "named in the question", "named"))

    async def _seed_similar(self, vector: npt.NDArray[np.int8]) -> None:
        whose = "all" if self._values["user_id"] is None else "user"
        rows = await self._rows(f"vectors_of_{whose}", limit=SIMILAR_VECTORS)
        rows = [row for row in rows if len(row[1]) == len(vector)]
        if not rows:
            return
        others = np.frombuffer(b"".join(row[1] for row in rows), np.int8).reshape(len(rows), -1)
        scores = similarity(vector[None, :], others)[0]
        best = sorted(range(len(rows)), key=lambda place: (-scores[place], -rows[place][0]))[:SIMILAR_SEEDS]
        for place in best:
            if scores[place] >= SIMILAR_FLOOR:
                score = round(float(scores[place]), 6)
                self._keep(rows[place][0], Found(score, f"its text is like the question ({score:.2f})", "similar"))

    async def _step(self, frontier: Sequence[int]) -> tuple[list[int], bool]:
        """The nodes that were not known, and whether there were more than are looked at."""
        weight = self._prepared.weights
        rows = await self._neighbours(frontier)
        many = Counter((origin, code, forward) for origin, _, code, forward, _ in rows)
        before = {node: self._found[node] for node in frontier}
        fresh: list[int] = []
        for origin, node, code, forward, strength in sorted(rows, key=lambda row: (row[0], row[1], row[2])):
            edge_type = EDGE_TYPES[code]
            # A name in the question stands for the events that tell of it, whatever the intent.
            stands_for = edge_type == "REFERENCES" and not forward and before[origin].origin is None
            share = DAMPING * (1.0 if stands_for else weight[edge_type] / STRONGEST_WEIGHT)
            share *= 1.0 if strength is None else float(strength)
            score = round(before[origin].score * share, 9)
            if len(self._found) < MAX_CANDIDATES or node in self._found:
                found = Found(score, _LINKS[edge_type][0 if forward else 1], before[origin].channel, origin)
                if self._keep(node, found):
                    fresh.append(node)
        return fresh, FAN_OUT in many.values() or len(self._found) >= MAX_CANDIDATES


# How a node hangs together with the one that led to it, along the edge and against it.
_LINKS: dict[str, tuple[str, str]] = {
    "FOLLOWS": ("came before", "came after"),
    "CAUSED_BY": ("caused", "was caused by"),
    "SIMILAR_TO": ("is like", "is like"),
    "REFERENCES": ("is told of in", "tells of"),
    "SUMMARIZES": ("is summed up by", "sums up"),
    "DERIVED_FROM": ("is a source of", "was derived from"),
    "SAME_AS": ("may be the same as", "may be the same as"),
}
assert set(_LINKS) == set(get_args(EdgeType))


def _reason(drawing: Drawing, found: Found) -> str:
    return found.reason if found.origin is None else f"{found.reason} {drawing.id_of(found.origin) or 'another node'}"


def answer(result: Result, prepared: Prepared, bounds: Bounds, began: float, timed_out: bool) -> Atlas:
    drawn = [
        result.drawing.node(node, Told(_reason(result.drawing, found), {"relevance": round(found.score, 4)}))
        for node, found in result.page
    ]
    return Atlas(
        nodes={node.node_id: node for node in drawn if node is not None},
        edges=result.drawing.edges(node for node, _ in result.page),
        pagination=Pagination(result.next and result.next.encoded(), has_more=result.next is not None),
        meta=meta(
            began,
            bounds,
            result.as_of,
            truncated=result.cut,
            timed_out=timed_out,
            intents=prepared.inference.intents,
            inferred_by=prepared.inference.how,
            channels=result.channels,
        ),
    )
