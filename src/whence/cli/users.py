"""`whence workspace` and `whence user`: who is kept apart from whom, and by which keys."""

from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Annotated

import typer

from whence.app import DEFAULT_WORKSPACE, ensure_default_workspace, keep_admin_key
from whence.cli.command import Call, InWorkspace, command
from whence.cli.terminal import print_json, print_plain, print_table, to_minute
from whence.identity import ADMIN_USER

workspaces = typer.Typer(no_args_is_help=True, help="Workspaces: who is kept apart from whom.")
users = typer.Typer(no_args_is_help=True, help="Users and their keys.")

UserId = Annotated[str, typer.Argument(metavar="ID", help="The user.")]


@command(workspaces, "add", make=True)
async def add_workspace(
    call: Call, workspace_id: Annotated[str, typer.Argument(metavar="ID", help="The new workspace.")]
) -> None:
    """Make a workspace; prints its admin key, which is shown this once."""
    key = await call.app.identity.add_workspace(workspace_id)
    _print_key({"workspace_id": workspace_id, "admin_key": key}, call.as_json)


@command(users, "add", make=True)
async def add(call: InWorkspace, user_id: UserId) -> None:
    """Make a user; prints the key, which is shown this once."""
    if call.workspace == DEFAULT_WORKSPACE:
        await ensure_default_workspace(call.app)
    key = await call.app.identity.add_user(call.workspace, user_id)
    _print_key({"user_id": user_id, "user_key": key}, call.as_json)


@command(users, "rotate")
async def rotate(
    call: InWorkspace,
    user_id: UserId,
    overlap_minutes: Annotated[
        float, typer.Option(min=0, max=525_600, help="How long the older keys go on working.")
    ] = 60,
) -> None:
    """Make a new key for a user; the older ones end after the overlap. The file of the admin key is renewed too."""
    has_file = (call.workspace, user_id) == (DEFAULT_WORKSPACE, ADMIN_USER)
    keep = partial(keep_admin_key, call.app.settings) if has_file else None
    key = await call.app.identity.rotate_key(call.workspace, user_id, timedelta(minutes=overlap_minutes), keep)
    _print_key({"user_id": user_id, "user_key": key}, call.as_json)


@command(users, "revoke")
async def revoke(call: InWorkspace, user_id: UserId) -> None:
    """End all keys of a user, everywhere within a second."""
    ended = await call.app.identity.revoke_keys(call.workspace, user_id)
    if call.as_json:
        print_json({"user_id": user_id, "revoked_keys": ended})
    else:
        print_plain(f"{ended} key{'' if ended == 1 else 's'} of {user_id} revoked")


@command(users, "list")
async def list_users(call: InWorkspace) -> None:
    """The users of a workspace and how many keys each has."""
    rows = await call.app.identity.list_users(call.workspace)
    if call.as_json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        ("user", "role", "keys", "since"),
        ((row.user_id, row.role, str(row.live_keys), to_minute(row.created_at)) for row in rows),
    )


def _print_key(values: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        print_plain(f"{name:<13} {value}")
    print_plain("The key is shown this once: keep it now.")
