"""OTLP/HTTP: exports of traces and logs as events, and the answers that exporters expect. No I/O."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, TypeVar
from uuid import UUID

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from whence.gateway.otlp.decode import Refused, read_logs, read_spans
from whence.gateway.otlp.forms import JSON, media_type
from whence.gateway.otlp.mapping import event_id, event_of_log, event_of_span
from whence.wire import Event

Kind = Literal["traces", "logs"]


class Rejection(msgspec.Struct, frozen=True):
    """A record that did not become an event."""

    index: int
    """Its position among the records of the request, from 0."""
    reason: str
    """What is wrong with it; begins with the field, holds no value."""


class Mapped(msgspec.Struct, frozen=True):
    """The events of one request in its order, and the records that gave none."""

    events: list[Event]
    rejected: list[Rejection]


def events_from_traces(body: bytes, content_type: str) -> Mapped:
    """The events of an ExportTraceServiceRequest.

    Raises UnsupportedMedia or MalformedBody; a span that is wrong by itself is among the rejected.
    """
    return _mapped(read_spans(body, content_type), event_of_span)


def events_from_logs(body: bytes, content_type: str) -> Mapped:
    """The events of an ExportLogsServiceRequest; as for traces."""
    return _mapped(read_logs(body, content_type), event_of_log)


def portions(kind: Kind, body: bytes, content_type: str, size: int) -> Iterator[Mapped]:
    """The same, `size` records at a time: what a request holds in memory, and what mapping it costs, comes in parts."""
    if kind == "traces":
        yield from _in_portions(read_spans(body, content_type), event_of_span, size)
    else:
        yield from _in_portions(read_logs(body, content_type), event_of_log, size)


def event_id_of_span(trace_id: bytes, span_id: bytes) -> UUID:
    """The id of the event that a span becomes."""
    return event_id(trace_id.hex(), span_id.hex())


def encode_answer(kind: Kind, content_type: str, rejected: int, message: str) -> bytes:
    """The answer to an export that was taken, wholly or in part; `partial_success` only if it has something to say."""
    partial = rejected > 0 or bool(message)
    if media_type(content_type) == JSON:
        field = "rejectedSpans" if kind == "traces" else "rejectedLogRecords"
        # A 64-bit number is a string in protobuf's JSON form.
        return msgspec.json.encode(
            {"partialSuccess": {field: str(rejected), "errorMessage": message}} if partial else {}
        )
    if not partial:
        return b""
    if kind == "traces":
        spans = ExportTracePartialSuccess(rejected_spans=rejected, error_message=message)
        return ExportTraceServiceResponse(partial_success=spans).SerializeToString()
    records = ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=message)
    return ExportLogsServiceResponse(partial_success=records).SerializeToString()


def encode_error(content_type: str, code: int, message: str) -> bytes:
    """A google.rpc.Status, the body of every OTLP/HTTP answer that is not a success."""
    if media_type(content_type) == JSON:
        return msgspec.json.encode({"code": code, "message": message})
    # Status is a number in field 1 and a string in field 2. So is this message, and it saves a dependency.
    return ExportTracePartialSuccess(rejected_spans=code, error_message=message).SerializeToString()


Record = TypeVar("Record")


def _in_portions(
    records: Iterator[Record | Refused], to_event: Callable[[Record], Event], size: int
) -> Iterator[Mapped]:
    while portion := list(islice(records, size)):
        yield _mapped(iter(portion), to_event)


def _mapped(records: Iterator[Record | Refused], to_event: Callable[[Record], Event]) -> Mapped:
    mapped = Mapped([], [])
    for index, record in enumerate(records):
        if isinstance(record, Refused):
            mapped.rejected.append(Rejection(index, str(record)))
            continue
        try:
            mapped.events.append(to_event(record))
        except Refused as refusal:
            mapped.rejected.append(Rejection(index, str(refusal)))
    return mapped
