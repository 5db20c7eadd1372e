"""What points at a person, found in text: mailboxes, telephones, cards, accounts and numbers that states give.

A pattern says where to look and a checksum decides, where there is one. A form that is common for other things too,
such as nine digits in a row, counts only near a word that says what it is. Every pattern is bounded, and none can be
read in two ways, so the time grows with the length of the text alone.
"""

import re
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

from stdnum import iban as stdnum_iban
from stdnum import luhn
from stdnum.au import tfn
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.ca import sin
from stdnum.ch import ssn as ahv
from stdnum.cl import rut
from stdnum.cn import ric
from stdnum.de import idnr
from stdnum.dk import cpr
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.ie import pps
from stdnum.in_ import aadhaar, pan
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.mx import curp
from stdnum.nl import bsn
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.pt import nif
from stdnum.ro import cnp
from stdnum.se import personnummer
from stdnum.tr import tckimlik
from stdnum.us import itin, ssn
from stdnum.za import idnr as za_idnr

Span = tuple[int, int]

_BEFORE = r"(?<![A-Za-z0-9_])(?<![A-Za-z0-9_][.+/-])"
_AFTER = r"(?![A-Za-z0-9_]|[.+/-][A-Za-z0-9_])"
"""A number that goes on beyond a dot, dash or slash is a part of something else: a version, a date, a path."""
_SEEN_AFTER = 2
"""Signs that it looks at."""

_GAP = r"[ \u00a0\u202f\u2011-]"
"""What people put between groups of digits: spaces and dashes, also those that do not break."""

_REACH_BEFORE = 48
_REACH_AFTER = 24


def _near(words: re.Pattern[str], text: str, start: int, end: int) -> bool:
    """Whether one of the words stands on the same line, a few words away from the span."""
    before = text[max(0, start - _REACH_BEFORE) : start].rpartition("\n")[2]
    after = text[end : end + _REACH_AFTER].partition("\n")[0]
    return bool(words.search(before) or words.search(after))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _digits(text: str) -> str:
    return "".join(sign for sign in text if sign in "0123456789")


# --- mailboxes ------------------------------------------------------------------------------------------------------

_LABELS = r"(?:\w[\w-]{0,62}+\.){1,8}"
_MAILBOX = re.compile(rf"(?<![\w.%+@-])[\w.%+'-]{{1,64}}+@{_LABELS}[^\W\d_]{{2,24}}+(?![\w@-])")
_SPELLED = re.compile(
    r"(?<![\w.%+@-])[\w.%+-]{1,64}+ ?(?:[\[({] ?(?:at|arroba) ?[\])}]|&#64;|%40) ?\w[\w-]{0,62}"
    r"(?:(?:\.| ?[\[({] ?(?:dot|punto|punkt) ?[\])}] ?)\w[\w-]{0,62}){1,4}",
    re.IGNORECASE,
)
_FILES = _words("png jpg jpeg gif svg webp ico css scss js mjs cjs ts tsx jsx py rb go rs md json yaml yml")
"""What ends the name of a file and is no domain anybody has a mailbox in: `logo@2x.png`."""


def may_hold_emails(text: str) -> bool:
    return "@" in text or any(map(text.__contains__, _SPELLING_SIGNS))


def emails(text: str) -> Iterator[Span]:
    """Mailboxes, also with the sign spelled out. `git@host` is how repositories are addressed, and nobody's mailbox."""
    if "@" in text:
        for match in _MAILBOX.finditer(text):
            local, _, domain = match[0].partition("@")
            start = match.start() + len(local) - len(local.lstrip(".'-"))
            address = text[max(0, start - 3) : start] == "://"
            if start < match.end() - len(domain) - 1 and not address and local != "git" and _is_domain(domain):
                yield start, match.end()
    if _SPELLING.search(text):
        for match in _SPELLED.finditer(text):
            yield match.span()


_SPELLING = re.compile(r"[\[({] ?(?:at|arroba) ?[\])}]|&#64;|%40", re.IGNORECASE)
_SPELLING_SIGNS = ("(", "[", "{", "&", "%")
"""With which one of these begins."""


