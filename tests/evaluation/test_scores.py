"""Figures against what they are by hand."""

import math

import pytest

from whence.evaluation.scores import FIGURES, Figure, figure, gained, percentiles, summarised


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([1], {"recall@5": 1, "ndcg@10": 1, "hit@10": 1, "all@10": 1, "mrr": 1}),
        ([None], {"recall@5": 0, "recall@50": 0, "ndcg@10": 0, "hit@10": 0, "all@10": 0, "mrr": 0}),
        ([5, None], {"recall@5": 0.5, "recall@50": 0.5, "hit@10": 1, "all@10": 0, "mrr": 0.2}),
        ([6, 12], {"recall@5": 0, "recall@10": 0.5, "recall@20": 1, "all@10": 0, "mrr": 1 / 6}),
        ([10], {"recall@5": 0, "recall@10": 1, "ndcg@10": 1 / math.log2(11)}),
        ([11], {"recall@10": 0, "ndcg@10": 0, "hit@10": 0, "mrr": 1 / 11}),
        ([2, 1], {"ndcg@10": 1, "all@10": 1, "mrr": 1}),
        # (1/log2 2 + 1/log2 5) / (1/log2 2 + 1/log2 3) = (1 + 0.43068) / (1 + 0.63093)
        ([1, 4], {"ndcg@10": 0.87721}),
    ],
)
def test_a_figure_is_what_it_is_by_hand(ranks: list[int | None], expected: dict[str, float]) -> None:
    assert {name: figure(name, ranks) for name in expected} == pytest.approx(expected, abs=1e-5)


def test_the_best_ranking_is_one_also_where_there_is_more_evidence_than_places() -> None:
    assert figure("ndcg@10", list(range(1, 16))) == pytest.approx(1)
    assert figure("recall@10", list(range(1, 16))) == pytest.approx(10 / 15)


def test_a_mean_is_over_questions_and_not_over_evidence() -> None:
    found = summarised(("recall@5",), [[1], [None, None, None]])
    assert found["recall@5"].mean == 0.5


def test_an_interval_is_the_same_every_time_and_holds_its_mean() -> None:
    questions = [[1], [None], [3], [12], [None], [2, 9], [1, None]] * 5
    found = summarised(FIGURES, questions)
    assert found == summarised(FIGURES, questions)
    assert all(each.low <= each.mean <= each.high for each in found.values())
    # Three of seven are found wholly: 0.429, give or take 1.96 times the standard error of 35 draws, 0.164.
    assert found["all@10"].mean == pytest.approx(3 / 7, abs=1e-4)
    assert found["all@10"].low == pytest.approx(0.265, abs=0.03)
    assert found["all@10"].high == pytest.approx(0.592, abs=0.03)


def test_questions_that_all_agree_have_no_spread() -> None:
    assert summarised(("mrr",), [[2]] * 9)["mrr"] == Figure(0.5, 0.5, 0.5)


def test_a_gain_is_compared_question_by_question() -> None:
    better, worse = [[1], [1], [None]] * 20, [[20], [1], [None]] * 20
    gain = gained(("recall@10",), better, worse)["recall@10"]
    assert gain.mean == pytest.approx(1 / 3, abs=1e-4)
    assert 0 < gain.low < gain.mean < gain.high
    assert gained(("recall@10",), better, better)["recall@10"] == Figure(0, 0, 0)


def test_percentiles_lie_between_what_was_measured() -> None:
    assert percentiles([1.0, 2.0, 3.0]) == {"p50": 2.0, "p95": 2.9}
