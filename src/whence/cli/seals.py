"""`whence seal` and `whence verify`: for people as lines, for scripts as JSON."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from whence.app import App
from whence.db import Scope
from whence.errors import NotFound
from whence.ledger.verify import Difference, Expected, Progress, Verification
from whence.merkle import HASH_BYTES
from whence.wire import Seal


def expected_root(text: str) -> Expected:
    """SIZE:ROOT, as `whence seal` prints it."""
    size, _, root = text.partition(":")
    if not size.isdecimal() or not 0 < int(size) < 1 << 63:
        raise typer.BadParameter("is not SIZE:ROOT, as `whence seal` prints it")
    try:
        decoded = bytes.fromhex(root)
    except ValueError:
        decoded = b""
    if len(decoded) != HASH_BYTES:
        raise typer.BadParameter(f"the root is not {2 * HASH_BYTES} hexadecimal digits")
    return Expected(int(size), decoded)


async def show_seal(app: App, workspace: str, as_json: bool) -> None:
    await _check_workspace(app, workspace)
    before = await app.ledger.seals.last(Scope(workspace))
    made = await app.ledger.seals.seal(workspace)
    seal = made or await app.ledger.seals.last(Scope(workspace))
    new = seal.size - before.size if made else 0
    if as_json:
        _write(msgspec.json.encode({"size": seal.size, "root": seal.root, "new_events": new}).decode())
    else:
        _write("\n".join(_seal_lines(seal, new)))


def _seal_lines(seal: Seal, new: int) -> list[str]:
    if seal.size == 0:
        return ["there is nothing to seal"]
    said = f"sealed {new:,} new event{'s' * (new != 1)}" if new else "nothing is new since the last seal"
    return [said, f"{seal.size}:{seal.root}", "Keep this line elsewhere: `whence verify --expect` compares with it."]


async def show_verification(app: App, workspace: str, expect: Expected | None, as_json: bool) -> None:
    await _check_workspace(app, workspace)
    with _progress() as advance:
        found = await app.ledger.seals.verify(workspace, advance, expect)
    if as_json:
        _write(msgspec.json.encode({"ok": found.ok, **msgspec.structs.asdict(found)}).decode())
    else:
        _write("\n".join(_verification_lines(found, expect is not None)))
    if not found.ok:
        raise typer.Exit(1)


@contextmanager
def _progress() -> Generator[Progress]:
    """A bar on standard error, where that is a terminal."""
    columns = (TextColumn("verifying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("verifying", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _verification_lines(found: Verification, was_expected: bool) -> list[str]:
    lines = [f"read     {_counted(found.events, 'event')} and {_counted(found.seals, 'seal')}"]
    if found.sealed:
        lines.append(f"sealed   {found.sealed}:{found.root}")
    if found.unsealed:
        lines.append(f"unsealed {_counted(found.unsealed, 'event')} past the last seal: `whence seal`")
    if found.ok:
        also = ", and has the expected root" if was_expected else ""
        return [*lines, f"ok       everything that was sealed is as it was sealed{also}"]
    are = "is not as it was" if found.found == 1 else "are not as they were"
    lines.append(f"DIFFERS  {_counted(found.found, 'place')} {are} sealed:")
    return lines + [f"  {_places(item)}: {item.detail}" for item in found.differences]


def _places(item: Difference) -> str:
    return f"position {item.first}" if item.first == item.last else f"positions {item.first} to {item.last}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


async def _check_workspace(app: App, workspace: str) -> None:
    if not await app.identity.workspace_exists(workspace):
        raise NotFound(f"there is no workspace {workspace}")


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
