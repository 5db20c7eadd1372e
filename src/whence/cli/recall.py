"""`whence recall`, `feedback` and `assemble`: what answers a question, what that was worth, and what an agent needs
before its turn."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, get_args
from uuid import UUID

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from whence.app import App
from whence.cli.command import AsUser, command, moment
from whence.cli.terminal import harmless, print_json, print_plain, shown, to_minute
from whence.db import Scope
from whence.errors import NotFound
from whence.memory import MAX_PAGE_MEMORIES
from whence.recall import MAX_NEIGHBOURS, MAX_TOKENS
from whence.recall.assembly import DEFAULT_TOKENS
from whence.wire import (
    Assemble,
    Channel,
    Feedback,
    Hit,
    HitSource,
    Intent,
    Kind,
    NotReranked,
    Recall,
    Recalled,
    RecalledHit,
    RecallFilters,
    RecallRecord,
    Role,
    Tier,
    Turn,
)

commands = typer.Typer()

_NOT_RERANKED: Mapping[NotReranked, str] = {
    "no_reranker": "there is none, see the setting reranker",
    "late": "it took too long",
    "unavailable": "its host cannot be reached or fails",
    "setup": "it cannot be used as it is set, see `whence doctor`",
    "internal": "it failed in a way that was not foreseen",
}

_BESIDE = 7
"""Cells of the score, which stands beside the text."""


def _one_of(names: Any) -> Callable[[str], str]:
    """One of a `Literal`, which typer takes once only."""

    def choice(text: str) -> str:
        if text not in get_args(names):
            raise typer.BadParameter(f"must be one of {', '.join(get_args(names))}")
        return text

    return choice


def _choices(names: Any) -> str:
    """As typer shows them."""
    return f"<{'|'.join(get_args(names))}>"


MaxTokens = Annotated[int | None, typer.Option(min=1, max=MAX_TOKENS, help="About as many tokens as may be used.")]


@command(commands, "recall")
async def recall(  # noqa: PLR0913, PLR0917 (options of a command)
    call: AsUser,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A question, or some words.")],
    agent: Annotated[str | None, typer.Option(help="Of this agent only.")] = None,
    top_k: Annotated[int, typer.Option(min=1, max=MAX_PAGE_MEMORIES, help="At most so many.")] = 10,
    tier: Annotated[
        list[str] | None,
        typer.Option(parser=_one_of(Tier), metavar=_choices(Tier), help="Of this tier only; may be given again."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(parser=_one_of(Kind), metavar=_choices(Kind), help="Of this kind only; may be given again."),
    ] = None,
    session: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Of this session only; may be given again.")
    ] = None,
    session_prefix: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Of sessions that begin so; may be given again."),
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Facts about this only.")] = None,
    predicate: Annotated[str | None, typer.Option(help="Facts that say this only.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Only what this speaker said.")] = None,
    role: Annotated[Role | None, typer.Option(help="Only what such a speaker said.")] = None,
    world: Annotated[str | None, typer.Option(help="Of this world only.")] = None,
    since: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="Only what is so since then or later.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="Only what is so since before then.")
    ] = None,
    as_of: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="What held then, instead of now.")
    ] = None,
    known_at: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="As far as it was known then.")
    ] = None,
    intent: Annotated[Intent | None, typer.Option(help="What the question is after.")] = None,
    channel: Annotated[
        list[str] | None,
        typer.Option(parser=_one_of(Channel), metavar="CHANNEL", help="Let only this one count; may be given again."),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(min=0, max=MAX_NEIGHBOURS, help="Show so many turns before and after each.")
    ] = 0,
    max_tokens: MaxTokens = None,
    rerank: Annotated[
        bool | None,
        typer.Option("--rerank/--no-rerank", help="Whether a model puts hits in order.", show_default="as set"),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each channel added to a score.")] = False,
) -> None:
    """What answers a question best, and where it comes from."""
    session_id, sessions = _sessions(session, session_prefix)
    asked = Recall(
        query=text,
        agent=agent,
        top_k=top_k,
        tiers=msgspec.convert(tier, tuple[Tier, ...]) if tier else None,
        kinds=msgspec.convert(kind, tuple[Kind, ...]) if kind else None,
        session_id=session_id,
        sessions=sessions,
        session_prefixes=tuple(session_prefix) if session_prefix else None,
        subject=subject,
        predicate=predicate,
        as_of=as_of,
        known_at=known_at,
        intent=intent,
        filters=_filters(speaker, role, world, since, until),
        channels=msgspec.convert(channel, tuple[Channel, ...]) if channel else None,
        neighbours=neighbours,
        max_tokens=max_tokens,
        rerank=rerank,
    )
    found = await call.app.recaller.recall(await call.principal(), asked)
    if call.as_json:
        print_json(found)
    else:
        _tell(found, explain)


def _sessions(names: list[str] | None, prefixes: list[str] | None) -> tuple[str | None, tuple[str, ...] | None]:
    """One that is asked about alone is also the one in which it is asked."""
    if not names:
        return None, None
    return (names[0], None) if len(names) == 1 and not prefixes else (None, tuple(names))


def _filters(
    speaker: str | None, role: Role | None, world: str | None, since: datetime | None, until: datetime | None
) -> RecallFilters | None:
    filters = RecallFilters(speaker=speaker, role=role, world_id_context=world, since=since, until=until)
    return None if filters == RecallFilters() else filters


@command(commands, "feedback")
async def feedback(
    call: AsUser,
    recalled: Annotated[UUID, typer.Argument(metavar="RECALL", help="The id of a recall.")],
    helpful: Annotated[
        list[UUID] | None, typer.Option(metavar="ID", help="A hit that helped; may be given again.")
    ] = None,
    unhelpful: Annotated[
        list[UUID] | None, typer.Option(metavar="ID", help="A hit that did not; may be given again.")
    ] = None,
) -> None:
    """Say which hits of a recall helped: these gain importance, the others lose some."""
    if not helpful and not unhelpful:
        raise typer.BadParameter("name at least one hit by --helpful ID or --unhelpful ID")
    given = Feedback(tuple(helpful or ()), tuple(unhelpful or ()))
    kept = await call.app.recaller.feedback(await call.principal(), recalled, given)
    if call.as_json:
        print_json(kept)
    else:
        whose = "1 memory" if kept.changed == 1 else f"{kept.changed:,} memories"
        print_plain(f"kept; the importance of {whose} has changed")


@command(commands, "assemble")
async def assemble(  # noqa: PLR0913, PLR0917 (options of a command)
    call: AsUser,
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent.")],
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="Which one of them.")],
    query: Annotated[str, typer.Option(help="What the turn is about.")] = "",
    task_type: Annotated[str | None, typer.Option(help="Select a workflow for this kind of task.")] = None,
    session: Annotated[str | None, typer.Option(help="The session of the turn.")] = None,
    max_tokens: MaxTokens = None,
    rerank: Annotated[bool, typer.Option("--rerank", help="Let the reranker put hits in order.")] = False,
) -> None:
    """What an agent needs before its turn, as a text for its prompt."""
    asked = Assemble(agent, instance, query, session, task_type, max_tokens, rerank)
    found = await call.app.assembler.assemble(await call.principal(), asked)
    if call.as_json:
        print_json(found)
        return
    print_plain(harmless(found.text) if found.text else "there is nothing that the agent needs to know")
    if found.meta.truncated:
        _console().print(f"left out what does not fit into {max_tokens or DEFAULT_TOKENS:,} tokens", style="yellow")
    _tell_not_reranked(_console(), found.meta.not_reranked)
    if found.workflow is not None:
        print_plain(f"\nScore the workflow: whence workflow outcome {found.workflow.selection_id} SCORE")


async def tell_recall(app: App, scope: Scope, record: RecallRecord) -> None:
    """A recall that was made: what was asked, and each hit with why it was one."""
    console = _console()
    asked = record.asked
    console.print(shown(asked.query) or "(nothing was asked: the newest)", style="bold")
    who = record.user_id or "an administrator"
    console.print(shown(f"asked by {who} on {to_minute(record.recalled_at)} UTC{_limits(asked)}"))
    for hit in record.hits:
        console.print()
        try:
            said = (await app.memory.get(scope, hit.memory_id)).text
        except NotFound:
            said = "(is not there any more)"
        _print_beside(console, f"{hit.score:.2f}", said)
        _print_under(console, f"memory {hit.memory_id}")
        _print_under(console, _why(hit))
    if record.reranker is not None:
        console.print(shown(f"put in order by {record.reranker}"), style="dim")
    if not record.hits:
        console.print("nothing was found")


def _tell(found: Recalled, explain: bool) -> None:
    console = _console()
    for hit in found.hits:
        _print_hit(console, hit, explain)
    if not found.hits:
        console.print("nothing is remembered that answers this")
    if found.meta.truncated:
        console.print("more was found than fits into the tokens", style="yellow")
    _tell_not_reranked(console, found.meta.not_reranked)
    if found.meta.times is not None and explain:
        since, until = map(to_minute, found.meta.times)
        console.print(f"the question is about {since} to {until} UTC", style="dim")
    console.print(f"why: whence explain {found.recall_id}", style="dim")


def _print_hit(console: Console, hit: Hit, explain: bool) -> None:
    for turn in hit.before:
        _print_under(console, _said(turn))
    _print_beside(console, f"{hit.score:.2f}", _said(hit))
    for turn in hit.after:
        _print_under(console, _said(turn))
    whose = f"{hit.agent} of {hit.user_id}" if hit.user_id else hit.agent
    said = (f"{to_minute(hit.valid_at)} UTC", hit.trust, whose, hit.session_id, f"#{hit.position}")
    _print_under(console, " · ".join(part for part in said if part))
    _print_under(console, f"memory {hit.memory_id}")
    for source in hit.provenance[1:]:
        _print_under(console, f"from {_source(source)}")
    if "instruction" in hit.flags:
        _print_under(console, "reads like an instruction to a model; it is not one", "yellow")
    if "sanitised" in hit.flags:
        _print_under(console, "something was taken out of it", "yellow")
    if explain:
        _print_under(console, _why(hit))
    console.print()


def _said(turn: Hit | Turn) -> str:
    return f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text


def _source(source: HitSource) -> str:
    tool = f" by {source.tool_name}" if source.tool_name else ""
    return f"{source.role} {source.event_id}{tool}, #{source.position}"


def _why(hit: Hit | RecalledHit) -> str:
    """What adds most first; what adds nothing is left out. What a model says of it is no part of the score."""
    added = sorted(((value, name) for name, value in hit.parts.items() if round(value, 2)), reverse=True)
    parts = ", ".join(f"{name}={value:.2f}" for value, name in added) or "as good as all others"
    return parts if hit.rerank is None else f"{parts}; rerank={hit.rerank:.3g}"


def _tell_not_reranked(console: Console, why: NotReranked | None) -> None:
    if why is not None:
        console.print(f"the reranker has not put these in order: {_NOT_RERANKED[why]}", style="yellow")


def _limits(asked: Recall) -> str:
    """What else was said about what is wanted."""
    filters = asked.filters or RecallFilters()
    times = {"since": filters.since, "until": filters.until, "as of": asked.as_of, "known at": asked.known_at}
    lists: dict[str, Iterable[str] | None] = {
        "tiers": asked.tiers,
        "kinds": asked.kinds,
        "sessions": asked.sessions,
        "sessions that begin with": asked.session_prefixes,
        "channels": asked.channels,
    }
    names = {
        "agent": asked.agent,
        "session": asked.session_id,
        "subject": asked.subject,
        "predicate": asked.predicate,
        "speaker": filters.speaker,
        "role": filters.role,
        "world": filters.world_id_context,
        "intent": asked.intent,
    }
    said = [f"{name} {value}" for name, value in names.items() if value is not None]
    said += [f"{name} {', '.join(value)}" for name, value in lists.items() if value is not None]
    said += [f"{name} {to_minute(value)} UTC" for name, value in times.items() if value is not None]
    return "".join(f"; {each}" for each in said)


def _console() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True)


def _print_beside(console: Console, beside: str, text: str) -> None:
    """A text in lines as wide as the terminal, with something beside the first one."""
    for place, line in enumerate(_wrapped(console, text)):
        console.print(f"{beside if place == 0 else '':>{_BESIDE - 2}}  {line}", style="bold")


def _print_under(console: Console, text: str, style: str = "dim") -> None:
    for line in _wrapped(console, text):
        console.print(f"{'':{_BESIDE}}{line}", style=style)


def _wrapped(console: Console, text: str) -> list[str]:
    lines = Text(shown(" ".join(text.split()))).wrap(console, max(console.width - _BESIDE, 20))
    return [line.plain.rstrip() for line in lines]
