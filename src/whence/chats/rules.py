"""What people say about themselves in so many words, found by rules: no model, no network, the same every time.

A rule that is silent costs less than one that is wrong, so each asks for a whole clause in the first person and the
present. Questions, what may be or might have been, and what somebody else said are passed over.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

NAME: Final = "rules"
MAX_READ_CHARACTERS = 20_000
"""Of one message."""
MAX_SENTENCE_CHARACTERS = 4_000
"""What goes on for longer is a list or a paste, and is passed over."""


class Statement(NamedTuple):
    """Something that the speaker says of themselves."""

    predicate: str
    object: str
    says: str
    """Without the speaker, who comes before it: `lives in Lyon`."""
    start: int
    """Of the quote in the message, in characters."""
    end: int
    ends: str | None = None
    """What is over, where nothing else takes its place: it counts only where that held."""


_Made = tuple[str, str, str] | tuple[str, str, str, str] | None
_Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], _Made]]


def _one_of(words: str) -> str:
    """A pattern for any of the words; an underscore stands for a space."""
    return "(?:" + "|".join(sorted((word.replace("_", " ") for word in words.split()), key=len, reverse=True)) + ")"


# A quotation mark stands for both of its forms, except within brackets, where \x27 does.
_BEFORE: Final = (
    "and",
    "And",
    "but",
    "But",
    "so",
    "So",
    "because",
    "Because",
    "since",
    "Since",
    "actually",
    "btw",
    "way",
)
_I: Final = "(?:^|" + "|".join(rf"(?<=\b{word} )" for word in _BEFORE) + "|(?<=[,;:–—] ))"
_BE: Final = "(?:I am|I'm)"
_HAVE: Final = "(?:I have|I've got|I've)"
_HAS: Final = "(?:I|I've|I have)(?: just| recently| finally)?"
_NOT: Final = "(?:no longer|don't|do not)"
_REALLY: Final = f"(?:{_one_of('really absolutely also still just currently now totally truly always both kinda')} )*"
_PROPER: Final = r"(?!(?:I|My|The|It|And|But)\b)[A-Z][\w’\x27-]*"
_PERSON: Final = rf"(?P<name>{_PROPER}(?: {_PROPER}){{0,2}})"
_PLACE: Final = rf"(?P<place>(?:the )?{_PROPER}(?:,? (?:of |the |upon |de |la )?{_PROPER}){{0,3}})"
_KINDS_OF_EMPLOYER: Final = _one_of(
    """hospital school university bank startup company agency firm restaurant bakery library clinic lab shop store
    factory studio bookstore museum hotel farm"""
)
_EMPLOYER: Final = (
    rf"(?P<place>(?:an? |the )?(?:{_PROPER}(?: (?:of |and |& )?{_PROPER}){{0,3}}"
    rf"|(?:[a-z-]+ ){{0,2}}{_KINDS_OF_EMPLOYER}))"
)
_STOP: Final = (
    r"(?=$|[.!;,:()–—\n]|\s+(?:"
    r"and (?:I|my|we|it|he|she|they|that|so|have|am|also)"
    r"|for (?:a|the|my|over|about|\d)|with (?:my|a|the|him|her)|in (?:the|my|a|\d)|on (?:the|my|a|weekends)"
    r"|at (?:the|my|home)|to (?:the|my)|these days|at the moment|any ?more|as well"
    r"|but|because|since|so|which|who|when|where|while|although|though|as|if|especially|now|too|after|before|until"
    r"|from|every)\b)"
)
_NOTHING: Final = _one_of(
    """it that this them him her you your how what when those these the all not being his their its my our and
    to_know to_see to_hear to_think to_say to_ask to_share to_be to_thank about there one some something everything
    hearing seeing_you getting_to also"""
)
_WORD: Final = r"[\w’\x27&-]+"
_THING: Final = rf"(?P<thing>(?!{_NOTHING}\b){_WORD}(?: {_WORD}){{0,5}}?)"
_FAVOURITE: Final = (
    r"(?P<of>[a-z]+(?: [a-z]+){0,2}) (?:is|are) "
    rf"(?P<thing>(?!(?:that|when|how|probably|definitely|to|the one|also|hard|not)\b){_WORD}(?: {_WORD}){{0,6}}?)"
)
_RELATION: Final = "(?P<relation>(?:{} )?{})".format(
    _one_of("best older younger elder little big new"),
    _one_of(
        """wife husband partner fiancé fiancée fiance fiancee girlfriend boyfriend son daughter brother sister mother
        mom mum father dad boss manager friend cousin uncle aunt niece nephew grandmother grandma grandfather grandpa
        roommate flatmate neighbour neighbor dog puppy cat kitten horse rabbit parrot hamster tortoise"""
    ),
)
_MONTH: Final = _one_of("January February March April May June July August September October November December")
_DAY: Final = (
    rf"(?P<day>(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? \d{{4}})?"
    rf"|{_MONTH} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?)"
)
_STATE: Final = "(?P<state>{})".format(
    _one_of(
        """vegetarian vegan pescatarian gluten[-_]free lactose[-_]intolerant colou?r[-_]?blind left-handed right-handed
        diabetic asthmatic pregnant married single divorced widowed engaged retired unemployed self-employed bilingual
        deaf blind dyslexic Catholic Jewish Muslim Christian Buddhist Hindu"""
    )
)
_PASSING: Final = _one_of(
    """bit little lot big huge fan few couple while good bad great terrible better fast quick slow real true total
    complete regular former long"""
)
_ROLE: Final = "(?P<role>(?:(?!{}\\b)[a-z-]+ ){{0,2}}{})".format(
    _PASSING,
    _one_of(
        """nurse chef cook student vegan vegetarian pescatarian mother father mom mum dad parent twin pilot coach judge
        farmer baker butcher barista lawyer doctor dentist surgeon teacher tutor professor lecturer researcher scientist
        engineer developer programmer designer architect writer author editor journalist reporter photographer painter
        artist sculptor musician singer dancer actor actress drummer guitarist pianist violinist composer producer
        director manager consultant analyst accountant auditor banker broker economist trader salesman saleswoman
        salesperson realtor plumber electrician carpenter mechanic welder driver courier firefighter policeman
        policewoman detective soldier veteran sailor therapist psychologist psychiatrist counsell?or paramedic
        pharmacist physiotherapist midwife vet veterinarian biologist chemist physicist mathematician historian
        philosopher librarian translator interpreter gardener florist hairdresser barber tailor waiter waitress
        bartender cashier receptionist secretary freelancer entrepreneur founder retiree widow widower Christian Muslim
        Buddhist Catholic Hindu"""
    ),
)
_LIKED: Final = {
    "like": "likes",
    "love": "loves",
    "enjoy": "enjoys",
    "adore": "adores",
    "prefer": "prefers",
    "hate": "hates",
    "dislike": "dislikes",
    "detest": "detests",
    "can't stand": "cannot stand",
    "cannot stand": "cannot stand",
}
_VERB: Final = f"(?P<verb>{'|'.join(_LIKED)})"
_ANY_MORE: Final = "(?P<more> any ?more)?"


def _said(text: str) -> str:
    return " ".join(text.replace("’", "'").split())


def _single(predicate: str, group: str) -> Callable[[re.Match[str]], _Made]:
    return lambda m: (predicate, _said(m[group]), f"{predicate} {_said(m[group])}")


def _over(predicate: str, group: str) -> Callable[[re.Match[str]], _Made]:
    """What held until now, and nothing is said to be in its place."""
    return lambda m: (
        predicate,
        f"no longer {_said(m[group])}",
        f"no longer {predicate} {_said(m[group])}",
        _said(m[group]),
    )


_PART: Final = re.compile(
    rf"\b{_one_of('this that these those him her it them')}\b"
    rf"|\b{_one_of('to being up of go the a and not in on at for with')}$"
)


def _liked(m: re.Match[str]) -> _Made:
    if _PART.search(m["thing"]):
        # It points at something that was said before, or goes on.
        return None
    verb = _LIKED[_said(m["verb"])]
    return f"view of {_said(m['thing'])}", verb, f"{verb} {_said(m['thing'])}"


def _not_liked(m: re.Match[str]) -> _Made:
    if _PART.search(m["thing"]):
        return None
    verb = _LIKED[_said(m["verb"])]
    over = "no longer" in m[0] or m["more"]
    held = f"no longer {verb}" if over else f"does not {m['verb']}"
    return f"view of {_said(m['thing'])}", held, f"{held} {_said(m['thing'])}"


def _related(m: re.Match[str]) -> _Made:
    return (
        f"{_said(m['relation'])} named {_said(m['name'])}",
        "yes",
        f"has a {_said(m['relation'])} named {_said(m['name'])}",
    )


def _is(group: str, held: bool, article: str = "") -> Callable[[re.Match[str]], _Made]:
    def made(m: re.Match[str]) -> _Made:
        what = f"{article}{_said(m[group])}"
        return f"is {what}", "yes" if held else "no", f"is {what}" if held else f"is no longer {what}"

    return made


def _allergic(held: bool) -> Callable[[re.Match[str]], _Made]:
    return lambda m: (
        f"allergy to {_said(m['thing'])}",
        "yes" if held else "no",
        f"is {'' if held else 'not '}allergic to {_said(m['thing'])}",
    )


def _favourite(m: re.Match[str]) -> _Made:
    of = f"favourite {_said(m['of'])}"
    return of, _said(m["thing"]), f"has the {of} {_said(m['thing'])}"


def _children(m: re.Match[str]) -> _Made:
    return "number of children", _said(m["count"]), f"has {_said(m['count'])} children"


def _rules(*rules: tuple[str, Callable[[re.Match[str]], _Made]]) -> Sequence[_Rule]:
    return [(re.compile(pattern.replace("'", "['’]")), made) for pattern, made in rules]


_RULES: Final = _rules(
    (f"{_I}[Mm]y (?:full |first |real )?name is {_PERSON}", _single("name is", "name")),
    (
        f"{_I}(?:[Pp]lease |[Yy]ou can |[Jj]ust )?(?:[Cc]all me|I go by) {_PERSON}",
        _single("wants to be called", "name"),
    ),
    (
        f"{_I}(?:{_BE} {_REALLY}(?:living|based)|I {_REALLY}(?:live|reside)) in {_PLACE}",
        _single("lives in", "place"),
    ),
    (
        f"{_I}{_HAS} (?:moved|relocated)(?: back)?(?: from {_PROPER})? to {_PLACE}",
        _single("lives in", "place"),
    ),
    (f"{_I}I {_NOT} live in {_PLACE}{_ANY_MORE}", _over("lives in", "place")),
    (
        f"{_I}(?:I {_REALLY}work|{_BE} {_REALLY}working|{_HAS} (?:started|began) (?:working|a (?:new )?job)"
        f"|{_HAS} (?:got|landed) a (?:new )?job) (?:at|for|with) {_EMPLOYER}",
        _single("works at", "place"),
    ),
    (f"{_I}I {_NOT} work (?:at|for) {_EMPLOYER}{_ANY_MORE}", _over("works at", "place")),
    (f"{_I}{_HAS} (?:quit|left) my (?:job|position) (?:at|with) {_EMPLOYER}", _over("works at", "place")),
    (f"{_I}(?:I {_REALLY}work|{_BE} {_REALLY}working) as an? {_THING}{_STOP}", _single("works as", "thing")),
    (f"{_I}(?:I {_REALLY}study|{_BE} {_REALLY}studying) {_THING}{_STOP}", _single("studies", "thing")),
    (rf"{_I}{_BE} {_REALLY}an? {_ROLE}(?![\w-])", _is("role", True, "a ")),
    (rf"{_I}{_BE} (?:no longer|not) an? {_ROLE}(?![\w-])", _is("role", False, "a ")),
    (rf"{_I}{_BE} {_REALLY}{_STATE}(?![\w-]| (?:to|about|in|with|out)\b)", _is("state", True)),
    (rf"{_I}{_BE} no longer {_STATE}(?![\w-])", _is("state", False)),
    (f"{_I}I {_REALLY}{_VERB} {_THING}{_STOP}", _liked),
    (f"{_I}I (?:{_NOT}|never) (?:really )?{_VERB} {_THING}{_ANY_MORE}{_STOP}", _not_liked),
    (
        f"{_I}{_BE} {_REALLY}(?:severely |deathly |highly |mildly |very )?allergic to {_THING}{_STOP}",
        _allergic(True),
    ),
    (f"{_I}{_HAVE} an? (?:severe |bad |mild )?(?P<thing>[a-z]+) allergy", _allergic(True)),
    (f"{_I}{_BE} (?:not|no longer) allergic to {_THING}{_STOP}", _allergic(False)),
    (rf"\b[Mm]y {_RELATION}'s name is {_PERSON}", _related),
    (rf"\b[Mm]y {_RELATION} is (?:called|named) {_PERSON}", _related),
    (
        f"{_I}{_HAVE} an? (?:[a-z-]+ ){{0,2}}?{_RELATION},? (?:named|called|whose name is) {_PERSON}",
        _related,
    ),
    (f"{_I}[Mm]y (?:all-time |absolute )?favou?rite {_FAVOURITE}{_STOP}", _favourite),
    (f"{_I}[Mm]y birthday is (?:on )?{_DAY}", _single("birthday is", "day")),
    (f"{_I}I was born on {_DAY}", _single("birthday is", "day")),
    (rf"{_I}I was born in (?P<day>(?:19|20)\d\d)\b", _single("was born in", "day")),
    (f"{_I}I was born (?:and raised )?in {_PLACE}", _single("was born in", "place")),
    (rf"{_I}{_BE} (?P<age>\d{{1,3}}) years old", _single("age is", "age")),
    (rf"{_I}{_HAVE} (?P<count>one|two|three|four|five|six|\d) (?:kids|children|child|kid)\b", _children),
)

_SENTENCE: Final = re.compile(r"[^.!?;\n]+(?:\.(?=\w)[^.!?;\n]*)*[.!?;]*")
_ASKS: Final = re.compile(
    r"\?\s*$|^\s*"
    + _one_of(
        """what why how when where who which do does did should could would can am is are if suppose imagine pretend say
        assuming unless whenever once"""
    )
    + r"\b",
    re.IGNORECASE,
)
_MAY_BE: Final = re.compile(
    r"\b"
    + _one_of(
        """if would could might maybe perhaps imagine suppose supposing pretend wish hypothetical\\w* unless as_if
        what_if whether let's_say for_example probably used_to said says saying told tells asked wrote writes thinks?
        thought claims? claimed heard quote lyrics? song character story novel joke kidding translate sentence phrase"""
    )
    + r"\b",
    re.IGNORECASE,
)
# None reads past the next mark that opens, so that each sign is read once, however many are opened and never closed.
_QUOTED: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`"
    r"|“[^“”]*”|«[^«»]*»|\"[^\"\n]*\"|^>[^\n]*$"
    r"|(?<!\w)['‘][^'‘’\n]{3,}+['’](?!\w)",
    re.DOTALL | re.MULTILINE,
)


def statements(text: str) -> Iterator[Statement]:
    """What a message says of its speaker, in order; of what overlaps, the first rule's."""
    # Of the same length, so that places in it are places in the message.
    plain = _QUOTED.sub(lambda found: "\x00" * len(found[0]), text[:MAX_READ_CHARACTERS])
    for sentence in _SENTENCE.finditer(plain):
        said = sentence[0]
        if len(said) > MAX_SENTENCE_CHARACTERS or _ASKS.search(said):
            continue
        at = sentence.start() + len(said) - len(said.lstrip())
        yield from _in_sentence(said.strip(), at)


def _in_sentence(said: str, at: int) -> Iterator[Statement]:
    may_be = _MAY_BE.search(said)
    sure = len(said) if may_be is None else may_be.start()
    found: list[Statement] = []
    taken = bytearray(len(said))
    for pattern, made in _RULES:
        for match in pattern.finditer(said):
            start, end = match.span()
            if start > sure:
                break
            if "\x00" in match[0] or taken.find(1, start, end) >= 0:
                continue
            fact = made(match)
            if fact is not None:
                predicate, held, says, *over = fact
                found.append(Statement(predicate, held, says, at + start, at + end, over[0] if over else None))
                taken[start:end] = b"\x01" * (end - start)
    yield from sorted(found, key=lambda each: each.start)
