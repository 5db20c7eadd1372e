"""Atlases for tests: a small agent run as the graph would tell it, and any atlas at all."""

from datetime import UTC, datetime, timedelta
from typing import get_args
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from whence.wire import Atlas, AtlasEdge, AtlasMeta, AtlasNode, EdgeType, NodeType, Pagination, Provenance

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long an example takes says more of the machine than of the code."""

START = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)


def provenance(position: int, session: str = "s1", agent: str | None = "planner") -> Provenance:
    moment = START + timedelta(seconds=position)
    return Provenance(UUID(int=position), position, moment, session, "t1", agent)


def node(node_id: str, kind: NodeType, position: int, session: str = "s1", **attributes: str | None) -> AtlasNode:
    return AtlasNode(node_id, kind, attributes, provenance(position, session), {"score": 0.5}, "asked for")


def event(position: int, event_type: str, session: str = "s1", **attributes: str | None) -> AtlasNode:
    return node(str(UUID(int=position)), "event", position, session, event_type=event_type, **attributes)


def edge(source: str | int, target: str | int, kind: EdgeType, **properties: str | int | float) -> AtlasEdge:
    return AtlasEdge(_id(source), _id(target), kind, properties)


def _id(end: str | int) -> str:
    return str(UUID(int=end)) if isinstance(end, int) else end


def atlas(nodes: list[AtlasNode], edges: list[AtlasEdge], truncated: bool = False) -> Atlas:
    meta = AtlasMeta(query_ms=1.5, truncated=truncated, max_depth=3, max_nodes=100, timeout_ms=5_000, position=99)
    return Atlas({item.node_id: item for item in nodes}, edges, Pagination(None, False), meta)


def agent_run() -> Atlas:
    """A question, two searches of which one fails, an answer, a summary and a memory; then a later session."""
    nodes = [
        event(1, "agent.invoke", status="completed", text="Which of our suppliers can deliver by Friday?"),
        event(2, "llm.generate", status="completed", text="I will ask the order book and the web."),
        event(3, "tool.execute", tool_name="order_book", status="completed", ended_at="2026-01-15T09:00:09Z"),
        event(4, "tool.execute", tool_name="web_search", status="failed", text="could not reach the host <timeout>"),
        event(5, "llm.generate", status="completed", text="Two can: Nordholm & Söhne, and 木村商店."),
        event(9, "agent.invoke", session="s2", status="running", text="Order from the first one."),
        node("agent:planner", "agent", 1, name="planner"),
        node("user:ann", "entity", 1, name="ann", entity_type="user"),
        node("tool:web_search", "entity", 4, name="web_search", entity_type="tool"),
        node("company:nordholm", "entity", 5, name="Nordholm & Söhne", entity_type="company"),
        node("summary:1", "summary", 6, text="Suppliers that deliver by Friday were sought; two were found."),
        node("memory:1", "memory", 7, text="Nordholm & Söhne deliver within two days."),
        node("session:s1", "session", 1, name="s1"),
    ]
    edges = [
        edge(2, 1, "CAUSED_BY", cause="direct"),
        edge(3, 2, "CAUSED_BY", cause="direct"),
        edge(4, 2, "CAUSED_BY", cause="direct"),
        edge(5, 2, "CAUSED_BY", cause="inferred"),
        edge(9, 5, "CAUSED_BY", cause="inferred"),
        *(edge(later, later - 1, "FOLLOWS", delta_ms=1_000) for later in (2, 3, 4, 5)),
        edge(1, "agent:planner", "REFERENCES", role="agent"),
        edge(2, "agent:planner", "REFERENCES", role="agent"),
        edge(9, "agent:planner", "REFERENCES", role="agent"),
        edge(1, "user:ann", "REFERENCES", role="participant"),
        edge(4, "tool:web_search", "REFERENCES", role="instrument"),
        edge(5, "company:nordholm", "REFERENCES", role="result"),
        edge(9, "company:nordholm", "REFERENCES", role="object"),
        edge("summary:1", 1, "SUMMARIZES"),
        edge("summary:1", 5, "SUMMARIZES"),
        edge("memory:1", "summary:1", "DERIVED_FROM"),
        edge("memory:1", 5, "DERIVED_FROM"),
        edge(9, 1, "SIMILAR_TO", score=0.91),
    ]
    return atlas(nodes, edges)


KEYS = st.sampled_from(["event_type", "tool_name", "status", "name", "entity_type", "text", "ended_at", "id"])
IDS = st.one_of(st.sampled_from(["", "_", "-", "%5F", "a b", "a/b:c", "a%2Fb", "🙂", "naïve", "a.b."]), st.text())
PROPERTIES = st.dictionaries(
    st.one_of(st.sampled_from(["role", "cause", "score"]), st.text(max_size=5)),
    st.one_of(
        st.sampled_from(["agent", "participant", "instrument", "object", "result", "direct"]),
        st.integers(),
        st.floats(allow_nan=False),
        st.text(max_size=5),
    ),
    max_size=3,
)


@st.composite
def nodes(draw: st.DrawFn, node_id: str) -> AtlasNode:
    values = st.one_of(st.none(), st.text(max_size=10), st.sampled_from(["user", "2026-01-15T10:00:00+01:00"]))
    attributes = draw(st.dictionaries(st.one_of(KEYS, st.text(max_size=5)), values, max_size=4))
    kind = draw(st.sampled_from(get_args(NodeType)))
    origin = provenance(draw(st.integers(0, 20)), draw(st.sampled_from(["s1", "s 2", "", "s/3"])), draw(IDS))
    return AtlasNode(node_id, kind, attributes, origin, {}, draw(st.text(max_size=5)))


@st.composite
def atlases(draw: st.DrawFn) -> Atlas:
    """Any atlas, with ids that are anybody's to choose and edges that lead out of it."""
    ids = draw(st.lists(st.one_of(IDS, st.integers(0, 20).map(_id)), max_size=8, unique=True))
    ends = st.sampled_from([*ids, "outside", "out side/2"])
    edges = st.builds(AtlasEdge, ends, ends, st.sampled_from(get_args(EdgeType)), PROPERTIES)
    return atlas([draw(nodes(node_id)) for node_id in ids], draw(st.lists(edges, max_size=12)), draw(st.booleans()))
