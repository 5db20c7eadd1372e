"""Figures of a ranking, without a language model: which of the evidence is among the first results."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

SEED = 20_260_101
RESAMPLES = 2_000
CUTS: Final = (5, 10, 20, 50)
FIGURES: Final = (*(f"recall@{cut}" for cut in CUTS), "ndcg@10", "hit@10", "all@10", "mrr")
SESSION_FIGURES: Final = ("recall@5", "all@5", "recall@10", "all@10")

Ranks = Sequence[int | None]
"""Of each piece of evidence its place among the results, from 1; None where it is not among them."""


class Figure(msgspec.Struct, frozen=True):
    """A mean over questions, and between what it lies with 95 % confidence."""

    mean: float
    low: float
    high: float


def figure(name: str, ranks: Ranks) -> float:
    """One figure of one question, by its name."""
    kind, _, cut = name.partition("@")
    found = sorted(rank for rank in ranks if rank is not None and (not cut or rank <= int(cut)))
    match kind:
        case "recall":
            return len(found) / len(ranks)
        case "hit":
            return float(bool(found))
        case "all":
            return float(len(found) == len(ranks))
        case "mrr":
            return 1 / found[0] if found else 0.0
        case "ndcg":
            ideal = range(1, min(len(ranks), int(cut)) + 1)
            return sum(map(_gain, found)) / sum(map(_gain, ideal))
        case _:
            raise ValueError(name)


def _gain(rank: int) -> float:
    return 1 / math.log2(rank + 1)


def summarised(names: Sequence[str], questions: Sequence[Ranks]) -> dict[str, Figure]:
    """The figures over questions, each with its interval."""
    return _intervals(names, _table(names, questions))


def gained(names: Sequence[str], questions: Sequence[Ranks], over: Sequence[Ranks]) -> dict[str, Figure]:
    """By how much the figures are higher than with other ranks of the same questions."""
    return _intervals(names, _table(names, questions) - _table(names, over))


def percentiles(milliseconds: Sequence[float]) -> Mapping[str, float]:
    p50, p95 = np.percentile(milliseconds, (50, 95))
    return {"p50": round(float(p50), 2), "p95": round(float(p95), 2)}


def _table(names: Sequence[str], questions: Sequence[Ranks]) -> npt.NDArray[np.float64]:
    return np.array([[figure(name, ranks) for name in names] for ranks in questions], np.float64)


def _intervals(names: Sequence[str], table: npt.NDArray[np.float64]) -> dict[str, Figure]:
    """By the bootstrap: what the means would be, had other questions of the same kind been asked."""
    count = len(table)
    # How often each question is drawn. The seed is always the same, so that a run can be repeated.
    drawn = np.random.default_rng(SEED).multinomial(count, [1 / count] * count, size=RESAMPLES)
    low, high = np.percentile(drawn @ table / count, (2.5, 97.5), axis=0)
    means = table.mean(axis=0)
    rows = zip(names, means.tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Figure(*(round(value, 4) for value in values)) for name, *values in rows}
