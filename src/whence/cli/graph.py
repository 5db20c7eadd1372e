"""`whence lineage` and `whence rebuild`: the graph for people."""

import json
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from rich.console import Console

from whence.app import App
from whence.cli import memory
from whence.cli.lineage import print_lineage
from whence.cli.memory import rebuild_memory, tell_memory
from whence.cli.terminal import must_exist, print_plain, progress
from whence.db import Scope
from whence.errors import SetupError
from whence.graph import Bounds
from whence.graph.picture import svg
from whence.graph.prov import document
from whence.graph.rebuild import Report, rebuild


class Output(NamedTuple):
    """Where a lineage goes besides the terminal."""

    graph: Path | None
    prov: Path | None
    as_json: bool


async def show_lineage(
    app: App, workspace: str, event_id: UUID, direction: Literal["up", "down"], bounds: Bounds, output: Output
) -> None:
    await must_exist(app, workspace)
    # Where no server is running, nobody else has brought the graph up to date.
    await app.projector.catch_up(workspace)
    atlas = await app.graph.lineage(Scope(workspace), event_id, direction, bounds, content=True)
    if output.graph is not None:
        _write(output.graph, svg(atlas).encode())
    if output.prov is not None:
        _write(output.prov, document(atlas, workspace))
    if output.as_json:
        print_plain(msgspec.json.encode(atlas).decode())
    else:
        print_lineage(Console(highlight=False), atlas, str(event_id))


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}") from error


async def run_rebuild(app: App, workspace: str, verify: bool, as_json: bool) -> bool:
    """Rebuilds memory and graph with a bar on the terminal; says whether what was in use was equal."""
    await must_exist(app, workspace)
    remembered = await rebuild_memory(app, workspace, verify)
    with progress("graph from the ledger") as advance:
        report = await rebuild(app.database, app.projector, app.clock, workspace, verify, advance)
    if as_json:
        print_plain(json.dumps({**_as_json(report), "memory": memory.as_json(remembered)}))
    else:
        console = Console(highlight=False, soft_wrap=True)
        _tell(console, report)
        tell_memory(console, remembered)
    return report.equal and remembered.equal


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
