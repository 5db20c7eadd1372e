"""What attribute names mean: the tables of the GenAI conventions, OpenInference and their forerunners.

`SOURCES` says for every fact which attributes may state it. Where several do, the first in the row counts and the
others stay attributes of the payload; so do values of a type or length that the place cannot hold.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from whence.gateway.otlp.forms import Json, JsonObject
from whence.gateway.otlp.messages import as_instructions, as_messages, as_tools, parsed
from whence.ledger.events import MAX_COUNT, MAX_FINISH_REASONS, MAX_IDENTIFIER_CHARACTERS

OPERATION = "gen_ai.operation.name"
SPAN_KIND = "openinference.span.kind"

OPERATIONS = {
    "chat": "llm.generate",
    "text_completion": "llm.generate",
    "generate_content": "llm.generate",
    "embeddings": "llm.embed",
    "execute_tool": "tool.execute",
    "invoke_agent": "agent.invoke",
    "create_agent": "agent.create",
    "plan": "agent.plan",
    "invoke_workflow": "chain.run",
    "retrieval": "retriever.query",
    "search_memory": "memory.search",
    "create_memory": "memory.create",
    "add_memory": "memory.create",
    "update_memory": "memory.update",
    "upsert_memory": "memory.upsert",
    "delete_memory": "memory.delete",
    "create_memory_store": "memory.create_store",
    "delete_memory_store": "memory.delete_store",
}
"""`gen_ai.operation.name` to event type."""

SPAN_KINDS = {
    "LLM": "llm.generate",
    "TOOL": "tool.execute",
    "AGENT": "agent.invoke",
    "RETRIEVER": "retriever.query",
    "CHAIN": "chain.run",
    "EMBEDDING": "llm.embed",
    "RERANKER": "retriever.rerank",
    "GUARDRAIL": "guardrail.check",
    "EVALUATOR": "evaluator.run",
    "PROMPT": "prompt.render",
}
"""`openinference.span.kind` to event type."""

REQUEST_TYPES = {
    "chat": "llm.generate",
    "completion": "llm.generate",
    "embedding": "llm.embed",
    "rerank": "retriever.rerank",
}
"""OpenLLMetry's `llm.request.type` to event type, on spans that have no operation name."""

ENTITY_KINDS = {
    "workflow": "chain.run",
    "task": "chain.run",
    "agent": "agent.invoke",
    "tool": "tool.execute",
}
"""OpenLLMetry's `traceloop.span.kind` to event type, on spans that have no operation name."""

_MODEL_CALL = ("gen_ai.request.model", "gen_ai.response.model", "gen_ai.provider.name", "gen_ai.system")

MESSAGE_EVENTS = {
    "gen_ai.system.message": ("input_messages", "system"),
    "gen_ai.user.message": ("input_messages", "user"),
    "gen_ai.assistant.message": ("input_messages", "assistant"),
    "gen_ai.tool.message": ("input_messages", "tool"),
    "gen_ai.choice": ("output_messages", "assistant"),
    "gen_ai.content.prompt": ("input_messages", "user"),
    "gen_ai.content.completion": ("output_messages", "assistant"),
}
"""Events of the older GenAI conventions, each with one message: where it goes, and the role it has unless it says."""

DETAILS_EVENT = "gen_ai.client.inference.operation.details"
"""The event of the newer GenAI conventions that holds the whole content of a call."""


def event_type(attributes: JsonObject, kind: str | int) -> str:
    """The event type of a span.

    Where a span speaks both dialects the GenAI operation counts: it is the standard, and says more than a kind. A kind
    that is known goes before an operation that is not.
    """
    operation, span_kind = _text(attributes, OPERATION), _text(attributes, SPAN_KIND)
    known = OPERATIONS.get(operation.lower()) or SPAN_KINDS.get(span_kind.upper())
    if known:
        return known
    if operation:
        return f"gen_ai.{_segment(operation)}"
    if span_kind:
        return f"openinference.{_segment(span_kind)}"
    return _older_event_type(attributes) or f"span.{kind if kind in _PLAIN_KINDS else 'internal'}"


_PLAIN_KINDS = ("internal", "server", "client", "producer", "consumer")


def _older_event_type(attributes: JsonObject) -> str | None:
    """The event type of a span that names a model or a tool, but no operation."""
    known = REQUEST_TYPES.get(_text(attributes, "llm.request.type")) or ENTITY_KINDS.get(
        _text(attributes, "traceloop.span.kind")
    )
    if known:
        return known
    if "gen_ai.tool.name" in attributes:
        return "tool.execute"
    return "llm.generate" if any(key in attributes for key in _MODEL_CALL) else None


def _text(attributes: JsonObject, key: str) -> str:
    value = attributes.get(key)
    return value if isinstance(value, str) else ""


_NOT_IN_SEGMENT = re.compile(r"[^a-z0-9_]+")
_MAX_SEGMENT = 64


def _segment(name: str) -> str:
    """A name as a part of an event type. The name itself stays in the measures or the attributes."""
    return _NOT_IN_SEGMENT.sub("_", name.lower()).strip("_")[:_MAX_SEGMENT] or "unknown"


# --- what a place accepts: the value as that place holds it, or None ------------------------------------------------

