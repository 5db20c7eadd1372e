"""The first hits put in order by a model, where one is set: beside the event loop, outside of any transaction, and for
a bounded time. Whatever the model does, hits are answered: where it fails, in the order that they had, and it is told.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, get_args

import structlog
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from whence.errors import SetupError, Unavailable, WhenceError
from whence.models.reranker import RERANK_SECONDS, Reranker
from whence.wire import Hit, NotReranked, Recall

RERANKED = 30
"""Hits that a model reads for one question: so many are looked for, also where fewer are asked for."""
RERANKS_AT_ONCE = 8
"""Questions that a model is asked at once; others wait for their turn, and not longer than for the model."""
RERANK_DIGITS = 6
"""Of a score that is told."""

_log = structlog.get_logger()


class Reranked(NamedTuple):
    hits: list[Hit]
    reranker: str | None = None
    failed: NotReranked | None = None


class Reranking:
    def __init__(self, reranker: Reranker | None, registry: CollectorRegistry, seconds: float = RERANK_SECONDS) -> None:
        self._reranker = reranker
        self._seconds = seconds
        # Of its own: whoever waits for a model that is silent would keep threads from those who embed or search.
        self._threads = ThreadPoolExecutor(RERANKS_AT_ONCE, "rerank")
        self._count = Counter(
            "whence_reranks_total", "Recalls that a model was to put in order.", ["outcome"], registry=registry
        )
        for outcome in ("reranked", *get_args(NotReranked)):
            self._count.labels(outcome)

    def close(self) -> None:
        """What still runs ends by itself, at the latest when its time is over."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._reranker is not None:
            self._reranker.close()

    def is_wanted(self, asked: Recall) -> bool:
        """Without words in the question there is nothing to read."""
        wanted = self._reranker is not None if asked.rerank is None else asked.rerank
        return wanted and bool(asked.query.strip())

    async def ordered(self, query: str, hits: list[Hit], distinct: int) -> Reranked:
        """The best of the first ones first. What comes later keeps its place, and so do those after the first
        `distinct`, which only say again what others do."""
        if self._reranker is None:
            return self._failed(hits, "no_reranker")
        first = hits[: min(distinct, RERANKED)]
        if not first:
            return Reranked(hits)
        # Texts of hits are rows that the database gave to the asker: nothing else is ever sent.
        texts = [f"{hit.speaker}: {hit.text}" if hit.speaker else hit.text for hit in first]
        try:
            async with asyncio.timeout(self._seconds):
                loop = asyncio.get_running_loop()
                name, scores = await loop.run_in_executor(self._threads, _scored, self._reranker, query, texts)
        except TimeoutError:
            return self._failed(hits, "late")
        except Exception as error:
            # Whatever it was, there is an answer without it. Details of ours hold no text and no key; others may.
            detail = error.detail if isinstance(error, WhenceError) else None
            _log.warning("not_reranked", error=type(error).__name__, detail=detail)
            return self._failed(hits, _reason(error))
        self._count.labels("reranked").inc()
        best = sorted(range(len(first)), key=lambda place: -scores[place])
        ordered = [replace(first[place], rerank=round(scores[place], RERANK_DIGITS)) for place in best]
        return Reranked(ordered + hits[len(first) :], name)

    def _failed(self, hits: list[Hit], why: NotReranked) -> Reranked:
        self._count.labels(why).inc()
        return Reranked(hits, failed=why)


def _scored(reranker: Reranker, query: str, texts: list[str]) -> tuple[str, list[float]]:
    """The name comes last: to make it, the files of a model are read as a whole."""
    scores = reranker.score(query, texts)
    return reranker.name, scores


def _reason(error: Exception) -> NotReranked:
    return "unavailable" if isinstance(error, Unavailable) else "setup" if isinstance(error, SetupError) else "internal"
