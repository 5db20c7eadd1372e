"""Chats as files."""

import multiprocessing
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from whence.chat.sessions import MAX_EXCERPT_CHARACTERS, MAX_FOUND, Hidden, Sessions, Turn, excerpt
from whence.errors import InvalidInput

NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def turn(prompt: str, answer: str = "Yes.", minute: int = 0) -> Turn:
    return Turn(prompt, answer, NOON + timedelta(minutes=minute), NOON + timedelta(minutes=minute, seconds=1))


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    return Sessions(tmp_path / "sessions")


def test_turns_come_back_in_their_order_and_audit_events_do_not(sessions: Sessions) -> None:
    said = [turn("First?\nWith a line", "Ünïcode 🌱"), turn("Second?")]
    sessions.append("a", said[0])
    sessions.append("a", Hidden("memory_gateway_recall_failed", {"status": None}, NOON))
    sessions.append("a", said[1])
    sessions.append("b", turn("Elsewhere?"))
    assert sessions.turns("a") == said
    assert sessions.turns("nowhere") == []


def test_only_the_owner_reads_them(sessions: Sessions) -> None:
    sessions.append("a", turn("Hi?"))
    assert sessions.path("a").stat().st_mode & 0o777 == 0o600
    assert sessions.path("a").parent.stat().st_mode & 0o777 == 0o700
    deep = Sessions(sessions.path("a").parent.parent / "notes" / "sessions")
    deep.append("a", turn("Hi?"))
    assert deep.path("a").parent.parent.stat().st_mode & 0o777 == 0o700, "the notes are beside them"


def test_what_is_left_of_a_torn_line_is_passed_over_and_what_comes_next_is_whole(sessions: Sessions) -> None:
    sessions.append("a", turn("First?"))
    with sessions.path("a").open("ab") as file:
        file.write(b'{"kind":"turn","prompt":"Tor')
    assert [each.prompt for each in sessions.turns("a")] == ["First?"]
    sessions.append("a", turn("Second?"))
    assert [each.prompt for each in sessions.turns("a")] == ["First?", "Second?"]


def test_a_disk_that_is_full_leaves_the_file_as_it_was(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.append("a", turn("First?"))
    before = sessions.path("a").read_bytes()
    write = os.write
    # As a disk does that has room for ten bytes.
    monkeypatch.setattr("whence.chat.sessions.os.write", lambda file, line: write(file, line[:10]))
    with pytest.raises(OSError, match="No space left"):
        sessions.append("a", turn("Second?"))
    assert sessions.path("a").read_bytes() == before


def write_many(folder: Path, name: str) -> None:
    for number in range(50):
        Sessions(folder).append("a", turn(f"{name} {number} " + "x" * 5_000))


def test_processes_that_write_the_same_session_lose_nothing(sessions: Sessions, tmp_path: Path) -> None:
    spawned = multiprocessing.get_context("spawn")
    writers = [spawned.Process(target=write_many, args=(tmp_path / "sessions", name)) for name in ("p", "q")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    found = [" ".join(each.prompt.split()[:2]) for each in sessions.turns("a")]
    assert sorted(found) == sorted(f"{name} {number}" for name in "pq" for number in range(50))


@pytest.mark.parametrize("name", ["", ".", "../a", "a/b", ".hidden", "a" * 101, "a\n"])
def test_a_name_that_could_be_another_file_is_refused(sessions: Sessions, name: str) -> None:
    with pytest.raises(InvalidInput, match="session"):
        sessions.path(name)


def test_new_names_are_different_and_can_be_used(sessions: Sessions) -> None:
    names = {sessions.new_id() for _ in range(100)}
    assert len(names) == 100
    for name in names:
        sessions.path(name)


def test_rare_words_come_first_and_this_session_is_left_out(sessions: Sessions) -> None:
    for number in range(8):
        sessions.append("old", turn(f"the garden, part {number}", minute=number))
    sessions.append("older", turn("What does the OSPREY eat?", "Fish."))
    sessions.append("now", turn("osprey garden"))
    found = sessions.search("osprey in the garden", besides="now")
    assert len(found) == MAX_FOUND
    assert (found[0].session_id, found[0].turn.answer) == ("older", "Fish.")
    assert [each.turn.prompt[-1] for each in found[1:]] == ["7", "6", "5", "4"]
    assert sessions.search("penguin", besides="now") == []
    assert sessions.search("?!", besides="now") == []


def test_what_is_forgotten_is_in_no_file_and_the_rest_is_as_it_was(sessions: Sessions) -> None:
    for name in ("a", "b"):
        sessions.append(name, turn("My PIN is 4711."))
        sessions.append(name, Hidden("memory_gateway_add_failed", {"status": 500}, NOON))
        sessions.append(name, turn("And the weather?"))
    rest = sessions.path("b").read_bytes().splitlines()[1:]
    assert sessions.forget("My PIN is 4711.") == 2
    assert sessions.path("b").read_bytes().splitlines() == rest
    assert not any(b"4711" in path.read_bytes() for path in sessions.path("a").parent.iterdir())
    assert sessions.forget("PIN") == 0


def test_long_texts_are_shown_in_part_with_a_sign() -> None:
    assert excerpt("short") == "short"
    assert len(excerpt("x" * 10_000)) == MAX_EXCERPT_CHARACTERS
    assert excerpt("x" * 10_000).endswith("…")
