"""What an event must be to be stored."""

import re
from datetime import UTC, datetime, timedelta

from msgspec import UNSET

from whence.errors import FieldError
from whence.wire import Event, Measures

MAX_BATCH_EVENTS = 1_000
MAX_PAYLOAD_BYTES = 1 << 20
MAX_PAYLOAD_REF_CHARACTERS = 2_048
MAX_IDENTIFIER_CHARACTERS = 256
MAX_TYPE_CHARACTERS = 128
MAX_CLOCK_SKEW = timedelta(seconds=300)
MAX_SCHEMA_VERSION = 32_767
MAX_FINISH_REASONS = 32
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
# Later times do not fit the nanoseconds of OpenTelemetry, and some of them could be stored but not be read back.
LATEST = datetime(2262, 1, 1, tzinfo=UTC)
MAX_COUNT = (1 << 53) - 1
MAX_POSITION = (1 << 63) - 1

OWN_TYPES = frozenset(
    {
        "conversation.started",
        "conversation.broadcast",
        "conversation.forked",
        "conversation.message_added",
        "conversation.deleted",
        "memory.remembered",
        "memory.forgotten",
        "memory.overridden",
        "memory.flushed",
        "memory.recalled",
        "memory.feedback",
        "memory.items_renewed",
        "memory.run_started",
        "memory.run_ended",
        "memory.rule_set",
        "memory.rule_dropped",
        "memory.workflow_added",
        "memory.workflow_selected",
        "memory.workflow_scored",
        "memory.workflow_retired",
        "resource.added",
        "resource.read",
        "resource.processed",
        "resource.deleted",
        "session.closed",
        "system.action_recorded",
        "system.memory_left_out",
        "system.retention_applied",
        "system.subject_erased",
    }
)
"""Events that Whence writes itself when memory changes. Memory is rebuilt from them, so nobody else may send them."""

_MEASURED_TEXTS = ("operation", "provider", "model", "response_model", "error_type")
_MEASURED_COUNTS = ("input_tokens", "output_tokens", "total_tokens", "cached_input_tokens", "reasoning_tokens")
_TYPE_FORM = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+")


def problems(event: Event, now: datetime) -> list[FieldError]:
    """Everything that is wrong with the event, by field; empty when it can be stored."""
    found: list[FieldError] = []
    if len(event.event_type) > MAX_TYPE_CHARACTERS or _TYPE_FORM.fullmatch(event.event_type) is None:
        found.append(FieldError("event_type", "dotted lower case, such as tool.execute, at most 128 characters"))
    if event.event_type in OWN_TYPES:
        found.append(FieldError("event_type", "is written by Whence itself; use the calls for memory"))
    for field, value in (
        ("session_id", event.session_id),
        ("trace_id", event.trace_id),
        ("agent_id", event.agent_id),
        ("user_id", event.user_id),
        ("subject_id", event.subject_id),
        ("tool_name", event.tool_name),
        ("data_classification", event.data_classification),
    ):
        if value is not None:
            check_text(found, field, value, MAX_IDENTIFIER_CHARACTERS)
    _check_times(found, event, now)
    if event.parent_event_id is not None and event.parent_event_id.int == event.event_id.int:
        found.append(FieldError("parent_event_id", "an event cannot be its own parent"))
    if not 1 <= event.schema_version <= MAX_SCHEMA_VERSION:
        found.append(FieldError("schema_version", f"from 1 to {MAX_SCHEMA_VERSION}"))
    if event.importance_hint is not None and not 1 <= event.importance_hint <= 10:
        found.append(FieldError("importance_hint", "from 1 to 10"))
    if event.payload_ref is not None:
        check_text(found, "payload_ref", event.payload_ref, MAX_PAYLOAD_REF_CHARACTERS)
    if event.payload is not UNSET and memoryview(event.payload).nbytes > MAX_PAYLOAD_BYTES:
        found.append(FieldError("payload", f"at most {MAX_PAYLOAD_BYTES:,} bytes"))
    if event.measures is not None:
        _check_measures(found, event.measures)
    return found


def _check_times(found: list[FieldError], event: Event, now: datetime) -> None:
    for field, moment in (("occurred_at", event.occurred_at), ("ended_at", event.ended_at)):
        if moment is not None and moment.tzinfo is None:
            found.append(FieldError(field, "needs a time zone, such as a final Z"))
            return
        if moment is not None and not EARLIEST <= moment < LATEST:
            found.append(FieldError(field, "from the year 1970 to the year 2261"))
            return
    if event.occurred_at - now > MAX_CLOCK_SKEW:
        found.append(FieldError("occurred_at", "more than 300 seconds in the future"))
    if event.ended_at is not None and event.ended_at < event.occurred_at:
        found.append(FieldError("ended_at", "before occurred_at"))


def check_text(found: list[FieldError], field: str, value: str, limit: int) -> None:
    problem = text_problem(value, limit)
    if problem is not None:
        found.append(FieldError(field, problem))


def text_problem(value: str, limit: int) -> str | None:
    """What keeps a text from being stored."""
    if not 1 <= len(value) <= limit:
        return f"1 to {limit:,} characters"
    if "\x00" in value:
        return "must not contain a NUL character"
    if not value.isascii() and not _is_utf8(value):
        return "is not valid Unicode"
    return None


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_measures(found: list[FieldError], measures: Measures) -> None:
    for name in _MEASURED_TEXTS:
        text: str | None = getattr(measures, name)
        if text is not None:
            check_text(found, f"measures.{name}", text, MAX_IDENTIFIER_CHARACTERS)
    if len(measures.finish_reasons or ()) > MAX_FINISH_REASONS:
        found.append(FieldError("measures.finish_reasons", f"at most {MAX_FINISH_REASONS}"))
    for reason in measures.finish_reasons or ():
        check_text(found, "measures.finish_reasons", reason, MAX_IDENTIFIER_CHARACTERS)
    for name in _MEASURED_COUNTS:
        count: int | None = getattr(measures, name)
        if count is not None and not 0 <= count <= MAX_COUNT:
            found.append(FieldError(f"measures.{name}", "a count from 0 to 2^53 - 1"))
