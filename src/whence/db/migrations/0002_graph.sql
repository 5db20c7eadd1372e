-- The context graph: what follows from the ledger and can be built again from it.
--
-- A node is a number: the position of the event that first told of it, times 64, plus a place. Place 0 is the event
-- itself, the others are what it tells of. So a node's number needs no allocation, is the same in every build, and
-- edges of events that are close in the ledger are close in the table.
--
-- Every row belongs to a build. Readers use the live one; another can be filled beside it, compared, and made live.
-- Rows carry the user of the event that they came from, and are that user's alone, like the event. An edge is a user's
-- if both its ends are; else it is the workspace's, so that nobody can find out what others have by pointing at it.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'whence_worker') THEN
        CREATE ROLE whence_worker NOLOGIN;
    END IF;
END $$;
GRANT whence_worker TO whence_app WITH INHERIT FALSE, SET TRUE;
GRANT whence_worker TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;
GRANT USAGE ON SCHEMA whence TO whence_worker;

-- What the numbers in graph_edges.edge_type mean. Numbers, because the comparison of enums is not leakproof: under
-- row-level security it cannot use an index.
CREATE TABLE whence.edge_types (
    edge_type smallint CONSTRAINT edge_types_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT edge_types_name UNIQUE
);
INSERT INTO whence.edge_types (edge_type, name) VALUES
    (1, 'FOLLOWS'), (2, 'CAUSED_BY'), (3, 'SIMILAR_TO'), (4, 'REFERENCES'), (5, 'SUMMARIZES'), (6, 'DERIVED_FROM'),
    (7, 'SAME_AS');
GRANT SELECT ON whence.edge_types TO whence_app, whence_workspace;
CREATE TYPE whence.edge_role AS ENUM (
    'direct', 'inferred', 'agent', 'instrument', 'object', 'result', 'participant', 'alike', 'alias'
);

