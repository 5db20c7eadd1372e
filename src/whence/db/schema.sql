-- Made by `make schema` from the migrations; a test compares it with them.

CREATE SCHEMA whence;

ALTER SCHEMA whence OWNER TO whence_owner;

CREATE TABLE whence.events (
    workspace_id text NOT NULL,
    global_position bigint NOT NULL,
    event_id uuid NOT NULL,
    parent_event_id uuid,
    occurred_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    recorded_at timestamp with time zone NOT NULL,
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
    CONSTRAINT events_commitment_length CHECK ((octet_length(payload_commitment) = 32)),
    CONSTRAINT events_ended_after_start CHECK ((ended_at >= occurred_at)),
    CONSTRAINT events_importance_range CHECK (((importance_hint >= 1) AND (importance_hint <= 10))),
    CONSTRAINT events_not_own_parent CHECK ((parent_event_id <> event_id)),
    CONSTRAINT events_payload_ref_length CHECK ((length(payload_ref) <= 2048)),
    CONSTRAINT events_position_from_one CHECK ((global_position >= 1)),
    CONSTRAINT events_schema_version_from_one CHECK ((schema_version >= 1)),
    CONSTRAINT events_status_known CHECK ((status = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text, 'timeout'::text]))),
    CONSTRAINT events_time_range CHECK (((occurred_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (GREATEST(occurred_at, ended_at) < '2262-01-01 00:00:00+00'::timestamp with time zone)))
);

ALTER TABLE ONLY whence.events FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.events OWNER TO whence_owner;

CREATE TABLE whence.installation (
    only_row boolean DEFAULT true NOT NULL,
    kek_id text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT installation_only_row CHECK (only_row)
);

ALTER TABLE whence.installation OWNER TO whence_owner;

COMMENT ON COLUMN whence.installation.kek_id IS 'Names the key-encryption key that wraps the subject keys; never the key.';

CREATE TABLE whence.payloads (
    workspace_id text NOT NULL,
    global_position bigint NOT NULL,
    user_id text,
    subject_id text NOT NULL,
    key_id uuid NOT NULL,
    ciphertext bytea NOT NULL
);
ALTER TABLE ONLY whence.payloads ALTER COLUMN ciphertext SET STORAGE EXTERNAL;

ALTER TABLE ONLY whence.payloads FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.payloads OWNER TO whence_owner;

CREATE TABLE whence.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE whence.schema_migrations OWNER TO whence_owner;

CREATE TABLE whence.seal_tiles (
    workspace_id text NOT NULL,
    level smallint NOT NULL,
    tile bigint NOT NULL,
    hashes bytea NOT NULL,
    CONSTRAINT seal_tiles_from_zero CHECK ((tile >= 0)),
    CONSTRAINT seal_tiles_level_range CHECK (((level >= 0) AND (level <= 7))),
    CONSTRAINT seal_tiles_whole_hashes CHECK ((((octet_length(hashes) % 32) = 0) AND (octet_length(hashes) <= 8192)))
);
ALTER TABLE ONLY whence.seal_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

ALTER TABLE ONLY whence.seal_tiles FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.seal_tiles OWNER TO whence_owner;

CREATE TABLE whence.seals (
    workspace_id text NOT NULL,
    size bigint NOT NULL,
    root bytea NOT NULL,
    sealed_at timestamp with time zone NOT NULL,
    CONSTRAINT seals_root_length CHECK ((octet_length(root) = 32)),
    CONSTRAINT seals_size_from_one CHECK ((size >= 1))
);

ALTER TABLE ONLY whence.seals FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.seals OWNER TO whence_owner;

