"""Decay: bounded, and monotone in what it depends on."""

import math
from datetime import timedelta

import hypothesis.strategies as st
from hypothesis import given

from whence.lifecycle.decay import grown_importance, recency, stability, strength, temperature

hours = st.floats(0, 50_000).map(lambda value: timedelta(hours=value))
counts = st.integers(0, 100_000)
parts = st.floats(0, 1)


def test_recency_is_the_documented_curve() -> None:
    assert stability(0) == 168
    assert math.isclose(stability(10), 168 * (1 + 24 / 168 * math.log(11)))
    assert math.isclose(recency(timedelta(hours=168), 0), math.exp(-1))
    assert recency(timedelta(hours=-5), 3) == 1


@given(age=hours, accesses=counts, importance=parts, told=st.integers(1, 100))
def test_strength_is_from_0_to_1(age: timedelta, accesses: int, importance: float, told: int) -> None:
    assert 0 <= recency(age, accesses) <= 1
    assert importance - 1e-12 <= grown_importance(importance, accesses) <= 1
    assert 0 <= strength("episodic", importance, age, accesses, told) <= 1


@given(age=hours, later=hours, accesses=counts, more=counts, importance=parts, higher=parts)
def test_it_fades_with_time_and_grows_with_use_and_importance(
    age: timedelta, later: timedelta, accesses: int, more: int, importance: float, higher: float
) -> None:
    now = strength("semantic", importance, age, accesses)
    assert strength("semantic", importance, age + later, accesses) <= now + 1e-9
    assert strength("semantic", importance, age, accesses + more) >= now - 1e-9
    assert strength("semantic", max(importance, higher), age, accesses) >= now - 1e-9


@given(age=hours, accesses=counts, importance=parts)
def test_a_procedure_does_not_fade(age: timedelta, accesses: int, importance: float) -> None:
    assert strength("procedural", importance, age, accesses) == 1


def test_temperatures() -> None:
    assert [temperature(value) for value in (1.0, 0.7, 0.69, 0.3, 0.29, 0.0)] == [
        "hot", "hot", "warm", "warm", "cold", "cold",
    ]  # fmt: skip
