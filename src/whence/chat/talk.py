"""A conversation in a terminal: prompts are answered, and what begins with a slash is done."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from whence.chat.agent import Answered, ChatAgent, Told
from whence.chat.origins import Origins
from whence.chat.sessions import Sessions
from whence.errors import NotFound, Unavailable, WhenceError
from whence.hybrid import HybridMemory
from whence.hybrid.curated import NAMES, Kept, Target
from whence.hybrid.reference import Result
from whence.wire import Explanation, SearchResult

MAX_SHOWN_CHARACTERS = 300
"""Of a memory."""

HELP: Final = """\
/memory         what is noted, and what was recalled for the last answer
/why            where that comes from: ids, sessions, times, who said it
/forget WHAT    ends a note or a memory, named by its id or by a text that it holds
/new            begins another conversation
/help           shows this
/quit           ends; so does the end of the input"""


@dataclass(frozen=True)
class _Note:
    target: Target
    text: str


class Talk:
    def __init__(
        self, agent: ChatAgent, memory: HybridMemory, sessions: Sessions, origins: Origins | None, session_id: str
    ) -> None:
        self._agent = agent
        self._memory = memory
        self._sessions = sessions
        self._origins = origins
        self.session_id = session_id
        self._last: Answered | None = None

    async def answer(self, prompt: str, told: Told) -> Answered:
        self._last = await self._agent.answer(self.session_id, prompt, told)
        return self._last

    async def command(self, line: str) -> list[str]:
        """What is to be shown. A failure is shown too: the conversation goes on."""
        name, _, rest = line.strip().partition(" ")
        try:
            match name:
                case "/memory":
                    return await self._show_memory()
                case "/why":
                    return await self._why()
                case "/forget":
                    return await self._forget(rest.strip())
                case "/new":
                    self.session_id, self._last = self._sessions.new_id(), None
                    return [f"a new conversation: {self.session_id}"]
                case "/help":
                    return [*HELP.splitlines()]
                case _:
                    return [f"there is no command {name}; /help shows those that there are"]
        except WhenceError as error:
            return [error.detail]
        except OSError as error:
            return [f"the notes or conversations cannot be changed: {error.strerror}"]

    # What is remembered

    async def _show_memory(self) -> list[str]:
        now = await asyncio.to_thread(self._memory.curated.snapshot)
        shown = [*_noted(now.memory), *_noted(now.user)]
        return [*shown, *self._recalled_lines()]

    def _recalled_lines(self) -> list[str]:
        if self._memory.gateway is None:
            return ["Recalled: nothing; there is no memory gateway"]
        if self._last is None:
            return ["Recalled: nothing yet"]
        recalled = self._last.run.recalled
        if recalled.error is not None:
            return [f"Recalled: nothing; the memory gateway failed ({recalled.error.category})"]
        results = recalled.reference.results
        return [
            f"Recalled for the last answer: {len(results)}",
            *(f"  {_id(each)}  {_line(each.text)}" for each in results),
        ]

    async def _why(self) -> list[str]:
        if self._last is None:
            return ["there is no answer yet"]
        run = self._last.run
        notes = sum(len(kept.entries) for kept in (run.snapshot.memory, run.snapshot.user))
        given = [f"The last answer was given {_count(notes, 'note')}, see /memory, and what follows."]
        results = run.recalled.reference.results
        if run.recalled.error is not None or not results:
            return [*given, *self._recalled_lines()]
        return given + [line for result in results for line in await self._origin(result)]

    async def _origin(self, result: Result) -> list[str]:
        lines = [f"- {_line(result.text)}", f"  id {_id(result)}, session {result.session_id or '-'}"]
        if result.resource_uri:
            lines.append(f"  from the document {result.resource_uri}")
        memory_id = _uuid(result.id or "")
        if self._origins is None or memory_id is None:
            return lines
        try:
            return lines + _told(await self._origins.of(memory_id))
        except WhenceError as error:
            return [*lines, f"  not known further: {error.detail}"]

    # What is to be forgotten

    async def _forget(self, what: str) -> list[str]:
        if not what:
            return ["say what: /forget ID, or /forget and a text that the note or the memory holds"]
        memory_id = _uuid(what)
        if memory_id is not None and self._origins is not None:
            memory = (await self._origins.of(memory_id)).memory
            return await self._end(self._origins, memory_id, memory.session_id, memory.text)
        found, failed = await self._holding(what)
        same = [each for each in found if each.text.strip() == what]
        match same if len(same) == 1 else found:
            case [] if failed is not None:
                raise failed
            case []:
                raise NotFound("no note and no memory holds this text")
            case [_Note() as note]:
                await asyncio.to_thread(self._memory.curated.remove, note.target, note.text)
                rest = [] if failed is None else [f"{failed.detail}: what it remembers is as it was"]
                return [f'forgotten in {NAMES[note.target]}: "{_line(note.text)}"', *rest]
            case [SearchResult() as result] if self._origins is not None:
                return await self._end(self._origins, result.id, result.session_id, result.text)
            case several:
                return ["several hold this text; say which, by its id or its whole text:", *map(_candidate, several)]

    async def _holding(self, text: str) -> tuple[list[_Note | SearchResult], Unavailable | None]:
        """Also why the gateway could not be asked: notes are there without it."""
        now = await asyncio.to_thread(self._memory.curated.snapshot)
        notes = [
            _Note(kept.target, entry.text)
            for kept in (now.memory, now.user)
            for entry in kept.entries
            if text.casefold() in entry.text.casefold()
        ]
        if self._origins is None:
            return [*notes], None
        try:
            return [*notes, *await self._origins.holding(text, self.session_id)], None
        except Unavailable as error:
            return [*notes], error

    async def _end(self, origins: Origins, memory_id: UUID, session_id: str | None, text: str) -> list[str]:
        """At the gateway, and in the files of conversations, where session_search would find it."""
        done = await origins.forget(memory_id, session_id or "")
        turns = await asyncio.to_thread(self._sessions.forget, text)
        facts = f", with {_count(len(done.forgotten), 'fact')} that only it said" if done.forgotten else ""
        files = f"; {_count(turns, 'turn')} taken out of the files of conversations" if turns else ""
        return [f'forgotten: "{_line(text)}"{facts}{files}']


def _noted(kept: Kept) -> Iterable[str]:
    yield f"{NAMES[kept.target]}: {kept.used:,} of {kept.budget:,} characters"
    for entry in kept.entries:
        first, *rest = entry.text.split("\n")
        yield f"  {first}" + (f"  [{', '.join(entry.flags)}]" if entry.flags else "")
        yield from (f"    {line}" for line in rest)


def _told(explained: Explanation) -> list[str]:
    memory = explained.memory
    who = memory.speaker or memory.said_by or "somebody"
    role = f" ({memory.role})" if memory.role else ""
    quotes = [f'  drawn from "{_line(source.quote)}"' for source in explained.sources if source.quote]
    return [f"  said by {who}{role} on {memory.valid_at:%Y-%m-%d %H:%M} UTC, position {memory.position}", *quotes]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _candidate(each: _Note | SearchResult) -> str:
    return f"  {NAMES[each.target] if isinstance(each, _Note) else each.id}  {_line(each.text)}"


def _line(text: str) -> str:
    """On one line, and cut where it is long: it is there to be recognised."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SHOWN_CHARACTERS else line[: MAX_SHOWN_CHARACTERS - 1] + "…"


def _id(result: Result) -> str:
    return result.id or "(no id)"


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
