"""Who has more memories than are held: found in the index, as if they were held."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from psycopg import sql

from conftest import Workspace
from recalling import entry, told
from whence.app import App
from whence.clock import system_clock
from whence.db import Scope
from whence.db.queries import load
from whence.errors import Unavailable
from whence.identity import Principal
from whence.memory.rebuild import rebuild
from whence.models.embedder import WordLlamaEmbedder
from whence.recall import distant, held
from whence.recall.corpus import Corpus
from whence.recall.words import asked_words
from whence.wire import Fact, Recall, RecallFilters

COUNT = 120
THINGS = ("a red boat", "an old piano", "the tall ladder", "some green paint", "a broken clock", "the garden hose")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "INDEXED_FROM", 50)
    monkeypatch.setattr(held, "MAX_SEARCHED", 60)
    monkeypatch.setattr(distant, "NEWEST", 10)
    monkeypatch.setattr(distant, "BATCH_MEMORIES", 7)
    monkeypatch.setattr(distant, "RARE", 0.2)


async def tell(app: App, who: Principal, upto: int = COUNT) -> list[UUID]:
    texts = [f"Entry {number}: {THINGS[number % len(THINGS)]} was bought, says note{number}" for number in range(upto)]
    done = await app.memory.remember_all(who, [told(text, speaker=f"s{n % 3}") for n, text in enumerate(texts)])
    return [item.remembered.memory_id for item in done if item.remembered is not None]


async def indexed(app: App, who: Principal, upto: int = COUNT) -> list[UUID]:
    """Asked once, which is when it is seen that there are many; then the job has run."""
    ids = await tell(app, who, upto)
    await app.recaller.recall(who, Recall(query="anything"))
    assert who.workspace_id in await app.distant.due()
    assert not await app.distant.fill(who.workspace_id)
    app.recaller.forget(who.workspace_id)
    return ids


async def hits(app: App, who: Principal, **asked: object) -> list[UUID]:
    return [hit.memory_id for hit in (await app.recaller.recall(who, Recall(**asked))).hits]  # pyright: ignore[reportArgumentType]


async def rows(app: App, workspace_id: str) -> int:
    async with app.database.transaction(Scope(workspace_id)) as tx:
        found = await (await tx.execute("SELECT count(*) FROM whence.memory_index")).fetchone()
    return found[0] if found else 0


async def test_the_oldest_is_found_by_its_words_and_by_its_vector(app: App, ann: Principal) -> None:
    ids = await indexed(app, ann)
    assert await rows(app, ann.workspace_id) == COUNT - 10
    for number in (0, 1, 57, 108, 109, 110, 119):
        for channels in (None, ("words",), ("vectors",)):
            found = await hits(app, ann, query=f"note{number}", channels=channels, top_k=30)
            assert ids[number] in found[: 1 if channels is None else 30], (number, channels)
    recalled = await app.recaller.recall(ann, Recall(query="Which piano was bought?", top_k=5))
    assert all("piano" in hit.text for hit in recalled.hits)
    assert recalled.hits[0].parts["words"] > 0


async def test_what_is_told_after_it_is_found_at_once_and_nothing_twice(app: App, ann: Principal) -> None:
    ids = await indexed(app, ann)
    new = (await app.memory.remember(ann, told("Entry 500: a kite was bought, says note500"))).memory_id
    assert (await hits(app, ann, query="Who bought a kite? note500"))[0] == new
    found = await hits(app, ann, query="what was bought", top_k=100)
    assert len(found) == len(set(found)) == 100
    assert set(found) <= {*ids, new}


async def test_filters_and_other_times_hold_in_the_index_too(app: App, ann: Principal) -> None:
    ids = await indexed(app, ann)
    found = await hits(app, ann, query="note3 ladder", filters=RecallFilters(speaker="s0"), top_k=20)
    assert found[0] == ids[3]
    assert {ids.index(memory_id) % 3 for memory_id in found} == {0}
    assert ids[4] not in await hits(app, ann, query="note4", kinds=("semantic",))
    early = system_clock() - timedelta(days=1)
    assert await hits(app, ann, query="note4", as_of=early) == []
    assert await hits(app, ann, query="note4", as_of=system_clock() + timedelta(days=1), top_k=1) == [ids[4]]


async def test_what_does_not_hold_any_more_is_not_found(app: App, ann: Principal) -> None:
    def fact(what: str) -> dict[str, object]:
        return {"kind": "semantic", "fact": Fact("Ann", "plays", what)}

    first = await app.memory.remember(ann, told("Ann plays the xylophone", **fact("xylophone")))
    ids = await indexed(app, ann)
    assert (await hits(app, ann, query="xylophone"))[0] == first.memory_id
    before = system_clock()
    await app.memory.remember(ann, told("Ann plays the cello", **fact("cello")))
    assert first.memory_id not in await hits(app, ann, query="xylophone", top_k=100)
    assert (await hits(app, ann, query="xylophone", as_of=before))[0] == first.memory_id
    await app.memory.forget(ann, ids[5])
    assert ids[5] not in await hits(app, ann, query="note5", top_k=100)


async def test_of_many_with_a_rare_word_those_come_first_that_have_the_others_too(
    app: App, ann: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them are newer."""
    statement = load("whence.recall")["distant_with_words"]
    monkeypatch.setitem(distant._SQL, "distant_with_words", statement.replace(b"LIMIT 100", b"LIMIT 3"))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(distant, "_like", lambda _: b"SELECT NULL::uuid LIMIT 0")
    texts = ["The bronze owl was bought at dusk", *(f"The owl sat on branch{number}" for number in range(60))]
    done = await app.memory.remember_all(ann, [told(text) for text in texts])
    await tell(app, ann, 30)
    await app.recaller.recall(ann, Recall(query="anything"))
    await app.distant.fill(ann.workspace_id)
    app.recaller.forget(ann.workspace_id)
    [first, *_] = await hits(app, ann, query="Which owl was bought?")
    assert done[0].remembered is not None
    assert first == done[0].remembered.memory_id


