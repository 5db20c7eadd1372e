"""The guard: semantic memory does not repeat the rules of its world, whichever way it comes in."""

import json
import random
import unicodedata
from itertools import permutations

import msgspec
import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from conftest import Workspace
from whence.app import App
from whence.db.embedded import SUPERUSER, EmbeddedServer
from whence.errors import InvalidInput, NotFound, RepeatsCanon
from whence.ledger import Filter
from whence.memory.rebuild import rebuild
from whence.wire import Fact, Kind, Recall, Remember

RULE = "A change set is refused by the gate of conformity unless two people of the team have signed its review."


def copy(text: str = RULE, kind: Kind = "semantic", world: str | None = "w1") -> Remember:
    return Remember(agent="gateway", tier="persistent", kind=kind, text=text, world_id_context=world)


async def with_rule(app: App, workspace: Workspace) -> None:
    await app.memory.set_rule(workspace.admin, "w1", "R-12", RULE)


async def test_a_copy_of_a_rule_is_refused_and_the_error_names_the_rule(app: App, workspace: Workspace) -> None:
    await with_rule(app, workspace)
    assert len(RULE) >= 100
    head = 0
    for text in (RULE, RULE.upper(), RULE.replace("two people", "2 people")):
        with pytest.raises(RepeatsCanon, match="rule R-12") as caught:
            await app.memory.remember(workspace.user("ann"), copy(text))
        assert caught.value.errors[0].field == "text"
        [good, bad] = await app.memory.remember_all(workspace.user("ann"), [copy("short"), copy(text)])
        assert good.remembered is not None
        head = good.remembered.position
        assert [(error.field, error.code) for error in bad.errors] == [("text", "repeats_canon")]
    assert await app.ledger.heads.read(workspace.workspace_id) == head


ACCENTED = (
    "Les modifications refusées à la barrière de conformité doivent être révisées et signées par deux équipiers "
    "expérimentés, après vérification."
)


@pytest.mark.parametrize("sign", ["\u034f", "\u200d", ""], ids=ascii)
async def test_what_stands_between_a_letter_and_its_accent_does_not_part_them(
    app: App, workspace: Workspace, sign: str
) -> None:
    await app.memory.set_rule(workspace.admin, "w1", "R-13", ACCENTED)
    parted = "".join(
        f"{sign}{mark}" if unicodedata.combining(mark) else mark for mark in unicodedata.normalize("NFD", ACCENTED)
    )
    with pytest.raises(RepeatsCanon, match="rule R-13"):
        await app.memory.remember(workspace.user("ann"), copy(parted))
    told = [await app.memory.remember(workspace.user("ann"), copy(text, world=None)) for text in (ACCENTED, parted)]
    assert [one.status for one in told] == ["stored", "reinforced" if sign != "\u034f" else "stored"]


async def test_no_setting_of_a_session_switches_the_guard_off(workspace: Workspace, raw_app: Connection) -> None:
    with raw_app.transaction(force_rollback=True):
        raw_app.execute("SET LOCAL ROLE whence_workspace")
        raw_app.execute("SELECT set_config('app.workspace_id', %s, true)", [workspace.workspace_id])
        # None of them is a copy, and all of them share its trigrams.
        raw_app.execute(
            "INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at) "
            "SELECT %s, 'w1', i::text, CASE i WHEN 0 THEN %s ELSE %s || md5(i::text) || md5((i+1)::text) "
            "|| md5((i+2)::text) END, now() FROM generate_series(0, 3000) i",
            [workspace.workspace_id, RULE, RULE],
        )
        raw_app.execute("SET LOCAL gin_fuzzy_search_limit = 1")
        found = raw_app.execute("SELECT rule_id FROM whence.canon_repeated(ARRAY['w1'], ARRAY[%s])", [RULE]).fetchall()
    assert found == [("0",)]


async def test_a_blank_rule_is_refused(app: App, workspace: Workspace) -> None:
    for body in ("  ", "\u200b"):
        with pytest.raises(InvalidInput, match="body: must not be blank"):
            await app.memory.set_rule(workspace.admin, "w1", "R-12", body)


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


