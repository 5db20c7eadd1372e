"""A person who has gone through every door, with a mark at each, and another one beside."""

import asyncio
import io
import json
import uuid
import zipfile
from typing import Any

import httpx
import msgspec
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

from conftest import Workspace
from samples import event
from whence.app import App
from whence.db import Scope
from whence.documents.process import Readers
from whence.identity import Principal
from whence.langgraph.gateway import CheckpointerGateway, make_tables
from whence.resources import File, Resources
from whence.resources.spool import Spool
from whence.wire import (
    Assemble,
    DeleteItem,
    Fact,
    Feedback,
    ItemsRequest,
    NewMessage,
    PutItem,
    Recall,
    RecallFilters,
    Remember,
    Resource,
)

OTHER = "kept-by-bob"


class Marks:
    """Strings that stand nowhere else. Capitalised like names, so that the graph takes some for names of people."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self) -> str:
        letters = "".join(chr(ord("a") + int(digit, 16)) for digit in uuid.uuid4().hex[:12])
        self.made.append(f"Zq{letters}")
        return self.made[-1]

    def found_in(self, text: str) -> list[str]:
        """In any case: what is compared is often kept in small letters."""
        small = text.lower()
        return [mark for mark in self.made if mark.lower() in small]


async def live(app: App, workspace: Workspace, who: str, mark: Any) -> None:
    """Through the ledger, memory, runs, workflows, working memory and what an administrator does for the person."""
    person, admin = workspace.user(who), workspace.admin
    await app.ledger.append(person, _events(mark))
    await app.ledger.append(
        admin, [event({"text": f"About {mark()}"}, subject_id=who), event({"a": mark()}, user_id=who, subject_id=who)]
    )
    await _remember(app, workspace, who, mark)
    for principal, user_id in ((person, None), (admin, who)):
        run = await app.runs.start(principal, "gateway", "one", "triage", None, {"said": mark()}, user_id)
        await app.runs.add_episode(principal, run.run_id, f"Asked {mark()} about {mark()}")
        await app.runs.end(principal, run.run_id, "completed", {"said": mark()})
    failed = await app.runs.start(person, "sdr", "two")
    await app.runs.end(person, failed.run_id, "failed", {"said": mark()})
    for agent in ("gateway", "sdr"):
        await app.workflows.add(person, agent, "triage", mark(), _json({"steps": [mark()]}))
        selection = await app.workflows.select(person, agent, "triage")
        await app.workflows.record_outcome(person, selection.selection_id, 1)
    await add_document(app, workspace, who, f"# {mark()}\n\nSaid by {mark()}\n".encode(), f"{mark()}.md")
    await leave_document(app, workspace, who, f"To be read: {mark()}".encode(), f"{mark()}.txt")
    shown, _ = await app.conversations.publish(admin, "welcome", [NewMessage("Welcome", "assistant")])
    await app.conversations.post(person, shown.conversation_id, NewMessage(f"Thanks from {mark()}"))
    talk = await app.conversations.start(person, f"About {mark()}", [NewMessage(f"Ask {mark()} Moor")])
    await app.conversations.post(person, talk.conversation_id, NewMessage(mark(), "assistant"))
    await keep_checkpoints(app, person, mark)
    for _ in range(2):
        await app.items.do(person, items_of(mark))
    for _ in range(3):
        await app.working.put(person.scope, "planner", mark(), mark(), _json({"draft": [mark()]}))


async def keep_checkpoints(app: App, person: Principal, mark: Any) -> None:
    """In clear and sealed: a message, a plain value, metadata, and a write that is pending."""
    await make_tables(app.settings)
    for sealed in (False, True):
        saver = CheckpointerGateway(app.database, app.threads, sealed).for_(person)
        checkpoint = empty_checkpoint() | {"channel_versions": {"messages": "1", "name": "1"}}
        checkpoint["channel_values"] = {"messages": [HumanMessage(f"I am {mark()}")], "name": mark()}
        config = {"configurable": {"thread_id": f"sealed {sealed}", "checkpoint_ns": ""}}
        metadata = {"source": "loop", "step": 1, "parents": {}, "said": mark()}
        stored = await saver.aput(config, checkpoint, metadata, {"messages": "1", "name": "1"})
        await saver.aput_writes(stored, [("messages", AIMessage(f"Hello {mark()}")), ("name", mark())], "task-1")


def items_of(mark: Any) -> ItemsRequest:
    """One that is put twice, one that is deleted, one that nothing finds by a question."""
    namespace = ("people", mark())
    first = {"namespace": namespace, "key": "k1"}
    return ItemsRequest(
        ops=(
            PutItem(**first, value=msgspec.Raw(_json({"said": mark()})), text=f"Kept {mark()}", ttl_s=86_400),
            PutItem(namespace=("quiet",), key="k2", value=msgspec.Raw(_json({mark(): 1}))),
            DeleteItem(namespace=("quiet",), key="k3"),
            PutItem(namespace=("quiet",), key=mark(), value=msgspec.Raw(b"{}")),
        )
    )


async def add_document(app: App, workspace: Workspace, who: str, content: bytes, name: str) -> Resource:
    """As its reader leaves it."""
    person = workspace.user(who)
    added, _ = await app.resources.add(person, file_of(content, name))
    return await app.resources.settled(person.scope, added.resource_id)


def file_of(content: bytes, name: str = "a.txt") -> File:
    spool = Spool()
    spool.write(content)
    return File(spool, name)


class Endless(Readers):
    """Reads and never ends."""

    async def read(self, file: Any, kind: Any) -> Any:
        await asyncio.Event().wait()


async def leave_document(app: App, workspace: Workspace, who: str, content: bytes, name: str) -> Resource:
    """As a process leaves it that is killed while it reads; no worker takes it up while a test runs."""
    resources = Resources(app.database, app.ledger, app.memory, app.clock, Endless())
    added, _ = await resources.add(workspace.user(who), file_of(content, name))
    await resources.close()
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        await tx.execute("UPDATE whence.resource_uploads SET taken_until = now() + '1 day' WHERE part = 0")
    return added


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _events(mark: Any) -> list[Any]:
    said = {"messages": [{"role": "user", "content": f"Ask {mark()} Stone in {mark()}, see https://x.test/{mark()}"}]}
    return [
        event(said),
        event({"a": {"b": [1, {"c": mark()}]}}),
        event({"tool": {"arguments": mark(), "result": mark()}}, tool_name="search"),
        event({"entity_type": "name", "name": mark(), "alias": mark()}, event_type="entity.alias"),
        event({"text": f"Summary of {mark()}"}, event_type="session.summary"),
        event({"error": mark()}, status="failed"),
    ]


async def _remember(app: App, workspace: Workspace, who: str, mark: Any) -> None:
    person = workspace.user(who)
    for agent in ("gateway", "sdr"):
        where = {"agent": agent, "tier": "persistent"}
        fact = Fact(mark(), mark(), mark(), 0.9)
        await app.memory.remember(person, Remember(**where, kind="semantic", text=f"Fact {mark()}", fact=fact))
        await app.memory.remember(person, Remember(**where, kind="procedural", text=f"Do {mark()}", key=mark()))
        spoken = Remember(**where, kind="episodic", text=f"{mark()} was there", speaker=mark(), role="user")
        await app.memory.remember(person, spoken)
        await app.recaller.recall(person, Recall(agent=agent, subject=mark(), top_k=5))
        asked = Recall(
            query=f"Was {mark()} there with {spoken.speaker}?", filters=RecallFilters(speaker=spoken.speaker)
        )
        recalled = await app.recaller.recall(person, asked)
        await app.recaller.feedback(person, recalled.recall_id, Feedback(helpful=(recalled.hits[0].memory_id,)))
        await app.assembler.assemble(person, Assemble(agent, "one", f"Who is {mark()}?"))
        await app.ledger.behind.settled()
    forgotten = await app.memory.remember(
        person, Remember(agent="gateway", tier="persistent", kind="semantic", text=f"Gone {mark()}")
    )
    await app.memory.forget(person, forgotten.memory_id)
    about = Remember(agent="sdr", tier="persistent", kind="semantic", text=f"Client {mark()}", subject_id=who)
    await app.memory.remember(workspace.admin, about)


def telemetry(admin: httpx.Client, who: str, mark: Any) -> None:
    """A span of the person's, and a log record about it that does not say whose it is."""
    trace, span = uuid.uuid4().hex, uuid.uuid4().hex[:16]
    times = {"startTimeUnixNano": "1767323045000000000", "endTimeUnixNano": "1767323046000000000"}

    def text(name: str, value: str) -> dict[str, Any]:
        return {"key": name, "value": {"stringValue": value}}

    attributes = [
        text("gen_ai.operation.name", "chat"),
        text("user.id", who),
        text("gen_ai.input.messages", f'[{{"role":"user","parts":[{{"type":"text","content":"{mark()}"}}]}}]'),
    ]
    spans = [{"traceId": trace, "spanId": span, "name": "chat", "kind": 3, **times, "attributes": attributes}]
    record = {
        "traceId": trace,
        "spanId": span,
        "timeUnixNano": "1767323045000000000",
        "eventName": "gen_ai.user.message",
        "body": {"kvlistValue": {"values": [text("content", f"Tell {mark()} Moor of {mark()}")]}},
    }
    admin.post("/v1/traces", json={"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).raise_for_status()
    admin.post("/v1/logs", json={"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).raise_for_status()


async def archive_of(app: App, workspace: Workspace, who: str) -> zipfile.ZipFile:
    made = await app.exports.begin(workspace.admin.scope, who)
    return zipfile.ZipFile(io.BytesIO(b"".join([part async for part in made.archive()])))
