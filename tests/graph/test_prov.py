"""PROV-JSON: the reference library reads it back, and nothing of the atlas is lost on the way."""

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prov.model import ProvBundle, ProvDocument

from atlases import IDS, UNHURRIED, agent_run, atlas, atlases, edge, event, node
from whence.graph.prov import document, escaped
from whence.wire import Atlas

TERMS = "urn:whence:terms:"
OURS = "urn:whence:acme:"


def loaded(subject: Atlas) -> ProvDocument:
    return ProvDocument.deserialize(content=document(subject, "acme"), format="json")


def everywhere(doc: ProvDocument) -> list[ProvBundle]:
    return [doc, *doc.bundles]


def uris(doc: ProvDocument) -> set[str]:
    return {record.identifier.uri for place in everywhere(doc) for record in place.records if record.identifier}


def relations(place: ProvBundle) -> set[tuple[str, ...]]:
    """The name of each relation with the identifiers of its ends, without their namespace."""
    return {
        (record.get_type().localpart, *(str(end) for end in record.args if end is not None))
        for record in place.records
        if record.is_relation()
    }


def described(subject: Atlas, name: str) -> dict[str, set[str]]:
    doc = loaded(subject)
    found: dict[str, set[str]] = {}
    for place in everywhere(doc):
        for record in place.get_record(name):
            for attribute, value in record.attributes:
                found.setdefault(str(attribute), set()).add(str(value))
    return found


@UNHURRIED
@given(atlases())
def test_what_the_library_reads_and_writes_again_is_the_same(subject: Atlas) -> None:
    doc = loaded(subject)
    again = ProvDocument.deserialize(content=doc.serialize(format="json"), format="json")
    assert again == doc
    assert doc == again
    assert doc.unified().flattened().records
    assert ProvDocument.deserialize(content=doc.get_provn(), format="provn") == doc, "names are valid in PROV-N too"


@UNHURRIED
@given(atlases())
def test_every_node_is_in_the_document_under_its_own_name(subject: Atlas) -> None:
    doc = loaded(subject)
    ids = {
        value
        for place in everywhere(doc)
        for record in place.records
        for name, value in record.extra_attributes
        if name.uri == f"{TERMS}id"
    }
    assert set(subject.nodes) <= ids
    names = uris(doc)
    for item in subject.nodes.values():
        local = item.provenance.session_id if item.node_type == "session" else item.node_id
        assert any(f"{OURS}{kind}:{escaped(local)}" in names for kind in ("event", "entity", "agent", "session"))


@UNHURRIED
@given(atlases())
def test_every_edge_is_a_relation_or_a_remark(subject: Atlas) -> None:
    content = json.loads(document(subject, "acme"))
    ends = {
        (record.get("whence:edge"), frozenset(local(name) for key, name in record.items() if key in ENDS))
        for place in places(content)
        for record in related(place)
    }
    remarks = {
        (attribute, local(name), local(value["$"]))
        for place in places(content)
        for kind in ("activity", "entity", "agent")
        for name, record in place.get(kind, {}).items()
        for attribute in ("whence:follows", "whence:similarTo")
        for value in listed(record.get(attribute, []))
    }
    for link in subject.edges:
        names = [alias(subject, end) for end in (link.source, link.target)]
        if link.edge_type in ("FOLLOWS", "SIMILAR_TO"):
            attribute = "whence:follows" if link.edge_type == "FOLLOWS" else "whence:similarTo"
            assert any((attribute, one, other) in remarks for one in names[0] for other in names[1])
        else:
            kind = None if link.edge_type == "SAME_AS" else link.edge_type
            assert any((kind, frozenset({one, other})) in ends for one in names[0] for other in names[1])


ENDS = {
    "prov:activity": "activity",
    "prov:informed": "activity",
    "prov:informant": "activity",
    "prov:agent": "agent",
    "prov:entity": "entity",
    "prov:generatedEntity": "entity",
    "prov:usedEntity": "entity",
    "prov:alternate1": "entity",
    "prov:alternate2": "entity",
    "prov:influencee": None,
    "prov:influencer": None,
}
"""The attributes of relations that name an end, and what PROV wants there."""


