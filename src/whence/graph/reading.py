"""Reading payloads: what an event's content adds to the graph. Pure, so that it can run beside the event loop."""

from collections.abc import Sequence
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from whence.crypto import SubjectKey
from whence.graph.names import Name, names_in, normalise
from whence.graph.text import Passage, Role, understood
from whence.ledger import Content
from whence.models.embedder import Embedder
from whence.wire import EdgeType

MAX_NAMES_AN_EVENT = 40
MAX_POINTERS = 1_000
MAX_ALIAS_CHARACTERS = 256
SUMMARY_SUFFIX = ".summary"
REMEMBERED_TYPE = "memory.remembered"
ALIAS_TYPE = "entity.alias"
ACTION_TYPE = "system.action_recorded"

SEALED_TYPES = frozenset(("name", "link"))


class Mention(NamedTuple):
    name: Name
    role: Role


class Alias(msgspec.Struct, frozen=True):
    """The payload of an `entity.alias` event: `alias` stands for `name`, from this event on."""

    entity_type: Literal["agent", "tool", "resource", "name", "link"]
    name: str
    alias: str


class Summary(msgspec.Struct, frozen=True):
    """What counts in the payload of a summary."""

    summarizes: list[UUID] = []


class Source(msgspec.Struct, frozen=True):
    """What something that was remembered comes from; not an id where somebody told it."""

    source: str
    role: str


class RememberedFrom(msgspec.Struct, frozen=True):
    sources: list[Source] = []


class MemoryWritten(msgspec.Struct, frozen=True):
    """What counts in the payload of a memory."""

    memory: RememberedFrom


class Cited(msgspec.Struct, frozen=True):
    id: UUID


class Cites(msgspec.Struct, frozen=True):
    cites: list[Cited] = []


class ActionWritten(msgspec.Struct, frozen=True):
    """What counts in the payload of an action."""

    memory: Cites


_alias = msgspec.json.Decoder(Alias)
_summary = msgspec.json.Decoder(Summary)
_written = msgspec.json.Decoder(MemoryWritten)
_action = msgspec.json.Decoder(ActionWritten)


class Pointer(NamedTuple):
    """An edge to an event that the payload names."""

    edge_type: EdgeType
    event_id: UUID


class Reading(NamedTuple):
    content: Content
    mentions: Sequence[Mention]
    pointers: Sequence[Pointer]
    alias: Alias | None
    vector: npt.NDArray[np.int8] | None
    problem: str | None = None

    @property
    def node(self) -> int:
        return self.content.position << 6

    @property
    def owner(self) -> str:
        return self.content.user_id or ""


def read_all(contents: Sequence[Content], embedder: Embedder) -> list[Reading]:
    """What each content says; texts are embedded together, which is many times as fast."""
    readings, texts = list[Reading](), list[str]()
    for content in contents:
        try:
            reading, text = _read(content)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            # One text that we cannot read must not stop those after it.
            reading, text = Reading(content, (), (), None, None, f"cannot be read: {type(error).__name__}"), ""
        readings.append(reading)
        texts.append(text)
    vectors = embedder.embed(texts) if any(texts) else None
    return [
        reading if vectors is None or not vectors[place].any() else reading._replace(vector=vectors[place])
        for place, reading in enumerate(readings)
    ]


def _read(content: Content) -> tuple[Reading, str]:
    """What the content adds to the graph, and the text that it is compared by."""
    if content.body is None:
        return Reading(content, (), (), None, None, content.problem), ""
    if content.event_type == ALIAS_TYPE:
        return _read_alias(content, content.body), ""
    said, text = understood(content.event_type, content.body)
    pointers = _pointers(content.event_type, content.body)
    problem = None if pointers is not None else f"summarizes: a list of at most {MAX_POINTERS:,} event ids"
    return Reading(content, _mentions(said), pointers or (), None, None, problem), text


def _mentions(said: Sequence[Passage]) -> list[Mention]:
    """Each name once, in the role in which it comes first."""
    found: dict[tuple[str, str], Mention] = {}
    for passage in said:
        for name in names_in(passage.text):
            if len(found) < MAX_NAMES_AN_EVENT:
                found.setdefault((name.entity_type, name.normal), Mention(name, passage.role))
    return list(found.values())


def _pointers(event_type: str, body: bytes) -> Sequence[Pointer] | None:
    """What a summary sums up, a memory comes from or an action cites; None where a summary cannot be read."""
    if event_type == REMEMBERED_TYPE:
        sources = _written.decode(body).memory.sources
        return [Pointer("DERIVED_FROM", UUID(source.source)) for source in sources if source.role != "told"]
    if event_type == ACTION_TYPE:
        return [Pointer("DERIVED_FROM", cited.id) for cited in _action.decode(body).memory.cites]
    if not event_type.endswith(SUMMARY_SUFFIX):
        return ()
    try:
        found = _summary.decode(body).summarizes
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (
        [Pointer("SUMMARIZES", event_id) for event_id in dict.fromkeys(found)] if len(found) <= MAX_POINTERS else None
    )


def _read_alias(content: Content, body: bytes) -> Reading:
    """Why it cannot be read is told without the values, which are somebody's content."""
    problem = f"entity_type, name and alias: one of the kinds, and names of 1 to {MAX_ALIAS_CHARACTERS} characters"
    try:
        alias = _alias.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Reading(content, (), (), None, None, problem)
    if not all(_is_name(text) for text in (alias.name, alias.alias)):
        return Reading(content, (), (), None, None, problem)
    return Reading(content, (), (), alias, None)


def _is_name(text: str) -> bool:
    return 0 < len(text.strip()) <= MAX_ALIAS_CHARACTERS and "\x00" not in text and text.isprintable()


def as_name(alias: Alias) -> Name:
    """The name that an alias of a name or link stands for."""
    assert alias.entity_type in ("name", "link")
    return Name(alias.entity_type, alias.name, normalise(alias.name))


def seal_name(workspace_id: str, reading: Reading, name: Name) -> bytes:
    """A name from a payload is content: sealed as its payload is, with the form that it is known by."""
    text = f"{name.normal.replace(_BETWEEN, ' ')}{_BETWEEN}{name.name}"
    return reading.content.key.seal(_place(workspace_id), text.encode(), b"").ciphertext


class OpenName(NamedTuple):
    """How an entity is called, and the form of it that it is known by and that its id has."""

    normal: str
    name: str


def open_name(workspace_id: str, key: SubjectKey, sealed: bytes) -> OpenName:
    normal, _, name = key.open(_place(workspace_id), sealed).decode().partition(_BETWEEN)
    return OpenName(normal, name)


# No name has a control character in it.
_BETWEEN = "\x1f"


def _place(workspace_id: str) -> bytes:
    return b"name in graph of " + workspace_id.encode()
