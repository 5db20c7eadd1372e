"""The profile `operations`: what seed 000 decides, point by point, as docs/reference/memory.md maps it."""

import uuid
from typing import Any

import msgspec
import pytest
from psycopg import Connection

from conftest import Workspace
from lifecycle_time import Time
from whence.app import App
from whence.errors import InvalidInput, NotFound, RepeatsCanon
from whence.identity import Principal
from whence.memory.profiles import Profile
from whence.wire import Fact, Kind, Recall, Remember, StoredMemory, Tier

RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."
GRID: set[tuple[Tier, Kind]] = {
    ("interaction", "episodic"),
    ("session", "episodic"),
    ("session", "procedural"),
    ("persistent", "procedural"),
    ("persistent", "semantic"),
}
WORLD = {"semantic": "w1"}


def told(text: str, tier: Tier = "persistent", kind: Kind = "semantic", **more: Any) -> Remember:
    return Remember(
        **{
            "agent": "operations",
            "tier": tier,
            "kind": kind,
            "text": text,
            "session_id": None if tier == "persistent" else "s1",
            "interaction_id": "chat-1" if tier == "interaction" else None,
            "world_id_context": WORLD.get(kind),
            **more,
        }
    )


async def held(app: App, who: Principal, **asked: Any) -> list[StoredMemory]:
    return (await app.memory.page(who.scope, Recall(agent="operations", **asked))).memories


def profile(app: App) -> Profile:
    name, found = app.memory.profiles.of("operations")
    assert name == "operations"
    return found


async def test_d1_its_rows_are_in_the_one_table_of_memory(app: App, workspace: Workspace, owner: Connection) -> None:
    for tier, kind in GRID:
        await app.memory.remember(workspace.user("ann"), told(f"{tier} {kind}", tier, kind))
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    rows = owner.execute("SELECT tier, kind FROM whence.memories WHERE profile = 'operations'").fetchall()
    assert set(rows) == GRID
    assert len(rows) == len(GRID)


