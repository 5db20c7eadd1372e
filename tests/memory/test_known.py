"""What was known at an earlier time is what was answered at that time, but for what was forgotten since."""

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest

from conftest import Workspace
from whence.app import App
from whence.errors import NotFound
from whence.wire import Fact, Recall, Remember

DAYS = [datetime(2026, 1, number, tzinfo=UTC) for number in range(1, 12, 2)]


class Moment(NamedTuple):
    at: datetime
    answered: dict[datetime, dict[UUID, tuple[datetime, datetime | None, UUID | None]]]
    """What held on each day: from when, until when, and what ended it."""


async def answers(
    app: App, workspace: Workspace, known_at: datetime | None = None
) -> dict[datetime, dict[UUID, tuple[datetime, datetime | None, UUID | None]]]:
    scope = workspace.user("ann").scope
    pages = {day: await app.memory.page(scope, Recall(as_of=day, known_at=known_at)) for day in [*DAYS, app.clock()]}
    return {
        day if day in DAYS else DAYS[-1] + timedelta(days=1): {
            memory.memory_id: (memory.valid_at, memory.invalid_at, memory.invalidated_by) for memory in page.memories
        }
        for day, page in pages.items()
    }


@pytest.mark.parametrize("seed", range(6))
async def test_what_was_known_is_what_was_answered_then(app: App, workspace: Workspace, seed: int) -> None:
    """Facts in any order of their times, told for good and in sessions that are closed and begun again."""
    dice, ann = random.Random(seed), workspace.user("ann")
    told: list[UUID] = []
    moments: list[Moment] = []
    for _ in range(30):
        match dice.randrange(7):
            case 0 if told:
                await app.memory.forget(ann, dice.choice(told))
            case 1:
                with suppress(NotFound):
                    await app.sessions.close(ann, "s1")
            case _:
                where = dice.choice(["Rome", "Oslo", "Bern", "Nice"])
                session_id = dice.choice([None, "s1"])
                fact = Remember(
                    agent="gateway",
                    tier="session" if session_id else "persistent",
                    kind="semantic",
                    text=f"Ann lives in {where}",
                    fact=Fact("Ann", "lives in", where, 0.5),
                    session_id=session_id,
                    valid_at=dice.choice([*DAYS, None]),
                )
                told.append((await app.memory.remember(ann, fact)).memory_id)
                if dice.random() < 0.3:
                    await app.actions.record(ann, "decision.published", [told[-1]])
        moments.append(Moment(app.clock(), await answers(app, workspace)))
    gone = {memory_id for memory_id in told if (await app.memory.get(ann.scope, memory_id)).deleted_at is not None}
    assert gone
    for moment in moments:
        known = await answers(app, workspace, moment.at)
        for day, held in moment.answered.items():
            expected = {memory_id: times for memory_id, times in held.items() if memory_id not in gone}
            assert known[day] == expected, (seed, day)


async def test_what_a_forgotten_fact_had_ended_stays_ended_however_it_is_asked_for(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    rome, oslo = [
        await app.memory.remember(
            ann,
            Remember(
                agent="gateway",
                tier="persistent",
                kind="semantic",
                text=f"Ann lives in {where}",
                fact=Fact("Ann", "lives in", where),
                valid_at=valid_at,
            ),
        )
        for where, valid_at in (("Rome", DAYS[0]), ("Oslo", DAYS[1]))
    ]
    await app.memory.forget(ann, oslo.memory_id)
    for asked in ({}, {"known_at": app.clock()}, {"subject": "ann", "known_at": app.clock()}):
        assert (await app.memory.page(ann.scope, Recall(**asked))).memories == []
        assert (await app.recaller.recall(ann, Recall(query="Where does Ann live?", **asked))).hits == []
    [kept] = (await app.memory.page(ann.scope, Recall(as_of=DAYS[0], known_at=app.clock()))).memories
    assert (kept.memory_id, kept.invalid_at, kept.invalidated_by) == (rome.memory_id, DAYS[1], oslo.memory_id)
