"""OTLP messages as neutral records: plain values, no protobuf, no dialect."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from math import isfinite
from typing import TypeVar

import msgspec
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord as LogMessage
from opentelemetry.proto.logs.v1.logs_pb2 import ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from whence.gateway.otlp.forms import Json, JsonObject, parse_logs, parse_traces

MAX_DEPTH = 24
MAX_ORIGIN_BYTES = 16 << 10
"""Levels of nesting in one value. Protobuf's own limit of 100 messages leaves about 31 levels of maps, so that a value
that is too deep is refused with its record, in both forms, before that limit fails the whole request."""

MAX_NANOS = 2**63 - 1
"""The last time that is read, in the year 2262: unsigned in protobuf, signed in most of what exports it."""

encode_json = msgspec.json.Encoder(order="deterministic").encode
"""Sorted keys: a re-export must give the same bytes, and an SDK may order its attributes as it likes."""


class Refused(Exception):
    """One record cannot become an event. The text names the field, never a value: values may be content."""


class Origin(msgspec.Struct, frozen=True):
    """What the records of one instrumentation scope share, encoded once for all of them."""

    service_name: Json
    resource: msgspec.Raw | None
    scope: msgspec.Raw | None


class SpanEvent(msgspec.Struct):
    name: str
    time: str
    attributes: JsonObject
    dropped_attributes_count: int


class Span(msgspec.Struct):
    """A span. Ids are lower-case hexadecimal digits, times are nanoseconds, 0 when absent."""

    origin: Origin
    trace_id: str
    span_id: str
    parent_span_id: str
    name: str
    kind: str | int
    start: int
    end: int
    failed: bool
    attributes: JsonObject
    events: list[SpanEvent]
    extras: JsonObject
    """What goes to the payload as it is: links, status message, trace state, flags, dropped counts."""


class Log(msgspec.Struct):
    """A log record; `time` is when it happened, `observed` when it was collected."""

    origin: Origin
    trace_id: str
    span_id: str
    event_name: str
    time: int
    observed: int
    body: Json
    attributes: JsonObject
    extras: JsonObject


def read_spans(body: bytes, content_type: str) -> Iterator[Span | Refused]:
    """The spans of a request in its order; a refusal stands where a span could not be read."""
    for group in parse_traces(body, content_type).resource_spans:
        for scoped in group.scope_spans:
            yield from _records(_origin(group, scoped), scoped.spans, _span)


def read_logs(body: bytes, content_type: str) -> Iterator[Log | Refused]:
    """The log records of a request in its order; a refusal stands where a record could not be read."""
    for group in parse_logs(body, content_type).resource_logs:
        for scoped in group.scope_logs:
            yield from _records(_origin(group, scoped), scoped.log_records, _log)


def rfc3339(nanos: int) -> str:
    """A time as text that keeps its nanoseconds, which neither a datetime nor a JavaScript number would."""
    seconds, fraction = divmod(nanos, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


Message = TypeVar("Message")
Record = TypeVar("Record", Span, Log)

_KINDS: dict[int | str, str] = {
    number_or_name: name.removeprefix("SPAN_KIND_").lower()
    for name, number in SpanMessage.SpanKind.items()
    for number_or_name in (number, name)
}
_FAILED = (Status.STATUS_CODE_ERROR, "STATUS_CODE_ERROR")
_SEVERITIES: dict[int | str, int] = dict(SeverityNumber.items())


def _records(
    origin: Origin | Refused, messages: Iterable[Message], read: Callable[[Message, Origin], Record]
) -> Iterator[Record | Refused]:
    for message in messages:
        if isinstance(origin, Refused):
            yield origin
            continue
        try:
            yield read(message, origin)
        except Refused as refusal:
            yield refusal


def _span(message: SpanMessage, origin: Origin) -> Span:
    kind, status = message.kind, message.status
    extras: JsonObject = {
        "status_message": status.message,
        "trace_state": message.trace_state,
        "flags": message.flags,
        "dropped_attributes_count": message.dropped_attributes_count,
        "dropped_events_count": message.dropped_events_count,
        "dropped_links_count": message.dropped_links_count,
    }
    if links := message.links:
        extras["links"] = [_link(link) for link in links]
    return Span(
        origin,
        _hex(message.trace_id),
        _hex(message.span_id),
        _hex(message.parent_span_id),
        message.name,
        _KINDS.get(kind, kind),
        _nanos(message.start_time_unix_nano, "start_time_unix_nano"),
        _nanos(message.end_time_unix_nano, "end_time_unix_nano"),
        status.code in _FAILED,
        _attributes(message.attributes, "attributes"),
        [_event(event) for event in message.events],
        _present(extras),
    )


def _event(message: SpanMessage.Event) -> SpanEvent:
    return SpanEvent(
        message.name,
        rfc3339(_nanos(message.time_unix_nano, "events.time_unix_nano")),
        _attributes(message.attributes, "events.attributes"),
        message.dropped_attributes_count,
    )


def _link(message: SpanMessage.Link) -> JsonObject:
    return _present(
        {
            "trace_id": _hex(message.trace_id),
            "span_id": _hex(message.span_id),
            "trace_state": message.trace_state,
            "attributes": _attributes(message.attributes, "links.attributes"),
            "dropped_attributes_count": message.dropped_attributes_count,
            "flags": message.flags,
        }
    )


def _log(message: LogMessage, origin: Origin) -> Log:
    number = message.severity_number
    severity = _present({"number": _SEVERITIES.get(number, number), "text": message.severity_text})
    extras: JsonObject = {
        "severity": severity,
        "flags": message.flags,
        "dropped_attributes_count": message.dropped_attributes_count,
    }
    return Log(
        origin,
        _hex(message.trace_id),
        _hex(message.span_id),
        message.event_name,
        _nanos(message.time_unix_nano, "time_unix_nano"),
        _nanos(message.observed_time_unix_nano, "observed_time_unix_nano"),
        _value(message.body, "body", 0),
        _attributes(message.attributes, "attributes"),
        _present(extras),
    )


def _origin(group: ResourceSpans | ResourceLogs, scoped: ScopeSpans | ScopeLogs) -> Origin | Refused:
    try:
        attributes = _attributes(group.resource.attributes, "resource.attributes")
        resource = _resource(group.resource, attributes, group.schema_url)
        scope = _scope(scoped.scope, scoped.schema_url)
    except Refused as refusal:
        return refusal
    origin = Origin(attributes.get("service.name"), _raw(resource), _raw(scope))
    if len(bytes(origin.resource or b"")) + len(bytes(origin.scope or b"")) > MAX_ORIGIN_BYTES:
        # It is repeated in the payload of every record, so a small request could become a very large one.
        return Refused(f"resource: larger than {MAX_ORIGIN_BYTES:,} bytes with its scope")
    return origin


def _resource(message: Resource, attributes: JsonObject, schema_url: str) -> JsonObject:
    return _present(
        {
            "attributes": attributes,
            "dropped_attributes_count": message.dropped_attributes_count,
            "schema_url": schema_url,
        }
    )


def _scope(message: InstrumentationScope, schema_url: str) -> JsonObject:
    return _present(
        {
            "name": message.name,
            "version": message.version,
            "attributes": _attributes(message.attributes, "scope.attributes"),
            "dropped_attributes_count": message.dropped_attributes_count,
            "schema_url": schema_url,
        }
    )


def _attributes(pairs: Iterable[KeyValue], field: str) -> JsonObject:
    """Attributes by key. OTLP forbids a key twice; where it happens the last one counts, as in the SDKs."""
    attributes: JsonObject = {}
    for pair in pairs:
        value = pair.value
        # Most values are strings, and asking for the string is half as dear as asking which kind it is.
        attributes[pair.key] = value.string_value or _value(value, field, 0)
    return attributes


def _value(value: AnyValue, field: str, depth: int) -> Json:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "bool_value":
            return value.bool_value
        case "double_value":
            # JSON has no NaN and no infinity: msgspec would write null and lose which one it was.
            number = value.double_value
            return number if isfinite(number) else _NOT_FINITE[str(number)]
        case "bytes_value":
            return b64encode(value.bytes_value).decode("ascii")
        case "array_value":
            _check_depth(field, depth)
            return [_value(item, field, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            _check_depth(field, depth)
            return {pair.key: _value(pair.value, field, depth + 1) for pair in value.kvlist_value.values}
        case _:
            return None


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _check_depth(field: str, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Refused(f"{field}: nested deeper than {MAX_DEPTH} levels")


def _hex(identifier: bytes | str) -> str:
    """An id is bytes in protobuf and hexadecimal digits, of either case, in JSON."""
    return identifier.lower() if isinstance(identifier, str) else identifier.hex()


def _nanos(nanos: int, field: str) -> int:
    if not 0 <= nanos <= MAX_NANOS:
        raise Refused(f"{field}: out of range")
    return nanos


def _present(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value}


def _raw(fields: JsonObject) -> msgspec.Raw | None:
    return msgspec.Raw(encode_json(fields)) if fields else None
