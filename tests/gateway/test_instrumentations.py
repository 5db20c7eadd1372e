"""Programs that were instrumented by others: what LangGraph and the OpenAI client do becomes events."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace

import pytest
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import NotFoundError, OpenAI
from openinference.instrumentation import using_attributes
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation import _semconv
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from gateway.model_stand_in import (
    ANSWER,
    ANSWER_USAGE,
    ARGUMENTS,
    CALL_ID,
    EMBEDDING_MODEL,
    EMBEDDING_USAGE,
    MODEL,
    RESPONSE_MODEL,
    TOOL_USAGE,
    UNKNOWN_MODEL,
    ModelStandIn,
    model_stand_in,
)
from samples import payload_of, stored

QUESTION = "How warm is it at home, where Ada lives?"
INSTRUCTIONS = "Answer as a sailor would."
RESULT = "18C and sunny"
RESOURCE = Resource({"service.name": "assistant"})
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather for a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a developer has set for other programs must not change what is instrumented, or send it elsewhere."""
    for name in os.environ:
        if name.startswith(("OTEL_", "OPENAI_", "OPENINFERENCE_", "LANGCHAIN_", "LANGSMITH_")):
            monkeypatch.delenv(name)


@pytest.fixture
def model() -> Iterator[ModelStandIn]:
    with model_stand_in() as stand_in:
        yield stand_in


@pytest.fixture
def client(model: ModelStandIn) -> Iterator[OpenAI]:
    with OpenAI(base_url=model.base_url, api_key="none", max_retries=0) as client:
        yield client


def exporter_options(server, workspace, signal):
    headers = {"authorization": f"Bearer {workspace.admin_key}"}
    return {"endpoint": f"{server.url}/v1/{signal}", "headers": headers, "compression": Compression.Gzip}


