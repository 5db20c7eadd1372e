"""`whence working`: what agents have jotted down, for people and scripts."""

import json
from datetime import datetime
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from whence.app import App
from whence.cli.tail import shown
from whence.cli.terminal import must_exist, print_plain
from whence.db import Scope
from whence.errors import NotFound
from whence.memory.working import MAX_INSTANCE_BYTES


class Instance(NamedTuple):
    """Whose working memory is meant. Without a user it is the workspace's own."""

    workspace: str
    user: str | None
    agent: str
    name: str


async def show_keys(app: App, of: Instance, as_json: bool) -> None:
    found = await app.working.keys(await _scope(app, of), of.agent, of.name)
    if as_json:
        print_plain(msgspec.json.encode(found).decode())
        return
    table = Table("key", "bytes", "written", "expires", box=None, pad_edge=False, header_style="bold")
    for item in found.keys:
        table.add_row(shown(item.key), f"{item.bytes:,}", _time(item.updated_at), _time(item.expires_at))
    console = Console(highlight=False, markup=False)
    if found.keys:
        console.print(table)
    console.print(f"{found.bytes:,} of {MAX_INSTANCE_BYTES:,} bytes are taken")


async def show_value(app: App, of: Instance, key: str, as_json: bool) -> None:
    entry = await app.working.get(await _scope(app, of), of.agent, of.name, key)
    print_plain(_harmless((msgspec.json.encode(entry) if as_json else bytes(entry.value)).decode()))


async def set_value(app: App, of: Instance, key: str, value: str, ttl_s: int, as_json: bool) -> None:
    # Bytes that are no text reach us as halves of characters; as bytes again they are refused like any other non-JSON.
    given = value.encode("utf-8", "surrogateescape")
    stored = await app.working.put(await _scope(app, of), of.agent, of.name, key, given, ttl_s)
    if as_json:
        print_plain(msgspec.json.encode(stored).decode())
    else:
        print_plain(f"{stored.bytes:,} bytes until {_time(stored.expires_at)}; {stored.bytes_left:,} are left")


async def delete_key(app: App, of: Instance, key: str) -> None:
    await app.working.delete(await _scope(app, of), of.agent, of.name, key)
    print_plain("deleted")


async def _scope(app: App, of: Instance) -> Scope:
    """A name that is misspelt must not be taken for that of somebody who has jotted down nothing."""
    await must_exist(app, of.workspace)
    if of.user is not None and of.user not in {row.user_id for row in await app.identity.list_users(of.workspace)}:
        raise NotFound(f"there is no user {of.user} in the workspace {of.workspace}")
    return Scope(of.workspace, of.user)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _harmless(text: str) -> str:
    """The same JSON with what a terminal might obey escaped. Besides line ends, it can only stand in strings."""
    return "".join(
        character if character.isprintable() or character in "\t\r\n" else json.dumps(character)[1:-1]
        for character in text
    )
