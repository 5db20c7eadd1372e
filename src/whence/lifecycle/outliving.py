"""What outlives a session: how it is told, and what keeps it from being told."""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from whence.lifecycle.corroboration import Promotion
from whence.lifecycle.patterns import Routine
from whence.memory.writing import BETWEEN, MAX_SOURCES, MAX_TEXT_CHARACTERS, Draft, body_hash, normal, refused
from whence.wire import Fact, Remember


class Stretch(NamedTuple):
    owner: str
    agent: str
    session_id: str
    number: int


class Said(NamedTuple):
    """What is to outlive its session, as it was told there."""

    memory_id: UUID
    text: str
    subject_id: str
    world: str | None
    subject: str | None
    predicate: str | None
    object: str | None
    confidence: float | None
    importance: float
    run_id: UUID | None
    speaker: str | None
    role: Any
    sanitised: str | None
    conflict_key: str | None
    object_key: str | None
    body_hash: str


def checked(drafted: Draft, stretch: Stretch, said: Said | None) -> Draft:
    """Raises InvalidInput where the profile by now would have a person's memory seen by everybody; and where something
    is taken out of what several say, or was when it was told: nobody can tell then who says the same, and a fact would
    end another that it may repeat."""
    if stretch.owner and drafted.profile.anchor != "user":
        whose = f"memory of the profile {drafted.profile_name} is the workspace's by now, and this is {stretch.owner}'s"
        raise refused("user_id", whose)
    if said is None:
        return drafted
    if drafted.changed:
        fields = ", ".join(sorted(drafted.changed))
        whose = f"the profile {drafted.profile_name} takes out of memory by now"
        raise refused(fields, f"holds what {whose}: {_listed(drafted.sanitised)}")
    if said.sanitised is None:
        return drafted
    taken = msgspec.json.decode(said.sanitised, type=dict[str, int])
    if said.conflict_key is None or drafted.fact is None:
        field, is_whole = "text", said.body_hash == body_hash(drafted)
    else:
        field, is_whole = "fact.object", said.object_key == normal(drafted.fact.object)
    if not is_whole:
        raise refused(field, f"something was taken out of it when it was told: {_listed(taken)}")
    return drafted._replace(sanitised=taken, changed=frozenset({"text"}))


def _listed(categories: Iterable[str]) -> str:
    return ", ".join(category.replace("_", " ") for category in categories)


def procedure(stretch: Stretch, subject: str, routine: Routine) -> Remember:
    return Remember(
        agent=stretch.agent,
        tier="persistent",
        kind="procedural",
        text=_in_words(routine),
        user_id=stretch.owner or None,
        subject_id=_about(stretch, subject),
        key=_key(routine),
    )


def _in_words(routine: Routine) -> str:
    head = f"Done in {routine.support} sessions in this order:"
    steps = [f"\n{number}. {text}" for number, text in enumerate(routine.steps, 1)]
    return "".join([head, *fitted(steps, MAX_TEXT_CHARACTERS - len(head))])


def fitted(parts: list[str], characters: int) -> list[str]:
    """Where they are longer together, the longest are cut, all to the same length."""
    left, most = characters, characters
    for place, length in enumerate(sorted(map(len, parts))):
        most = left // (len(parts) - place)
        if length > most:
            return [part if len(part) <= most else f"{part[: most - 1]}…" for part in parts]
        left -= length
    return parts


def promoted(stretch: Stretch, said: Said, agreed: Promotion) -> Remember:
    fact = None
    if said.subject is not None and said.predicate is not None and said.object is not None:
        fact = Fact(said.subject, said.predicate, said.object, agreed.confidence)
    return Remember(
        agent=stretch.agent,
        tier="persistent",
        kind="semantic",
        text=said.text,
        user_id=stretch.owner or None,
        subject_id=_about(stretch, said.subject_id),
        world_id_context=said.world,
        run_id=said.run_id,
        fact=fact,
        speaker=said.speaker,
        role=said.role,
        importance=said.importance,
        valid_at=agreed.valid_at,
    )


def _key(routine: Routine) -> str:
    return "routine " + hashlib.sha256(BETWEEN.join(routine.labels).encode()).hexdigest()[:16]


def conflict_key(stretch: Stretch, subject: str, routine: Routine) -> str:
    """As `memory.writing` makes it of a key: in no world, about the subject if that is not the owner."""
    return BETWEEN.join((normal(_key(routine)), "", "", _about(stretch, subject) or ""))


def _about(stretch: Stretch, subject: str) -> str | None:
    return subject if subject not in ("", stretch.owner) else None


def pointers(found: Promotion | Routine) -> list[UUID]:
    if isinstance(found, Promotion):
        return list(found.sources[:MAX_SOURCES])
    return [event for occurrence in found.occurrences for event in occurrence][:MAX_SOURCES]


def support(found: Promotion | Routine) -> int | None:
    return found.support if isinstance(found, Routine) else None