@pytest.fixture
def traces(server, workspace) -> Iterator[TracerProvider]:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(**exporter_options(server, workspace, "traces"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def logs(server, workspace) -> Iterator[LoggerProvider]:
    provider = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    exporter = OTLPLogExporter(**exporter_options(server, workspace, "logs"))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    yield provider
    provider.shutdown()


@contextmanager
def instrumented(instrumentor, **providers):
    instrumentor.instrument(**providers)
    assert instrumentor.is_instrumented_by_opentelemetry
    try:
        yield
    finally:
        instrumentor.uninstrument()
    for provider in providers.values():
        assert provider.force_flush()


def assert_only_in_payloads(admin, *said):
    events = stored(admin)
    envelopes = json.dumps(events)
    payloads = json.dumps([payload_of(admin, event) for event in events])
    for text in said:
        assert text in payloads
        assert text not in envelopes


def text(role, content, **fields):
    return {"role": role, "parts": [{"type": "text", "content": content}], **fields}


def tokens(event):
    return tuple(event["measures"].get(name) for name in ("input_tokens", "output_tokens", "total_tokens"))


TOOL_TOKENS = tuple(TOOL_USAGE.values())
ANSWER_TOKENS = tuple(ANSWER_USAGE.values())
CALL = {"type": "tool_call", "id": CALL_ID, "name": "get_weather", "arguments": ARGUMENTS}


# --- LangGraph, by OpenInference ------------------------------------------------------------------------------------


@tool
def get_weather(city: str) -> str:
    """Weather for a city"""
    return f"{RESULT} in {city}"


def assistant(base_url):
    """A graph whose only step is an agent that is a graph: it asks the model, runs a tool, asks again."""
    chat = ChatOpenAI(model=MODEL, base_url=base_url, api_key="none", max_retries=0).bind_tools([get_weather])
    agent = StateGraph(MessagesState)
    agent.add_node("agent", lambda state: {"messages": [chat.invoke(state["messages"])]})
    agent.add_node("tools", ToolNode([get_weather]))
    agent.add_edge(START, "agent")
    agent.add_conditional_edges("agent", tools_condition)
    agent.add_edge("tools", "agent")
    outer = StateGraph(MessagesState)
    outer.add_node("weather", agent.compile(name="weather_agent"))
    outer.add_edge(START, "weather")
    return outer.compile(name="assistant")


@pytest.fixture
def run(admin, model, traces) -> SimpleNamespace:
    """One question to the assistant, and the events that it became, with the names of their spans."""
    with (
        instrumented(LangChainInstrumentor(), tracer_provider=traces),
        using_attributes(session_id="thread-7", user_id="ada"),
    ):
        answer = assistant(model.base_url).invoke({"messages": [("user", QUESTION)]})
    assert answer["messages"][-1].content == ANSWER
    events = stored(admin)
    payloads = {event["event_id"]: payload_of(admin, event) for event in events}
    names = {event_id: payload["name"] for event_id, payload in payloads.items()}
    return SimpleNamespace(events=events, payloads=payloads, names=names)


def of_type(run, event_type):
    return [event for event in run.events if event["event_type"] == event_type]


def test_a_langgraph_run_becomes_events_of_its_kinds(run):
    kinds = Counter((event["event_type"], run.names[event["event_id"]]) for event in run.events)
    assert kinds == {
        ("chain.run", "assistant"): 1,
        ("chain.run", "weather"): 1,
        ("agent.invoke", "weather_agent"): 1,
        ("agent.invoke", "agent"): 2,
        ("llm.generate", "ChatOpenAI"): 2,
        ("chain.run", "tools_condition"): 2,
        ("chain.run", "tools"): 1,
        ("tool.execute", "get_weather"): 1,
    }
    assert {event["status"] for event in run.events} == {"completed"}
    assert all(event["ended_at"] >= event["occurred_at"] for event in run.events)


def test_every_event_of_a_langgraph_run_is_of_its_session_user_and_trace(admin, run):
    (trace_id,) = {event["trace_id"] for event in run.events}
    assert {(event["session_id"], event["user_id"]) for event in run.events} == {("thread-7", "ada")}
    assert stored(admin, session_id="thread-7") == run.events
    assert stored(admin, trace_id=trace_id) == run.events
    assert stored(admin, session_id=trace_id) == []


def test_a_tool_call_leads_up_to_the_question(admin, run):
    events = {event["event_id"]: event for event in run.events}
    (call,) = of_type(run, "tool.execute")
    chain = [call]
    while chain[-1]["parent_event_id"] is not None:
        chain.append(events[chain[-1]["parent_event_id"]])
    names = [run.names[event["event_id"]] for event in chain]
    assert names == ["get_weather", "tools", "weather_agent", "weather", "assistant"]
    # The parents were exported after their children.
    positions = [event["global_position"] for event in chain]
    assert positions == sorted(positions)
    ids = [event["event_id"] for event in chain]
    asked = {"max_depth": 10, "wait_for": len(events), "text": True}
    lineage = admin.get(f"/v1/events/{ids[0]}/lineage", params=asked).raise_for_status().json()
    assert [node for node in lineage["nodes"] if node in ids] == ids
    edges = {(edge["source"], edge["target"]): edge["properties"]["cause"] for edge in lineage["edges"]}
    assert all(edges[pair] == "direct" for pair in pairwise(ids))
    # The model's answer that asked for the tool is the second cause, though no span says so.
    (asking,) = [target for (source, target), cause in edges.items() if source == ids[0] and cause == "inferred"]
    assert events[asking]["event_type"] == "llm.generate"
    assert QUESTION in lineage["nodes"][ids[-1]]["attributes"]["text"]
    assert lineage["nodes"][ids[0]]["attributes"]["tool_name"] == "get_weather"
    assert lineage["meta"]["truncated"] is False
    assert run.payloads[ids[-1]]["input_messages"] == [text("user", QUESTION)]


def test_every_event_of_a_langgraph_run_but_the_first_has_its_parent_in_the_run(run):
    ids = {event["event_id"] for event in run.events}
    (root,) = [event for event in run.events if event["parent_event_id"] is None]
    assert run.names[root["event_id"]] == "assistant"
    assert {event["parent_event_id"] for event in run.events} - {None} < ids


def test_a_tool_of_langgraph_has_its_name_its_arguments_and_its_result(run):
    (call,) = of_type(run, "tool.execute")
    assert call["tool_name"] == "get_weather"
    told = run.payloads[call["event_id"]]["tool"]
    assert told["description"] == "Weather for a city"
    assert "Paris" in json.dumps(told["arguments"])
    assert f"{RESULT} in Paris" in json.dumps(told["result"])


def test_a_model_call_of_langgraph_has_its_tokens_and_its_messages(run):
    first, second = of_type(run, "llm.generate")
    assert (tokens(first), tokens(second)) == (TOOL_TOKENS, ANSWER_TOKENS)
    assert (first["measures"]["provider"], first["measures"]["model"]) == ("openai", RESPONSE_MODEL)
    assert (first["measures"]["finish_reasons"], second["measures"]["finish_reasons"]) == (["tool_calls"], ["stop"])
    asked, answered = (run.payloads[event["event_id"]] for event in (first, second))
    assert asked["input_messages"] == [text("user", QUESTION)]
    assert asked["output_messages"][0]["parts"] == [CALL]
    assert asked["tool_definitions"][0]["name"] == "get_weather"
    assert [message["role"] for message in answered["input_messages"]] == ["user", "assistant", "tool"]
    assert answered["input_messages"][2]["parts"][0]["response"] == f"{RESULT} in Paris"
    assert answered["output_messages"] == [text("assistant", ANSWER)]


def test_what_was_said_in_a_langgraph_run_is_in_payloads_only(admin, run):
    assert len(run.events) == 11
    assert_only_in_payloads(admin, QUESTION, ANSWER, RESULT)


def test_a_second_question_of_the_session_is_another_trace(admin, run, model, traces):
    with (
        instrumented(LangChainInstrumentor(), tracer_provider=traces),
        using_attributes(session_id="thread-7", user_id="ada"),
    ):
        assistant(model.base_url).invoke({"messages": [("user", "And tomorrow?")]})
    events = stored(admin, session_id="thread-7")
    assert events[: len(run.events)] == run.events
    assert len(events) == 2 * len(run.events)
    assert len({event["trace_id"] for event in events}) == 2


# --- the OpenAI client ----------------------------------------------------------------------------------------------


def ask(client, **options):
    """A question with a tool to answer it; the model asks for the tool."""
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": QUESTION}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER_TOOL], **options)
    assert answer.choices[0].finish_reason == "tool_calls"


def ask_with_result(client):
    """The same question, after the tool ran; the model answers."""
    function = {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}
    messages = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "tool_calls": [{"id": CALL_ID, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": CALL_ID, "content": RESULT},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER_TOOL])
    assert answer.choices[0].message.content == ANSWER


def ask_streaming(client):
    messages = [{"role": "user", "content": QUESTION}]
    chunks = client.chat.completions.create(
        model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
    )
    said = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(said) == ANSWER


def ask_unknown_model(client):
    with pytest.raises(NotFoundError):
        client.chat.completions.create(model=UNKNOWN_MODEL, messages=[{"role": "user", "content": QUESTION}])


def embed(client):
    client.embeddings.create(model=EMBEDDING_MODEL, input=QUESTION)


def joined_conversation(admin):
    """The events of the calls that a client made, and their payloads, in the order of the calls."""
    events = [event for event in stored(admin) if event["event_type"] != "llm.content"]
    events.sort(key=lambda event: event["occurred_at"])
    return events, [payload_of(admin, event) for event in events]


AFTER_THE_TOOL = [
    text("user", QUESTION),
    {"role": "assistant", "parts": [CALL]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": CALL_ID, "response": RESULT}]},
]


def test_chats_of_a_client_instrumented_by_openinference(admin, client, traces):
    with (
        instrumented(OpenAIInstrumentor(), tracer_provider=traces),
        using_attributes(session_id="thread-8", user_id="ada"),
    ):
        ask(client)
        ask_with_result(client)
        ask_streaming(client)
    events, (first, second, third) = joined_conversation(admin)
    assert [event["event_type"] for event in events] == ["llm.generate"] * 3
    assert [tokens(event) for event in events] == [TOOL_TOKENS, ANSWER_TOKENS, ANSWER_TOKENS]
    assert {(event["session_id"], event["user_id"], event["agent_id"]) for event in events} == {
        ("thread-8", "ada", "assistant")
    }
    assert {event["status"] for event in events} == {"completed"}
    assert first["input_messages"] == [text("system", INSTRUCTIONS), text("user", QUESTION)]
    assert first["output_messages"] == [{"role": "assistant", "parts": [CALL]}]
    assert first["tool_definitions"][0]["name"] == "get_weather"
    assert second["input_messages"] == AFTER_THE_TOOL
    assert second["output_messages"] == third["output_messages"] == [text("assistant", ANSWER)]
    assert_only_in_payloads(admin, QUESTION, INSTRUCTIONS, ANSWER, RESULT)


def test_an_embedding_of_a_client_instrumented_by_openinference(admin, client, traces):
    with instrumented(OpenAIInstrumentor(), tracer_provider=traces):
        embed(client)
    (event,) = stored(admin)
    assert event["event_type"] == "llm.embed"
    assert event["measures"]["model"] == EMBEDDING_MODEL
    assert event["measures"]["input_tokens"] == EMBEDDING_USAGE["prompt_tokens"]
    assert event["session_id"] == event["trace_id"]
    assert_only_in_payloads(admin, QUESTION)


def test_a_call_that_fails_under_openinference_is_a_failed_event(admin, client, traces):
    with instrumented(OpenAIInstrumentor(), tracer_provider=traces):
        ask_unknown_model(client)
    (event,) = stored(admin)
    assert (event["event_type"], event["status"]) == ("llm.generate", "failed")
    assert event["measures"]["error_type"] == "openai.NotFoundError"
    assert payload_of(admin, event)["input_messages"] == [text("user", QUESTION)]
    assert_only_in_payloads(admin, "The model does not exist")


# --- the OpenAI client, by the GenAI conventions --------------------------------------------------------------------

OLDER = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
NEWER = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "event_only",
}
CONVENTIONS = pytest.mark.parametrize("settings", [OLDER, NEWER], ids=["older conventions", "newer conventions"])


@pytest.fixture
def genai_instrumented(monkeypatch, traces, logs) -> Callable[..., object]:
    """Instruments by the conventions that the settings, which are environment variables, choose."""
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor  # noqa: PLC0415

    def instrument(settings, first="traces"):
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        # Which conventions are wanted is read from the environment once in the life of a process.
        monkeypatch.setattr(_semconv._OpenTelemetrySemanticConventionStability, "_initialized", False)
        providers = {"tracer_provider": traces, "logger_provider": logs}
        if first == "logs":
            providers = dict(reversed(providers.items()))
        return instrumented(OpenAIInstrumentor(), **providers)

    return instrument


@CONVENTIONS
@pytest.mark.parametrize("first", ["traces", "logs"])
def test_content_that_a_genai_instrumentation_logs_joins_its_call(admin, client, genai_instrumented, settings, first):
    with genai_instrumented(settings, first):
        ask(client)
        ask_with_result(client)
        ask_streaming(client)
    kinds = [event["event_type"] for event in stored(admin)]
    assert kinds[0] == {"traces": "llm.generate", "logs": "llm.content"}[first]
    events, (first, second, third) = joined_conversation(admin)
    assert [event["event_type"] for event in events] == ["llm.generate"] * 3
    assert [tokens(event)[:2] for event in events] == [TOOL_TOKENS[:2], ANSWER_TOKENS[:2], ANSWER_TOKENS[:2]]
    assert {event["measures"]["provider"] for event in events} == {"openai"}
    assert {event["measures"]["model"] for event in events} == {MODEL}
    assert {event["measures"]["response_model"] for event in events} == {RESPONSE_MODEL}
    assert first["input_messages"] == [text("system", INSTRUCTIONS), text("user", QUESTION)]
    assert [message["parts"] for message in first["output_messages"]] == [[CALL]]
    assert second["input_messages"] == AFTER_THE_TOOL
    for payload in (second, third):
        (message,) = payload["output_messages"]
        assert (message["role"], message["parts"]) == ("assistant", text("assistant", ANSWER)["parts"])
        assert message["finish_reason"] == "stop"
    assert third["input_messages"] == [text("user", QUESTION)]
    assert_only_in_payloads(admin, QUESTION, INSTRUCTIONS, ANSWER, RESULT)


@CONVENTIONS
def test_a_call_that_fails_under_a_genai_instrumentation_is_a_failed_event(admin, client, genai_instrumented, settings):
    with genai_instrumented(settings):
        ask_unknown_model(client)
    (event,), (payload,) = joined_conversation(admin)
    assert (event["event_type"], event["status"]) == ("llm.generate", "failed")
    assert event["measures"]["error_type"] == "NotFoundError"
    assert payload["input_messages"] == [text("user", QUESTION)]


@CONVENTIONS
def test_a_genai_instrumentation_that_captures_no_content_leaves_none(admin, client, genai_instrumented, settings):
    with genai_instrumented(settings | {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": ""}):
        ask(client)
        embed(client)
    events, payloads = joined_conversation(admin)
    assert [event["event_type"] for event in events] == ["llm.generate", "llm.embed"]
    assert tokens(events[0])[:2] == TOOL_TOKENS[:2]
    assert events[1]["measures"]["input_tokens"] == EMBEDDING_USAGE["prompt_tokens"]
    everything = json.dumps([stored(admin), payloads])
    assert [said for said in (QUESTION, INSTRUCTIONS, "Paris") if said in everything] == []
