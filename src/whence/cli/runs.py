"""`whence run`: turns of agents and what happened in them, for people and scripts."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import typer

from whence.cli.command import AsUser, command, json_value
from whence.cli.memory import Importance, OwnId, PageSize, Sources, ValidAt, print_memories, tell_remembered
from whence.cli.terminal import Pair, print_fields, print_json, print_pairs, print_plain, print_taken_out, to_minute
from whence.memory.runs import DEFAULT_EPISODES
from whence.wire import Recall, Run

runs = typer.Typer(no_args_is_help=True, help="Runs: turns of agents, and what happened in them.")

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")]
RunId = Annotated[UUID, typer.Argument(metavar="RUN", help="The id of a run.")]


@command(runs, "list")
async def list_runs(
    call: AsUser,
    agent: Agent,
    instance: Annotated[str | None, typer.Option(help="Of this instance only.")] = None,
    limit: PageSize = 20,
) -> None:
    """The runs of an agent, the newest first: the first of an instance is its state."""
    found = await call.app.runs.of_agent((await call.principal()).scope, agent, instance, limit)
    if call.as_json:
        print_json({"runs": found})
    elif found:
        print_pairs(("run", "what became of it"), map(_pair, found))
    else:
        print_plain(f"there are no runs of {agent}")


@command(runs, "show")
async def show(call: AsUser, run: RunId, limit: PageSize = 20) -> None:
    """One run, and the last of what happened in it."""
    scope = (await call.principal()).scope
    found = await call.app.runs.get(scope, run)
    page = await call.app.memory.page(scope, Recall(kinds=("episodic",)), None, limit, run)
    if call.as_json:
        print_json({**msgspec.structs.asdict(found), "episodes": page.memories})
        return
    print_fields(
        ("run", found.run_id),
        ("agent", found.agent),
        ("instance", f"{found.instance}, turn {found.turn}"),
        ("state", _state(found)),
        ("task type", found.task_type),
        ("session", found.session_id),
        ("user", found.user_id),
    )
    if page.memories:
        print_plain("")
        print_memories(page.memories)
    if page.next is not None:
        print_plain(f"more: whence memory list --run {run} --kind episodic --before {page.next}")


@command(runs, "start")
async def start(
    call: AsUser,
    agent: Agent,
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Which one of them.")],
    task_type: Annotated[str | None, typer.Option(help="What kind of task it is.")] = None,
    session: Annotated[str | None, typer.Option(help="The session.")] = None,
    given: Annotated[Any, typer.Option("--input", parser=json_value, metavar="JSON", help="What it was given.")] = None,
) -> None:
    """Start a run of an agent."""
    principal = await call.principal()
    run = await call.app.runs.start(principal, agent, instance, task_type, session, given)
    if call.as_json:
        print_json(run)
        return
    print_plain(f"started {run.run_id}, turn {run.turn}")
    print_taken_out(run.sanitised)


@command(runs, "episode")
async def episode(
    call: AsUser,
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What happened.")],
    valid_at: ValidAt = None,
    sources: Sources = None,
    importance: Importance = None,
    memory_id: OwnId = None,
) -> None:
    """Remember what happened in a run."""
    done = await call.app.runs.add_episode(
        await call.principal(),
        run,
        text,
        valid_at=valid_at,
        derived_from=tuple(sources or ()),
        importance=importance,
        memory_id=memory_id,
    )
    if call.as_json:
        print_json(done)
    else:
        tell_remembered(done)


@command(runs, "complete")
async def complete(
    call: AsUser,
    run: RunId,
    output: Annotated[Any, typer.Option(parser=json_value, metavar="JSON", help="What came of it.")] = None,
) -> None:
    """The run has done its task."""
    await _end(call, run, "completed", output)


@command(runs, "fail")
async def fail(
    call: AsUser,
    run: RunId,
    error: Annotated[Any, typer.Option(parser=json_value, metavar="JSON", help="What went wrong.")] = None,
) -> None:
    """The run has failed."""
    await _end(call, run, "failed", error)


@command(runs, "episodes")
async def episodes(call: AsUser, agent: Agent, limit: PageSize = DEFAULT_EPISODES) -> None:
    """The last episodes of all runs of an agent, the newest first."""
    found = await call.app.runs.episodes((await call.principal()).scope, agent, limit)
    if call.as_json:
        print_json({"memories": found})
    else:
        print_memories(found)


async def _end(call: AsUser, run_id: UUID, status: Literal["completed", "failed"], content: Any) -> None:
    principal = await call.principal()
    before = await call.app.runs.get(principal.scope, run_id)
    run = await call.app.runs.end(principal, run_id, status, content)
    if call.as_json:
        print_json(run)
        return
    print_plain(_state(run))
    print_taken_out(run.sanitised)
    if before.ended_at is not None:
        print_plain("it had ended before: nothing has changed")


def _pair(run: Run) -> Pair:
    more = (run.task_type, run.session_id and f"session {run.session_id}", run.user_id and f"of {run.user_id}")
    return Pair(str(run.run_id), _state(run), f"{run.instance}, turn {run.turn}", ", ".join(filter(None, more)))


def _state(run: Run) -> str:
    if run.ended_at is None:
        return f"{run.status} since {to_minute(run.started_at)}"
    return f"{run.status} {to_minute(run.ended_at)}, after {_lasted(run.started_at, run.ended_at)}"


def _lasted(started: datetime, ended: datetime) -> str:
    seconds = (ended - started).total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
