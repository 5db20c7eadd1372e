"""The second layer: what the gateway recalls before a run, and what it is told after one.

Best effort: whatever fails here is told to the audit and to nobody else. Knows nothing of curated memory.
"""

from dataclasses import dataclass, field
from typing import Final

import httpx

from whence.hybrid.audit import AuditEvent, AuditSink, Detail, EventName, tell
from whence.hybrid.client import GatewayClient, GatewayError
from whence.hybrid.config import GatewayConfig
from whence.hybrid.reference import Message, Reference, reference_of

ASSISTANT: Final = "assistant"
"""How the gateway is told who answered, unless the host has a better name."""


@dataclass(frozen=True)
class Recalled:
    """What a search before a run came to."""

    reference: Reference = field(default_factory=Reference)
    error: GatewayError | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        return self.reference.messages


class MemoryGateway:
    def __init__(
        self,
        config: GatewayConfig,
        audit: AuditSink,
        *,
        assistant_id: str = ASSISTANT,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._config = config
        self._audit = audit
        self._assistant_id = assistant_id
        self._client = GatewayClient(config, transport)

    async def close(self) -> None:
        await self._client.close()

    async def recall_before_run(self, session_id: str, prompt: str) -> Recalled:
        """Searches by the prompt; after a failure there is nothing to refer to, and the run goes on."""
        try:
            reference = reference_of(await self._client.search(session_id, prompt))
        except GatewayError as error:
            await self._tell("memory_gateway_recall_failed", session_id, **_of(error))
            return Recalled(error=error)
        await self._tell(
            "memory_gateway_recall_succeeded",
            session_id,
            scope=list(self._config.scope),
            result_count=len(reference.results),
            left_out=reference.left_out,
        )
        return Recalled(reference)

    async def persist_after_run(
        self, session_id: str, prompt: str, answer: str, asked_at_ms: int, answered_at_ms: int
    ) -> None:
        """Adds what was asked and what was answered, and nothing else of the run; then flushes, if that went well."""
        chat = f"chat:{session_id}"
        asked_at = max(asked_at_ms, 1)
        said = [
            {"sender_id": self._config.user_id, "role": "user", "timestamp": asked_at, "content": prompt},
            {
                "sender_id": self._assistant_id,
                "role": "assistant",
                # A clock that was put back meanwhile does not turn the two around.
                "timestamp": max(answered_at_ms, asked_at + 1),
                "content": answer,
            },
        ]
        try:
            await self._client.add(chat, said)
        except GatewayError as error:
            await self._tell("memory_gateway_add_failed", session_id, gateway_session=chat, **_of(error))
            return
        await self._tell("memory_gateway_add_succeeded", session_id, gateway_session=chat, message_count=len(said))
        try:
            is_more = await self._client.flush(chat)
        except GatewayError as error:
            details = {"gateway_session": chat, "add_succeeded": True, **_of(error)}
            await self._tell("memory_gateway_flush_failed", session_id, **details)
            return
        await self._tell("memory_gateway_flush_succeeded", session_id, gateway_session=chat, is_more=is_more)

    async def _tell(self, name: EventName, session_id: str, **details: Detail) -> None:
        await tell(self._audit, AuditEvent(name, session_id, details))


def _of(error: GatewayError) -> dict[str, Detail]:
    return {
        "operation": error.operation,
        "path": error.path,
        "category": error.category,
        "status": error.http_status,
    }
