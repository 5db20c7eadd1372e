"""Every verb of both clients, against a server."""

import ast
import inspect
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from conftest import Workspace
from samples import event
from whence import AsyncWhence, Whence, wire
from whence.app import App
from whence.errors import Forbidden, InvalidInput, NotFound

RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."
NOTE: dict[str, Any] = {"agent": "gateway", "tier": "persistent", "kind": "semantic"}
PLACE = {"event_type": "tool.execute", "session_id": "s1", "trace_id": "t1"}


async def test_an_event_is_appended_read_and_listed(ann: Any) -> None:
    asked = datetime.now(UTC)
    answer = await ann.append(**PLACE, tool_name="list", payload={"overdue": 3})
    assert (answer.accepted, answer.rejected, answer.duplicates) == (1, 0, 0)
    event_id = answer.results[0].event_id
    stored = await ann.event(event_id)
    assert isinstance(stored, wire.StoredEvent)
    assert (stored.tool_name, stored.user_id, stored.has_payload) == ("list", "ann", True)
    assert abs(stored.occurred_at - asked) < timedelta(seconds=10)
    assert await ann.payload(event_id) == {"overdue": 3}
    page = await ann.events(session_id="s1", limit=10, trace_id=None)
    assert ([item.event_id for item in page.events], page.next) == ([stored.event_id], None)
    assert (await ann.events(after=1)).events == []


async def test_a_name_in_a_path_may_be_any(ann: Any) -> None:
    for name in ("..", ".", "a/b", "ü😀"):
        await ann.remember("hello", agent="gateway", tier="session", kind="episodic", session_id=name)
        closed = await ann.close_session(name)
        assert (closed.session_id, closed.reports[0].counts) == (name, {"archived": 1})


async def test_many_events_are_appended_at_once_as_fields_or_structs(ann: Any) -> None:
    first = uuid.uuid4()
    whole = event({"text": "hi"}, parent_event_id=first)
    answer = await ann.append_all([{**PLACE, "event_id": first}, whole, {**PLACE, "event_type": ""}])
    assert [result.status for result in answer.results] == ["accepted", "accepted", "rejected"]
    assert answer.results[2].errors[0].field == "event_type"
    again = await ann.append_all([whole])
    assert (again.accepted, again.duplicates) == (0, 1)
    assert await ann.payload(whole.event_id) == {"text": "hi"}


async def test_the_stream_is_followed_as_it_grows(ann: Any) -> None:
    await ann.append_all([PLACE, {**PLACE, "session_id": "other"}])
    positions = []
    async for stored in ann.follow(session_id="s1"):
        positions.append(stored.global_position)
        if len(positions) == 3:
            break
        await ann.append(**PLACE)
    assert positions == [1, 3, 4]
    async for stored in ann.follow(after=2):
        assert stored.global_position == 3
        break


async def test_the_graph_is_asked_for_lineage_surroundings_context_and_provenance(ann: Any) -> None:
    asked, looked = uuid.uuid4(), uuid.uuid4()
    answer = await ann.append_all(
        [
            {**PLACE, "event_id": asked, "event_type": "agent.invoke", "payload": {"text": "Which invoices are due?"}},
            {**PLACE, "event_id": looked, "parent_event_id": asked, "tool_name": "list_invoices"},
        ]
    )
    position = answer.results[-1].global_position
    lineage = await ann.lineage(looked, wait_for=position, text=True, direction="up")
    assert [node.provenance.event_id for node in lineage.nodes.values()] == [looked, asked]
    assert "invoices" in (list(lineage.nodes.values())[1].attributes["text"] or "")
    assert (await ann.lineage(looked, max_nodes=1)).pagination.has_more
    around = await ann.subgraph(session_id="s1", wait_for=position)
    assert str(asked) in around.nodes
    context = await ann.context("Why did it list invoices?", intent="why", max_nodes=5, wait_for=position)
    assert context.meta.intents == {"why": 1.0}
    assert (await ann.context()).nodes
    prov = await ann.prov(event_id=looked, wait_for=position)
    assert prov["prefix"]
    assert str(looked) in str(prov)


