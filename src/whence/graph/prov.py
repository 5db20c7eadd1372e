"""A part of the graph as W3C PROV, in PROV-JSON. The mapping and its reasons are in docs/reference/prov.md.

The JSON is written directly: a document is a few dictionaries, and building it with a PROV library takes longer than
the query that found the atlas.
"""

import hashlib
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from whence.wire import Atlas, AtlasEdge, AtlasNode, AwareTime, Provenance

Kind = Literal["activity", "entity", "agent"]


class TypedLiteral(Struct, frozen=True):
    text: str = field(name="$")
    type: str


Value = str | bool | TypedLiteral
Attributes = dict[str, list[Value]]


@dataclass(frozen=True)
class Thing:
    """What a node is in PROV."""

    kind: Kind
    name: str
    session: str | None = None
    """The session whose bundle holds it; none is the top level."""
    maker: "Thing | None" = None
    """Of a summary, the activity that made it."""


class Relation(NamedTuple):
    """A relation of PROV, with the attribute for each end of an edge and the kind that PROV wants there."""

    section: str
    source: tuple[str, Kind | None]
    target: tuple[str, Kind | None]


ASSOCIATED = Relation("wasAssociatedWith", ("prov:activity", "activity"), ("prov:agent", "agent"))
USED = Relation("used", ("prov:activity", "activity"), ("prov:entity", "entity"))
GENERATED = Relation("wasGeneratedBy", ("prov:activity", "activity"), ("prov:entity", "entity"))
INFORMED = Relation("wasInformedBy", ("prov:informed", "activity"), ("prov:informant", "activity"))
DERIVED = Relation("wasDerivedFrom", ("prov:generatedEntity", "entity"), ("prov:usedEntity", "entity"))
ALTERNATE = Relation("alternateOf", ("prov:alternate1", "entity"), ("prov:alternate2", "entity"))
INFLUENCED = Relation("wasInfluencedBy", ("prov:influencee", None), ("prov:influencer", None))

RELATIONS = {"CAUSED_BY": INFORMED, "SUMMARIZES": DERIVED, "DERIVED_FROM": DERIVED, "SAME_AS": ALTERNATE}
ROLES = {"agent": ASSOCIATED, "participant": ASSOCIATED, "instrument": USED, "object": USED, "result": GENERATED}
REMARKS = {"FOLLOWS": "whence:follows", "SIMILAR_TO": "whence:similarTo"}
"""Edges that PROV has no relation for: neither what came before nor what is alike need have had any influence."""

RENAMED = {
    "event_type": "eventType",
    "tool_name": "tool",
    "session_id": "session",
    "trace_id": "trace",
    "agent_id": "agent",
}
"""Attributes of nodes that have a shorter name in the document; all others keep theirs."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]|\A-|\A_\Z")


def document(atlas: Atlas, workspace_id: str) -> bytes:
    """The same bytes for the same nodes and edges, in whatever order they come."""
    writer = _Writer(atlas)
    for node_id in sorted(atlas.nodes):
        writer.describe_node(atlas.nodes[node_id])
    for edge in atlas.edges:
        writer.connect(edge)
    writer.describe_answer(atlas)
    return _encoded({"prefix": _prefixes(workspace_id), **writer.content()})


def escaped(text: str) -> str:
    """Any text as the local part of a qualified name in PROV-N, Turtle and JSON alike; no two texts become the same."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text) or "_"


class _Container:
    """What a bundle or the top level holds."""

    def __init__(self) -> None:
        self._elements: dict[Kind, dict[str, Attributes]] = {}
        self._relations: dict[str, dict[bytes, Attributes]] = {}

    def describe(self, thing: Thing, attributes: Attributes) -> None:
        known = self._elements.setdefault(thing.kind, {}).setdefault(thing.name, {})
        for name, values in attributes.items():
            # An activity has one start and one end, whatever a second description says.
            if not (name in ("prov:startTime", "prov:endTime") and name in known):
                known.setdefault(name, []).extend(values)

    def relate(self, section: str, attributes: Attributes) -> None:
        self._relations.setdefault(section, {})[_encoded(_record(attributes))] = attributes

    def content(self, ids: Iterator[int]) -> dict[str, object]:
        """With blank identifiers for the relations, which are unique in the whole document."""
        elements = {
            kind: {name: _record(attributes) for name, attributes in named.items()}
            for kind, named in self._elements.items()
        }
        relations = {
            section: {f"_:r{next(ids)}": _record(records[key]) for key in sorted(records)}
            for section, records in sorted(self._relations.items())
        }
        return {**elements, **relations}


