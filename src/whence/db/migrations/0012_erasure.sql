-- Erasure: what is held on a person is removed at once, and an event of Whence's own says that it was.

-- What an erasure may do beyond the workspace, and nothing else may: delete payloads, keys and accounts.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'whence_eraser') THEN
        CREATE ROLE whence_eraser NOLOGIN;
    END IF;
END $$;
GRANT whence_workspace TO whence_eraser WITH INHERIT TRUE, SET FALSE;
GRANT whence_eraser TO whence_app WITH INHERIT FALSE, SET TRUE;
GRANT whence_eraser TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;
GRANT USAGE ON SCHEMA whence TO whence_eraser;
GRANT DELETE ON whence.payloads, whence.subject_keys, whence.users, whence.user_keys TO whence_eraser;

-- Those that name a subject are few; the others are found by their user.
CREATE INDEX events_by_subject ON whence.events (workspace_id, subject_id, global_position) WHERE subject_id IS NOT NULL;

-- The receipts, which replay makes again like the rest of memory.
CREATE TABLE whence.erasures (
    workspace_id text NOT NULL,
    erasure_id uuid NOT NULL,
    position bigint NOT NULL,
    subject_hash text NOT NULL,
    erased_at timestamptz NOT NULL,
    erased_by text NOT NULL,
    document jsonb NOT NULL,
    CONSTRAINT erasures_pkey PRIMARY KEY (workspace_id, erasure_id)
);
CREATE INDEX erasures_of_subject ON whence.erasures (subject_hash, workspace_id, position);
COMMENT ON COLUMN whence.erasures.erasure_id IS 'The id of the event that says so.';
COMMENT ON COLUMN whence.erasures.subject_hash IS 'Keyed by the workspace''s key: the same for the same subject, and not to be guessed without it.';
COMMENT ON COLUMN whence.erasures.document IS 'What the event says was removed.';

