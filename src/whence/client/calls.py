"""Calls as values: what is sent, what comes back, which may be sent again. Nothing here talks to anybody."""

import io
import math
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from os import PathLike
from pathlib import PurePath
from typing import IO, Any, Final, Generic, Literal, TypeVar, cast
from urllib.parse import quote
from uuid import UUID

import httpx
import msgspec

from whence.errors import FieldError, InvalidInput, Unavailable, WhenceError
from whence.ids import new_id
from whence.wire import DeleteItem, ItemOp, Problem, PutItem, Remember, StoredEvent

DEFAULT_URL = "http://127.0.0.1:8010"
TIMEOUT_SECONDS = 30.0
MAX_ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 5.0
# Less than the five seconds after which the server gives up an idle connection: one that it closes just as something
# is sent on it leaves open whether that arrived.
KEPT_CONNECTION_SECONDS = 3.0
# The server says something every 15 seconds, so that a longer silence means that it is gone.
STREAM_SILENCE_SECONDS = 40.0

Id = UUID | str
Method = Literal["GET", "POST", "PUT", "DELETE"]
T = TypeVar("T")

_KEY_FORM = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Call(Generic[T]):
    method: Method
    path: str
    answer: type[T]
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = None
    repeatable: bool = False
    """Whether twice is the same as once, so that it may be sent again when nobody knows what became of it."""
    upload: "Upload | None" = None

    @contextmanager
    def content(self) -> Generator[dict[str, Any]]:
        """What is sent as a body; a file is opened anew for each attempt."""
        if self.upload is None:
            yield {"content": self.body}
        else:
            with self.upload.opened() as file:
                yield {"files": {"file": file}, "data": self.upload.fields}


def read(path: str, answer: type[T], asked: Mapping[str, Any] | None = None) -> Call[T]:
    """A question. It changes nothing, so it may always be repeated."""
    query = {name: _in_query(name, value) for name, value in (asked or {}).items() if value is not None}
    return Call("GET", path, answer, query, repeatable=True)


def post(path: str, answer: type[T], body: Mapping[str, Any], repeatable: bool = False) -> Call[T]:
    return Call("POST", path, answer, body=_encoded(body), repeatable=repeatable)


def put(path: str, answer: type[T], body: Mapping[str, Any]) -> Call[T]:
    """What is put twice is there once."""
    return Call("PUT", path, answer, body=_encoded(body), repeatable=True)


def delete(path: str, repeatable: bool = False) -> Call[None]:
    """Repeatable only where the server answers the second time as it did the first; else the answer to a repeat would
    say that there was nothing to delete."""
    return Call("DELETE", path, type(None), repeatable=repeatable)


def remove(path: str, answer: type[T]) -> Call[T]:
    """A deletion that says what was deleted, the second time as the first."""
    return Call("DELETE", path, answer, repeatable=True)


Progress = Callable[[int, int], None]
"""Is told how many bytes were sent, and of how many."""


@dataclass(frozen=True)
class Upload:
    """A file, by its path or as it is."""

    file: str | PathLike[str] | bytes
    name: str | None
    content_type: str | None
    fields: Mapping[str, str]
    progress: Progress | None

    @contextmanager
    def opened(self) -> Generator[tuple[Any, ...]]:
        name = self.name or ("file" if isinstance(self.file, bytes) else PurePath(self.file).name)
        with io.BytesIO(self.file) if isinstance(self.file, bytes) else open(self.file, "rb") as file:
            watched = _Watched(file, self.progress or _nobody)
            yield (name, watched) if self.content_type is None else (name, watched, self.content_type)