class _Writer:
    def __init__(self, atlas: Atlas) -> None:
        self._containers: dict[str | None, _Container] = {None: _Container()}
        self._things = {node_id: _thing(node, atlas) for node_id, node in atlas.nodes.items()}
        for node_id, kind in _guesses(atlas).items():
            self._things[node_id] = thing = Thing(kind, _name(kind, node_id))
            self._describe(thing, {"whence:id": [node_id], "whence:missing": [True]})

    def describe_node(self, node: AtlasNode) -> None:
        thing = self._things[node.node_id]
        if node.node_type == "session":
            self._container(node.provenance.session_id)
        self._describe(thing, _attributes(node))
        if thing.maker:
            self._describe(thing.maker, _maker_attributes(node.provenance))
            self._relate(GENERATED, thing.maker, thing, {})

    def connect(self, edge: AtlasEdge) -> None:
        source, target = self._things[edge.source], self._things[edge.target]
        if edge.edge_type == "FOLLOWS":
            source, target = source.maker or source, target.maker or target
        if edge.edge_type in REMARKS:
            self._describe(source, {REMARKS[edge.edge_type]: [_qualified(target.name)], **_remark(edge)})
            return
        relation = _relation(edge)
        if not (_fits(source, relation.source[1]) and _fits(target, relation.target[1])):
            relation = INFLUENCED
        if relation is ALTERNATE:
            # PROV gives this relation no attributes.
            self._describe(source, _remark(edge))
        ends = self._as(source, relation.source[1]), self._as(target, relation.target[1])
        self._relate(relation, *ends, _properties(edge, relation))

    def describe_answer(self, atlas: Atlas) -> None:
        """Whoever reads the file alone must be able to tell that it is not everything."""
        digest = hashlib.sha256(_encoded(self.content())).hexdigest()[:16]
        attributes: Attributes = {
            "prov:type": [_qualified("whence:Atlas")],
            "whence:position": [_number(atlas.meta.position)],
            "whence:truncated": [atlas.meta.truncated or atlas.pagination.has_more],
        }
        self._describe(Thing("entity", f"atlas:{digest}"), attributes)

    def content(self) -> dict[str, object]:
        ids = itertools.count(1)
        top = self._containers[None].content(ids)
        sessions = sorted(session for session in self._containers if session is not None)
        bundles = {_name("session", session): self._containers[session].content(ids) for session in sessions}
        return {**top, **({"bundle": bundles} if bundles else {})}

    def _container(self, session: str | None) -> _Container:
        if session not in self._containers:
            assert session is not None
            self._containers[session] = _Container()
            types: list[Value] = [_qualified("prov:Bundle"), _qualified("whence:Session")]
            bundle: Attributes = {"prov:type": types, "whence:session": [session]}
            self._describe(Thing("entity", _name("session", session)), bundle)
        return self._containers[session]

    def _describe(self, thing: Thing, attributes: Attributes) -> None:
        self._container(thing.session).describe(thing, attributes)

    def _relate(self, relation: Relation, source: Thing, target: Thing, attributes: Attributes) -> None:
        """In the bundle of the one session that the relation touches; at the top if it touches several, or none."""
        sessions = {
            thing.session for thing in (source, target) if thing.session is not None or thing.kind == "activity"
        }
        home = sessions.pop() if len(sessions) == 1 else None
        ends: Attributes = {relation.source[0]: [source.name], relation.target[0]: [target.name]}
        self._container(home).relate(relation.section, ends | attributes)

    def _as(self, thing: Thing, kind: Kind | None) -> Thing:
        """The thing as the kind that a relation wants, which must fit."""
        if kind is None or thing.kind == kind:
            return thing
        if kind == "activity":
            assert thing.maker is not None
            return thing.maker
        if thing.kind == "activity":
            return self._record_of(thing)
        self._describe(replace(thing, kind=kind), {})
        return thing

    def _record_of(self, activity: Thing) -> Thing:
        """PROV derives entities from entities only: what an activity left in the ledger stands in for it."""
        record = Thing("entity", "record:" + activity.name.partition(":")[2], activity.session)
        self._describe(record, {"prov:type": [_qualified("whence:Record")]})
        self._relate(GENERATED, activity, record, {})
        return record


