"""A model puts the first hits in order: as it says, for whom it may read, and within its time."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry
from psycopg.pq import TransactionStatus
from pydantic import SecretStr

from conftest import Workspace
from recalling import told
from tiny_models import Hosted, hosted, likings, make_scorer, write_model
from whence.app import App, open_app
from whence.db import embedded
from whence.errors import SetupError, Unavailable
from whence.identity import Principal
from whence.recall.reranking import RERANKED, Reranking
from whence.settings import Settings
from whence.wire import Assemble, Hit, Recall, Recalled

KEY = "sk-not-to-be-told"
SAID = ("The cat and the cat in rome", "A cat and a dog", "The cat in oslo", "That cat and a fish")


class Fake:
    """Scores as it is told to, and keeps what it was given."""

    name = "fake:1"

    def __init__(self, score: Callable[[str], float] = len) -> None:
        self.of = score
        self.asked: list[tuple[str, list[str]]] = []
        self.threads: set[int] = set()

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.asked.append((query, list(texts)))
        self.threads.add(threading.get_ident())
        return [self.of(text) for text in texts]

    def close(self) -> None: ...


@contextmanager
def reranking(app: App, model: Any, seconds: float = 30.0) -> Iterator[CollectorRegistry]:
    """The app with another model for a while; gives what is counted."""
    recaller: Any = app.recaller
    before, registry = recaller._reranking, CollectorRegistry()
    recaller._reranking = Reranking(model, registry, seconds)
    try:
        yield registry
    finally:
        recaller._reranking.close()
        recaller._reranking = before


def counted(registry: CollectorRegistry, outcome: str) -> float | None:
    return registry.get_sample_value("whence_reranks_total", {"outcome": outcome})


async def tell(app: App, who: Principal, *texts: str, **more: Any) -> None:
    items = await app.memory.remember_all(who, [told(text, **more) for text in texts])
    assert all(item.remembered is not None for item in items), items


async def ask(app: App, who: Principal, query: str = "cat", **more: Any) -> Recalled:
    return await app.recaller.recall(who, Recall(query=query, **more))


def texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text for hit in hits]


def order(hits: Sequence[Hit]) -> list[tuple[UUID, float, float | None]]:
    return [(hit.memory_id, hit.score, hit.rerank) for hit in hits]


# Real models


@pytest.fixture(scope="module")
async def with_onnx(
    postgres: embedded.EmbeddedServer, data_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[App]:
    liked = likings(cat={"cat": 1.0, "fish": 4.0, "dog": 2.0})
    folder = write_model(tmp_path_factory.mktemp("models") / "tiny", make_scorer(liked))
    async with open_app(Settings(data_dir=data_dir, reranker=f"onnx:{folder}")) as app:
        yield app


async def test_a_model_in_a_folder_decides_the_order(with_onnx: App, ann: Principal) -> None:
    await tell(with_onnx, ann, *SAID)
    recalled = await ask(with_onnx, ann)
    assert texts(recalled.hits) == [SAID[3], SAID[1], SAID[0], SAID[2]]
    assert recalled.meta.reranker is not None
    assert recalled.meta.reranker.startswith("onnx:tiny:")
    assert recalled.meta.not_reranked is None
    scores = [hit.rerank for hit in recalled.hits if hit.rerank is not None]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4
    assert all(hit.score == pytest.approx(sum(hit.parts.values()), abs=1e-3) for hit in recalled.hits)


async def test_a_hosted_model_decides_the_order(
    postgres: embedded.EmbeddedServer, data_dir: Path, ann: Principal
) -> None:
    with hosted() as server:
        set_so = {"reranker": "hosted:m", "reranker_url": server.url, "reranker_key": SecretStr(KEY)}
        async with open_app(Settings(data_dir=data_dir, **set_so)) as app:
            await tell(app, ann, *SAID)
            recalled = await ask(app, ann, "a cat and a fish that swims")
            assert texts(recalled.hits)[0] == SAID[3]
            assert recalled.hits[0].rerank == 0.5
            assert recalled.meta.reranker == f"hosted:m@{server.url.removeprefix('http://').removesuffix('/v1')}"
            await the_failure_is_told_without_the_key(app, ann, server)


async def the_failure_is_told_without_the_key(app: App, ann: Principal, server: Hosted) -> None:
    server.answer = lambda body, number: (401, {}, {"message": f"invalid key {KEY}"})
    recalled = await ask(app, ann)
    assert (recalled.meta.reranker, recalled.meta.not_reranked) == (None, "unavailable")
    assert KEY not in repr(recalled)
    assert order(recalled.hits) == order((await ask(app, ann, rerank=False)).hits)


# The order


async def test_hits_come_as_the_model_says_and_each_says_how_well(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID, speaker="Ann")
    plain = await ask(app, ann)
    model = Fake()
    with reranking(app, model) as registry:
        recalled = await ask(app, ann)
        assert texts(recalled.hits) == sorted(SAID, key=len, reverse=True)
        assert [hit.rerank for hit in recalled.hits] == [len(f"Ann: {hit.text}") for hit in recalled.hits]
        assert recalled.meta.reranker == "fake:1"
        assert (counted(registry, "reranked"), counted(registry, "late")) == (1, 0)
    assert model.asked == [("cat", [f"Ann: {hit.text}" for hit in plain.hits])]
    assert threading.get_ident() not in model.threads
    scores = {hit.memory_id: (hit.score, hit.parts) for hit in plain.hits}
    assert {hit.memory_id: (hit.score, hit.parts) for hit in recalled.hits} == scores


async def test_without_a_reranker_nothing_is_told_of_one(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    recalled = await ask(app, ann)
    assert {hit.rerank for hit in recalled.hits} == {None}
    assert (recalled.meta.reranker, recalled.meta.not_reranked) == (None, None)
    payload = await told_of(app, ann, recalled)
    assert b"rerank" not in payload


async def told_of(app: App, who: Principal, recalled: Recalled) -> bytes:
    await app.ledger.behind.wait(who.workspace_id, recalled.recall_id)
    return await app.ledger.payload(who.scope, recalled.recall_id)


async def test_a_request_can_decline_it_or_insist_on_it(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    plain = await ask(app, ann)
    model = Fake()
    with reranking(app, model):
        declined = await ask(app, ann, rerank=False)
        assert (order(declined.hits), model.asked) == (order(plain.hits), [])
        assert (declined.meta.reranker, declined.meta.not_reranked) == (None, None)
        assert (await ask(app, ann, rerank=True)).meta.reranker == "fake:1"
    insisted = await ask(app, ann, rerank=True)
    assert (order(insisted.hits), insisted.meta.not_reranked) == (order(plain.hits), "no_reranker")


async def test_what_is_read_is_more_than_is_asked_for_and_not_more_than_its_bound(app: App, ann: Principal) -> None:
    await tell(app, ann, *(f"The cat number {number} {'x' * number}" for number in range(RERANKED + 15)))
    plain = texts((await ask(app, ann, top_k=RERANKED + 10)).hits)
    model = Fake()
    with reranking(app, model):
        few = await ask(app, ann, top_k=2)
        assert texts(few.hits) == sorted(plain[:RERANKED], key=len, reverse=True)[:2]
        many = await ask(app, ann, top_k=RERANKED + 10)
        assert texts(many.hits) == sorted(plain[:RERANKED], key=len, reverse=True) + plain[RERANKED:]
        assert [hit.rerank is None for hit in many.hits] == [False] * RERANKED + [True] * 10
        budget = await ask(app, ann, top_k=5, max_tokens=30)
        assert budget.meta.truncated
        assert texts(budget.hits) == texts(few.hits)[: len(budget.hits)]
    assert {len(asked) for _, asked in model.asked} == {RERANKED}


async def test_what_the_model_finds_equal_keeps_its_order(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    plain = texts((await ask(app, ann)).hits)
    with reranking(app, Fake(lambda _: 0.5)):
        assert texts((await ask(app, ann)).hits) == plain


async def test_what_says_the_same_again_still_comes_after_all_else(app: App, ann: Principal) -> None:
    for session in ("s1", "s2"):
        await tell(app, ann, SAID[0], session_id=session)
    await tell(app, ann, *SAID[1:])
    model = Fake()
    with reranking(app, model):
        for more in ({}, {"as_of": told_later()}):
            hits = (await ask(app, ann, **more)).hits
            assert texts(hits) == [*sorted(SAID, key=len, reverse=True), SAID[0]]
            assert hits[-1].rerank is None


def told_later() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


async def test_without_words_there_is_nothing_to_read(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    model = Fake()
    with reranking(app, model):
        assert (await ask(app, ann, "")).meta.not_reranked is None
        assert (await ask(app, ann, "", embedding=(1.0, 0.0))).meta.reranker is None
        assert (await ask(app, ann, "", rerank=True)).meta.not_reranked is None
        assert (await ask(app, ann, agent="sdr")).meta.reranker is None
    assert model.asked == []


# Whom it may read


async def test_nothing_is_sent_that_the_asker_may_not_read(app: App, workspace: Workspace, ann: Principal) -> None:
    bob = workspace.user("bob")
    await tell(app, ann, "The secret cat of ann")
    await tell(app, bob, "The cat of bob")
    ended = await app.memory.remember(bob, told("The forgotten cat"))
    model = Fake()
    with reranking(app, model):
        await ask(app, ann)
        await ask(app, bob)
        await app.memory.forget(bob, ended.memory_id)
        model.asked.clear()
        # Even where the wrong corpus is searched, and what is over is still held.
        corpora: Any = app.recaller
        held = corpora._corpora._held
        anns = held[workspace.workspace_id, "ann"]
        for asked in ({}, {"neighbours": 2}, {"as_of": told_later()}):
            await ask(app, bob, **asked)
            mine = held[workspace.workspace_id, "bob"]
            held[workspace.workspace_id, "bob"] = anns
            assert (await ask(app, bob, **asked)).hits == []
            held[workspace.workspace_id, "bob"] = mine
    assert [given for _, given in model.asked] == [["The cat of bob"]] * 3


async def test_what_was_erased_is_not_sent_although_it_is_still_held(
    app: App, workspace: Workspace, ann: Principal
) -> None:
    admin = workspace.admin
    await tell(app, ann, "The secret cat of ann")
    await tell(app, workspace.user("bob"), "The cat of bob")
    model = Fake()
    with reranking(app, model):
        assert len((await ask(app, admin)).hits) == 2
        await app.ledger.behind.settled()
        await app.erasures.erase(admin, "ann")
        model.asked.clear()
        assert texts((await ask(app, admin)).hits) == ["The cat of bob"]
    assert [given for _, given in model.asked] == [["The cat of bob"]]


# Failures


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Unavailable("the reranker at host failed (500)"), "unavailable"),
        (SetupError("setting reranker: x"), "setup"),
        (ValueError(f"cat {KEY}"), "internal"),
        (TimeoutError(), "late"),
    ],
)
async def test_where_the_model_fails_the_order_is_as_without_it_and_says_so(
    app: App, ann: Principal, capfd: pytest.CaptureFixture[str], error: Exception, why: str
) -> None:
    await tell(app, ann, *SAID)
    plain = await ask(app, ann)

    def fail(_: str) -> float:
        raise error

    with reranking(app, Fake(fail)) as registry:
        recalled = await ask(app, ann)
        assert order(recalled.hits) == order(plain.hits)
        assert (recalled.meta.reranker, recalled.meta.not_reranked) == (None, why)
        assert counted(registry, why) == 1
    record = await app.recaller.recalled(ann.scope, recalled.recall_id)
    assert (record.reranker, {hit.rerank for hit in record.hits}) == (None, {None})
    said = capfd.readouterr()
    assert KEY not in said.out + said.err


async def test_a_model_that_is_late_is_not_waited_for_and_others_are_answered_meanwhile(
    app: App, ann: Principal
) -> None:
    await tell(app, ann, *SAID)
    plain = await ask(app, ann)
    released = threading.Event()

    def wait(_: str) -> float:
        released.wait(10)
        return 1.0

    with reranking(app, Fake(wait), seconds=0.3) as registry:
        started = time.monotonic()
        asked = [asyncio.create_task(ask(app, ann)) for _ in range(12)]
        await asyncio.sleep(0)
        assert order((await ask(app, ann, rerank=False)).hits) == order(plain.hits)
        assert time.monotonic() - started < 0.3
        late = await asyncio.gather(*asked)
        assert time.monotonic() - started < 3
        assert {each.meta.not_reranked for each in late} == {"late"}
        assert all(order(each.hits) == order(plain.hits) for each in late)
        assert counted(registry, "late") == 12
        released.set()


async def test_no_transaction_is_open_while_the_model_reads(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    reading, go_on = threading.Event(), threading.Event()

    def wait(_: str) -> float:
        reading.set()
        go_on.wait(10)
        return 1.0

    with reranking(app, Fake(wait)):
        asked = [asyncio.create_task(ask(app, ann, **more)) for more in ({}, {"as_of": told_later()})]
        await asyncio.to_thread(reading.wait, 10)
        await asyncio.sleep(0.3)
        database: Any = app.database
        for pool, kept in ((database._pool, None), (database._trips, database._kept)):
            used = pool.get_stats()
            # One is kept for the next trip, and idle too.
            assert used["pool_available"] + (kept is not None) == used["pool_size"]
            assert kept is None or kept.pgconn.transaction_status == TransactionStatus.IDLE
        go_on.set()
        await asyncio.gather(*asked)


# What is kept of it


async def test_a_recall_says_what_the_model_said(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    with reranking(app, Fake()):
        recalled = await ask(app, ann, top_k=3)
    record = await app.recaller.recalled(ann.scope, recalled.recall_id)
    assert record.reranker == "fake:1"
    assert [(hit.memory_id, hit.rerank) for hit in record.hits] == [
        (hit.memory_id, hit.rerank) for hit in recalled.hits
    ]


# Assembly


async def test_assembly_waits_for_no_model_unless_it_is_asked_to(app: App, ann: Principal) -> None:
    await tell(app, ann, *SAID)
    model = Fake()
    with reranking(app, model):
        plain = await app.assembler.assemble(ann, Assemble("gateway", "one", "cat"))
        assert (model.asked, plain.meta.reranker) == ([], None)
        wanted = await app.assembler.assemble(ann, Assemble("gateway", "one", "cat", rerank=True))
        assert texts(wanted.hits) == sorted(SAID, key=len, reverse=True)
        assert wanted.meta.reranker == "fake:1"
    insisted = await app.assembler.assemble(ann, Assemble("gateway", "one", "cat", rerank=True))
    assert (order(insisted.hits), insisted.meta.not_reranked) == (order(plain.hits), "no_reranker")
