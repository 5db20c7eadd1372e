"""How one span becomes an event."""

import re
import uuid

import pytest

from whence.gateway import otlp
from whence.gateway.otlp.vocabulary import ENTITY_KINDS, OPERATIONS, REQUEST_TYPES, SPAN_KINDS
from whence.wire import SPAN_NAMESPACE

EVENT_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
START = 1_794_753_606_716_318_231


# --- identity -------------------------------------------------------------------------------------------------------


def test_an_event_id_can_be_worked_out_by_anybody(span_event):
    expected = uuid.uuid5(SPAN_NAMESPACE, f"{TRACE}:{SPAN}")
    assert span_event().event_id == expected
    assert otlp.event_id_of_span(bytes.fromhex(TRACE), bytes.fromhex(SPAN)) == expected


def test_a_parent_is_the_event_of_the_parent_span(span_event):
    parent = span_event(parentSpanId="00f067aa0ba902b7").parent_event_id
    assert parent == span_event(spanId="00f067aa0ba902b7").event_id
    assert span_event(parentSpanId="").parent_event_id is None
    assert span_event(parentSpanId="0" * 16).parent_event_id is None


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("traceId", "", "trace_id"),
        ("traceId", "0" * 32, "trace_id"),
        ("traceId", "ab", "trace_id"),
        ("traceId", "g" * 32, "trace_id"),
        ("spanId", "", "span_id"),
        ("spanId", "0" * 16, "span_id"),
        ("spanId", "ab" * 16, "span_id"),
        ("spanId", "b7ad6b7169203331\n", "span_id"),
        ("parentSpanId", "ab", "parent_span_id"),
        ("parentSpanId", "z" * 16, "parent_span_id"),
        ("startTimeUnixNano", "0", "start_time_unix_nano"),
        ("startTimeUnixNano", -1, "start_time_unix_nano"),
        ("startTimeUnixNano", 2**64, "start_time_unix_nano"),
        ("endTimeUnixNano", 2**63, "end_time_unix_nano"),
    ],
)
def test_a_wrong_id_or_time_is_rejected_by_name(refusal, field, value, named):
    assert refusal(**{field: value}).startswith(f"{named}:")


def test_times_are_cut_to_microseconds(span_event):
    event = span_event(startTimeUnixNano=str(START), endTimeUnixNano=str(START + 999))
    assert event.occurred_at.isoformat() == "2026-11-15T14:40:06.716318+00:00"
    assert event.ended_at.isoformat() == "2026-11-15T14:40:06.716319+00:00"


def test_an_end_before_the_start_is_left_to_the_ledger(span_event):
    event = span_event(endTimeUnixNano=str(START - 1_000_000))
    assert event.ended_at < event.occurred_at


# --- event types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operation", "expected"), OPERATIONS.items())
def test_genai_operations(span_event, operation, expected):
    event = span_event({"gen_ai.operation.name": operation})
    assert (event.event_type, event.measures.operation) == (expected, operation)


@pytest.mark.parametrize(("kind", "expected"), SPAN_KINDS.items())
def test_openinference_kinds(span_event, kind, expected):
    event = span_event({"openinference.span.kind": kind})
    assert (event.event_type, event.measures.operation) == (expected, kind)
    assert span_event({"openinference.span.kind": kind.lower()}).event_type == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"gen_ai.operation.name": "fetch_response"}, "gen_ai.fetch_response"),
        ({"gen_ai.operation.name": "My Op-2!"}, "gen_ai.my_op_2"),
        ({"gen_ai.operation.name": "???"}, "gen_ai.unknown"),
        ({"gen_ai.operation.name": "x" * 1000}, "gen_ai." + "x" * 64),
        ({"openinference.span.kind": "Speech.To"}, "openinference.speech_to"),
        ({"gen_ai.operation.name": 5}, "span.internal"),
        ({"gen_ai.operation.name": ["chat"], "openinference.span.kind": {"a": 1}}, "span.internal"),
        ({"gen_ai.operation.name": "chat", "openinference.span.kind": "CHAIN"}, "llm.generate"),
        ({"gen_ai.operation.name": "rerank_things", "openinference.span.kind": "RERANKER"}, "retriever.rerank"),
        ({"gen_ai.operation.name": "odd", "openinference.span.kind": "ODDER"}, "gen_ai.odd"),
        ({"gen_ai.system": "openai", "gen_ai.request.model": "gpt"}, "llm.generate"),
        ({"gen_ai.system": "openai", "gen_ai.tool.name": "t"}, "tool.execute"),
        ({"gen_ai.conversation.id": "c", "gen_ai.agent.name": "a"}, "span.internal"),
    ],
)
def test_other_event_types(span_event, attributes, expected):
    assert span_event(attributes).event_type == expected
    assert EVENT_TYPE.fullmatch(expected)


