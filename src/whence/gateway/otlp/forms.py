"""The two wire forms of OTLP, protobuf and JSON, parsed into messages of one shape.

The JSON form is decoded into classes that mirror the generated protobuf ones field by field, so that one reader serves
both forms and an export gives the same events whichever way it travelled.
"""

from typing import Annotated, TypeAlias, TypeVar, cast

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whence.errors import MalformedBody, UnsupportedMedia

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | msgspec.Raw | None"
"""A JSON value; Raw is one that was encoded earlier."""

JsonObject: TypeAlias = dict[str, Json]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def bare(content_type: str) -> str:
    """What a Content-Type header says, without parameters and in lower case."""
    return content_type.partition(";")[0].strip().lower()


def media_type(content_type: str) -> str:
    """The content type without its parameters, if OTLP/HTTP knows it."""
    media = bare(content_type)
    if media not in (PROTOBUF, JSON):
        raise UnsupportedMedia(f"The content type must be {PROTOBUF} or {JSON}.")
    return media


def parse_traces(body: bytes, content_type: str) -> ExportTraceServiceRequest:
    return _parse(body, content_type, ExportTraceServiceRequest, Traces)


def parse_logs(body: bytes, content_type: str) -> ExportLogsServiceRequest:
    return _parse(body, content_type, ExportLogsServiceRequest, Logs)


Message = TypeVar("Message", ExportTraceServiceRequest, ExportLogsServiceRequest)


def _parse(body: bytes, content_type: str, message: type[Message], mirror: "type[Mirror]") -> Message:
    if media_type(content_type) == PROTOBUF:
        try:
            return message.FromString(body)
        except DecodeError as error:
            raise MalformedBody(f"The body is not a protobuf {message.__name__}.") from error
    try:
        # The mirror has every field that the reader reads; a test holds it to the generated class.
        return cast("Message", _decode_json(body, mirror))
    except RecursionError as error:
        raise MalformedBody("The body is nested too deeply.") from error
    except UnicodeDecodeError as error:  # msgspec checks the encoding string by string, and this is not its own error
        raise MalformedBody("The body is not UTF-8.") from error
    except msgspec.DecodeError as error:
        raise MalformedBody(f"The body is not the JSON form of {message.__name__}: {error}.") from error


def _decode_json(body: bytes, mirror: "type[Mirror]") -> "Mirror":
    # Not strict: a 64-bit number is a string from Python and a number from Node.
    try:
        return msgspec.json.decode(body, type=mirror, strict=False)
    except msgspec.ValidationError:
        # Protobuf's JSON form lets null stand for an absent field. It is rare, so it is looked for only now.
        if b"null" not in body:
            raise
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), mirror, strict=False)


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


class Mirror(msgspec.Struct, rename="camel"):
    """A message of OTLP/JSON: names in camel case, unknown fields ignored."""


class Value(Mirror):
    """AnyValue; at most one field is set."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    double_value: float | None = None
    array_value: "Array | None" = None
    kvlist_value: "Pairs | None" = None
    bytes_value: bytes | None = None

    def WhichOneof(self, _group: str) -> str | None:
        return next((name for name in self.__struct_fields__ if getattr(self, name) is not None), None)


class Array(Mirror):
    values: list[Value] = []


class Pair(Mirror):
    key: str = ""
    value: Value = msgspec.field(default_factory=Value)


class Pairs(Mirror):
    values: list[Pair] = []


class Attributed(Mirror):
    attributes: list[Pair] = []
    dropped_attributes_count: int = 0


class Scope(Attributed):
    name: str = ""
    version: str = ""


class SpanEvent(Attributed):
    time_unix_nano: int = 0
    name: str = ""


class Link(Attributed):
    trace_id: str = ""
    span_id: str = ""
    trace_state: str = ""
    flags: int = 0


class Status(Mirror):
    message: str = ""
    code: int | str = 0


class Span(Attributed):
    trace_id: str = ""
    span_id: str = ""
    trace_state: str = ""
    parent_span_id: str = ""
    flags: int = 0
    name: str = ""
    kind: int | str = 0
    start_time_unix_nano: int = 0
    end_time_unix_nano: int = 0
    events: list[SpanEvent] = []
    dropped_events_count: int = 0
    links: list[Link] = []
    dropped_links_count: int = 0
    status: Status = msgspec.field(default_factory=Status)


class Log(Attributed):
    time_unix_nano: int = 0
    observed_time_unix_nano: int = 0
    severity_number: int | str = 0
    severity_text: str = ""
    body: Value = msgspec.field(default_factory=Value)
    flags: int = 0
    trace_id: str = ""
    span_id: str = ""
    event_name: str = ""


class ScopeSpans(Mirror):
    scope: Scope = msgspec.field(default_factory=Scope)
    spans: list[Span] = []
    schema_url: str = ""


class ScopeLogs(Mirror):
    scope: Scope = msgspec.field(default_factory=Scope)
    log_records: list[Log] = []
    schema_url: str = ""


class ResourceSpans(Mirror):
    resource: Attributed = msgspec.field(default_factory=Attributed)
    scope_spans: list[ScopeSpans] = []
    schema_url: str = ""


class ResourceLogs(Mirror):
    resource: Attributed = msgspec.field(default_factory=Attributed)
    scope_logs: list[ScopeLogs] = []
    schema_url: str = ""


class Traces(Mirror):
    resource_spans: list[ResourceSpans] = []


class Logs(Mirror):
    resource_logs: list[ResourceLogs] = []
