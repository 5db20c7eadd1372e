"""The first layer: `MEMORY.md` and `USER.md` in a folder, edited by an agent and by people alike.

A run sees them as they were when it began. A change is made to the file as it is now, under a lock that all processes
share, by a rename: who reads sees the old file or the new one, and a process that is killed leaves one of the two.
Knows nothing of the gateway.
"""

import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, Literal

from whence.errors import InvalidInput, SetupError
from whence.hybrid.entries import Entry, added, entries_of, is_read_back, removed, replaced

Target = Literal["memory", "user"]

MAX_MEMORY_CHARACTERS = 4_000
MAX_USER_CHARACTERS = 2_000
MAX_FILE_BYTES = 1 << 20
"""A file that a person has made larger is not put into a prompt."""
LOCK_SECONDS = 10.0
LOCK_POLL_SECONDS = 0.01
MAX_REREAD = 5
"""Times that a change is made anew because a person has saved the file meanwhile."""

NAMES: Final[dict[Target, str]] = {"memory": "MEMORY.md", "user": "USER.md"}
BUDGETS: Final[dict[Target, int]] = {"memory": MAX_MEMORY_CHARACTERS, "user": MAX_USER_CHARACTERS}


@dataclass(frozen=True)
class Kept:
    """One of the files, at one time."""

    target: Target
    text: str

    @property
    def entries(self) -> list[Entry]:
        return entries_of(self.text)

    @property
    def used(self) -> int:
        return len(self.text)

    @property
    def budget(self) -> int:
        return BUDGETS[self.target]

    @property
    def is_over_budget(self) -> bool:
        """A person may have made it so. It is shown whole, and only what makes it shorter is taken from an agent."""
        return self.used > self.budget


@dataclass(frozen=True)
class Snapshot:
    """What a run knows of curated memory, from its beginning to its end."""

    memory: Kept
    user: Kept

    @property
    def flagged(self) -> list[Entry]:
        """Entries that a person should look at: see `whence.hybrid.entries.flags_of`."""
        return [entry for kept in (self.memory, self.user) for entry in kept.entries if entry.flags]


@dataclass(frozen=True)
class Changed:
    """What a change came to."""

    kept: Kept
    is_changed: bool
    entry: str
    """What was added, put in place, or removed."""


class NotCurated(InvalidInput):
    """A change that was refused. Nothing was written."""

    def __init__(self, detail: str, kept: Kept) -> None:
        super().__init__(detail)
        self.kept = kept
        """What is there, so that whoever asked can choose."""


