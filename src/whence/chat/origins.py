"""Where a recalled memory comes from, and its end: what a Whence behind the gateway can say of it.

Asked for by a person, not by a run: what fails here is told to them.
"""

from typing import Any, TypeVar
from uuid import UUID

import httpx
import msgspec

from whence.errors import NotFound, Unavailable
from whence.hybrid import GatewayConfig
from whence.hybrid.config import MAX_TOP_K
from whence.wire import Deleted, Explanation, Searched, SearchResult

T = TypeVar("T")


class Origins:
    """Acts with the key of the gateway's user, and shows it nowhere."""

    def __init__(self, config: GatewayConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._within = {"app_id": config.app_id, "project_id": config.project_id}
        self._http = httpx.AsyncClient(
            base_url=config.base_url,
            timeout=config.timeout_seconds,
            limits=httpx.Limits(max_keepalive_connections=0),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

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

    async def _asked(self, answer: type[T], method: str, path: str, body: dict[str, Any] | None = None) -> T:
        key = {"Authorization": f"Bearer {self._config.user_key.reveal()}"}
        try:
            response = await self._http.request(method, path, json=body, headers=key)
        except (httpx.HTTPError, OSError) as error:
            failed = type(error).__name__
        else:
            if response.status_code == NotFound.status:
                raise NotFound("there is no such memory")
            if response.is_success:
                return _decoded(response.content, answer)
            failed = str(response.status_code)
        raise Unavailable(f"the memory gateway did not answer: {failed}")


def _decoded(content: bytes, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unavailable("the memory gateway is no Whence that can say so") from None
