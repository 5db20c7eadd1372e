"""The command line: `whence …`. Each subject has its commands in a module of its own; here they are put together."""

import asyncio
import signal
import sys
from typing import Annotated

import typer

from whence import __version__
from whence.app import App, admin_key_file, ensure_default_workspace, reach_database
from whence.cli import (
    canon,
    chat,
    checkpoints,
    conversations,
    doctor,
    erasure,
    evaluation,
    graph,
    jobs,
    lifecycle,
    memory,
    recall,
    resources,
    runs,
    seals,
    sessions,
    tail,
    users,
    workflows,
    working,
)
from whence.cli.command import AsJson, DatabaseUrl, DataDir, LogLevel, run, with_app
from whence.cli.terminal import print_json, print_plain, print_table
from whence.db.migrate import migrate as migrate_schema
from whence.errors import WhenceError
from whence.settings import load_settings
from whence.worker import work

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Memory for AI agents that knows where it came from.",
)
for _subject in (doctor, memory, recall, graph, tail, seals, lifecycle, erasure, evaluation, chat):
    cli.add_typer(_subject.commands)
cli.add_typer(users.users, name="user")
cli.add_typer(users.workspaces, name="workspace")
cli.add_typer(memory.memories, name="memory")
cli.add_typer(runs.runs, name="run")
cli.add_typer(canon.canon, name="canon")
cli.add_typer(resources.resources, name="resources")
cli.add_typer(conversations.conversations, name="conversations")
cli.add_typer(sessions.sessions, name="session")
cli.add_typer(workflows.workflows, name="workflow")
cli.add_typer(working.working, name="working")
cli.add_typer(jobs.jobs, name="jobs")
cli.add_typer(checkpoints.checkpoints, name="checkpoints")
cli.add_typer(lifecycle.actions, name="action")
cli.add_typer(lifecycle.archives, name="archive")


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


def version(wanted: bool) -> None:
    if wanted:
        print_plain(f"whence {__version__}")
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
        bool, typer.Option("--no-worker", help="Leave the graph, the seals and the jobs to `whence worker`.")
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
    """Keep the graph up to date, seal the ledger and do jobs, apart from a server. Any number may run."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url, "log_level": log_level})

    async def act(app: App) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, app.stopping.set)
        print_plain("working")
        await work(app)

    with_app(settings, act)


@cli.command()
def config(as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Show the settings in force, secrets hidden, and where each can be set."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url})
    shown = settings.model_dump(mode="json") | {"key_file": str(settings.kek_path)}
    if as_json:
        print_json(shown)
        return
    print_table(
        ("setting", "value", "variable"),
        ((name, "" if value is None else str(value), f"WHENCE_{name.upper()}") for name, value in shown.items()),
    )
    where = settings.data_dir / "whence.toml"
    print_plain(f"\nA file {where} can set them too; variables win over it, flags over both.")


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
