"""What the payload of a span's event holds: content in one shape, and everything that has no other place."""

import json

import pytest


def text(content):
    return {"type": "text", "content": content}


def test_what_a_span_has_besides_attributes_is_in_the_payload(span_event, payload):
    link = {"traceId": "ab" * 16, "spanId": "cd" * 8, "traceState": "l=1"}
    event = span_event(
        {"a": 1}, name="n", kind=3, traceState="v=1", links=[link], droppedAttributesCount=2, droppedEventsCount=3
    )
    assert payload(event) == {
        "name": "n",
        "kind": "client",
        "trace_state": "v=1",
        "links": [{"trace_id": "ab" * 16, "span_id": "cd" * 8, "trace_state": "l=1"}],
        "dropped_attributes_count": 2,
        "dropped_events_count": 3,
        "attributes": {"a": 1},
    }


def test_messages_on_a_span_or_nested_end_in_one_shape(span_event, payload):
    messages = [{"role": "user", "parts": [text("hi")], "name": None}]
    nested = payload(span_event({"gen_ai.input.messages": messages}))
    as_text = payload(span_event({"gen_ai.input.messages": json.dumps(messages)}))
    assert nested == as_text == {"input_messages": [{"role": "user", "parts": [text("hi")]}]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("hello", [{"role": "user", "parts": [text("hello")]}]),
        ("[not json", [{"role": "user", "parts": [text("[not json")]}]),
        ('["a"]', [{"role": "user", "parts": [text("a")]}]),
        ('{"content":"a","role":"system"}', [{"role": "system", "parts": [text("a")]}]),
        ('[{"role":"model","parts":[{"text":"a"}]}]', [{"role": "model", "parts": [text("a")]}]),
        ('[{"role":"user","content":[{"type":"input_text","text":"a"}]}]', [{"role": "user", "parts": [text("a")]}]),
        (
            '[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":'
            '{"name":"f","arguments":"{\\"x\\":1}"}}],"extra":7}]',
            [
                {
                    "role": "assistant",
                    "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}}],
                    "extra": 7,
                }
            ],
        ),
        (
            '[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://i"}}]}]',
            [{"role": "user", "parts": [{"type": "uri", "modality": "image", "uri": "http://i"}]}],
        ),
        (
            '[{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},'
            '{"type":"tool_use","id":"1","name":"f","input":{"x":1}}]}]',
            [
                {
                    "role": "assistant",
                    "parts": [
                        {"type": "reasoning", "content": "hm", "signature": "s"},
                        {"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}},
                    ],
                }
            ],
        ),
    ],
)
def test_messages_in_other_shapes(span_event, payload, given, expected):
    assert payload(span_event({"gen_ai.input.messages": given}))["input_messages"] == expected


