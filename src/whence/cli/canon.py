"""`whence canon`: the rules of worlds that memory must not repeat, for people and scripts."""

from typing import Annotated

import typer

from whence.cli.command import InWorkspace, command
from whence.cli.terminal import print_json, print_plain, print_table, shown, to_minute
from whence.wire import Canon

canon = typer.Typer(no_args_is_help=True, help="The canon: rules of worlds, which memory must not repeat.")

World = Annotated[str, typer.Argument(metavar="WORLD", help="The world.")]
Rule = Annotated[str, typer.Argument(metavar="RULE", help="The rule's id.")]


@command(canon, "set")
async def put(
    call: InWorkspace, world: World, rule: Rule, text: Annotated[str, typer.Argument(metavar="TEXT", help="The rule.")]
) -> None:
    """Set a rule, in place of what is there."""
    await call.app.memory.set_rule(await call.principal(), world, rule, text)
    if call.as_json:
        print_json({"world_id": world, "rule_id": rule, "body": text})
    else:
        print_plain("set")


@command(canon, "list")
async def list_rules(call: InWorkspace, world: World) -> None:
    """The rules of a world."""
    found = await call.app.memory.rules((await call.principal()).scope, world)
    if call.as_json:
        print_json(Canon(found))
    elif found:
        rows = ((shown(rule.rule_id), to_minute(rule.updated_at), shown(rule.body)) for rule in found)
        print_table(("rule", "set", "text"), rows)
    else:
        print_plain(f"the world {shown(world)} has no rules")


@command(canon, "drop")
async def drop(call: InWorkspace, world: World, rule: Rule) -> None:
    """Drop a rule."""
    await call.app.memory.drop_rule(await call.principal(), world, rule)
    if call.as_json:
        print_json({"world_id": world, "rule_id": rule, "dropped": True})
    else:
        print_plain("dropped")
