-- Workflows: variants of how an agent does a kind of task, and how well each has done. Derived from the ledger like the
-- rest of memory, by whence.memory_apply.

-- Names have up to 256 characters each, which together would be too wide for an index; their hash is not.
CREATE FUNCTION whence.workflow_key(agent text, task_type text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(sha256(convert_to(agent, 'UTF8')) || sha256(convert_to(task_type, 'UTF8')));
$$;

CREATE TABLE whence.workflows (
    workspace_id text NOT NULL,
    workflow_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    added_by text,
    agent text NOT NULL,
    task_type text NOT NULL,
    task_key bytea NOT NULL GENERATED ALWAYS AS (whence.workflow_key(agent, task_type)) STORED,
    name text NOT NULL,
    spec text NOT NULL,
    alpha double precision NOT NULL DEFAULT 1,
    beta double precision NOT NULL DEFAULT 1,
    selections bigint NOT NULL DEFAULT 0,
    outcomes bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    retired_at timestamptz,
    CONSTRAINT workflows_pkey PRIMARY KEY (workspace_id, workflow_id),
    CONSTRAINT workflows_alpha_range CHECK (alpha >= 1),
    CONSTRAINT workflows_beta_range CHECK (beta >= 1)
);
-- A variant that is in use is known by its name, so that one that is sent twice is not tried as two. Also finds what a
-- selection chooses from.
CREATE UNIQUE INDEX workflows_one_name ON whence.workflows (workspace_id, owner, task_key, name) WHERE retired_at IS NULL;
CREATE INDEX workflows_in_order ON whence.workflows (workspace_id, position);
COMMENT ON COLUMN whence.workflows.workflow_id IS 'The id of the event that added it.';
COMMENT ON COLUMN whence.workflows.user_id IS 'The user whose it is; NULL where it is for everybody in the workspace.';
COMMENT ON COLUMN whence.workflows.spec IS 'A JSON object as it was sent. Text, so that one parser alone says what JSON is, and numbers keep their digits.';
COMMENT ON COLUMN whence.workflows.alpha IS 'The prior, 1, and the sum of the scores.';
COMMENT ON COLUMN whence.workflows.beta IS 'The prior, 1, and the sum of what the scores lacked of 1.';

CREATE TABLE whence.workflow_selections (
    workspace_id text NOT NULL,
    selection_id uuid NOT NULL,
    position bigint NOT NULL,
    workflow_id uuid NOT NULL,
    user_id text,
    selected_at timestamptz NOT NULL,
    score double precision,
    scored_at timestamptz,
    outcome_event_id uuid,
    CONSTRAINT workflow_selections_pkey PRIMARY KEY (workspace_id, selection_id),
    CONSTRAINT workflow_selections_score_range CHECK (score BETWEEN 0 AND 1),
    CONSTRAINT workflow_selections_scored_whole CHECK (num_nulls(score, scored_at, outcome_event_id) IN (0, 3))
);
COMMENT ON COLUMN whence.workflow_selections.selection_id IS 'The id of the event that says what was selected.';
COMMENT ON COLUMN whence.workflow_selections.user_id IS 'Who asked; NULL for an administrator.';

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['workflows', 'workflow_selections'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
    END LOOP;
END $$;
-- What hangs on the workspace is for everybody in it.
CREATE POLICY workflows_of_user ON whence.workflows FOR SELECT TO whence_app
    USING (workspace_id = current_setting('app.workspace_id', true)
        AND (user_id = current_setting('app.user_id', true)
            OR (user_id IS NULL AND current_setting('app.user_id', true) <> '')));
CREATE POLICY workflow_selections_of_user ON whence.workflow_selections FOR SELECT TO whence_app
    USING (workspace_id = current_setting('app.workspace_id', true) AND user_id = current_setting('app.user_id', true));

-- What one document about workflows does. Which variant is selected was drawn before the event was written, and stands
-- in its document, so that a replay draws nothing. Whoever calls holds the lock of the workspace's head.
CREATE FUNCTION whence.workflow_apply(in_workspace text, at_position bigint, at timestamptz, document jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    changed integer;
    scored uuid;
BEGIN
    CASE document->>'effect'
    WHEN 'add_workflow' THEN
        INSERT INTO whence.workflows (workspace_id, workflow_id, position, user_id, added_by, agent, task_type, name, spec,
            created_at)
        VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'added_by',
            document->>'agent', document->>'task_type', document->>'name', document->>'spec', at);
        SELECT count(*) INTO changed FROM whence.workflows w
        WHERE w.workspace_id = in_workspace AND w.owner = coalesce(document->>'user_id', '')
          AND w.task_key = whence.workflow_key(document->>'agent', document->>'task_type') AND w.retired_at IS NULL;
        IF changed > 100 THEN
            RAISE EXCEPTION 'there are 100 variants for this kind of task' USING
                ERRCODE = '23514', CONSTRAINT = 'workflows_cap', TABLE = 'workflows', SCHEMA = 'whence';
        END IF;
    WHEN 'select_workflow' THEN
        UPDATE whence.workflows w SET selections = w.selections + 1
        WHERE w.workspace_id = in_workspace AND w.workflow_id = (document->>'workflow_id')::uuid AND w.retired_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        -- Retired between the draw and this event; who asked draws again. One that is not there at all is no failure:
        -- the event that added it may have been erased, and a replay goes on.
        IF changed = 0 AND EXISTS (
            SELECT 1 FROM whence.workflows w
            WHERE w.workspace_id = in_workspace AND w.workflow_id = (document->>'workflow_id')::uuid
        ) THEN
            RAISE EXCEPTION 'the workflow is retired' USING
                ERRCODE = '23514', CONSTRAINT = 'workflow_selections_in_use', TABLE = 'workflow_selections', SCHEMA = 'whence';
        END IF;
        INSERT INTO whence.workflow_selections (workspace_id, selection_id, position, workflow_id, user_id, selected_at)
        VALUES (in_workspace, (document->>'event_id')::uuid, at_position, (document->>'workflow_id')::uuid,
            document->>'user_id', at);
    WHEN 'score_workflow' THEN
        -- The first outcome of a selection counts, and no other.
        UPDATE whence.workflow_selections s SET score = (document->>'score')::double precision, scored_at = at,
            outcome_event_id = (document->>'event_id')::uuid
        WHERE s.workspace_id = in_workspace AND s.selection_id = (document->>'selection_id')::uuid AND s.score IS NULL
        RETURNING s.workflow_id INTO scored;
        GET DIAGNOSTICS changed = ROW_COUNT;
        UPDATE whence.workflows w SET
            alpha = w.alpha + (document->>'score')::double precision,
            beta = w.beta + (1 - (document->>'score')::double precision),
            outcomes = w.outcomes + 1
        WHERE w.workspace_id = in_workspace AND w.workflow_id = scored;
    WHEN 'retire_workflow' THEN
        UPDATE whence.workflows w SET retired_at = at
        WHERE w.workspace_id = in_workspace AND w.workflow_id = (document->>'workflow_id')::uuid AND w.retired_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
    END CASE;
    RETURN jsonb_build_object('place', document->'place', 'changed', changed);
END $$;

-- As in migration 0005; what it does not know itself is about workflows.
CREATE OR REPLACE FUNCTION whence.memory_apply(
    in_workspace text, base bigint, events bigint, recorded_at timestamptz, documents jsonb
) RETURNS SETOF jsonb
LANGUAGE plpgsql AS $$
DECLARE
    document jsonb;
    start bigint := base;
    at_position bigint;
    at timestamptz;
    changed integer;
    turns integer;
    plain record;
    done bigint[] := '{}';
BEGIN
    IF start IS NULL THEN
        SELECT h.last_position - events INTO start FROM whence.workspace_heads h WHERE h.workspace_id = in_workspace;
    END IF;
    -- A rule that is set or dropped among them guards what comes after it, so then their order matters.
    IF jsonb_array_length(documents) > 1 AND NOT documents @? '$[*] ? (@.effect like_regex "_rule$")' THEN
        FOR plain IN
            SELECT * FROM whence.memory_remember_plain(in_workspace, start, memory_apply.recorded_at, documents)
        LOOP
            done := done || plain.place;
            RETURN NEXT plain.came_of;
        END LOOP;
    END IF;
    FOR document IN
        SELECT d FROM jsonb_array_elements(documents) d WHERE NOT (d->>'place')::bigint = ANY (done)
    LOOP
        at_position := start + (document->>'place')::bigint;
        at := coalesce((document->>'recorded_at')::timestamptz, memory_apply.recorded_at);
        CASE document->>'effect'
        WHEN 'remember' THEN
            RETURN NEXT whence.memory_remember(
                in_workspace,
                jsonb_populate_record(NULL::whence.remembered, document || jsonb_build_object('recorded_at', at)),
                at_position);
        WHEN 'forget' THEN
            UPDATE whence.memories m SET deleted_at = at
            WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid AND m.deleted_at IS NULL;
            GET DIAGNOSTICS changed = ROW_COUNT;
            RETURN NEXT jsonb_build_object('place', document->'place', 'changed', changed);
        WHEN 'recall' THEN
            INSERT INTO whence.recalls (workspace_id, recall_id, position, user_id, agent, recalled_at)
            VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent', at);
            INSERT INTO whence.recall_hits (workspace_id, memory_id, recall_id, user_id, rank)
            SELECT in_workspace, hit.value::uuid, (document->>'event_id')::uuid, document->>'user_id', hit.ordinality
            FROM jsonb_array_elements_text(document->'hits') WITH ORDINALITY hit;
            UPDATE whence.memories m SET access_count = m.access_count + 1, accessed_at = at
            FROM jsonb_array_elements_text(document->'hits') hit
            WHERE m.workspace_id = in_workspace AND m.memory_id = hit::uuid;
            RETURN NEXT jsonb_build_object('place', document->'place');
        WHEN 'start_run' THEN
            SELECT coalesce(max(r.turn), 0) + 1 INTO turns FROM whence.runs r
            WHERE r.workspace_id = in_workspace AND r.owner = coalesce(document->>'user_id', '')
              AND r.agent = document->>'agent' AND r.instance = document->>'instance';
            INSERT INTO whence.runs (workspace_id, run_id, position, user_id, agent, instance, task_type, session_id,
                status, turn, started_at)
            VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent',
                document->>'instance', document->>'task_type', document->>'session_id', 'running', turns, at);
            RETURN NEXT jsonb_build_object('place', document->'place', 'turn', turns);
        WHEN 'end_run' THEN
            -- The first end counts.
            UPDATE whence.runs r SET status = document->>'status', ended_at = at, end_event_id = (document->>'event_id')::uuid
            WHERE r.workspace_id = in_workspace AND r.run_id = (document->>'run_id')::uuid AND r.status = 'running';
            GET DIAGNOSTICS changed = ROW_COUNT;
            RETURN NEXT jsonb_build_object('place', document->'place', 'changed', changed);
        WHEN 'set_rule' THEN
            INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at)
            VALUES (in_workspace, document->>'world_id', document->>'rule_id', document->>'body', at)
            ON CONFLICT (workspace_id, world_id, rule_id) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at;
            RETURN NEXT jsonb_build_object('place', document->'place');
        WHEN 'drop_rule' THEN
            DELETE FROM whence.canon_rules c
            WHERE c.workspace_id = in_workspace AND c.world_id = document->>'world_id' AND c.rule_id = document->>'rule_id';
            GET DIAGNOSTICS changed = ROW_COUNT;
            RETURN NEXT jsonb_build_object('place', document->'place', 'changed', changed);
        ELSE
            RETURN NEXT whence.workflow_apply(in_workspace, at_position, at, document);
        END CASE;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['memories', 'memory_vectors', 'memory_sources', 'recalls', 'recall_hits', 'runs', 'canon_rules',
        'memory_counts', 'workflows', 'workflow_selections'];
$$;
