"""Sessions: when they end, and what of their memory outlives them.

A close is worked out from what the database holds and stored as one transaction, under the lock that appends queue at.
So a close that was killed has changed nothing, and of those that race one closes and the others read its report.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import psycopg

from whence.clock import Clock
from whence.db import EVERY_WORKSPACE, Database, Scope, Tx
from whence.db.queries import load
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable, WhenceError
from whence.identity import Principal
from whence.ids import new_id
from whence.ledger import Ledger
from whence.ledger.effects import Effect, OwnEvent
from whence.ledger.events import MAX_POSITION
from whence.ledger.heads import head_of
from whence.lifecycle.corroboration import MAX_COMPARED_SOURCES, MAX_TELLINGS, Promotion, Telling, promotions
from whence.lifecycle.outliving import Said, Stretch, checked, conflict_key, pointers, procedure, promoted, support
from whence.lifecycle.patterns import MAX_SESSIONS, MAX_STEPS, Routine, Step, routines
from whence.logs import tell_failure
from whence.memory import Memory
from whence.memory.own import check_limit, check_names
from whence.memory.profiles import Profile
from whence.memory.writing import Draft, draft, event_of
from whence.wire import (
    Event,
    Fate,
    Remember,
    Session,
    SessionPage,
    SessionReport,
    SessionRoutine,
    SessionRow,
)

MAX_PAGE_SESSIONS = 500
MAX_CLOSED_ROWS = 50_000
"""Of one stretch: the first ones, which its report lists."""
DUE_A_PAGE = 500
"""Sessions of one workspace that are to be closed, read at a time."""
CLOSE_ATTEMPTS = 3
"""Of one that meets an erasure of whom it is about, or what is told meanwhile of what would outlive it. The last one
keeps what is still agreed on as it was planned."""
SUMMARY_TEXTS = 5
SUMMARY_CHARACTERS = 300
"""Of each text in a summary."""
MAX_SUMMARIZED = 1_000
"""What the graph takes of one summary."""
WHENCE: Final = "whence"
"""Who says what a close has found."""

_SQL = load("whence.lifecycle")
_encode = msgspec.json.Encoder(order="deterministic").encode


class _Row(NamedTuple):
    memory_id: UUID
    tier: Any
    kind: Any
    subject_id: str
    is_held: bool


class _Kept(NamedTuple):
    """A memory that outlives the session, ready to be told."""

    draft: Draft
    own: OwnEvent
    found: Promotion | Routine


class _NotAgreed(Exception):
    """What was planned is not agreed on any more, and perhaps something else is: it is to be planned again."""


class _Known(NamedTuple):
    """What is remembered already of what outlives the session."""

    memory_id: UUID
    body: str
    fact_object: str | None


class _Plan(NamedTuple):
    """What was worked out before the lock is taken."""

    session: Session
    until: int
    subject: str
    kept: list[_Kept]
    refused: list[tuple[Promotion | Routine, str]]
    """What would outlive it, with why its profile does not let it."""


class Sessions:
    def __init__(self, database: Database, ledger: Ledger, clock: Clock, memory: Memory) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock
        self._memory = memory
        memory.on_session_ended = self._close_ended

    async def page(
        self, scope: Scope, state: str | None = None, before: int | None = None, limit: int = 100
    ) -> SessionPage:
        """The newest first."""
        check_limit(limit, MAX_PAGE_SESSIONS)
        values = scope.values(state=state, before=MAX_POSITION if before is None else before, limit=limit + 1)
        async with self._database.transaction(scope) as tx:
            rows = await (await tx.execute(_SQL["sessions_page"], values, binary=True)).fetchall()
        found = [Session(*row) for row in rows]  # pyright: ignore[reportCallIssue] (a row is Any)
        return SessionPage(found[:limit], found[limit - 1].first_position if len(found) > limit else None)

    async def close(self, principal: Principal, session_id: str, agent: str | None = None) -> list[SessionReport]:
        """Closes what is open of a session, with each agent, and reports; of what is closed, what was done then.

        An administrator closes it for all who have one of that name."""
        check_names(session_id=session_id, agent=agent)
        values = principal.scope.values(session_id=session_id, agent=agent)
        async with self._database.transaction(principal.scope) as tx:
            rows = await (await tx.execute(_SQL["stretches_named"], values, binary=True)).fetchall()
        found = _wanted([(row[0], Session(*row[1:])) for row in rows])  # pyright: ignore[reportCallIssue]
        own = [each for each in found if principal.is_admin or each[0] == principal.user_id]
        if found and not own:
            raise Forbidden("the session is the workspace's: an administrator can close it")
        found = own
        stretches = [Stretch(owner, s.agent, s.session_id, s.number) for owner, s in found]
        reports, failed = await self._close_each(principal.workspace_id, stretches)
        if failed is not None:
            raise failed
        if not reports:
            raise NotFound("there is no such session")
        return reports

    async def due(self) -> list[str]:
        """The workspaces that have sessions to close."""
        async with self._database.transaction(EVERY_WORKSPACE) as tx:
            rows = await (await tx.execute(_SQL["workspaces_to_close"], {"now": self._clock()})).fetchall()
        return [row[0] for row in rows]

    async def close_due(self, workspace_id: str, stopping: asyncio.Event | None = None) -> int:
        """Closes sessions that are over, the longest idle first, until it is told to stop; returns how many."""
        active_at, last, now = None, Stretch("", "", "", 0), self._clock()
        count, failed = 0, None
        while stopping is None or not stopping.is_set():
            values = {
                "workspace_id": workspace_id,
                "now": now,
                "active_at": active_at,
                **last._asdict(),
                "limit": DUE_A_PAGE,
            }
            async with self._database.transaction(Scope(workspace_id)) as tx:
                rows = await (await tx.execute(_SQL["stretches_to_close"], values)).fetchall()
            if not rows:
                break
            active_at, last = rows[-1][0], Stretch(*rows[-1][1:])
            reports, error = await self._close_each(workspace_id, [Stretch(*row[1:]) for row in rows], stopping)
            count, failed = count + len(reports), failed or error
        if failed is not None:
            raise failed
        return count

    async def _close_ended(self, workspace_id: str, ended: dict[str, Any]) -> None:
        await self.close_stretch(workspace_id, msgspec.convert(tuple(ended[name] for name in Stretch._fields), Stretch))

    async def _close_each(
        self, workspace_id: str, stretches: list[Stretch], stopping: asyncio.Event | None = None
    ) -> tuple[list[SessionReport], WhenceError | None]:
        """One that cannot be closed keeps no other open: the first failure is for the caller to raise, after all."""
        reports, failed = list[SessionReport](), None
        for stretch in stretches:
            if stopping is not None and stopping.is_set():
                break
            try:
                reports.append(await self.close_stretch(workspace_id, stretch))
            except NotFound:
                # Whose it was may have been erased since.
                continue
            except WhenceError as error:
                failed = failed or error
        return reports, failed

    # --- one close --------------------------------------------------------------------------------------------------

    async def close_stretch(self, workspace_id: str, stretch: Stretch) -> SessionReport:
        for attempt in range(CLOSE_ATTEMPTS):
            try:
                plan = await self._plan(workspace_id, stretch)
                if plan is None:
                    return await self._report(workspace_id, stretch)
                return await self._close(workspace_id, stretch, plan, is_last=attempt == CLOSE_ATTEMPTS - 1)
            except _NotAgreed:
                continue
            except psycopg.Error as error:
                refused_by = error.diag.constraint_name
                if refused_by == "sessions_closed_once":
                    return await self._report(workspace_id, stretch)
                if refused_by != "payloads_subject_key":
                    tell_failure("close of a session", error, workspace=workspace_id, refused_by=refused_by)
                    raise Unavailable("the session could not be closed; the log says why") from error
        raise Conflict("whom the session is about is being erased; close it again")

    async def _close(self, workspace_id: str, stretch: Stretch, plan: _Plan, is_last: bool) -> SessionReport:
        made: list[SessionReport] = []

        async def make(tx: Tx) -> list[OwnEvent]:
            # It may have been erased since, with whom it was of.
            await self._session(tx, workspace_id, stretch)
            rows = await self._rows(tx, workspace_id, stretch, plan.session, plan.until)
            kept = await self._still_kept(tx, workspace_id, stretch, plan)
            if len(kept) < len(plan.kept) and not is_last:
                raise _NotAgreed
            known = await self._known(tx, workspace_id, kept)
            kept, repeats = await self._guarded(tx, kept, known)
            summary = await self._summary(tx, workspace_id, plan, rows)
            report = _report(
                plan,
                stretch,
                [(row, repeats.get(row.memory_id)) for row in rows],
                [(_became(each, known), each.found) for each in kept],
                self._clock(),
                summary,
            )
            made.append(report)
            return [_closing(report, stretch, plan), *_summing_up(report, plan), *(each.own for each in kept)]

        await self._ledger.record_together(workspace_id, make)
        return made[-1]

    async def _plan(self, workspace_id: str, stretch: Stretch) -> _Plan | None:
        """What is to be told of it, or None where it is closed."""
        scope = Scope(workspace_id)
        async with self._database.transaction(scope, snapshot=True) as tx:
            session, end = await self._session(tx, workspace_id, stretch)
            if session.closed_at is not None:
                return None
            until = end - 1 if end is not None else await head_of(tx, workspace_id)
            rows = await self._rows(tx, workspace_id, stretch, session, until)
            subjects = {row.subject_id for row in rows}
            subject = subjects.pop() if len(subjects) == 1 else stretch.owner
            episodes = await self._episodes(tx, workspace_id, stretch, subject, (session.first_position, until))
            _, profile = self._memory.profiles.of(stretch.agent)
            agreed = await self._promotions(tx, workspace_id, stretch, session, until) if _may_keep(profile) else []
            ids = [each.first for each in agreed]
            texts = await (await tx.execute(_SQL["texts_of"], scope.values(ids=ids), binary=True)).fetchall()
        found = await asyncio.to_thread(_routines, stretch, episodes) if _may_learn(profile) else []
        found = await self._news(workspace_id, stretch, subject, found)
        said = {row[0]: Said(*row) for row in texts}
        told: list[tuple[Remember, Promotion | Routine, Said | None]] = [
            (promoted(stretch, said[each.first], each), each, said[each.first]) for each in agreed
        ]
        told += [(procedure(stretch, subject, item), item, None) for item in found]
        return _Plan(session, until, subject, *await self._kept(workspace_id, stretch, told))

    async def _session(self, tx: Tx, workspace_id: str, stretch: Stretch) -> tuple[Session, int | None]:
        values = {"workspace_id": workspace_id, **stretch._asdict()}
        row = await (await tx.execute(_SQL["stretch"], values, binary=True)).fetchone()
        if row is None:
            raise NotFound("there is no such session")
        return Session(*row[1:-1]), row[-1]  # pyright: ignore[reportCallIssue] (a row is Any)

    async def _rows(self, tx: Tx, workspace_id: str, stretch: Stretch, session: Session, until: int) -> list[_Row]:
        values = _values(workspace_id, stretch, session, until)
        rows = await (await tx.execute(_SQL["rows_of_stretch"], values, binary=True)).fetchall()
        return [_Row(*row) for row in rows]

    async def _promotions(
        self, tx: Tx, workspace_id: str, stretch: Stretch, session: Session, until: int
    ) -> list[Promotion]:
        values = _values(workspace_id, stretch, session, until)
        values |= {"tellings": MAX_TELLINGS, "sources": MAX_COMPARED_SOURCES}
        tellings: dict[UUID, list[Telling]] = {}
        for memory_id, *telling in await (await tx.execute(_SQL["tellings"], values, binary=True)).fetchall():
            tellings.setdefault(memory_id, []).append(Telling(*telling))
        return promotions(tellings)

    async def _still_kept(self, tx: Tx, workspace_id: str, stretch: Stretch, plan: _Plan) -> list[_Kept]:
        """Without what is not agreed on any more as it was planned: somebody has told it again, forgotten it or said
        otherwise since. Of a routine, without what was forgotten or erased."""
        if not plan.kept:
            return []
        agreed = await self._promotions(tx, workspace_id, stretch, plan.session, plan.until)
        steps = [event for each in plan.kept if isinstance(each.found, Routine) for event in pointers(each.found)]
        values = {"workspace_id": workspace_id, "ids": steps}
        there = {row[0] for row in await (await tx.execute(_SQL["memories_there"], values)).fetchall()}
        return [
            each
            for each in plan.kept
            if (there.issuperset(pointers(each.found)) if isinstance(each.found, Routine) else each.found in agreed)
        ]

    async def _guarded(
        self, tx: Tx, kept: list[_Kept], known: dict[UUID, _Known]
    ) -> tuple[list[_Kept], dict[UUID, str]]:
        """Without what repeats a rule that its world has by now, or would become a part of what does; and the rows that
        do, each with its rule. Nothing is appended meanwhile, so the guard has nothing to refuse."""
        asked = [
            (each.draft.event_id, each.draft.request.world_id_context, text)
            for each in kept
            if each.draft.request.world_id_context is not None
            for text in _texts(each.draft, known.get(each.draft.event_id))
        ]
        if not asked:
            return kept, {}
        values = {"worlds": [world for _, world, _ in asked], "texts": [text for _, _, text in asked]}
        rows: list[Any] = await (await tx.execute(_SQL["canon_repeated"], values)).fetchall()
        rules: dict[UUID, str] = {asked[place - 1][0]: rule_id for place, rule_id in rows}
        return (
            [each for each in kept if each.draft.event_id not in rules],
            {
                row: rules[each.draft.event_id]
                for each in kept
                if each.draft.event_id in rules and isinstance(each.found, Promotion)
                for row in each.found.rows
            },
        )

    async def _known(self, tx: Tx, workspace_id: str, kept: Sequence[_Kept]) -> dict[UUID, _Known]:
        """The memory that each becomes a part of, by the id of its event; those that make one of their own have none.
        Nothing is appended meanwhile, so it stays so."""
        documents = b",".join(each.own.effect.document for each in kept if each.own.effect is not None)
        values = {"workspace_id": workspace_id, "documents": f"[{documents.decode()}]"}
        rows = await (await tx.execute(_SQL["known"], values)).fetchall()
        return {event_id: _Known(*known) for event_id, *known in rows}

    async def _episodes(
        self, tx: Tx, workspace_id: str, stretch: Stretch, subject: str, positions: tuple[int, int]
    ) -> list[tuple[str, int, UUID, str]]:
        first, until = positions
        values = {
            "workspace_id": workspace_id,
            "owner": stretch.owner,
            "agent": stretch.agent,
            "subject": subject,
            "first": first,
            "until": until,
            "sessions": MAX_SESSIONS + 1,
            "steps": MAX_STEPS,
        }
        rows: list[Any] = await (await tx.execute(_SQL["episodes_of_stretches"], values, binary=True)).fetchall()
        return rows

    async def _news(self, workspace_id: str, stretch: Stretch, subject: str, found: list[Routine]) -> list[Routine]:
        """Those that are not known yet, or have been seen in more sessions than is known."""
        keys = {conflict_key(stretch, subject, routine): routine for routine in found}
        values = {
            "workspace_id": workspace_id,
            "owner": stretch.owner,
            "agent": stretch.agent,
            "keys": list(keys),
        }
        async with self._database.transaction(Scope(workspace_id)) as tx:
            known = dict(await (await tx.execute(_SQL["routines_known"], values)).fetchall())
        return [routine for key, routine in keys.items() if (known.get(key) or 0) < routine.support]

    async def _kept(
        self, workspace_id: str, stretch: Stretch, told: list[tuple[Remember, Promotion | Routine, Said | None]]
    ) -> tuple[list[_Kept], list[tuple[Promotion | Routine, str]]]:
        """Ready to be stored: models are asked before the lock is taken. And what is not to be, with why: its profile
        may be another than it was when it was told."""
        speaker = Principal(workspace_id, WHENCE, is_admin=True)
        drafts, unkept = list[tuple[Draft, Promotion | Routine]](), list[tuple[Promotion | Routine, str]]()
        for request, each, said in told:
            try:
                drafts.append((checked(draft(speaker, request, self._memory.profiles), stretch, said), each))
            except InvalidInput as error:
                unkept.append((each, error.detail))
        vectors = await self._memory.embedded([drafted.text for drafted, _ in drafts]) if drafts else []
        now = self._clock()
        kept = [
            _Kept(drafted, event_of(drafted, vector, dict.fromkeys(pointers(each), True), now, support(each)), each)
            for (drafted, each), vector in zip(drafts, vectors, strict=True)
        ]
        return kept, unkept

    async def _summary(self, tx: Tx, workspace_id: str, plan: _Plan, rows: list[_Row]) -> str:
        """What was most important, in its own words. Only what is the subject's: it is kept under that key."""
        ids = [row.memory_id for row in rows if row.subject_id == plan.subject]
        values = {"workspace_id": workspace_id, "ids": ids, "limit": SUMMARY_TEXTS}
        texts = await (await tx.execute(_SQL["telling_texts"], values)).fetchall()
        kinds = Counter(row.kind for row in rows)
        counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items())) or "nothing"
        head = f"From {plan.session.opened_at:%Y-%m-%d} to {plan.session.last_activity_at:%Y-%m-%d}: {counted}."
        return "\n".join([head, *(f"- {text[:SUMMARY_CHARACTERS]}" for (text,) in texts)])

    async def _report(self, workspace_id: str, stretch: Stretch) -> SessionReport:
        """Of a close that was made earlier."""
        async with self._database.transaction(Scope(workspace_id)) as tx:
            session, _ = await self._session(tx, workspace_id, stretch)
        if session.close_event_id is None:
            raise Conflict("the session is being closed; ask again")
        payload = await self._ledger.payload(Scope(workspace_id), session.close_event_id)
        return msgspec.json.decode(payload, type=_Closed).report


