"""Words of a text as they are compared: without case, marks and endings; and the sentences that they stand in."""

import re
import unicodedata
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

PASSAGE_WORDS = 40
"""A text up to this long is matched as one; a longer one by its sentences too, as what counts may be an aside."""
MAX_PASSAGES = 100
"""Of one text: the last one holds all that is left."""
MAX_WORDS = 4_000
"""Of one text; what comes later does not count."""

# Signs of scripts that are written without spaces: Chinese, Japanese, Thai.
_SIGNS: Final = r"぀-ヿ㐀-鿿豈-﫿฀-๿\U00020000-\U0003ffff"
_LETTER: Final = rf"[^\W_{_SIGNS}]"
# Such signs, others that are words by themselves (emoji), or letters with apostrophes inside.
_WORD: Final = re.compile(rf"[{_SIGNS}]|[\U0001f000-\U0001faff☀-➿]|{_LETTER}+(?:['’]{_LETTER}+)*")
_ASCII_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*", re.ASCII)
_RUN_ON: Final = re.compile(rf"[{_SIGNS}]")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+")

_STOP: Final = """
a about after all also am an and any are as at be because been before being both but by can could did do does doing
don during each few for from further had has have having he her here hers herself him himself his how i if in into is
it its itself just let me more most my myself no nor not now of off on once only or other our ours out over own same
she should so some such than that the their theirs them themselves then there these they this those through to too
under until up very was we were what when where which while who whom why will with would you your yours yourself s t
re ve ll d m
"""
STOP_WORDS: Final = frozenset(_STOP.split())


class Word(NamedTuple):
    stem: str
    surface: str
    is_name: bool
    """Written with a capital where a sentence does not begin."""


def words(text: str) -> list[tuple[str, str]]:
    """In order, stop words left out: the stem of each, and how it is written."""
    if text.isascii():
        # Most are, and this takes a third of the time.
        written = _ASCII_WORD.findall(text)
        found = [(stem, word) for word in written if (stem := stem_of(word)) not in STOP_WORDS]
    else:
        found = [(word.stem, word.surface) for word in _words(text) if word.stem not in STOP_WORDS]
    return found[:MAX_WORDS]


def asked_words(text: str) -> list[Word]:
    """Of a question, each once: where it has stop words only, those."""
    all_words = _words(text)[:MAX_WORDS]
    telling = [word for word in all_words if word.stem not in STOP_WORDS] or all_words
    found: dict[str, Word] = {}
    for word in telling:
        known = found.get(word.stem)
        if known is None or (word.is_name and not known.is_name):
            found[word.stem] = word
    return list(found.values())


def _words(text: str) -> list[Word]:
    found: list[Word] = []
    end, previous = -1, ""
    for match in _WORD.finditer(text):
        written = match[0]
        if _RUN_ON.match(written):
            # Written without spaces: two signs in a row say more than one.
            found.append(Word(written, written, is_name=False))
            if end == match.start() and previous:
                found.append(Word(previous + written, previous + written, is_name=False))
            previous = written
        else:
            stem = stem_of(written)
            is_name = written[0].isupper() and not _begins(text, match.start())
            found.append(Word(stem, written, is_name))
            previous = ""
        end = match.end()
    return found


def _begins(text: str, start: int) -> bool:
    """Whether a sentence begins here."""
    before = text[max(0, start - 3) : start].rstrip(" \"'“‘(")
    return not before or before[-1] in ".!?:\n"


@lru_cache(maxsize=100_000)
def stem_of(written: str) -> str:
    word = written.casefold().replace("’", "'")
    if word.endswith("'s"):
        word = word[:-2]
    word = word.replace("'", "")
    if not word.isascii():
        parts = unicodedata.normalize("NFKD", word)
        word = unicodedata.normalize("NFC", "".join(sign for sign in parts if not unicodedata.combining(sign)))
        return word
    return _english().stemWord(word) if word not in STOP_WORDS else word


@lru_cache(maxsize=1)
def _english() -> Any:
    return import_module("Stemmer").Stemmer("english")


def passages(text: str) -> list[str]:
    """The sentences of a long text, short ones joined to their neighbours; a short text as it is."""
    if len(text) < PASSAGE_WORDS * 3 or len(text.split()) <= PASSAGE_WORDS:
        return [text]
    found: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        if not sentence or not sentence.strip():
            continue
        if found and (len(found) == MAX_PASSAGES or len(found[-1].split()) < PASSAGE_WORDS // 5):
            found[-1] = f"{found[-1]} {sentence.strip()}"
        else:
            found.append(sentence.strip())
    return found or [text]


def only_asks(text: str) -> bool:
    """Whether nothing is said in it: every sentence is a question."""
    if "?" not in text and "？" not in text:
        return False
    sentences = [part.rstrip(" \"'”’)]") for part in _SENTENCE_END.split(text) if part and part.strip()]
    return bool(sentences) and all(sentence.endswith(("?", "？")) for sentence in sentences)