def _is_domain(domain: str) -> bool:
    return domain.rpartition(".")[2].lower() not in _FILES


# --- telephones -----------------------------------------------------------------------------------------------------

_PHONE_GAP = r"[ \u00a0\u202f\u2011.()/-]{0,3}"
_INTERNATIONAL = re.compile(
    rf"(?<![A-Za-z0-9_.+*^)-])(?<![0-9] )(?:\+ ?|00(?=[1-9]))(?:[0-9]{_PHONE_GAP}){{7,14}}(?<=[0-9])(?![A-Za-z0-9_])"
)
_COUNTRIES = re.compile(
    "1|7|2[07]|3[0-4]|36|39|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]"
    "|2[1235689][0-9]|24[0-9]|3[578][0-9]|42[0-9]|50[0-9]|59[0-9]|67[0-9]|68[0-9]|69[0-2]|80[08]|85[0-9]|88[0-8]"
    "|96[0-8]|97[0-79]|99[2-8]"
)
_REACH_PHONE = 32
_MIN_PHONE_DIGITS, _MAX_PHONE_DIGITS = 8, 15

_NATIONAL = re.compile(
    rf"{_BEFORE}(?:"
    r"(?:1[ .-])?\([2-9][0-9]{2}\) ?[2-9][0-9]{2}[ .-][0-9]{4}"  # (415) 555-2671
    r"|(?:1[.-])?[2-9][0-9]{2}([.-])[2-9][0-9]{2}\1[0-9]{4}"  # 415-555-2671
    r"|0[1-9](?:([ .-])[0-9]{2})(?:\2[0-9]{2}){3}"  # 06 12 34 56 78
    r"|07[0-9]{3} [0-9]{3} ?[0-9]{3}|020 [378][0-9]{3} [0-9]{4}|01[0-9]{3} [0-9]{6}"  # 07700 900123
    r"|0[0-9]{1,3}-[0-9]{3,4}-[0-9]{4}|0[0-9]{3}-[0-9]{2}-[0-9]{4}"  # 090-1234-5678
    r"|\([1-9][0-9]\) ?(?!(?:19|20)[0-9]{2}-)9?[0-9]{4}-[0-9]{4}"  # (11) 98765-4321
    r"|\(0[0-9]{1,4}\) ?[0-9]{2,4}(?:[ -]?[0-9]{2,4}){1,2}"  # (030) 123 4567
    rf"){_AFTER}"
)
_SAID = re.compile(
    r"(?<![^\W_])(?:tele?(?:phone|fon|fono|foon)?s?|t[eé]l[eé]?(?:phone)?|tel[eé]fonos?|phones?|mobiles?|mobil(?:nummer)?|mob|cell"
    r"|cellphone|cellulare|cel|celular|m[oó]vil|handy(?:nummer)?|rufnummer|fax|whats ?app|sms|portable"
    r"|landline|hotline|msisdn|phone_?number|mobile_?number|telefone|telefonnummer|puhelin|telefoon(?:nummer)?)(?![^\W_])"
    r"|电话|手机|電話|携帯|전화|телефон|тел\b|هاتف|फ़ोन|फोन|फ़ोन",
    re.IGNORECASE,
)
_CALLED = re.compile(
    r"\b(?:(?:call|text|ring|reach|dial|phone)(?:ed|ing)? ?(?:me|us|him|her|them|back)?|nummer|signal"
    r"|llam\w{1,6}|appel\w{1,6}|chiam\w{1,6}|lig(?:ue|uem|ar|a)) (?:\w{2,6} ){0,2}\Z",
    re.IGNORECASE,
)
_SEQUENCE = re.compile(
    rf"{_BEFORE}\(?[0-9](?:[0-9()\u00a0\u202f\u2011 ./-]{{5,22}})(?<=[0-9])(?![A-Za-z0-9_])(?!\.[0-9])"
)
_DATE = re.compile(r"(?:19|20)[0-9]{2}[-./][0-9]{1,2}[-./][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./](?:19|20)[0-9]{2}")
_THOUSANDS = re.compile(r"\+?[0-9]{1,3}(?:(?:\.[0-9]{3}){2,5}|(?: [0-9]{3}){1,2})")
_IP = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")


