-- Seals: one Merkle tree a workspace, over the envelopes in order of position.

-- The root of the tree over the positions 1 to size, as it was when it was sealed.
CREATE TABLE whence.seals (
    workspace_id text NOT NULL CONSTRAINT seals_workspace REFERENCES whence.workspaces,
    size bigint NOT NULL,
    root bytea NOT NULL,
    sealed_at timestamptz NOT NULL,
    CONSTRAINT seals_pkey PRIMARY KEY (workspace_id, size),
    CONSTRAINT seals_size_from_one CHECK (size >= 1),
    CONSTRAINT seals_root_length CHECK (octet_length(root) = 32)
);

-- The hashes that proofs are made from, 256 to a tile. Level 0 holds the hashes of leaves, each further level the roots
-- of the full tiles below. A tile that is not full yet grows.
CREATE TABLE whence.seal_tiles (
    workspace_id text NOT NULL CONSTRAINT seal_tiles_workspace REFERENCES whence.workspaces,
    level smallint NOT NULL,
    tile bigint NOT NULL,
    hashes bytea NOT NULL,
    CONSTRAINT seal_tiles_pkey PRIMARY KEY (workspace_id, level, tile),
    CONSTRAINT seal_tiles_level_range CHECK (level BETWEEN 0 AND 7),
    CONSTRAINT seal_tiles_from_zero CHECK (tile >= 0),
    CONSTRAINT seal_tiles_whole_hashes CHECK (octet_length(hashes) % 32 = 0 AND octet_length(hashes) <= 8192)
);
-- Hashes do not compress, so Postgres need not try.
ALTER TABLE whence.seal_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- A user may read both: hashes tell nothing, and a proof of a user's own event is made from them.
DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['seals', 'seal_tiles'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_member', tenant_table);
    END LOOP;
END $$;

-- A worker must know which workspaces have events to seal.
CREATE POLICY seals_of_worker ON whence.seals FOR SELECT TO whence_worker USING (true);
CREATE POLICY workspaces_of_worker ON whence.workspaces FOR SELECT TO whence_worker USING (true);
GRANT SELECT ON whence.seals, whence.workspaces TO whence_worker;

-- A seal is never updated or deleted by the server.
GRANT SELECT, INSERT ON whence.seals, whence.seal_tiles TO whence_workspace;
GRANT UPDATE (hashes) ON whence.seal_tiles TO whence_workspace;
GRANT SELECT ON whence.seals, whence.seal_tiles TO whence_app;
