-- What the lifecycle looks for is found by an index, and not by reading all there is.

-- Plain text that was told before, in sessions that may be closed since. What has a key is found by memories_by_key, and
-- what is persistent by memories_same_text.
CREATE INDEX memories_told_before ON whence.memories (body_hash, workspace_id)
    WHERE kind = 'semantic' AND tier <> 'persistent' AND conflict_key IS NULL;

-- What the close of its session has removed still counts as said, until somebody forgets it: then it is archived too.
CREATE FUNCTION whence.effect_forget_removed(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    changed integer;
BEGIN
    UPDATE whence.memories m SET archived_at = at
    WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid AND m.archived_at IS NULL
      AND m.deleted_at IS NOT NULL;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN jsonb_build_object('changed', changed);
END $$;
