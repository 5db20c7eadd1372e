"""What is remembered, how it changes, and why it is believed."""

import asyncio
import time
import uuid
from datetime import UTC, datetime, timedelta
from itertools import pairwise, permutations
from typing import Any, LiteralString

import msgspec
import pytest
from psycopg import Connection

from conftest import Workspace
from samples import event
from whence.app import App, open_app
from whence.db import Scope
from whence.errors import Conflict, Forbidden, InvalidInput, NotFound, Overloaded, Unavailable
from whence.graph import Bounds
from whence.identity import Principal
from whence.ledger import coalesce
from whence.ledger.append import _ENCODED
from whence.ledger.effects import Plain, Remembering, Told
from whence.ledger.payloads import canonical
from whence.memory import _SQL, MAX_HISTORY, PART_MEMORIES, explaining
from whence.memory.profiles import Profiles
from whence.memory.rebuild import rebuild
from whence.memory.writing import MAX_EMBEDDING_COMPONENTS, Document, keys_between, unit_given, units_given
from whence.wire import Fact, Feedback, Kind, Recall, RecallFilters, Remember, Remembered, StoredMemory


def note(text: str = "the customer likes tea", **more: Any) -> Remember:
    return Remember(**{"agent": "gateway", "tier": "persistent", "kind": "semantic", "text": text, **more})


def lives(where: str, **more: Any) -> Remember:
    confidence = more.pop("confidence", 0.6)
    return note(f"Ann lives in {where}", fact=Fact("Ann", "lives in", where, confidence), **more)


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


async def current(app: App, workspace: Workspace, **asked: Any) -> list[StoredMemory]:
    return (await app.memory.page(workspace.user("ann").scope, Recall(**asked))).memories


async def test_a_memory_is_there_when_the_call_returns_and_its_event_is_in_the_ledger(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    done = await app.memory.remember(ann, note(session_id="s1"))
    assert done.status == "stored"
    kept = await app.memory.get(ann.scope, done.memory_id)
    assert (kept.text, kept.user_id, kept.said_by, kept.position) == (
        "the customer likes tea",
        "ann",
        "ann",
        done.position,
    )
    stored = await app.ledger.get(ann.scope, done.event_id)
    assert (stored.event_type, stored.session_id, stored.agent_id) == ("memory.remembered", "s1", "gateway")
    assert b"the customer likes tea" in await app.ledger.payload(ann.scope, done.event_id)


@pytest.mark.parametrize(
    "told",
    [
        note("plain"),
        note("with everything", session_id="s1", subject_id="bob", importance=0.25, embedding=(0.5, 1.0)),
        lives("Zürich", valid_at=day(3), world_id_context="w1"),
        note("write to a@example.com", kind="episodic"),
        note("how to ship", kind="procedural", key="Release"),
    ],
)
async def test_what_a_memory_says_is_committed_to_as_an_auditor_would(
    app: App, workspace: Workspace, told: Remember
) -> None:
    done = await app.memory.remember(workspace.user("ann"), told)
    payload = await app.ledger.payload(workspace.user("ann").scope, done.event_id)
    assert payload == canonical(payload)


async def test_a_text_in_a_world_is_not_the_text_that_names_the_world(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    first = await app.memory.remember(ann, note("tea", world_id_context="house"))
    other = await app.memory.remember(ann, note("tea house"))
    assert (first.status, other.status) == ("stored", "stored")


async def test_a_procedure_is_shown_with_what_it_is_for(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    done = await app.memory.remember(ann, note("tag, then push", kind="procedural", key="release"))
    assert (await app.memory.get(ann.scope, done.memory_id)).key == "release"
    spelt = await app.memory.remember(ann, note("boil, then wait", kind="procedural", key="  Brew   TEA "))
    assert (await app.memory.get(ann.scope, spelt.memory_id)).key == "brew tea"


@pytest.mark.parametrize("asked", ["all", "a subject", "whether there is much of it", "a run"])
@pytest.mark.parametrize("who", ["ann", None])
async def test_a_page_is_read_by_the_index_and_not_by_looking_at_all(
    app: App, workspace: Workspace, who: str | None, asked: str
) -> None:
    """Before anybody has analysed the table, when the planner knows least."""
    ann = workspace.user("ann")
    run = (await app.runs.start(ann, "gateway", "one")).run_id
    for start in range(0, 600, 100):
        notes = [
            note(f"note {number}", embedding=(1.0, 0.0), fact=Fact(f"thing {number}", "is", "here"))
            for number in range(start, start + 100)
        ]
        await app.memory.remember_all(workspace.user("bob"), notes)
        notes[0] = msgspec.structs.replace(notes[0], run_id=run)
        await app.memory.remember_all(ann, notes)
    scope = Scope(workspace.workspace_id, who)
    if asked == "all":
        name, more = "memories_held" if who is None else "memories_held_by_user", {}
    elif asked != "a run":
        name = "facts_held" if asked == "a subject" else "facts_to_read"
        name += "" if who is None else "_by_user"
        first, last = keys_between("Thing 7", None)
        more = {"subject": "Thing 7", "subject_key": "thing 7", "from_key": first, "to_key": last, "most": 2_001}
    else:
        name, more = "memories_held_of_run", {"run_id": run}
    unasked = ("agent", "tiers", "kinds", "session_id", "sessions", "beginnings", "run_id", "known_at")
    facts = ("subject", "subject_key", "predicate", "predicate_key")
    filters = ("speaker", "role", "world", "since", "until")
    values = dict.fromkeys((*unasked, *facts, *filters)) | {
        "workspace_id": workspace.workspace_id,
        "user_id": who,
        "as_of": datetime.now(UTC),
        "before": 1 << 62,
        "limit": 5,
    }
    values |= more
    async with app.database.transaction(scope) as tx:
        [[plan]] = await (await tx.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + _SQL[name], values)).fetchall()
    assert most_rows(plan[0]["Plan"]) <= 10, plan


def most_rows(node: dict[str, Any]) -> float:
    """That any step of a plan has read, with those that it then left out."""
    read = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
    return max([read, *map(most_rows, node.get("Plans", []))])


async def test_the_same_text_is_told_twice_and_stored_once(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    first = await app.memory.remember(ann, note())
    again = await app.memory.remember(ann, note("The customer  likes TEA"))
    assert (again.status, again.memory_id) == ("reinforced", first.memory_id)
    [kept] = await current(app, workspace)
    assert kept.told_count == 2


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        (["tea", "milk", "Tea"], ["stored", "stored", "reinforced"]),
        (["sugar", "known", "Sugar", "honey"], ["stored", "reinforced", "reinforced", "stored"]),
        (["known", "known"], ["reinforced", "reinforced"]),
    ],
)
async def test_of_a_batch_that_repeats_itself_or_what_is_known_each_text_is_stored_once(
    app: App, workspace: Workspace, texts: list[str], status: list[str]
) -> None:
    ann = workspace.user("ann")
    known = await app.memory.remember(ann, note("known"))
    told = [item.remembered for item in await app.memory.remember_all(ann, [note(text) for text in texts])]
    assert [done.status for done in told if done] == status
    assert [done.position for done in told if done] == [known.position + n + 1 for n in range(len(texts))]
    held = {kept.text.lower(): kept for kept in await current(app, workspace)}
    assert {text: kept.told_count for text, kept in held.items()} == {
        text: [*map(str.lower, texts), "known"].count(text) for text in {*map(str.lower, texts), "known"}
    }
    assert [done.memory_id for done in told if done] == [held[text.lower()].memory_id for text in texts]
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal


async def test_what_is_told_again_takes_two_trips_and_what_is_new_one(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips: list[list[str]] = []
    one_trip = app.database.one_trip

    async def counted(scope: Scope, statements: Any) -> Any:
        made = list(statements)
        trips.append([said[0].name.decode() for said in made if said is not None])
        return await one_trip(scope, made)

    monkeypatch.setattr(app.database, "one_trip", counted)
    for text in ("tea", "tea", "milk"):
        await app.memory.remember(workspace.user("ann"), note(text))
    plain = ["whence_take_positions", "whence_remember_plain_one"]
    documents = ["whence_take_positions", "whence_append_sealed_one", "whence_apply_effects"]
    assert trips == [plain, plain, documents, plain]


def test_vectors_that_are_given_together_are_what_each_is_by_itself() -> None:
    given = [tuple(float((7 * n * k + k) % 23 - 11) for k in range(1, 65)) for n in range(1, 40)]
    together = units_given(given)
    assert [unit.tobytes() for unit in together if unit is not None] == [unit_given(each).tobytes() for each in given]
    for odd in (None, (), (1.0,), (0.0,) * 64, (float("nan"),) * 64, (float("inf"),) * 64):
        assert units_given([*given, odd]) == [None] * (len(given) + 1)
    assert units_given([(1.0,) * 5_000] * 2) == [None, None]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-323, 1e-320, 1e-300, 1e-180, 1e-161, 1e160, 1e300])
def test_vectors_of_very_large_and_very_small_numbers_point_somewhere_too(scale: float) -> None:
    given = (3.0 * scale, 4.0 * scale)
    assert unit_given(given).tolist() == unit_given((3.0, 4.0)).tolist()
    assert units_given([given, (1.0, 2.0)]) == [None, None]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_vector_is_refused(number: float) -> None:
    for given in ((number,), (0.0, number), (number, 0.0), (1e308, number, 1e308) if number else (0.0,) * 3):
        with pytest.raises(InvalidInput, match="embedding: must be finite and not all zero"):
            unit_given(given)
    assert unit_given((1e308,) * 16).tolist() == [0.25] * 16


async def test_the_longest_vector_of_whoever_has_the_longest_names_is_kept_and_made_again(app: App) -> None:
    name = f"w-{uuid.uuid4().hex[:12]}".ljust(64, "x")
    longest = Workspace(name, await app.identity.add_workspace(name)).user("u" * 128)
    numbers = tuple(float(n % 97 + 1) for n in range(MAX_EMBEDDING_COMPONENTS))
    for size in (MAX_EMBEDDING_COMPONENTS, 4_050, 3_000):
        alone = await app.memory.remember(longest, note(f"alone, {size}", embedding=numbers[:size]))
        assert alone.status == "stored"
        batch = [note(f"with others, {size}, {n}", embedding=numbers[:size]) for n in range(2)]
        assert all(item.remembered for item in await app.memory.remember_all(longest, batch))
    report = await rebuild(app.database, app.ledger, app.memory, name, True, lambda *_: None)
    assert report.equal