class _Watched:
    """A file that tells how far it was read."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file = file
        self._progress = progress
        self._total = file.seek(0, os.SEEK_END)
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        part = self._file.read(size)
        self._progress(self._file.tell(), self._total)
        return part

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _nobody(_done: int, _total: int) -> None:
    """Tells nobody."""


def upload(path: str, answer: type[T], sent: Upload) -> Call[T]:
    """The same bytes twice are there once."""
    return Call("POST", path, answer, repeatable=True, upload=sent)


def at(template: str, *names: Id) -> str:
    """A path; the names in it may hold any character."""
    return template.format(*map(_segment, names))


def _segment(name: Id) -> str:
    said = str(name)
    if said == "":
        message = "a name in a path must not be empty"
        raise InvalidInput(message, (FieldError("path", message),))
    quoted = quote(_sendable("path", said), safe="")
    # In clear these would become a step to another path on their way.
    return quoted.replace(".", "%2E") if said in (".", "..") else quoted


def _in_query(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else _sendable(name, str(value))


def _encoded(body: Mapping[str, Any]) -> bytes:
    """As JSON. What JSON cannot say is told by its field, before anything is sent."""
    try:
        _check_kinds("", body)
        encoded = msgspec.json.encode(body)
    except RecursionError:
        raise _refused("body", "is nested too deeply, or in itself") from None
    except TypeError as error:
        raise _refused("body", str(error)) from None
    except UnicodeEncodeError:
        _check_sendable("", msgspec.to_builtins(body, enc_hook=_is_json))
        raise
    # A number that is none would have become null, so where there is no null there is no need to look.
    if b"null" in encoded:
        _check_sendable("", msgspec.to_builtins(body, enc_hook=_is_json))
    return encoded


def _check_kinds(place: str, value: object) -> None:
    """Bytes and sets would become something else, which is read back."""
    if isinstance(value, dict):
        for name, part in cast("dict[object, object]", value).items():
            if type(part) not in _SCALARS:
                _check_kinds(f"{place}.{name}".lstrip("."), part)
    elif isinstance(value, list | tuple):
        parts = cast("Sequence[object]", value)
        # An embedding has many, all of one kind.
        if not _SCALARS.issuperset(map(type, parts)):
            for index, part in enumerate(parts):
                _check_kinds(f"{place}[{index}]", part)
    elif isinstance(value, msgspec.Struct):
        _check_kinds(place, {name: getattr(value, name) for name in value.__struct_fields__})
    elif isinstance(value, bytes | bytearray | memoryview | set | frozenset):
        raise _refused(place, f"is of the type {type(cast('object', value)).__name__}, which JSON has not")


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})


def _is_json(value: object) -> None:
    """What was written as JSON before has nothing in it that JSON cannot say."""
    if not isinstance(value, msgspec.Raw):
        raise NotImplementedError(f"{type(value).__name__} is nothing that JSON can say")


def _check_sendable(place: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(place, "is not a finite number, and JSON has no other")
    if isinstance(value, str):
        _sendable(place, value)
    elif isinstance(value, dict):
        for name, part in cast("dict[object, Any]", value).items():
            _sendable(place, str(name))
            _check_sendable(f"{place}.{name}".lstrip("."), part)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(cast("Sequence[Any]", value)):
            _check_sendable(f"{place}[{index}]", part)


def _sendable(place: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused(place, "is not valid Unicode: it has one half of a surrogate pair without the other") from None
    return text


def _refused(field: str, message: str) -> InvalidInput:
    return InvalidInput(f"{field}: {message}", (FieldError(field, message),))


def given(fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """What was given; None says that it was not."""
    return {name: value for name, value in {**fields, **more}.items() if value is not None}


def with_event_id(event: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """An event that can be sent again: with an id of ours, the ledger knows it for the same one."""
    return {"event_id": new_id(), "occurred_at": now, **given(event)}


def with_memory_id(memory: Mapping[str, Any]) -> dict[str, Any]:
    """A memory that can be sent again: with an id of ours, a repeat is not a second memory."""
    return {"memory_id": new_id(), **given(memory)}


def each_with_memory_id(memories: Iterable[Mapping[str, Any] | Remember]) -> list[dict[str, Any] | Remember]:
    return [
        msgspec.structs.replace(memory, memory_id=memory.memory_id or new_id())
        if isinstance(memory, Remember)
        else with_memory_id(memory)
        for memory in memories
    ]


def each_put_with_id(ops: Iterable[ItemOp]) -> list[ItemOp]:
    """What is put can be sent again: with an id of ours, a repeat is not a second put."""
    return [
        msgspec.structs.replace(op, memory_id=op.memory_id or new_id()) if isinstance(op, PutItem) else op for op in ops
    ]


def may_repeat(ops: Sequence[ItemOp]) -> bool:
    """A deletion that is sent again might delete what somebody has put since."""
    return not any(isinstance(op, DeleteItem) for op in ops)


# To whom, and who asks


def authorization(key: object) -> dict[str, str]:
    """Checked here, because what refuses a bad header further down quotes it; `os.environ.get` may give no text."""
    stripped = key.strip() if isinstance(key, str) else ""
    if _KEY_FORM.fullmatch(stripped) is None:
        raise _refused("key", "is empty, or holds what no key of Whence holds")
    return {"Authorization": f"Bearer {stripped}"}


def base_of(url: object) -> httpx.URL:
    """Checked here, and not quoted: somebody may have put a password in."""
    try:
        base = httpx.URL(url) if isinstance(url, str) else httpx.URL()
    except (httpx.InvalidURL, UnicodeError):
        base = httpx.URL()
    if base.scheme not in ("http", "https") or not base.host:
        raise _refused("url", f"must be one such as {DEFAULT_URL}")
    return base


def check_open(client: httpx.Client | httpx.AsyncClient) -> None:
    if client.is_closed:
        raise Unavailable("this client was closed: open another one")


def address(url: httpx.URL) -> str:
    """For people to read: without a password that somebody may have put in."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


