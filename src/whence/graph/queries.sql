-- The statements of the context graph. A node is a position times 64 plus a place (see migration 0002).

-- fragment: CAUSED_BY
2::smallint
-- fragment: REFERENCES
4::smallint

-- fragment: envelope
-- The fields of wire.StoredEvent, in order, as the ledger has them.
e.event_id, e.global_position, e.event_type, e.occurred_at, e.recorded_at, e.session_id, e.trace_id, e.agent_id,
e.user_id, e.parent_event_id, e.tool_name, e.payload_ref, e.ended_at, e.status, e.schema_version, e.importance_hint,
e.data_classification, e.subject_id, e.measures::text, e.payload_commitment IS NOT NULL

-- name: behind
-- Workspaces whose graph is behind their ledger, the one that waits longest first. Run as whence_worker.
SELECT h.workspace_id, h.last_position, coalesce(b.position, 0)
FROM whence.workspace_heads h LEFT JOIN whence.graph_builds b ON b.workspace_id = h.workspace_id AND b.live
WHERE h.last_position > coalesce(b.position, 0)
ORDER BY b.updated_at NULLS FIRST LIMIT 1000;

-- name: recorded_after
-- When the first event past a position was recorded.
SELECT recorded_at FROM whence.events
WHERE workspace_id = %(workspace_id)s AND global_position = %(position)s::bigint + 1;

-- name: add_first_build
INSERT INTO whence.graph_builds (workspace_id, build, live, last_build, updated_at)
VALUES (%(workspace_id)s, 1, true, 1, %(now)s)
ON CONFLICT DO NOTHING;

-- name: add_build
-- Another build beside the live one, with a number that none has had.
WITH given AS (
    UPDATE whence.graph_builds SET last_build = last_build + 1 WHERE workspace_id = %(workspace_id)s AND live
    RETURNING last_build
)
INSERT INTO whence.graph_builds (workspace_id, build, live, last_build, updated_at)
SELECT %(workspace_id)s, last_build, false, last_build, %(now)s FROM given
RETURNING build;

-- name: live_build
SELECT b.build, b.position FROM whence.graph_builds b WHERE b.workspace_id = %(workspace_id)s AND b.live;

-- name: next_batch
-- What comes next for a build: where it is, where the ledger ends, the next event that says how to read those after
-- it, and the sizes of the payloads among the next events. Asked while the build is held: a statement that locks it by
-- itself may get the new position of whoever held it before, and all else as it was at the old one.
SELECT b.position, h.last_position,
    (SELECT min(e.global_position) FROM whence.events e
     WHERE e.workspace_id = b.workspace_id AND e.event_type = 'entity.alias' AND e.global_position > b.position
       AND e.payload_commitment IS NOT NULL),
    coalesce(p.positions, '{}'), coalesce(p.sizes, '{}')
FROM whence.graph_builds b
JOIN whence.workspace_heads h ON h.workspace_id = b.workspace_id,
LATERAL (
    SELECT array_agg(p.global_position ORDER BY p.global_position) AS positions,
           array_agg(octet_length(p.ciphertext)::bigint ORDER BY p.global_position) AS sizes
    FROM whence.payloads p
    WHERE p.workspace_id = b.workspace_id AND p.global_position > b.position
      AND p.global_position <= b.position + %(limit)s::bigint
) p
WHERE b.workspace_id = %(workspace_id)s AND b.build = %(build)s::integer;

-- name: lock_build
-- No row where another holds it, or it is gone.
SELECT position FROM whence.graph_builds
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND NOT dropped
FOR UPDATE SKIP LOCKED;

-- name: beside_erasures
-- An erasure waits until what is written now is committed, and removes that too; or it is over already. So what is looked
-- for in the next statement, and is there, is there when this transaction ends.
SELECT pg_advisory_xact_lock_shared(hashtextextended('whence erases ' || %(workspace_id)s::text, 0));

-- name: payloads_left
SELECT count(*) FROM whence.payloads
WHERE workspace_id = %(workspace_id)s AND global_position = ANY (%(positions)s::bigint[]);

-- name: hold_live
-- Waits for whoever is writing; from then on nobody else projects.
SELECT build, position FROM whence.graph_builds WHERE workspace_id = %(workspace_id)s AND live FOR UPDATE;

-- name: move_build
UPDATE whence.graph_builds SET position = %(hi)s::bigint, updated_at = %(now)s
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer;

