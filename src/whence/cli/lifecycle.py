"""`whence action`, `whence retention` and `whence archive`: what is held, what goes, and what went."""

from typing import Annotated
from uuid import UUID

import typer
from rich.table import Column

from whence.cli.command import AsUser, Before, InWorkspace, command
from whence.cli.terminal import cut, id_column, print_fields, print_json, print_plain, print_table, shown, to_minute
from whence.lifecycle.actions import MAX_PAGE_ACTIONS
from whence.lifecycle.retention import Plan

_TEXT_CELLS = 40

commands = typer.Typer()
actions = typer.Typer(no_args_is_help=True, help="Actions: audited acts that hold what they cite.")
archives = typer.Typer(no_args_is_help=True, help="Archives: what timers ended, in sealed files.")


@command(actions, "record")
async def record(
    call: AsUser,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What was done, such as rule.promoted.")],
    cites: Annotated[list[UUID], typer.Argument(metavar="ID…", help="The events and memories that it holds.")],
    action_id: Annotated[UUID | None, typer.Option("--id", help="An id of your own, to be able to repeat it.")] = None,
) -> None:
    """Record an action. What it cites outlives every timer."""
    action = await call.app.actions.record(await call.principal(), kind, cites, action_id)
    if call.as_json:
        print_json(action)
    else:
        print_plain(f"recorded {action.action_id}, which holds {len(action.cites)}")


@command(actions, "list")
async def list_actions(
    call: AsUser,
    kind: Annotated[str | None, typer.Option(help="Of this kind only.")] = None,
    cites: Annotated[UUID | None, typer.Option(help="Only those that cite this event or memory.")] = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE_ACTIONS, help="At most so many.")] = 20,
) -> None:
    """Actions, the newest first, with what each cites."""
    page = await call.app.actions.page((await call.principal()).scope, kind, cites, before, limit)
    if call.as_json:
        print_json(page)
        return
    rows: list[tuple[str, ...]] = []
    for action in page.actions:
        rows += [(str(action.action_id), shown(action.kind), to_minute(action.recorded_at), action.user_id or "")]
        rows += [(f"  {cited}",) for cited in action.cites]
    if rows:
        print_table((Column("action", no_wrap=True), "kind", "recorded", "by"), rows)
    else:
        print_plain("there are no actions")
    if page.next is not None:
        print_plain(f"more: --before {page.next}")


@command(actions, "show")
async def show_action(
    call: AsUser, action: Annotated[UUID, typer.Argument(metavar="ID", help="The id of an action.")]
) -> None:
    """One action, with what it cites."""
    found = await call.app.actions.get((await call.principal()).scope, action)
    if call.as_json:
        print_json(found)
        return
    print_fields(
        ("action", found.action_id),
        ("kind", found.kind),
        ("recorded", f"{to_minute(found.recorded_at)} UTC, position {found.position}"),
        ("by", found.user_id or "an administrator"),
        *(("cites", cited) for cited in found.cites),
    )


@command(commands, "retention")
async def retention(
    call: InWorkspace,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go and why, and change nothing.")] = False,
) -> None:
    """Tombstone what is past its time, and dispose of what was tombstoned long enough ago."""
    principal = await call.principal()
    if dry_run:
        plan = await call.app.retention.plan(principal.scope)
        if call.as_json:
            print_json(plan)
        else:
            _print_plan(plan)
        return
    done = await call.app.retention.apply(call.workspace)
    if call.as_json:
        print_json(done)
        return
    print_plain(f"tombstoned {done.expired:,}, disposed of {done.disposed:,}")
    if done.conversations_expired or done.conversations_disposed:
        print_plain(
            f"conversations: tombstoned {done.conversations_expired:,}, removed {done.conversations_disposed:,}"
        )
    for file in done.archives:
        print_plain(f"archived in {file}")
    if done.orphan_count:
        print_plain(f"alert: {done.orphan_count:,} without sources; `whence retention --dry-run` lists them")


def _print_plan(plan: Plan) -> None:
    rows: list[tuple[str, ...]] = []
    for due in plan.due:
        rows += [
            (
                str(due.memory_id),
                "kept" if due.kept_by else due.becomes,
                shown(due.content_class),
                f"{due.since:%Y-%m-%d}",
            )
        ]
        rows += [(f"  {shown(line)}",) for line in (due.text, due.kept_by) if line]
    for due in plan.conversations:
        rows += [
            (
                str(due.conversation_id),
                "kept" if due.kept_by else due.becomes,
                "conversation",
                f"{due.since:%Y-%m-%d}",
            )
        ]
        rows += [(f"  {due.message_count:,} messages",), *([(f"  {due.kept_by}",)] if due.kept_by else [])]
    if rows:
        print_table((id_column("memory"), "becomes", "class", Column("since", no_wrap=True)), rows)
    else:
        print_plain("nothing is due")
    for total in plan.totals:
        kept = f", kept: {total.kept_by}" if total.kept_by else ""
        print_plain(f"{total.count:,} {total.becomes} ({total.content_class}{kept})")
    if plan.orphan_count:
        print_plain(f"alert: {plan.orphan_count:,} without sources; nothing is done about them")
    for orphan in plan.orphans:
        print_plain(f"  {orphan.memory_id} {cut(shown(orphan.text), _TEXT_CELLS)}")


@command(archives, "list")
async def list_archives(call: InWorkspace) -> None:
    """The files that the ledger names, and whether each is as it was written."""
    found = await call.app.archive.listed((await call.principal()).scope)
    if call.as_json:
        print_json(found)
        return
    if not found:
        print_plain("there are no archives")
    for item in found:
        how = {True: "intact", False: "changed", None: "missing"}[item.is_intact]
        print_plain(f"{item.archive.file}  {item.archive.rows:,} rows  {to_minute(item.archived_at)}  {how}")


@command(archives, "show")
async def show(call: InWorkspace, file: Annotated[str, typer.Argument(metavar="FILE", help="A file's name.")]) -> None:
    """What is in an archive, opened with the keys that there are."""
    lines = await call.app.archive.read((await call.principal()).scope, file)
    if call.as_json:
        print_json(lines)
        return
    for line in lines:
        said = "(the subject's key is gone)" if line.said is None else shown(line.said.text)
        print_plain(f"{line.envelope.memory_id}  {to_minute(line.envelope.recorded_at)}  {said}")
