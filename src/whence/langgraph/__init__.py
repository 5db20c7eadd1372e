"""LangGraph on Whence: checkpoints that belong to somebody, and a store whose items are memories. Needs the extra
`langgraph`.

What a name needs is imported when it is asked for: the store is the agent's side, the checkpoints are the server's.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.langgraph.gateway import CheckpointerGateway
    from whence.langgraph.store import WhenceStore

__all__ = ["CheckpointerGateway", "WhenceStore"]


def __getattr__(name: str) -> Any:
    if name == "CheckpointerGateway":
        from whence.langgraph.gateway import CheckpointerGateway  # noqa: PLC0415

        return CheckpointerGateway
    if name == "WhenceStore":
        from whence.langgraph.store import WhenceStore  # noqa: PLC0415

        return WhenceStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
