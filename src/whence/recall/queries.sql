-- The statements of recall. What they give back is what the asker may see, whatever was ranked before.

-- fragment: entry
-- The fields of corpus.Entry, in order.
m.memory_id, m.position, m.agent, m.tier, m.kind, m.session_id, m.body, m.speaker,
extract(epoch FROM m.valid_at)::double precision, m.importance::real, v.embedder, halfvec_send(v.embedding),
m.archived_at IS NOT NULL OR m.superseded_at IS NOT NULL

-- fragment: with_vector
LEFT JOIN whence.memory_vectors v ON v.workspace_id = m.workspace_id AND v.memory_id = m.memory_id

-- name: entries_of_owner
SELECT {entry} FROM whence.memories m {with_vector}
WHERE m.workspace_id = %(workspace_id)s::text AND m.owner = %(owner)s::text AND m.position > %(after)s::bigint
  AND m.deleted_at IS NULL
ORDER BY m.position LIMIT %(limit)s::bigint;

-- name: gone_of_owner
-- What was forgotten; without an owner, of everybody.
SELECT m.memory_id FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s::text AND (%(owner)s::text IS NULL OR m.owner = %(owner)s::text)
  AND m.deleted_at IS NOT NULL;

-- name: before_newest
-- The position before the newest ones of an owner; nothing where there are not so many.
SELECT m.position FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s::text AND m.owner = %(owner)s::text
ORDER BY m.position DESC OFFSET %(limit)s::bigint LIMIT 1;

-- name: before_newest_of_all
SELECT e.global_position FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s::text AND e.event_type = 'memory.remembered'
ORDER BY e.global_position DESC OFFSET %(limit)s::bigint LIMIT 1;

-- name: entries_of_all
-- By the events that told them, which are in order.
SELECT {entry} FROM whence.events e
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m WHERE m.workspace_id = e.workspace_id AND m.memory_id = e.event_id OFFSET 0
) m {with_vector}
WHERE e.workspace_id = %(workspace_id)s::text AND e.event_type = 'memory.remembered'
  AND e.global_position > %(after)s::bigint AND m.deleted_at IS NULL
ORDER BY e.global_position LIMIT %(limit)s::bigint;

-- name: sources_found
-- Of each memory the first ones that the asker may see. One memory after the other, each by its key: OFFSET 0 keeps the
-- planner from reading all sources of the workspace.
SELECT i.memory_id, d.*
FROM unnest(%(ids)s::uuid[]) i (memory_id)
CROSS JOIN LATERAL (
    SELECT s.source::uuid, s.role, coalesce(e.global_position, s.position), e.occurred_at, e.session_id, e.trace_id,
        e.agent_id, e.tool_name
    FROM (
        SELECT * FROM whence.memory_sources s
        WHERE s.workspace_id = %(workspace_id)s::text AND s.memory_id = i.memory_id AND s.role <> 'told' OFFSET 0
    ) s
    LEFT JOIN LATERAL (
        SELECT * FROM whence.events e
        WHERE e.workspace_id = %(workspace_id)s::text AND e.event_id = s.source::uuid OFFSET 0
    ) e ON true
    WHERE e.event_id IS NOT NULL OR EXISTS (
        SELECT FROM whence.memories k
        WHERE k.workspace_id = %(workspace_id)s::text AND k.memory_id = s.source::uuid OFFSET 0
    )
    ORDER BY s.position, s.source LIMIT %(limit)s::bigint
) d;

-- name: recall_by_id
SELECT r.recalled_at, r.user_id FROM whence.recalls r
WHERE r.workspace_id = %(workspace_id)s AND r.recall_id = %(recall_id)s
  AND (%(user_id)s::text IS NULL OR r.user_id = %(user_id)s);
