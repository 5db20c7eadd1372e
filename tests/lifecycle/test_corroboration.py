"""What counts as said by several, and what as said otherwise."""

from datetime import UTC, datetime
from uuid import UUID

from whence.lifecycle.corroboration import Telling, promotions

A, B, C, D = (UUID(int=number) for number in range(1, 5))


def telling(
    who: UUID,
    *sources: str,
    same: bool = True,
    persistent: bool = False,
    year: int = 2026,
    sure: float | None = None,
) -> Telling:
    """Told in the order of their names."""
    return Telling(who, who.int, same, persistent, datetime(year, 1, 1, tzinfo=UTC), sure, sources)


def test_two_rows_of_a_session_that_say_the_same_are_one_promotion() -> None:
    told = [telling(C, "told session:s2"), telling(B, "told session:s2"), telling(A, "told session:s1")]
    [promotion] = promotions({B: told, C: told})
    assert promotion.rows == (B, C)
    assert promotion.sources == (B, C, A)


def test_it_holds_since_the_first_who_said_it_or_since_when_it_is_remembered() -> None:
    told = [telling(B, "told session:s2", year=2026), telling(A, "told session:s1", year=2020)]
    assert promotions({B: told})[0].valid_at.year == 2020
    known = [*told, telling(C, "told user:ann", persistent=True, year=2024)]
    assert promotions({B: known})[0].valid_at.year == 2024
    assert C not in promotions({B: known})[0].sources


def test_several_who_do_not_know_of_each_other_are_surer_than_one() -> None:
    told = [
        telling(A, "told session:s1", sure=0.5),
        telling(B, "told session:s1", "event e1", sure=0.5),
        telling(C, "event e1", sure=0.9),
        telling(D, sure=0.9),
    ]
    assert promotions({B: told})[0].confidence == 0.75, "C says what B had from the same event, and D has no source"
    known = telling(D, "told user:ann", persistent=True, sure=0.9)
    [again] = promotions({B: [*told[:2], known]})
    assert (again.confidence, again.sources) == (0.5, (B,)), "A's session tells it itself, when it is closed"
    assert promotions({C: [*told, known]}) == [], "B had said it from the same event before"
    [later] = promotions({A: [*told, known], C: [*told, known]})
    assert (later.rows, later.sources, later.confidence) == ((A, C), (A,), 0.5)
    assert promotions({B: [telling(A, "told session:s1"), telling(B, "event e1")]})[0].confidence is None


def test_one_source_that_repeats_itself_is_one() -> None:
    assert promotions({B: [telling(B, "told session:s1"), telling(A, "told session:s1")]}) == []


def test_what_is_remembered_is_told_again_only_by_who_had_not_said_it() -> None:
    known = telling(A, "told session:s1", "told session:s2", persistent=True)
    assert promotions({B: [telling(B, "told session:s2"), known]}) == []
    assert promotions({B: [telling(B), known]}) == []
    [promotion] = promotions({C: [telling(C, "told session:s3"), telling(B), known]})
    assert promotion.sources == (C,), "B has it from another"


def test_what_has_no_source_of_its_own_adds_nothing() -> None:
    assert promotions({A: [telling(B), telling(A, "told session:s1")]}) == []
    assert promotions({A: [telling(B, "event e1"), telling(A, "told session:s1")]}) != []


def test_what_is_said_of_an_earlier_time_contradicts_nothing() -> None:
    told = [telling(B, "told session:s2"), telling(A, "told session:s1")]
    assert promotions({A: [telling(C, "told session:s3", same=False, year=2010), *told]}) != []
    assert promotions({A: [telling(C, "told session:s3", same=False), *told]}) == []


def test_who_said_so_before_it_was_contradicted_does_not_count() -> None:
    told = [telling(C, "told session:s3"), telling(B, "told session:s2", same=False), telling(A, "told session:s1")]
    assert promotions({C: told}) == []
    assert promotions({C: [telling(D, "told session:s4"), *told]}) != []
