"""Hybrid memory around a run of the OpenAI Agents SDK: `await run(memory, agent, prompt, session_id=…)`.

Any session of the SDK can be passed on with it. It keeps what was asked and answered, and nothing of what was recalled.
"""

import asyncio
import json
from dataclasses import replace
from inspect import isawaitable
from typing import Any, cast

from agents import Agent, FunctionTool, RunConfig, Runner, RunResult, TResponseInputItem
from agents.run_config import CallModelData, CallModelInputFilter, ModelInputData
from agents.tool_context import ToolContext
from pydantic_core import to_json

from whence.hybrid import HybridMemory, MemoryTool, Run


async def run(
    memory: HybridMemory,
    agent: Agent[Any],
    prompt: str,
    *,
    session_id: str,
    run_config: RunConfig | None = None,
    **options: Any,
) -> RunResult:
    """As `Runner.run`, which gets `options`: `session`, `context`, `hooks`, `max_turns` and the like."""
    begun = await memory.before_run(session_id, prompt)
    config = run_config or RunConfig()
    config = replace(config, call_model_input_filter=_remembering(begun, config.call_model_input_filter))
    with_tool = agent.clone(tools=[*agent.tools, memory_tool(memory.tool)])
    result = await Runner.run(with_tool, prompt, run_config=config, **options)
    said = result.final_output
    await begun.complete(said if isinstance(said, str) else to_json(said, fallback=str).decode())
    return result


def memory_tool(tool: MemoryTool) -> FunctionTool:
    """For agents that others hand over to: `run` gives it to the first one."""

    async def call(_: ToolContext[Any], arguments: str) -> str:
        return json.dumps(await asyncio.to_thread(tool.call, arguments))

    # Not every field is given in every call, which is what strict would want.
    return FunctionTool(tool.name, tool.description, tool.parameters, call, strict_json_schema=False)


def _remembering(begun: Run, own: CallModelInputFilter | None) -> CallModelInputFilter:
    """What is remembered comes into each call of the model, after the host's own filter has had its say."""
    recalled = [cast("TResponseInputItem", dict(each)) for each in begun.recalled.messages]

    async def whole(data: CallModelData[Any]) -> ModelInputData:
        filtered = own(data) if own is not None else data.model_data
        given = await filtered if isawaitable(filtered) else filtered
        return ModelInputData([*recalled, *given.input], begun.system(given.instructions or "") or None)

    return whole
