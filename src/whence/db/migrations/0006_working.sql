-- Working memory: what an agent jots down between two steps. It expires, is in no ledger, and nothing is derived from it.

-- Names have up to 256 characters each, which together would be too wide for an index; their hash is not.
CREATE FUNCTION whence.working_instance_key(agent text, instance text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(sha256(convert_to(agent, 'UTF8')) || sha256(convert_to(instance, 'UTF8')));
$$;

-- No foreign key to workspaces: who writes has shown a key of the workspace, and the check would be paid at every step
-- of an agent.
CREATE TABLE whence.working_memory (
    workspace_id text NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    agent text NOT NULL,
    instance text NOT NULL,
    instance_key bytea NOT NULL GENERATED ALWAYS AS (whence.working_instance_key(agent, instance)) STORED,
    key text NOT NULL,
    value text NOT NULL,
    bytes integer NOT NULL GENERATED ALWAYS AS (octet_length(key) + octet_length(value)) STORED,
    updated_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT working_memory_pkey PRIMARY KEY (workspace_id, owner, instance_key, key),
    CONSTRAINT working_memory_agent_length CHECK (length(agent) BETWEEN 1 AND 256),
    CONSTRAINT working_memory_instance_length CHECK (length(instance) BETWEEN 1 AND 256),
    CONSTRAINT working_memory_key_length CHECK (length(key) BETWEEN 1 AND 256),
    CONSTRAINT working_memory_within_budget CHECK (bytes <= 131072),
    CONSTRAINT working_memory_expires_later CHECK (expires_at > updated_at)
);
-- For the sweep.
CREATE INDEX working_memory_by_expiry ON whence.working_memory (workspace_id, expires_at);
COMMENT ON COLUMN whence.working_memory.owner IS 'The user, or the empty text, which no user is called: for keys.';
COMMENT ON COLUMN whence.working_memory.value IS 'JSON as it was sent. Text, so that one parser alone says what JSON is, and numbers keep their digits.';
COMMENT ON COLUMN whence.working_memory.bytes IS 'What the entry counts for in the budget of its instance.';
COMMENT ON COLUMN whence.working_memory.expires_at IS 'From this time on nobody sees the entry; a worker removes it later.';

ALTER TABLE whence.working_memory ENABLE ROW LEVEL SECURITY;
ALTER TABLE whence.working_memory FORCE ROW LEVEL SECURITY;
CREATE POLICY working_memory_of_workspace ON whence.working_memory TO whence_workspace
    USING (workspace_id = current_setting('app.workspace_id', true));
CREATE POLICY working_memory_of_user ON whence.working_memory TO whence_app
    USING (workspace_id = current_setting('app.workspace_id', true) AND user_id = current_setting('app.user_id', true));

-- A user's entries are written by that user: the policies hold for what is written as for what is read.
GRANT SELECT, INSERT, UPDATE, DELETE ON whence.working_memory TO whence_app, whence_workspace;

-- A worker must know which workspaces have something to sweep. It sees when entries expire, and neither whose nor what.
CREATE POLICY working_memory_of_worker ON whence.working_memory FOR SELECT TO whence_worker USING (true);
GRANT SELECT (workspace_id, expires_at) ON whence.working_memory TO whence_worker;

-- Stores an entry if it fits beside the others of its instance that have not expired; says whether it did, what it
-- counts for, and what the others do. Writers of an instance queue at a lock, and each statement below sees what those
-- before it have committed, so that no two of them take the same room.
CREATE FUNCTION whence.working_put(
    in_workspace text, in_user text, in_agent text, in_instance text, in_key text, in_value text,
    budget integer, at timestamptz, until timestamptz
) RETURNS TABLE (stored boolean, counts_for integer, taken bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    in_owner constant text := coalesce(in_user, '');
    in_instance_key constant bytea := whence.working_instance_key(in_agent, in_instance);
BEGIN
    PERFORM pg_advisory_xact_lock(
        hashtextextended(concat_ws(' ', in_workspace, in_owner, encode(in_instance_key, 'hex')), 0));
    SELECT coalesce(sum(w.bytes), 0) INTO taken FROM whence.working_memory w
    WHERE w.workspace_id = in_workspace AND w.owner = in_owner AND w.instance_key = in_instance_key
      AND w.key <> in_key AND w.expires_at > at;
    counts_for := octet_length(in_key) + octet_length(in_value);
    stored := taken + counts_for <= budget;
    IF stored THEN
        INSERT INTO whence.working_memory (workspace_id, user_id, agent, instance, key, value, updated_at, expires_at)
        VALUES (in_workspace, in_user, in_agent, in_instance, in_key, in_value, at, until)
        ON CONFLICT ON CONSTRAINT working_memory_pkey DO UPDATE
            SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at, expires_at = EXCLUDED.expires_at;
    END IF;
    RETURN NEXT;
END $$;