class _Closed(msgspec.Struct):
    report: SessionReport


def _wanted(found: list[tuple[str, Session]]) -> list[tuple[str, Session]]:
    """What is open; with an agent with whom nothing is, what was closed last."""
    opened = {(owner, s.agent) for owner, s in found if s.closed_at is None}
    return [(owner, s) for owner, s in found if s.closed_at is None or (owner, s.agent) not in opened]


def _may_learn(profile: Profile) -> bool:
    return profile.promotion.get("episodic") == "patterns" and "procedural" in profile.cells.get("persistent", {})


def _may_keep(profile: Profile) -> bool:
    return profile.promotion.get("semantic") == "corroborated" and "semantic" in profile.cells.get("persistent", {})


def _values(workspace_id: str, stretch: Stretch, session: Session, until: int) -> dict[str, object]:
    """What is asked of the rows of a stretch."""
    return {
        "workspace_id": workspace_id,
        **stretch._asdict(),
        "first": session.first_position,
        "until": until,
        "limit": MAX_CLOSED_ROWS,
    }


def _routines(stretch: Stretch, episodes: list[tuple[str, int, UUID, str]]) -> list[Routine]:
    sessions: dict[tuple[str, int], list[Step]] = {}
    for session_id, number, event_id, text in episodes:
        sessions.setdefault((session_id, number), []).append(Step(event_id, text))
    session = sessions.pop((stretch.session_id, stretch.number), [])
    return routines(session, list(sessions.values()))


