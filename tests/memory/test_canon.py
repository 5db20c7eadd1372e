"""The guard: semantic memory does not repeat the rules of its world, whichever way it comes in."""

import msgspec
import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from conftest import Workspace
from whence.app import App
from whence.db.embedded import SUPERUSER, EmbeddedServer
from whence.errors import InvalidInput, NotFound
from whence.wire import Fact, Kind, Remember

RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."


def copy(text: str = RULE, kind: Kind = "semantic", world: str | None = "w1") -> Remember:
    return Remember(agent="gateway", tier="persistent", kind=kind, text=text, world_id_context=world)


async def with_rule(app: App, workspace: Workspace) -> None:
    await app.memory.set_rule(workspace.admin, "w1", "R-12", RULE)


async def test_a_copy_of_a_rule_is_refused_and_the_error_names_the_rule(app: App, workspace: Workspace) -> None:
    await with_rule(app, workspace)
    assert len(RULE) >= 100
    head = await app.ledger.heads.read(workspace.workspace_id)
    for text in (RULE, RULE.upper(), RULE.replace("two people", "2 people")):
        with pytest.raises(InvalidInput, match="rule R-12") as caught:
            await app.memory.remember(workspace.user("ann"), copy(text))
        assert caught.value.errors[0].field == "text"
    assert await app.ledger.heads.read(workspace.workspace_id) == head


async def test_what_is_shorter_or_of_another_world_or_kind_passes(app: App, workspace: Workspace) -> None:
    await with_rule(app, workspace)
    ann = workspace.user("ann")
    await app.memory.remember(ann, copy(RULE[:99]))
    await app.memory.remember(ann, copy(world="w2"))
    await app.memory.remember(ann, copy(world=None))
    await app.memory.remember(ann, copy(kind="episodic"))
    await app.memory.remember(ann, copy(kind="procedural"))
    await app.memory.remember(
        ann, copy("The operator was working on the coverage of the gate, and asked for a digest " * 2)
    )


async def test_the_object_of_a_fact_is_guarded_as_its_text_is(app: App, workspace: Workspace) -> None:
    await with_rule(app, workspace)
    told = Remember(
        agent="gateway",
        tier="persistent",
        kind="semantic",
        text="what the gate does",
        world_id_context="w1",
        fact=Fact("the gate", "does", RULE),
    )
    with pytest.raises(InvalidInput, match="rule R-12") as caught:
        await app.memory.remember(workspace.user("ann"), told)
    assert caught.value.errors[0].field == "fact.object"
    short = msgspec.structs.replace(told, fact=Fact("the gate", "does", RULE[:99]))
    assert (await app.memory.remember(workspace.user("ann"), short)).status == "stored"


WIDE = str.maketrans({chr(letter): chr(letter + 0xFEE0) for letter in range(0x21, 0x7F)})


UNSEEN = ("\u200b", "\u00ad", "\u2060", "\ufe0f", "\u034f", "\u3164", "\U000e0041")


@pytest.mark.parametrize("sign", [*UNSEEN, None], ids=ascii)
async def test_a_rule_is_known_however_it_is_spelt(app: App, workspace: Workspace, sign: str | None) -> None:
    """With a sign that is not seen between its letters, or in letters as wide as they are high."""
    text = RULE.translate(WIDE) if sign is None else sign.join(RULE)
    await with_rule(app, workspace)
    with pytest.raises(InvalidInput, match=r"rule R-12, 1\.00 alike"):
        await app.memory.remember(workspace.user("ann"), copy(text))
    await app.memory.set_rule(workspace.admin, "w2", "R-13", text)
    with pytest.raises(InvalidInput, match=r"rule R-13, 1\.00 alike"):
        await app.memory.remember(workspace.user("ann"), copy(world="w2"))
    assert [rule.body for rule in await app.memory.rules(workspace.admin.scope, "w2")] == [text]


async def test_what_was_told_before_its_rule_is_not_told_again(app: App, workspace: Workspace) -> None:
    await app.memory.remember(workspace.user("ann"), copy())
    await with_rule(app, workspace)
    with pytest.raises(InvalidInput, match="rule R-12"):
        await app.memory.remember(workspace.user("ann"), copy())


async def test_a_rule_that_was_dropped_or_changed_guards_no_more(app: App, workspace: Workspace) -> None:
    await with_rule(app, workspace)
    await app.memory.drop_rule(workspace.admin, "w1", "R-12")
    await app.memory.remember(workspace.user("ann"), copy())
    with pytest.raises(NotFound):
        await app.memory.drop_rule(workspace.admin, "w1", "R-12")


async def test_exactly_one_hundred_characters_are_guarded_and_ninety_nine_are_not(
    app: App, workspace: Workspace
) -> None:
    text = (RULE * 2)[:100]
    await app.memory.set_rule(workspace.admin, "w1", "R-100", text)
    with pytest.raises(InvalidInput, match="rule R-100"):
        await app.memory.remember(workspace.user("ann"), copy(text))
    await app.memory.set_rule(workspace.admin, "w1", "R-100", text[:99])
    await app.memory.remember(workspace.user("ann"), copy(text[:99]))


