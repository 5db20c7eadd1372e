"""Conversations with questions about them, as LoCoMo's files hold them and as LongMemEval's do.

A file is mapped into memory and read one conversation at a time, so a large one is never held twice.
"""

import hashlib
import mmap
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from whence.errors import InvalidInput, NotFound
from whence.wire import Role

Shape = Literal["locomo", "longmemeval"]

_CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "inference", 4: "single-hop", 5: "adversarial"}
_SESSION: Final = re.compile(r"session_(\d+)")
# Some of them are written `D8:6; D9:17`, `D:11:26` or `D30:05`.
_TURN: Final = re.compile(r"D:?(\d+):(\d+)")


class Turn(NamedTuple):
    turn_id: str
    session_id: str
    speaker: str | None
    role: Role
    text: str
    said_at: datetime


class Question(NamedTuple):
    question_id: str
    category: str
    text: str
    evidence: tuple[str, ...]
    """The turns that answer it."""
    sessions: tuple[str, ...]
    """The sessions that do, where the set says so."""
    asked_at: datetime | None


class Conversation(NamedTuple):
    turns: list[Turn]
    questions: list[Question]


class Dataset:
    """A file that was looked through: every conversation in it can be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = _mapped(path)
        self._items = self._split()
        self.shape: Shape = self._shape()
        self.sha256 = hashlib.sha256(self._content).hexdigest()
        self._counts = [len(self._read(number).questions) for number in range(len(self._items))]
        if not self.question_count():
            raise InvalidInput(f"{path}: there is no question in it")

    def question_count(self, limit: int | None = None) -> int:
        total = sum(self._counts)
        return total if limit is None else min(limit, total)

    def conversations(self, limit: int | None = None) -> Iterator[Conversation]:
        """Those of which something is asked. `limit` questions are taken evenly from the whole file, as files are
        sorted by conversation or by category."""
        total, count = self.question_count(), self.question_count(limit)
        chosen = {place * total // count for place in range(count)}
        start = 0
        for number, questions in enumerate(self._counts):
            kept = [place for place in range(questions) if start + place in chosen]
            start += questions
            if kept:
                conversation = self._read(number)
                yield conversation._replace(questions=[conversation.questions[place] for place in kept])

    def _split(self) -> list[msgspec.Raw]:
        try:
            return msgspec.json.decode(self._content, type=list[msgspec.Raw])
        except msgspec.ValidationError:
            raise InvalidInput(f"{self.path}: is not a list of conversations") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{self.path}: is not valid JSON: {error}") from None

    def _shape(self) -> Shape:
        try:
            names = msgspec.json.decode(self._items[0], type=dict[str, msgspec.Raw]).keys() if self._items else ()
        except msgspec.DecodeError:
            names = ()
        if "haystack_sessions" in names:
            return "longmemeval"
        if "conversation" in names and "qa" in names:
            return "locomo"
        raise InvalidInput(
            f"{self.path}: is of no known shape: LoCoMo's items have `conversation` and `qa`, "
            "LongMemEval's have `haystack_sessions`"
        )

    def _read(self, number: int) -> Conversation:
        raw = self._items[number]
        try:
            if self.shape == "locomo":
                return _locomo(msgspec.json.decode(raw, type=_LocomoItem), number)
            return _longmemeval(msgspec.json.decode(raw, type=_LongMemEvalItem))
        except (msgspec.DecodeError, UnicodeDecodeError, _Malformed) as error:
            # As `$.qa[3].question`, of which the dollar is the item.
            said = str(error).replace("`$", f"`[{number}]")
            raise InvalidInput(f"{self.path}: {said}") from None


class _Malformed(Exception):
    """What is wrong, and where, in the words of the decoder."""

    def __init__(self, message: str, place: str) -> None:
        super().__init__(f"{message} - at `$.{place}`")


def _mapped(path: Path) -> mmap.mmap | bytes:
    try:
        with path.open("rb") as file:
            # Nothing can be mapped of an empty one.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from None


# --- LoCoMo -----------------------------------------------------------------------------------------------------------


class _LocomoTurn(msgspec.Struct):
    dia_id: str
    speaker: str
    text: str = ""
    blip_caption: str | None = None


class _LocomoQuestion(msgspec.Struct):
    question: str
    category: int
    evidence: list[str] = []


class _LocomoItem(msgspec.Struct):
    conversation: dict[str, msgspec.Raw]
    qa: list[_LocomoQuestion]
    sample_id: str | None = None


def _locomo(item: _LocomoItem, number: int) -> Conversation:
    turns: list[Turn] = []
    for name, raw in item.conversation.items():
        if _SESSION.fullmatch(name):
            turns += _locomo_session(item, name, raw)
    known = {turn.turn_id for turn in turns}
    questions: list[Question] = []
    for place, asked in enumerate(item.qa):
        if asked.category not in _CATEGORIES:
            raise _Malformed(f"Unknown category {asked.category}", f"qa[{place}].category")
        evidence = (_locomo_id(*found) for entry in asked.evidence for found in _TURN.findall(entry))
        questions.append(
            Question(
                f"{item.sample_id or number}/{place}",
                _CATEGORIES[asked.category],
                asked.question,
                tuple(dict.fromkeys(turn_id for turn_id in evidence if turn_id in known)),
                (),
                None,
            )
        )
    return Conversation(turns, questions)


def _locomo_session(item: _LocomoItem, name: str, raw: msgspec.Raw) -> Iterator[Turn]:
    place = f"conversation.{name}"
    began = _locomo_time(item.conversation.get(f"{name}_date_time"), f"{place}_date_time")
    try:
        said = msgspec.json.decode(raw, type=list[_LocomoTurn])
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise _Malformed(message, place + where.rstrip("`")) from None
    for index, turn in enumerate(said):
        found = _TURN.fullmatch(turn.dia_id)
        if found is None:
            raise _Malformed("Expected an id such as `D1:3`", f"{place}[{index}].dia_id")
        text = f"{turn.text} [shares {turn.blip_caption}]" if turn.blip_caption else turn.text
        when = began + timedelta(seconds=index)
        yield Turn(_locomo_id(*found.groups()), name, turn.speaker, "user", text.strip(), when)


def _locomo_id(session: str, turn: str) -> str:
    return f"D{int(session)}:{int(turn)}"


def _locomo_time(raw: msgspec.Raw | None, place: str) -> datetime:
    try:
        said = msgspec.json.decode(raw or b"null", type=str)
        return datetime.strptime(said, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    except (msgspec.DecodeError, ValueError):
        raise _Malformed("Expected a time such as `1:56 pm on 8 May, 2023`", place) from None


# --- LongMemEval ------------------------------------------------------------------------------------------------------


class _LongMemEvalTurn(msgspec.Struct):
    role: Role
    content: str
    has_answer: bool = False


class _LongMemEvalItem(msgspec.Struct):
    question_id: str
    question_type: str
    question: str
    question_date: str
    haystack_session_ids: list[str]
    haystack_dates: list[str]
    haystack_sessions: list[list[_LongMemEvalTurn]]
    answer_session_ids: list[str] = []


def _longmemeval(item: _LongMemEvalItem) -> Conversation:
    for name in ("haystack_session_ids", "haystack_dates"):
        if len(getattr(item, name)) != len(item.haystack_sessions):
            message = f"Expected as many as there are sessions, {len(item.haystack_sessions)}"
            raise _Malformed(f"{message}, got {len(getattr(item, name))}", name)
    turns: list[Turn] = []
    evidence: list[str] = []
    counts: Counter[str] = Counter()
    # What Whence is told in order is searched in order: a session that is dated earlier comes first.
    dates = [_longmemeval_time(said, f"haystack_dates[{place}]") for place, said in enumerate(item.haystack_dates)]
    for place in sorted(range(len(dates)), key=dates.__getitem__):
        session = item.haystack_session_ids[place]
        for turn in item.haystack_sessions[place]:
            counts[session] += 1
            turn_id = f"{session}:{counts[session]}"
            if not turn.content.strip():
                continue
            said_at = dates[place] + timedelta(seconds=counts[session])
            turns.append(Turn(turn_id, session, None, turn.role, turn.content, said_at))
            if turn.has_answer:
                evidence.append(turn_id)
    asked_at = max([_longmemeval_time(item.question_date, "question_date"), *(turn.said_at for turn in turns)])
    known = {turn.session_id for turn in turns}
    # By its id, a question has no answer in what was said: there is nothing to be found.
    is_answered = not item.question_id.endswith("_abs")
    question = Question(
        item.question_id,
        item.question_type,
        item.question,
        tuple(evidence) if is_answered else (),
        tuple(dict.fromkeys(name for name in item.answer_session_ids if name in known)) if is_answered else (),
        asked_at,
    )
    return Conversation(turns, [question])


def _longmemeval_time(said: str, place: str) -> datetime:
    try:
        # The name of the day says nothing more.
        return datetime.strptime(re.sub(r"\(\w+\)\s*", "", said), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)
    except ValueError:
        raise _Malformed("Expected a time such as `2023/05/20 (Sat) 02:21`", place) from None
