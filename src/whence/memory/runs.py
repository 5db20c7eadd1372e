"""Runs of agents, and their episodes: what happened in a run is episodic memory in the tier of the agent's profile."""

from typing import Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec.structs import replace

from whence.clock import Clock
from whence.db import Database, Scope
from whence.db.queries import load
from whence.db.trip import Statement
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.memory import MAX_PAGE_MEMORIES, Memory, memory_of
from whence.memory.own import Own, check_limit, check_names
from whence.memory.writing import owner_of
from whence.wire import Remember, Remembered, Run, StoredMemory

DEFAULT_EPISODES = 10

_SQL: Final = load("whence.memory")
EPISODES: Final = Statement("episodes", _SQL["episodes_of_agent"])


class Runs:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock, memory: Memory) -> None:
        self._database = database
        self._ledger = ledger
        self._memory = memory
        self._profiles = memory.profiles
        self._own = Own(ledger, clock, memory.profiles)

    async def start(
        self,
        principal: Principal,
        agent: str,
        instance: str,
        task_type: str | None = None,
        session_id: str | None = None,
        content: Any = None,
        user_id: str | None = None,
    ) -> Run:
        """`user_id` is for administrators, who run an agent for somebody: the run is that user's, or where the profile
        hangs on the workspace, what is told of it is. `content` is sanitised as memory is."""
        check_names(agent=agent, instance=instance, task_type=task_type, session_id=session_id, user_id=user_id)
        run_id = new_id()
        name, profile = self._profiles.of(agent)
        told_by = owner_of(principal, user_id, name, profile)
        self._own.check_clean(agent, task_type=task_type)
        given, sanitised = await self._content(agent, "input", content)
        document = {
            "effect": "start_run",
            "event_id": run_id,
            "user_id": profile.owner(told_by),
            "agent": agent,
            "instance": instance,
            "task_type": task_type,
            "session_id": session_id,
            "idle_days": profile.idle_days if session_id else None,
            "sanitised": sanitised,
        }
        event = self._own.event(principal, run_id, "memory.run_started", agent, session_id, trace_id=run_id.hex)
        await self._own.record(principal, replace(event, user_id=told_by), document, given)
        return replace(await self.get(principal.scope, run_id), sanitised=sanitised)

    async def add_episode(self, principal: Principal, run_id: UUID, text: str, **more: Any) -> Remembered:
        """What happened in a run, in the tier that the agent's profile gives to episodes."""
        run = await self.get(principal.scope, run_id)
        if run.status != "running" and more.get("memory_id") is None:
            raise Conflict(f"the run is {run.status}")
        _, profile = self._profiles.of(run.agent)
        request = Remember(
            agent=run.agent,
            # Without a tier for them there is no such cell, and it is refused.
            tier=profile.episodes or "persistent",
            kind="episodic",
            text=text,
            run_id=run_id,
            user_id=await self._told_by(principal, run) if principal.is_admin else None,
            session_id=run.session_id or f"run:{run_id}",
            interaction_id=f"run:{run_id}" if profile.episodes == "interaction" else None,
            **more,
        )
        try:
            return await self._memory.remember(principal, request)
        except InvalidInput as error:
            # What is sent again, and was told while the run went on, is answered as it was then.
            if [each.field for each in error.errors] != ["run_id"]:
                raise
            run = await self.get(principal.scope, run_id)
            if run.status == "running":
                raise
            raise Conflict(f"the run is {run.status}") from None

    async def end(
        self, principal: Principal, run_id: UUID, status: Literal["completed", "failed"], content: Any = None
    ) -> Run:
        """The first end counts; ending it again in the same way changes nothing, whatever `content` is then."""
        run = await self.get(principal.scope, run_id)
        await self._check_started_by(principal, run)
        sanitised = None
        if run.status == "running":
            field = "output" if status == "completed" else "error"
            given, sanitised = await self._content(run.agent, field, content)
            document = {
                "effect": "end_run",
                "event_id": (event_id := new_id()),
                "run_id": run_id,
                "status": status,
                "sanitised": sanitised,
            }
            event = self._own.event(
                principal, event_id, "memory.run_ended", run.agent, run.session_id, run_id, trace_id=run_id.hex
            )
            event = replace(event, status=status, user_id=await self._told_by(principal, run))
            if not await self._own.record_once(principal, event, document, given):
                sanitised = None
            run = await self.get(principal.scope, run_id)
        if run.status != status:
            raise Conflict(f"the run is {run.status}")
        return replace(run, sanitised=sanitised)

    async def _check_started_by(self, principal: Principal, run: Run) -> None:
        """A run of the workspace is seen by all, and ended by whose its start is, who alone sees that event."""
        if principal.is_admin or run.user_id is not None:
            return
        try:
            await self._ledger.get(principal.scope, run.run_id)
        except NotFound:
            message = "the run is the workspace's: who started it, for whom it was, or an administrator can end it"
            raise Forbidden(message) from None

    async def _content(self, agent: str, field: str, content: Any) -> tuple[dict[str, Any], dict[str, int] | None]:
        """What a run was given or gave, for its event's payload."""
        text, sanitised = await self._own.cleaned(agent, field, msgspec.json.encode(content).decode())
        return {field: msgspec.Raw(text.encode())}, sanitised

    async def get(self, scope: Scope, run_id: UUID) -> Run:
        async with self._database.transaction(scope) as tx:
            values = scope.values(run_ids=[run_id])
            row = await (await tx.execute(_SQL["runs_by_id"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such run")
        return Run(*row)  # pyright: ignore[reportCallIssue] (a row is Any)

    async def of_agent(self, scope: Scope, agent: str, instance: str | None = None, limit: int = 100) -> list[Run]:
        """The newest first; the first of an instance is its state."""
        check_limit(limit, MAX_PAGE_MEMORIES)
        check_names(agent=agent, instance=instance)
        values = scope.values(agent=agent, instance=instance, before=None, limit=limit)
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["runs_of_agent"], values, binary=True)).fetchall()
        return [Run(*row) for row in rows]  # pyright: ignore[reportCallIssue]

    async def episodes(self, scope: Scope, agent: str, limit: int = DEFAULT_EPISODES) -> list[StoredMemory]:
        """The last ones, as an agent needs them when its turn starts, the newest first."""
        check_limit(limit, MAX_PAGE_MEMORIES)
        check_names(agent=agent)
        async with self._database.transaction(scope) as tx:
            values = scope.values(agent=agent, limit=limit)
            rows = await (await tx.execute(_SQL["episodes_of_agent"], values, binary=True)).fetchall()
        return list(map(memory_of, rows))

    async def _told_by(self, principal: Principal, run: Run) -> str | None:
        """Whose an event of the run is: an administrator tells it for whom the run was started, whosever it is."""
        if not principal.is_admin:
            return principal.user_id
        if run.user_id is not None:
            return run.user_id
        return (await self._ledger.get(principal.scope, run.run_id)).user_id
