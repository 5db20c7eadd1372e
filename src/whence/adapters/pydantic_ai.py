"""Hybrid memory as a capability of Pydantic AI: `Agent(model, capabilities=[Remembering(memory)])`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai import AgentRunResult, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, UserContent, UserPromptPart
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import FunctionToolset
from pydantic_core import to_json

from whence.hybrid import HybridMemory, MemoryTool, Run


class Remembering(AbstractCapability[Any]):
    """Memory around every run of an agent. Without `session_id`, the session is the conversation of the run."""

    def __init__(self, memory: HybridMemory, session_id: str | None = None) -> None:
        self._memory = memory
        self._session_id = session_id

    async def for_run(self, ctx: RunContext[Any]) -> "RememberedRun":
        session_id = self._session_id or ctx.conversation_id or ctx.run_id
        assert session_id is not None, "a run has an id"
        return RememberedRun(await self._memory.before_run(session_id, text_of(ctx.prompt)))


class RememberedRun(AbstractCapability[Any]):
    """Memory around a run that has begun. For hosts that look at what was recalled; others take `Remembering`.

    `completes` is false for hosts that call `run.complete` themselves, such as after they kept the answer."""

    def __init__(self, run: Run, *, completes: bool = True) -> None:
        self._run = run
        self._completes = completes

    def get_instructions(self) -> str | None:
        return self._run.system() or None

    def get_toolset(self) -> FunctionToolset[Any]:
        return FunctionToolset([_tool(self._run.tool)])

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Before the history, and in this request only: an agent's own messages do not have it."""
        recalled = [ModelRequest([UserPromptPart(each["content"])]) for each in self._run.recalled.messages]
        return replace(request_context, messages=[*recalled, *request_context.messages])

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        if not self._completes:
            return result
        said = result.output
        await self._run.complete(said if isinstance(said, str) else to_json(said, fallback=str).decode())
        return result


def text_of(prompt: str | Sequence[UserContent] | None) -> str:
    """What a user said in words; of pictures and the like nothing is remembered."""
    parts = [prompt] if isinstance(prompt, str) else prompt or ()
    return "\n".join(part for part in parts if isinstance(part, str))


def _tool(tool: MemoryTool) -> Tool[Any]:
    async def memory(**arguments: Any) -> Mapping[str, Any]:
        return await asyncio.to_thread(tool.call, arguments)

    return Tool.from_schema(memory, tool.name, tool.description, tool.parameters)
