"""Lists that older conventions spread over attributes, such as `llm.input_messages.0.message.role`, put together again.

A key is used only if its whole path is known and its position is plain digits. Every other key stays an attribute, so
that nothing is lost to a path that somebody invented.
"""

from collections.abc import Callable
from typing import NamedTuple

from whence.gateway.otlp.forms import Json, JsonObject
from whence.gateway.otlp.messages import as_message, as_tool, as_tool_call, parsed

Build = Callable[[JsonObject], Json]
"""Makes one item of a list from its fields by path, and removes from them what it used."""


class Target(NamedTuple):
    """Where a list goes in the payload, and what makes an item of it."""

    section: str
    name: str
    build: Build


MAX_ITEMS = 4096
"""Items of one list; attributes with a higher position stay attributes."""

_POSITIONS = {str(position): position for position in range(MAX_ITEMS)}
"""Positions by their plain digits: with "00" beside "0", two items would become one."""


def gather(fields: JsonObject, prefix: str, build: Build) -> list[Json]:
    """The list flattened under `prefix`, in order of position. What is not used stays in `fields`."""
    if not fields:
        return []
    items: dict[int, JsonObject] = {}
    for key in list(fields):
        if key.startswith(prefix):
            digits, _, path = key[len(prefix) :].partition(".")
            position = _POSITIONS.get(digits)
            if path and position is not None:
                items.setdefault(position, {})[path] = fields.pop(key)
    built = [build(items[position]) for position in sorted(items)]
    for position, left in items.items():
        for path, value in left.items():
            fields[f"{prefix}{position}.{path}"] = value
    return [item for item in built if item]


def _take(fields: JsonObject, names: dict[str, str]) -> JsonObject:
    """The fields whose paths are in `names`, under their new names."""
    return {name: fields.pop(path) for path, name in names.items() if path in fields}


# --- OpenInference --------------------------------------------------------------------------------------------------

_MESSAGE = {
    "message.role": "role",
    "message.content": "content",
    "message.name": "name",
    "message.tool_call_id": "tool_call_id",
}
_TOOL_CALL = {
    "tool_call.id": "id",
    "tool_call.function.name": "name",
    "tool_call.function.arguments": "arguments",
    "tool_call.reasoning_signature": "reasoning_signature",
}
_FUNCTION_CALL = {
    "message.function_call_name": "name",
    "message.function_call_arguments_json": "arguments",
}
_CONTENT = {
    "message_content.type": "type",
    "message_content.text": "text",
    "message_content.id": "id",
    "message_content.signature": "signature",
    "message_content.data": "data",
    "message_content.encrypted_content": "encrypted_content",
}
_MEDIA = {
    "image": {"message_content.image.image.url": "uri"},
    "audio": {
        "message_content.audio.audio.url": "uri",
        "message_content.audio.audio.mime_type": "mime_type",
        "message_content.audio.audio.transcript": "transcript",
    },
    "video": {"message_content.video.video.url": "uri"},
}
_DOCUMENT = {
    "document.id": "id",
    "document.content": "content",
    "document.score": "score",
    "document.metadata": "metadata",
}
_TOOL = {"tool.name": "name", "tool.description": "description"}


def _openinference_message(role: str) -> Build:
    def build(fields: JsonObject) -> Json:
        message = _take(fields, _MESSAGE)
        contents = gather(fields, "message.contents.", _openinference_content)
        calls = gather(fields, "message.tool_calls.", _openinference_call)
        if function := _take(fields, _FUNCTION_CALL):
            calls.append(as_tool_call(function))
        return _message(message, contents, calls, role)

    return build


def _openinference_call(fields: JsonObject) -> Json:
    call = _take(fields, _TOOL_CALL)
    return as_tool_call(call) if call else None