def local(name: str) -> str:
    return name.partition(":")[2]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def alias(subject: Atlas, node_id: str) -> list[str]:
    """A session is named by its own id, and an event made each summary."""
    item = subject.nodes.get(node_id)
    if item is None:
        return [escaped(node_id)]
    names = {"session": [item.provenance.session_id], "summary": [node_id, str(item.provenance.event_id)]}
    return [escaped(name) for name in names.get(item.node_type, [node_id])]


@UNHURRIED
@given(atlases())
def test_the_document_keeps_to_the_types_of_prov(subject: Atlas) -> None:
    """No identifier is both an activity and an entity or agent, and each end of a relation is what PROV wants there."""
    content = json.loads(document(subject, "acme"))
    kinds: dict[str, set[str]] = {}
    for place in places(content):
        for kind in ("activity", "entity", "agent"):
            for name in place.get(kind, {}):
                kinds.setdefault(name, set()).add(kind)
    assert all("activity" not in found or len(found) == 1 for found in kinds.values())
    for place in places(content):
        for record in related(place):
            for attribute, name in record.items():
                if ENDS.get(attribute):
                    assert ENDS[attribute] in kinds[name]


@UNHURRIED
@given(atlases())
def test_blank_identifiers_are_used_once(subject: Atlas) -> None:
    content = json.loads(document(subject, "acme"))
    blanks = [
        name for place in places(content) for section in place.values() for name in section if name.startswith("_:")
    ]
    assert len(blanks) == len(set(blanks))


def places(content: dict[str, Any]) -> list[dict[str, Any]]:
    top = {section: records for section, records in content.items() if section not in ("bundle", "prefix")}
    return [top, *content.get("bundle", {}).values()]


def related(place: dict[str, Any]) -> list[dict[str, Any]]:
    elements = ("activity", "entity", "agent")
    return [record for section, records in place.items() if section not in elements for record in records.values()]


