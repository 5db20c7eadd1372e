"""What a process holds to search it: for how long."""

import pytest

from recalling import told
from whence.app import App
from whence.identity import Principal
from whence.recall import held
from whence.recall.held import Corpora
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
