"""Sessions: when they end, and what of them is kept."""

import asyncio
import random
import uuid
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

import msgspec
import psycopg
import pytest

from conftest import Workspace
from lifecycle_time import Time
from samples import event
from whence.app import App
from whence.db import Tx
from whence.errors import Forbidden, NotFound, RepeatsCanon, Unavailable
from whence.identity import Principal
from whence.jobs import JOBS, Job
from whence.ledger import Ledger
from whence.ledger.effects import OwnEvent
from whence.lifecycle import sessions
from whence.lifecycle.outliving import Stretch, fitted
from whence.lifecycle.sessions import Sessions
from whence.memory.profiles import Profiles
from whence.memory.rebuild import rebuild
from whence.memory.writing import MAX_SOURCES, MAX_TEXT_CHARACTERS
from whence.wire import Fact, Kind, Recall, Remember, SessionReport, SessionRow, StoredMemory, Tier

ROUTINE = ("open the queue", "pick the oldest invoice", "compare it with the order", "ask for approval", "pay it")


def told(text: str, session: str = "s1", kind: Kind = "episodic", tier: Tier = "session", **more: Any) -> Remember:
    return Remember(agent="gateway", tier=tier, kind=kind, text=text, session_id=session, **more)


async def tell(app: App, who: Principal, session: str, *texts: str) -> None:
    for text in texts:
        await app.memory.remember(who, told(text, session))


async def work_through(app: App, who: Principal, session: str, dice: random.Random) -> None:
    """The routine, with other things done in between: words without digits, as steps are compared without these."""
    texts = list(ROUTINE)
    for _ in range(3):
        texts.insert(dice.randrange(len(texts) + 1), "".join(dice.choices(ascii_lowercase, k=12)))
    await tell(app, who, session, *texts)


async def held(app: App, who: Principal, **asked: Any) -> list[StoredMemory]:
    return (await app.memory.page(who.scope, Recall(**asked))).memories


async def nothing_differs(app: App, workspace: Workspace) -> bool:
    report = await rebuild(
        app.database, app.ledger, app.memory, workspace.workspace_id, verify=True, on_progress=lambda *_: None
    )
    assert report.equal, report.differing
    return report.equal


async def test_a_session_is_opened_by_activity_and_is_the_users_own(later: App, workspace: Workspace) -> None:
    await tell(later, workspace.user("ann"), "s1", "hello")
    await tell(later, workspace.user("bob"), "s1", "hello")
    [mine] = (await later.sessions.page(workspace.user("ann").scope)).sessions
    assert (mine.session_id, mine.user_id, mine.number, mine.closed_at) == ("s1", "ann", 1, None)
    assert len((await later.sessions.page(workspace.admin.scope)).sessions) == 2


async def test_29_idle_days_keep_it_open_and_30_close_it(later: App, workspace: Workspace, moment: Time) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "the first day")
    moment.pass_by(days=29, hours=23)
    assert workspace.workspace_id not in await later.sessions.due()
    assert await later.sessions.close_due(workspace.workspace_id) == 0
    moment.pass_by(hours=1)
    assert workspace.workspace_id in await later.sessions.due()
    assert await later.sessions.close_due(workspace.workspace_id) == 1
    [session] = (await later.sessions.page(ann.scope)).sessions
    assert session.closed_at == moment.now
    assert await held(later, ann) == []


async def test_activity_after_30_idle_days_closes_it_and_begins_another(
    later: App, workspace: Workspace, moment: Time
) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "the first day")
    moment.pass_by(days=29)
    await tell(later, ann, "s1", "still the same session")
    moment.pass_by(days=30)
    await tell(later, ann, "s1", "another session")
    second, first = (await later.sessions.page(ann.scope)).sessions
    assert (first.number, first.closed_at, second.number, second.closed_at) == (1, moment.now, 2, None)
    assert [memory.text for memory in await held(later, ann)] == ["another session"]
    assert await nothing_differs(later, workspace)


async def test_a_batch_that_finds_it_over_closes_it_too(later: App, workspace: Workspace, moment: Time) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "the first day")
    moment.pass_by(days=31)
    await later.memory.remember_all(ann, [told("one"), told("two"), told("three", "s2")])
    sessions = (await later.sessions.page(ann.scope)).sessions
    assert [(s.session_id, s.number, s.closed_at is None) for s in sessions] == [
        ("s2", 1, True),
        ("s1", 2, True),
        ("s1", 1, False),
    ]


async def test_workers_and_a_lazy_close_that_race_close_it_once(later: App, workspace: Workspace, moment: Time) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", *ROUTINE)
    moment.pass_by(days=30)
    done = await asyncio.gather(
        later.sessions.close_due(workspace.workspace_id),
        later.sessions.close_due(workspace.workspace_id),
        later.memory.remember(ann, told("back again")),
        later.sessions.close(ann, "s1"),
        return_exceptions=True,
    )
    assert not [one for one in done if isinstance(one, BaseException)]
    closed = (await later.ledger.page(workspace.admin.scope, 0, 1000)).events
    assert len([event for event in closed if event.event_type == "session.closed"]) in (1, 2)
    stretches = (await later.sessions.page(ann.scope)).sessions
    assert len({stretch.number for stretch in stretches}) == len(stretches)
    first = [stretch for stretch in stretches if stretch.number == 1]
    assert len(first) == 1
    assert first[0].closed_at is not None
    assert await nothing_differs(later, workspace)


async def test_the_nightly_job_closes_what_has_been_idle(later: App, workspace: Workspace, moment: Time) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "the first day")
    await tell(later, ann, "s2", "the same day")
    moment.pass_by(days=20)
    await tell(later, ann, "s2", "still at it")
    moment.pass_by(days=10)
    [job] = [job for job in JOBS if job.name == "close-sessions"]
    assert isinstance(job, Job)
    assert workspace.workspace_id in await job.due(later)
    await job.run(later, workspace.workspace_id)
    closed = {s.session_id: s.closed_at is not None for s in (await later.sessions.page(ann.scope)).sessions}
    assert closed == {"s1": True, "s2": False}


