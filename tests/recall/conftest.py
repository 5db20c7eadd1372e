"""Processes beside `app`, whose time a test moves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conftest import Workspace
from lifecycle_time import Time
from whence.app import App, open_app
from whence.clock import system_clock
from whence.db import embedded
from whence.identity import Principal
from whence.settings import Settings


@pytest.fixture
def ann(workspace: Workspace) -> Principal:
    return workspace.user("ann")


@pytest.fixture
def moment() -> Time:
    """From now on, so that what is told by the real clock holds already."""
    return Time(system_clock())


@pytest.fixture
async def later(postgres: embedded.EmbeddedServer, data_dir: Path, moment: Time) -> AsyncIterator[App]:
    """The app at the moment of one test."""
    async with open_app(Settings(data_dir=data_dir), clock=moment) as app:
        yield app


@pytest.fixture
async def beside(postgres: embedded.EmbeddedServer, data_dir: Path, moment: Time) -> AsyncIterator[App]:
    """Yet another process, at the same moment as `later`."""
    async with open_app(Settings(data_dir=data_dir), clock=moment) as app:
        yield app
