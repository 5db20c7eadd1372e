"""Policies: how long what is kept, and what becomes of it then. Policies are data, by entity and content class."""

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Annotated, Any, Final, get_args

import msgspec

from whence.errors import SetupError
from whence.memory.profiles import DEFAULT_CLASS, Profiles
from whence.wire import Disposal, Entity, Kind, MemoryEntity, Timer

MAX_DAYS = 36_500
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

Days = Annotated[int, msgspec.Meta(ge=0, le=MAX_DAYS)]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    active_days: Days = 365
    grace_days: Days = 30
    """Between the tombstone and the disposal."""
    disposal: Disposal = "HARD_DELETE"
    timer: Timer = "recorded_at"
    """What the active days are counted from; `none` for what no timer ends."""


class Rule(msgspec.Struct, frozen=True):
    """The policy for memories of a profile, an entity and a kind; the profile of the empty name is any unknown one."""

    profile: str
    entity: MemoryEntity
    kind: Kind
    content_class: str
    policy: Policy


class Policies:
    def __init__(self, own: Mapping[str, Any]) -> None:
        """`own` are the user's, by entity and class; what one of them leaves out is as in the policy it changes."""
        text = (resources.files("whence.lifecycle") / "policies.toml").read_text("utf-8")
        built_in: dict[str, dict[str, Any]] = tomllib.loads(text)
        self._own = {(entity, name) for entity, classes in own.items() for name in classes}
        self._policies = {
            (entity, name): _read(entity, name, built_in[entity].get(name, built_in[entity][DEFAULT_CLASS]), given)
            for entity, classes in _joined(built_in, own).items()
            for name, given in classes.items()
        }

    def check(self, profiles: Profiles) -> None:
        """Raises SetupError where profiles and policies miss each other: a class may have any name that both know."""
        named: dict[str, set[str]] = {entity: {DEFAULT_CLASS} for entity in get_args(Entity)}
        for profile in profiles.names:
            cells = profiles.named(profile).cells
            for kind, name in profiles.named(profile).retention.items():
                tiers = {tier for tier, kinds in cells.items() if kind in kinds}
                persists = "persistent" in tiers
                if persists:
                    named["memory"].add(name)
                if tiers - {"persistent"}:
                    named["scoped_memory"].add(name)
                # That of sessions may have no policy of its own; what persists would be lost by another's.
                entities = ("memory",) if persists else get_args(MemoryEntity)
                known = {name for entity, name in self._policies if entity in entities}
                if name not in known:
                    where = f"setting profiles.{profile}.retention.{kind}"
                    raise SetupError(f"{where}: there is no policy for the class {name}; known: {_listed(known)}")
        for entity, name in sorted(self._own):
            if name not in named[entity]:
                where, meant = f"setting retention.{entity}.{name}", _listed(named[entity])
                raise SetupError(f"{where}: nothing is of this class; classes that something is of: {meant}")

    def of(self, entity: Entity, content_class: str) -> Policy:
        """Of the class, else of what has none of its own."""
        return self._policies.get((entity, content_class)) or self._policies[entity, DEFAULT_CLASS]

    def rules(self, profiles: Profiles) -> list[Rule]:
        """What holds for each kind of memory there can be."""
        return [
            Rule(profile, entity, kind, content_class, self.of(entity, content_class))
            for profile in ("", *profiles.names)
            for entity in get_args(MemoryEntity)
            for kind in KINDS
            for content_class in [class_of(profiles, profile, kind)]
        ]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def class_of(profiles: Profiles, profile: str, kind: Kind) -> str:
    """A profile that is not there any more says nothing."""
    if profile not in profiles.names:
        return DEFAULT_CLASS
    return profiles.named(profile).retention.get(kind, DEFAULT_CLASS)


def _joined(built_in: dict[str, dict[str, Any]], own: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    for entity, classes in own.items():
        if entity not in built_in:
            raise SetupError(f"setting retention.{entity}: there is no such entity; known: {', '.join(built_in)}")
        if not isinstance(classes, Mapping):
            raise SetupError(f"setting retention.{entity}: a table of policies by class")
    return {entity: {**{name: {} for name in classes}, **own.get(entity, {})} for entity, classes in built_in.items()}


def _read(entity: str, name: str, base: Mapping[str, Any], given: Any) -> Policy:
    """Raises SetupError that names the policy: what must not be done to an entity is refused before anything starts."""
    where = f"setting retention.{entity}.{name}"
    if not isinstance(given, Mapping):
        raise SetupError(f"{where}: a table with active_days, grace_days, disposal, timer")
    try:
        policy = msgspec.convert({**base, **given}, Policy)
    except msgspec.ValidationError as error:
        raise SetupError(f"{where}: {error}") from None
    if entity == "memory" and policy.disposal == "HARD_DELETE":
        raise SetupError(f"{where}.disposal: persistent memory is never hard-deleted; the most is STRIP_PAYLOAD")
    if entity == "conversation":
        _check_conversation(where, policy)
    elif policy.timer == "active_at":
        raise SetupError(f"{where}.timer: active_at counts from the last message of a conversation; this is none")
    if entity == "scoped_memory" and policy.timer not in ("archived_at", "none"):
        raise SetupError(
            f"{where}.timer: memory of sessions and threads ends with them; archived_at counts from then on"
        )
    if entity == "memory" and policy.timer == "archived_at":
        raise SetupError(f"{where}.timer: persistent memory is not archived; only that of sessions and threads is")
    return policy


def _check_conversation(where: str, policy: Policy) -> None:
    if policy.disposal != "HARD_DELETE":
        raise SetupError(
            f"{where}.disposal: must be HARD_DELETE; nothing of a conversation is worth keeping without text"
        )
    if policy.timer not in ("active_at", "none"):
        raise SetupError(f"{where}.timer: active_at, which counts from the last message, or none")