-- name: project_timeline
INSERT INTO whence.graph_timeline (workspace_id, build, session_id, occurred_at, position, user_id)
SELECT workspace_id, %(build)s::integer, session_id, occurred_at, global_position, user_id
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND global_position > %(lo)s::bigint AND global_position <= %(hi)s::bigint;

-- name: project_parents
-- An edge to each parent that is there; the others wait for theirs.
WITH child AS MATERIALIZED (
    SELECT e.global_position << 6 AS node, e.parent_event_id, e.user_id, p.global_position << 6 AS parent,
        CASE WHEN p.user_id = e.user_id THEN e.user_id END AS both_user
    FROM whence.events e
    LEFT JOIN whence.events p ON p.workspace_id = e.workspace_id AND p.event_id = e.parent_event_id
        AND p.global_position <= %(hi)s::bigint
    WHERE e.workspace_id = %(workspace_id)s AND e.global_position > %(lo)s::bigint
      AND e.global_position <= %(hi)s::bigint AND e.parent_event_id IS NOT NULL
), waiting AS (
    INSERT INTO whence.graph_waiting (workspace_id, build, event_id, source, edge_type, role, user_id)
    SELECT %(workspace_id)s, %(build)s::integer, parent_event_id, node, {CAUSED_BY}, 'direct', user_id
    FROM child WHERE parent IS NULL
)
INSERT INTO whence.graph_edges (workspace_id, build, source, target, edge_type, role, user_id)
SELECT %(workspace_id)s, %(build)s::integer, node, parent, {CAUSED_BY}, 'direct', both_user
FROM child WHERE parent IS NOT NULL;

-- name: project_arrivals
-- Edges that waited for an event of this batch. Looked up one by one: many may wait, and few arrive.
WITH came AS MATERIALIZED (
    SELECT event_id, global_position << 6 AS node, user_id FROM whence.events
    WHERE workspace_id = %(workspace_id)s AND global_position > %(lo)s::bigint AND global_position <= %(hi)s::bigint
), arrived AS MATERIALIZED (
    SELECT w.source, w.edge_type, w.role, w.event_id, c.node AS target,
        CASE WHEN w.user_id = c.user_id THEN c.user_id END AS both_user
    FROM came c, LATERAL (
        SELECT * FROM whence.graph_waiting
        WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND event_id = c.event_id OFFSET 0
    ) w
), gone AS (
    DELETE FROM whence.graph_waiting w USING arrived a
    WHERE w.workspace_id = %(workspace_id)s AND w.build = %(build)s::integer AND w.event_id = a.event_id
      AND w.source = a.source AND w.edge_type = a.edge_type
)
INSERT INTO whence.graph_edges (workspace_id, build, source, target, edge_type, role, user_id)
SELECT %(workspace_id)s, %(build)s::integer, source, target, edge_type, role, both_user
FROM arrived WHERE source <> target;

-- name: project_inferred
-- A tool call has a second cause: the model's answer before it in the trace, which asked for it. Traces do not say so,
-- because both are children of the agent. Only a few events back are looked at, so that a long trace costs no more.
INSERT INTO whence.graph_edges (workspace_id, build, source, target, edge_type, role, user_id)
SELECT %(workspace_id)s, %(build)s::integer, e.global_position << 6, l.global_position << 6, {CAUSED_BY}, 'inferred',
    e.user_id
FROM whence.events e, LATERAL (
    SELECT near.global_position, near.event_id FROM (
        SELECT n.global_position, n.event_id, n.event_type, n.occurred_at, n.ended_at, n.user_id
        FROM whence.events n
        WHERE n.workspace_id = %(workspace_id)s AND n.trace_id = e.trace_id
          AND n.global_position < e.global_position
        ORDER BY n.global_position DESC LIMIT %(window)s::bigint
    ) near
    WHERE near.event_type = 'llm.generate' AND coalesce(near.ended_at, near.occurred_at) <= e.occurred_at
      AND near.user_id IS NOT DISTINCT FROM e.user_id
    ORDER BY near.occurred_at DESC, near.global_position DESC LIMIT 1
) l
WHERE e.workspace_id = %(workspace_id)s AND e.global_position > %(lo)s::bigint AND e.global_position <= %(hi)s::bigint
  AND e.event_type = 'tool.execute' AND l.event_id IS DISTINCT FROM e.parent_event_id;

