"""The command line: `whence …`."""

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from whence import __version__
from whence.app import (
    DEFAULT_WORKSPACE,
    App,
    admin_key_file,
    ensure_default_workspace,
    keep_admin_key,
    open_app,
    reach_database,
)
from whence.cli.doctor import examine
from whence.cli.graph import Output, run_rebuild, show_lineage
from whence.cli.memory import run_remember, show_explanation
from whence.cli.seals import expected_root, show_seal, show_verification
from whence.cli.tail import show_tail
from whence.cli.terminal import print_plain
from whence.cli.working import Instance, delete_key, set_value, show_keys, show_value
from whence.db import embedded
from whence.db.migrate import migrate as migrate_schema
from whence.errors import NotFound, WhenceError
from whence.graph.bounds import DEFAULT_NODES, MAX_DEPTH, MAX_NODES, Bounds
from whence.identity import ADMIN_USER
from whence.ledger.verify import Expected
from whence.logs import configure_logs
from whence.memory.profiles import DEFAULT_PROFILE
from whence.memory.working import DEFAULT_TTL_S, MAX_TTL_S, MIN_TTL_S
from whence.settings import Settings, load_settings
from whence.wire import Kind, Remember, Tier
from whence.worker import work


def folder(text: str) -> Path:
    """An unset variable in a script must not mean the current folder."""
    if not text:
        raise typer.BadParameter("is empty")
    return Path(text)


DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="FOLDER",
        help="Where the embedded database and the keys are kept.",
        show_default="~/.whence",
    ),
]
DatabaseUrl = Annotated[
    str | None, typer.Option(help="A Postgres 16+ to use instead of the embedded one.", metavar="URL")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(help="The least severe log line that is written.", show_default="info"),
]
Workspace = Annotated[str, typer.Option("--workspace", "-w", help="The workspace.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
UserId = Annotated[str, typer.Argument(metavar="ID", help="The user.")]
AgentName = Annotated[str, typer.Argument(metavar="AGENT", help="The kind of agent.")]
InstanceName = Annotated[str, typer.Argument(metavar="INSTANCE", help="Which one of them.")]
KeyName = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]
OfUser = Annotated[str | None, typer.Option("--user", "-u", help="Of this user, instead of the workspace's own.")]

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Memory for AI agents that knows where it came from.",
)
users = typer.Typer(no_args_is_help=True, help="Users and their keys.")
workspaces = typer.Typer(no_args_is_help=True, help="Workspaces: who is kept apart from whom.")
working_memory = typer.Typer(no_args_is_help=True, help="Working memory: what instances of agents have jotted down.")
cli.add_typer(users, name="user")
cli.add_typer(workspaces, name="workspace")
cli.add_typer(working_memory, name="working")

out = Console()


