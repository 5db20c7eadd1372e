"""`whence lineage` and `whence rebuild`: the graph for people."""

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console

from whence.cli import memory
from whence.cli.command import InWorkspace, command
from whence.cli.lineage import print_lineage
from whence.cli.terminal import print_json, progress
from whence.errors import SetupError
from whence.graph.bounds import DEFAULT_NODES, MAX_DEPTH, MAX_NODES, Bounds
from whence.graph.picture import svg
from whence.graph.prov import document
from whence.graph.rebuild import Report, rebuild

commands = typer.Typer()


@command(commands, "lineage")
async def lineage(
    call: InWorkspace,
    event: Annotated[UUID, typer.Argument(metavar="EVENT", help="The id of an event.")],
    down: Annotated[bool, typer.Option("--down", help="What came of it, instead of what caused it.")] = False,
    depth: Annotated[int, typer.Option(min=1, max=MAX_DEPTH, help="At most so many steps away.")] = MAX_DEPTH,
    nodes: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="At most so many events.")] = DEFAULT_NODES,
    graph: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it into an SVG file.")] = None,
    prov: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as W3C PROV-JSON.")] = None,
) -> None:
    """Why did this happen: an event, what caused it, and what caused that."""
    scope = (await call.principal()).scope
    # Where no server is running, nobody else has brought the graph up to date.
    await call.app.projector.catch_up(call.workspace)
    direction = "down" if down else "up"
    atlas = await call.app.graph.lineage(scope, event, direction, Bounds(depth, nodes), content=True)
    if graph is not None:
        _write(graph, svg(atlas).encode())
    if prov is not None:
        _write(prov, document(atlas, call.workspace))
    if call.as_json:
        print_json(atlas)
    else:
        print_lineage(Console(highlight=False), atlas, str(event))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error


@command(commands, "rebuild")
async def run_rebuild(
    call: InWorkspace,
    verify: Annotated[bool, typer.Option("--verify", help="Compare only, and leave what is in use as it is.")] = False,
) -> None:
    """Build the graph and the memory again from the ledger, compare them with those in use, and replace those."""
    await call.principal()
    app = call.app
    remembered = await memory.rebuild_memory(app, call.workspace, verify)
    with progress("graph from the ledger") as advance:
        report = await rebuild(app.database, app.projector, app.clock, call.workspace, verify, advance)
    if call.as_json:
        print_json({**_as_json(report), "memory": memory.as_json(remembered)})
    else:
        console = Console(highlight=False, soft_wrap=True)
        _tell(console, report)
        memory.tell_memory(console, remembered)
    if verify and not (report.equal and remembered.equal):
        raise typer.Exit(1)


def _tell(console: Console, report: Report) -> None:
    rate = report.position / report.seconds if report.seconds else 0
    console.print(f"{report.position:,} events in {report.seconds:.1f} s ({rate:,.0f} events/s)")
    console.print(f"rebuilt  {report.digest}")
    console.print(f"in use   {report.live_digest}")
    for position, reason in report.set_aside:
        console.print(f"set aside: the event on position {position}: {reason}", style="yellow")
    if report.equal:
        console.print("equal" + ("" if not report.swapped else ": the rebuilt graph is in use"), style="green")
    else:
        tables = ", ".join(report.differing)
        rest = "the rebuilt graph is in use now" if report.swapped else "`whence rebuild` without --verify replaces it"
        console.print(f"the graph in use differed in: {tables}; {rest}", style="red")


def _as_json(report: Report) -> dict[str, object]:
    return {
        "workspace_id": report.workspace_id,
        "position": report.position,
        "digest": report.digest,
        "live_digest": report.live_digest,
        "equal": report.equal,
        "differing": list(report.differing),
        "swapped": report.swapped,
        "set_aside": [{"position": position, "reason": reason} for position, reason in report.set_aside],
        "seconds": round(report.seconds, 3),
    }
