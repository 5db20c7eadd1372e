"""`whence remember`, `explain` and `memory`, and the memory's part of `whence rebuild`: memory for people."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import typer
from rich.console import Console

from whence.app import App
from whence.cli.command import AsUser, Before, InWorkspace, command, moment, position
from whence.cli.recall import tell_recall
from whence.cli.terminal import (
    Pair,
    cut,
    print_fields,
    print_json,
    print_pairs,
    print_plain,
    print_taken_out,
    progress,
    shown,
    shown_lines,
    to_minute,
)
from whence.db import Scope
from whence.errors import NotFound
from whence.memory import MAX_HISTORY, MAX_PAGE_MEMORIES
from whence.memory.own import check_names
from whence.memory.profiles import DEFAULT_PROFILE
from whence.memory.rebuild import MemoryReport, rebuild
from whence.memory.sanitise import Rule
from whence.memory.writing import DEFAULT_CONFIDENCE, DEFAULT_IMPORTANCE
from whence.wire import (
    AgentProfile,
    Explanation,
    Fact,
    Kind,
    Location,
    MemoryEvent,
    MemoryRetention,
    MemorySource,
    Recall,
    RecallRecord,
    Remember,
    Remembered,
    Role,
    StoredMemory,
    Tier,
)

commands = typer.Typer()
memories = typer.Typer(no_args_is_help=True, help="Memory: what agents remember.")

QUOTED_CHARACTERS = 300

MemoryId = Annotated[UUID, typer.Argument(metavar="ID", help="The id of a memory.")]
PageSize = Annotated[int, typer.Option(min=1, max=MAX_PAGE_MEMORIES, help="At most so many.")]
ValidAt = Annotated[
    datetime | None, typer.Option(parser=moment, metavar="TIME", help="From when it is so.", show_default="now")
]
Sources = Annotated[
    list[UUID] | None,
    typer.Option("--from", metavar="ID", help="An event or memory that it comes from; may be given again."),
]
Importance = Annotated[
    float | None, typer.Option(min=0, max=1, help="How much it matters.", show_default=f"{DEFAULT_IMPORTANCE}")
]
OwnId = Annotated[
    UUID | None, typer.Option("--id", metavar="ID", help="An id of your own, to be able to send it again.")
]


@command(commands, "remember")
async def remember(  # noqa: PLR0913, PLR0917 (options of a command)
    call: InWorkspace,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember.")],
    user: Annotated[str | None, typer.Option("--user", "-u", help="Whose memory it is.")] = None,
    agent: Annotated[str, typer.Option(help="The agent whose memory it is.")] = DEFAULT_PROFILE,
    tier: Annotated[Tier, typer.Option(help="How long it stays.")] = "persistent",
    kind: Annotated[Kind, typer.Option(help="What it is.")] = "semantic",
    session: Annotated[str | None, typer.Option(help="The session, for that tier.")] = None,
    interaction: Annotated[str | None, typer.Option(help="The thread, for that tier.")] = None,
    run: Annotated[
        UUID | None, typer.Option(metavar="ID", help="The run that it is an episode of, or that taught it.")
    ] = None,
    world: Annotated[str | None, typer.Option(help="The world whose canon it must not repeat.")] = None,
    fact: Annotated[
        tuple[str, str, str] | None, typer.Option(metavar="SUBJECT PREDICATE OBJECT", help="The fact that it says.")
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="How sure the fact is.", show_default=f"{DEFAULT_CONFIDENCE}")
    ] = None,
    key: Annotated[str | None, typer.Option(help="What a procedure is for.")] = None,
    about: Annotated[str | None, typer.Option(metavar="ID", help="Whom it is about, if not the user.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Whose words they are.")] = None,
    role: Annotated[Role | None, typer.Option(help="What the speaker is.")] = None,
    valid_at: ValidAt = None,
    sources: Sources = None,
    byte_range: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="FIRST END", help="Where in the first of --from it is said: bytes of UTF-8."),
    ] = None,
    importance: Importance = None,
    memory_id: OwnId = None,
) -> None:
    """Remember something."""
    if byte_range is not None and not sources:
        raise typer.BadParameter("is a place in --from: give that too", param_hint="'--byte-range'")
    request = Remember(
        agent=agent,
        tier=tier,
        kind=kind,
        text=text,
        user_id=user,
        session_id=session,
        interaction_id=interaction,
        run_id=run,
        world_id_context=world,
        fact=_fact(fact, confidence),
        key=key,
        subject_id=about,
        speaker=speaker,
        role=role,
        valid_at=valid_at,
        derived_from=tuple(sources or ()),
        byte_range=byte_range,
        importance=importance,
        memory_id=memory_id,
    )
    done = await call.app.memory.remember(await call.principal(), request)
    if call.as_json:
        print_json(done)
    else:
        tell_remembered(done)


def _fact(said: tuple[str, str, str] | None, confidence: float | None) -> Fact | None:
    if said is not None:
        return Fact(*said, confidence)
    if confidence is not None:
        raise typer.BadParameter("is how sure a fact is: give --fact too", param_hint="'--confidence'")
    return None


def tell_remembered(done: Remembered) -> None:
    console = Console(highlight=False, soft_wrap=True)
    known = "" if done.status == "stored" else " (it was known already)"
    console.print(f"remembered as {done.memory_id}{known}")
    for memory_id in done.superseded:
        console.print(f"in place of   {memory_id}")
    print_taken_out(done.sanitised)
    for warning in done.warnings:
        console.print(warning, style="yellow")


@command(commands, "explain")
async def explain(
    call: AsUser, named: Annotated[UUID, typer.Argument(metavar="ID", help="The id of a memory or of a recall.")]
) -> None:
    """Why a memory is believed, since when, and who says so; or what a recall asked and why it found what it did."""
    scope = (await call.principal()).scope
    recalled = await _recalled(call.app, scope, named)
    told = await call.app.memory.explain(scope, named) if recalled is None else None
    if call.as_json:
        print_json(told or recalled)
    elif told is not None:
        _tell(Console(highlight=False, soft_wrap=True), told)
    elif recalled is not None:
        await tell_recall(call.app, scope, recalled)


async def _recalled(app: App, scope: Scope, named: UUID) -> RecallRecord | None:
    try:
        return await app.recaller.recalled(scope, named)
    except NotFound:
        return None


def _said(memory: StoredMemory) -> str:
    """An item that no question is to find has no text, and is known by its namespace and key. Of what was disposed of
    nothing is left."""
    return memory.text or memory.key or "(its text is gone)"


def _tell(console: Console, told: Explanation) -> None:
    memory = told.memory
    console.print(shown_lines(_said(memory)), style="bold", markup=False)
    console.print(shown(told.summary), markup=False)
    if memory.fact is not None and memory.fact.confidence is not None:
        console.print(f"confidence {memory.fact.confidence:.2f}, importance {memory.importance:.2f}")
    if memory.location is not None:
        console.print(shown(f"  in {memory.speaker}{_place(memory.location)}"), markup=False)
    for source in told.sources:
        for line in _source(source):
            console.print(shown(line), markup=False)
    for replaced in told.superseded:
        console.print(f"  in place of memory {replaced}")
    ended = memory.invalidated_by or memory.superseded_by
    if ended is not None:
        console.print(f"  replaced by memory {ended}", style="yellow")
    named = {memory.memory_id, ended, *(source.event_id for source in told.sources)}
    for happened in told.events:
        if happened.event_id not in named:
            console.print(shown(f"  {_happened(happened, memory)}"), markup=False)
    for recall in told.recalls[:10]:
        who = recall.user_id or "an administrator"
        console.print(shown(f"  recalled {recall.recalled_at:%Y-%m-%d %H:%M} UTC by {who}"), markup=False)
    if len(told.recalls) > 10:
        console.print(f"  and {len(told.recalls) - 10} recalls before that")


def _happened(event: MemoryEvent, memory: StoredMemory) -> str:
    said = f"{event.recorded_at:%Y-%m-%d %H:%M} UTC"
    if event.event_type == "session.closed":
        return f"its session was closed {said}"
    if event.event_type == "system.retention_applied":
        return f"{'ended' if event.recorded_at == memory.deleted_at else 'disposed of'} by a timer {said}"
    if event.event_type == "resource.processed":
        return f"its document could not be read to the end {said}"
    who = event.user_id or "an administrator"
    if event.event_type == "memory.forgotten":
        return f"forgotten {said} by {who}"
    if event.event_type == "resource.deleted":
        return f"its document was deleted {said} by {who}"
    if event.helpful is not None:
        return f"found {'helpful' if event.helpful else 'unhelpful'} {said} by {who}"
    if event.event_type == "memory.remembered":
        # A source that is new is told of above, with who it was.
        return f"told again {said} by one who had told it"
    return f"{event.event_type} {said}"


def _place(location: Location) -> str:
    """Where in its document, as people count."""
    counted = {"page": location.page, "slide": location.slide, "sheet": location.sheet, "row": location.row}
    said = "".join(f", {name} {value}" for name, value in counted.items() if value is not None)
    return said + (f", under {' > '.join(location.heading)}" if location.heading else "")


def _source(source: MemorySource) -> Iterator[str]:
    said = f"{source.said_by or 'an administrator'} at {source.told_at:%Y-%m-%d %H:%M} UTC"
    if source.role == "told":
        yield f"  from {source.source}, told by {said}"
        return
    yield f"  from {source.role} {source.source}"
    if source.event is not None:
        what = "" if source.role == "memory" else f"{source.event.event_type}, "
        told = f", told by {source.told_by}" if source.told_by else ""
        yield f"    {what}position {source.event.global_position}{told}"
    yield f"    taken up by {said}"
    if source.quote is not None:
        yield f"    where it says: {cut(source.quote, QUOTED_CHARACTERS)}"
    if source.is_own:
        yield "    which had it from here"
    elif source.origin is not None:
        yield f"    which had it from memory {source.origin}"


@command(memories, "list")
async def list_memories(  # noqa: PLR0913, PLR0917 (options of a command)
    call: AsUser,
    agent: Annotated[str | None, typer.Option(help="Of this agent only.")] = None,
    tier: Annotated[Tier | None, typer.Option(help="Of this tier only.")] = None,
    kind: Annotated[Kind | None, typer.Option(help="Of this kind only.")] = None,
    session: Annotated[str | None, typer.Option(help="Of this session only.")] = None,
    run: Annotated[UUID | None, typer.Option(help="Of this run only.")] = None,
    subject: Annotated[str | None, typer.Option(help="Facts about this only.")] = None,
    predicate: Annotated[str | None, typer.Option(help="Facts that say this only.")] = None,
    as_of: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="What held then, instead of now.")
    ] = None,
    known_at: Annotated[
        datetime | None, typer.Option(parser=moment, metavar="TIME", help="As far as it was known then.")
    ] = None,
    before: Before = None,
    limit: PageSize = 20,
) -> None:
    """What is remembered, the newest first."""
    asked = Recall(
        agent=agent,
        tiers=tier and (tier,),
        kinds=kind and (kind,),
        session_id=session,
        subject=subject,
        predicate=predicate,
        as_of=as_of,
        known_at=known_at,
    )
    page = await call.app.memory.page((await call.principal()).scope, asked, before, limit, run)
    if call.as_json:
        print_json(page)
        return
    print_memories(page.memories)
    if page.next is not None:
        print_plain(f"more: --before {page.next}")


@command(memories, "show")
async def show(call: AsUser, memory: MemoryId) -> None:
    """One memory, with all that is kept of it."""
    found = await call.app.memory.get((await call.principal()).scope, memory)
    if call.as_json:
        print_json(found)
    else:
        _show(found)


@command(memories, "history")
async def history(
    call: AsUser,
    memory: MemoryId,
    after: Annotated[
        int | None,
        typer.Option(parser=position, metavar="POSITION", help="Only what follows the one at this position."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_HISTORY, help="At most so many.")] = MAX_HISTORY,
) -> None:
    """What was ever said in its place, in order of the time from which it was so."""
    found = await call.app.memory.history((await call.principal()).scope, memory, after, limit)
    if call.as_json:
        print_json(found)
        return
    print_memories(found.memories)
    if found.next is not None:
        print_plain(f"more: --after {found.next}")


@command(memories, "profile")
async def profile(
    call: InWorkspace, agent: Annotated[str, typer.Argument(metavar="AGENT", help="Whose memory it is.")]
) -> None:
    """What an agent may remember, and by which rules."""
    check_names(agent=agent)
    found = call.app.memory.profiles.in_force(agent)
    if call.as_json:
        print_json(found)
        return
    cells = ", ".join(f"{tier}/{kind}" for tier, kinds in found.cells.items() for kind in kinds)
    done: dict[Rule, list[str]] = {
        rule: [name.replace("_", " ") for name, by in found.sanitise.items() if by == rule] for rule in _DONE
    }
    print_fields(
        ("profile", f"{found.profile}{f': {found.description}' if found.description else ''}"),
        ("hangs on", f"the {found.anchor}"),
        ("memory", cells),
        *((f"{kind}", _by_rule(found, kind)) for kind in found.conflict),
        ("canon", found.canon),
        ("episodes", f"in the {found.episodes} tier" if found.episodes else "none"),
        ("sessions", f"end after {found.idle_days:,} idle days"),
        *((_DONE[rule], ", ".join(names)) for rule, names in done.items() if names),
    )


_DONE: Final[dict[Rule, str]] = {"replace": "replaced", "refuse": "refused", "keep": "kept"}
_CONFLICT: Final = {
    "accumulate": "accumulates",
    "validity": "ends what it contradicts",
    "supersede": "supersedes what has its key",
}
_OUTLIVES: Final = {
    "none": "",
    "patterns": "; leaves routines",
    "corroborated": "; outlives its session if corroborated",
}


def _by_rule(found: AgentProfile, kind: Kind) -> str:
    return f"{_CONFLICT[found.conflict[kind]]}{_OUTLIVES[found.promotion[kind]]}; retention: {found.retention[kind]}"


@command(memories, "retention")
async def retention(call: AsUser, memory: MemoryId) -> None:
    """How long a memory is kept, and what keeps it."""
    kept = await call.app.retention.of((await call.principal()).scope, memory)
    if call.as_json:
        print_json(kept)
    else:
        _tell_retention(kept)


@command(memories, "forget")
async def forget(call: AsUser, memory: MemoryId) -> None:
    """Let a memory no longer be found. Its history stays."""
    principal = await call.principal()
    await call.app.memory.forget(principal, memory)
    if call.as_json:
        print_json(await call.app.memory.get(principal.scope, memory))
    else:
        print_plain("forgotten")


def print_memories(found: Iterable[StoredMemory]) -> None:
    rows = [
        Pair(str(memory.memory_id), _said(memory), _when(memory), f"{_gone(memory)}{_what(memory)}, {_whose(memory)}")
        for memory in found
    ]
    if rows:
        print_pairs(("memory", "text"), rows)
    else:
        print_plain("nothing is remembered")


def _show(memory: StoredMemory) -> None:
    Console(highlight=False, soft_wrap=True, markup=False).print(shown_lines(_said(memory)), style="bold")
    fact, accessed = memory.fact, memory.accessed_at
    taken_out = ", ".join(f"{count} x {name.replace('_', ' ')}" for name, count in (memory.sanitised or {}).items())
    print_fields(
        ("memory", memory.memory_id),
        ("what", _what(memory)),
        ("whose", f"{_whose(memory)} (profile {memory.profile})"),
        ("session", memory.session_id),
        ("thread", memory.interaction_id),
        ("run", memory.run_id),
        ("world", memory.world_id_context),
        ("fact", fact and f"{fact.subject} / {fact.predicate} / {fact.object}"),
        ("confidence", fact and fact.confidence and f"{fact.confidence:.2f}"),
        ("for", memory.key),
        ("importance", f"{memory.importance:.2f}"),
        ("held", f"{_when(memory)} UTC"),
        ("recorded", f"{to_minute(memory.recorded_at)} UTC, position {memory.position}"),
        ("told", _times(memory.told_count)),
        ("said by", memory.said_by),
        ("speaker", memory.speaker),
        ("role", memory.role),
        ("recalled", accessed and f"{_times(memory.access_count)}, last {to_minute(accessed)} UTC"),
        ("replaced by", memory.invalidated_by or memory.superseded_by),
        ("ended", memory.deleted_at and f"{to_minute(memory.deleted_at)} UTC"),
        ("taken out", taken_out or None),
    )


def _tell_retention(kept: MemoryRetention) -> None:
    expires, disposed = kept.expires_at, kept.disposed_at
    until = None if disposed else f"{to_minute(expires)} UTC" if expires else "no timer runs"
    print_fields(
        ("memory", kept.memory_id),
        ("state", kept.state),
        ("policy", f"{kept.entity}, {kept.content_class}"),
        ("expires", until),
        ("disposed", disposed and f"{to_minute(disposed)} UTC"),
        ("disposal", kept.disposal),
        *(("held by", action_id) for action_id in kept.held_by),
        ("strength", f"{kept.strength:.2f}, {kept.temperature}"),
    )


def _what(memory: StoredMemory) -> str:
    return f"{memory.kind}, {memory.tier}"


def _whose(memory: StoredMemory) -> str:
    return f"{memory.agent} of {memory.user_id}" if memory.user_id else memory.agent


def _when(memory: StoredMemory) -> str:
    ended = memory.invalid_at or memory.superseded_at
    start = to_minute(memory.valid_at)
    return f"since {start}" if ended is None else f"{start} to {to_minute(ended)}"


def _gone(memory: StoredMemory) -> str:
    return "forgotten; " if memory.deleted_at else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


async def rebuild_memory(app: App, workspace: str, verify: bool) -> MemoryReport:
    with progress("memory from the ledger") as advance:
        return await rebuild(app.database, app.ledger, app.memory, workspace, verify, advance)


def tell_memory(console: Console, report: MemoryReport) -> None:
    console.print(f"memory: rebuilt {report.digest}")
    console.print(f"        in use  {report.live_digest}")
    if report.unreadable:
        console.print(f"{report.unreadable:,} events of memory cannot be read: their payload is gone", style="yellow")
    if report.refused:
        said = "would not be accepted by now, such as memory that repeats a rule, and are left out"
        console.print(f"{report.refused:,} events of memory {said}", style="yellow")
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
        "refused": report.refused,
        "seconds": round(report.seconds, 3),
    }
