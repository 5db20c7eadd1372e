"""A language model that somebody else runs, behind the chat API that OpenAI began and many servers speak."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pydantic import SecretStr

from whence.errors import Unavailable
from whence.models.host import Api, Host, Refused

ANSWER_SECONDS = 60.0
"""For an answer to come; it is asked again only where that leaves time."""

_API: Final = Api("language_model", "/chat/completions", "answer")


class _Said(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Said


class _Answer(msgspec.Struct):
    choices: list[_Choice]


class LanguageModel:
    def __init__(
        self, model: str, url: str, key: SecretStr | None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._model = model
        self._host = Host(_API, model, url, key, sleep)
        self.is_failing = False
        """Whether it did not answer when it was asked last."""

    @property
    def name(self) -> str:
        return f"openai:{self._model}@{self._host.where}"

    async def answer(self, instructions: str, text: str, schema: dict[str, Any]) -> str:
        """What the model says, which should be JSON of the schema; whether it is, is for the caller to see."""
        asked = {
            "temperature": 0,
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": text}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": schema},
            },
        }
        try:
            said = await asyncio.to_thread(self._ask, asked)
        except Unavailable:
            self.is_failing = True
            raise
        self.is_failing = False
        return said

    def close(self) -> None:
        self._host.close()

    def _ask(self, asked: dict[str, Any]) -> str:
        try:
            answer = self._host.ask(asked, time.monotonic() + ANSWER_SECONDS)
        except Refused as refused:
            what = f"does not answer with {self._model} ({refused.status})"
            raise self._host.failed(f"{what}: see the setting language_model") from None
        except TimeoutError:
            raise self._host.failed("does not answer in time; the setting language_model_url names it") from None
        try:
            return msgspec.json.decode(answer, type=_Answer).choices[0].message.content or ""
        except (msgspec.MsgspecError, IndexError, UnicodeDecodeError):
            raise self._host.failed("does not speak the chat API: see the setting language_model_url") from None
