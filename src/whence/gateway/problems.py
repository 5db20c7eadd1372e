"""Problem documents (RFC 9457): how every failure reaches an HTTP client."""

import re
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from whence.errors import FieldError, InvalidInput, MalformedBody, Unavailable, WhenceError
from whence.gateway import otlp
from whence.gateway.otlp.forms import PROTOBUF, bare
from whence.wire import Problem

log = structlog.get_logger()

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1
OTLP_PATHS = frozenset({"/v1/traces", "/v1/logs"})

_AT = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*?)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}


def problem_of(error: Exception) -> Problem:
    """What the client is told. What we did not foresee is told as little as possible about."""
    if isinstance(error, WhenceError):
        return _problem(error.status, error.code, error.title, error.detail, error.errors)
    if isinstance(error, ValidationException):
        fields = _parameter_errors(error)
        detail = "; ".join(f"{item.field}: {item.message}" for item in fields)
        return _problem(422, InvalidInput.code, InvalidInput.title, detail, fields)
    if isinstance(error, HTTPException) and error.status_code < 500:
        code = _CODES.get(error.status_code, InvalidInput.code)
        return _problem(error.status_code, code, HTTPStatus(error.status_code).phrase, error.detail)
    return _problem(500, "internal", "Internal error", "something went wrong; the log has it under this request id")


def _problem(status: int, code: str, title: str, detail: str, errors: tuple[FieldError, ...] = ()) -> Problem:
    return Problem(f"urn:whence:error:{code}", title, status, detail, code, errors)


def _parameter_errors(error: ValidationException) -> tuple[FieldError, ...]:
    said: Any = error.extra
    return tuple(FieldError(item.get("key", ""), item.get("message", "").replace("`", "")) for item in said or ())


def encode_problem(error: Exception, path: str, content_type: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body. OTLP clients get the form that their protocol asks for."""
    problem = problem_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if path.rstrip("/") in OTLP_PATHS and bare(content_type) == PROTOBUF:
        headers["Content-Type"] = PROTOBUF
        return problem.status, headers, otlp.encode_error(PROTOBUF, problem.status, problem.detail)
    headers["Content-Type"] = PROBLEM_JSON
    return problem.status, headers, msgspec.json.encode(problem)


def problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    status, headers, body = encode_problem(error, request.url.path, request.headers.get("content-type", ""))
    if isinstance(error, HTTPException):
        headers |= error.headers or {}
    # The template where there is one: names in a path are the caller's, and may tell what is not for a log.
    scope: Any = request.scope
    path = scope.get("path_template", request.url.path)
    if status == 503:
        log.warning("request failed", path=path, error=type(error).__name__)
    elif status >= 500:
        log.error("request failed", path=path, error=type(error).__name__, exc_info=_unforeseen(error))
    media_type = headers.pop("Content-Type")
    return Response(body, status_code=status, headers=headers, media_type=media_type)


def _unforeseen(error: Exception) -> Exception | None:
    """A traceback helps with what we did not foresee; what we did is told by its name."""
    return None if isinstance(error, WhenceError) else error


def field_error(error: msgspec.ValidationError) -> FieldError:
    """msgspec names the place in its text; here it becomes a field."""
    parts = _AT.match(str(error))
    assert parts is not None
    message, path = parts["message"], parts["path"] or ""
    for pattern, said in ((_MISSING, "is required"), (_UNKNOWN, "is not a known field")):
        if (found := pattern.match(message)) is not None:
            return FieldError(f"{path}.{found[1]}".lstrip("."), said)
    if "timezone component" in message:
        message = "needs a time zone, such as a final Z"
    return FieldError(path or "body", message.replace("`", ""))


def decode_failure(error: msgspec.DecodeError | RecursionError | UnicodeDecodeError) -> InvalidInput:
    if isinstance(error, msgspec.ValidationError):
        where = field_error(error)
        return InvalidInput(f"{where.field}: {where.message}", (where,))
    if isinstance(error, RecursionError):
        return MalformedBody("the body is nested too deeply")
    return MalformedBody(f"the body is not valid JSON: {error}")
