"""`whence seal` and `whence verify`: for people as lines, for scripts as JSON."""

from typing import Annotated

import msgspec
import typer

from whence.cli.command import InWorkspace, command
from whence.cli.terminal import print_json, print_plain, progress
from whence.ledger.verify import Difference, Expected, Verification
from whence.merkle import HASH_BYTES
from whence.wire import Seal

commands = typer.Typer()


def expected_root(text: str) -> Expected:
    """SIZE:ROOT, as `whence seal` prints it."""
    size, _, root = text.partition(":")
    if not size.isdecimal() or not 0 < int(size) < 1 << 63:
        raise typer.BadParameter("is not SIZE:ROOT, as `whence seal` prints it")
    try:
        decoded = bytes.fromhex(root)
    except ValueError:
        decoded = b""
    if len(decoded) != HASH_BYTES:
        raise typer.BadParameter(f"the root is not {2 * HASH_BYTES} hexadecimal digits")
    return Expected(int(size), decoded)


@command(commands, "seal")
async def seal(call: InWorkspace) -> None:
    """Seal the events that are new; prints the root, which pins all of them."""
    scope, seals = (await call.principal()).scope, call.app.ledger.seals
    before = await seals.last(scope)
    made = await seals.seal(call.workspace)
    last = made or await seals.last(scope)
    new = last.size - before.size if made else 0
    if call.as_json:
        print_json({"size": last.size, "root": last.root, "new_events": new})
    else:
        print_plain("\n".join(_seal_lines(last, new)))


def _seal_lines(seal: Seal, new: int) -> list[str]:
    if seal.size == 0:
        return ["there is nothing to seal"]
    said = f"sealed {new:,} new event{'s' * (new != 1)}" if new else "nothing is new since the last seal"
    return [said, f"{seal.size}:{seal.root}", "Keep this line elsewhere: `whence verify --expect` compares with it."]


@command(commands, "verify")
async def verify(
    call: InWorkspace,
    expect: Annotated[
        Expected | None,
        typer.Option(parser=expected_root, metavar="SIZE:ROOT", help="A root that was kept elsewhere."),
    ] = None,
) -> None:
    """Compare every event with its seals; exits with 1 and names the positions if something was changed."""
    await call.principal()
    with progress("verifying") as advance:
        found = await call.app.ledger.seals.verify(call.workspace, advance, expect)
    if call.as_json:
        print_json({"ok": found.ok, **msgspec.structs.asdict(found)})
    else:
        print_plain("\n".join(_verification_lines(found, expect is not None)))
    if not found.ok:
        raise typer.Exit(1)


def _verification_lines(found: Verification, was_expected: bool) -> list[str]:
    lines = [f"read     {_counted(found.events, 'event')} and {_counted(found.seals, 'seal')}"]
    if found.sealed:
        lines.append(f"sealed   {found.sealed}:{found.root}")
    if found.unsealed:
        lines.append(f"unsealed {_counted(found.unsealed, 'event')} past the last seal: `whence seal`")
    if found.ok:
        also = ", and has the expected root" if was_expected else ""
        return [*lines, f"ok       everything that was sealed is as it was sealed{also}"]
    are = "is not as it was" if found.found == 1 else "are not as they were"
    lines.append(f"DIFFERS  {_counted(found.found, 'place')} {are} sealed:")
    return lines + [f"  {_places(item)}: {item.detail}" for item in found.differences]


def _places(item: Difference) -> str:
    return f"position {item.first}" if item.first == item.last else f"positions {item.first} to {item.last}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
