"""Actions: audited acts, such as a rule that was promoted. An action holds what it cites: no timer ends that."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.queries import load
from whence.errors import Conflict, NotFound
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.memory.own import Own, check_limit, check_names, not_stored
from whence.memory.profiles import Profiles
from whence.memory.writing import refused
from whence.wire import Action, ActionPage

MAX_CITES = 100
MAX_KIND_CHARACTERS = 128
MAX_PAGE_ACTIONS = 100

_SQL = load("whence.lifecycle")
_KIND_FORM = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*")


class Actions:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock, profiles: Profiles) -> None:
        self._database = database
        self._ledger = ledger
        self._own = Own(ledger, clock, profiles)

    async def record(
        self, principal: Principal, kind: str, cites: Sequence[UUID], action_id: UUID | None = None
    ) -> Action:
        """Holds events and memories that the caller may see. The same sent again with its id is the one there is."""
        cites = list(dict.fromkeys(cites))
        _check(kind, cites)
        action_id = action_id or new_id()
        if action_id in cites:
            raise refused("cites", "an action cannot cite itself")
        owners = await self._owners(principal.scope, cites)
        document = {
            "effect": "record_action",
            "event_id": action_id,
            "user_id": principal.scope.user_id,
            "kind": kind,
            "cites": [{"id": cited, "user_id": owners[cited]} for cited in cites],
        }
        event = self._own.event(principal, action_id, "system.action_recorded", None, "system:actions", parent=cites[0])
        outcome = await self._own.offer(principal, event, document)
        if outcome.status == "rejected":
            raise not_stored(outcome)
        try:
            action = await self.get(principal.scope, action_id)
        except NotFound:
            raise Conflict("action_id: an event with this id was stored earlier") from None
        if (action.kind, action.cites) != (kind, cites):
            raise Conflict("action_id: an action with this id was recorded earlier, of another kind or citing others")
        return action

    async def get(self, scope: Scope, action_id: UUID) -> Action:
        values = scope.values(action_id=action_id)
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["action_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such action")
        return Action(*row)  # pyright: ignore[reportCallIssue] (a row is Any)

    async def page(
        self,
        scope: Scope,
        kind: str | None = None,
        cites: UUID | None = None,
        before: int | None = None,
        limit: int = MAX_PAGE_ACTIONS,
    ) -> ActionPage:
        """Actions, the newest first: a user's own, or all for an administrator."""
        check_limit(limit, MAX_PAGE_ACTIONS)
        check_names(kind=kind)
        values = scope.values(kind=kind, cites=cites, before=before, limit=limit + 1)
        async with self._database.transaction(scope) as tx:
            rows: list[Any] = await (await tx.execute(_SQL["actions_page"], values, binary=True)).fetchall()
        found = [Action(*row) for row in rows]
        return ActionPage(found[:limit], found[limit - 1].position if len(found) > limit else None)

    async def _owners(self, scope: Scope, cites: Sequence[UUID]) -> dict[UUID, str | None]:
        """Whose each is. What may not be seen and what is not there look the same."""
        await self._ledger.behind.wait(scope.workspace_id, *cites)
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["owners_of_cited"], scope.values(ids=list(cites)))).fetchall()
        owners: dict[UUID, str | None] = dict(rows)
        for cited in cites:
            if cited not in owners:
                raise refused("cites", f"there is no event or memory {cited}")
        return owners


def _check(kind: str, cites: Sequence[UUID]) -> None:
    if len(kind) > MAX_KIND_CHARACTERS or _KIND_FORM.fullmatch(kind) is None:
        raise refused("kind", f"dotted lower case, such as rule.promoted, at most {MAX_KIND_CHARACTERS} characters")
    if not 1 <= len(cites) <= MAX_CITES:
        raise refused("cites", f"from 1 to {MAX_CITES}")