def _thing(node: AtlasNode, atlas: Atlas) -> Thing:
    origin = node.provenance
    if node.node_type == "event":
        return Thing("activity", _name("event", node.node_id), origin.session_id)
    if node.node_type == "session":
        return Thing("entity", _name("session", origin.session_id))
    if node.node_type == "agent" or _is_user(node):
        return Thing("agent", _name("agent", node.node_id))
    maker = _maker(origin, atlas) if node.node_type == "summary" else None
    return Thing("entity", _name("entity", node.node_id), maker=maker)


def _maker(origin: Provenance, atlas: Atlas) -> Thing:
    event = atlas.nodes.get(str(origin.event_id))
    home = event.provenance.session_id if event and event.node_type == "event" else origin.session_id
    return Thing("activity", _name("event", str(origin.event_id)), home)


def _is_user(node: AtlasNode) -> bool:
    return node.node_type == "entity" and node.attributes.get("entity_type") == "user"


def _guesses(atlas: Atlas) -> dict[str, Kind]:
    """What the ends that are not in the atlas must be, by their edges; where these differ, an event comes first."""
    wanted: dict[str, set[Kind]] = {}
    for edge in atlas.edges:
        for end, kind in zip((edge.source, edge.target), _expected(edge), strict=True):
            if end not in atlas.nodes:
                wanted.setdefault(end, set()).add(kind)
    order: tuple[Kind, ...] = ("activity", "agent", "entity")
    return {end: next(kind for kind in order if kind in kinds) for end, kinds in wanted.items()}


def _expected(edge: AtlasEdge) -> tuple[Kind, Kind]:
    if edge.edge_type == "FOLLOWS":
        return "activity", "activity"
    if edge.edge_type == "REFERENCES":
        return "activity", "agent" if _relation(edge) is ASSOCIATED else "entity"
    relation = _relation(edge)
    return relation.source[1] or "entity", relation.target[1] or "entity"


def _relation(edge: AtlasEdge) -> Relation:
    if edge.edge_type == "REFERENCES":
        return ROLES.get(str(edge.properties.get("role")), INFLUENCED)
    return RELATIONS.get(edge.edge_type, INFLUENCED)


def _fits(thing: Thing, kind: Kind | None) -> bool:
    if kind == "activity":
        return thing.kind == "activity" or thing.maker is not None
    return kind != "agent" or thing.kind != "activity"


def _attributes(node: AtlasNode) -> Attributes:
    """Scores and reasons are left out: they tell of the query, not of where something came from."""
    own: Attributes = {"whence:id": [node.node_id], "prov:label": [_label(node)], "prov:type": _types(node)}
    ended = _ended(node)
    for key, value in node.attributes.items():
        if value is not None and not (key == "ended_at" and ended):
            own.setdefault(f"whence:{escaped(RENAMED.get(key, key))}", []).append(value)
    told = _activity(node.provenance) if node.node_type == "event" else _first_told(node.provenance)
    for name, values in told.items():
        own.setdefault(name, []).extend(values)
    if ended:
        own["prov:endTime"] = [_time(ended)]
    return own


