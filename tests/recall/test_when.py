"""What a question says about when, counted from one Wednesday."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.recall.when import LONGEST_TEXT, times_in

NOW = datetime(2026, 7, 15, 13, 30, tzinfo=UTC)


def days(question: str, now: datetime = NOW) -> tuple[date, date] | None:
    """The first day and the day after the last one."""
    found = times_in(question, now)
    if found is None:
        return None
    assert all(moment.utcoffset() == timedelta(0) and moment.time() == datetime.min.time() for moment in found)
    return found[0].date(), found[1].date()


def day(year: int, month: int, number: int, count: int = 1) -> tuple[date, date]:
    first = date(year, month, number)
    return first, first + timedelta(days=count)


@pytest.mark.parametrize(
    ("question", "stretch"),
    [
        ("What happened on 2024-02-29?", day(2024, 2, 29)),
        ("on 3 March 2025", day(2025, 3, 3)),
        ("on the 3rd of March, 2025", day(2025, 3, 3)),
        ("On March 3rd, 2025 we met", day(2025, 3, 3)),
        ("On Mar. 3 we met", day(2026, 3, 3)),
        ("On 3 December we met", day(2025, 12, 3)),
        ("on july 15", day(2026, 7, 15)),
        ("on july 16", day(2025, 7, 16)),
        ("in March 2024", (date(2024, 3, 1), date(2024, 4, 1))),
        ("december 2023", (date(2023, 12, 1), date(2024, 1, 1))),
        ("in the fall of 2022", (date(2022, 9, 1), date(2022, 12, 1))),
        ("last winter", (date(2025, 12, 1), date(2026, 3, 1))),
        ("this summer", (date(2026, 6, 1), date(2026, 9, 1))),
        ("in May", (date(2026, 5, 1), date(2026, 6, 1))),
        ("last August", (date(2025, 8, 1), date(2025, 9, 1))),
        ("last July", (date(2025, 7, 1), date(2025, 8, 1))),
        ("in July", (date(2026, 7, 1), date(2026, 8, 1))),
        ("in 2023", (date(2023, 1, 1), date(2024, 1, 1))),
        ("today", day(2026, 7, 15)),
        ("What did I eat this morning?", day(2026, 7, 15)),
        ("yesterday", day(2026, 7, 14)),
        ("last night", day(2026, 7, 14)),
        ("the day before yesterday", day(2026, 7, 13)),
        ("three days ago", day(2026, 7, 12)),
        ("a couple of weeks ago", day(2026, 6, 29, 7)),
        ("a week ago", day(2026, 7, 6, 7)),
        ("two months ago", (date(2026, 5, 1), date(2026, 6, 1))),
        ("12 months back", (date(2025, 7, 1), date(2025, 8, 1))),
        ("five years ago", (date(2021, 1, 1), date(2022, 1, 1))),
        ("last week", day(2026, 7, 6, 7)),
        ("last month", (date(2026, 6, 1), date(2026, 7, 1))),
        ("last year", (date(2025, 1, 1), date(2026, 1, 1))),
        ("the week before", day(2026, 7, 6, 7)),
        ("this week", day(2026, 7, 13, 7)),
        ("this month", (date(2026, 7, 1), date(2026, 8, 1))),
        ("this year", (date(2026, 1, 1), date(2027, 1, 1))),
        ("last weekend", day(2026, 7, 11, 2)),
        ("this weekend", day(2026, 7, 18, 2)),
        ("two weekends ago", day(2026, 7, 4, 2)),
        ("last Friday", day(2026, 7, 10)),
        ("on Wednesday", day(2026, 7, 8)),
        ("on Tuesday", day(2026, 7, 14)),
    ],
)
def test_what_is_said_about_when_is_a_stretch_of_days(question: str, stretch: tuple[date, date]) -> None:
    assert days(question) == stretch


@pytest.mark.parametrize("number", [18, 19])
def test_at_a_weekend_this_one_is_the_one_that_is(number: int) -> None:
    now = datetime(2026, 7, number, 9, tzinfo=UTC)
    assert days("this weekend", now) == day(2026, 7, 18, 2)
    assert days("last weekend", now) == day(2026, 7, 11, 2)


@pytest.mark.parametrize(
    ("question", "length"),
    [("in the last 3 days", 3), ("the past two weeks", 14), ("the last few months", 90), ("last two years", 730)],
)
def test_the_last_few_end_now(question: str, length: int) -> None:
    assert times_in(question, NOW) == (NOW - timedelta(days=length), NOW)


@pytest.mark.parametrize(
    "question",
    [
        "",
        "Where do I live?",
        "on 2024-02-30",
        "on the 31st of February",
        "on June 31",
        "in the last 0 days",
        "May I have some tea?",
        "Do you think this may help?",
        "It may be that I may not",
        "They march on",
        "I have two sisters and 300 books",
        "call 2024 for help",
        "version 2023-99-99",
    ],
)
def test_what_says_nothing_about_when_or_cannot_be_is_no_time(question: str) -> None:
    assert times_in(question, NOW) is None


def test_what_cannot_be_does_not_hide_what_can() -> None:
    assert days("not on 2024-02-30 but on 2024-03-01") == day(2024, 3, 1)
    assert days("on June 31, or was it last week?") == day(2026, 7, 6, 7)


def test_a_day_is_told_before_what_is_less_exact() -> None:
    assert days("last year, on 2025-03-04") == day(2025, 3, 4)


def test_the_days_are_those_of_utc() -> None:
    late = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=5)))
    assert days("today", late) == day(2025, 12, 31)
    assert days("on december 31", late) == day(2025, 12, 31)


@pytest.mark.parametrize("now", [datetime.min, datetime.max])
@pytest.mark.parametrize("hours", [-11, 0, 11])
def test_where_time_ends_there_is_none(now: datetime, hours: int) -> None:
    for question in ("last year", "today", "this weekend", "two weeks ago", "last 3 years", "in May"):
        times_in(question, now.replace(tzinfo=timezone(timedelta(hours=hours))))


def test_only_the_beginning_of_a_long_question_is_looked_at() -> None:
    assert times_in("x" * LONGEST_TEXT + " yesterday", NOW) is None


SAID = """
last this past on in since during the of may march june 31 0 999 2024 19999 1900 2099-12-31 2024-02-30 few couple a two
weekend weekends week days months years ago before yesterday friday winter sunday st th , .
"""


@given(
    st.lists(st.sampled_from(SAID.split()), max_size=12).map(" ".join) | st.text(max_size=200),
    st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-11))])),
)
def test_any_question_at_any_time_gives_a_stretch_that_ends_after_it_begins(question: str, now: datetime) -> None:
    found = times_in(question, now)
    assert found is None or found[0] < found[1]
