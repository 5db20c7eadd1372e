"""Runs and their episodes."""

import asyncio
import uuid
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from psycopg import Connection

from conftest import Workspace
from whence.app import App
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound
from whence.identity import Principal
from whence.ledger import Filter
from whence.ledger.effects import Vector
from whence.memory import MAX_EPISODES, WARNED_EPISODES
from whence.memory.own import Own
from whence.memory.rebuild import rebuild
from whence.wire import Event, Fact, Recall, Remember, Run


async def test_a_run_is_started_told_of_and_ended(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    run = await app.runs.start(ann, "gateway", "one", "triage", "s1", {"question": "why"})
    assert (run.status, run.turn) == ("running", 1)
    assert await app.runs.get(ann.scope, run.run_id) == run
    for text in ("looked it up", "answered"):
        told = await app.runs.add_episode(ann, run.run_id, text, memory_id=(memory_id := uuid.uuid4()))
    ended = await app.runs.end(ann, run.run_id, "completed", {"answer": 42})
    assert ended.status == "completed"
    assert ended.ended_at is not None
    assert [episode.text for episode in await app.runs.episodes(ann.scope, "gateway")] == ["answered", "looked it up"]
    assert await app.runs.add_episode(ann, run.run_id, "answered", memory_id=memory_id) == told, "sent again"
    for more in ({}, {"memory_id": uuid.uuid4()}):
        with pytest.raises(Conflict, match="the run is completed"):
            await app.runs.add_episode(ann, run.run_id, "too late", **more)


async def test_the_first_end_of_a_run_counts(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    run = await app.runs.start(ann, "gateway", "one")
    first = await app.runs.end(ann, run.run_id, "failed", "no answer")
    for said in ("no answer", "another reason"):
        assert await app.runs.end(ann, run.run_id, "failed", said) == first
    with pytest.raises(Conflict, match="the run is failed"):
        await app.runs.end(ann, run.run_id, "completed")


async def test_runs_of_an_instance_are_numbered_and_the_last_is_its_state(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for instance in ("one", "two", "one"):
        await app.runs.start(ann, "gateway", instance)
    turns = [(run.instance, run.turn) for run in await app.runs.of_agent(ann.scope, "gateway")]
    assert turns == [("one", 2), ("two", 1), ("one", 1)]
    assert [run.turn for run in await app.runs.of_agent(ann.scope, "gateway", "one", 1)] == [2]


async def test_the_last_ten_episodes_are_there_when_a_turn_starts(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for number in range(3):
        run = await app.runs.start(ann, "gateway", "one")
        for step in range(5):
            await app.runs.add_episode(ann, run.run_id, f"{number}.{step}")
    texts = [episode.text for episode in await app.runs.episodes(ann.scope, "gateway")]
    assert texts == [f"{number}.{step}" for number in (2, 1) for step in (4, 3, 2, 1, 0)]


async def test_runs_of_others_are_not_there(app: App, workspace: Workspace) -> None:
    run = await app.runs.start(workspace.user("ann"), "gateway", "one")
    bob = workspace.user("bob")
    for run_id in (run.run_id, uuid.uuid4()):
        with pytest.raises(NotFound, match="there is no such run"):
            await app.runs.get(bob.scope, run_id)
        with pytest.raises(NotFound):
            await app.runs.add_episode(bob, run_id, "mine")
        with pytest.raises(NotFound):
            await app.runs.end(bob, run_id, "completed")
    assert await app.runs.of_agent(bob.scope, "gateway") == []


async def test_runs_of_a_shared_agent_are_everybodys(app: App, workspace: Workspace) -> None:
    run = await app.runs.start(workspace.user("ann"), "sdr", "one")
    await app.runs.add_episode(workspace.user("bob"), run.run_id, "bob helped")
    [episode] = await app.runs.episodes(workspace.user("ann").scope, "sdr")
    assert (episode.text, episode.said_by) == ("bob helped", "bob")


async def test_a_run_of_a_shared_agent_is_ended_by_who_started_it_or_an_administrator(
    app: App, workspace: Workspace
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    started = [await app.runs.start(who, "sdr", "one") for who in (ann, ann, workspace.admin)]
    for run in started:
        with pytest.raises(Forbidden, match="who started it, for whom it was, or an administrator"):
            await app.runs.end(bob, run.run_id, "failed")
    assert (await app.runs.end(ann, started[0].run_id, "completed")).status == "completed"
    assert (await app.runs.end(workspace.admin, started[1].run_id, "completed")).status == "completed"


async def test_a_workspace_is_warned_before_it_has_all_its_episodes_and_then_refused(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    run = await app.runs.start(ann, "gateway", "one")
    assert (await app.runs.add_episode(ann, run.run_id, "first")).warnings == ()

    def count(episodes: int) -> None:
        owner.execute("SET ROLE whence_workspace")
        owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
        owner.execute("UPDATE whence.memory_counts SET episodes = %s", (episodes,))

    count(WARNED_EPISODES - 1)
    [warning] = (await app.runs.add_episode(ann, run.run_id, "many")).warnings
    assert warning == "the workspace has 80,000 of at most 100,000 episodes"
    count(MAX_EPISODES - 1)
    assert (await app.runs.add_episode(ann, run.run_id, "the last")).warnings
    head = await app.ledger.heads.read(workspace.workspace_id)
    with pytest.raises(InvalidInput, match="as many episodes as it may have"):
        await app.runs.add_episode(ann, run.run_id, "one too many")
    assert await app.ledger.heads.read(workspace.workspace_id) == head


async def test_episodes_of_a_run_are_of_its_agent_and_user_however_they_come(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    run = await app.runs.start(ann, "gateway", "one")
    episode = Remember(agent="gateway", tier="persistent", kind="episodic", text="x", run_id=run.run_id)
    await app.memory.remember(ann, episode)
    with pytest.raises(InvalidInput, match="of its own agent and user"):
        await app.memory.remember(ann, msgspec.structs.replace(episode, agent="other"))
    with pytest.raises(InvalidInput, match="of its own agent and user"):
        await app.memory.remember(workspace.admin, msgspec.structs.replace(episode, user_id="bob"))
    await app.runs.end(ann, run.run_id, "completed")
    with pytest.raises(InvalidInput, match="the run is completed"):
        await app.memory.remember(ann, episode)


async def test_a_fact_says_which_run_taught_it_and_is_no_episode_of_it(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann, runs = workspace.user("ann"), [await app.runs.start(workspace.user("ann"), "gateway", "one") for _ in range(2)]
    await app.runs.add_episode(ann, runs[0].run_id, "asked where Ann lives")
    await app.runs.end(ann, runs[0].run_id, "completed")
    fact = Fact("Ann", "lives in", "Rome", 0.5)
    for run in runs:
        done = await app.memory.remember(
            ann,
            Remember(
                agent="gateway", tier="persistent", kind="semantic", text="Ann: Rome", fact=fact, run_id=run.run_id
            ),
        )
    explained = await app.memory.explain(ann.scope, done.memory_id)
    assert explained.memory.run_id == runs[0].run_id
    assert [source.source for source in explained.sources] == [f"run:{run.run_id}" for run in runs]
    assert explained.memory.fact is not None
    assert explained.memory.fact.confidence == 0.75, "two runs do not know of each other"
    stored = await app.ledger.get(ann.scope, done.event_id)
    assert (stored.parent_event_id, stored.trace_id) == (runs[1].run_id, runs[1].run_id.hex)
    assert [episode.text for episode in await app.runs.episodes(ann.scope, "gateway")] == ["asked where Ann lives"]
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    assert owner.execute("SELECT episodes FROM whence.memory_counts").fetchall() == [(1,)]
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal


@pytest.mark.parametrize("together", [True, False])
async def test_what_a_run_has_taught_is_the_same_as_what_somebody_told(
    app: App, workspace: Workspace, together: bool
) -> None:
    """Whichever came first, one by one and in a batch; a replay applies them in batches."""
    ann, run = workspace.user("ann"), await app.runs.start(workspace.user("ann"), "gateway", "one")
    tea = Remember(agent="gateway", tier="persistent", kind="semantic", text="Ann likes tea")
    brew = replace(tea, kind="procedural", text="boil, then wait")
    said = [replace(tea, run_id=run.run_id), tea, brew, replace(brew, run_id=run.run_id)]
    items = [app.memory.remember_all(ann, batch) for batch in ([said] if together else [[each] for each in said])]
    done = [one.remembered for batch in items for one in await batch]
    assert [each and each.status for each in done] == ["stored", "reinforced"] * 2
    first, _, third, _ = [await app.memory.get(ann.scope, each.memory_id) for each in done if each is not None]
    assert (first.run_id, third.run_id, first.told_count, third.told_count) == (run.run_id, None, 2, 2)
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.differing == ()


async def test_a_run_that_several_end_at_once_has_one_end(app: App, workspace: Workspace) -> None:
    """What the others say of whom it is for must not stay where nobody looks for it."""
    for _ in range(5):
        run = await app.runs.start(workspace.admin, "gateway", "one", user_id="ann")
        ways = [("completed", {"out": number}) for number in range(3)] + [("failed", {"why": "it broke"})]
        ends = await asyncio.gather(
            *(app.runs.end(workspace.admin, run.run_id, status, said) for status, said in ways), return_exceptions=True
        )
        ended = await app.runs.get(workspace.admin.scope, run.run_id)
        assert [end if isinstance(end, Run) else str(end) for end in ends] == [
            ended if status == ended.status else f"the run is {ended.status}" for status, _ in ways
        ]
    page = await app.ledger.page(workspace.admin.scope, 0, 100, Filter(event_type="memory.run_ended"))
    assert len(page.events) == 5
    receipt = await app.erasures.erase(workspace.admin, "ann")
    assert receipt.settled
    for event in page.events:
        with pytest.raises(NotFound):
            await app.ledger.payload(workspace.admin.scope, event.event_id)


async def test_an_end_of_a_run_that_came_too_late_is_erased_with_whom_it_was_for(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier release stored them."""
    run = await app.runs.start(workspace.admin, "gateway", "one", user_id="ann")

    async def record(own: Own, principal: Principal, event: Event, document: Any, beside: Any) -> bool:
        return bool(await own.record(principal, replace(event, user_id=None), document, beside))

    with monkeypatch.context() as patch:
        patch.setattr(Own, "record_once", record)
        await asyncio.gather(*(app.runs.end(workspace.admin, run.run_id, "completed", "of ann") for _ in range(3)))
    page = await app.ledger.page(workspace.admin.scope, 0, 100, Filter(event_type="memory.run_ended"))
    assert len(page.events) > 1
    assert (await app.erasures.erase(workspace.admin, "ann")).settled
    for event in page.events:
        with pytest.raises(NotFound):
            await app.ledger.payload(workspace.admin.scope, event.event_id)


async def test_a_run_of_the_workspace_that_an_administrator_starts_for_somebody_is_told_as_theirs(
    app: App, workspace: Workspace
) -> None:
    run = await app.runs.start(workspace.admin, "sdr", "one", content={"about": "cat"}, user_id="cat")
    assert run.user_id is None
    await app.runs.add_episode(workspace.admin, run.run_id, "wrote to cat")
    await app.runs.end(workspace.admin, run.run_id, "completed", {"said": "by cat"})
    other = await app.runs.start(workspace.admin, "sdr", "one", user_id="cat")
    assert (await app.runs.end(workspace.user("cat"), other.run_id, "failed")).status == "failed"
    with pytest.raises(InvalidInput, match=r"^user_id: must be left out or be the user whose key this is$"):
        await app.runs.start(workspace.user("ann"), "sdr", "one", user_id="cat")
    assert (await app.runs.episodes(workspace.user("ann").scope, "sdr"))[0].text == "wrote to cat"
    events = (await app.ledger.page(workspace.user("cat").scope, 0, 100)).events
    assert [event.event_type.split("_")[-1] for event in events] == [
        "started",
        "memory.remembered",
        *("ended", "started", "ended"),
    ]
    assert (await app.erasures.erase(workspace.admin, "cat")).settled
    for event in events:
        with pytest.raises(NotFound):
            await app.ledger.payload(workspace.admin.scope, event.event_id)


async def test_nothing_happens_in_a_run_that_ends_while_it_is_told(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = workspace.user("ann")
    run = await app.runs.start(ann, "gateway", "one")
    await app.runs.add_episode(ann, run.run_id, "looked it up")
    embedded = app.memory.embedded

    async def slowly(texts: list[str]) -> list[Vector]:
        await app.runs.end(ann, run.run_id, "completed")
        return await embedded(texts)

    with monkeypatch.context() as patch:
        patch.setattr(app.memory, "embedded", slowly)
        with pytest.raises(Conflict, match=r"^the run is completed$"):
            await app.runs.add_episode(ann, run.run_id, "answered")
    assert [episode.text for episode in await app.runs.episodes(ann.scope, "gateway")] == ["looked it up"]
    fact = Remember(agent="gateway", tier="persistent", kind="semantic", text="learnt in it", run_id=run.run_id)
    assert (await app.memory.remember(ann, fact)).status == "stored"
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert (report.equal, report.refused) == (True, 0)


async def test_whom_an_administrator_names_is_named_as_users_are(app: App, workspace: Workspace) -> None:
    said = Remember(agent="gateway", tier="persistent", kind="episodic", text="x", user_id="a\nb")
    for refused in (
        app.memory.remember(workspace.admin, said),
        app.runs.start(workspace.admin, "sdr", "i", user_id="a\nb"),
    ):
        with pytest.raises(InvalidInput, match=r"^user_id: 1 to 256 printable characters$"):
            await refused


async def test_what_a_run_has_taught_is_listed_by_run(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    runs = [await app.runs.start(ann, "gateway", "one") for _ in range(2)]
    for number, run in enumerate([*runs, runs[0]]):
        await app.runs.add_episode(ann, run.run_id, f"step {number}")
    for scope, run, texts in (
        (ann.scope, runs[0], ["step 2", "step 0"]),
        (workspace.admin.scope, runs[1], ["step 1"]),
        (workspace.user("bob").scope, runs[0], []),
    ):
        page = await app.memory.page(scope, Recall(), run_id=run.run_id)
        assert [memory.text for memory in page.memories] == texts
    first = await app.memory.page(ann.scope, Recall(), limit=1, run_id=runs[0].run_id)
    rest = await app.memory.page(ann.scope, Recall(), first.next, run_id=runs[0].run_id)
    assert [memory.text for memory in (*first.memories, *rest.memories)] == ["step 2", "step 0"]


async def test_an_administrator_runs_an_agent_for_somebody(app: App, workspace: Workspace) -> None:
    with pytest.raises(InvalidInput, match="user_id: is needed"):
        await app.runs.start(workspace.admin, "gateway", "one")
    run = await app.runs.start(workspace.admin, "gateway", "one", user_id="ann")
    await app.runs.add_episode(workspace.admin, run.run_id, "did it")
    [episode] = await app.runs.episodes(workspace.user("ann").scope, "gateway")
    assert (episode.user_id, episode.said_by) == ("ann", "admin")


async def test_what_a_run_is_given_and_gives_is_sanitised_by_the_profile_of_its_agent(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    card = {"pay": ["4111 1111 1111 1111", 1.5], "password": "hunter2x!"}
    run = await app.runs.start(ann, "gateway", "one", content=card)
    assert run.sanitised == {"card": 1, "api_key": 1}
    payload = msgspec.json.decode(await app.ledger.payload(ann.scope, run.run_id))
    assert payload["input"] == {"pay": ["[card]", 1.5], "password": "[api key]"}
    assert payload["memory"]["sanitised"] == run.sanitised
    assert (await app.runs.get(ann.scope, run.run_id)).sanitised is None
    ended = await app.runs.end(ann, run.run_id, "failed", "declined: 4111 1111 1111 1111")
    assert ended.sanitised == {"card": 1}
    stored = (await app.ledger.page(ann.scope, 0, 100)).events
    kept = await app.ledger.payload(ann.scope, stored[-1].event_id)
    assert msgspec.json.decode(kept)["error"] == "declined: [card]"


@pytest.mark.parametrize("agent", ["gateway", "operations"])
async def test_names_are_searched_and_nothing_is_taken_out_of_them(app: App, workspace: Workspace, agent: str) -> None:
    ann, card = workspace.user("ann"), "pay 4111 1111 1111 1111"
    said = f"holds what the profile {agent} keeps out of memory: card"
    with pytest.raises(InvalidInput, match=f"^task_type: {said}"):
        await app.runs.start(ann, agent, "one", card)
    for field, names in (("task_type", (card, "short")), ("name", ("triage", card))):
        with pytest.raises(InvalidInput, match=f"^{field}: {said}"):
            await app.workflows.add(ann, agent, *names, b"{}")
    with pytest.raises(InvalidInput, match=f"^key: {said}"):
        await app.memory.remember(
            ann, Remember(agent=agent, tier="persistent", kind="procedural", text="ask first", key=card)
        )


async def test_what_the_profile_refuses_starts_and_ends_no_run(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    with pytest.raises(InvalidInput, match="input: holds what the profile operations refuses: card"):
        await app.runs.start(ann, "operations", "one", content={"pay": "4111 1111 1111 1111"})
    run = await app.runs.start(ann, "operations", "one")
    with pytest.raises(InvalidInput, match="output: holds what the profile operations refuses: card"):
        await app.runs.end(ann, run.run_id, "completed", "4111 1111 1111 1111")
    assert [found.status for found in await app.runs.of_agent(ann.scope, "operations")] == ["running"]


async def test_what_a_run_is_given_is_bounded(app: App, workspace: Workspace) -> None:
    with pytest.raises(InvalidInput, match="input: at most 1,048,576 bytes"):
        await app.runs.start(workspace.user("ann"), "gateway", "one", content="x" * (1 << 20))
