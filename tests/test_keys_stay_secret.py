"""That the search of all output for keys of users would find one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from key_watch import held, holds_a_key, pytest_runtest_makereport, written_below
from whence.hybrid import Secret

ISSUED = "uk_default.0123456789ab." + "k" * 43


@pytest.fixture
def key() -> Iterator[str]:
    secret = Secret("uk_spoken-" + "k" * 20)
    assert secret.reveal() in held
    yield secret.reveal()
    held.discard(secret.reveal())


def judged(item: pytest.Item, said: str) -> pytest.TestReport:
    report = pytest.TestReport("t", ("t", 1, "t"), {}, "passed", None, "call", sections=[("Captured log call", said)])
    hook = pytest_runtest_makereport(item)
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    return ended.value.value


def test_a_test_that_shows_a_key_fails(request: pytest.FixtureRequest, key: str) -> None:
    assert judged(request.node, "nothing of it").passed
    for shown in (key, ISSUED):
        report = judged(request.node, f"401 for {shown}!")
        assert report.failed
        assert "a user's key is in its output" in str(report.longrepr)
        assert shown not in str(report.longrepr)


def test_what_whence_writes_is_searched(tmp_path: Path, key: str) -> None:
    (tmp_path / "pgdata").mkdir()
    for name in ("sessions.jsonl", "serve.log", "MEMORY.md", "agent.json", "pgdata/server.log"):
        (tmp_path / name).write_text(key)
    found = [path.name for path in written_below(tmp_path) if holds_a_key(path.read_text())]
    assert sorted(found) == ["MEMORY.md", "serve.log", "sessions.jsonl"]
    for path in list(written_below(tmp_path)):
        path.unlink()
