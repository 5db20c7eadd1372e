"""`whence remember` and `whence explain`, and the memory's part of `whence rebuild`: memory for people."""

from uuid import UUID

import msgspec
from rich.console import Console

from whence.app import App
from whence.cli.tail import shown
from whence.cli.terminal import must_exist, print_plain, progress
from whence.db import Scope
from whence.identity import ADMIN_USER, Principal
from whence.memory.rebuild import MemoryReport, rebuild
from whence.wire import Explanation, MemorySource, Remember


async def run_remember(app: App, workspace: str, request: Remember, as_json: bool) -> None:
    await must_exist(app, workspace)
    done = await app.memory.remember(Principal(workspace, ADMIN_USER, is_admin=True), request)
    if as_json:
        print_plain(msgspec.json.encode(done).decode())
        return
    console = Console(highlight=False, soft_wrap=True)
    known = "" if done.status == "stored" else " (it was known already)"
    console.print(f"remembered as {done.memory_id}{known}")
    for memory_id in done.superseded:
        console.print(f"in place of   {memory_id}")
    for category, count in (done.sanitised or {}).items():
        console.print(f"taken out: {count} x {category.replace('_', ' ')}", style="yellow")
    for warning in done.warnings:
        console.print(warning, style="yellow")


async def show_explanation(app: App, workspace: str, memory_id: UUID, as_json: bool) -> None:
    await must_exist(app, workspace)
    told = await app.memory.explain(Scope(workspace), memory_id)
    if as_json:
        print_plain(msgspec.json.encode(told).decode())
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