-- name: project_references
-- What envelopes tell of: the agent, the tool, the user and the resource. Each is known by its name and the user whose
-- event it is; the first event that tells of one gives it its number. Returns what is new and may be like another.
-- There is no join between the steps: the planner does not know how many rows a batch has, and would nest loops.
WITH mention AS (
    SELECT m.entity_type, m.name, m.role, e.user_id, array_agg(e.global_position << 6) AS nodes,
        min((e.global_position << 6) + m.place) AS first_node
    FROM whence.events e, LATERAL (VALUES
        ('agent', e.agent_id, 'agent'::whence.edge_role, 1),
        ('tool', e.tool_name, 'instrument', 2),
        ('user', e.user_id, 'participant', 3),
        ('resource', e.payload_ref, 'object', 4)
    ) m (entity_type, name, role, place)
    WHERE e.workspace_id = %(workspace_id)s AND e.global_position > %(lo)s::bigint
      AND e.global_position <= %(hi)s::bigint AND m.name IS NOT NULL
    GROUP BY m.entity_type, m.name, m.role, e.user_id
), keyed AS MATERIALIZED (
    SELECT *, coalesce(user_id, '') AS owner, whence.graph_name_key(entity_type, name) AS name_key FROM mention
), meant AS MATERIALIZED (
    SELECT k.*, coalesce(a.target_key, k.name_key) AS meant_key, coalesce(a.name, k.name) AS meant_name
    FROM keyed k LEFT JOIN LATERAL (
        SELECT target_key, name FROM whence.graph_aliases
        WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND entity_type = k.entity_type
          AND name_key = k.name_key AND owner IN (k.owner, '') AND subject_id = ''
        ORDER BY owner DESC LIMIT 1
    ) a ON true
), known AS MATERIALIZED (
    SELECT m.*, min(m.first_node) OVER (PARTITION BY m.entity_type, m.meant_key, m.owner) AS new_node,
        (SELECT g.node FROM whence.graph_entities g
         WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.entity_type = m.entity_type
           AND g.name_key = m.meant_key AND g.owner = m.owner AND g.subject_id = '') AS known_node
    FROM meant m
), fresh AS (
    INSERT INTO whence.graph_entities (workspace_id, build, node, entity_type, name_key, user_id, name)
    SELECT %(workspace_id)s, %(build)s::integer, new_node, entity_type, meant_key, user_id, meant_name
    FROM known WHERE known_node IS NULL AND first_node = new_node
    RETURNING node, entity_type, name_key, owner
), told AS (
    INSERT INTO whence.graph_edges (workspace_id, build, source, target, edge_type, role, user_id)
    SELECT %(workspace_id)s, %(build)s::integer, unnest(nodes), coalesce(known_node, new_node), {REFERENCES}, role,
        user_id
    FROM known
)
SELECT node, entity_type, name_key, owner FROM fresh
WHERE entity_type IN ('agent', 'tool') ORDER BY node;

-- name: names_before
-- Names of entities that came before a node, of each owner, kind and subject that is asked for, the latest first.
SELECT k.place, g.node, g.name_key, g.sealed_name
FROM unnest(%(owners)s::text[], %(entity_types)s::text[], %(subject_ids)s::text[])
    WITH ORDINALITY AS k (owner, entity_type, subject_id, place), LATERAL (
    SELECT node, name_key, sealed_name FROM whence.graph_entities
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND owner = k.owner
      AND entity_type = k.entity_type AND subject_id = k.subject_id AND node < %(node)s::bigint
    ORDER BY node | 0 DESC LIMIT %(limit)s::bigint
) g
ORDER BY k.place, g.node DESC;

-- name: known_aliases
-- What the names that are asked for stand for, where they are aliases.
SELECT k.place, a.target_key, a.name, a.sealed_name
FROM unnest(%(entity_types)s::text[], %(name_keys)s::text[], %(owners)s::text[], %(subject_ids)s::text[])
    WITH ORDINALITY AS k (entity_type, name_key, owner, subject_id, place)
JOIN whence.graph_aliases a ON a.workspace_id = %(workspace_id)s AND a.build = %(build)s::integer
    AND a.entity_type = k.entity_type AND a.name_key = k.name_key AND a.owner = k.owner
    AND a.subject_id = k.subject_id;

