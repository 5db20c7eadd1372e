"""A memory gateway to speak to, made up or served, with what is sent to it; and an agent's loop that is small enough to
be read at once."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from whence.hybrid import AuditEvent, HybridMemory, MemoryConfig

KEY = "uk_made-up_4f9a1c77e2"
SYSTEM = "You are a helpful agent."

Fault = Callable[[httpx.Request], httpx.Response]


class Wire(httpx.AsyncBaseTransport):
    """What is sent on it is kept. It leads to a gateway, and can be told to fail on the way."""

    def __init__(self, gateway: httpx.AsyncBaseTransport) -> None:
        self._gateway = gateway
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.requests: list[httpx.Request] = []
        self.faults: dict[str, Fault] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        self.sent.append((request.url.path, body))
        self.requests.append(request)
        fault = self.faults.get(request.url.path)
        return fault(request) if fault else await self._gateway.handle_async_request(request)

    async def aclose(self) -> None:
        await self._gateway.aclose()

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.sent]

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for sent, body in self.sent if sent == path]


class MadeUp(httpx.AsyncBaseTransport):
    """A gateway that finds everything that was added to a chat, and says more of it than anybody asked for."""

    def __init__(self) -> None:
        self.said: dict[str, list[dict[str, Any]]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        if request.url.path == "/memories/search":
            chat = f"chat:{body['conversation_id']}"
            found = [self._result(chat, number, each) for number, each in enumerate(self.said.get(chat, []))]
            return httpx.Response(200, json={"results": found, "meta": {"query_ms": 1}})
        if request.url.path == "/memories/add":
            self.said.setdefault(body["session_id"], []).extend(body["messages"])
            return httpx.Response(200, json={"message_count": len(body["messages"]), "status": "stored"})
        return httpx.Response(200, json={"status": "no_extraction"})

    @staticmethod
    def _result(chat: str, number: int, said: dict[str, Any]) -> dict[str, Any]:
        raw = {"embedding": [0.25], "debug": "RAW-FIELD", "sender_id": said["sender_id"], "trust": said["role"]}
        kept = {"id": f"m{number}", "session_id": chat, "text": said["content"], "score": 0.5}
        return kept | {"source_scope": "current_chat", "resource_uri": None} | raw


class Events:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.kept: list[AuditEvent] = []

    async def record(self, event: AuditEvent) -> None:
        self.kept.append(event)

    @property
    def names(self) -> list[str]:
        return [event.name.removeprefix("memory_gateway_") for event in self.kept]


@dataclass
class Gateway:
    """A gateway with a user of its own, and what is on the wire to it."""

    url: str
    key: str
    wire: Wire
    events: Events = field(default_factory=Events)

    def document(self, **more: Any) -> dict[str, Any]:
        credentials = {"baseUrl": self.url, "userId": "ann", "userKey": self.key}
        return {"memory": {"mode": "hybrid", "gateway": credentials | more}}

    def config(self, **more: Any) -> MemoryConfig:
        return MemoryConfig.parse(self.document(**more))

    def memory(self, folder: Path, config: MemoryConfig | None = None) -> HybridMemory:
        return HybridMemory(config or self.config(), folder, audit=self.events, transport=self.wire)


# The loop


@dataclass
class AgentRunResult:
    answer: str | None
    error: str | None = None
    calls: int = 0


class ProviderDown(Exception):
    pass


@dataclass
class Provider:
    """Says what it was told to say: a text, a call of a tool, or nothing because it is down."""

    replies: list[str | dict[str, Any] | Exception]
    given: list[list[dict[str, Any]]] = field(default_factory=list)
    tools: list[list[str]] = field(default_factory=list)
    when_asked: Callable[[], None] = lambda: None

    async def reply(self, messages: list[dict[str, Any]], tools: list[str]) -> str | dict[str, Any]:
        self.given.append([dict(message) for message in messages])
        self.tools.append(tools)
        self.when_asked()
        said = self.replies.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


@dataclass
class Agent:
    memory: HybridMemory
    provider: Provider
    skills: list[dict[str, Any]] = field(default_factory=list)
    histories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    max_calls: int = 3

    async def run(self, session_id: str, prompt: str) -> AgentRunResult:
        run = await self.memory.before_run(session_id, prompt)
        history = self.histories.setdefault(session_id, [])
        messages = run.messages(SYSTEM, skills=self.skills, history=history)
        try:
            answer, calls = await self._looped(messages)
        except ProviderDown:
            return AgentRunResult(None, "the provider is down")
        history += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        await run.complete(answer)
        return AgentRunResult(answer, calls=calls)

    async def _looped(self, messages: list[dict[str, Any]]) -> tuple[str, int]:
        for calls in range(self.max_calls):
            said = await self.provider.reply(messages, [self.memory.tool.name])
            if isinstance(said, str):
                return said, calls
            messages.append({"role": "assistant", "reasoning": "REASONING", "tool_calls": [said]})
            result = self.memory.tool.call(said["arguments"])
            messages.append({"role": "tool", "content": "TOOL-RESULT " + json.dumps(result)})
        return "I could not finish: too many calls.", self.max_calls


# What must not be seen


def behind(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that is behind it, whether it is shown or not."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def shown(error: BaseException) -> str:
    """All that an error and those behind it say, and the local variables of our frames."""
    found = [f"{each} {each!r} {each.args!r} {vars(each)!r}" for each in behind(error)]
    for each in behind(error):
        step = each.__traceback__
        while step is not None:
            if "/whence/hybrid/" in step.tb_frame.f_code.co_filename:
                found += map(repr, step.tb_frame.f_locals.values())
            step = step.tb_next
    return "\n".join(found)
