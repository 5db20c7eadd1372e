-- What the lifecycle looks for is found by an index, and not by reading all there is.

-- Plain text that was told before, in sessions that may be closed since. What has a key is found by memories_by_key.
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

-- What timers end, by what each timer counts from; and what was tombstoned, by when. That a time is not before all times
-- is what only those say who look for it by this index: to others it would look as good as their own, and be far worse.
CREATE INDEX memories_by_age ON whence.memories (profile, kind, workspace_id, recorded_at)
    WHERE tier = 'persistent' AND deleted_at IS NULL AND recorded_at > '-infinity';
CREATE INDEX memories_ended ON whence.memories (greatest(invalid_at, invalidated_at, recorded_at), workspace_id)
    WHERE invalid_at IS NOT NULL AND tier = 'persistent' AND deleted_at IS NULL;
CREATE INDEX memories_archived ON whence.memories (archived_at, workspace_id)
    WHERE archived_at IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX memories_tombstoned ON whence.memories (deleted_at, workspace_id)
    WHERE deleted_at IS NOT NULL AND stripped_at IS NULL;

-- Memories that were derived from memories, which alone can be orphans.
CREATE INDEX memory_sources_derived ON whence.memory_sources (workspace_id, memory_id)
    WHERE role = 'memory' AND told_at > '-infinity';

-- As before, with the sources of a memory found by their ids.
CREATE OR REPLACE VIEW whence.retention_states WITH (security_invoker = true) AS
SELECT m.workspace_id, CASE m.tier WHEN 'persistent' THEN 'memory' ELSE 'scoped_memory' END AS entity,
    m.memory_id AS id, m.user_id,
    CASE
    WHEN m.deleted_at IS NOT NULL THEN 'TOMBSTONED'
    WHEN whence.is_held(m.workspace_id, m.memory_id)
        OR whence.is_derived_from(m.workspace_id, m.memory_id, 9223372036854775807) THEN 'REFERENCED'
    WHEN EXISTS (
        SELECT 1 FROM whence.memory_sources s WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id
    ) AND NOT EXISTS (
        SELECT 1 FROM whence.memory_sources s
        WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id AND CASE s.role WHEN 'memory' THEN EXISTS (
            SELECT 1 FROM whence.memories o
            WHERE o.workspace_id = s.workspace_id AND o.memory_id = s.source::uuid AND o.deleted_at IS NULL
        ) ELSE true END
    ) THEN 'ORPHANED'
    ELSE 'ACTIVE'
    END AS state
FROM whence.memories m;

-- When a session has been idle for as long as it may be. In UTC and without a zone, so that it can be stored: what is
-- computed from it under row-level security could not be looked up in an index.
ALTER TABLE whence.sessions ADD COLUMN idle_until timestamp NOT NULL
    GENERATED ALWAYS AS ((last_activity_at AT TIME ZONE 'UTC') + make_interval(days => idle_days)) STORED;
DROP INDEX whence.sessions_unclosed;
CREATE INDEX sessions_idle ON whence.sessions (idle_until, workspace_id) WHERE closed_at IS NULL AND ended_at IS NULL;
CREATE INDEX sessions_over ON whence.sessions (ended_at, workspace_id) WHERE closed_at IS NULL AND ended_at IS NOT NULL;
GRANT SELECT (idle_until) ON whence.sessions TO whence_worker;
