"""A gateway to LangGraph's checkpoints, in clear and sealed, on the database of the other tests."""

from collections.abc import Callable
from typing import Any

import pytest

from lifecycle.conftest import Time, time, timed
from whence.app import App
from whence.langgraph import CheckpointerGateway
from whence.langgraph.gateway import make_tables

__all__ = ["Time", "time", "timed"]


@pytest.fixture(scope="session")
async def tables(app: App) -> None:
    await make_tables(app.settings)


@pytest.fixture
def gateway(app: App, tables: None) -> Callable[..., CheckpointerGateway]:
    def made(sealed: bool = True, **more: Any) -> CheckpointerGateway:
        return CheckpointerGateway(app.database, app.threads, sealed, **more)

    return made
