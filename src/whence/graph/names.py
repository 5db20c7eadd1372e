"""Names in text, found by rules, and when two of them may mean the same.

A rule looks at letters only, so its answer is the same on every replay. It misses names, and prefers that to inventing
them: a false name becomes a node that joins what has nothing to do with each other.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple
from unicodedata import category, normalize

from rapidfuzz import fuzz, process
from rapidfuzz.distance import Indel

MAX_NAMES = 40
"""Found in one text; later ones do not count."""

MAX_NAME_CHARACTERS = 128
"""A longer run of capitals is a heading, and a longer link is a document."""

MAX_RUN_WORDS = 8
"""Words with a capital that follow each other; more of them are a heading."""

MAX_ACRONYM_LETTERS = 6
"""A longer word in capitals is shouted."""

MAX_CODE_CHARACTERS = 32
"""A word with digits in it; a longer one is a hash."""

MAX_CANDIDATES = 1_000
"""Words with a capital, and signs of a link, that are looked at in one text: the bound on its cost."""

ALIKE = 0.9
"""The likeness from which two names may mean the same."""

MIN_FUZZY_CHARACTERS = 5
"""Of a shorter name every letter counts: Iran and Iraq."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class Name(NamedTuple):
    entity_type: Literal["name", "link"]
    name: str
    normal: str
    """What stands for the name when names are compared."""


class _Found(NamedTuple):
    start: int
    end: int
    name: Name


def names_in(text: str) -> list[Name]:
    """The names and links in a text, each once, in the order in which they first occur."""
    hits: list[_Found] = []
    # Most texts have no links, and these look-ups say so. What is part of a link is not looked at again.
    if "://" in text or "www." in text:
        hits += islice(_urls(text), MAX_NAMES)
        text = _URL.sub(lambda url: "|" * len(url[0]), text)
    if "@" in text:
        mentions = list(islice(_mentions(text), MAX_NAMES))
        hits += mentions
        text = _blanked(text, mentions)
    hits += islice(_names(text), MAX_NAMES)
    found: dict[str, Name] = {}
    for _, _, name in sorted(hits):
        found.setdefault(name.normal, name)
    return list(found.values())[:MAX_NAMES]


# --- links ----------------------------------------------------------------------------------------------------------

_URL = re.compile(r"[hHwW](?:[tT]{2}[pP][sS]?://|[wW]{2}\.)[^\s\x00-\x20\x7f<>\"'`{}|\\^\[\]]++")
_AT = re.compile(r"@[A-Za-z0-9_](?:[A-Za-z0-9_]|[.-](?=[A-Za-z0-9_]))*+")
_LOCAL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+-"
_MAX_LOCAL = 64
_TRAILING = ".,;:!?*_~…"


def _urls(text: str) -> Iterator[_Found]:
    for match in islice(_URL.finditer(text), MAX_CANDIDATES):
        url = _ended(match[0])
        if name := _url(url):
            yield _Found(match.start(), match.start() + len(url), name)


def _ended(url: str) -> str:
    """The address without the punctuation of its sentence; a bracket that it does not open itself is such."""
    url = url.rstrip(_TRAILING)
    unopened = min(len(url) - len(url.rstrip(")")), url.count(")") - url.count("("))
    return url[: len(url) - max(0, unopened)].rstrip(_TRAILING)


def _url(url: str) -> Name | None:
    """Without what a server does not see or what is a secret: the fragment, and a user with a password."""
    scheme, mark, rest = url.partition("#")[0].partition("://") if url[0] in "hH" else ("", "", url.partition("#")[0])
    cut = min((at for sign in "/?" if (at := rest.find(sign)) >= 0), default=len(rest))
    host, path = rest[:cut].rpartition("@")[2], rest[cut:]
    if len(scheme) + len(host) + len(path) + 3 > MAX_NAME_CHARACTERS:
        path = path.partition("?")[0]
    shown = f"{scheme}{mark}{host}{path}".rstrip("/")
    if "." not in host.strip(".") or len(shown) > MAX_NAME_CHARACTERS:
        return None
    return Name("link", shown, f"{(scheme or 'https').lower()}://{host.lower()}{path}".rstrip("/"))