async def test_a_memory_is_told_read_explained_recalled_and_forgotten(ann: Any) -> None:
    tea = {"subject": "Ann", "predicate": "drinks", "object": "tea"}
    early = datetime(2026, 1, 1, tzinfo=UTC)
    done = await ann.remember("Ann drinks tea", **NOTE, fact=tea, valid_at=early, importance=0.7)
    assert (type(done), done.status) == (wire.Remembered, "stored")
    memory = await ann.memory(done.memory_id)
    assert (memory.text, memory.valid_at, memory.importance) == ("Ann drinks tea", early, 0.7)
    now = await ann.remember("Ann drinks coffee", **NOTE, fact=wire.Fact("Ann", "drinks", "coffee"))
    assert now.superseded == (done.memory_id,)
    first = await ann.history(now.memory_id, limit=1)
    assert [item.text for item in first.memories] == ["Ann drinks tea"]
    rest = await ann.history(now.memory_id, after=first.next)
    assert ([item.text for item in rest.memories], rest.next) == (["Ann drinks coffee"], None)
    page = await ann.memories(subject="ann", as_of=early + timedelta(days=1), limit=5, tier="persistent")
    assert [item.memory_id for item in page.memories] == [done.memory_id]
    recalled = await ann.recall(subject="Ann", kinds=["semantic"], top_k=3)
    assert [hit.memory_id for hit in recalled.hits] == [now.memory_id]
    explained = await ann.explain(now.memory_id)
    assert [found.recall_id for found in explained.recalls] == [recalled.recall_id]
    assert explained.superseded == [done.memory_id]
    assert await ann.forget(now.memory_id) is None
    assert await ann.forget(now.memory_id) is None
    assert (await ann.recall(subject="Ann")).hits == []


async def test_a_question_is_answered_explained_and_judged(ann: Any) -> None:
    batch = await ann.remember_all(
        [{**NOTE, "text": text, "speaker": "Ann", "role": "user"} for text in ("The cat is on the sofa", "It rains")]
    )
    cat = batch.results[0].remembered.memory_id
    recalled = await ann.recall(
        "Where is the cat?", top_k=1, neighbours=1, filters={"speaker": "Ann"}, channels=["words", "vectors"]
    )
    assert (type(recalled), type(recalled.hits[0])) == (wire.Recalled, wire.Hit)
    assert (recalled.hits[0].memory_id, recalled.hits[0].trust) == (cat, "user")
    filters = wire.RecallFilters(speaker="Eve")
    assert (await ann.recall("cat", filters=filters, max_tokens=100)).hits == []
    record = await ann.recalled(recalled.recall_id)
    assert isinstance(record, wire.RecallRecord)
    assert record.asked.query == "Where is the cat?"
    assert [hit.memory_id for hit in record.hits] == [cat]
    kept = await ann.give_feedback(recalled.recall_id, helpful=[str(cat)])
    assert (type(kept), kept.changed) == (wire.FeedbackKept, 1)
    assert (await ann.memory(cat)).importance == pytest.approx(0.55)
    with pytest.raises(InvalidInput):
        await ann.give_feedback(recalled.recall_id, unhelpful=[uuid.uuid4()])


async def test_what_an_agent_needs_is_assembled(ann: Any) -> None:
    await ann.remember("The cat is on the sofa", **NOTE)
    await ann.put_working("gateway", "one", "draft", {"to": "Bob"})
    await ann.add_workflow("gateway", "triage", "short", {"steps": []})
    found = await ann.assemble("gateway", "one", query="cat", task_type="triage", session_id="s1", max_tokens=500)
    assert (type(found), found.working[0].decoded()) == (wire.Assembled, {"to": "Bob"})
    assert found.hits[0].text == "The cat is on the sofa"
    assert (await ann.record_outcome(found.workflow.selection_id, 1)).score == 1
    assert (await ann.assemble("gateway", "two")).text == ""


async def test_an_action_holds_what_it_cites(ann: Any) -> None:
    done = await ann.remember("Ann drinks tea", **NOTE)
    action = await ann.record_action("rule.promoted", [done.memory_id])
    assert isinstance(action, wire.Action)
    assert await ann.record_action("rule.promoted", [str(done.memory_id)], action.action_id) == action
    assert await ann.action(action.action_id) == action
    assert (await ann.actions(cites=done.memory_id, limit=5)).actions == [action]
    about = await ann.retention(done.memory_id)
    assert (about.state, about.held_by, about.temperature) == ("REFERENCED", [action.action_id], "hot")