_MANY_DIGITS = re.compile(r"[0-9](?:[^0-9]{0,3}+[0-9]){6}")
"""What every telephone has and every card, and most sentences have not."""


def may_hold_long_numbers(text: str) -> bool:
    """Telephones or cards."""
    return _MANY_DIGITS.search(text) is not None


def phones(text: str) -> Iterator[Span]:
    """With a country code, in a form that only telephones have, or beside a word that says so."""
    if "+" in text or "00" in text:
        for match in _INTERNATIONAL.finditer(text):
            if _is_international(match[0]):
                yield match.span()
    for match in _NATIONAL.finditer(text):
        yield match.span()
    if _SAID.search(text) or _VERB.search(text):
        for match in _SEQUENCE.finditer(text):
            if _is_said(match, text):
                yield match.span()


_VERB = re.compile(r"call|text|ring|reach|dial|phone|nummer|signal|llam|appel|chiam|lig", re.IGNORECASE)


def _is_international(number: str) -> bool:
    digits = _digits(number.removeprefix("00"))
    if number.isdigit() or (len(digits) < 10 and _THOUSANDS.fullmatch(number)):
        return False  # Zeros in front are how ids are filled up, and groups of three how amounts are written.
    return (
        _MIN_PHONE_DIGITS <= len(digits) <= _MAX_PHONE_DIGITS
        and _COUNTRIES.match(digits) is not None
        and (digits[0] != "1" or len(digits) == 11)
        and len(set(digits[3:])) > 2
    )


def _is_said(match: re.Match[str], text: str) -> bool:
    digits = _digits(match[0])
    if not 7 <= len(digits) <= _MAX_PHONE_DIGITS or _DATE.search(match[0]) or _IP.fullmatch(match[0]):
        return False
    if "." in match[0] and _THOUSANDS.fullmatch(match[0]):
        return False
    before = re.split("[0-9\n]", text[max(0, match.start() - _REACH_PHONE) : match.start()])[-1]
    if _SAID.search(before):
        return True
    return bool(_CALLED.search(before)) and (digits[0] == "0" or len(digits) != len(match[0]))


# --- cards and accounts ---------------------------------------------------------------------------------------------

_CARD = re.compile(
    rf"{_BEFORE}(?:[0-9]{{14,19}}|[0-9]{{4}}({_GAP})[0-9]{{4}}\1[0-9]{{4}}\1[0-9]{{4}}(?:\1[0-9]{{1,3}})?"
    rf"|[0-9]{{4}}({_GAP})[0-9]{{6}}\2[0-9]{{4,5}}){_AFTER}"
)
_ISSUERS = re.compile(
    "4(?:[0-9]{15}|[0-9]{18})"  # Visa
    "|5[1-5][0-9]{14}|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}"  # Mastercard
    "|3[47][0-9]{13}"  # American Express
    "|3(?:0[0-5]|[689][0-9])[0-9]{11}"  # Diners Club
    "|6(?:011|5[0-9]{2}|4[4-9][0-9])[0-9]{12}"  # Discover
    "|35(?:2[89]|[3-8][0-9])[0-9]{12}"  # JCB
    "|62[0-9]{14,17}"  # UnionPay
    "|(?:50(?:18|20|38)|5[68][0-9]{2}|6304|67(?:59|6[123]))[0-9]{12,15}"  # Maestro
)

_IBAN = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z]{{2}}[0-9]{{2}}(?:{_GAP}?[A-Za-z0-9]){{11,30}}+")
_CHECK_DIGITS = re.compile(r"[0-9](?<=[A-Za-z]{2}[0-9])[0-9]")
"""What every account has after its country. It begins with a digit, so that letters are passed over at once."""
_SHORTEST_IBAN = 15


def cards(text: str) -> Iterator[Span]:
    for match in _CARD.finditer(text):
        digits = _digits(match[0])
        if _ISSUERS.fullmatch(digits) and luhn.is_valid(digits) and len(set(digits)) > 1:
            yield match.span()


def may_hold_ibans(text: str) -> bool:
    return _CHECK_DIGITS.search(text) is not None


