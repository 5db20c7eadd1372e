"""Events over HTTP: append, read, follow."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from whence.app import App
from whence.errors import Conflict, FieldError, InvalidInput, WhenceError, refusal_of
from whence.gateway.body import read_body
from whence.gateway.problems import decode_failure, field_error, not_json, problem_of
from whence.identity import Principal
from whence.ledger import MAX_PAGE_EVENTS, Filter
from whence.ledger.append import Outcome
from whence.ledger.events import MAX_BATCH_EVENTS, MAX_POSITION
from whence.wire import AppendAnswer, Event, EventPage, ItemResult, StoredEvent

KEEP_ALIVE_SECONDS = 15.0

Caller = Request[Principal, str, State]
TheApp = NamedDependency[App]
After = Annotated[int, QueryParameter(ge=0, le=MAX_POSITION, description="Only events past this position.")]
Limit = Annotated[int, QueryParameter(ge=1, le=MAX_PAGE_EVENTS, description="At most so many events.")]
Wanted = Annotated[str | None, QueryParameter(min_length=1, max_length=256)]


class _Probe(msgspec.Struct):
    """Tells a batch from a single event without looking further."""

    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Batch(msgspec.Struct, forbid_unknown_fields=True):
    events: Annotated[list[Event], msgspec.Meta(min_length=1, max_length=MAX_BATCH_EVENTS)]


class _LooseBatch(msgspec.Struct, forbid_unknown_fields=True):
    events: Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MAX_BATCH_EVENTS)]


class _Identified(msgspec.Struct):
    event_id: str | None = None


_identified = msgspec.json.Decoder(_Identified)
_probe = msgspec.json.Decoder(_Probe)
_event = msgspec.json.Decoder(Event)
_batch = msgspec.json.Decoder(Batch)
_loose_batch = msgspec.json.Decoder(_LooseBatch)


@post("/v1/events", status_code=200, summary="Append one event, or a batch of 1 to 1,000")
async def append_events(request: Caller, app: TheApp) -> AppendAnswer:
    """Each item of a batch is accepted or rejected on its own; the results are in input order. A single event that
    cannot be stored is a problem: 422, or 409 when its id was stored earlier with other content."""
    body = await read_body(request, app.settings.max_body_bytes)
    is_batch, items = _decode(body)
    app.ledger.count("rejected", sum(isinstance(item, ItemResult) for item in items))
    outcomes = iter(await app.ledger.append(request.user, [item for item in items if isinstance(item, Event)]))
    results = [_result(item, next(outcomes)) if isinstance(item, Event) else item for item in items]
    if not is_batch:
        _raise_if_not_stored(results[0])
    statuses = [result.status for result in results]
    accepted, duplicates = statuses.count("accepted"), statuses.count("duplicate")
    return AppendAnswer(accepted, len(results) - accepted - duplicates, duplicates, results)


def _decode(body: bytes) -> tuple[bool, Sequence[Event | ItemResult]]:
    """Whether the body is a batch, and its items."""
    try:
        if _probe.decode(body).events is msgspec.UNSET:
            return False, [_event.decode(body)]
        return True, _decode_batch(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        items = None if isinstance(error, msgspec.ValidationError) else _split_batch(body)
        if items is None:
            raise decode_failure(error, Event, body) from None
        return True, [_decode_item(raw) for raw in items]


def _split_batch(body: bytes) -> list[bytes] | None:
    """The items of a batch that is not quite JSON (text that is half of a character, say), by a parser that is slower
    and takes more; None where it does not help."""
    try:
        whole = json.loads(body)
        items: list[Any] = whole["events"] if set(whole) == {"events"} else []
        return [json.dumps(item).encode() for item in items] if 1 <= len(items) <= MAX_BATCH_EVENTS else None
    except (ValueError, TypeError, RecursionError):
        return None


def _decode_batch(body: bytes) -> Sequence[Event | ItemResult]:
    """All at once where all are well formed, else one by one, so that one bad item costs only itself."""
    try:
        return _batch.decode(body).events
    except msgspec.ValidationError:
        return [_decode_item(raw) for raw in _loose_batch.decode(body).events]


def _decode_item(raw: msgspec.Raw | bytes) -> Event | ItemResult:
    try:
        return _event.decode(raw)
    except msgspec.ValidationError as error:
        return ItemResult(_id_of(raw), None, "rejected", (field_error(error, Event),))
    except msgspec.DecodeError as error:
        return ItemResult(_id_of(raw), None, "rejected", (FieldError("event", not_json(error, bytes(raw))),))


def _id_of(raw: msgspec.Raw | bytes) -> str | None:
    try:
        return _identified.decode(raw).event_id
    except msgspec.DecodeError:
        return None


def _result(event: Event, outcome: Outcome) -> ItemResult:
    return ItemResult(str(event.event_id), outcome.position, outcome.status, outcome.errors)


def _raise_if_not_stored(result: ItemResult) -> None:
    if result.status == "conflict":
        raise Conflict("an event with this id was stored earlier with other content", result.errors)
    if result.status == "rejected":
        raise refusal_of(result.errors)


@get("/v1/events", summary="Events in order of position")
async def list_events(
    request: Caller,
    app: TheApp,
    after: After = 0,
    limit: Limit = 100,
    session_id: Wanted = None,
    trace_id: Wanted = None,
    event_type: Wanted = None,
) -> EventPage:
    wanted = Filter(session_id, trace_id, event_type)
    return await app.ledger.page(request.user.scope, after, limit, wanted)


@get("/v1/events/{event_id:uuid}", summary="One event's envelope")
async def get_event(request: Caller, app: TheApp, event_id: FromPath[UUID]) -> StoredEvent:
    return await app.ledger.get(request.user.scope, event_id)


@get("/v1/events/{event_id:uuid}/payload", summary="One event's payload, decrypted")
async def get_payload(request: Caller, app: TheApp, event_id: FromPath[UUID]) -> Response[bytes]:
    payload = await app.ledger.payload(request.user.scope, event_id)
    return Response(payload, media_type="application/json")


@get("/v1/events/stream", summary="Events as they are committed (server-sent events)")
async def stream_events(
    request: Caller,
    app: TheApp,
    after: After = 0,
    session_id: Wanted = None,
    trace_id: Wanted = None,
    event_type: Wanted = None,
) -> Stream:
    """Every event has its position as its id; a client that reconnects with `Last-Event-ID` goes on where it was."""
    start = _resume_point(request.headers.get("last-event-id"), after)
    wanted = Filter(session_id, trace_id, event_type)
    return Stream(
        _frames(app, request.user, request.auth, start, wanted),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


def _resume_point(last_event_id: str | None, after: int) -> int:
    if last_event_id is None:
        return after
    if not last_event_id.isdecimal() or len(last_event_id) > 18:
        message = "must be a position that the stream gave"
        raise InvalidInput(f"Last-Event-ID {message}", (FieldError("Last-Event-ID", message),))
    return int(last_event_id)


async def _frames(app: App, principal: Principal, key: str, after: int, wanted: Filter) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    batches = app.ledger.follow(principal.scope, after, wanted)
    pending = asyncio.ensure_future(anext(batches))
    stopping = asyncio.ensure_future(app.stopping.wait())
    try:
        while not stopping.done():
            await asyncio.wait({pending, stopping}, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            # A stream may outlive the key that opened it.
            await app.identity.authenticate(key)
            if pending.done():
                for frame in map(_frame, pending.result()):
                    yield frame
                pending = asyncio.ensure_future(anext(batches))
            else:
                yield b": keep-alive\n\n"
    except WhenceError as error:
        yield b"event: error\ndata: " + msgspec.json.encode(problem_of(error)) + b"\n\n"
    finally:
        pending.cancel()
        stopping.cancel()


def _frame(event: StoredEvent) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (event.global_position, msgspec.json.encode(event))