class CuratedMemory:
    """The two files of a folder, which is made when something is first kept in it."""

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = Path(folder).expanduser()

    def path(self, target: Target) -> Path:
        return self._folder / NAMES[target]

    def snapshot(self) -> Snapshot:
        return Snapshot(self.read("memory"), self.read("user"))

    def read(self, target: Target) -> Kept:
        """The file as it is now; one that is not there is empty."""
        return Kept(target, _decoded(self.path(target), _bytes(self.path(target))))

    def add(self, target: Target, text: str) -> Changed:
        """An entry at the end; one that is there already is left as it is."""
        entry = _checked(text, self.read(target))

        def change(kept: Kept) -> tuple[str, str]:
            is_there = any(each.text == entry for each in kept.entries)
            return kept.text if is_there else added(kept.text, entry), entry

        return self._changed(target, change)

    def replace(self, target: Target, old_text: str, text: str) -> Changed:
        """Another text in the place of the one entry that holds `old_text`."""
        entry = _checked(text, self.read(target))
        return self._changed(target, lambda kept: (replaced(kept.text, _only(kept, old_text), entry), entry))

    def remove(self, target: Target, old_text: str) -> Changed:
        """The one entry that holds `old_text` is gone."""

        def change(kept: Kept) -> tuple[str, str]:
            entry = _only(kept, old_text)
            return removed(kept.text, entry), entry.text

        return self._changed(target, change)

    def _changed(self, target: Target, change: Callable[[Kept], tuple[str, str]]) -> Changed:
        """`change` makes of a file its new text, and says which entry it is about."""
        with self._locked():
            # Behind a link stands the file that is meant.
            path = Path(os.path.realpath(self.path(target)))
            for _ in range(MAX_REREAD):
                before = _bytes(path)
                kept = Kept(target, _decoded(path, before))
                text, entry = change(kept)
                if text == kept.text:
                    return Changed(kept, False, entry)
                new = Kept(target, text)
                _check_budget(kept, new)
                with _beside(path, text) as put_in_place:
                    # Editors take no lock. What somebody saved since is what is to be changed.
                    if _bytes(path) == before:
                        put_in_place()
                        return Changed(new, True, entry)
        raise NotCurated(f"{NAMES[target]} is being written by somebody else: try again", self.read(target))

    @contextmanager
    def _locked(self) -> Generator[None]:
        """The lock is a file of its own, because the others are replaced; it ends with its process."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._folder / ".curated.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _wait_for(lock)
            yield
        finally:
            os.close(lock)


def _wait_for(lock: int) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise SetupError(f"curated memory is locked by another process for {LOCK_SECONDS:g} s") from None
            time.sleep(LOCK_POLL_SECONDS)
        else:
            return


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise SetupError(f"{path} cannot be read: {error.strerror}") from None


def _decoded(path: Path, found: bytes) -> str:
    if len(found) > MAX_FILE_BYTES:
        raise SetupError(f"{path} has more than {MAX_FILE_BYTES:,} bytes: shorten it")
    try:
        # Some editors put a mark before UTF-8, which is no text.
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SetupError(f"{path} is not UTF-8: save it as such") from None


@contextmanager
def _beside(path: Path, text: str) -> Generator[Callable[[], None]]:
    """The new file beside the old one, and what puts it in its place. Its name is always the same, and who writes it
    has the lock: what a killed process left is written over."""
    new = path.with_name(f".{path.name}.new")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    new.unlink(missing_ok=True)
    try:
        with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        yield lambda: _put_in_place(new, path)
    finally:
        new.unlink(missing_ok=True)


def _put_in_place(new: Path, path: Path) -> None:
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _checked(text: str, kept: Kept) -> str:
    """An entry as it will be read back: without spaces around it or at the end of its lines."""
    entry = "\n".join(line.rstrip() for line in text.strip().replace("\r\n", "\n").split("\n"))
    if not entry:
        raise NotCurated("an entry must not be empty; remove takes one away", kept)
    if any(not sign.isprintable() and ord(sign) < 0xA0 and sign not in "\n\t" for sign in entry):
        raise NotCurated("an entry must not hold control characters", kept)
    if any("\ud800" <= sign <= "\udfff" for sign in entry):
        raise NotCurated("an entry must be valid Unicode", kept)
    if not is_read_back(entry):
        raise NotCurated("an entry must not look like a ruler", kept)
    return entry


def _only(kept: Kept, old_text: str) -> Entry:
    wanted = old_text.strip().replace("\r\n", "\n")
    holding = [entry for entry in kept.entries if wanted and wanted in entry.text]
    # An entry that is part of another one could not be named otherwise.
    found = [entry for entry in holding if entry.text == wanted] if len(holding) > 1 else holding
    if len(found) == 1:
        return found[0]
    if not holding:
        raise NotCurated("no entry holds this text: see what is there", kept)
    raise NotCurated(f"{len(holding)} entries hold this text: give more of the one that is meant", kept)


def _check_budget(kept: Kept, new: Kept) -> None:
    if new.is_over_budget and new.used > kept.used:
        raise NotCurated(
            f"{NAMES[new.target]} would have {new.used:,} characters, and {new.budget:,} is the most: "
            "replace or remove something first",
            kept,
        )
