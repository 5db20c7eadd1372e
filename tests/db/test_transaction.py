"""Transactions through the pool, for those who leave them early."""

import asyncio
import logging

import pytest

from conftest import Workspace
from whence.app import App
from whence.db import Scope


async def test_who_gives_up_twice_in_the_middle_leaves_no_stuck_connection(
    app: App, workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    """As a program that ends does: once for the task, and once more for all tasks that are left."""
    scope = Scope(workspace.workspace_id)

    async def read() -> None:
        async with app.database.transaction(scope) as tx:
            await tx.execute("SELECT pg_sleep(20)")

    with caplog.at_level(logging.WARNING, "psycopg"):
        for _ in range(3):
            task = asyncio.create_task(read())
            await asyncio.sleep(0.1)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
    assert "rollback" not in caplog.text
    async with app.database.transaction(scope) as tx:
        assert await (await tx.execute("SELECT 1")).fetchone() == (1,)
