"""What the tests of recall share: entries to search, and memories to tell."""

from typing import Any
from uuid import uuid4

from whence.memory import unit_of
from whence.models.embedder import WordLlamaEmbedder
from whence.recall.corpus import Entry
from whence.wire import Remember

_WORDS = WordLlamaEmbedder()


def entry(text: str, position: int, **more: Any) -> Entry:
    given: dict[str, Any] = {
        "memory_id": uuid4(),
        "agent": "gateway",
        "tier": "persistent",
        "kind": "episodic",
        "session_id": None,
        "speaker": None,
        "valid_at": 1_700_000_000.0 + position,
        "importance": 0.5,
        "embedder": _WORDS.name,
        "vector": None,
        "is_turn": "session_id" in more,
    }
    given |= more
    if given["vector"] is None and given["embedder"] == _WORDS.name:
        given["vector"] = unit_of(_WORDS.embed([text])[0])
    return Entry(text=text, position=position, **given)


def told(text: str, **more: Any) -> Remember:
    """Something that was said, which stays."""
    given: dict[str, Any] = {"agent": "gateway", "tier": "persistent", "kind": "episodic"}
    return Remember(text=text, **(given | more))