-- name: known_entities
SELECT k.place, (
    SELECT g.node FROM whence.graph_entities g
    WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.entity_type = k.entity_type
      AND g.name_key = k.name_key AND g.owner = k.owner AND g.subject_id = k.subject_id
)
FROM unnest(%(entity_types)s::text[], %(name_keys)s::text[], %(owners)s::text[], %(subject_ids)s::text[])
    WITH ORDINALITY AS k (entity_type, name_key, owner, subject_id, place);

-- name: add_entities
INSERT INTO whence.graph_entities
    (workspace_id, build, node, entity_type, name_key, user_id, subject_id, name, sealed_name)
SELECT %(workspace_id)s, %(build)s::integer, node, entity_type, name_key, nullif(owner, ''), subject_id, name, sealed
FROM unnest(
    %(nodes)s::bigint[], %(entity_types)s::text[], %(name_keys)s::text[], %(owners)s::text[], %(subject_ids)s::text[],
    %(names)s::text[], %(sealed)s::bytea[]
) AS t (node, entity_type, name_key, owner, subject_id, name, sealed);

-- name: clear_names
-- The keys of a name and its alias, and how the name is written, if events have told of both.
SELECT k.target_key, k.name_key, (
    SELECT g.name FROM whence.graph_entities g
    WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.entity_type = k.entity_type
      AND g.name_key = k.target_key AND g.subject_id = '' ORDER BY g.node LIMIT 1
)
FROM (
    SELECT %(entity_type)s::text AS entity_type, whence.graph_name_key(%(entity_type)s, %(name)s) AS target_key,
        whence.graph_name_key(%(entity_type)s, %(alias)s) AS name_key
) k
WHERE 2 = (
    SELECT count(DISTINCT g.name_key) FROM whence.graph_entities g
    WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.entity_type = k.entity_type
      AND g.name_key IN (k.target_key, k.name_key) AND g.subject_id = ''
);

-- name: add_alias
INSERT INTO whence.graph_aliases
    (workspace_id, build, entity_type, name_key, user_id, subject_id, target_key, name, sealed_name)
VALUES (%(workspace_id)s, %(build)s::integer, %(entity_type)s, %(name_key)s, nullif(%(owner)s, ''), %(subject_id)s,
    %(target_key)s, %(name)s::text, %(sealed_name)b::bytea)
ON CONFLICT ON CONSTRAINT graph_aliases_pkey
DO UPDATE SET target_key = excluded.target_key, name = excluded.name, sealed_name = excluded.sealed_name;

-- name: move_aliases
-- Names that stood for what has become an alias itself stand for what that is an alias of.
UPDATE whence.graph_aliases
SET target_key = %(target_key)s, name = %(name)s::text, sealed_name = %(sealed_name)b::bytea
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND entity_type = %(entity_type)s
  AND owner = %(owner)s AND subject_id = %(subject_id)s AND target_key = %(name_key)s;

-- name: add_edges
INSERT INTO whence.graph_edges (workspace_id, build, source, target, edge_type, role, score, user_id)
SELECT %(workspace_id)s, %(build)s::integer, source, target, edge_type, role, score, nullif(owner, '')
FROM unnest(
    %(sources)s::bigint[], %(targets)s::bigint[], %(edge_types)s::smallint[], %(roles)s::whence.edge_role[],
    %(scores)s::real[], %(owners)s::text[]
) AS t (source, target, edge_type, role, score, owner)
ON CONFLICT ON CONSTRAINT graph_edges_pkey DO NOTHING;

-- name: project_pointers
-- Edges to events by their ids: to those that are there, and for the others when they come.
WITH pointer AS MATERIALIZED (
    SELECT t.source, t.event_id, t.edge_type, nullif(t.owner, '') AS user_id, e.global_position << 6 AS target,
        CASE WHEN e.user_id = t.owner THEN e.user_id END AS both_user
    FROM unnest(%(sources)s::bigint[], %(event_ids)s::uuid[], %(edge_types)s::smallint[], %(owners)s::text[])
        AS t (source, event_id, edge_type, owner)
    LEFT JOIN whence.events e ON e.workspace_id = %(workspace_id)s AND e.event_id = t.event_id
        AND e.global_position <= %(hi)s::bigint
), waiting AS (
    INSERT INTO whence.graph_waiting (workspace_id, build, event_id, source, edge_type, user_id)
    SELECT DISTINCT %(workspace_id)s, %(build)s::integer, event_id, source, edge_type, user_id
    FROM pointer WHERE target IS NULL
)
INSERT INTO whence.graph_edges (workspace_id, build, source, target, edge_type, user_id)
SELECT DISTINCT %(workspace_id)s, %(build)s::integer, source, target, edge_type, both_user
FROM pointer WHERE target <> source;

