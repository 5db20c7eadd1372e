"""`Whence`: every verb of the HTTP interface. Made by `make sync` from asynchronous.py; do not edit."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from os import PathLike
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx
import msgspec

from whence.client.calls import (
    DEFAULT_URL,
    KEPT_CONNECTION_SECONDS,
    STREAM_SILENCE_SECONDS,
    TIMEOUT_SECONDS,
    Attempts,
    Call,
    Frames,
    Id,
    Outcome,
    Progress,
    Upload,
    address,
    answer_of,
    at,
    authorization,
    base_of,
    check_open,
    delete,
    each_put_with_id,
    each_with_memory_id,
    ended_early,
    failure_of,
    given,
    may_repeat,
    new_file,
    post,
    put,
    read,
    remove,
    upload,
    with_event_id,
    with_memory_id,
)
from whence.client.embedded import Embedded
from whence.client.fields import (
    ActionsAsked,
    AssembleAsked,
    ContextAsked,
    ConversationsAsked,
    EpisodeFields,
    EventFields,
    EventsAsked,
    LineageAsked,
    MemoriesAsked,
    MemoryFields,
    MessageFields,
    NewMessageFields,
    Partition,
    ProvAsked,
    RecallAsked,
    RememberFields,
    ResourceFields,
    ResourcesAsked,
    RunFields,
    SearchAsked,
    StreamAsked,
    SubgraphAsked,
    WorkflowsAsked,
)
from whence.ids import new_id
from whence.wire import (
    Action,
    ActionPage,
    Added,
    AgentProfile,
    AppendAnswer,
    Assembled,
    Atlas,
    Canon,
    CanonRule,
    ConsistencyProof,
    ConversationPage,
    ConversationRead,
    Deleted,
    Episodes,
    Erasure,
    Event,
    EventPage,
    Explanation,
    FeedbackKept,
    Flushed,
    Health,
    InclusionProof,
    ItemOp,
    ItemsAnswer,
    MemoryPage,
    MemoryRetention,
    Message,
    MessageRole,
    NewMessage,
    Overridden,
    Posted,
    Recalled,
    RecallRecord,
    Remember,
    Remembered,
    RememberedBatch,
    Resource,
    ResourcePage,
    Run,
    Runs,
    SealPage,
    Searched,
    SearchScope,
    SessionClosed,
    SessionPage,
    StoredEvent,
    StoredMemory,
    UserMade,
    Within,
    Workflow,
    WorkflowOutcome,
    WorkflowPage,
    WorkflowSelection,
    WorkingEntry,
    WorkingKeys,
    WorkingStored,
)

T = TypeVar("T")


class Whence:
    """A Whence to talk to: one that is served at `url`, or one in this process by `Whence.embedded()`."""

    def __init__(self, url: str = DEFAULT_URL, *, key: str, timeout_s: float = TIMEOUT_SECONDS) -> None:
        self._embedded: Embedded | None = None
        self._http = httpx.Client(
            base_url=base_of(url),
            headers=authorization(key),
            timeout=timeout_s,
            limits=httpx.Limits(keepalive_expiry=KEPT_CONNECTION_SECONDS),
            # A proxy that some variable names would read every memory, and the key.
            trust_env=False,
        )

    @classmethod
    def embedded(cls, data_dir: str | PathLike[str] | None = None, *, user: str | None = None) -> Self:
        """A Whence in this process, on the data of a folder (`~/.whence`), without a server, a port or a key.

        It acts as an administrator of the workspace `default`, or as one of its users. It opens when it is entered,
        or at the first call.
        """
        self = cls.__new__(cls)
        self._embedded = Embedded(data_dir, user)
        self._http = httpx.Client(base_url="http://embedded", transport=self._embedded, trust_env=False)
        return self

    def __repr__(self) -> str:
        where = address(self._http.base_url) if self._embedded is None else "embedded"
        return f"<{type(self).__name__} {where}>"

    def __enter__(self) -> Self:
        if self._embedded is not None:
            self._embedded.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives up connections; ends a Whence that lives in this process."""
        self._http.close()

    def _send(self, call: Call[T]) -> T:
        attempts = Attempts(call.repeatable)
        while True:
            check_open(self._http)
            outcome: Outcome
            try:
                with call.content() as content:
                    outcome = self._http.request(call.method, call.path, params=call.query, **content)
            except httpx.TransportError as error:
                outcome = error
            pause = attempts.pause_after(outcome)
            if pause is None:
                return answer_of(call, outcome, self._http.base_url)
            time.sleep(pause)

    def health(self) -> Health:
        """Whether the parts work, and which do not."""
        return self._send(read("/health", Health))

    # Events

    def append(self, **event: Unpack[EventFields]) -> AppendAnswer:
        """Appends an event. One that cannot be stored is raised: InvalidInput, or Conflict."""
        return self._send(post("/v1/events", AppendAnswer, with_event_id(event, _now()), repeatable=True))

    def append_all(self, events: Iterable[EventFields | Event]) -> AppendAnswer:
        """Appends 1 to 1,000 events. Each is accepted or rejected on its own: look at `results`."""
        now = _now()
        items = [event if isinstance(event, Event) else with_event_id(event, now) for event in events]
        return self._send(post("/v1/events", AppendAnswer, {"events": items}, repeatable=True))

    def events(self, **asked: Unpack[EventsAsked]) -> EventPage:
        """Events in order of position; `next` is `after` for the next page."""
        return self._send(read("/v1/events", EventPage, asked))

    def event(self, event_id: Id) -> StoredEvent:
        """One event's envelope."""
        return self._send(read(at("/v1/events/{}", event_id), StoredEvent))

    def payload(self, event_id: Id) -> Any:
        """One event's payload, decrypted."""
        return msgspec.json.decode(self._send(read(at("/v1/events/{}/payload", event_id), msgspec.Raw)))

    def follow(self, **asked: Unpack[StreamAsked]) -> Iterator[StoredEvent]:
        """Events past `after` as they are committed, without an end; a lost connection is taken up where it was."""
        after, attempts = asked.get("after"), Attempts(repeatable=True)
        while True:
            check_open(self._http)
            call = read("/v1/events/stream", StoredEvent, {**asked, "after": after})
            frames, outcome = Frames(), ended_early()
            try:
                with self._http.stream(
                    call.method, call.path, params=call.query, timeout=STREAM_SILENCE_SECONDS
                ) as response:
                    if response.is_success:
                        for chunk in response.iter_bytes():
                            for event in frames.feed(chunk):
                                after = event.global_position
                                yield event
                    else:
                        response.read()
                        outcome = response
            except httpx.ReadTimeout:
                # Silence is a connection that was lost without a word.
                pass
            except httpx.TransportError as error:
                outcome = error
            # A connection that worked for a while and was then lost is the first failure, not one more.
            attempts = Attempts(repeatable=True) if frames.alive else attempts
            pause = attempts.pause_after(outcome)
            if pause is None:
                raise failure_of(outcome, self._http.base_url)
            time.sleep(pause)

    # The graph

    def lineage(self, event_id: Id, **asked: Unpack[LineageAsked]) -> Atlas:
        """What caused an event, or what came of it."""
        return self._send(read(at("/v1/events/{}/lineage", event_id), Atlas, asked))

    def subgraph(self, **asked: Unpack[SubgraphAsked]) -> Atlas:
        """Everything around an event, or in a session or a trace."""
        return self._send(read("/v1/subgraph", Atlas, asked))

    def context(self, query: str | None = None, **asked: Unpack[ContextAsked]) -> Atlas:
        """What bears on a question or a session, the most relevant first."""
        return self._send(post("/v1/context", Atlas, given(asked, query=query), repeatable=True))

    def prov(self, **asked: Unpack[ProvAsked]) -> Any:
        """The provenance of an event, a session or a trace as W3C PROV-JSON."""
        return msgspec.json.decode(self._send(read("/v1/prov", msgspec.Raw, asked)))

    # Memory

    def remember(self, text: str, **fields: Unpack[RememberFields]) -> Remembered:
        """Remembers something. What is answered can be recalled at once."""
        memory = with_memory_id({**fields, "text": text})
        return self._send(post("/v1/memories", Remembered, memory, repeatable=True))

    def remember_all(self, memories: Iterable[MemoryFields | Remember]) -> RememberedBatch:
        """Remembers 1 to 500 things. Each is stored or refused on its own: look at `results`."""
        items = each_with_memory_id(memories)
        return self._send(post("/v1/memories", RememberedBatch, {"memories": items}, repeatable=True))

    def memory(self, memory_id: Id) -> StoredMemory:
        """One memory, also one that is over or forgotten."""
        return self._send(read(at("/v1/memories/{}", memory_id), StoredMemory))

    def memories(self, **asked: Unpack[MemoriesAsked]) -> MemoryPage:
        """What is remembered, the newest first; `next` is `before` for the next page."""
        return self._send(read("/v1/memories", MemoryPage, asked))

    def history(self, memory_id: Id, *, after: int | None = None, limit: int | None = None) -> MemoryPage:
        """Everything that was ever said in its place, in order of the time from which it was so."""
        wanted = {"after": after, "limit": limit}
        return self._send(read(at("/v1/memories/{}/history", memory_id), MemoryPage, wanted))

    def explain(self, memory_id: Id) -> Explanation:
        """Why it is believed, since when, and who says so."""
        return self._send(read(at("/v1/memories/{}/explain", memory_id), Explanation))

    def recall(self, query: str = "", **asked: Unpack[RecallAsked]) -> Recalled:
        """What answers a question best, the best first; without one, what held, the newest first.

        That it was recalled is kept, so this is not repeated by itself."""
        return self._send(post("/v1/recall", Recalled, given(asked, query=query)))

    def recalled(self, recall_id: Id) -> RecallRecord:
        """A recall that was made: what was asked, what came out, and why."""
        return self._send(read(at("/v1/recalls/{}", recall_id), RecallRecord))

    def give_feedback(self, recall_id: Id, *, helpful: Sequence[Id] = (), unhelpful: Sequence[Id] = ()) -> FeedbackKept:
        """Says which hits of a recall helped. Given again it counts again, so this is not repeated by itself."""
        body = {"helpful": list(helpful), "unhelpful": list(unhelpful)}
        return self._send(post(at("/v1/recalls/{}/feedback", recall_id), FeedbackKept, body))

    def assemble(self, agent: str, instance: str, **asked: Unpack[AssembleAsked]) -> Assembled:
        """What an agent needs before its turn, within a budget of tokens. A workflow is selected, so this is not
        repeated by itself."""
        return self._send(post("/v1/assemble", Assembled, given(asked, agent=agent, instance=instance)))

    def forget(self, memory_id: Id) -> None:
        """It is no longer recalled; its history stays."""
        self._send(delete(at("/v1/memories/{}", memory_id), repeatable=True))

    # Chats

    def add_user(self, user_id: str) -> UserMade:
        """Makes a user, whose key is shown this once; there is none of one who was there. Needs an administrator."""
        return self._send(post("/users", UserMade, {"user_id": user_id}))

    def add_messages(
        self, session_id: str, messages: Iterable[MessageFields | Message], **within: Unpack[Partition]
    ) -> Added:
        """Adds 1 to 500 messages of the chat `chat:…`, all or none. What was added before is stored once."""
        body = given(within, session_id=session_id, messages=list(messages))
        return self._send(post("/memories/add", Added, body, repeatable=True))

    def flush(self, session_id: str, **within: Unpack[Partition]) -> Flushed:
        """Draws from a chat what it taught since the last time."""
        return self._send(post("/memories/flush", Flushed, given(within, session_id=session_id)))

    def search(self, query: str, scope: Sequence[SearchScope], **asked: Unpack[SearchAsked]) -> Searched:
        """What a user said and stored, the best first, in all scopes together."""
        return self._send(post("/memories/search", Searched, given(asked, query=query, scope=scope)))

    def override_memory(self, memory_id: Id, session_id: str, text: str, **within: Unpack[Partition]) -> Overridden:
        """Puts another text in the place of a memory, which stays in its history."""
        body = given(within, id=memory_id, session_id=session_id, text=text)
        return self._send(post("/memories/override", Overridden, body, repeatable=True))

    def delete_memory(self, memory_id: Id, session_id: str, **within: Unpack[Partition]) -> Deleted:
        """It is no longer found, nor are facts that only it taught."""
        body = given(within, id=memory_id, session_id=session_id)
        return self._send(post("/memories/delete", Deleted, body, repeatable=True))

    # Conversations

    def start_conversation(
        self,
        title: str | None = None,
        messages: Iterable[NewMessageFields | NewMessage] = (),
        conversation_id: Id | None = None,
    ) -> ConversationRead:
        """Starts a private conversation, perhaps with messages. With an id of one's own it is started once."""
        body = given({"title": title}, messages=list(messages), conversation_id=conversation_id or new_id())
        return self._send(post("/v1/conversations", ConversationRead, body, repeatable=True))

    def conversations(self, **asked: Unpack[ConversationsAsked]) -> ConversationPage:
        """One's own conversations and the broadcasts, the newest first; `next` is `before` for the next page."""
        return self._send(read("/v1/conversations", ConversationPage, asked))

    def conversation(
        self, conversation_id: Id, *, after: int | None = None, limit: int | None = None
    ) -> ConversationRead:
        """A conversation and what was said in it, in order; `next` is `after` for the next page."""
        asked = {"after": after, "limit": limit}
        return self._send(read(at("/v1/conversations/{}", conversation_id), ConversationRead, asked))

    def post_message(
        self, conversation_id: Id, content: str, role: MessageRole | None = None, message_id: Id | None = None
    ) -> Posted:
        """Says something in a conversation. A reply to a broadcast is answered with one's own fork of it."""
        body = given({"content": content, "role": role}, message_id=message_id or new_id())
        return self._send(post(at("/v1/conversations/{}/messages", conversation_id), Posted, body, repeatable=True))

    def delete_conversation(self, conversation_id: Id) -> None:
        """Nobody finds it from then on; what was said in it goes after a grace."""
        self._send(delete(at("/v1/conversations/{}", conversation_id)))

    def publish_broadcast(
        self, key: str, messages: Iterable[NewMessageFields | NewMessage], title: str | None = None
    ) -> ConversationRead:
        """Publishes a broadcast, or gives back what was published under the key before. Needs an administrator."""
        body = given({"title": title}, messages=list(messages))
        return self._send(put(at("/v1/broadcasts/{}", key), ConversationRead, body))

    # Working memory

    def put_working(self, agent: str, instance: str, key: str, value: Any, ttl_s: int | None = None) -> WorkingStored:
        """Puts a value under a key of an instance, until it expires."""
        body = given({"ttl_s": ttl_s}) | {"value": value}
        return self._send(put(at("/v1/working/{}/{}/{}", agent, instance, key), WorkingStored, body))

    def working(self, agent: str, instance: str, key: str) -> WorkingEntry:
        """The value under a key, as JSON: `.decoded()` reads it."""
        return self._send(read(at("/v1/working/{}/{}/{}", agent, instance, key), WorkingEntry))

    def delete_working(self, agent: str, instance: str, key: str) -> None:
        """Removes a key and its value."""
        self._send(delete(at("/v1/working/{}/{}/{}", agent, instance, key)))

    def working_keys(self, agent: str, instance: str) -> WorkingKeys:
        """The keys of an instance, with their sizes."""
        return self._send(read(at("/v1/working/{}/{}", agent, instance), WorkingKeys))

    # Items

    def items(
        self,
        ops: Iterable[ItemOp],
        *,
        agent: str | None = None,
        user_id: str | None = None,
        within: Within | None = None,
    ) -> ItemsAnswer:
        """Does 1 to 1,000 things with items, in one request: reads first, then all writes together or none of them."""
        asked = each_put_with_id(ops)
        body = given({"agent": agent, "user_id": user_id, "within": within}, ops=asked)
        return self._send(post("/v1/items", ItemsAnswer, body, repeatable=may_repeat(asked)))

    # Runs

    def start_run(self, agent: str, instance: str, **fields: Unpack[RunFields]) -> Run:
        """Starts a run of an agent. A repeat would be another run, so this is not repeated by itself."""
        return self._send(post("/v1/runs", Run, given(fields, agent=agent, instance=instance)))

    def run(self, run_id: Id) -> Run:
        """One run."""
        return self._send(read(at("/v1/runs/{}", run_id), Run))

    def add_episode(self, run_id: Id, text: str, **fields: Unpack[EpisodeFields]) -> Remembered:
        """Adds what happened in a run."""
        episode = with_memory_id({**fields, "text": text})
        return self._send(post(at("/v1/runs/{}/episodes", run_id), Remembered, episode, repeatable=True))

    def complete_run(self, run_id: Id, output: Any = None) -> Run:
        """The run has done its task."""
        return self._send(post(at("/v1/runs/{}/complete", run_id), Run, {"output": output}, repeatable=True))

    def fail_run(self, run_id: Id, error: Any = None) -> Run:
        """The run has failed."""
        return self._send(post(at("/v1/runs/{}/fail", run_id), Run, {"error": error}, repeatable=True))

    def runs(self, agent: str, instance: str | None = None, limit: int | None = None) -> list[Run]:
        """Runs of an agent, the newest first. The first run of an instance is its state."""
        asked = {"instance": instance, "limit": limit}
        return (self._send(read(at("/v1/agents/{}/runs", agent), Runs, asked))).runs

    def episodes(self, agent: str, limit: int | None = None) -> list[StoredMemory]:
        """The last episodes of an agent, the newest first."""
        return (self._send(read(at("/v1/agents/{}/episodes", agent), Episodes, {"limit": limit}))).memories

    def profile(self, agent: str) -> AgentProfile:
        """What an agent may remember, and by which rules."""
        return self._send(read(at("/v1/agents/{}/profile", agent), AgentProfile))

    # Workflows

    def add_workflow(self, agent: str, task_type: str, name: str, spec: Mapping[str, Any]) -> Workflow:
        """Adds a variant of how an agent does a kind of task."""
        body = {"agent": agent, "task_type": task_type, "name": name, "spec": spec}
        return self._send(post("/v1/workflows", Workflow, body, repeatable=True))

    def workflows(self, **asked: Unpack[WorkflowsAsked]) -> WorkflowPage:
        """Variants and what is known of each, the newest first; `next` is `before` for the next page."""
        return self._send(read("/v1/workflows", WorkflowPage, asked))

    def select_workflow(self, agent: str, task_type: str) -> WorkflowSelection:
        """Selects a variant. A repeat would be another draw, so this is not repeated by itself."""
        return self._send(post("/v1/workflows/select", WorkflowSelection, {"agent": agent, "task_type": task_type}))

    def record_outcome(self, selection_id: Id, score: float) -> WorkflowOutcome:
        """Says how well a selected variant did, from 0 to 1. Counts once."""
        body = {"selection_id": selection_id, "score": score}
        return self._send(post("/v1/workflows/outcomes", WorkflowOutcome, body, repeatable=True))

    def retire_workflow(self, workflow_id: Id) -> None:
        """It is not selected any more, and stays readable."""
        self._send(delete(at("/v1/workflows/{}", workflow_id), repeatable=True))

    # Sessions

    def sessions(
        self, *, state: Literal["open", "closed"] | None = None, before: int | None = None, limit: int | None = None
    ) -> SessionPage:
        """Sessions, the newest first; `next` is `before` for the next page."""
        return self._send(read("/v1/sessions", SessionPage, {"state": state, "before": before, "limit": limit}))

    def close_session(self, session_id: str, agent: str | None = None) -> SessionClosed:
        """Closes a session and says what became of every row. One that is closed is reported as it was."""
        body = {} if agent is None else {"agent": agent}
        return self._send(post(at("/v1/sessions/{}/close", session_id), SessionClosed, body, repeatable=True))

    # Actions and retention

    def record_action(self, kind: str, cites: Sequence[Id], action_id: Id | None = None) -> Action:
        """Records an act, which holds the events and memories that it cites."""
        body = {"kind": kind, "cites": list(cites), "action_id": action_id or new_id()}
        return self._send(post("/v1/actions", Action, body, repeatable=True))

    def action(self, action_id: Id) -> Action:
        """One action."""
        return self._send(read(at("/v1/actions/{}", action_id), Action))

    def actions(self, **asked: Unpack[ActionsAsked]) -> ActionPage:
        """Actions, the newest first; `next` is `before` for the next page."""
        return self._send(read("/v1/actions", ActionPage, asked))

    def retention(self, memory_id: Id) -> MemoryRetention:
        """How long a memory is kept, what keeps it, and how present it is."""
        return self._send(read(at("/v1/memories/{}/retention", memory_id), MemoryRetention))

    # Resources

    def add_resource(
        self,
        file: str | PathLike[str] | bytes,
        *,
        name: str | None = None,
        content_type: str | None = None,
        progress: Progress | None = None,
        **fields: Unpack[ResourceFields],
    ) -> Resource:
        """Adds a document, by its path or as bytes. A long one is `processing` when this returns: ask `resource`."""
        sent = Upload(file, name, content_type, given(fields), progress)
        return self._send(upload("/resources", Resource, sent))

    def resources(self, **asked: Unpack[ResourcesAsked]) -> ResourcePage:
        """Documents of a partition, the newest first; `next` is `before` for the next page."""
        return self._send(read("/resources", ResourcePage, asked))

    def resource(self, resource_id: Id) -> Resource:
        """A document: how far it is, and why it failed."""
        return self._send(read(at("/resources/{}", resource_id), Resource))

    def delete_resource(self, resource_id: Id) -> Resource:
        """Deletes a document, and forgets what it says."""
        return self._send(remove(at("/resources/{}", resource_id), Resource))

    # The canon

    def set_rule(self, world_id: str, rule_id: str, body: str) -> None:
        """Sets a rule that semantic memory must not repeat. Needs an administrator."""
        self._send(put(at("/v1/canon/{}/{}", world_id, rule_id), type(None), {"body": body}))

    def drop_rule(self, world_id: str, rule_id: str) -> None:
        """Drops a rule. Needs an administrator."""
        self._send(delete(at("/v1/canon/{}/{}", world_id, rule_id)))

    def rules(self, world_id: str) -> list[CanonRule]:
        """The rules of a world."""
        return (self._send(read(at("/v1/canon/{}", world_id), Canon))).rules

    # What is held on a person

    def erase(self, subject_id: str) -> Erasure:
        """Erases everything that is held on a person; the receipt says what that was. Needs an administrator."""
        return self._send(post("/v1/erasures", Erasure, {"subject_id": subject_id}, repeatable=True))

    def erasure(self, erasure_id: Id) -> Erasure:
        """The receipt of an erasure. Needs an administrator."""
        return self._send(read(at("/v1/erasures/{}", erasure_id), Erasure))

    def export(self, subject_id: str, file: str | PathLike[str]) -> int:
        """Writes everything that is held on a person into a new file, a ZIP of JSON lines; returns its size in bytes.
        Needs an administrator. What failed on its way leaves a file that is not whole."""
        path, size = at("/v1/subjects/{}/export", subject_id), 0
        try:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    raise failure_of(response, self._http.base_url)
                with new_file(file) as out:
                    for chunk in response.iter_bytes():
                        size += out.write(chunk)
        except httpx.TransportError as error:
            raise failure_of(error, self._http.base_url) from error
        return size

    # Seals

    def seals(self, after: int | None = None, limit: int | None = None) -> SealPage:
        """Seals in order of size; `next` is `after` for the next page."""
        return self._send(read("/v1/seals", SealPage, {"after": after, "limit": limit}))

    def proof(self, event_id: Id) -> InclusionProof:
        """Proof that an event is under the last seal."""
        return self._send(read(at("/v1/events/{}/proof", event_id), InclusionProof))

    def consistency(self, from_size: int, to_size: int | None = None) -> ConsistencyProof:
        """Proof that a seal covers all that an earlier one did, unchanged."""
        return self._send(read("/v1/seals/consistency", ConsistencyProof, {"from": from_size, "to": to_size}))


def _now() -> datetime:
    return datetime.now(UTC)
