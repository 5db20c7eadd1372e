"""Another embedder is chosen: vectors are made again, in place, and nothing is without one meanwhile."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from psycopg import Connection

from conftest import Workspace
from tiny_models import DIMENSION, Hosted, hosted, make_graph, table, write_model
from whence.app import App, open_app
from whence.errors import Unavailable
from whence.jobs import JOBS, REEMBED, Job
from whence.memory import reembed
from whence.memory.rebuild import rebuild
from whence.settings import Settings
from whence.wire import Fact, Remember

BUILT_IN = "wordllama-l2-supercat-256"


def note(text: str, **more: Any) -> Remember:
    return Remember(agent="gateway", tier="persistent", kind="episodic", text=text, **more)


@pytest.fixture(scope="module")
async def other(app: App, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    """The same database, with a model in a folder."""
    folder = write_model(tmp_path_factory.mktemp("models") / "tiny")
    async with open_app(Settings(data_dir=data_dir, embedder=f"onnx:{folder}")) as opened:
        yield opened


@asynccontextmanager
async def served_by(data_dir: Path, server: Hosted) -> AsyncIterator[App]:
    settings = Settings(data_dir=data_dir, embedder="openai:m", embedder_url=server.url)
    async with open_app(settings) as opened:
        yield opened


@pytest.fixture
def rows(owner: Connection, workspace: Workspace) -> Iterator[Any]:
    """Whose vector each memory has, and of how many components, the newest first."""
    owner.execute("SET ROLE whence_workspace")
    owner.execute(f"SET app.workspace_id = '{workspace.workspace_id}'")

    def ask() -> list[tuple[str, int]]:
        return owner.execute(
            "SELECT v.embedder, vector_dims(v.embedding) FROM whence.memory_vectors v"
            " JOIN whence.memories m USING (workspace_id, memory_id) ORDER BY m.position DESC"
        ).fetchall()

    return ask


async def run(app: App, workspace: Workspace) -> bool:
    return await app.reembedding.run(workspace.workspace_id, asyncio.Event())


async def verified(app: App, workspace: Workspace, verify: bool = True) -> tuple[str, ...]:
    report = await rebuild(app.database, app.ledger, app.memory, workspace.workspace_id, verify, lambda *_: None)
    assert (report.digest == report.live_digest) == report.equal
    return report.differing


async def test_vectors_of_another_embedder_are_made_again_and_given_ones_are_not(
    app: App, other: App, workspace: Workspace, rows: Any
) -> None:
    ann = workspace.user("ann")
    for text in ("cat in rome", "dog in oslo", "bus"):
        await app.memory.remember(ann, note(text))
    await app.memory.remember(ann, note("given", embedding=(3.0, 4.0)))
    told = await other.memory.remember(ann, note("train"))
    name = other.memory.embedder.name
    assert rows() == [(name, DIMENSION), ("given", 2), *[(BUILT_IN, 256)] * 3]
    assert await other.reembedding.due([workspace.workspace_id]) == [workspace.workspace_id]
    assert other.registry.get_sample_value("whence_vectors_to_replace") == 3
    assert not await run(other, workspace)
    assert rows() == [(name, DIMENSION), ("given", 2), *[(name, DIMENSION)] * 3]
    assert await other.reembedding.due([workspace.workspace_id]) == []
    assert other.registry.get_sample_value("whence_vectors_to_replace") == 0
    assert (await other.memory.get(ann.scope, told.memory_id)).text == "train"


async def test_each_memory_has_the_vector_of_its_own_text(
    app: App, other: App, workspace: Workspace, owner: Connection, rows: Any
) -> None:
    texts = ["cat", "dog in rome", "bus train car oslo", "fish"]
    for text in texts:
        await app.memory.remember(workspace.user("ann"), note(text))
    await run(other, workspace)
    found = owner.execute(
        "SELECT m.body, v.embedding::real[] FROM whence.memory_vectors v"
        " JOIN whence.memories m USING (workspace_id, memory_id)"
    ).fetchall()
    assert sorted(body for body, _ in found) == sorted(texts)
    for body, vector in found:
        [made] = await other.memory.embedded([body])
        assert np.allclose(vector, made.components, atol=1e-3)
    asked = await other.memory.embedded_query("dog in rome")
    best = max(found, key=lambda row: float(np.dot(row[1], asked.components)))
    assert (best[0], asked.embedder) == ("dog in rome", other.memory.embedder.name)


async def test_nothing_is_without_a_vector_meanwhile_and_the_newest_come_first(
    app: App, other: App, workspace: Workspace, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        await app.memory.remember(workspace.user("ann"), note(f"cat {number}"))
    monkeypatch.setattr(reembed, "BATCH_VECTORS", 2)
    name, seen = other.memory.embedder.name, []
    embedded = other.memory.embedded

    async def watched(texts: list[str]) -> Any:
        seen.append(rows())
        return await embedded(texts)

    monkeypatch.setattr(other.memory, "embedded", watched)
    await run(other, workspace)
    assert [len(each) for each in seen] == [9] * 5
    for count, each in enumerate(seen):
        assert [embedder for embedder, _ in each] == [name] * (2 * count) + [BUILT_IN] * (9 - 2 * count)


async def test_it_is_taken_up_where_it_was_left(
    app: App, other: App, workspace: Workspace, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await app.memory.remember(workspace.user("ann"), note(f"cat {number}"))
    monkeypatch.setattr(reembed, "BATCH_VECTORS", 2)
    name, stopping = other.memory.embedder.name, asyncio.Event()
    embedded = other.memory.embedded

    async def stopped(texts: list[str]) -> Any:
        stopping.set()
        return await embedded(texts)

    monkeypatch.setattr(other.memory, "embedded", stopped)
    assert not await other.reembedding.run(workspace.workspace_id, stopping)
    assert [embedder for embedder, _ in rows()] == [name] * 2 + [BUILT_IN] * 3
    await run(other, workspace)
    assert [embedder for embedder, _ in rows()] == [name] * 5


async def test_two_may_run_at_once(app: App, other: App, workspace: Workspace, rows: Any) -> None:
    await app.memory.remember_all(workspace.user("ann"), [note(f"cat {number}") for number in range(300)])
    await asyncio.gather(run(other, workspace), run(other, workspace))
    assert rows() == [(other.memory.embedder.name, DIMENSION)] * 300


async def test_what_is_gone_meanwhile_stays_gone(
    app: App, other: App, workspace: Workspace, owner: Connection, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("cat", "dog"):
        await app.memory.remember(workspace.user("ann"), note(text))
    embedded = other.memory.embedded

    async def late(texts: list[str]) -> Any:
        owner.execute("DELETE FROM whence.memory_vectors")
        return await embedded(texts)

    monkeypatch.setattr(other.memory, "embedded", late)
    await run(other, workspace)
    assert rows() == []


async def test_the_job_does_a_part_at_a_time_and_asks_for_the_next(
    app: App, other: App, workspace: Workspace, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.memory.remember_all(workspace.user("ann"), [note(f"cat {number}") for number in range(5)])
    monkeypatch.setattr(reembed, "RUN_VECTORS", 3)
    (job,) = [job for job in JOBS if isinstance(job, Job) and job.name == REEMBED]
    assert workspace.workspace_id in await job.due(other)
    await job.act(other, workspace.workspace_id)
    assert sum(embedder == BUILT_IN for embedder, _ in rows()) == 2
    assert [queued.job for queued in (await other.queue.page(workspace.admin.scope)).jobs] == [REEMBED]
    await job.act(other, workspace.workspace_id)
    assert sum(embedder == BUILT_IN for embedder, _ in rows()) == 0


async def test_a_workspace_that_is_done_is_looked_at_again_after_a_while(
    app: App, other: App, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [workspace.workspace_id]
    assert await other.reembedding.due(places) == []
    await app.memory.remember(workspace.user("ann"), note("written by a server with other settings"))
    assert await other.reembedding.due(places) == []
    later = other.clock() + timedelta(days=1, seconds=1)
    monkeypatch.setattr(other.reembedding, "_clock", lambda: later)
    assert await other.reembedding.due(places) == places


async def test_a_hosted_model_that_fails_fails_who_asked_and_leaves_vectors_as_they_were(
    app: App, data_dir: Path, workspace: Workspace, rows: Any
) -> None:
    ann = workspace.user("ann")
    with hosted() as server:
        await app.memory.remember(ann, note("cat"))
        async with served_by(data_dir, server) as opened:
            server.answer = lambda body, number: (401, {}, b"")
            with pytest.raises(Unavailable, match="embedder_key"):
                await opened.memory.remember(ann, note("dog"))
            with pytest.raises(Unavailable, match="embedder_key"):
                await run(opened, workspace)
            assert rows() == [(BUILT_IN, 256)]
            server.answer = lambda body, number: (200, {}, server.vectors(body))
            await opened.memory.remember(ann, note("dog"))
            await run(opened, workspace)
            assert rows() == [(opened.memory.embedder.name, 8)] * 2


# Rebuilding


async def told_everything(app: App, workspace: Workspace) -> None:
    ann = workspace.user("ann")
    fact = Fact("Ann", "lives in", "Rome", 0.9)
    for text in ("cat in rome", "dog in oslo"):
        await app.memory.remember(ann, note(text))
    for _ in range(2):
        request = Remember(
            agent="gateway", tier="persistent", kind="semantic", text="Ann lives in Rome", fact=fact,
            session_id=uuid.uuid4().hex,
        )  # fmt: skip
        await app.memory.remember(ann, request)
    await app.memory.remember(ann, note("given", embedding=(3.0, 4.0)))


async def test_a_rebuild_finds_no_difference_before_during_and_after_the_change(
    app: App, other: App, workspace: Workspace, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await told_everything(app, workspace)
    assert await verified(other, workspace) == ()
    monkeypatch.setattr(reembed, "RUN_VECTORS", 2)
    await run(other, workspace)
    assert len({embedder for embedder, _ in rows()}) == 3
    assert await verified(other, workspace) == ()
    assert await verified(app, workspace) == ()
    await run(other, workspace)
    assert await verified(other, workspace) == ()
    assert await verified(other, workspace, verify=False) == ()


async def test_vectors_that_a_rebuild_cannot_compare_are_not_asked_for_again(
    app: App, data_dir: Path, workspace: Workspace
) -> None:
    with hosted() as server:
        async with served_by(data_dir, server) as opened:
            for text in ("cat", "dog"):
                await opened.memory.remember(workspace.user("ann"), note(text))
            asked = len(server.asked)
            assert await verified(opened, workspace) == ()
            assert len(server.asked) == asked


async def test_a_rebuild_finds_vectors_that_are_missing_or_forged_where_they_are_exact(
    app: App, other: App, workspace: Workspace, owner: Connection, rows: Any
) -> None:
    await told_everything(other, workspace)
    before = sorted(rows())
    owner.execute("DELETE FROM whence.memory_vectors WHERE embedder LIKE 'onnx:%'")
    assert await verified(other, workspace) == ("memory_vectors",)
    assert await verified(other, workspace, verify=False) == ("memory_vectors",)
    assert sorted(rows()) == before
    assert await verified(other, workspace) == ()
    owner.execute("UPDATE whence.memory_vectors SET embedding = '[1,0]' WHERE embedder = 'given'")
    assert await verified(other, workspace) == ("memory_vectors",)


async def test_what_differs_elsewhere_is_replaced_with_the_vectors_as_they_are(
    app: App, other: App, workspace: Workspace, owner: Connection, rows: Any
) -> None:
    await told_everything(app, workspace)
    await other.memory.remember(workspace.user("ann"), note("bus"))
    before = sorted(rows())
    owner.execute("UPDATE whence.memories SET body = 'forged' WHERE kind = 'semantic'")
    assert await verified(other, workspace, verify=False) == ("memories",)
    assert sorted(rows()) == before
    assert await verified(other, workspace) == ()


async def test_other_weights_in_the_same_folder_are_another_embedder(
    app: App, data_dir: Path, workspace: Workspace, rows: Any, tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "tiny")
    settings = Settings(data_dir=data_dir, embedder=f"onnx:{folder}")
    async with open_app(settings) as first:
        await first.memory.remember(workspace.user("ann"), note("cat"))
    write_model(folder, make_graph(table(seed=1)))
    async with open_app(settings) as second:
        assert await second.reembedding.due([workspace.workspace_id]) == [workspace.workspace_id]
        await run(second, workspace)
        assert rows() == [(second.memory.embedder.name, DIMENSION)]
        assert second.memory.embedder.name != first.memory.embedder.name