PLAIN: list[list[Remember]] = [
    [note("alone")],
    [note("minus nothing alone", importance=-0.0)],
    [note("alone, with a vector", embedding=(3.0, 4.0))],
    [note(f"alike {n}", embedding=(1.0, float(n))) for n in range(3)],
    [
        note("happened", kind="episodic"),
        note("write to a@example.com", importance=0.25),
        note("minus nothing", importance=-0.0),
        note("since then", valid_at=day(3), world_id_context="w1"),
        note("about Bob", subject_id="bob", speaker="Bob", role="user", embedding=(1.0,)),
        note("about Bob", subject_id="carl"),
        note("of another agent", agent="concierge"),
        note("of the workspace", agent="sdr"),
    ],
    [note("in a thread", interaction_id="i1"), note("in a session", session_id="s1"), note("in neither")],
]


@pytest.mark.parametrize("told", PLAIN)
async def test_a_memory_that_is_only_to_be_stored_is_what_its_document_makes_of_it(
    app: App, owner: Connection, monkeypatch: pytest.MonkeyPatch, told: list[Remember]
) -> None:
    rows: list[Any] = []
    for way in ("columns", "documents"):
        name = f"w-{uuid.uuid4().hex[:12]}"
        workspace = Workspace(name, await app.identity.add_workspace(name))
        if way == "documents":
            monkeypatch.setattr(Remembering, "of", lambda *_: None)
        done = await app.memory.remember_all(workspace.user("ann"), told)
        assert all(item.remembered and item.remembered.status == "stored" for item in done), done
        rows.append(stored_rows(owner, workspace.workspace_id))
        report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
        assert report.equal
    assert len(rows[0][0]) == len(told)
    assert rows[0] == rows[1]


def test_every_field_of_a_document_is_in_a_column_or_keeps_it_from_being_plain() -> None:
    """What had neither would be in the payload, and in the row only after a replay."""
    columns = {*Told._fields, *Plain._fields} - {"told"}
    of_its_event = {"agent": "agent_id", "subject_id": "payload_subject", "event_id": "event_id"}
    named = {"user_id": "memory_user", "sources": "teller"}
    kept_from = {"conflict_key", "session_id", "interaction_id", "run_id", "fact_subject"}
    never_alone = {"object_key", "fact_object", "fact_predicate", "confidence", "item", "ttl_s", "idle_days", "support"}
    told_by_path = {"effect", "conflict"}
    for field in Document.__struct_fields__:
        places = [
            named.get(field, field) in columns,
            of_its_event.get(field) in _ENCODED,
            field in kept_from | never_alone | told_by_path,
        ]
        assert places.count(True) == 1, field


def stored_rows(owner: Connection, workspace_id: str) -> tuple[list[Any], ...]:
    """Of memories, vectors and payloads, without ids and times that are made anew each time."""
    made = ["workspace_id", "memory_id", "recorded_at", "key_id", "ciphertext"]
    with owner.transaction():
        owner.execute("SET LOCAL ROLE whence_workspace")
        owner.execute("SELECT set_config('app.workspace_id', %s, true)", (workspace_id,))
        return tuple(
            [row[0] for row in owner.execute(query, (made,)).fetchall()]
            for query in (
                """SELECT to_jsonb(m) - %s::text[] || jsonb_build_object('valid_at', nullif(m.valid_at, m.recorded_at))
                   FROM whence.memories m ORDER BY position""",
                """SELECT to_jsonb(v) - %s::text[] FROM whence.memory_vectors v
                   JOIN whence.memories m USING (workspace_id, memory_id) ORDER BY m.position""",
                "SELECT to_jsonb(p) - %s::text[] FROM whence.payloads p ORDER BY global_position",
            )
        )


async def test_episodes_accumulate(app: App, workspace: Workspace) -> None:
    for _ in range(3):
        await app.memory.remember(workspace.user("ann"), note("said hello", kind="episodic"))
    assert len(await current(app, workspace)) == 3


