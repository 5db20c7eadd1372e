"""`whence tail`: the ledger as lines for people, or as JSON lines."""

import sys

import msgspec
from rich.console import Console
from rich.text import Text

from whence.app import App
from whence.cli.terminal import must_exist
from whence.db import Scope
from whence.ledger import MAX_PAGE_EVENTS
from whence.wire import StoredEvent

STATUS_COLOURS = {"failed": "red", "timeout": "red", "running": "yellow", "pending": "yellow"}


async def show_tail(app: App, workspace: str, after: int | None, lines: int, follow: bool, as_json: bool) -> None:
    await must_exist(app, workspace)
    scope = Scope(workspace)
    start = max(0, await app.ledger.heads.read(workspace) - lines) if after is None else after
    console = Console(highlight=False)
    if not follow:
        cursor: int | None = start
        while cursor is not None:
            page = await app.ledger.page(scope, cursor, MAX_PAGE_EVENTS)
            _print(console, page.events, as_json)
            cursor = page.next
        return
    async for events in app.ledger.follow(scope, start):
        _print(console, events, as_json)


def _print(console: Console, events: list[StoredEvent], as_json: bool) -> None:
    for event in events:
        if as_json:
            sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
        else:
            console.print(_line(event), soft_wrap=True)
    sys.stdout.flush()


def _line(event: StoredEvent) -> Text:
    """What a person looks for first: where, when, what, by whom, in which conversation, and how it ended."""
    line = Text()
    line.append(f"{event.global_position:>8}  ", "bold")
    line.append(f"{event.occurred_at:%Y-%m-%d %H:%M:%S}  ", "dim")
    line.append(f"{event.event_type:<16}  ", "cyan")
    line.append(f"{shown(event.tool_name or event.agent_id or '-'):<20.20}  ")
    line.append(f"{shown(event.session_id):<20.20}  ")
    line.append(event.status or "-", STATUS_COLOURS.get(event.status or "", "green"))
    return line


def shown(text: str) -> str:
    """Ids are anybody's to choose, and a terminal obeys control characters."""
    return "".join(character if character.isprintable() else "·" for character in text)
