"""Files of both shapes, and those that are none."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from small_sets import locomo, longmemeval, written
from whence.errors import InvalidInput, NotFound
from whence.evaluation import MAX_TURN_CHARACTERS
from whence.evaluation.datasets import Dataset
from whence.memory.writing import MAX_TEXT_CHARACTERS


def test_a_locomo_file_is_read_with_captions_and_times(tmp_path: Path) -> None:
    dataset = Dataset(written(tmp_path, locomo()))
    assert dataset.shape == "locomo"
    (conversation,) = dataset.conversations()
    first, second, third, _ = conversation.turns
    assert (first.turn_id, first.session_id, first.speaker, first.role) == ("D1:1", "session_1", "Mira", "user")
    assert second.text == "Lovely! [shares a green parrot]"
    assert first.said_at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert first.said_at < second.said_at < third.said_at == datetime(2023, 9, 13, 0, 9, tzinfo=UTC)
    assert [question.category for question in conversation.questions] == ["single-hop", "multi-hop", "adversarial"]


def test_evidence_that_is_written_oddly_is_understood_and_what_does_not_exist_dropped(tmp_path: Path) -> None:
    (conversation,) = Dataset(written(tmp_path, locomo())).conversations()
    assert [question.evidence for question in conversation.questions] == [("D1:1",), ("D2:1", "D1:1"), ()]


def test_a_longmemeval_file_is_read_in_the_order_of_its_dates(tmp_path: Path) -> None:
    dataset = Dataset(written(tmp_path, longmemeval()))
    assert dataset.shape == "longmemeval"
    conversation, unanswerable = dataset.conversations()
    assert [turn.turn_id for turn in conversation.turns] == ["earlier:1", "earlier:3", "later:1", "later:2"]
    (question,) = conversation.questions
    assert (question.evidence, question.sessions) == (("earlier:1",), ("earlier",))
    assert question.asked_at == datetime(2023, 6, 1, 10, tzinfo=UTC)
    assert (unanswerable.questions[0].evidence, unanswerable.questions[0].sessions) == ((), ())


def test_a_question_is_never_asked_before_the_last_turn(tmp_path: Path) -> None:
    items = longmemeval()
    items[0]["question_date"] = "2023/05/20 (Sat) 02:21"
    conversation, _ = Dataset(written(tmp_path, items)).conversations()
    assert conversation.questions[0].asked_at == conversation.turns[-1].said_at


@pytest.mark.parametrize(("limit", "kept"), [(1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (9, [0, 1, 2])])
def test_a_limit_takes_questions_from_the_whole_file(tmp_path: Path, limit: int, kept: list[int]) -> None:
    dataset = Dataset(written(tmp_path, locomo()))
    (conversation,) = dataset.conversations(limit)
    assert [question.question_id for question in conversation.questions] == [f"talk-1/{place}" for place in kept]
    assert dataset.question_count(limit) == len(kept)


def test_a_limit_leaves_out_conversations_of_which_nothing_is_asked(tmp_path: Path) -> None:
    items = longmemeval() * 3
    ids = [each.questions[0].question_id for each in Dataset(written(tmp_path, items)).conversations(3)]
    assert ids == ["q1", "q1", "q1"]


def changed(items: list[Any], *path: Any, to: Any) -> list[Any]:
    place: Any = items
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return items


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (changed(locomo(), 0, "qa", 1, "question", to=5), "Expected `str`, got `int` - at `[0].qa[1].question`"),
        (changed(locomo(), 0, "qa", 1, "category", to=6), "Unknown category 6 - at `[0].qa[1].category`"),
        (
            changed(locomo(), 0, "conversation", "session_2", 1, "speaker", to=None),
            "Expected `str`, got `null` - at `[0].conversation.session_2[1].speaker`",
        ),
        (
            changed(locomo(), 0, "conversation", "session_2", 1, "dia_id", to="2:2"),
            "Expected an id such as `D1:3` - at `[0].conversation.session_2[1].dia_id`",
        ),
        (
            changed(locomo(), 0, "conversation", "session_1_date_time", to="yesterday"),
            "Expected a time such as `1:56 pm on 8 May, 2023` - at `[0].conversation.session_1_date_time`",
        ),
        (
            changed(longmemeval(), 1, "haystack_sessions", 0, 0, "role", to="robot"),
            "Invalid enum value 'robot' - at `[1].haystack_sessions[0][0].role`",
        ),
        (
            changed(longmemeval(), 0, "haystack_dates", 1, to="May"),
            "Expected a time such as `2023/05/20 (Sat) 02:21` - at `[0].haystack_dates[1]`",
        ),
        (
            changed(longmemeval(), 0, "haystack_session_ids", to=["one"]),
            "Expected as many as there are sessions, 2, got 1 - at `[0].haystack_session_ids`",
        ),
        ({"questions": []}, "is not a list of conversations"),
        ([], "is of no known shape"),
        ([3], "is of no known shape"),
        ([{"messages": []}], "is of no known shape"),
        (changed(locomo(), 0, "qa", to=[]), "there is no question in it"),
    ],
)
def test_what_is_malformed_is_told_with_its_place(tmp_path: Path, items: object, said: str) -> None:
    path = written(tmp_path, items)
    with pytest.raises(InvalidInput) as raised:
        Dataset(path)
    assert raised.value.detail.startswith(f"{path}: {said}")
    assert "\n" not in raised.value.detail


@pytest.mark.parametrize("content", [b"", b"[", b"\xff\xfe", b'[{"qa": [}]'])
def test_what_is_no_json_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "set.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="is not valid JSON"):
        Dataset(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        Dataset(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        Dataset(tmp_path)


def test_a_turn_is_parted_where_whence_would_refuse_it() -> None:
    assert MAX_TURN_CHARACTERS == MAX_TEXT_CHARACTERS