async def test_a_close_says_what_became_of_every_row(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "opened the file", "closed the file")
    await later.memory.remember(ann, told("a draft of how to", kind="procedural"))
    lives = Fact("Ann", "lives in", "Rome", 0.6)
    alone = await later.memory.remember(ann, told("Ann likes tea", kind="semantic", fact=Fact("Ann", "likes", "tea")))
    both = await later.memory.remember(ann, told("Ann lives in Rome", kind="semantic", fact=lives))
    too = await later.memory.remember(ann, told("Ann lives in Rome", "s2", kind="semantic", fact=lives))
    kept = await later.memory.remember(ann, told("what stays", tier="persistent", kind="semantic"))
    [report] = await later.sessions.close(ann, "s1")
    assert report.counts == {"archived": 2, "removed": 2, "promoted": 1}
    fates = {row.memory_id: row for row in report.rows}
    assert fates[alone.memory_id].fate == "removed"
    became = fates[both.memory_id].became
    assert became is not None
    promoted = await later.memory.get(ann.scope, became)
    assert (promoted.tier, promoted.text, promoted.fact, promoted.said_by) == (
        "persistent",
        "Ann lives in Rome",
        msgspec.structs.replace(lives, confidence=0.84),
        "whence",
    )
    explained = await later.memory.explain(ann.scope, became)
    assert {source.source for source in explained.sources} == {str(both.memory_id), str(too.memory_id)}
    assert {memory.memory_id for memory in await held(later, ann, tiers=("persistent",))} == {kept.memory_id, became}
    assert kept.memory_id not in fates
    assert "opened the file" in report.summary
    assert await nothing_differs(later, workspace)


LIVES = Fact("Ann", "lives in", "Rome", 0.6)


def said(session: str, fact: Fact | None = LIVES, **more: Any) -> Remember:
    return told(f"{fact.subject} {fact.object}" if fact else "tea, always", session, "semantic", fact=fact, **more)


async def closed(app: App, who: Principal, request: Remember) -> SessionRow:
    """What became of what was said in a session of its own."""
    await app.memory.remember(who, request)
    assert request.session_id is not None
    [report] = await app.sessions.close(who, request.session_id)
    return report.rows[-1]


@pytest.mark.parametrize("fact", [LIVES, None])
async def test_what_a_second_session_says_too_outlives_it_although_the_first_is_closed(
    later: App, workspace: Workspace, moment: Time, fact: Fact | None
) -> None:
    ann, rows = workspace.user("ann"), list[SessionRow]()
    for session in ("s1", "s2", "s3"):
        rows.append(await closed(later, ann, said(session, fact)))
        moment.pass_by(days=1)
    assert [row.fate for row in rows] == ["removed", "promoted", "promoted"]
    [kept] = await held(later, ann)
    assert [row.became for row in rows[1:]] == [kept.memory_id, kept.memory_id]
    explained = await later.memory.explain(ann.scope, kept.memory_id)
    assert {source.source for source in explained.sources} == {str(row.memory_id) for row in rows}
    assert await nothing_differs(later, workspace)


async def test_each_session_that_says_so_makes_a_fact_surer_whenever_it_is_closed(
    later: App, workspace: Workspace
) -> None:
    """As each who tells it does."""
    ann, bob = workspace.user("ann"), workspace.user("bob")
    sure = [0.84, 0.936, 0.9744]
    assert (await closed(later, ann, said("s0"))).fate == "removed"
    for session, expected in zip(("s1", "s2", "s3"), sure, strict=True):
        await closed(later, ann, said(session))
        [kept] = await held(later, ann, tiers=("persistent",))
        assert kept.fact is not None
        assert kept.fact.confidence == pytest.approx(expected)
    for session in ("s0", "s1", "s2", "s3"):
        await later.memory.remember(bob, said(session))
    for session in ("s0", "s1", "s2", "s3"):
        await later.sessions.close(bob, session)
        [kept] = await held(later, bob, tiers=("persistent",))
        assert kept.fact is not None
        assert kept.fact.confidence == pytest.approx(sure[-1])
    cat = workspace.user("cat")
    await later.memory.remember(cat, msgspec.structs.replace(said("s0"), tier="persistent", session_id=None))
    for session in ("s1", "s2"):
        await later.memory.remember(cat, said(session))
    for session, expected in (("s2", sure[0]), ("s1", sure[1])):
        await later.sessions.close(cat, session)
        [kept] = await held(later, cat, tiers=("persistent",))
        assert kept.fact is not None
        assert kept.fact.confidence == pytest.approx(expected), "open sessions tell it when they are closed"
    assert await nothing_differs(later, workspace)


@pytest.mark.parametrize("fact", [LIVES, None])
async def test_what_one_session_repeats_or_another_user_says_is_one_source(
    later: App, workspace: Workspace, fact: Fact | None
) -> None:
    ann = workspace.user("ann")
    assert (await closed(later, workspace.user("bob"), said("s0", fact))).fate == "removed"
    await later.memory.remember(ann, said("s1", fact))
    assert (await closed(later, ann, said("s1", fact))).fate == "removed"
    assert (await closed(later, ann, said("s1", fact))).fate == "removed"
    assert await held(later, ann) == []


@pytest.mark.parametrize("fact", [LIVES, None])
async def test_what_was_forgotten_before_or_after_its_session_is_no_source(
    later: App, workspace: Workspace, moment: Time, fact: Fact | None
) -> None:
    ann = workspace.user("ann")
    first = await later.memory.remember(ann, said("s1", fact))
    await later.memory.forget(ann, first.memory_id)
    moment.pass_by(days=1)
    await later.sessions.close(ann, "s1")
    second = await closed(later, ann, said("s2", fact))
    assert second.fate == "removed"
    await later.memory.forget(ann, second.memory_id)
    assert (await closed(later, ann, said("s3", fact))).fate == "removed"
    assert await nothing_differs(later, workspace)


async def test_a_fact_that_was_contradicted_since_neither_outlives_its_session_nor_is_a_source(
    later: App, workspace: Workspace
) -> None:
    ann, moved = workspace.user("ann"), Fact("Ann", "lives in", "Oslo")
    await later.memory.remember(ann, said("s1"))
    await later.memory.remember(ann, said("s2"))
    await later.memory.remember(ann, said("s3", moved))
    fates = [row.fate for each in ("s1", "s2", "s3") for row in (await later.sessions.close(ann, each))[0].rows]
    assert fates == ["removed", "removed", "removed"]
    assert (await closed(later, ann, said("s4"))).fate == "removed", "said before Oslo was, it says nothing of now"
    assert (await closed(later, ann, said("s5"))).fate == "promoted"


