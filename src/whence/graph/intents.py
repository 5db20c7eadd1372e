"""What a question is after, and which edges answer it.

Eight intents. The caller may name one; else the words of the question give it away. Rules and no model: the answer can
say which words decided, and says the same tomorrow.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, get_args

from whence.wire import EdgeType, Intent

INTENTS: Final[tuple[Intent, ...]] = get_args(Intent)

EDGES: Final[tuple[EdgeType, ...]] = get_args(EdgeType)

MAX_INTENTS = 3
"""Followed at once; the weaker ones are left to `general`."""

MAX_QUESTION_CHARACTERS = 1_000
"""Of a question that are looked at."""

DOUBT = 1.0
"""What speaks against every intent, in the unit of a cue's strength: a bare question word leaves a third in doubt."""


class Inference(NamedTuple):
    intents: dict[str, float]
    """The confidence in each intent; what is missing to 1 is doubt."""
    how: str


def _weights(
    follows: float = 1,
    caused_by: float = 1,
    similar_to: float = 1,
    references: float = 1,
    derived_from: float = 1,
    summarizes: float = 1,
) -> dict[EdgeType, float]:
    # SAME_AS joins two names of one thing. It is no step of an answer, so no intent favours or avoids it.
    return {
        "FOLLOWS": follows,
        "CAUSED_BY": caused_by,
        "SIMILAR_TO": similar_to,
        "REFERENCES": references,
        "SUMMARIZES": summarizes,
        "DERIVED_FROM": derived_from,
        "SAME_AS": 1,
    }


WEIGHTS: Final[Mapping[Intent, Mapping[EdgeType, float]]] = {
    # A cause is found by going from effect to cause; what was touched and what was alike are hints.
    "why": _weights(caused_by=5, references=2, similar_to=1.5),
    # Time is the order of a session.
    "when": _weights(follows=5),
    # What a thing is shows where it is mentioned.
    "what": _weights(references=5),
    # Alike is what similarity says.
    "related": _weights(similar_to=5),
    # A person is known by what mentions them, and by what was concluded about them.
    "who_is": _weights(references=5, derived_from=3, similar_to=1.5),
    # A way of working is a chain of steps: what called what, and what came next.
    "how_does": _weights(caused_by=4, follows=3, references=2),
    # What suits a person was learnt from what they did, and holds in cases like it.
    "personalize": _weights(derived_from=5, references=2, similar_to=2, summarizes=2),
    # Nothing is known about the question, so no edge is better than another.
    "general": _weights(),
}


class _Cue(NamedTuple):
    intent: Intent
    strength: float
    words: re.Pattern[str]


def _cues(intent: Intent, strength: float, *patterns: str) -> list[_Cue]:
    return [_Cue(intent, strength, re.compile(rf"\b(?:{pattern})\b")) for pattern in patterns]


_BE = r"(?:is|are|was|were)"
_DO = r"(?:do|does|did|can|could|should|would|will)"
_THEY = r"(?:the (?:user|customer|client)|she|he|they|[a-z]+)"

