"""Events to send, as small as they can be or as a test wants them, and what became of them over HTTP."""

import uuid
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import msgspec

from whence.wire import Event


def sample(**fields: Any) -> dict[str, Any]:
    """An event as JSON values."""
    given: dict[str, Any] = {
        "event_id": str(uuid.uuid4()),
        "event_type": "tool.execute",
        "occurred_at": "2026-01-02T03:04:05Z",
        "session_id": "s1",
        "trace_id": "t1",
    }
    return given | fields


def event(payload: Any = msgspec.UNSET, **fields: Any) -> Event:
    """An event as the ledger takes it."""
    given: dict[str, Any] = {
        "event_id": uuid.uuid4(),
        "event_type": "tool.execute",
        "occurred_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "session_id": "s1",
        "trace_id": "t1",
    }
    if payload is not msgspec.UNSET:
        given["payload"] = msgspec.Raw(msgspec.json.encode(payload))
    return Event(**(given | fields))


def new_id() -> UUID:
    return uuid.uuid4()


def stored(admin: httpx.Client, **query: str) -> list[Any]:
    """Every envelope, in order of position."""
    page = admin.get("/v1/events", params={"limit": 1000, **query}).raise_for_status().json()
    assert page["next"] is None
    return page["events"]


def payload_of(admin: httpx.Client, event: dict[str, Any]) -> Any:
    return admin.get(f"/v1/events/{event['event_id']}/payload").raise_for_status().json()
