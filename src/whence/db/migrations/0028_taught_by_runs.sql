-- Of what runs have taught, facts and procedures are disposed of too, and only episodes are counted. Episodes of runs are
-- found by an index that has nothing else.
CREATE OR REPLACE FUNCTION whence.effect_apply_retention(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    expired integer;
    of_runs integer;
    gone jsonb;
BEGIN
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.deleted_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT jsonb_array_elements_text(document->'expire')::uuid))
      AND NOT whence.is_held(in_workspace, m.memory_id)
      AND NOT whence.is_derived_from(in_workspace, m.memory_id, at_position);
    GET DIAGNOSTICS expired = ROW_COUNT;

    SELECT coalesce(jsonb_object_agg(m.memory_id, d.value), '{}'),
        count(m.run_id) FILTER (WHERE m.kind = 'episodic') INTO gone, of_runs
    FROM jsonb_array_elements(document->'dispose') d
    JOIN whence.memories m ON m.workspace_id = in_workspace AND m.memory_id = (d.value->>'memory_id')::uuid
    WHERE m.deleted_at IS NOT NULL AND m.stripped_at IS NULL AND NOT whence.is_held(in_workspace, m.memory_id)
      AND NOT whence.is_derived_from(in_workspace, m.memory_id, at_position);
    IF gone = '{}' THEN
        RETURN jsonb_build_object('expired', expired, 'disposed', 0);
    END IF;
    DELETE FROM whence.payloads p WHERE p.workspace_id = in_workspace AND p.global_position = ANY (ARRAY(
        SELECT (told->>'position')::bigint FROM jsonb_each(gone) g, jsonb_array_elements(g.value->'told') told));
    DELETE FROM whence.memory_vectors v
    WHERE v.workspace_id = in_workspace AND v.memory_id = ANY (ARRAY(SELECT jsonb_object_keys(gone)::uuid));
    -- Those whose text is kept are what the bound of episodes is about.
    UPDATE whence.memory_counts c SET episodes = c.episodes - of_runs
    WHERE c.workspace_id = in_workspace AND of_runs > 0;
    UPDATE whence.memories m SET stripped_at = at, speaker = NULL, role = NULL, body = '',
        body_hash = sha256(convert_to(m.memory_id::text, 'UTF8')),
        object_key = CASE WHEN m.object_key IS NOT NULL THEN m.memory_id::text END,
        fact_object = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' AND m.fact_object IS NOT NULL THEN '' END,
        fact_subject = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.fact_subject END,
        fact_predicate = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.fact_predicate END,
        conflict_key = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.conflict_key END
    FROM jsonb_each(gone) g
    WHERE m.workspace_id = in_workspace AND m.memory_id = g.key::uuid AND g.value->>'disposal' <> 'HARD_DELETE';
    PERFORM whence.retention_remove(in_workspace, ARRAY(
        SELECT g.key::uuid FROM jsonb_each(gone) g WHERE g.value->>'disposal' = 'HARD_DELETE'));
    RETURN jsonb_build_object('expired', expired, 'disposed', (SELECT count(*) FROM jsonb_object_keys(gone)));
END $$;

-- The old one serves until the new one is there.
CREATE INDEX memories_of_runs ON whence.memories (agent, workspace_id, position)
    WHERE run_id IS NOT NULL AND kind = 'episodic';
DROP INDEX whence.memories_by_run;