async def test_a_new_fact_ends_the_old_one_and_both_are_kept(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    rome = await app.memory.remember(ann, lives("Rome", valid_at=day(1)))
    oslo = await app.memory.remember(ann, lives("Oslo", valid_at=day(5)))
    assert oslo.superseded == (rome.memory_id,)
    assert [kept.text for kept in await current(app, workspace)] == ["Ann lives in Oslo"]
    old = await app.memory.get(ann.scope, rome.memory_id)
    assert (old.invalid_at, old.invalidated_by, old.superseded_at) == (day(5), oslo.memory_id, None)
    for moment, where in ((day(1), "Rome"), (day(4), "Rome"), (day(5), "Oslo"), (day(30), "Oslo")):
        assert [kept.text for kept in await current(app, workspace, as_of=moment)] == [f"Ann lives in {where}"]
    assert await current(app, workspace, as_of=day(1) - timedelta(seconds=1)) == []


@pytest.mark.parametrize(
    ("subject", "predicate"),
    [
        ("ANN", "Lives In"),
        ("  Ann\u00a0", "lives \t\n in"),
        ("A\x01nn\x1b", "\x07lives \x7fin"),
        ("A\u200bn\u00adn\ufeff", "\u2067lives\u2069 in\u200d"),
        ("\uff21\uff4e\uff4e", "lives\u3000in"),
    ],
)
async def test_facts_that_only_look_different_are_about_the_same_and_keep_how_they_were_told(
    app: App, workspace: Workspace, subject: str, predicate: str
) -> None:
    ann = workspace.user("ann")
    rome = await app.memory.remember(ann, lives("Rome"))
    oslo = await app.memory.remember(ann, note("moved", fact=Fact(subject, predicate, "Oslo")))
    assert oslo.superseded == (rome.memory_id,)
    [kept] = await current(app, workspace, subject="ann", predicate="lives in")
    assert kept.fact is not None
    assert (kept.fact.subject, kept.fact.predicate) == (subject, predicate)
    assert await current(app, workspace, subject=subject, predicate=predicate) == [kept]


@pytest.mark.parametrize("blank", [" ", "\x01", "\u200b", " \u2060\u00a0\ufeff\t"])
async def test_a_name_of_which_nothing_is_seen_is_refused_by_its_field(
    app: App, workspace: Workspace, blank: str
) -> None:
    ann = workspace.user("ann")
    for field, fact in (
        ("fact.subject", Fact(blank, "lives in", "Rome")),
        ("fact.predicate", Fact("Ann", blank, "Rome")),
        ("fact.object", Fact("Ann", "lives in", blank)),
    ):
        with pytest.raises(InvalidInput, match=f"{field}: must not be blank"):
            await app.memory.remember(ann, note(fact=fact))
    with pytest.raises(InvalidInput, match="subject: must not be blank"):
        await current(app, workspace, subject=blank)


async def test_facts_follow_one_another_in_time_whatever_the_order_of_learning(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for number, where in ((5, "Oslo"), (1, "Rome"), (3, "Bern")):
        await app.memory.remember(ann, lives(where, valid_at=day(number)))
    [kept] = await current(app, workspace)
    history = (await app.memory.history(ann.scope, kept.memory_id)).memories
    assert [(memory.text[13:], memory.valid_at, memory.invalid_at) for memory in history] == [
        ("Rome", day(1), day(3)),
        ("Bern", day(3), day(5)),
        ("Oslo", day(5), None),
    ]


@pytest.mark.parametrize(("order", "holds"), [((1, 15, 8), "Oslo"), ((1, 8, 15), "Rome")])
async def test_a_telling_that_agrees_is_counted_and_no_moment_of_its_own(
    app: App, workspace: Workspace, order: tuple[int, ...], holds: str
) -> None:
    where = {1: "Rome", 8: "Oslo", 15: "Rome"}
    for number in order:
        await app.memory.remember(workspace.user("ann"), lives(where[number], valid_at=day(number)))
    assert [kept.text for kept in await current(app, workspace, as_of=day(20))] == [f"Ann lives in {holds}"]


async def test_a_history_is_read_page_by_page(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for number in (5, 1, 3, 4, 2):
        done = await app.memory.remember(ann, lives(f"Town {number}", valid_at=day(number)))
    pages, after = [], None
    while not pages or after is not None:
        page = await app.memory.history(ann.scope, done.memory_id, after, 2)
        pages.append([memory.text[-1] for memory in page.memories])
        after = page.next
    assert pages == [["1", "2"], ["3", "4"], ["5"]]
    whole = await app.memory.history(ann.scope, done.memory_id, limit=5)
    assert whole.next is None
    plain = await app.memory.remember(ann, note())
    assert [memory.memory_id for memory in (await app.memory.history(ann.scope, plain.memory_id)).memories] == [
        plain.memory_id
    ]
    for memory_id, last in ((done.memory_id, whole.memories[-1].position), (plain.memory_id, plain.position)):
        assert (await app.memory.history(ann.scope, memory_id, last)).memories == []
    for limit in (0, MAX_HISTORY + 1):
        with pytest.raises(InvalidInput, match="limit: from 1 to 1000"):
            await app.memory.history(ann.scope, done.memory_id, limit=limit)


async def test_what_was_known_earlier_can_be_asked_for(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await app.memory.remember(ann, lives("Rome", valid_at=day(1)))
    then = app.clock()
    await app.memory.remember(ann, lives("Oslo", valid_at=day(5)))
    assert [kept.text for kept in await current(app, workspace, known_at=then)] == ["Ann lives in Rome"]
    assert [kept.text for kept in await current(app, workspace)] == ["Ann lives in Oslo"]


async def test_sources_that_agree_raise_the_confidence_and_one_that_repeats_itself_does_not(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    first = await app.memory.remember(ann, lives("Rome", session_id="s1", confidence=0.6))
    for session, expected in (("s1", 0.6), ("s2", 0.8), ("s2", 0.8), ("s3", 0.9)):
        await app.memory.remember(ann, lives("rome", session_id=session, confidence=0.5))
        fact = (await app.memory.get(ann.scope, first.memory_id)).fact
        assert fact is not None
        assert fact.confidence == pytest.approx(expected)


async def test_what_was_known_earlier_is_as_sure_as_it_was_then(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    sources = [(await app.memory.remember(ann, note(f"heard {number}"))).memory_id for number in range(2)]
    moments: list[tuple[datetime, float | None]] = []
    for more in (
        {"session_id": "s1", "confidence": 0.6},
        {"session_id": "s1", "confidence": 0.9},
        {"derived_from": tuple(sources), "confidence": 0.5},
        {"session_id": "s2", "confidence": 1.0},
        {"session_id": "s3", "confidence": 0.3},
    ):
        await app.memory.remember(ann, lives("Rome", **more))
        [kept] = await current(app, workspace, subject="Ann")
        assert kept.fact is not None
        moments.append((app.clock(), kept.fact.confidence))
    assert [confidence for _, confidence in moments] == [0.6, 0.6, 0.8, 1.0, 1.0]
    for moment, confidence in moments:
        for asked in (Recall(subject="Ann", known_at=moment), Recall(known_at=moment, kinds=("semantic",))):
            for found in (
                (await app.memory.page(ann.scope, asked)).memories,
                (await app.recaller.recall(ann, asked)).hits,
            ):
                assert [kept.fact.confidence for kept in found if kept.fact] == [confidence]


async def test_a_procedure_takes_the_place_of_the_one_with_its_key(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    old = await app.memory.remember(ann, note("ask first", kind="procedural", key="Releases"))
    new = await app.memory.remember(ann, note("announce, then ask", kind="procedural", key="releases"))
    assert new.superseded == (old.memory_id,)
    [kept] = await current(app, workspace, kinds=("procedural",))
    assert kept.text == "announce, then ask"
    gone = await app.memory.get(ann.scope, old.memory_id)
    assert gone.superseded_by == new.memory_id
    assert gone.superseded_at is not None
    assert gone.invalid_at is None


@pytest.mark.parametrize("same", [True, False])
async def test_writers_that_race_leave_one_current_row_and_a_whole_history(
    app: App, workspace: Workspace, same: bool
) -> None:
    """By two servers, each of which stores what waits together."""
    ann = workspace.user("ann")
    places = ["Rome"] * 24 if same else [f"Town {number}" for number in range(24)]
    async with open_app(app.settings) as other:
        done = await asyncio.gather(
            *((app, other)[number % 2].memory.remember(ann, lives(place)) for number, place in enumerate(places))
        )
    held = await current(app, workspace)
    assert len(held) == 1
    history = (await app.memory.history(ann.scope, held[0].memory_id)).memories
    assert {memory.memory_id for memory in history} == {one.memory_id for one in done}
    assert len(history) == (1 if same else 24)
    assert [memory for memory in history if memory.invalid_at is None] == held
    for before, after in pairwise(history):
        assert before.invalid_at == after.valid_at
    if same:
        assert held[0].told_count == 24


async def two_that_interleave(
    app: App, workspace: Workspace, owner: Connection, first: Remember, second: Remember
) -> tuple[Remembered, Remembered]:
    """Two servers on one database: the first writer is held up by `owner` after its event and before its commit, when
    the second one begins."""
    ann = workspace.user("ann")

    async def until_held_up(writers: int) -> None:
        deadline = time.monotonic() + 20
        while owner.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchall() != [(writers,)]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    async with open_app(app.settings) as other:
        one = asyncio.create_task(app.memory.remember(ann, first))
        await until_held_up(1)
        two = asyncio.create_task(other.memory.remember(ann, second))
        await until_held_up(2)
        owner.rollback()
        return await one, await two


def begin(owner: Connection, workspace: Workspace) -> None:
    owner.autocommit = False
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")


@pytest.mark.parametrize("kind", ["semantic", "procedural"])
@pytest.mark.parametrize("same", [True, False])
async def test_two_writers_that_interleave_end_with_one_current_row_and_a_whole_history(
    app: App, workspace: Workspace, owner: Connection, same: bool, kind: Kind
) -> None:
    def said(where: str, number: int) -> Remember:
        if kind == "semantic":
            return lives(where, valid_at=day(number), confidence=0.5)
        return note(f"ask {where}", kind="procedural", key="releases")

    rome = await app.memory.remember(workspace.user("ann"), said("Rome", 1))
    begin(owner, workspace)
    owner.execute("SELECT 1 FROM whence.memories WHERE memory_id = %s FOR UPDATE", (rome.memory_id,))
    one, two = await two_that_interleave(
        app, workspace, owner, said("Oslo", 2), said("Oslo" if same else "Bern", 2 if same else 3)
    )
    assert one.superseded == (rome.memory_id,)
    [held] = await current(app, workspace)
    history = (await app.memory.history(workspace.user("ann").scope, held.memory_id)).memories
    if same:
        assert (two.status, two.memory_id, two.superseded) == ("reinforced", one.memory_id, ())
        assert [memory.memory_id for memory in history] == [rome.memory_id, one.memory_id]
        assert held.told_count == 2
        assert held.fact is None or held.fact.confidence == 0.5
    else:
        assert two.superseded == (one.memory_id,)
        assert [memory.memory_id for memory in history] == [rome.memory_id, one.memory_id, two.memory_id]
    assert held.memory_id == history[-1].memory_id
    for before, after in pairwise(history):
        if kind == "semantic":
            assert (before.invalid_at, before.invalidated_by) == (after.valid_at, after.memory_id)
        else:
            assert (before.superseded_at, before.superseded_by) == (after.recorded_at, after.memory_id)
    if kind == "semantic":
        places = ["Rome", "Oslo", "Oslo" if same else "Bern"]
        for number, place in enumerate(places, 1):
            [then] = await current(app, workspace, as_of=day(number) + timedelta(hours=1))
            assert then.text == f"Ann lives in {place}"


async def test_two_writers_that_interleave_store_a_text_once(app: App, workspace: Workspace, owner: Connection) -> None:
    """A row that is not committed has the text that both tell: the first one waits for what becomes of it."""
    await app.memory.remember(workspace.user("bob"), note("tea"))
    begin(owner, workspace)
    owner.execute(
        """INSERT INTO whence.memories (workspace_id, memory_id, position, user_id, subject_id, agent, profile, tier,
               kind, body, body_hash, importance, valid_at, recorded_at)
           SELECT workspace_id, gen_random_uuid(), 100, 'ann', 'ann', agent, profile, tier, kind, body, body_hash,
               importance, valid_at, recorded_at FROM whence.memories WHERE user_id = 'bob'"""
    )
    one, two = await two_that_interleave(app, workspace, owner, note("tea"), note("Tea "))
    assert (one.status, two.status, two.memory_id) == ("stored", "reinforced", one.memory_id)
    [held] = await current(app, workspace)
    assert (held.memory_id, held.told_count) == (one.memory_id, 2)


async def test_a_sender_that_sends_again_is_told_what_became_of_it(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    chosen = uuid.uuid4()
    first = await app.memory.remember(ann, note(memory_id=chosen))
    assert await app.memory.remember(ann, note(memory_id=chosen)) == first
    [kept] = await current(app, workspace)
    assert kept.told_count == 1
    for other in (note("something else"), note(importance=0.9), note(session_id="s"), note(kind="episodic")):
        with pytest.raises(Conflict):
            await app.memory.remember(ann, msgspec.structs.replace(other, memory_id=chosen))
    items = await app.memory.remember_all(ann, [note("one"), note("two", memory_id=chosen), note("three")])
    assert [item.errors[0].field if item.errors else None for item in items] == [None, "memory_id", None]


@pytest.mark.parametrize(
    "payload",
    [b"[1]", b'"x"', b"5", b'{"memory":"x"}', b'{"memory":{"sources":[1]}}', b'{"memory":{"sources":[]}}', None],
)
async def test_an_id_of_an_event_that_told_no_memory_is_taken(
    app: App, workspace: Workspace, payload: bytes | None
) -> None:
    ann, sent = workspace.user("ann"), event(**({} if payload is None else {"payload": msgspec.Raw(payload)}))
    [outcome] = await app.ledger.append(ann, [sent])
    assert outcome.status == "accepted"
    items = await app.memory.remember_all(ann, [note("one"), note("two", memory_id=sent.event_id), note("three")])
    assert [item.errors[0].field if item.errors else None for item in items] == [None, "memory_id", None]
    assert {kept.text for kept in await current(app, workspace)} == {"one", "three"}


async def test_what_is_sent_again_with_another_embedding_is_something_else(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    said = note("given", memory_id=uuid.uuid4(), embedding=(3.0, 4.0))
    first = await app.memory.remember(ann, said)
    assert await app.memory.remember(ann, said) == first
    for embedding in ((4.0, 3.0), None):
        with pytest.raises(Conflict):
            await app.memory.remember(ann, msgspec.structs.replace(said, embedding=embedding))


async def test_a_sender_that_sends_again_is_told_again_what_was_taken_out(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    said = note("pay with 4111 1111 1111 1111", memory_id=uuid.uuid4())
    first = await app.memory.remember(ann, said)
    assert first.sanitised == {"card": 1}
    assert await app.memory.remember(ann, said) == first


@pytest.mark.parametrize("said", [note(), lives("Rome"), note(kind="procedural", key="k")])
async def test_a_reinforcement_can_be_sent_again_too(app: App, workspace: Workspace, said: Remember) -> None:
    ann = workspace.user("ann")
    first = await app.memory.remember(ann, said)
    chosen = msgspec.structs.replace(said, memory_id=uuid.uuid4())
    for _ in range(2):
        again = await app.memory.remember(ann, chosen)
        assert (again.status, again.memory_id, again.position) == ("reinforced", first.memory_id, first.position + 1)


@pytest.mark.parametrize("by", ["fact", "key", "text"])
async def test_a_reinforcement_that_is_sent_again_names_the_memory_that_it_told(
    app: App, workspace: Workspace, by: str
) -> None:
    """Whatever says the same by now."""
    ann = workspace.user("ann")

    def said(what: str, **more: Any) -> Remember:
        if by == "fact":
            return lives(what, **more)
        return note(what, **({"kind": "procedural", "key": "k"} if by == "key" else {}), **more)

    first = await app.memory.remember(ann, said("Rome"))
    chosen = said("Rome", memory_id=uuid.uuid4())
    told = await app.memory.remember(ann, chosen)
    assert (told.status, told.memory_id) == ("reinforced", first.memory_id)
    if by == "text":
        await app.memory.forget(ann, first.memory_id)
    else:
        await app.memory.remember(ann, said("Oslo"))
    other = await app.memory.remember(ann, said("Rome"))
    assert other.memory_id != first.memory_id
    assert await app.memory.remember(ann, chosen) == told


async def test_what_was_known_stays_what_was_known(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for number, where in ((1, "Rome"), (9, "Oslo")):
        await app.memory.remember(ann, lives(where, valid_at=day(number)))
    then = app.clock()
    await app.memory.remember(ann, lives("Bern", valid_at=day(5)))
    for moment, where in ((day(3), "Rome"), (day(7), "Rome"), (day(10), "Oslo")):
        found = await current(app, workspace, known_at=then, as_of=moment)
        assert [kept.text for kept in found] == [f"Ann lives in {where}"]
    assert [kept.text for kept in await current(app, workspace, as_of=day(7))] == ["Ann lives in Bern"]


async def test_an_end_that_was_learnt_later_is_not_told_of_what_was_known(app: App, workspace: Workspace) -> None:
    ann, moments, tellings = workspace.user("ann"), [], []
    for number, where in ((1, "Rome"), (9, "Oslo"), (5, "Bern")):
        tellings.append(await app.memory.remember(ann, lives(where, valid_at=day(number))))
        moments.append(app.clock())
    ends = []
    for then in moments:
        [rome] = await current(app, workspace, known_at=then, as_of=day(3))
        ends.append((rome.invalid_at, rome.invalidated_by))
        assert rome.invalidated_at is None or rome.invalidated_at <= then
    assert ends == [(None, None), (day(9), tellings[1].memory_id), (day(5), tellings[2].memory_id)]
    for text in ("tag, then push", "push, then tag"):
        await app.memory.remember(ann, note(text, kind="procedural", key="release"))
        moments.append(app.clock())
    [first] = await current(app, workspace, known_at=moments[-2], kinds=("procedural",))
    assert (first.text, first.superseded_at, first.superseded_by) == ("tag, then push", None, None)


async def test_facts_that_accumulate_are_found_by_what_they_are_about(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = {"persistent": {"semantic": "dominant"}}
    lists = {"lists": {"cells": cells, "conflict": {"semantic": "accumulate"}}}
    monkeypatch.setattr(app.memory, "profiles", Profiles(lists, {}))
    ann = workspace.user("ann")
    for fact in (Fact("Ann", "Likes", "tea"), Fact("  ANN\u200b", "likes", "cake"), Fact("Bob", "likes", "tea")):
        await app.memory.remember(ann, note(f"{fact.subject} likes {fact.object}", agent="lists", fact=fact))
    for scope in (ann.scope, workspace.admin.scope):
        for asked, count in (({"subject": "ann"}, 2), ({"predicate": "LIKES"}, 3), ({"subject": "A_n"}, 0)):
            assert len((await app.memory.page(scope, Recall(**asked))).memories) == count
    assert len((await app.recaller.recall(ann, Recall(subject="Ann", predicate="likes"))).hits) == 2
    assert (await app.memory.page(workspace.user("bob").scope, Recall(subject="ann"))).memories == []


@pytest.mark.parametrize("most", [2, 100])
async def test_facts_are_found_by_what_they_are_about_in_every_world_and_page_by_page(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Whether there are few of the subject, which are read, or many, which come up soon enough."""
    monkeypatch.setattr("whence.memory.MAX_FACTS_READ", most)
    ann, bob = workspace.user("ann"), workspace.user("bob")
    said = [
        ("Ann", "lives in", "Rome", {}),
        ("Ann", "lives in", "Oslo", {"world_id_context": "w1"}),
        ("ANN ", "Likes", "tea", {"subject_id": "carl"}),
        ("Ann B", "likes", "tea", {}),
        ("An", "n lives in", "Bern", {}),
    ]
    for who, predicate, what, more in said:
        await app.memory.remember(ann, note(f"{who} {predicate} {what}", fact=Fact(who, predicate, what), **more))
    await app.memory.remember(bob, note("bob says", fact=Fact("Ann", "likes", "cake")))
    of_ann = {"Ann lives in Rome", "Ann lives in Oslo", "ANN  Likes tea"}
    for scope, asked, texts in (
        (ann.scope, {"subject": "ann"}, of_ann),
        (workspace.admin.scope, {"subject": "ann"}, {*of_ann, "bob says"}),
        (ann.scope, {"subject": "ann", "predicate": "LIKES"}, {"ANN  Likes tea"}),
        (ann.scope, {"subject": "ann", "predicate": "like"}, set()),
        (bob.scope, {"subject": "Ann"}, {"bob says"}),
        (ann.scope, {"subject": "ann b"}, {"Ann B likes tea"}),
    ):
        found, before = list[StoredMemory](), None
        while True:
            page = await app.memory.page(scope, Recall(**asked), before, 2)
            found, before = [*found, *page.memories], page.next
            if before is None:
                break
        assert {memory.text for memory in found} == texts
        assert [memory.position for memory in found] == sorted({m.position for m in found}, reverse=True)


async def test_only_facts_are_found_by_subject_and_predicate(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    await app.memory.remember(ann, note("tag, then push", kind="procedural", key="Ann"))
    await app.memory.remember(ann, lives("Rome", world_id_context="earth", subject_id="bob"))
    for asked in ({"predicate": "earth"}, {"predicate": "bob"}, {"subject": "lives in"}):
        assert await current(app, workspace, **asked) == []
    assert [kept.text for kept in await current(app, workspace, subject="ann")] == ["Ann lives in Rome"]


async def test_values_that_were_taken_out_are_not_taken_for_the_same(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    cards = ("4111 1111 1111 1111", "5500 0000 0000 0004")
    for card in cards:
        fact = Fact(f"card {card}", "belongs to", "Ann")
        done = await app.memory.remember(ann, note(f"the card {card} is hers", fact=fact))
        assert (done.status, done.superseded) == ("stored", ())
    for card in cards:
        assert (await app.memory.remember(ann, note(f"she pays with {card}"))).status == "stored"


async def test_worlds_are_kept_apart(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    for world in ("w1", "w2"):
        done = await app.memory.remember(ann, lives("Rome", world_id_context=world))
        assert done.status == "stored"
        assert (await app.memory.remember(ann, note(world_id_context=world))).status == "stored"
    assert (await app.memory.remember(ann, lives("Oslo", world_id_context="w1"))).superseded
    assert {kept.text for kept in await current(app, workspace, subject="Ann")} == {
        "Ann lives in Rome",
        "Ann lives in Oslo",
    }
    assert len(await current(app, workspace, predicate="lives in")) == 2


@pytest.mark.parametrize("field", ["world_id_context", "subject_id"])
async def test_ids_are_compared_as_they_are(app: App, workspace: Workspace, field: str) -> None:
    for name in ("Mars", "mars"):
        assert (await app.memory.remember(workspace.user("ann"), note(**{field: name}))).status == "stored"
    assert (await app.memory.remember(workspace.user("ann"), note(**{field: "Mars"}))).status == "reinforced"


async def test_who_told_it_is_who_said_it_and_not_whose_it_is(app: App, workspace: Workspace) -> None:
    done = await app.memory.remember(workspace.admin, note(user_id="ann"))
    kept = await app.memory.get(workspace.user("ann").scope, done.memory_id)
    assert (kept.user_id, kept.said_by) == ("ann", "admin")


@pytest.mark.parametrize("field", ["agent", "session_id", "subject", "predicate"])
@pytest.mark.parametrize("value", ["", "a\x00b", "x" * 257])
async def test_what_cannot_be_asked_for_names_its_field(app: App, workspace: Workspace, field: str, value: str) -> None:
    for ask in (
        app.memory.page(workspace.admin.scope, Recall(**{field: value})),
        app.recaller.recall(workspace.admin, Recall(**{field: value})),
    ):
        with pytest.raises(InvalidInput) as caught:
            await ask
        assert caught.value.errors[0].field == field


async def test_what_is_forgotten_is_not_found_and_keeps_its_history(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    done = await app.memory.remember(ann, note())
    await app.memory.forget(ann, done.memory_id)
    await app.memory.forget(ann, done.memory_id)
    assert await current(app, workspace) == []
    assert (await app.memory.history(ann.scope, done.memory_id)).memories[0].deleted_at is not None
    # What was forgotten can be told again.
    assert (await app.memory.remember(ann, note())).status == "stored"


async def test_what_several_forget_at_once_is_forgotten_once(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    done = await app.memory.remember(ann, note())
    await asyncio.gather(*(app.memory.forget(ann, done.memory_id) for _ in range(8)))
    events = (await app.memory.explain(ann.scope, done.memory_id)).events
    assert [happened.event_type for happened in events] == ["memory.remembered", "memory.forgotten"]


async def test_what_is_forgotten_while_its_session_is_closed_is_forgotten(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not only removed by the close, which would go on counting it as said."""
    ann, said = workspace.user("ann"), [note(tier="session", session_id=session) for session in ("s1", "s2", "s3")]
    done = await app.memory.remember(ann, said[0])
    get = app.memory.get

    async def closed_meanwhile(scope: Scope, memory_id: uuid.UUID) -> StoredMemory:
        found = await get(scope, memory_id)
        monkeypatch.setattr(app.memory, "get", get)
        [report] = await app.sessions.close(ann, "s1")
        assert [row.fate for row in report.rows] == ["removed"]
        return found

    monkeypatch.setattr(app.memory, "get", closed_meanwhile)
    await app.memory.forget(ann, done.memory_id)
    events = (await app.memory.explain(ann.scope, done.memory_id)).events
    assert [happened.event_type for happened in events][-1] == "memory.forgotten"
    await app.memory.remember(ann, said[1])
    [report] = await app.sessions.close(ann, "s2")
    assert report.counts == {"removed": 1}
    # Nobody has forgotten this one: what two sessions say outlives the second.
    await app.memory.remember(ann, said[2])
    [report] = await app.sessions.close(ann, "s3")
    assert report.counts == {"promoted": 1}


async def test_of_who_told_a_memory_only_those_after_the_first_have_a_row_of_their_own(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    tea = await app.memory.remember(ann, note(session_id="s1"))
    assert await told_in(app, workspace, tea.memory_id) == []
    again = await app.memory.remember(ann, note(session_id="s1"))
    other = await app.memory.remember(ann, note(session_id="s2"))
    assert [again.memory_id, other.memory_id] == [tea.memory_id] * 2
    assert await told_in(app, workspace, tea.memory_id) == [("session:s2", other.event_id)]
    explained = await app.memory.explain(ann.scope, tea.memory_id)
    assert [(source.source, source.role, source.event_id, source.position) for source in explained.sources] == [
        ("session:s1", "told", tea.event_id, tea.position),
        ("session:s2", "told", other.event_id, other.position),
    ]
    assert (await app.memory.get(ann.scope, tea.memory_id)).told_count == 3
    assert await told_in(app, workspace, tea.memory_id, "memory_id, event_id", "memory_tellings") == [
        (tea.memory_id, again.event_id),
        (tea.memory_id, other.event_id),
    ]


async def test_what_is_told_again_from_itself_makes_nobody_surer(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    fact = await app.memory.remember(ann, lives("Rome", confidence=0.5))
    recalled = await app.recaller.recall(ann, Recall(query="Rome", agent="gateway"))
    again = await app.memory.remember(ann, lives("Rome", confidence=0.5, derived_from=(fact.memory_id,)))
    for source in (again.event_id, recalled.recall_id):
        done = await app.memory.remember(ann, lives("Rome", confidence=0.5, derived_from=(source,)))
        assert (done.status, done.memory_id) == ("reinforced", fact.memory_id)
    for asked in ({}, {"known_at": app.clock()}):
        [kept] = await current(app, workspace, **asked)
        assert kept.told_count == 4
        assert kept.fact is not None
        assert kept.fact.confidence == 0.5
    said = event({"text": "I moved to Rome"}, user_id="ann")
    await app.ledger.append(workspace.admin, [said])
    both = lives("Rome", confidence=0.5, derived_from=(said.event_id, recalled.recall_id))
    await app.memory.remember(ann, both)
    explained = await app.memory.explain(ann.scope, fact.memory_id)
    assert explained.summary.endswith("drawn from 4 sources, 3 of which had it from here; told 5 times.")
    assert {source.source for source in explained.sources if source.is_own} == {
        str(own) for own in (fact.memory_id, again.event_id, recalled.recall_id)
    }
    for asked in ({}, {"known_at": app.clock()}):
        [kept] = await current(app, workspace, **asked)
        assert kept.fact is not None
        assert kept.fact.confidence == 0.75
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_who_has_it_by_several_ways_from_one_who_says_it_is_one_source(
    app: App, workspace: Workspace, order: tuple[int, ...]
) -> None:
    """By two recalls, and from the memory itself."""
    ann, bob = workspace.user("ann"), workspace.user("bob")
    theirs = await app.memory.remember(bob, lives("Rome", agent="sdr"))
    again = await app.memory.remember(workspace.admin, lives("Rome", agent="sdr"))
    assert again.memory_id == theirs.memory_id
    recalls = [await app.recaller.recall(ann, Recall(query="Rome", agent="sdr")) for _ in range(2)]
    fact = await app.memory.remember(ann, lives("Rome", confidence=0.5))
    sources = [*(each.recall_id for each in recalls), theirs.memory_id]
    for source in (sources[place] for place in order):
        done = await app.memory.remember(ann, lives("Rome", confidence=0.5, derived_from=(source,)))
        assert done.memory_id == fact.memory_id
    for asked in ({}, {"known_at": app.clock()}):
        [kept] = await current(app, workspace, agent="gateway", **asked)
        assert (kept.told_count, kept.fact and kept.fact.confidence) == (4, 0.75)
    explained = await app.memory.explain(ann.scope, fact.memory_id)
    told = explained.sources[1:]
    assert [source.source for source in told] == [str(sources[place]) for place in order]
    assert [source.origin for source in told] == [theirs.memory_id if place < 2 else None for place in order]
    assert [source.confidence for source in told] == [0.5, None, None]
    assert (await app.memory.explain(bob.scope, theirs.memory_id)).sources[0].origin is None
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal


async def test_what_comes_from_a_telling_comes_from_what_that_told(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    theirs = await app.memory.remember(ann, lives("Rome", agent="other"))
    tellings = [await app.memory.remember(ann, lives("Rome", agent="other")) for _ in range(2)]
    fact = await app.memory.remember(ann, lives("Rome", confidence=0.5))
    for told in tellings:
        await app.memory.remember(ann, lives("Rome", confidence=0.5, derived_from=(told.event_id,)))
    [kept] = await current(app, workspace, agent="gateway")
    assert (kept.memory_id, kept.fact and kept.fact.confidence) == (fact.memory_id, 0.75)
    explained = await app.memory.explain(ann.scope, fact.memory_id)
    assert [source.origin for source in explained.sources] == [None, theirs.memory_id, theirs.memory_id]


async def test_recalls_that_found_something_else_have_no_origin(app: App, workspace: Workspace) -> None:
    """Nobody knows which of the things that were found was told, such as one that every recall finds."""
    ann = workspace.user("ann")
    episode = await app.memory.remember(ann, note("Ann writes: from Rome, where I live now", kind="episodic"))
    await app.memory.remember(ann, note("tea", agent="other"))
    fact = await app.memory.remember(ann, lives("Rome", confidence=0.5, agent="other"))
    recalls = [(await app.recaller.recall(ann, Recall(query="from Rome", agent="gateway"))).recall_id for _ in range(3)]
    nothing = (await app.recaller.recall(ann, Recall(query="Oslo", agent="nobody"))).recall_id
    for source in (*recalls, episode.memory_id, nothing):
        await app.memory.remember(ann, lives("Rome", confidence=0.5, agent="other", derived_from=(source,)))
    sources = (await app.memory.explain(ann.scope, fact.memory_id)).sources[1:]
    assert [source.origin for source in sources] == [None] * 5
    assert [source.confidence for source in sources] == [0.5] * 5


async def test_what_has_its_word_from_one_memory_is_that_ones_word(app: App, workspace: Workspace) -> None:
    """Whichever way it is told from there: notes of the same fact, one from another."""
    ann = workspace.user("ann")
    fact = await app.memory.remember(ann, lives("Rome", confidence=0.5))
    last = fact.memory_id
    for number in range(3):
        within = {"tier": "session", "session_id": f"s{number}"}
        last = (await app.memory.remember(ann, lives("Rome", derived_from=(last,), **within))).memory_id
        other = await app.memory.remember(ann, lives("Rome", derived_from=(last,), agent=f"other {number}"))
        for source in (last, other.memory_id):
            done = await app.memory.remember(ann, lives("Rome", confidence=0.5, derived_from=(source,)))
            assert done.memory_id == fact.memory_id
    [kept] = await current(app, workspace, agent="gateway", tiers=("persistent",))
    assert (kept.told_count, kept.fact and kept.fact.confidence) == (7, 0.5)
    own = await app.memory.remember(ann, lives("Rome", tier="session", session_id="s9"))
    await app.memory.remember(ann, lives("Rome", confidence=0.5, derived_from=(own.memory_id,)))
    [kept] = await current(app, workspace, agent="gateway", tiers=("persistent",))
    assert kept.fact is not None
    assert kept.fact.confidence == 0.75, "who told that one has it from nobody"
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal


async def origin_of(app: App, who: Principal, asked: Recall, request: Remember) -> uuid.UUID | None:
    """Of the recall from which something is told, and that found something else too."""
    await app.memory.remember(who, note("Ann Rome Ann Rome", agent=asked.agent or "first", world_id_context="w0"))
    recalled = await app.recaller.recall(who, asked)
    done = await app.memory.remember(who, msgspec.structs.replace(request, derived_from=(recalled.recall_id,)))
    [source] = [
        one
        for one in (await app.memory.explain(who.scope, done.memory_id)).sources
        if one.source == str(recalled.recall_id)
    ]
    return source.origin


async def test_the_origin_is_what_would_be_told_again_before_what_is_like_it(app: App, workspace: Workspace) -> None:
    ann, asked = workspace.user("ann"), Recall(query="Ann Rome")
    others = [
        note("Ann lives in Rome"),
        lives("Rome", agent="other"),
        lives("Rome", world_id_context="w1"),
        lives("Rome", subject_id="bob"),
    ]
    for other in others:
        await app.memory.remember(ann, other)
    mine = await app.memory.remember(ann, lives("Rome"))
    assert len((await app.recaller.recall(ann, asked)).hits) == 5
    assert await origin_of(app, ann, asked, lives("Rome")) == mine.memory_id
    for other in others:
        assert await origin_of(app, ann, asked, other) is not None


async def test_a_fact_of_another_world_or_about_somebody_else_says_something_else(
    app: App, workspace: Workspace
) -> None:
    ann, asked = workspace.user("ann"), Recall(query="Rome", agent="other")
    for place, within in enumerate(({"world_id_context": "w1"}, {"subject_id": "bob"})):
        where = f"Rome {place}"
        other = msgspec.structs.replace(lives(where, agent="other", **within), text=f"so it is {where}")
        await app.memory.remember(ann, other)
        assert await origin_of(app, ann, asked, lives(where)) is None
        assert await origin_of(app, ann, asked, lives(where, **within)) is not None


async def test_of_several_origins_the_one_that_was_told_first_is_named(app: App, workspace: Workspace) -> None:
    ann, asked = workspace.user("ann"), Recall(query="Rome")
    first = uuid.UUID("ffffffff-ffff-4fff-bfff-ffffffffffff")
    await app.memory.remember(ann, lives("Rome", agent="one", memory_id=first))
    await app.memory.remember(ann, lives("Rome", agent="two", memory_id=uuid.UUID(int=first.int & ~(0xFF << 120))))
    assert await origin_of(app, ann, asked, lives("Rome")) == first


async def test_an_origin_names_no_memory_of_another_user(app: App, workspace: Workspace) -> None:
    """Although the administrator who tells it has found that one."""
    bobs = await app.memory.remember(workspace.user("bob"), lives("Rome"))
    recalled = await app.recaller.recall(workspace.admin, Recall(query="Rome"))
    assert [hit.memory_id for hit in recalled.hits] == [bobs.memory_id]
    told = lives("Rome", user_id="ann", derived_from=(recalled.recall_id,))
    done = await app.memory.remember(workspace.admin, told)
    payload = await app.ledger.payload(workspace.user("ann").scope, done.event_id)
    assert str(recalled.recall_id).encode() in payload
    assert str(bobs.memory_id).encode() not in payload


@pytest.mark.parametrize("agent", ["gateway", "lists"])
@pytest.mark.parametrize("field", ["subject", "predicate", "object"])
async def test_facts_of_which_something_was_taken_out_are_none_for_their_text(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, agent: str, field: str
) -> None:
    """Where facts accumulate as where they follow one another."""
    lists = {"lists": {"cells": {"persistent": {"semantic": "dominant"}}, "conflict": {"semantic": "accumulate"}}}
    monkeypatch.setattr(app.memory, "profiles", Profiles(lists, {}))
    ann, whole = workspace.user("ann"), Fact("the account", "is held by", "Ann", 0.5)
    told = [await app.memory.remember(ann, note("the account is blocked", agent=agent))]
    for card in ("4111 1111 1111 1111", "5500 0000 0000 0004"):
        fact = msgspec.structs.replace(whole, **{field: f"{getattr(whole, field)} {card}"})
        told.append(await app.memory.remember(ann, note("the account is blocked", agent=agent, fact=fact)))
    assert [one.status for one in told] == ["stored"] * 3
    page = (await app.memory.page(ann.scope, Recall(agent=agent))).memories
    assert [memory.told_count for memory in page] == [1] * len(page)


async def test_facts_that_accumulate_are_the_same_by_what_they_state(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {"lists": {"cells": {"persistent": {"semantic": "dominant"}}, "conflict": {"semantic": "accumulate"}}}
    monkeypatch.setattr(app.memory, "profiles", Profiles(lists, {}))
    ann = workspace.user("ann")
    plain = await app.memory.remember(ann, note("as was said", agent="lists"))
    rome, oslo = (note("as was said", agent="lists", fact=Fact("Ann", "likes", place)) for place in ("Rome", "Oslo"))
    first = await app.memory.remember(ann, rome)
    assert (await app.memory.remember(ann, oslo)).status == "stored"
    again = await app.memory.remember(ann, msgspec.structs.replace(rome, fact=Fact("ann", "LIKES", " rome")))
    assert (again.status, again.memory_id) == ("reinforced", first.memory_id)
    assert first.memory_id != plain.memory_id


async def test_a_procedure_has_no_key_where_procedures_accumulate(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"semantic": "dominant", "procedural": "permitted"}
    lists = {"lists": {"cells": {"persistent": kinds}, "conflict": {"procedural": "accumulate"}}}
    monkeypatch.setattr(app.memory, "profiles", Profiles(lists, {}))
    with pytest.raises(InvalidInput, match="key: the profile lists keeps all procedures side by side"):
        await app.memory.remember(workspace.user("ann"), note(agent="lists", kind="procedural", key="brew tea"))


@pytest.mark.parametrize("fact", [None, Fact("Ann", "likes", "tea")])
async def test_what_is_told_to_hold_from_earlier_on_was_not_known_to(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, fact: Fact | None
) -> None:
    """A text, or a fact where these accumulate."""
    lists = {"gateway": {"cells": {"persistent": {"semantic": "dominant"}}, "conflict": {"semantic": "accumulate"}}}
    if fact is not None:
        monkeypatch.setattr(app.memory, "profiles", Profiles(lists, {}))
    ann, moments = workspace.user("ann"), [app.clock()]
    for year in (None, 2020, 2015, 2018):
        began = None if year is None else datetime(year, 1, 1, tzinfo=UTC)
        await app.memory.remember(ann, note(valid_at=began, fact=fact))
        moments.append(app.clock())
    known = [
        [memory.valid_at.year for memory in await current(app, workspace, as_of=as_of, known_at=moment)]
        for moment in moments
        for as_of in (datetime(2016, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC), app.clock())
    ]
    now = app.clock().year
    assert known == [[], [], [], [], [], [now], [], [2020], [2020], *([[2015]] * 6)]
    assert [memory.valid_at.year for memory in await current(app, workspace)] == [2015]
    within = RecallFilters(since=datetime(2018, 1, 1, tzinfo=UTC), until=datetime(2021, 1, 1, tzinfo=UTC))
    found = [
        [memory.valid_at.year for memory in await current(app, workspace, known_at=moment, filters=within)]
        for moment in moments
    ]
    assert found == [[], [], [2020], [], []]
    hits = (
        await app.recaller.recall(ann, Recall(query="tea", as_of=datetime(2016, 1, 1, tzinfo=UTC), known_at=moments[2]))
    ).hits
    assert hits == []
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, True, lambda *_: None)
    assert report.equal


async def test_what_was_told_is_told_though_its_run_is_over_or_its_source_is_gone_by_now(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    run = await app.runs.start(ann, "gateway", "one")
    episode = note("done", kind="episodic", run_id=run.run_id, memory_id=uuid.uuid4())
    first = await app.memory.remember(ann, episode)
    await app.runs.end(ann, run.run_id, "completed")
    assert await app.memory.remember(ann, episode) == first
    for other in (msgspec.structs.replace(episode, text="other"), msgspec.structs.replace(episode, memory_id=None)):
        with pytest.raises(InvalidInput, match="run_id: the run is completed"):
            await app.memory.remember(ann, other)
    with pytest.raises(InvalidInput, match="run_id: there is no such run"):
        await app.memory.remember(workspace.user("bob"), episode)
    # Once the memory is gone, she does not see the event of who told it.
    source = await app.memory.remember(workspace.user("bob"), note("a source", agent="sdr"))
    derived = note("drawn", agent="sdr", memory_id=uuid.uuid4(), derived_from=(source.memory_id,))
    told = await app.memory.remember(ann, derived)
    owner.execute("ALTER TABLE whence.memories DISABLE ROW LEVEL SECURITY")
    try:
        owner.execute("DELETE FROM whence.memories WHERE memory_id = %s", [source.memory_id])
        [again, wrong] = await app.memory.remember_all(
            ann, [derived, msgspec.structs.replace(derived, memory_id=uuid.uuid4())]
        )
    finally:
        owner.execute("ALTER TABLE whence.memories ENABLE ROW LEVEL SECURITY")
    assert again.remembered is not None
    assert (again.remembered.memory_id, again.remembered.position) == (told.memory_id, told.position)
    assert [error.field for error in wrong.errors] == ["derived_from"]


async def test_a_speaker_is_named_without_what_the_profile_keeps_out(app: App, workspace: Workspace) -> None:
    asked = note("it is so", agent="operations", world_id_context="w", speaker="bob@example.com")
    with pytest.raises(InvalidInput, match="speaker: holds what the profile operations keeps out of memory: email"):
        await app.memory.remember(workspace.user("ann"), asked)


async def test_what_was_taken_out_of_two_facts_does_not_make_them_one(app: App, workspace: Workspace) -> None:
    ann, asked = workspace.user("ann"), Recall(query="Ann writes", agent="operations")

    def writes(address: str, agent: str) -> Remember:
        fact = Fact("Ann", "writes from", address, 0.5)
        within = {"world_id_context": "w"}
        return note(f"Ann writes from {address} to {agent}", agent=agent, fact=fact, **within)

    await app.memory.remember(ann, writes("a@example.com", "operations"))
    assert await origin_of(app, ann, asked, writes("b@example.org", "operations")) is None
    assert await origin_of(app, ann, asked, writes("[email]", "gateway")) is not None, "what was left is copied"


async def test_each_of_a_batch_has_the_origin_of_its_own(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")

    def likes(number: int, **more: Any) -> Remember:
        return note(f"Ann likes tea {number}", fact=Fact("Ann", f"likes {number}", "tea", 0.5), **more)

    found = await app.memory.remember_all(ann, [likes(number, agent="other") for number in range(30)])
    asked = Recall(query="tea", agent="other", top_k=30)
    recalls = [(await app.recaller.recall(ann, asked)).recall_id for _ in range(10)]
    done = await app.memory.remember_all(ann, [likes(number, derived_from=tuple(recalls)) for number in range(30)])
    for there, item in zip(found, done, strict=True):
        assert there.remembered is not None
        assert item.remembered is not None
        sources = (await app.memory.explain(ann.scope, item.remembered.memory_id)).sources
        assert [source.origin for source in sources] == [there.remembered.memory_id] * 10


async def test_what_is_sent_again_is_the_same_whatever_is_known_of_its_source_by_then(
    app: App, workspace: Workspace, owner: Connection
) -> None:
    ann = workspace.user("ann")
    await app.memory.remember(ann, lives("Rome", agent="other"))
    recalled = await app.recaller.recall(ann, Recall(query="Rome", agent="other"))
    request = lives("Rome", memory_id=uuid.uuid4(), derived_from=(recalled.recall_id,))
    first = await app.memory.remember(ann, request)
    [source] = (await app.memory.explain(ann.scope, first.memory_id)).sources
    owner.execute("DELETE FROM whence.recall_hits WHERE recall_id = %s", [recalled.recall_id])
    again = await app.memory.remember(ann, request)
    assert (again.memory_id, again.position) == (first.memory_id, first.position)
    assert source.origin is not None


async def test_who_is_sure_of_a_fact_has_a_row_with_how_sure(app: App, workspace: Workspace) -> None:
    fact = await app.memory.remember(workspace.user("ann"), lives("Rome"))
    assert await told_in(app, workspace, fact.memory_id) == [("user:ann", fact.event_id)]
    [source] = (await app.memory.explain(workspace.user("ann").scope, fact.memory_id)).sources
    assert source.confidence == 0.6


async def told_in(
    app: App,
    workspace: Workspace,
    memory_id: uuid.UUID,
    columns: LiteralString = "source, event_id",
    table: LiteralString = "memory_sources",
) -> list[tuple[Any, ...]]:
    async with app.database.transaction(Scope(workspace.workspace_id)) as tx:
        rows = f"SELECT {columns} FROM whence.{table} WHERE memory_id = %s ORDER BY position"
        return await (await tx.execute(rows, (memory_id,))).fetchall()


async def test_memory_of_the_workspace_says_to_every_member_who_told_it_and_what_ended_it(
    app: App, workspace: Workspace
) -> None:
    """Although the events are seen by whose they are alone."""
    told = [
        await app.memory.remember(workspace.user(who), lives(where, agent="sdr"))
        for who, where in (("bob", "Rome"), ("carl", "Rome"), ("ann", "Rome"), ("dan", "Oslo"))
    ]
    for who in (workspace.user("ann"), workspace.user("eve"), workspace.admin):
        events = (await app.memory.explain(who.scope, told[0].memory_id)).events
        assert [(event.event_id, event.event_type, event.position, event.user_id) for event in events] == [
            (each.event_id, "memory.remembered", each.position, name)
            for each, name in zip(told, ("bob", "carl", "ann", "dan"), strict=True)
        ]
        assert all(event.recorded_at.tzinfo is not None for event in events)
    with pytest.raises(NotFound):
        await app.memory.explain(Scope("another", "ann"), told[0].memory_id)


async def test_what_a_procedure_and_an_episode_were_is_told_of_any_past_moment(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    moments = [app.clock()]
    for text in ("boil it", "steep it"):
        await app.memory.remember(ann, note(text, kind="procedural", key="tea"))
        moments.append(app.clock())
    await app.memory.remember(ann, note("made tea", kind="episodic", tier="session", session_id="s1"))
    moments.append(app.clock())
    await app.sessions.close(ann, "s1")
    moments.append(app.clock())
    expected = [[], ["boil it"], ["steep it"], ["steep it", "made tea"], ["steep it"]]
    for asked in ("as_of", "known_at"):
        held = [[memory.text for memory in (await current(app, workspace, **{asked: at}))[::-1]] for at in moments]
        assert held == expected


async def test_every_memory_explains_itself(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    said = event({"messages": [{"role": "user", "content": "I live in Rome"}]}, user_id="ann")
    await app.ledger.append(workspace.admin, [said])
    rome = await app.memory.remember(ann, lives("Rome", valid_at=day(1), derived_from=(said.event_id,)))
    oslo = await app.memory.remember(ann, lives("Oslo", valid_at=day(2), derived_from=(rome.memory_id,)))
    recalled = await app.recaller.recall(ann, Recall(subject="Ann", predicate="lives in", agent="gateway"))
    assert [hit.memory_id for hit in recalled.hits] == [oslo.memory_id]
    first = await app.memory.explain(ann.scope, rome.memory_id)
    [source] = first.sources
    assert source.event is not None
    assert (source.role, source.said_by, source.event.event_id) == ("event", "ann", said.event_id)
    assert first.recalls == []
    second = await app.memory.explain(ann.scope, oslo.memory_id)
    assert second.superseded == [rome.memory_id]
    assert [(found.role, found.source) for found in second.sources] == [("memory", str(rome.memory_id))]
    assert [found.recall_id for found in second.recalls] == [recalled.recall_id]
    assert second.memory.access_count == 1
    assert second.summary.startswith("ann told gateway on ")


async def test_an_explanation_has_all_events_of_a_memory(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    tea = await app.memory.remember(ann, note("tea"))
    again = await app.memory.remember(ann, note("tea"))
    cake = await app.memory.remember(ann, note("tea and cake"))
    judged = list[uuid.UUID]()
    for helpful, unhelpful in (((tea,), (cake,)), ((), (tea,)), ((cake,), ())):
        recalled = await app.recaller.recall(ann, Recall(query="tea", agent="gateway"))
        given = Feedback(tuple(one.memory_id for one in helpful), tuple(one.memory_id for one in unhelpful))
        judged.append((await app.recaller.feedback(ann, recalled.recall_id, given)).event_id)
    await app.memory.forget(ann, tea.memory_id)
    for scope in (ann.scope, workspace.admin.scope):
        events = (await app.memory.explain(scope, tea.memory_id)).events
        assert [(one.event_type, one.helpful, one.user_id) for one in events] == [
            ("memory.remembered", None, "ann"),
            ("memory.remembered", None, "ann"),
            ("memory.feedback", True, "ann"),
            ("memory.feedback", False, "ann"),
            ("memory.forgotten", None, "ann"),
        ]
        assert [one.event_id for one in events[:4]] == [tea.event_id, again.event_id, *judged[:2]]
        assert [one.position for one in events] == sorted(one.position for one in events)
        stored = await app.ledger.get(scope, events[-1].event_id)
        assert (stored.event_type, stored.parent_event_id) == ("memory.forgotten", tea.memory_id)


async def test_an_explanation_has_what_ended_a_memory_however_often_it_was_told(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "MAX_EXPLAINED", 2)
    ann = workspace.user("ann")
    rome = [await app.memory.remember(ann, lives("Rome", valid_at=day(1))) for _ in range(5)]
    oslo = await app.memory.remember(ann, lives("Oslo", valid_at=day(5)))
    events = (await app.memory.explain(ann.scope, rome[0].memory_id)).events
    assert [one.event_id for one in events] == [*(told.event_id for told in rome[:3]), oslo.event_id]
    brew = [await app.memory.remember(ann, note(text, kind="procedural", key="brew")) for text in ("boil", "steep")]
    await app.memory.forget(ann, brew[0].memory_id)
    first, replaced, forgotten = (await app.memory.explain(ann.scope, brew[0].memory_id)).events
    assert (first.event_id, replaced.event_id) == (brew[0].event_id, brew[1].event_id)
    assert forgotten.event_type == "memory.forgotten"


async def test_an_explanation_has_the_close_of_the_session_that_a_memory_ended_with(
    app: App, workspace: Workspace
) -> None:
    ann = workspace.user("ann")
    told = await app.memory.remember(ann, note("opened the queue", session_id="s1", tier="session", kind="episodic"))
    [report] = await app.sessions.close(ann, "s1")
    events = (await app.memory.explain(ann.scope, told.memory_id)).events
    assert [one.event_id for one in events] == [told.event_id, report.event_id]


async def test_what_a_fact_took_the_place_of_stays_so_whatever_is_learnt_later(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")

    async def superseded(told: Remembered) -> list[uuid.UUID]:
        explained = (await app.memory.explain(ann.scope, told.memory_id)).superseded
        assert sorted(explained) == sorted(told.superseded)
        return explained

    rome, oslo, bern, bonn = [
        await app.memory.remember(ann, lives(where, valid_at=day(number)))
        for where, number in (("Rome", 1), ("Oslo", 9), ("Bern", 5), ("Bonn", 12))
    ]
    assert await superseded(rome) == []
    assert await superseded(oslo) == await superseded(bern) == [rome.memory_id]
    assert await superseded(bonn) == [oslo.memory_id]
    await app.memory.forget(ann, bonn.memory_id)
    after, between = [
        await app.memory.remember(ann, lives(where, valid_at=day(number)))
        for where, number in (("Nice", 14), ("Graz", 7))
    ]
    assert await superseded(after) == []
    assert await superseded(between) == [bern.memory_id]
    assert await superseded(bonn) == [oslo.memory_id]


async def test_what_a_fact_took_the_place_of_is_told_though_another_was_forgotten_before(
    app: App, workspace: Workspace
) -> None:
    """What was forgotten by then ended nothing that came after it, and what it had ended was over."""
    ann = workspace.user("ann")

    async def told(where: str, number: int) -> Remembered:
        done = await app.memory.remember(ann, lives(where, valid_at=day(number)))
        assert (await app.memory.explain(ann.scope, done.memory_id)).superseded == list(done.superseded)
        return done

    oslo = await told("Oslo", 3)
    await app.memory.forget(ann, oslo.memory_id)
    rome = await told("Rome", 2)
    bern = await told("Bern", 4)
    assert bern.superseded == (rome.memory_id,)
    await app.memory.forget(ann, bern.memory_id)
    assert (await told("Nice", 5)).superseded == ()


async def test_the_lineage_of_a_memory_leads_to_what_it_came_from(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    said = [event({"text": "I live in Rome"}, user_id="ann") for _ in range(2)]
    await app.ledger.append(workspace.admin, said)
    rome = await app.memory.remember(ann, lives("Rome", derived_from=tuple(one.event_id for one in said)))
    await app.projector.catch_up(workspace.workspace_id)
    atlas = await app.graph.lineage(ann.scope, rome.event_id, "up", Bounds(), content=True)
    node = atlas.nodes[str(rome.event_id)]
    assert node.attributes["text"] == "memory: Ann lives in Rome"
    edges = {(edge.target, edge.edge_type) for edge in atlas.edges if edge.source == str(rome.event_id)}
    assert edges == {
        (str(said[0].event_id), "CAUSED_BY"),
        (str(said[0].event_id), "DERIVED_FROM"),
        (str(said[1].event_id), "DERIVED_FROM"),
    }


async def test_a_memory_that_nobody_may_see_cannot_be_told_from_one_that_is_not_there(
    app: App, workspace: Workspace
) -> None:
    done = await app.memory.remember(workspace.user("ann"), note())
    bob = workspace.user("bob")
    for memory_id in (done.memory_id, uuid.uuid4()):
        for verb in (app.memory.get, app.memory.history, app.memory.explain):
            with pytest.raises(NotFound, match="there is no such memory"):
                await verb(bob.scope, memory_id)
        with pytest.raises(NotFound, match="there is no such memory"):
            await app.memory.forget(bob, memory_id)
        with pytest.raises(InvalidInput, match="derived_from"):
            await app.memory.remember(bob, note(derived_from=(memory_id,)))
    assert (await app.memory.page(bob.scope, Recall())).memories == []


async def test_memory_of_a_workspace_is_seen_by_all_of_it(app: App, workspace: Workspace) -> None:
    done = await app.memory.remember(workspace.user("ann"), note(agent="sdr"))
    [seen] = (await app.memory.page(workspace.user("bob").scope, Recall())).memories
    assert (seen.memory_id, seen.user_id, seen.said_by) == (done.memory_id, None, "ann")
    with pytest.raises(Forbidden, match="who told it or an administrator"):
        await app.memory.forget(workspace.user("bob"), done.memory_id)


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("kind", note(agent="operations", kind="episodic")),
        ("session_id", note(tier="session")),
        ("interaction_id", note(tier="interaction", kind="episodic")),
        ("world_id_context", note(agent="operations")),
        ("text", note("")),
        ("text", note("a\x00b")),
        ("text", note("\ud800")),
        ("text", note("x" * 20_001)),
        ("fact", note(kind="episodic", fact=Fact("a", "b", "c"))),
        ("fact.confidence", lives("Rome", confidence=1.5)),
        ("fact.subject", note(fact=Fact("", "b", "c"))),
        ("key", note(key="x")),
        ("importance", note(importance=2)),
        ("user_id", note(user_id="bob")),
        ("derived_from", note(derived_from=(uuid.uuid4(),))),
        ("run_id", note(kind="episodic", run_id=uuid.uuid4())),
        ("embedding", note(embedding=())),
        ("embedding", note(embedding=(0.0, 0.0))),
        ("embedding", note(embedding=(float("nan"),))),
        ("valid_at", note(valid_at=datetime(2026, 1, 1))),
    ],
)
async def test_bad_input_names_its_field_and_changes_nothing(
    app: App, workspace: Workspace, field: str, request_: Remember
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await app.memory.remember(workspace.user("ann"), request_)
    assert caught.value.errors[0].field == field
    assert await app.ledger.heads.read(workspace.workspace_id) == 0


async def test_the_error_for_a_cell_outside_a_profile_names_both(app: App, workspace: Workspace) -> None:
    with pytest.raises(InvalidInput, match="the profile operations has no persistent/episodic memory"):
        await app.memory.remember(workspace.user("ann"), note(agent="operations", kind="episodic"))


async def test_every_cell_is_open_or_closed_as_its_profile_says(app: App, workspace: Workspace) -> None:
    kinds: tuple[Kind, ...] = ("episodic", "semantic", "procedural")
    for name in app.memory.profiles.names:
        cells = app.memory.profiles.named(name).cells
        for tier in ("interaction", "session", "persistent"):
            for kind in kinds:
                request = Remember(
                    agent=name, tier=tier, kind=kind, text=f"{name} {tier} {kind}", session_id="s", interaction_id="i",
                    world_id_context="w" if name == "operations" else None,
                )  # fmt: skip
                if kind in cells.get(tier, {}):
                    assert (await app.memory.remember(workspace.user("ann"), request)).status == "stored"
                else:
                    with pytest.raises(InvalidInput, match=f"the profile {name} has no {tier}/{kind} memory"):
                        await app.memory.remember(workspace.user("ann"), request)


async def test_one_bad_item_of_a_batch_costs_only_itself(app: App, workspace: Workspace) -> None:
    rule = (
        "A change set is refused by the gate of conformity unless two people of the team have signed its review form."
    )
    await app.memory.set_rule(workspace.admin, "w1", "R-7", rule)
    requests = [note(f"note {number}") for number in range(20)]
    requests[3] = note("")
    requests[9] = note(rule, world_id_context="w1")
    items = await app.memory.remember_all(workspace.user("ann"), requests)
    assert [place for place, item in enumerate(items) if item.remembered is None] == [3, 9]
    assert items[9].errors[0].field == "text"
    assert "rule R-7" in items[9].errors[0].message
    assert len(await current(app, workspace)) == 18


async def test_a_long_batch_is_remembered_in_its_order(app: App, workspace: Workspace) -> None:
    """It is handed to the ledger in parts, of which one says what another one ends, and some are wrong."""
    ann = workspace.user("ann")
    count = 3 * PART_MEMORIES + 7
    requests = [lives(f"town {number}") if number % 5 else note(f"note {number}") for number in range(count)]
    wrong = {1, PART_MEMORIES - 1, PART_MEMORIES, 2 * PART_MEMORIES + 3}
    for place in wrong:
        requests[place] = note("")
    items = await app.memory.remember_all(ann, requests)
    assert {place for place, item in enumerate(items) if item.errors} == wrong
    positions = [item.remembered.position for item in items if item.remembered]
    assert positions == sorted(positions)
    last = max(number for number in range(count) if number % 5 and number not in wrong)
    [home] = await current(app, workspace, subject="Ann")
    assert home.text == f"Ann lives in town {last}"
    assert len(await current(app, workspace)) == 1 + sum(
        number % 5 == 0 and number not in wrong for number in range(count)
    )


async def test_what_a_batch_is_derived_from_was_there_before_it(app: App, workspace: Workspace) -> None:
    ann, first = workspace.user("ann"), uuid.uuid4()
    requests = [note(f"note {number}") for number in range(2 * PART_MEMORIES)]
    requests[0] = note("the first", memory_id=first)
    requests[1] = note("of the same part", derived_from=(first,))
    requests[-1] = note("of another part", derived_from=(first,))
    items = await app.memory.remember_all(ann, requests)
    assert [place for place, item in enumerate(items) if item.errors] == [1, 2 * PART_MEMORIES - 1]
    assert items[-1].errors[0].field == "derived_from"


async def test_a_batch_whose_later_part_fails_can_be_sent_again(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part before is stored, and nobody is told that it is; sent again with the same ids, each is there once."""
    ann = workspace.user("ann")
    requests = [note(f"note {number}", memory_id=uuid.uuid4(), kind="episodic") for number in range(2 * PART_MEMORIES)]
    put, puts = app.ledger.put, list[int]()

    async def fail_second(workspace_id: str, events: Any, parts: Any) -> Any:
        puts.append(len(events))
        if len(puts) == 2:
            raise Unavailable("the database does not answer")
        return await put(workspace_id, events, parts)

    monkeypatch.setattr(app.ledger, "put", fail_second)
    with pytest.raises(Unavailable):
        await app.memory.remember_all(ann, requests)
    assert len(await current(app, workspace)) == PART_MEMORIES
    items = await app.memory.remember_all(ann, requests)
    assert all(item.remembered for item in items)
    assert len(await current(app, workspace)) == 2 * PART_MEMORIES


async def test_a_batch_whose_first_part_fails_is_stored_in_its_order_when_it_is_sent_again(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what it says first would come last, and hold."""
    ann = workspace.user("ann")
    requests = [note(f"note {number}", memory_id=uuid.uuid4()) for number in range(3 * PART_MEMORIES)]
    requests[3], requests[-3] = (lives(where, memory_id=uuid.uuid4()) for where in ("Rome", "Oslo"))
    store, stores = app.ledger._coalescer._store, list[int]()

    async def fail_first(workspace_id: str, entries: Any, encoded: Any = None) -> Any:
        stores.append(len(entries))
        if len(stores) == 1:
            await asyncio.sleep(0.05)  # The other parts are put meanwhile.
            raise Unavailable("the database does not answer")
        return await store(workspace_id, entries, encoded)

    monkeypatch.setattr(app.ledger._coalescer, "_store", fail_first)
    with pytest.raises(Unavailable):
        await app.memory.remember_all(ann, requests)
    assert await current(app, workspace) == []
    items = await app.memory.remember_all(ann, requests)
    positions = [item.remembered.position for item in items if item.remembered]
    assert positions == list(range(1, len(requests) + 1))
    assert [kept.text for kept in await current(app, workspace, subject="Ann")] == ["Ann lives in Oslo"]


async def test_there_is_room_for_all_of_a_batch_or_for_none(
    app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalesce, "MAX_QUEUED_EVENTS", 2 * PART_MEMORIES)
    ann = workspace.user("ann")
    requests = [note(f"note {number}", kind="episodic") for number in range(2 * PART_MEMORIES + 1)]
    with pytest.raises(Overloaded):
        await app.memory.remember_all(ann, requests)
    assert await current(app, workspace) == []
    assert all(item.remembered for item in await app.memory.remember_all(ann, requests[1:]))


async def test_batches_take_turns(app: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told beside them does not wait until all of them are stored."""
    ann = workspace.user("ann")
    await app.memory.remember(ann, note())
    store, groups = app.ledger._coalescer._store_group, list[int]()

    async def count(workspace_id: str, group: Any) -> Any:
        groups.append(sum(len(waiting.entries) for waiting in group.waiting))
        return await store(workspace_id, group)

    monkeypatch.setattr(app.ledger._coalescer, "_store_group", count)
    batches = [[note(f"note {batch} {number}") for number in range(150)] for batch in range(4)]
    single = app.memory.remember(ann, note("beside"))
    *_, alone = await asyncio.gather(*(app.memory.remember_all(ann, batch) for batch in batches), single)
    assert max(groups) <= PART_MEMORIES + 1
    assert alone.position < 300


async def test_a_batch_that_is_given_up_leaves_what_it_began_with(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    requests = [note(f"note {number}", memory_id=uuid.uuid4()) for number in range(4 * PART_MEMORIES)]
    sending = asyncio.create_task(app.memory.remember_all(ann, requests))
    await asyncio.sleep(0.004)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    items = await app.memory.remember_all(ann, requests)
    positions = [item.remembered.position for item in items if item.remembered]
    assert positions == list(range(1, len(requests) + 1))


async def test_secrets_are_dealt_with_before_anything_is_stored(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    done = await app.memory.remember(ann, note("pay with 4111 1111 1111 1111 please"))
    assert done.sanitised == {"card": 1}
    assert (await app.memory.get(ann.scope, done.memory_id)).text == "pay with [card] please"
    assert b"4111" not in await app.ledger.payload(ann.scope, done.event_id)
    with pytest.raises(InvalidInput, match="refuses: card"):
        await app.memory.remember(ann, note("4111 1111 1111 1111", agent="operations", world_id_context="w"))


async def test_nobody_else_can_send_the_events_that_memory_is_made_of(app: App, workspace: Workspace) -> None:
    [outcome] = await app.ledger.append(workspace.admin, [event({"memory": {}}, event_type="memory.remembered")])
    assert outcome.status == "rejected"
    assert outcome.errors[0].field == "event_type"


async def test_a_given_embedding_is_kept_beside_the_memory(app: App, workspace: Workspace, owner: Connection) -> None:
    ann = workspace.user("ann")
    given = await app.memory.remember(ann, note("given", embedding=(3.0, 4.0)))
    made = await app.memory.remember(ann, note("made here"))
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")
    found = owner.execute(
        "SELECT memory_id, embedder, embedding::text, vector_dims(embedding) FROM whence.memory_vectors"
    ).fetchall()
    rows = {row[0]: row[1:] for row in found}
    assert rows[given.memory_id][0] == "given"
    assert rows[given.memory_id][2] == 2
    assert [round(float(value), 3) for value in rows[given.memory_id][1].strip("[]").split(",")] == [0.6, 0.8]
    assert rows[made.memory_id][0] == "wordllama-l2-supercat-256"
    assert rows[made.memory_id][2] == 256


async def test_a_memory_says_where_in_its_source_it_is_said(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    source = await app.memory.remember(ann, note("Grüße aus Lyon", kind="episodic"))
    fact = await app.memory.remember(ann, note("Ann is in Lyon", derived_from=(source.memory_id,), byte_range=(12, 16)))
    [told] = (await app.memory.explain(ann.scope, fact.memory_id)).sources
    assert (told.byte_range, told.quote) == ((12, 16), "Lyon")
    cut = note("Greetings from far away", derived_from=(source.memory_id,), byte_range=(3, 5))
    [cut_in_two] = (await app.memory.explain(ann.scope, (await app.memory.remember(ann, cut)).memory_id)).sources
    assert cut_in_two.quote == "\ufffd\ufffd"
    hits = (await app.recaller.recall(ann, Recall(query="greetings"))).hits
    assert [source.quote for source in hits[0].provenance] == [None, "\ufffd\ufffd"]
    await app.memory.forget(ann, source.memory_id)
    [told] = (await app.memory.explain(ann.scope, fact.memory_id)).sources
    assert (told.byte_range, told.quote) == ((12, 16), None)
    for wrong in (
        {"byte_range": (0, 4)},
        {"byte_range": (4, 4)},
        {"byte_range": (-1, 4)},
        {"byte_range": (0, 1 << 30)},
    ):
        sources = {} if wrong["byte_range"] == (0, 4) else {"derived_from": (source.memory_id,)}
        with pytest.raises(InvalidInput, match="byte_range"):
            await app.memory.remember(ann, note("Ann", **wrong, **sources))
