"""Profiles: which memory an agent may have, and by which rules. Profiles are data; nothing here knows one by name."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final, Literal

import msgspec

from whence.errors import FieldError, InvalidInput, SetupError
from whence.memory.sanitise import Category, Rule
from whence.wire import Kind, Tier

Conflict = Literal["accumulate", "validity", "supersede"]

DEFAULT_PROFILE: Final = "gateway"
"""The profile of an agent that neither the settings nor a profile's own name give another."""

_CONFLICTS: Final[dict[Kind, Conflict]] = {
    "episodic": "accumulate",
    "semantic": "validity",
    "procedural": "supersede",
}


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
    episodes: Tier = "persistent"
    """Where the episodes of a run go."""
    sanitise: dict[Category, Rule] = {}

    def conflict_of(self, kind: Kind) -> Conflict:
        return self.conflict.get(kind, _CONFLICTS[kind])


class Profiles:
    """The profiles of an installation, and which agent has which."""

    def __init__(self, own: Mapping[str, Any], agents: Mapping[str, str]) -> None:
        """`own` are the user's, by name; one of them may take the place of one that comes with Whence."""
        built_in = tomllib.loads((resources.files("whence.memory") / "profiles.toml").read_text("utf-8"))
        self._profiles = {name: _read(name, given) for name, given in {**built_in, **own}.items()}
        self._agents = dict(agents)
        for agent, name in agents.items():
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


def check_cell(name: str, profile: Profile, tier: Tier, kind: Kind) -> None:
    """Raises where the profile does not use this cell of the grid."""
    if kind not in profile.cells.get(tier, {}):
        used = [f"{tier}/{kind}" for tier, kinds in profile.cells.items() for kind in kinds]
        message = f"the profile {name} has no {tier}/{kind} memory; it has {', '.join(used)}"
        raise InvalidInput(message, (FieldError("kind", message),))


def _read(name: str, given: Any) -> Profile:
    try:
        return msgspec.convert(given, Profile)
    except msgspec.ValidationError as error:
        raise SetupError(f"setting profiles.{name}: {error}") from None
