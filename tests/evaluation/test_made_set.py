"""The set that is made: of its shape, the same for the same seed, and no riddle without an answer."""

import json
from pathlib import Path

import made_set
from whence.evaluation.datasets import Dataset


def test_the_same_seed_makes_the_same_set_and_another_one_another() -> None:
    assert made_set.make(5, 1) == made_set.make(5, 1) != made_set.make(5, 2)


def test_every_question_of_a_made_set_has_its_evidence_where_it_should_be(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    path.write_text(json.dumps(made_set.make(25, 7)))
    dataset = Dataset(path)
    assert dataset.shape == "longmemeval"
    counts = {"single-session-user": {1}, "single-session-assistant": {1}, "multi-session": {2, 3}}
    counts |= {"knowledge-update": {2}, "temporal": {1, 2}}
    for conversation in dataset.conversations():
        (question,) = conversation.questions
        assert len(question.evidence) in counts[question.category]
        assert len(question.sessions) == len(question.evidence)
        roles = {turn.turn_id: turn.role for turn in conversation.turns}
        by_assistant = question.category == "single-session-assistant"
        assert {roles[turn_id] for turn_id in question.evidence} == {"assistant" if by_assistant else "user"}


def test_turns_are_long_and_the_answer_is_an_aside(tmp_path: Path) -> None:
    for item in made_set.make(10, 3):
        assert 36 <= len(item["haystack_sessions"]) <= 44
        for session in item["haystack_sessions"]:
            assert 6 <= len(session) <= 12
            for turn in session:
                words = len(turn["content"].split())
                assert (75 if turn["role"] == "user" else 140) <= words <= 350
                assert not set("{}") & set(turn["content"])


def test_most_questions_share_no_rare_word_with_what_answers_them() -> None:
    facts = made_set.TEXTS["fact"]
    for fact in facts:
        said = set(f"{fact['said']} {fact['again']}".lower().replace(",", "").split())
        for question in fact["asked"]:
            shared = said & set(question.lower().rstrip("?").split())
            assert not {word for word in shared if len(word) > 5}, question
