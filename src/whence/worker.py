"""The worker: what follows from the ledger is done here, apart from those who append and read.

Any number of workers can run; each transaction takes up the work where it finds it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from whence.app import App
from whence.errors import WhenceError

log = structlog.get_logger()

POLL_SECONDS = 0.2
PAUSE_SECONDS = 0.02
RETRY_SECONDS = 1.0


async def work(app: App) -> None:
    """Works until the app stops."""
    await asyncio.gather(_repeat(app, "projection", lambda: project_all(app)))


async def _repeat(app: App, what: str, act: Callable[[], Awaitable[bool]]) -> None:
    """Acts again at once while there was something to do; after a failure, in a while."""
    while not app.stopping.is_set():
        try:
            pause = PAUSE_SECONDS if await act() else None
        except Exception as error:
            known = isinstance(error, WhenceError)
            log.error("work failed, and is tried again", work=what, error=str(error), exc_info=None if known else error)
            pause = RETRY_SECONDS
        if pause is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(app.stopping.wait(), pause)
        else:
            await _idle(app)


async def _idle(app: App) -> None:
    """Until something was appended here, or it is time to see what others appended."""
    moved = asyncio.ensure_future(app.ledger.heads.any_moved.wait())
    stopping = asyncio.ensure_future(app.stopping.wait())
    await asyncio.wait({moved, stopping}, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    moved.cancel()
    stopping.cancel()
    app.ledger.heads.any_moved.clear()


async def project_all(app: App) -> bool:
    """One batch of each workspace that is behind, so that a large one does not hold up the small ones."""
    behind = await app.projector.behind()
    failures: list[Exception] = []
    for workspace_id, _, _ in behind:
        if app.stopping.is_set():
            break
        try:
            await app.projector.step(await app.projector.live(workspace_id))
        except Exception as error:
            failures.append(error)
    if failures:
        # One is enough to say what is wrong; the other workspaces have had their turn.
        raise failures[0]
    return bool(behind)
