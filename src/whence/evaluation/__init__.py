"""How well recall finds what answers questions, measured on sets of conversations through the public interface.

datasets   LoCoMo's files and LongMemEval's, read one conversation at a time
scores     figures of a ranking, with intervals
bm25       a plain search of words, to compare with
picture    the figures as bars
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args
from uuid import UUID, uuid4

import msgspec

from whence import __version__
from whence.errors import Forbidden, InvalidInput, WhenceError
from whence.evaluation.bm25 import Bm25
from whence.evaluation.datasets import Conversation, Dataset, Question, Shape, Turn
from whence.evaluation.scores import (
    FIGURES,
    RESAMPLES,
    SEED,
    SESSION_FIGURES,
    Figure,
    Ranks,
    gained,
    percentiles,
    summarised,
)
from whence.wire import Channel, Remember, Searched

if TYPE_CHECKING:
    from whence.client import Whence
    from whence.client.fields import MessageFields, Partition

TOP_K = 50
BATCH_TURNS = 100
MAX_TURN_CHARACTERS = 20_000
"""What Whence takes as one memory: a longer turn is stored in parts, and is found when one of them is."""
SERVED_TIMEOUT_SECONDS = 300.0
"""To store, ask or erase at a server: an erasure of much takes long."""
EVERYTHING: Final = "all"
"""The group of all questions, whatever their category."""

Through = Literal["remember", "gateway"]
GATEWAY_METHODS: Final = ("full", "bm25")
"""What the gateway can be measured by: its searches count all channels."""
AGENT: Final = "gateway"
UNRANKED: Final = "without-rerank"
"""All channels, in the order of their scores, whatever reranker is set."""
CHANNELS: Final[tuple[Channel, ...]] = get_args(Channel)
METHODS: Final[dict[str, tuple[Channel, ...] | None]] = {
    "full": None,
    UNRANKED: None,
    **{channel: (channel,) for channel in CHANNELS},
    **{f"without-{channel}": tuple(other for other in CHANNELS if other != channel) for channel in CHANNELS},
    "bm25": (),
}
"""By name, the channels that count: None is all. `bm25` is not asked of Whence."""


class Group(msgspec.Struct, frozen=True):
    questions: int
    figures: dict[str, Figure]


class MethodReport(msgspec.Struct, frozen=True):
    channels: tuple[Channel, ...] | None
    by_turn: dict[str, Group]
    """By category, and over all."""
    by_session: dict[str, Group]
    """The same where the set says which sessions answer; a session stands where the best of its turns does."""
    gain: dict[str, Figure]
    """Over the first method, over all questions."""
    milliseconds: Mapping[str, float]
    not_reranked: int = 0
    """Questions that a reranker was to put in order and did not; they count as they were answered."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    turns: dict[str, int | None]
    """Of each piece of evidence its rank; null where it is not among the results."""
    sessions: dict[str, int | None]
    milliseconds: float
    not_reranked: str | None = None
    """Why, as a recall says it."""


class QuestionReport(msgspec.Struct, frozen=True):
    question_id: str
    category: str
    answers: dict[str, Answer]


class SetReport(msgspec.Struct, frozen=True):
    file: str
    sha256: str
    shape: Shape
    conversations: int
    turns: int
    questions: int
    without_evidence: int
    """Questions that were left out, because nothing could be found."""


class Report(msgspec.Struct, frozen=True):
    whence: str
    embedder: str | None
    top_k: int
    seed: int
    resamples: int
    dataset: SetReport
    methods: dict[str, MethodReport]
    questions: list[QuestionReport]
    weights: dict[Channel, dict[str, float]] | None = None
    """Where the Whence that was measured is of this installation."""
    through: Through = "remember"
    """By which calls: those of memory, or those of the memory gateway."""
    reranker: str | None = None


# --- where it is measured ---------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where a conversation is stored and asked about, kept apart from all others."""

    client: "Whence"
    agent: str
    user_id: str | None


Places = Callable[[str], AbstractContextManager[Place]]
"""A place for a conversation of that name; what is stored there is gone when it is left."""


def inside(folder: Path) -> Places:
    """Each conversation is a user's own, of an embedded Whence whose folder somebody removes afterwards."""
    # Imported when it is needed: it takes longer than most commands do.
    from whence.client import Whence  # noqa: PLC0415

    @contextmanager
    def place(name: str) -> Generator[Place]:
        with Whence.embedded(folder, user=name) as client:
            yield Place(client, AGENT, None)

    return place


