"""`whence resources`: documents that users add, for people and scripts."""

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from whence.cli.command import AsUser, Before, InWorkspace, command
from whence.cli.terminal import Pair, print_fields, print_json, print_pairs, print_plain, progress, to_minute, to_second
from whence.errors import SetupError
from whence.memory import MAX_PAGE_MEMORIES
from whence.memory.partitions import DEFAULT_PART
from whence.resources import File
from whence.resources.spool import PART_BYTES, Spool
from whence.wire import Resource

resources = typer.Typer(no_args_is_help=True, help="Resources: documents that can be found by what they say.")

ResourceId = Annotated[UUID, typer.Argument(metavar="ID", help="The id of a resource.")]
AppId = Annotated[str, typer.Option("--app", help="The app whose partition it is in.")]
ProjectId = Annotated[str, typer.Option("--project", help="The project whose partition it is in.")]


@command(resources, "add")
async def add(
    call: InWorkspace,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What to add.")],
    user: Annotated[str | None, typer.Option(help="Whose document it is.")] = None,
    app_id: AppId = DEFAULT_PART,
    project_id: ProjectId = DEFAULT_PART,
) -> None:
    """Add documents, and wait until they are read."""
    principal = await call.principal()
    done: list[Resource] = []
    for path in files:
        with progress(path.name) as advance:
            file = File(_spooled(path), path.name, None, user, app_id, project_id)
            added, _ = await call.app.resources.add(principal, file, advance)
            done.append(await call.app.resources.settled(principal.scope, added.resource_id))
        if not call.as_json:
            _tell_added(done[-1])
    if call.as_json:
        print_json(done)
    if any(one.status == "failed" for one in done):
        raise typer.Exit(1)


def _spooled(path: Path) -> Spool:
    spool = Spool()
    try:
        with path.open("rb") as file:
            while part := file.read(PART_BYTES):
                spool.write(part)
    except OSError as error:
        spool.close()
        raise SetupError(f"{path} cannot be read: {error.strerror}") from error
    return spool


def _tell_added(one: Resource) -> None:
    said = one.reason if one.status == "failed" else f"{one.chunks:,} parts can be found"
    print_plain(f"{one.resource_id}  {one.status:<10} {one.name}: {said}")


@command(resources, "list")
async def list_resources(
    call: AsUser,
    app_id: AppId = DEFAULT_PART,
    project_id: ProjectId = DEFAULT_PART,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_PAGE_MEMORIES, help="At most so many.")] = 50,
) -> None:
    """Documents of a partition, the newest first."""
    found = await call.app.resources.page((await call.principal()).scope, app_id, project_id, before, limit)
    if call.as_json:
        print_json(found)
    elif found.resources:
        print_pairs(
            ("resource", "document"),
            (
                Pair(str(one.resource_id), one.name, f"{to_minute(one.added_at)} {one.user_id}", _state(one))
                for one in found.resources
            ),
        )
    else:
        print_plain("there are no resources")


def _state(one: Resource) -> str:
    return f"failed: {one.reason}" if one.reason else f"{one.status}, {one.chunks:,} parts, {one.size:,} bytes"


@command(resources, "show")
async def show(call: AsUser, resource: ResourceId) -> None:
    """A document: how far it is, and why it failed."""
    found = await call.app.resources.get((await call.principal()).scope, resource)
    if call.as_json:
        print_json(found)
        return
    print_fields(
        ("resource", found.resource_id),
        ("uri", found.uri),
        ("name", found.name),
        ("status", found.status),
        ("reason", found.reason),
        ("type", found.content_type),
        ("declared", found.declared_type),
        ("bytes", f"{found.size:,}"),
        ("sha256", found.sha256),
        ("parts", f"{found.chunks:,}"),
        ("left out", found.refused or None),
        ("user", found.user_id),
        ("partition", f"{found.app_id} / {found.project_id}"),
        ("added", f"{to_second(found.added_at)} by {found.added_by}"),
        ("read", found.processed_at and to_second(found.processed_at)),
    )


@command(resources, "delete")
async def delete(call: AsUser, resource: ResourceId) -> None:
    """Delete a document, and forget what it says."""
    gone = await call.app.resources.delete(await call.principal(), resource)
    if call.as_json:
        print_json(gone)
    else:
        print_plain(f"deleted {gone.name}")
