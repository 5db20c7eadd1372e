"""Recorded exports, and requests made by hand. `tests/data/otlp` says where the recordings come from."""

import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whence.gateway import otlp
from whence.wire import Event

DATA = Path(__file__).parents[2] / "data" / "otlp"
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
START = 1_794_753_606_716_318_231


def _wire(name: str) -> tuple[bytes, str]:
    """The bytes that travelled, and their content type."""
    protobuf = DATA / f"{name}.pb"
    if protobuf.exists():
        return protobuf.read_bytes(), PROTOBUF
    return (DATA / f"{name}.json-wire").read_bytes(), JSON


def _map(name: str, body: bytes, content_type: str) -> otlp.Mapped:
    return (otlp.events_from_logs if "-logs" in name else otlp.events_from_traces)(body, content_type)


@pytest.fixture
def recording() -> Callable[[str], list[Event]]:
    """The events of a recording, as it travelled; nothing in a recording may be rejected."""

    def load(name: str) -> list[Event]:
        mapped = _map(name, *_wire(name))
        assert mapped.rejected == []
        return mapped.events

    return load


@pytest.fixture
def both_forms() -> Callable[[str], tuple[otlp.Mapped, otlp.Mapped]]:
    """A recording as it travelled, and as decoded JSON."""

    def load(name: str) -> tuple[otlp.Mapped, otlp.Mapped]:
        return _map(name, *_wire(name)), _map(name, (DATA / f"{name}.json").read_bytes(), JSON)

    return load


@pytest.fixture
def payload() -> Callable[[Event], dict[str, Any]]:
    def decode(event: Event) -> dict[str, Any]:
        assert isinstance(event.payload, msgspec.Raw)
        return json.loads(bytes(event.payload))

    return decode


def any_value(value: Any) -> dict[str, Any]:
    """A Python value as OTLP/JSON's AnyValue."""
    if isinstance(value, Encoded):
        return value
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": pairs(value)}}
    return {}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": any_value(value)} for key, value in attributes.items()]


class Encoded(dict[str, Any]):
    """An AnyValue written by hand."""


@pytest.fixture
def encoded() -> type[Encoded]:
    return Encoded


@pytest.fixture
def traces() -> Callable[..., bytes]:
    """A request with one span, as JSON: attributes as a dict, any other field of the span by its JSON name."""

    def build(attributes: dict[str, Any] | None = None, resource: dict[str, Any] | None = None, **fields: Any) -> bytes:
        span = {"traceId": TRACE, "spanId": SPAN, "startTimeUnixNano": str(START), "endTimeUnixNano": str(START + 1000)}
        span |= {"attributes": pairs(attributes or {}), **fields}
        group = {"resource": {"attributes": pairs(resource or {})}, "scopeSpans": [{"spans": [span]}]}
        return json.dumps({"resourceSpans": [group]}).encode()

    return build


@pytest.fixture
def span_event(traces: Callable[..., bytes]) -> Callable[..., Event]:
    """The event of one span, which must be accepted."""

    def build(attributes: dict[str, Any] | None = None, **fields: Any) -> Event:
        mapped = otlp.events_from_traces(traces(attributes, **fields), JSON)
        assert mapped.rejected == []
        return mapped.events[0]

    return build


@pytest.fixture
def refusal(traces: Callable[..., bytes]) -> Callable[..., str]:
    """Why one span was rejected."""

    def build(attributes: dict[str, Any] | None = None, **fields: Any) -> str:
        mapped = otlp.events_from_traces(traces(attributes, **fields), JSON)
        assert mapped.events == []
        assert [rejection.index for rejection in mapped.rejected] == [0]
        return mapped.rejected[0].reason

    return build


@pytest.fixture
def logs() -> Callable[..., bytes]:
    """A request with one log record, as JSON."""

    def build(attributes: dict[str, Any] | None = None, body: Any = None, **fields: Any) -> bytes:
        record = {"traceId": TRACE, "spanId": SPAN, "timeUnixNano": str(START), "body": any_value(body)}
        record |= {"attributes": pairs(attributes or {}), **fields}
        return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()

    return build


@pytest.fixture
def log_event(logs: Callable[..., bytes]) -> Callable[..., Event]:
    def build(attributes: dict[str, Any] | None = None, body: Any = None, **fields: Any) -> Event:
        mapped = otlp.events_from_logs(logs(attributes, body, **fields), JSON)
        assert mapped.rejected == []
        return mapped.events[0]

    return build


@pytest.fixture
def as_protobuf() -> Callable[[bytes], bytes]:
    """An OTLP/JSON request as protobuf: the ids of OTLP/JSON are hexadecimal, those of protobuf's own JSON base64."""

    def convert(body: bytes) -> bytes:
        request = json.loads(body)
        message = ExportTraceServiceRequest() if "resourceSpans" in request else ExportLogsServiceRequest()
        return ParseDict(_base64_ids(request), message).SerializeToString()

    return convert


def _base64_ids(value: Any) -> Any:
    if isinstance(value, list):
        return [_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: b64encode(bytes.fromhex(item)).decode() if key in ids else _base64_ids(item) for key, item in value.items()
    }