async def test_it_is_nobody_elses(app: App, ann: Principal, workspace: Workspace) -> None:
    await indexed(app, ann)
    bob = workspace.user("bob")
    own = await tell(app, bob, 60)
    await app.recaller.recall(bob, Recall(query="anything"))
    await app.distant.fill(workspace.workspace_id)
    app.recaller.forget(workspace.workspace_id)
    for query in ("note3 ladder", "what was bought", "note100"):
        assert set(await hits(app, bob, query=query, top_k=100)) <= set(own)
    async with app.database.transaction(bob.scope) as tx:
        terms = [distant.term_of(workspace.workspace_id, "ann", "note3")]
        asked = (workspace.workspace_id, "ann", terms, terms, [1.0])
        call = "SELECT whence.memories_with_words(%s, %s, %s::bigint[], '{}', %s::bigint[], %s::real[], 10)"
        assert await (await tx.execute(call, asked)).fetchone() == ([],)


async def test_without_a_user_no_word_finds_anything(app: App, ann: Principal) -> None:
    await indexed(app, ann)
    terms = [distant.term_of(ann.workspace_id, "", "entri")]
    call = "SELECT whence.memories_with_words(%s, '', %s::bigint[], '{}', %s::bigint[], %s::real[], 10)"
    async with app.database.transaction(None) as tx:
        await tx.execute(sql.SQL("SET LOCAL app.workspace_id = {}").format(ann.workspace_id))
        assert await (await tx.execute(call, (ann.workspace_id, terms, terms, [1.0]))).fetchone() == ([],)


async def test_a_text_that_is_taken_away_while_it_is_indexed_leaves_nothing_there(app: App, ann: Principal) -> None:
    [memory_id, *_] = await tell(app, ann, 20)
    scope = Scope(ann.workspace_id)
    statement = load("whence.recall")["add_to_index"]

    async def strip() -> None:
        async with app.database.transaction(scope) as tx:
            await tx.execute("UPDATE whence.memories SET stripped_at = now() WHERE memory_id = %s", (memory_id,))

    async with app.database.transaction(scope) as tx:
        await tx.execute(statement, scope.values(ids=[memory_id], terms=[1], first=[1], last=[1]))
        stripping = asyncio.create_task(strip())
        await asyncio.sleep(0.2)
        assert not stripping.done()
    await stripping
    assert await rows(app, ann.workspace_id) == 0


async def test_an_erasure_a_disposal_and_a_rebuild_leave_nothing_behind(
    app: App, ann: Principal, workspace: Workspace
) -> None:
    scope = Scope(workspace.workspace_id)
    ids = await indexed(app, ann)
    async with app.database.transaction(scope) as tx:
        await tx.execute("UPDATE whence.memories SET stripped_at = now() WHERE memory_id = %s", (ids[0],))
        left = await (await tx.execute("SELECT count(*) FROM whence.memory_index")).fetchone()
        await tx.rollback()
    assert left == (COUNT - 11,)
    async with app.database.transaction(scope) as tx:
        await tx.execute("UPDATE whence.memories SET importance = 0.9 WHERE memory_id = %s", (ids[1],))
    await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, False, lambda *_: None)
    app.recaller.forget(workspace.workspace_id)
    assert await rows(app, workspace.workspace_id) == 0
    assert (await hits(app, ann, query="note109"))[0] == ids[109]
    await app.distant.fill(workspace.workspace_id)
    assert await rows(app, workspace.workspace_id) == COUNT - 10
    await app.erasures.erase(workspace.admin, "ann")
    assert await rows(app, workspace.workspace_id) == 0