def served(url: str, key: str) -> Places:
    """Each conversation is written for a user of its own by an administrator, who would see those of others too: so it
    has an agent of its own as well, which questions name. The user is erased afterwards."""
    from whence.client import Whence  # noqa: PLC0415

    run = uuid4().hex[:8]

    @contextmanager
    def place(name: str) -> Generator[Place]:
        user = f"eval-{run}-{name}"
        with Whence(url, key=key, timeout_s=SERVED_TIMEOUT_SECONDS) as client:
            try:
                yield Place(client, user, user)
            except Forbidden:
                # The key is not an administrator's, so nothing was stored.
                raise
            except BaseException:
                _erase(client, user)
                raise
            _erase(client, user)

    return place


def _erase(client: "Whence", user: str) -> None:
    try:
        client.erase(user)
    except WhenceError as error:
        raise type(error)(f"what was stored for {user} is still there, erase it: {error.detail}") from error


# --- measuring --------------------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    question: Question
    answers: dict[str, Answer]


class _Measured(NamedTuple):
    conversations: int
    turns: int
    embedder: str | None
    reranker: str | None
    asked: list[_Asked]


def evaluate(
    dataset: Dataset,
    methods: Sequence[str],
    places: Places,
    limit: int | None,
    tell: Callable[[int, int], None],
    through: Through = "remember",
) -> Report:
    """Stores every conversation and asks its questions by each method; tells how many were asked, of how many."""
    said = _Said if through == "remember" else _Chatted
    measured = _measure(dataset, methods, places, limit, tell, said)
    scored = [each for each in measured.asked if each.question.evidence or each.question.sessions]
    if not scored:
        raise InvalidInput(f"{dataset.path}: no question says what answers it")
    return Report(
        __version__,
        measured.embedder,
        TOP_K,
        SEED,
        RESAMPLES,
        SetReport(
            dataset.path.name,
            dataset.sha256,
            dataset.shape,
            measured.conversations,
            measured.turns,
            len(scored),
            len(measured.asked) - len(scored),
        ),
        {name: _reported(name, methods[0], scored) for name in methods},
        [QuestionReport(each.question.question_id, each.question.category, each.answers) for each in scored],
        through=through,
        reranker=measured.reranker,
    )


def _measure(
    dataset: Dataset,
    methods: Sequence[str],
    places: Places,
    limit: int | None,
    tell: Callable[[int, int], None],
    kind: "type[_Said]",
) -> _Measured:
    total, conversations, turns = dataset.question_count(limit), 0, 0
    asked: list[_Asked] = []
    embedder: str | None = None
    reranker: str | None = None
    tell(0, total)
    for conversation in dataset.conversations(limit):
        conversations += 1
        turns += len(conversation.turns)
        with places(str(conversations)) as place:
            said = kind(place, conversation)
            # What a process needs to search is made when it is first asked; that is no question's own time.
            embedder = said.warm_up(conversation.questions[0]) or embedder
            for question in conversation.questions:
                asked.append(_Asked(question, {name: said.answer(question, name) for name in methods}))
                tell(len(asked), total)
            reranker = said.reranker or reranker
    return _Measured(conversations, turns, embedder, reranker, asked)


class _Said:
    """A conversation that was remembered, ready to be asked about."""

    def __init__(self, place: Place, conversation: Conversation) -> None:
        self._place = place
        self._sessions = {turn.turn_id: turn.session_id for turn in conversation.turns}
        self._turns: dict[UUID, list[str]] = {}
        """Of a memory. What was said twice may be remembered once."""
        self._bm25 = Bm25(conversation.turns)
        self.reranker: str | None = None
        """That put hits in order, once it did."""
        self._store_all(conversation.turns)

    def _store_all(self, turns: Sequence[Turn]) -> None:
        parts = [(turn.turn_id, memory) for turn in turns for memory in self._memories(turn)]
        for start in range(0, len(parts), BATCH_TURNS):
            self._store(parts[start : start + BATCH_TURNS])

    def _memories(self, turn: Turn) -> Iterator[Remember]:
        for start in range(0, len(turn.text), MAX_TURN_CHARACTERS):
            yield Remember(
                agent=self._place.agent,
                tier="session",
                kind="episodic",
                text=turn.text[start : start + MAX_TURN_CHARACTERS],
                user_id=self._place.user_id,
                speaker=turn.speaker,
                role=turn.role,
                session_id=turn.session_id,
                valid_at=turn.said_at,
            )

    def _store(self, parts: Sequence[tuple[str, Remember]]) -> None:
        answer = self._place.client.remember_all(memory for _, memory in parts)
        for (turn_id, _), item in zip(parts, answer.results, strict=True):
            if item.remembered is None:
                raise InvalidInput(f"the turn {turn_id} was refused: {item.errors[0].message}", item.errors)
            self._turns.setdefault(item.remembered.memory_id, []).append(turn_id)

    def warm_up(self, question: Question) -> str | None:
        """The embedder that questions are compared by."""
        return self._place.client.recall(question.text, agent=self._place.agent, top_k=1).meta.embedder

    def _found(self, question: Question, method: str) -> tuple[list[list[str]], str | None]:
        """Of each result, the turns that it is made of; and why no reranker put them in order, where one was to."""
        found = self._place.client.recall(
            question.text,
            agent=self._place.agent,
            top_k=TOP_K,
            as_of=question.asked_at,
            channels=METHODS[method],
            rerank=False if method == UNRANKED else None,
        )
        self.reranker = found.meta.reranker or self.reranker
        return [self._turns.get(hit.memory_id, []) for hit in found.hits], found.meta.not_reranked

    def answer(self, question: Question, method: str) -> Answer:
        started = time.perf_counter()
        not_reranked: str | None = None
        if method == "bm25":
            results = [[turn_id] for turn_id in self._bm25.ranked(question.text, TOP_K)]
        else:
            results, not_reranked = self._found(question, method)
        took = (time.perf_counter() - started) * 1000
        turns: dict[str, int] = {}
        sessions: dict[str, int] = {}
        for rank, turn_ids in enumerate(results, 1):
            for turn_id in turn_ids:
                turns.setdefault(turn_id, rank)
                sessions.setdefault(self._sessions[turn_id], len(sessions) + 1)
        return Answer(
            {turn_id: turns.get(turn_id) for turn_id in question.evidence},
            {session: sessions.get(session) for session in question.sessions},
            round(took, 2),
            not_reranked,
        )