CREATE TABLE whence.subject_keys (
    workspace_id text NOT NULL,
    subject_id text NOT NULL,
    key_id uuid NOT NULL,
    wrapped_key bytea NOT NULL,
    kek_id text NOT NULL,
    created_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY whence.subject_keys FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.subject_keys OWNER TO whence_owner;

COMMENT ON COLUMN whence.subject_keys.subject_id IS 'The named subject, else the user, else the empty text for the workspace.';

CREATE TABLE whence.user_keys (
    workspace_id text NOT NULL,
    key_id text NOT NULL,
    user_id text NOT NULL,
    key_hash bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT user_keys_hash_length CHECK ((octet_length(key_hash) = 32))
);

ALTER TABLE ONLY whence.user_keys FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.user_keys OWNER TO whence_owner;

COMMENT ON COLUMN whence.user_keys.expires_at IS 'The key is valid before this time; revoking sets it to now.';

CREATE TABLE whence.users (
    workspace_id text NOT NULL,
    user_id text NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT users_id_form CHECK (((user_id <> ''::text) AND (length(user_id) <= 256))),
    CONSTRAINT users_role_known CHECK ((role = ANY (ARRAY['admin'::text, 'member'::text])))
);

ALTER TABLE ONLY whence.users FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.users OWNER TO whence_owner;

CREATE TABLE whence.workspace_heads (
    workspace_id text NOT NULL,
    last_position bigint DEFAULT 0 NOT NULL,
    CONSTRAINT workspace_heads_not_negative CHECK ((last_position >= 0))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

ALTER TABLE ONLY whence.workspace_heads FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.workspace_heads OWNER TO whence_owner;

CREATE TABLE whence.workspaces (
    workspace_id text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT workspaces_id_form CHECK ((workspace_id ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$'::text))
);

ALTER TABLE ONLY whence.workspaces FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.workspaces OWNER TO whence_owner;

ALTER TABLE ONLY whence.events
    ADD CONSTRAINT events_event_id_once UNIQUE (workspace_id, event_id);

ALTER TABLE ONLY whence.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (workspace_id, global_position);

ALTER TABLE ONLY whence.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY whence.payloads
    ADD CONSTRAINT payloads_pkey PRIMARY KEY (workspace_id, global_position);

ALTER TABLE ONLY whence.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY whence.seal_tiles
    ADD CONSTRAINT seal_tiles_pkey PRIMARY KEY (workspace_id, level, tile);

ALTER TABLE ONLY whence.seals
    ADD CONSTRAINT seals_pkey PRIMARY KEY (workspace_id, size);

ALTER TABLE ONLY whence.subject_keys
    ADD CONSTRAINT subject_keys_id UNIQUE (workspace_id, subject_id, key_id);

ALTER TABLE ONLY whence.subject_keys
    ADD CONSTRAINT subject_keys_pkey PRIMARY KEY (workspace_id, subject_id);

ALTER TABLE ONLY whence.user_keys
    ADD CONSTRAINT user_keys_pkey PRIMARY KEY (workspace_id, key_id);

ALTER TABLE ONLY whence.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (workspace_id, user_id);

ALTER TABLE ONLY whence.workspace_heads
    ADD CONSTRAINT workspace_heads_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY whence.workspaces
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY (workspace_id);

CREATE INDEX events_by_session ON whence.events USING btree (workspace_id, session_id, global_position);

CREATE INDEX events_by_trace ON whence.events USING btree (workspace_id, trace_id, global_position);

CREATE INDEX events_by_type ON whence.events USING btree (workspace_id, event_type, global_position);

CREATE INDEX events_by_user ON whence.events USING btree (workspace_id, user_id, global_position);

CREATE INDEX user_keys_by_user ON whence.user_keys USING btree (workspace_id, user_id);

ALTER TABLE ONLY whence.payloads
    ADD CONSTRAINT payloads_subject_key FOREIGN KEY (workspace_id, subject_id, key_id) REFERENCES whence.subject_keys(workspace_id, subject_id, key_id);

ALTER TABLE ONLY whence.seal_tiles
    ADD CONSTRAINT seal_tiles_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.seals
    ADD CONSTRAINT seals_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.subject_keys
    ADD CONSTRAINT subject_keys_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.user_keys
    ADD CONSTRAINT user_keys_user FOREIGN KEY (workspace_id, user_id) REFERENCES whence.users(workspace_id, user_id);

ALTER TABLE ONLY whence.users
    ADD CONSTRAINT users_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.workspace_heads
    ADD CONSTRAINT workspace_heads_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE whence.events ENABLE ROW LEVEL SECURITY;

CREATE POLICY events_of_user ON whence.events TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY events_of_workspace ON whence.events TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.payloads ENABLE ROW LEVEL SECURITY;

CREATE POLICY payloads_of_user ON whence.payloads TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY payloads_of_workspace ON whence.payloads TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.seal_tiles ENABLE ROW LEVEL SECURITY;

CREATE POLICY seal_tiles_of_member ON whence.seal_tiles FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY seal_tiles_of_workspace ON whence.seal_tiles TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.seals ENABLE ROW LEVEL SECURITY;

CREATE POLICY seals_of_member ON whence.seals FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY seals_of_workspace ON whence.seals TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.subject_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY subject_keys_of_member ON whence.subject_keys FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY subject_keys_of_workspace ON whence.subject_keys TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.user_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY user_keys_of_user ON whence.user_keys TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY user_keys_of_workspace ON whence.user_keys TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.users ENABLE ROW LEVEL SECURITY;

CREATE POLICY users_of_user ON whence.users TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY users_of_workspace ON whence.users TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.workspace_heads ENABLE ROW LEVEL SECURITY;

CREATE POLICY workspace_heads_of_member ON whence.workspace_heads FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY workspace_heads_of_workspace ON whence.workspace_heads TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.workspaces ENABLE ROW LEVEL SECURITY;

CREATE POLICY workspaces_of_member ON whence.workspaces FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY workspaces_of_workspace ON whence.workspaces TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

GRANT USAGE ON SCHEMA whence TO whence_app;
GRANT USAGE ON SCHEMA whence TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.events TO whence_workspace;
GRANT SELECT ON TABLE whence.events TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.installation TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.payloads TO whence_workspace;
GRANT SELECT ON TABLE whence.payloads TO whence_app;

GRANT SELECT ON TABLE whence.schema_migrations TO whence_app;
GRANT SELECT ON TABLE whence.schema_migrations TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.seal_tiles TO whence_workspace;
GRANT SELECT ON TABLE whence.seal_tiles TO whence_app;

GRANT UPDATE(hashes) ON TABLE whence.seal_tiles TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.seals TO whence_workspace;
GRANT SELECT ON TABLE whence.seals TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.subject_keys TO whence_workspace;
GRANT SELECT ON TABLE whence.subject_keys TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.user_keys TO whence_workspace;
GRANT SELECT ON TABLE whence.user_keys TO whence_app;

GRANT UPDATE(expires_at) ON TABLE whence.user_keys TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.users TO whence_workspace;
GRANT SELECT ON TABLE whence.users TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.workspace_heads TO whence_workspace;
GRANT SELECT ON TABLE whence.workspace_heads TO whence_app;

GRANT UPDATE(last_position) ON TABLE whence.workspace_heads TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.workspaces TO whence_workspace;
GRANT SELECT ON TABLE whence.workspaces TO whence_app;
