"""What must not be remembered, taken out of a text before it is stored: personal data, secrets and raw traces.

Rules find it, not a model, so the answer is the same every time and needs no network. A finding is told by its kind
and never by its value: the counts may be logged, the values may not.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from whence.memory.credentials import (
    api_keys,
    connection_strings,
    jwts,
    may_hold_api_keys,
    may_hold_connection_strings,
    may_hold_jwts,
    may_hold_private_keys,
    private_keys,
)
from whence.memory.personal import (
    cards,
    emails,
    ibans,
    may_hold_emails,
    may_hold_ibans,
    may_hold_long_numbers,
    may_hold_national_ids,
    national_ids,
    phones,
)
from whence.memory.traces import may_hold_traces, trace_dumps

Category = Literal[
    "trace_dump",
    "private_key",
    "connection_string",
    "jwt",
    "api_key",
    "iban",
    "card",
    "national_id",
    "email",
    "phone",
]
Rule = Literal["replace", "refuse", "keep"]

MAX_PASSES = 4
"""Over one text. What a replacement brings closer to a telling word may be found by the next pass."""

MIN_CHARACTERS = 5
"""Of a string in JSON; a shorter one holds nothing that could be found."""


class _Finder(NamedTuple):
    find: Callable[[str], Iterator[tuple[int, int]]]
    """Asked only where `may_find` says so."""
    may_find: Callable[[str], bool]
    """Whether a text has what everything that it finds has. Most sentences have not, and this is quicker than to look.
    It is so of texts that were joined if it is so of one of them."""
    digits: int = 0
    """So many has everything that it finds."""


_FINDERS: dict[Category, _Finder] = {
    "trace_dump": _Finder(trace_dumps, may_hold_traces),
    "private_key": _Finder(private_keys, may_hold_private_keys),
    "connection_string": _Finder(connection_strings, may_hold_connection_strings),
    "jwt": _Finder(jwts, may_hold_jwts),
    "api_key": _Finder(api_keys, may_hold_api_keys),
    "iban": _Finder(ibans, may_hold_ibans, digits=2),
    "card": _Finder(cards, may_hold_long_numbers, digits=14),
    "national_id": _Finder(national_ids, may_hold_national_ids, digits=4),
    "email": _Finder(emails, may_hold_emails),
    "phone": _Finder(phones, may_hold_long_numbers, digits=7),
}
"""From the most specific to the least: of findings of the same length the first one names what was found."""

_MAY_FIND = {finder.may_find for finder in _FINDERS.values()}

_STRING = re.compile(r'("(?:[^"\\]|\\.)*+")(\s*+:\s*+)?')
"""Of JSON that is valid; one that is followed by a colon is a name."""

_BETWEEN = "\x1f"
"""Between texts that are looked through at once. It ends words."""

_RANK = {category: rank for rank, category in enumerate(_FINDERS)}


class Finding(NamedTuple):
    start: int
    end: int
    category: Category


class Sanitised(NamedTuple):
    text: str
    """Without what was found, also where the rule is to refuse."""
    found: dict[Category, int]
    """How often each category was replaced or is to be refused."""
    refused: tuple[Category, ...]
    """Found, although the rule is to refuse the whole text."""


def possible_in(texts: Iterable[str]) -> list[Category]:
    """What at least one of the texts may hold; nearly always little, and asked of all at once it costs little."""
    joined = _BETWEEN.join(texts)
    said = {may_find: may_find(joined) for may_find in _MAY_FIND}
    return [category for category, finder in _FINDERS.items() if said[finder.may_find]]


def sanitise(text: str, rules: Mapping[Category, Rule], possible: Sequence[Category] | None = None) -> Sanitised:
    """The text with a mark such as `[email]` for each finding. A category without a rule is replaced. `possible` is
    what `possible_in` says of texts of which this is one."""
    findings = findings_in(text, rules, possible) if possible is None or possible else []
    if not findings:
        return Sanitised(text, {}, ())
    counts: Counter[Category] = Counter()
    for _ in range(MAX_PASSES):
        counts.update(finding.category for finding in findings)
        text = _replaced(text, findings)
        findings = findings_in(text, rules)
        if not findings:
            break
    return _told(text, counts, rules)


def sanitise_json(text: str, rules: Mapping[Category, Rule]) -> Sanitised:
    """The same for valid JSON: each of its strings by itself, with the name that it stands under, which may give it
    away. Names, numbers and everything else stay as they were sent, digit by digit."""
    counts: Counter[Category] = Counter()
    parts: list[str] = []
    name, last, after = "", 0, -1
    for match in _STRING.finditer(text):
        if match[2] is not None:
            name, after = match[1], match.end()
            continue
        if match.end() - match.start() < MIN_CHARACTERS + 2:
            continue
        done = _sanitise_named(name if match.start() == after else "", match[1], rules)
        if done.found:
            counts.update(done.found)
            parts += (text[last : match.start()], msgspec.json.encode(done.text).decode())
            last = match.end()
    return _told("".join((*parts, text[last:])), counts, rules)


def _sanitise_named(name: str, literal: str, rules: Mapping[Category, Rule]) -> Sanitised:
    value: str = msgspec.json.decode(literal)
    if name:
        before = f"{msgspec.json.decode(name)}: "
        done = sanitise(before + value, rules)
        if done.text.startswith(before):
            return done._replace(text=done.text.removeprefix(before))
    return sanitise(value, rules)


def _told(text: str, counts: Counter[Category], rules: Mapping[Category, Rule]) -> Sanitised:
    found: dict[Category, int] = {category: counts[category] for category in _FINDERS if counts[category]}
    refused: list[Category] = [category for category in found if rules.get(category) == "refuse"]
    return Sanitised(text, found, tuple(refused))


def findings_in(text: str, rules: Mapping[Category, Rule], possible: Iterable[Category] | None = None) -> list[Finding]:
    """What is to be taken out of a text, in order, joined where it overlaps.

    What lies inside a value that is kept is kept with it: a mailbox that is part of an address. A trace is no value, so
    what lies inside one counts by itself."""
    digits = sum(map(text.count, "0123456789"))
    findings = [
        Finding(*span, category)
        for category in (_FINDERS if possible is None else possible)
        if (finder := _FINDERS[category]).digits <= digits and finder.may_find(text)
        for span in finder.find(text)
    ]
    if not findings:
        return []
    kept = [one for one in findings if rules.get(one.category) == "keep" and one.category != "trace_dump"]
    left = [one for one in findings if rules.get(one.category) != "keep"]
    return _joined(_outside(left, _joined(kept)))


def _outside(findings: list[Finding], values: list[Finding]) -> list[Finding]:
    """The findings that are not wholly inside one of the values."""
    outside: list[Finding] = []
    at = 0
    for finding in sorted(findings):
        while at < len(values) and values[at].end <= finding.start:
            at += 1
        if at == len(values) or not values[at].start <= finding.start <= finding.end <= values[at].end:
            outside.append(finding)
    return outside


def _joined(findings: list[Finding]) -> list[Finding]:
    """Findings that overlap made into one, so that no rest of either stays; the longest, else the most specific, names
    it."""
    joined: list[Finding] = []
    longest: Finding | None = None
    for finding in sorted(findings):
        if longest is None or finding.start >= joined[-1].end:
            longest = finding
            joined.append(finding)
            continue
        if _weight(finding) > _weight(longest):
            longest = finding
        joined[-1] = Finding(joined[-1].start, max(joined[-1].end, finding.end), longest.category)
    return joined


def _weight(finding: Finding) -> tuple[int, int]:
    return finding.end - finding.start, -_RANK[finding.category]


def _replaced(text: str, findings: list[Finding]) -> str:
    parts: list[str] = []
    last = 0
    for start, end, category in findings:
        parts += (text[last:start], f"[{category.replace('_', ' ')}]")
        last = end
    return "".join((*parts, text[last:]))
