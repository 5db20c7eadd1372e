"""OTLP over HTTP, as the exporters of the OpenTelemetry SDK speak it to a served Whence."""

import gzip
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    LogRecordExportResult,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, set_span_in_context

from samples import payload_of, stored
from whence.gateway import otlp

DATA = Path(__file__).parents[1] / "data" / "otlp"
PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MAX_BODY_BYTES = 32 << 20
DETAILS = "gen_ai.client.inference.operation.details"
TREE = [f"level {level}" for level in range(6)]

TRACES = [
    "genai-openai-http-proto-traces.pb",
    "genai-langgraph-openai-grpc-traces.pb",
    "genai-openai-nocontent-http-json-traces.json-wire",
    "oi-langgraph-fake-http-proto-traces.pb",
    "oi-langgraph-openai-http-json-traces.json-wire",
    "oi-openai-agents-grpc-traces.pb",
]
LOGS = [
    "genai-openai-http-proto-logs.pb",
    "genai-openai-http-proto-logs-2.pb",
    "genai-langgraph-openai-grpc-logs.pb",
]
CONTENT = ["Paris", "sunny", "helpful", "Use tools", "Alice", "18C", "Weather for a city", "rate limit"]


# --- reading what was stored, sending what was recorded -------------------------------------------------------------


def parents_by_name(admin, events):
    """The name of every span, in order of position, with that of its parent."""
    names = {event["event_id"]: payload_of(admin, event)["name"] for event in events}
    return {names[event["event_id"]]: names.get(event["parent_event_id"]) for event in events}


def send(admin, path, body, content_type, encoding="identity"):
    pack = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[encoding]
    headers = {"Content-Type": content_type, "Content-Encoding": encoding}
    return admin.post(path, content=pack(body), headers=headers)


def send_recording(admin, name, encoding="identity"):
    """Sends a recording as it travelled; it must be taken whole."""
    content_type = PROTOBUF if name.endswith(".pb") else JSON
    path = "/v1/logs" if "-logs" in name else "/v1/traces"
    answer = send(admin, path, (DATA / name).read_bytes(), content_type, encoding)
    assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
    assert answer.content == (b"" if content_type == PROTOBUF else b"{}")


def recorded_traces(name):
    return ExportTraceServiceRequest.FromString((DATA / name).read_bytes())


def recorded_logs(name):
    return ExportLogsServiceRequest.FromString((DATA / name).read_bytes())


def spans_in(request):
    return [span for group in request.resource_spans for scoped in group.scope_spans for span in scoped.spans]


def records_in(request):
    return [record for group in request.resource_logs for scoped in group.scope_logs for record in scoped.log_records]


# --- exporters ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer has set for other programs must not configure these exporters."""
    for name in os.environ:
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)


def exporter_options(server, key, signal):
    return {"endpoint": f"{server.url}/v1/{signal}", "headers": {"authorization": f"Bearer {key}"}}


@pytest.fixture
def span_exporter(server, workspace) -> OTLPSpanExporter:
    return OTLPSpanExporter(**exporter_options(server, workspace.admin_key, "traces"))


@pytest.fixture
def log_exporter(server, workspace) -> OTLPLogExporter:
    return OTLPLogExporter(**exporter_options(server, workspace.admin_key, "logs"))


def protobuf_exporter(compression):
    return lambda **options: OTLPSpanExporter(compression=compression, **options)


def json_exporter(compression):
    def build(**options):
        from opentelemetry.exporter.otlp.common.http import Compression  # noqa: PLC0415
        from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        return OTLPSpanExporter(compression=Compression(compression), **options)

    return build


EXPORTERS = {
    "protobuf": protobuf_exporter(Compression.NoCompression),
    "protobuf, gzip": protobuf_exporter(Compression.Gzip),
    "protobuf, deflate": protobuf_exporter(Compression.Deflate),
    "JSON": json_exporter("none"),
    "JSON, gzip": json_exporter("gzip"),
}


