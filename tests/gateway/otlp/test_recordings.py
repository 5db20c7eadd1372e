"""What real exports become."""

import json
from collections import Counter

import msgspec
import pytest

from whence.gateway import otlp
from whence.wire import CONTENT_KEYS

TRACES = [
    "genai-openai-http-proto-traces",
    "genai-langgraph-openai-grpc-traces",
    "genai-openai-nocontent-http-json-traces",
    "oi-langgraph-fake-http-proto-traces",
    "oi-langgraph-openai-http-json-traces",
    "oi-openai-agents-grpc-traces",
]
LOGS = ["genai-openai-http-proto-logs", "genai-openai-http-proto-logs-2", "genai-langgraph-openai-grpc-logs"]
ALL = TRACES + LOGS
CONTENT = ("Paris", "sunny", "helpful", "Use tools", "Alice", "18C", "Weather for a city", "rate limit")


def text(content):
    return {"type": "text", "content": content}


def call(call_id, **arguments):
    return {"type": "tool_call", "id": call_id, "name": "get_weather", "arguments": arguments}


def tree(events):
    """Each event as (type, name of its parent's event), which is the shape of a trace."""
    names = {event.event_id: json.loads(bytes(event.payload))["name"] for event in events}
    return [(event.event_type, names[event.event_id], names.get(event.parent_event_id)) for event in events]


@pytest.mark.parametrize("name", ALL)
def test_both_wire_forms_give_the_same_events(both_forms, name):
    wire, decoded = both_forms(name)
    assert wire.events
    assert wire == decoded


@pytest.mark.parametrize("name", ALL)
def test_mapping_again_gives_the_same_bytes(recording, name):
    assert msgspec.json.encode(recording(name)) == msgspec.json.encode(recording(name))


@pytest.mark.parametrize("name", ALL)
def test_no_content_is_in_an_envelope(recording, name):
    for event in recording(name):
        envelope = msgspec.json.encode(msgspec.structs.replace(event, payload=msgspec.UNSET)).decode()
        assert [word for word in CONTENT if word in envelope] == []


@pytest.mark.parametrize("name", ALL)
def test_every_event_is_complete(recording, name):
    for event in recording(name):
        assert event.occurred_at.utcoffset() is not None
        assert len(event.trace_id) == 32
        assert event.trace_id == event.trace_id.lower()
        assert json.loads(bytes(event.payload))["resource"]["attributes"]["service.name"]
    assert len({event.event_id for event in recording(name)}) == len(recording(name))


def test_calls_of_the_openai_client(recording):
    events = recording("genai-openai-http-proto-traces")
    assert [event.event_type for event in events] == [
        "llm.generate",
        "llm.generate",
        "llm.generate",
        "llm.embed",
        "llm.generate",
        "llm.generate",
    ]
    assert [event.status for event in events] == ["completed"] * 4 + ["failed", "completed"]
    assert [event.session_id for event in events] == [event.trace_id for event in events]
    assert {event.agent_id for event in events} == {"genai-openai"}
    assert {event.parent_event_id for event in events} == {None}
    assert events[0].event_id == otlp.event_id_of_span(
        bytes.fromhex("21afb2a7c6bc22542a094b2d2fa65f5d"), bytes.fromhex("948e04b7491893d9")
    )
    assert events[0].occurred_at.isoformat() == "2026-11-15T14:40:06.716318+00:00"
    assert events[0].ended_at.isoformat() == "2026-11-15T14:40:06.737820+00:00"


def test_measures_of_the_openai_client(recording):
    chat, _, _, embedding, failed, _ = [event.measures for event in recording("genai-openai-http-proto-traces")]
    assert msgspec.to_builtins(chat) == {
        "operation": "chat",
        "provider": "openai",
        "model": "gpt-4o-mini",
        "response_model": "gpt-4o-mini-2026-01-01",
        "input_tokens": 42,
        "output_tokens": 11,
        "cached_input_tokens": 8,
        "finish_reasons": ("tool_calls",),
    }
    assert (embedding.operation, embedding.input_tokens, embedding.output_tokens) == ("embeddings", 7, None)
    assert (failed.model, failed.error_type) == ("fail-model", "openai.RateLimitError")


