"""Retention by the injected clock: what goes when, what keeps it, and what a replay makes of it."""

import asyncio
import random
from datetime import timedelta
from uuid import UUID

import pytest
from psycopg import Connection, sql

from conftest import Workspace
from lifecycle.conftest import Time, assert_replay_is_equal, told
from whence.app import App
from whence.errors import NotFound, SetupError, WhenceError
from whence.graph.rebuild import rebuild as rebuild_graph
from whence.ledger import Filter
from whence.lifecycle.policies import Policies
from whence.lifecycle.retention import Retention
from whence.memory.profiles import Profiles
from whence.wire import Fact, Recall, RetentionState


async def state(app: App, workspace: Workspace, memory_id: UUID) -> RetentionState:
    return (await app.retention.of(workspace.admin.scope, memory_id)).state


async def test_an_episode_is_kept_for_90_days_then_tombstoned_then_stripped_after_the_grace(
    timed: App, workspace: Workspace, time: Time
) -> None:
    ann = workspace.user("ann")
    kept = await timed.memory.remember(ann, told("Ann asked for the report of May."))
    time.passes(days=89, hours=23)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 0
    time.passes(hours=1)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 1
    assert await state(timed, workspace, kept.memory_id) == "TOMBSTONED"
    time.passes(days=29)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 0
    assert (await timed.memory.get(ann.scope, kept.memory_id)).text == "Ann asked for the report of May."
    time.passes(days=1)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 1
    envelope = await timed.memory.get(ann.scope, kept.memory_id)
    assert (envelope.text, envelope.agent, envelope.user_id) == ("", "gateway", "ann")
    with pytest.raises(NotFound):
        await timed.ledger.payload(ann.scope, kept.event_id)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 0
    await assert_replay_is_equal(timed, workspace)


async def test_what_a_session_has_left_behind_is_evidence_for_90_days_and_then_goes(
    timed: App, workspace: Workspace, time: Time
) -> None:
    ann = workspace.user("ann")
    note = await timed.memory.remember(ann, told("opened the file", tier="session", session_id="s1"))
    cited = await timed.memory.remember(ann, told("closed the file", tier="session", session_id="s1"))
    time.passes(days=20)
    await timed.sessions.close(ann, "s1")
    await timed.actions.record(ann, "decision.published", [cited.memory_id])
    about = await timed.retention.of(ann.scope, note.memory_id)
    assert about.expires_at == time.now + timedelta(days=90)
    time.passes(days=89, hours=23)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 0
    time.passes(hours=1)
    done = await timed.retention.apply(workspace.workspace_id)
    assert (done.expired, len(done.archives)) == (1, 1)
    time.passes(days=30)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 1
    with pytest.raises(NotFound):
        await timed.memory.get(ann.scope, note.memory_id)
    assert (await timed.memory.get(ann.scope, cited.memory_id)).text == "closed the file"
    await assert_replay_is_equal(timed, workspace)


async def test_a_routine_holds_the_episodes_it_was_found_in(timed: App, workspace: Workspace, time: Time) -> None:
    ann, steps = workspace.user("ann"), ("open the queue", "pick an invoice", "pay it")
    for session in ("s1", "s2", "s3"):
        for text in steps:
            await timed.memory.remember(ann, told(text, tier="session", session_id=session))
        await timed.sessions.close(ann, session)
        time.passes(days=40)
    [routine] = (await timed.memory.page(ann.scope, Recall(kinds=("procedural",)))).memories
    assert routine.support == 3
    time.passes(days=400)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 0


async def test_memory_of_a_profile_that_there_is_no_more_has_the_default_policy(
    timed: App, workspace: Workspace, time: Time, owner: Connection
) -> None:
    ann = workspace.user("ann")
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    names = ("a first one", "hotel", "zoo", "gateway")
    for name in names:
        one = await timed.memory.remember(ann, told(f"of {name}", "procedural"))
        owner.execute("UPDATE whence.memories SET profile = %s WHERE memory_id = %s", (name, one.memory_id))
    time.passes(days=364)
    assert (await timed.retention.plan(workspace.admin.scope)).due == []
    time.passes(days=1)
    due = (await timed.retention.plan(workspace.admin.scope)).due
    assert [each.text for each in due] == ["of a first one", "of hotel", "of zoo"]