# What came back

Outcome = httpx.Response | httpx.TransportError
"""What became of one attempt: an answer, or what went wrong before there was one."""


class Attempts:
    """How often something may be sent, and how long to wait in between."""

    def __init__(self, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._made = 0

    def pause_after(self, outcome: Outcome) -> float | None:
        """How long to wait before the next attempt; None where this outcome is the last."""
        self._made += 1
        if self._made >= MAX_ATTEMPTS or not self._worth_repeating(outcome):
            return None
        pause = FIRST_PAUSE_SECONDS * 4 ** (self._made - 1)
        wanted = outcome.headers.get("retry-after", "") if isinstance(outcome, httpx.Response) else ""
        return min(max(pause, float(wanted) if wanted.isdecimal() else 0.0), MAX_PAUSE_SECONDS)

    def _worth_repeating(self, outcome: Outcome) -> bool:
        """What never left may be sent again whatever it is. Otherwise the call may have been carried out and only its
        answer be lost, or a 503 be told of a commit that nobody saw, so it must be one that can be repeated. A timeout
        is told at once: who set it wants to know by then."""
        if isinstance(outcome, httpx.Response):
            return self._repeatable and outcome.status_code == 503
        if isinstance(outcome, httpx.TimeoutException):
            return False
        return self._repeatable or isinstance(outcome, httpx.ConnectError)


def answer_of(call: Call[T], outcome: Outcome, base: httpx.URL) -> T:
    if not isinstance(outcome, httpx.Response):
        raise failure_of(outcome, base) from outcome
    if not outcome.is_success:
        raise failure_of(outcome, base)
    try:
        return msgspec.json.decode(outcome.content or b"null", type=call.answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WhenceError(f"what answers at {address(base)} is not a Whence of this version: check the URL") from None


def failure_of(outcome: Outcome, base: httpx.URL) -> WhenceError:
    """The error that the server raised, by its code; or one that says why none could be heard of."""
    where = address(base)
    if isinstance(outcome, httpx.Response):
        try:
            return error_of(msgspec.json.decode(outcome.content, type=Problem))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _foreign(outcome.status_code, where)
    if isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout):
        return Unavailable(f"{where} cannot be reached: start `whence serve`, or check the URL")
    if isinstance(outcome, httpx.TimeoutException):
        return Unavailable(f"{where} did not answer in time: try again, or give the client a larger timeout_s")
    return Unavailable(f"the connection to {where} was lost before it answered: try again")


def error_of(problem: Problem) -> WhenceError:
    return _errors_by_code().get(problem.code, WhenceError)(problem.detail, problem.errors)


def _foreign(status: int, where: str) -> WhenceError:
    """From something between us and Whence, or in its place."""
    if status in (502, 503, 504):
        return Unavailable(f"{where} answered {status}: what stands before Whence does not reach it; try again")
    return WhenceError(f"{where} answered {status}, and not as Whence does: check the URL")


def _errors_by_code() -> dict[str, type[WhenceError]]:
    return {error.code: error for error in _tree(WhenceError)}


def _tree(base: type[WhenceError]) -> Iterator[type[WhenceError]]:
    """Below first, so that a class wins over one below it that has no code of its own."""
    for child in base.__subclasses__():
        yield from _tree(child)
    yield base


# The archive


def new_file(path: str | PathLike[str]) -> IO[bytes]:
    """For the eyes of who asked; never in place of one that is there."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


# The stream


def ended_early() -> Outcome:
    """A stream has no end, so one that ends is a connection that was lost."""
    return httpx.RemoteProtocolError("the stream ended")


class Frames:
    """Server-sent events, from bytes as they come. Lines end at LF only: a text may hold other line breaks."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_error = False
        self.alive = False
        """Whether the server has said anything but hello, so that the connection did work."""

    def feed(self, chunk: bytes) -> Iterator[StoredEvent]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return self._events(lines)

    def _events(self, lines: Sequence[bytes]) -> Iterator[StoredEvent]:
        for line in lines:
            name, _, value = line.partition(b": ")
            self.alive |= line.startswith((b"data", b":"))
            if name == b"event":
                self._is_error = value == b"error"
            elif name == b"data" and self._is_error:
                raise error_of(msgspec.json.decode(value, type=Problem))
            elif name == b"data":
                yield msgspec.json.decode(value, type=StoredEvent)
