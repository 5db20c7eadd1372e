"""How a command is made: the options that commands share, and the way from there to an open app."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, Literal, ParamSpec, TypeVar

import msgspec
import typer
import uvloop

from whence.app import DEFAULT_WORKSPACE, App, open_app
from whence.db import Scope, embedded
from whence.errors import Conflict, InvalidInput, NotFound
from whence.identity import ADMIN_USER, Principal, check_user_id
from whence.logs import configure_logs
from whence.settings import Settings, load_settings


def folder(text: str) -> Path:
    """An unset variable in a script must not mean the current folder."""
    if not text:
        raise typer.BadParameter("is empty")
    return Path(text)


def moment(text: str) -> datetime:
    """As commands show it: UTC, unless it says otherwise."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter("is not a time such as 2026-07-01, 2026-07-01 12:00 or 2026-07-01T12:00:00Z") from None
    return given.replace(tzinfo=given.tzinfo or UTC)


def position(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 63:
        raise typer.BadParameter("is not a position: a number from 1")
    return int(text)


def json_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise typer.BadParameter("is not valid JSON; a text needs its quotes: '\"hello\"'") from None


def json_text(text: str) -> bytes:
    """As it is written, so that its numbers keep their digits."""
    json_value(text)
    return text.encode()


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
Before = Annotated[
    int | None,
    typer.Option(parser=position, metavar="POSITION", help="Only what was recorded before this position."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@dataclass(frozen=True)
class Call:
    """What a command works with. Every field besides the app is an option of the commands that take it."""

    app: App
    as_json: AsJson = False


@dataclass(frozen=True)
class InWorkspace(Call):
    workspace: Annotated[str, typer.Option("--workspace", "-w", help="The workspace.")] = DEFAULT_WORKSPACE

    async def principal(self) -> Principal:
        """A name that is misspelt must not be taken for that of somebody who has nothing."""
        if not await self.app.identity.workspace_exists(self.workspace):
            raise NotFound(f"there is no workspace {self.workspace}")
        return Principal(self.workspace, ADMIN_USER, is_admin=True)


@dataclass(frozen=True)
class AsUser(InWorkspace):
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Act as this user, instead of as the administrator.")
    ] = None

    async def principal(self) -> Principal:
        """What it may see and do is what it may with its own key."""
        administrator = await super().principal()
        if self.user is None:
            return administrator
        roles = {row.user_id: row.role for row in await self.app.identity.list_users(self.workspace)}
        if self.user not in roles and not await self._has_events(self.user):
            raise NotFound(f"there is no user {self.user} in the workspace {self.workspace}")
        return Principal(self.workspace, self.user, is_admin=roles.get(self.user) == "admin")

    async def _has_events(self, user: str) -> bool:
        """Whom an administrator writes for, and who uses Whence inside a program, may have no account."""
        check_user_id(user)
        return bool((await self.app.ledger.page(Scope(self.workspace, user), 0, 1)).events)


_Call = TypeVar("_Call", bound=Call)
_Own = ParamSpec("_Own")
_Act = Callable[Concatenate[_Call, _Own], Awaitable[None]]


def command(group: typer.Typer, name: str, make: bool = False) -> Callable[[_Act[_Call, _Own]], _Act[_Call, _Own]]:
    """The function becomes a command whose options are its own parameters and the fields of its `Call`.

    `make` is for what may make a database where there is none.
    """

    def register(act: _Act[_Call, _Own]) -> _Act[_Call, _Own]:
        first, *own = inspect.signature(act).parameters.values()
        kind: Callable[..., _Call] = first.annotation
        called: Callable[..., Awaitable[None]] = act
        _, as_json, *shared = inspect.signature(kind).parameters.values()

        def entry(data_dir: DataDir = None, database_url: DatabaseUrl = None, **given: Any) -> None:
            fields = {field.name: given.pop(field.name) for field in (as_json, *shared)}
            settings = load_settings({"data_dir": data_dir, "database_url": database_url})
            try:
                with_app(settings, lambda app: called(kind(app, **fields), **given), make)
            except (InvalidInput, Conflict) as error:
                raise _by_option(error, {*fields, *given}) from None

        *where, _ = inspect.signature(entry).parameters.values()
        # What typer reads.
        entry.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
            [*own, *shared, as_json, *where]
        )
        entry.__doc__ = act.__doc__
        group.command(name)(entry)
        return act

    return register


_OPTIONS: Final = {
    "user_id": ("user", "--user"),
    "session_id": ("session", "--session"),
    "interaction_id": ("interaction", "--interaction"),
    "run_id": ("run", "--run"),
    "world_id_context": ("world", "--world"),
    "derived_from": ("sources", "--from"),
    "subject_id": ("about", "--about"),
    "memory_id": ("memory_id", "--id"),
}
"""Of fields that a command calls otherwise: the parameter of the function, and what is typed."""


def _by_option(error: InvalidInput | Conflict, given: Set[str]) -> InvalidInput | Conflict:
    """Names what the command takes instead of a field that nobody has typed."""
    field = error.errors[0].field if error.errors else ""
    parameter, option = _OPTIONS.get(field, ("", ""))
    if parameter not in given or not error.detail.startswith(f"{field}: "):
        return error
    return type(error)(f"{option}: {error.detail.removeprefix(f'{field}: ')}", error.errors)


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