-- name: add_vectors
INSERT INTO whence.graph_vectors (workspace_id, build, node, user_id, subject_id, trace_id, vector)
SELECT %(workspace_id)s, %(build)s::integer, node, nullif(owner, ''), subject_id, trace_id,
    substring(%(vectors)b::bytea FROM (place::integer - 1) * %(size)s::integer + 1 FOR %(size)s::integer)
FROM unnest(%(nodes)s::bigint[], %(owners)s::text[], %(subject_ids)s::text[], %(trace_ids)s::text[])
    WITH ORDINALITY AS t (node, owner, subject_id, trace_id, place);

-- name: texts_before
-- The latest vectors before a node, of each owner and subject that is asked for, with the traces that they are from.
SELECT k.place, v.node, v.trace_id, v.vector
FROM unnest(%(owners)s::text[], %(subject_ids)s::text[]) WITH ORDINALITY AS k (owner, subject_id, place), LATERAL (
    SELECT node, trace_id, vector FROM whence.graph_vectors
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND owner = k.owner
      AND subject_id = k.subject_id AND node < %(node)s::bigint
    ORDER BY node | 0 DESC LIMIT %(limit)s::bigint
) v
ORDER BY k.place, v.node DESC;

-- name: set_aside
INSERT INTO whence.graph_set_aside (workspace_id, build, position, reason)
VALUES (%(workspace_id)s, %(build)s::integer, %(position)s::bigint, %(reason)s)
ON CONFLICT ON CONSTRAINT graph_set_aside_pkey DO UPDATE SET reason = excluded.reason;

-- name: list_set_aside
SELECT position, reason FROM whence.graph_set_aside
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer ORDER BY position LIMIT %(limit)s::bigint;

-- name: reach
-- What can be reached from one event, a page of it, with the envelopes of the events. One statement, because a round trip
-- takes longer than the walk.
WITH start AS MATERIALIZED (
    SELECT e.global_position, coalesce(b.build, 0) AS build, coalesce(b.position, 0) AS reached
    FROM whence.events e
    LEFT JOIN whence.graph_builds b ON b.workspace_id = e.workspace_id AND b.live
    WHERE e.workspace_id = %(workspace_id)s AND e.event_id = %(event_id)s
      AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s)
), page AS MATERIALIZED (
    SELECT r.node, r.depth, CASE WHEN r.node & 63 = 0 THEN r.node >> 6 END AS position,
        s.global_position AS start_position, s.build, s.reached
    FROM start s, LATERAL whence.graph_reach(
        %(workspace_id)s, %(user_id)s, s.build, ARRAY[s.global_position << 6], %(direction)s, %(kinds)s::smallint[],
        %(max_depth)s::integer, %(after_depth)s::integer, %(after_node)s::bigint, %(max_nodes)s::integer,
        coalesce(%(as_of)s::bigint, s.reached)
    ) r
), edges AS MATERIALIZED (
    SELECT array_agg(source) AS sources, array_agg(target) AS targets, array_agg(edge_type) AS edge_types,
        array_agg(role::text) AS roles, array_agg(score) AS scores
    FROM (
        SELECT source, target, edge_type, role, score FROM whence.graph_edges
        WHERE workspace_id = %(workspace_id)s AND build = (SELECT build FROM start)
          AND source = ANY (ARRAY(SELECT node FROM page)) AND edge_type = ANY (%(kinds)s::smallint[])
          AND target < (coalesce(%(as_of)s::bigint, (SELECT reached FROM start)) + 1) << 6
          AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
        ORDER BY source, edge_type, target LIMIT %(max_edges)s::bigint
    ) found
)
SELECT p.node, p.depth, s.global_position, s.build, s.reached, g.sources, g.targets, g.edge_types, g.roles, g.scores,
    {envelope}
FROM start s
LEFT JOIN page p ON true
-- All of them in one row: neighbours in the index, they take one search together.
LEFT JOIN edges g ON p.node = (SELECT node FROM page LIMIT 1)
LEFT JOIN (
    -- By an array, and apart: the planner does not know how few they are, and would read all events.
    SELECT * FROM whence.events
    WHERE workspace_id = %(workspace_id)s AND global_position = ANY (ARRAY(SELECT position FROM page))
      AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s) OFFSET 0
) e ON e.global_position = p.position
ORDER BY p.depth, p.node;

