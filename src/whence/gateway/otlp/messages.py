"""Chat messages of every dialect in one shape: that of the newer GenAI conventions.

    {"role": "assistant", "parts": [{"type": "text", "content": "…"}, {"type": "tool_call", "id": …, …}], …}

What a dialect says beyond that shape stays on the message or the part under its own name.
"""

import msgspec

from whence.gateway.otlp.decode import MAX_DEPTH
from whence.gateway.otlp.forms import Json, JsonObject

_TEXT_TYPES = (None, "text", "input_text", "output_text")
_REASONING_TYPES = ("thinking", "reasoning")


def parsed(value: Json) -> Json:
    """The object or list that a JSON string holds, or the value itself.

    Only objects and lists: the text "42" that a tool returned is text.
    """
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    return parsed_any(value)


def parsed_any(text: str) -> Json:
    """What a JSON string holds, or the string itself if it is not JSON or is nested too deeply to be read back."""
    try:
        value: Json = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    shallow = text.count("{") + text.count("[") <= MAX_DEPTH or not _too_deep(value)
    return value if shallow else text


def _too_deep(value: Json) -> bool:
    """Whether a value is nested beyond the limit, found by levels so that no depth can exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def as_messages(value: Json, role: str) -> list[Json] | None:
    """Messages from a list, one message or a text, structured or as a JSON string; None if it is none of these."""
    value = parsed(value)
    if isinstance(value, list):
        return [as_message(item, role) for item in value]
    if isinstance(value, dict | str):
        return [as_message(value, role)]
    return None


def as_message(item: Json, role: str) -> Json:
    """One message; `role` is the role of a message that does not say its own."""
    if not isinstance(item, dict):
        return {"role": role, "parts": as_parts(item)}
    fields = _without_none(_choice(item))
    fields.setdefault("role", role)
    parts = fields.get("parts")
    fields["parts"] = [_part(part) for part in parts] if isinstance(parts, list) else _chat_parts(fields)
    return fields


def as_parts(content: Json) -> list[Json]:
    """The content of a chat message: a text, a list of parts, or one part."""
    if content is None or content == "":
        return []
    return [_part(part) for part in content] if isinstance(content, list) else [_part(content)]


def as_instructions(value: Json) -> list[Json] | None:
    """System instructions: a list of parts."""
    return as_parts(parsed(value)) or None


def as_tools(value: Json) -> list[Json] | None:
    """Tool definitions: a list of {type, name, description, parameters}."""
    value = parsed(value)
    if isinstance(value, list):
        return [as_tool(tool) for tool in value]
    return [as_tool(value)] if isinstance(value, dict) else None


def as_tool(value: Json) -> Json:
    """A tool definition with OpenAI's extra level, {"type": "function", "function": {…}}, taken out."""
    if not isinstance(value, dict):
        return value
    function = value.get("function")
    if not isinstance(function, dict) or function.keys() & value.keys():
        return value
    return {**{name: field for name, field in value.items() if name != "function"}, **function}


def _choice(item: JsonObject) -> JsonObject:
    """A choice, {"index", "finish_reason", "message": {…}}, as a message with those two on it."""
    if "message" not in item:
        return item
    outer = {name: value for name, value in item.items() if name != "message"}
    message = parsed(item.get("message"))
    if isinstance(message, str | list) and "content" not in outer:
        return {**outer, "content": message}
    if isinstance(message, dict) and not message.keys() & outer.keys():
        return {**outer, **message}
    return item


def _chat_parts(fields: JsonObject) -> list[Json]:
    """The parts of a message in the shape of the chat APIs; what is turned into parts leaves `fields`."""
    content = parsed_content(fields.pop("content", None))
    call_id = fields.pop("tool_call_id", None)
    if call_id is None and fields["role"] == "tool":
        call_id = fields.pop("id", None)
    if call_id is not None or fields["role"] == "tool":
        parts: list[Json] = [_without_none({"type": "tool_call_response", "id": call_id, "response": content})]
    else:
        parts = as_parts(content)
    calls = parsed(fields.get("tool_calls"))
    if isinstance(calls, list):
        del fields["tool_calls"]
        parts += [as_tool_call(call) for call in calls]
    return parts


def parsed_content(content: Json) -> Json:
    """A list of parts that an instrumentation wrote as a JSON string, or the content as it is."""
    parts = parsed(content)
    if not isinstance(parts, list) or not parts:
        return content
    typed = all(isinstance(part, dict) and ("type" in part or "text" in part) for part in parts)
    return parts if typed else content


def as_tool_call(call: Json) -> Json:
    """A tool call, with OpenAI's extra level "function" taken out and its arguments read."""
    if not isinstance(call, dict):
        return {"type": "tool_call", "content": call}
    fields = {**call}
    function = fields.get("function")
    if isinstance(function, dict) and not function.keys() & fields.keys():
        del fields["function"]
        fields.update(function)
    if fields.get("type", "function") == "function":
        fields["type"] = "tool_call"
    if "arguments" in fields:
        fields["arguments"] = parsed(fields["arguments"])
    return fields


def _part(part: Json) -> Json:
    """One part; vendors' names for text, reasoning, tool calls and images become those of the conventions."""
    if not isinstance(part, dict):
        return {"type": "text", "content": part}
    kind = part.get("type")
    if kind in _TEXT_TYPES and "text" in part:
        return _renamed(part, "text", text="content")
    if kind in _REASONING_TYPES:
        return _renamed(part, "reasoning", thinking="content", text="content")
    if kind == "tool_call":
        return as_tool_call(part)
    if kind == "tool_use":
        return _renamed(part, "tool_call", input="arguments")
    if kind == "tool_result":
        return _renamed(part, "tool_call_response", tool_use_id="id", content="response")
    if kind == "image_url":
        return _image(part)
    return part


def _image(part: JsonObject) -> JsonObject:
    image = part.get("image_url")
    if isinstance(image, dict) and not image.keys() & {*part.keys(), "modality"}:
        part = {**{name: value for name, value in part.items() if name != "image_url"}, **image}
        return {**_renamed(part, "uri", url="uri"), "modality": "image"}
    return {**_renamed(part, "uri", image_url="uri"), "modality": "image"}


def _renamed(part: JsonObject, kind: str, **names: str) -> JsonObject:
    """A part of another type with some fields renamed; a field whose new name is taken keeps its own."""
    renamed: JsonObject = {name: value for name, value in part.items() if name not in names}
    for old, new in names.items():
        if old in part:
            renamed[old if new in renamed else new] = part[old]
    return {**renamed, "type": kind}


def _without_none(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}
