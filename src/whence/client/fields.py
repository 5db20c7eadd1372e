"""The keyword arguments of verbs that take many, by the names of the HTTP interface. A test compares them with it.

An id may be a UUID or its text. A time must have a time zone. None is the same as leaving it out.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Required, TypedDict

from whence.client.calls import Id
from whence.wire import (
    Channel,
    ConversationState,
    EventStatus,
    Fact,
    Intent,
    Kind,
    Measures,
    MessageRole,
    RecallFilters,
    Role,
    Tier,
)


class EventFields(TypedDict, total=False):
    event_type: Required[str]
    session_id: Required[str]
    trace_id: Required[str]
    event_id: Id | None
    """Made here where it is left out, so that a repeat is known for one."""
    occurred_at: datetime | str | None
    """Now, by this machine's clock, where it is left out."""
    agent_id: str | None
    user_id: str | None
    parent_event_id: Id | None
    tool_name: str | None
    payload_ref: str | None
    payload: Any
    ended_at: datetime | str | None
    status: EventStatus | None
    schema_version: int | None
    importance_hint: int | None
    data_classification: str | None
    subject_id: str | None
    measures: Measures | Mapping[str, Any] | None


class StreamAsked(TypedDict, total=False):
    after: int | None
    session_id: str | None
    trace_id: str | None
    event_type: str | None


class EventsAsked(StreamAsked, total=False):
    limit: int | None


class Bounds(TypedDict, total=False):
    max_depth: int | None
    max_nodes: int | None
    timeout_ms: int | None
    cursor: str | None
    wait_for: int | None


class LineageAsked(Bounds, total=False):
    direction: Literal["up", "down"] | None
    text: bool | None


class ProvAsked(Bounds, total=False):
    event_id: Id | None
    session_id: str | None
    trace_id: str | None


class SubgraphAsked(ProvAsked, total=False):
    text: bool | None


class ContextAsked(Bounds, total=False):
    session_id: str | None
    intent: Intent | None
    max_tokens: int | None


class RememberFields(TypedDict, total=False):
    agent: Required[str]
    tier: Required[Tier]
    kind: Required[Kind]
    user_id: str | None
    subject_id: str | None
    speaker: str | None
    role: Role | None
    session_id: str | None
    interaction_id: str | None
    run_id: Id | None
    world_id_context: str | None
    fact: Fact | Mapping[str, Any] | None
    key: str | None
    valid_at: datetime | str | None
    derived_from: Sequence[Id] | None
    byte_range: tuple[int, int] | None
    importance: float | None
    memory_id: Id | None
    """Made here where it is left out, so that a repeat is known for one."""
    embedding: Sequence[float] | None


class MemoryFields(RememberFields):
    """One of many: its text too has a name."""

    text: str


class MemoriesAsked(TypedDict, total=False):
    agent: str | None
    tier: Tier | None
    kind: Kind | None
    session_id: str | None
    run_id: Id | None
    subject: str | None
    predicate: str | None
    as_of: datetime | str | None
    known_at: datetime | str | None
    before: int | None
    limit: int | None


class RecallAsked(TypedDict, total=False):
    agent: str | None
    tiers: Sequence[Tier] | None
    kinds: Sequence[Kind] | None
    session_id: str | None
    sessions: Sequence[str] | None
    session_prefixes: Sequence[str] | None
    subject: str | None
    predicate: str | None
    as_of: datetime | str | None
    known_at: datetime | str | None
    top_k: int | None
    max_tokens: int | None
    intent: Intent | None
    filters: RecallFilters | Mapping[str, Any] | None
    channels: Sequence[Channel] | None
    neighbours: int | None
    embedding: Sequence[float] | None
    rerank: bool | None


class MessageFields(TypedDict):
    sender_id: str
    role: Literal["user", "assistant", "tool"]
    timestamp: int
    """In milliseconds since 1970."""
    content: str | Sequence[Mapping[str, Any]]


class NewMessageFields(TypedDict, total=False):
    content: Required[str]
    role: MessageRole
    """`user` where it is left out."""


class ConversationsAsked(TypedDict, total=False):
    state: ConversationState | None
    before: int | None
    limit: int | None


class Partition(TypedDict, total=False):
    app_id: str | None
    project_id: str | None
    user_id: str | None
    """For whom an administrator acts."""


class SearchAsked(Partition, total=False):
    conversation_id: str | None
    top_k: int | None
    as_of: datetime | str | None


class AssembleAsked(TypedDict, total=False):
    query: str | None
    session_id: str | None
    task_type: str | None
    max_tokens: int | None
    rerank: bool | None


class ResourceFields(TypedDict, total=False):
    user_id: str | None
    app_id: str | None
    project_id: str | None


class ResourcesAsked(TypedDict, total=False):
    app_id: str | None
    project_id: str | None
    before: int | None
    limit: int | None


class RunFields(TypedDict, total=False):
    task_type: str | None
    session_id: str | None
    user_id: str | None
    input: Any


class EpisodeFields(TypedDict, total=False):
    derived_from: Sequence[Id] | None
    importance: float | None
    valid_at: datetime | str | None
    memory_id: Id | None


class WorkflowsAsked(TypedDict, total=False):
    agent: str | None
    task_type: str | None
    before: int | None
    limit: int | None


class ActionsAsked(TypedDict, total=False):
    kind: str | None
    cites: Id | None
    before: int | None
    limit: int | None
