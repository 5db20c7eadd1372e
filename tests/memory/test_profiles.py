"""Profiles of an installation's own: what makes no sense is told when they are loaded, by profile and field."""

from typing import Any, get_args

import pytest

from whence.errors import SetupError
from whence.memory.profiles import Profiles
from whence.memory.sanitise import Category

CELLS = {"session": {"episodic": "dominant"}, "persistent": {"semantic": "permitted"}}
SOUND: dict[str, Any] = {"cells": CELLS, "episodes": "session"}
FACTS_ONLY: dict[str, Any] = {"cells": {"persistent": {"semantic": "dominant"}}}


@pytest.mark.parametrize(
    "given",
    [
        SOUND,
        FACTS_ONLY,
        {**SOUND, "canon": "primary", "conflict": {"semantic": "accumulate"}, "retention": {"episodic": "a month"}},
        {**SOUND, "promotion": {"semantic": "corroborated"}, "sanitise": {"card": "refuse"}},
    ],
)
def test_a_sound_profile_is_loaded(given: dict[str, Any]) -> None:
    profiles = Profiles({"support": given}, {"helpdesk": "support"})
    assert profiles.of("helpdesk") == ("support", profiles.named("support"))


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({**SOUND, "episodes": "persistent"}, "episodes", "no persistent/episodic cell; there is one in session"),
        ({**SOUND, "episodes": "interaction"}, "episodes", "no interaction/episodic cell; there is one in session"),
        ({**FACTS_ONLY, "episodes": "persistent"}, "episodes", "no persistent/episodic cell"),
        ({**SOUND, "episodes": "forever"}, "episodes", "must be one of interaction, session, persistent"),
        ({**SOUND, "idle_days": 0}, "idle_days", "must be from 1 to 3,650"),
        ({**SOUND, "idle_days": 3_651}, "idle_days", "must be from 1 to 3,650"),
        ({"cells": {}}, "cells", "has no cell"),
        ({"cells": {"session": {}}}, "cells", "has no cell"),
        ({**SOUND, "cells": {**CELLS, "interaction": {}}}, "cells.interaction", "has no kind"),
        ({**SOUND, "cells": {"forever": {}}}, "cells.forever", "must be one of interaction, session, persistent"),
        (
            {**SOUND, "cells": {"session": {"odd": "dominant"}}},
            "cells.session.odd",
            "one of episodic, semantic, procedural",
        ),
        ({"cells": {"session": {"episodic": "yes"}}}, "cells.session.episodic", "must be one of dominant, permitted"),
        ({"cells": {"session": 5}}, "cells", "Expected `object`, got `int`"),
        ({**SOUND, "conflict": {"procedural": "supersede"}}, "conflict.procedural", "no procedural cell"),
        ({**SOUND, "conflict": {"episodic": "supersede"}}, "conflict.episodic", "must be accumulate"),
        ({**SOUND, "promotion": {"procedural": "none"}}, "promotion.procedural", "no procedural cell"),
        ({**SOUND, "conflict": {"semantic": "supersede"}}, "conflict.semantic", "must be validity or accumulate"),
        (
            {"cells": {"persistent": {"procedural": "dominant"}}, "conflict": {"procedural": "validity"}},
            "conflict.procedural",
            "must be supersede or accumulate",
        ),
        ({**SOUND, "promotion": {"semantic": "patterns"}}, "promotion.semantic", "only episodic memory has patterns"),
        ({**SOUND, "promotion": {"episodic": "corroborated"}}, "promotion.episodic", "none is corroborated"),
        ({**SOUND, "promotion": {"episodic": "patterns"}}, "promotion.episodic", "no persistent/procedural cell"),
        (
            {
                "cells": {"session": {"episodic": "dominant"}, "persistent": {"procedural": "dominant"}},
                "promotion": {"episodic": "patterns"},
                "conflict": {"procedural": "accumulate"},
            },
            "promotion.episodic",
            "here procedures accumulate",
        ),
        (
            {"cells": {"session": {"semantic": "dominant"}}, "promotion": {"semantic": "corroborated"}},
            "promotion.semantic",
            "no persistent/semantic cell for what outlives its session",
        ),
        ({**SOUND, "retention": {"procedural": "long"}}, "retention.procedural", "no procedural cell"),
        ({**SOUND, "retention": {"episodic": " "}}, "retention.episodic", "must not be blank"),
        ({"cells": {"session": CELLS["session"]}, "episodes": "session", "canon": "backstop"}, "canon", "no semantic"),
        ({**SOUND, "sanitise": {"mail": "replace"}}, "sanitise.mail", "must be one of trace_dump, private_key"),
        ({**SOUND, "sanitise": {"email": "hide"}}, "sanitise.email", "must be one of replace, refuse, keep"),
    ],
)
def test_what_makes_no_sense_is_told_by_profile_and_field(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(SetupError) as refused:
        Profiles({"support": given}, {})
    assert refused.value.detail.startswith(f"setting profiles.support.{field}: ")
    assert message in refused.value.detail


@pytest.mark.parametrize("tiers", [["session"], ["interaction", "session"], ["persistent", "interaction"]])
def test_episodes_go_to_the_most_durable_tier_that_has_any(tiers: list[str]) -> None:
    cells = {tier: {"episodic": "dominant"} for tier in tiers}
    profile = Profiles({"support": {"cells": {"persistent": {"semantic": "permitted"}, **cells}}}, {}).named("support")
    assert profile.episodes == ("persistent" if "persistent" in tiers else "session")


def test_a_grid_without_episodes_has_no_tier_for_them() -> None:
    profiles = Profiles({"facts": FACTS_ONLY}, {})
    assert profiles.in_force("facts").episodes is profiles.in_force("store").episodes is None
    assert profiles.in_force("operations").episodes == "session"


def test_an_unknown_or_missing_field_is_told_with_its_profile() -> None:
    for given, message in (({**SOUND, "colour": "red"}, "`colour`"), ({"episodes": "session"}, "`cells`")):
        with pytest.raises(SetupError, match=rf"setting profiles\.support: .*{message}"):
            Profiles({"support": given}, {})


def test_everything_that_is_wrong_is_told_at_once() -> None:
    given = {**SOUND, "episodes": "persistent", "conflict": {"episodic": "validity"}}
    with pytest.raises(SetupError) as refused:
        Profiles({"support": given}, {})
    assert [part.split(":")[0] for part in refused.value.detail.split("; setting ")] == [
        "setting profiles.support.episodes",
        "profiles.support.conflict.episodic",
    ]


@pytest.mark.parametrize("name", ["", " ", "x" * 257])
def test_names_that_nothing_could_have_are_refused(name: str) -> None:
    with pytest.raises(SetupError, match="setting profiles: the name"):
        Profiles({name: SOUND}, {})
    with pytest.raises(SetupError, match="setting agents: the name"):
        Profiles({}, {name: "gateway"})
    with pytest.raises(SetupError, match=r"setting agents\.helpdesk: there is no profile lost"):
        Profiles({}, {"helpdesk": "lost"})


@pytest.mark.parametrize("name", Profiles({}, {}).names)
def test_what_is_in_force_says_what_the_profile_leaves_out(name: str) -> None:
    profiles = Profiles({}, {"helper": name})
    found, profile = profiles.in_force("helper"), profiles.named(name)
    assert (found.agent, found.profile, found.anchor, found.episodes) == (
        "helper",
        name,
        profile.anchor,
        profile.episodes,
    )
    assert found.cells == profile.cells
    kinds = {kind for cells in profile.cells.values() for kind in cells}
    assert kinds == set(found.conflict) == set(found.promotion) == set(found.retention)
    assert all(found.conflict[kind] == profile.conflict_of(kind) for kind in kinds)
    assert {**found.sanitise, **profile.sanitise} == found.sanitise
    assert set(found.sanitise) == set(get_args(Category))
