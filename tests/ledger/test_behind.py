"""What is recorded behind an answer: all of it, or it is counted."""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from conftest import Workspace
from recalling import told
from whence.app import App, open_app
from whence.db import embedded
from whence.errors import InvalidInput, NotFound, Unavailable
from whence.identity import Principal
from whence.ledger import Ledger
from whence.ledger.behind import MAX_BEHIND
from whence.ledger.payloads import canonical
from whence.settings import Settings
from whence.wire import Recall, RecallFilters


@pytest.fixture
def ann(workspace: Workspace) -> Principal:
    return workspace.user("ann")


def lost(app: App) -> float:
    return app.registry.get_sample_value("whence_unrecorded_total") or 0.0


async def test_what_was_answered_is_recorded_when_the_app_closes(
    postgres: embedded.EmbeddedServer, data_dir: Path, app: App, ann: Principal
) -> None:
    async with open_app(Settings(data_dir=data_dir)) as closing:
        await closing.memory.remember(ann, told("The cat"))
        asked = [Recall(query=f"cat {number}") for number in range(30)]
        answers = await asyncio.gather(*(closing.recaller.recall(ann, each) for each in asked))
    for answer, each in zip(answers, asked, strict=True):
        assert (await app.recaller.recalled(ann.scope, answer.recall_id)).asked == each
    assert lost(closing) == 0


async def test_what_is_recorded_is_in_the_form_that_its_commitment_is_made_of(app: App, ann: Principal) -> None:
    """Whoever checks a commitment brings the payload into this form first."""
    await app.memory.remember(ann, told('The café\'s cat, said "Ann"', session_id="s1", embedding=(0.1, -2e-17, 1e16)))
    asked = Recall(
        query='the "cat" \u2028 \U0001f408',
        embedding=(1.0, -0.0, 1 / 3),
        as_of=datetime(2099, 5, 17, 1, 2, 3, 4, tzinfo=UTC),
        sessions=("s1", "s0"),
        max_tokens=10**7,
        filters=RecallFilters(speaker=None),
    )
    answer = await app.recaller.recall(ann, asked)
    assert answer.hits
    await app.ledger.behind.settled()
    payload = await app.ledger.payload(ann.scope, answer.recall_id)
    assert canonical(payload) == payload


async def test_who_asks_for_it_right_after_waits_until_it_is_there(app: App, ann: Principal) -> None:
    for number in range(5):
        answer = await app.recaller.recall(ann, Recall(query=f"cat {number}"))
        assert (await app.recaller.recalled(ann.scope, answer.recall_id)).asked.query == f"cat {number}"


async def test_who_names_it_right_after_waits_until_it_is_there(app: App, workspace: Workspace, ann: Principal) -> None:
    """As a source of a memory, in an action, and where its event is read."""

    async def recalled() -> UUID:
        return (await app.recaller.recall(ann, Recall(query="cat"))).recall_id

    source = await recalled()
    drawn = await app.memory.remember(ann, told("The cat is grey", derived_from=(source,)))
    [found] = (await app.memory.explain(ann.scope, drawn.memory_id)).sources
    assert (found.role, found.source) == ("event", str(source))
    cited = await recalled()
    assert (await app.actions.record(ann, "rule.promoted", [cited])).cites == [cited]
    assert (await app.ledger.get(ann.scope, await recalled())).event_type == "memory.recalled"
    assert b'"cat"' in await app.ledger.payload(ann.scope, await recalled())
    for missing in (uuid4(), (await app.recaller.recall(workspace.admin, Recall(query="cat"))).recall_id):
        with pytest.raises(InvalidInput, match="derived_from: there is no event or memory"):
            await app.memory.remember(ann, told("The cat is black", derived_from=(missing,)))


async def test_recalls_of_several_workspaces_are_recorded_each_in_its_own(app: App, workspace: Workspace) -> None:
    other = Principal(f"{workspace.workspace_id}-2", "ann", is_admin=False)
    await app.identity.add_workspace(other.workspace_id)
    both = (workspace.user("ann"), other)
    answers = await asyncio.gather(*(app.recaller.recall(who, Recall(query="cat")) for who in both))
    await app.ledger.behind.settled()
    for who, answer in zip(both, answers, strict=True):
        assert (await app.recaller.recalled(who.scope, answer.recall_id)).user_id == "ann"


async def test_many_at_once_are_all_recorded(app: App, ann: Principal) -> None:
    asked = (app.recaller.recall(ann, Recall(query="cat")) for _ in range(MAX_BEHIND + 200))
    answers = await asyncio.gather(*asked)
    await app.ledger.behind.settled()
    for answer in answers[:: len(answers) // 10]:
        await app.recaller.recalled(ann.scope, answer.recall_id)


@pytest.mark.parametrize("failure", [Unavailable("the database does not answer"), RuntimeError("unforeseen")])
async def test_what_cannot_be_recorded_is_counted_and_does_not_stop_what_follows(
    app: App, ann: Principal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    caplog.set_level(logging.CRITICAL)
    before = lost(app)

    async def fail(*_: Any) -> Any:
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "put", fail)
        answer = await app.recaller.recall(ann, Recall(query="cat"))
        await app.ledger.behind.settled()
        assert lost(app) == before + 1
        with pytest.raises(NotFound):
            await app.recaller.recalled(ann.scope, answer.recall_id)
    answer = await app.recaller.recall(ann, Recall(query="cat"))
    assert (await app.recaller.recalled(ann.scope, answer.recall_id)).user_id == "ann"
    assert lost(app) == before + 1


async def test_nothing_waits_for_what_is_not_behind(app: App, ann: Principal) -> None:
    await app.ledger.behind.settled()
    with pytest.raises(NotFound):
        await app.recaller.recalled(ann.scope, uuid4())


async def test_who_waits_is_not_held_up_by_what_is_answered_meanwhile(app: App, ann: Principal) -> None:
    """As when others go on searching in the same workspace while messages are added."""
    ended = False

    async def others() -> None:
        while not ended:
            await app.recaller.recall(ann, Recall(query="tea"))

    busy = [asyncio.create_task(others()) for _ in range(4)]
    await asyncio.sleep(0.1)
    try:
        async with asyncio.timeout(10):
            await app.ledger.behind.settled(ann.workspace_id)
    finally:
        ended = True
        await asyncio.gather(*busy)
