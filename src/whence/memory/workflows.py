"""Workflows: variants of how an agent does a kind of task, tried more often the better they do.

Thompson sampling: each variant's success is Beta(alpha, beta), 1 and 1 before anything is known. A selection draws once
from each and takes the variant with the highest draw, so that one that may be better is still tried, and one that
surely is not is left alone. Which was drawn is in the event of the selection; a replay draws nothing.
"""

import math
from collections.abc import Sequence
from random import Random
from typing import Any
from uuid import UUID, uuid5

import msgspec

from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.queries import load
from whence.db.trip import Statement
from whence.errors import Conflict, Forbidden, NotFound, Unavailable
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.effects import OwnEvent
from whence.memory.own import Own, check_limit, check_names, not_stored, own_event
from whence.memory.profiles import Profiles
from whence.memory.writing import refused
from whence.wire import Workflow, WorkflowOutcome, WorkflowPage, WorkflowSelection

MAX_SPEC_BYTES = 65_536
MAX_VARIANTS = 100
"""In use, of one owner, for one kind of task. The database holds to the same number (see migration 0007)."""
MAX_PAGE_WORKFLOWS = 100
MAX_DRAWS = 10
"""Of one selection; it is drawn again where somebody retires the variant at the same time."""

_SQL = load("whence.memory")
IN_USE = Statement("workflows_in_use", _SQL["workflows_in_use"])