def _became(kept: _Kept, known: dict[UUID, _Known]) -> UUID:
    """The memory that it makes, or becomes a part of."""
    memory = known.get(kept.draft.event_id)
    return kept.draft.event_id if memory is None else memory.memory_id


def _texts(drafted: Draft, known: _Known | None) -> list[str]:
    """What the guard of the canon reads when it is told."""
    told = (drafted.text, drafted.fact and drafted.fact.object)
    there = () if known is None else (known.body, known.fact_object)
    return [text for text in (*told, *there) if text is not None]


def _report(
    plan: _Plan,
    stretch: Stretch,
    rows: Sequence[tuple[_Row, str | None]],
    kept: Sequence[tuple[UUID, Promotion | Routine]],
    now: datetime,
    summary: str,
) -> SessionReport:
    """`rows` are each with the rule that it repeats, if it does; `kept` is what outlives it, with what it became."""
    became = {row: memory_id for memory_id, found in kept if isinstance(found, Promotion) for row in found.rows}
    why = {row: reason for found, reason in plan.refused if isinstance(found, Promotion) for row in found.rows}
    told = [
        SessionRow(
            row.memory_id,
            row.tier,
            row.kind,
            _fate(row, became),
            became.get(row.memory_id),
            repeats,
            why.get(row.memory_id),
        )
        for row, repeats in rows
    ]
    learnt = [_learnt(found, memory_id) for memory_id, found in kept if isinstance(found, Routine)]
    learnt += [_learnt(found, None, reason) for found, reason in plan.refused if isinstance(found, Routine)]
    return SessionReport(
        event_id=new_id(),
        session_id=stretch.session_id,
        agent=stretch.agent,
        user_id=stretch.owner or None,
        number=stretch.number,
        opened_at=plan.session.opened_at,
        closed_at=now,
        counts=dict(Counter(row.fate for row in told)),
        rows=told,
        routines=learnt,
        summary=summary,
    )


