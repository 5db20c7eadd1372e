"""What became of calls to the gateway, told to the host and hidden from the model."""

import logging
from dataclasses import dataclass, field
from typing import Literal, Protocol

EventName = Literal[
    "memory_gateway_recall_succeeded",
    "memory_gateway_recall_failed",
    "memory_gateway_add_succeeded",
    "memory_gateway_add_failed",
    "memory_gateway_flush_succeeded",
    "memory_gateway_flush_failed",
]
Detail = str | int | bool | list[str] | None

log = logging.getLogger("whence.hybrid")


@dataclass(frozen=True)
class AuditEvent:
    """Holds no credentials, no text that was sent and none that came back."""

    name: EventName
    session_id: str
    """As the agent calls it."""
    details: dict[str, Detail]
    context_visible: bool = field(default=False, init=False)
    """It belongs beside a session's history, and never before a model."""


class AuditSink(Protocol):
    """Where events are kept: a session's store, a file, a list."""

    async def record(self, event: AuditEvent) -> None: ...


class LogSink:
    """For hosts that keep no events: as lines of the log `whence.hybrid`."""

    async def record(self, event: AuditEvent) -> None:
        level = logging.WARNING if event.name.endswith("_failed") else logging.INFO
        log.log(level, "%s session=%r %s", event.name, event.session_id, event.details)


async def tell(sink: AuditSink, event: AuditEvent) -> None:
    """A sink that fails is told to the log and to nobody else: it must not fail a run that went well, nor keep a flush
    from its add. Not with its text, which is the host's."""
    try:
        await sink.record(event)
    except Exception as error:
        log.warning("%s could not be recorded: %s", event.name, type(error).__name__)
