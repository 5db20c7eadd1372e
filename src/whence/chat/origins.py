"""Where a recalled memory comes from, and its end: what a Whence behind the gateway can say of it.

Asked for by a person, not by a run: what fails here is told to them.
"""

from typing import Any, Final, Literal, TypeVar
from uuid import UUID

import httpx
import msgspec

from whence.errors import InvalidInput, NotFound, Unavailable, WhenceError
from whence.hybrid import GatewayConfig
from whence.hybrid.client import Body, Category, Failed, GatewayHttp
from whence.hybrid.config import MAX_TOP_K
from whence.wire import Deleted, Explanation, Searched, SearchResult

T = TypeVar("T")

_SAID: Final[dict[Category, str]] = {
    "timeout": "took too long to answer",
    "network": "cannot be reached",
    "unauthorized": "does not take the key",
    "http_error": "failed with the status {}",
    "too_large": "gave an answer that is too large",
}


class Origins:
    """Acts with the key of the gateway's user, and shows it nowhere."""

    def __init__(self, config: GatewayConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._within = {"app_id": config.app_id, "project_id": config.project_id}
        self._http = GatewayHttp(config, transport)

    async def close(self) -> None:
        await self._http.close()

    async def of(self, memory_id: UUID) -> Explanation:
        return await self._asked(Explanation, "GET", f"/v1/memories/{memory_id}/explain")

    async def holding(self, text: str, session_id: str) -> list[SearchResult]:
        """Memories that hold this text, without regard to capitals."""
        asked = {"query": text, "scope": self._config.scope, "top_k": MAX_TOP_K, "conversation_id": session_id}
        found = await self._asked(Searched, "POST", "/memories/search", asked | self._within)
        return [each for each in found.results if text.casefold() in each.text.casefold()]

    async def forget(self, memory_id: UUID, session_id: str) -> Deleted:
        """A message takes the facts with it that only it says."""
        asked = {"id": str(memory_id), "session_id": session_id}
        return await self._asked(Deleted, "POST", "/memories/delete", asked | self._within)

    async def _asked(
        self, answer: type[T], method: Literal["GET", "POST"], path: str, body: dict[str, Any] | None = None
    ) -> T:
        sent = None if body is None else Body.of(body)
        if body is not None and sent is None:
            raise InvalidInput("this is no valid Unicode")
        # Here, where no variable holds what was answered: it may repeat what was sent.
        outcome = _outcome(await self._http.asked(method, path, sent, self._config.user_key), answer)
        if isinstance(outcome, WhenceError):
            raise outcome
        return outcome


def _outcome(came: bytes | Failed, answer: type[T]) -> T | NotFound | Unavailable:
    if isinstance(came, Failed):
        if came.status == NotFound.status:
            return NotFound("there is no such memory")
        return Unavailable(f"the memory gateway {_SAID[came.category].format(came.status)}")
    try:
        return msgspec.json.decode(came, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Unavailable("the memory gateway gave no answer of the kind that Whence gives")