class Workflows:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock, profiles: Profiles, dice: Random) -> None:
        self._database = database
        self._ledger = ledger
        self._own = Own(ledger, clock, profiles)
        self._dice = dice

    async def add(self, principal: Principal, agent: str, task_type: str, name: str, spec: bytes) -> Workflow:
        """Adds a variant; `spec` is a JSON object, sanitised as memory is. The same sent again is the one there is."""
        check_names(agent=agent, task_type=task_type, name=name)
        self._own.check_clean(agent, task_type=task_type, name=name)
        text, sanitised = await self._own.cleaned(agent, "spec", _object_text(spec))
        workflow_id = new_id()
        user_id = self._own.owner(principal, agent)
        document = {
            "effect": "add_workflow",
            "event_id": workflow_id,
            "user_id": user_id,
            "added_by": principal.scope.user_id,
            "agent": agent,
            "task_type": task_type,
            "name": name,
            "spec": text,
            "sanitised": sanitised,
        }
        event = self._own.event(principal, workflow_id, "memory.workflow_added", agent, None)
        outcome = await self._own.offer(principal, event, document)
        if outcome.status == "accepted":
            return msgspec.structs.replace(await self.get(principal.scope, workflow_id), sanitised=sanitised)
        found = await self._in_use(principal.scope, [user_id or ""], agent, task_type)
        same = next((workflow for workflow in found if workflow.name == name), None)
        if same is None:
            raise not_stored(outcome)
        if bytes(same.spec) != text.encode():
            raise Conflict(f"the variant {name} has another spec; retire it first, or give this one another name")
        return msgspec.structs.replace(same, sanitised=sanitised)

    async def select(self, principal: Principal, agent: str, task_type: str) -> WorkflowSelection:
        """Draws a variant of the caller's or of the workspace's. Its outcome is for `record_outcome`."""
        check_names(agent=agent, task_type=task_type)
        owners = sorted({"", principal.scope.user_id or ""})
        for _ in range(MAX_DRAWS):
            found = await self._in_use(principal.scope, owners, agent, task_type)
            if not found:
                raise NotFound(f"there is no workflow of the agent {agent} for the task type {task_type}")
            chosen, draws = self.draw(found)
            selection = WorkflowSelection(new_id(), chosen)
            own = self.selected(principal, selection, found, draws)
            [outcome] = await self._ledger.record(principal.workspace_id, [own])
            if outcome.status == "accepted":
                return selection
            if [error.field for error in outcome.errors] != ["workflow_id"]:
                raise not_stored(outcome)
        raise Unavailable("the workflows change too quickly; try again")

    def draw(self, found: Sequence[Workflow]) -> tuple[Workflow, list[float]]:
        """One of them, and what was drawn for each."""
        draws = drawn([(workflow.alpha, workflow.beta) for workflow in found], self._dice)
        return found[draws.index(max(draws))], draws

    def selected(
        self, principal: Principal, selection: WorkflowSelection, found: Sequence[Workflow], draws: list[float]
    ) -> OwnEvent:
        """The event of a selection."""
        chosen, selection_id = selection.workflow, selection.selection_id
        document = {
            "effect": "select_workflow",
            "event_id": selection_id,
            "workflow_id": chosen.workflow_id,
            "user_id": principal.scope.user_id,
        }
        event = self._own.event(
            principal, selection_id, "memory.workflow_selected", chosen.agent, None, chosen.workflow_id
        )
        return own_event(event, document, {"draws": _told(found, draws)})

    async def record_outcome(self, principal: Principal, selection_id: UUID, score: float) -> WorkflowOutcome:
        """How well the selected variant did, from 0 to 1. Counts once, however often and by however many it is sent."""
        if not (math.isfinite(score) and 0 <= score <= 1):
            raise refused("score", "from 0 to 1")
        # One that is 0 has no sign.
        score = abs(float(score))
        await self._ledger.behind.wait(principal.workspace_id, selection_id)
        done, workflow_id, agent = await self._selection(principal.scope, selection_id)
        if done is None:
            # By its id a selection has one event of this kind at most: the ledger stores no second.
            event_id = uuid5(selection_id, "outcome")
            document = {"effect": "score_workflow", "event_id": event_id, "selection_id": selection_id, "score": score}
            event = self._own.event(
                principal, event_id, "memory.workflow_scored", agent, None, selection_id, trace_id=selection_id.hex
            )
            outcome = await self._own.offer(principal, event, document, {"workflow_id": workflow_id})
            if outcome.status == "rejected":
                raise not_stored(outcome)
            done, _, _ = await self._selection(principal.scope, selection_id)
        if done is None:
            raise Conflict("the id of the outcome's event was used for another event")
        if done.score != score:
            raise Conflict(f"the selection was scored {done.score} before")
        return done

    async def retire(self, principal: Principal, workflow_id: UUID) -> None:
        """It is not selected any more, and stays readable; outcomes of what was selected before still count."""
        workflow = await self.get(principal.scope, workflow_id)
        if workflow.retired_at is not None:
            return
        if workflow.user_id is None and not principal.is_admin and workflow.added_by != principal.user_id:
            raise Forbidden("the workflow is the workspace's: who added it or an administrator can retire it")
        event = self._own.event(principal, new_id(), "memory.workflow_retired", workflow.agent, None, workflow_id)
        await self._own.record_once(principal, event, {"effect": "retire_workflow", "workflow_id": workflow_id})

    async def get(self, scope: Scope, workflow_id: UUID) -> Workflow:
        values = {"workspace_id": scope.workspace_id, "user_id": scope.user_id, "workflow_id": workflow_id}
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["workflow_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such workflow")
        return workflow_of(row)

    async def page(
        self,
        scope: Scope,
        agent: str | None = None,
        task_type: str | None = None,
        before: int | None = None,
        limit: int = MAX_PAGE_WORKFLOWS,
    ) -> WorkflowPage:
        """Variants with what is known of each, retired ones too, the newest first."""
        check_limit(limit, MAX_PAGE_WORKFLOWS)
        check_names(agent=agent, task_type=task_type)
        values = {
            "workspace_id": scope.workspace_id,
            "user_id": scope.user_id,
            "agent": agent,
            "task_type": task_type,
            "before": before,
            "limit": limit + 1,
        }
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["workflows_page"], values, binary=True)).fetchall()
        found = list(map(workflow_of, rows))
        return WorkflowPage(found[:limit], found[limit - 1].position if len(found) > limit else None)

    async def _in_use(self, scope: Scope, owners: list[str], agent: str, task_type: str) -> list[Workflow]:
        """In order of their age, so that the same dice choose the same."""
        values = {"workspace_id": scope.workspace_id, "owners": owners, "agent": agent, "task_type": task_type}
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["workflows_in_use"], values, binary=True)).fetchall()
        return list(map(workflow_of, rows))

    async def _selection(self, scope: Scope, selection_id: UUID) -> tuple[WorkflowOutcome | None, UUID, str | None]:
        """Its outcome, where there is one; its workflow, and the agent of that."""
        values = {"workspace_id": scope.workspace_id, "user_id": scope.user_id, "selection_id": selection_id}
        async with self._database.transaction(scope) as tx:
            row = await (await tx.execute(_SQL["selection_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such selection")
        workflow_id, agent, score, scored_at, event_id = row
        done = None if score is None else WorkflowOutcome(selection_id, workflow_id, score, scored_at, event_id)
        return done, workflow_id, agent


def drawn(known: Sequence[tuple[float, float]], dice: Random) -> list[float]:
    """How well each might do: a draw from Beta(alpha, beta)."""
    return [dice.betavariate(alpha, beta) for alpha, beta in known]


def workflow_of(row: tuple[Any, ...]) -> Workflow:
    *before, spec, alpha, beta, selections, outcomes, created_at, retired_at = row
    known = (alpha, beta, alpha / (alpha + beta), selections, outcomes, created_at, retired_at)
    fields: tuple[Any, ...] = (*before, msgspec.Raw(spec.encode()), *known)
    return Workflow(*fields)  # pyright: ignore[reportCallIssue] (a row is Any)


def _told(found: Sequence[Workflow], draws: list[float]) -> list[dict[str, Any]]:
    """Why this one: what was known of each and what was drawn, for who asks later."""
    return [
        {"workflow_id": workflow.workflow_id, "alpha": workflow.alpha, "beta": workflow.beta, "draw": draw}
        for workflow, draw in zip(found, draws, strict=True)
    ]


def _object_text(spec: bytes) -> str:
    """As it was sent, so that its numbers keep their digits."""
    if len(spec) > MAX_SPEC_BYTES:
        raise refused("spec", f"at most {MAX_SPEC_BYTES:,} bytes")
    try:
        msgspec.json.decode(spec, type=dict[str, Any])
        return spec.decode()
    except RecursionError:
        raise refused("spec", "is nested too deeply") from None
    except msgspec.ValidationError:
        raise refused("spec", "must be a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused("spec", f"is not JSON that can be read: {error}") from None