def tracer_of(processor):
    provider = TracerProvider(resource=Resource({"service.name": "weather"}), shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider.get_tracer("tests")


def trace_tree(tracer):
    """A chain of spans, each inside the one before; returns the trace id."""
    with ExitStack() as open_spans:
        for name in TREE:
            span = open_spans.enter_context(tracer.start_as_current_span(name))
        return format(span.get_span_context().trace_id, "032x")


def finished_spans(record: Callable[..., object]):
    """The spans that `record` makes with a tracer, in the order in which they end."""
    memory = InMemorySpanExporter()
    record(tracer_of(SimpleSpanProcessor(memory)))
    return memory.get_finished_spans()


# --- spans ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_tree_six_deep_comes_back_with_its_parents(server, workspace, admin, exporter, processor):
    processor = processor(EXPORTERS[exporter](**exporter_options(server, workspace.admin_key, "traces")))
    trace_id = trace_tree(tracer_of(processor))
    processor.shutdown()
    events = stored(admin, trace_id=trace_id)
    parents = parents_by_name(admin, events)
    # A span is exported when it ends, and a child ends before its parent.
    assert list(parents) == TREE[::-1]
    assert parents == dict(zip(TREE, [None, *TREE], strict=False))
    assert [event["global_position"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert {event["agent_id"] for event in events} == {"weather"}
    chain = admin.get(f"/v1/events/{events[0]['event_id']}/lineage", params={"max_depth": 10, "wait_for": 6}).json()
    assert list(chain["nodes"]) == [event["event_id"] for event in events]


@pytest.mark.parametrize(
    "batches",
    [
        lambda spans: [spans[::-1]],
        lambda spans: [[span] for span in reversed(spans)],
        lambda spans: [spans[::2], spans[1::2]],
    ],
    ids=["the root first in one request", "the root first, each by itself", "every other one first"],
)
def test_parents_are_right_in_whatever_order_spans_arrive(admin, span_exporter, batches):
    for batch in batches(finished_spans(trace_tree)):
        assert span_exporter.export(batch) is SpanExportResult.SUCCESS
    assert parents_by_name(admin, stored(admin)) == dict(zip(TREE, [None, *TREE], strict=False))


def test_a_re_export_succeeds_and_stores_nothing(admin, span_exporter):
    spans = finished_spans(trace_tree)
    assert span_exporter.export(spans) is SpanExportResult.SUCCESS
    before = stored(admin)
    assert len(before) == 6
    assert span_exporter.export(spans) is SpanExportResult.SUCCESS
    for span in spans:  # in other batches than the first time
        assert span_exporter.export([span]) is SpanExportResult.SUCCESS
    assert stored(admin) == before


def test_exporters_that_race_with_the_same_spans_store_each_once(admin, server, workspace):
    spans = [span for _ in range(10) for span in finished_spans(trace_tree)]
    exporters = [OTLPSpanExporter(**exporter_options(server, workspace.admin_key, "traces")) for _ in range(6)]
    with ThreadPoolExecutor(len(exporters)) as threads:
        results = list(threads.map(lambda exporter: exporter.export(spans), exporters))
    assert results == [SpanExportResult.SUCCESS] * len(exporters)
    assert [event["global_position"] for event in stored(admin)] == list(range(1, len(spans) + 1))


def test_an_export_of_more_spans_than_a_batch_of_events_holds_is_stored_whole(admin, span_exporter):
    def many(tracer):
        for _ in range(1_100):
            tracer.start_span("one of many").end()

    assert span_exporter.export(finished_spans(many)) is SpanExportResult.SUCCESS
    first = admin.get("/v1/events", params={"limit": 1000}).json()
    rest = admin.get("/v1/events", params={"limit": 1000, "after": first["next"]}).json()
    assert (len(first["events"]), len(rest["events"])) == (1_000, 100)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("name", TRACES + LOGS)
def test_a_recorded_export_is_taken_whole_and_once(admin, name, encoding):
    send_recording(admin, name, encoding)
    before = stored(admin)
    assert len(before) == (DATA / name).with_suffix(".json").read_text().count('"spanId"')
    send_recording(admin, name)
    # The same request in the other form is the same spans.
    path = "/v1/logs" if "-logs" in name else "/v1/traces"
    other_form = send(admin, path, (DATA / name).with_suffix(".json").read_bytes(), JSON)
    assert other_form.json() == {}
    assert stored(admin) == before


SETUP_BY_ENVIRONMENT = """
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

traces, logs = TracerProvider(), LoggerProvider()
traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
with traces.get_tracer("tests").start_as_current_span("chat"):
    logs.get_logger("tests").emit(event_name="gen_ai.user.message", body={"content": "Is it raining?"})
traces.shutdown()
logs.shutdown()
"""


def test_environment_variables_are_all_the_setup_that_an_exporter_needs(server, workspace, admin):
    environment = {
        **os.environ,
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{quote(workspace.admin_key)}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_SERVICE_NAME": "set up by environment",
    }
    program = [sys.executable, "-c", SETUP_BY_ENVIRONMENT]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=30, check=True)
    assert ended.stderr == ""
    span, content = sorted(stored(admin), key=lambda event: event["event_type"], reverse=True)
    assert (span["event_type"], content["event_type"]) == ("span.internal", "llm.content")
    assert span["agent_id"] == "set up by environment"
    message = {"role": "user", "parts": [{"type": "text", "content": "Is it raining?"}]}
    assert payload_of(admin, span)["input_messages"] == [message]


@pytest.mark.parametrize("key", ["nonsense", "ak_{workspace}.0123456789ab." + "x" * 43])
def test_a_wrong_key_fails_the_export_and_stores_nothing(server, workspace, admin, caplog, key):
    key = key.format(workspace=workspace.workspace_id)
    exporter = OTLPSpanExporter(**exporter_options(server, key, "traces"))
    assert exporter.export(finished_spans(trace_tree)) is SpanExportResult.FAILURE
    assert "code: 401" in caplog.text
    logs = OTLPLogExporter(**exporter_options(server, key, "logs"))
    assert logs.export(finished_records()) is LogRecordExportResult.FAILURE
    assert stored(admin) == []


@pytest.fixture
async def ada_key(app, workspace) -> str:
    return await app.identity.add_user(workspace.workspace_id, "ada")


def test_spans_sent_with_a_users_key_are_that_users(server, admin, ada_key):
    exporter = OTLPSpanExporter(**exporter_options(server, ada_key, "traces"))
    assert exporter.export(finished_spans(trace_tree)) is SpanExportResult.SUCCESS
    assert [event["user_id"] for event in stored(admin)] == ["ada"] * 6
    with server.client(ada_key) as ada:
        assert parents_by_name(ada, stored(ada)) == parents_by_name(admin, stored(admin))


def test_a_user_cannot_send_the_spans_of_another(server, admin, ada_key):
    request = recorded_traces("genai-langgraph-openai-grpc-traces.pb")
    spans_in(request)[1].attributes.add(key="user.id").value.string_value = "grace"
    with server.client(ada_key) as ada:
        answer = send(ada, "/v1/traces", request.SerializeToString(), PROTOBUF)
    refused = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert refused.rejected_spans == 1
    assert "user_id" in refused.error_message
    assert [event["user_id"] for event in stored(admin)] == ["ada"] * 4


# --- content --------------------------------------------------------------------------------------------------------

CONTENT_ATTRIBUTES = [
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.query.text",
    "gen_ai.retrieval.documents",
    "input.value",
    "output.value",
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "llm.prompt_template.template",
    "retrieval.documents.0.document.content",
    "metadata",
    "an.attribute.that.nobody.knows",
]


@pytest.mark.parametrize("kind", [{"gen_ai.operation.name": "chat"}, {"openinference.span.kind": "CHAIN"}, {}])
def test_content_is_in_the_payload_and_nowhere_else(server, workspace, admin, span_exporter, kind):
    secrets = {name: f"secret-{number}-of-ada" for number, name in enumerate(CONTENT_ATTRIBUTES)}

    def record(tracer):
        with tracer.start_as_current_span("secret-name-of-ada", attributes=kind | secrets) as span:
            span.add_event("gen_ai.user.message", {"content": "secret-event-of-ada"})
            span.record_exception(ValueError("secret-exception-of-ada"))
            span.set_status(StatusCode.ERROR, "secret-status-of-ada")

    assert span_exporter.export(finished_spans(record)) is SpanExportResult.SUCCESS
    (event,) = stored(admin)
    assert (event["status"], event["measures"]["error_type"]) == ("failed", "ValueError")
    url = f"/v1/events/{event['event_id']}"
    payload = admin.get(f"{url}/payload").text
    said = [*secrets.values(), *(f"secret-{place}-of-ada" for place in ("name", "event", "exception", "status"))]
    assert [text for text in said if text not in payload] == []
    for answer in (admin.get("/v1/events"), admin.get(url), admin.get(f"{url}/lineage")):
        assert answer.status_code == 200
        assert "-of-ada" not in answer.text
    log = server.log.read_text()
    assert workspace.workspace_id in log
    assert "-of-ada" not in log
    assert workspace.admin_key not in log


def test_no_recording_leaves_content_in_an_envelope(admin):
    for name in TRACES + LOGS:
        send_recording(admin, name)
    events = stored(admin)
    envelopes = json.dumps(events)
    assert [word for word in CONTENT if word in envelopes] == []
    payloads = "".join(admin.get(f"/v1/events/{event['event_id']}/payload").text for event in events)
    assert [word for word in CONTENT if word not in payloads] == []


# --- content that comes in log records ------------------------------------------------------------------------------

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}
ANSWER = {
    "role": "assistant",
    "parts": [{"type": "text", "content": "It is 18C and sunny in Paris."}],
    "finish_reason": "stop",
}


def without_content(request):
    """What the same instrumentation sends when it is told to put content in log records only."""
    for span in spans_in(request):
        kept = [pair for pair in span.attributes if pair.key not in CONTENT_ATTRIBUTES]
        del span.attributes[:]
        span.attributes.extend(kept)
    return request


def event_of(record):
    """What is needed of the event of a span, or of the span of a log record, to ask for it."""
    return {"event_id": otlp.event_id_of_span(record.trace_id, record.span_id)}


@pytest.mark.parametrize("first", ["traces", "logs"])
@pytest.mark.parametrize(
    ("name", "calls", "answered"),
    [("genai-openai-http-proto", 4, "f9eed40bcd767929"), ("genai-langgraph-openai-grpc", 2, "d7238c8250ca213c")],
)
def test_recorded_content_joins_the_payload_of_its_span(admin, name, calls, answered, first):
    requests = {
        "traces": without_content(recorded_traces(f"{name}-traces.pb")),
        "logs": recorded_logs(f"{name}-logs.pb"),
    }
    for kind in sorted(requests, key=lambda kind: kind != first):
        assert send(admin, f"/v1/{kind}", requests[kind].SerializeToString(), PROTOBUF).content == b""
    told = {record.span_id.hex() for record in records_in(requests["logs"])}
    assert len(told) == calls
    payloads = {span.span_id.hex(): payload_of(admin, event_of(span)) for span in spans_in(requests["traces"])}
    assert {span_id for span_id, payload in payloads.items() if "input_messages" in payload} == told
    assert {payloads[span_id]["name"].split()[0] for span_id in told} == {"chat"}
    assert QUESTION in payloads[answered]["input_messages"]
    assert payloads[answered]["output_messages"] == [ANSWER]


@pytest.mark.parametrize("first", ["traces", "logs"])
def test_content_that_a_span_and_its_log_record_both_hold_is_given_once(admin, first):
    name = "genai-langgraph-openai-grpc"
    second = {"traces": "logs", "logs": "traces"}[first]
    send_recording(admin, f"{name}-{first}.pb")
    send_recording(admin, f"{name}-{second}.pb")
    asked = stored(admin, event_type="llm.generate")
    assert [len(payload_of(admin, event)["input_messages"]) for event in asked] == [1, 3]
    assert [len(payload_of(admin, event)["output_messages"]) for event in asked] == [1, 1]
    assert payload_of(admin, asked[1])["input_messages"][0] == QUESTION
    assert payload_of(admin, asked[1])["output_messages"] == [ANSWER]


@pytest.mark.parametrize("first", ["traces", "logs"])
def test_a_span_recorded_without_content_gets_it_from_a_log_record(admin, first):
    name = "genai-openai-nocontent-http-json-traces"
    span = json.loads((DATA / f"{name}.json").read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    request = recorded_logs("genai-openai-http-proto-logs.pb")
    del request.resource_logs[0].scope_logs[0].log_records[1:]
    (record,) = records_in(request)
    record.trace_id, record.span_id = bytes.fromhex(span["traceId"]), bytes.fromhex(span["spanId"])
    if first == "traces":
        send_recording(admin, f"{name}.json-wire")
        for event in stored(admin):
            assert not payload_of(admin, event).keys() & {"input_messages", "output_messages", "input", "output"}
    assert send(admin, "/v1/logs", request.SerializeToString(), PROTOBUF).content == b""
    if first == "logs":
        send_recording(admin, f"{name}.json-wire")
    (event,) = stored(admin, trace_id=span["traceId"], event_type="llm.generate")
    assert (event["measures"]["input_tokens"], event["measures"]["output_tokens"]) == (42, 11)
    payload = payload_of(admin, event)
    assert payload["input_messages"][1] == QUESTION
    assert payload["output_messages"][0]["parts"][0]["arguments"] == {"city": "Paris"}


def emit_content(logs, context=None):
    attributes = {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}],
        "gen_ai.output.messages": [ANSWER],
    }
    logs.emit(event_name=DETAILS, attributes=attributes, context=context)


