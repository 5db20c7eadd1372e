"""The memory gateway over HTTP: search, add, flush. Each call is made once, in bounded time and with a bounded answer.

Nothing is sent again: an add whose answer was lost may have been carried out.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, cast

import httpx
import msgspec

from whence.errors import Unavailable
from whence.hybrid.config import GatewayConfig

MAX_ANSWER_BYTES = 4 << 20

Operation = Literal["search", "add", "flush"]
Category = Literal[
    "timeout", "network", "unauthorized", "http_error", "invalid_json", "invalid_response", "too_large", "unsendable"
]

_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}


class GatewayError(Unavailable):
    """A call that failed: which, and in what way. Holds nothing of what was sent or answered, and no other error that
    does."""

    def __init__(self, operation: Operation, category: Category, status: int | None = None) -> None:
        self.operation: Operation = operation
        self.path = path_of(operation)
        self.category: Category = category
        self.http_status = status
        super().__init__(f"POST {self.path} failed: {category}" + (f" ({status})" if status else ""))

    def __reduce__(self) -> tuple[type["GatewayError"], tuple[object, ...]]:
        return GatewayError, (self.operation, self.category, self.http_status)


def path_of(operation: Operation) -> str:
    return f"/memories/{operation}"


class GatewayClient:
    def __init__(self, config: GatewayConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._base = config.base_url.rstrip("/")
        # No variable of the environment says where a key goes. No connection is kept: the server may close it just as
        # something is sent on it, and nothing is sent twice.
        self._http = httpx.AsyncClient(
            headers=_HEADERS,
            limits=httpx.Limits(max_keepalive_connections=0),
            timeout=config.timeout_seconds,
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def search(self, conversation_id: str, query: str) -> list[object]:
        """The results as they came, at most as many as were asked for."""
        config = self._config
        asked = {
            "conversation_id": conversation_id,
            "query": query,
            "scope": list(config.scope),
            "top_k": config.top_k,
        }
        results = (await self._post("search", asked)).get("results")
        if not isinstance(results, list):
            raise GatewayError("search", "invalid_response")
        return cast("list[object]", results)[: config.top_k]

    async def add(self, session_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        await self._post("add", {"session_id": session_id, "messages": list(messages)})

    async def flush(self, session_id: str) -> None:
        await self._post("flush", {"session_id": session_id})

    async def _post(self, operation: Operation, asked: Mapping[str, Any]) -> dict[str, Any]:
        body = _Body.of(self._config, asked)
        if body is None:
            raise GatewayError(operation, "unsendable")
        outcome = await self._outcome(operation, body)
        # Outside of any handler, so that the error has no other behind it: those of the HTTP library hold the request.
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome

    async def _outcome(self, operation: Operation, body: "_Body") -> dict[str, Any] | GatewayError:
        try:
            # Of the HTTP library's own timeouts each is for a part, and a server that drips bytes never meets one.
            async with asyncio.timeout(self._config.timeout_seconds):
                status, answer = await self._sent(operation, body)
        except (TimeoutError, httpx.TimeoutException):
            return GatewayError(operation, "timeout")
        except (httpx.HTTPError, OSError, Unavailable):  # the last one is a Whence in this process that has ended
            return GatewayError(operation, "network")
        if not 200 <= status < 300:
            category = "unauthorized" if status == HTTPStatus.UNAUTHORIZED else "http_error"
            return GatewayError(operation, category, status)
        if answer is None:
            return GatewayError(operation, "too_large", status)
        return _decoded(operation, answer)

    async def _sent(self, operation: Operation, body: "_Body") -> tuple[int, bytes | None]:
        """The status, and the answer; None where it is larger than it may be. That of a failure is not read: it may
        repeat what was sent. Nor is one that is packed, which nobody asked for."""
        answer = bytearray()
        length = {"Content-Length": str(len(body))}
        url = self._base + path_of(operation)
        async with self._http.stream("POST", url, content=body, headers=length) as response:
            # Once it is unpacked, it could have any size.
            if response.is_success and response.headers.get("Content-Encoding", "identity") == "identity":
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        return response.status_code, None
        return response.status_code, bytes(answer)


class _Body:
    """A request's body, which holds the key: an object that shows nothing, also in a list of local variables."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    @classmethod
    def of(cls, config: GatewayConfig, asked: Mapping[str, Any]) -> "_Body | None":
        """None where JSON cannot say it, such as one half of a surrogate pair."""
        try:
            return cls(
                msgspec.json.encode(
                    {
                        "user_id": config.user_id,
                        "user_key": config.user_key.reveal(),
                        "app_id": config.app_id,
                        "project_id": config.project_id,
                        **asked,
                    }
                )
            )
        except UnicodeEncodeError:
            return None

    def __len__(self) -> int:
        return len(self._encoded)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._encoded


def _decoded(operation: Operation, answer: bytes) -> dict[str, Any] | GatewayError:
    try:
        decoded = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return GatewayError(operation, "invalid_json")
    if not isinstance(decoded, dict):
        return GatewayError(operation, "invalid_response")
    return cast("dict[str, Any]", decoded)
