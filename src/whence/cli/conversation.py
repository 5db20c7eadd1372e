"""A conversation as `whence chat` has it: opened, read from a terminal or a pipe, and shown as it comes about."""

import asyncio
import importlib
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from rich.console import Console

from whence.chat.agent import ChatAgent, Model, Told, model_of
from whence.chat.origins import Origins
from whence.chat.sessions import SessionAudit, Sessions
from whence.chat.talk import Talk
from whence.cli.terminal import print_plain, shown, shown_lines
from whence.client.embedded import Embedded
from whence.errors import SetupError, Unavailable, WhenceError
from whence.hybrid import GatewayConfig, HybridMemory, MemoryConfig, Secret
from whence.settings import Settings

if TYPE_CHECKING:
    from io import TextIOWrapper

AGENT = "whence-chat"
"""How the gateway is told who answered."""
PATIENCE_SECONDS = 1.5
"""Of somebody who sees nothing happen."""


def converse(
    settings: Settings, model: str, memory: tuple[Path | None, str], kept: tuple[Path | None, str | None]
) -> bool:
    """`memory` is the file that says which, or else the user whose it is; `kept` the folder, and the conversation in it
    that goes on. False where a prompt in a pipe got no answer."""
    speaking = model_of(model)
    config, user = memory
    notes, session = kept
    with ExitStack() as held:
        runner = held.enter_context(asyncio.Runner())
        where, transport = _memory(held, settings, config, user)
        owner = where.gateway.user_id if where.gateway else user
        folder = notes or settings.data_dir / "chat" / quote(owner, safe="").replace(".", "%2E")
        talk = held.enter_context(_opened(runner, speaking, where, transport, (folder.expanduser(), session)))
        return _talked(runner, talk)


def _memory(
    held: ExitStack, settings: Settings, config: Path | None, user: str
) -> tuple[MemoryConfig, Embedded | None]:
    """What the file says; without one, a Whence in this process, for as long as the conversation lasts."""
    if config is not None:
        return MemoryConfig.from_file(config), None
    url = settings.database_url.get_secret_value() if settings.database_url else None
    embedded = Embedded(settings.data_dir, user, url)
    try:
        key = Secret(embedded.key())
    except (SetupError, Unavailable) as error:
        sys.stderr.write(f"whence: {error.detail}\nwhence: nothing is recalled meanwhile; notes are there\n")
        return MemoryConfig(mode="curated", is_explicit=True), None
    held.callback(embedded.close)
    # A memory of this conversation alone would add nothing to what the model is given of it anyway.
    gateway = GatewayConfig(base_url="http://embedded", user_id=user, user_key=key, scope=("all_user_memory",))
    return MemoryConfig(is_explicit=True, gateway=gateway), embedded


@contextmanager
def _opened(
    runner: asyncio.Runner,
    model: Model,
    config: MemoryConfig,
    transport: Embedded | None,
    kept: tuple[Path, str | None],
) -> Generator[Talk]:
    """`kept` is the folder, and the conversation in it that goes on."""
    where, session = kept
    sessions = Sessions(where / "sessions")
    session_id = session or sessions.new_id()
    sessions.path(session_id)
    memory = HybridMemory(config, where, audit=SessionAudit(sessions), assistant_id=AGENT, transport=transport)
    origins = Origins(config.gateway, transport) if config.gateway else None
    try:
        yield Talk(ChatAgent(model, memory, sessions), memory, sessions, origins, session_id)
    finally:
        runner.run(memory.close())
        if origins is not None:
            runner.run(origins.close())


def _talked(runner: asyncio.Runner, talk: Talk) -> bool:
    """Until the input ends or somebody quits. Whether every prompt got an answer; in a terminal that is seen anyway."""
    answered = True
    is_terminal = sys.stdin.isatty()
    shown_to = _Shown(is_terminal)
    if is_terminal:
        print_plain(f"conversation {talk.session_id}; /help shows the commands")
    for line in _asked(is_terminal):
        if line == "/quit":
            break
        try:
            if line.startswith("/"):
                shown_to.stopped = "(stopped)"
                for each in runner.run(talk.command(line)):
                    print_plain(shown(each))
            else:
                runner.run(_answered(talk, line, shown_to))
        except WhenceError as error:
            answered = False
            sys.stderr.write(f"whence: {shown(error.detail)}\n")
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            print_plain(shown_to.stopped)
    return answered or is_terminal


async def _answered(talk: Talk, prompt: str, shown_to: "_Shown") -> None:
    shown_to.stopped = "(stopped; nothing is kept of this)"
    try:
        answered = await talk.answer(prompt, Told(shown_to.text, shown_to.tool, shown_to.waiting))
    finally:
        shown_to.text("\n")
    shown_to.stopped = "(stopped; this is kept, but the memory gateway may not know of it)"
    if answered.not_kept is not None:
        sys.stderr.write(f"whence: this is not in the file of the conversation: {answered.not_kept}\n")
    shown_to.waiting("the memory gateway")
    try:
        await answered.remember()
    finally:
        shown_to.done()


class _Shown:
    """What is seen while an answer comes about. In a terminal also what is waited for, once it takes longer than
    somebody would wait without wondering."""

    def __init__(self, is_terminal: bool) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False) if is_terminal else None
        self._timer: asyncio.TimerHandle | None = None
        self.stopped = "(stopped)"
        """What Ctrl-C comes to at this moment."""

    def text(self, text: str) -> None:
        self.done()
        sys.stdout.write(shown_lines(text))
        sys.stdout.flush()

    def tool(self, name: str) -> None:
        self.done()
        self._note(shown(name))

    def waiting(self, what: str) -> None:
        self.done()
        if self._console is not None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._note, f"waiting for {what}")

    def done(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _note(self, what: str) -> None:
        if self._console is not None:
            self._console.print(f"({what})", style="dim")


def _asked(is_terminal: bool) -> Iterator[str]:
    """A line each, without those that are empty. What is not text is asked as a sign that says so."""
    cast("TextIOWrapper", sys.stdin).reconfigure(errors="replace")
    if is_terminal:
        # Arrows and history, where Python has them.
        with suppress(ImportError):
            importlib.import_module("readline")
    while True:
        try:
            line = input("> ") if is_terminal else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt) as ended:
            # What comes next, such as the prompt of a shell, begins at the margin.
            print_plain("")
            if isinstance(ended, KeyboardInterrupt):
                raise
            return
        if not is_terminal and not line:
            return
        if line.strip():
            yield line.strip()