def logger_of(exporter):
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    return provider.get_logger("tests")


def finished_records():
    memory = InMemoryLogRecordExporter()
    with tracer_of(SimpleSpanProcessor(InMemorySpanExporter())).start_as_current_span("chat"):
        emit_content(logger_of(memory))
    return memory.get_finished_logs()


@pytest.mark.parametrize("first", ["traces", "logs"])
def test_the_log_exporter_completes_the_payload_of_a_span(admin, span_exporter, log_exporter, first):
    tracer, logs = tracer_of(SimpleSpanProcessor(span_exporter)), logger_of(log_exporter)
    with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}) as span:
        if first == "logs":
            emit_content(logs)
            assert [event["event_type"] for event in stored(admin)] == ["llm.content"]
    if first == "traces":
        (event,) = stored(admin)
        assert "input_messages" not in payload_of(admin, event)
        emit_content(logs, set_span_in_context(span))
    (event,) = stored(admin, event_type="llm.generate")
    (content,) = stored(admin, event_type="llm.content")
    assert content["parent_event_id"] == event["event_id"]
    payload = payload_of(admin, event)
    assert (payload["input_messages"], payload["output_messages"]) == ([QUESTION], [ANSWER])


def test_a_log_record_adds_content_to_a_payload_and_nothing_else(admin, span_exporter, log_exporter):
    tracer, logs = tracer_of(SimpleSpanProcessor(span_exporter)), logger_of(log_exporter)
    with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}) as span:
        pass
    (event,) = stored(admin)
    own = payload_of(admin, event)
    emit_content(logs, set_span_in_context(span))
    joined = payload_of(admin, event)
    assert own.items() <= joined.items()
    assert joined.keys() - own.keys() == {"input_messages", "output_messages"}


