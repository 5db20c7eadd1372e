"""How one log record becomes an event."""

import pytest

from whence.gateway import otlp

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
JSON = "application/json"


def text(content):
    return {"type": "text", "content": content}


def test_a_record_hangs_on_its_span(log_event):
    event = log_event(body="hello")
    assert event.parent_event_id == otlp.event_id_of_span(bytes.fromhex(TRACE), bytes.fromhex(SPAN))
    assert event.event_id != event.parent_event_id
    assert (event.event_type, event.trace_id, event.session_id) == ("log.record", TRACE, TRACE)
    assert (event.status, event.ended_at) == (None, None)


@pytest.mark.parametrize("missing", [{"traceId": ""}, {"spanId": ""}, {"traceId": "0" * 32, "spanId": "0" * 16}])
def test_a_record_without_a_span_is_rejected(logs, missing):
    mapped = otlp.events_from_logs(logs(**missing), JSON)
    assert mapped.events == []
    assert "cannot be joined to a span" in mapped.rejected[0].reason


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"traceId": "ab"}, "trace_id"), ({"spanId": "zz" * 8}, "span_id"), ({"timeUnixNano": "0"}, "time_unix_nano")],
)
def test_a_wrong_record_is_rejected_by_name(logs, fields, named):
    assert otlp.events_from_logs(logs(**fields), JSON).rejected[0].reason.startswith(f"{named}:")


def test_the_time_observed_stands_in_for_the_time(log_event, payload):
    observed = log_event(timeUnixNano="0", observedTimeUnixNano="1794753606716318231")
    assert observed.occurred_at.isoformat() == "2026-11-15T14:40:06.716318+00:00"
    assert "observed_time" not in payload(observed)
    both = log_event(timeUnixNano="1000", observedTimeUnixNano="1794753606716318231")
    assert payload(both)["observed_time"] == "2026-11-15T14:40:06.716318231Z"


def test_the_same_record_is_the_same_event(log_event):
    assert log_event({"a": 1}, "x") == log_event({"a": 1}, "x")
    assert log_event({"a": 1, "b": 2}).event_id == log_event({"b": 2, "a": 1}).event_id


@pytest.mark.parametrize(
    "change",
    [
        {"body": "y"},
        {"attributes": {"a": 2}},
        {"timeUnixNano": "1794753606716318232"},
        {"observedTimeUnixNano": "5"},
        {"severityNumber": 9},
        {"eventName": "n"},
    ],
)
def test_another_record_of_the_span_is_another_event(log_event, change):
    # Two times that differ by a nanosecond are the same microsecond in the envelope, and still two records.
    assert log_event(**{"attributes": {"a": 1}, "body": "x", **change}).event_id != log_event({"a": 1}, "x").event_id


def test_what_a_record_says_is_in_the_payload(log_event, payload):
    event = log_event({"a": 1}, {"k": "v"}, severityNumber="SEVERITY_NUMBER_INFO", severityText="INFO", eventName="n")
    assert payload(event) == {
        "event_name": "n",
        "body": {"k": "v"},
        "severity": {"number": 9, "text": "INFO"},
        "attributes": {"a": 1},
    }
    assert event.event_type == "log.record"


def test_details_hold_the_content_of_a_call(log_event, payload):
    attributes = {
        "gen_ai.input.messages": [{"role": "user", "parts": [text("hi")], "name": None}],
        "gen_ai.conversation.id": "c",
        "user.id": "u",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.agent.name": "a",
    }
    event = log_event(attributes, eventName="gen_ai.client.inference.operation.details")
    assert (event.event_type, event.session_id, event.user_id, event.agent_id) == ("llm.content", "c", "u", "a")
    assert event.measures.input_tokens == 3
    assert payload(event) == {
        "event_name": "gen_ai.client.inference.operation.details",
        "input_messages": [{"role": "user", "parts": [text("hi")]}],
    }


@pytest.mark.parametrize(
    ("name", "body", "key", "message"),
    [
        (
            "gen_ai.system.message",
            {"content": "be kind"},
            "input_messages",
            {"role": "system", "parts": [text("be kind")]},
        ),
        ("gen_ai.user.message", {"content": "hi"}, "input_messages", {"role": "user", "parts": [text("hi")]}),
        ("gen_ai.user.message", "hi", "input_messages", {"role": "user", "parts": [text("hi")]}),
        (
            "gen_ai.assistant.message",
            {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            "input_messages",
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {}}]},
        ),
        (
            "gen_ai.tool.message",
            {"id": "1", "content": "18C"},
            "input_messages",
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "18C"}]},
        ),
        (
            "gen_ai.choice",
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ho"}},
            "output_messages",
            {"role": "assistant", "parts": [text("ho")], "index": 0, "finish_reason": "stop"},
        ),
    ],
)
def test_older_events_hold_one_message_each(log_event, payload, name, body, key, message):
    by_field = log_event(body=body, eventName=name)
    by_attribute = log_event({"event.name": name}, body)
    for event in (by_field, by_attribute):
        assert event.event_type == "llm.content"
        assert payload(event) == {"event_name": name, key: [message]}


def test_a_message_event_without_content_has_no_messages(log_event, payload):
    event = log_event({"gen_ai.system": "openai"}, eventName="gen_ai.user.message")
    assert event.event_type == "llm.content"
    assert payload(event) == {"event_name": "gen_ai.user.message"}


def test_other_genai_events_are_records(log_event):
    assert log_event(eventName="gen_ai.evaluation.result").event_type == "log.record"
