"""Profiles: which memory an agent may have, and by which rules. Profiles are data; nothing here knows one by name."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from whence.errors import FieldError, InvalidInput, SetupError
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS, text_problem
from whence.memory.sanitise import Category, Rule
from whence.wire import AgentProfile, Kind, Tier

Conflict = Literal["accumulate", "validity", "supersede"]

DEFAULT_PROFILE: Final = "gateway"
"""The profile of an agent that neither the settings nor a profile's own name give another."""

DEFAULT_CLASS: Final = "default"
"""Of retention, where a profile does not say."""

_CONFLICTS: Final[dict[Kind, Conflict]] = {
    "episodic": "accumulate",
    "semantic": "validity",
    "procedural": "supersede",
}
MIN_IDLE_DAYS = 1
MAX_IDLE_DAYS = 3_650

_PLACE: Final = re.compile(r"(?P<message>.*?)(?: - at (?:`key` in )?`\$(?P<path>[^`\[]*).*)?", re.DOTALL)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    description: str = ""
    anchor: Literal["user", "workspace"] = "user"
    """On whom rows hang: on the user, who alone sees them, or on the workspace, where everybody does."""
    cells: dict[Tier, dict[Kind, Literal["dominant", "permitted"]]]
    conflict: dict[Kind, Conflict] = msgspec.field(default_factory=lambda: dict(_CONFLICTS))
    promotion: dict[Kind, Literal["none", "patterns", "corroborated"]] = {}
    """What may outlive its session: episodes as patterns, facts that several sources agree on."""
    retention: dict[Kind, str] = {}
    """The class of the retention policy that a row falls under."""
    canon: Literal["none", "primary", "backstop"] = "none"
    """Whether there are rules that memory must not restate, and whether the guard is the first defence or the last."""
    episodes: Tier | None = None
    """Where the episodes of a run go; where a profile does not say, to the most durable tier that has any."""
    idle_days: int = 30
    """After so many days without activity a session ends."""
    sanitise: dict[Category, Rule] = {}

    def conflict_of(self, kind: Kind) -> Conflict:
        return self.conflict.get(kind, _CONFLICTS[kind])

    def owner(self, user_id: str | None) -> str | None:
        """On whom hangs what is told as this user; None stands for the workspace."""
        return user_id if self.anchor == "user" else None


class Profiles:
    """The profiles of an installation, and which agent has which."""

    def __init__(self, own: Mapping[str, Any], agents: Mapping[str, str]) -> None:
        """`own` are the user's, by name; one of them may take the place of one that comes with Whence."""
        built_in = tomllib.loads((resources.files("whence.memory") / "profiles.toml").read_text("utf-8"))
        self._profiles = {name: _read(name, given) for name, given in {**built_in, **own}.items()}
        self._agents = dict(agents)
        for agent, name in agents.items():
            _check_named("agents", agent)
            if name not in self._profiles:
                raise SetupError(f"setting agents.{agent}: there is no profile {name}; known: {', '.join(self.names)}")

    @property
    def names(self) -> list[str]:
        return sorted(self._profiles)

    def named(self, name: str) -> Profile:
        return self._profiles[name]

    def of(self, agent: str) -> tuple[str, Profile]:
        """By the settings; else an agent that is called like a profile has that one."""
        name = self._agents.get(agent) or (agent if agent in self._profiles else DEFAULT_PROFILE)
        return name, self._profiles[name]

    def in_force(self, agent: str) -> AgentProfile:
        """With what is so where the profile does not say."""
        name, profile = self.of(agent)
        kinds: list[Kind] = [kind for kind in _CONFLICTS if any(kind in cells for cells in profile.cells.values())]
        return AgentProfile(
            agent=agent,
            profile=name,
            description=profile.description,
            anchor=profile.anchor,
            cells={tier: dict(profile.cells[tier]) for tier in get_args(Tier) if tier in profile.cells},
            conflict={kind: profile.conflict_of(kind) for kind in kinds},
            promotion={kind: profile.promotion.get(kind, "none") for kind in kinds},
            retention={kind: profile.retention.get(kind, DEFAULT_CLASS) for kind in kinds},
            canon=profile.canon,
            episodes=profile.episodes,
            idle_days=profile.idle_days,
            sanitise={category: profile.sanitise.get(category, "replace") for category in get_args(Category)},
        )


def check_cell(name: str, profile: Profile, tier: Tier, kind: Kind) -> None:
    """Raises where the profile does not use this cell of the grid."""
    if kind not in profile.cells.get(tier, {}):
        used = [f"{tier}/{kind}" for tier, kinds in profile.cells.items() for kind in kinds]
        message = f"the profile {name} has no {tier}/{kind} memory; it has {', '.join(used)}"
        raise InvalidInput(message, (FieldError("kind", message),))