@pytest.mark.parametrize(("request_type", "expected"), REQUEST_TYPES.items())
def test_openllmetry_request_types(span_event, request_type, expected):
    assert span_event({"llm.request.type": request_type}).event_type == expected


@pytest.mark.parametrize(("kind", "expected"), ENTITY_KINDS.items())
def test_openllmetry_entities(span_event, kind, expected):
    attributes = {"traceloop.span.kind": kind, "traceloop.entity.name": "plan_trip"}
    event = span_event(attributes, name=f"plan_trip.{kind}")
    assert event.event_type == expected
    assert event.tool_name == ("plan_trip" if kind == "tool" else None)
    assert event.agent_id == ("plan_trip" if kind == "agent" else None)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, "span.internal"),
        (1, "span.internal"),
        (2, "span.server"),
        (3, "span.client"),
        (4, "span.producer"),
        (5, "span.consumer"),
        (17, "span.internal"),
    ],
)
def test_plain_spans(span_event, payload, kind, expected):
    event = span_event(kind=kind)
    assert event.event_type == expected
    assert payload(event).get("kind") == {0: None, 17: 17}.get(kind, expected.removeprefix("span."))


# --- the other columns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "session"),
    [
        ({"gen_ai.conversation.id": "c", "session.id": "s"}, "c"),
        ({"session.id": "s", "langfuse.session.id": "l"}, "s"),
        ({"langfuse.session.id": "l"}, "l"),
        ({"traceloop.association.properties.session_id": "t"}, "t"),
        ({"gen_ai.conversation.id": "", "session.id": "s"}, "s"),
        ({"gen_ai.conversation.id": ["c"], "session.id": "s"}, "s"),
        ({"session.id": 42}, "42"),
        ({"session.id": True}, TRACE),
        ({}, TRACE),
    ],
)
def test_sessions(span_event, attributes, session):
    assert span_event(attributes).session_id == session


def test_a_source_that_lost_stays_an_attribute(span_event, payload):
    event = span_event(
        {"session.id": "s", "gen_ai.conversation.id": "c", "gen_ai.agent.name": "n", "gen_ai.agent.id": "i"}
    )
    assert (event.session_id, event.agent_id) == ("c", "i")
    assert payload(event)["attributes"] == {"session.id": "s", "gen_ai.agent.name": "n"}


def test_users(span_event):
    assert span_event({"user.id": "u", "enduser.id": "e"}).user_id == "u"
    assert span_event({"enduser.id": "e"}).user_id == "e"
    assert span_event({}).user_id is None


@pytest.mark.parametrize(
    ("attributes", "name", "service", "agent"),
    [
        ({"gen_ai.agent.name": "n"}, "x", "svc", "n"),
        ({"agent.name": "n", "openinference.span.kind": "AGENT"}, "x", "svc", "n"),
        ({"openinference.span.kind": "AGENT"}, "planner", "svc", "planner"),
        ({"gen_ai.operation.name": "invoke_agent"}, "invoke_agent planner", "svc", "planner"),
        ({"gen_ai.operation.name": "invoke_agent"}, "invoke_agent", "svc", "svc"),
        ({"gen_ai.operation.name": "chat"}, "chat gpt", "svc", "svc"),
        ({}, "x", "unknown_service:python", None),
        ({}, "x", "", None),
        ({}, "x", 7, None),
    ],
)
def test_agents(span_event, attributes, name, service, agent):
    assert span_event(attributes, name=name, resource={"service.name": service}).agent_id == agent


@pytest.mark.parametrize(
    ("attributes", "name", "tool"),
    [
        ({"gen_ai.tool.name": "a", "tool.name": "b"}, "x", "a"),
        ({"tool.name": "b", "openinference.span.kind": "TOOL"}, "x", "b"),
        ({"openinference.span.kind": "TOOL"}, "search", "search"),
        ({"gen_ai.operation.name": "execute_tool"}, "execute_tool search", "search"),
        ({"openinference.span.kind": "LLM"}, "search", None),
    ],
)
def test_tools(span_event, attributes, name, tool):
    assert span_event(attributes, name=name).tool_name == tool


@pytest.mark.parametrize(
    ("key", "extra"),
    [
        ("gen_ai.conversation.id", {}),
        ("session.id", {}),
        ("user.id", {}),
        ("gen_ai.agent.id", {}),
        ("agent.name", {}),
        ("gen_ai.tool.name", {}),
        ("traceloop.entity.name", {"traceloop.span.kind": "tool"}),
    ],
)
def test_an_identifier_that_does_not_fit_is_rejected_by_name(refusal, span_event, key, extra):
    assert refusal({key: "x" * 257, **extra}) == f"{key}: longer than 256 characters"
    assert refusal({key: "a\0b", **extra}) == f"{key}: contains a NUL character"
    assert span_event({key: "x" * 256, **extra})


