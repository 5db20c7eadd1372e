"""Whom a recalled text comes from, and whether it reads like an order to the model that will read it."""

import re
from typing import Final

from whence.wire import Flag, Role, StoredMemory

LOOKED_AT = 4_000
"""Characters of a text."""

# Orders to a model, not to a person: they speak of instructions, prompts, roles and tools, or forbid to tell the user.
_ORDERS: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}\b(?:instructions?|prompts?|rules?|guidelines?|above|previous|prior)\b"
    r"|\b(?:system|developer)\s+(?:prompt|message|instructions?)\b"
    r"|\byou\s+are\s+(?:now|no\s+longer)\b"
    r"|\b(?:act|behave|respond|answer)\s+as\s+(?:if|though|an?|the)\b"
    r"|\b(?:do\s+not|don't|never)\s+(?:tell|inform|mention|reveal|show|warn)\b[^.\n]{0,40}\b(?:user|human|operator|anyone)\b"
    r"|\b(?:from\s+now\s+on|new\s+instructions?|important\s+instructions?)\b"
    r"|\b(?:call|invoke|run|execute|use)\s+the\s+[\w.-]{1,60}\s+(?:tool|function|command)\b"
    r"|<\s*/?\s*(?:system|instructions?|assistant|im_start|im_end)\b|\[/?INST\]|<\|[a-z_]{1,30}\|>"
    r"|\bas\s+an?\s+(?:ai|assistant|language\s+model)\b[^.\n]{0,40}\b(?:must|should|will)\b",
    re.IGNORECASE,
)


def trust_of(memory: StoredMemory, tool_name: str | None) -> Role:
    """As it was told; else a tool's where the event that it was derived from was one, else the user's."""
    return memory.role or ("tool" if tool_name else "user")


def flags_of(memory: StoredMemory) -> tuple[Flag, ...]:
    found: list[Flag] = []
    if _ORDERS.search(memory.text, 0, LOOKED_AT):
        found.append("instruction")
    if memory.sanitised:
        found.append("sanitised")
    return tuple(found)
