"""Hybrid memory as a middleware of LangChain, whose agents are graphs of LangGraph:
`create_agent(model, middleware=[Remembering(memory)])`. Programs that are not asynchronous have it too."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NotRequired, TypeVar, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.channels import UntrackedValue  # pyright: ignore[reportMissingTypeStubs] (it has its types)
from langgraph.runtime import Runtime

from whence.errors import InvalidInput
from whence.hybrid import HybridMemory, MemoryTool, Run

T = TypeVar("T")


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

    def before_agent(self, state: RememberedState, runtime: Runtime[Any]) -> dict[str, Any]:
        return _waited_for(self.abefore_agent(state, runtime))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(_remembered(request))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(_remembered(request))

    async def aafter_agent(self, state: RememberedState, runtime: Runtime[Any]) -> None:
        if "whence_run" in state:
            await state["whence_run"].complete(_last(state["messages"], AIMessage))

    def after_agent(self, state: RememberedState, runtime: Runtime[Any]) -> None:
        _waited_for(self.aafter_agent(state, runtime))

    def _session(self, runtime: Runtime[Any]) -> str:
        info = runtime.execution_info
        session_id = self._session_id or (info.thread_id if info else None)
        if session_id is None:
            raise InvalidInput("a run needs a thread_id in its configuration, or Remembering a session_id")
        return session_id


def _remembered(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """In this call only: the graph's own messages do not have it."""
    run = cast("RememberedState", request.state)["whence_run"]  # pyright: ignore[reportTypedDictNotRequiredAccess] (set before)
    recalled = [HumanMessage(each["content"]) for each in run.recalled.messages]
    system = run.system(request.system_prompt or "")
    return request.override(
        system_message=SystemMessage(system) if system else None, messages=[*recalled, *request.messages]
    )


def _waited_for(call: Coroutine[Any, Any, T]) -> T:
    """A loop of its own, in a thread of its own: that of the caller may have a loop already, as in a notebook."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, call).result()


def _last(messages: Sequence[AnyMessage], kind: type[HumanMessage | AIMessage]) -> str:
    return next((str(message.text) for message in reversed(messages) if isinstance(message, kind)), "")


def _tool(tool: MemoryTool) -> BaseTool:
    def memory(**arguments: Any) -> str:
        return json.dumps(tool.call(arguments))

    # In an asynchronous graph it is called in a thread.
    return StructuredTool(name=tool.name, description=tool.description, args_schema=tool.parameters, func=memory)
