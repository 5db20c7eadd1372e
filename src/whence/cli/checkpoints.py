"""`whence checkpoints`: the tables of LangGraph, and the keys that its checkpoints are sealed under."""

from typing import Annotated

import msgspec
import typer

from whence.cli.command import DatabaseUrl, DataDir, InWorkspace, command, run
from whence.cli.terminal import print_json, print_plain, progress
from whence.errors import SetupError
from whence.settings import load_settings

checkpoints = typer.Typer(no_args_is_help=True, help="Checkpoints of LangGraph: their tables and their keys.")


@checkpoints.command("setup")
def setup(data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Make or update the tables of LangGraph. On your own Postgres, give the owner's URL."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url})
    try:
        from whence.langgraph.gateway import make_tables  # noqa: PLC0415  an extra
    except ModuleNotFoundError as error:
        raise SetupError(f"`whence checkpoints setup` needs {error.name}: pip install 'whence[langgraph]'") from None

    async def go() -> None:
        made = await make_tables(settings)
        print_plain("the tables of LangGraph were made" if made else "the tables of LangGraph are up to date")

    run(go())


@command(checkpoints, "rotate")
async def rotate(
    call: InWorkspace,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only this user's, instead of everybody's.")] = None,
) -> None:
    """Seal all checkpoints under new keys, also those that are in clear; stopped, it may be run again."""
    await call.principal()
    if not call.app.settings.checkpoint_encryption:
        raise SetupError("checkpoints are not encrypted: set checkpoint_encryption, and rotate then")
    with progress("sealing") as advance:
        done = await call.app.threads.rotate(call.workspace, user, advance)
    if call.as_json:
        print_json(msgspec.structs.asdict(done))
    else:
        print_plain(
            f"sealed {done.threads:,} threads of {done.users:,} users anew, and dropped {done.dropped_keys:,} old keys"
        )