class _Chatted(_Said):
    """The same through the memory gateway: messages are added and read for facts, and questions are searches."""

    def _store_all(self, turns: Sequence[Turn]) -> None:
        client, whose = self._place.client, self._whose
        for session in dict.fromkeys(turn.session_id for turn in turns):
            said = [turn for turn in turns if turn.session_id == session]
            for start in range(0, len(said), BATCH_TURNS):
                batch = said[start : start + BATCH_TURNS]
                added = client.add_messages(f"chat:{session}", map(_message, batch), **whose)
                for turn, result in zip(batch, added.results, strict=True):
                    for memory_id in result.memory_ids:
                        self._turns.setdefault(memory_id, []).append(turn.turn_id)
            while client.flush(f"chat:{session}", **whose).is_more:
                pass

    @property
    def _whose(self) -> "Partition":
        return {} if self._place.user_id is None else {"user_id": self._place.user_id}

    def warm_up(self, question: Question) -> str | None:
        return self._search(question, 1).meta.embedder

    def _search(self, question: Question, top_k: int) -> Searched:
        return self._place.client.search(
            question.text, ["all_user_memory"], top_k=top_k, as_of=question.asked_at, **self._whose
        )

    def _found(self, question: Question, method: str) -> tuple[list[list[str]], str | None]:
        """A fact is made of the turns that say so."""
        found = self._search(question, TOP_K)
        return [
            [turn_id for source in result.provenance for turn_id in self._turns.get(source.event_id, [])]
            for result in found.results
        ], None


def _message(turn: Turn) -> "MessageFields":
    return {
        "sender_id": turn.speaker or turn.role,
        "role": "user" if turn.role == "document" else turn.role,
        "timestamp": round(turn.said_at.timestamp() * 1000),
        "content": turn.text,
    }


# --- reporting --------------------------------------------------------------------------------------------------------


def _reported(method: str, first: str, asked: Sequence[_Asked]) -> MethodReport:
    by_turn = [each for each in asked if each.question.evidence]
    by_session = [each for each in asked if each.question.sessions]
    gain: dict[str, Figure] = {}
    if method != first and by_turn:
        gain = gained(FIGURES, [_turns(each, method) for each in by_turn], [_turns(each, first) for each in by_turn])
    return MethodReport(
        METHODS[method],
        _groups(FIGURES, [(each.question.category, _turns(each, method)) for each in by_turn]),
        _groups(SESSION_FIGURES, [(each.question.category, _sessions(each, method)) for each in by_session]),
        gain,
        percentiles([each.answers[method].milliseconds for each in asked]),
        sum(each.answers[method].not_reranked is not None for each in asked),
    )


def _turns(asked: _Asked, method: str) -> Ranks:
    return list(asked.answers[method].turns.values())


def _sessions(asked: _Asked, method: str) -> Ranks:
    return list(asked.answers[method].sessions.values())


def _groups(names: Sequence[str], questions: Sequence[tuple[str, Ranks]]) -> dict[str, Group]:
    """By category in order of the names, then over all."""
    found: dict[str, list[Ranks]] = {category: [] for category in sorted({category for category, _ in questions})}
    for category, ranks in questions:
        found[category].append(ranks)
    if questions:
        found[EVERYTHING] = [ranks for _, ranks in questions]
    return {name: Group(len(ranks), summarised(names, ranks)) for name, ranks in found.items()}


def as_json(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"
