"""Hybrid memory as a middleware of LangChain, whose agents are graphs of LangGraph:
`create_agent(model, middleware=[Remembering(memory)])`, called by `ainvoke` or `astream`."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.channels import UntrackedValue  # pyright: ignore[reportMissingTypeStubs] (it has its types)
from langgraph.runtime import Runtime

from whence.errors import InvalidInput
from whence.hybrid import HybridMemory, MemoryTool, Run


class RememberedState(AgentState[Any]):
    # Never in a checkpoint: what was recalled is for one run.
    whence_run: NotRequired[Annotated[Run, UntrackedValue(Run), PrivateStateAttr]]


class Remembering(AgentMiddleware[RememberedState, Any, Any]):
    """Memory around every run of an agent. Without `session_id`, the session is the thread of the run."""

    state_schema = RememberedState

    def __init__(self, memory: HybridMemory, session_id: str | None = None) -> None:
        super().__init__()
        self._memory = memory
        self._session_id = session_id
        self.tools: Sequence[BaseTool] = [_tool(memory.tool)]

    async def abefore_agent(self, state: RememberedState, runtime: Runtime[Any]) -> dict[str, Any]:
        prompt = _last(state["messages"], HumanMessage)
        return {"whence_run": await self._memory.before_run(self._session(runtime), prompt)}

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        run = cast("RememberedState", request.state)["whence_run"]  # pyright: ignore[reportTypedDictNotRequiredAccess] (set before)
        recalled = [HumanMessage(each["content"]) for each in run.recalled.messages]
        system = run.system(request.system_prompt or "")
        return await handler(
            request.override(
                system_message=SystemMessage(system) if system else None, messages=[*recalled, *request.messages]
            )
        )

    async def aafter_agent(self, state: RememberedState, runtime: Runtime[Any]) -> None:
        if "whence_run" in state:
            await state["whence_run"].complete(_last(state["messages"], AIMessage))

    def _session(self, runtime: Runtime[Any]) -> str:
        info = runtime.execution_info
        session_id = self._session_id or (info.thread_id if info else None)
        if session_id is None:
            raise InvalidInput("a run needs a thread_id in its configuration, or Remembering a session_id")
        return session_id


def _last(messages: Sequence[AnyMessage], kind: type[HumanMessage | AIMessage]) -> str:
    return next((str(message.text) for message in reversed(messages) if isinstance(message, kind)), "")


def _tool(tool: MemoryTool) -> BaseTool:
    async def memory(**arguments: Any) -> str:
        return json.dumps(await asyncio.to_thread(tool.call, arguments))

    return StructuredTool(name=tool.name, description=tool.description, args_schema=tool.parameters, coroutine=memory)
