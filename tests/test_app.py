"""The wiring: what is reached, held and given back."""

import os
from contextlib import suppress
from pathlib import Path

from whence.app import reach_database
from whence.db.embedded import EmbeddedServer
from whence.settings import Settings


def leases_held(data_dir: Path) -> int:
    held = 0
    for descriptor in os.listdir("/proc/self/fd"):
        # One that was used to list them is gone by now.
        with suppress(FileNotFoundError):
            held += os.readlink(f"/proc/self/fd/{descriptor}") == str(data_dir.resolve() / "lease.lock")
    return held


async def test_whoever_starts_the_database_again_and_again_holds_it_once(
    postgres: EmbeddedServer, data_dir: Path
) -> None:
    before = leases_held(data_dir)
    async with reach_database(Settings(data_dir=data_dir)) as logins:
        assert logins.revive is not None
        for _ in range(3):
            await logins.revive()
        assert leases_held(data_dir) == before + 1
    assert leases_held(data_dir) == before
