-- Resources: documents that users add, read into memory part by part. What they are and where each part stands follows
-- from the ledger like the rest of memory, by whence.memory_apply; files that are still to be read do not.

CREATE TABLE whence.resources (
    workspace_id text NOT NULL,
    resource_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text NOT NULL,
    agent text NOT NULL,
    app_id text NOT NULL,
    project_id text NOT NULL,
    uri text NOT NULL,
    name text NOT NULL,
    declared_type text,
    content_type text,
    size bigint NOT NULL,
    sha256 text NOT NULL,
    status text NOT NULL DEFAULT 'processing',
    reason text,
    chunks integer NOT NULL DEFAULT 0,
    refused integer NOT NULL DEFAULT 0,
    added_by text NOT NULL,
    added_at timestamptz NOT NULL,
    processed_at timestamptz,
    deleted_at timestamptz,
    CONSTRAINT resources_pkey PRIMARY KEY (workspace_id, resource_id),
    CONSTRAINT resources_status_known CHECK (status IN ('processing', 'ready', 'failed')),
    CONSTRAINT resources_failed_has_reason CHECK ((status = 'failed') = (reason IS NOT NULL))
);
COMMENT ON COLUMN whence.resources.resource_id IS 'The id of the event that added it.';
COMMENT ON COLUMN whence.resources.agent IS 'The partition of app_id and project_id.';
COMMENT ON COLUMN whence.resources.refused IS 'Parts that hold what the profile keeps out of memory.';

-- The same bytes are one resource, until they are deleted; what could not be read may be tried again.
CREATE UNIQUE INDEX resources_once ON whence.resources (workspace_id, user_id, agent, sha256)
    WHERE deleted_at IS NULL AND status <> 'failed';
CREATE INDEX resources_in_order ON whence.resources (workspace_id, agent, position) WHERE deleted_at IS NULL;
CREATE INDEX resources_of_user ON whence.resources (workspace_id, user_id, agent, position) WHERE deleted_at IS NULL;

-- Where in its document a memory stands.
CREATE TABLE whence.resource_chunks (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    resource_id uuid NOT NULL,
    user_id text NOT NULL,
    location jsonb NOT NULL,
    CONSTRAINT resource_chunks_pkey PRIMARY KEY (workspace_id, memory_id)
);
CREATE INDEX resource_chunks_of_resource ON whence.resource_chunks (workspace_id, resource_id);

-- Files until they have been read: sealed under the key of whose they are, and removed then.
CREATE TABLE whence.resource_uploads (
    workspace_id text NOT NULL,
    resource_id uuid NOT NULL,
    part integer NOT NULL,
    user_id text NOT NULL,
    ciphertext bytea NOT NULL,
    taken_until timestamptz,
    kind text,
    attempts integer NOT NULL DEFAULT 1,
    CONSTRAINT resource_uploads_pkey PRIMARY KEY (workspace_id, resource_id, part)
);
ALTER TABLE whence.resource_uploads ALTER COLUMN ciphertext SET STORAGE EXTERNAL;
CREATE INDEX resource_uploads_waiting ON whence.resource_uploads (taken_until, workspace_id) WHERE taken_until IS NOT NULL;
COMMENT ON COLUMN whence.resource_uploads.taken_until IS
    'Of the first part: until then, whoever reads the file has said to be at it.';
COMMENT ON COLUMN whence.resource_uploads.kind IS 'Of the first part: what the file is, as it was seen when it came.';
COMMENT ON COLUMN whence.resource_uploads.attempts IS 'Of the first part: how often somebody began to read it.';

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['resources', 'resource_chunks', 'resource_uploads'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND user_id = current_setting(''app.user_id'', true))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
END $$;
CREATE POLICY resource_uploads_of_worker ON whence.resource_uploads FOR SELECT TO whence_worker USING (true);
GRANT SELECT (workspace_id, taken_until) ON whence.resource_uploads TO whence_worker;