def test_a_re_export_of_log_records_stores_nothing(admin, log_exporter):
    records = finished_records()
    assert log_exporter.export(records) is LogRecordExportResult.SUCCESS
    before = stored(admin)
    assert len(before) == 1
    assert log_exporter.export(records) is LogRecordExportResult.SUCCESS
    assert stored(admin) == before


# --- partial success ------------------------------------------------------------------------------------------------


def change(**fields):
    def apply(span):
        for name, value in fields.items():
            setattr(span, name, value)

    return apply


def end_before_start(span):
    span.end_time_unix_nano = span.start_time_unix_nano - 1_000_000


def start_tomorrow(span):
    span.start_time_unix_nano = time.time_ns() + 86_400_000_000_000
    span.end_time_unix_nano = 0


def be_its_own_parent(span):
    span.parent_span_id = span.span_id


def hold(name, value):
    def apply(span):
        kept = [pair for pair in span.attributes if pair.key != name]
        del span.attributes[:]
        span.attributes.extend(kept)
        span.attributes.add(key=name).value.string_value = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change(span_id=b""), "span_id"),
        (change(span_id=bytes(8)), "span_id"),
        (change(trace_id=b"short"), "trace_id"),
        (change(trace_id=bytes(16)), "trace_id"),
        (change(parent_span_id=b"longer than eight bytes"), "parent_span_id"),
        (change(start_time_unix_nano=0), "start_time_unix_nano"),
        (end_before_start, "ended_at: before occurred_at"),
        (start_tomorrow, "occurred_at: more than 300 seconds in the future"),
        (be_its_own_parent, "parent_event_id"),
        (hold("gen_ai.conversation.id", "Paris" * 100), "gen_ai.conversation.id"),
        (hold("input.value", "Paris" * 300_000), "payload: at most 1,048,576 bytes"),
    ],
)
def test_one_bad_span_costs_only_itself(admin, spoil, reason):
    request = recorded_traces("genai-langgraph-openai-grpc-traces.pb")
    spans = spans_in(request)
    spoil(spans[1])
    answer = send(admin, "/v1/traces", request.SerializeToString(), PROTOBUF)
    assert (answer.status_code, answer.headers["content-type"]) == (200, PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 1
    assert reason in partial.error_message
    assert "Paris" not in partial.error_message
    kept = [payload_of(admin, event)["name"] for event in stored(admin)]
    assert kept == [span.name for span in (spans[0], *spans[2:])]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [("spanId", "not hexadecimal", "span_id"), ("endTimeUnixNano", "1", "ended_at: before occurred_at")],
)
def test_one_bad_span_in_json_costs_only_itself(admin, field, value, reason):
    request = json.loads((DATA / "genai-langgraph-openai-grpc-traces.json").read_text())
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans[1][field] = value
    answer = send(admin, "/v1/traces", json.dumps(request).encode(), JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)
    partial = answer.json()["partialSuccess"]
    # A 64-bit number is a string in protobuf's JSON form.
    assert partial["rejectedSpans"] == "1"
    assert reason in partial["errorMessage"]
    assert len(stored(admin)) == len(spans) - 1


