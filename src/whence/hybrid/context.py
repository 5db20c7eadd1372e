"""What a model is given for a run, in its order.

system prompt    the host's own, curated memory as it stood when the run began, and the rule about recalled memory
skills           what the host activates for the run
reference        what the gateway recalled, for this run alone
history, prompt  the conversation so far, and what the user asks now
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from whence.hybrid.curated import NAMES, Kept, Snapshot, Target
from whence.hybrid.reference import RULE, Message

AnyMessage = Mapping[str, Any]
"""A message in the form of the host's provider; it is passed on as it is."""

_HEADINGS: Final[dict[Target, str]] = {
    "memory": f"# {NAMES['memory']}: your notes from earlier conversations",
    "user": f"# {NAMES['user']}: what you noted about the user",
}


def system_prompt(system: str, snapshot: Snapshot, *, gateway_active: bool) -> str:
    parts = [system, *map(_block, (snapshot.memory, snapshot.user)), RULE if gateway_active else ""]
    return "\n\n".join(part for part in parts if part)


def build_messages(
    system: str,
    prompt: str,
    *,
    skills: Iterable[AnyMessage] = (),
    reference: Iterable[Message] = (),
    history: Iterable[AnyMessage] = (),
) -> list[dict[str, Any]]:
    """`system` is whole: see `system_prompt`."""
    return [
        {"role": "system", "content": system},
        *map(dict, (*skills, *reference, *history)),
        {"role": "user", "content": prompt},
    ]


def _block(kept: Kept) -> str:
    """The file as it is, without what stands around it; nothing where it is empty."""
    text = kept.text.strip()
    return f"{_HEADINGS[kept.target]}\n\n{text}" if text else ""
