"""An embedder that somebody else runs, behind the embeddings API that OpenAI began and many servers speak."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import SecretStr

from whence.models.embedder import MAX_DIMENSION, Vectors, bounded, quantised
from whence.models.host import SHORTEST_CHARACTERS, Api, Host, Refused

MAX_CALL_TEXTS = 128

_API: Final = Api("embedder", "/embeddings", "embed")


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]


class HostedEmbedder:
    """Threads may share it. `sleep` and `dice` are passed in for tests."""

    is_quick = False
    is_exact = False

    def __init__(
        self,
        model: str,
        url: str,
        key: SecretStr | None,
        dimension: int | None,
        sleep: Callable[[float], None] = time.sleep,
        dice: random.Random | None = None,
    ) -> None:
        self._model = model
        self._host = Host(_API, model, url, key, sleep, dice)
        self._asked = dimension
        self._known = dimension

    @property
    def name(self) -> str:
        """A model that is not asked for a dimension has one of its own, so nobody needs to be asked for the name."""
        return f"openai:{self._model}@{self._host.where}" + (f":{self._asked}" if self._asked else "")

    @property
    def dimension(self) -> int:
        """The server is asked, unless the setting says it or something was embedded before."""
        if self._known is None:
            self._ask(["dimension"])
        assert self._known is not None
        return self._known

    def embed(self, texts: Sequence[str]) -> Vectors:
        # A text without a word is like nothing, and servers refuse it.
        said = [place for place, text in enumerate(texts) if text.strip()]
        vectors: list[npt.NDArray[np.float64]] = []
        for start in range(0, len(said), MAX_CALL_TEXTS):
            vectors += self._ask([bounded(texts[place]) for place in said[start : start + MAX_CALL_TEXTS]])
        made = np.zeros((len(texts), self.dimension), np.int8)
        if vectors:
            made[said] = quantised(np.stack(vectors))
        return made

    def embed_query(self, text: str) -> Vectors:
        return self.embed([text])[0]

    def close(self) -> None:
        self._host.close()

    def _ask(self, texts: list[str]) -> list[npt.NDArray[np.float64]]:
        """What is refused is asked in parts, until the text that is to blame stands alone and is short."""
        asked: dict[str, Any] = {"input": texts, "encoding_format": "float"}
        if self._asked is not None:
            asked["dimensions"] = self._asked
        try:
            return self._checked(self._host.ask(asked), len(texts))
        except Refused as refused:
            if len(texts) > 1:
                middle = len(texts) // 2
                return self._ask(texts[:middle]) + self._ask(texts[middle:])
            if len(texts[0]) > SHORTEST_CHARACTERS:
                return self._ask([texts[0][: len(texts[0]) // 2]])
            what = f"refuses to embed with {self._model} ({refused.status}): see the settings embedder"
            raise self._host.failed(f"{what} and embedder_dimension") from None

    def _checked(self, answer: bytes, count: int) -> list[npt.NDArray[np.float64]]:
        try:
            rows = msgspec.json.decode(answer, type=_Answer).data
        except msgspec.MsgspecError:
            raise self._host.failed("does not speak the embeddings API: see the setting embedder_url") from None
        if sorted(row.index for row in rows) != list(range(count)):
            raise self._host.failed(f"answered {count} texts with {len(rows)} vectors, or in no order")
        vectors = [np.asarray(row.embedding, np.float64) for row in sorted(rows, key=lambda row: row.index)]
        for vector in vectors:
            self._check(vector)
        return vectors

    def _check(self, vector: npt.NDArray[np.float64]) -> None:
        if not 1 <= len(vector) <= MAX_DIMENSION:
            said = f"gives vectors of {len(vector):,} components, and from 1 to {MAX_DIMENSION:,} are kept"
            raise self._host.failed(f"{said}: ask for fewer by the setting embedder_dimension")
        if self._known is None:
            self._known = len(vector)
        if len(vector) != self._known:
            raise self._host.failed(
                f"gives vectors of {len(vector):,} components instead of {self._known:,}: see the setting "
                "embedder_dimension"
            )
