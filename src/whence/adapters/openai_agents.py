"""Hybrid memory around runs of the OpenAI Agents SDK, also streamed ones: a session and hooks as the SDK has them.

remembering = Remembering(memory, "kitchen")
agent = remembering.agent(Agent("helper"))
await Runner.run(
    agent, prompt, session=remembering.session, hooks=remembering.hooks, run_config=remembering.run_config()
)
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import Any, cast

from agents import Agent, FunctionTool, RunConfig, RunHooks, Session, SessionSettings, SQLiteSession, TResponseInputItem
from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData
from agents.run_context import AgentHookContext
from agents.tool_context import ToolContext
from agents.usage import Usage
from pydantic_core import to_json

from whence.errors import InvalidInput
from whence.hybrid import HybridMemory, MemoryTool, Run


class Remembering:
    """Memory around the runs of one conversation, which follow one another; another one needs another object.

    A run needs all three: `hooks` begin it, `run_config` puts what is remembered before the model, and `session` hears
    from the SDK what passed all guardrails, which is when the gateway is told.
    """

    def __init__(self, memory: HybridMemory, session_id: str, history: Session | None = None) -> None:
        """`history` is where the session is kept: any session of the SDK, or else the memory of this process."""
        self._memory = memory
        self._session_id = session_id
        self._begun: Run | None = None
        self._of: Usage | None = None
        self._answer: str | None = None
        self.session: Session = RememberedSession(self, history or SQLiteSession(session_id))
        self.hooks: RunHooks[Any] = RememberedHooks(self)

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """The same with the tool `memory`. Agents that it hands over to get it by `memory_tool`."""
        return agent.clone(tools=[*agent.tools, memory_tool(self._memory.tool)])

    def run_config(self, own: RunConfig | None = None) -> RunConfig:
        config = own or RunConfig()
        return replace(config, call_model_input_filter=self._filter(config.call_model_input_filter))

    async def begin(self, usage: Usage, given: Sequence[TResponseInputItem]) -> None:
        """Once a run, which is known by its usage: agents that it hands over to begin no other."""
        if self._of is usage:
            return
        self._of, self._answer = usage, None
        self._begun = await self._memory.before_run(self._session_id, _prompt(given))

    def answered(self, output: object) -> None:
        """Not yet told: a guardrail may still refuse it."""
        self._answer = output if isinstance(output, str) else to_json(output, fallback=str).decode()

    async def kept(self, items: Sequence[TResponseInputItem]) -> None:
        if self._begun is not None and self._answer is not None and _holds_answer(items, self._answer):
            await self._begun.complete(self._answer)

    def _filter(self, own: CallModelInputFilter | None) -> CallModelInputFilter:
        """What is remembered comes into each call of the model, after the host's own filter has had its say."""

        async def whole(data: CallModelData[Any]) -> ModelInputData:
            filtered = own(data) if own is not None else data.model_data
            given = await filtered if isawaitable(filtered) else filtered
            if self._begun is None:
                raise InvalidInput("a run needs hooks=remembering.hooks as well")
            recalled = [cast("TResponseInputItem", dict(each)) for each in self._begun.recalled.messages]
            return ModelInputData([*recalled, *given.input], self._begun.system(given.instructions or "") or None)

        return whole


class RememberedHooks(RunHooks[Any]):
    def __init__(self, remembering: Remembering) -> None:
        self._remembering = remembering

    async def on_agent_start(self, context: AgentHookContext[Any], agent: Agent[Any]) -> None:
        await self._remembering.begin(context.usage, context.turn_input)

    async def on_agent_end(self, context: AgentHookContext[Any], agent: Agent[Any], output: Any) -> None:
        self._remembering.answered(output)


class RememberedSession:
    """A session that says when something was kept in it. It holds nothing of what was recalled."""

    def __init__(self, remembering: Remembering, history: Session) -> None:
        self._remembering = remembering
        self._history = history
        self.session_id = history.session_id
        self.session_settings: SessionSettings | None = history.session_settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        return await self._history.get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        await self._history.add_items(items)
        await self._remembering.kept(items)

    async def pop_item(self) -> TResponseInputItem | None:
        return await self._history.pop_item()

    async def clear_session(self) -> None:
        await self._history.clear_session()


def memory_tool(tool: MemoryTool) -> FunctionTool:
    """For agents that others hand over to."""

    async def call(_: ToolContext[Any], arguments: str) -> str:
        return json.dumps(await asyncio.to_thread(tool.call, arguments))

    # Not every field is given in every call, which is what strict would want.
    return FunctionTool(tool.name, tool.description, tool.parameters, call, strict_json_schema=False)


def _prompt(given: Sequence[TResponseInputItem]) -> str:
    """What the user said last, in words; of pictures and the like nothing is remembered."""
    asked = [item for item in map(_fields, given) if item.get("role") == "user"]
    said = asked[-1].get("content") if asked else ""
    if isinstance(said, str):
        return said
    parts = [_fields(part) for part in cast("Sequence[Any]", said or ())]
    return "\n".join(str(part["text"]) for part in parts if part.get("type") == "input_text")


def _holds_answer(items: Sequence[TResponseInputItem], answer: str) -> bool:
    """A message of the model, or of a tool that ended the run. One that a guardrail refused is not among them."""
    return any(
        item.get("role") == "assistant" or (item.get("type") == "function_call_output" and item["output"] == answer)
        for item in map(_fields, items)
    )


def _fields(item: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", item)
