-- Workspaces, users, keys and the event ledger.
--
-- Every tenant table starts its keys with workspace_id, so that the schema can be distributed by workspace, and
-- every one has forced row-level security. What a transaction may see follows from who it says it is
-- (app.workspace_id, app.user_id) and from the role it runs as:
--   whence_app        a user: that user's rows in that workspace
--   whence_workspace  the workspace itself (administration, followers): all of its rows
-- An unset variable is NULL or '', which equals no id, so it sees nothing and writes nothing.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'whence_app') THEN
        CREATE ROLE whence_app NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'whence_workspace') THEN
        CREATE ROLE whence_workspace NOLOGIN;
    END IF;
END $$;

-- Without INHERIT, whence_app has the wider view only where a transaction asks for it with SET LOCAL ROLE.
GRANT whence_workspace TO whence_app WITH INHERIT FALSE, SET TRUE;
GRANT whence_app, whence_workspace TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;

GRANT USAGE ON SCHEMA whence TO whence_app, whence_workspace;
GRANT SELECT ON whence.schema_migrations TO whence_app, whence_workspace;

-- One row: facts about this database that are not any tenant's.
CREATE TABLE whence.installation (
    only_row boolean CONSTRAINT installation_pkey PRIMARY KEY DEFAULT true CONSTRAINT installation_only_row CHECK (only_row),
    kek_id text NOT NULL,
    created_at timestamptz NOT NULL
);
COMMENT ON COLUMN whence.installation.kek_id IS 'Names the key-encryption key that wraps the subject keys; never the key.';
GRANT SELECT, INSERT ON whence.installation TO whence_app;