UNSEEN = ("\x01", "\x1b", "\x9f", "\u200b", "\u00ad", "\u2060", "\ufe0f", "\u034f", "\u3164", "\U000e0041")


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
    importance, valid_at, recorded_at, world_id_context, session_id, interaction_id)
VALUES (%(workspace)s, gen_random_uuid(), 1, '', 'a', 'gateway', %(tier)s, %(kind)s, %(body)s,
    sha256(uuid_send(gen_random_uuid())), 0.5, now(), now(), %(world)s, 's', 'i')
"""


@pytest.mark.parametrize("tier", ["interaction", "session", "persistent"])
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
    owner.execute(INSERT, {**values, "kind": "episodic", "body": RULE})
    owner.execute(INSERT, {**values, "world": "w2", "body": RULE})
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        owner.execute("UPDATE whence.memories SET body = %s WHERE length(body) = 99", (RULE,))
    assert caught.value.sqlstate == "23514"


async def test_what_is_85_hundredths_alike_passes_and_what_is_more_does_not(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    """A rule of 180 trigrams, and texts that have 152, 153 and 154 of them and no other."""
    words = [f"{letters}{number}" for number, letters in enumerate(map("".join, permutations("qxzjvk", 3)), 100)][:40]
    rule, dice = " ".join(words), random.Random(3)
    lacking = [set(dice.sample(words, count)) for count in range(4, 12) for _ in range(90)]
    texts = [" ".join(word for word in words if word not in some) for some in lacking]
    found = owner.execute("SELECT similarity(%s, t)::float8, t FROM unnest(%s::text[]) t", (rule, texts)).fetchall()
    alike = {round(180 * similarity, 3): text for similarity, text in found}
    await app.memory.set_rule(workspace.admin, "w1", "R-40", rule)
    for trigrams in (152, 153):
        assert (await app.memory.remember(workspace.user("ann"), copy(alike[trigrams]))).status == "stored"
    with pytest.raises(RepeatsCanon, match="rule R-40"):
        await app.memory.remember(workspace.user("ann"), copy(alike[154]))


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


def superuser_of(postgres: EmbeddedServer) -> psycopg.Connection:
    password = (postgres.data_dir / f"{SUPERUSER}.password").read_text()
    return psycopg.connect(make_conninfo(postgres.owner_conninfo, user=SUPERUSER, password=password), autocommit=True)


async def test_whom_row_level_security_does_not_bind_the_guard_does(
    app: App, workspace: Workspace, postgres: EmbeddedServer
) -> None:
    await with_rule(app, workspace)
    values = {"workspace": workspace.workspace_id, "tier": "persistent", "kind": "semantic", "world": "w1"}
    with superuser_of(postgres) as superuser:
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


async def test_rules_of_other_workspaces_are_not_read(
    app: App, workspace: Workspace, postgres: EmbeddedServer, owner: Connection
) -> None:
    """However many have loaded the same ones: who has none waits for none, and learns nothing by waiting."""
    with superuser_of(postgres) as superuser, superuser.transaction(force_rollback=True):
        superuser.execute(
            "INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at) "
            "SELECT CASE n WHEN 0 THEN %s ELSE 'other-' || n END, 'w1', 'R-12', %s, now() "
            "FROM generate_series(0, 5000) n",
            [workspace.workspace_id, RULE],
        )
        superuser.execute("ANALYZE whence.canon_rules")
        superuser.execute("SET LOCAL ROLE whence_owner")
        plan = [line for (line,) in superuser.execute(question(superuser, workspace.workspace_id)).fetchall()]
    assert any("Bitmap Index Scan on canon_rules_alike (actual rows=1" in line for line in plan), plan


def question(conn: Connection, workspace_id: str) -> bytes:
    """The guard's own, as it stands in the function, with the function's settings."""
    found = conn.execute("SELECT prosrc, proconfig FROM pg_proc WHERE proname = 'repeated_rule'").fetchone()
    assert found is not None
    source, settings = found
    for setting in settings:
        name, _, value = setting.partition("=")
        conn.execute(f"SET {name} = {value}")
    query = source[source.index("SELECT r.rule_id") : source.index("LIMIT 1") + len("LIMIT 1")]
    query = query.replace("INTO rule_id, alike", "").replace("in_world", "'w1'")
    query = query.replace("in_workspace", f"'{workspace_id}'").replace(" read", f" '{RULE}'")
    return f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS OFF) {query}".encode()


async def test_the_guard_uses_the_trigram_index(app: App, workspace: Workspace, owner: Connection) -> None:
    """Among many rules that are made of the same few words."""
    await with_rule(app, workspace)
    as_workspace(owner, workspace.workspace_id)
    words, dice = RULE.lower().rstrip(".").split(), random.Random(4)
    rules = [" ".join(dice.choices(words, k=20)) for _ in range(10_000)]
    owner.execute(
        """INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at)
           SELECT %s, 'w1', 'R-' || 100 + n, body, now() FROM unnest(%s::text[]) WITH ORDINALITY t (body, n)""",
        (workspace.workspace_id, rules),
    )
    owner.execute("RESET ROLE")
    owner.execute("ANALYZE whence.canon_rules")
    asked = question(owner, workspace.workspace_id)
    plan = [line for (line,) in owner.execute(asked).fetchall()]
    assert any("Bitmap Index Scan on canon_rules_alike" in line for line in plan), plan
    assert owner.execute(asked[asked.index(b"SELECT") :]).fetchall() == [("R-12", 1.0)]


def fact(text: str, where: str = "signed", agent: str = "sdr") -> Remember:
    said = Fact("a refused change", "is", where)
    return msgspec.structs.replace(copy(text), agent=agent, fact=said)


@pytest.mark.parametrize("agent", ["sdr", "gateway"])
async def test_what_is_told_again_does_not_repeat_a_rule_in_other_words(
    app: App, workspace: Workspace, agent: str
) -> None:
    """It would be kept as said, and be a row of its own when whoever told it first is erased."""
    await with_rule(app, workspace)
    ann, bob = workspace.user("ann"), workspace.user("bob" if agent == "sdr" else "ann")
    first = await app.memory.remember(ann, fact("it is signed", agent=agent))
    with pytest.raises(RepeatsCanon, match=r"^text: repeats a rule of its world: rule R-12, 1.00 alike$"):
        await app.memory.remember(bob, fact(RULE, agent=agent))
    assert (await app.memory.get(ann.scope, first.memory_id)).told_count == 1
    assert (await app.memory.remember(bob, fact(RULE[:99], agent=agent))).status == "reinforced"
    assert (await app.erasures.erase(workspace.admin, "ann")).settled
    left = (await app.memory.page(bob.scope, Recall(agent=agent))).memories
    assert [memory.text for memory in left] == ([RULE[:99]] if agent == "sdr" else [])


async def test_what_an_older_guard_let_pass_is_left_out_and_keeps_nobody_from_being_erased(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    await with_rule(app, workspace)
    ann, carl = workspace.user("ann"), workspace.user("carl")
    owner.execute("ALTER TABLE whence.memories DISABLE TRIGGER memories_canon")
    try:
        passed = await app.memory.remember(ann, copy())
    finally:
        owner.execute("ALTER TABLE whence.memories ENABLE TRIGGER memories_canon")
    others = [await app.memory.remember(ann, copy(f"note {number}")) for number in range(3)]
    await app.memory.remember(carl, copy("of carl"))
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert (report.refused, report.equal) == (1, False)
    assert (await app.erasures.erase(workspace.admin, "carl")).settled
    with pytest.raises(NotFound):
        await app.memory.get(ann.scope, passed.memory_id)
    kept = (await app.memory.page(ann.scope, Recall())).memories
    assert {memory.memory_id for memory in kept} == {other.memory_id for other in others}
    again = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert (again.refused, again.equal) == (1, True)
    page = await app.ledger.page(workspace.admin.scope, 0, 10, Filter(event_type="system.memory_left_out"))
    [told] = page.events
    assert json.loads(await app.ledger.payload(workspace.admin.scope, told.event_id)) == {
        "memory": {"effect": "leave_out", "event_id": str(told.event_id), "count": 1},
        "left_out": [str(passed.event_id)],
    }
    with pytest.raises(NotFound):
        await app.ledger.get(ann.scope, told.event_id)
