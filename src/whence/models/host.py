"""A server that runs a model for others, asked over HTTP: again where it fails in a way that may pass.

Texts leave the machine, and a failure there is a failure of whoever asked here. Nothing of an answer that failed is
told, because some servers repeat the key in it.
"""

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, NamedTuple

import httpx
import msgspec
from pydantic import SecretStr

from whence.errors import SetupError, Unavailable

MAX_ANSWER_BYTES = 32 << 20
CALL_SECONDS = 20.0
ANSWER_SECONDS = 60.0
"""For an answer to be complete, however steadily it comes."""
CONNECT_SECONDS = 5.0
MAX_CALLS = 4
"""For the same texts: the first, and those after a failure that may pass."""
FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 20.0
"""The longest that a server may ask to be left alone; one that asks for more has failed."""
SHORTEST_CHARACTERS = 500
"""A text that is refused is halved, as it may have more tokens than the model reads; but not below this."""

_REFUSED: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


class Refused(Exception):
    """The server does not want these texts."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Api(NamedTuple):
    """What is spoken with a host."""

    setting: str
    """The one that names the model; its address and key are the settings `…_url` and `…_key`."""
    path: str
    """The last part of the address."""
    verb: str
    """What the model does."""


class Host:
    """Threads may share it. `sleep` and `dice` are passed in for tests."""

    def __init__(
        self,
        api: Api,
        model: str,
        url: str,
        key: SecretStr | None,
        sleep: Callable[[float], None] = time.sleep,
        dice: random.Random | None = None,
    ) -> None:
        self._api = api
        self._model = model
        self._url = _address(api, url)
        self._headers = _headers(api, key)
        self._sleep = sleep
        self._dice = dice or random.Random()  # noqa: S311 (pauses are no secret)
        self._lock = Lock()
        self._client: httpx.Client | None = None
        self.where = self._url.netloc.decode("ascii")

    def ask(self, asked: dict[str, Any], deadline: float | None = None) -> bytes:
        """The answer. Raises Refused where the server does not want what it is asked, Unavailable where it fails, and
        TimeoutError where that would take until after the deadline, a time of the monotonic clock."""
        body = msgspec.json.encode({"model": self._model} | asked)
        failed = ""
        for attempt in range(1, MAX_CALLS + 1):
            pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * (0.5 + self._dice.random() / 2)
            try:
                status, answer, again = self._post(body, deadline)
            except httpx.RequestError as error:
                failed = f"cannot be reached ({type(error).__name__}): see the setting {self._api.setting}_url"
            else:
                if status == HTTPStatus.OK:
                    return answer
                failed = self._told(status)
                pause = pause if again is None else again
            left = math.inf if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if attempt == MAX_CALLS or pause > min(MAX_PAUSE_SECONDS, left):
                break
            self._sleep(pause)
        raise self.failed(failed)

    def failed(self, what: str) -> Unavailable:
        return Unavailable(f"the {self._api.setting.replace('_', ' ')} at {self.where} {what}")

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _post(self, body: bytes, deadline: float | None) -> tuple[int, bytes, float | None]:
        """The status, the answer, and how long the server asks to be left alone."""
        answer = bytearray()
        until = time.monotonic() + ANSWER_SECONDS
        with self._http().stream("POST", self._url, content=body, timeout=_timeout(deadline)) as response:
            if response.status_code == HTTPStatus.OK:
                for part in response.iter_bytes():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        said = "answers with more than it was asked for"
                        raise self.failed(f"{said}: see the setting {self._api.setting}_url")
                    _timeout(deadline)
                    if time.monotonic() > until:
                        raise httpx.ReadTimeout("the answer does not end")
            return response.status_code, bytes(answer), _pause(response.headers.get("Retry-After"))

    def _told(self, status: int) -> str:
        """What to say of a failure that may pass; raises where it will not."""
        setting = self._api.setting
        if status in _REFUSED:
            raise Refused(status)
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise self.failed(f"does not take the key ({status}): see the setting {setting}_key")
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            return f"has had too many requests ({status}); the setting {setting} names it"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"failed ({status}); the setting {setting}_url names it"
        what = f"does not {self._api.verb} with {self._model} ({status})"
        raise self.failed(f"{what}: see the settings {setting} and {setting}_url")

    def _http(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                # Only settings say where texts go: no proxy of the environment.
                self._client = httpx.Client(headers=self._headers, trust_env=False)
            return self._client


def _timeout(deadline: float | None) -> httpx.Timeout:
    """How long a server may be silent."""
    left = CALL_SECONDS if deadline is None else deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return httpx.Timeout(left, connect=min(left, CONNECT_SECONDS))


def _address(api: Api, url: str) -> httpx.URL:
    """Of the API, whether the setting ends with its path or with its version."""
    setting = f"setting {api.setting}_url"
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise SetupError(f"{setting}: is not an address") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise SetupError(f"{setting}: is an address that begins with http:// or https://")
    if address.userinfo:
        raise SetupError(f"{setting}: has a password in it; a key belongs into {api.setting}_key")
    path = address.path.rstrip("/")
    return address.copy_with(path=path if path.endswith(api.path) else f"{path}{api.path}")


def _headers(api: Api, key: SecretStr | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if key is not None:
        said = key.get_secret_value().strip()
        # Otherwise the HTTP client would refuse it later, with an error that quotes it.
        if not said.isascii() or not said.isprintable():
            raise SetupError(f"setting {api.setting}_key: has signs that no key has")
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
