"""The worker: what follows from the ledger, or from time passing, is done here, apart from those who append and read.

Any number of workers can run; each transaction takes up the work where it finds it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial

from whence.app import App
from whence.logs import tell_failure

POLL_SECONDS = 0.2
PAUSE_SECONDS = 0.02
RETRY_SECONDS = 1.0
BATCHES_A_TURN = 8
SEAL_POLL_SECONDS = 5.0
MEND_POLL_SECONDS = 10.0
READ_POLL_SECONDS = 10.0


async def work(app: App) -> None:
    """Works until the app stops."""
    # The library that works jobs takes long to import, and most commands do not need it.
    from whence.jobs.run import Runner  # noqa: PLC0415

    runner = Runner(app)
    await asyncio.gather(
        _repeat(app, "projection", partial(project_all, app, Turns("projection")), _until_appended),
        _repeat(app, "sealing", partial(seal_all, app, Turns("sealing")), _until_seals_are_due),
        _repeat(app, "reading", partial(read_all, app, Turns("reading")), _until_files_are_due),
        _repeat(app, "jobs", runner.run, _until_next_try),
        _repeat(app, "mending of jobs", runner.mend, _until_next_mend),
    )


async def _repeat(
    app: App, what: str, act: Callable[[], Awaitable[bool]], idle: Callable[[App], Awaitable[None]]
) -> None:
    """Acts again at once while there was something to do; after a failure, in a while."""
    while not app.stopping.is_set():
        try:
            worked = await act()
        except Exception as error:
            tell_failure(what, error)
            await _pause(app, RETRY_SECONDS)
            continue
        await (_pause(app, PAUSE_SECONDS) if worked else idle(app))


async def _pause(app: App, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(app.stopping.wait(), seconds)


async def _until_seals_are_due(app: App) -> None:
    await _pause(app, SEAL_POLL_SECONDS)


async def _until_files_are_due(app: App) -> None:
    await _pause(app, READ_POLL_SECONDS)


async def _until_next_try(app: App) -> None:
    await _pause(app, RETRY_SECONDS)


async def _until_next_mend(app: App) -> None:
    await _pause(app, MEND_POLL_SECONDS)


async def _until_appended(app: App) -> None:
    """Until something was appended here, or it is time to see what others appended."""
    moved = asyncio.ensure_future(app.ledger.heads.any_moved.wait())
    stopping = asyncio.ensure_future(app.stopping.wait())
    await asyncio.wait({moved, stopping}, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    moved.cancel()
    stopping.cancel()
    app.ledger.heads.any_moved.clear()


class Turns:
    """Whose turn it is. What fails for one workspace is told, and tried again in a while; the others go on."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._again_at: dict[str, float] = {}

    async def each(self, app: App, workspaces: Iterable[str], act: Callable[[str], Awaitable[bool]]) -> bool:
        """Whether anything was done."""
        worked = False
        for workspace_id in workspaces:
            if app.stopping.is_set():
                break
            if self._again_at.get(workspace_id, 0.0) > time.monotonic():
                continue
            self._again_at.pop(workspace_id, None)
            try:
                worked |= await act(workspace_id)
            except Exception as error:
                self._again_at[workspace_id] = time.monotonic() + RETRY_SECONDS
                tell_failure(self._work, error, workspace=workspace_id)
        return worked


async def project_all(app: App, turns: Turns) -> bool:
    """A few batches of each workspace that is behind, so that a large one does not hold up the small ones."""

    async def project(workspace_id: str) -> bool:
        build = await app.projector.live(workspace_id)
        reached: int | None = None
        for turn in range(BATCHES_A_TURN):
            before, reached = reached, await app.projector.step(build)
            if reached is None or reached == before:
                return turn > 0
        return True

    return await turns.each(app, [row[0] for row in await app.projector.behind()], project)


async def seal_all(app: App, turns: Turns) -> bool:
    async def seal(workspace_id: str) -> bool:
        return await app.ledger.seals.seal(workspace_id) is not None

    return await turns.each(app, await app.ledger.seals.due(), seal)


async def read_all(app: App, turns: Turns) -> bool:
    """Documents whose reader has ended before it was done. One that takes long does not hold up the end."""

    async def take_up(workspace_id: str) -> bool:
        reading = asyncio.create_task(app.resources.take_up(workspace_id))
        stopping = asyncio.ensure_future(app.stopping.wait())
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not reading.done():
            reading.cancel()
            await asyncio.wait({reading})
            return False
        return reading.result()

    return await turns.each(app, await app.resources.due(), take_up)
