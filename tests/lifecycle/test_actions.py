"""Actions: they hold what they cite, and cite what may be seen."""

from uuid import uuid4

import pytest

from conftest import Workspace
from lifecycle.conftest import assert_replay_is_equal, told
from samples import event
from whence.app import App
from whence.errors import Conflict, InvalidInput, NotFound
from whence.graph.bounds import Bounds


async def test_an_action_is_recorded_once_by_its_id(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    memory = await app.memory.remember(ann, told("The price was agreed."))
    other = await app.memory.remember(ann, told("It rained."))
    action_id = uuid4()
    first = await app.actions.record(ann, "rule.promoted", [memory.memory_id], action_id)
    assert await app.actions.record(ann, "rule.promoted", [memory.memory_id], action_id) == first
    assert (first.action_id, first.kind, first.cites, first.user_id) == (
        action_id, "rule.promoted", [memory.memory_id], "ann",
    )  # fmt: skip
    with pytest.raises(Conflict):
        await app.actions.record(ann, "change_set.accepted", [memory.memory_id], action_id)
    with pytest.raises(Conflict):
        await app.actions.record(ann, "rule.promoted", [memory.memory_id], other.memory_id)
    with pytest.raises(InvalidInput, match="cite itself"):
        await app.actions.record(ann, "rule.promoted", [memory.memory_id], memory.memory_id)
    assert await app.actions.get(ann.scope, action_id) == first
    assert (await app.actions.page(ann.scope, cites=memory.memory_id)).actions == [first]
    assert (await app.actions.page(ann.scope, cites=uuid4())).actions == []
    await assert_replay_is_equal(app, workspace)


async def test_a_user_cites_only_what_that_user_may_see(app: App, workspace: Workspace) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    private = await app.memory.remember(ann, told("private"))
    shared = await app.memory.remember(ann, told("shared", agent="sdr"))
    raw = event(user_id="bob")
    await app.ledger.append(workspace.admin, [raw])
    action = await app.actions.record(bob, "rule.promoted", [shared.memory_id, raw.event_id])
    assert action.cites == [shared.memory_id, raw.event_id]
    for unseen in (private.memory_id, uuid4()):
        with pytest.raises(InvalidInput, match="there is no event or memory"):
            await app.actions.record(bob, "rule.promoted", [unseen])
    with pytest.raises(NotFound):
        await app.actions.get(ann.scope, action.action_id)
    # Who sees the memory sees that it is held, and not by whom.
    about = await app.retention.of(ann.scope, shared.memory_id)
    assert (about.state, about.held_by) == ("REFERENCED", [])
    assert (await app.retention.of(workspace.admin.scope, shared.memory_id)).held_by == [action.action_id]


@pytest.mark.parametrize(("kind", "count"), [("Rule promoted", 1), ("", 1), ("a" * 129, 1), ("a.b", 0), ("a.b", 101)])
async def test_what_is_wrong_names_its_field(app: App, workspace: Workspace, kind: str, count: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        await app.actions.record(workspace.user("ann"), kind, [uuid4() for _ in range(count)])
    assert caught.value.errors[0].field == ("cites" if kind == "a.b" else "kind")


async def test_actions_come_in_pages(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    memory = await app.memory.remember(ann, told("x"))
    made = [await app.actions.record(ann, f"kind.n{number}", [memory.memory_id]) for number in range(3)]
    page = await app.actions.page(ann.scope, limit=2)
    assert page.actions == made[:0:-1]
    assert (await app.actions.page(ann.scope, before=page.next)).actions == made[:1]
    assert (await app.actions.page(workspace.admin.scope, kind="kind.n1")).actions == [made[1]]


async def test_the_graph_leads_from_an_action_to_what_it_cites(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    memories = [await app.memory.remember(ann, told(text)) for text in ("one", "two")]
    action = await app.actions.record(ann, "rule.promoted", [memory.memory_id for memory in memories])
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await app.graph.lineage(ann.scope, action.action_id, "up", Bounds())
    assert {str(memory.memory_id) for memory in memories} <= {
        str(node.provenance.event_id) for node in atlas.nodes.values() if node.provenance
    }
