"""Spans and log records as events.

An event is a function of one record with its resource and scope, and of nothing else in the request: the same record in
another batch must give the same bytes, or a re-export would be a conflict.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha1, sha256
from uuid import UUID

import msgspec

from whence.gateway.otlp.decode import Log, Origin, Refused, Span, SpanEvent, encode_json, rfc3339
from whence.gateway.otlp.facts import Facts, fitting
from whence.gateway.otlp.forms import Json, JsonObject
from whence.gateway.otlp.messages import as_message, as_messages
from whence.gateway.otlp.vocabulary import DETAILS_EVENT, KNOWN, MESSAGE_EVENTS, event_type, label
from whence.wire import SPAN_NAMESPACE, Event, EventStatus

_NAMESPACE_HASH = sha1(SPAN_NAMESPACE.bytes, usedforsecurity=False)

CONTENT_EVENT = "llm.content"
LOG_EVENT = "log.record"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN_ID = re.compile(r"(?!0{16})[0-9a-f]{16}")


@lru_cache(maxsize=4096)
def event_id(trace_id: str, span_id: str) -> UUID:
    """The id of the event of a span; remembered for a while, because each of its children asks for it."""
    return _uuid(f"{trace_id}:{span_id}")


def _uuid(name: str) -> UUID:
    """As uuid.uuid5, but with the namespace hashed once."""
    digest = _NAMESPACE_HASH.copy()
    digest.update(name.encode())
    return UUID(bytes=digest.digest()[:16], version=5)


def event_of_span(span: Span) -> Event:
    _check_ids(span.trace_id, span.span_id)
    if span.start == 0:
        raise Refused("start_time_unix_nano: missing")
    kind = event_type(span.attributes, span.kind)
    facts = Facts(span.attributes)
    _claim_values(facts, kind)
    status = _status(span)
    if span.failed:
        _note_exception(span, facts)
    return Event(
        event_id=event_id(span.trace_id, span.span_id),
        event_type=kind,
        occurred_at=_time(span.start),
        session_id=facts.identifier("session_id") or span.trace_id,
        trace_id=span.trace_id,
        agent_id=facts.identifier("agent_id") or _agent_name(span, kind),
        user_id=facts.identifier("user_id"),
        parent_event_id=_parent(span),
        tool_name=facts.identifier("tool_name") or _tool_name(span, kind),
        ended_at=_time(span.end) if span.end else None,
        status=status,
        measures=facts.measures(),
        payload=_span_payload(span, facts),
    )


def event_of_log(log: Log) -> Event:
    if not (log.trace_id.strip("0") and log.span_id.strip("0")):
        raise Refused("trace_id and span_id: not set, so the record cannot be joined to a span")
    _check_ids(log.trace_id, log.span_id)
    if not (log.time or log.observed):
        raise Refused("time_unix_nano: missing")
    facts = Facts(log.attributes)
    name = _event_name(log, facts)
    return Event(
        event_id=_uuid(f"{log.trace_id}:{log.span_id}:{_digest(log)}"),
        event_type=CONTENT_EVENT if _has_content(name) else LOG_EVENT,
        occurred_at=_time(log.time or log.observed),
        session_id=facts.identifier("session_id") or log.trace_id,
        trace_id=log.trace_id,
        agent_id=facts.identifier("agent_id") or _service_name(log.origin),
        user_id=facts.identifier("user_id"),
        parent_event_id=event_id(log.trace_id, log.span_id),
        tool_name=facts.identifier("tool_name"),
        measures=facts.measures(),
        payload=_log_payload(log, name, facts),
    )


# --- the envelope ---------------------------------------------------------------------------------------------------


def _check_ids(trace_id: str, span_id: str) -> None:
    if not _TRACE_ID.fullmatch(trace_id):
        raise Refused("trace_id: must be 16 bytes, not all zero")
    if not _SPAN_ID.fullmatch(span_id):
        raise Refused("span_id: must be 8 bytes, not all zero")


def _parent(span: Span) -> UUID | None:
    """The event of the parent span. Zeros are how some exporters say that there is none."""
    parent = span.parent_span_id
    if not parent.strip("0"):
        return None
    if not _SPAN_ID.fullmatch(parent):
        raise Refused("parent_span_id: must be 8 bytes")
    return event_id(span.trace_id, parent)


def _time(nanos: int) -> datetime:
    return _EPOCH + timedelta(microseconds=nanos // 1000)


def _agent_name(span: Span, kind: str) -> str | None:
    name = _own_name(span) if kind in ("agent.invoke", "agent.create") else None
    return name or _service_name(span.origin)


def _tool_name(span: Span, kind: str) -> str | None:
    return _own_name(span) if kind == "tool.execute" else None


def _own_name(span: Span) -> str | None:
    """What a span of an agent or a tool is called; the GenAI conventions put the operation before the name."""
    entity = span.attributes.get("traceloop.entity.name")
    if isinstance(entity, str) and entity:
        return fitting(entity, "traceloop.entity.name")
    operation, _, rest = span.name.partition(" ")
    named = operation in ("execute_tool", "invoke_agent", "create_agent")
    return fitting(rest if named else span.name, "name") or None


def _service_name(origin: Origin) -> str | None:
    """The service; not the name that SDKs make up where none was given, which is the same for all of them."""
    name = origin.service_name
    if not isinstance(name, str) or not name or name.startswith("unknown_service"):
        return None
    return fitting(name, "resource service.name")


def _status(span: Span) -> EventStatus:
    if not span.failed:
        return "completed" if span.end else "running"
    types = (span.attributes.get("error.type"), *_exception_types(span))
    return "timeout" if any(_is_timeout(name) for name in types) else "failed"


def _note_exception(span: Span, facts: Facts) -> None:
    """A span that failed without an `error.type` has the type of the exception that ended it."""
    named = [accepted for name in _exception_types(span) if (accepted := label(name))]
    if named:
        facts.sections["measures"].setdefault("error_type", named[0])


def _exception_types(span: Span) -> list[Json]:
    """The types of the recorded exceptions, last first: the last one is the one that ended the span."""
    return [event.attributes.get("exception.type") for event in reversed(span.events) if event.name == "exception"]


def _is_timeout(error_type: Json) -> bool:
    """Whether an error's type is a timeout in some language: TimeoutError, ReadTimeout, DEADLINE_EXCEEDED."""
    if not isinstance(error_type, str):
        return False
    name = error_type.rpartition(".")[2].lower().replace("_", "")
    return "timeout" in name or name == "deadlineexceeded"