def test_openinference_messages_with_many_contents(span_event, payload):
    base = "llm.input_messages.0.message"
    event = span_event(
        {
            f"{base}.role": "user",
            f"{base}.content": "look",
            f"{base}.contents.1.message_content.type": "image",
            f"{base}.contents.1.message_content.image.image.url": "http://i",
            f"{base}.contents.0.message_content.type": "text",
            f"{base}.contents.0.message_content.text": "at this",
            f"{base}.contents.2.message_content.type": "tool_use",
            f"{base}.contents.2.tool_call.id": "1",
            f"{base}.contents.2.tool_call.function.name": "f",
            f"{base}.contents.2.tool_call.function.arguments": '{"x":1}',
            f"{base}.contents.2.invented": "kept",
            f"{base}.function_call_name": "g",
        }
    )
    content = payload(event)
    assert content["input_messages"] == [
        {
            "role": "user",
            "parts": [
                text("look"),
                text("at this"),
                {"type": "uri", "modality": "image", "uri": "http://i"},
                {"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}},
                {"type": "tool_call", "name": "g"},
            ],
        }
    ]
    assert content["attributes"] == {f"{base}.contents.2.invented": "kept"}


def test_positions_order_a_list_and_must_be_plain_digits(span_event, payload):
    keys = [f"llm.input_messages.{position}.message.content" for position in ("10", "9", "09", "x", "-1", "٣", "99999")]
    content = payload(span_event({key: str(number) for number, key in enumerate(keys)}))
    assert [message["parts"][0]["content"] for message in content["input_messages"]] == ["1", "0"]
    assert sorted(content["attributes"]) == sorted(keys[2:])


def test_openllmetry_messages(span_event, payload):
    content = payload(
        span_event(
            {
                "llm.request.type": "chat",
                "gen_ai.system": "openai",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": '[{"type":"text","text":"hi"}]',
                "gen_ai.prompt.1.role": "tool",
                "gen_ai.prompt.1.content": "[]",
                "gen_ai.prompt.1.tool_call_id": "1",
                "gen_ai.prompt.name": "a prompt's name, not a message",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.finish_reason": "tool_calls",
                "gen_ai.completion.0.tool_calls.0.id": "1",
                "gen_ai.completion.0.tool_calls.0.name": "f",
                "gen_ai.completion.0.tool_calls.0.arguments": '{"x":1}',
                "llm.request.functions.0.name": "f",
                "llm.request.functions.0.parameters": '{"type":"object"}',
            }
        )
    )
    assert content["input_messages"] == [
        {"role": "user", "parts": [text("hi")]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "[]"}]},
    ]
    assert content["output_messages"] == [
        {
            "role": "assistant",
            "finish_reason": "tool_calls",
            "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"x": 1}}],
        }
    ]
    assert content["tool_definitions"] == [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    assert content["attributes"] == {
        "llm.request.type": "chat",
        "gen_ai.prompt.name": "a prompt's name, not a message",
    }


def event_of(name, **attributes):
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    return {"name": name, "timeUnixNano": "1", "attributes": values}


def test_messages_in_span_events(span_event, payload):
    events = [
        event_of("gen_ai.system.message", content="be kind"),
        event_of("gen_ai.user.message", **{"gen_ai.event.content": '{"content":"hi"}', "gen_ai.system": "openai"}),
        event_of("gen_ai.choice", message='{"role":"assistant","content":"ho"}', finish_reason="stop"),
        event_of("something else", content="kept"),
    ]
    content = payload(span_event(events=events))
    assert content["input_messages"] == [
        {"role": "system", "parts": [text("be kind")]},
        {"role": "user", "parts": [text("hi")]},
    ]
    assert content["output_messages"] == [{"role": "assistant", "parts": [text("ho")], "finish_reason": "stop"}]
    assert [event.get("attributes") for event in content["events"]] == [
        None,
        {"gen_ai.system": "openai"},
        None,
        {"content": "kept"},
    ]


def test_whole_prompts_in_span_events(span_event, payload):
    prompt = event_of("gen_ai.content.prompt", **{"gen_ai.prompt": '[{"role":"user","content":"hi"}]'})
    completion = event_of("gen_ai.content.completion", **{"gen_ai.completion": "ho"})
    content = payload(span_event(events=[prompt, completion]))
    assert content["input_messages"] == [{"role": "user", "parts": [text("hi")]}]
    assert content["output_messages"] == [{"role": "assistant", "parts": [text("ho")]}]


def test_details_in_a_span_event(span_event, payload):
    details = event_of(
        "gen_ai.client.inference.operation.details",
        **{"gen_ai.input.messages": '[{"role":"user","parts":[]}]', "gen_ai.system_instructions": "be kind"},
    )
    content = payload(span_event(events=[details]))
    assert content["input_messages"] == [{"role": "user", "parts": []}]
    assert content["system_instructions"] == [text("be kind")]


def test_messages_of_attributes_go_before_those_of_events(span_event, payload):
    content = payload(span_event({"gen_ai.prompt": "asked"}, events=[event_of("gen_ai.user.message", content="hi")]))
    assert content["input_messages"] == [{"role": "user", "parts": [text("asked")]}]
    assert content["events"][0]["attributes"] == {"content": "hi"}


@pytest.mark.parametrize(
    ("value", "mime_type", "expected"),
    [
        ('{"a":1}', "application/json", {"a": 1}),
        ('"a"', "application/json", "a"),
        ("{oops", "application/json", "{oops"),
        ('{"a":1}', "text/plain", '{"a":1}'),
        ('{"a":1}', None, '{"a":1}'),
        ("[" * 5000, "application/json", "[" * 5000),
        ("[" * 40 + "]" * 40, "application/json", "[" * 40 + "]" * 40),
        ("1e999", "application/json", "1e999"),
    ],
)
def test_input_is_read_if_its_type_says_json(span_event, payload, value, mime_type, expected):
    attributes = {"openinference.span.kind": "CHAIN", "input.value": value}
    if mime_type:
        attributes["input.mime_type"] = mime_type
    assert payload(span_event(attributes))["input"] == expected


def test_input_and_output_of_a_tool_are_its_arguments_and_result(span_event, payload):
    attributes = {"openinference.span.kind": "TOOL", "input.value": '{"x":1}', "output.value": "42"}
    assert payload(span_event(attributes, name="f"))["tool"] == {"arguments": {"x": 1}, "result": "42"}
    both = {**attributes, "gen_ai.tool.call.arguments": "given"}
    assert payload(span_event(both, name="f"))["tool"]["arguments"] == "given"
    assert payload(span_event(both, name="f"))["input"] == '{"x":1}'


def test_a_reranker_has_documents_in_and_out(span_event, payload):
    event = span_event(
        {
            "openinference.span.kind": "RERANKER",
            "reranker.query": "q",
            "reranker.model_name": "m",
            "reranker.top_k": 1,
            "reranker.input_documents.0.document.id": "a",
            "reranker.output_documents.0.document.score": 0.5,
        }
    )
    assert event.measures.model == "m"
    assert payload(event)["retrieval"] == {
        "query": "q",
        "input_documents": [{"id": "a"}],
        "documents": [{"score": 0.5}],
    }
    assert payload(event)["attributes"] == {"reranker.top_k": 1}


def test_memory_operations(span_event, payload):
    event = span_event(
        {
            "gen_ai.operation.name": "search_memory",
            "gen_ai.memory.query.text": "tea?",
            "gen_ai.memory.query": "older name",
            "gen_ai.memory.store.id": "prefs",
            "gen_ai.memory.record.count": 1,
            "gen_ai.memory.records": '[{"id":"m1","content":"likes tea"}]',
            "gen_ai.memory.search.similarity.threshold": 0.5,
        }
    )
    assert event.event_type == "memory.search"
    content = payload(event)
    assert content["memory"] == {
        "query": "tea?",
        "store_id": "prefs",
        "record_count": 1,
        "records": [{"id": "m1", "content": "likes tea"}],
        "search.similarity.threshold": 0.5,
    }
    assert content["attributes"] == {"gen_ai.memory.query": "older name"}


def test_tool_definitions_of_openinference(span_event, payload):
    schema = '{"type":"function","function":{"name":"f","parameters":{}}}'
    content = payload(
        span_event(
            {
                "llm.tools.0.tool.json_schema": schema,
                "llm.tools.0.tool.description": "does f",
                "llm.tools.1.tool.json_schema": '{"name":"g"}',
                "llm.tools.1.tool.name": "not g",
                "llm.tools.2.tool.name": "h",
            }
        )
    )
    assert content["tool_definitions"] == [
        {"type": "function", "name": "f", "parameters": {}, "description": "does f"},
        {"name": "g"},
        {"name": "h"},
    ]
    assert content["attributes"] == {"llm.tools.1.tool.name": "not g"}


@pytest.mark.parametrize(
    "tool",
    [{"type": "function", "function": {"name": "f", "type": "clash"}}, {"name": "f", "function": "text"}, {"a": 1}],
)
def test_a_tool_definition_that_would_lose_something_stays_as_it_is(span_event, payload, tool):
    assert payload(span_event({"gen_ai.tool.definitions": json.dumps([tool])}))["tool_definitions"] == [tool]


def test_nul_characters_are_fine_in_a_payload(span_event, payload):
    assert payload(span_event({"a": "x\0y"}))["attributes"] == {"a": "x\0y"}