async def test_a_slip_that_was_put_right_in_its_session_contradicts_nothing(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    assert (await closed(later, ann, said("s1"))).fate == "removed"
    await later.memory.remember(ann, said("s2", Fact("Ann", "lives in", "Oslo")))
    assert (await closed(later, ann, said("s2"))).fate == "promoted"
    [kept] = await held(later, ann)
    assert kept.fact is not None
    assert kept.fact.object == "Rome"


@pytest.mark.parametrize("fact", [LIVES, None])
@pytest.mark.parametrize("source", ["memory", "telling", "recall"])
async def test_what_was_derived_from_one_who_says_it_is_no_second_source(
    later: App, workspace: Workspace, source: str, fact: Fact | None
) -> None:
    """From the memory itself, from an event that told it again, or from a recall that found it; a source of its own is
    one, however many such are named beside it."""
    ann = workspace.user("ann")
    first = await later.memory.remember(ann, said("s1", fact))
    if source == "telling":
        found = (await later.memory.remember(ann, said("s1", fact))).event_id
    elif source == "recall":
        recalled = await later.recaller.recall(ann, Recall(query="Rome"))
        assert [hit.memory_id for hit in recalled.hits] == [first.memory_id]
        found = recalled.recall_id
    else:
        found = first.memory_id
    assert (await closed(later, ann, said("s1", fact, derived_from=(found,)))).fate == "removed"
    assert (await closed(later, ann, said("s2", fact, derived_from=(found,)))).fate == "removed"
    letter = event({"text": "I moved to Rome"}, user_id="ann", occurred_at=later.clock())
    await later.ledger.append(workspace.admin, [letter])
    several = (first.memory_id, found) if found != first.memory_id else (found,)
    own = said("s3", fact, derived_from=(*several, letter.event_id))
    assert (await closed(later, ann, own)).fate == "promoted"
    assert await nothing_differs(later, workspace)


async def recalled(app: App, who: Principal) -> uuid.UUID:
    """A recall that found what is remembered for good, and nothing else."""
    found = await app.recaller.recall(who, Recall(query="Ann Rome tea, always", tiers=("persistent",)))
    assert len(found.hits) == 1
    return found.recall_id


@pytest.mark.parametrize("fact", [LIVES, None])
@pytest.mark.parametrize("known", ["told once", "told twice", "promoted"])
async def test_what_was_recalled_and_is_told_in_session_after_session_makes_nobody_surer(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, known: str, fact: Fact | None
) -> None:
    """However many of these sessions there are: here are more than are compared."""
    monkeypatch.setattr(sessions, "MAX_TELLINGS", 3)
    ann = workspace.user("ann")
    for session in ("s0", "s00") if known != "told once" else ("s0",):
        if known == "promoted":
            await closed(later, ann, said(session, fact))
        else:
            await later.memory.remember(ann, msgspec.structs.replace(said(session, fact), tier="persistent"))
    [before] = await held(later, ann, tiers=("persistent",))
    for session in ("s1", "s2", "s3", "s4", "s5"):
        again = said(session, fact, derived_from=(await recalled(later, ann),))
        assert (await closed(later, ann, again)).fate == "removed"
    [after] = await held(later, ann, tiers=("persistent",))
    assert (after.memory_id, after.told_count, after.fact) == (before.memory_id, before.told_count, before.fact)
    if fact is not None:
        assert (await closed(later, ann, said("s6", fact))).fate == "promoted", "somebody who says so unasked"
    assert await nothing_differs(later, workspace)


@pytest.mark.parametrize("fact", [LIVES, None])
async def test_what_somebody_forgot_does_not_come_back_by_recalls_of_it(
    later: App, workspace: Workspace, fact: Fact | None
) -> None:
    ann = workspace.user("ann")
    known = await later.memory.remember(ann, msgspec.structs.replace(said("s0", fact), tier="persistent"))
    for session in ("s1", "s2"):
        await later.memory.remember(ann, said(session, fact, derived_from=(await recalled(later, ann),)))
    await later.memory.forget(ann, known.memory_id)
    for session in ("s1", "s2"):
        [report] = await later.sessions.close(ann, session)
        assert [row.fate for row in report.rows] == ["removed"]
    assert await held(later, ann) == []


async def test_what_two_runs_have_taught_names_the_first_of_them_when_it_is_promoted(
    later: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    runs = [await later.runs.start(ann, "gateway", "one") for _ in range(2)]
    for session, run in zip(("s1", "s2"), runs, strict=True):
        await later.memory.remember(ann, said(session, run_id=run.run_id))
    [report] = await later.sessions.close(ann, "s1")
    [kept] = await held(later, ann, tiers=("persistent",))
    assert (report.rows[0].became, kept.run_id) == (kept.memory_id, runs[0].run_id)
    assert await later.runs.episodes(ann.scope, "gateway") == []
    assert await nothing_differs(later, workspace)


async def test_what_a_profile_refuses_by_now_is_not_promoted_and_the_report_says_why(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    for session in ("s1", "s2"):
        await later.memory.remember(ann, told("Ann is at ann@example.com", session, "semantic"))
        await later.memory.remember(ann, said(session))
    stricter = Profiles({"gateway": {**GATEWAY, "sanitise": {"email": "refuse"}}}, {})
    monkeypatch.setattr(later.memory, "profiles", stricter)
    [report] = await later.sessions.close(ann, "s1")
    assert [(row.fate, row.refused) for row in report.rows] == [
        ("removed", "text: holds what the profile gateway refuses: email"),
        ("promoted", None),
    ]
    assert [memory.text for memory in await held(later, ann, tiers=("persistent",))] == ["Ann Rome"]


async def test_what_is_somebodys_own_stays_so_though_the_profile_is_the_workspaces_by_now(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, dice = workspace.user("ann"), random.Random(7)
    for session in ("s1", "s2", "s3"):
        await work_through(later, ann, session, dice)
        await later.memory.remember(ann, said(session))
    cells = {tier: {**kinds, "procedural": "permitted"} for tier, kinds in GATEWAY["cells"].items()}
    shared = {**GATEWAY, "cells": cells, "anchor": "workspace", "promotion": {**GATEWAY["promotion"], **PATTERNS}}
    monkeypatch.setattr(later.memory, "profiles", Profiles({"gateway": shared}, {}))
    [report] = await later.sessions.close(ann, "s3")
    why = "user_id: memory of the profile gateway is the workspace's by now, and this is ann's"
    assert [(row.fate, row.refused) for row in report.rows if row.kind == "semantic"] == [("removed", why)]
    assert [(each.memory_id, each.refused, each.steps) for each in report.routines] == [(None, why, list(ROUTINE))]
    assert await held(later, workspace.user("bob")) == []
    assert await held(later, workspace.admin, tiers=("persistent",)) == []


async def test_what_is_the_workspaces_is_not_kept_where_the_profile_is_a_persons_by_now(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is nobody's in particular."""
    shared = Profiles({"gateway": {**GATEWAY, "anchor": "workspace"}}, {})
    own = later.memory.profiles
    monkeypatch.setattr(later.memory, "profiles", shared)
    for session in ("s1", "s2"):
        await later.memory.remember(workspace.admin, said(session))
    monkeypatch.setattr(later.memory, "profiles", own)
    [report] = await later.sessions.close(workspace.admin, "s1")
    assert report.rows[0].refused == "user_id: is needed: memory of the profile gateway hangs on a user"
    assert await held(later, workspace.admin, tiers=("persistent",)) == []


async def test_a_fact_that_the_profile_would_alter_by_now_ends_no_other(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    mail = Fact("Ann", "writes from", "ann@example.com")
    open_handed = Profiles({"gateway": {**GATEWAY, "sanitise": {"email": "keep"}}}, {})
    monkeypatch.setattr(later.memory, "profiles", open_handed)
    for session in ("s1", "s2"):
        await later.memory.remember(ann, said(session, mail))
    await later.sessions.close(ann, "s1")
    for session in ("s3", "s4"):
        await later.memory.remember(ann, said(session, mail))
    stricter = Profiles({"gateway": {**GATEWAY, "sanitise": {"email": "replace"}}}, {})
    monkeypatch.setattr(later.memory, "profiles", stricter)
    [report] = await later.sessions.close(ann, "s3")
    why = "fact.object, text: holds what the profile gateway takes out of memory by now: email"
    assert [(row.fate, row.refused) for row in report.rows] == [("removed", why)]
    [kept] = await held(later, ann, tiers=("persistent",))
    assert (kept.fact and kept.fact.object, kept.invalid_at, kept.told_count) == (mail.object, None, 1)


CARDS = ("4111 1111 1111 1111", "5500 0000 0000 0004")


@pytest.mark.parametrize("field", ["subject", "object", "text"])
async def test_nobody_agrees_on_what_was_taken_out_of_a_memory(later: App, workspace: Workspace, field: str) -> None:
    """However many sources each of them has."""
    ann = workspace.user("ann")
    for session, card in zip(("s0", "s1"), CARDS, strict=True):
        letters = [event({"text": f"letter {number}"}, user_id="ann", occurred_at=later.clock()) for number in range(2)]
        await later.ledger.append(workspace.admin, letters)
        fact = {"subject": Fact(card, "belongs to", "Ann"), "object": Fact("Ann", "pays by", card), "text": None}[field]
        text = f"it is {card}" if field == "text" else "pays by card"
        request = told(text, session, "semantic", fact=fact, derived_from=tuple(one.event_id for one in letters))
        row = await closed(later, ann, request)
        assert row.fate == "removed"
        assert (row.refused or "").endswith("something was taken out of it when it was told: card")
    assert await held(later, ann, tiers=("persistent",)) == []


async def test_a_fact_of_whose_text_something_was_taken_out_is_whole(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for session in ("s0", "s1"):
        row = await closed(later, ann, told(f"Ann in Rome pays by {CARDS[0]}", session, "semantic", fact=LIVES))
    assert row.fate == "promoted"
    [kept] = await held(later, ann, tiers=("persistent",))
    assert (kept.text, kept.sanitised) == ("Ann in Rome pays by [card]", {"card": 1})


async def test_a_text_that_the_profile_would_alter_by_now_is_not_kept_either(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could tell that the next one says the same, and each close would keep another."""
    ann = workspace.user("ann")
    for session in ("s1", "s2"):
        await later.memory.remember(ann, told("Ann is at ann@example.com", session, "semantic"))
    stricter = Profiles({"gateway": {**GATEWAY, "sanitise": {"email": "replace"}}}, {})
    monkeypatch.setattr(later.memory, "profiles", stricter)
    [report] = await later.sessions.close(ann, "s1")
    assert report.rows[0].refused == "text: holds what the profile gateway takes out of memory by now: email"
    assert await held(later, ann, tiers=("persistent",)) == []


@pytest.mark.parametrize("twin", [said("s0"), said("s0", None), said("s0", world_id_context="w1")])
async def test_an_echo_is_one_although_the_recall_has_found_what_is_like_it_too(
    later: App, workspace: Workspace, twin: Remember
) -> None:
    """Other words, another world: those say something else, and are no source of this."""
    ann = workspace.user("ann")
    if twin.fact is not None:
        twin = msgspec.structs.replace(twin, text=f"{twin.text} {twin.world_id_context or 'about bob'}")
        twin = twin if twin.world_id_context else msgspec.structs.replace(twin, subject_id="bob")
    else:
        twin = msgspec.structs.replace(twin, text=said("s0").text)
    await later.memory.remember(ann, msgspec.structs.replace(twin, tier="persistent"))
    await later.memory.remember(ann, said("s1"))
    found = await later.recaller.recall(ann, Recall(query="Ann Rome"))
    assert len(found.hits) == 2
    assert (await closed(later, ann, said("s2", derived_from=(found.recall_id,)))).fate == "removed"
    assert (await closed(later, ann, said("s3"))).fate == "promoted"


async def test_what_is_told_again_from_recalls_however_often_was_told_by_somebody(
    later: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    assert (await closed(later, ann, said("s0"))).fate == "removed"
    await later.memory.remember(ann, said("s1"))
    letters = [event({"text": f"letter {number}"}, user_id="ann", occurred_at=later.clock()) for number in range(3)]
    await later.ledger.append(workspace.admin, letters)
    recalls = [(await later.recaller.recall(ann, Recall(query="Ann Rome"))).recall_id for _ in range(MAX_SOURCES)]
    assert (await closed(later, ann, said("s1", derived_from=tuple(recalls)))).fate == "promoted"


async def test_what_outlives_a_session_has_the_words_of_one_who_knows(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not of one who had it from another, and is as sure as it says of what it has read."""
    ann, cells = workspace.user("ann"), {"interaction": {"semantic": "permitted"}, **GATEWAY["cells"]}
    monkeypatch.setattr(later.memory, "profiles", Profiles({"gateway": {**GATEWAY, "cells": cells}}, {}))
    first = await later.memory.remember(ann, said("s0", LIVES))
    sure = msgspec.structs.replace(LIVES, confidence=1.0)
    echo = said("s1", sure, derived_from=(first.memory_id,))
    await later.memory.remember(
        ann, msgspec.structs.replace(echo, text="as I have read", tier="interaction", interaction_id="i1")
    )
    assert (await closed(later, ann, said("s1"))).fate == "promoted"
    [kept] = await held(later, ann, tiers=("persistent",))
    assert (kept.text, kept.fact and kept.fact.confidence) == ("Ann Rome", 0.84)


@pytest.mark.parametrize("fact", [LIVES, None])
async def test_two_recalls_of_what_another_agent_knows_are_one_source(
    later: App, workspace: Workspace, fact: Fact | None
) -> None:
    """Facts accumulate with that one, and follow one another with the one that has recalled them."""
    ann = workspace.user("ann")
    shared = msgspec.structs.replace(said("s0", fact), agent="sdr", tier="persistent", session_id=None)
    origin = await later.memory.remember(workspace.user("bob"), shared)
    for session in ("s1", "s2"):
        again = said(session, fact, derived_from=(await recalled(later, ann),))
        assert (await closed(later, ann, again)).fate == "removed"
    assert (await closed(later, ann, said("s3", fact, derived_from=(origin.memory_id,)))).fate == "removed"
    assert (await closed(later, ann, said("s4", fact))).fate == "promoted"
    assert await nothing_differs(later, workspace)


async def test_a_routine_of_long_steps_is_cut_to_what_a_text_may_have(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    steps = [f"{word} {'and so on ' * 900}".strip() for word in ("first", "second", "third")]
    for session in ("s1", "s2", "s3"):
        await tell(later, ann, session, *steps)
        [report] = await later.sessions.close(ann, session)
    [procedure] = await held(later, ann, kinds=("procedural",))
    assert report.routines[0].memory_id == procedure.memory_id
    assert report.routines[0].steps == steps
    assert MAX_TEXT_CHARACTERS - 10 < len(procedure.text) <= MAX_TEXT_CHARACTERS
    assert [line[:10] for line in procedure.text.splitlines()[1:]] == ["1. first a", "2. second ", "3. third a"]
    assert all(line.endswith("…") for line in procedure.text.splitlines()[1:])


async def test_one_long_step_of_a_routine_is_not_cut_where_all_fit(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    steps = ["go on " * 3_000 + "now", "look", "write"]
    for session in ("s1", "s2", "s3"):
        await tell(later, ann, session, *steps)
        [report] = await later.sessions.close(ann, session)
    [procedure] = await held(later, ann, kinds=("procedural",))
    assert report.routines[0].memory_id == procedure.memory_id
    assert [line[3:] for line in procedure.text.splitlines()[1:]] == steps


@pytest.mark.parametrize(
    ("lengths", "most", "left"),
    [
        ([3, 4, 3], 10, [3, 4, 3]),
        ([3, 5, 3], 10, [3, 4, 3]),
        ([2, 9, 9], 10, [2, 4, 4]),
        ([9, 9, 9], 10, [3, 3, 3]),
        ([9, 1], 10, [9, 1]),
    ],
)
def test_of_what_is_too_long_the_longest_are_cut(lengths: list[int], most: int, left: list[int]) -> None:
    parts = fitted(["x" * length for length in lengths], most)
    assert [len(part) for part in parts] == left
    assert [part.endswith("…") for part in parts] == [new < old for new, old in zip(left, lengths, strict=True)]


@pytest.mark.parametrize("fact", [LIVES, None])
async def test_a_session_id_that_is_used_again_is_no_new_source(
    later: App, workspace: Workspace, fact: Fact | None
) -> None:
    ann = workspace.user("ann")
    fates = [(await closed(later, ann, said(session, fact))).fate for session in ("s1", "s2", "s1", "s2", "s3")]
    assert fates == ["removed", "promoted", "removed", "removed", "promoted"]
    [kept] = await held(later, ann, tiers=("persistent",))
    assert kept.told_count == 2


async def test_what_was_forgotten_elsewhere_while_it_was_closed_makes_nothing_surer(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    first, *_ = [await later.memory.remember(ann, said(session)) for session in ("s1", "s2", "s3")]
    embedded = later.memory.embedded

    async def slowly(texts: list[str]) -> Any:
        """Between what is planned and what is stored."""
        monkeypatch.undo()
        await later.memory.forget(ann, first.memory_id)
        return await embedded(texts)

    monkeypatch.setattr(later.memory, "embedded", slowly)
    await later.sessions.close(ann, "s3")
    [kept] = await held(later, ann, tiers=("persistent",))
    assert kept.fact is not None
    assert kept.fact.confidence == pytest.approx(0.84)
    sources = (await later.memory.explain(ann.scope, kept.memory_id)).sources
    assert str(first.memory_id) not in {source.source for source in sources}


async def test_what_was_forgotten_while_it_was_closed_is_not_kept(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    await closed(later, ann, said("s1"))
    again = await later.memory.remember(ann, said("s2"))

    async def forgotten_first(ledger: Ledger, workspace_id: str, make: Any) -> Any:
        monkeypatch.setattr(Ledger, "record_together", RECORD)
        await later.memory.forget(ann, again.memory_id)
        return await RECORD(ledger, workspace_id, make)

    monkeypatch.setattr(Ledger, "record_together", forgotten_first)
    [report] = await later.sessions.close(ann, "s2")
    assert report.rows == []
    assert await held(later, ann) == []


@pytest.mark.parametrize(("subject", "is_closed"), [("ann", False), ("bob", True)])
async def test_a_close_that_meets_an_erasure_says_nothing_of_whom_was_erased(
    app: App,
    later: App,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    subject: str,
    is_closed: bool,
) -> None:
    ann = workspace.user("ann")
    for session in ("s1", "s2", "s3"):
        await later.runs.start(ann, "gateway", "one", session_id=session)
        for step in ROUTINE:
            await later.memory.remember(ann, told(step, session, subject_id=subject))
        if session != "s3":
            await later.sessions.close(ann, session)

    async def erased_first(ledger: Ledger, workspace_id: str, make: Any) -> Any:
        monkeypatch.setattr(Ledger, "record_together", RECORD)
        await app.erasures.erase(workspace.admin, subject)
        return await RECORD(ledger, workspace_id, make)

    # Another process erases: here the key is still remembered.
    monkeypatch.setattr(Ledger, "record_together", erased_first)
    if is_closed:
        [report] = await later.sessions.close(ann, "s3")
        assert (report.rows, report.routines) == ([], [])
        assert ROUTINE[0] not in report.summary
    else:
        with pytest.raises(NotFound):
            await later.sessions.close(ann, "s3")
    assert await held(later, workspace.admin) == []
    assert await nothing_differs(later, workspace)


async def test_who_told_what_was_promoted_is_told_and_not_only_who_promoted_it(
    later: App, workspace: Workspace
) -> None:
    for session in ("s1", "s2"):
        request = msgspec.structs.replace(said(session), user_id="ann")
        await later.memory.remember(workspace.admin, request)
        await later.sessions.close(workspace.admin, session)
    [kept] = await held(later, workspace.user("ann"))
    explained = await later.memory.explain(workspace.admin.scope, kept.memory_id)
    assert {(source.told_by, source.said_by) for source in explained.sources} == {("admin", "whence")}


RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."


@pytest.mark.parametrize("as_fact", [False, True])
@pytest.mark.parametrize("way", ["asked", "job", "activity"])
async def test_what_repeats_a_rule_by_now_is_not_promoted_and_the_report_names_the_rule(
    later: App, workspace: Workspace, moment: Time, way: str, as_fact: bool
) -> None:
    ann = workspace.user("ann")
    note = told(
        "what the gate does" if as_fact else RULE,
        kind="semantic",
        world_id_context="w1",
        fact=Fact("the gate", "does", RULE) if as_fact else None,
    )
    rows = [await later.memory.remember(ann, msgspec.structs.replace(note, session_id=name)) for name in ("s1", "s2")]
    other = told("Ann prefers the window", "s3", kind="semantic", world_id_context="w1")
    for session in ("s3", "s4"):
        await later.memory.remember(ann, msgspec.structs.replace(other, session_id=session))
    await later.memory.set_rule(workspace.admin, "w1", "R-12", RULE)
    if way == "asked":
        for session in ("s1", "s2", "s3", "s4"):
            await later.sessions.close(ann, session)
    else:
        moment.pass_by(days=30)
        if way == "job":
            assert await later.sessions.close_due(workspace.workspace_id) == 4
        else:
            for session in ("s1", "s2", "s3", "s4"):
                assert (await later.memory.remember(ann, told("back again", session))).warnings == ()
    for session, row in zip(("s1", "s2"), rows, strict=True):
        stretches = (await later.sessions.page(ann.scope)).sessions
        closed = [s for s in stretches if s.session_id == session and s.closed_at is not None]
        assert len(closed) == 1
        assert closed[0].close_event_id is not None
        payload = await later.ledger.payload(ann.scope, closed[0].close_event_id)
        report = msgspec.convert(msgspec.json.decode(payload)["report"], SessionReport)
        assert report.rows == [SessionRow(row.memory_id, "session", "semantic", "removed", None, "R-12")]
    assert [memory.text for memory in await held(later, ann, tiers=("persistent",))] == ["Ann prefers the window"]
    assert await nothing_differs(later, workspace)


async def test_what_would_become_a_part_of_what_repeats_a_rule_by_now_is_not_promoted_either(
    later: App, workspace: Workspace
) -> None:
    """In other words than the rule's: the guard looks at what is remembered of the fact again when it is told again."""
    ann = workspace.user("ann")
    does = Fact("the gate", "does", "what it should", 0.6)
    note = told(RULE, "s0", "semantic", "persistent", world_id_context="w1", fact=does)
    known = await later.memory.remember(ann, note)
    await later.memory.set_rule(workspace.admin, "w1", "R-12", RULE)
    short = msgspec.structs.replace(note, text="see the gate", session_id="s1", tier="session")
    row = await closed(later, ann, short)
    assert (row.fate, row.became, row.repeats) == ("removed", None, "R-12")
    assert (await later.memory.get(ann.scope, known.memory_id)).told_count == 1
    with pytest.raises(RepeatsCanon, match=r"rule R-12, 1\.00 alike, in what is remembered already"):
        await later.memory.remember(ann, msgspec.structs.replace(short, tier="persistent"))
    with pytest.raises(RepeatsCanon, match=r"rule R-12, 1\.00 alike$"):
        await later.memory.remember(ann, msgspec.structs.replace(note, fact=None))
    assert await nothing_differs(later, workspace)


GATEWAY = {
    "cells": {
        "session": {"episodic": "dominant", "semantic": "permitted"},
        "persistent": {"episodic": "dominant", "semantic": "permitted"},
    },
    "promotion": {"semantic": "corroborated"},
}
PATTERNS = {"episodic": "patterns"}


async def test_sessions_that_are_being_closed_stop_when_they_are_told_to(
    later: App, workspace: Workspace, moment: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "DUE_A_PAGE", 2)
    for session in ("s1", "s2", "s3", "s4"):
        await tell(later, workspace.user("ann"), session, "the first day")
    moment.pass_by(days=30)
    stopping, close_stretch = asyncio.Event(), Sessions.close_stretch

    async def then_stop(self: Sessions, workspace_id: str, stretch: Stretch) -> SessionReport:
        if stretch.session_id == "s3":
            stopping.set()
        return await close_stretch(self, workspace_id, stretch)

    monkeypatch.setattr(Sessions, "close_stretch", then_stop)
    assert await later.sessions.close_due(workspace.workspace_id, stopping) == 3
    assert await later.sessions.close_due(workspace.workspace_id, stopping) == 0
    assert await later.sessions.close_due(workspace.workspace_id) == 1


@pytest.mark.parametrize("at", ["close", "plan"])
@pytest.mark.parametrize("error", [psycopg.errors.CheckViolation, psycopg.errors.DataError])
async def test_sessions_that_cannot_be_closed_keep_no_other_ones_open(
    later: App,
    workspace: Workspace,
    moment: Time,
    monkeypatch: pytest.MonkeyPatch,
    error: type[psycopg.Error],
    at: str,
) -> None:
    """However many there are: they are the first of a page, and all of the next."""
    monkeypatch.setattr(sessions, "DUE_A_PAGE", 2)
    ann = workspace.user("ann")
    for session in ("s1", "bad 1", "bad 2", "bad 3", "s2", "s3"):
        await tell(later, ann, session, "the first day")
    moment.pass_by(days=30)
    record_together = Ledger.record_together

    async def refused(ledger: Ledger, workspace_id: str, make: Any) -> Any:
        async def made(tx: Tx) -> Sequence[OwnEvent]:
            events = await make(tx)
            if events[0].event.session_id.startswith("bad"):
                # What the database refuses although nobody foresaw it.
                number = 2 if error is psycopg.errors.CheckViolation else "NaN"
                await tx.execute("UPDATE whence.memories SET importance = %s::text::numeric(3, 2)", (number,))
            return events

        return await record_together(ledger, workspace_id, made)

    plan = Sessions._plan

    async def unplanned(self: Sessions, workspace_id: str, stretch: Stretch) -> Any:
        if stretch.session_id.startswith("bad"):
            raise error("what nobody foresaw")
        return await plan(self, workspace_id, stretch)

    if at == "close":
        monkeypatch.setattr(Ledger, "record_together", refused)
    else:
        monkeypatch.setattr(Sessions, "_plan", unplanned)
    with pytest.raises(Unavailable):
        await later.sessions.close_due(workspace.workspace_id)
    closed = {s.session_id: s.closed_at is not None for s in (await later.sessions.page(ann.scope)).sessions}
    assert [session for session, is_closed in closed.items() if is_closed] == ["s3", "s2", "s1"]
    again = await later.memory.remember(ann, told("back again", "bad 1"))
    assert again.warnings == (
        "the former session bad 1 is over and not closed yet: the session could not be closed; the log says why",
    )
    with pytest.raises(Unavailable):
        await later.sessions.close(ann, "bad 1")


async def test_an_administrator_closes_for_every_user_though_one_cannot_be_closed(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("ann", "bob", "cid"):
        await tell(later, workspace.user(user), "s1", "one thing")
    close_stretch = Sessions.close_stretch

    async def refused(self: Sessions, workspace_id: str, stretch: Stretch) -> SessionReport:
        if stretch.owner == "bob":
            raise Unavailable("not this one")
        return await close_stretch(self, workspace_id, stretch)

    monkeypatch.setattr(Sessions, "close_stretch", refused)
    with pytest.raises(Unavailable, match="not this one"):
        await later.sessions.close(workspace.admin, "s1")
    found = (await later.sessions.page(workspace.admin.scope)).sessions
    assert {s.user_id for s in found if s.closed_at is None} == {"bob"}


async def test_a_close_that_is_repeated_gives_the_same_report(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "one thing")
    first = await later.sessions.close(ann, "s1")
    head = await later.ledger.heads.read(workspace.workspace_id)
    assert await later.sessions.close(ann, "s1") == first
    assert await later.ledger.heads.read(workspace.workspace_id) == head


async def test_a_session_of_the_workspace_is_seen_by_all_and_closed_by_an_administrator(
    later: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    await later.runs.start(ann, "sdr", "one", session_id="s1")
    assert [each.session_id for each in (await later.sessions.page(ann.scope)).sessions] == ["s1"]
    with pytest.raises(Forbidden, match="an administrator can close it"):
        await later.sessions.close(ann, "s1")
    await tell(later, ann, "s1", "one thing")
    assert [each.agent for each in await later.sessions.close(ann, "s1")] == ["gateway"]
    assert {each.agent for each in await later.sessions.close(workspace.admin, "s1")} == {"gateway", "sdr"}


async def test_a_session_of_somebody_else_is_like_one_that_is_not_there(later: App, workspace: Workspace) -> None:
    await tell(later, workspace.user("ann"), "s1", "one thing")
    with pytest.raises(NotFound) as foreign:
        await later.sessions.close(workspace.user("bob"), "s1")
    with pytest.raises(NotFound) as missing:
        await later.sessions.close(workspace.user("bob"), "s9")
    assert str(foreign.value) == str(missing.value)
    assert (await later.sessions.close(workspace.admin, "s1"))[0].user_id == "ann"


async def test_a_routine_of_four_sessions_is_one_procedure_with_its_twenty_events(
    later: App, workspace: Workspace, moment: Time
) -> None:
    ann, dice = workspace.user("ann"), random.Random(7)
    reports: list[SessionReport] = []
    for number in range(4):
        await work_through(later, ann, f"s{number}", dice)
        reports += await later.sessions.close(ann, f"s{number}")
        moment.pass_by(days=1)
    assert [len(report.routines) for report in reports] == [0, 0, 1, 1]
    [procedure] = await held(later, ann, kinds=("procedural",))
    assert (procedure.support, procedure.tier, procedure.said_by) == (4, "persistent", "whence")
    assert [line[3:] for line in procedure.text.splitlines()[1:]] == list(ROUTINE)
    explained = await later.memory.explain(ann.scope, procedure.memory_id)
    assert len({source.source for source in explained.sources}) == 20
    assert explained.superseded == [reports[2].routines[0].memory_id]
    await work_through(later, workspace.user("eve"), "s0", dice)
    assert (await later.sessions.close(workspace.user("eve"), "s0"))[0].routines == []
    assert await held(later, workspace.user("eve"), kinds=("procedural",)) == []
    assert await nothing_differs(later, workspace)


async def test_a_new_session_without_the_routine_changes_nothing_of_it(later: App, workspace: Workspace) -> None:
    ann, dice = workspace.user("ann"), random.Random(7)
    for number in range(3):
        await work_through(later, ann, f"s{number}", dice)
        await later.sessions.close(ann, f"s{number}")
    [before] = await held(later, ann, kinds=("procedural",))
    await tell(later, ann, "s9", "had a day off", "went for a walk", "came back")
    [report] = await later.sessions.close(ann, "s9")
    assert report.routines == []
    assert await held(later, ann, kinds=("procedural",)) == [before]


class Killed(BaseException):
    """As if the process had ended here."""


async def fails_before(_: Ledger, __: str, make: Any) -> Any:
    raise Killed


async def fails_inside(ledger: Ledger, workspace_id: str, make: Any) -> Any:
    async def made(tx: Tx) -> Sequence[OwnEvent]:
        await make(tx)
        raise Killed

    return await RECORD(ledger, workspace_id, made)


async def fails_after(ledger: Ledger, workspace_id: str, make: Any) -> Any:
    await RECORD(ledger, workspace_id, make)
    raise Killed


RECORD = Ledger.record_together


@pytest.mark.parametrize("fault", [fails_before, fails_inside, fails_after])
async def test_a_close_that_was_killed_anywhere_ends_in_the_same_state_when_it_is_made_again(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    ann, dice = workspace.user("ann"), random.Random(7)
    for number in range(4):
        await work_through(later, ann, f"s{number}", dice)
        if number < 3:
            await later.sessions.close(ann, f"s{number}")
    monkeypatch.setattr(Ledger, "record_together", fault)
    with pytest.raises(Killed):
        await later.sessions.close(ann, "s3")
    monkeypatch.setattr(Ledger, "record_together", RECORD)
    [report] = await later.sessions.close(ann, "s3")
    assert report.counts == {"archived": 8}
    [routine] = report.routines
    assert (routine.support, len(routine.events)) == (4, 4)
    [procedure] = await held(later, ann, kinds=("procedural",))
    assert procedure.memory_id == routine.memory_id
    events = (await later.ledger.page(workspace.admin.scope, 0, 1000)).events
    assert len([event for event in events if event.event_type == "session.closed"]) == 4
    assert await nothing_differs(later, workspace)


async def test_what_is_told_while_it_is_closed_belongs_to_the_next_session(
    later: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "before")

    async def with_a_word_between(ledger: Ledger, workspace_id: str, make: Any) -> Any:
        await tell(later, ann, "s1", "in between")
        return await RECORD(ledger, workspace_id, make)

    monkeypatch.setattr(Ledger, "record_together", with_a_word_between)
    [report] = await later.sessions.close(ann, "s1")
    assert report.counts == {"archived": 1}
    assert [memory.text for memory in await held(later, ann)] == ["in between"]
    second, first = (await later.sessions.page(ann.scope)).sessions
    assert (first.closed_at is None, second.closed_at is None) == (False, True)
    assert await nothing_differs(later, workspace)


async def test_the_same_may_be_told_again_after_its_session(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    note = told("Ann prefers the window", kind="semantic")
    await later.memory.remember(ann, note)
    await later.sessions.close(ann, "s1")
    again = await later.memory.remember(ann, note)
    assert again.status == "stored"
    assert [memory.memory_id for memory in await held(later, ann)] == [again.memory_id]
    assert await nothing_differs(later, workspace)


async def test_what_is_about_somebody_else_is_not_summed_up_under_ones_own_key(
    later: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "met the customer")
    await later.memory.remember(ann, told("Bob is ill", subject_id="bob"))
    [report] = await later.sessions.close(ann, "s1")
    assert "Bob" not in report.summary
    assert "met the customer" in report.summary


async def test_a_thread_without_a_session_is_one_of_its_own(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    note = Remember(agent="gateway", tier="interaction", kind="episodic", text="said hello", interaction_id="t1")
    await later.memory.remember(ann, note)
    [session] = (await later.sessions.page(ann.scope)).sessions
    assert session.session_id == "thread:t1"
    [report] = await later.sessions.close(ann, "thread:t1")
    assert report.counts == {"archived": 1}


async def test_the_report_is_in_the_ledger(later: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await tell(later, ann, "s1", "one thing")
    [report] = await later.sessions.close(ann, "s1")
    payload = msgspec.json.decode(await later.ledger.payload(ann.scope, report.event_id))
    assert msgspec.convert(payload["report"], SessionReport, strict=False) == report


async def test_what_an_action_cites_is_kept_through_close_retention_and_erasure(
    later: App, workspace: Workspace, moment: Time
) -> None:
    ann = workspace.user("ann")
    draft = await later.memory.remember(ann, told("how the release is made", kind="procedural"))
    other = await later.memory.remember(ann, told("what nobody needs", kind="procedural"))
    await later.actions.record(workspace.admin, "change_set.accepted", [draft.memory_id])
    [report] = await later.sessions.close(ann, "s1")
    assert {row.memory_id: row.fate for row in report.rows} == {draft.memory_id: "held", other.memory_id: "removed"}
    for _ in range(3):
        moment.pass_by(days=400)
        await later.retention.apply(workspace.workspace_id)
    kept = await later.memory.get(ann.scope, draft.memory_id)
    assert (kept.text, kept.deleted_at, kept.archived_at) == ("how the release is made", None, report.closed_at)
    with pytest.raises(NotFound):
        await later.memory.get(ann.scope, other.memory_id)
    receipt = await later.erasures.erase(workspace.admin, "ann")
    assert receipt.held == [draft.memory_id]
    left = await later.memory.get(workspace.admin.scope, draft.memory_id)
    assert (left.text, left.tier, left.kind, left.session_id) == ("", "session", "procedural", "s1")
    assert await nothing_differs(later, workspace)
