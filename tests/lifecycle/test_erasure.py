"""A person is erased: nothing is left anywhere, nobody else loses anything, and a receipt says so."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
from psycopg import Connection, connect, sql
from psycopg.conninfo import make_conninfo

from conftest import Server, Workspace, clean_environment
from lifecycle_time import Time
from people import OTHER, Marks, archive_of, live, telemetry
from samples import event, sample
from whence.app import App
from whence.crypto import LocalKeyProvider
from whence.db.embedded import SUPERUSER, EmbeddedServer
from whence.errors import NotFound, Unauthenticated, Unavailable
from whence.gateway.http import build
from whence.graph.batch import Batch
from whence.graph.bounds import Bounds
from whence.graph.project import Projector
from whence.graph.reading import Reading
from whence.graph.rebuild import _start  # pyright: ignore[reportPrivateUsage]
from whence.graph.rebuild import rebuild as rebuild_graph
from whence.identity import Principal
from whence.lifecycle.erasure import STEPS
from whence.memory.rebuild import rebuild as rebuild_memory
from whence.wire import Erasure, Fact, Feedback, Recall, Remember, Removed

TWICE = f"{OTHER} told twice"


async def rebuilt_equal(app: App, workspace_id: str) -> bool:
    memory = await rebuild_memory(app.database, app.ledger, app.memory, workspace_id, True, lambda *_: None)
    graph = await rebuild_graph(app.database, app.projector, app.clock, workspace_id, True, lambda *_: None)
    assert memory.differing == ()
    assert graph.differing == ()
    return True


def everything(owner: Connection, workspace_id: str) -> dict[str, str]:
    """Every row of every table of the workspace, and of copies of it, as text; bytes in both of their readings."""
    found: dict[str, str] = {}
    owner.execute("SET ROLE whence_workspace")
    rows = owner.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname IN ('whence', 'langgraph') AND c.relkind = 'r'"
    ).fetchall()
    for schema, name in rows:
        if name in ("schema_migrations", "library_migrations", "checkpoint_migrations", "installation", "edge_types"):
            continue
        found[name] = ""
        for scope in (workspace_id, f"{workspace_id}\x1frebuild"):
            owner.execute(sql.SQL("SET app.workspace_id = {}").format(scope))
            columns = owner.execute(
                "SELECT attname, atttypid::regtype::text FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                (f"{schema}.{name}",),
            ).fetchall()
            read = [
                sql.SQL("encode({}, 'escape')").format(sql.Identifier(column))
                if kind == "bytea"
                else sql.SQL("{}::text").format(sql.Identifier(column))
                for column, kind in columns
            ]
            statement = sql.SQL("SELECT concat_ws(' ', {}) FROM {}").format(
                sql.SQL(", ").join(read), sql.Identifier(schema, name)
            )
            found[name] += "\n".join(row[0] for row in owner.execute(statement).fetchall())
    owner.execute("RESET ROLE")
    return found


def shown(admin: httpx.Client, workspace_id: str) -> str:
    """What every route that reads shows to an administrator."""
    said: list[str] = []

    def ask(path: str, **query: Any) -> Any:
        answer = admin.get(path, params=query)
        said.append(answer.text)
        return answer.json() if answer.status_code == 200 else {}

    for item in ask("/v1/events", limit=1000)["events"]:
        for end in ("", "/payload", "/lineage"):
            ask(f"/v1/events/{item['event_id']}{end}")
    for item in ask("/v1/memories", limit=500)["memories"]:
        for end in ("", "/history", "/explain"):
            ask(f"/v1/memories/{item['memory_id']}{end}")
    for agent in ("gateway", "sdr", "planner"):
        ask(f"/v1/agents/{agent}/runs")
        ask(f"/v1/agents/{agent}/episodes", limit=100)
    ask("/v1/workflows")
    for where in ({"session_id": "s1"}, {"trace_id": "t1"}):
        ask("/v1/subgraph", **where, text="true", max_nodes=500)
        ask("/v1/prov", **where)
    for asked in ({"top_k": 500}, {"query": "Who was there?", "top_k": 500, "neighbours": 2}):
        recalled = admin.post("/v1/recall", json=asked).json()
        said.append(json.dumps(recalled))
        ask(f"/v1/recalls/{recalled['recall_id']}")
    said.append(admin.post("/v1/context", json={"query": "who is Stone?", "max_nodes": 500}).text)
    return "\n".join(said)


async def kept_of(app: App, workspace: Workspace, who: str) -> dict[str, list[str]]:
    """What somebody has, but for what others may have changed: who else told it, and what it ended."""
    archive = await archive_of(app, workspace, who)
    found = {name: archive.read(name).decode().splitlines() for name in archive.namelist() if name != "manifest.json"}
    found["memories.jsonl"] = sorted({json.loads(line)["body"] for line in found["memories.jsonl"]} - {TWICE})
    found["runs.jsonl"] = [json.dumps({**json.loads(line), "turn": 0}) for line in found["runs.jsonl"]]
    # Who else's workflow could be selected, and who told a name first, may have been Ann.
    return {name: lines for name, lines in found.items() if name not in ("workflows.jsonl", "names.jsonl")}


async def two_people(app: App, workspace: Workspace, admin: httpx.Client) -> Marks:
    """Ann, with a mark at every door; Bob, who tells, recalls and corrects what Ann did."""
    marks = Marks()
    for who in ("ann", "bob"):
        await app.identity.add_user(workspace.workspace_id, who)
    await app.ledger.append(workspace.user("bob"), [event({"text": f"{OTHER} one"})])
    where = {"agent": "sdr", "tier": "persistent", "kind": "semantic"}
    bob = workspace.user("bob")
    await app.memory.remember(bob, Remember(**where, text=f"{OTHER} fact", fact=Fact("Acme", "is in", "Rome", 0.6)))
    await live(app, workspace, "ann", marks)
    telemetry(admin, "ann", marks)
    ann = workspace.user("ann")
    await app.memory.remember(ann, Remember(**where, text=marks(), fact=Fact("Acme", "is in", marks(), 0.6)))
    await app.memory.remember(ann, Remember(**where, text=TWICE))
    await app.memory.remember(bob, Remember(**where, text=TWICE))
    await app.recaller.recall(bob, Recall(agent="sdr", top_k=50))
    await app.ledger.behind.settled()
    await live(app, workspace, "bob", lambda: f"{OTHER}-{uuid4()}")
    await app.projector.catch_up(workspace.workspace_id)
    return marks


async def test_nothing_of_an_erased_person_is_left_and_nobody_else_loses_anything(
    app: App, workspace: Workspace, owner: Connection, admin: httpx.Client, server: Server
) -> None:
    marks = await two_people(app, workspace, admin)
    assert len(marks.made) >= 50
    before = everything(owner, workspace.workspace_id)
    in_clear = marks.found_in(" ".join(before.values()))
    assert len(in_clear) >= 20, "the marks must be there before, or the test shows nothing"
    showed = shown(admin, workspace.workspace_id)
    assert len(marks.found_in(showed)) >= 40
    bobs = await kept_of(app, workspace, "bob")
    answer = admin.post("/v1/erasures", json={"subject_id": "ann"})
    assert answer.status_code == 200, answer.text
    receipt = msgspec.json.decode(answer.content, type=Erasure)
    after = everything(owner, workspace.workspace_id)
    for name, text in after.items():
        assert marks.found_in(text) == [], name
    shows = shown(admin, workspace.workspace_id)
    assert marks.found_in(shows) == []
    assert marks.found_in(server.log.read_text()) == []
    assert marks.found_in((server.data_dir / "postgres.log").read_text()) == []
    assert await kept_of(app, workspace, "bob") == bobs
    assert await rebuilt_equal(app, workspace.workspace_id)
    assert (await app.ledger.seals.seal(workspace.workspace_id)) is not None
    assert (await app.ledger.seals.verify(workspace.workspace_id)).ok
    assert receipt.settled
    for name in ("payloads", "subject_keys", "memories", "runs", "workflows", "working_memory", "users", "user_keys"):
        assert receipt.removed[name].count > 0, name
    assert all(check.ok for check in await app.erasures.verify(receipt))
    assert "ann" not in admin.get(f"/v1/events/{receipt.erasure_id}/payload").text
    assert admin.get(f"/v1/erasures/{receipt.erasure_id}").json() == json.loads(answer.content)


async def test_what_a_process_holds_of_a_person_and_what_was_asked_goes_with_them(
    app: App, workspace: Workspace
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    where = {"agent": "sdr", "tier": "persistent", "kind": "episodic"}
    shared = await app.memory.remember(bob, Remember(**where, text="The cat of Acme"))
    await app.memory.remember(ann, Remember(**where, text="The cat called Xylander", speaker="Xylander"))
    own = Remember(agent="gateway", tier="persistent", kind="episodic", text="Xylander is mine")
    await app.memory.remember(ann, own)
    recalls = [await app.recaller.recall(who, Recall(query="Where is Xylander?")) for who in (ann, bob)]
    helpful = Feedback(helpful=(shared.memory_id,))
    await app.recaller.feedback(ann, (await app.recaller.recall(ann, Recall(query="Acme"))).recall_id, helpful)
    transport = httpx.ASGITransport(build(app))  # pyright: ignore[reportArgumentType]
    headers = {"Authorization": f"Bearer {workspace.admin_key}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://whence", headers=headers) as admin:
        # Not recorded yet when the erasure is asked for.
        late = await app.recaller.recall(ann, Recall(query="Xylander again"))
        answer = await admin.post("/v1/erasures", json={"subject_id": "ann"})
    assert answer.status_code == 200, answer.text
    held = app.recaller._corpora._held  # pyright: ignore[reportPrivateUsage]
    assert [name for name in held if name[0] == workspace.workspace_id] == []
    for recalled in (recalls[0], late):
        with pytest.raises(NotFound):
            await app.recaller.recalled(workspace.admin.scope, recalled.recall_id)
    assert (await app.recaller.recalled(bob.scope, recalls[1].recall_id)).asked.query == "Where is Xylander?"
    assert (await app.memory.get(bob.scope, shared.memory_id)).importance == 0.5
    for who in (ann, bob, workspace.admin):
        found = (await app.recaller.recall(who, Recall(query="Where is Xylander's cat?"))).hits
        assert [hit.text for hit in found] == ["The cat of Acme"]
    await app.ledger.behind.settled()
    assert await rebuilt_equal(app, workspace.workspace_id)


async def test_what_a_person_did_to_rows_of_others_is_settled(app: App, workspace: Workspace) -> None:
    where = {"agent": "sdr", "tier": "persistent", "kind": "semantic"}
    ann, bob = workspace.user("ann"), workspace.user("bob")
    told = await app.memory.remember(bob, Remember(**where, text="In Rome", fact=Fact("Acme", "is in", "Rome", 0.6)))
    await app.memory.remember(ann, Remember(**where, text="In Oslo", fact=Fact("Acme", "is in", "Oslo", 0.6)))
    for _ in range(3):
        await app.recaller.recall(ann, Recall(agent="sdr", as_of=None, top_k=50))
    await app.ledger.behind.settled()
    ended = await app.memory.get(bob.scope, told.memory_id)
    assert ended.invalid_at is not None
    await app.erasures.erase(workspace.admin, "ann")
    back = await app.memory.get(bob.scope, told.memory_id)
    assert (back.invalid_at, back.access_count) == (None, 0)


async def test_what_others_told_of_a_person_and_what_envelopes_tell_stays(app: App, workspace: Workspace) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    where = {"agent": "sdr", "tier": "persistent", "kind": "semantic"}
    tools = [event({"n": 1}, tool_name=name) for name in ("search_web", "search-web", "search web")]
    await app.ledger.append(ann, tools)
    told = await app.memory.remember(ann, Remember(**where, text="told first"))
    mine = await app.memory.remember(bob, Remember(**where, text="follows", derived_from=(told.memory_id,)))
    summary = {"summarizes": [str(item.event_id) for item in tools]}
    alias = {"entity_type": "tool", "name": "search_web", "alias": "search-web"}
    await app.ledger.append(workspace.admin, [event(summary, event_type="session.summary")])
    await app.ledger.append(ann, [event(alias, event_type="entity.alias")])
    await app.projector.catch_up(workspace.workspace_id)
    receipt = await app.erasures.erase(workspace.admin, "ann")
    assert [check for check in await app.erasures.verify(receipt) if not check.ok] == []
    assert await rebuilt_equal(app, workspace.workspace_id)
    derived = await app.graph.lineage(workspace.admin.scope, mine.memory_id, "up", Bounds())
    assert {str(told.memory_id), str(mine.memory_id)} <= set(derived.nodes)


async def test_a_receipt_that_was_changed_does_not_verify(app: App, workspace: Workspace) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    receipt = await app.erasures.erase(workspace.admin, "ann")
    await app.ledger.seals.seal(workspace.workspace_id)
    assert all(check.ok for check in await app.erasures.verify(receipt))
    forged = (
        {"removed": {**receipt.removed, "payloads": Removed(2, receipt.removed["payloads"].digest)}},
        {"subject_hash": "0" * 64},
        {"erased_by": "somebody"},
        {"digest": "0" * 64},
        {"erasure_id": uuid4()},
        {"position": receipt.position - 1},
        {"shredded_keys": []},
        {"settled": False},
    )
    for change in forged:
        checks = await app.erasures.verify(msgspec.structs.replace(receipt, **change))
        assert not all(check.ok for check in checks), change


async def test_a_receipt_does_not_verify_when_something_came_back(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    kept = await app.memory.remember(ann, Remember(agent="gateway", tier="persistent", kind="semantic", text="secret"))
    receipt = await app.erasures.erase(workspace.admin, "ann")
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    owner.execute(
        "INSERT INTO whence.memories (workspace_id, memory_id, position, user_id, subject_id, agent, profile, tier,"
        " kind, body, body_hash, importance, valid_at, recorded_at)"
        " VALUES (%s, %s, 1, 'ann', 'ann', 'gateway', 'gateway', 'persistent', 'semantic', 'secret', '', 0.5,"
        " now(), now())",
        (workspace.workspace_id, kept.memory_id),
    )
    checks = {check.what: check for check in await app.erasures.verify(receipt)}
    assert not checks["rows"].ok
    assert "1 in memories" in checks["rows"].detail


async def test_a_receipt_does_not_verify_when_its_event_was_changed(
    app: App, workspace: Workspace, postgres: EmbeddedServer
) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    receipt = await app.erasures.erase(workspace.admin, "ann")
    await app.ledger.seals.seal(workspace.workspace_id)
    password = (postgres.data_dir / f"{SUPERUSER}.password").read_text()
    with connect(make_conninfo(postgres.app_conninfo, user=SUPERUSER, password=password), autocommit=True) as conn:
        conn.execute("UPDATE whence.events SET session_id = 'x' WHERE event_id = %s", (receipt.erasure_id,))
    assert {check.what: check.ok for check in await app.erasures.verify(receipt)}["seal"] is False


async def test_a_second_erasure_gives_the_first_receipt_unless_something_came_since(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    await app.ledger.append(ann, [event({"text": "hi"})])
    first = await app.erasures.erase(workspace.admin, "ann")
    assert await app.erasures.erase(workspace.admin, "ann") == first
    back = event({"text": "here again"})
    await app.ledger.append(ann, [back])
    assert await app.ledger.payload(workspace.admin.scope, back.event_id) == b'{"text":"here again"}'
    assert all(check.ok for check in await app.erasures.verify(first)), "what came later is not what was erased"
    second = await app.erasures.erase(workspace.admin, "ann")
    assert second.erasure_id != first.erasure_id
    assert second.subject_hash == first.subject_hash
    assert not set(first.shredded_keys) & set(second.shredded_keys)
    with pytest.raises(NotFound):
        await app.ledger.payload(workspace.admin.scope, back.event_id)
    assert await rebuilt_equal(app, workspace.workspace_id)


async def test_erasures_at_once_and_writers_meanwhile_leave_a_whole_ledger(app: App, workspace: Workspace) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    where = {"agent": "sdr", "tier": "persistent", "kind": "semantic"}
    await app.ledger.append(ann, [event({"text": "hi"})])
    done = asyncio.Event()

    async def write(who: Principal) -> list[str]:
        seen: list[str] = []
        while not done.is_set():
            [outcome] = await app.ledger.append(who, [event({"text": "more"})])
            seen.append(outcome.status)
            # The key may be gone between the two; the sender is told to send again.
            with contextlib.suppress(Unavailable):
                await app.memory.remember(who, Remember(**where, text=f"about {uuid4()}"))
        return seen

    writers = [asyncio.create_task(write(who)) for who in (ann, bob)]
    receipts = await asyncio.gather(*(app.erasures.erase(workspace.admin, "ann") for _ in range(3)))
    done.set()
    of_ann, of_bob = await asyncio.gather(*writers)
    assert set(of_bob) == {"accepted"}
    assert set(of_ann) <= {"accepted", "rejected"}
    last = await app.erasures.erase(workspace.admin, "ann")
    for receipt in (*receipts, last):
        assert all(check.ok for check in await app.erasures.verify(receipt))
    assert await rebuilt_equal(app, workspace.workspace_id)


async def test_the_same_erasure_asked_for_twice_at_once_is_one(app: App, workspace: Workspace) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    first, second = await asyncio.gather(*(app.erasures.erase(workspace.admin, "ann") for _ in range(2)))
    assert first == second


async def test_an_event_of_an_erased_person_that_is_sent_again_stores_nothing(app: App, workspace: Workspace) -> None:
    sent = event({"text": "hi"})
    await app.ledger.append(workspace.user("ann"), [sent])
    await app.erasures.erase(workspace.admin, "ann")
    [outcome] = await app.ledger.append(workspace.user("ann"), [sent])
    assert outcome.status == "conflict"
    with pytest.raises(NotFound):
        await app.ledger.payload(workspace.admin.scope, sent.event_id)


def span_of(who: str) -> dict[str, Any]:
    text = [{"key": name, "value": {"stringValue": value}} for name, value in (("user.id", who), ("input.value", "hi"))]
    times = {"startTimeUnixNano": "1767323045000000000", "endTimeUnixNano": "1767323046000000000"}
    span = {"traceId": uuid4().hex, "spanId": uuid4().hex[:16], "name": "ask", **times, "attributes": text}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/events", sample(user_id="ann", payload="hi")),
        ("/v1/traces", span_of("ann")),
        (
            "/v1/memories",
            {"agent": "a", "tier": "persistent", "kind": "semantic", "user_id": "ann", "text": "she likes tea"},
        ),
    ],
)
async def test_who_meets_an_erasure_by_another_process_is_told_to_send_it_again(
    app: App, workspace: Workspace, admin: httpx.Client, route: str, body: dict[str, Any]
) -> None:
    """The server still has the key that is gone."""
    admin.post("/v1/events", json=sample(user_id="ann", payload="before")).raise_for_status()
    await app.erasures.erase(workspace.admin, "ann")
    refused = admin.post(route, json=body)
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert refused.json()["errors"][0]["field"] == "subject_id"
    assert refused.headers["Retry-After"]
    again = admin.post(route, json=body)
    assert (again.is_success, again.json().get("partialSuccess", {})) == (True, {})


async def test_a_name_that_nobody_has_is_not_erased(app: App, workspace: Workspace) -> None:
    with pytest.raises(NotFound, match="spelt"):
        await app.erasures.erase(workspace.admin, "nobody")


async def test_the_account_ends_and_an_administrators_does_not(
    app: App, workspace: Workspace, server: Server, admin: httpx.Client
) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    await app.erasures.erase(workspace.admin, "ann")
    with server.client(key) as ann:
        assert ann.get("/v1/events").status_code == 401
    await app.ledger.append(workspace.admin, [event({"text": "x"}, user_id="admin")])
    await app.erasures.erase(workspace.admin, "admin")
    assert admin.get("/v1/events").status_code == 200


async def test_only_an_administrator_of_the_workspace_erases_exports_and_sees_receipts(
    app: App, workspace: Workspace, server: Server, admin: httpx.Client
) -> None:
    await app.ledger.append(workspace.user("ann"), [event({"text": "hi"})])
    foreign = f"f-{uuid4().hex[:8]}"
    with server.client(await app.identity.add_workspace(foreign)) as other:
        assert other.post("/v1/erasures", json={"subject_id": "ann"}).status_code == 404
        assert other.get("/v1/subjects/ann/export").status_code == 404
        receipt = admin.post("/v1/erasures", json={"subject_id": "ann"}).json()
        assert other.get(f"/v1/erasures/{receipt['erasure_id']}").status_code == 404
    with server.client(await app.identity.add_user(workspace.workspace_id, "eve")) as eve:
        assert eve.post("/v1/erasures", json={"subject_id": "eve"}).status_code == 403
        assert eve.get(f"/v1/erasures/{receipt['erasure_id']}").status_code == 403
        assert eve.get("/v1/subjects/eve/export").status_code == 403
    assert admin.post("/v1/erasures", json={"subject_id": ""}).status_code == 422


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from whence.app import open_app
from whence.identity import Principal
from whence.settings import Settings

async def main(data_dir, workspace_id, step, done):
    def told(at, part, whole):
        if at == step and part == int(done):
            os.kill(os.getpid(), signal.SIGKILL)
    async with open_app(Settings(data_dir=Path(data_dir))) as app:
        await app.erasures.erase(Principal(workspace_id, "admin", is_admin=True), "ann", told)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("step", "done"), [("rows", 0), ("rows", 1), *((step, 0) for step in STEPS[1:])])
async def test_an_erasure_that_was_killed_ends_when_it_is_asked_for_again(
    app: App, workspace: Workspace, owner: Connection, step: str, done: int
) -> None:
    marks = Marks()
    await live(app, workspace, "ann", marks)
    await app.projector.catch_up(workspace.workspace_id)
    arguments = (str(app.settings.data_dir), workspace.workspace_id, step, str(done))
    environment = clean_environment() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=environment, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    receipt = await app.erasures.erase(workspace.admin, "ann")
    assert receipt.settled
    assert await app.erasures.erase(workspace.admin, "ann") == receipt
    events = await app.ledger.page(workspace.admin.scope, 0, 1000)
    assert [item.event_type for item in events.events].count("system.subject_erased") == 1
    for name, text in everything(owner, workspace.workspace_id).items():
        assert marks.found_in(text) == [], name
    assert all(check.ok for check in await app.erasures.verify(receipt))
    assert await rebuilt_equal(app, workspace.workspace_id)
    known = app.settings.kek_path.with_name("shredded.keys").read_text()
    assert all(str(key_id) in known for key_id in receipt.shredded_keys)


class Stopped(BaseException):
    """As if the process had ended here."""


async def erase_and_stop(app: App, workspace: Workspace, subject: str) -> Erasure:
    """Committed, and not settled."""

    def stop(step: str, *_: int) -> None:
        if step == "keys":
            raise Stopped

    with pytest.raises(Stopped):
        await app.erasures.erase(workspace.admin, subject, stop)
    last = (await app.ledger.page(workspace.admin.scope, 0, 1000)).events[-1]
    return await app.erasures.get(workspace.admin.scope, last.event_id)


async def rows_left(app: App, workspace: Workspace, receipt: Erasure) -> list[Any]:
    async with app.database.transaction(workspace.admin.scope) as tx:
        values = (workspace.workspace_id, "ann", receipt.position, receipt.erased_at)
        rows = await tx.execute("SELECT * FROM whence.subject_rows(%s, %s, %s, %s)", values)
        return await rows.fetchall()


async def test_a_projector_that_has_read_what_is_then_erased_writes_nothing_of_it(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, write, receipts = Marks(), Projector._write, list[Erasure]()  # pyright: ignore[reportPrivateUsage]
    await live(app, workspace, "ann", marks)
    await app.projector.catch_up(workspace.workspace_id)
    # Beside the one in use, which a worker may be at too.
    build = await _start(app.database, workspace.admin.scope, app.clock)

    async def erased_meanwhile(projector: Projector, batch: Batch, readings: Sequence[Reading]) -> int | None:
        assert readings
        monkeypatch.setattr(Projector, "_write", write)
        receipts.append(await erase_and_stop(app, workspace, "ann"))
        return await write(projector, batch, readings)

    monkeypatch.setattr(Projector, "_write", erased_meanwhile)
    head = await app.ledger.heads.read(workspace.workspace_id)
    while (await app.projector.step(build) or 0) < head:
        pass
    assert await rows_left(app, workspace, receipts[0]) == []


async def test_an_erasure_that_was_stopped_has_one_receipt_whatever_was_left_behind(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    await live(app, workspace, "ann", Marks())
    await app.projector.catch_up(workspace.workspace_id)
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    stopped = await erase_and_stop(app, workspace, "ann")
    assert not stopped.settled
    owner.execute(
        "INSERT INTO whence.graph_waiting (workspace_id, build, source, event_id, edge_type, user_id)"
        " SELECT workspace_id, build, 64, gen_random_uuid(), 5, 'ann' FROM whence.graph_builds"
    )
    assert await rows_left(app, workspace, stopped) != []
    receipt = await app.erasures.erase(workspace.admin, "ann")
    assert receipt == msgspec.structs.replace(stopped, settled=True)
    assert await rows_left(app, workspace, receipt) == []


async def test_to_verify_an_erasure_that_was_stopped_is_to_settle_it(app: App, workspace: Workspace) -> None:
    await live(app, workspace, "ann", Marks())
    stopped = await erase_and_stop(app, workspace, "ann")
    checks = {check.what: check for check in await app.erasures.verify(stopped)}
    assert [what for what, check in checks.items() if not check.ok] == ["event"]
    assert "settled" in checks["event"].detail
    receipt = await app.erasures.get(workspace.admin.scope, stopped.erasure_id)
    assert receipt.settled
    assert all(check.ok for check in await app.erasures.verify(receipt))


async def test_what_an_action_holds_stays_as_an_envelope(app: App, workspace: Workspace, owner: Connection) -> None:
    ann = workspace.user("ann")
    where = {"agent": "gateway", "tier": "persistent", "kind": "semantic"}
    held = await app.memory.remember(ann, Remember(**where, text="secret held", fact=Fact("Ann", "is", "secret")))
    gone = await app.memory.remember(ann, Remember(**where, text="secret gone"))
    await app.actions.record(workspace.admin, "rule.promoted", [held.memory_id])
    receipt = await app.erasures.erase(workspace.admin, "ann")
    assert receipt.held == [held.memory_id]
    left = await app.memory.get(workspace.admin.scope, held.memory_id)
    assert (left.text, left.fact) == ("", None)
    assert left.deleted_at is not None
    with pytest.raises(NotFound):
        await app.memory.get(workspace.admin.scope, gone.memory_id)
    with pytest.raises(NotFound):
        await app.memory.get(ann.scope, held.memory_id)
    assert not any("secret" in text for text in everything(owner, workspace.workspace_id).values())
    assert all(check.ok for check in await app.erasures.verify(receipt))
    assert await rebuilt_equal(app, workspace.workspace_id)


async def test_a_shredded_key_opens_nothing_when_a_backup_brings_it_back(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann, sent = workspace.user("ann"), event({"text": "secret"})
    await app.ledger.append(ann, [sent])
    owner.execute("SET ROLE whence_workspace")
    owner.execute(sql.SQL("SET app.workspace_id = {}").format(workspace.workspace_id))
    keys = owner.execute("SELECT * FROM whence.subject_keys WHERE subject_id = 'ann'").fetchall()
    payloads = owner.execute("SELECT * FROM whence.payloads WHERE subject_id = 'ann'").fetchall()
    await app.erasures.erase(workspace.admin, "ann")
    for table, rows in (("subject_keys", keys), ("payloads", payloads)):
        for row in rows:
            values = sql.SQL(", ").join(sql.Placeholder() * len(row))
            owner.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier("whence", table), values), row)
    with pytest.raises(Exception, match="erased after this backup"):
        await app.ledger.payload(workspace.admin.scope, sent.event_id)
    with pytest.raises(Exception, match="erased after this backup"):
        await app.ledger.append(ann, [event({"text": "more"})])
    fresh = LocalKeyProvider.from_file(app.settings.kek_path)
    assert fresh.kek_id == app.ledger.keys._provider.kek_id  # pyright: ignore[reportPrivateUsage]
    assert await app.erasures.restored(workspace.workspace_id) == ["ann"]
    await app.erasures.erase(workspace.admin, "ann")
    assert await app.erasures.restored(workspace.workspace_id) == []
    with pytest.raises(NotFound):
        await app.ledger.payload(workspace.admin.scope, sent.event_id)


MARKED = "xylophone"
"""In everything that is told of the person."""


async def a_life(app: App, workspace: Workspace, session: str) -> None:
    ann = workspace.user("ann")
    for step in ("opened the", "tuned the", "played the", "closed the"):
        note = Remember(agent="gateway", tier="session", kind="episodic", text=f"{step} {MARKED}", session_id=session)
        await app.memory.remember(ann, note)
    fact = Fact("Ann", "owns", f"a {MARKED}")
    for kept in ("session", "persistent"):
        note = Remember(
            agent="gateway", tier=kept, kind="semantic", text=f"Ann owns a {MARKED}", session_id=session, fact=fact
        )
        await app.memory.remember(ann, note)
    note = Remember(agent="gateway", tier="persistent", kind="episodic", text=f"{session}: bought a {MARKED}")
    await app.memory.remember(ann, note)


async def test_what_was_closed_learnt_archived_and_disposed_of_is_forgotten_too(
    later: App, workspace: Workspace, moment: Time, owner: Connection
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    for number in range(4):
        await a_life(later, workspace, f"s{number}")
        await later.sessions.close(ann, f"s{number}")
        moment.pass_by(days=1)
    await later.memory.remember(bob, Remember(agent="gateway", tier="persistent", kind="semantic", text="Bob is here"))
    [routine] = (await later.memory.page(ann.scope, Recall(kinds=("procedural",)))).memories
    assert (routine.support, MARKED in routine.text) == (4, True)
    await later.actions.record(workspace.admin, "rule.promoted", [routine.memory_id])
    await later.actions.record(ann, "decision.published", [routine.memory_id])
    moment.pass_by(days=91)
    await later.retention.apply(workspace.workspace_id)
    moment.pass_by(days=31)
    await later.retention.apply(workspace.workspace_id)
    await a_life(later, workspace, "s9")
    assert await rebuilt_equal(later, workspace.workspace_id)
    receipt = await later.erasures.erase(workspace.admin, "ann")
    assert receipt.held == [routine.memory_id]
    left = {name: text for name, text in everything(owner, workspace.workspace_id).items() if MARKED in text}
    assert left == {}
    assert [check for check in await later.erasures.verify(receipt) if not check.ok] == []
    assert await rebuilt_equal(later, workspace.workspace_id)
    assert [memory.text for memory in (await later.memory.page(bob.scope, Recall())).memories] == ["Bob is here"]
    archives = later.settings.archive_path
    assert [file for file in archives.rglob("*") if file.is_file()]
    assert not any(MARKED.encode() in file.read_bytes() for file in archives.rglob("*") if file.is_file())


async def test_what_only_an_action_of_the_person_held_stays_as_an_envelope_that_nothing_holds(
    later: App, workspace: Workspace, moment: Time
) -> None:
    ann, bob = workspace.user("ann"), workspace.user("bob")
    kept = await later.memory.remember(ann, Remember(agent="sdr", tier="persistent", kind="semantic", text="Ann's"))
    other = await later.memory.remember(bob, Remember(agent="sdr", tier="persistent", kind="episodic", text="Bob's"))
    await later.actions.record(ann, "rule.promoted", [kept.memory_id, other.memory_id])
    receipt = await later.erasures.erase(workspace.admin, "ann")
    assert receipt.held == [kept.memory_id]
    states = [await later.retention.of(workspace.admin.scope, each.memory_id) for each in (kept, other)]
    assert [(each.state, each.held_by) for each in states] == [("TOMBSTONED", []), ("ACTIVE", [])]
    moment.pass_by(days=31)
    await later.retention.apply(workspace.workspace_id)
    left = await later.memory.get(workspace.admin.scope, kept.memory_id)
    assert (left.text, left.agent) == ("", "sdr")
    assert await rebuilt_equal(later, workspace.workspace_id)
    assert [check for check in await later.erasures.verify(receipt) if not check.ok] == []


async def test_who_goes_on_while_being_erased_leaves_nothing(app: App, workspace: Workspace) -> None:
    key = await app.identity.add_user(workspace.workspace_id, "ann")
    added = 0

    async def go_on() -> None:
        nonlocal added
        while True:
            who = await app.identity.authenticate(key)
            await app.memory.remember(
                who, Remember(agent="gateway", tier="persistent", kind="episodic", text=f"Note {added}")
            )
            added += 1

    going = asyncio.create_task(go_on())
    await asyncio.sleep(0.3)
    await app.erasures.erase(workspace.admin, "ann")
    with pytest.raises(Unauthenticated):
        await going
    assert added > 0
    assert (await app.memory.page(workspace.admin.scope, Recall())).memories == []