-- name: last_of_session
SELECT global_position FROM whence.events
WHERE workspace_id = %(workspace_id)s AND session_id = %(session_id)s
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position DESC LIMIT 1;

-- name: events_of_session
SELECT global_position << 6 FROM whence.events
WHERE workspace_id = %(workspace_id)s AND session_id = %(session_id)s AND global_position > %(after)s::bigint
  AND global_position <= %(as_of)s::bigint AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position LIMIT %(max_nodes)s::bigint + 1;

-- name: entities_of_session
WITH inside AS MATERIALIZED (
    SELECT global_position << 6 AS node FROM whence.events
    WHERE workspace_id = %(workspace_id)s AND session_id = %(session_id)s AND global_position <= %(as_of)s::bigint
      AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
)
SELECT DISTINCT g.target FROM inside i JOIN whence.graph_edges g ON g.source = i.node
WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.edge_type = {REFERENCES}
  AND g.target > %(after)s::bigint
ORDER BY g.target LIMIT %(max_nodes)s::bigint + 1;

-- name: last_of_trace
SELECT global_position FROM whence.events
WHERE workspace_id = %(workspace_id)s AND trace_id = %(trace_id)s
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position DESC LIMIT 1;

-- name: events_of_trace
SELECT global_position << 6 FROM whence.events
WHERE workspace_id = %(workspace_id)s AND trace_id = %(trace_id)s AND global_position > %(after)s::bigint
  AND global_position <= %(as_of)s::bigint AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position LIMIT %(max_nodes)s::bigint + 1;

-- name: entities_of_trace
WITH inside AS MATERIALIZED (
    SELECT global_position << 6 AS node FROM whence.events
    WHERE workspace_id = %(workspace_id)s AND trace_id = %(trace_id)s AND global_position <= %(as_of)s::bigint
      AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
)
SELECT DISTINCT g.target FROM inside i JOIN whence.graph_edges g ON g.source = i.node
WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.edge_type = {REFERENCES}
  AND g.target > %(after)s::bigint
ORDER BY g.target LIMIT %(max_nodes)s::bigint + 1;

-- name: edges_among
-- Edges between nodes that are known; looked up by their sources, of which each has few.
SELECT source, target, edge_type, role::text, score
FROM whence.graph_edges
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND source = ANY (%(sources)s::bigint[])
  AND edge_type = ANY (%(kinds)s::smallint[]) AND target < (%(as_of)s::bigint + 1) << 6
  AND (%(targets)s::bigint[] IS NULL OR target = ANY (%(targets)s::bigint[]))
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY source, edge_type, target LIMIT %(limit)s::bigint;

-- name: order_among
-- FOLLOWS edges: each event with the one before it in its session.
SELECT e.global_position << 6, before.position << 6,
    round(extract(epoch FROM e.occurred_at - before.occurred_at) * 1000)::bigint
FROM whence.events e, LATERAL (
    SELECT t.position, t.occurred_at FROM whence.graph_timeline t
    WHERE t.workspace_id = e.workspace_id AND t.build = %(build)s::integer AND t.session_id = e.session_id
      AND (t.occurred_at, t.position) < (e.occurred_at, e.global_position) AND t.position <= %(as_of)s::bigint
      AND (%(user_id)s::text IS NULL OR t.user_id = %(user_id)s)
    ORDER BY t.occurred_at DESC, t.position DESC LIMIT 1
) before
WHERE e.workspace_id = %(workspace_id)s AND e.global_position = ANY (%(positions)s::bigint[])
  AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s);

-- name: entities_at
SELECT node, entity_type, name_key, name, sealed_name, subject_id, owner
FROM whence.graph_entities
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND node = ANY (%(nodes)s::bigint[])
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s);

-- name: latest_in_session
SELECT t.position FROM whence.graph_timeline t
WHERE t.workspace_id = %(workspace_id)s AND t.build = %(build)s::integer AND t.session_id = %(session_id)s
  AND t.position <= %(as_of)s::bigint AND (%(user_id)s::text IS NULL OR t.user_id = %(user_id)s)
ORDER BY t.occurred_at DESC, t.position DESC LIMIT %(limit)s::bigint;

-- name: latest_of_all
SELECT e.global_position FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s AND e.global_position <= %(as_of)s::bigint
  AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s)