def _mentions(text: str) -> Iterator[_Found]:
    """Mailboxes and @accounts, from the sign outwards: a search from the left would try every letter of a long word."""
    for match in islice(_AT.finditer(text), MAX_CANDIDATES):
        start, end = match.span()
        before = text[max(0, start - _MAX_LOCAL - 1) : start]
        local = before[len(before.rstrip(_LOCAL)) :].lstrip(".-")
        found = text[start - len(local) : end]
        if len(found) > MAX_NAME_CHARACTERS or len(local) > _MAX_LOCAL or _in_address(start, text):
            continue
        if local and "." in match[0]:
            yield _Found(start - len(local), end, Name("link", found, found.lower()))
        elif not local and not before[-1:].isalnum() and before[-1:] != "@" and len(found) > 2:
            yield _Found(start, end, Name("link", found, found.lower()))


def _in_address(at: int, text: str) -> bool:
    """Whether the sign stands in an address of any scheme, where a password is before it."""
    words = text[max(0, at - MAX_NAME_CHARACTERS) : at].split()
    return bool(words) and "://" in words[-1]


def _blanked(text: str, links: Iterable[_Found]) -> str:
    """The text with a mark for every link, of the same length, so that no word of a link is a name."""
    parts: list[str] = []
    last = 0
    for start, end, _ in links:
        parts += (text[last:start], "|" * (end - start))
        last = end
    return "".join((*parts, text[last:]))


# --- names ----------------------------------------------------------------------------------------------------------

_CAPITALS = "".join(re.escape(chr(code)) for code in range(0x41, 0x530) if chr(code).isupper())
"""Latin, Greek and Cyrillic. Other scripts have no capitals, and no names are found in them."""

_WORD = re.compile(rf"[{_CAPITALS}](?<!\w.)(?:\w|['’&.-](?=\w))*+", re.DOTALL)
_CAMEL = re.compile(rf"[^\W\d_{_CAPITALS}][{_CAPITALS}]")

_PARTICLES = _words("al bin da de del den der di do dos du el la le of ten ter the van von y zu")
_GAPS = {
    " ",
    " & ",
    *(f" {particle} " for particle in _PARTICLES),
    *(f" {one} {two} " for one in ("de", "of", "van", "von") for two in ("den", "der", "la", "las", "los", "the")),
}
"""What may stand between two words of one name."""

_SUFFIXES = _words(
    "inc incorporated ltd limited llc llp plc corp corporation co gmbh ag kg kgaa sarl srl bv nv oy oyj pty pvt"
)
_TITLES = _words("dr mr mrs ms prof st mt ft gen sen rep gov jr sr")

_BEFORE = " \t\"'“”‘’«»([{*_#>`~-–—•"
_ENDS = ".!?:;…\n\r|"


class _Word(NamedTuple):
    start: int
    end: int
    text: str


def _names(text: str) -> Iterator[_Found]:
    if (name := _value(text)) is not None:
        yield _Found(0, len(text), name)
        return
    for run in _runs(text):
        words = _trimmed(run)
        if words and _is_name(words, text):
            start, end = words[0].start, _end(words[-1], text)
            shown = text[start:end].removesuffix("'s").removesuffix("’s")
            if len(shown) <= MAX_NAME_CHARACTERS and (normal := normalise(shown)):
                yield _Found(start, end, Name("name", shown, normal))


def _value(text: str) -> Name | None:
    """A text that is one capitalised word is a value, such as a city among the arguments of a tool: no sentence begins
    here."""
    word = text.strip()
    if not word.isalpha() or not 3 <= len(word) <= MAX_NAME_CHARACTERS or not word.istitle():
        return None
    lower = word.lower()
    return None if lower in _COMMON or lower in _NOT_ALONE else Name("name", word, normalise(word))


def _runs(text: str) -> Iterator[list[_Word]]:
    """Words with a capital that may be one name because only a space or a particle stands between them."""
    run: list[_Word] = []
    for match in islice(_WORD.finditer(text), MAX_CANDIDATES):
        word = _Word(match.start(), match.end(), match[0])
        if run and not _joined(run[-1], word, text):
            yield run
            run = []
        run.append(word)
    if run:
        yield run


def _joined(one: _Word, next_one: _Word, text: str) -> bool:
    gap = text[one.end : next_one.start] if next_one.start - one.end < 12 else "\n"
    if gap in _GAPS:
        return not one.text.endswith(("'s", "’s"))
    if gap == ". ":
        return _is_initials(one.text) or one.text.lower() in _TITLES
    return gap == ", " and next_one.text.lower() in _SUFFIXES


