"""The tool `memory`, by which a model edits curated memory: a schema, and a call, for whatever framework.

A refusal is an answer that the model can act upon, with all that is there, and so is a failure, without. It changes
files only, and no prompt of the run that is going on.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec

from whence.errors import SetupError
from whence.hybrid.curated import Changed, CuratedMemory, Kept, NotCurated, Target
from whence.hybrid.entries import flags_of

Action = Literal["add", "replace", "remove"]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Action
    target: Target
    text: str = ""
    old_text: str = ""


class MemoryTool:
    name: Final = "memory"
    description: Final = (
        "Keeps short notes for later conversations. target memory: what is worth knowing of the work. target user: "
        "who the user is and what they prefer. One fact an entry, in plain words; no secrets. add appends an entry. "
        "replace and remove change the one entry that holds old_text. Both notes have a limited size: when one is "
        "full, replace or remove what matters least. Changes are seen in the prompt from the next run on."
    )
    parameters: Final[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": list(get_args(Action))},
            "target": {"type": "string", "enum": list(get_args(Target))},
            "text": {"type": "string", "description": "The entry, for add and replace."},
            "old_text": {
                "type": "string",
                "description": "A part of the entry that is in no other, for replace and remove.",
            },
        },
        "required": ["action", "target"],
        "additionalProperties": False,
    }
    """A JSON schema, as every framework takes it."""

    def __init__(self, curated: CuratedMemory) -> None:
        self._curated = curated

    def call(self, arguments: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
        """Does what a model asks, given as an object or as JSON. It writes files: call it in a thread where a loop
        must not wait for a disk."""
        try:
            asked = _asked(arguments)
        except (msgspec.ValidationError, msgspec.DecodeError, UnicodeError) as error:
            return {"ok": False, "error": f"wrong arguments: {error}"}
        try:
            changed = self._done(asked)
        except NotCurated as error:
            return {"ok": False, "error": error.detail, **_there(error.kept)}
        except SetupError as error:
            return {"ok": False, "error": error.detail}
        except OSError as error:
            return {"ok": False, "error": f"the notes cannot be read or written: {error.strerror}"}
        answer = {"ok": True, "is_changed": changed.is_changed, "entry": changed.entry, **_there(changed.kept)}
        flags = flags_of(changed.entry) if asked.action != "remove" else ()
        return answer | ({"flags": list(flags)} if flags else {})

    def _done(self, asked: Arguments) -> Changed:
        if asked.action == "add":
            return self._curated.add(asked.target, asked.text)
        if asked.action == "replace":
            return self._curated.replace(asked.target, asked.old_text, asked.text)
        return self._curated.remove(asked.target, asked.old_text)


def _asked(arguments: Mapping[str, Any] | str | bytes) -> Arguments:
    if isinstance(arguments, str | bytes):
        return msgspec.json.decode(arguments, type=Arguments)
    given = {name: value for name, value in arguments.items() if value is not None}
    return msgspec.convert(given, type=Arguments)


def _there(kept: Kept) -> dict[str, Any]:
    return {
        "target": kept.target,
        "entries": [entry.text for entry in kept.entries],
        "characters": kept.used,
        "most_characters": kept.budget,
    }