@UNHURRIED
@given(atlases(), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_edges_makes_no_difference(subject: Atlas, chance: random.Random) -> None:
    items, edges = list(subject.nodes.values()), list(subject.edges)
    chance.shuffle(items)
    chance.shuffle(edges)
    assert document(atlas(items, edges, subject.meta.truncated), "acme") == document(subject, "acme")


@UNHURRIED
@given(st.lists(st.one_of(IDS, st.text("-_%25F", max_size=4)), unique=True))
def test_no_two_ids_become_the_same_name(ids: list[str]) -> None:
    names = {escaped(item) for item in ids}
    assert len(names) == len(ids)
    assert all(name.isascii() and name and not name.startswith("-") for name in names)


def test_sessions_are_bundles_and_what_crosses_them_is_at_the_top() -> None:
    doc = loaded(agent_run())
    first, second, fifth, ninth = (f"event:00000000-0000-0000-0000-{number:012}" for number in (1, 2, 5, 9))
    bundles = {bundle.identifier.localpart: relations(bundle) for bundle in doc.bundles}
    assert set(bundles) == {"s1", "s2"}
    assert ("Communication", second, first) in bundles["s1"]
    assert ("Communication", ninth, fifth) in relations(doc)
    assert {"prov:Bundle", "whence:Session"} <= described(agent_run(), "session:s1")["prov:type"]
    assert described(agent_run(), "session:s2")["prov:type"] == {"prov:Bundle", "whence:Session"}


def test_roles_choose_the_relation() -> None:
    doc = loaded(agent_run())
    said = set().union(*(relations(place) for place in everywhere(doc)))
    first, fourth, fifth, ninth = (f"event:00000000-0000-0000-0000-{number:012}" for number in (1, 4, 5, 9))
    assert ("Association", first, "agent:agent%3Aplanner") in said
    assert ("Association", first, "agent:user%3Aann") in said
    assert ("Usage", fourth, "entity:tool%3Aweb_search") in said
    assert ("Usage", ninth, "entity:company%3Anordholm") in said
    assert ("Generation", "entity:company%3Anordholm", fifth) in said


def test_what_is_derived_from_an_event_is_derived_from_its_record() -> None:
    doc = loaded(agent_run())
    said = set().union(*(relations(place) for place in everywhere(doc)))
    fifth, sixth = (f"00000000-0000-0000-0000-{number:012}" for number in (5, 6))
    assert ("Derivation", "entity:memory%3A1", f"record:{fifth}") in said
    assert ("Derivation", "entity:summary%3A1", f"record:{fifth}") in said
    assert ("Derivation", "entity:memory%3A1", "entity:summary%3A1") in said
    assert ("Generation", f"record:{fifth}", f"event:{fifth}") in said
    assert ("Generation", "entity:summary%3A1", f"event:{sixth}") in said


def test_an_activity_says_when_what_and_where() -> None:
    said = described(agent_run(), "event:00000000-0000-0000-0000-000000000003")
    assert said["prov:startTime"] == {"2026-01-15 09:00:03+00:00"}
    assert said["prov:endTime"] == {"2026-01-15 09:00:09+00:00"}
    assert said["whence:eventType"] == {"tool.execute"}
    assert said["whence:tool"] == {"order_book"}
    assert said["whence:status"] == {"completed"}
    assert said["whence:position"] == {"3"}
    assert said["whence:trace"] == {"t1"}
    assert said["whence:follows"] == {"event:00000000-0000-0000-0000-000000000002"}
    assert "whence:ended_at" not in said


def test_an_end_that_prov_does_not_allow_stays_an_attribute() -> None:
    for ended in ("yesterday", "2026-01-15T09:00:09", "2020-01-01T00:00:00Z"):
        said = described(atlas([event(1, "tool.execute", ended_at=ended)], []), "event:" + str(event(1, "a.b").node_id))
        assert said["whence:ended_at"] == {ended}
        assert "prov:endTime" not in said


def test_agents_are_software_agents_and_users_are_agents() -> None:
    assert described(agent_run(), "agent:agent%3Aplanner")["prov:type"] == {"prov:SoftwareAgent", "whence:Agent"}
    assert described(agent_run(), "agent:user%3Aann")["prov:type"] == {"whence:User"}


def test_a_participant_that_is_no_user_is_an_agent_too() -> None:
    subject = atlas(
        [event(1, "agent.invoke"), node("acme", "entity", 1)], [edge(1, "acme", "REFERENCES", role="participant")]
    )
    content = json.loads(document(subject, "acme"))
    assert "entity:acme" in content["agent"]
    assert "entity:acme" in content["entity"]


def test_the_cause_and_the_score_are_kept() -> None:
    content = json.loads(document(agent_run(), "acme"))
    (crossing,) = content["wasInformedBy"].values()
    assert crossing["whence:cause"] == "inferred"
    ninth = content["bundle"]["session:s2"]["activity"]["event:00000000-0000-0000-0000-000000000009"]
    assert ninth["whence:similarTo"] == {"$": "event:00000000-0000-0000-0000-000000000001", "type": "xsd:QName"}
    assert json.loads(ninth["whence:edge"]["$"])["properties"] == {"score": {"$": "0.91", "type": "xsd:double"}}


def test_an_edge_out_of_the_atlas_names_what_is_missing() -> None:
    subject = atlas([event(2, "llm.generate")], [edge(2, 1, "CAUSED_BY", cause="direct")])
    content = json.loads(document(subject, "acme"))
    first = "event:00000000-0000-0000-0000-000000000001"
    assert content["activity"][first]["whence:missing"] is True
    (relation,) = content["wasInformedBy"].values()
    assert relation["prov:informant"] == first


def test_the_document_says_whether_it_is_everything() -> None:
    for truncated in (False, True):
        content = json.loads(document(atlas([], [], truncated), "acme"))
        ((name, answer),) = content["entity"].items()
        assert name.startswith("atlas:")
        assert answer["whence:truncated"] is truncated
        assert answer["whence:position"] == {"$": "99", "type": "xsd:int"}
