"""Whom a recalled text comes from, and what is to be said of it to the model that will read it."""

from whence.wire import Flag, Role, StoredMemory


def trust_of(memory: StoredMemory, tool_name: str | None) -> Role:
    """As it was told; else a tool's where the event that it was derived from was one, else the user's."""
    return memory.role or ("tool" if tool_name else "user")


def flags_of(memory: StoredMemory, orders: bool) -> tuple[Flag, ...]:
    """`orders`: whether its text does, see `whence.orders`."""
    found: list[Flag] = []
    if orders:
        found.append("instruction")
    if memory.sanitised:
        found.append("sanitised")
    return tuple(found)