# From 4 on, a phrase that means one thing; 2, a word that mostly means it, or a question word that asks for anything.
_CUES: Final = [
    *_cues(
        "why",
        5,
        r"why|how come|what for|(?:root )?causes?|caused|causing|reasons?|rationale|motivation|motives?|purpose",
        r"led (?:up )?to|leads to|trigger(?:s|ed)|gave rise|contribut\w+|(?:end|wind|wound)(?:ed|s)? up|resulted from",
        r"what (?:made|makes|explains?|drove|drives|prompted)|on what (?:grounds|basis)|justif\w+|due to",
        r"went wrong|gone wrong|goes wrong|at fault|to blame|(?:is|was|are|were|'s|reasons?) behind|responsible for",
        r"consequences? of|origins? of",
    ),
    *_cues("why", 2, r"because|responsible|blame|fail(?:ed|s|ing|ures?)|explanation"),
    *_cues(
        "when",
        4,
        r"when|what time|(?:what|which) (?:day|date|week|month|year|order|sequence)|timeline|chronolog\w+|duration",
        r"how (?:long|often|recently|soon|old|late|early|many (?:seconds|minutes|hours|days|weeks|months|years|times))",
        r"sequence of|history of|(?:last|first|latest|previous|next) (?:time|step|event)|deadline|due|expir\w+",
        r"(?:happen(?:ed|s)|came|comes|changed?|did|done?) (?:right |just )?(?:before|after|next|first|last|since)",
        r"happened (?:on|in|at|between|during|yesterday|today|earlier|this)|right (?:before|after)|by (?:now|then)",
    ),
    *_cues(
        "when",
        2,
        r"before|after|yesterday|today|tomorrow|recently|earlier|latest|most recent|until|since|ago|scheduled?|dates?",
        r"(?:last|this|next) (?:week|month|year|night|morning|monday|tuesday|wednesday|thursday|friday|weekend)",
    ),
    *_cues(
        "related",
        5,
        r"similar(?:ly|ities|ity)?|relat(?:ed|es?|ions?|ionships?)|alike|resembl\w+|analog\w+|comparable|associat\w+",
        r"(?:anything|something|others?|cases?|issues?|tickets?|incidents?|questions?|ones?|more|examples?) like",
        r"like (?:this|that|these|those|it)|(?:this|that|it|these) before|(?:connect|link)\w* (?:to|with|between)",
        r"other (?:cases|examples|incidents|tickets|issues|runs|sessions|questions|times|places)|in common|overlap\w*",
        r"same (?:kind|sort|type|problem|issue|error|question|pattern|mistake|thing)|close(?:st)? to|parallels?",
        r"duplicates?|match(?:es|ing)|along the lines of|goes? (?:together )?with|belongs? together",
    ),
    *_cues(
        "who_is",
        4,
        r"who|who['’]s|whom|whose|which (?:person|user|customer|people|agent|colleague|team|contact|employee|client)",
        r"job title|(?:role|position|job|title) (?:at|in|of|on)|in charge|contact (?:person|for|at)|biography",
        r"(?:works?|worked|working|employed) (?:for|at|with)|background (?:of|on)|owners? of|authors? of|name of the",
    ),
    *_cues(
        "how_does",
        4,
        rf"how {_DO}(?:n['’]t)?|how to|how {_BE}|(?:walk|talk|take) me through|workflow|mechanisms?|procedure",
        r"steps (?:to|for|of|in)|(?:right|best|correct|usual|recommended) way|way to|process (?:for|of)|\w+ process",
        r"internally|under the hood|behind the scenes|what happens (?:if|inside|to)|instructions|method (?:for|of)",
    ),
    *_cues("how_does", 2, r"how|explain|describe|steps?|works|guide"),
    *_cues(
        "personalize",
        5,
        r"(?:my|our|your|\w+['’]s) (?:usual|favou?rites?|preferences?|habits?|style|taste|likes|interests?|needs|diet)",
        r"(?:for|about|suits?|fits?) me|i['’]d (?:like|enjoy|prefer|love)|as usual|(?:should|would|might) i (?:\w+)",
        r"i (?:usually|normally|always|typically|prefer|like|love|hate|enjoy|tend|would (?:like|enjoy|love|prefer))",
        rf"(?:does|did|do|would) {_THEY} (?:usually |normally )?(?:like|prefer|enjoy|love|dislike|hate|want)",
        rf"{_THEY} (?:would|might) (?:like|enjoy|love|prefer)|personali[sz]\w+|tailor(?:ed)?|preferences?|preferred",
        r"allerg\w+|favou?rites?|dislikes?",
    ),
    *_cues("personalize", 2, r"recommend\w*|suggest\w*|my|mine|prefers?|likes"),
    *_cues("what", 2, r"(?:list|show|find|get)(?: me)? (?:all|every|any|each|the)|mention(?:s|ed|ing)?|define"),
    *_cues("what", 2, r"what|what['’]s|which|where"),
]


def infer(query: str) -> Inference:
    """The intents of a question with the confidence in each, the best first, and the words that gave them away."""
    found = _found(query[:MAX_QUESTION_CHARACTERS].lower())
    if not found:
        return Inference({"general": 1.0}, "no word of the question tells")
    scores: dict[Intent, float] = {intent: _score(cues) for intent, cues in found.items()}
    best: list[Intent] = [intent for intent in INTENTS if intent in scores]
    best.sort(key=scores.__getitem__, reverse=True)
    followed: list[Intent] = [intent for intent in best[:MAX_INTENTS] if scores[intent] * 2 > scores[best[0]]]
    total = sum(scores.values()) + DOUBT
    how = "; ".join(f"{intent} by " + ", ".join(f'"{word}"' for _, word in found[intent]) for intent in followed)
    return Inference({intent: scores[intent] / total for intent in followed}, how)


def weights(intents: Mapping[str, float]) -> dict[EdgeType, float]:
    """The weights of the edge types for intents of some confidence; what is missing to 1 counts as `general`."""
    shares: dict[Intent, float] = {intent: intents.get(intent, 0.0) for intent in INTENTS}
    shares["general"] += max(0.0, 1 - sum(shares.values()))
    return {edge: sum(share * WEIGHTS[intent][edge] for intent, share in shares.items()) for edge in EDGES}


_Cues: TypeAlias = list[tuple[_Cue, str]]


def _found(question: str) -> dict[Intent, _Cues]:
    found: dict[Intent, _Cues] = {}
    for cue in _CUES:
        if (match := cue.words.search(question)) is not None:
            found.setdefault(cue.intent, []).append((cue, match[0]))
    return found


def _score(cues: _Cues) -> float:
    """The strongest cue counts whole and the others by half, so that one phrase beats a heap of hints."""
    strengths = [cue.strength for cue, _ in cues]
    return max(strengths) + (sum(strengths) - max(strengths)) / 2
