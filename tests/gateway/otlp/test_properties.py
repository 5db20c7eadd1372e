"""What holds for every request: nothing is lost, order and batch do not matter, and only MalformedBody is raised."""

import json
import re
import string
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from whence.errors import MalformedBody
from whence.gateway import otlp
from whence.gateway.otlp.flattened import LISTS
from whence.gateway.otlp.vocabulary import KNOWN, MESSAGE_EVENTS

PROTOBUF, JSON = "application/x-protobuf", "application/json"
EVENT_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
PATHS = [
    "message.role",
    "message.content",
    "message.name",
    "message.tool_call_id",
    "message.function_call_name",
    "message.contents.0.message_content.type",
    "message.contents.0.message_content.text",
    "message.contents.1.message_content.image.image.url",
    "message.contents.1.message_content.audio.audio.url",
    "message.contents.0.tool_call.id",
    "message.tool_calls.0.tool_call.id",
    "message.tool_calls.0.tool_call.function.name",
    "message.tool_calls.0.tool_call.function.arguments",
    "role",
    "content",
    "finish_reason",
    "tool_calls.0.arguments",
    "tool_calls.0.name",
    "prompt.text",
    "completion.text",
    "document.content",
    "document.metadata",
    "tool.json_schema",
    "tool.name",
    "parameters",
    "invented.path",
]
KINDS = ["LLM", "TOOL", "AGENT", "RETRIEVER", "CHAIN", "RERANKER"]
OTHER_KEYS = [
    "input.mime_type",
    "output.mime_type",
    "traceloop.span.kind",
    "traceloop.entity.name",
    "llm.request.type",
    "event.name",
    "gen_ai.memory.invented",
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
flattened = st.builds(
    lambda prefix, position, path: f"{prefix}{position}.{path}",
    st.sampled_from(list(LISTS)),
    st.sampled_from(["0", "1", "2", "00", "x", "70000"]),
    st.sampled_from(PATHS),
)
keys = st.one_of(st.sampled_from(list(KNOWN)), flattened, st.sampled_from(OTHER_KEYS), texts)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    texts,
    st.sampled_from(["application/json", "chat", "execute_tool", *KINDS]),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda children: st.one_of(st.lists(children, max_size=3), st.dictionaries(texts, children, max_size=3)),
    max_leaves=8,
)
message_like = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("role", "content", "parts", "tool_calls", "message", "id", "type", "function"), json_values
    ),
)
values = st.recursive(
    st.one_of(scalars, json_values.map(json.dumps), st.lists(message_like, max_size=3).map(json.dumps), message_like),
    lambda children: st.one_of(st.lists(children, max_size=3), st.dictionaries(texts, children, max_size=3)),
    max_leaves=8,
)
attributes = st.dictionaries(keys, values, max_size=12)


def any_value(value: Any) -> AnyValue:
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=max(-(2**63), min(value, 2**63 - 1)))
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    return AnyValue(kvlist_value=KeyValueList(values=pairs(value)))


def pairs(fields: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in fields.items()]


def request(*spans: Span) -> bytes:
    message = ExportTraceServiceRequest()
    scoped = message.resource_spans.add().scope_spans.add()
    scoped.spans.extend(spans)
    return message.SerializeToString()


def span(fields: dict[str, Any], number: int = 1, **others: Any) -> Span:
    span_id = number.to_bytes(8, "big")
    return Span(trace_id=b"t" * 16, span_id=span_id, start_time_unix_nano=10**18, attributes=pairs(fields), **others)


def encoded(mapped: otlp.Mapped) -> bytes:
    return msgspec.json.encode(mapped)


spans = st.builds(
    lambda fields, name, event, event_fields: span(
        fields, name=name, events=[Span.Event(name=event, attributes=pairs(event_fields))]
    ),
    attributes,
    texts,
    st.one_of(st.sampled_from([*MESSAGE_EVENTS, "exception", "gen_ai.client.inference.operation.details"]), texts),
    st.dictionaries(
        st.one_of(keys, st.sampled_from(["content", "role", "message", "tool_calls", "id", "exception.type"])),
        values,
        max_size=5,
    ),
)
# A first example compiles the strategies above, which takes longer than hypothesis expects of it.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@relaxed
@given(spans)
def test_every_span_becomes_an_event_or_a_rejection(message):
    mapped = otlp.events_from_traces(request(message), PROTOBUF)
    assert len(mapped.events) + len(mapped.rejected) == 1
    for event in mapped.events:
        assert EVENT_TYPE.fullmatch(event.event_type)
        for identifier in (event.session_id, event.agent_id, event.user_id, event.tool_name):
            assert identifier is None or (0 < len(identifier) <= 256 and "\0" not in identifier)
        assert isinstance(json.loads(bytes(event.payload)), dict)
    for rejection in mapped.rejected:
        assert re.match(r"[\w. ]+: (longer than 256|contains a NUL)", rejection.reason)


