"""Keys of users: in no output, log line or file of any test.

Part of `conftest`, and a module of its own because tests import that one a second time."""

import os
import re
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from whence.hybrid import Secret

MIN_KEY_CHARACTERS = 16
"""Shorter ones are made up by tests of configurations, and are in other texts by chance."""
ISSUED = re.compile(r"uk_[\w-]+\.[0-9a-f]{12}\.[\w-]{43}")
"""A key as a served Whence makes it."""
WRITTEN = (".jsonl", ".log", ".md")
"""What Whence writes itself. Configurations hold a key because a test put it there."""

held: set[str] = set()
"""Every key that the agent's side had in this process."""


def pytest_configure() -> None:
    hold = Secret.__init__

    def noted(secret: Secret, value: str) -> None:
        hold(secret, value)
        if len(value) >= MIN_KEY_CHARACTERS:
            held.add(value)

    Secret.__init__ = noted


def holds_a_key(text: str) -> bool:
    return any(key in text for key in held) or ISSUED.search(text) is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.passed and holds_a_key("\n".join(text for _, text in report.sections)):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} passed, and a user's key is in its output or its log"
    return report


@pytest.fixture(scope="session", autouse=True)
def keys_in_no_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    found = [path for path in written_below(tmp_path_factory.getbasetemp()) if holds_a_key(read(path))]
    assert not found, "a user's key is in these files"


def written_below(folder: Path) -> Iterable[Path]:
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "pgdata"]
        yield from (Path(path, name) for name in names if name.endswith(WRITTEN))


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