@pytest.mark.parametrize("half", ["_named", "_alike"])
async def test_what_fails_of_it_is_told_as_it_is(
    app: App, ann: Principal, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    await indexed(app, ann)

    ended: list[str] = []

    async def fails(*_: object) -> None:
        await asyncio.sleep(0)
        raise Unavailable("the database does not answer")

    async def waits(*_: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("the other")

    for each in ("_named", "_alike"):
        monkeypatch.setattr(app.distant, each, fails if each == half else waits)
    with pytest.raises(Unavailable):
        await hits(app, ann, query="note7")
    assert ended == ["the other"]


async def test_many_may_ask_at_once(app: App, ann: Principal) -> None:
    """Each takes two connections, and none waits for its second with the first in its hands."""
    ids = await indexed(app, ann)
    found = await asyncio.gather(*(hits(app, ann, query=f"note{number}", top_k=1) for number in range(60)))
    assert found == [[ids[number]] for number in range(60)]


@pytest.mark.parametrize(
    ("size", "query", "looked_for", "together"),
    [
        (None, "harbour cat boat", ["harbour"], []),
        (1_000, "harbour cat boat", ["harbour", "cat", "boat"], []),
        (50_000, "harbour cat boat", ["harbour", "cat"], []),
        (10_000_000, "harbour cat boat", ["harbour"], []),
        (10_000_000, "cat owl", ["cat", "owl"], ["cat", "owl"]),
        (10_000_000, "boat cat", [], []),
    ],
)
def test_words_are_looked_for_that_few_have(
    monkeypatch: pytest.MonkeyPatch, size: int | None, query: str, looked_for: list[str], together: list[str]
) -> None:
    monkeypatch.setattr(distant, "RARE", 0.001)
    monkeypatch.setattr(distant, "MOST_WEIGHED", 2)
    corpus = Corpus(WordLlamaEmbedder())
    texts = ["The boat"] * 40 + ["The cat and the owl"] + ["A note"] * 59
    corpus.add([entry(text, position) for position, text in enumerate(texts, 1)])
    asked = asked_words(query)
    telling = distant.telling_of(asked, corpus, distant.Index(size=size or 50, is_counted=size is not None))
    assert [asked[place].surface for place in telling.any_of] == looked_for
    assert [asked[place].surface for place in telling.together] == together
    rarest = [asked[place].surface for place in telling.weights]
    assert rarest == sorted(rarest, key=["harbour", "cat", "owl", "boat"].index)
    assert len(rarest) == 2
    assert list(telling.weights.values()) == sorted(telling.weights.values(), reverse=True)


async def test_the_index_is_counted_bit_by_bit_and_then_common_words_are_looked_for_too(
    app: App, ann: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless too many have them."""
    monkeypatch.setattr(distant, "RARE", -1.0)
    monkeypatch.setattr(distant, "SEEN", -1.0)
    monkeypatch.setattr(distant, "COUNTED_AT_ONCE", 50)
    monkeypatch.setattr(distant, "_like", lambda _: b"SELECT NULL::uuid LIMIT 0")
    ids = await indexed(app, ann)
    known: list[tuple[int, bool]] = []
    for _ in range(4):
        found = await hits(app, ann, query="Which piano was bought?", top_k=100)
        index = app.recaller._corpora.of(ann.scope)[0].index  # pyright: ignore[reportPrivateUsage]
        known.append((index.size, index.is_counted))
        assert (ids[1] in found) == (len(known) > 2)
    # The first fifty when it is read, and as many at each question.
    assert known == [(100, False), (COUNT - 10, True), (COUNT - 10, True), (COUNT - 10, True)]
    monkeypatch.setattr(distant, "FEW_ROWS", 3)
    assert ids[1] not in await hits(app, ann, query="Which piano was bought?", top_k=100)


async def test_who_is_indexed_no_more_is_read_anew(app: App, ann: Principal) -> None:
    ids = await indexed(app, ann)
    assert (await hits(app, ann, query="note3"))[0] == ids[3]
    async with app.database.transaction(Scope(ann.workspace_id)) as tx:
        await tx.execute("DELETE FROM whence.memory_index")
    await hits(app, ann, query="note3")
    # This one has begun it again, and the job goes on.
    await hits(app, ann, query="note3")
    assert ann.workspace_id in await app.distant.due()
    await app.distant.fill(ann.workspace_id)
    assert (await hits(app, ann, query="note3"))[0] == ids[3]