def _learnt(routine: Routine, memory_id: UUID | None, reason: str | None = None) -> SessionRoutine:
    events = [list(each) for each in routine.occurrences]
    return SessionRoutine(memory_id, routine.support, list(routine.steps), events, reason)


def _fate(row: _Row, became: dict[UUID, UUID]) -> Fate:
    """Episodes are what routines are found in, so they are kept; what else is not worth keeping goes."""
    if row.memory_id in became:
        return "promoted"
    if row.is_held:
        return "held"
    return "archived" if row.kind == "episodic" else "removed"


def _closing(report: SessionReport, stretch: Stretch, plan: _Plan) -> OwnEvent:
    document = {
        "effect": "close_session",
        "event_id": report.event_id,
        **stretch._asdict(),
        "until": plan.until,
        "archived": [row.memory_id for row in report.rows if row.fate != "removed"],
        "removed": [row.memory_id for row in report.rows if row.fate == "removed"],
    }
    written = _encode(document)
    payload = _encode({"memory": msgspec.Raw(written), "report": report})
    return OwnEvent(_event(report, plan, report.event_id, "session.closed"), payload, Effect(written, report.event_id))


def _summing_up(report: SessionReport, plan: _Plan) -> list[OwnEvent]:
    ids = [row.memory_id for row in report.rows][:MAX_SUMMARIZED]
    if not ids:
        return []
    payload = _encode({"text": report.summary, "summarizes": ids})
    return [OwnEvent(_event(report, plan, new_id(), "session.summary"), payload)]


def _event(report: SessionReport, plan: _Plan, event_id: UUID, event_type: str) -> Event:
    return Event(
        event_id=event_id,
        event_type=event_type,
        occurred_at=report.closed_at,
        session_id=report.session_id,
        trace_id=report.event_id.hex,
        agent_id=report.agent,
        user_id=report.user_id,
        subject_id=plan.subject if plan.subject not in ("", report.user_id or "") else None,
        status="completed",
    )
