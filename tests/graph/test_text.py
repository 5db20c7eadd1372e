"""What payloads say: recorded ones, those of other shapes, and anything at all."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.gateway import otlp
from whence.graph.text import (
    MAX_MAIN_CHARACTERS,
    MAX_PASSAGE_CHARACTERS,
    MAX_PASSAGES,
    MAX_TEXT_DEPTH,
    Passage,
    excerpt,
    main_text,
    passages,
)
from whence.wire import Event

DATA = Path(__file__).parents[1] / "data" / "otlp"
RECORDINGS = sorted(path.name for path in DATA.iterdir() if path.suffix in (".pb", ".json-wire"))


def recorded(name: str) -> list[tuple[str, bytes]]:
    path = DATA / name
    content_type = "application/x-protobuf" if path.suffix == ".pb" else "application/json"
    read = otlp.events_from_logs if "-logs" in name else otlp.events_from_traces
    return [(event.event_type, content(event)) for event in read(path.read_bytes(), content_type).events]


def content(event: Event) -> bytes:
    assert isinstance(event.payload, msgspec.Raw)
    return bytes(event.payload)


def told(event_type: str, payload: Any) -> list[tuple[str, str]]:
    return [tuple(passage) for passage in passages(event_type, json.dumps(payload).encode())]  # type: ignore[misc]


def said(payload: Any, event_type: str = "some.event") -> list[str]:
    return [text for _, text in told(event_type, payload)]


def line(event_type: str, payload: Any, limit: int = 200) -> str:
    return excerpt(event_type, json.dumps(payload).encode(), limit)


def main(event_type: str, payload: Any) -> str:
    return main_text(event_type, json.dumps(payload).encode())


# Recorded payloads

ASKED, ANSWERED = "Weather in Paris?", "It is 18C and sunny in Paris."


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recorded_payload_says_only_what_was_said(name: str) -> None:
    known = {ASKED, "Where does Alice live?", "x", "Paris", "18C sunny", ANSWERED, "It is 18C in Paris."}
    known |= {"Alice moved to Paris in May 2024. Final Answer: Alice lives in Paris. ", "Alice lives in Paris"}
    known |= {"Error code: 429 - rate limited (fake)", "tools", "__end__"}
    for event_type, payload in recorded(name):
        assert {passage.text for passage in passages(event_type, payload)} <= known


@pytest.mark.parametrize("name", [name for name in RECORDINGS if "langgraph" in name and "logs" not in name])
def test_what_a_recorded_run_asked_and_answered(name: str) -> None:
    lines: dict[str, list[str]] = {}
    for event_type, payload in recorded(name):
        lines.setdefault(event_type, []).append(excerpt(event_type, payload))
        texts = {"tool.execute": "Paris"}
        assert main_text(event_type, payload) == texts.get(event_type, ASKED)
    answer = "It is 18C in Paris." if "fake" in name else ANSWERED
    assert lines["llm.generate"] == [
        f"user: {ASKED} | -> get_weather(city: Paris)",
        f"user: {ASKED} | assistant: {answer}",
    ]
    assert lines["agent.invoke"][-1] == f"user: {ASKED} | assistant: {answer}"
    assert lines["tool.execute"][0].startswith("-> get_weather(")
    assert lines["tool.execute"][0].endswith("Paris) | tool: 18C sunny")
    assert lines["retriever.query"][0].startswith(f"query: {ASKED}")


def test_a_recorded_model_call_with_history() -> None:
    calls = [passages(*call) for call in recorded("genai-openai-http-proto-traces.pb") if call[0] == "llm.generate"]
    assert calls[1] == [
        Passage("object", ASKED),
        Passage("object", "Paris"),
        Passage("object", "18C sunny"),
        Passage("result", ANSWERED),
    ]


def test_a_recorded_call_without_content_says_nothing() -> None:
    for event_type, payload in recorded("genai-openai-nocontent-http-json-traces.json-wire"):
        failed = "Error code: 429 - rate limited (fake)" if b"status_message" in payload else ""
        assert main_text(event_type, payload) == failed
        assert excerpt(event_type, payload) == (failed and f"error: {failed}")


# Messages

PLAIN = {"role": "user", "content": "Where is it?"}


@pytest.mark.parametrize(
    "message",
    [
        PLAIN,
        {"role": "user", "parts": [{"type": "text", "content": "Where is it?"}]},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Where is it?"}, {"type": "image_url", "image_url": "x y"}],
        },
        {"role": "user", "content": [{"type": "input_text", "text": "Where is it?"}]},
        {"role": "human", "content": ["Where is it?"]},
        {"type": "human", "content": "Where is it?", "id": "some words"},
        {"type": "human", "data": {"content": "Where is it?", "type": "human", "name": None}},
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "x"],
            "kwargs": {"content": "Where is it?", "type": "human"},
        },
        ["user", "Where is it?"],
        {"messages": [PLAIN]},
        {"input": {"messages": [["system", "Be brief"], ["human", "Where is it?"]]}},
        {"input": json.dumps({"messages": [PLAIN]})},
        {"input_messages": [{"role": "system", "content": "Be brief"}, PLAIN], "input": "the same in other words"},
        {
            "request": {
                "model": "m",
                "messages": [{"role": "developer", "content": "Be brief"}, PLAIN],
                "tools": ["x y"],
            }
        },
    ],
)
def test_a_users_message_in_every_shape(message: Any) -> None:
    assert told("llm.generate", message) == [("object", "Where is it?")]
    assert main("llm.generate", message) == "Where is it?"
    assert line("llm.generate", message) == "user: Where is it?"


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": '{"city": "Oslo"}'}}],
        },
        {"role": "assistant", "content": "", "tool_calls": [{"name": "find", "args": {"city": "Oslo"}, "id": "c1"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "find", "input": {"city": "Oslo"}}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c", "name": "find", "arguments": {"city": "Oslo"}}],
        },
        {"output": [{"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"city": "Oslo"}'}]},
    ],
)
def test_a_call_in_every_shape(message: Any) -> None:
    assert told("llm.generate", message) == [("result", "Oslo")]
    assert line("llm.generate", message) == "-> find(city: Oslo)"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "tool_call_id": "c1", "content": "18C sunny"},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"is": "18C sunny"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "18C sunny"}]},
    ],
)
def test_a_reply_of_a_tool_in_every_shape(message: Any) -> None:
    assert said({"input": [message]}) == ["18C sunny"]
    assert main("llm.generate", {"input": [PLAIN, message]}) == "Where is it?"


def test_what_an_assistant_thought_is_not_what_it_answered() -> None:
    parts = [{"type": "reasoning", "content": "Hmm, look"}, {"type": "text", "content": "Here."}]
    answer = {"output_messages": [{"role": "assistant", "parts": parts}]}
    assert told("llm.generate", answer) == [("result", "Here."), ("result", "Hmm, look")]
    assert line("llm.generate", answer) == "assistant: Here."


def test_a_user_is_never_a_result() -> None:
    state = {"output": {"messages": [PLAIN, {"role": "assistant", "content": "There."}]}}
    assert told("agent.invoke", state) == [("object", "Where is it?"), ("result", "There.")]


def test_the_last_message_of_the_user_stands_for_a_call() -> None:
    messages = [PLAIN, {"role": "assistant", "content": "Where is what?"}, {"role": "user", "content": ["My", " bag"]}]
    assert main("llm.generate", {"input_messages": messages}) == "My bag"


def test_system_prompts_and_definitions_are_nowhere() -> None:
    payload = {
        "system_instructions": [{"type": "text", "content": "You are Acme's assistant"}],
        "tool_definitions": [{"name": "find", "description": "Finds a city"}],
        "input_messages": [{"role": "system", "parts": [{"type": "text", "content": "Be brief"}]}],
        "metadata": {"node": "some node"},
    }
    assert told("llm.generate", payload) == []
    assert main("llm.generate", payload) == line("llm.generate", payload) == ""


# Tools, searches, memory


@pytest.mark.parametrize(
    "payload",
    [
        {"tool": {"arguments": {"city": "Oslo", "days": 3}, "call_id": "call 7"}, "name": "execute_tool find"},
        {"tool": "find", "args": {"city": "Oslo", "days": 3}},
        {"tool_name": "find", "input": '{"city": "Oslo", "days": 3}'},
        {"name": "find", "arguments": {"city": "Oslo", "days": 3}},
    ],
)
def test_a_tool_that_ran(payload: dict[str, Any]) -> None:
    assert told("tool.execute", payload) == [("object", "Oslo")]
    assert line("tool.execute", payload) == "-> find(city: Oslo, days: 3)"
    assert line("tool.execute", payload | {"output": "cold"}) == "-> find(city: Oslo, days: 3) | cold"


def test_the_arguments_stand_for_a_tool_and_not_its_result() -> None:
    payload = {"tool": {"arguments": {"q": "Oslo  weather"}, "result": "cold and dark"}}
    assert main("tool.execute", payload) == "Oslo weather"
    assert main("tool.execute", {"tool": {"arguments": {"a": 3}, "result": "seven"}}) == "seven"


def test_an_address_is_text_only_if_a_tool_is_called_with_it() -> None:
    assert said({"tool": {"arguments": {"page": "https://example.com/a"}}}, "tool.execute") == ["https://example.com/a"]
    assert said({"page": "https://example.com/a"}) == []


def test_a_search_and_what_it_found() -> None:
    documents = [{"id": "m 1", "content": "Alice lives in Oslo", "metadata": {"author": "some one"}, "score": 0.9}]
    payload = {"retrieval": {"query": "Where?", "documents": documents}, "output": {"documents": ["in other words"]}}
    assert told("retriever.query", payload) == [("object", "Where?"), ("result", "Alice lives in Oslo")]
    assert main("retriever.query", payload) == "Where?"
    assert line("retriever.query", payload) == "query: Where? | document: Alice lives in Oslo"


def test_memory_that_was_searched_and_memory_that_was_told() -> None:
    memory = {"query": "Where?", "records": [{"id": "r 1", "content": "Alice lives in Oslo"}], "store_id": "s 1"}
    assert told("memory.search", {"memory": memory}) == [("object", "Where?"), ("result", "Alice lives in Oslo")]
    assert told("memory.create", {"memory": memory}) == [("object", "Where?"), ("object", "Alice lives in Oslo")]


# Anything else


def test_texts_come_in_the_order_of_the_document_and_outputs_last() -> None:
    payload = {"subject": "A fact", "result": {"note": "came out"}, "list": [["one two", {"deep": "three"}], "four"]}
    assert told("some.event", payload) == [
        ("object", "A fact"),
        ("object", "one two"),
        ("object", "three"),
        ("object", "four"),
        ("result", "came out"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "42",
        "3.14",
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "2026-01-02 03:04:05.123456+01:00",
        "0af7651916cd43dd8448eb211c80319c",
        "9cb32658-ee33-4f36-8f21-f575f722b842",
        "sha256:64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        "call_a384ccd0",
        "https://example.com/a/b?c=d",
        "data:image/png;base64," + "iVBORw0KGgo" * 10,
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "---",
        None,
        True,
        7,
    ],
)
def test_values_that_are_for_programs_are_left_out(value: Any) -> None:
    assert said({"some": value, "list": [value]}) == []


@pytest.mark.parametrize("value", ["ok", "Größe 漢字", "see https://example.com/a", "well-known", "https: yes", "cafe"])
def test_values_that_are_for_people_are_kept(value: str) -> None:
    assert said({"some": value}) == [value]


@pytest.mark.parametrize("key", ["id", "user_id", "sessionId", "ids", "content_hash", "api_key", "type", "usage"])
def test_keys_that_name_something_to_a_program_are_left_out(key: str) -> None:
    assert said({key: "some words"}) == []


@pytest.mark.parametrize("key", ["paid", "valid", "idea", "side", "text", "tokens_saved_by"])
def test_keys_that_only_look_like_it_are_read(key: str) -> None:
    assert said({key: "some words"}) == ["some words"]


def test_a_text_is_told_once() -> None:
    assert told("some.event", {"a": "the same", "output": "the same"}) == [("object", "the same")]


@pytest.mark.parametrize("payload", [b"", b"not json", b'{"a": ', b"\xff\xfe", b'"\xed\xa0\x80"', b"[" * 100_000])
def test_what_is_not_json_says_nothing(payload: bytes) -> None:
    assert passages("a.b", payload) == []
    assert main_text("a.b", payload) == excerpt("a.b", payload) == ""


def test_a_key_that_a_span_has_too_hides_nothing() -> None:
    payload = {"scope": "some scope", "query": "Where?", "hits": [{"text": "Here."}]}
    assert told("memory.recall", payload) == [("object", "some scope"), ("object", "Where?"), ("result", "Here.")]


def test_a_text_by_itself_is_a_passage() -> None:
    assert told("a.b", "hello there") == [("object", "hello there")]


# Bounds


def test_of_a_long_conversation_the_newest_inputs_and_the_first_outputs_are_kept() -> None:
    asked = [{"role": "user", "content": f"question {number}"} for number in range(500)]
    answered = [{"role": "assistant", "content": f"answer {number}"} for number in range(500)]
    every = said({"input_messages": asked, "output_messages": answered}, "llm.generate")
    assert every == [f"question {number}" for number in range(468, 500)] + [f"answer {number}" for number in range(32)]
    few = said({"input_messages": asked, "output_messages": answered[:1]}, "llm.generate")
    assert few == [f"question {number}" for number in range(437, 500)] + ["answer 0"]


def test_long_texts_are_cut() -> None:
    payload = {"text": "many words " * 10_000}
    assert len(said(payload)[0]) == MAX_PASSAGE_CHARACTERS
    assert len(main("a.b", payload)) == MAX_MAIN_CHARACTERS
    assert main("a.b", payload).endswith("…")


def test_what_is_nested_too_deeply_is_left_out() -> None:
    deep: Any = "too deep"
    for _ in range(MAX_TEXT_DEPTH + 1):
        deep = {"in": deep}
    assert said({"deep": deep, "text": "seen"}) == ["seen"]


def test_a_large_payload_is_read_only_so_far() -> None:
    assert said([0] * 300_000 + ["unseen words"]) == []
    assert said({"input": [0] * 300_000, "output": "seen words"}) == ["seen words"]


def test_a_line_fits_and_shows_both_sides() -> None:
    payload = {"input_messages": [{"role": "user", "content": "why " * 200}], "output_messages": ["because " * 200]}
    payload["output_messages"] = [{"role": "assistant", "content": "because " * 200}]
    shown = line("llm.generate", payload, 80)
    assert len(shown) <= 80
    assert shown.startswith("user: why why")
    assert " | assistant: because" in shown


def test_a_line_has_no_characters_that_a_terminal_obeys() -> None:
    assert line("a.b", {"text": "red \x1b[31m\r\n\u202eand \u2066back\x00"}) == "red [31m and back"


def test_no_text_has_a_character_that_postgres_refuses() -> None:
    assert said({"text": "a\x00b"}) == ["a b"]


# Whatever comes

PLACES = """
    input output input_messages output_messages tool arguments result retrieval query documents memory records messages
    role type content parts text data kwargs lc tool_calls function name body status_message scope response
"""
KEYS = st.sampled_from(PLACES.split())
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.sampled_from(["user", "tool_call", "text"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=4)
)
TYPES = st.sampled_from(["llm.generate", "tool.execute", "agent.invoke", "retriever.query", "memory.search", "a.b"])


def anything() -> Iterator[st.SearchStrategy[bytes]]:
    yield st.binary(max_size=50)
    yield JSON.map(lambda value: json.dumps(value).encode())
    yield JSON.map(lambda value: json.dumps(json.dumps(value)).encode())


@given(TYPES, st.one_of(*anything()), st.integers(0, 60))
def test_nothing_raises_and_everything_is_bounded(event_type: str, payload: bytes, limit: int) -> None:
    found = passages(event_type, payload)
    assert found == passages(event_type, payload)
    assert len(found) <= MAX_PASSAGES
    assert len({passage.text for passage in found}) == len(found)
    for passage in found:
        assert 0 < len(passage.text) <= MAX_PASSAGE_CHARACTERS
        passage.text.encode()
    assert len(main_text(event_type, payload)) <= MAX_MAIN_CHARACTERS
    shown = excerpt(event_type, payload, limit)
    assert len(shown) <= limit
    assert shown == " ".join(shown.split())
