"""A reranker that somebody else runs, behind the API that Cohere began and Jina, vLLM, LiteLLM and others speak."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from whence.models.embedder import bounded
from whence.models.host import SHORTEST_CHARACTERS, Api, Host, Refused
from whence.models.reranker import RERANK_SECONDS

_API: Final = Api("reranker", "/rerank", "rank")


class _Row(msgspec.Struct):
    index: int
    relevance_score: float


class _Answer(msgspec.Struct):
    results: list[_Row]


class HostedReranker:
    """Threads may share it. `seconds`, `sleep` and `dice` are passed in for tests."""

    def __init__(
        self,
        model: str,
        url: str,
        key: SecretStr | None,
        seconds: float = RERANK_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        dice: random.Random | None = None,
    ) -> None:
        self._model = model
        self._host = Host(_API, model, url, key, sleep, dice)
        self._seconds = seconds

    @property
    def name(self) -> str:
        return f"hosted:{self._model}@{self._host.where}"

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        deadline = time.monotonic() + self._seconds
        given = [bounded(text) for text in texts]
        while True:
            asked: dict[str, Any] = {"query": bounded(query), "documents": given, "top_n": len(given)}
            try:
                return self._checked(self._host.ask(asked, deadline), len(given))
            except Refused as refused:
                # One of them may be longer than the model reads.
                longest = max(map(len, given))
                if longest <= SHORTEST_CHARACTERS:
                    what = f"refuses to rank with {self._model} ({refused.status}): see the setting reranker"
                    raise self._host.failed(what) from None
                given = [text[: longest // 2] for text in given]

    def close(self) -> None:
        self._host.close()

    def _checked(self, answer: bytes, count: int) -> list[float]:
        try:
            rows = msgspec.json.decode(answer, type=_Answer).results
        except msgspec.MsgspecError:
            raise self._host.failed("does not speak the rerank API: see the setting reranker_url") from None
        if sorted(row.index for row in rows) != list(range(count)):
            raise self._host.failed(f"answered {count} texts with {len(rows)} scores")
        return [row.relevance_score for row in sorted(rows, key=lambda row: row.index)]