CREATE FUNCTION whence.effect_add_resource(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    -- What could not be read the last time is tried again by this one.
    UPDATE whence.resources r SET deleted_at = at
    WHERE r.workspace_id = in_workspace AND r.user_id = document->>'user_id' AND r.agent = document->>'agent'
      AND r.sha256 = document->>'sha256' AND r.status = 'failed' AND r.deleted_at IS NULL;
    INSERT INTO whence.resources (workspace_id, resource_id, position, user_id, agent, app_id, project_id, uri, name,
        declared_type, size, sha256, added_by, added_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent',
        document->>'app_id', document->>'project_id', document->>'uri', document->>'name', document->>'declared_type',
        (document->>'size')::bigint, document->>'sha256', document->>'added_by', at);
    RETURN '{}';
END $$;

-- Where parts of a document stand that were remembered together with the event that says so.
CREATE FUNCTION whence.effect_locate_chunks(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.resource_chunks (workspace_id, memory_id, resource_id, user_id, location)
    SELECT in_workspace, (c->>'memory_id')::uuid, (document->>'resource_id')::uuid, document->>'user_id', c - 'memory_id'
    FROM jsonb_array_elements(document->'chunks') c;
    RETURN '{}';
END $$;

-- All of its parts, at once; returns how many there were.
CREATE FUNCTION whence.forget_chunks(in_workspace text, in_resource uuid, at timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    gone uuid[];
BEGIN
    WITH removed AS (
        DELETE FROM whence.resource_chunks c
        WHERE c.workspace_id = in_workspace AND c.resource_id = in_resource
        RETURNING c.memory_id
    )
    SELECT array_agg(memory_id) INTO gone FROM removed;
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (gone) AND m.deleted_at IS NULL;
    RETURN coalesce(cardinality(gone), 0);
END $$;

-- Of what failed in the middle, nothing is left to be found.
CREATE FUNCTION whence.effect_end_resource(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE whence.resources r SET status = document->>'status', reason = document->>'reason',
        content_type = document->>'content_type', chunks = coalesce((document->>'chunks')::integer, 0),
        refused = coalesce((document->>'refused')::integer, 0), processed_at = at
    WHERE r.workspace_id = in_workspace AND r.resource_id = (document->>'resource_id')::uuid AND r.status = 'processing';
    IF FOUND AND document->>'status' = 'failed' THEN
        PERFORM whence.forget_chunks(in_workspace, (document->>'resource_id')::uuid, at);
    END IF;
    DELETE FROM whence.resource_uploads u
    WHERE u.workspace_id = in_workspace AND u.resource_id = (document->>'resource_id')::uuid;
    RETURN '{}';
END $$;

-- All of its parts are forgotten at once; nothing is added to a resource that was deleted.
CREATE FUNCTION whence.effect_delete_resource(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    forgotten integer := whence.forget_chunks(in_workspace, (document->>'resource_id')::uuid, at);
BEGIN
    UPDATE whence.resources r SET deleted_at = at
    WHERE r.workspace_id = in_workspace AND r.resource_id = (document->>'resource_id')::uuid AND r.deleted_at IS NULL;
    DELETE FROM whence.resource_uploads u
    WHERE u.workspace_id = in_workspace AND u.resource_id = (document->>'resource_id')::uuid;
    RETURN jsonb_build_object('forgotten', forgotten);
END $$;

-- What is told of a place in a document is content, and goes with the text that stands there.
CREATE FUNCTION whence.drop_location() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM whence.resource_chunks c WHERE c.workspace_id = OLD.workspace_id AND c.memory_id = OLD.memory_id;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_location AFTER UPDATE OF stripped_at ON whence.memories
    FOR EACH ROW WHEN (OLD.role = 'document' AND NEW.stripped_at IS NOT NULL) EXECUTE FUNCTION whence.drop_location();
CREATE TRIGGER memories_location_removed AFTER DELETE ON whence.memories
    FOR EACH ROW WHEN (OLD.role = 'document') EXECUTE FUNCTION whence.drop_location();

-- As before, but that a document is no stretch of work: it does not end by lying idle.
CREATE OR REPLACE FUNCTION whence.session_touch(
    in_workspace text, start bigint, in_recorded_at timestamptz, documents jsonb
) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
    known whence.sessions;
    ended jsonb := '{}';
BEGIN
    FOR seen IN
        SELECT coalesce(d->>'user_id', '') AS owner, d->>'agent' AS agent, d->>'session_id' AS session_id,
            coalesce((d->>'recorded_at')::timestamptz, in_recorded_at) AS at,
            start + min((d->>'place')::bigint) AS first, start + max((d->>'place')::bigint) AS last,
            coalesce(max((d->>'idle_days')::integer), 30) AS idle_days
        FROM jsonb_array_elements(documents) d
        WHERE d->>'effect' IN ('remember', 'start_run') AND d->>'session_id' IS NOT NULL
          AND NOT starts_with(d->>'session_id', 'resource://')
        GROUP BY 1, 2, 3, 4 ORDER BY first
    LOOP
        SELECT * INTO known FROM whence.sessions s
        WHERE s.workspace_id = in_workspace AND s.owner = seen.owner AND s.agent = seen.agent
          AND s.session_id = seen.session_id
        ORDER BY s.number DESC LIMIT 1;
        IF known.ended_at IS NULL AND seen.at - known.last_activity_at >= make_interval(days => seen.idle_days) THEN
            UPDATE whence.sessions s SET ended_at = seen.at, end_position = seen.first
            WHERE s.workspace_id = in_workspace AND s.owner = seen.owner AND s.agent = seen.agent
              AND s.session_id = seen.session_id AND s.number = known.number;
            ended := ended || jsonb_build_object((seen.first - start)::text, jsonb_build_object('owner', seen.owner,
                'agent', seen.agent, 'session_id', seen.session_id, 'number', known.number));
            known.ended_at := seen.at;
        END IF;
        IF known.number IS NULL OR known.ended_at IS NOT NULL THEN
            INSERT INTO whence.sessions (workspace_id, owner, agent, session_id, number, idle_days, opened_at,
                first_position, last_activity_at, last_position)
            VALUES (in_workspace, seen.owner, seen.agent, seen.session_id, coalesce(known.number, 0) + 1, seen.idle_days,
                seen.at, seen.first, seen.at, seen.last);
        ELSE
            UPDATE whence.sessions s SET last_activity_at = greatest(s.last_activity_at, seen.at),
                last_position = greatest(s.last_position, seen.last), idle_days = seen.idle_days
            WHERE s.workspace_id = in_workspace AND s.owner = seen.owner AND s.agent = seen.agent
              AND s.session_id = seen.session_id AND s.number = known.number;
        END IF;
    END LOOP;
    RETURN ended;
END $$;

-- Added to the tables that there are, whichever they are by now.
DO $do$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$ SELECT %L::text[]; $$',
        whence.memory_tables() || ARRAY['resources', 'resource_chunks']);
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.erasure_tables() RETURNS TABLE (name text, id text, meant text)'
        ' LANGUAGE sql IMMUTABLE AS $$ VALUES %s; $$',
        (SELECT string_agg(format(E'\n    (%L, %L, %L)', t.name, t.id, t.meant), ',' ORDER BY t.place) FROM (
            SELECT v.name, v.id, v.meant, v.place - 3 AS place FROM (VALUES
                ('resource_uploads', 't.resource_id || '' '' || t.part', 't.resource_id = ANY ($3)', 1),
                ('resource_chunks', 't.memory_id::text', 't.memory_id = ANY ($3)', 2),
                ('resources', 't.resource_id::text', 't.resource_id = ANY ($3)', 3)
            ) v (name, id, meant, place)
            UNION ALL
            SELECT e.name, e.id, e.meant, e.place FROM whence.erasure_tables() WITH ORDINALITY e (name, id, meant, place)
        ) t));
END $do$;