def _message(message: JsonObject, contents: list[Json], calls: list[Json], role: str) -> Json:
    """A message. Its text is often given twice, whole and as its only part: then the part is enough."""
    if not (message or contents or calls):
        return None
    if contents:
        text = message.pop("content", None)
        given = any(isinstance(part, dict) and part.get("text") == text for part in contents)
        message["content"] = contents if text is None or given else [text, *contents]
    if calls:
        message["tool_calls"] = calls
    return as_message(message, role)


def _openinference_content(fields: JsonObject) -> Json:
    """One part of a message. An image, a sound or a film becomes a part of type `uri`."""
    if call := _openinference_call(fields):
        fields.pop("message_content.type", None)
        return call
    part = _take(fields, _CONTENT)
    modality = part.get("type")
    if isinstance(modality, str) and (medium := _take(fields, _MEDIA.get(modality, {}))):
        return {**part, **medium, "type": "uri", "modality": modality}
    return part


def _document(fields: JsonObject) -> Json:
    document = _take(fields, _DOCUMENT)
    if "metadata" in document:
        document["metadata"] = parsed(document["metadata"])
    return document


def _openinference_tool(fields: JsonObject) -> Json:
    """A tool definition: its JSON schema, with the name and description beside it unless the schema says otherwise."""
    schema = as_tool(parsed(fields.get("tool.json_schema")))
    if not isinstance(schema, dict):
        return _take(fields, {**_TOOL, "tool.json_schema": "json_schema"})
    del fields["tool.json_schema"]
    agreeing = {path: name for path, name in _TOOL.items() if schema.get(name, fields.get(path)) == fields.get(path)}
    return {**schema, **_take(fields, agreeing)}


def _text_message(path: str, role: str) -> Build:
    def build(fields: JsonObject) -> Json:
        return as_message(fields.pop(path), role) if path in fields else None

    return build


# --- OpenLLMetry, before the GenAI conventions had a place for messages ---------------------------------------------

_PROMPT = {
    "role": "role",
    "content": "content",
    "tool_call_id": "tool_call_id",
    "finish_reason": "finish_reason",
}
_PROMPT_CALL = {"id": "id", "name": "name", "arguments": "arguments"}
_FUNCTION = {"name": "name", "description": "description", "parameters": "parameters"}


def _openllmetry_message(role: str) -> Build:
    def build(fields: JsonObject) -> Json:
        message = _take(fields, _PROMPT)
        calls = gather(fields, "tool_calls.", _openllmetry_call)
        if calls:
            message["tool_calls"] = calls
        return as_message(message, role) if message else None

    return build


def _openllmetry_call(fields: JsonObject) -> Json:
    call = _take(fields, _PROMPT_CALL)
    return as_tool_call(call) if call else None


def _openllmetry_tool(fields: JsonObject) -> Json:
    tool = _take(fields, _FUNCTION)
    if "parameters" in tool:
        tool["parameters"] = parsed(tool["parameters"])
    return {"type": "function", **tool} if tool else None


LISTS: dict[str, Target] = {
    "llm.input_messages.": Target("payload", "input_messages", _openinference_message("user")),
    "llm.output_messages.": Target("payload", "output_messages", _openinference_message("assistant")),
    "gen_ai.prompt.": Target("payload", "input_messages", _openllmetry_message("user")),
    "gen_ai.completion.": Target("payload", "output_messages", _openllmetry_message("assistant")),
    "llm.prompts.": Target("payload", "input_messages", _text_message("prompt.text", "user")),
    "llm.choices.": Target("payload", "output_messages", _text_message("completion.text", "assistant")),
    "llm.tools.": Target("payload", "tool_definitions", _openinference_tool),
    "llm.request.functions.": Target("payload", "tool_definitions", _openllmetry_tool),
    "retrieval.documents.": Target("retrieval", "documents", _document),
    "reranker.output_documents.": Target("retrieval", "documents", _document),
    "reranker.input_documents.": Target("retrieval", "input_documents", _document),
}
"""The lists by the start of their keys. Where two go to the same place, the first one present takes it."""
