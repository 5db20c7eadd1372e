"""An embedder that somebody else runs, behind the embeddings API that OpenAI began and many servers speak.

Texts leave the machine, and a failure there is a failure of whoever asked here. Nothing of an answer that failed is
told, because some servers repeat the key in it.
"""

import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from threading import Lock
from typing import Any, Final

import httpx
import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import SecretStr

from whence.errors import SetupError, Unavailable
from whence.models.embedder import MAX_DIMENSION, Vectors, bounded, quantised

MAX_CALL_TEXTS = 128
MAX_ANSWER_BYTES = 32 << 20
CALL_SECONDS = 20.0
CONNECT_SECONDS = 5.0
MAX_CALLS = 4
"""For the same texts: the first, and those after a failure that may pass."""
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 20.0
"""The longest that a server may ask to be left alone; one that asks for more has failed."""
SHORTEST_CHARACTERS = 500
"""A text that is refused is halved, as it may have more tokens than the model reads; but not below this."""

_REFUSED: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


class _Row(msgspec.Struct):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct):
    data: list[_Row]


class _Refused(Exception):
    """The server does not want these texts."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


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
        self._url = _address(url)
        self._where = self._url.netloc.decode("ascii")
        self._headers = _headers(key)
        self._asked = dimension
        self._known = dimension
        self._sleep = sleep
        self._dice = dice or random.Random()  # noqa: S311 (pauses are no secret)
        self._lock = Lock()
        self._client: httpx.Client | None = None

    @property
    def name(self) -> str:
        """A model that is not asked for a dimension has one of its own, so nobody needs to be asked for the name."""
        return f"openai:{self._model}@{self._where}" + (f":{self._asked}" if self._asked else "")

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
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _ask(self, texts: list[str]) -> list[npt.NDArray[np.float64]]:
        """What is refused is asked in parts, until the text that is to blame stands alone and is short."""
        try:
            return self._checked(self._call(texts), len(texts))
        except _Refused as refused:
            if len(texts) > 1:
                middle = len(texts) // 2
                return self._ask(texts[:middle]) + self._ask(texts[middle:])
            if len(texts[0]) > SHORTEST_CHARACTERS:
                return self._ask([texts[0][: len(texts[0]) // 2]])
            what = f"refuses to embed with {self._model} ({refused.status}): see the settings embedder"
            raise self._failed(f"{what} and embedder_dimension") from None

    def _call(self, texts: list[str]) -> bytes:
        asked: dict[str, Any] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._asked is not None:
            asked["dimensions"] = self._asked
        body = msgspec.json.encode(asked)
        failed = ""
        for attempt in range(1, MAX_CALLS + 1):
            pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * (0.5 + self._dice.random() / 2)
            try:
                status, answer, again = self._post(body)
            except httpx.RequestError as error:
                failed = f"cannot be reached ({type(error).__name__}): see the setting embedder_url"
            else:
                if status == HTTPStatus.OK:
                    return answer
                failed = self._told(status)
                pause = pause if again is None else again
            if attempt == MAX_CALLS or pause > MAX_PAUSE_SECONDS:
                break
            self._sleep(pause)
        raise self._failed(failed)

    def _post(self, body: bytes) -> tuple[int, bytes, float | None]:
        """The status, the answer, and how long the server asks to be left alone."""
        answer = bytearray()
        with self._http().stream("POST", self._url, content=body) as response:
            if response.status_code == HTTPStatus.OK:
                for part in response.iter_bytes():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise self._failed("answers with more than it was asked for: see the setting embedder_url")
            return response.status_code, bytes(answer), _pause(response.headers.get("Retry-After"))

    def _told(self, status: int) -> str:
        """What to say of a failure that may pass; raises where it will not."""
        if status in _REFUSED:
            raise _Refused(status)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise self._failed(f"does not take the key ({status}): see the setting embedder_key")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return f"has had too many requests ({status}); the setting embedder names it"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"failed ({status}); the setting embedder_url names it"
        raise self._failed(f"does not embed with {self._model} ({status}): see the settings embedder and embedder_url")

    def _checked(self, answer: bytes, count: int) -> list[npt.NDArray[np.float64]]:
        try:
            rows = msgspec.json.decode(answer, type=_Answer).data
        except msgspec.MsgspecError:
            raise self._failed("does not speak the embeddings API: see the setting embedder_url") from None
        if sorted(row.index for row in rows) != list(range(count)):
            raise self._failed(f"answered {count} texts with {len(rows)} vectors, or in no order")
        vectors = [np.asarray(row.embedding, np.float64) for row in sorted(rows, key=lambda row: row.index)]
        for vector in vectors:
            self._check(vector)
        return vectors

    def _check(self, vector: npt.NDArray[np.float64]) -> None:
        if not 1 <= len(vector) <= MAX_DIMENSION:
            said = f"gives vectors of {len(vector):,} components, and from 1 to {MAX_DIMENSION:,} are kept"
            raise self._failed(f"{said}: ask for fewer by the setting embedder_dimension")
        if self._known is None:
            self._known = len(vector)
        if len(vector) != self._known:
            raise self._failed(
                f"gives vectors of {len(vector):,} components instead of {self._known:,}: see the setting "
                "embedder_dimension"
            )

    def _failed(self, what: str) -> Unavailable:
        return Unavailable(f"the embedder at {self._where} {what}")

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                timeout = httpx.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS)
                # Only settings say where texts go: no proxy of the environment.
                self._client = httpx.Client(headers=self._headers, timeout=timeout, trust_env=False)
            return self._client


def _address(url: str) -> httpx.URL:
    """Of the embeddings, whether the setting ends with them or with the version of the API."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise SetupError("setting embedder_url: is not an address") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise SetupError("setting embedder_url: is an address that begins with http:// or https://")
    if address.userinfo:
        raise SetupError("setting embedder_url: has a password in it; a key belongs into embedder_key")
    path = address.path.rstrip("/")
    return address.copy_with(path=path if path.endswith("/embeddings") else f"{path}/embeddings")


def _headers(key: SecretStr | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if key is not None:
        said = key.get_secret_value().strip()
        # Otherwise the HTTP client would refuse it later, with an error that quotes it.
        if not said.isascii() or not said.isprintable():
            raise SetupError("setting embedder_key: has signs that no key has")
        headers["Authorization"] = f"Bearer {said}"
    return headers


def _pause(said: str | None) -> float | None:
    """`Retry-After` in seconds, whether it is a number of them or a date."""
    if said is None:
        return None
    if said.strip().isdecimal():
        return float(said)
    try:
        return max(0.0, (parsedate_to_datetime(said).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except ValueError:
        return None