@relaxed
@given(spans, st.randoms())
def test_an_event_does_not_depend_on_the_order_of_attributes(message, random):
    shuffled = Span()
    shuffled.CopyFrom(message)
    del shuffled.attributes[:]
    shuffled.attributes.extend(random.sample(list(message.attributes), len(message.attributes)))
    one, other = (otlp.events_from_traces(request(each), PROTOBUF) for each in (message, shuffled))
    # Which of two identifiers that do not fit is named may differ; that the span is rejected may not.
    assert one.events == other.events


@relaxed
@given(st.lists(attributes, min_size=2, max_size=4))
def test_an_event_does_not_depend_on_its_batch(batch):
    messages = [span(fields, number) for number, fields in enumerate(batch, 1)]
    together = otlp.events_from_traces(request(*messages), PROTOBUF).events
    alone = [event for each in messages for event in otlp.events_from_traces(request(each), PROTOBUF).events]
    assert together == alone


@relaxed
@given(attributes)
def test_a_log_record_becomes_an_event_or_a_rejection(fields):
    message = ExportLogsServiceRequest()
    record = message.resource_logs.add().scope_logs.add().log_records.add()
    record.trace_id, record.span_id, record.time_unix_nano = b"t" * 16, b"s" * 8, 10**18
    record.attributes.extend(pairs(fields))
    record.body.CopyFrom(any_value(list(fields.values())[:1]))
    body = message.SerializeToString()
    mapped = otlp.events_from_logs(body, PROTOBUF)
    assert len(mapped.events) + len(mapped.rejected) == 1
    assert encoded(mapped) == encoded(otlp.events_from_logs(body, PROTOBUF))


@st.composite
def marked(draw: st.DrawFn) -> dict[str, Any]:
    """Attributes in whose values there is a mark that occurs nowhere else, bare or inside JSON."""
    chosen = draw(st.lists(keys, unique=True, max_size=12))
    return {key: draw(st.sampled_from(shapes(f"mark{number}end"))) for number, key in enumerate(chosen)}


def shapes(mark: str) -> list[Any]:
    chat = {"role": "user", "content": mark}
    deep: Any = mark
    for _ in range(40):
        deep = [deep]
    return [
        mark,
        f"[{mark}",
        [mark],
        {"k": [mark]},
        json.dumps({"k": mark}),
        json.dumps([mark, None]),
        json.dumps(chat),
        json.dumps([{"role": "tool", "id": mark, "content": "x"}]),
        json.dumps([{"message": chat, "role": "other"}]),
        json.dumps({"index": mark, "message": {"content": "x"}}),
        json.dumps([{"parts": [{"type": "image_url", "image_url": {"url": mark}}]}]),
        json.dumps([{"content": [{"type": "tool_result", "tool_use_id": mark, "content": "x"}]}]),
        json.dumps({"type": "function", "function": {"name": mark, "type": "clash"}}),
        json.dumps({"tool_calls": [{"function": {"name": mark}, "name": "clash"}]}),
        json.dumps({"tool_calls": mark, "id": "x"}),
        json.dumps([{"type": "thinking", "thinking": mark, "text": "both", "content": "all"}]),
        json.dumps(deep),
        [chat],
        {"parts": [mark]},
    ]


@relaxed
@given(marked(), st.sampled_from(["", *KINDS]))
def test_nothing_is_lost(fields, kind):
    if kind:
        fields = {**fields, "openinference.span.kind": kind}
    mapped = otlp.events_from_traces(request(span(fields, name="n")), PROTOBUF)
    assert mapped.rejected == []
    event = mapped.events[0]
    envelope = msgspec.structs.replace(event, payload=msgspec.UNSET)
    found = msgspec.json.encode(envelope) + bytes(event.payload)
    lost = [key for key, value in fields.items() if kind != value and mark_in(value) not in found]
    assert lost == []


def mark_in(value: Any) -> bytes:
    match = re.search(r"mark\d+end", json.dumps(value))
    assert match
    return match[0].encode()


@relaxed
@given(st.binary(max_size=200), st.sampled_from([PROTOBUF, JSON]))
def test_random_bytes_are_read_or_malformed(body, content_type):
    for read in (otlp.events_from_traces, otlp.events_from_logs):
        with suppress(MalformedBody):
            read(body, content_type)


json_fields = [
    "traceId",
    "spanId",
    "name",
    "kind",
    "attributes",
    "startTimeUnixNano",
    "status",
    "links",
    "events",
    "flags",
]
json_spans = st.dictionaries(st.sampled_from(json_fields), json_values | st.just("0af7651916cd43dd8448eb211c80319c"))


@relaxed
@given(st.lists(json_spans, max_size=3))
def test_random_json_is_read_or_malformed(items):
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": items}]}]}).encode()
    try:
        mapped = otlp.events_from_traces(body, JSON)
    except MalformedBody:
        return
    assert len(mapped.events) + len(mapped.rejected) == len(items)


@relaxed
@given(st.text(string.printable, max_size=60))
def test_any_operation_name_gives_an_event_type(name):
    for key in ("gen_ai.operation.name", "openinference.span.kind"):
        event = otlp.events_from_traces(request(span({key: name})), PROTOBUF).events[0]
        assert EVENT_TYPE.fullmatch(event.event_type)
