"""Memory made again from the ledger alone."""

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw
from psycopg import Connection

from conftest import Workspace
from whence.app import App
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound
from whence.identity import Principal
from whence.memory.rebuild import rebuild
from whence.wire import DeleteItem, Fact, GetItem, ItemsRequest, PutItem, Recall, Remember


async def tried(app: App, who: Principal, agent: str, dice: random.Random) -> None:
    added = await app.workflows.add(who, agent, "triage", dice.choice("abc"), b'{"n": 1.0}')
    selection = await app.workflows.select(who, agent, "triage")
    if dice.random() < 0.7:
        await app.workflows.record_outcome(who, selection.selection_id, dice.random())
    if dice.random() < 0.3:
        await app.workflows.retire(who, added.workflow_id)


async def kept(app: App, who: Principal, agent: str, dice: random.Random) -> None:
    where = {"namespace": (dice.choice("ab"),), "key": dice.choice("xy")}
    text, ttl_s = dice.choice(["", "some words"]), dice.choice([None, 60, 86_400.5])
    value = Raw(b'{"n": %d}' % dice.randrange(9))
    ops = [PutItem(**where, value=value, text=text, ttl_s=ttl_s), DeleteItem(**where), GetItem(**where)]
    await app.items.do(who, ItemsRequest(ops=tuple(dice.sample(ops, 2)), agent=agent))


async def lived(app: App, workspace: Workspace, seed: int, steps: int = 60) -> None:
    """A history of everything that memory can be told. Of its steps some are refused, such as a run that is over."""
    dice, refused = random.Random(seed), 0
    known, runs = [], []
    await app.memory.set_rule(workspace.admin, "w1", "R-1", "x" * 120)
    for step in range(steps):
        who = workspace.user(dice.choice(["ann", "bob"]))
        agent = dice.choice(["gateway", "sdr"])
        place = dice.choice(["Rome", "Oslo", "Bern"])
        valid_at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=dice.randrange(50))
        try:
            match dice.randrange(12):
                case 11:
                    run = dice.choice(runs) if runs and dice.random() < 0.5 else None
                    request = Remember(
                        agent=agent, tier=dice.choice(["session", "persistent"]), kind="semantic",
                        text=f"note {dice.randrange(3)}", run_id=run, session_id=f"s{dice.randrange(2)}",
                    )  # fmt: skip
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 10:
                    await kept(app, who, agent, dice)
                case 0 | 1:
                    fact = Fact(dice.choice(["Ann", "Bob"]), "lives in", place, dice.random())
                    request = Remember(
                        agent=agent, tier="persistent", kind="semantic", text=f"{fact.subject} lives in {place}",
                        fact=fact, valid_at=valid_at, session_id=f"s{dice.randrange(3)}",
                        derived_from=tuple(dice.sample(known, min(len(known), 1))),
                    )  # fmt: skip
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 2:
                    text = f"procedure {dice.randrange(3)}"
                    request = Remember(
                        agent=agent, tier="persistent", kind="procedural", text=text, key=dice.choice(["a", "b"])
                    )
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 3:
                    vector = tuple(dice.gauss(0, 1) for _ in range(8))
                    request = Remember(
                        agent=agent, tier="persistent", kind="episodic", text=f"step {step}", embedding=vector
                    )
                    known.append((await app.memory.remember(who, request)).memory_id)
                case 4:
                    await app.recaller.recall(who, Recall(top_k=3))
                case 5:
                    await app.memory.forget(who, dice.choice(known)) if known else None
                case 6:
                    runs.append((await app.runs.start(who, agent, "one")).run_id)
                case 7:
                    if runs:
                        run = dice.choice(runs)
                        await app.runs.add_episode(who, run, f"episode {step}")
                        if dice.random() < 0.5:
                            await app.runs.end(who, run, "completed")
                case _:
                    await tried(app, who, agent, dice)
        except (NotFound, Forbidden, InvalidInput, Conflict):
            # Somebody else's, or over already: such refusals are part of the history.
            refused += 1
    assert refused < steps / 2


@pytest.mark.parametrize("seed", range(5))
async def test_what_the_ledger_says_gives_equal_rows(app: App, workspace: Workspace, seed: int) -> None:
    await lived(app, workspace, seed)
    seen: list[int] = []
    report = await rebuild(
        app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda done, _: seen.append(done)
    )
    assert report.differing == ()
    assert report.digest == report.live_digest
    assert (report.unreadable, report.refused) == (0, 0)
    assert seen


async def test_rebuilds_of_one_workspace_wait_for_one_another(app: App, workspace: Workspace) -> None:
    await lived(app, workspace, 6)
    arguments = (app.database, app.ledger, app.memory, workspace.workspace_id)
    reports = await asyncio.gather(*(rebuild(*arguments, verify, lambda *_: None) for verify in (True, False, True)))
    assert [report.differing for report in reports] == [(), (), ()]


async def test_memory_is_replaced_while_many_write_and_forget(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    """They wait for the head, and leave connections to whoever holds it."""
    ann = workspace.user("ann")
    notes = [Remember(agent="gateway", tier="persistent", kind="episodic", text=f"step {each}") for each in range(400)]
    done = await app.memory.remember_all(ann, notes)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    owner.execute("UPDATE whence.memories SET body = 'forged' WHERE position % 2 = 0")
    rebuilding = asyncio.create_task(
        rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, False, lambda *_: None)
    )
    ids = [item.remembered.memory_id for item in done if item.remembered is not None]
    await asyncio.gather(*(app.memory.forget(ann, memory_id) for memory_id in ids[:200]))
    report = await rebuilding
    assert report.replaced
    again = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert again.differing == ()
    assert len((await app.memory.page(ann.scope, Recall(), limit=500)).memories) == 200


async def test_a_row_that_was_changed_is_found_and_put_right(app: App, workspace: Workspace, owner: Connection) -> None:
    await lived(app, workspace, 4)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    owner.execute(
        "UPDATE whence.memories SET body = 'forged' WHERE position = (SELECT max(position) FROM whence.memories)"
    )
    arguments = (app.database, app.ledger, app.memory, workspace.workspace_id)
    found = await rebuild(*arguments, True, lambda *_: None)
    assert found.differing == ("memories",)
    assert not found.replaced
    mended = await rebuild(*arguments, False, lambda *_: None)
    assert mended.replaced
    assert (await rebuild(*arguments, True, lambda *_: None)).equal
    left = owner.execute("SELECT count(*) FROM whence.memories WHERE body = 'forged'").fetchone()
    assert left == (0,)


async def test_nothing_is_left_of_the_copy(app: App, workspace: Workspace, owner: Connection) -> None:
    await lived(app, workspace, 5, 10)
    await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}\x1frebuild'")
    for table in ("memories", "memory_sources", "memory_vectors", "runs", "recalls", "canon_rules", "workflows"):
        assert owner.execute(f"SELECT count(*) FROM whence.{table}").fetchone() == (0,), table
