"""What the attributes of one record say, sorted into places by the vocabulary."""

import re

import msgspec

from whence.gateway.otlp.decode import Refused
from whence.gateway.otlp.flattened import LISTS, gather
from whence.gateway.otlp.forms import JSON, Json, JsonObject
from whence.gateway.otlp.messages import parsed, parsed_any
from whence.gateway.otlp.vocabulary import KNOWN, Known
from whence.ledger.events import MAX_IDENTIFIER_CHARACTERS
from whence.wire import Measures

_MEMORY = "gen_ai.memory."
_SPREAD = (*LISTS, _MEMORY)
_SPREAD_START = re.compile("|".join(re.escape(start) for start in _SPREAD))


class Facts:
    """The attributes of one record by place. `rest` holds those that have no place, or lost it to a better source."""

    __slots__ = ("_sources", "rest", "sections")

    def __init__(self, attributes: JsonObject) -> None:
        self.rest: JsonObject = {}
        self.sections: dict[str, JsonObject] = {
            "envelope": {},
            "measures": {},
            "payload": {},
            "tool": {},
            "retrieval": {},
            "memory": {},
        }
        self._sources: dict[tuple[str, str], tuple[int, str]] = {}
        spread: dict[str, JsonObject] = {}
        for key, value in attributes.items():
            known = KNOWN.get(key)
            if known is not None:
                self._place(key, value, known, attributes)
            elif key.startswith(_SPREAD) and (start := _SPREAD_START.match(key)):
                spread.setdefault(start[0], {})[key] = value
            else:
                self.rest[key] = value
        if spread:
            self._place_spread(spread)
        self._read_values()

    def identifier(self, name: str) -> str | None:
        """An identifier of the envelope. One that does not fit refuses the record: cut short it would be another."""
        value = self.sections["envelope"].get(name)
        if not isinstance(value, str):
            return None
        return fitting(value, self._sources["envelope", name][1])

    def measures(self) -> Measures | None:
        found = self.sections["measures"]
        return msgspec.convert(found, Measures) if found else None

    def payload(self) -> JsonObject:
        """The normalised content, and under `attributes` everything that no other place of the event holds."""
        payload = self.sections["payload"]
        for name in ("tool", "retrieval", "memory"):
            if section := self.sections[name]:
                payload[name] = section
        if self.rest:
            payload["attributes"] = self.rest
        return payload

    def move(self, name: str, section: str, to: str) -> None:
        """Give a part of the payload a place of its own, unless that place is taken."""
        payload, target = self.sections["payload"], self.sections[section]
        if name in payload and to not in target:
            target[to] = parsed(payload.pop(name))

    def _place(self, key: str, value: Json, known: Known, attributes: JsonObject) -> None:
        place, rank, accept = known
        accepted = accept(value)
        earlier = self._sources.get(place)
        if accepted is None or (earlier is not None and earlier[0] < rank):
            self.rest[key] = value
            return
        if earlier is not None:
            self.rest[earlier[1]] = attributes[earlier[1]]
        self._sources[place] = (rank, key)
        self.sections[place[0]][place[1]] = accepted

    def _place_spread(self, spread: dict[str, JsonObject]) -> None:
        """Put lists together, in the order of their table, and then what the conventions for memory do not name."""
        for start in [start for start in LISTS if start in spread]:
            section, name, build = LISTS[start]
            target = self.sections[section]
            if name not in target and (items := gather(spread[start], start, build)):
                target[name] = items
        memory = self.sections["memory"]
        for key, value in spread.pop(_MEMORY, {}).items():
            name = key.removeprefix(_MEMORY)
            if name in memory:
                self.rest[key] = value
            else:
                memory[name] = value
        for left in spread.values():
            self.rest.update(left)

    def _read_values(self) -> None:
        """Read the input and output where OpenInference calls them JSON; OpenLLMetry's always are."""
        payload = self.sections["payload"]
        for name in ("input", "output"):
            value = payload.get(name)
            if isinstance(value, str) and self.rest.get(f"{name}.mime_type") == JSON:
                payload[name] = parsed_any(value)
            elif value and self._sources["payload", name][1].startswith("traceloop."):
                payload[name] = parsed(value)


def fitting(identifier: str, source: str) -> str:
    """The identifier, if the envelope can hold it."""
    if len(identifier) > MAX_IDENTIFIER_CHARACTERS:
        raise Refused(f"{source}: longer than {MAX_IDENTIFIER_CHARACTERS} characters")
    if "\0" in identifier:
        raise Refused(f"{source}: contains a NUL character")
    return identifier
