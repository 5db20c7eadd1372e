"""Makes a set of questions in LongMemEval's shape, of our own text: long turns with one fact as an aside.

    python bench/made_set.py made.json --count 150 --seed 1
    whence eval made.json

Every question has a haystack of about 40 sessions between a user and an assistant. A user's turn is a request of 80 to
200 words on an everyday topic; some have, in the middle, a sentence on something else, and one of these answers the
question, mostly in words that the question does not use. Around it stand the same facts of other people, sentences that
speak of the same and tell nothing, and other sessions on the same topic. What is said stands in `made_set.toml`.
"""

import argparse
import json
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
TALK = TEXTS["talk"]
KINDS = ("single-session-user", "single-session-assistant", "multi-session", "knowledge-update", "temporal")
SESSIONS = (36, 44)
EXCHANGES = (3, 6)
"""Of a session, each of two turns."""
USER_WORDS = (80, 200)
ASSISTANT_WORDS = (150, 300)
STRETCH = timedelta(days=150)
"""Over which the sessions of a haystack are spread."""
START = datetime(2024, 3, 1, tzinfo=UTC)
IN_OTHER_WORDS = 0.6
"""Of the questions."""
WITH_ASIDE = 0.5
"""Of the turns of a user, the question's own not counted."""
ECHOED = 0.3
"""Of the asides that the assistant comes back to, which answers nothing."""

Item = dict[str, Any]


class Session:
    def __init__(self, dice: Random, topic: Item, began: datetime) -> None:
        self.topic = topic
        self.began = began
        self.asides: list[Item | None] = [None] * dice.randint(*EXCHANGES)
        """Of each exchange, what the user says beside the point; `answers` where it is evidence."""
        self.named: dict[int, Item] = {}
        """What the assistant recommends by name, by exchange."""
        self.is_quiet = False
        """Whether nothing else is said in it beside the point."""


class Haystack:
    def __init__(self, dice: Random) -> None:
        self.dice = dice
        count = dice.randint(*SESSIONS)
        first = START + timedelta(days=dice.randint(0, 300))
        days = sorted(dice.sample(range(STRETCH.days), count))
        topics = [*TEXTS["topic"], *dice.choices(TEXTS["topic"], k=count)][:count]
        dice.shuffle(topics)
        self.sessions = [
            Session(dice, topic, first + timedelta(days=day, minutes=dice.randint(420, 1320)))
            for topic, day in zip(topics, days, strict=True)
        ]
        self.asked_at = self.sessions[-1].began + timedelta(days=dice.randint(1, 3))

    def places(self, count: int) -> list[tuple[Session, int]]:
        """Turns of different sessions, in order of time."""
        chosen = sorted(self.dice.sample(range(len(self.sessions)), count))
        return [(self.sessions[place], self.dice.randrange(len(self.sessions[place].asides))) for place in chosen]

    def tell(self, place: tuple[Session, int], fact: str, echo: str | None = None, answers: bool = True) -> None:
        session, exchange = place
        session.asides[exchange] = {"fact": fact, "echo": echo, "answers": answers}

    def distract(self, sentences: list[Item]) -> None:
        """Puts these into turns that have no aside yet, wherever chance wants."""
        free = [
            (session, exchange)
            for session in self.sessions
            if not session.is_quiet
            for exchange, aside in enumerate(session.asides)
            if aside is None and exchange not in session.named
        ]
        self.dice.shuffle(free)
        for place, sentence in zip(free[: int(len(free) * WITH_ASIDE)], sentences, strict=False):
            self.tell(place, sentence["fact"], sentence.get("echo"), answers=False)


# --- questions --------------------------------------------------------------------------------------------------------


def made(kind: str, number: int, seed: int) -> Item:
    dice = Random(f"{seed}/{kind}/{number}")
    hay = Haystack(dice)
    question, answer, taken = {
        "single-session-user": about_a_fact,
        "single-session-assistant": about_advice,
        "multi-session": about_a_series,
        "knowledge-update": about_a_change,
        "temporal": about_time,
    }[kind](hay)
    hay.distract(distractions(hay, taken))
    named = [[turn | {"session": place} for turn in turns(dice, each)] for place, each in enumerate(hay.sessions, 1)]
    ids = [f"{kind}-{number}-{place}" for place in range(1, len(named) + 1)]
    return {
        "question_id": f"made-{kind}-{number}",
        "question_type": kind,
        "question": question,
        "answer": answer,
        "question_date": written(hay.asked_at),
        "haystack_session_ids": ids,
        "haystack_dates": [written(session.began) for session in hay.sessions],
        "haystack_sessions": [[{k: v for k, v in turn.items() if k != "session"} for turn in each] for each in named],
        "answer_session_ids": [
            name for name, each in zip(ids, named, strict=True) if any(turn["has_answer"] for turn in each)
        ],
    }