def test_an_exporter_whose_span_ends_before_it_starts_gets_the_rest_stored(admin, span_exporter):
    def record(tracer):
        with tracer.start_as_current_span("sound"):
            now = time.time_ns()
            tracer.start_span("unsound", start_time=now).end(end_time=now - 1_000_000)

    spans = finished_spans(record)
    assert [span.name for span in spans] == ["unsound", "sound"]
    assert span_exporter.export(spans) is SpanExportResult.SUCCESS
    assert [payload_of(admin, event)["name"] for event in stored(admin)] == ["sound"]


def test_a_span_that_comes_back_with_other_content_is_rejected_and_changes_nothing(admin):
    name = "genai-langgraph-openai-grpc-traces.pb"
    send_recording(admin, name)
    before, payload = stored(admin), payload_of(admin, stored(admin)[1])
    request = recorded_traces(name)
    hold("gen_ai.input.messages", "forged")(spans_in(request)[1])
    answer = send(admin, "/v1/traces", request.SerializeToString(), PROTOBUF)
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 1)
    assert "stored earlier with other content" in partial.error_message
    assert stored(admin) == before
    assert payload_of(admin, before[1]) == payload


def test_a_log_record_without_a_span_costs_only_itself(admin):
    request = recorded_logs("genai-openai-http-proto-logs.pb")
    records_in(request)[0].ClearField("span_id")
    answer = send(admin, "/v1/logs", request.SerializeToString(), PROTOBUF)
    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_log_records) == (200, 1)
    assert "span_id" in partial.error_message
    assert len(stored(admin)) == len(records_in(request)) - 1


