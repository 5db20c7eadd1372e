"""The worker: what follows from the ledger is done here, apart from those who append and read.

Any number of workers can run; each transaction takes up the work where it finds it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

import structlog

from whence.app import App
from whence.errors import WhenceError

log = structlog.get_logger()

POLL_SECONDS = 0.2
PAUSE_SECONDS = 0.02
RETRY_SECONDS = 1.0
SEAL_POLL_SECONDS = 5.0


async def work(app: App) -> None:
    """Works until the app stops."""
    await asyncio.gather(
        _repeat(app, "projection", lambda: project_all(app), _until_appended),
        _repeat(app, "sealing", lambda: seal_all(app), _until_seals_are_due),
    )


async def _repeat(
    app: App, what: str, act: Callable[[], Awaitable[bool]], idle: Callable[[App], Awaitable[None]]
) -> None:
    """Acts again at once while there was something to do; after a failure, in a while."""
    while not app.stopping.is_set():
        try:
            worked = await act()
        except Exception as error:
            known = isinstance(error, WhenceError)
            log.error("work failed, and is tried again", work=what, error=str(error), exc_info=None if known else error)
            await _pause(app, RETRY_SECONDS)
            continue
        await (_pause(app, PAUSE_SECONDS) if worked else idle(app))


async def _pause(app: App, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(app.stopping.wait(), seconds)


async def _until_seals_are_due(app: App) -> None:
    await _pause(app, SEAL_POLL_SECONDS)


async def _until_appended(app: App) -> None:
    """Until something was appended here, or it is time to see what others appended."""
    moved = asyncio.ensure_future(app.ledger.heads.any_moved.wait())
    stopping = asyncio.ensure_future(app.stopping.wait())
    await asyncio.wait({moved, stopping}, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    moved.cancel()
    stopping.cancel()
    app.ledger.heads.any_moved.clear()


async def _each(app: App, workspaces: Iterable[str], act: Callable[[str], Awaitable[object]]) -> None:
    """Whatever goes wrong with one workspace, the others have their turn; then it is told."""
    failures: list[Exception] = []
    for workspace_id in workspaces:
        if app.stopping.is_set():
            break
        try:
            await act(workspace_id)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


async def project_all(app: App) -> bool:
    """One batch of each workspace that is behind, so that a large one does not hold up the small ones."""

    async def project(workspace_id: str) -> None:
        await app.projector.step(await app.projector.live(workspace_id))

    behind = [workspace_id for workspace_id, _, _ in await app.projector.behind()]
    await _each(app, behind, project)
    return bool(behind)


async def seal_all(app: App) -> bool:
    due = await app.ledger.seals.due()
    await _each(app, due, app.ledger.seals.seal)
    return bool(due)