Accept: TypeAlias = Callable[[Json], Json]


def label(value: Json) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARACTERS or "\0" in value:
        return None
    return value


def _labels(value: Json) -> list[Json] | None:
    given = parsed(value)
    labels: Json = [given] if isinstance(given, str) else given
    if not isinstance(labels, list) or not 0 < len(labels) <= MAX_FINISH_REASONS:
        return None
    return labels if all(label(item) for item in labels) else None


def _count(value: Json) -> int | None:
    """A number of tokens. Some exporters write integers as text or as doubles."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_COUNT:
        return None
    return int(value) if value == int(value) else None


def _identifier(value: Json) -> str | None:
    """An identifier. It is checked when it is used: one that does not fit refuses the span, and does not give way."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value else None


def _any(value: Json) -> Json:
    return value


def _query(value: Json) -> str | None:
    return value if isinstance(value, str) else None


_USER_MESSAGES = partial(as_messages, role="user")
_MODEL_MESSAGES = partial(as_messages, role="assistant")

SOURCES: dict[tuple[str, str], tuple[Accept, tuple[str, ...]]] = {
    ("envelope", "session_id"): (
        _identifier,
        (
            "gen_ai.conversation.id",
            "session.id",
            "langfuse.session.id",
            "traceloop.association.properties.session_id",
        ),
    ),
    ("envelope", "user_id"): (
        _identifier,
        ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id"),
    ),
    ("envelope", "agent_id"): (_identifier, ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name")),
    ("envelope", "tool_name"): (_identifier, ("gen_ai.tool.name", "tool.name")),
    ("measures", "operation"): (label, (OPERATION, SPAN_KIND)),
    ("measures", "provider"): (
        label,
        ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"),
    ),
    ("measures", "model"): (
        label,
        (
            "gen_ai.request.model",
            "llm.request.model_name",
            "llm.model_name",
            "embedding.model_name",
            "reranker.model_name",
        ),
    ),
    ("measures", "response_model"): (label, ("gen_ai.response.model", "llm.response.model_name")),
    ("measures", "input_tokens"): (
        _count,
        ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ),
    ("measures", "output_tokens"): (
        _count,
        ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    ),
    ("measures", "total_tokens"): (
        _count,
        ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total"),
    ),
    ("measures", "cached_input_tokens"): (
        _count,
        (
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "llm.token_count.prompt_details.cache_read",
        ),
    ),
    ("measures", "reasoning_tokens"): (
        _count,
        (
            "gen_ai.usage.reasoning.output_tokens",
            "gen_ai.usage.reasoning_tokens",
            "llm.token_count.completion_details.reasoning",
        ),
    ),
    ("measures", "finish_reasons"): (_labels, ("gen_ai.response.finish_reasons", "llm.finish_reason")),
    ("measures", "error_type"): (label, ("error.type",)),
    ("payload", "input_messages"): (_USER_MESSAGES, ("gen_ai.input.messages", "gen_ai.prompt")),
    ("payload", "output_messages"): (_MODEL_MESSAGES, ("gen_ai.output.messages", "gen_ai.completion")),
    ("payload", "system_instructions"): (as_instructions, ("gen_ai.system_instructions",)),
    ("payload", "tool_definitions"): (as_tools, ("gen_ai.tool.definitions",)),
    ("payload", "input"): (_any, ("input.value", "traceloop.entity.input")),
    ("payload", "output"): (_any, ("output.value", "traceloop.entity.output")),
    ("payload", "metadata"): (parsed, ("metadata",)),
    ("tool", "arguments"): (parsed, ("gen_ai.tool.call.arguments",)),
    ("tool", "result"): (parsed, ("gen_ai.tool.call.result",)),
    ("tool", "call_id"): (_any, ("gen_ai.tool.call.id", "tool.id")),
    ("tool", "description"): (_any, ("gen_ai.tool.description", "tool.description")),
    ("tool", "type"): (_any, ("gen_ai.tool.type",)),
    ("tool", "parameters"): (parsed, ("tool.parameters",)),
    ("tool", "json_schema"): (parsed, ("tool.json_schema",)),
    ("retrieval", "query"): (_query, ("gen_ai.retrieval.query.text", "reranker.query")),
    ("retrieval", "documents"): (parsed, ("gen_ai.retrieval.documents",)),
    ("memory", "query"): (_any, ("gen_ai.memory.query.text", "gen_ai.memory.query")),
    ("memory", "records"): (parsed, ("gen_ai.memory.records",)),
    ("memory", "record_id"): (_any, ("gen_ai.memory.record.id",)),
    ("memory", "record_count"): (_any, ("gen_ai.memory.record.count",)),
    ("memory", "store_id"): (_any, ("gen_ai.memory.store.id",)),
    ("memory", "store_name"): (_any, ("gen_ai.memory.store.name",)),
}

Known: TypeAlias = tuple[tuple[str, str], int, Accept]
"""The place of an attribute as (section, name), its rank among the sources of that place, what the place accepts."""

KNOWN: dict[str, Known] = {
    key: (place, rank, accept) for place, (accept, keys) in SOURCES.items() for rank, key in enumerate(keys)
}
"""The same table by attribute."""