def _read(name: str, given: Any) -> Profile:
    """Raises SetupError that names the profile and its fields: what could never have an effect is a mistake."""
    _check_named("profiles", name)
    try:
        profile = msgspec.convert(given, Profile)
    except msgspec.ValidationError as error:
        raise SetupError(_misfit(name, given, error)) from None
    if profile.episodes is None:
        durable = (tier for tier in reversed(get_args(Tier)) if "episodic" in profile.cells.get(tier, {}))
        profile = msgspec.structs.replace(profile, episodes=next(durable, None))
    wrong = [f"setting profiles.{name}.{field}: {message}" for field, message in _problems(profile, given)]
    if wrong:
        raise SetupError("; ".join(wrong))
    return profile


def _misfit(name: str, given: Mapping[str, Any], error: msgspec.ValidationError) -> str:
    """With the values that would do, where there are a few; msgspec does not say under which name the wrong one is."""
    kinds = get_type_hints(Profile)
    found = [place for field in kinds if field in given for place in _misplaced(field, given[field], kinds[field])]
    if found:
        return "; ".join(f"setting profiles.{name}.{place}: must be one of {', '.join(of)}" for place, of in found)
    parts = _PLACE.fullmatch(str(error))
    assert parts is not None
    return f"setting profiles.{name}{parts['path'] or ''}: {parts['message']}"


def _misplaced(place: str, value: Any, kind: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names and values that are none of those that there are, with these."""
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            yield place, get_args(kind)
    elif get_origin(kind) is dict and isinstance(value, Mapping):
        names, inner = get_args(kind)
        known = get_args(names)
        for name, part in cast("Mapping[str, Any]", value).items():
            yield from (
                ((f"{place}.{name}", known),) if name not in known else _misplaced(f"{place}.{name}", part, inner)
            )


def _check_named(setting: str, name: str) -> None:
    """An agent or a profile by this name could not be written of otherwise."""
    problem = text_problem(name, MAX_IDENTIFIER_CHARACTERS) or ("must not be blank" if not name.strip() else None)
    if problem is not None:
        raise SetupError(f"setting {setting}: the name {name[:MAX_IDENTIFIER_CHARACTERS]!r}: {problem}")


def _problems(profile: Profile, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What may be said of each field by itself, and makes no sense together with the grid."""
    kinds = {kind for cells in profile.cells.values() for kind in cells}
    if not kinds:
        yield "cells", "has no cell: nothing could be remembered"
        return
    for tier, cells in profile.cells.items():
        if not cells:
            yield f"cells.{tier}", "has no kind; leave the tier out"
    if profile.episodes is not None:
        yield from _episode_problems(profile)
    by_kind = {"conflict": given.get("conflict", {}), "promotion": profile.promotion, "retention": profile.retention}
    for field, rules in by_kind.items():
        for kind in sorted(rules.keys() - kinds):
            yield f"{field}.{kind}", f"the grid has no {kind} cell"
    yield from _rule_problems(profile)
    if profile.canon != "none" and "semantic" not in kinds:
        yield "canon", "guards semantic memory, and the grid has no semantic cell"
    if not MIN_IDLE_DAYS <= profile.idle_days <= MAX_IDLE_DAYS:
        yield "idle_days", f"must be from {MIN_IDLE_DAYS} to {MAX_IDLE_DAYS:,}"


def _rule_problems(profile: Profile) -> Iterator[tuple[str, str]]:
    """What no memory of its kind could come under."""
    if profile.conflict_of("episodic") != "accumulate":
        yield "conflict.episodic", "must be accumulate: nothing that happened takes the place of another"
    if profile.conflict_of("semantic") == "supersede":
        yield "conflict.semantic", "must be validity or accumulate: what is so is so from a time on"
    if profile.conflict_of("procedural") == "validity":
        yield "conflict.procedural", "must be supersede or accumulate: how something is done has no time"
    for kind, promotion in profile.promotion.items():
        if promotion == "patterns" and kind != "episodic":
            yield f"promotion.{kind}", "only episodic memory has patterns"
        if promotion == "corroborated" and kind == "episodic":
            yield f"promotion.{kind}", "an episode is told once, so none is corroborated"
        becomes = {"patterns": "procedural", "corroborated": kind}.get(promotion)
        if becomes is not None and becomes not in profile.cells.get("persistent", {}):
            yield f"promotion.{kind}", f"the grid has no persistent/{becomes} cell for what outlives its session"
        if promotion == "patterns" and profile.conflict_of("procedural") == "accumulate":
            yield f"promotion.{kind}", "a pattern takes the place of the one before it, and here procedures accumulate"
    for kind, retention in profile.retention.items():
        if not retention.strip():
            yield f"retention.{kind}", "must not be blank"


def _episode_problems(profile: Profile) -> Iterator[tuple[str, str]]:
    tiers = [tier for tier, cells in profile.cells.items() if "episodic" in cells]
    if profile.episodes not in tiers:
        known = f"; there is one in {', '.join(tiers)}" if tiers else ""
        yield "episodes", f"the grid has no {profile.episodes}/episodic cell{known}"