# --- the payload ----------------------------------------------------------------------------------------------------


def _claim_values(facts: Facts, kind: str) -> None:
    """OpenInference gives a tool's arguments and a retriever's query as the span's input; here they have places."""
    if kind == "tool.execute":
        facts.move("input", "tool", "arguments")
        facts.move("output", "tool", "result")
    elif kind == "retriever.query" and isinstance(facts.sections["payload"].get("input"), str):
        facts.move("input", "retrieval", "query")


def _span_payload(span: Span, facts: Facts) -> msgspec.Raw:
    payload = facts.payload()
    if span.events:
        payload["events"] = _events(payload, span.events)
    if span.name:
        payload["name"] = span.name
    if span.kind != "unspecified":
        payload["kind"] = span.kind
    payload.update(span.extras)
    return _encode(payload, span.origin)


def _encode(payload: JsonObject, origin: Origin) -> msgspec.Raw:
    if origin.resource:
        payload["resource"] = origin.resource
    if origin.scope:
        payload["scope"] = origin.scope
    return msgspec.Raw(encode_json(payload))


def _events(payload: JsonObject, events: list[SpanEvent]) -> list[Json]:
    """The span events, less the messages in them, which join the payload unless the attributes gave it some."""
    taken = frozenset(payload)
    for event in events:
        if event.name == DETAILS_EVENT:
            _add_details(payload, event.attributes, taken)
        elif event.name in MESSAGE_EVENTS:
            place, role = MESSAGE_EVENTS[event.name]
            if place not in taken:
                _append(payload, place, _event_messages(event.attributes, role))
    return [_event(event) for event in events]


def _event(event: SpanEvent) -> JsonObject:
    fields: JsonObject = {"name": event.name, "time": event.time}
    if event.attributes:
        fields["attributes"] = event.attributes
    if event.dropped_attributes_count:
        fields["dropped_attributes_count"] = event.dropped_attributes_count
    return fields


def _add_details(payload: JsonObject, attributes: JsonObject, taken: frozenset[str]) -> None:
    for key in [key for key in attributes if key in KNOWN]:
        (section, name), _, accept = KNOWN[key]
        if section == "payload" and name not in taken and name not in payload:
            accepted = accept(attributes[key])
            if accepted is not None:
                payload[name] = accepted
                del attributes[key]


_WHOLE_MESSAGE = ("gen_ai.event.content", "gen_ai.prompt", "gen_ai.completion")
_MESSAGE_FIELDS = (
    "role",
    "content",
    "name",
    "id",
    "tool_call_id",
    "tool_calls",
    "message",
    "finish_reason",
    "index",
)


def _event_messages(attributes: JsonObject, role: str) -> list[Json]:
    """The messages in a span event, as one attribute or spread over several; what is used leaves the attributes."""
    for key in _WHOLE_MESSAGE:
        messages = as_messages(attributes.get(key), role)
        if messages is not None:
            del attributes[key]
            return messages
    fields = {name: attributes.pop(name) for name in _MESSAGE_FIELDS if name in attributes}
    return [as_message(fields, role)] if fields else []


def _append(payload: JsonObject, place: str, messages: list[Json]) -> None:
    present = payload.setdefault(place, messages)
    if isinstance(present, list) and present is not messages:
        present += messages


def _event_name(log: Log, facts: Facts) -> str:
    """The name of a log record that is an event. It was an attribute before OTLP had a field for it."""
    if log.event_name:
        return log.event_name
    name = log.attributes.get("event.name")
    if not isinstance(name, str):
        return ""
    del facts.rest["event.name"]
    return name


def _has_content(name: str) -> bool:
    return name in MESSAGE_EVENTS or (name.startswith("gen_ai.") and name.endswith(".operation.details"))


def _log_payload(log: Log, name: str, facts: Facts) -> msgspec.Raw:
    payload = facts.payload()
    place, role = MESSAGE_EVENTS.get(name, ("", ""))
    messages = as_messages(log.body, role) if place and place not in payload and log.body else None
    if messages is not None:
        payload[place] = messages
    elif log.body is not None:
        payload["body"] = log.body
    if name:
        payload["event_name"] = name
    if log.time and log.observed:
        payload["observed_time"] = rfc3339(log.observed)
    payload.update(log.extras)
    return _encode(payload, log.origin)


def _digest(log: Log) -> str:
    """A digest of what was sent, not of how it was mapped, so that a better mapping does not store a record again."""
    sent = (log.event_name, log.time, log.observed, log.body, log.attributes, log.extras)
    origin = (log.origin.resource, log.origin.scope)
    return sha256(encode_json((sent, origin))).hexdigest()
