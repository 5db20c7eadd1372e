"""Whether a text reads like an order to the model that will read it."""

import re
from typing import Final

LOOKED_AT = 4_000
"""Characters of a text."""

# Orders to a model, not to a person: they speak of instructions, prompts, roles and tools, or forbid to tell the user.
# Each kind stands behind words of which one must be there: looking for these takes a tenth of the time.
_ORDERS: Final = [
    (signs, re.compile(pattern))
    for signs, pattern in (
        (
            ("ignor", "disregard", "forget", "overrid", "bypass"),
            r"\b(?:ignore|disregard|forget|override|bypass)\b[^.]{0,40}"
            r"\b(?:instructions?|prompts?|rules?|guidelines?|above|previous|prior)\b",
        ),
        (("prompt", "message", "instruct"), r"\b(?:system|developer) (?:prompt|message|instructions?)\b"),
        (("instruct", "from now on"), r"\b(?:from now on|(?:new|important|following) instructions?)\b"),
        (("you are",), r"\byou are (?:now|no longer) (?:an?|the|in|allowed|bound|required|to)\b"),
        (("act as",), r"\bact as (?:an?|the) (?:ai|assistant|admin\w*|system|root|developer|model)\b"),
        (
            ("user", "human", "operator", "anyone"),
            r"\b(?:do not|don't|never) (?:tell|inform|mention|reveal|show|warn)\b[^.]{0,40}"
            r"\b(?:user|human|operator|anyone)\b",
        ),
        (
            (" tool", " function", " command"),
            r"\b(?:call|invoke|run|execute|use) the [\w.-]{1,60} (?:tool|function|command)\b",
        ),
        (("as an ai", "as an assistant", "language model"), r"\bas an? (?:ai|assistant|language model)\b[^.]{0,40}"),
        (
            ("<", "[inst", "[/inst"),
            r"< ?/? ?(?:system|instructions?|assistant|im_start|im_end)\b|\[/?inst\]|<\|[a-z_]{1,30}\|>",
        ),
    )
]


def is_order(text: str) -> bool:
    plain = " ".join(text[:LOOKED_AT].casefold().split())
    return any(pattern.search(plain) for signs, pattern in _ORDERS if any(sign in plain for sign in signs))
