"""Checkpoints that say something in every place where they can."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.base import empty_checkpoint

from whence.langgraph.gateway import Checkpointer, CheckpointerGateway

Gateway = Callable[..., CheckpointerGateway]


def at(thread_id: str, checkpoint_id: str | None = None, ns: str = "") -> Any:
    named = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": named | ({} if checkpoint_id is None else {"checkpoint_id": checkpoint_id})}


async def put(saver: Checkpointer, thread_id: str, said: str, parent: str | None = None, **metadata: Any) -> str:
    """A checkpoint that says it in a value that stands apart, in one that does not, in metadata and in a write."""
    versions = dict.fromkeys(("messages", "name"), uuid4().hex)
    checkpoint = empty_checkpoint() | {"v": 4, "channel_versions": versions}
    checkpoint["channel_values"] = {"messages": [said], "name": said}
    told = {"source": "loop", "step": 1, "parents": {}, "said": said, **metadata}
    stored = await saver.aput(at(thread_id, parent), checkpoint, told, versions)
    await saver.aput_writes(stored, [("messages", [said])], "task-1")
    return stored["configurable"]["checkpoint_id"]


async def said_in(saver: Checkpointer, thread_id: str, checkpoint_id: str | None = None) -> list[Any] | None:
    """What a checkpoint says in each of those places."""
    found = await saver.aget_tuple(at(thread_id, checkpoint_id))
    if found is None:
        return None
    values = found.checkpoint["channel_values"]
    assert found.pending_writes is not None
    return [values["messages"][0], values["name"], found.metadata["said"], *(w[2][0] for w in found.pending_writes)]


async def listed(saver: Checkpointer, *given: Any, **more: Any) -> list[Any]:
    return [each async for each in saver.alist(*given, **more)]
