"""docs/reference/memory.md says what is so: of the profiles, and of where seed 000 is realised."""

import re
from pathlib import Path
from typing import get_args

import pytest

from whence.memory.profiles import Profiles
from whence.memory.sanitise import Category

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/memory.md").read_text()
PROFILES = Profiles({}, {})
TESTS = {
    name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)\(", file.read_text())
}


def table(heading: str) -> list[dict[str, str]]:
    """The rows below a heading, or the head of a table, by the names of their columns."""
    lines = [line for line in PAGE[PAGE.index(heading) :].splitlines() if line.startswith("|") or not line]
    first = next(number for number, line in enumerate(lines) if line)
    last = next(number for number, line in enumerate([*lines, ""]) if number > first and not line)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:last]]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_profile_is_in_both_tables() -> None:
    for heading in ("| profile | for |", "| profile | outlives its session |"):
        assert sorted(row["profile"].strip("`") for row in table(heading)) == PROFILES.names


@pytest.mark.parametrize("row", table("| profile | for |"), ids=lambda row: row["profile"])
def test_a_profile_has_the_cells_the_anchor_and_the_canon_of_its_row(row: dict[str, str]) -> None:
    profile = PROFILES.named(row["profile"].strip("`"))
    told = {tier: set(kinds) for tier, kinds in profile.cells.items()}
    said = dict[str, set[str]]()
    for part in row["cells"].split(";"):
        tiers, kinds = part.split(":")
        for tier in tiers.split(" and "):
            every = {"episodic", "semantic", "procedural"}
            said[tier.strip()] = every if kinds.strip() == "all kinds" else {kind.strip() for kind in kinds.split(",")}
    assert told == said
    assert (f"the {profile.anchor}", profile.canon) == (row["hangs on"], row["canon"])


@pytest.mark.parametrize("row", table("| profile | outlives its session |"), ids=lambda row: row["profile"])
def test_a_profile_promotes_keeps_and_sanitises_as_its_row_says(row: dict[str, str]) -> None:
    profile = PROFILES.named(row["profile"].strip("`"))
    promoted = [f"{kind}: {how}" for kind, how in profile.promotion.items() if how != "none"]
    assert row["outlives its session"] == "; ".join(promoted)
    kept = [
        f"{kind}: `{profile.retention[kind]}`"
        for kind in ("episodic", "semantic", "procedural")
        if kind in profile.retention
    ]
    assert row["retention class"] == "; ".join(kept)
    for rule, column in (("replace", "replaced"), ("refuse", "refused")):
        found = [name for name, how in profile.sanitise.items() if how == rule]
        assert row[column] == ", ".join(name.replace("_", " ") for name in found)
    assert set(profile.sanitise) == set(get_args(Category))
    assert profile.idle_days == 30
    assert [profile.conflict_of(kind) for kind in ("episodic", "semantic", "procedural")] == [
        "accumulate",
        "validity",
        "supersede",
    ]


def test_where_seed_000_is_realised_is_so() -> None:
    """Each decision, with code and tests that are there."""
    rows = table("| decision | in the code |")
    assert [row["decision"].split()[0] for row in rows] == [f"D{number}" for number in range(1, 13)]
    for row in rows:
        named = re.findall(r"`([^`]+)`", row["in the tests"])
        assert named, row
        for name in named:
            assert name in TESTS or (ROOT / name).is_file(), name
        for name in re.findall(r"`([\w/]+\.(?:py|sql|toml))`", row["in the code"]):
            assert (ROOT / "src/whence" / name).is_file(), name
        for name in re.findall(r"`(?:whence\.)?(\w+)`", row["in the code"]):
            assert is_defined(name), name


def test_where_seed_003_is_realised_is_so() -> None:
    """Every tier, with tests that are there."""
    rows = table("| tier of seed 003 | here |")
    assert sorted({row["tier of seed 003"][0] for row in rows}) == ["1", "2", "3", "4"]
    for row in rows:
        named = re.findall(r"`([^`]+)`", row["in the tests"])
        assert named, row
        for name in named:
            assert (ROOT / name).is_file(), name


def is_defined(name: str) -> bool:
    """As a function, a class, a field, a constant, a table, a column or a profile, and not as a word that is used."""
    files = [
        *(ROOT / "src/whence").rglob("*.py"),
        *(ROOT / "src/whence").rglob("schema.sql"),
        ROOT / "src/whence/memory/profiles.toml",
    ]
    begins = (
        rf"^[ \t]*(?:\[|(?:async )?def |class |CREATE (?:TABLE|FUNCTION) whence\.)?{name}\b(?: text|\(|:| = | \(|\]|\.)"
    )
    return any(re.search(begins, file.read_text(), re.MULTILINE) for file in files)
