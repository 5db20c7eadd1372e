"""`whence tail`: the ledger as lines for people, or as JSON lines."""

import sys
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from whence.cli.command import InWorkspace, command
from whence.cli.terminal import shown
from whence.ledger import MAX_PAGE_EVENTS
from whence.wire import StoredEvent

commands = typer.Typer()

STATUS_COLOURS = {"failed": "red", "timeout": "red", "running": "yellow", "pending": "yellow"}


@command(commands, "tail")
async def tail(
    call: InWorkspace,
    after: Annotated[
        int | None, typer.Option(min=0, help="Start past this position instead of at the last few.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="How many of the last events to show first.")
    ] = 20,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on as events come in.")] = True,
) -> None:
    """Show the ledger's last events, and new ones as they are stored."""
    scope = (await call.principal()).scope
    ledger = call.app.ledger
    start = max(0, await ledger.heads.read(call.workspace) - lines) if after is None else after
    console = Console(highlight=False)
    if not follow:
        cursor: int | None = start
        while cursor is not None:
            page = await ledger.page(scope, cursor, MAX_PAGE_EVENTS)
            _print(console, page.events, call.as_json)
            cursor = page.next
        return
    async for events in ledger.follow(scope, start):
        _print(console, events, call.as_json)


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
    line.append(f"{event.event_type:<17}  ", "cyan")
    line.append(f"{shown(event.tool_name or event.agent_id or '-'):<20.20}  ")
    line.append(f"{shown(event.session_id):<20.20}  ")
    line.append(event.status or "-", STATUS_COLOURS.get(event.status or "", "green"))
    return line
