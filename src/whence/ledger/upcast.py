"""Upcasting: an event that was stored in an older form is read in the newest one. What is stored does not change."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from whence.wire import StoredEvent

Json = object


class Step(NamedTuple):
    """From one version of an event type to the next: what becomes of the envelope, and of the payload."""

    envelope: Callable[[StoredEvent], StoredEvent] = lambda event: event
    payload: Callable[[Json], Json] = lambda payload: payload


Steps = Mapping[tuple[str, int], Step]
"""Keyed by event type and the version that a step starts from."""


def upcast_event(steps: Steps, event: StoredEvent) -> StoredEvent:
    while (step := steps.get((event.event_type, event.schema_version))) is not None:
        event = msgspec.structs.replace(step.envelope(event), schema_version=event.schema_version + 1)
    return event


def upcast_payload(steps: Steps, event_type: str, version: int, payload: bytes) -> bytes:
    if (event_type, version) not in steps:
        return payload
    value = msgspec.json.decode(payload)
    while (step := steps.get((event_type, version))) is not None:
        value, version = step.payload(value), version + 1
    return msgspec.json.encode(value)
