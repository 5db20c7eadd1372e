"""Whence: memory for AI agents that knows where it came from."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whence.client import AsyncWhence, Whence

__version__ = "0.1.0"
__all__ = ["AsyncWhence", "Whence", "__version__"]


def __getattr__(name: str) -> object:
    """The clients bring an HTTP library with them, which the server and the command line do without."""
    if name in ("AsyncWhence", "Whence"):
        from whence import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
