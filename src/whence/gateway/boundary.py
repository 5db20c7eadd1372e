"""The outermost layer of the HTTP server: every request gets an id, is authenticated, counted and logged."""

import re
import secrets
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from whence.errors import Unauthenticated, WhenceError
from whence.gateway.limiter import Allowance, Limiter
from whence.gateway.problems import encode_problem
from whence.identity import Identity, Principal

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

# Everything else needs a key, so that a new route is closed until somebody decides otherwise.
PUBLIC_PATHS = frozenset({"/", "/health", "/health/live", "/health/ready", "/metrics", "/openapi.json"})

# Where a key may stand in the body instead of a header.
_CALLS = ("/resources", *(f"/memories/{verb}" for verb in ("add", "flush", "search", "override", "delete")))
KEY_IN_BODY = frozenset(("POST", path) for path in _CALLS)

# Lasts as long as its client likes, which says nothing about how fast we are.
STREAM_PATH = "/v1/events/stream"

_REQUEST_ID_FORM = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Boundary:
    def __init__(
        self,
        inner: Asgi,
        identity: Identity,
        registry: CollectorRegistry,
        fixed_paths: frozenset[str],
        limiter: Limiter,
    ) -> None:
        self._inner = inner
        self._limiter = limiter
        self._fixed_paths = fixed_paths
        self._identity = identity
        self._requests = Counter(
            "whence_http_requests", "HTTP requests", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "whence_http_request_seconds", "Time to the end of an answer", ["route"], registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # There are no routes for anything else.
            await send({"type": "websocket.close", "code": 1008})
            return
        # As it was sent: a name in a path may hold a slash, so a path is taken apart before it is decoded. And nobody
        # can spell one that is public here and something else further in.
        scope["path"] = scope["raw_path"].decode("ascii")
        started = time.perf_counter()
        request_id = _request_id(scope)
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # What a key was needed for is nobody else's to keep.
                ours = [(b"x-request-id", request_id), (b"cache-control", b"no-store")]
                allowance: Allowance | None = scope.get("allowance")
                limits = [] if allowance is None else allowance.headers
                message["headers"] = [*message.get("headers", ()), *ours, *limits]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id.decode()):
            try:
                await self._authenticated(scope, receive, send_with_id)
            finally:
                self._record(scope, status, time.perf_counter() - started)

    async def _authenticated(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in PUBLIC_PATHS:
            authorization = _header(scope, b"authorization").decode("latin-1")
            # Who is asking is then seen when the body was read.
            scope["admit"] = partial(self._admit, scope)
            try:
                if authorization or (scope["method"], scope["path"]) not in KEY_IN_BODY:
                    scope["auth"] = bearer_key(authorization)
                    self._admit(scope, await self._identity.authenticate(scope["auth"]))
            except Exception as error:
                if not isinstance(error, WhenceError):
                    log.error("request failed", path=scope["path"], error=type(error).__name__, exc_info=error)
                await _send_problem(scope, send, error)
                return
        await self._inner(scope, receive, send)

    def _admit(self, scope: Scope, principal: Principal) -> None:
        """Whose request it is. Raises where that user has made too many."""
        scope["user"] = principal
        scope["allowance"] = self._limiter.take(principal)
        self._limiter.check(scope["allowance"])

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        # The template, not the path: ids would make as many series as there are events.
        path = scope["path"]
        route = scope.get("path_template") or (path if path in self._fixed_paths else "unknown")
        self._requests.labels(scope["method"], route, status).inc()
        if route != STREAM_PATH:
            self._seconds.labels(route).observe(seconds)
        who = scope.get("user")
        log.debug(
            "request",
            method=scope["method"],
            route=route,
            status=status,
            ms=round(seconds * 1e3, 2),
            workspace_id=who and who.workspace_id,
            user_id=who and who.user_id,
        )


def bearer_key(authorization: str) -> str:
    kind, _, key = authorization.partition(" ")
    if kind.lower() != "bearer" or not key:
        raise Unauthenticated("this needs a key: send the header `Authorization: Bearer <key>`")
    return key.strip()


def _request_id(scope: Scope) -> bytes:
    """The caller's own, where it is one that can safely be written in a log."""
    given = _header(scope, b"x-request-id")
    return given if _REQUEST_ID_FORM.fullmatch(given) else secrets.token_hex(8).encode()


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


async def _send_problem(scope: Scope, send: Send, error: Exception) -> None:
    content_type = _header(scope, b"content-type").decode("latin-1")
    status, headers, body = encode_problem(error, scope["path"], content_type)
    headers["Content-Length"] = str(len(body))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