def _types(node: AtlasNode) -> list[Value]:
    types: list[Value] = [_qualified(f"whence:{'User' if _is_user(node) else node.node_type.capitalize()}")]
    return [*types, _qualified("prov:SoftwareAgent")] if node.node_type == "agent" else types


def _label(node: AtlasNode) -> str:
    return node.attributes.get("name") or node.attributes.get("event_type") or node.node_id


def _ended(node: AtlasNode) -> datetime | None:
    """Only a time that PROV allows; any other text stays an attribute."""
    try:
        ended = msgspec.convert(node.attributes.get("ended_at"), AwareTime)
    except msgspec.ValidationError:
        return None
    return ended if node.node_type == "event" and ended >= node.provenance.occurred_at else None


def _activity(origin: Provenance) -> Attributes:
    return {"prov:startTime": [_time(origin.occurred_at)], **_origin(origin)}


def _maker_attributes(origin: Provenance) -> Attributes:
    """All that is known of an event that need not be in the atlas itself."""
    own: Attributes = {"whence:id": [str(origin.event_id)], "prov:type": [_qualified("whence:Event")]}
    return {**own, **_activity(origin)}


def _first_told(origin: Provenance) -> Attributes:
    first: Attributes = {
        "whence:firstToldBy": [_qualified(_name("event", str(origin.event_id)))],
        "whence:firstToldAt": [TypedLiteral(_time(origin.occurred_at), "xsd:dateTime")],
    }
    return {**first, **_origin(origin)}


def _origin(origin: Provenance) -> Attributes:
    texts: dict[str, str | None] = {"session": origin.session_id, "trace": origin.trace_id, "agent": origin.agent_id}
    named: Attributes = {f"whence:{name}": [text] for name, text in texts.items() if text is not None}
    return named | {"whence:position": [_number(origin.global_position)]}


def _properties(edge: AtlasEdge, relation: Relation) -> Attributes:
    if relation is ALTERNATE:
        return {}
    attributes: Attributes = {"whence:edge": [edge.edge_type]}
    for key, value in edge.properties.items():
        is_role = key == "role" and relation in (ASSOCIATED, USED, GENERATED)
        name = "prov:role" if is_role else f"whence:{escaped(key)}"
        attributes.setdefault(name, []).append(_literal(value))
    return attributes


def _remark(edge: AtlasEdge) -> Attributes:
    """The properties of an edge that is no relation of its own, or whose relation can hold none."""
    if not edge.properties:
        return {}
    properties = {key: _literal(value) for key, value in edge.properties.items()}
    told = {"edge_type": edge.edge_type, "target": edge.target, "properties": properties}
    return {"whence:edge": [TypedLiteral(_encoded(told).decode(), "whence:JSON")]}


def _name(prefix: str, text: str) -> str:
    return f"{'event' if prefix == 'activity' else prefix}:{escaped(text)}"


def _qualified(name: str) -> Value:
    return TypedLiteral(name, "xsd:QName")


def _literal(value: str | float) -> Value:
    return value if isinstance(value, str) else _number(value)


def _number(value: float) -> Value:
    if isinstance(value, int):
        bits = value.bit_length()
        return TypedLiteral(str(value), "xsd:int" if bits < 32 else "xsd:long" if bits < 64 else "xsd:integer")
    text = repr(value) if math.isfinite(value) else {"nan": "NaN", "inf": "INF", "-inf": "-INF"}[repr(value)]
    return TypedLiteral(text, "xsd:double")


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _prefixes(workspace_id: str) -> dict[str, str]:
    kinds = ("agent", "atlas", "entity", "event", "record", "session")
    return {"whence": "urn:whence:terms:"} | {kind: f"urn:whence:{escaped(workspace_id)}:{kind}:" for kind in kinds}


def _record(attributes: Attributes) -> dict[str, object]:
    """In PROV the values of an attribute are a set."""
    record: dict[str, object] = {}
    for name, values in attributes.items():
        ordered = sorted(set(values), key=_encoded)
        record[name] = ordered[0] if len(ordered) == 1 else ordered
    return record


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