def _trimmed(run: list[_Word]) -> list[_Word]:
    """The run without common words at its ends: a sentence's first word, a weekday, a word of everyday computing."""
    first, last = 0, len(run)
    while first < last and _is_common(run[first].text):
        first += 1
    while first < last and _is_common(run[last - 1].text):
        last -= 1
    return run[first:last]


def _is_name(words: list[_Word], text: str) -> bool:
    if len(words) == 1:
        return _is_single_name(words[0], text)
    if any("_" in word.text for word in words):
        return False
    shouted = len(words) > 2 and all(word.text.isupper() and len(word.text) > 1 for word in words)
    return len(words) <= MAX_RUN_WORDS and not shouted and any(len(word.text) > 1 for word in words)


def _is_single_name(word: _Word, text: str) -> bool:
    letters = word.text
    if "_" in letters:
        return False
    if not letters.isalpha() and _DIGITS.search(letters):
        return 3 <= len(letters) <= MAX_CODE_CHARACTERS
    if letters.isupper():
        return 2 <= len(letters) <= MAX_ACRONYM_LETTERS
    if _CAMEL.search(letters):
        return True
    return len(letters) >= 3 and letters.lower() not in _NOT_ALONE and not _begins_sentence(word.start, text)


def _begins_sentence(start: int, text: str) -> bool:
    before = text[max(0, start - 8) : start].rstrip(_BEFORE)
    return not before or before[-1] in _ENDS


def _end(word: _Word, text: str) -> int:
    """Where a name ends: an abbreviated company keeps its full stop."""
    return word.end + (text.startswith(".", word.end) and word.text.lower() in _SUFFIXES)


def _is_initials(word: str) -> bool:
    return all(len(part) == 1 for part in word.split("."))


def _is_common(word: str) -> bool:
    lower = word.lower()
    return lower in _COMMON or (("'" in word or "’" in word) and re.split("['’]", lower)[0] in _CONTRACTING)


_CONTRACTING = _words(
    """
    i you he she it we they that this there here what who where when why how let don doesn didn isn aren wasn weren won
    wouldn can couldn shouldn haven hasn hadn ain mustn today tomorrow yesterday
    """
)
_COMMON = _words(
    """
    a an the this that these those i me my mine you your yours he him his she her hers it its we us our ours they them
    their theirs myself yourself who whom whose which what when where why how and or but nor so yet if then else than
    as at by for from in into of off on onto out over to up down with within without about above after again against
    all also although always am among any anyone anything are around be because been before being below between both
    can cannot could did do does doing done during each either enough even ever every everyone everything few finally
    had has have having here hence however indeed instead is just later least less let like likely many may maybe
    meanwhile might more moreover most much must near need neither never next no none not nothing now nobody often once
    one only other others otherwise overall own per perhaps please quite rather really same several shall should since
    some somebody someone something sometimes soon still such sure therefore third though three through thus together
    too two under unless until upon usually very via was were whatever whenever whether while will would yes yesterday
    today tomorrow tonight

    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec spring summer autumn winter q1 q2 q3 q4 am pm utc gmt cet est pst

    hello hi hey dear thanks thank welcome sorry congratulations regards sincerely cheers bye goodbye okay ok nice right
    wrong well oh ah wow yeah yep nope

    ask tell call email mail contact send remind give show find get check schedule book create update delete add remove
    summarize summarise translate write draft compare list search explain describe open close deploy run fix use make
    help look meet move notify invite assign review merge read set start stop try wait want keep put take turn see say
    go come think know note remember consider provide return retry build test install configure click select choose
    continue using based according regarding concerning following given including running calling checking looking
    processing fetching loading updating creating sending reading writing searching starting

    true false null nil nan undefined unknown error errors warning warnings info debug fatal critical success successful
    failed failure failures pending completed complete cancelled canceled active inactive enabled disabled empty default
    todo fixme tbd na fyi asap eta faq diy rsvp ps re fw fwd cc bcc

    user users assistant system tool tools agent human ai bot model admin customer client team message messages question
    answer final result results output input summary context document documents file files page section chapter table
    figure step steps task tasks item items id name title type status date time version number

    api apis json xml html css http https url uri sql csv pdf yaml toml sdk cli gui ui ux ide os cpu gpu ram ssd hdd usb
    ip tcp udp dns ssh ssl tls vpn lan wan ftp smtp imap rest crud uuid guid utf ascii hex md5 sha jwt sso mfa otp pin
    qr png jpg jpeg gif svg mp3 mp4 zip tar gz llm llms rag nlp ml mcp otel otlp orm mvp poc pr prs kpi okr roi sla slo
    eod eow wip rfc iso post patch head options insert join group order limit values alter drop index view begin commit
    rollback exists union distinct count sum avg min max case end ceo cto cfo coo cmo vp hr pto qa
    """
)
"""Words that a sentence begins with, that everybody's work is full of, or that a day is called by. They are not names,
neither by themselves nor at the ends of one."""

