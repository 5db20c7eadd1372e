"""What an event's payload says: its passages, the text that stands for it, and a line for people.

Payloads come in every shape of JSON. Those that Whence makes of OpenTelemetry have known places; messages of the common
frameworks are recognised wherever they stand; of anything else the texts count, in the order of the document. System
prompts and tool definitions are left out everywhere: they are the same in every event of an agent, and what all events
share says nothing about one.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from whence.graph.names import Name, likeness, names_in, nearest, normalise
from whence.wire import CONTENT_KEYS

__all__ = ["Name", "Passage", "excerpt", "likeness", "main_text", "names_in", "nearest", "normalise", "passages"]

MAX_PASSAGES = 64
MAX_PASSAGE_CHARACTERS = 4_000
MAX_MAIN_CHARACTERS = 2_000
EXCERPT_CHARACTERS = 200
"""The usual length of a line for people."""

MAX_TEXT_DEPTH = 32
"""Levels of a payload that are read; what is nested deeper is left out."""

MAX_VALUES = 10_000
"""Values that are read of the inputs of an event, and as many of its outputs: the bound on its cost."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]
Role: TypeAlias = Literal["object", "result"]


class Passage(NamedTuple):
    role: Role
    """What was passed in is an object, what came out is a result."""
    text: str


class _Call(NamedTuple):
    name: str
    arguments: Json


class _Said(NamedTuple):
    """One statement: who made it, and the texts in it."""

    speaker: str
    role: Role
    texts: list[str]
    call: _Call | None = None


def understood(event_type: str, payload: bytes) -> tuple[list[Passage], str]:
    """The passages and the main text of an event, with its payload read once."""
    statements = _statements(event_type, payload)
    return _passages(statements), _main_text(event_type, statements)


def passages(event_type: str, payload: bytes) -> list[Passage]:
    """What was said or passed in an event: inputs, then outputs, each text once.

    Of too many, the newest inputs and the first outputs are kept: a conversation repeats its beginning in every call.
    """
    return _passages(_statements(event_type, payload))


