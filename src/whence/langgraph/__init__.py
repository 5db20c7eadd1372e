"""LangGraph on Whence: checkpoints that belong to somebody. Needs the extra `langgraph`.

What a name needs is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.langgraph.gateway import CheckpointerGateway

__all__ = ["CheckpointerGateway"]


def __getattr__(name: str) -> Any:
    if name == "CheckpointerGateway":
        from whence.langgraph.gateway import CheckpointerGateway  # noqa: PLC0415

        return CheckpointerGateway
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