async def test_d2_persistent_rows_hang_on_the_user_others_on_their_session_or_thread(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    for tier, kind in GRID:
        done = await app.memory.remember(ann, told(f"{tier} {kind}", tier, kind))
        kept = await app.memory.get(ann.scope, done.memory_id)
        assert kept.user_id == "ann"
        assert (kept.session_id, kept.interaction_id) == (
            None if tier == "persistent" else "s1",
            "chat-1" if tier == "interaction" else None,
        )
        with pytest.raises(NotFound):
            await app.memory.get(workspace.user("bob").scope, done.memory_id)
    for missing, tier in (("session_id", "session"), ("interaction_id", "interaction")):
        with pytest.raises(InvalidInput) as caught:
            await app.memory.remember(ann, told("x", tier, "episodic", **{missing: None}))
        assert caught.value.errors[0].field == missing


async def test_d3_the_grid_has_five_cells_and_no_persistent_episodes(app: App, workspace: Workspace) -> None:
    assert profile(app).cells == {
        "interaction": {"episodic": "dominant"},
        "session": {"episodic": "dominant", "procedural": "permitted"},
        "persistent": {"procedural": "dominant", "semantic": "permitted"},
    }
    tiers: tuple[Tier, ...] = ("interaction", "session", "persistent")
    kinds: tuple[Kind, ...] = ("episodic", "semantic", "procedural")
    for tier in tiers:
        for kind in kinds:
            request = told(f"{tier} {kind}", tier, kind)
            if (tier, kind) in GRID:
                assert (await app.memory.remember(workspace.user("ann"), request)).status == "stored"
            else:
                with pytest.raises(InvalidInput, match=f"the profile operations has no {tier}/{kind} memory"):
                    await app.memory.remember(workspace.user("ann"), request)


async def test_d4_the_guard_is_a_backstop_and_semantic_memory_says_of_which_world_it_is(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    assert profile(app).canon == "backstop"
    await app.memory.set_rule(workspace.admin, "w1", "R-12", RULE)
    with pytest.raises(RepeatsCanon, match="rule R-12"):
        await app.memory.remember(ann, told(RULE))
    with pytest.raises(InvalidInput) as caught:
        await app.memory.remember(ann, told("short", world_id_context=None))
    assert caught.value.errors[0].field == "world_id_context"
    for request in (told(RULE, kind="procedural"), told(RULE, "session", "episodic", world_id_context="w1")):
        assert (await app.memory.remember(ann, request)).status == "stored"


async def test_d7_episodes_become_procedures_at_the_close_and_procedures_are_told_directly(
    app: App, workspace: Workspace
) -> None:
    assert profile(app).promotion == {"episodic": "patterns", "semantic": "corroborated", "procedural": "none"}
    ann = workspace.user("ann")
    steps = (
        "open the queue",
        "pick the oldest candidate",
        "compare it with the rules",
        "ask for a review",
        "accept it",
    )
    direct = await app.memory.remember(ann, told("ask before accepting", kind="procedural"))
    for session in ("s1", "s2", "s3"):
        for step in steps:
            await app.memory.remember(ann, told(step, "session", "episodic", session_id=session))
    draft = await app.memory.remember(ann, told("a draft", "session", "procedural", session_id="s3"))
    for session in ("s1", "s2"):
        await app.sessions.close(ann, session)
    [report] = await app.sessions.close(ann, "s3")
    [routine] = report.routines
    assert tuple(routine.steps) == steps
    assert {row.fate for row in report.rows if row.kind == "episodic"} == {"archived"}
    assert [row.fate for row in report.rows if row.memory_id == draft.memory_id] == ["removed"]
    assert {one.memory_id for one in await held(app, ann)} == {direct.memory_id, routine.memory_id}
    assert (await app.memory.get(ann.scope, routine.memory_id)).kind == "procedural"


async def test_d8_conflicts_are_resolved_by_kind_and_no_table_holds_contradictions(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    for _ in range(2):
        await app.memory.remember(ann, told("asked for a digest", "session", "episodic"))
    assert len(await held(app, ann, tiers=("session",))) == 2
    old, new = [
        await app.memory.remember(ann, told(f"works on {what}", fact=Fact("ann", "works on", what)))
        for what in ("coverage", "notes")
    ]
    was, now = [await app.memory.get(ann.scope, one.memory_id) for one in (old, new)]
    assert (was.invalid_at, now.invalid_at, was.superseded_at) == (now.valid_at, None, None)
    old, new = [
        await app.memory.remember(ann, told(text, kind="procedural", key="release"))
        for text in ("ask", "announce, ask")
    ]
    was, now = [await app.memory.get(ann.scope, one.memory_id) for one in (old, new)]
    assert (was.superseded_by, was.invalid_at, now.superseded_at) == (new.memory_id, None, None)
    names = owner.execute("SELECT relname FROM pg_class WHERE relname ~ 'contradict|corrobor'").fetchall()
    assert names == []


async def test_d9_sessions_end_after_30_idle_days_and_memory_follows_its_scope(
    later: App, workspace: Workspace, moment: Time
) -> None:
    found, ann = profile(later), workspace.user("ann")
    assert found.idle_days == 30
    assert found.retention == {
        "procedural": "decay-exempt",
        "semantic": "validity-window",
        "episodic": "of its scope",
    }
    cited, other = [
        await later.memory.remember(ann, told(text, "session", "procedural")) for text in ("cited draft", "other draft")
    ]
    await later.actions.record(ann, "rule.promoted", [cited.memory_id])
    moment.pass_by(days=30)
    assert await later.sessions.close_due(workspace.workspace_id) == 1
    [session] = (await later.sessions.page(ann.scope)).sessions
    assert session.close_event_id is not None
    report = msgspec.json.decode(await later.ledger.payload(ann.scope, session.close_event_id))["report"]
    fates = {uuid.UUID(row["memory_id"]): row["fate"] for row in report["rows"]}
    assert fates == {cited.memory_id: "held", other.memory_id: "removed"}


SECRETS = {
    "card": "4111 1111 1111 1111",
    "iban": "DE89 3704 0044 0532 0130 00",
    "national_id": "my SSN is 536-22-8726",
    "api_key": "password=Pa$$w0rd[2024]x!",
    "private_key": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "connection_string": "postgres://ann:pw1@db.example.com/x",
}
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    main()\nValueError: no'


async def test_d10_personal_data_and_traces_are_taken_out_and_secrets_refused(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    assert set(profile(app).sanitise) == {*SECRETS, "email", "phone", "trace_dump"}
    for text, clean in (
        ("ask ann@example.com", "ask [email]"),
        ("call +44 20 7946 0958", "call [phone]"),
        (f"it failed:\n{TRACE}", "it failed:\n[trace dump]"),
    ):
        done = await app.memory.remember(ann, told(text))
        assert (await app.memory.get(ann.scope, done.memory_id)).text == clean
    for category, text in SECRETS.items():
        with pytest.raises(InvalidInput, match=f"the profile operations refuses: {category.replace('_', ' ')}"):
            await app.memory.remember(ann, told(f"note {text}"))