async def test_an_orphan_is_found_among_many_that_are_none(timed: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    first = await timed.memory.remember(ann, told("It rained.", "semantic"))
    other = await timed.memory.remember(ann, told("It was cold.", "semantic"))
    alone = await timed.memory.remember(ann, told("Bad weather.", "semantic", derived_from=(first.memory_id,)))
    both = (first.memory_id, other.memory_id)
    await timed.memory.remember(ann, told("Autumn.", "semantic", derived_from=both))
    assert (await timed.retention.plan(workspace.admin.scope)).orphan_count == 0
    await timed.memory.forget(ann, first.memory_id)
    plan = await timed.retention.plan(workspace.admin.scope)
    assert [orphan.memory_id for orphan in plan.orphans] == [alone.memory_id]


async def test_what_an_action_cites_outlives_every_timer(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    cited = await timed.memory.remember(ann, told("The price was agreed."))
    forgotten = await timed.memory.remember(ann, told("It was a Tuesday."))
    other = await timed.memory.remember(ann, told("The coffee was cold."))
    action = await timed.actions.record(ann, "decision.published", [cited.memory_id, forgotten.memory_id])
    await timed.memory.forget(ann, forgotten.memory_id)
    for _ in range(4):
        time.passes(days=400)
        await timed.retention.apply(workspace.workspace_id)
    about = await timed.retention.of(ann.scope, cited.memory_id)
    assert (about.state, about.held_by) == ("REFERENCED", [action.action_id])
    assert (await timed.memory.get(ann.scope, cited.memory_id)).text == "The price was agreed."
    assert (await timed.memory.get(ann.scope, forgotten.memory_id)).text == "It was a Tuesday."
    assert (await timed.memory.get(ann.scope, other.memory_id)).text == ""
    await assert_replay_is_equal(timed, workspace)


async def test_what_a_live_memory_was_derived_from_is_kept_until_that_is_gone(
    timed: App, workspace: Workspace, time: Time
) -> None:
    ann = workspace.user("ann")
    episode = await timed.memory.remember(ann, told("Ann moved to Oslo."))
    fact = await timed.memory.remember(
        ann,
        told("Ann lives in Oslo.", "semantic", fact=Fact("Ann", "lives in", "Oslo"), derived_from=(episode.memory_id,)),
    )
    time.passes(days=200)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 0
    [due] = (await timed.retention.plan(workspace.admin.scope)).due
    assert (due.memory_id, due.kept_by) == (episode.memory_id, "a memory was derived from it")
    await timed.memory.forget(ann, fact.memory_id)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 1
    await assert_replay_is_equal(timed, workspace)


async def test_a_fact_that_holds_never_expires_and_one_that_ended_does_after_its_days(
    timed: App, workspace: Workspace, time: Time
) -> None:
    ann = workspace.user("ann")
    old = await timed.memory.remember(ann, told("In Rome.", "semantic", fact=Fact("Ann", "lives in", "Rome")))
    time.passes(days=1_000)
    new = await timed.memory.remember(ann, told("In Oslo.", "semantic", fact=Fact("Ann", "lives in", "Oslo")))
    procedure = await timed.memory.remember(ann, told("Ask first.", "procedural", key="refunds"))
    time.passes(days=364)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 0
    time.passes(days=1)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 1
    assert await state(timed, workspace, old.memory_id) == "TOMBSTONED"
    time.passes(days=5_000)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 1
    for living in (new, procedure):
        assert await state(timed, workspace, living.memory_id) == "ACTIVE"
    await assert_replay_is_equal(timed, workspace)


async def test_memory_of_a_session_has_no_timer_and_is_removed_when_it_was_forgotten(
    timed: App, workspace: Workspace, time: Time, owner: Connection
) -> None:
    ann = workspace.user("ann")
    kept = await timed.memory.remember(ann, told("kept", tier="session", session_id="s1"))
    gone = await timed.memory.remember(ann, told("gone", tier="session", session_id="s1"))
    await timed.recaller.recall(ann, Recall())
    await timed.ledger.behind.settled()
    await timed.memory.forget(ann, gone.memory_id)
    time.passes(days=400)
    done = await timed.retention.apply(workspace.workspace_id)
    assert (done.expired, done.disposed, done.archives) == (0, 1, [])
    with pytest.raises(NotFound):
        await timed.memory.get(ann.scope, gone.memory_id)
    assert (await timed.memory.get(ann.scope, kept.memory_id)).text == "kept"
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    for table in ("memory_vectors", "memory_sources", "recall_hits"):
        count = owner.execute(
            sql.SQL("SELECT count(*) FROM whence.{} WHERE memory_id = %s").format(sql.Identifier(table)),
            (gone.memory_id,),
        ).fetchone()
        assert count == (0,), table
    await assert_replay_is_equal(timed, workspace)


async def test_a_dry_run_says_what_would_go_and_changes_nothing(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    gone = await timed.memory.remember(ann, told("old"))
    time.passes(days=91)
    head = (await timed.ledger.page(workspace.admin.scope, 0, 1_000)).events[-1].global_position
    plan = await timed.retention.plan(workspace.admin.scope)
    assert [(due.memory_id, due.becomes, due.content_class) for due in plan.due] == [
        (gone.memory_id, "TOMBSTONE", "episodes")
    ]
    assert [(total.becomes, total.count) for total in plan.totals] == [("TOMBSTONE", 1)]
    assert (await timed.ledger.page(workspace.admin.scope, 0, 1_000)).events[-1].global_position == head
    assert await state(timed, workspace, gone.memory_id) == "ACTIVE"


async def test_episodes_of_runs_leave_the_count_when_their_text_does(
    timed: App, workspace: Workspace, time: Time, owner: Connection
) -> None:
    ann = workspace.user("ann")
    run = await timed.runs.start(ann, "gateway", "one")
    for text in ("asked", "answered"):
        await timed.runs.add_episode(ann, run.run_id, text)
    time.passes(days=90)
    await timed.retention.apply(workspace.workspace_id)
    time.passes(days=30)
    await timed.retention.apply(workspace.workspace_id)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    assert owner.execute("SELECT episodes FROM whence.memory_counts").fetchone() == (0,)
    await assert_replay_is_equal(timed, workspace)


async def test_an_orphan_is_an_alert_and_is_left_alone(timed: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    source = await timed.memory.remember(ann, told("a source"))
    orphan = await timed.memory.remember(ann, told("drawn from it", "semantic", derived_from=(source.memory_id,)))
    assert await state(timed, workspace, source.memory_id) == "REFERENCED"
    await timed.memory.forget(ann, source.memory_id)
    assert await state(timed, workspace, orphan.memory_id) == "ORPHANED"
    plan = await timed.retention.plan(workspace.admin.scope)
    assert [found.memory_id for found in plan.orphans] == [orphan.memory_id]
    done = await timed.retention.apply(workspace.workspace_id)
    assert done.orphan_count == 1
    assert timed.registry.get_sample_value("whence_orphaned_memories") >= 1
    assert await state(timed, workspace, orphan.memory_id) == "ORPHANED"


async def test_two_that_apply_at_once_do_it_once(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    requests = [told(f"step {number}") for number in range(20)]
    await timed.memory.remember_all(ann, requests)
    time.passes(days=90)
    done = await asyncio.gather(*(timed.retention.apply(workspace.workspace_id) for _ in range(2)))
    assert sum(each.expired for each in done) == 20
    summaries = (await timed.ledger.page(ann.scope, 0, 1_000, Filter(event_type="memory.summary"))).events
    assert len(summaries) == 1
    time.passes(days=30)
    done = await asyncio.gather(*(timed.retention.apply(workspace.workspace_id) for _ in range(2)))
    assert sum(each.disposed for each in done) == 20
    await assert_replay_is_equal(timed, workspace)


async def test_more_than_a_batch_is_done_in_batches(
    timed: App, workspace: Workspace, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whence.lifecycle.retention.MAX_EXPIRED", 3)
    monkeypatch.setattr("whence.lifecycle.retention.MAX_STUB_BYTES", 1)
    await timed.memory.remember_all(workspace.user("ann"), [told(f"step {number}") for number in range(7)])
    time.passes(days=90)
    done = await timed.retention.apply(workspace.workspace_id)
    assert (done.expired, len(done.archives)) == (7, 3)
    time.passes(days=30)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 7
    await assert_replay_is_equal(timed, workspace)


async def test_an_action_that_is_recorded_while_retention_looks_still_holds(
    timed: App, workspace: Workspace, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    cited = await timed.memory.remember(ann, told("just in time"))
    time.passes(days=90)
    write = timed.archive.write

    async def and_cite(*given: object) -> object:
        await timed.actions.record(ann, "rule.promoted", [cited.memory_id])
        return await write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(timed.archive, "write", and_cite)
    assert (await timed.retention.apply(workspace.workspace_id)).expired == 0
    assert await state(timed, workspace, cited.memory_id) == "REFERENCED"


async def test_the_text_goes_from_every_event_that_told_it(timed: App, workspace: Workspace, time: Time) -> None:
    ann = workspace.user("ann")
    first = await timed.memory.remember(ann, told("The door code is blue.", "semantic"))
    again = [await timed.memory.remember(ann, told("The door code is blue.", "semantic")) for _ in range(2)]
    assert [item.status for item in again] == ["reinforced", "reinforced"]
    await timed.memory.forget(ann, first.memory_id)
    time.passes(days=30)
    assert (await timed.retention.apply(workspace.workspace_id)).disposed == 1
    for item in (first, *again):
        with pytest.raises(NotFound):
            await timed.ledger.payload(ann.scope, item.event_id)
    await assert_replay_is_equal(timed, workspace)


async def lived(app: App, workspace: Workspace, time: Time, seed: int) -> None:
    """Facts, procedures and episodes, told in any order and again, forgotten, cited, over years, with retention."""
    dice = random.Random(seed)
    known: list[UUID] = []
    for _ in range(60):
        who = workspace.user(dice.choice(["ann", "bob"]))
        agent = dice.choice(["gateway", "sdr"])
        place = dice.choice(["Rome", "Oslo"])
        sources = tuple(dice.sample(known, min(len(known), dice.randrange(2))))
        try:
            match dice.randrange(8):
                case 0 | 1 | 2:
                    request = told(
                        f"lives in {place}", "semantic", agent=agent, fact=Fact("Ann", "lives in", place),
                        valid_at=time() - timedelta(days=dice.randrange(400)) if dice.random() < 0.5 else None,
                        derived_from=sources,
                    )  # fmt: skip
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 3:
                    request = told(f"way {dice.randrange(2)}", "procedural", agent=agent, key="a")
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 4:
                    request = told(f"saying {dice.randrange(2)}", dice.choice(["semantic", "episodic"]), agent=agent)
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 5 if known:
                    await app.memory.forget(who, dice.choice(known))
                case 6 if known and dice.random() < 0.3:
                    await app.actions.record(who, "rule.promoted", [dice.choice(known)])
                case _:
                    time.passes(days=dice.choice([1, 40, 200]))
                    await app.retention.apply(workspace.workspace_id)
        except WhenceError:
            # What one user does to another's is refused, which is a history too.
            continue


@pytest.mark.parametrize("seed", range(6))
async def test_a_replay_of_a_history_with_disposals_is_equal(
    timed: App, workspace: Workspace, time: Time, seed: int
) -> None:
    await lived(timed, workspace, time, seed)
    await assert_replay_is_equal(timed, workspace)
    graph = await rebuild_graph(
        timed.database, timed.projector, timed.clock, workspace.workspace_id, True, lambda *_: None
    )
    assert graph.equal


@pytest.mark.parametrize("disposal", ["STRIP_PAYLOAD", "RETAIN_METADATA"])
async def test_disposals_keep_what_they_say(timed: App, workspace: Workspace, time: Time, disposal: str) -> None:
    policies = Policies({"memory": {"validity-window": {"active_days": 1, "grace_days": 1, "disposal": disposal}}})
    retention = Retention(
        timed.database, timed.ledger, timed.memory, timed.projector, timed.archive, policies, timed.clock
    )
    ann = workspace.user("ann")
    old = await timed.memory.remember(ann, told("In Rome.", "semantic", fact=Fact("Ann", "lives in", "Rome")))
    await timed.memory.remember(ann, told("Still Rome.", "semantic", fact=Fact("Ann", "lives in", "Rome")))
    time.passes(days=1)
    await timed.memory.remember(ann, told("In Oslo.", "semantic", fact=Fact("Ann", "lives in", "Oslo")))
    for _ in range(2):
        time.passes(days=1)
        await retention.apply(workspace.workspace_id)
    left = await timed.memory.get(ann.scope, old.memory_id)
    assert left.text == ""
    assert left.fact == (None if disposal == "STRIP_PAYLOAD" else Fact("Ann", "lives in", "", left.fact.confidence))
    assert left.told_count == 2
    await assert_replay_is_equal(timed, workspace)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"memory": {"episodes": {"disposal": "HARD_DELETE"}}}, "persistent memory is never hard-deleted"),
        ({"memory": {"episodes": {"active_days": -1}}}, "retention.memory.episodes"),
        ({"memory": {"episodes": {"days": 1}}}, "retention.memory.episodes"),
        ({"memory": {"episodes": 90}}, "a table"),
        ({"planets": {}}, "no such entity"),
        ({"scoped_memory": {"x": {"timer": "recorded_at"}}}, "ends with them"),
        ({"memory": {"x": {"timer": "archived_at"}}}, "is not archived"),
    ],
)
def test_a_policy_that_must_not_be_is_refused_by_name(own: dict[str, dict[str, dict[str, object]]], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        Policies(own)


def test_a_class_that_a_profile_and_the_policies_do_not_share_is_refused_by_name() -> None:
    def profiles(content_class: str) -> Profiles:
        given = {"cells": {"persistent": {"semantic": "dominant"}}, "retention": {"semantic": content_class}}
        return Profiles({"support": given}, {})

    with pytest.raises(
        SetupError, match=r"profiles\.support\.retention\.semantic: .* class decay-exemt; known: decay-ex"
    ):
        Policies({}).check(profiles("decay-exemt"))
    with pytest.raises(
        SetupError, match=r"profiles\.support\.retention\.semantic: there is no policy for the class secret"
    ):
        Policies({"scoped_memory": {"secret": {"timer": "none"}}}).check(profiles("secret"))
    own = Policies({"memory": {"secret": {"active_days": 1}, "episodes": {"active_days": 9}}})
    own.check(profiles("secret"))
    with pytest.raises(
        SetupError, match=r"retention\.memory\.secret: nothing is of this class; .*: decay-exempt, default,"
    ):
        own.check(profiles("default"))
    with pytest.raises(
        SetupError, match=r"retention\.scoped_memory\.items: nothing is of this class; .*: decay-exempt, default, epi"
    ):
        Policies({"scoped_memory": {"items": {}}}).check(profiles("default"))
    with pytest.raises(SetupError, match=r"retention\.conversation\.secret: .* something is of: default$"):
        Policies({"conversation": {"secret": {}}}).check(profiles("default"))


def test_policies_have_the_documented_defaults_and_change_by_field() -> None:
    policies = Policies({"memory": {"episodes": {"grace_days": 7}, "secret": {"active_days": 1}}})
    episodes = policies.of("memory", "episodes")
    assert (episodes.active_days, episodes.grace_days, episodes.disposal) == (90, 7, "STRIP_PAYLOAD")
    assert policies.of("memory", "secret").active_days == 1
    other = policies.of("memory", "never heard of")
    assert (other.active_days, other.grace_days, other.disposal) == (365, 30, "STRIP_PAYLOAD")
    assert policies.of("memory", "decay-exempt").timer == "none"
    scoped = policies.of("scoped_memory", "episodes")
    assert (scoped.timer, scoped.active_days, scoped.grace_days, scoped.disposal) == (
        "archived_at",
        90,
        30,
        "HARD_DELETE",
    )
    assert Policies({"scoped_memory": {"episodes": {"timer": "none"}}}).of("scoped_memory", "episodes").timer == "none"
    rules = {(rule.profile, rule.entity, rule.kind): rule for rule in policies.rules(Profiles({}, {}))}
    assert rules["gateway", "memory", "episodic"].content_class == "episodes"
    assert rules["operations", "memory", "semantic"].policy.timer == "invalid_at"
    assert rules["", "memory", "procedural"].content_class == "default"