# --- refused whole --------------------------------------------------------------------------------------------------


def status_in(answer):
    """The google.rpc.Status in an answer, which must hold nothing else."""
    assert answer.headers["content-type"] == PROTOBUF
    status = Status.FromString(answer.content)
    known = Status(code=status.code, message=status.message)
    assert known.SerializeToString() == answer.content
    return status


def cut(name):
    return (DATA / name).read_bytes()[:-7]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"\xff\xff\xff", "identity"),
        (b'{"resourceSpans": []}', "identity"),
        (cut("genai-openai-http-proto-traces.pb"), "identity"),
        (b"not gzip", "gzip"),
        (gzip.compress(cut("genai-openai-http-proto-traces.pb")), "gzip"),
        (gzip.compress((DATA / "genai-openai-http-proto-traces.pb").read_bytes())[:-20], "gzip"),
    ],
)
def test_protobuf_that_cannot_be_read_is_400_with_a_status(admin, path, body, encoding):
    answer = admin.post(path, content=body, headers={"Content-Type": PROTOBUF, "Content-Encoding": encoding})
    assert answer.status_code == 400
    assert "body" in status_in(answer).message
    assert stored(admin) == []


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"resourceSpans": 1, "resourceLogs": 1}'])
def test_json_that_cannot_be_read_is_400(admin, path, body):
    answer = admin.post(path, content=body, headers={"Content-Type": JSON})
    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed_body"
    assert stored(admin) == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-protobuffer", "application/xml", None])