def asked(dice: Random, fact: Item) -> str:
    return dice.choice(fact["asked"]) if dice.random() < IN_OTHER_WORDS else fact["same"]


def about_a_fact(hay: Haystack) -> tuple[str, str, Item]:
    fact = hay.dice.choice(TEXTS["fact"])
    value = hay.dice.choice(fact["values"])
    hay.tell(hay.places(1)[0], fact["said"].format(v=value), fact["echo"])
    return asked(hay.dice, fact), value, fact


def about_a_change(hay: Haystack) -> tuple[str, str, Item]:
    """What was so first is evidence too: who answers must see that it was changed."""
    fact = hay.dice.choice(TEXTS["fact"])
    before, after = hay.dice.sample(fact["values"], 2)
    first, second = hay.places(2)
    hay.tell(first, fact["said"].format(v=before), fact["echo"])
    hay.tell(second, fact["again"].format(v=after), fact["echo"])
    return asked(hay.dice, fact), after, fact


def about_a_series(hay: Haystack) -> tuple[str, str, Item]:
    series = hay.dice.choice(TEXTS["series"])
    said = hay.dice.sample(series["said"], hay.dice.randint(2, 3))
    values = hay.dice.sample(series["values"], len(said))
    for place, form, value in zip(hay.places(len(said)), said, values, strict=True):
        hay.tell(place, form.format(v=value))
    return asked(hay.dice, series), ", ".join(values), series


def about_time(hay: Haystack) -> tuple[str, str, Item]:
    one, other = hay.dice.sample(TEXTS["event"], 2)
    if hay.dice.random() < 1 / 3:
        place = hay.places(1)[0]
        weeks = (monday(hay.asked_at) - monday(place[0].began)).days // 7
        when = f"{weeks} weeks ago" if weeks > 1 else "last week" if weeks else "this week"
        hay.tell(place, one["said"])
        for session in hay.sessions:
            session.is_quiet = monday(session.began) == monday(place[0].began)
        return f"Which piece of personal news did I mention {when}?", one["asked"], one
    first, second = hay.places(2)
    hay.tell(first, one["said"])
    hay.tell(second, other["said"])
    words = "asked" if hay.dice.random() < IN_OTHER_WORDS else "same"
    taken = {"both": [one, other]}
    if hay.dice.random() < 0.5:
        days = (second[0].began.date() - first[0].began.date()).days
        return f"How many days passed between {one[words]} and {other[words]}?", str(days), taken
    return f"Which came first, {other[words]} or {one[words]}?", one[words], taken


def about_advice(hay: Haystack) -> tuple[str, str, Item]:
    """Others of the same sort are named on other topics."""
    advice, dice = hay.dice.choice(TEXTS["advice_by_name"]), hay.dice
    value, *others = dice.sample(advice["values"], 4)
    session, exchange = hay.places(1)[0]
    session.named[exchange] = {"text": advice["said"].format(v=value), "answers": True}
    elsewhere = [each for each in hay.sessions if each.topic is not session.topic]
    for other, each in zip(others, dice.sample(elsewhere, len(others)), strict=True):
        text = advice["said"].format(v=other)
        each.named[dice.randrange(len(each.asides))] = {"text": text, "answers": False}
    topic = session.topic["aka" if dice.random() < IN_OTHER_WORDS else "name"]
    return asked(dice, advice).format(topic=topic), value, {}


def monday(moment: datetime) -> datetime:
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC) - timedelta(days=moment.weekday())


# --- what stands around the answer ------------------------------------------------------------------------------------


