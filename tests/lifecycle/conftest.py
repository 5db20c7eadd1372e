"""Whence on the tests' database, with a clock that the test moves."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lifecycle_time import Time
from whence.app import App, open_app
from whence.db import embedded
from whence.settings import Settings


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def later(postgres: embedded.EmbeddedServer, data_dir: Path, time: Time) -> AsyncIterator[App]:
    """The app at the time of the test."""
    async with open_app(Settings(data_dir=data_dir), clock=time) as app:
        yield app