def ibans(text: str) -> Iterator[Span]:
    """The words that follow an account may look like groups of it, so every end of a group is tried, the last first."""
    for match in _IBAN.finditer(text):
        if match[0][2:4] in ("00", "01", "99"):
            continue  # No country's banks compute these.
        found, start = match[0], match.start()
        for end in range(len(found), _SHORTEST_IBAN - 1, -1):
            ends = not text[start + end : start + end + 1].isalnum() and found[end - 1].isalnum()
            if ends and stdnum_iban.is_valid(re.sub(_GAP, "", found[:end]), check_country=False):
                yield start, start + end
                break


# --- numbers that states give ---------------------------------------------------------------------------------------


class _Number(NamedTuple):
    form: re.Pattern[str]
    is_valid: Callable[[str], bool]
    words: re.Pattern[str] | None = None
    """Of which one must be near, because the form alone says too little."""


def _number(form: str, is_valid: Callable[[str], bool], words: str = "") -> _Number:
    near = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE) if words else None
    return _Number(re.compile(f"{_BEFORE}(?:{form}){_AFTER}"), is_valid, near)


_NO_NINO = _words("BG GB KN NK NT TN ZZ")


def _is_nino(number: str) -> bool:
    return number[:2] not in _NO_NINO


def _is_american(number: str) -> bool:
    digits = _digits(number)
    return ssn.is_valid(digits) or itin.is_valid(digits)


def _is_nir(number: str) -> bool:
    return nir.is_valid(re.sub(_GAP, "", number))


def _is_passport(number: str) -> bool:
    """There is no checksum, but a day is none: until 20301231."""
    return not (len(number) == 8 and number.startswith(("19", "20")))


