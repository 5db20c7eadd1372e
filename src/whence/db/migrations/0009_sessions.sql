-- Sessions: stretches of one user's work with one agent. Derived from the ledger like the rest of memory.

CREATE TABLE whence.sessions (
    workspace_id text NOT NULL,
    owner text NOT NULL,
    agent text NOT NULL,
    session_id text NOT NULL,
    number integer NOT NULL,
    user_id text GENERATED ALWAYS AS (nullif(owner, '')) STORED,
    idle_days integer NOT NULL,
    opened_at timestamptz NOT NULL,
    first_position bigint NOT NULL,
    last_activity_at timestamptz NOT NULL,
    last_position bigint NOT NULL,
    ended_at timestamptz,
    end_position bigint,
    closed_at timestamptz,
    close_event_id uuid,
    CONSTRAINT sessions_pkey PRIMARY KEY (workspace_id, owner, agent, session_id, number)
);
CREATE UNIQUE INDEX sessions_one_open ON whence.sessions (session_id, workspace_id, owner, agent) WHERE ended_at IS NULL;
-- What is to be closed: what has ended, and what has been idle.
CREATE INDEX sessions_unclosed ON whence.sessions (last_activity_at, workspace_id) WHERE closed_at IS NULL;
COMMENT ON COLUMN whence.sessions.owner IS 'The user whose it is; the empty text is the workspace.';
COMMENT ON COLUMN whence.sessions.number IS 'Which stretch: a session id can be used again after it was closed.';
COMMENT ON COLUMN whence.sessions.idle_days IS 'After so many without activity it ends: what the profile said last.';
COMMENT ON COLUMN whence.sessions.ended_at IS 'When the next stretch began, or it was closed; from then on it grows no more.';
COMMENT ON COLUMN whence.sessions.end_position IS 'The first position that is not part of it.';

ALTER TABLE whence.sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE whence.sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY sessions_of_workspace ON whence.sessions TO whence_workspace
    USING (workspace_id = current_setting('app.workspace_id', true));
CREATE POLICY sessions_of_user ON whence.sessions FOR SELECT TO whence_app
    USING (workspace_id = current_setting('app.workspace_id', true)
        AND (user_id = current_setting('app.user_id', true)
            OR (user_id IS NULL AND current_setting('app.user_id', true) <> '')));
-- A worker sees which workspaces have something to close, and nothing of what.
CREATE POLICY sessions_of_worker ON whence.sessions FOR SELECT TO whence_worker USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON whence.sessions TO whence_workspace;
GRANT SELECT ON whence.sessions TO whence_app;
GRANT SELECT (workspace_id, last_activity_at, idle_days, ended_at, closed_at) ON whence.sessions TO whence_worker;

-- Whether something keeps a row from being removed.
CREATE FUNCTION whence.is_held(in_workspace text, id uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT false;
$$;

-- Activity of the sessions that documents name, in order. Returns the stretches that it found to have ended, by the place
-- of the document that found it.
CREATE FUNCTION whence.session_touch(
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

-- Closes a stretch: whoever closes has decided, under the lock of the workspace's head, what becomes of its rows. What was
-- told after `until` belongs to the next stretch. It happens once: a second one is refused.
CREATE FUNCTION whence.effect_close_session(
    in_workspace text, at_position bigint, at timestamptz, document jsonb
) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    known whence.sessions;
    until constant bigint := (document->>'until')::bigint;
BEGIN
    SELECT * INTO known FROM whence.sessions s
    WHERE s.workspace_id = in_workspace AND s.owner = document->>'owner' AND s.agent = document->>'agent'
      AND s.session_id = document->>'session_id' AND s.number = (document->>'number')::integer;
    IF known.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'the session is closed' USING
            ERRCODE = '23514', CONSTRAINT = 'sessions_closed_once', TABLE = 'sessions', SCHEMA = 'whence';
    END IF;
    UPDATE whence.sessions s SET closed_at = at, close_event_id = (document->>'event_id')::uuid,
        ended_at = coalesce(s.ended_at, at), end_position = coalesce(s.end_position, until + 1),
        last_position = least(s.last_position, until)
    WHERE s.workspace_id = in_workspace AND s.owner = known.owner AND s.agent = known.agent
      AND s.session_id = known.session_id AND s.number = known.number;
    IF known.ended_at IS NULL AND known.last_position > until THEN
        INSERT INTO whence.sessions (workspace_id, owner, agent, session_id, number, idle_days, opened_at,
            first_position, last_activity_at, last_position)
        VALUES (in_workspace, known.owner, known.agent, known.session_id, known.number + 1, known.idle_days,
            known.last_activity_at, until + 1, known.last_activity_at, known.last_position);
    END IF;
    UPDATE whence.memories m SET archived_at = at
    WHERE m.workspace_id = in_workspace AND m.archived_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT id::uuid FROM jsonb_array_elements_text(document->'archived') id));
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.deleted_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT id::uuid FROM jsonb_array_elements_text(document->'removed') id));
    RETURN jsonb_build_object('closed', known.number);
END $$;

CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['memories', 'memory_vectors', 'memory_sources', 'recalls', 'recall_hits', 'runs', 'canon_rules',
        'memory_counts', 'workflows', 'workflow_selections', 'sessions'];
$$;
