"""Events of Whence's own: how what memory is told becomes an event with its effect."""

import asyncio
from typing import Any
from uuid import UUID

import msgspec

from whence.clock import Clock
from whence.errors import FieldError, WhenceError, refusal_of
from whence.identity import Principal
from whence.ledger import Ledger
from whence.ledger.append import Outcome
from whence.ledger.coalesce import DONE_BEFORE
from whence.ledger.effects import Effect, OwnEvent
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS, MAX_PAYLOAD_BYTES
from whence.memory.profiles import Profiles
from whence.memory.sanitise import sanitise_json
from whence.memory.writing import check_clean, check_name, refused
from whence.wire import Event

_encode = msgspec.json.Encoder(order="sorted").encode


class Own:
    def __init__(self, ledger: Ledger, clock: Clock, profiles: Profiles) -> None:
        self._ledger = ledger
        self._clock = clock
        self._profiles = profiles

    def owner(self, principal: Principal, agent: str) -> str | None:
        """On whom what the agent does hangs: an administrator's own is the workspace's."""
        _, profile = self._profiles.of(agent)
        return profile.owner(principal.scope.user_id)

    async def cleaned(self, agent: str, field: str, sent: str) -> tuple[str, dict[str, int] | None]:
        """Valid JSON without what the agent's profile keeps out of memory, and how often which of it was found."""
        if len(sent.encode()) > MAX_PAYLOAD_BYTES:
            raise refused(field, f"at most {MAX_PAYLOAD_BYTES:,} bytes")
        name, profile = self._profiles.of(agent)
        # Beside the event loop: others should not wait until all of its strings were looked through.
        done = await asyncio.to_thread(sanitise_json, sent, profile.sanitise)
        if done.refused:
            what = ", ".join(category.replace("_", " ") for category in done.refused)
            raise refused(field, f"holds what the profile {name} refuses: {what}")
        return done.text, {**done.found} or None

    def check_clean(self, agent: str, **names: str | None) -> None:
        """Raises where a name holds what the agent's profile keeps out of memory."""
        check_clean(*self._profiles.of(agent), **names)

    def event(
        self,
        principal: Principal,
        event_id: UUID,
        event_type: str,
        agent: str | None,
        session_id: str | None,
        parent: UUID | None = None,
        trace_id: str | None = None,
    ) -> Event:
        return Event(
            event_id=event_id,
            event_type=event_type,
            occurred_at=self._clock(),
            session_id=session_id or f"memory:{agent or 'canon'}",
            trace_id=trace_id or event_id.hex,
            agent_id=agent,
            user_id=principal.scope.user_id,
            parent_event_id=parent,
            status="completed",
        )

    async def record(
        self, principal: Principal, event: Event, document: dict[str, Any], beside: dict[str, Any] | None = None
    ) -> Outcome:
        """Returns after the commit; raises where the event was not stored now."""
        outcome = await self.offer(principal, event, document, beside)
        if outcome.status != "accepted":
            raise not_stored(outcome)
        return outcome

    async def record_once(
        self, principal: Principal, event: Event, document: dict[str, Any], beside: dict[str, Any] | None = None
    ) -> bool:
        """Records it if it changes something by now, and says whether it did: what somebody else has done meanwhile is
        not told again."""
        outcome = await self.offer(principal, event, {**document, "once": True}, beside)
        if outcome.errors == (DONE_BEFORE,):
            return False
        if outcome.status != "accepted":
            raise not_stored(outcome)
        return True

    async def offer(
        self, principal: Principal, event: Event, document: dict[str, Any], beside: dict[str, Any] | None = None
    ) -> Outcome:
        """The same for who wants to know why it was not stored."""
        [outcome] = await self._ledger.record(principal.workspace_id, [own_event(event, document, beside)])
        return outcome


def own_event(
    event: Event, document: dict[str, Any], beside: dict[str, Any] | None = None, is_canonical: bool = False
) -> OwnEvent:
    """`is_canonical`: no part of it was written by somebody else, so that all of it is in order."""
    written = _encode({name: value for name, value in document.items() if value is not None})
    payload = _encode({"memory": msgspec.Raw(written), **(beside or {})})
    return OwnEvent(event, payload, Effect(written, event.event_id), is_canonical)


def not_stored(outcome: Outcome) -> WhenceError:
    return refusal_of(outcome.errors or (FieldError("event", "was stored earlier"),))


def check_names(**names: str | None) -> None:
    for field, value in names.items():
        if value is not None:
            check_name(field, value, MAX_IDENTIFIER_CHARACTERS)


def check_limit(limit: int, most: int, field: str = "limit") -> None:
    """How many a page may have."""
    if not 1 <= limit <= most:
        raise refused(field, f"from 1 to {most}")
