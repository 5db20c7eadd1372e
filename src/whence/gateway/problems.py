"""Problem documents (RFC 9457): how every failure reaches an HTTP client."""

import json
import re
from http import HTTPStatus
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from whence.errors import FieldError, InvalidInput, MalformedBody, TooManyRequests, Unavailable, WhenceError
from whence.gateway import otlp
from whence.gateway.otlp.forms import PROTOBUF, bare
from whence.wire import Problem

log = structlog.get_logger()

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1
# What the framework does not say. It finds no route for an id of another form.
_UNSAID = {
    404: "there is nothing at this path; ids of events, memories and the like are UUIDs",
    405: "this path does not take this method",
}
OTLP_PATHS = frozenset({"/v1/traces", "/v1/logs"})

_AT = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<path>.*?)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`")
_STEP = re.compile(r"\[[^\]]*\]|[^.\[]+")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "too_large", 415: "unsupported_media_type"}


def problem_of(error: Exception) -> Problem:
    """What the client is told. What we did not foresee is told as little as possible about."""
    if isinstance(error, WhenceError):
        return _problem(error.status, error.code, error.title, error.detail, error.errors)
    if isinstance(error, HTTPException) and error.status_code < 500:
        code = _CODES.get(error.status_code, InvalidInput.code)
        phrase = HTTPStatus(error.status_code).phrase
        detail = _UNSAID.get(error.status_code, error.detail) if error.detail == phrase else error.detail
        return _problem(error.status_code, code, phrase, detail)
    return _problem(500, "internal", "Internal error", "something went wrong; the log has it under this request id")


def _problem(status: int, code: str, title: str, detail: str, errors: tuple[FieldError, ...] = ()) -> Problem:
    return Problem(f"urn:whence:error:{code}", title, status, detail, code, errors)


def encode_problem(error: Exception, path: str, content_type: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body. OTLP clients get the form that their protocol asks for."""
    problem = problem_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    if isinstance(error, TooManyRequests):
        headers["Retry-After"] = str(error.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if path.rstrip("/") in OTLP_PATHS and bare(content_type) == PROTOBUF:
        headers["Content-Type"] = PROTOBUF
        return problem.status, headers, otlp.encode_error(PROTOBUF, problem.status, problem.detail)
    headers["Content-Type"] = PROBLEM_JSON
    return problem.status, headers, msgspec.json.encode(problem)


def problem_response(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    if isinstance(error, ValidationException):
        error = _wrong_parameters(request, error)
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


def _wrong_parameters(request: Request[Any, Any, Any], error: ValidationException) -> InvalidInput:
    kinds = request.route_handler.parsed_fn_signature.parameters
    said: Any = error.extra
    fields: list[FieldError] = []
    for item in said or ():
        name, message = item.get("key", ""), item.get("message", "")
        known = kinds.get(name)
        # What is called otherwise in the query, because the framework has other uses for the name.
        called = getattr(known and known.kwarg_definition, "name", None) or name
        fields.append(FieldError(called, _clear(message, known and known.annotation, "")))
    return InvalidInput("; ".join(f"{item.field}: {item.message}" for item in fields), tuple(fields))


def field_error(error: msgspec.ValidationError, kind: type) -> FieldError:
    """msgspec names the place in its text; here it becomes a field. `kind` is what was to be decoded."""
    parts = _AT.match(str(error))
    assert parts is not None
    message, path = parts["message"], parts["path"] or ""
    for pattern, said in ((_MISSING, "is required"), (_UNKNOWN, "is not a known field")):
        if (found := pattern.match(message)) is not None:
            return FieldError(f"{path}.{found[1]}".lstrip("."), said)
    return FieldError(path or "body", _clear(message, kind, path))


def _clear(message: str, kind: Any, path: str) -> str:
    """What msgspec says, with what to do about it."""
    if message.startswith("Invalid enum value") and (choices := _choices(kind, path)):
        return f"must be one of {', '.join(choices)}"
    if "timezone component" in message:
        return "needs a time zone, such as a final Z"
    return message.replace("`", "")


def _choices(kind: Any, path: str) -> list[str]:
    """The values that a place within a type takes, in the order in which they are declared."""
    for step in _STEP.findall(path):
        kind = next((inner for part in _parts(kind) if (inner := _inner(part, step)) is not None), None)
    return [str(value) for part in _parts(kind) if get_origin(part) is Literal for value in get_args(part)]


def _parts(kind: Any) -> list[Any]:
    """The members of a union, without what else is asked of them."""
    if get_origin(kind) is Annotated:
        return _parts(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [part for member in get_args(kind) for part in _parts(member)]
    return [kind]


def _inner(kind: Any, step: str) -> Any:
    if step.startswith("["):
        items = get_args(kind)
        return items and items[-1 if get_origin(kind) is dict else 0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        return get_type_hints(kind, include_extras=True).get(names.get(step, ""))
    return None


def decode_failure(
    error: msgspec.DecodeError | RecursionError | UnicodeDecodeError, kind: type, body: bytes
) -> InvalidInput:
    if isinstance(error, msgspec.ValidationError):
        where = field_error(error, kind)
        return InvalidInput(f"{where.field}: {where.message}", (where,))
    if isinstance(error, RecursionError):
        return MalformedBody("the body is nested too deeply")
    return MalformedBody(f"the body {not_json(error, body)}")


def not_json(error: msgspec.DecodeError | UnicodeDecodeError, body: bytes) -> str:
    """What is wrong with it. msgspec says of half a character at the end of a text that the input was cut off."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "is not valid Unicode: a text in it has one half of a surrogate pair without the other"
    except (ValueError, RecursionError):
        pass
    return f"is not valid JSON: {error}"
