"""What a question says about when: a stretch of time, counted from the moment at which it is asked."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

Stretch = tuple[datetime, datetime]

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            ("january", "jan"),
            ("february", "feb"),
            ("march", "mar"),
            ("april", "apr"),
            ("may",),
            ("june", "jun"),
            ("july", "jul"),
            ("august", "aug"),
            ("september", "sep", "sept"),
            ("october", "oct"),
            ("november", "nov"),
            ("december", "dec"),
        ),
        1,
    )
    for name in names
}
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS: Final = {
    name: number
    for number, name in enumerate(
        ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
        1,
    )
} | {"a": 1, "an": 1, "couple of": 2, "a couple of": 2, "few": 3, "a few": 3}

_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_DAY: Final = "|".join(_DAYS)
_YEAR: Final = r"(?:19|20)\d\d"
_COUNT: Final = rf"\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))}"

LONGEST_TEXT = 2_000
"""Of a question that is looked at."""


def times_in(question: str, now: datetime) -> Stretch | None:
    """The first that is said, the most exact kind before the others; none where nothing is."""
    text = question[:LONGEST_TEXT].casefold()
    try:
        now = now.astimezone(UTC)
    except OverflowError:
        return None
    for pattern, read in _READERS:
        for found in pattern.finditer(text):
            try:
                stretch = read(found, now)
            except (ValueError, OverflowError):
                # Such as the 31st of February.
                continue
            if stretch is not None and stretch[0] < stretch[1]:
                return stretch
    return None


def _day(year: int, month: int, day: int, count: int = 1) -> Stretch:
    start = datetime(year, month, day, tzinfo=UTC)
    return start, start + timedelta(days=count)


def _month(year: int, month: int, count: int = 1) -> Stretch:
    start = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)
    past = month + count - 1
    return start, datetime(year + past // 12, past % 12 + 1, 1, tzinfo=UTC)


def _year(year: int) -> Stretch:
    return _month(year, 1, 12)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _named_year(given: str | None, now: datetime, month: int, day: int = 1) -> int:
    """Without a year it is the last one that was."""
    if given:
        return int(given)
    return now.year if (month, day) <= (now.month, now.day) else now.year - 1


def _iso(found: re.Match[str], now: datetime) -> Stretch | None:
    return _day(int(found[1]), int(found[2]), int(found[3]))


def _day_and_month(found: re.Match[str], now: datetime) -> Stretch | None:
    day, month = int(found["day"]), _MONTHS[found["month"]]
    return _day(_named_year(found["year"], now, month, day), month, day)


def _month_and_year(found: re.Match[str], now: datetime) -> Stretch | None:
    return _month(int(found["year"]), _MONTHS[found["month"]])


def _in_month(found: re.Match[str], now: datetime) -> Stretch | None:
    month = _MONTHS[found["month"]]
    year = _named_year(None, now, month)
    return _month(year - 1 if found["which"] == "last" and month == now.month else year, month)


def _in_season(found: re.Match[str], now: datetime) -> Stretch | None:
    first = _SEASONS[found["season"]]
    year = int(found["year"]) if found["year"] else _named_year(None, now, first)
    return _month(year, first, 3)


def _in_year(found: re.Match[str], now: datetime) -> Stretch | None:
    return _year(int(found[1]))


def _ago(found: re.Match[str], now: datetime) -> Stretch | None:
    count = int(found["count"]) if found["count"].isdigit() else _NUMBERS[found["count"]]
    return _back(found["unit"], count, now)


def _back(unit: str, count: int, now: datetime) -> Stretch:
    """The day, week, month or year so many of them back."""
    today = _midnight(now)
    if unit == "day":
        return today - timedelta(days=count), today - timedelta(days=count - 1)
    if unit == "week":
        monday = today - timedelta(days=today.weekday() + 7 * count)
        return monday, monday + timedelta(days=7)
    if unit == "weekend":
        saturday = today - timedelta(days=today.weekday() - 5 + 7 * count)
        return saturday, saturday + timedelta(days=2)
    if unit == "month":
        months = today.year * 12 + today.month - 1 - count
        return _month(months // 12, months % 12 + 1)
    return _year(today.year - count)


def _last(found: re.Match[str], now: datetime) -> Stretch | None:
    return _back(found["unit"], 1, now)


def _this(found: re.Match[str], now: datetime) -> Stretch | None:
    return _back(found["unit"], 0, now)


def _last_few(found: re.Match[str], now: datetime) -> Stretch | None:
    count = int(found["count"]) if found["count"].isdigit() else _NUMBERS[found["count"]]
    days = count * {"day": 1, "week": 7, "month": 30, "year": 365}[found["unit"]]
    return now - timedelta(days=days), now


def _weekday(found: re.Match[str], now: datetime) -> Stretch | None:
    today = _midnight(now)
    day = today - timedelta(days=(today.weekday() - _DAYS.index(found["weekday"]) - 1) % 7 + 1)
    return day, day + timedelta(days=1)


def _near_day(found: re.Match[str], now: datetime) -> Stretch | None:
    today = _midnight(now)
    back = {"today": 0, "tonight": 0, "this morning": 0, "yesterday": 1, "last night": 1}.get(found[1], 2)
    return today - timedelta(days=back), today - timedelta(days=back - 1)


_READERS: Final[list[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], Stretch | None]]]] = [
    (re.compile(rf"\b({_YEAR})-(\d\d)-(\d\d)\b"), _iso),
    (
        re.compile(
            rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\b\.?,?(?: (?P<year>{_YEAR})\b)?"
        ),
        _day_and_month,
    ),
    (
        re.compile(rf"\b(?P<month>{_MONTH})\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year>{_YEAR})\b)?"),
        _day_and_month,
    ),
    (re.compile(rf"\b(?P<month>{_MONTH})\b\.?,?(?: of)? (?P<year>{_YEAR})\b"), _month_and_year),
    (re.compile(rf"\b(?P<count>{_COUNT}) (?P<unit>day|week|weekend|month|year)s? (?:ago|back|earlier)\b"), _ago),
    (re.compile(rf"\b(?:last|past) (?P<count>{_COUNT}) (?P<unit>day|week|month|year)s\b"), _last_few),
    (re.compile(rf"\b(?:last|on|this past) (?P<weekday>{_DAY})\b"), _weekday),
    # Not where "may" is a verb, as in "this may help".
    (
        re.compile(rf"\b(?P<which>last|in|this|during|since) (?P<month>{_MONTH})\b(?! \w+ing)(?!(?<=this may) \w)"),
        _in_month,
    ),
    (
        re.compile(
            rf"\b(?:last|in|this|during)(?: the)? (?P<season>{'|'.join(_SEASONS)})\b(?: of)?(?: (?P<year>{_YEAR}))?"
        ),
        _in_season,
    ),
    (re.compile(r"\b(?:last|past|previous) (?P<unit>weekend|week|month|year)\b"), _last),
    (re.compile(r"\bthe (?P<unit>week|weekend|month|year) before\b"), _last),
    (re.compile(r"\bthis (?P<unit>week|weekend|month|year)\b"), _this),
    (re.compile(r"\b(today|tonight|this morning|yesterday|last night|the day before yesterday)\b"), _near_day),
    (re.compile(rf"\b(?:in|of|during|since|year) ({_YEAR})\b"), _in_year),
]
