"""`whence erase`, `export` and `purge`: what is held on a person, for those who answer for it."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any, cast
from uuid import UUID

import msgspec
import typer

from whence.app import reach_database
from whence.cli.command import AsJson, DatabaseUrl, DataDir, InWorkspace, command, run
from whence.cli.terminal import print_fields, print_json, print_plain, print_table, progress, to_second
from whence.clock import system_clock
from whence.db import embedded
from whence.errors import NotFound, SetupError
from whence.lifecycle.erasure import STEPS, Check, Told
from whence.lifecycle.purge import purge
from whence.settings import load_settings
from whence.wire import Erasure

commands = typer.Typer()


@command(commands, "erase")
async def erase(
    call: InWorkspace,
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="Whose data is to be erased.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    verify: Annotated[
        str | None, typer.Option(metavar="RECEIPT", help="Check a receipt, by its id or its file, and erase nothing.")
    ] = None,
    receipt: Annotated[
        UUID | None, typer.Option(metavar="ID", help="Print a receipt that there is, and erase nothing.")
    ] = None,
    restored: Annotated[
        bool, typer.Option("--restored", help="Erase again whom a restored backup has brought back.")
    ] = False,
) -> None:
    """Erase everything that is held on a person, and print the receipt."""
    if sum((subject is not None, verify is not None, receipt is not None, restored)) != 1:
        raise typer.BadParameter("name a subject, or say --verify, --receipt or --restored")
    if verify is not None:
        await _verify(call, verify)
    elif receipt is not None:
        found = await call.app.erasures.get((await call.principal()).scope, receipt)
        _tell_all(call, [found], as_list=False)
    else:
        await _erase(call, subject, yes)


async def _erase(call: InWorkspace, subject: str | None, yes: bool) -> None:
    """A subject, or all that a restored backup has brought back."""
    principal = await call.principal()
    subjects = await call.app.erasures.restored(call.workspace) if subject is None else [subject]
    what = f"{len(subjects):,} subjects that a backup has brought back" if subject is None else f"all data of {subject}"
    if subjects and not yes:
        typer.confirm(f"Erase {what} from the workspace {call.workspace}? It cannot be undone.", abort=True, err=True)
    receipts: list[Erasure] = []
    with progress("erasing") as advance:
        for item in subjects:
            receipts.append(await call.app.erasures.erase(principal, item, _in_one_bar(advance)))
    _tell_all(call, receipts, as_list=subject is None)


def _tell_all(call: InWorkspace, receipts: list[Erasure], as_list: bool) -> None:
    if call.as_json:
        print_json(receipts if as_list else receipts[0])
        return
    for receipt in receipts:
        _tell(receipt)
    if not receipts:
        print_plain("no backup has brought anybody back")


def _in_one_bar(advance: Callable[[int, int], None]) -> Told:
    """Each step is as long as the others; how long it takes nobody knows before."""

    def told(step: str, done: int, total: int) -> None:
        advance(100 * STEPS.index(step) + 100 * done // max(total, 1), 100 * len(STEPS))

    return told


def _tell(receipt: Erasure) -> None:
    print_fields(
        ("erased", to_second(receipt.erased_at)),
        ("receipt", receipt.erasure_id),
        ("position", receipt.position),
        ("subject", receipt.subject_hash),
        ("digest", receipt.digest),
        ("keys", ", ".join(map(str, receipt.shredded_keys)) or None),
        ("held", ", ".join(map(str, receipt.held)) or None),
    )
    print_table(
        ("table", "rows", "digest"),
        ((name, f"{removed.count:,}", removed.digest[:16]) for name, removed in sorted(receipt.removed.items())),
    )
    print_plain("Files may hold it until `whence purge` has run, and backups until they are gone.")


async def _verify(call: InWorkspace, given: str) -> None:
    scope = (await call.principal()).scope
    named = _id_in(given)
    receipt = _read(Path(given)) if named is None else await call.app.erasures.get(scope, named)
    if receipt.workspace_id != call.workspace:
        raise NotFound(f"the receipt is of the workspace {receipt.workspace_id}: say --workspace")
    checks = await call.app.erasures.verify(receipt)
    _tell_checks(call, checks)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _tell_checks(call: InWorkspace, checks: list[Check]) -> None:
    if call.as_json:
        print_json({"ok": all(check.ok for check in checks), "checks": [check._asdict() for check in checks]})
        return
    for check in checks:
        print_plain(f"{'ok     ' if check.ok else 'DIFFERS'} {check.what:<6} {check.detail}")


def _id_in(given: str) -> UUID | None:
    try:
        return UUID(given)
    except ValueError:
        return None


def _read(path: Path) -> Erasure:
    try:
        given = path.read_bytes()
        receipt = msgspec.json.decode(given, type=Erasure)
        if not _has_the_fields_of(msgspec.json.decode(given), msgspec.to_builtins(receipt)):
            raise SetupError(f"{path} says more than a receipt does: it was changed")
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError:
        raise SetupError(f"{path} is not a receipt, as `whence erase --json` prints it") from None
    return receipt


def _has_the_fields_of(given: Any, known: Any) -> bool:
    """At every depth. What is not known would pass for attested."""
    if not isinstance(given, dict):
        return True
    fields = cast("dict[str, Any]", given)
    return all(name in known and _has_the_fields_of(value, known[name]) for name, value in fields.items())


@command(commands, "export")
async def export(
    call: InWorkspace,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Whose data is wanted.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the archive is written to.")],
) -> None:
    """Write everything that is held on a person into one ZIP archive."""
    made = await call.app.exports.begin((await call.principal()).scope, subject)
    size = 0
    try:
        with _new_file(file) as out, progress("exporting") as advance:
            async for part in made.archive(advance):
                size += out.write(part)
    except FileExistsError:
        raise SetupError(f"{file} is there already: name another file") from None
    except OSError as error:
        raise SetupError(f"{file} cannot be written: {error.strerror}") from error
    if call.as_json:
        print_json({"file": str(file), "bytes": size})
    else:
        print_plain(f"{size:,} bytes in {file}")


def _new_file(path: Path) -> IO[bytes]:
    """All that is known of a person is for the eyes of who asked."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


@commands.command("purge")
def run_purge(as_json: AsJson = False, data_dir: DataDir = None, database_url: DatabaseUrl = None) -> None:
    """Rewrite what held erased data, so that no file of the database does. Writes wait meanwhile."""
    settings = load_settings({"data_dir": data_dir, "database_url": database_url})
    is_ours = settings.database_url is None
    if is_ours and not embedded.status(settings.data_dir).initialised:
        raise NotFound(f"there is no Whence data in {settings.data_dir}: check --data-dir")

    async def go() -> None:
        async with reach_database(settings) as logins:
            with progress("rewriting") as advance:
                folder = settings.data_dir if is_ours else None
                report = await asyncio.to_thread(purge, logins.owner, folder, system_clock(), advance)
        if as_json:
            print_json(report)
            return
        print_plain(f"rewritten  {len(report.tables)} tables, {report.bytes_before:,} bytes before")
        print_plain(f"now        {report.bytes_after:,} bytes")
        if report.wal_segments is not None:
            print_plain(f"log        {report.wal_segments} segments of the write-ahead log were replaced")
        for left in report.left_to_operator:
            print_plain(f"yours      {left}")

    run(go())
