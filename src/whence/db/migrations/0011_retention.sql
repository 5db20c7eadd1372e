-- Retention: actions hold what they cite; what refers to what decides how long memory is kept. Derived from the ledger
-- like the rest of memory, by whence.memory_apply.

-- Audited acts.
CREATE TABLE whence.actions (
    workspace_id text NOT NULL,
    action_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    kind text NOT NULL,
    recorded_at timestamptz NOT NULL,
    CONSTRAINT actions_pkey PRIMARY KEY (workspace_id, action_id)
);
CREATE INDEX actions_in_order ON whence.actions (position, workspace_id);
COMMENT ON COLUMN whence.actions.action_id IS 'The id of the event that recorded it.';
COMMENT ON COLUMN whence.actions.user_id IS 'Who recorded it; NULL for an administrator.';

-- What actions hold: memories and events.
CREATE TABLE whence.action_cites (
    workspace_id text NOT NULL,
    action_id uuid NOT NULL,
    cited uuid NOT NULL,
    place integer NOT NULL,
    user_id text,
    CONSTRAINT action_cites_pkey PRIMARY KEY (workspace_id, action_id, cited)
);
CREATE INDEX action_cites_by_cited ON whence.action_cites (cited, workspace_id);
COMMENT ON COLUMN whence.action_cites.user_id IS
    'Whose it is that is cited, so that whoever sees a memory sees that it is held, whoever recorded the action.';

-- Events that told a memory again. Its first teller has the memory's own id.
CREATE TABLE whence.memory_tellings (
    workspace_id text NOT NULL,
    event_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    CONSTRAINT memory_tellings_pkey PRIMARY KEY (workspace_id, event_id)
);
CREATE INDEX memory_tellings_by_memory ON whence.memory_tellings (memory_id, workspace_id);