def main() -> None:
    """Errors that we foresee are one line; 1 says that it failed, 2 that it was called wrongly."""
    try:
        cli()
    except WhenceError as error:
        fields = "".join(
            f"\n  {item.field}: {item.message}" for item in error.errors if item.message not in error.detail
        )
        sys.stderr.write(f"whence: {error.detail}{fields}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_cancellable(coroutine))


async def _cancellable(coroutine: Coroutine[Any, Any, None]) -> None:
    """Ctrl-C cancels, which the driver may turn into an error of its own; it is an interrupt all the same."""
    task = asyncio.current_task()
    try:
        await coroutine
    except Exception as error:
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise


def with_app(settings: Settings, act: Callable[[App], Awaitable[None]], make: bool = False) -> None:
    """Only what is meant to make a database does: a mistyped folder is told as such."""
    if not make and settings.database_url is None and not embedded.status(settings.data_dir).initialised:
        where = settings.data_dir
        raise NotFound(f"there is no Whence data in {where}: start `whence serve` once, or check --data-dir")

    async def go() -> None:
        async with open_app(settings) as app:
            await act(app)

    configure_logs(settings)
    run(go())


def version(wanted: bool) -> None:
    if wanted:
        out.print(f"whence {__version__}", highlight=False)
        raise typer.Exit


@cli.callback()
def root(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@cli.command()
def serve(
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    host: Annotated[str | None, typer.Option(help="The address to serve on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port to serve on; 0 takes a free one.", show_default="8010"),
    ] = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Leave the graph, the seals and the sweep to `whence worker`.")
    ] = False,
    log_level: LogLevel = None,
) -> None:
    """Serve the API and OTLP, on the embedded Postgres or your own."""
    settings = load_settings(
        {
            "data_dir": data_dir,
            "database_url": database_url,
            "host": host,
            "port": port,
            "log_level": log_level,
        }
    )

    # The web framework takes as long to import as all else together, and only this command needs it.
    from whence.gateway.serve import serve as serve_http  # noqa: PLC0415

    async def act(app: App) -> None:
        made = await ensure_default_workspace(app)
        working = None if no_worker else asyncio.create_task(work(app))
        try:
            await serve_http(app, lambda url, grpc_port: _announce(app, url, grpc_port, made))
        finally:
            app.stopping.set()
            if working is not None:
                await working

    with_app(settings, act, make=True)


def _announce(app: App, url: str, grpc_port: int | None, made: bool) -> None:
    settings = app.settings
    key_file = admin_key_file(settings)
    where = "your Postgres" if settings.database_url else f"{settings.data_dir} (embedded Postgres)"
    print_plain(f"Whence {__version__}")
    print_plain(f"  API       {url}/v1/events")
    print_plain(f"  OTLP      {url}/v1/traces")
    if grpc_port is not None:
        print_plain(f"  OTLP/gRPC {settings.host}:{grpc_port}")
    print_plain(f"  OpenAPI   {url}/openapi.json")
    print_plain(f"  data      {where}")
    if key_file.exists():
        print_plain(f"  admin key {key_file}{' (new)' if made else ''}")
    else:
        print_plain("  admin key kept where the workspace was made; `whence user rotate admin` replaces it")
    print_plain(f"ready {url}")


@cli.command()
def worker(data_dir: DataDir = None, database_url: DatabaseUrl = None, log_level: LogLevel = None) -> None:
    """Keep the graph up to date, seal the ledger and sweep, apart from a server. Any number may run."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url, "log_level": log_level})

    async def act(app: App) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, app.stopping.set)
        print_plain("working")
        await work(app)

    with_app(settings, act)


@cli.command()
def lineage(  # noqa: PLR0913, PLR0917 (options of a command)
    event: Annotated[UUID, typer.Argument(metavar="EVENT", help="The id of an event.")],
    down: Annotated[bool, typer.Option("--down", help="What came of it, instead of what caused it.")] = False,
    depth: Annotated[int, typer.Option(min=1, max=MAX_DEPTH, help="At most so many steps away.")] = MAX_DEPTH,
    nodes: Annotated[int, typer.Option(min=1, max=MAX_NODES, help="At most so many events.")] = DEFAULT_NODES,
    graph: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it into an SVG file.")] = None,
    prov: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as W3C PROV-JSON.")] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Why did this happen: an event, what caused it, and what caused that."""

    async def act(app: App) -> None:
        output = Output(graph, prov, as_json)
        await show_lineage(app, workspace, event, "down" if down else "up", Bounds(depth, nodes), output)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def remember(  # noqa: PLR0913, PLR0917 (options of a command)
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember.")],
    user: Annotated[str | None, typer.Option(help="Whose memory it is.")] = None,
    agent: Annotated[str, typer.Option(help="The agent whose memory it is.")] = DEFAULT_PROFILE,
    tier: Annotated[Tier, typer.Option(help="How long it stays.")] = "persistent",
    kind: Annotated[Kind, typer.Option(help="What it is.")] = "semantic",
    session: Annotated[str | None, typer.Option(help="The session, for that tier.")] = None,
    interaction: Annotated[str | None, typer.Option(help="The thread, for that tier.")] = None,
    world: Annotated[str | None, typer.Option(help="The world whose canon it must not repeat.")] = None,
    key: Annotated[str | None, typer.Option(help="What a procedure is for.")] = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Remember something."""

    async def act(app: App) -> None:
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
        await run_remember(app, workspace, request, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def explain(
    memory: Annotated[UUID, typer.Argument(metavar="ID", help="The id of a memory.")],
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Why a memory is believed, since when, and who says so."""

    async def act(app: App) -> None:
        await show_explanation(app, workspace, memory, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def rebuild(
    verify: Annotated[bool, typer.Option("--verify", help="Compare only, and leave what is in use as it is.")] = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Build the graph and the memory again from the ledger, compare them with those in use, and replace those."""

    async def act(app: App) -> None:
        equal = await run_rebuild(app, workspace, verify, as_json)
        if verify and not equal:
            raise typer.Exit(1)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@workspaces.command("add")
def workspace_add(
    workspace_id: Annotated[str, typer.Argument(metavar="ID", help="The new workspace.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a workspace; prints its admin key, which is shown this once."""

    async def act(app: App) -> None:
        key = await app.identity.add_workspace(workspace_id)
        _print_key({"workspace_id": workspace_id, "admin_key": key}, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act, make=True)


@users.command("add")
def user_add(
    user_id: UserId,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a user; prints the key, which is shown this once."""

    async def act(app: App) -> None:
        if workspace == DEFAULT_WORKSPACE:
            await ensure_default_workspace(app)
        key = await app.identity.add_user(workspace, user_id)
        _print_key({"user_id": user_id, "user_key": key}, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act, make=True)


@users.command("rotate")
def user_rotate(
    user_id: UserId,
    workspace: Workspace = DEFAULT_WORKSPACE,
    overlap_minutes: Annotated[
        float, typer.Option(min=0, max=525_600, help="How long the older keys go on working.")
    ] = 60,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a new key for a user; the older ones end after the overlap. The file of the admin key is renewed too."""

    async def act(app: App) -> None:
        has_file = (workspace, user_id) == (DEFAULT_WORKSPACE, ADMIN_USER)
        keep = partial(keep_admin_key, app.settings) if has_file else None
        key = await app.identity.rotate_key(workspace, user_id, timedelta(minutes=overlap_minutes), keep)
        _print_key({"user_id": user_id, "user_key": key}, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@users.command("revoke")
def user_revoke(
    user_id: UserId,
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """End all keys of a user, everywhere within a second."""

    async def act(app: App) -> None:
        ended = await app.identity.revoke_keys(workspace, user_id)
        if as_json:
            print_plain(json.dumps({"user_id": user_id, "revoked_keys": ended}))
        else:
            print_plain(f"{ended} key{'' if ended == 1 else 's'} of {user_id} revoked")

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@users.command("list")
def user_list(
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """The users of a workspace and how many keys each has."""

    async def act(app: App) -> None:
        rows = await app.identity.list_users(workspace)
        if as_json:
            print_plain(
                json.dumps(
                    [
                        {
                            "user_id": r.user_id,
                            "role": r.role,
                            "created_at": r.created_at.isoformat(),
                            "live_keys": r.live_keys,
                        }
                        for r in rows
                    ]
                )
            )
            return
        table = Table("user", "role", "keys", "since", box=None, pad_edge=False, header_style="bold")
        for row in rows:
            table.add_row(row.user_id, row.role, str(row.live_keys), f"{row.created_at:%Y-%m-%d %H:%M}")
        out.print(table)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def tail(
    workspace: Workspace = DEFAULT_WORKSPACE,
    after: Annotated[
        int | None, typer.Option(min=0, help="Start past this position instead of at the last few.")
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="How many of the last events to show first.")
    ] = 20,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on as events come in.")] = True,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Show the ledger's last events, and new ones as they are stored."""

    async def act(app: App) -> None:
        await show_tail(app, workspace, after, lines, follow, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def seal(
    workspace: Workspace = DEFAULT_WORKSPACE,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Seal the events that are new; prints the root, which pins all of them."""

    async def act(app: App) -> None:
        await show_seal(app, workspace, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def verify(
    workspace: Workspace = DEFAULT_WORKSPACE,
    expect: Annotated[
        Expected | None,
        typer.Option(parser=expected_root, metavar="SIZE:ROOT", help="A root that was kept elsewhere."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Compare every event with its seals; exits with 1 and names the positions if something was changed."""

    async def act(app: App) -> None:
        await show_verification(app, workspace, expect, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@working_memory.command("list")
def working_list(
    agent: AgentName,
    instance: InstanceName,
    workspace: Workspace = DEFAULT_WORKSPACE,
    user: OfUser = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """The keys of an instance, with their sizes and when they expire."""

    async def act(app: App) -> None:
        await show_keys(app, Instance(workspace, user, agent, instance), as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@working_memory.command("get")
def working_get(  # noqa: PLR0913, PLR0917 (options of a command)
    agent: AgentName,
    instance: InstanceName,
    key: KeyName,
    workspace: Workspace = DEFAULT_WORKSPACE,
    user: OfUser = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Print the value under a key."""

    async def act(app: App) -> None:
        await show_value(app, Instance(workspace, user, agent, instance), key, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@working_memory.command("set")
def working_set(  # noqa: PLR0913, PLR0917
    agent: AgentName,
    instance: InstanceName,
    key: KeyName,
    value: Annotated[str, typer.Argument(metavar="JSON", help="The value; a text needs its quotes: '\"hello\"'.")],
    ttl: Annotated[int, typer.Option(min=MIN_TTL_S, max=MAX_TTL_S, help="Seconds until it expires.")] = DEFAULT_TTL_S,
    workspace: Workspace = DEFAULT_WORKSPACE,
    user: OfUser = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Put a value under a key, in place of what is there."""

    async def act(app: App) -> None:
        await set_value(app, Instance(workspace, user, agent, instance), key, value, ttl, as_json)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@working_memory.command("delete")
def working_delete(
    agent: AgentName,
    instance: InstanceName,
    key: KeyName,
    workspace: Workspace = DEFAULT_WORKSPACE,
    user: OfUser = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Remove a key and its value."""

    async def act(app: App) -> None:
        await delete_key(app, Instance(workspace, user, agent, instance), key)

    with_app(load_settings({"data_dir": data_dir, "database_url": database_url}), act)


@cli.command()
def config(as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Show the settings in force, secrets hidden, and where each can be set."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url})
    shown = settings.model_dump(mode="json") | {"key_file": str(settings.kek_path)}
    if as_json:
        print_plain(json.dumps(shown))
        return
    table = Table("setting", "value", "variable", box=None, pad_edge=False, header_style="bold")
    for name, value in shown.items():
        table.add_row(name, "" if value is None else str(value), f"WHENCE_{name.upper()}")
    out.print(table)
    out.print(
        f"\nA file {settings.data_dir / 'whence.toml'} can set them too; variables win over it, flags over both.",
        highlight=False,
        soft_wrap=True,
    )


@cli.command()
def migrate(data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Bring the database schema up to date. On your own Postgres, give the owner's URL."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url})

    async def go() -> None:
        async with reach_database(settings) as logins:
            done = await asyncio.to_thread(migrate_schema, logins.owner)
        for name in done:
            print_plain(f"applied {name}")
        if not done:
            print_plain("the schema is up to date")

    run(go())


@cli.command()
def doctor(as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Check the installation and say what to do about what is wrong. Changes nothing."""
    findings = examine(load_settings({"data_dir": data_dir, "database_url": database_url}))
    if as_json:
        print_plain(json.dumps([finding.as_dict() for finding in findings]))
    else:
        table = Table("", "check", "found", box=None, pad_edge=False, header_style="bold")
        for finding in findings:
            table.add_row("[green]ok[/]" if finding.ok else "[red]!![/]", finding.check, finding.found)
        out.print(table)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _print_key(values: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_plain(json.dumps(values))
        return
    for name, value in values.items():
        print_plain(f"{name:<13} {value}")
    print_plain("The key is shown this once: keep it now.")
