"""What a process holds to search it: for how long."""

from collections.abc import Sequence
from typing import Any

import pytest

from conftest import Workspace
from recalling import told
from whence import recall
from whence.app import App
from whence.identity import Principal
from whence.recall import held
from whence.recall.held import Corpora, Held
from whence.recall.ranking import Ranked, rank
from whence.recall.scoring import Asked
from whence.wire import Recall


async def test_what_is_held_is_read_again_only_while_its_vectors_are_being_replaced(
    app: App, ann: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.memory.remember(ann, told("The cat"))
    await app.memory.remember(ann, told("The dog", embedding=(1.0, 2.0)))
    await app.recaller.recall(ann, Recall(query="cat"))
    monkeypatch.setattr(held, "OUTDATED_SECONDS", -1.0)
    current = app.recaller._corpora  # pyright: ignore[reportPrivateUsage]
    assert current.of(ann.scope)[0] is current.of(ann.scope)[0]
    assert current.of(ann.scope)[0].is_loaded
    replacing = Corpora(app.database, app.distant, app.recaller.built_in, "another embedder")
    await replacing.load(ann.scope, before := replacing.of(ann.scope)[0])
    assert replacing.of(ann.scope)[0] is not before


async def test_what_this_process_has_told_is_ranked_once_and_what_others_have_told_is_found_too(
    app: App, ann: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked: list[int] = []

    def counted(question: Asked, asked: Recall, everything: Sequence[Held], *rest: Any) -> Ranked:
        ranked.append(sum(len(held.corpus) for held in everything))
        return rank(question, asked, everything, *rest)

    async def found() -> list[str]:
        return [hit.text for hit in (await app.recaller.recall(ann, Recall(query="grey cat"))).hits]

    await app.memory.remember(ann, told("The grey cat"))
    assert await found() == ["The grey cat"]
    monkeypatch.setattr(recall, "rank", counted)
    await app.memory.remember(ann, told("The grey cat sleeps"))
    assert sorted(await found()) == ["The grey cat", "The grey cat sleeps"]
    assert ranked == [2]
    # As another process does, of which this one is not told.
    monkeypatch.setattr(app.memory, "on_told", None)
    await app.memory.remember(ann, told("The grey cat wakes"))
    assert len(await found()) == 3
    assert ranked == [2, 2, 3]


async def test_what_was_read_anew_is_not_behind(app: App, ann: Principal, workspace: Workspace) -> None:
    await app.recaller.recall(ann, Recall(query="cat"))
    await app.recaller.recall(workspace.admin, Recall(query="cat"))
    await app.memory.remember(ann, told("The cat"))
    corpora = app.recaller._corpora  # pyright: ignore[reportPrivateUsage]
    for scope in (ann.scope, workspace.admin.scope):
        everyones = corpora.of(scope)[0]
        assert everyones.is_behind
        await corpora.load(scope, everyones)
        assert not everyones.is_behind
        assert len(everyones.corpus) == 1
