"""`whence workflow`: variants of how tasks are done and how well each did, for people and scripts."""

from collections.abc import Iterable
from typing import Annotated
from uuid import UUID

import typer
from rich.table import Column

from whence.cli.command import AsUser, Before, command, json_text
from whence.cli.terminal import harmless, id_column, print_json, print_plain, print_table, print_taken_out, shown
from whence.memory.workflows import MAX_PAGE_WORKFLOWS
from whence.wire import Workflow

workflows = typer.Typer(no_args_is_help=True, help="Workflows: variants of how a task is done, and how well they do.")

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")]
TaskType = Annotated[str, typer.Argument(metavar="TASK_TYPE", help="The kind of task.")]


@command(workflows, "add")
async def add(
    call: AsUser,
    agent: Agent,
    task_type: TaskType,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the variant.")],
    spec: Annotated[
        bytes,
        typer.Argument(parser=json_text, metavar="JSON", help="How it is done: an object that the agent understands."),
    ],
) -> None:
    """Add a variant."""
    added = await call.app.workflows.add(await call.principal(), agent, task_type, name, spec)
    if call.as_json:
        print_json(added)
        return
    print_plain(f"added {added.workflow_id}")
    print_taken_out(added.sanitised)


@command(workflows, "list")
async def list_workflows(
    call: AsUser,
    agent: Annotated[str | None, typer.Option(help="Of this agent only.")] = None,
    task_type: Annotated[str | None, typer.Option(help="For this kind of task only.")] = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE_WORKFLOWS, help="At most so many.")] = 20,
) -> None:
    """Variants, the newest first, with what is known of each: a score is expected to be its mean, alpha and beta say
    how surely."""
    page = await call.app.workflows.page((await call.principal()).scope, agent, task_type, before, limit)
    if call.as_json:
        print_json(page)
        return
    if page.workflows:
        _print_variants(page.workflows)
    else:
        print_plain("there are no workflows")
    if page.next is not None:
        print_plain(f"more: --before {page.next}")


@command(workflows, "select")
async def select(call: AsUser, agent: Agent, task_type: TaskType) -> None:
    """Select a variant by Thompson sampling, and print its spec."""
    chosen = await call.app.workflows.select(await call.principal(), agent, task_type)
    if call.as_json:
        print_json(chosen)
        return
    print_plain(f"selected {shown(chosen.workflow.name)}")
    print_plain(harmless(bytes(chosen.workflow.spec).decode()))
    print_plain(f"Score it: whence workflow outcome {chosen.selection_id} SCORE")


@command(workflows, "outcome")
async def outcome(
    call: AsUser,
    selection: Annotated[UUID, typer.Argument(metavar="SELECTION", help="The id of a selection.")],
    score: Annotated[float, typer.Argument(min=0, max=1, metavar="SCORE", help="How well it did, from 0 to 1.")],
) -> None:
    """Say how well a selected variant did. Counts once for each selection."""
    principal = await call.principal()
    done = await call.app.workflows.record_outcome(principal, selection, score)
    if call.as_json:
        print_json(done)
        return
    known = await call.app.workflows.get(principal.scope, done.workflow_id)
    times = "1 outcome" if known.outcomes == 1 else f"{known.outcomes:,} outcomes"
    print_plain(f"scored {done.score:g}; {shown(known.name)} has a mean of {known.mean:.2f} after {times}")


@command(workflows, "retire")
async def retire(
    call: AsUser, workflow: Annotated[UUID, typer.Argument(metavar="ID", help="The id of a variant.")]
) -> None:
    """Let a variant be selected no more. It stays readable."""
    principal = await call.principal()
    await call.app.workflows.retire(principal, workflow)
    if call.as_json:
        print_json(await call.app.workflows.get(principal.scope, workflow))
    else:
        print_plain("retired")


def _print_variants(found: Iterable[Workflow]) -> None:
    """The id stands beneath the name, so that the numbers find room beside it."""
    numbers = (Column(name, justify="right") for name in ("mean", "alpha", "beta", "selections", "outcomes"))
    rows: list[tuple[str, ...]] = []
    for workflow in found:
        known = (f"{number:.2f}" for number in (workflow.mean, workflow.alpha, workflow.beta))
        rows += [(_called(workflow), *known, f"{workflow.selections:,}", f"{workflow.outcomes:,}")]
        rows += [(str(workflow.workflow_id),)]
    print_table((id_column("variant"), *numbers), rows)


def _called(workflow: Workflow) -> str:
    retired = ", retired" if workflow.retired_at else ""
    whose = f"{workflow.agent} of {workflow.user_id}" if workflow.user_id else workflow.agent
    return shown(f"{workflow.name}{retired} ({whose}, {workflow.task_type})")