def test_messages_of_the_openai_client(recording, payload):
    first, second, _, _, _, last = [payload(event) for event in recording("genai-openai-http-proto-traces")]
    assert first["input_messages"] == [
        {"role": "system", "parts": [text("You are helpful.")]},
        {"role": "user", "parts": [text("Weather in Paris?")]},
    ]
    assert first["output_messages"] == [
        {"role": "assistant", "parts": [call("call_0e6fff83", city="Paris")], "finish_reason": "tool_call"}
    ]
    assert first["tool_definitions"][0]["name"] == "get_weather"
    assert second["input_messages"][3] == {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "call_0e6fff83", "response": "18C sunny"}],
    }
    assert second["output_messages"][0]["parts"] == [text("It is 18C and sunny in Paris.")]
    assert last["system_instructions"][0]["type"] == "text"
    assert first["attributes"]["gen_ai.request.temperature"] == 0.1
    assert first["attributes"]["server.port"] == 17480
    assert first["kind"] == "client"
    assert first["scope"] == {
        "name": "opentelemetry.instrumentation.genai.openai",
        "version": "1.3b0",
        "schema_url": "https://opentelemetry.io/schemas/1.37.0",
    }


def test_a_capture_without_content_has_none(recording, payload):
    events = recording("genai-openai-nocontent-http-json-traces")
    assert Counter(event.event_type for event in events) == {"llm.generate": 5, "llm.embed": 1}
    for event in events:
        assert not CONTENT_KEYS & payload(event).keys()
        assert "Paris" not in bytes(event.payload).decode()
    assert events[0].measures.input_tokens == 42


def test_an_agent_of_langgraph_under_the_genai_conventions(recording, payload):
    events = recording("genai-langgraph-openai-grpc-traces")
    root = "invoke_agent weather_agent"
    assert tree(events) == [
        ("retriever.query", "retrieval", root),
        ("llm.generate", "chat gpt-4o-mini", root),
        ("tool.execute", "execute_tool get_weather", root),
        ("llm.generate", "chat gpt-4o-mini", root),
        ("agent.invoke", root, None),
    ]
    trace = events[0].trace_id
    assert [event.session_id for event in events] == [trace, "thread-1", trace, "thread-1", "thread-1"]
    assert [event.tool_name for event in events] == [None, None, "get_weather", None, None]
    assert (events[2].agent_id, events[4].agent_id) == ("weather_agent", "weather_agent")
    assert payload(events[0])["retrieval"] == {"query": "Weather in Paris?", "documents": [{"id": None, "score": 0.9}]}
    assert payload(events[2])["tool"] == {
        "arguments": {"city": "Paris"},
        "result": "18C sunny",
        "call_id": "call_a384ccd0",
        "description": "Weather for a city",
        "type": "function",
    }


@pytest.mark.parametrize("name", ["oi-langgraph-fake-http-proto-traces", "oi-langgraph-openai-http-json-traces"])
def test_an_agent_of_langgraph_under_openinference(recording, payload, name):
    events = recording(name)
    model = {"oi-langgraph-fake-http-proto-traces": "M"}.get(name, "ChatOpenAI")
    assert tree(events) == [
        ("retriever.query", "R", "recall"),
        ("chain.run", "recall", "weather_agent"),
        ("llm.generate", model, "agent"),
        ("chain.run", "tools_condition", "agent"),
        ("agent.invoke", "agent", "weather_agent"),
        ("tool.execute", "get_weather", "tools"),
        ("chain.run", "tools", "weather_agent"),
        ("llm.generate", model, "agent"),
        ("chain.run", "tools_condition", "agent"),
        ("agent.invoke", "agent", "weather_agent"),
        ("agent.invoke", "weather_agent", None),
    ]
    assert {event.session_id for event in events} == {"s1"}
    assert (events[5].tool_name, events[10].agent_id) == ("get_weather", "weather_agent")
    retrieved = payload(events[0])["retrieval"]
    assert retrieved["query"] == "Weather in Paris?"
    assert retrieved["documents"][0]["content"] == "Alice lives in Paris"
    assert retrieved["documents"][0]["metadata"]["id"] == "m1"
    assert payload(events[0])["metadata"]["thread_id"] == "thread-1"
    answer = payload(events[7])
    assert [message["role"] for message in answer["input_messages"]] == ["user", "assistant", "tool"]
    assert answer["input_messages"][1]["parts"][0]["arguments"] == {"city": "Paris"}
    assert answer["input_messages"][2]["parts"][0]["response"] == "18C sunny"
    assert "Paris" in answer["output_messages"][0]["parts"][0]["content"]