def distractions(hay: Haystack, taken: Item) -> list[Item]:
    """What is likest to the answer first, as there may not be room for all: the same of others, the same untold."""
    dice = hay.dice
    first: list[Item] = []
    if "near" in taken:
        first = [{"fact": taken["near"]}, {"fact": f"{taken['near']}, as everybody says"}, *others(dice, taken, 3)]
    elif "values" in taken:
        first = [
            {"fact": quoted(dice, dice.choice(taken["said"]).format(v=v))} for v in dice.sample(taken["values"], 2)
        ]
    rest: list[Item] = []
    for fact in TEXTS["fact"]:
        if fact is not taken:
            value = dice.choice(fact["values"])
            rest += [{"fact": fact["said"].format(v=value), "echo": fact["echo"]}, {"fact": fact["near"]}]
            rest += others(dice, fact, 1)
    for event in TEXTS["event"]:
        if event is not taken and event not in taken.get("both", ()):
            rest.append({"fact": quoted(dice, event["said"]) if dice.random() < 0.5 else event["said"]})
    for series in TEXTS["series"]:
        if series is not taken:
            rest.append({"fact": dice.choice(series["said"]).format(v=dice.choice(series["values"]))})
    dice.shuffle(rest)
    return first + rest


def others(dice: Random, fact: Item, count: int) -> list[Item]:
    people = dice.sample(TALK["people"], count)
    return [{"fact": fact["other"].format(who=who, v=dice.choice(fact["values"]))} for who in people]


def quoted(dice: Random, said: str) -> str:
    return f"{dice.choice(TALK['people'])} told me, \u201c{said}\u201d"


# --- turns ------------------------------------------------------------------------------------------------------------


def turns(dice: Random, session: Session) -> Iterator[Item]:
    for exchange, aside in enumerate(session.asides):
        text = request(dice, session.topic, exchange, aside)
        yield {"role": "user", "content": text, "has_answer": bool(aside and aside["answers"])}
        named = session.named.get(exchange)
        echo = aside["echo"] if aside and aside["echo"] and dice.random() < ECHOED else None
        text = reply(dice, session.topic, echo, named)
        yield {"role": "assistant", "content": text, "has_answer": bool(named and named["answers"])}


def request(dice: Random, topic: Item, exchange: int, aside: Item | None) -> str:
    opening = dice.choice(TALK["follow_ups" if exchange else "openings"])
    closing = filled(dice, topic, dice.choice(TALK["closings"]))
    said = [filled(dice, topic, opening) + ".", dice.choice(topic["wants"]) + "."]
    middles = [*dice.sample(topic["worries"], 2), *TALK["middles"]]
    dice.shuffle(middles)
    form = aside and filled(dice, topic, dice.choice(TALK["asides"]), fact=aside["fact"])
    words = dice.randint(*USER_WORDS) - len(f"{closing} {form or ''}".split())
    for middle in middles:
        if sum(len(sentence.split()) for sentence in said) >= words:
            break
        said.append(filled(dice, topic, middle) + ".")
    if form:
        said.insert(dice.randint(2, len(said) - 1), form)
    return " ".join([*said, closing])


def reply(dice: Random, topic: Item, echo: str | None, named: Item | None) -> str:
    said = [filled(dice, topic, dice.choice(TALK["replies"])) + "."]
    if echo is not None:
        said.append(dice.choice(TALK["echoes"]).format(echo=echo))
    advice = [*topic["tips"], *TALK["advice"], *TALK["advice"]]
    dice.shuffle(advice)
    words = dice.randint(*ASSISTANT_WORDS) - 10
    for sentence in advice:
        if sum(len(each.split()) for each in said) >= words:
            break
        said.append(filled(dice, topic, sentence) + ".")
    if named is not None:
        said.insert(dice.randint(2, len(said) - 1), named["text"])
    return " ".join([*said, filled(dice, topic, dice.choice(TALK["ends"])) + "."]).replace("?.", "?")


def filled(dice: Random, topic: Item, form: str, **more: str) -> str:
    a, b = dice.sample(topic["nouns"], 2)
    return form.format(a=a, b=b, topic=topic["name"], **more)


def written(moment: datetime) -> str:
    return f"{moment:%Y/%m/%d (%a) %H:%M}"


def make(count: int, seed: int) -> list[Item]:
    """The kinds in turn; the same seed gives the same set."""
    return [made(KINDS[number % len(KINDS)], number // len(KINDS) + 1, seed) for number in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="where to write it")
    parser.add_argument("--count", type=int, default=150, help="questions, each with a haystack of its own")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.file.write_text(json.dumps(make(given.count, given.seed), indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
