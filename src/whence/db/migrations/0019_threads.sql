-- Threads of LangGraph: whose they are. Their checkpoints stand in the schema langgraph, which the framework's own set-up
-- makes, and which is not there before somebody uses it.

-- What a thread is called in the tables of the framework, which know neither workspaces nor users: two of them may have
-- a thread of the same name, and neither can name the other's. The length says where the user's name ends.
CREATE FUNCTION whence.thread_prefix(in_workspace text, in_user text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT in_workspace || '/' || length(in_user) || ':' || in_user || '/';
$$;

-- Keys that checkpoints are sealed under, each sealed under its subject's key: without that one, these open nothing.
CREATE TABLE whence.thread_keys (
    workspace_id text NOT NULL,
    user_id text NOT NULL,
    key_id uuid NOT NULL,
    subject_key_id uuid NOT NULL,
    sealed_key bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT thread_keys_pkey PRIMARY KEY (workspace_id, user_id, key_id),
    CONSTRAINT thread_keys_subject_key FOREIGN KEY (workspace_id, user_id, subject_key_id)
        REFERENCES whence.subject_keys (workspace_id, subject_id, key_id)
);
COMMENT ON COLUMN whence.thread_keys.key_id IS 'In the order in which a user''s keys were made: the greatest one seals.';

CREATE TABLE whence.threads (
    workspace_id text NOT NULL,
    user_id text NOT NULL,
    thread_id text NOT NULL,
    stored_as text NOT NULL GENERATED ALWAYS AS (whence.thread_prefix(workspace_id, user_id) || thread_id) STORED,
    conversation_id text,
    key_id uuid,
    created_at timestamptz NOT NULL,
    used_at timestamptz NOT NULL,
    CONSTRAINT threads_pkey PRIMARY KEY (workspace_id, user_id, thread_id),
    CONSTRAINT threads_thread_id_length CHECK (length(thread_id) BETWEEN 1 AND 256),
    CONSTRAINT threads_key_exists FOREIGN KEY (workspace_id, user_id, key_id)
        REFERENCES whence.thread_keys (workspace_id, user_id, key_id)
);
CREATE INDEX threads_of_conversation ON whence.threads (workspace_id, conversation_id) WHERE conversation_id IS NOT NULL;
COMMENT ON COLUMN whence.threads.stored_as IS 'The thread_id in the tables of the framework.';
COMMENT ON COLUMN whence.threads.key_id IS
    'The oldest key that something of the thread may be sealed under; NULL where nothing was ever sealed.';
COMMENT ON COLUMN whence.threads.used_at IS 'When it was written to last.';

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['thread_keys', 'threads'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND user_id = current_setting(''app.user_id'', true))',
            tenant_table || '_of_user', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON whence.threads TO whence_app;
GRANT SELECT ON whence.thread_keys TO whence_app;

-- With a thread go its checkpoints, whoever removes it and why. As the one who does: the rights to the tables of the
-- framework are given together with them.
CREATE FUNCTION whence.drop_checkpoints() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'langgraph' AND c.relname = 'checkpoint_writes') THEN
        DELETE FROM langgraph.checkpoints c WHERE c.thread_id = OLD.stored_as;
        DELETE FROM langgraph.checkpoint_blobs c WHERE c.thread_id = OLD.stored_as;
        DELETE FROM langgraph.checkpoint_writes c WHERE c.thread_id = OLD.stored_as;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER threads_checkpoints AFTER DELETE ON whence.threads
    FOR EACH ROW EXECUTE FUNCTION whence.drop_checkpoints();

-- Before all that is there, whatever that is by now: a thread refers to a key.
DO $do$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.erasure_tables() RETURNS TABLE (name text, id text, meant text)'
        ' LANGUAGE sql IMMUTABLE AS $$ VALUES %s; $$',
        (SELECT string_agg(format(E'\n    (%L, %L, %L)', t.name, t.id, t.meant), ',' ORDER BY t.place) FROM (
            SELECT v.name, v.id, v.meant, v.place - 2 AS place FROM (VALUES
                ('threads', 'encode(sha256(convert_to(t.thread_id, ''UTF8'')), ''hex'')',
                    't.user_id = $2 AND t.created_at <= $6', 1),
                ('thread_keys', 't.key_id::text', 't.user_id = $2 AND t.created_at <= $6', 2)
            ) v (name, id, meant, place)
            UNION ALL
            SELECT e.name, e.id, e.meant, e.place FROM whence.erasure_tables() WITH ORDINALITY e (name, id, meant, place)
        ) t));
END $do$;
