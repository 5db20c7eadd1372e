"""`whence working`: what agents have jotted down, for people and scripts."""

from dataclasses import dataclass
from typing import Annotated

import typer

from whence.cli.command import AsUser, command, json_text
from whence.cli.terminal import harmless, print_json, print_plain, print_table, shown, to_second
from whence.memory.working import DEFAULT_TTL_S, MAX_INSTANCE_BYTES, MAX_TTL_S, MIN_TTL_S

working = typer.Typer(no_args_is_help=True, help="Working memory: what instances of agents have jotted down.")

Agent = Annotated[str, typer.Argument(metavar="AGENT", help="The kind of agent.")]
Instance = Annotated[str, typer.Argument(metavar="INSTANCE", help="Which one of them.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]


@dataclass(frozen=True)
class OfUser(AsUser):
    """Without a user it is the workspace's own."""

    user: Annotated[str | None, typer.Option("--user", "-u", help="Of this user, instead of the workspace's own.")] = (
        None
    )


@command(working, "list")
async def list_keys(call: OfUser, agent: Agent, instance: Instance) -> None:
    """The keys of an instance, with their sizes and when they expire."""
    found = await call.app.working.keys((await call.principal()).scope, agent, instance)
    if call.as_json:
        print_json(found)
        return
    if found.keys:
        print_table(
            ("key", "bytes", "written", "expires"),
            (
                (shown(item.key), f"{item.bytes:,}", to_second(item.updated_at), to_second(item.expires_at))
                for item in found.keys
            ),
        )
    print_plain(f"{found.bytes:,} of {MAX_INSTANCE_BYTES:,} bytes are taken")


@command(working, "get")
async def get(call: OfUser, agent: Agent, instance: Instance, key: Key) -> None:
    """Print the value under a key."""
    entry = await call.app.working.get((await call.principal()).scope, agent, instance, key)
    if call.as_json:
        print_json(entry)
    else:
        print_plain(harmless(bytes(entry.value).decode()))


@command(working, "set")
async def put(
    call: OfUser,
    agent: Agent,
    instance: Instance,
    key: Key,
    value: Annotated[
        bytes, typer.Argument(parser=json_text, metavar="JSON", help="The value; a text needs its quotes: '\"hello\"'.")
    ],
    ttl: Annotated[int, typer.Option(min=MIN_TTL_S, max=MAX_TTL_S, help="Seconds until it expires.")] = DEFAULT_TTL_S,
) -> None:
    """Put a value under a key, in place of what is there."""
    stored = await call.app.working.put((await call.principal()).scope, agent, instance, key, value, ttl)
    if call.as_json:
        print_json(stored)
    else:
        print_plain(f"{stored.bytes:,} bytes until {to_second(stored.expires_at)}; {stored.bytes_left:,} are left")


@command(working, "delete")
async def delete(call: OfUser, agent: Agent, instance: Instance, key: Key) -> None:
    """Remove a key and its value."""
    await call.app.working.delete((await call.principal()).scope, agent, instance, key)
    if call.as_json:
        print_json({"key": key, "deleted": True})
    else:
        print_plain("deleted")
