"""Ids of what is stored."""

import time
from itertools import pairwise
from uuid import RFC_4122

import pytest

from whence import ids
from whence.ids import new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    made = new_id()
    assert (made.version, made.variant) == (7, RFC_4122)


def test_an_id_begins_with_the_time_at_which_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    after = time.time_ns() // 1_000_000
    assert before <= made.int >> 80 <= after


def test_ids_made_later_sort_later(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1_800_000_000_999_000_000, 1_800_000_001_001_000_000, 250))
    monkeypatch.setattr(ids.time, "time_ns", lambda: next(moments))
    made = [new_id() for _ in range(8_000)]
    assert all(first < second for first, second in pairwise(made))


def test_ids_of_the_same_moment_differ_and_cannot_be_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_800_000_000_123_456_789)
    made = [new_id() for _ in range(2_000)]
    assert len(set(made)) == len(made)
    # Every one of the 62 bits is set in about half of them.
    for bit in range(62):
        assert 0.4 < sum(each.int >> bit & 1 for each in made) / len(made) < 0.6
