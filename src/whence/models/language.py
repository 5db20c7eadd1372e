"""A language model that somebody else runs, behind the chat API that OpenAI began and many servers speak.

Texts leave the machine, and only where a setting names a model. Nothing of an answer that failed is told, because some
servers repeat the key in it.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import httpx
import msgspec
from pydantic import SecretStr

from whence.errors import SetupError, Unavailable

ANSWER_SECONDS = 60.0
REACH_SECONDS = 5.0
MAX_ASKED = 3
"""For the same answer: the first time, and those after a failure that may pass."""
FIRST_WAIT_SECONDS = 0.5
MAX_ANSWERED_BYTES = 4 << 20


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class LanguageModel:
    def __init__(self, model: str, url: str, key: SecretStr | None, wait: float = FIRST_WAIT_SECONDS) -> None:
        self._model = model
        self._url = _address(url)
        self._where = self._url.netloc.decode("ascii")
        self._headers = _headers(key)
        self._wait = wait
        self._client: httpx.AsyncClient | None = None
        self.is_failing = False
        """Whether it did not answer when it was asked last."""

    @property
    def name(self) -> str:
        return f"openai:{self._model}@{self._where}"

    async def answer(self, instructions: str, text: str, schema: dict[str, Any]) -> str:
        """What the model says, which should be JSON of the schema; whether it is, is for the caller to see."""
        body = msgspec.json.encode(
            {
                "model": self._model,
                "temperature": 0,
                "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": text}],
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "strict": True, "schema": schema},
                },
            }
        )
        self.is_failing = True
        for attempt in range(1, MAX_ASKED + 1):
            try:
                status, answer = await self._post(body)
            except httpx.RequestError as error:
                failed = f"cannot be reached ({type(error).__name__}): see the setting language_model_url"
            else:
                if status == HTTPStatus.OK:
                    said = self._content(answer)
                    self.is_failing = False
                    return said
                failed = self._told(status)
            if attempt < MAX_ASKED:
                await asyncio.sleep(self._wait * 2 ** (attempt - 1))
        raise self._failed(failed)  # pyright: ignore[reportPossiblyUnboundVariable] (it is asked at least once)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._client is None:
            timeout = httpx.Timeout(ANSWER_SECONDS, connect=REACH_SECONDS)
            # Only settings say where texts go: no proxy of the environment.
            self._client = httpx.AsyncClient(headers=self._headers, timeout=timeout, trust_env=False)
        answer = bytearray()
        async with self._client.stream("POST", self._url, content=body) as response:
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > MAX_ANSWERED_BYTES:
                    raise self._failed("answers with more than it was asked for: see the setting language_model_url")
        return response.status_code, bytes(answer)

    def _told(self, status: int) -> str:
        """What to say of a failure that may pass; raises where it will not."""
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise self._failed(f"does not take the key ({status}): see the setting language_model_key")
        if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"failed ({status}); the setting language_model_url names it"
        raise self._failed(f"does not answer with {self._model} ({status}): see the setting language_model")

    def _content(self, answer: bytes) -> str:
        try:
            return msgspec.json.decode(answer, type=_Answer).choices[0].message.content or ""
        except (msgspec.MsgspecError, IndexError, UnicodeDecodeError):
            raise self._failed("does not speak the chat API: see the setting language_model_url") from None

    def _failed(self, what: str) -> Unavailable:
        return Unavailable(f"the language model at {self._where} {what}")


def _address(url: str) -> httpx.URL:
    """Of the chat, whether the setting ends with it or with the version of the API."""
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        raise SetupError("setting language_model_url: is not an address") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise SetupError("setting language_model_url: is an address that begins with http:// or https://")
    if address.userinfo:
        raise SetupError("setting language_model_url: has a password in it; a key belongs into language_model_key")
    path = address.path.rstrip("/")
    return address.copy_with(path=path if path.endswith("/chat/completions") else f"{path}/chat/completions")


def _headers(key: SecretStr | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    if key is not None:
        said = key.get_secret_value().strip()
        # Otherwise the HTTP client would refuse it later, with an error that quotes it.
        if not said.isascii() or not said.isprintable():
            raise SetupError("setting language_model_key: has signs that no key has")
        headers["Authorization"] = f"Bearer {said}"
    return headers