def test_a_name_that_stands_for_an_identifier_must_fit_too(refusal):
    assert refusal({"openinference.span.kind": "TOOL"}, name="x" * 257).startswith("name:")
    assert refusal(resource={"service.name": "x" * 257}).startswith("resource service.name:")


def test_a_rejection_holds_no_value(refusal):
    assert "secret" not in refusal({"user.id": "secret" * 100})


@pytest.mark.parametrize(
    ("fields", "attributes", "status"),
    [
        ({}, {}, "completed"),
        ({"status": {"code": 1}}, {}, "completed"),
        ({"endTimeUnixNano": "0"}, {}, "running"),
        ({"status": {"code": 2}}, {}, "failed"),
        ({"status": {"code": 2}, "endTimeUnixNano": "0"}, {}, "failed"),
        ({"status": {"code": 2}}, {"error.type": "ValueError"}, "failed"),
        ({"status": {"code": 2}}, {"error.type": "timeout"}, "timeout"),
        ({"status": {"code": 2}}, {"error.type": "openai.APITimeoutError"}, "timeout"),
        ({"status": {"code": 2}}, {"error.type": "DEADLINE_EXCEEDED"}, "timeout"),
        ({"status": {"code": 2}}, {"error.type": "timeout.errors.Other"}, "failed"),
        ({"status": {"code": 2}}, {"error.type": 408}, "failed"),
        ({}, {"error.type": "timeout"}, "completed"),
    ],
)
def test_statuses(span_event, fields, attributes, status):
    assert span_event(attributes, **fields).status == status


def exception(kind, message="it said no"):
    values = {"exception.type": kind, "exception.message": message, "exception.stacktrace": "at line 1"}
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    return {"name": "exception", "timeUnixNano": str(START + 5), "attributes": attributes}


def test_an_exception_gives_its_type_and_keeps_its_text_out_of_the_envelope(span_event, payload):
    event = span_event(
        status={"code": 2, "message": "it said no"}, events=[exception("A"), exception("asyncio.TimeoutError")]
    )
    assert (event.status, event.measures.error_type) == ("timeout", "asyncio.TimeoutError")
    content = payload(event)
    assert content["status_message"] == "it said no"
    assert content["events"][1] == {
        "name": "exception",
        "time": "2026-11-15T14:40:06.716318236Z",
        "attributes": {
            "exception.type": "asyncio.TimeoutError",
            "exception.message": "it said no",
            "exception.stacktrace": "at line 1",
        },
    }


# --- measures -------------------------------------------------------------------------------------------------------


def test_counts_of_other_types_are_read(span_event, payload):
    event = span_event({"gen_ai.usage.input_tokens": "42", "gen_ai.usage.output_tokens": 11.0})
    assert (event.measures.input_tokens, event.measures.output_tokens) == (42, 11)
    assert "attributes" not in payload(event)


@pytest.mark.parametrize("count", ["many", "", "-1", -1, 1.5, True, [1], "١", 2**60, "9" * 16, None])
def test_what_is_not_a_count_stays_an_attribute(span_event, payload, count):
    event = span_event({"gen_ai.usage.input_tokens": count})
    assert event.measures is None
    assert payload(event)["attributes"] == {"gen_ai.usage.input_tokens": count}


@pytest.mark.parametrize("model", ["x" * 257, "a\0b", 7, ["gpt"], ""])
def test_a_label_that_does_not_fit_stays_an_attribute(span_event, payload, model):
    event = span_event({"gen_ai.request.model": model, "llm.model_name": "gpt"})
    assert event.measures.model == "gpt"
    assert payload(event)["attributes"] == {"gen_ai.request.model": model}


@pytest.mark.parametrize(
    ("given", "expected"),
    [(["stop", "length"], ("stop", "length")), ("stop", ("stop",)), ('["stop"]', ("stop",)), ([], None), ([1], None)],
)
def test_finish_reasons(span_event, given, expected):
    measures = span_event({"gen_ai.response.finish_reasons": given}).measures
    assert (measures and measures.finish_reasons) == expected


def test_older_names_of_counts(span_event):
    measures = span_event(
        {
            "gen_ai.usage.prompt_tokens": 1,
            "gen_ai.usage.completion_tokens": 2,
            "llm.usage.total_tokens": 3,
            "gen_ai.usage.cache_read_input_tokens": 4,
            "gen_ai.usage.reasoning_tokens": 5,
        }
    ).measures
    counts = (measures.input_tokens, measures.output_tokens, measures.total_tokens)
    assert (*counts, measures.cached_input_tokens, measures.reasoning_tokens) == (1, 2, 3, 4, 5)