ALTER TABLE whence.memories ADD COLUMN stripped_at timestamptz;
COMMENT ON COLUMN whence.memories.stripped_at IS 'When its content was disposed of; the row is an envelope since.';

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['actions', 'action_cites', 'memory_tellings'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
    END LOOP;
    -- What hangs on the workspace is for everybody in it.
    FOREACH tenant_table IN ARRAY ARRAY['action_cites', 'memory_tellings'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND (user_id = current_setting(''app.user_id'', true)'
            ' OR (user_id IS NULL AND current_setting(''app.user_id'', true) <> '''')))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
END $$;
CREATE POLICY actions_of_user ON whence.actions FOR SELECT TO whence_app
    USING (workspace_id = current_setting('app.workspace_id', true) AND user_id = current_setting('app.user_id', true));

-- A payload can be forgotten; its envelope cannot.
GRANT DELETE ON whence.payloads TO whence_workspace;

-- Who tells a memory again names its sources again, whether they are new or not; so this sees every telling. The text
-- that is disposed of must go from all of their payloads.
CREATE FUNCTION whence.note_telling() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.memory_tellings (workspace_id, event_id, memory_id, position, user_id)
    SELECT NEW.workspace_id, NEW.event_id, NEW.memory_id, NEW.position, m.user_id FROM whence.memories m
    WHERE m.workspace_id = NEW.workspace_id AND m.memory_id = NEW.memory_id
    ON CONFLICT DO NOTHING;
    RETURN NEW;
END $$;
CREATE TRIGGER memory_sources_telling BEFORE INSERT ON whence.memory_sources
    FOR EACH ROW WHEN (NEW.event_id <> NEW.memory_id) EXECUTE FUNCTION whence.note_telling();

-- Whether an action cites it, or an event that told it again.
CREATE OR REPLACE FUNCTION whence.is_held(in_workspace text, id uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM whence.action_cites c WHERE c.workspace_id = in_workspace AND c.cited = id
    ) OR EXISTS (
        SELECT 1 FROM whence.memory_tellings t
        JOIN whence.action_cites c ON c.workspace_id = t.workspace_id AND c.cited = t.event_id
        WHERE t.workspace_id = in_workspace AND t.memory_id = id
    );
$$;

-- Whether a memory that is not tombstoned was derived from it, by an event before the position `before`. Memories that
-- are told together with an event may be stored before what that event says is done; the position keeps the order.
CREATE FUNCTION whence.is_derived_from(in_workspace text, id uuid, before bigint) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM whence.memory_sources s
        JOIN whence.memories d ON d.workspace_id = s.workspace_id AND d.memory_id = s.memory_id
        WHERE s.workspace_id = in_workspace AND s.source = id::text AND s.role = 'memory' AND s.position < before
          AND d.memory_id <> id AND d.deleted_at IS NULL
    );
$$;

-- The state of everything that a policy can be about, as far as who asks may see what refers to it:
--   TOMBSTONED  deleted_at is set
--   REFERENCED  else, an action cites it, or a memory that is not tombstoned was derived from it
--   ORPHANED    else, it was derived from memories and from nothing else, and all of them are tombstoned or gone
--   ACTIVE      else
-- An entity is one more SELECT here.
CREATE VIEW whence.retention_states WITH (security_invoker = true) AS
SELECT m.workspace_id, CASE m.tier WHEN 'persistent' THEN 'memory' ELSE 'scoped_memory' END AS entity,
    m.memory_id AS id, m.user_id,
    CASE
    WHEN m.deleted_at IS NOT NULL THEN 'TOMBSTONED'
    WHEN whence.is_held(m.workspace_id, m.memory_id)
        OR whence.is_derived_from(m.workspace_id, m.memory_id, 9223372036854775807) THEN 'REFERENCED'
    WHEN EXISTS (
        SELECT 1 FROM whence.memory_sources s WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id
    ) AND NOT EXISTS (
        SELECT 1 FROM whence.memory_sources s
        LEFT JOIN whence.memories o ON o.workspace_id = s.workspace_id AND o.memory_id::text = s.source
        WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id
          AND (s.role <> 'memory' OR (o.memory_id IS NOT NULL AND o.deleted_at IS NULL))
    ) THEN 'ORPHANED'
    ELSE 'ACTIVE'
    END AS state
FROM whence.memories m;
GRANT SELECT ON whence.retention_states TO whence_workspace, whence_app;

CREATE FUNCTION whence.effect_record_action(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.actions (workspace_id, action_id, position, user_id, kind, recorded_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'kind', at);
    INSERT INTO whence.action_cites (workspace_id, action_id, cited, place, user_id)
    SELECT in_workspace, (document->>'event_id')::uuid, (c.value->>'id')::uuid, c.ordinality, c.value->>'user_id'
    FROM jsonb_array_elements(document->'cites') WITH ORDINALITY c;
    RETURN '{}'::jsonb;
END $$;

-- Tombstones what has expired, and disposes of what was tombstoned for long enough. What is referred to by now is left
-- alone, whatever the document says: an action may have been recorded since it was looked for. Each entry of `dispose`
-- names the positions of the events that told the memory; their payloads go with it.
CREATE FUNCTION whence.effect_apply_retention(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    expired integer;
    of_runs integer;
    gone jsonb;
BEGIN
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.deleted_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT jsonb_array_elements_text(document->'expire')::uuid))
      AND NOT whence.is_held(in_workspace, m.memory_id)
      AND NOT whence.is_derived_from(in_workspace, m.memory_id, at_position);
    GET DIAGNOSTICS expired = ROW_COUNT;

    SELECT coalesce(jsonb_object_agg(m.memory_id, d.value), '{}'), count(m.run_id) INTO gone, of_runs
    FROM jsonb_array_elements(document->'dispose') d
    JOIN whence.memories m ON m.workspace_id = in_workspace AND m.memory_id = (d.value->>'memory_id')::uuid
    WHERE m.deleted_at IS NOT NULL AND m.stripped_at IS NULL AND NOT whence.is_held(in_workspace, m.memory_id)
      AND NOT whence.is_derived_from(in_workspace, m.memory_id, at_position);
    IF gone = '{}' THEN
        RETURN jsonb_build_object('expired', expired, 'disposed', 0);
    END IF;
    DELETE FROM whence.payloads p WHERE p.workspace_id = in_workspace AND p.global_position = ANY (ARRAY(
        SELECT (told->>'position')::bigint FROM jsonb_each(gone) g, jsonb_array_elements(g.value->'told') told));
    DELETE FROM whence.memory_vectors v
    WHERE v.workspace_id = in_workspace AND v.memory_id = ANY (ARRAY(SELECT jsonb_object_keys(gone)::uuid));
    -- Those whose text is kept are what the bound of episodes is about.
    UPDATE whence.memory_counts c SET episodes = c.episodes - of_runs
    WHERE c.workspace_id = in_workspace AND of_runs > 0;
    UPDATE whence.memories m SET stripped_at = at, body = '', body_hash = sha256(convert_to(m.memory_id::text, 'UTF8')),
        object_key = CASE WHEN m.object_key IS NOT NULL THEN m.memory_id::text END,
        fact_object = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' AND m.fact_object IS NOT NULL THEN '' END,
        fact_subject = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.fact_subject END,
        fact_predicate = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.fact_predicate END,
        conflict_key = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.conflict_key END
    FROM jsonb_each(gone) g
    WHERE m.workspace_id = in_workspace AND m.memory_id = g.key::uuid AND g.value->>'disposal' <> 'HARD_DELETE';
    PERFORM whence.retention_remove(in_workspace, ARRAY(
        SELECT g.key::uuid FROM jsonb_each(gone) g WHERE g.value->>'disposal' = 'HARD_DELETE'));
    RETURN jsonb_build_object('expired', expired, 'disposed', (SELECT count(*) FROM jsonb_object_keys(gone)));
END $$;

-- Removes memories with all that is a part of them.
CREATE FUNCTION whence.retention_remove(in_workspace text, ids uuid[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM whence.memory_vectors v WHERE v.workspace_id = in_workspace AND v.memory_id = ANY (ids);
    DELETE FROM whence.memory_sources s WHERE s.workspace_id = in_workspace AND s.memory_id = ANY (ids);
    DELETE FROM whence.memory_tellings t WHERE t.workspace_id = in_workspace AND t.memory_id = ANY (ids);
    DELETE FROM whence.recall_hits h WHERE h.workspace_id = in_workspace AND h.memory_id = ANY (ids);
    DELETE FROM whence.memories m WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (ids);
END $$;

-- Added to the tables that there are, whichever they are by now.
DO $do$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$ SELECT %L::text[]; $$',
        whence.memory_tables() || ARRAY['actions', 'action_cites', 'memory_tellings']);
END $do$;