CREATE TABLE whence.graph_builds (
    workspace_id text NOT NULL CONSTRAINT graph_builds_workspace REFERENCES whence.workspaces,
    build integer NOT NULL,
    live boolean NOT NULL,
    position bigint NOT NULL DEFAULT 0,
    last_build integer NOT NULL,
    dropped boolean NOT NULL DEFAULT false,
    updated_at timestamptz NOT NULL,
    CONSTRAINT graph_builds_pkey PRIMARY KEY (workspace_id, build),
    CONSTRAINT graph_builds_position_not_negative CHECK (position >= 0)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX graph_builds_one_live ON whence.graph_builds (workspace_id) WHERE live;
COMMENT ON COLUMN whence.graph_builds.position IS 'Everything up to here is in the build; written with what it counts.';
COMMENT ON COLUMN whence.graph_builds.last_build IS 'Of the live build: the last number given to any, so that none is given twice.';
COMMENT ON COLUMN whence.graph_builds.dropped IS 'Its rows are being removed; nothing may be added to it.';

-- FOLLOWS is the order of this table, not a row a pair: an event that arrives late changes nothing that is stored.
CREATE TABLE whence.graph_timeline (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    session_id text NOT NULL,
    occurred_at timestamptz NOT NULL,
    position bigint NOT NULL,
    user_id text,
    CONSTRAINT graph_timeline_pkey PRIMARY KEY (workspace_id, build, session_id, occurred_at, position)
);

CREATE TABLE whence.graph_edges (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    source bigint NOT NULL,
    target bigint NOT NULL,
    edge_type smallint NOT NULL,
    role whence.edge_role,
    score real,
    user_id text,
    CONSTRAINT graph_edges_pkey PRIMARY KEY (workspace_id, build, source, edge_type, target),
    CONSTRAINT graph_edges_not_to_itself CHECK (source <> target)
);
CREATE INDEX graph_edges_back ON whence.graph_edges (workspace_id, build, target, edge_type, source);

-- What events tell of. Names from envelopes are in clear, as they are there; names from payloads are sealed under the
-- key of the payload's subject, and known again by a keyed hash.
CREATE TABLE whence.graph_entities (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    node bigint NOT NULL,
    entity_type text NOT NULL,
    name_key text NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    subject_id text NOT NULL DEFAULT '',
    name text,
    sealed_name bytea,
    CONSTRAINT graph_entities_pkey PRIMARY KEY (workspace_id, build, node),
    CONSTRAINT graph_entities_once UNIQUE (workspace_id, build, entity_type, name_key, owner, subject_id),
    CONSTRAINT graph_entities_one_name CHECK (num_nonnulls(name, sealed_name) = 1)
);
-- Ordered by an expression, as the statements are that want it: else the planner may take the primary key for the order,
-- and read past the rows of everybody else.
CREATE INDEX graph_entities_by_owner ON whence.graph_entities
    (workspace_id, build, owner, entity_type, subject_id, (node | 0));
COMMENT ON COLUMN whence.graph_entities.owner IS 'The user, or the empty text, which no user is called: for keys.';
COMMENT ON COLUMN whence.graph_entities.subject_id IS 'Whose key seals the name; the empty text is the workspace.';

-- By what names of envelopes are known again: agents and tools whatever their spelling, users and resources exactly.
-- What is too long for an index is known by its hash.
CREATE FUNCTION whence.graph_name_key(entity_type text, name text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN octet_length(k.name_key) <= 1024 THEN k.name_key
        ELSE 'sha256:' || encode(sha256(convert_to(k.name_key, 'UTF8')), 'hex') END
    FROM (
        SELECT CASE WHEN entity_type IN ('agent', 'tool')
            THEN regexp_replace(btrim(lower(normalize(name, NFKC))), '\s+', ' ', 'g') ELSE name END AS name_key
    ) k;
$$;

-- A name that somebody said stands for another. It counts from its event on.
CREATE TABLE whence.graph_aliases (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    entity_type text NOT NULL,
    name_key text NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    subject_id text NOT NULL DEFAULT '',
    target_key text NOT NULL,
    name text,
    sealed_name bytea,
    CONSTRAINT graph_aliases_one_name CHECK (num_nonnulls(name, sealed_name) = 1),
    CONSTRAINT graph_aliases_not_itself CHECK (name_key <> target_key),
    CONSTRAINT graph_aliases_pkey PRIMARY KEY (workspace_id, build, entity_type, name_key, owner, subject_id)
);
CREATE INDEX graph_aliases_by_target ON whence.graph_aliases
    (workspace_id, build, entity_type, target_key, owner, subject_id);
COMMENT ON COLUMN whence.graph_aliases.target_key IS 'By what the entity that is meant is known; its name is beside it.';

-- Edges whose other end is an event that has not arrived.
CREATE TABLE whence.graph_waiting (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    event_id uuid NOT NULL,
    source bigint NOT NULL,
    edge_type smallint NOT NULL,
    role whence.edge_role,
    user_id text,
    CONSTRAINT graph_waiting_pkey PRIMARY KEY (workspace_id, build, event_id, source, edge_type)
);

-- What events are compared by: small whole numbers, so that a comparison is exact on any machine.
CREATE TABLE whence.graph_vectors (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    node bigint NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    subject_id text NOT NULL,
    trace_id text NOT NULL,
    vector bytea NOT NULL,
    CONSTRAINT graph_vectors_pkey PRIMARY KEY (workspace_id, build, node)
);
CREATE INDEX graph_vectors_by_owner ON whence.graph_vectors (workspace_id, build, owner, (node | 0));
CREATE INDEX graph_vectors_by_subject ON whence.graph_vectors (workspace_id, build, owner, subject_id, (node | 0));

-- Events that could not be projected, with the reason; they do not hold up the others.
CREATE TABLE whence.graph_set_aside (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    position bigint NOT NULL,
    reason text NOT NULL,
    CONSTRAINT graph_set_aside_pkey PRIMARY KEY (workspace_id, build, position)
);

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY[
        'graph_builds', 'graph_timeline', 'graph_edges', 'graph_entities', 'graph_aliases', 'graph_waiting',
        'graph_vectors', 'graph_set_aside'
    ] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
    END LOOP;
    FOREACH tenant_table IN ARRAY ARRAY[
        'graph_timeline', 'graph_edges', 'graph_entities', 'graph_aliases', 'graph_waiting', 'graph_vectors'
    ] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND user_id = current_setting(''app.user_id'', true))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
    EXECUTE 'CREATE POLICY graph_builds_of_member ON whence.graph_builds FOR SELECT TO whence_app'
        ' USING (workspace_id = current_setting(''app.workspace_id'', true))';
END $$;

-- A worker must know which workspaces have work. It sees how far each has come, and nothing of what is in it.
CREATE POLICY workspace_heads_of_worker ON whence.workspace_heads FOR SELECT TO whence_worker USING (true);
CREATE POLICY graph_builds_of_worker ON whence.graph_builds FOR SELECT TO whence_worker USING (true);
GRANT SELECT ON whence.workspace_heads, whence.graph_builds TO whence_worker;

-- The events before and after this one in its session: by the time at which they occurred, then by position.
CREATE FUNCTION whence.graph_session_neighbours(
    in_workspace text, in_user text, in_build integer, nodes bigint[], as_of bigint
) RETURNS TABLE (origin bigint, neighbour bigint, earlier boolean)
LANGUAGE sql STABLE AS $$
    SELECT e.global_position << 6, n.position << 6, n.earlier
    -- Shifted before the join: the operator is not leakproof, and under row-level security would keep the index out.
    FROM (SELECT node >> 6 AS position FROM unnest(nodes) node WHERE node & 63 = 0 OFFSET 0) at
    JOIN whence.events e ON e.workspace_id = in_workspace AND e.global_position = at.position, LATERAL (
        (
            SELECT t.position, true AS earlier FROM whence.graph_timeline t
            WHERE t.workspace_id = in_workspace AND t.build = in_build AND t.session_id = e.session_id
              AND (in_user IS NULL OR t.user_id = in_user)
              AND (t.occurred_at, t.position) < (e.occurred_at, e.global_position) AND t.position <= as_of
            ORDER BY t.occurred_at DESC, t.position DESC LIMIT 1
        )
        UNION ALL
        (
            SELECT t.position, false FROM whence.graph_timeline t
            WHERE t.workspace_id = in_workspace AND t.build = in_build AND t.session_id = e.session_id
              AND (in_user IS NULL OR t.user_id = in_user)
              AND (t.occurred_at, t.position) > (e.occurred_at, e.global_position) AND t.position <= as_of
            ORDER BY t.occurred_at, t.position LIMIT 1
        )
    ) n
    WHERE in_user IS NULL OR e.user_id = in_user;
$$;

-- The nodes that can be reached from `starts` along edges of the `kinds`, nearest first, then by number: those that
-- come after `after_depth` and `after_node` in that order, at most `max_nodes` and one more that says that there are
-- more. Nodes of events past `as_of` are left out, so that the pages of one walk fit together while the graph grows.
-- `direction` is up (from source to target), down, or both; both also follows the order of sessions, and goes no
-- further from what is not an event, because a tool or a user leads everywhere.
CREATE FUNCTION whence.graph_reach(
    in_workspace text, in_user text, in_build integer, starts bigint[], direction text, kinds smallint[],
    max_depth integer, after_depth integer, after_node bigint, max_nodes integer, as_of bigint
) RETURNS TABLE (node bigint, depth integer)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    beyond constant bigint := (as_of + 1) << 6;
    with_order constant boolean := direction = 'both' AND 1 = ANY (kinds);
    frontier bigint[] := starts;
    visited bigint[] := starts;
    level bigint[];
    past bigint;
    given integer := 0;
    room integer;
BEGIN
    IF after_depth < 0 THEN
        RETURN QUERY SELECT s, 0 FROM unnest(starts) s ORDER BY s;
        GET DIAGNOSTICS given = ROW_COUNT;
    END IF;
    -- One level more than was asked for, of which one node is enough, tells whether the depth has cut something off.
    FOR d IN 1..max_depth + 1 LOOP
        IF direction = 'both' THEN
            frontier := ARRAY(SELECT f FROM unnest(frontier) f WHERE f & 63 = 0);
        END IF;
        EXIT WHEN cardinality(frontier) = 0;
        past := CASE WHEN d = after_depth THEN after_node ELSE -1 END;
        IF d >= after_depth THEN
            room := CASE WHEN d > max_depth THEN 1 ELSE max_nodes + 1 - given END;
            level := ARRAY(
                SELECT DISTINCT found.n FROM (
                    SELECT hop.n FROM unnest(frontier) f, unnest(kinds) k, LATERAL (
                        SELECT e.target AS n FROM whence.graph_edges e
                        WHERE e.workspace_id = in_workspace AND e.build = in_build AND e.source = f AND e.edge_type = k
                          AND (in_user IS NULL OR e.user_id = in_user) AND e.target > past AND e.target < beyond
                          AND e.target NOT IN (SELECT unnest(visited))
                        ORDER BY e.target LIMIT room
                    ) hop WHERE direction <> 'down'
                    UNION ALL
                    SELECT hop.n FROM unnest(frontier) f, unnest(kinds) k, LATERAL (
                        SELECT e.source AS n FROM whence.graph_edges e
                        WHERE e.workspace_id = in_workspace AND e.build = in_build AND e.target = f AND e.edge_type = k
                          AND (in_user IS NULL OR e.user_id = in_user) AND e.source > past AND e.source < beyond
                          AND e.source NOT IN (SELECT unnest(visited))
                        ORDER BY e.source LIMIT room
                    ) hop WHERE direction <> 'up'
                    UNION ALL
                    SELECT hop.neighbour
                    FROM whence.graph_session_neighbours(in_workspace, in_user, in_build, frontier, as_of) hop
                    WHERE with_order AND hop.neighbour > past AND hop.neighbour NOT IN (SELECT unnest(visited))
                ) found
                ORDER BY found.n LIMIT room
            );
            RETURN QUERY SELECT l, d FROM unnest(level) l;
            given := given + cardinality(level);
            EXIT WHEN given > max_nodes OR d > max_depth;
        END IF;
        IF d <= after_depth THEN
            -- The whole level, of which earlier pages have given a part.
            level := ARRAY(
                SELECT DISTINCT n FROM (
                    SELECT e.target AS n FROM unnest(frontier) f JOIN whence.graph_edges e ON e.source = f
                    WHERE direction <> 'down' AND e.workspace_id = in_workspace AND e.build = in_build
                      AND e.edge_type = ANY (kinds) AND (in_user IS NULL OR e.user_id = in_user) AND e.target < beyond
                    UNION ALL
                    SELECT e.source AS n FROM unnest(frontier) f JOIN whence.graph_edges e ON e.target = f
                    WHERE direction <> 'up' AND e.workspace_id = in_workspace AND e.build = in_build
                      AND e.edge_type = ANY (kinds) AND (in_user IS NULL OR e.user_id = in_user) AND e.source < beyond
                    UNION ALL
                    SELECT hop.neighbour
                    FROM whence.graph_session_neighbours(in_workspace, in_user, in_build, frontier, as_of) hop
                    WHERE with_order
                ) found
                WHERE n NOT IN (SELECT unnest(visited))
            );
        END IF;
        frontier := level;
        visited := visited || level;
    END LOOP;
END $$;
