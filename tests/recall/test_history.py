"""What was so then, and what was known then: random histories, held against a plain model of them."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from conftest import Workspace
from lifecycle_time import Time
from whence.app import App
from whence.identity import Principal
from whence.wire import Fact, Recall, Remember


@dataclass
class Told:
    memory_id: UUID
    key: str
    is_fact: bool
    valid_at: datetime
    known_at: datetime
    order: int
    forgotten_at: datetime | None = None

    def is_there(self, moment: datetime) -> bool:
        return self.forgotten_at is None or self.forgotten_at > moment


def so(history: list[Told], as_of: datetime, known_at: datetime) -> set[UUID]:
    """What was so at one time, as far as it was known at another. What is forgotten is not told of, and has ended what
    was told before that."""
    known = [told for told in history if told.known_at <= known_at and told.valid_at <= as_of]
    found: set[UUID] = set()
    for told in known:
        same = [
            other for other in known if (other.key, other.is_fact) == (told.key, told.is_fact) and other is not told
        ]
        if told.is_fact:
            ended = any((n.valid_at, n.order) > (told.valid_at, told.order) for n in same if n.is_there(told.known_at))
        else:
            ended = any(n.order > told.order for n in same)
        if not ended and told.forgotten_at is None:
            found.add(told.memory_id)
    return found


async def lived(app: App, ann: Principal, moment: Time, dice: random.Random) -> list[Told]:
    start = moment.now
    history: list[Told] = []
    for order in range(40):
        moment.pass_by(hours=dice.choice((0.001, 1, 30)))
        key, is_fact = dice.choice("abc"), dice.random() < 0.7
        if history and dice.random() < 0.15:
            told = dice.choice(history)
            await app.memory.forget(ann, told.memory_id)
            told.forgotten_at = told.forgotten_at or moment.now
            continue
        valid_at = start + timedelta(hours=dice.randrange(-400, 200)) if is_fact and dice.random() < 0.8 else None
        request = Remember(
            agent="gateway",
            tier="persistent",
            kind="semantic" if is_fact else "procedural",
            text=f"The cat {key} is in place {order}",
            fact=Fact(f"cat {key}", "is in", f"place {order}") if is_fact else None,
            key=None if is_fact else key,
            valid_at=valid_at,
        )
        done = await app.memory.remember(ann, request)
        kept = await app.memory.get(ann.scope, done.memory_id)
        history.append(Told(done.memory_id, key, is_fact, kept.valid_at, kept.recorded_at, order))
    return history


@pytest.mark.parametrize("seed", range(8))
async def test_what_was_not_so_or_not_known_then_is_never_recalled(
    later: App, beside: App, workspace: Workspace, ann: Principal, moment: Time, seed: int
) -> None:
    dice = random.Random(seed)
    history = await lived(later, ann, moment, dice)
    moments = sorted({moment.now, *(told.valid_at for told in history), *(told.known_at for told in history)})
    for _ in range(25):
        as_of, known_at = (dice.choice([None, *moments]) for _ in range(2))
        expected = so(history, as_of or moment.now, known_at or moment.now)
        for app, who in ((later, ann), (beside, ann), (later, workspace.admin)):
            for query in ("Where is the cat?", ""):
                asked = Recall(query=query, as_of=as_of, known_at=known_at, top_k=100)
                found = {hit.memory_id for hit in (await app.recaller.recall(who, asked)).hits}
                assert found == expected