async def test_each_memory_of_a_batch_stands_for_itself(ann: Any) -> None:
    struct = wire.Remember(agent="gateway", tier="persistent", kind="semantic", text="two")
    batch = await ann.remember_all([{**NOTE, "text": "one"}, struct, {**NOTE, "text": ""}])
    assert (batch.stored, batch.rejected) == (2, 1)
    assert batch.results[2].errors[0].field == "text"
    assert struct.memory_id is None
    assert [item.text for item in (await ann.memories()).memories] == ["two", "one"]


async def test_a_memory_with_an_id_of_the_callers_keeps_it(ann: Any) -> None:
    mine = uuid.uuid4()
    for memory_id in (mine, str(mine)):
        assert (await ann.remember("once", **NOTE, memory_id=memory_id)).memory_id == mine
    assert len((await ann.memories()).memories) == 1


async def test_working_memory_keeps_any_json_under_any_name(ann: Any) -> None:
    place = ("planner", "run/7 ž", "100% of a?b#c")
    stored = await ann.put_working(*place, {"step": 3}, ttl_s=60)
    assert stored.key == place[2]
    assert (await ann.working(*place)).decoded() == {"step": 3}
    await ann.put_working(*place, None)
    assert (await ann.working(*place)).decoded() is None
    keys = await ann.working_keys(*place[:2])
    assert [item.key for item in keys.keys] == [place[2]]
    await ann.delete_working(*place)
    with pytest.raises(NotFound):
        await ann.working(*place)


async def test_items_are_put_found_and_deleted_in_one_request_each(ann: Any) -> None:
    place: dict[str, Any] = {"namespace": ("people", "bob"), "key": "likes"}
    within = wire.Within(session_id="s1")
    likes = wire.PutItem(**place, value=Raw(b'{"is": "tea"}'), text="tea")
    (stored,) = (await ann.items([likes], within=within)).results
    answer = await ann.items([wire.GetItem(**place), wire.SearchItems(query="tea"), wire.ListNamespaces()])
    one, several, names = answer.results
    assert (one.item.memory_id, one.item.decoded()) == (stored.memory_id, {"is": "tea"})
    assert [item.score is None for item in several.items] == [False]
    assert names.namespaces == [("people", "bob")]
    await ann.items([wire.DeleteItem(**place)], agent="another")
    (gone,) = (await ann.items([wire.DeleteItem(**place)])).results
    assert gone.memory_id == stored.memory_id
    assert (await ann.items([wire.GetItem(**place)])).results[0].item is None


async def test_a_run_has_episodes_and_an_end(ann: Any) -> None:
    run = await ann.start_run("gateway", "i1", task_type="triage", input={"q": 1})
    assert (type(run), run.status, run.turn) == (wire.Run, "running", 1)
    told = await ann.add_episode(run.run_id, "looked it up", importance=0.9)
    assert told.status == "stored"
    assert (await ann.complete_run(run.run_id, output=42)).status == "completed"
    assert (await ann.complete_run(run.run_id, output=42)).status == "completed"
    assert (await ann.run(run.run_id)).status == "completed"
    other = await ann.start_run("gateway", "i2")
    assert (await ann.fail_run(other.run_id, error="no network")).status == "failed"
    assert [item.run_id for item in await ann.runs("gateway")] == [other.run_id, run.run_id]
    assert [item.run_id for item in await ann.runs("gateway", instance="i1", limit=1)] == [run.run_id]
    assert [item.memory_id for item in await ann.episodes("gateway", limit=5)] == [told.memory_id]


async def test_what_an_agent_may_remember_is_told(ann: Any) -> None:
    found = await ann.profile("sdr")
    told = (type(found), found.profile, found.anchor, found.conflict["semantic"])
    assert told == (wire.AgentProfile, "sdr", "workspace", "validity")
    assert (await ann.profile("whoever")).profile == "gateway"