def test_token_counts_of_openinference(recording, payload):
    event = recording("oi-langgraph-openai-http-json-traces")[2]
    assert msgspec.to_builtins(event.measures) == {
        "operation": "LLM",
        "provider": "openai",
        "model": "gpt-4o-mini-2026-01-01",
        "input_tokens": 42,
        "output_tokens": 11,
        "total_tokens": 53,
        "cached_input_tokens": 8,
        "reasoning_tokens": 0,
        "finish_reasons": ("tool_calls",),
    }
    # The provider is the host, llm.provider; llm.system, which lost, is still there.
    assert payload(event)["attributes"]["llm.system"] == "openai"


def test_a_workflow_of_openai_agents(recording, payload):
    events = recording("oi-openai-agents-grpc-traces")
    assert tree(events) == [
        ("llm.generate", "response", "turn"),
        ("tool.execute", "get_weather", "turn"),
        ("chain.run", "turn", "Weather agent"),
        ("llm.generate", "response", "turn"),
        ("chain.run", "turn", "Weather agent"),
        ("agent.invoke", "Weather agent", "Agent workflow"),
        ("chain.run", "Agent workflow", "Agent workflow"),
        ("agent.invoke", "Agent workflow", None),
    ]
    assert events[5].agent_id == "Weather agent"
    tool = payload(events[1])["tool"]
    assert (tool["arguments"], tool["result"]) == ({"city": "Paris"}, "18C sunny")
    assert tool["parameters"]["required"] == ["city"]
    answer = payload(events[3])
    assert answer["input_messages"] == [
        {"role": "system", "parts": [text("Use tools")]},
        {"role": "user", "parts": [text("Weather in Paris?")]},
        {"role": "assistant", "parts": [call("call_db4e15d3", city="Paris")]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "call_db4e15d3", "response": "18C sunny"}],
        },
    ]
    # This text is given twice, as the content and as the only one of the contents.
    assert answer["output_messages"] == [{"role": "assistant", "parts": [text("It is 18C and sunny in Paris.")]}]
    assert answer["tool_definitions"][0]["name"] == "get_weather"
    assert answer["output"]["usage"]["total_tokens"] == 53


def test_a_child_that_comes_before_its_parent_points_at_it(recording):
    events = recording("genai-langgraph-openai-grpc-traces")
    assert events[0].parent_event_id == events[-1].event_id


@pytest.mark.parametrize(
    ("logs", "traces"),
    [
        ("genai-openai-http-proto-logs", "genai-openai-http-proto-traces"),
        ("genai-openai-http-proto-logs-2", "genai-openai-http-proto-traces"),
        ("genai-langgraph-openai-grpc-logs", "genai-langgraph-openai-grpc-traces"),
    ],
)
def test_content_of_a_log_record_is_that_of_its_span(recording, payload, logs, traces):
    spans = {event.event_id: event for event in recording(traces)}
    for event in recording(logs):
        assert event.event_type == "llm.content"
        span = spans[event.parent_event_id]
        assert (event.trace_id, event.session_id) == (span.trace_id, span.session_id)
        content, whole = payload(event), payload(span)
        assert content["event_name"] == "gen_ai.client.inference.operation.details"
        shared = CONTENT_KEYS & content.keys()
        assert "input_messages" in shared
        assert {key: content[key] for key in shared} == {key: whole[key] for key in shared}
