"""Fixtures: one embedded Postgres for the whole run, one served Whence for all that speaks HTTP, a workspace a test."""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from psycopg import Connection, connect

from commands import Commands
from key_watch import holds_a_key, keys_in_no_file, pytest_configure, pytest_runtest_makereport
from whence.app import App, open_app
from whence.db import embedded
from whence.db.migrate import migrate
from whence.identity import Principal
from whence.settings import Settings

__all__ = ["keys_in_no_file", "pytest_configure", "pytest_runtest_makereport"]

READY_SECONDS = 60

# Who runs the tests in the background of a shell has it ignored, and every process that they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Workspace:
    """A workspace of a test's own, and a client for each kind of user."""

    workspace_id: str
    admin_key: str

    @property
    def admin(self) -> Principal:
        return Principal(self.workspace_id, "admin", is_admin=True)

    def user(self, user_id: str) -> Principal:
        return Principal(self.workspace_id, user_id, is_admin=False)


@dataclass(frozen=True)
class Server:
    """`whence serve` in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    data_dir: Path
    log: Path

    def client(self, key: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30)

    @property
    def admin_key(self) -> str:
        return (self.data_dir / "admin.key").read_text().strip()


@contextmanager
def serving(data_dir: Path, log: Path, *flags: str, **environment: str) -> Iterator[Server]:
    """Starts `whence serve` on a free port and waits until it answers; SIGTERM ends it."""
    command = [sys.executable, "-m", "whence", "serve", "--data-dir", str(data_dir), "--port", "0", *flags]
    with log.open("a") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=clean_environment() | environment
        )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("ready "):
                yield Server(process, line.split()[1], data_dir, log)
                break
        else:
            pytest.fail(f"serve ended before it was ready: {''.join(lines)} {log.read_text()[-2000:]}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("WHENCE_", "OTEL_"))}


def whence(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    done = _commands.run(list(map(str, arguments)), clean_environment() | environment)
    # A key that was just made is told to whoever made it, in what is put out and nowhere else.
    assert not holds_a_key(done.stderr)
    return done


_commands = Commands()
atexit.register(_commands.close)


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whence") / "data"


@pytest.fixture(scope="session")
def postgres(data_dir: Path) -> Iterator[embedded.EmbeddedServer]:
    with embedded.start(data_dir) as server:
        migrate(server.owner_conninfo)
        yield server


@pytest.fixture(scope="session")
async def app(postgres: embedded.EmbeddedServer, data_dir: Path) -> AsyncIterator[App]:
    async with open_app(Settings(data_dir=data_dir)) as app:
        yield app


@pytest.fixture
async def workspace(app: App) -> Workspace:
    workspace_id = f"w-{uuid.uuid4().hex[:12]}"
    return Workspace(workspace_id, await app.identity.add_workspace(workspace_id))


@pytest.fixture
def owner(postgres: embedded.EmbeddedServer) -> Iterator[Connection]:
    """A raw session as the owner of the schema."""
    with connect(postgres.owner_conninfo, autocommit=True) as conn:
        yield conn


@pytest.fixture
def raw_app(postgres: embedded.EmbeddedServer) -> Iterator[Connection]:
    """A raw session as the server's role, without variables."""
    with connect(postgres.app_conninfo, autocommit=True) as conn:
        yield conn


@pytest.fixture(scope="session")
async def server(app: App, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """A served Whence on the same database as `app`: what one writes the other reads."""
    with serving(data_dir, tmp_path_factory.mktemp("log") / "serve.log", "--log-level", "debug") as server:
        # Tests without a server have left work to it, and the first one with a server should not wait for all of that.
        deadline = time.monotonic() + 120
        while await app.projector.behind() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        yield server


@pytest.fixture
def admin(server: Server, workspace: Workspace) -> Iterator[httpx.Client]:
    """An HTTP client with the admin key of the test's own workspace."""
    with server.client(workspace.admin_key) as client:
        yield client
