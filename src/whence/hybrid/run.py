"""Both layers around the runs of an agent: curated memory always, the gateway where it is configured."""

import asyncio
import time
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, Self

import httpx

from whence.hybrid.audit import AuditSink, LogSink, log
from whence.hybrid.config import MemoryConfig
from whence.hybrid.context import AnyMessage, build_messages, system_prompt
from whence.hybrid.curated import CuratedMemory, Snapshot
from whence.hybrid.gateway import ASSISTANT, MemoryGateway, Recalled
from whence.hybrid.tool import MemoryTool

Milliseconds = Callable[[], int]
"""A clock: milliseconds since 1970, in UTC."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class HybridMemory:
    """Opened once, when an agent starts; another configuration needs another one.

    `folder` holds `MEMORY.md` and `USER.md`. `audit` is told what became of each call to the gateway.
    """

    def __init__(
        self,
        config: MemoryConfig,
        folder: str | PathLike[str],
        *,
        audit: AuditSink | None = None,
        assistant_id: str = ASSISTANT,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Milliseconds = now_ms,
    ) -> None:
        self.config = config
        self.curated = CuratedMemory(folder)
        self.tool = MemoryTool(self.curated)
        self.gateway: MemoryGateway | None = None
        self.clock = clock
        if config.gateway is not None:
            sink = audit or LogSink()
            self.gateway = MemoryGateway(config.gateway, sink, assistant_id=assistant_id, transport=transport)
        elif config.mode == "hybrid":
            log.warning(
                "the memory gateway is off: memory.gateway needs baseUrl, userId and userKey. Curated memory is on; "
                "to leave the gateway out on purpose, set memory.mode to curated"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self.gateway is not None:
            await self.gateway.close()

    async def before_run(self, session_id: str, prompt: str) -> "Run":
        """What is remembered, as this run will see it: the curated files now, and what the gateway finds."""
        asked_at = self.clock()
        snapshot = await asyncio.to_thread(self.curated.snapshot)
        recalled = await self.gateway.recall_before_run(session_id, prompt) if self.gateway else Recalled()
        return Run(self, session_id, prompt, asked_at, snapshot, recalled)


class Run:
    """One turn of a conversation: from what the user asks to what the agent answers."""

    def __init__(
        self,
        memory: HybridMemory,
        session_id: str,
        prompt: str,
        asked_at_ms: int,
        snapshot: Snapshot,
        recalled: Recalled,
    ) -> None:
        self._memory = memory
        self.tool = memory.tool
        self.session_id = session_id
        self.prompt = prompt
        self.snapshot = snapshot
        self.recalled = recalled
        self._asked_at_ms = asked_at_ms
        self._is_ended = False

    def system(self, own: str = "") -> str:
        """The system prompt: the host's own, and what this run adds to it."""
        return system_prompt(own, self.snapshot, gateway_active=self._memory.gateway is not None)

    def messages(
        self, system: str, *, skills: Iterable[AnyMessage] = (), history: Iterable[AnyMessage] = ()
    ) -> list[dict[str, Any]]:
        """For the provider, and not to be kept: what was recalled is for this run alone."""
        reference = self.recalled.messages
        return build_messages(self.system(system), self.prompt, skills=skills, reference=reference, history=history)

    async def complete(self, answer: str) -> None:
        """To be called when the user gets an answer, whatever it is, and not when the run has failed. The gateway is
        told what was asked and answered, once however often this is called."""
        if self._is_ended:
            return
        self._is_ended = True
        memory = self._memory
        if memory.gateway is not None:
            times = self._asked_at_ms, memory.clock()
            await memory.gateway.persist_after_run(self.session_id, self.prompt, answer, *times)
