"""A Whence whose time the test moves, on the same database as everything else."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import lifecycle_time
from conftest import Workspace
from whence.app import App, open_app
from whence.clock import system_clock
from whence.db import embedded
from whence.memory.rebuild import rebuild
from whence.settings import Settings
from whence.wire import Kind, Remember, Tier


class Time:
    """Starts now and only goes on, so that a worker by the real time finds nothing of it due."""

    def __init__(self) -> None:
        self.now = system_clock()

    def __call__(self) -> datetime:
        return self.now

    def passes(self, **time: float) -> None:
        self.now += timedelta(**time)


@pytest.fixture(scope="session")
def time() -> Time:
    return Time()


@pytest.fixture(scope="session")
async def timed(postgres: embedded.EmbeddedServer, data_dir: Path, time: Time) -> AsyncIterator[App]:
    async with open_app(Settings(data_dir=data_dir), clock=time) as app:
        yield app


@pytest.fixture
def moment() -> lifecycle_time.Time:
    return lifecycle_time.Time()


@pytest.fixture
async def later(postgres: embedded.EmbeddedServer, data_dir: Path, moment: lifecycle_time.Time) -> AsyncIterator[App]:
    """The app at the moment of one test."""
    async with open_app(Settings(data_dir=data_dir), clock=moment) as app:
        yield app


def told(
    text: str, kind: Kind = "episodic", tier: Tier = "persistent", agent: str = "gateway", **more: object
) -> Remember:
    return Remember(agent=agent, tier=tier, kind=kind, text=text, **more)  # type: ignore[arg-type]


async def assert_replay_is_equal(app: App, workspace: Workspace) -> None:
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.differing == ()
    assert report.unreadable == 0
