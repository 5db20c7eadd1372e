"""Workflows: the better a variant does, the more often it is selected; every outcome counts once."""

import asyncio
import json
import math
import random
import uuid
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from psycopg import Connection

from conftest import Workspace
from samples import event
from whence.app import App
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound
from whence.identity import Principal
from whence.ledger import Filter
from whence.memory.rebuild import rebuild
from whence.memory.workflows import MAX_PAGE_WORKFLOWS, MAX_SPEC_BYTES, MAX_VARIANTS, Workflows, drawn
from whence.wire import StoredEvent, Workflow

ARMS = {"poor": 0.3, "fair": 0.5, "good": 0.8}
ROUNDS = 400
MAX_REGRET = 20
"""Of 400 rounds; choosing by chance costs 107 on average."""
MANY = 500


def with_dice(app: App, seed: int) -> Workflows:
    return Workflows(app.database, app.ledger, app.clock, app.memory.profiles, random.Random(seed))


async def add(app: App, who: Principal, name: str = "short", agent: str = "gateway", spec: str = "{}") -> Workflow:
    return await app.workflows.add(who, agent, "triage", name, spec.encode())


async def scored(app: App, who: Principal, score: float, agent: str = "gateway") -> uuid.UUID:
    selection = await app.workflows.select(who, agent, "triage")
    await app.workflows.record_outcome(who, selection.selection_id, score)
    return selection.selection_id


async def told(app: App, who: Principal, event_type: str) -> list[StoredEvent]:
    return (await app.ledger.page(who.scope, 0, 1_000, Filter(event_type=event_type))).events


async def played(app: App, who: Principal, seed: int, rounds: int) -> list[str]:
    """The names of the variants that were selected, where each succeeds as often as ARMS says."""
    workflows, world = with_dice(app, seed), random.Random(seed + 1)
    for name in ARMS:
        await workflows.add(who, "gateway", "triage", name, b"{}")
    names: list[str] = []
    for _ in range(rounds):
        selection = await workflows.select(who, "gateway", "triage")
        names.append(selection.workflow.name)
        success = world.random() < ARMS[names[-1]]
        await workflows.record_outcome(who, selection.selection_id, float(success))
    return names


def regret(names: list[str]) -> float:
    return sum(max(ARMS.values()) - ARMS[name] for name in names)