async def test_a_session_is_listed_and_closed(ann: Any) -> None:
    await ann.remember("asked for a refund", agent="gateway", tier="session", kind="episodic", session_id="chat:1")
    [session] = (await ann.sessions(state="open")).sessions
    assert isinstance(session, wire.Session)
    closed = await ann.close_session(session.session_id)
    assert closed.reports[0].counts == {"archived": 1}
    assert await ann.close_session("chat:1", agent="gateway") == closed


async def test_a_workflow_is_added_selected_scored_and_retired(ann: Any) -> None:
    workflow = await ann.add_workflow("gateway", "triage", "short", {"steps": [1, 2]})
    assert workflow.decoded_spec() == {"steps": [1, 2]}
    assert (await ann.add_workflow("gateway", "triage", "short", {"steps": [1, 2]})).workflow_id == workflow.workflow_id
    selection = await ann.select_workflow("gateway", "triage")
    outcome = await ann.record_outcome(selection.selection_id, 0.75)
    assert (outcome.workflow_id, outcome.score) == (workflow.workflow_id, 0.75)
    [known] = (await ann.workflows(agent="gateway", limit=5)).workflows
    assert (known.alpha, known.outcomes) == (1.75, 1)
    await ann.retire_workflow(workflow.workflow_id)
    await ann.retire_workflow(workflow.workflow_id)
    with pytest.raises(NotFound):
        await ann.select_workflow("gateway", "triage")


async def test_rules_are_set_listed_and_dropped(administrator: Any) -> None:
    await administrator.set_rule("w 1", "R/1", RULE)
    [rule] = await administrator.rules("w 1")
    assert (rule.rule_id, rule.body) == ("R/1", RULE)
    await administrator.drop_rule("w 1", "R/1")
    assert await administrator.rules("w 1") == []


async def test_documents_are_added_listed_looked_at_and_deleted(ann: Any, tmp_path: Path) -> None:
    path = tmp_path / "roses.md"
    path.write_text("# Care\n\nRoses need water. " + "Every day. " * 30_000)
    told: list[tuple[int, int]] = []
    added = await ann.add_resource(path, progress=lambda done, total: told.append((done, total)))
    assert (type(added), added.name, added.status) == (wire.Resource, "roses.md", "ready")
    assert told[-1] == (added.size, added.size) == (path.stat().st_size, path.stat().st_size)
    assert len(told) > 2
    again = await ann.add_resource(path.read_bytes(), name="other.md", content_type="text/markdown")
    assert again == added
    other = await ann.add_resource(b"A rose", app_id="shop", project_id="eu", user_id="ann")
    assert (other.name, other.app_id, other.project_id) == ("file", "shop", "eu")
    assert (await ann.resources(app_id="shop", project_id="eu", limit=1)).resources == [other]
    assert await ann.resource(added.resource_id) == added
    hit = (await ann.recall("What do roses need?", agent="gateway")).hits[0]
    assert hit.location.heading == ("Care",)
    for _ in range(2):
        assert (await ann.delete_resource(added.resource_id)).status == "deleted"
    assert (await ann.resources()).resources == []
    with pytest.raises(NotFound):
        await ann.resource(added.resource_id)
    with pytest.raises(InvalidInput) as refused:
        await ann.add_resource(b"")
    assert refused.value.errors[0].field == "file"


async def test_seals_and_proofs(ann: Any, app: App, workspace: Workspace) -> None:
    first = (await ann.append(**PLACE)).results[0]
    assert await app.ledger.seals.seal(workspace.workspace_id)
    await ann.append(**PLACE)
    assert await app.ledger.seals.seal(workspace.workspace_id)
    seals = await ann.seals(limit=10)
    assert [seal.size for seal in seals.seals] == [1, 2]
    assert (await ann.seals(after=1)).seals == seals.seals[1:]
    proof = await ann.proof(first.event_id)
    assert (proof.index, proof.size, proof.root) == (0, 2, seals.seals[1].root)
    consistency = await ann.consistency(1)
    assert (consistency.old_size, consistency.new_size) == (1, 2)
    assert (await ann.consistency(1, 2)).new_root == seals.seals[1].root