def _passages(statements: list[_Said]) -> list[Passage]:
    found: dict[str, Passage] = {}
    for said in statements:
        for text in said.texts:
            cut = text[:MAX_PASSAGE_CHARACTERS]
            found.setdefault(cut, Passage(said.role, cut))
    objects = [passage for passage in found.values() if passage.role == "object"]
    results = [passage for passage in found.values() if passage.role == "result"]
    results = results[: max(MAX_PASSAGES // 2, MAX_PASSAGES - len(objects))]
    return [*objects[max(0, len(objects) + len(results) - MAX_PASSAGES) :], *results]


def main_text(event_type: str, payload: bytes) -> str:
    """The text that stands for an event when events are compared: the last message of the user, else what a tool or a
    search was asked, else everything."""
    return _main_text(event_type, _statements(event_type, payload))


def _main_text(event_type: str, statements: list[_Said]) -> str:
    chosen = statements
    if event_type.startswith(_OPERATIONS):
        chosen = [said for said in statements if said.role == "object" and said.texts] or statements
    elif asked := _last(statements, "user"):
        chosen = [asked]
    texts = dict.fromkeys(text for said in chosen for text in said.texts)
    return _line(" ".join(texts), MAX_MAIN_CHARACTERS)


def excerpt(event_type: str, payload: bytes, limit: int = EXCERPT_CHARACTERS) -> str:
    """One line for people: who asked what, and what came of it."""
    statements = [said for said in _statements(event_type, payload) if said.speaker != "reasoning"]
    objects = [said for said in statements if said.role == "object"]
    results = [said for said in statements if said.role == "result"]
    asked = _last(objects, "user") or (objects[0] if objects else None)
    answered = _last(results, "assistant") or (results[-1] if results else None)
    return _fitted([_told(said) for said in (asked, answered) if said is not None], limit)


_OPERATIONS = ("tool.", "retriever.", "memory.")
"""Types of events that are asked something by a program, not by a user."""


def _last(statements: list[_Said], speaker: str) -> _Said | None:
    return next((said for said in reversed(statements) if said.speaker == speaker and said.texts), None)


# --- lines ----------------------------------------------------------------------------------------------------------

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")
"""Characters that a terminal obeys, or that change the direction of what follows: a line for people has none."""

_MANY = 8
"""Of a call's arguments as many are shown; of each, as much as a line could hold."""


UNNAMED_CALL = "-> tool("
"""How the excerpt of a call begins whose payload does not name the tool."""


def _told(said: _Said) -> str:
    if said.call is not None:
        return f"-> {said.call.name}({_rendered(said.call.arguments)})"
    text = " ".join(text[:MAX_MAIN_CHARACTERS] for text in said.texts[:_MANY])
    return f"{said.speaker}: {text}" if said.speaker else text


def _rendered(arguments: Json) -> str:
    if not isinstance(arguments, dict):
        return _shown(arguments)
    return ", ".join(f"{name}: {_shown(value)}" for name, value in islice(arguments.items(), _MANY))


def _shown(value: Json) -> str:
    if value is None or value == {}:
        return ""
    return (value if isinstance(value, str) else msgspec.json.encode(value).decode())[:EXCERPT_CHARACTERS]


def _fitted(lines: list[str], limit: int) -> str:
    """What was asked and what came of it in one line. If it is too long each has half, and what one leaves over."""
    lines = [line for line in (_line(_UNSEEN.sub(" ", line), limit) for line in lines) if line]
    room = limit - len(" | ")
    if len(lines) < 2 or room < 20:
        return lines[0] if lines else ""
    asked = _line(lines[0], max(room // 2, room - len(lines[1])))
    return f"{asked} | {_line(lines[1], room - len(asked))}"


def _line(text: str, limit: int) -> str:
    """The text on one line, cut to the limit with a sign that it was."""
    line = " ".join(text[: 4 * MAX_PASSAGE_CHARACTERS].split())
    return line if len(line) <= limit else line[: max(0, limit - 1)].rstrip() + "…"[:limit]


# --- statements -----------------------------------------------------------------------------------------------------


def _statements(event_type: str, payload: bytes) -> list[_Said]:
    """The statements of an event, inputs before outputs; none if its payload is not JSON."""
    try:
        content: Json = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if not isinstance(content, dict) or _as_message(content):
        said = list(_Reader().values(content, None))
    else:
        said = [*_inputs(event_type, content, _Reader()), *_outputs(event_type, content, _Reader())]
    return sorted(said, key=lambda one: one.role == "result")


_ARGUMENTS = ("arguments", "args", "kwargs", "parameters", "input", "inputs")
_CALL = ("tool_name", "name", *_ARGUMENTS)


def _inputs(event_type: str, payload: JsonObject, reader: "_Reader") -> Iterator[_Said]:
    """What was passed in, from the first place that has it: OpenInference repeats its messages in other words."""
    messages = payload.get("input_messages")
    newest = messages[-2 * MAX_PASSAGES :] if isinstance(messages, list) else messages
    called = event_type.startswith("tool.") and "input_messages" not in payload
    yield from list(reader.values(newest, "object")) or (
        [] if called else reader.values(payload.get("input"), "object")
    )
    if called:
        yield from _tool_call(payload, reader)
    yield from reader.values(_field(payload, "retrieval", "query"), "object", "query")
    yield from reader.values(_field(payload, "retrieval", "input_documents"), "object", "document")
    yield from _memory(event_type, payload, reader)
    yield from reader.values(payload.get("body"), "object")
    # A span's other keys say how it was recorded.
    if not any(isinstance(payload.get(key), dict) for key in ("scope", "resource")):
        known = {*CONTENT_KEYS, "body", "status_message", *(_CALL if called else ())}
        others: JsonObject = {key: value for key, value in payload.items() if key not in known}
        yield from reader.values(others, None)


def _outputs(event_type: str, payload: JsonObject, reader: "_Reader") -> Iterator[_Said]:
    documents = list(reader.values(_field(payload, "retrieval", "documents"), "result", "document"))
    yield from documents
    messages = list(reader.values(payload.get("output_messages"), "result"))
    yield from messages or (() if documents else reader.values(payload.get("output"), "result"))
    yield from reader.values(_field(payload, "tool", "result"), "result", "tool")
    if event_type == "memory.search":
        yield from reader.values(_field(payload, "memory", "records"), "result", "memory")
    yield from reader.values(payload.get("status_message"), "result", "error")


def _field(payload: JsonObject, section: str, name: str) -> Json:
    fields = payload.get(section)
    return fields.get(name) if isinstance(fields, dict) else None


def _tool_call(payload: JsonObject, reader: "_Reader") -> Iterator[_Said]:
    """The call of a tool that ran, from the places where Whence and others put its name and arguments."""
    tool = payload.get("tool")
    names = (tool, payload.get("tool_name"), payload.get("name"))
    name = next((name for name in names if isinstance(name, str)), "tool")
    places: list[Json] = [_field(payload, "tool", "arguments"), *(payload.get(key) for key in _ARGUMENTS)]
    arguments = next((place for place in places if place is not None), None)
    if arguments is not None or isinstance(tool, dict):
        yield reader.call(name.removeprefix("execute_tool "), arguments, "object")


def _memory(event_type: str, payload: JsonObject, reader: "_Reader") -> Iterator[_Said]:
    """What a memory was asked or told. What a search found is an output."""
    memory = payload.get("memory")
    if not isinstance(memory, dict):
        yield from reader.values(memory, "object", "memory")
        return
    if "effect" in memory:
        # Whence's own: what was remembered is one field of many.
        yield from reader.values(memory.get("body"), "object", "memory")
        return
    yield from reader.values(memory.get("query"), "object", "query")
    found = ("query", "records") if event_type == "memory.search" else ("query",)
    told: JsonObject = {key: value for key, value in memory.items() if key not in found}
    yield from reader.values(told, "object", "memory")


# --- any JSON -------------------------------------------------------------------------------------------------------


def _keys(names: str) -> frozenset[str]:
    return frozenset(names.split())


_SPEAKERS = {
    "user": "user",
    "human": "user",
    "humanmessage": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "chatbot": "assistant",
    "tool": "tool",
    "function": "tool",
    "toolmessage": "tool",
    "system": "system",
    "systemmessage": "system",
    "developer": "system",
}
_CALLS = frozenset({"tool_call", "tool_use", "function_call", "server_tool_call"})
_REPLIES = frozenset({"tool_call_response", "tool_result", "function_call_output", "server_tool_call_response"})
_THOUGHTS = frozenset({"reasoning", "thinking"})
_MEDIA = frozenset({"uri", "blob", "file", "image", "image_url", "input_image", "input_audio", "audio", "input_file"})
_TEXTS = frozenset({"text", "input_text", "output_text"})
_RESULTS = _keys(
    """
    answer answers choices completion completions documents error generations hits matches output output_messages
    outputs reply response responses result results
    """
)
_LEFT_OUT = _keys(
    """
    additional_kwargs embedding embeddings encoding encrypted_content finish_reason format functions generation_info
    invocation_parameters json_schema kind lc llm_output logprobs metadata mime_type model model_name response_metadata
    role schema_url score scores status system system_instructions system_prompt tool_choice tool_definitions tools type
    usage usage_metadata vector version
    """
)
_IDENTIFIER = re.compile(
    r"(?:^|[_.-])(?:u?uid|id|guid|hash|sha\d*|md5|digest|checksum|etag|signature|fingerprint|token|secret|password"
    r"|api_?key|nonce|timestamp|mime_?type)s?$|[a-z](?:Ids?|ID|Hash|Token)$"
)
"""Keys whose values name something to a program, or must not be shown."""


class _Reader:
    """Finds statements in JSON of any shape, within a number of values."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def values(self, value: Json, role: Role | None, speaker: str = "", depth: int = 0) -> Iterator[_Said]:
        """The statements in a value, in the order of the document. Without a role, keys and speakers decide."""
        self._left -= 1
        if self._left < 0 or depth > MAX_TEXT_DEPTH:
            return
        if isinstance(value, str):
            yield from self._text(value, role, speaker, depth)
        elif isinstance(value, dict):
            yield from self._fields(value, role, speaker, depth)
        elif isinstance(value, list):
            if (message := _as_pair(value)) is not None:
                yield from self._message(message, role, depth)
                return
            for item in value:
                yield from self.values(item, role, speaker, depth + 1)

    def call(self, name: str, arguments: Json, role: Role, depth: int = 0) -> _Said:
        arguments = _parsed(arguments)
        # Whoever calls a tool with an address means what is there; elsewhere an address by itself is no text.
        texts = [text for said in self.values(arguments, role, "call", depth + 1) for text in said.texts]
        return _Said("call", role, texts, _Call(name, arguments))

    def _text(self, text: str, role: Role | None, speaker: str, depth: int) -> Iterator[_Said]:
        content = _parsed(text)
        if not isinstance(content, str):
            yield from self.values(content, role, speaker, depth + 1)
        elif _is_text(text, addresses=speaker == "call"):
            yield _said(speaker, role, [text])

    def _fields(self, fields: JsonObject, role: Role | None, speaker: str, depth: int) -> Iterator[_Said]:
        kind = fields.get("type")
        if (message := _as_message(fields)) is not None:
            yield from self._message(message, role, depth)
        elif isinstance(kind, str) and kind in _PARTS:
            yield from self._part(fields, kind, role, speaker, depth)
        else:
            for key, value in fields.items():
                if key not in _LEFT_OUT and not _IDENTIFIER.search(key):
                    side = role or ("result" if key in _RESULTS else None)
                    yield from self.values(value, side, speaker, depth + 1)

    def _message(self, message: "_Message", role: Role | None, depth: int) -> Iterator[_Said]:
        """The statements of one message: its texts as one, then its calls. A user's words are never a result."""
        speaker, fields = message
        if speaker == "system":
            return
        side: Role = "object" if speaker == "user" else role or ("result" if speaker in _ANSWERING else "object")
        content = fields.get("parts", fields.get("content"))
        said = list(self._content(content, side, speaker, depth))
        texts = [text for one in said if one.speaker == speaker for text in one.texts]
        if texts:
            yield _Said(speaker, side, texts)
        yield from (one for one in said if one.speaker != speaker)
        calls = fields.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                yield self._called(call, side, depth)

    def _content(self, content: Json, role: Role, speaker: str, depth: int) -> Iterator[_Said]:
        """The parts of a message. Its texts are what somebody said, whatever they look like."""
        for part in content if isinstance(content, list) else [content]:
            self._left -= 1
            if self._left < 0:
                return
            if isinstance(part, str):
                yield from [_said(speaker, role, [part])] if part.strip() else ()
            elif isinstance(part, dict):
                kind = part.get("type")
                yield from self._part(part, kind if isinstance(kind, str) else "text", role, speaker, depth + 1)

    def _part(self, part: JsonObject, kind: str, role: Role | None, speaker: str, depth: int) -> Iterator[_Said]:
        side = role or "object"
        if kind in _CALLS:
            yield self._called(part, side, depth)
        elif kind in _REPLIES:
            reply = next((part[key] for key in ("response", "content", "output", "result") if key in part), None)
            yield from self.values(reply, side, "tool", depth + 1)
        elif kind in _TEXTS or kind in _THOUGHTS:
            texts = (part.get(key) for key in ("content", "text", "thinking"))
            text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
            if text is not None:
                yield _said("reasoning" if kind in _THOUGHTS else speaker, side, [text])
        elif kind not in _MEDIA:
            rest: JsonObject = {key: value for key, value in part.items() if key != "type"}
            yield from self.values(rest, side, speaker, depth + 1)

    def _called(self, call: JsonObject, role: Role, depth: int) -> _Said:
        function = call.get("function")
        fields = function if isinstance(function, dict) else call
        name = fields.get("name")
        arguments = next((fields[key] for key in ("arguments", "args", "input") if key in fields), None)
        return self.call(name if isinstance(name, str) else "tool", arguments, role, depth)


_PARTS = _CALLS | _REPLIES | _TEXTS | _THOUGHTS | _MEDIA
_ANSWERING = ("assistant", "tool")


class _Message(NamedTuple):
    speaker: str
    fields: JsonObject


def _as_message(fields: JsonObject) -> _Message | None:
    """A message in the shape of the conventions, of a chat API, or of LangChain as dictionary or constructor."""
    inner = fields.get("kwargs" if "lc" in fields else "data")
    body = inner if isinstance(inner, dict) else fields
    speaker = fields.get("role") or body.get("type")
    if not isinstance(speaker, str) or not ("content" in body or "parts" in body or "tool_calls" in body):
        return None
    known = _SPEAKERS.get(speaker.lower())
    if known is None and "role" not in fields:
        return None
    return _Message(known or speaker[:32], body)


def _as_pair(items: list[Json]) -> _Message | None:
    """A message as LangGraph lets people write it: ["user", "…"]."""
    if len(items) != 2 or not isinstance(items[0], str) or not isinstance(items[1], str):
        return None
    speaker = _SPEAKERS.get(items[0])
    return _Message(speaker, {"content": items[1]}) if speaker else None


def _said(speaker: str, role: Role | None, texts: list[str]) -> _Said:
    # Postgres stores no NUL character in a text.
    return _Said(speaker, role or "object", [text.replace("\0", " ") for text in texts])


def _parsed(value: Json) -> Json:
    """The object or list that a JSON string holds, or the value itself."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return value


_LETTER = re.compile(r"[^\W\d_]")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:(?://|[^\s]{64})", re.IGNORECASE)
_OPAQUE = re.compile(
    r"""(?:[{(]?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[)}]?      # UUID
    |(?:0x|sha\d+[:-])?(?=[a-f]*\d)[0-9a-f]{12,}                      # hash
    |[a-z]+[-_](?=[a-f]*\d)[0-9a-f]{6,}                               # call_a384ccd0
    |\d{4}-\d\d-\d\d[t ][\d:.,]+(?:z|[+-]\d\d:?\d\d)?                 # time
    )\Z""",
    re.IGNORECASE | re.VERBOSE,
)
_BASE64 = re.compile(r"(?=[^\d=]*[\d=])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/_-]{40,}={0,2}\Z")


def _is_text(value: str, addresses: bool) -> bool:
    """Whether a value is for people: it has letters, and is no id, hash, time, bare address or encoded bytes."""
    word = value.strip()
    if not _LETTER.search(word):
        return False
    if _ADDRESS.match(word) and not any(letter.isspace() for letter in word):
        return addresses and "://" in word
    return not (_OPAQUE.match(word) or _BASE64.match(word))