def as_workspace(conn: Connection, workspace: str) -> None:
    conn.execute("SET ROLE whence_workspace")
    conn.execute(f"SET app.workspace_id = '{workspace}'")


INSERT = """
INSERT INTO whence.memories (workspace_id, memory_id, position, subject_id, agent, profile, tier, kind, body, body_hash,
    importance, valid_at, recorded_at, world_id_context)
VALUES (%(workspace)s, gen_random_uuid(), 1, '', 'a', 'gateway', %(tier)s, %(kind)s, %(body)s,
    sha256(uuid_send(gen_random_uuid())), 0.5, now(), now(), %(world)s)
"""


@pytest.mark.parametrize("tier", ["persistent"])
async def test_the_database_refuses_it_whoever_writes(
    app: App, workspace: Workspace, owner: Connection, tier: str
) -> None:
    await with_rule(app, workspace)
    as_workspace(owner, workspace.workspace_id)
    values = {"workspace": workspace.workspace_id, "tier": tier, "kind": "semantic", "world": "w1"}
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        owner.execute(INSERT, {**values, "body": RULE})
    assert caught.value.sqlstate == "23514"
    assert "R-12" in str(caught.value)
    owner.execute(INSERT, {**values, "body": RULE[:99]})
    owner.execute(INSERT, {**values, "kind": "procedural", "body": RULE})
    owner.execute(INSERT, {**values, "world": "w2", "body": RULE})
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        owner.execute("UPDATE whence.memories SET body = %s WHERE length(body) = 99", (RULE,))
    assert caught.value.sqlstate == "23514"


async def test_a_row_that_becomes_semantic_or_of_the_world_is_guarded(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    await with_rule(app, workspace)
    as_workspace(owner, workspace.workspace_id)
    values = {"workspace": workspace.workspace_id, "tier": "persistent", "body": RULE}
    owner.execute(INSERT, {**values, "kind": "semantic", "world": "w2"})
    owner.execute(INSERT, {**values, "kind": "episodic", "world": "w1"})
    for change in ("world_id_context = 'w1' WHERE kind = 'semantic'", "kind = 'semantic' WHERE kind = 'episodic'"):
        with pytest.raises(psycopg.errors.CheckViolation, match="R-12"):
            owner.execute(f"UPDATE whence.memories SET {change}".encode())


async def test_whom_row_level_security_does_not_bind_the_guard_does(
    app: App, workspace: Workspace, postgres: EmbeddedServer
) -> None:
    await with_rule(app, workspace)
    values = {"workspace": workspace.workspace_id, "tier": "persistent", "kind": "semantic", "world": "w1"}
    password = (postgres.data_dir / f"{SUPERUSER}.password").read_text()
    login = make_conninfo(postgres.owner_conninfo, user=SUPERUSER, password=password)
    with psycopg.connect(login, autocommit=True) as superuser:
        with pytest.raises(psycopg.errors.CheckViolation, match="R-12"):
            superuser.execute(INSERT, {**values, "body": RULE})
        superuser.execute("SET app.workspace_id = 'somebody-else'")
        with pytest.raises(psycopg.errors.CheckViolation, match="R-12"):
            superuser.execute(INSERT, {**values, "body": RULE})


async def test_another_workspace_learns_nothing_of_the_rules(app: App, workspace: Workspace, owner: Connection) -> None:
    await with_rule(app, workspace)
    as_workspace(owner, "somebody-else")
    values = {"workspace": workspace.workspace_id, "tier": "persistent", "kind": "semantic", "world": "w1"}
    for body in (RULE, "x" * 120):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            owner.execute(INSERT, {**values, "body": body})


async def test_the_guard_uses_the_trigram_index(app: App, workspace: Workspace, owner: Connection) -> None:
    """Its own query, as it stands in the function and with the function's settings, among many rules."""
    await with_rule(app, workspace)
    as_workspace(owner, workspace.workspace_id)
    owner.execute(
        """INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at)
           SELECT %s, 'w1', 'R-' || n, repeat(md5(n::text) || ' ', 5), now() FROM generate_series(100, 2100) n""",
        (workspace.workspace_id,),
    )
    owner.execute("RESET ROLE")
    owner.execute("ANALYZE whence.canon_rules")
    found = owner.execute("SELECT prosrc, proconfig FROM pg_proc WHERE proname = 'guard_canon'").fetchone()
    assert found is not None
    source, settings = found
    for setting in settings:
        name, _, value = setting.partition("=")
        owner.execute(f"SET {name} = {value}")
    query = source[source.index("SELECT r.rule_id") : source.index("LIMIT 1") + len("LIMIT 1")]
    query = query.replace("INTO shadowed", "").replace(" said", f" '{RULE}'")
    query = query.replace("NEW.workspace_id", f"'{workspace.workspace_id}'").replace("NEW.world_id_context", "'w1'")
    plan = [line for (line,) in owner.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {query}".encode()).fetchall()]
    assert any("Bitmap Index Scan on canon_rules_alike" in line for line in plan), plan
    assert owner.execute(query.encode()).fetchall() == [("R-12", 1.0)]