def test_another_content_type_is_415(admin, content_type):
    headers = {"Content-Type": content_type} if content_type else {}
    answer = admin.post("/v1/traces", content=(DATA / TRACES[0]).read_bytes(), headers=headers)
    assert answer.status_code == 415
    assert PROTOBUF in answer.json()["detail"]
    assert stored(admin) == []


def test_a_content_encoding_that_is_not_known_is_415_with_a_status(admin):
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "zstd"}
    answer = admin.post("/v1/traces", content=(DATA / TRACES[0]).read_bytes(), headers=headers)
    assert answer.status_code == 415
    assert "zstd" in status_in(answer).message


def test_a_content_type_may_have_parameters_and_any_case(admin):
    body = (DATA / "oi-langgraph-openai-http-json-traces.json-wire").read_bytes()
    assert send(admin, "/v1/traces", body, "Application/JSON; charset=utf-8").json() == {}
    assert len(stored(admin)) == 11


@pytest.mark.parametrize("content_type", ["application/x-protobuf; version=1", "Application/X-Protobuf"])
def test_a_refused_protobuf_is_told_so_however_its_type_is_written(admin, content_type):
    answer = send(admin, "/v1/traces", b"\xff\xff\xff", content_type)
    assert answer.status_code == 400
    assert "body" in status_in(answer).message


@pytest.mark.parametrize("key", [None, "nonsense"])
def test_a_request_without_a_valid_key_is_401_with_a_status(server, key):
    with server.client(key) as anybody:
        answer = send(anybody, "/v1/traces", (DATA / TRACES[0]).read_bytes(), PROTOBUF)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "key" in status_in(answer).message


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_body_over_the_limit_is_413_with_a_status(admin, encoding):
    body = bytes(MAX_BODY_BYTES + 1)
    answer = send(admin, "/v1/traces", body, PROTOBUF, encoding)
    assert answer.status_code == 413
    assert status_in(answer).message
    assert stored(admin) == []


def gzip_bomb(gibibytes):
    """A body that unpacks to so much, made without packing so much: a flushed block can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    block = bytes(16 << 20)
    head = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    repeated = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + repeated * (gibibytes * 64 - 1)


def peak_memory(process):
    """The most memory that a process held so far, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_a_gzip_bomb_is_413_at_once(admin):
    started = time.monotonic()
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    answer = admin.post("/v1/traces", content=gzip_bomb(8), headers=headers)
    assert answer.status_code == 413
    assert "unpacks to more than" in status_in(answer).message
    # Unpacking all of it would take tens of seconds.
    assert time.monotonic() - started < 5


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_a_gzip_bomb_takes_no_more_memory_than_a_body_may(server, admin):
    bomb = gzip_bomb(8)
    before = peak_memory(server.process)
    for _ in range(2):
        admin.post("/v1/traces", content=bomb, headers={"Content-Type": PROTOBUF, "Content-Encoding": "gzip"})
    # The body as it came, and twice the limit while what was unpacked grows.
    assert peak_memory(server.process) - before < len(bomb) + 2 * MAX_BODY_BYTES + (16 << 20)