_NOT_ALONE = _words(
    """
    best big black blue central department east eastern first general good great green international last little long
    national new north northern office old red royal saint san second short south southern street united university
    west western white world
    """
)
"""Words that begin a name and are none by themselves: New York, but not new."""


# --- comparing ------------------------------------------------------------------------------------------------------

_DIGITS = re.compile(r"\d+")
_PARTS = re.compile(r"[^\W_]+")


def normalise(name: str) -> str:
    """The form in which names are compared: "ACME  Corp.'s" and "Acme" are both "acme".

    One change can make room for another, so it is repeated until nothing changes; each time something is taken away.
    """
    if name.isascii() and name.replace(" ", "").isalpha():
        return _plain(name.lower().split())
    while (changed := _normalised(name)) != name:
        name = changed
    return name


def _plain(words: list[str]) -> str:
    """What the general way gives for letters and spaces, at a tenth of its cost."""
    while len(words) > 1 and words[-1] in _SUFFIXES:
        words.pop()
    return " ".join(words)


def _normalised(name: str) -> str:
    if not name.isascii():
        name = normalize("NFKC", normalize("NFKC", name).casefold())
    kept = _bare(" ".join(name.lower().split())).removesuffix("'s").removesuffix("’s")
    rest, space, last = kept.rpartition(" ")
    return rest if space and last.replace(".", "") in _SUFFIXES else kept


def _bare(name: str) -> str:
    """The name without punctuation around it. A sharp after a letter belongs to it: C# is not C."""
    first, last = 0, len(name)
    while first < last and _is_punctuation(name[first]):
        first += 1
    while first < last and _is_punctuation(name[last - 1]) and not (name[last - 1] == "#" and last - first == 2):
        last -= 1
    return name[first:last]


def _is_punctuation(sign: str) -> bool:
    return not sign.isalnum() and category(sign)[0] in "PZC"


def likeness(one: str, other: str) -> float:
    """How alike two normalised names are, from 0 to 1.

    The measure is the share of letters that both have in the same order, after sorting the words: "smith, john" is
    "john smith". Jaro-Winkler would favour a common beginning, which is what different things of one family have. But
    a number that differs, a word that goes on ("robert", "roberto") or a short word that is another ("east", "west")
    says that the names differ, however much of them is the same.
    """
    if one == other:
        return 1.0
    if min(len(one), len(other)) < MIN_FUZZY_CHARACTERS or _DIGITS.findall(one) != _DIGITS.findall(other):
        return 0.0
    return 0.0 if _contradict(one, other) else fuzz.token_sort_ratio(one, other) / 100


MAX_NEAR = 16
"""Of names that have nearly all letters in common as many are looked at closely."""


def nearest(name: str, others: Sequence[str], cutoff: float = ALIKE) -> list[tuple[int, float]]:
    """The positions of the names that are at least so alike, the most alike first, the earlier of equals first."""
    near = process.extract(name, others, scorer=fuzz.token_sort_ratio, score_cutoff=cutoff * 100, limit=MAX_NEAR)
    scored = [(index, likeness(name, other)) for other, _, index in near]
    return sorted((hit for hit in scored if hit[1] >= cutoff), key=lambda hit: (-hit[1], hit[0]))


def _contradict(one: str, other: str) -> bool:
    """Whether two names of as many words have words in the same place that must not be confused."""
    words, others = sorted(_PARTS.findall(one)), sorted(_PARTS.findall(other))
    if len(words) != len(others):
        return False
    return any(_differ(*sorted(pair, key=len)) for pair in zip(words, others, strict=True) if pair[0] != pair[1])


def _differ(shorter: str, longer: str) -> bool:
    if longer.startswith(shorter):
        return True
    return len(shorter) < MIN_FUZZY_CHARACTERS and Indel.distance(shorter, longer) > 1
