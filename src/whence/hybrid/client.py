"""The memory gateway over HTTP: search, add, flush. Each call is made once, in bounded time and with a bounded answer.

Nothing is sent again: an add whose answer was lost may have been carried out.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, cast

import httpx
import msgspec

from whence.errors import Unavailable
from whence.hybrid.config import GatewayConfig, Secret

MAX_ANSWER_BYTES = 4 << 20
MAX_FLUSHED_PARTS = 100
"""Of a chat that a gateway reads in parts, after one run."""

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


@dataclass(frozen=True)
class Failed:
    """In what way a request got no answer that can be used."""

    category: Category
    status: int | None = None


class GatewayHttp:
    """Requests to a gateway: each is made once, takes `timeoutSeconds` at most however slowly it is answered, and its
    answer has a bounded size. Nothing is raised but a cancellation."""

    def __init__(self, config: GatewayConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._base = config.base_url.rstrip("/")
        self._seconds = config.timeout_seconds
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

    async def asked(
        self, method: Literal["GET", "POST"], path: str, body: "Body | None" = None, key: Secret | None = None
    ) -> bytes | Failed:
        """The key stands in the header where it is given, else in the body."""
        try:
            # Of the HTTP library's own timeouts each is for a part, and a server that drips bytes never meets one.
            async with asyncio.timeout(self._seconds):
                status, answer = await self._sent(method, path, body, key)
        except (TimeoutError, httpx.TimeoutException):
            return Failed("timeout")
        except Exception:
            # Whatever else an address or an answer makes the HTTP library raise is of several families, and a Whence in
            # this process that has ended says so by an error of ours. A run goes on after each of them.
            return Failed("network")
        if not 200 <= status < 300:
            return Failed("unauthorized" if status == HTTPStatus.UNAUTHORIZED else "http_error", status)
        return Failed("too_large", status) if answer is None else answer

    async def _sent(self, method: str, path: str, body: "Body | None", key: Secret | None) -> tuple[int, bytes | None]:
        """The status, and the answer; None where it is larger than it may be. That of a failure is not read: it may
        repeat what was sent. Nor is one that is packed, which nobody asked for."""
        answer = bytearray()
        headers = {} if body is None else {"Content-Length": str(len(body))}
        with_key = None if key is None else _Bearer(key)
        url = self._base + path
        async with self._http.stream(method, url, content=body, headers=headers, auth=with_key) as response:
            # Once it is unpacked, it could have any size.
            if response.is_success and response.headers.get("Content-Encoding", "identity") == "identity":
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        return response.status_code, None
        return response.status_code, bytes(answer)


class GatewayClient:
    def __init__(self, config: GatewayConfig, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._config = config
        self._http = GatewayHttp(config, transport)

    async def close(self) -> None:
        await self._http.close()

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

    async def flush(self, session_id: str) -> bool:
        """Whether something is left to be flushed.

        A gateway that reads a long chat in parts says `is_more`, and is asked for the next part until the time of one
        call is over. What is left then is flushed after the next run."""
        asked = {"session_id": session_id}
        deadline = asyncio.get_running_loop().time() + self._config.timeout_seconds
        is_more = _is_more(await self._post("flush", asked))
        parts = 1
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while is_more and parts < MAX_FLUSHED_PARTS:
                    is_more = _is_more(await self._post("flush", asked))
                    parts += 1
        return is_more

    async def _post(self, operation: Operation, asked: Mapping[str, Any]) -> dict[str, Any]:
        body = Body.of({**_who(self._config), **asked})
        if body is None:
            raise GatewayError(operation, "unsendable")
        # Here, where no variable holds what was answered: it may repeat what was sent.
        outcome = _outcome(operation, await self._http.asked("POST", path_of(operation), body))
        if isinstance(outcome, GatewayError):
            raise outcome
        return outcome


class _Bearer(httpx.Auth):
    """The key as a header, which is in no variable of ours."""

    def __init__(self, key: Secret) -> None:
        self._key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        request.headers["Authorization"] = f"Bearer {self._key.reveal()}"
        yield request


class Body:
    """A request's body, which may hold the key: an object that shows nothing, also in a list of local variables."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> "Body | None":
        """None where JSON cannot say it, such as one half of a surrogate pair."""
        try:
            return cls(msgspec.json.encode(asked, enc_hook=_revealed))
        except UnicodeEncodeError:
            return None

    def __len__(self) -> int:
        return len(self._encoded)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._encoded


def _revealed(secret: object) -> str:
    if not isinstance(secret, Secret):
        raise NotImplementedError
    return secret.reveal()


def _who(config: GatewayConfig) -> dict[str, object]:
    return {
        "user_id": config.user_id,
        "user_key": config.user_key,
        "app_id": config.app_id,
        "project_id": config.project_id,
    }


def _is_more(answer: Mapping[str, Any]) -> bool:
    return answer.get("is_more") is True


def _outcome(operation: Operation, answer: bytes | Failed) -> dict[str, Any] | GatewayError:
    if isinstance(answer, Failed):
        return GatewayError(operation, answer.category, answer.status)
    try:
        decoded = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return GatewayError(operation, "invalid_json")
    if not isinstance(decoded, dict):
        return GatewayError(operation, "invalid_response")
    return cast("dict[str, Any]", decoded)
