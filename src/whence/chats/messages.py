"""From a message of a chat to what is remembered of it: its text, in pieces where it is long, each with its own id.

An id is made of what the message says and of its sender, under the key of the user whose chat it is. So a message that
is sent again has the id that it had, and who holds an envelope after an erasure cannot try out what it said.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from whence.crypto import SubjectKey
from whence.ledger.events import EARLIEST, LATEST, text_problem
from whence.memory.profiles import Profile
from whence.memory.sanitise import sanitise
from whence.memory.writing import MAX_TEXT_CHARACTERS, refused
from whence.wire import Message, Remember

MAX_MESSAGE_CHARACTERS = 200_000
"""Of one message; one that is longer than a memory may be is remembered in pieces."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_encode = msgspec.json.Encoder(order="deterministic").encode


class Said(NamedTuple):
    """A message, read."""

    place: str
    """How its sender would call it: `messages[2]`."""
    message: Message
    text: str
    skipped: tuple[str, ...]
    """The types of parts that are no text."""
    said_at: datetime


def read(messages: Sequence[Message]) -> list[Said]:
    """Raises InvalidInput that names the message and its field."""
    return [_read(f"messages[{number}]", message) for number, message in enumerate(messages)]


def _read(place: str, message: Message) -> Said:
    if isinstance(message.content, str):
        text, skipped = message.content, ()
    else:
        text = "\n".join(part.text for part in message.content if part.type == "text" and part.text)
        skipped = tuple(dict.fromkeys(part.type for part in message.content if part.type != "text"))
    problem = text_problem(text, MAX_MESSAGE_CHARACTERS) if text else None
    if problem is not None:
        raise refused(f"{place}.content", problem)
    try:
        said_at = _EPOCH + timedelta(milliseconds=message.timestamp)
    except OverflowError:
        said_at = LATEST
    if not EARLIEST <= said_at < LATEST:
        raise refused(f"{place}.timestamp", "milliseconds since 1970, up to the year 2261")
    return Said(place, message, text, skipped, said_at)


class Piece(NamedTuple):
    memory_id: UUID
    text: str


class Cut(NamedTuple):
    """What is to be remembered of a message."""

    pieces: list[Piece]
    sanitised: dict[str, int]
    """What was taken out of the whole, which its pieces do not tell."""


def pieces(said: Said, text: str, mark: "Marker", name: str, profile: Profile) -> Cut:
    """`text` is what is to be remembered of it, which may be less than what was said; `name` is that of the profile."""
    found: dict[str, int] = {}
    if len(text) > MAX_TEXT_CHARACTERS:
        # Before it is cut: what must not be remembered could be cut in two, and pass.
        done = sanitise(text, profile.sanitise)
        if done.refused:
            what = ", ".join(category.replace("_", " ") for category in done.refused)
            raise refused(f"{said.place}.content", f"holds what the profile {name} refuses: {what}")
        text, found = done.text, {**done.found}
    cut = [Piece(_id_of(said, mark, number), piece) for number, piece in enumerate(_cut(text)) if piece.strip()]
    return Cut(cut, found)


def piece_ids(said: Said, mark: "Marker") -> list[UUID]:
    """Of as many pieces as a message can have, by which it is known when it is sent again; it has the first."""
    return [_id_of(said, mark, number) for number in range(2 * len(said.text) // MAX_TEXT_CHARACTERS + 1)]


def _id_of(said: Said, mark: "Marker", number: int) -> UUID:
    message = said.message
    return mark.id_of("message", message.sender_id, message.role, message.timestamp, said.text, number)


def _cut(text: str) -> Iterator[str]:
    """At the last break of a paragraph, a line or a word that leaves a piece at least half full."""
    while len(text) > MAX_TEXT_CHARACTERS:
        end = next(
            (
                at + len(sign)
                for sign in ("\n\n", "\n", ". ", " ")
                if (at := text.rfind(sign, MAX_TEXT_CHARACTERS // 2, MAX_TEXT_CHARACTERS - len(sign))) >= 0
            ),
            MAX_TEXT_CHARACTERS,
        )
        yield text[:end]
        text = text[end:]
    yield text


class Marker(NamedTuple):
    """Makes the ids of one chat."""

    key: SubjectKey
    agent: str
    session_id: str

    def id_of(self, *content: object) -> UUID:
        marked = self.key.mark(_encode(("gateway", self.agent, self.session_id, *content)).decode())
        # Like one that is made of a name: what it is made of is nobody's to find out.
        return UUID(bytes=bytes.fromhex(marked)[:16], version=5)


def remembered(
    said: Said, piece: Piece, agent: str, session_id: str, now: datetime, sources: tuple[UUID, ...]
) -> Remember:
    return Remember(
        agent=agent,
        tier="persistent",
        kind="episodic",
        text=piece.text,
        speaker=said.message.sender_id,
        role=said.message.role,
        session_id=session_id,
        # By a clock that is ahead of ours it would not be so yet, and could not be found.
        valid_at=min(said.said_at, now),
        derived_from=sources,
        memory_id=piece.memory_id,
    )