async def test_a_person_is_exported_and_erased(administrator: Any, ann: Any, tmp_path: Path) -> None:
    sent = (await ann.append(**PLACE, payload={"text": "secret"})).results[0]
    path = tmp_path / "ann.zip"
    assert await administrator.export("ann", path) == path.stat().st_size
    assert b"secret" in zipfile.ZipFile(path).read("events.jsonl")
    with pytest.raises(FileExistsError):
        await administrator.export("ann", path)
    with pytest.raises(Forbidden):
        await ann.export("ann", tmp_path / "other.zip")
    assert not (tmp_path / "other.zip").exists()
    receipt = await administrator.erase("ann")
    assert (type(receipt), receipt.settled, receipt.removed["payloads"].count) == (wire.Erasure, True, 1)
    assert await administrator.erase("ann") == receipt == await administrator.erasure(receipt.erasure_id)
    with pytest.raises(NotFound):
        await administrator.payload(sent.event_id)


async def test_chats(administrator: Any, ann: Any) -> None:
    made = await administrator.add_user("zoe")
    assert (type(made), made.user_key.startswith("uk_")) == (wire.UserMade, True)
    assert (await administrator.add_user("zoe")).user_key is None
    said = {"sender_id": "ann", "role": "user", "timestamp": 1_772_000_000_000, "content": "I live in Lyon"}
    added = await ann.add_messages("chat:1", [said], app_id="shop")
    assert (type(added), added.status) == (wire.Added, "stored")
    as_struct = wire.Message("ann", "user", 1_772_000_000_000, "I live in Lyon")
    assert (await ann.add_messages("chat:1", [as_struct], app_id="shop")).memory_ids == added.memory_ids
    flushed = await ann.flush("chat:1", app_id="shop")
    assert [fact.quote for fact in flushed.facts] == ["I live in Lyon"]
    found = await ann.search("Lyon", ["current_chat"], conversation_id="1", top_k=5, app_id="shop")
    assert {result.text for result in found.results} == {"I live in Lyon", "ann lives in Lyon"}
    assert (await administrator.search("Lyon", ["all_user_memory"], user_id="ann")).results == []
    done = await ann.override_memory(added.memory_ids[0], "chat:1", "I live in Metz", app_id="shop")
    assert (done.superseded, len(done.forgotten)) == (added.memory_ids[0], 1)
    assert (await ann.delete_memory(done.id, "chat:1", app_id="shop")).id == done.id
    assert (await ann.search("live", ["all_user_memory"], app_id="shop")).results == []


async def test_conversations(administrator: Any, ann: Any) -> None:
    shown = await administrator.publish_broadcast("welcome", [{"content": "Welcome", "role": "assistant"}], "Hello")
    assert (type(shown), shown.state) == (wire.ConversationRead, "broadcast")
    assert await administrator.publish_broadcast("welcome", [wire.NewMessage("Other words")]) == shown
    with pytest.raises(Forbidden):
        await ann.publish_broadcast("mine", [{"content": "x"}])
    posted = await ann.post_message(shown.conversation_id, "Thank you")
    assert (type(posted), posted.state, posted.forked_from) == (wire.Posted, "fork", shown.conversation_id)
    again = await ann.post_message(shown.conversation_id, "Thank you", message_id=posted.message.message_id)
    assert again == posted
    made = await ann.start_conversation("Plans", [wire.NewMessage("Be brief.", "system")])
    assert (await ann.start_conversation("Plans", made.messages[:0], uuid.uuid4())).message_count == 0
    await ann.post_message(made.conversation_id, "Yes", "assistant")
    found = await ann.conversation(made.conversation_id, after=1, limit=5)
    assert [(message.role, message.content) for message in found.messages] == [("assistant", "Yes")]
    page = await ann.conversations(state="private", limit=1)
    assert (type(page), page.conversations[0].title, page.next is None) == (wire.ConversationPage, "Plans", False)
    await ann.delete_conversation(made.conversation_id)
    with pytest.raises(NotFound):
        await ann.conversation(made.conversation_id)


async def test_health(ann: Any) -> None:
    health = await ann.health()
    assert (type(health), health.status) == (wire.Health, "ok")


def verbs(client: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}


def test_every_verb_is_called_here_and_both_clients_have_the_same() -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(Path(__file__).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert verbs(AsyncWhence) == verbs(Whence)
    assert verbs(Whence) - called == {"close"}