ORDER BY e.global_position DESC LIMIT %(limit)s::bigint;

-- name: events_by_ids
SELECT e.global_position FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s AND e.event_id = ANY (%(event_ids)s::uuid[])
  AND e.global_position <= %(as_of)s::bigint AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s);

-- name: entities_called
-- Entities of envelopes that have one of these names, whoever's they are among those that may be seen.
SELECT g.node FROM whence.graph_entities g
WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.subject_id = ''
  AND g.entity_type IN ('agent', 'tool', 'user', 'resource')
  AND g.name_key = ANY (ARRAY(
      WITH asked AS MATERIALIZED (
          SELECT whence.graph_name_key(k, n) AS name_key
          FROM unnest(%(names)s::text[]) n, unnest('{tool,user}'::text[]) k
      )
      SELECT name_key FROM asked
      UNION
      SELECT a.target_key FROM asked JOIN whence.graph_aliases a ON a.name_key = asked.name_key
      WHERE a.workspace_id = %(workspace_id)s AND a.build = %(build)s::integer AND a.subject_id = ''
        AND a.entity_type IN ('agent', 'tool', 'resource')
  ))
  AND g.node < (%(as_of)s::bigint + 1) << 6 AND (%(user_id)s::text IS NULL OR g.user_id = %(user_id)s)
ORDER BY g.node DESC LIMIT %(limit)s::bigint;

-- name: entities_marked
-- Entities of payloads by the marks of their names.
SELECT g.node FROM whence.graph_entities g
WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.entity_type IN ('name', 'link')
  AND g.name_key = ANY (ARRAY(
      SELECT unnest(%(marks)s::text[])
      UNION
      SELECT a.target_key FROM whence.graph_aliases a
      WHERE a.workspace_id = %(workspace_id)s AND a.build = %(build)s::integer
        AND a.entity_type IN ('name', 'link') AND a.name_key = ANY (%(marks)s::text[])
  ))
  AND g.node < (%(as_of)s::bigint + 1) << 6 AND (%(user_id)s::text IS NULL OR g.user_id = %(user_id)s)
ORDER BY g.node DESC LIMIT %(limit)s::bigint;

-- name: subjects_of_user
-- Whose keys seal names that a user's payloads tell of.
SELECT DISTINCT subject_id FROM (
    SELECT subject_id FROM whence.graph_entities
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND owner = %(user_id)s
      AND user_id = %(user_id)s AND entity_type IN ('name', 'link')
    ORDER BY node DESC LIMIT %(names)s::bigint
) latest LIMIT %(limit)s::bigint;

-- name: subjects_of_all
SELECT DISTINCT subject_id FROM (
    SELECT subject_id FROM whence.graph_entities
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND entity_type IN ('name', 'link')
    ORDER BY node DESC LIMIT %(names)s::bigint
) latest LIMIT %(limit)s::bigint;

-- name: vectors_of_user
SELECT node, vector FROM whence.graph_vectors
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND owner = %(user_id)s AND user_id = %(user_id)s
  AND node < (%(as_of)s::bigint + 1) << 6
ORDER BY node | 0 DESC LIMIT %(limit)s::bigint;

-- name: vectors_of_all
SELECT node, vector FROM whence.graph_vectors
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND node < (%(as_of)s::bigint + 1) << 6
ORDER BY node DESC LIMIT %(limit)s::bigint;

-- name: neighbours
-- One step from each node along each kind of edge, the latest first, a few of each; FOLLOWS from the sessions' order.
SELECT f.node, hop.node, hop.edge_type, hop.forward, hop.score
FROM unnest(%(nodes)s::bigint[]) f (node), LATERAL (
    SELECT e.node, k AS edge_type, true AS forward, e.score
    FROM unnest(%(kinds)s::smallint[]) k, LATERAL (
        SELECT g.target AS node, g.score FROM whence.graph_edges g
        WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.source = f.node
          AND g.edge_type = k AND g.target < (%(as_of)s::bigint + 1) << 6
          AND (%(user_id)s::text IS NULL OR g.user_id = %(user_id)s)
        ORDER BY g.target DESC LIMIT %(fan_out)s::bigint
    ) e
    UNION ALL
    SELECT e.node, k, false, e.score
    FROM unnest(%(kinds)s::smallint[]) k, LATERAL (
        SELECT g.source AS node, g.score FROM whence.graph_edges g
        WHERE g.workspace_id = %(workspace_id)s AND g.build = %(build)s::integer AND g.target = f.node
          AND g.edge_type = k AND g.source < (%(as_of)s::bigint + 1) << 6
          AND (%(user_id)s::text IS NULL OR g.user_id = %(user_id)s)
        ORDER BY g.source DESC LIMIT %(fan_out)s::bigint
    ) e
) hop
UNION ALL
SELECT origin, neighbour, 1::smallint, earlier, NULL FROM whence.graph_session_neighbours(
    %(workspace_id)s, %(user_id)s, %(build)s::integer, %(nodes)s::bigint[], %(as_of)s::bigint
);

