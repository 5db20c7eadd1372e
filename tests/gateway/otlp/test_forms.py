"""Bytes on the wire: both forms, their quirks, and what is wrong with them."""

import json

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whence.errors import InvalidInput, MalformedBody, UnsupportedMedia
from whence.gateway import otlp
from whence.gateway.otlp import forms
from whence.gateway.otlp.decode import MAX_DEPTH

PROTOBUF, JSON = "application/x-protobuf", "application/json"


def nested(depth, leaf="x"):
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/grpc", "application/jsonx"])
def test_another_content_type_is_refused(content_type):
    with pytest.raises(UnsupportedMedia) as caught:
        otlp.events_from_traces(b"", content_type)
    assert isinstance(caught.value, InvalidInput)
    assert (caught.value.status, caught.value.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "APPLICATION/JSON"])
def test_parameters_and_case_of_a_content_type_do_not_matter(content_type, traces):
    assert len(otlp.events_from_traces(traces(), content_type).events) == 1


def test_an_empty_request_has_no_events():
    for body, content_type in ((b"", PROTOBUF), (b"{}", JSON)):
        assert otlp.events_from_traces(body, content_type) == otlp.Mapped([], [])
        assert otlp.events_from_logs(body, content_type) == otlp.Mapped([], [])


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"\xff\xff\xff", PROTOBUF),
        (b'{"resourceSpans": []}', PROTOBUF),
        (b"", JSON),
        (b"{", JSON),
        (b"[]", JSON),
        (b"null", JSON),
        (b'{"resourceSpans": 1}', JSON),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "soon"}]}]}]}', JSON),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "\\ud800"}]}]}]}', JSON),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "\xff"}]}]}]}', JSON),
        (b'{"resourceSpans": [null, {"schemaUrl": 1}]}', JSON),
        (b"[" * 100_000, JSON),
        (b'{"resourceSpans":' * 50_000, JSON),
    ],
)
def test_bad_bytes_are_malformed(body, content_type):
    for read in (otlp.events_from_traces, otlp.events_from_logs):
        if b"resourceSpans" in body and read is otlp.events_from_logs:
            continue
        with pytest.raises(MalformedBody) as caught:
            read(body, content_type)
        assert caught.value.detail