-- Erasures after which something is left to do. Not derived: a row is there until that is done.
CREATE TABLE whence.erasures_unsettled (
    workspace_id text NOT NULL,
    erasure_id uuid NOT NULL,
    since timestamptz NOT NULL,
    shredded jsonb NOT NULL,
    CONSTRAINT erasures_unsettled_pkey PRIMARY KEY (workspace_id, erasure_id)
);
COMMENT ON COLUMN whence.erasures_unsettled.shredded IS 'Ids and fingerprints of the keys that the key provider must refuse from now on.';

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['erasures', 'erasures_unsettled'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON whence.%I TO whence_workspace', tenant_table);
        -- There is no policy for users: what is erased is an administrator's to know.
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
    END LOOP;
END $$;
CREATE POLICY erasures_unsettled_of_worker ON whence.erasures_unsettled FOR SELECT TO whence_worker USING (true);
GRANT SELECT (workspace_id, since) ON whence.erasures_unsettled TO whence_worker;

-- The events whose payloads are a subject's, up to a position: those that name it; those of the user that name nobody;
-- runs that an administrator began or ended for the user; and what log records without a user told about any of them.
CREATE FUNCTION whence.subject_events(in_workspace text, in_subject text, upto bigint)
RETURNS TABLE (at_position bigint, event_id uuid)
LANGUAGE sql STABLE AS $$
    WITH own AS MATERIALIZED (
        SELECT e.global_position, e.event_id FROM whence.events e
        WHERE e.workspace_id = in_workspace AND e.subject_id = in_subject AND e.global_position <= upto
        UNION ALL
        SELECT e.global_position, e.event_id FROM whence.events e
        WHERE e.workspace_id = in_workspace AND e.user_id = in_subject AND e.global_position <= upto
          AND e.subject_id IS NULL
        UNION ALL
        SELECT e.global_position, e.event_id FROM whence.runs r
        JOIN whence.events e ON e.workspace_id = r.workspace_id AND e.event_id IN (r.run_id, r.end_event_id)
        WHERE r.workspace_id = in_workspace AND r.user_id = in_subject AND e.global_position <= upto
          AND e.user_id IS NULL AND e.subject_id IS NULL
    )
    SELECT o.global_position, o.event_id FROM own o
    UNION
    SELECT e.global_position, e.event_id FROM whence.events e
    WHERE e.workspace_id = in_workspace AND e.event_type = 'llm.content' AND e.global_position <= upto
      AND e.user_id IS NULL AND e.subject_id IS NULL
      AND e.parent_event_id IN (SELECT o.event_id FROM own o);
$$;

-- Every table that holds what is a person's, in the order in which its rows can be removed: how a row is named in a
-- digest, and which rows are meant. $1 is the workspace, $2 the subject, $3 and $4 the ids and positions of the subject's
-- events, $5 and $6 the position and the time up to which rows count. A table that comes later is named here.
CREATE FUNCTION whence.erasure_tables() RETURNS TABLE (name text, id text, meant text) LANGUAGE sql IMMUTABLE AS $$
    VALUES
    ('payloads',
        '(SELECT e.event_id || '' '' || encode(e.payload_commitment, ''hex'') FROM whence.events e'
        ' WHERE e.workspace_id = t.workspace_id AND e.global_position = t.global_position)',
        't.global_position = ANY ($4)'),
    ('subject_keys', 't.key_id::text', 't.subject_id = $2 AND t.created_at <= $6'),
    ('memory_vectors', 't.memory_id::text', 't.memory_id = ANY ($3)'),
    ('memory_sources', 't.memory_id || '' '' || t.event_id', 't.memory_id = ANY ($3) OR t.event_id = ANY ($3)'),
    ('recall_hits', 't.recall_id || '' '' || t.memory_id', 't.recall_id = ANY ($3)'),
    ('recalls', 't.recall_id::text', 't.recall_id = ANY ($3)'),
    ('memories', 't.memory_id::text', 't.memory_id = ANY ($3) AND t.subject_id <> '''''),
    ('memory_tellings', 't.memory_id || '' '' || t.event_id', 't.memory_id = ANY ($3) OR t.event_id = ANY ($3)'),
    ('action_cites', 't.action_id || '' '' || t.cited', 't.action_id = ANY ($3)'),
    ('actions', 't.action_id::text', 't.action_id = ANY ($3)'),
    ('sessions',
        'encode(sha256(convert_to(concat_ws('' '', t.agent, t.session_id, t.number), ''UTF8'')), ''hex'')',
        't.owner = $2 AND t.opened_at <= $6'),
    ('runs', 't.run_id::text', 't.run_id = ANY ($3)'),
    ('workflow_selections', 't.selection_id::text', 't.selection_id = ANY ($3)'),
    ('workflows', 't.workflow_id::text', 't.workflow_id = ANY ($3)'),
    ('working_memory',
        'encode(sha256(convert_to(concat_ws('' '', t.agent, t.instance, t.key), ''UTF8'')), ''hex'')',
        't.user_id = $2 AND t.updated_at <= $6'),
    ('graph_edges', 't.build || '' '' || t.source || '' '' || t.target || '' '' || t.edge_type',
        -- What the subject's payloads told: that texts are alike, what was summed up or remembered from what, and names.
        -- What others told of the subject's events is theirs, and what envelopes tell stays.
        '(t.edge_type IN (3, 5, 6) AND t.source >> 6 = ANY ($4))'
        ' OR EXISTS (SELECT FROM whence.graph_entities g WHERE g.workspace_id = t.workspace_id AND g.build = t.build'
        ' AND g.node IN (t.source, t.target) AND g.sealed_name IS NOT NULL AND g.node >> 6 <= $5'
        ' AND (g.subject_id = $2 OR g.node >> 6 = ANY ($4)))'),
    ('graph_waiting', 't.build || '' '' || t.source || '' '' || t.event_id',
        't.edge_type IN (5, 6) AND t.source >> 6 = ANY ($4)'),
    ('graph_entities', 't.build || '' '' || t.node',
        't.sealed_name IS NOT NULL AND t.node >> 6 <= $5 AND (t.subject_id = $2 OR t.node >> 6 = ANY ($4))'),
    ('graph_aliases', 't.build || '' '' || t.name_key',
        't.subject_id = $2 AND NOT EXISTS (SELECT FROM whence.subject_keys k'
        ' WHERE k.workspace_id = $1 AND k.subject_id = $2 AND k.created_at > $6)'),
    ('graph_vectors', 't.build || '' '' || t.node', 't.node >> 6 = ANY ($4)'),
    -- The account of an administrator is the workspace's, which would be locked without it.
    ('user_keys', 't.key_id',
        't.user_id = $2 AND t.created_at <= $6 AND EXISTS (SELECT FROM whence.users u'
        ' WHERE u.workspace_id = $1 AND u.user_id = $2 AND u.role <> ''admin'' AND u.created_at <= $6)'),
    ('users', 't.created_at::text', 't.user_id = $2 AND t.role <> ''admin'' AND t.created_at <= $6');
$$;

-- Removes what is held on a subject; says how many rows of which tables those were, with a digest of their names, which
-- keys, and which memories must stay as envelopes. Whoever calls holds the lock of the workspace's head.
CREATE FUNCTION whence.erase_rows(in_workspace text, in_subject text, subject_hash text) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    events uuid[];
    positions bigint[];
    keys jsonb;
    held jsonb;
    part record;
    removed jsonb := '{}';
    gone bigint;
    digest text;
BEGIN
    SELECT coalesce(array_agg(s.event_id), '{}'), coalesce(array_agg(s.at_position), '{}') INTO events, positions
    FROM whence.subject_events(in_workspace, in_subject, 9223372036854775807) s;
    SELECT coalesce(jsonb_agg(jsonb_build_object(
        'key_id', k.key_id, 'fingerprint', encode(sha256(k.wrapped_key), 'hex')) ORDER BY k.key_id), '[]') INTO keys
    FROM whence.subject_keys k WHERE k.workspace_id = in_workspace AND k.subject_id = in_subject;
    -- Under a name that nobody has, so that they become visible to nobody else.
    SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'memory_id', m.memory_id, 'position', m.position,
        'user_id', CASE WHEN m.user_id = in_subject THEN 'erased:' || subject_hash ELSE m.user_id END,
        'agent', m.agent, 'profile', m.profile, 'tier', m.tier, 'kind', m.kind, 'session_id', m.session_id,
        'interaction_id', m.interaction_id, 'importance', m.importance, 'valid_at', m.valid_at,
        'recorded_at', m.recorded_at)) ORDER BY m.position), '[]') INTO held
    FROM whence.memories m
    WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (events) AND m.subject_id <> ''
      AND whence.is_held(in_workspace, m.memory_id);
    FOR part IN SELECT * FROM whence.erasure_tables() LOOP
        EXECUTE format(
            'WITH gone AS (DELETE FROM whence.%I t WHERE t.workspace_id = $1 AND (%s) RETURNING %s AS id)'
            ' SELECT count(*), encode(sha256(convert_to(coalesce('
            ' string_agg(id, chr(10) ORDER BY id COLLATE "C"), ''''), ''UTF8'')), ''hex'') FROM gone',
            part.name, part.meant, part.id)
        INTO gone, digest
        USING in_workspace, in_subject, events, positions, 9223372036854775807, 'infinity'::timestamptz;
        IF gone > 0 THEN
            removed := removed || jsonb_build_object(part.name, jsonb_build_object('count', gone, 'digest', digest));
        END IF;
    END LOOP;
    RETURN jsonb_build_object('removed', removed, 'keys', keys, 'held', held);
END $$;

-- How many rows of which tables are left of what was held on a subject up to then; nothing where none are.
CREATE FUNCTION whence.subject_rows(in_workspace text, in_subject text, upto bigint, until timestamptz)
RETURNS TABLE (name text, rows bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    events uuid[];
    positions bigint[];
    part record;
BEGIN
    SELECT coalesce(array_agg(s.event_id), '{}'), coalesce(array_agg(s.at_position), '{}') INTO events, positions
    FROM whence.subject_events(in_workspace, in_subject, upto) s;
    FOR part IN SELECT * FROM whence.erasure_tables() LOOP
        EXECUTE format('SELECT count(*) FROM whence.%I t WHERE t.workspace_id = $1 AND (%s)', part.name, part.meant)
        INTO rows USING in_workspace, in_subject, events, positions, upto, until;
        IF rows > 0 THEN
            name := part.name;
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

-- What the event of an erasure does, when it is stored and when it is replayed: the rows are gone either way, as their
-- events can be read no more. What is left is the receipt, and the envelopes of what an action holds.
CREATE FUNCTION whence.effect_erase_subject(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.erasures (workspace_id, erasure_id, position, subject_hash, erased_at, erased_by, document)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'subject_hash', at,
        document->>'erased_by', document - ARRAY['place', 'recorded_at']);
    INSERT INTO whence.memories (
        workspace_id, memory_id, position, user_id, subject_id, agent, profile, tier, kind, session_id, interaction_id,
        body, body_hash, importance, valid_at, recorded_at, deleted_at
    )
    SELECT in_workspace, h.memory_id, h.position, h.user_id, '', h.agent, h.profile, h.tier, h.kind, h.session_id,
        h.interaction_id, '', '', h.importance, h.valid_at, h.recorded_at, at
    FROM jsonb_populate_recordset(NULL::whence.memories, document->'held') h
    ON CONFLICT (workspace_id, memory_id) DO NOTHING;
    RETURN '{}';
END $$;

DO $$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $f$ SELECT %L::text[]; $f$',
        whence.memory_tables() || ARRAY['erasures']);
END $$;