-- name: retire_live
UPDATE whence.graph_builds SET live = false WHERE workspace_id = %(workspace_id)s AND live RETURNING last_build;

-- name: make_live
UPDATE whence.graph_builds SET live = true, last_build = %(last_build)s::integer
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND NOT dropped;

-- name: begin_drop
UPDATE whence.graph_builds SET dropped = true WHERE workspace_id = %(workspace_id)s AND NOT live RETURNING build;

-- name: drop_build
DELETE FROM whence.graph_builds
WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer AND NOT live;

-- Digests: rows are hashed in groups that fit into memory, then the groups. A row's fields are told apart as JSON does.

-- name: digest_timeline
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT position >> 10 AS number, sha256(convert_to(string_agg(
        json_build_array(session_id, occurred_at, position, coalesce(user_id, ''))::text, ',' ORDER BY position
    ), 'UTF8')) AS part
    FROM whence.graph_timeline WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_timeline
DELETE FROM whence.graph_timeline WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_timeline
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));

-- name: digest_edges
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT source >> 16 AS number, sha256(convert_to(string_agg(
        json_build_array(source, target, edge_type, coalesce(role::text, ''), coalesce(score::text, ''), coalesce(user_id, ''))::text, ',' ORDER BY source, edge_type, target
    ), 'UTF8')) AS part
    FROM whence.graph_edges WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_edges
DELETE FROM whence.graph_edges WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_edges
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));

-- name: digest_entities
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT node >> 16 AS number, sha256(convert_to(string_agg(
        json_build_array(node, entity_type, name_key, coalesce(user_id, ''), subject_id, coalesce(name, ''))::text, ',' ORDER BY node
    ), 'UTF8')) AS part
    FROM whence.graph_entities WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_entities
DELETE FROM whence.graph_entities WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_entities
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));

-- name: digest_aliases
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT left(encode(sha256(convert_to(name_key, 'UTF8')), 'hex'), 2) AS number, sha256(convert_to(string_agg(
        json_build_array(entity_type, name_key, owner, subject_id, target_key, coalesce(name, ''))::text, ',' ORDER BY entity_type, name_key, owner, subject_id
    ), 'UTF8')) AS part
    FROM whence.graph_aliases WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_aliases
DELETE FROM whence.graph_aliases WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_aliases
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));

-- name: digest_waiting
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT source >> 16 AS number, sha256(convert_to(string_agg(
        json_build_array(event_id, source, edge_type, coalesce(role::text, ''), coalesce(user_id, ''))::text, ',' ORDER BY source, edge_type, event_id
    ), 'UTF8')) AS part
    FROM whence.graph_waiting WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_waiting
DELETE FROM whence.graph_waiting WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_waiting
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));

-- name: digest_vectors
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT node >> 16 AS number, sha256(convert_to(string_agg(
        json_build_array(node, coalesce(user_id, ''), subject_id, trace_id, encode(vector, 'hex'))::text, ',' ORDER BY node
    ), 'UTF8')) AS part
    FROM whence.graph_vectors WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_vectors
DELETE FROM whence.graph_vectors WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_vectors
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));

-- name: digest_set_aside
SELECT sha256(string_agg(part, ''::bytea ORDER BY number)) FROM (
    SELECT position >> 10 AS number, sha256(convert_to(string_agg(
        json_build_array(position, reason)::text, ',' ORDER BY position
    ), 'UTF8')) AS part
    FROM whence.graph_set_aside WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer GROUP BY 1
) parts;

-- name: drop_set_aside
DELETE FROM whence.graph_set_aside WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM whence.graph_set_aside
    WHERE workspace_id = %(workspace_id)s AND build = %(build)s::integer LIMIT %(limit)s::bigint
));
