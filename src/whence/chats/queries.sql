-- The statements of chats. All of them are asked in the scope of one user.

-- name: recent_recalls
-- The last recalls of a user in a partition, the newest first.
SELECT r.position, r.recall_id FROM whence.recalls r
WHERE r.workspace_id = %(workspace_id)s AND r.user_id = %(user_id)s AND r.agent = %(agent)s
  AND r.recalled_at >= %(since)s
ORDER BY r.position DESC LIMIT %(limit)s::bigint;

-- name: texts_given
-- Also of what was forgotten since: that somebody else than the user sends it back does not make it known again.
SELECT m.memory_id, m.body, m.deleted_at IS NULL AND m.superseded_at IS NULL FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.owner = %(user_id)s AND m.agent = %(agent)s
  AND m.memory_id = ANY (%(ids)s::uuid[]) AND length(m.body) >= %(least)s;

-- name: boundary_of
-- Up to which message a chat was read: an event that says so has that message for its parent.
SELECT coalesce(max(p.global_position), 0) FROM whence.events f
JOIN whence.events p ON p.workspace_id = f.workspace_id AND p.event_id = f.parent_event_id
WHERE f.workspace_id = %(workspace_id)s AND f.session_id = %(session_id)s AND f.event_type = 'memory.flushed'
  AND f.agent_id = %(agent)s AND f.user_id = %(user_id)s;

-- name: messages_after
-- What was said in a chat past a position, and holds.
SELECT m.memory_id, m.position, m.body, m.speaker, m.role, m.valid_at, nullif(m.subject_id, m.owner)
FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.session_id = %(session_id)s AND m.owner = %(user_id)s
  AND m.agent = %(agent)s AND m.kind = 'episodic' AND m.position > %(after)s::bigint
  AND m.deleted_at IS NULL AND m.superseded_at IS NULL AND m.archived_at IS NULL
ORDER BY m.position LIMIT %(limit)s::bigint;

-- name: facts_of_only
-- Facts that were drawn from a message, and from nothing else that is still there.
SELECT m.memory_id FROM whence.memory_sources s
JOIN whence.memories m ON m.workspace_id = s.workspace_id AND m.memory_id = s.memory_id
WHERE s.workspace_id = %(workspace_id)s AND s.source = %(memory_id)s::text AND s.role = 'memory'
  AND m.owner = %(user_id)s AND m.kind = 'semantic' AND m.deleted_at IS NULL AND NOT EXISTS (
    SELECT FROM whence.memory_all_sources o
    WHERE o.workspace_id = s.workspace_id AND o.memory_id = s.memory_id AND o.source <> s.source
      AND CASE o.role WHEN 'memory' THEN EXISTS (
        SELECT FROM whence.memories k
        WHERE k.workspace_id = o.workspace_id AND k.memory_id = o.source::uuid
          AND k.deleted_at IS NULL AND k.superseded_at IS NULL OFFSET 0
      ) ELSE true END
)
ORDER BY m.position;

-- name: still_said
-- Which of these memories are neither deleted nor overridden.
SELECT m.memory_id FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.owner = %(user_id)s AND m.memory_id = ANY (%(ids)s::uuid[])
  AND m.deleted_at IS NULL AND m.superseded_at IS NULL;

-- name: about
-- Whom a memory is about, where that is not whose it is.
SELECT nullif(m.subject_id, m.owner) FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.owner = %(user_id)s AND m.memory_id = %(memory_id)s;

-- name: state_of
-- Whether a memory was deleted, and what has taken its place.
SELECT m.deleted_at, m.superseded_by FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.owner = %(user_id)s AND m.memory_id = %(memory_id)s;

-- name: held_by
-- The memory that holds what an event told, and the event's position.
SELECT coalesce(t.memory_id, e.event_id), e.global_position FROM whence.events e
LEFT JOIN whence.memory_tellings t ON t.workspace_id = e.workspace_id AND t.event_id = e.event_id
WHERE e.workspace_id = %(workspace_id)s AND e.user_id = %(user_id)s AND e.event_id = %(event_id)s;