@pytest.mark.parametrize("seed", [3, 5, 7])
async def test_selections_converge_on_the_best_variant_with_little_regret(
    app: App, workspace: Workspace, seed: int
) -> None:
    ann = workspace.user("ann")
    names = await played(app, ann, seed, ROUNDS)
    counts = Counter(names)
    first, second = regret(names[: ROUNDS // 2]), regret(names[ROUNDS // 2 :])
    assert counts["good"] > 0.75 * ROUNDS, counts
    assert first + second < MAX_REGRET, (first, second)
    assert second < first / 2, (first, second)
    known = {found.name: found for found in (await app.workflows.page(ann.scope)).workflows}
    assert {name: found.selections for name, found in known.items()} == counts
    assert abs(known["good"].mean - ARMS["good"]) < 0.1
    assert all(found.alpha + found.beta == 2 + found.outcomes for found in known.values())


def simulated(seed: int) -> tuple[float, float]:
    """The regret of the first and the second half, without a database."""
    dice, world = random.Random(seed), random.Random(seed + 1)
    known = [(1.0, 1.0)] * len(ARMS)
    names: list[str] = []
    for _ in range(ROUNDS):
        draws = drawn(known, dice)
        place = draws.index(max(draws))
        names.append(list(ARMS)[place])
        score = float(world.random() < ARMS[names[-1]])
        known[place] = (known[place][0] + score, known[place][1] + 1 - score)
    return regret(names[: ROUNDS // 2]), regret(names[ROUNDS // 2 :])


def test_the_regret_over_many_seeds_is_the_documented_one() -> None:
    halves = [simulated(seed) for seed in range(MANY)]
    whole = sorted(first + second for first, second in halves)
    mean, first, second = (sum(part) / MANY for part in (whole, *zip(*halves, strict=True)))
    said = " ".join((Path(__file__).parents[2] / "docs/reference/memory.md").read_text().split())
    for figure in (
        f"of {MANY} seeds {mean:.1f} on average",
        f"{first:.1f} in the first 200 rounds and {second:.1f} in the last",
        f"below {whole[int(0.95 * MANY)]:.1f} in 95 of 100 runs",
    ):
        assert figure in said


async def test_the_same_dice_choose_the_same(app: App, workspace: Workspace) -> None:
    ann, bob, cid = map(workspace.user, ("ann", "bob", "cid"))
    first = await played(app, ann, seed=3, rounds=40)
    assert await played(app, bob, seed=3, rounds=40) == first
    assert await played(app, cid, seed=4, rounds=40) != first


async def test_a_variant_starts_with_one_and_one_and_a_score_is_divided(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    added = await add(app, ann, spec='{"steps": [1.10]}')
    assert (added.alpha, added.beta, added.mean, added.selections, added.outcomes) == (1, 1, 0.5, 0, 0)
    await scored(app, ann, 0.75)
    await app.workflows.select(ann, "gateway", "triage")
    [found] = (await app.workflows.page(ann.scope, "gateway", "triage")).workflows
    assert (found.alpha, found.beta, found.selections, found.outcomes) == (1.75, 1.25, 2, 1)
    assert found.mean == 1.75 / 3
    assert bytes(found.spec) == b'{"steps": [1.10]}'
    assert (await app.workflows.page(ann.scope, "gateway", "other")).workflows == []
    assert (await app.workflows.page(ann.scope, "other")).workflows == []


async def test_an_outcome_counts_once_however_often_it_is_sent_at_once(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await add(app, ann)
    selection = await app.workflows.select(ann, "gateway", "triage")
    sent = [app.workflows.record_outcome(ann, selection.selection_id, 0.25) for _ in range(20)]
    done = await asyncio.gather(*sent)
    assert len(set(map(msgspec.json.encode, done))) == 1
    [found] = (await app.workflows.page(ann.scope)).workflows
    assert (found.alpha, found.beta, found.outcomes) == (1.25, 1.75, 1)
    events = await told(app, ann, "memory.workflow_scored")
    assert [stored.event_id for stored in events] == [done[0].event_id]


async def test_of_different_scores_sent_at_once_one_counts_and_the_others_are_told(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    await add(app, ann)
    selection = await app.workflows.select(ann, "gateway", "triage")
    scores = [number / 10 for number in range(10)]
    sent = [app.workflows.record_outcome(ann, selection.selection_id, score) for score in scores]
    answers = await asyncio.gather(*sent, return_exceptions=True)
    [done] = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert sum(isinstance(answer, Conflict) for answer in answers) == 9
    [found] = (await app.workflows.page(ann.scope)).workflows
    assert (found.alpha, found.outcomes) == (1 + done.score, 1)
    with pytest.raises(Conflict, match="was scored"):
        await app.workflows.record_outcome(ann, selection.selection_id, 1)
    assert await app.workflows.record_outcome(ann, selection.selection_id, done.score) == done


async def test_an_outcome_whose_event_id_is_taken_is_not_told_as_counted(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await add(app, ann)
    selection = await app.workflows.select(ann, "gateway", "triage")
    await app.ledger.append(ann, [event(event_id=uuid.uuid5(selection.selection_id, "outcome"))])
    with pytest.raises(Conflict, match="used for another event"):
        await app.workflows.record_outcome(ann, selection.selection_id, 1)
    assert [found.outcomes for found in (await app.workflows.page(ann.scope)).workflows] == [0]


async def test_outcomes_and_selections_are_events_with_where_they_came_from(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    added = await add(app, ann)
    selection_id = await scored(app, ann, 1)
    done = await app.workflows.record_outcome(ann, selection_id, 1)
    outcome = await app.ledger.get(ann.scope, done.event_id)
    chosen = await app.ledger.get(ann.scope, selection_id)
    origin = await app.ledger.get(ann.scope, added.workflow_id)
    assert (outcome.event_type, outcome.parent_event_id) == ("memory.workflow_scored", selection_id)
    assert (chosen.event_type, chosen.parent_event_id) == ("memory.workflow_selected", added.workflow_id)
    assert (origin.event_type, origin.user_id, origin.agent_id) == ("memory.workflow_added", "ann", "gateway")
    body = json.loads(await app.ledger.payload(ann.scope, selection_id))
    [draw] = body["draws"]
    assert (draw["workflow_id"], draw["alpha"], draw["beta"]) == (str(added.workflow_id), 1, 1)
    assert 0 < draw["draw"] < 1


async def test_a_retired_variant_is_readable_and_never_selected(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    kept, gone = await add(app, ann, "kept"), await add(app, ann, "gone")
    while (selection := await app.workflows.select(ann, "gateway", "triage")).workflow.name != "gone":
        pass
    for _ in range(2):
        await app.workflows.retire(ann, gone.workflow_id)
    chosen = [await app.workflows.select(ann, "gateway", "triage") for _ in range(20)]
    assert {selection.workflow.workflow_id for selection in chosen} == {kept.workflow_id}
    await app.workflows.record_outcome(ann, selection.selection_id, 1)
    found = await app.workflows.get(ann.scope, gone.workflow_id)
    assert found.retired_at is not None
    assert (found.alpha, found.outcomes) == (2, 1)
    events = await told(app, ann, "memory.workflow_retired")
    assert [stored.parent_event_id for stored in events] == [gone.workflow_id]
    await app.workflows.retire(ann, kept.workflow_id)
    with pytest.raises(NotFound, match="agent gateway for the task type triage"):
        await app.workflows.select(ann, "gateway", "triage")


async def test_nothing_is_selected_after_it_was_retired_also_when_both_happen_at_once(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    await add(app, ann, "kept")
    gone = await add(app, ann, "gone")
    await asyncio.gather(
        *(app.workflows.select(ann, "gateway", "triage") for _ in range(30)),
        app.workflows.retire(ann, gone.workflow_id),
        *(app.workflows.select(ann, "gateway", "triage") for _ in range(30)),
    )
    [retired] = await told(app, ann, "memory.workflow_retired")
    chosen = await told(app, ann, "memory.workflow_selected")
    assert len(chosen) == 60
    late = [event for event in chosen if event.global_position > retired.global_position]
    assert gone.workflow_id not in {event.parent_event_id for event in late}
    assert (await app.workflows.get(ann.scope, gone.workflow_id)).selections == 60 - sum(
        event.parent_event_id != gone.workflow_id for event in chosen
    )


async def test_a_variant_sent_twice_is_one_and_its_name_is_free_once_it_is_retired(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    sent = await asyncio.gather(*(add(app, ann, "short", spec='{"a": 1}') for _ in range(10)))
    [workflow_id] = {workflow.workflow_id for workflow in sent}
    with pytest.raises(Conflict, match="another spec"):
        await add(app, ann, "short", spec='{"a": 2}')
    await app.workflows.retire(ann, workflow_id)
    assert (await add(app, ann, "short", spec='{"a": 2}')).workflow_id != workflow_id


async def test_what_is_anothers_is_neither_seen_nor_selected_nor_scored(app: App, workspace: Workspace) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    added = await add(app, ann)
    selection = await app.workflows.select(ann, "gateway", "triage")
    for workflow_id in (added.workflow_id, uuid.uuid4()):
        with pytest.raises(NotFound, match="there is no such workflow"):
            await app.workflows.get(bob.scope, workflow_id)
        with pytest.raises(NotFound, match="there is no such workflow"):
            await app.workflows.retire(bob, workflow_id)
    for selection_id in (selection.selection_id, uuid.uuid4()):
        with pytest.raises(NotFound, match="there is no such selection"):
            await app.workflows.record_outcome(bob, selection_id, 1)
    for who in (bob, workspace.admin):
        with pytest.raises(NotFound, match="there is no workflow of the agent"):
            await app.workflows.select(who, "gateway", "triage")
    assert (await app.workflows.page(bob.scope)).workflows == []
    assert [found.user_id for found in (await app.workflows.page(workspace.admin.scope)).workflows] == ["ann"]


async def test_variants_of_the_workspace_are_everybodys_and_learn_from_everybody(
    app: App, workspace: Workspace
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    shared = await add(app, workspace.admin, "shared")
    own = await add(app, ann, "shared")
    assert (shared.user_id, own.user_id) == (None, "ann")
    assert {(await app.workflows.select(ann, "gateway", "triage")).workflow.workflow_id for _ in range(40)} == {
        shared.workflow_id,
        own.workflow_id,
    }
    await scored(app, bob, 1)
    await scored(app, workspace.admin, 0)
    selection = await app.workflows.select(bob, "gateway", "triage")
    await app.workflows.record_outcome(workspace.admin, selection.selection_id, 1)
    found = await app.workflows.get(ann.scope, shared.workflow_id)
    assert (found.alpha, found.beta, found.outcomes) == (3, 2, 3)
    with pytest.raises(Forbidden):
        await app.workflows.retire(bob, shared.workflow_id)
    await app.workflows.retire(workspace.admin, shared.workflow_id)


async def test_a_variant_of_an_agent_of_the_workspace_is_retired_by_who_added_it(
    app: App, workspace: Workspace
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    added = await add(app, ann, agent="sdr")
    assert (added.user_id, added.added_by) == (None, "ann")
    selection = await app.workflows.select(bob, "sdr", "triage")
    with pytest.raises(NotFound):
        await app.workflows.record_outcome(ann, selection.selection_id, 1)
    with pytest.raises(Forbidden):
        await app.workflows.retire(bob, added.workflow_id)
    await app.workflows.retire(ann, added.workflow_id)


async def test_bad_input_names_its_field_and_changes_nothing(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await add(app, ann)
    selection = await app.workflows.select(ann, "gateway", "triage")
    head = await app.ledger.heads.read(workspace.workspace_id)
    sound = {"agent": "gateway", "task_type": "triage", "name": "long", "spec": b"{}"}
    for field, bad in (
        *((name, value) for name in ("agent", "task_type", "name") for value in ("", "x" * 257, "a\x00b", "\ud800")),
        *(("spec", value) for value in (b"", b"[]", b"1", b"{", b'{"a": "\xff"}')),
        ("spec", b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
        ("spec", b'{"a": "' + b"x" * MAX_SPEC_BYTES + b'"}'),
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as caught:
            await app.workflows.add(ann, **{**sound, field: bad})
        assert [error.field for error in caught.value.errors] == [field]
    for score in (-0.1, 1.1, math.nan, math.inf):
        with pytest.raises(InvalidInput) as caught:
            await app.workflows.record_outcome(ann, selection.selection_id, score)
        assert caught.value.errors[0].field == "score"
    for agent, task_type, field in (("", "triage", "agent"), ("gateway", "\x00", "task_type")):
        with pytest.raises(InvalidInput) as caught:
            await app.workflows.select(ann, agent, task_type)
        assert caught.value.errors[0].field == field
    for limit in (0, MAX_PAGE_WORKFLOWS + 1):
        with pytest.raises(InvalidInput):
            await app.workflows.page(ann.scope, limit=limit)
    assert await app.ledger.heads.read(workspace.workspace_id) == head


async def test_any_object_and_any_name_come_back_as_they_were_sent(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    spec = '{"n": 1e308, "big": 123456789012345678901234567890, "nul": "\\u0000", "x": "' + "é" * 30_000 + '"}'
    long = "é" * 256
    added = await app.workflows.add(ann, long, long, long, spec.encode())
    assert bytes((await app.workflows.select(ann, long, long)).workflow.spec) == spec.encode()
    assert (await app.workflows.get(ann.scope, added.workflow_id)).name == long


async def test_a_kind_of_task_has_so_many_variants_and_they_come_in_pages(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    added = await asyncio.gather(*(add(app, ann, f"v{number}") for number in range(MAX_VARIANTS)))
    with pytest.raises(InvalidInput, match="as many variants in use as it may have"):
        await add(app, ann, "one too many")
    await app.workflows.retire(ann, added[0].workflow_id)
    await add(app, ann, "in its place")
    first = await app.workflows.page(ann.scope, limit=60)
    rest = await app.workflows.page(ann.scope, before=first.next, limit=60)
    assert (len(first.workflows), len(rest.workflows), rest.next) == (60, 41, None)
    assert len({found.workflow_id for found in (*first.workflows, *rest.workflows)}) == 101


async def test_the_ledger_gives_equal_rows_and_puts_right_what_was_changed(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    await played(app, ann, seed=1, rounds=10)
    for score in (0.1, 0.2, 0.7):
        await add(app, ann, str(score), agent="sdr")
        await scored(app, ann, score, agent="sdr")
    [gone, *_] = (await app.workflows.page(ann.scope)).workflows
    await app.workflows.retire(ann, gone.workflow_id)
    arguments = (app.database, app.ledger, app.memory, workspace.workspace_id)
    assert (await rebuild(*arguments, True, lambda *_: None)).differing == ()
    known = await app.workflows.page(ann.scope)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    owner.execute("UPDATE whence.workflows SET alpha = 99")
    owner.execute("DELETE FROM whence.workflow_selections")
    found = await rebuild(*arguments, False, lambda *_: None)
    assert set(found.differing) == {"workflows", "workflow_selections"}
    assert await app.workflows.page(ann.scope) == known


async def test_the_strings_of_a_spec_are_sanitised_by_the_profile_of_its_agent(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    spec = '{"n": 1.10, "password": "hunter2x!", "steps": ["pay with 4111 1111 1111 1111"]}'
    added = await add(app, ann, spec=spec)
    assert bytes(added.spec) == b'{"n": 1.10, "password": "[api key]", "steps": ["pay with [card]"]}'
    assert added.sanitised == {"card": 1, "api_key": 1}
    assert await add(app, ann, spec=spec) == added
    payload = await app.ledger.payload(ann.scope, added.workflow_id)
    assert b"4111" not in payload
    assert msgspec.json.decode(payload)["memory"]["sanitised"] == added.sanitised
    assert (await app.workflows.get(ann.scope, added.workflow_id)).sanitised is None
    with pytest.raises(InvalidInput, match="spec: holds what the profile sdr refuses"):
        await add(app, ann, agent="sdr", spec=spec)
