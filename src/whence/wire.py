"""What travels: the types of requests and answers, shared by the server and its clients.

Longer than other files, because it has no code to speak of: whoever asks what a field is called looks in one place.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from whence.errors import FieldError

AwareTime = Annotated[datetime, Meta(tz=True)]
CONTENT_KEYS = frozenset(
    {
        "input_messages",
        "output_messages",
        "system_instructions",
        "tool_definitions",
        "tool",
        "retrieval",
        "memory",
        "input",
        "output",
        "metadata",
    }
)
"""The keys of a payload that hold content: those that an `llm.content` event adds to its span's payload."""

SPAN_NAMESPACE = UUID("9cb32658-ee33-4f36-8f21-f575f722b842")
"""The ids of events of spans are version 5 UUIDs in this namespace of "<trace id>:<span id>", both in lower-case
hexadecimal digits, so that anybody can work out the id of a span's event."""

EventStatus = Literal["pending", "running", "completed", "failed", "timeout"]


class Measures(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Facts about the operation itself that hold no content: what ran, and what it cost."""

    operation: str | None = None
    provider: str | None = None
    model: str | None = None
    response_model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reasons: tuple[str, ...] | None = None
    error_type: str | None = None


class Event(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """An event as a producer sends it."""

    event_id: UUID
    event_type: str
    occurred_at: AwareTime
    session_id: str
    trace_id: str
    agent_id: str | None = None
    user_id: str | None = None
    parent_event_id: UUID | None = None
    tool_name: str | None = None
    payload_ref: str | None = None
    payload: msgspec.Raw | UnsetType = UNSET
    ended_at: AwareTime | None = None
    status: EventStatus | None = None
    schema_version: int = 1
    importance_hint: int | None = None
    data_classification: str | None = None
    subject_id: str | None = None
    measures: Measures | None = None


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event's envelope as the ledger gives it back. The order of the fields is that of the ledger's queries."""

    event_id: UUID
    global_position: int
    event_type: str
    occurred_at: datetime
    recorded_at: datetime
    session_id: str
    trace_id: str
    agent_id: str | None
    user_id: str | None
    parent_event_id: UUID | None
    tool_name: str | None
    payload_ref: str | None
    ended_at: datetime | None
    status: EventStatus | None
    schema_version: int
    importance_hint: int | None
    data_classification: str | None
    subject_id: str | None
    measures: Measures | None
    has_payload: bool


class EventPage(msgspec.Struct, frozen=True):
    events: list[StoredEvent]
    next: int | None
    """Pass as `after` to go on; null when nothing more is stored now."""


class ItemResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one item of an append, in input order."""

    event_id: str | None
    global_position: int | None
    status: Literal["accepted", "duplicate", "conflict", "rejected"]
    errors: tuple[FieldError, ...] = ()


class AppendAnswer(msgspec.Struct, frozen=True):
    accepted: int
    rejected: int
    duplicates: int
    results: list[ItemResult]


class Provenance(msgspec.Struct, frozen=True, gc=False):
    """Where something came from."""

    event_id: UUID
    global_position: int
    occurred_at: datetime
    session_id: str
    trace_id: str
    agent_id: str | None


NodeType = Literal["event", "summary", "entity", "agent", "memory", "session"]
EdgeType = Literal["FOLLOWS", "CAUSED_BY", "SIMILAR_TO", "REFERENCES", "SUMMARIZES", "DERIVED_FROM", "SAME_AS"]
Intent = Literal["why", "when", "what", "related", "who_is", "how_does", "personalize", "general"]
"""What a question can be after."""


class AtlasNode(msgspec.Struct, frozen=True, gc=False):
    node_id: str
    node_type: NodeType
    attributes: dict[str, str | None]
    provenance: Provenance
    """Of an event, the event itself; of anything else, the first event that told of it."""
    scores: dict[str, float]
    reason: str


class AtlasEdge(msgspec.Struct, frozen=True, gc=False):
    source: str
    target: str
    edge_type: EdgeType
    properties: dict[str, str | int | float]


class Pagination(msgspec.Struct, frozen=True):
    cursor: str | None
    has_more: bool


class AtlasMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    query_ms: float
    truncated: bool
    """Whether a bound cut something off: the depth, the number of nodes or the time."""
    max_depth: int
    max_nodes: int
    timeout_ms: int
    timed_out: bool = False
    position: int
    """The graph holds everything up to this position of the ledger."""
    intents: dict[str, float] | None = None
    """The intents that were followed, with the confidence in each."""
    inferred_by: str | None = None
    """How the intent was found: the caller named it, or which words gave it away."""
    channels: dict[str, int] | None = None
    """Where the answer started from, with the number of nodes that each channel gave."""


class Atlas(msgspec.Struct, frozen=True):
    """A part of the graph: nodes with their provenance and the reason why each is here, and the edges between them."""

    nodes: dict[str, AtlasNode]
    edges: list[AtlasEdge]
    pagination: Pagination
    meta: AtlasMeta


class Seal(msgspec.Struct, frozen=True):
    """The root of the tree over the positions 1 to `size`. Hashes are in hexadecimal."""

    size: int
    root: str
    sealed_at: datetime


class SealPage(msgspec.Struct, frozen=True):
    seals: list[Seal]
    next: int | None
    """Pass as `after` to go on; null when there is no more now."""


class InclusionProof(msgspec.Struct, frozen=True):
    """That an event is in the ledger, and where: `leaf` is number `index`, from 0, of the `size` under `root`."""

    event_id: UUID
    global_position: int
    leaf: str
    index: int
    size: int
    root: str
    path: list[str]


class ConsistencyProof(msgspec.Struct, frozen=True):
    """That a seal covers all that an earlier one did, unchanged, and only adds to it."""

    old_size: int = msgspec.field(name="from")
    new_size: int = msgspec.field(name="to")
    old_root: str = msgspec.field(name="from_root")
    new_root: str = msgspec.field(name="to_root")
    path: list[str]


class WorkingStored(msgspec.Struct, frozen=True):
    """What became of a value that was put into working memory."""

    key: str
    expires_at: datetime
    bytes: int
    """What the key and the value count for."""
    bytes_left: int
    """What the instance has room for after this."""


class WorkingEntry(msgspec.Struct, frozen=True):
    key: str
    value: msgspec.Raw
    """JSON, as it was put."""
    expires_at: datetime

    def decoded(self) -> Any:
        return msgspec.json.decode(self.value)


class WorkingKey(msgspec.Struct, frozen=True):
    """A key without its value. The order of the fields is that of the query."""

    key: str
    bytes: int
    updated_at: datetime
    expires_at: datetime


class WorkingKeys(msgspec.Struct, frozen=True):
    keys: list[WorkingKey]
    bytes: int
    bytes_left: int


Namespace = tuple[str, ...]
"""Labels, from the outermost to the innermost."""


class _ItemOp(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, tag_field="op"
):
    """One of the things that can be done with items; `op` says which."""


class GetItem(_ItemOp, frozen=True, tag="get"):
    namespace: Namespace
    key: str
    refresh: bool = True
    """Whether an item with a `ttl_s` lives as long again."""


class PutItem(_ItemOp, frozen=True, tag="put"):
    namespace: Namespace
    key: str
    value: msgspec.Raw
    """A JSON object."""
    text: str = ""
    """What a question can find it by; nothing where it is not to be found so."""
    ttl_s: float | None = None
    """Seconds until it expires; it never does where this is left out."""
    subject_id: str | None = None
    """Whom it is about, if not the user: the person by whose erasure it goes."""
    memory_id: UUID | None = None
    """Chosen by the sender, to be able to send again; else it is made here."""


class DeleteItem(_ItemOp, frozen=True, tag="delete"):
    namespace: Namespace
    key: str


class SearchItems(_ItemOp, frozen=True, tag="search"):
    namespace: Namespace = ()
    """What the namespaces of items begin with."""
    query: str = ""
    """Without one, the newest come first."""
    filter: dict[str, Any] = {}
    limit: int = 10
    offset: int = 0
    refresh: bool = True


class NamespaceMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: Literal["prefix", "suffix"]
    path: Namespace
    """`*` is any one label."""


class ListNamespaces(_ItemOp, frozen=True, tag="list"):
    conditions: tuple[NamespaceMatch, ...] = ()
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


ItemOp = GetItem | PutItem | DeleteItem | SearchItems | ListNamespaces


class Within(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Amid which work something is done: what its events are told to belong to."""

    session_id: str | None = None
    trace_id: str | None = None
    parent_event_id: UUID | None = None


class ItemsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What is read is read before anything is written, and what is written is written together or not at all."""

    ops: tuple[ItemOp, ...]
    agent: str = "store"
    user_id: str | None = None
    """Whose items they are, where an administrator asks; a user's own otherwise."""
    within: Within | None = None


class StoredItem(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The order of the fields is that of the queries."""

    memory_id: UUID
    """The memory that the last put made."""
    position: int
    namespace: Namespace
    key: str
    value: msgspec.Raw
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    score: float | None = None
    """How well it answers the query."""

    def decoded(self) -> Any:
        return msgspec.json.decode(self.value)


class ItemOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one of the things that were to be done."""

    item: StoredItem | None = None
    items: list[StoredItem] = []
    namespaces: list[Namespace] = []
    memory_id: UUID | None = None
    """Of what was put, or deleted; a put of the same key later in the same request takes its place."""
    position: int | None = None
    sanitised: dict[str, int] | None = None


class ItemsAnswer(msgspec.Struct, frozen=True):
    results: list[ItemOutcome]
    """In the order of what was asked."""


class Workflow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A variant of how an agent does a kind of task, and what is known of it. The order is that of the query."""

    workflow_id: UUID
    position: int
    agent: str
    task_type: str
    name: str
    user_id: str | None
    """Whose it is; none where it is for everybody in the workspace."""
    added_by: str | None
    spec: msgspec.Raw
    """A JSON object, as it was sent but for what was taken out of its strings."""
    alpha: float
    beta: float
    mean: float
    """The expected score: alpha / (alpha + beta)."""
    selections: int
    outcomes: int
    created_at: datetime
    retired_at: datetime | None
    sanitised: dict[str, int] | None = None
    """What was taken out of `spec`, in the answer to who added it."""

    def decoded_spec(self) -> Any:
        return msgspec.json.decode(self.spec)


class WorkflowPage(msgspec.Struct, frozen=True):
    workflows: list[Workflow]
    next: int | None


class WorkflowSelection(msgspec.Struct, frozen=True):
    selection_id: UUID
    workflow: Workflow
    """As it was when it was drawn."""


class WorkflowOutcome(msgspec.Struct, frozen=True):
    selection_id: UUID
    workflow_id: UUID
    score: float
    scored_at: datetime
    event_id: UUID


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a call failed (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[FieldError, ...] = ()


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok", "degraded"]
    version: str
    failing: dict[str, str]
    """The parts that do not work, with the reason."""


Tier = Literal["interaction", "session", "persistent"]
Kind = Literal["episodic", "semantic", "procedural"]
Role = Literal["user", "assistant", "tool", "document"]


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Something that is so: one object for a subject and a predicate at a time."""

    subject: str
    predicate: str
    object: str
    confidence: float | None = None


class Remember(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, gc=False):
    """What is to be remembered."""

    agent: str
    tier: Tier
    kind: Kind
    text: str
    user_id: str | None = None
    """Whose memory it is, where an administrator writes; a user's own otherwise."""
    subject_id: str | None = None
    """Whom it is about, if not the user: the person by whose erasure it goes."""
    speaker: str | None = None
    """Whose words they are, as that person or thing is called."""
    role: Role | None = None
    """What the speaker is, which is how far the words are to be trusted."""
    session_id: str | None = None
    interaction_id: str | None = None
    run_id: UUID | None = None
    world_id_context: str | None = None
    fact: Fact | None = None
    key: str | None = None
    """What a procedure is for: a new one takes the place of an old one with the same key."""
    valid_at: AwareTime | None = None
    derived_from: tuple[UUID, ...] = ()
    byte_range: tuple[int, int] | None = None
    """Where in the first one of `derived_from` it is said, as UTF-8: the first byte, and the one past the last."""
    importance: float | None = None
    memory_id: UUID | None = None
    """Chosen by the sender, to be able to send again; else it is made here."""
    embedding: tuple[float, ...] | None = None
    """What the text is like, where the sender knows better than the server's embedder."""


class Remembered(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of it. `reinforced`: it was known already, and is told once more."""

    memory_id: UUID
    event_id: UUID
    position: int
    status: Literal["stored", "reinforced"]
    superseded: tuple[UUID, ...] = ()
    sanitised: dict[str, int] | None = None
    warnings: tuple[str, ...] = ()


class RememberedBatch(msgspec.Struct, frozen=True):
    stored: int
    rejected: int
    results: list["RememberedItem"]


class RememberedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item of a batch: what became of it, or what is wrong with it."""

    remembered: Remembered | None = None
    errors: tuple[FieldError, ...] = ()


class Location(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where in a document something stands: as its format counts, and in bytes of the text that was had from it."""

    start: int
    end: int
    page: int | None = None
    slide: int | None = None
    sheet: str | None = None
    row: int | None = None
    last_row: int | None = None
    heading: tuple[str, ...] = ()
    """From the outermost to the nearest."""


class StoredMemory(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A memory as it is kept. The order of the fields is that of the queries."""

    memory_id: UUID
    position: int
    agent: str
    profile: str
    tier: Tier
    kind: Kind
    text: str
    user_id: str | None
    session_id: str | None
    interaction_id: str | None
    run_id: UUID | None
    world_id_context: str | None
    fact: Fact | None
    key: str | None
    importance: float
    valid_at: datetime
    invalid_at: datetime | None
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    superseded_at: datetime | None
    superseded_by: UUID | None
    recorded_at: datetime
    deleted_at: datetime | None
    told_count: int
    access_count: int
    accessed_at: datetime | None
    said_by: str | None
    sanitised: dict[str, int] | None
    archived_at: datetime | None = None
    """When its session was closed: from then on it is evidence, and not recalled."""
    support: int | None = None
    """Of a routine: the number of sessions that it was seen in."""
    speaker: str | None = None
    role: Role | None = None
    location: Location | None = None
    """Of a part of a document: where in it this stands."""


class MemoryPage(msgspec.Struct, frozen=True):
    memories: list[StoredMemory]
    next: int | None
    """Where the next page begins: give it as `before`, of a history as `after`."""


class Episodes(msgspec.Struct, frozen=True):
    memories: list[StoredMemory]


ResourceStatus = Literal["processing", "ready", "failed", "deleted"]


class Resource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A document that a user has added. The order of the fields is that of the query."""

    resource_id: UUID
    session_id: str
    """What its parts have as their session: its URI."""
    uri: str
    status: ResourceStatus
    name: str
    user_id: str
    app_id: str
    project_id: str
    size: int
    """Of the file, in bytes."""
    sha256: str
    chunks: int
    """Parts of it that can be found; while it is processed, so far."""
    added_by: str
    added_at: datetime
    position: int
    content_type: str | None = None
    """What it is, by its bytes; known once it was read."""
    declared_type: str | None = None
    """What its sender said that it is."""
    processed_at: datetime | None = None
    reason: str | None = None
    """Why it failed."""
    refused: int = 0
    """Parts that were left out, because they hold what is kept out of memory."""


class ResourcePage(msgspec.Struct, frozen=True):
    resources: list[Resource]
    next: int | None
    """Where the next page begins: give it as `before`."""


class Session(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stretch of one user's work with one agent. The order of the fields is that of the query."""

    session_id: str
    agent: str
    user_id: str | None
    """Whose it is; none where it is the workspace's."""
    number: int
    """Which stretch: a session id can be used again after it was closed."""
    idle_days: int
    opened_at: datetime
    last_activity_at: datetime
    ended_at: datetime | None
    closed_at: datetime | None
    close_event_id: UUID | None
    first_position: int


class SessionPage(msgspec.Struct, frozen=True):
    sessions: list[Session]
    next: int | None
    """Where the next page begins: give it as `before`."""


Fate = Literal["archived", "promoted", "held", "removed"]


class SessionRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a memory when its session was closed."""

    memory_id: UUID
    tier: Tier
    kind: Kind
    fate: Fate
    became: UUID | None = None
    """Of what was promoted: the memory that outlives the session."""
    repeats: str | None = None
    """Of what would have been: the rule of its world that it repeats."""
    refused: str | None = None
    """The same: why its profile does not let it, mostly one that was changed since."""


class SessionRoutine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done in the same order in several sessions, and is procedural memory now."""

    memory_id: UUID | None
    """None where it is not."""
    support: int
    steps: list[str]
    events: list[list[UUID]]
    """The events of each session that it was seen in, the last session first."""
    refused: str | None = None
    """Why its profile does not let it be remembered."""


class SessionReport(msgspec.Struct, frozen=True):
    """What a close has done, row by row."""

    event_id: UUID
    session_id: str
    agent: str
    user_id: str | None
    number: int
    opened_at: datetime
    closed_at: datetime
    counts: dict[Fate, int]
    rows: list[SessionRow]
    routines: list[SessionRoutine]
    summary: str


class SessionClosed(msgspec.Struct, frozen=True):
    session_id: str
    reports: list[SessionReport]
    """One for each agent that the session was with."""


class MemorySource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who told it, or what it was derived from; with the event that said so."""

    source: str
    role: Literal["told", "event", "memory"]
    event_id: UUID
    position: int
    said_by: str | None
    confidence: float | None
    told_at: datetime
    event: StoredEvent | None = None
    """The envelope of an event that it was derived from, where the caller may see it."""
    told_by: str | None = None
    """Who told the memory that it was derived from, where the caller may see it; `said_by` derived this one from it."""
    byte_range: tuple[int, int] | None = None
    """Where in the source it is said, as UTF-8."""
    quote: str | None = None
    """What is said there, where the source is a memory that is still there."""
    is_own: bool = False
    """Whether it comes from this memory itself, and makes nobody surer."""
    origin: UUID | None = None
    """Of a recall or an event that told something: the memory that says the same which it found or told. Of a memory:
    the one from which alone it has what it says. Only where the caller may see it. Of several sources with one origin,
    one makes others surer."""


class MemoryRecall(msgspec.Struct, frozen=True):
    recall_id: UUID
    recalled_at: datetime
    user_id: str | None
    agent: str | None
    rank: int


class MemoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to a memory: it was told, told again, found helpful or not, forgotten, or ended by a timer or with
    its session or document."""

    event_id: UUID
    event_type: str
    position: int
    recorded_at: datetime
    user_id: str | None
    """Whose event it is: of one that told it the user whose memory it is, of others who did it. None stands for the
    workspace."""
    helpful: bool | None = None
    """What feedback on a recall said of it."""


class Explanation(msgspec.Struct, frozen=True):
    """Why it is believed, since when, and who says so."""

    memory: StoredMemory
    summary: str
    events: list[MemoryEvent]
    sources: list[MemorySource]
    superseded: list[UUID]
    recalls: list[MemoryRecall]


Channel = Literal["words", "near_words", "vectors", "speakers", "times", "neighbours", "worth"]
"""Ways in which a memory can answer a question."""


class RecallFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What else must be so of a hit."""

    speaker: str | None = None
    role: Role | None = None
    world_id_context: str | None = None
    since: AwareTime | None = None
    """What holds from then on or later."""
    until: AwareTime | None = None


class Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What is to be recalled: what held at `as_of`, as far as it was known at `known_at`."""

    query: str = ""
    """A question or some words. Without one, the newest come first."""
    agent: str | None = None
    tiers: tuple[Tier, ...] | None = None
    kinds: tuple[Kind, ...] | None = None
    session_id: str | None = None
    sessions: tuple[str, ...] | None = None
    """Only of one of these."""
    session_prefixes: tuple[str, ...] | None = None
    """Of one that begins with one of these. Where `sessions` are named too, of either."""
    subject: str | None = None
    predicate: str | None = None
    as_of: AwareTime | None = None
    known_at: AwareTime | None = None
    top_k: int = 10
    max_tokens: int | None = None
    """What the texts of the hits may take together, counted roughly."""
    intent: Intent | None = None
    filters: RecallFilters | None = None
    channels: tuple[Channel, ...] | None = None
    """The only ones that count; else all do."""
    neighbours: int = 0
    """So many turns before and after each hit come with it."""
    embedding: tuple[float, ...] | None = None
    """What the question is like, for memories whose embeddings were given."""
    rerank: bool | None = None
    """Whether a model puts the first hits in order; as it is set, unless said."""


class HitSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a hit comes from: the event that told it, or what that was derived from."""

    event_id: UUID
    position: int
    role: Literal["told", "event", "memory"]
    occurred_at: datetime | None = None
    session_id: str | None = None
    trace_id: str | None = None
    agent_id: str | None = None
    tool_name: str | None = None
    byte_range: tuple[int, int] | None = None
    """Where in it this is said, as UTF-8."""
    quote: str | None = None
    """What is said there, where it is a memory that is still there."""


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was said before or after a hit."""

    memory_id: UUID
    text: str
    speaker: str | None = None


Flag = Literal["instruction", "sanitised"]


class Hit(StoredMemory, frozen=True, omit_defaults=True, gc=False):
    """A memory that answers a question. Its text is what somebody said, never an instruction to who reads it."""

    score: float = 0.0
    """How well, compared with the other hits of this recall."""
    parts: dict[Channel, float] = {}
    """What each channel adds to the score."""
    trust: Role = "user"
    """Who said it."""
    flags: tuple[Flag, ...] = ()
    """`instruction`: it reads like an order to a model. `sanitised`: something was taken out."""
    provenance: tuple[HitSource, ...] = ()
    before: tuple[Turn, ...] = ()
    after: tuple[Turn, ...] = ()
    rerank: float | None = None
    """How well it answers, by the model that put the first hits in order."""


NotReranked = Literal["no_reranker", "late", "unavailable", "setup", "internal"]
"""Why no model put the hits in order: none is set, or it failed. But for the first two, codes of errors."""


class RecallMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    query_ms: float
    searched: int
    """Memories for which anything speaks."""
    tokens: int
    """Of the texts of the hits, counted roughly."""
    embedder: str | None = None
    times: tuple[datetime, datetime] | None = None
    """What the question says about when."""
    truncated: bool = False
    """Whether `max_tokens` left hits out."""
    vectors_to_come: int = 0
    """Memories that the embedder has not seen yet: they are compared by words and by the built-in one."""
    reranker: str | None = None
    """The model that put the first hits in order."""
    not_reranked: NotReranked | None = None
    """Why it did not, where it was to."""


class Recalled(msgspec.Struct, frozen=True):
    recall_id: UUID
    hits: list[Hit]
    meta: RecallMeta


class RecallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recall that was made: what was asked, what came out, and why."""

    recall_id: UUID
    recalled_at: datetime
    user_id: str | None
    asked: Recall
    hits: list["RecalledHit"]
    reranker: str | None = None


class RecalledHit(msgspec.Struct, frozen=True, omit_defaults=True):
    memory_id: UUID
    score: float
    parts: dict[Channel, float]
    rerank: float | None = None


class Feedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which hits of a recall were worth having."""

    helpful: tuple[UUID, ...] = ()
    unhelpful: tuple[UUID, ...] = ()


class FeedbackKept(msgspec.Struct, frozen=True):
    event_id: UUID
    changed: int


class Assemble(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An agent is about to take its turn."""

    agent: str
    instance: str
    query: str = ""
    session_id: str | None = None
    task_type: str | None = None
    max_tokens: int | None = None
    rerank: bool = False
    """Whether a model puts hits in order, which an agent would wait for."""


class AssembledMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    query_ms: float
    tokens: int
    """Of the text, counted roughly."""
    truncated: bool
    """Whether the budget left something out."""
    recall_id: UUID | None
    reranker: str | None = None
    not_reranked: NotReranked | None = None


class Assembled(msgspec.Struct, frozen=True):
    """What it needs: each part by itself, and all of it as a text for a prompt."""

    working: list[WorkingEntry]
    workflow: WorkflowSelection | None
    hits: list[Hit]
    episodes: list[StoredMemory]
    text: str
    meta: AssembledMeta


SearchScope = Literal["current_chat", "resources", "all_user_memory"]
MessageStatus = Literal["stored", "repeated", "echo", "no_text"]


class UserMade(msgspec.Struct, frozen=True):
    """A user, with the key where the user is new: it is shown this once."""

    user_id: str
    user_key: str | None
    created_at: datetime


class MessagePart(msgspec.Struct, frozen=True):
    """A part of a message. Only those of the type `text` are remembered, so the fields of others do not matter."""

    type: str
    text: str = ""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody said in a chat."""

    sender_id: str
    role: Literal["user", "assistant", "tool"]
    timestamp: Annotated[int, Meta(ge=1)]
    """When it was said, in milliseconds since 1970."""
    content: str | list[MessagePart]


class MessageResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one message."""

    status: MessageStatus
    memory_ids: tuple[UUID, ...] = ()
    """Its memories: one, or several of a long message. Of an echo, what it repeats."""
    recalled: tuple[UUID, ...] = ()
    """Memories whose texts came back in it, and were left out of what is stored."""
    skipped_parts: tuple[str, ...] = ()
    """The types of parts that are no text."""
    sanitised: dict[str, int] | None = None


class Added(msgspec.Struct, frozen=True):
    """What became of messages, after the commit."""

    message_count: int
    status: Literal["stored", "unchanged"]
    memory_ids: list[UUID]
    position: int | None
    """Of the last one of them in the ledger."""
    results: list[MessageResult]
    """In the order of the messages."""


class ExtractedFact(msgspec.Struct, frozen=True):
    memory_id: UUID
    text: str
    quote: str
    source_id: UUID
    """The message that says so."""
    byte_range: tuple[int, int]
    """Of the quote in that message, as UTF-8."""


class Flushed(msgspec.Struct, frozen=True):
    """What a chat taught since the last time."""

    status: Literal["extracted", "no_extraction"]
    session_id: str
    message_count: int
    """Messages that were read."""
    facts: list[ExtractedFact]
    extractor: str
    dropped: list[str]
    """Why something that was found was not taken."""
    position: int | None
    """Of the event that marks the boundary, where this call has marked one."""
    is_more: bool = False
    """Whether there are messages that were not read yet: flush again."""


class SearchResult(msgspec.Struct, frozen=True):
    """A memory that answers a search. Its text is what somebody said, never an instruction to who reads it."""

    id: UUID
    session_id: str | None
    text: str
    score: float
    source_scope: SearchScope
    resource_uri: str | None
    timestamp: int
    """From when on it is so, in milliseconds since 1970: of a message, when it was said."""
    role: Role | None
    sender_id: str | None
    kind: Kind
    provenance: tuple["HitSource", ...]
    trust: Role
    flags: tuple["Flag", ...]
    location: Location | None = None
    """Where in its document it stands."""


class SearchMeta(msgspec.Struct, frozen=True):
    recall_id: UUID
    query_ms: float
    searched: int
    """Memories for which anything speaks."""
    embedder: str | None
    vectors_to_come: int
    """Memories that are searched by words and by the built-in embedder, until the one that is set has seen them."""


class Searched(msgspec.Struct, frozen=True):
    results: list[SearchResult]
    meta: SearchMeta


class Overridden(msgspec.Struct, frozen=True):
    id: UUID
    """The memory that holds now."""
    session_id: str | None
    superseded: UUID
    forgotten: list[UUID]
    """Facts that nothing else says."""
    position: int


class Deleted(msgspec.Struct, frozen=True):
    id: UUID
    session_id: str | None
    forgotten: list[UUID]
    """Facts that nothing else says."""


ConversationState = Literal["private", "broadcast", "fork"]
MessageRole = Literal["user", "assistant", "system", "tool"]


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is said in a conversation."""

    content: str
    role: MessageRole = "user"
    message_id: UUID | None = None
    """An id of the sender's own: the same sent again is stored once."""


class ConversationMessage(msgspec.Struct, frozen=True):
    message_id: UUID
    """Also the id of the event that holds it. A copy in a fork has the id that it has in the broadcast."""
    place: int
    """From 1 on."""
    role: MessageRole
    content: str
    recorded_at: datetime
    position: int
    is_copy: bool


class Conversation(msgspec.Struct, frozen=True):
    conversation_id: UUID
    state: ConversationState
    user_id: str | None
    """Whose it is; nobody's where it is a broadcast."""
    key: str | None
    """Of a broadcast."""
    forked_from: UUID | None
    """The broadcast that was replied to."""
    title: str | None
    message_count: int
    started_at: datetime
    active_at: datetime
    """When the last message came."""
    position: int


class ConversationPage(msgspec.Struct, frozen=True):
    conversations: list[Conversation]
    next: int | None


class ConversationRead(Conversation, frozen=True):
    """A conversation with a page of what was said in it."""

    messages: list[ConversationMessage]
    next: int | None
    """The place after which the next page begins."""


class Posted(Conversation, frozen=True):
    """Where a message stands: in a fork, where it replies to a broadcast."""

    message: ConversationMessage


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn of an agent. The last one of an instance is its state."""

    run_id: UUID
    agent: str
    instance: str
    task_type: str | None
    session_id: str | None
    status: Literal["running", "completed", "failed"]
    turn: int
    started_at: datetime
    ended_at: datetime | None
    user_id: str | None
    sanitised: dict[str, int] | None = None
    """What was taken out of its input, or of its output or error, in the answer to who sent that."""


class Runs(msgspec.Struct, frozen=True):
    runs: list[Run]


class AgentProfile(msgspec.Struct, frozen=True):
    """What an agent may remember, and by which rules, as they are in force."""

    agent: str
    profile: str
    description: str
    anchor: Literal["user", "workspace"]
    cells: dict[Tier, dict[Kind, str]]
    conflict: dict[Kind, str]
    """Of the kinds that it has, as all that follows."""
    promotion: dict[Kind, str]
    retention: dict[Kind, str]
    canon: Literal["none", "primary", "backstop"]
    episodes: Tier | None
    """Where the episodes of a run go; null where it has no episodic memory."""
    idle_days: int
    sanitise: dict[str, str]
    """What is done with each category of what must not be remembered."""


class CanonRule(msgspec.Struct, frozen=True):
    rule_id: str
    body: str
    updated_at: datetime


class Canon(msgspec.Struct, frozen=True):
    rules: list[CanonRule]


class QueuedJob(msgspec.Struct, frozen=True):
    """A job and what has become of it. `error` is the type of what went wrong the last time, never more."""

    job_id: int
    job: str
    workspace_id: str | None
    status: str
    attempts: int
    queued_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None


class JobPage(msgspec.Struct, frozen=True):
    jobs: list[QueuedJob]
    next: int | None


class Action(msgspec.Struct, frozen=True):
    """An audited act, which holds what it cites."""

    action_id: UUID
    position: int
    kind: str
    user_id: str | None
    """Who recorded it; none for an administrator."""
    recorded_at: datetime
    cites: list[UUID]


class ActionPage(msgspec.Struct, frozen=True):
    actions: list[Action]
    next: int | None


MemoryEntity = Literal["memory", "scoped_memory"]
Entity = Literal["memory", "scoped_memory", "conversation"]
Timer = Literal["recorded_at", "invalid_at", "archived_at", "active_at", "none"]
Disposal = Literal["HARD_DELETE", "STRIP_PAYLOAD", "RETAIN_METADATA"]
RetentionState = Literal["ACTIVE", "REFERENCED", "ORPHANED", "TOMBSTONED"]
Temperature = Literal["hot", "warm", "cold"]


class MemoryRetention(msgspec.Struct, frozen=True):
    """How long a memory is kept, what keeps it, and how present it is."""

    memory_id: UUID
    entity: MemoryEntity
    content_class: str
    state: RetentionState
    disposal: Disposal
    expires_at: datetime | None
    """When a timer tombstones it, unless something refers to it; none where no timer runs."""
    disposed_at: datetime | None
    """When it is disposed of, once it is tombstoned."""
    held_by: list[UUID]
    """The actions that hold it, as far as the caller may see them."""
    strength: float
    temperature: Temperature


class Removed(msgspec.Struct, frozen=True):
    """Rows of one table that were removed; the digest is over their sorted names, one a line."""

    count: int
    digest: str


class Erasure(msgspec.Struct, frozen=True):
    """The receipt of an erasure: what was removed, and the event in the ledger that says so."""

    erasure_id: UUID
    """Also the id of the event."""
    workspace_id: str
    subject_hash: str
    erased_at: datetime
    erased_by: str
    position: int
    removed: dict[str, Removed]
    shredded_keys: list[UUID]
    held: list[UUID]
    """Memories that an action cites: their envelopes stay, without text."""
    digest: str
    """SHA-256 of what the event says, in canonical form."""
    settled: bool = True
    """Whether what follows from it is done. False only where something stopped it; a worker takes it up."""
