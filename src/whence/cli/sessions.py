"""`whence session`: stretches of work that are open or closed, for people and scripts."""

from typing import Annotated, Literal

import typer
from rich.table import Column

from whence.cli.command import AsUser, Before, command
from whence.cli.terminal import print_json, print_plain, print_table, shown, to_minute
from whence.lifecycle.sessions import MAX_PAGE_SESSIONS
from whence.wire import SessionClosed, SessionReport

sessions = typer.Typer(no_args_is_help=True, help="Sessions: what is open, and what closing one has kept.")

SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="The session.")]


@command(sessions, "list")
async def list_sessions(
    call: AsUser,
    state: Annotated[Literal["open", "closed"] | None, typer.Option(help="Only those.")] = None,
    before: Before = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MAX_PAGE_SESSIONS, help="At most so many.")] = 50,
) -> None:
    """Sessions, the newest first."""
    found = await call.app.sessions.page((await call.principal()).scope, state, before, limit)
    if call.as_json:
        print_json(found)
        return
    if found.sessions:
        rows = (
            (
                shown(one.session_id),
                shown(one.agent),
                shown(one.user_id or ""),
                to_minute(one.last_activity_at),
                to_minute(one.closed_at) if one.closed_at else "open" if one.ended_at is None else "over",
            )
            for one in found.sessions
        )
        # An id is there to be copied: it goes on in the next line and is not cut.
        names = [Column(heading, overflow="fold") for heading in ("session", "agent", "user")]
        print_table((*names, *(Column(heading, no_wrap=True) for heading in ("last active", "closed"))), rows)
    else:
        print_plain("there are no sessions")
    if found.next is not None:
        print_plain(f"more: --before {found.next}")


@command(sessions, "close")
async def close(
    call: AsUser,
    session: SessionName,
    agent: Annotated[str | None, typer.Option(help="Only the session with this agent.")] = None,
) -> None:
    """Close a session: what was learnt is kept, its episodes are archived, the rest goes."""
    reports = await call.app.sessions.close(await call.principal(), session, agent)
    if call.as_json:
        print_json(SessionClosed(session, reports))
        return
    for report in reports:
        _tell(report)


def _tell(report: SessionReport) -> None:
    whose = f" of {report.user_id}" if report.user_id else ""
    print_plain(shown(f"{report.session_id} with {report.agent}{whose}, closed {to_minute(report.closed_at)}"))
    counts = ", ".join(f"{count:,} {fate}" for fate, count in sorted(report.counts.items()))
    print_plain(f"  {counts or 'nothing was in it'}")
    for routine in report.routines:
        learnt = f"learnt from {routine.support} sessions, {routine.memory_id}"
        if routine.memory_id is None:
            learnt = f"seen in {routine.support} sessions and not kept: {routine.refused}"
        print_plain(shown(f"  {learnt}:"))
        for number, step in enumerate(routine.steps, 1):
            print_plain(shown(f"    {number}. {step}"))
    for row in report.rows:
        if row.became is not None:
            print_plain(f"  {row.memory_id} is kept as {row.became}")
        if row.repeats is not None:
            print_plain(shown(f"  {row.memory_id} repeats the rule {row.repeats} and is not kept"))
        if row.refused is not None:
            print_plain(shown(f"  {row.memory_id} is not kept: {row.refused}"))
