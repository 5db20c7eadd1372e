"""What the commands share: lines for people and scripts, and a bar for what takes long."""

import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

_ID_CELLS = 36


class Pair(NamedTuple):
    id: str
    text: str
    beneath_id: str
    beneath_text: str


def print_plain(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def print_json(value: object) -> None:
    print_plain(harmless(msgspec.json.encode(value).decode()))


def print_table(columns: Iterable[str | Column], rows: Iterable[Iterable[str]]) -> None:
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False).print(table)


def print_pairs(columns: tuple[str, str], rows: Iterable[Pair]) -> None:
    """Ids and texts, each with a line beneath it."""
    console = Console(highlight=False, markup=False)
    # Rich cuts a column off without a sign where the table is too wide, and puts one where the column is.
    rest = max(console.width - _ID_CELLS - 2, 20)
    texts = Column(columns[1], no_wrap=True, overflow="ellipsis", max_width=rest)
    table = Table(id_column(columns[0]), texts, box=None, pad_edge=False, header_style="bold")
    for pair in rows:
        table.add_row(shown(pair.id), shown(pair.text))
        table.add_row(shown(pair.beneath_id), shown(pair.beneath_text), style="dim")
    console.print(table)


def id_column(heading: str) -> Column:
    """Exactly as wide as an id, which is there to be copied."""
    return Column(heading, no_wrap=True, overflow="ellipsis", min_width=_ID_CELLS, max_width=_ID_CELLS)


def print_fields(*fields: tuple[str, object]) -> None:
    """What there is, by name; what there is not is left out."""
    for name, value in fields:
        if value is not None:
            print_plain(f"{name:<12} {shown(str(value))}")


def print_taken_out(sanitised: Mapping[str, int] | None) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for category, count in (sanitised or {}).items():
        console.print(f"taken out: {count} x {category.replace('_', ' ')}", style="yellow")


def shown(text: str) -> str:
    """Ids are anybody's to choose, and a terminal obeys control characters."""
    return "".join(character if character.isprintable() else "·" for character in text)


def shown_lines(text: str) -> str:
    """The same of a text that may have several lines."""
    return "".join(character if character.isprintable() or character in "\t\n" else "·" for character in text)


def cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def harmless(text: str) -> str:
    """The same JSON with what a terminal might obey escaped. Besides line ends, it can only stand in strings."""
    return "".join(
        character if character.isprintable() or character in "\t\r\n" else json.dumps(character)[1:-1]
        for character in text
    )


def to_minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


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