def test_the_detail_of_a_malformed_body_says_where():
    with pytest.raises(MalformedBody, match=r"resourceSpans\[0\]\.scopeSpans\[0\]\.spans\[0\]\.name"):
        otlp.events_from_traces(b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":1}]}]}]}', JSON)


def test_strings_of_protobuf_must_be_utf_8(traces, as_protobuf):
    body = as_protobuf(traces(name="abcdefgh")).replace(b"abcdefgh", b"abc\xff\xfefgh")
    with pytest.raises(MalformedBody):
        otlp.events_from_traces(body, PROTOBUF)


def test_numbers_of_64_bits_are_strings_or_numbers(traces, payload):
    as_text = traces({"n": 2**62})
    as_number = as_text.replace(f'"{2**62}"'.encode(), str(2**62).encode())
    as_number = as_number.replace(b'"1794753606716318231"', b"1794753606716318231")
    assert as_number != as_text
    one, other = (otlp.events_from_traces(body, JSON) for body in (as_text, as_number))
    assert one == other
    assert payload(one.events[0])["attributes"]["n"] == 2**62


def test_enums_are_numbers_or_names(span_event):
    named = span_event(kind="SPAN_KIND_CLIENT", status={"code": "STATUS_CODE_ERROR"})
    numbered = span_event(kind=3, status={"code": 2})
    assert named == numbered
    assert (named.event_type, named.status) == ("span.client", "failed")


def test_unknown_fields_and_nulls_are_ignored(span_event):
    plain = span_event({"a": "b"})
    assert span_event({"a": "b"}, invented={"deep": [1]}) == plain
    assert span_event({"a": "b"}, status=None, links=None, parentSpanId=None, events=[]) == plain


def test_ids_of_upper_case_are_the_same_ids(span_event):
    upper = span_event(traceId="0AF7651916CD43DD8448EB211C80319C", spanId="B7AD6B7169203331")
    assert upper == span_event()


def test_every_kind_of_value_reaches_the_payload(traces, payload, as_protobuf):
    values = {"s": "t", "empty": "", "b": False, "i": -7, "d": 1.0, "l": [1, "x", [None]], "m": {"k": {"z": True}}}
    body = traces(values)
    for events in (otlp.events_from_traces(body, JSON), otlp.events_from_traces(as_protobuf(body), PROTOBUF)):
        assert payload(events.events[0])["attributes"] == {**values}
    assert b'"d":1.0' in bytes(events.events[0].payload)


@pytest.mark.parametrize("spelled", ["NaN", "Infinity", "-Infinity"])
def test_a_double_that_json_does_not_have_becomes_text(span_event, payload, encoded, spelled):
    attributes = {"d": encoded(doubleValue=spelled)}
    assert payload(span_event(attributes))["attributes"]["d"] == spelled


def test_bytes_become_base64(span_event, payload, traces, as_protobuf, encoded):
    attributes = {"raw": encoded(bytesValue="AP8Q")}
    assert payload(span_event(attributes))["attributes"]["raw"] == "AP8Q"
    events = otlp.events_from_traces(as_protobuf(traces(attributes)), PROTOBUF).events
    assert payload(events[0])["attributes"]["raw"] == "AP8Q"


@pytest.mark.parametrize("form", [JSON, PROTOBUF])
def test_nesting_is_bounded(traces, as_protobuf, form):
    for depth, accepted in ((MAX_DEPTH, 1), (MAX_DEPTH + 1, 0)):
        body = traces({"deep": nested(depth)})
        mapped = otlp.events_from_traces(as_protobuf(body) if form == PROTOBUF else body, form)
        assert len(mapped.events) == accepted
    assert mapped.rejected == [otlp.Rejection(0, f"attributes: nested deeper than {MAX_DEPTH} levels")]


def test_a_value_that_is_far_too_deep_does_not_exhaust_the_stack(traces):
    for depth in (100, 200):
        assert len(otlp.events_from_traces(traces({"deep": nested(depth)}), JSON).rejected) == 1
    deepest = b'{"value":{"arrayValue":{"values":[' * 3_000
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[' + deepest
    with pytest.raises(MalformedBody):
        otlp.events_from_traces(body, JSON)


def test_a_resource_that_cannot_be_read_refuses_its_spans_only(traces):
    bad = json.loads(traces(resource={"deep": nested(MAX_DEPTH + 1)}))
    bad["resourceSpans"] += json.loads(traces())["resourceSpans"]
    mapped = otlp.events_from_traces(json.dumps(bad).encode(), JSON)
    assert len(mapped.events) == 1
    assert mapped.rejected[0].index == 0
    assert mapped.rejected[0].reason.startswith("resource.attributes:")


def test_one_bad_span_does_not_harm_the_others(traces):
    request = json.loads(traces())
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    good = spans[0]
    spans[:] = [good, {**good, "spanId": ""}, {**good, "spanId": "00f067aa0ba902b7"}]
    mapped = otlp.events_from_traces(json.dumps(request).encode(), JSON)
    assert len(mapped.events) == 2
    assert [rejection.index for rejection in mapped.rejected] == [1]


MIRRORED = [
    (forms.Traces, ExportTraceServiceRequest.DESCRIPTOR),
    (forms.Logs, ExportLogsServiceRequest.DESCRIPTOR),
]


@pytest.mark.parametrize(("mirror", "descriptor"), MIRRORED)
def test_the_mirrors_have_the_fields_of_the_generated_messages(mirror, descriptor):
    seen = set()

    def compare(struct, message):
        if struct in seen:
            return
        seen.add(struct)
        fields = {field.name: field for field in message.fields}
        for field in msgspec.structs.fields(struct):
            assert field.name in fields
            assert field.encode_name == fields[field.name].json_name
            for nested_struct in structs_of(msgspec.inspect.type_info(field.type)):
                compare(nested_struct, fields[field.name].message_type)

    compare(mirror, descriptor)
    assert len(seen) > 8


def structs_of(info):
    if isinstance(info, msgspec.inspect.StructType):
        return [info.cls]
    if isinstance(info, msgspec.inspect.ListType):
        return structs_of(info.item_type)
    if isinstance(info, msgspec.inspect.UnionType):
        return [struct for item in info.types for struct in structs_of(item)]
    return []
