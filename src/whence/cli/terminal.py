"""What the commands share: lines for people and scripts, and a bar for what takes long."""

import json
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def print_plain(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_json(value: object) -> None:
    print_plain(harmless(msgspec.json.encode(value).decode()))


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> None:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def shown(text: str) -> str:
    """Ids are anybody's to choose, and a terminal obeys control characters."""
    return "".join(character if character.isprintable() else "·" for character in text)


def harmless(text: str) -> str:
    """The same JSON with what a terminal might obey escaped. Besides line ends, it can only stand in strings."""
    return "".join(
        character if character.isprintable() or character in "\t\r\n" else json.dumps(character)[1:-1]
        for character in text
    )


def to_second(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


@contextmanager
def progress(what: str) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error, where it is out of the way of what a script reads; none where nobody sees it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
