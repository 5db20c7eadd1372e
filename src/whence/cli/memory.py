"""`whence remember` and `whence explain`, and the memory's part of `whence rebuild`: memory for people."""

from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from whence.app import App
from whence.cli.command import InWorkspace, command
from whence.cli.terminal import print_json, progress, shown
from whence.memory.profiles import DEFAULT_PROFILE
from whence.memory.rebuild import MemoryReport, rebuild
from whence.wire import Explanation, Kind, MemorySource, Remember, Remembered, Tier

commands = typer.Typer()


@command(commands, "remember")
async def remember(  # noqa: PLR0913, PLR0917 (options of a command)
    call: InWorkspace,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember.")],
    user: Annotated[str | None, typer.Option(help="Whose memory it is.")] = None,
    agent: Annotated[str, typer.Option(help="The agent whose memory it is.")] = DEFAULT_PROFILE,
    tier: Annotated[Tier, typer.Option(help="How long it stays.")] = "persistent",
    kind: Annotated[Kind, typer.Option(help="What it is.")] = "semantic",
    session: Annotated[str | None, typer.Option(help="The session, for that tier.")] = None,
    interaction: Annotated[str | None, typer.Option(help="The thread, for that tier.")] = None,
    world: Annotated[str | None, typer.Option(help="The world whose canon it must not repeat.")] = None,
    key: Annotated[str | None, typer.Option(help="What a procedure is for.")] = None,
) -> None:
    """Remember something."""
    request = Remember(
        agent=agent,
        tier=tier,
        kind=kind,
        text=text,
        user_id=user,
        session_id=session,
        interaction_id=interaction,
        world_id_context=world,
        key=key,
    )
    done = await call.app.memory.remember(await call.principal(), request)
    if call.as_json:
        print_json(done)
    else:
        tell_remembered(done)


def tell_remembered(done: Remembered) -> None:
    console = Console(highlight=False, soft_wrap=True)
    known = "" if done.status == "stored" else " (it was known already)"
    console.print(f"remembered as {done.memory_id}{known}")
    for memory_id in done.superseded:
        console.print(f"in place of   {memory_id}")
    for category, count in (done.sanitised or {}).items():
        console.print(f"taken out: {count} x {category.replace('_', ' ')}", style="yellow")
    for warning in done.warnings:
        console.print(warning, style="yellow")


@command(commands, "explain")
async def explain(
    call: InWorkspace, memory: Annotated[UUID, typer.Argument(metavar="ID", help="The id of a memory.")]
) -> None:
    """Why a memory is believed, since when, and who says so."""
    told = await call.app.memory.explain((await call.principal()).scope, memory)
    if call.as_json:
        print_json(told)
    else:
        _tell(Console(highlight=False, soft_wrap=True), told)


def _tell(console: Console, told: Explanation) -> None:
    memory = told.memory
    console.print(shown(memory.text), style="bold", markup=False)
    console.print(shown(told.summary), markup=False)
    if memory.fact is not None and memory.fact.confidence is not None:
        console.print(f"confidence {memory.fact.confidence:.2f}, importance {memory.importance:.2f}")
    for source in told.sources:
        console.print(shown(f"  from {_source(source)}"), markup=False)
    for replaced in told.superseded:
        console.print(f"  in place of memory {replaced}")
    ended = memory.invalidated_by or memory.superseded_by
    if ended is not None:
        console.print(f"  replaced by memory {ended}", style="yellow")
    for recall in told.recalls[:10]:
        who = recall.user_id or "an administrator"
        console.print(shown(f"  recalled {recall.recalled_at:%Y-%m-%d %H:%M} UTC by {who}"), markup=False)
    if len(told.recalls) > 10:
        console.print(f"  and {len(told.recalls) - 10} recalls before that")


def _source(source: MemorySource) -> str:
    said = f"{source.told_at:%Y-%m-%d %H:%M} UTC"
    if source.role == "told":
        return f"{source.source}, told by {source.said_by} at {said}"
    what = f" ({source.event.event_type}, #{source.event.global_position})" if source.event is not None else ""
    return f"{source.role} {source.source}{what}, told by {source.said_by} at {said}"


async def rebuild_memory(app: App, workspace: str, verify: bool) -> MemoryReport:
    with progress("memory from the ledger") as advance:
        return await rebuild(app.database, app.ledger, app.memory, workspace, verify, advance)


def tell_memory(console: Console, report: MemoryReport) -> None:
    console.print(f"memory: rebuilt {report.digest}")
    console.print(f"        in use  {report.live_digest}")
    if report.unreadable:
        console.print(f"{report.unreadable:,} events of memory cannot be read: their payload is gone", style="yellow")
    if report.equal:
        console.print("equal", style="green")
    else:
        rest = "it was replaced" if report.replaced else "`whence rebuild` without --verify replaces it"
        console.print(f"the memory in use differed in: {', '.join(report.differing)}; {rest}", style="red")


def as_json(report: MemoryReport) -> dict[str, object]:
    return {
        "digest": report.digest,
        "live_digest": report.live_digest,
        "equal": report.equal,
        "differing": list(report.differing),
        "replaced": report.replaced,
        "unreadable": report.unreadable,
        "seconds": round(report.seconds, 3),
    }
