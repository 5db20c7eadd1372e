-- The memories of owners who have too many to be held and compared one by one: found by their likeness and their words.
-- A copy of what `memories` and `memory_vectors` have, filled in order of positions, some time after they were told.
CREATE TABLE whence.memory_index (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    position bigint NOT NULL,
    embedder text,
    dimension integer GENERATED ALWAYS AS (vector_dims(embedding)) STORED,
    embedding halfvec,
    terms bigint[] NOT NULL,
    CONSTRAINT memory_index_pkey PRIMARY KEY (workspace_id, memory_id)
);
ALTER TABLE whence.memory_index ALTER COLUMN embedding SET STORAGE PLAIN;
COMMENT ON COLUMN whence.memory_index.terms IS 'The words of its text, each a number that is its owner''s alone.';
CREATE INDEX memory_index_in_order ON whence.memory_index (owner, workspace_id, position);
CREATE INDEX memory_index_by_terms ON whence.memory_index USING gin (terms) WITH (fastupdate = off);

-- Vectors are compared with those of their own length. Others than these are compared one by one.
DO $$
DECLARE
    length integer;
BEGIN
    FOREACH length IN ARRAY ARRAY[256, 384, 512, 768, 1024, 1536] LOOP
        EXECUTE format(
            'CREATE INDEX memory_index_like_%1$s ON whence.memory_index'
            ' USING hnsw ((embedding::halfvec(%1$s)) halfvec_ip_ops) WHERE dimension = %1$s', length);
    END LOOP;
END $$;

ALTER TABLE whence.memory_index ENABLE ROW LEVEL SECURITY;
ALTER TABLE whence.memory_index FORCE ROW LEVEL SECURITY;
CREATE POLICY memory_index_of_workspace ON whence.memory_index TO whence_workspace
    USING (workspace_id = current_setting('app.workspace_id', true));
CREATE POLICY memory_index_of_user ON whence.memory_index FOR SELECT TO whence_app USING (
    workspace_id = current_setting('app.workspace_id', true) AND (user_id = current_setting('app.user_id', true)
        OR (user_id IS NULL AND current_setting('app.user_id', true) <> '')));
GRANT SELECT, INSERT, UPDATE, DELETE ON whence.memory_index TO whence_workspace;
GRANT SELECT ON whence.memory_index TO whence_app;
-- The worker sees which workspaces have one.
CREATE POLICY memory_index_of_worker ON whence.memory_index FOR SELECT TO whence_worker USING (true);
GRANT SELECT (workspace_id) ON whence.memory_index TO whence_worker;

-- Whatever takes the text of a memory away takes it from here too.
CREATE FUNCTION whence.leave_memory_index() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM whence.memory_index i WHERE i.workspace_id = OLD.workspace_id AND i.memory_id = OLD.memory_id;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_removed AFTER DELETE ON whence.memories
    FOR EACH ROW EXECUTE FUNCTION whence.leave_memory_index();
CREATE TRIGGER memories_stripped AFTER UPDATE OF stripped_at ON whence.memories
    FOR EACH ROW WHEN (NEW.stripped_at IS NOT NULL) EXECUTE FUNCTION whence.leave_memory_index();

-- A vector that another embedder has made anew.
CREATE FUNCTION whence.follow_vector() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE whence.memory_index i SET embedder = NEW.embedder, embedding = NEW.embedding
    WHERE i.workspace_id = NEW.workspace_id AND i.memory_id = NEW.memory_id;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_vectors_replaced AFTER UPDATE OF embedding ON whence.memory_vectors
    FOR EACH ROW EXECUTE FUNCTION whence.follow_vector();

-- Under row-level security an index of words cannot be asked, because whether arrays overlap could tell of rows that are
-- not the asker's. So this is asked by a role of its own that sees words and nothing else, and gives ids: what belongs to
-- them is then read under the asker's own policies.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'whence_searcher') THEN
        CREATE ROLE whence_searcher NOLOGIN;
    END IF;
END $$;
GRANT whence_searcher TO CURRENT_USER WITH INHERIT FALSE, SET TRUE;
GRANT USAGE, CREATE ON SCHEMA whence TO whence_searcher;
GRANT SELECT (workspace_id, memory_id, owner, position, terms) ON whence.memory_index TO whence_searcher;
CREATE POLICY memory_index_of_searcher ON whence.memory_index FOR SELECT TO whence_searcher USING (true);

-- The memories of an owner with any of the words, and with all of `together`: those whose words weigh most.
CREATE FUNCTION whence.memories_with_words(
    in_workspace text, in_owner text, words bigint[], weights real[], together bigint[], at_most bigint
) RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(f.memory_id), '{}') FROM (
        SELECT i.memory_id FROM whence.memory_index i
        WHERE i.terms && words AND i.terms @> together AND i.owner = in_owner AND i.workspace_id = in_workspace
          AND in_workspace = current_setting('app.workspace_id', true)
          AND (current_setting('role') = 'whence_workspace' OR current_setting('app.user_id', true) <> ''
            AND in_owner IN ('', current_setting('app.user_id', true)))
        ORDER BY (
            SELECT sum(w.weight) FROM unnest(words, weights) w (word, weight) WHERE w.word = ANY (i.terms)
        ) DESC, i.position DESC
        LIMIT at_most
    ) f;
$$;
ALTER FUNCTION whence.memories_with_words(text, text, bigint[], real[], bigint[], bigint) OWNER TO whence_searcher;
REVOKE ALL ON FUNCTION whence.memories_with_words(text, text, bigint[], real[], bigint[], bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION whence.memories_with_words(text, text, bigint[], real[], bigint[], bigint)
    TO whence_app, whence_workspace;
REVOKE CREATE ON SCHEMA whence FROM whence_searcher;
