-- What is said of somebody is found by the first part of its key, which needs an order by bytes: under the collation of a
-- language, U+001F is no character at all. Two triggers name the column, and are made again.
DROP TRIGGER memories_item ON whence.memories;
DROP TRIGGER memories_item_removed ON whence.memories;
ALTER TABLE whence.memories ALTER COLUMN conflict_key TYPE text COLLATE "C";
CREATE TRIGGER memories_item AFTER UPDATE OF deleted_at, superseded_at, archived_at, stripped_at ON whence.memories
    FOR EACH ROW WHEN (OLD.kind = 'semantic' AND OLD.conflict_key IS NOT NULL AND coalesce(
        NEW.deleted_at, NEW.superseded_at, NEW.archived_at, NEW.stripped_at) IS NOT NULL)
    EXECUTE FUNCTION whence.drop_item();
CREATE TRIGGER memories_item_removed AFTER DELETE ON whence.memories
    FOR EACH ROW WHEN (OLD.kind = 'semantic' AND OLD.conflict_key IS NOT NULL) EXECUTE FUNCTION whence.drop_item();

-- Facts that accumulate have no key. They are few, and read one after the other.
CREATE INDEX memories_facts_without_key ON whence.memories (owner, workspace_id, position)
    WHERE fact_subject IS NOT NULL AND conflict_key IS NULL;
-- What a run has taught, and its episodes.
CREATE INDEX memories_by_run ON whence.memories (run_id, workspace_id, position) WHERE run_id IS NOT NULL;

-- What a rebuild has left out is told by an event, which changes nothing.
CREATE FUNCTION whence.effect_leave_out(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT '{}'::jsonb; $$;

-- As before, and with what a run has taught, which is the same as where it was told without the run: in the order in which
-- both were told. Only episodes of runs are counted, one by one.
CREATE OR REPLACE FUNCTION whence.memory_remember_plain(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors halfvec[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    done bigint[];
BEGIN
    WITH given AS MATERIALIZED (
        SELECT r.*, start + r.place AS at_position, coalesce(r.recorded_at, in_recorded_at) AS at,
            whence.teller_of(r.sources, r.confidence) AS teller
        FROM jsonb_populate_recordset(NULL::whence.remembered, documents) r
        WHERE r.effect = 'remember' AND r.conflict_key IS NULL AND (r.run_id IS NULL OR r.kind <> 'episodic')
    ), stored AS (
        INSERT INTO whence.memories (
            workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, run_id, world_id_context, body, body_hash, fact_subject, fact_predicate, fact_object, confidence,
            importance, valid_at, recorded_at, sanitised, speaker, role, teller
        )
        SELECT in_workspace, event_id, at_position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, run_id, world_id_context, body, decode(body_hash, 'hex'), fact_subject, fact_predicate, fact_object,
            confidence, importance, coalesce(valid_at, at), at, sanitised, speaker, role, teller
        FROM given
        ON CONFLICT (workspace_id, owner, agent, tier, anchor, kind, body_hash)
            WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
                AND deleted_at IS NULL AND archived_at IS NULL
            DO NOTHING
        RETURNING memory_id
    ), plain AS MATERIALIZED (
        SELECT * FROM given WHERE event_id = ANY (ARRAY(SELECT memory_id FROM stored))
    ), told AS (
        INSERT INTO whence.memory_sources (
            workspace_id, memory_id, source, role, position, event_id, user_id, said_by, confidence, told_at,
            byte_from, byte_to, origin
        )
        SELECT in_workspace, event_id, s->>'source', s->>'role', at_position, event_id, user_id, said_by, confidence, at,
            (s->>'byte_from')::integer, (s->>'byte_to')::integer, (s->>'origin')::uuid
        FROM (SELECT * FROM plain WHERE teller IS NULL) p, jsonb_array_elements(p.sources) s
        ON CONFLICT DO NOTHING
    ), embedded AS (
        INSERT INTO whence.memory_vectors (workspace_id, memory_id, user_id, embedder, embedding)
        SELECT in_workspace, event_id, user_id, embedder, vectors[vector]
        FROM plain WHERE embedder IS NOT NULL
    )
    SELECT coalesce(array_agg(p.place), '{}') INTO done FROM plain p;
    RETURN done;
END $$;