_D3 = "[0-9]{3}"
_NUMBERS = (
    _number("[0-9]{3}-[0-9]{2}-[0-9]{4}", _is_american),
    _number(
        "[0-9]{3}[ .]?[0-9]{2}[ .]?[0-9]{4}", _is_american, r"ssn|itin|social(?: security)?|seguro social|tax ?payer"
    ),
    _number("[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z]( ?)[0-9]{2} [0-9]{2} [0-9]{2} ?[A-D]", _is_nino),
    _number(
        "[A-CEGHJ-PR-TW-Za-ceghj-pr-tw-z]{2}[0-9]{6} ?[A-Da-d]",
        lambda number: _is_nino(number.upper()),
        "nino|ni|national insurance|insurance",
    ),
    _number(f"{_D3}[ -]?{_D3}[ -]?[0-9]{{4}}", nhs.is_valid, "nhs"),
    _number(
        r"[0-9]{2}[ ]?[0-9]{3}[ ]?[0-9]{3}[ ]?[0-9]{3}",
        idnr.is_valid,
        r"steuer\S{0,30}|id-?nr\.?|idnr|tin|identifikationsnummer|tax\W?id",
    ),
    _number(
        rf"[1-478]{_GAP}?[0-9]{{2}}{_GAP}?[0-9]{{2}}{_GAP}?(?:[0-9]{{2}}|2[ABab]){_GAP}?{_D3}{_GAP}?{_D3}{_GAP}?[0-9]{{2}}",
        _is_nir,
    ),
    _number("[0-9]{8}[ -]?[A-Z]", dni.is_valid),
    _number("[XYZ]-?[0-9]{7}-?[A-Z]", nie.is_valid),
    _number("[A-Za-z]{6}[0-9]{2}[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}[A-Za-z]", codicefiscale.is_valid),
    _number(
        r"[0-9]{4}[. ]?[0-9]{2}[. ]?[0-9]{3}|[0-9]{3}[. ][0-9]{3}[. ][0-9]{3}",
        bsn.is_valid,
        "bsn|burgerservice(?:nummer)?|sofi(?:nummer)?|citizen service",
    ),
    _number(r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}", cpf.is_valid),
    _number("[0-9]{9}-?[0-9]{2}", cpf.is_valid, "cpf|cadastro"),
    _number(rf"(?!20[0-9]{{2}}[ -]20)[2-9][0-9]{{3}}({_GAP})[0-9]{{4}}\1[0-9]{{4}}", aadhaar.is_valid),
    _number("[2-9][0-9]{11}", aadhaar.is_valid, r"aadh?aa?r|uidai|uid|आधार"),
    _number("[A-Z]{3}[ABCFGHLJPT][A-Z][0-9]{4}[A-Z]", pan.is_valid),
    _number("[0-9]{11}", pesel.is_valid, "pesel\\w{0,12}"),
    _number("(?:19|20)?[0-9]{6}[-+][0-9]{4}", personnummer.is_valid),
    _number(r"756[. ]?[0-9]{4}[. ]?[0-9]{4}[. ]?[0-9]{2}", ahv.is_valid),
    _number(r"[0-9]{2}\.[0-9]{2}\.[0-9]{2}[- ][0-9]{3}[.-][0-9]{2}", nn.is_valid),
    _number(r"[0-9]{1,2}\.[0-9]{3}\.[0-9]{3}-[0-9Kk]", rut.is_valid),
    _number("[1-9][0-9]{16}[0-9Xx]", ric.is_valid),
    _number("[0-9]{6}-[1-8][0-9]{6}", rrn.is_valid),
    _number("[A-Z]{4}[0-9]{6}[HMX][A-Z]{5}[A-Z0-9][0-9]", curp.is_valid),
    _number("[0-9]{6}[-+A-FU-Y][0-9]{3}[0-9A-Y]", hetu.is_valid),
    _number(f"{_D3}[ -]?{_D3}[ -]?{_D3}", sin.is_valid, r"sin|nas|social insurance|assurance sociale"),
    _number(f"{_D3} ?{_D3} ?[0-9]{{2,3}}", tfn.is_valid, "tfn|tax file"),
    _number(f"{_D3} ?{_D3} ?{_D3}", nif.is_valid, "nif|contribuinte"),
    _number("[0-9]{13}", za_idnr.is_valid, r"id|identity"),
    _number("[0-9]{11}", tckimlik.is_valid, r"tckn|t\.?c\.?|kimlik\w{0,12}"),
    _number("[0-9]{6} ?-?[0-9]{4}", cpr.is_valid, r"cpr\S{0,10}|personnummer"),
    _number("[0-9]{6} ?[0-9]{5}", fodselsnummer.is_valid, r"f[øo]dselsnummer|personnummer|fnr"),
    _number("[0-9]{13}", cnp.is_valid, "cnp"),
    _number("[0-9]{7}[A-W][A-IW]?", pps.is_valid, "ppsn?|pps number"),
    _number(
        "[A-Z]{0,2}[0-9]{6,9}|[A-Z][0-9][A-Z0-9]{6,7}",
        _is_passport,
        r"passports?|reisepass\w{0,12}|passeport|pasaporte|passaporto|passaporte|paspoort\w{0,12}",
    ),
)


_NUMBER = re.compile(r"[0-9](?:(?:.{0,3}[0-9]){5}|(?<=[A-Za-z]{5}[0-9])[0-9]{3})", re.DOTALL)
"""What every number of a person has: six digits near one another, or those of an Indian PAN. It begins with a digit, so
that letters are passed over at once."""


_DIGIT = re.compile("[0-9]")
_LETTERS_BEFORE = 6
_LETTERS_AFTER = 7
"""Of a form: so many letters or signs at most stand before its first digit, and after its last."""


def may_hold_national_ids(text: str) -> bool:
    return _NUMBER.search(text) is not None


def national_ids(text: str) -> Iterator[Span]:
    # Forms are many, and most of a text has no digit: each is looked for where the digits are.
    first = _DIGIT.search(text)
    if first is None:
        return
    start = max(0, first.start() - _LETTERS_BEFORE)
    end = max(map(text.rfind, string.digits)) + 1 + _LETTERS_AFTER + _SEEN_AFTER
    for form, is_valid, words in _NUMBERS:
        # Most texts have no number of the form, which is quicker to see than that they lack the words.
        if form.search(text, start, end) is None or (words is not None and not words.search(text)):
            continue
        for match in form.finditer(text, start, end):
            if is_valid(match[0]) and (words is None or _near(words, text, *match.span())):
                yield match.span()