CREATE TABLE whence.workspaces (
    workspace_id text CONSTRAINT workspaces_pkey PRIMARY KEY,
    created_at timestamptz NOT NULL,
    CONSTRAINT workspaces_id_form CHECK (workspace_id ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$')
);

-- The last position given out. Appends of a workspace take this row's lock, which is what makes positions gapless.
CREATE TABLE whence.workspace_heads (
    workspace_id text CONSTRAINT workspace_heads_pkey PRIMARY KEY
        CONSTRAINT workspace_heads_workspace REFERENCES whence.workspaces,
    last_position bigint NOT NULL DEFAULT 0,
    CONSTRAINT workspace_heads_not_negative CHECK (last_position >= 0)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE whence.users (
    workspace_id text NOT NULL CONSTRAINT users_workspace REFERENCES whence.workspaces,
    user_id text NOT NULL,
    role text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT users_pkey PRIMARY KEY (workspace_id, user_id),
    CONSTRAINT users_id_form CHECK (user_id <> '' AND length(user_id) <= 256),
    CONSTRAINT users_role_known CHECK (role IN ('admin', 'member'))
);

CREATE TABLE whence.user_keys (
    workspace_id text NOT NULL,
    key_id text NOT NULL,
    user_id text NOT NULL,
    key_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    CONSTRAINT user_keys_pkey PRIMARY KEY (workspace_id, key_id),
    CONSTRAINT user_keys_user FOREIGN KEY (workspace_id, user_id) REFERENCES whence.users,
    CONSTRAINT user_keys_hash_length CHECK (octet_length(key_hash) = 32)
);
CREATE INDEX user_keys_by_user ON whence.user_keys (workspace_id, user_id);
COMMENT ON COLUMN whence.user_keys.expires_at IS 'The key is valid before this time; revoking sets it to now.';

-- The key that encrypts one subject's payloads, wrapped by the key-encryption key. Payloads name the key by its id as
-- well, so that one that is gone, and perhaps made anew, cannot be written under by who still has it in memory.
CREATE TABLE whence.subject_keys (
    workspace_id text NOT NULL CONSTRAINT subject_keys_workspace REFERENCES whence.workspaces,
    subject_id text NOT NULL,
    key_id uuid NOT NULL,
    wrapped_key bytea NOT NULL,
    kek_id text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT subject_keys_pkey PRIMARY KEY (workspace_id, subject_id),
    CONSTRAINT subject_keys_id UNIQUE (workspace_id, subject_id, key_id)
);
COMMENT ON COLUMN whence.subject_keys.subject_id IS 'The named subject, else the user, else the empty text for the workspace.';

-- No foreign key to workspaces: an append must lock the workspace's head row, which has one, and a check a row
-- would be paid on every event.
CREATE TABLE whence.events (
    workspace_id text NOT NULL,
    global_position bigint NOT NULL,
    event_id uuid NOT NULL,
    parent_event_id uuid,
    occurred_at timestamptz NOT NULL,
    ended_at timestamptz,
    recorded_at timestamptz NOT NULL,
    schema_version smallint NOT NULL,
    importance_hint smallint,
    event_type text NOT NULL,
    session_id text NOT NULL,
    trace_id text NOT NULL,
    agent_id text,
    user_id text,
    subject_id text,
    tool_name text,
    status text,
    data_classification text,
    payload_ref text,
    payload_commitment bytea,
    measures jsonb,
    CONSTRAINT events_pkey PRIMARY KEY (workspace_id, global_position),
    CONSTRAINT events_event_id_once UNIQUE (workspace_id, event_id),
    CONSTRAINT events_position_from_one CHECK (global_position >= 1),
    CONSTRAINT events_not_own_parent CHECK (parent_event_id <> event_id),
    CONSTRAINT events_ended_after_start CHECK (ended_at >= occurred_at),
    CONSTRAINT events_time_range CHECK (occurred_at >= '1970-01-01Z' AND greatest(occurred_at, ended_at) < '2262-01-01Z'),
    CONSTRAINT events_schema_version_from_one CHECK (schema_version >= 1),
    CONSTRAINT events_importance_range CHECK (importance_hint BETWEEN 1 AND 10),
    CONSTRAINT events_status_known CHECK (status IN ('pending', 'running', 'completed', 'failed', 'timeout')),
    CONSTRAINT events_payload_ref_length CHECK (length(payload_ref) <= 2048),
    CONSTRAINT events_commitment_length CHECK (octet_length(payload_commitment) = 32)
);
-- Each serves one filter of GET /v1/events in order of position.
CREATE INDEX events_by_session ON whence.events (workspace_id, session_id, global_position);
CREATE INDEX events_by_trace ON whence.events (workspace_id, trace_id, global_position);
CREATE INDEX events_by_type ON whence.events (workspace_id, event_type, global_position);
CREATE INDEX events_by_user ON whence.events (workspace_id, user_id, global_position);

CREATE TABLE whence.payloads (
    workspace_id text NOT NULL,
    global_position bigint NOT NULL,
    user_id text,
    subject_id text NOT NULL,
    key_id uuid NOT NULL,
    ciphertext bytea NOT NULL,
    CONSTRAINT payloads_pkey PRIMARY KEY (workspace_id, global_position),
    CONSTRAINT payloads_subject_key FOREIGN KEY (workspace_id, subject_id, key_id)
        REFERENCES whence.subject_keys (workspace_id, subject_id, key_id)
);
-- Ciphertext does not compress, so Postgres need not try.
ALTER TABLE whence.payloads ALTER COLUMN ciphertext SET STORAGE EXTERNAL;

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY[
        'workspaces', 'workspace_heads', 'users', 'user_keys', 'subject_keys', 'events', 'payloads'
    ] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
    END LOOP;
    FOREACH tenant_table IN ARRAY ARRAY['users', 'user_keys', 'events', 'payloads'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND user_id = current_setting(''app.user_id'', true))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
    FOREACH tenant_table IN ARRAY ARRAY['workspaces', 'workspace_heads', 'subject_keys'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_member', tenant_table);
    END LOOP;
END $$;

-- Events are never updated or deleted by the server.
GRANT SELECT, INSERT ON
    whence.workspaces, whence.users, whence.user_keys, whence.subject_keys, whence.events, whence.payloads,
    whence.workspace_heads
    TO whence_workspace;
GRANT UPDATE (last_position) ON whence.workspace_heads TO whence_workspace;
GRANT UPDATE (expires_at) ON whence.user_keys TO whence_workspace;
GRANT SELECT ON
    whence.workspaces, whence.users, whence.user_keys, whence.subject_keys, whence.events, whence.payloads,
    whence.workspace_heads
    TO whence_app;
