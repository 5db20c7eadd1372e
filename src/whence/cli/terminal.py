"""What the commands share: lines for people and scripts, and a bar for what takes long."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whence.app import App
from whence.errors import NotFound


def print_plain(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def must_exist(app: App, workspace: str) -> None:
    if not await app.identity.workspace_exists(workspace):
        raise NotFound(f"there is no workspace {workspace}")


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error, where it is out of the way of what a script reads; none where nobody sees it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
