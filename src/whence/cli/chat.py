"""`whence chat`: an agent in the terminal that remembers, and says where from."""

from pathlib import Path
from typing import Annotated

import typer

from whence.cli.command import DatabaseUrl, DataDir, folder
from whence.errors import SetupError
from whence.identity import check_user_id
from whence.settings import load_settings

commands = typer.Typer()

DEFAULT_USER = "me"


@commands.command("chat")
def chat(
    model: Annotated[
        str, typer.Option("--model", "-m", help="As Pydantic AI calls it: openai:…, openai-chat:…, anthropic:….")
    ],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A JSON file with a section `memory`: a gateway elsewhere, or none."),
    ] = None,
    user: Annotated[str, typer.Option("--user", "-u", help="Whose memory it is, without --config.")] = DEFAULT_USER,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Go on with this conversation.")] = None,
    notes: Annotated[
        Path | None,
        typer.Option(
            parser=folder,
            metavar="FOLDER",
            help="Where notes and conversations are kept.",
            show_default="chat/USER in the data directory",
        ),
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Talk to an agent that remembers, and ask it why."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url})
    check_user_id(user)
    # Pydantic AI is an extra, and takes long to import.
    try:
        from whence.cli.conversation import converse  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SetupError(f"`whence chat` needs {error.name}: pip install 'whence[chat]'") from None
    if not converse(settings, model, (config, user), (notes, session)):
        raise typer.Exit(1)
