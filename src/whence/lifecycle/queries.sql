-- The statements of the lifecycle. What is written goes through whence.memory_apply (see the ledger's `apply_effects`).

-- fragment: session
-- The fields of wire.Session, in order.
s.session_id, s.agent, s.user_id, s.number, s.idle_days, s.opened_at, s.last_activity_at, s.ended_at, s.closed_at,
s.close_event_id, s.first_position

-- name: sessions_page
-- The newest first: those of the user and of the workspace itself; of all users for who asks without one.
SELECT {session} FROM whence.sessions s
WHERE s.workspace_id = %(workspace_id)s
  AND (%(user_id)s::text IS NULL OR s.owner = ANY (ARRAY['', %(user_id)s::text]))
  AND (%(state)s::text IS NULL OR (s.closed_at IS NULL) = (%(state)s = 'open'))
  AND s.first_position < %(before)s::bigint
ORDER BY s.first_position DESC LIMIT %(limit)s::bigint;

-- name: stretches_named
-- The last stretch of a session with each agent, and earlier ones that have ended and are not closed.
SELECT DISTINCT ON (s.owner, s.agent, s.closed_at IS NULL) s.owner, {session}
FROM whence.sessions s
WHERE s.workspace_id = %(workspace_id)s AND s.session_id = %(session_id)s
  AND (%(user_id)s::text IS NULL OR s.owner = %(user_id)s)
  AND (%(agent)s::text IS NULL OR s.agent = %(agent)s)
ORDER BY s.owner, s.agent, s.closed_at IS NULL, s.number DESC;

-- name: stretch
SELECT s.owner, {session}, s.end_position FROM whence.sessions s
WHERE s.workspace_id = %(workspace_id)s AND s.owner = %(owner)s AND s.agent = %(agent)s
  AND s.session_id = %(session_id)s AND s.number = %(number)s;

-- name: stretches_to_close
-- What has ended, and what has been idle for as long as it may be, the longest first.
SELECT s.owner, s.agent, s.session_id, s.number FROM whence.sessions s
WHERE s.workspace_id = %(workspace_id)s AND s.closed_at IS NULL
  AND (s.ended_at IS NOT NULL OR s.last_activity_at <= %(now)s::timestamptz - make_interval(days => s.idle_days))
ORDER BY s.last_activity_at LIMIT %(limit)s::bigint;

-- name: workspaces_to_close
SELECT DISTINCT s.workspace_id FROM whence.sessions s
WHERE s.closed_at IS NULL
  AND (s.ended_at IS NOT NULL OR s.last_activity_at <= %(now)s::timestamptz - make_interval(days => s.idle_days));

-- name: rows_of_stretch
-- What ends with its session, and whether an action holds it; with the number of sources that agree on what it says, in
-- this session and elsewhere.
SELECT m.memory_id, m.tier, m.kind, m.subject_id, whence.is_held(m.workspace_id, m.memory_id), (
    SELECT count(DISTINCT (c.role, c.source)) FROM whence.memory_sources c
    WHERE c.workspace_id = m.workspace_id AND c.memory_id IN (
        SELECT m.memory_id
        UNION ALL
        SELECT o.memory_id FROM whence.memories o
        WHERE o.conflict_key = m.conflict_key AND o.workspace_id = m.workspace_id AND o.owner = m.owner
          AND o.agent = m.agent AND o.object_key = m.object_key AND o.kind = m.kind AND o.deleted_at IS NULL
    )
)
FROM whence.memories m
WHERE m.session_id = %(session_id)s AND m.workspace_id = %(workspace_id)s AND m.position >= %(first)s::bigint
  AND m.position <= %(until)s::bigint AND m.owner = %(owner)s AND m.agent = %(agent)s
  AND m.tier <> 'persistent' AND m.deleted_at IS NULL AND m.archived_at IS NULL
ORDER BY m.position LIMIT %(limit)s::bigint;

-- name: texts_of
SELECT m.memory_id, m.body, m.subject_id, m.world_id_context, m.fact_subject, m.fact_predicate, m.fact_object,
    m.confidence, m.importance, m.valid_at
FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[])
ORDER BY m.position;

-- name: telling_texts
-- The most important of these, in order.
SELECT l.body FROM (
    SELECT m.body, m.position FROM whence.memories m
    WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[])
    ORDER BY m.importance DESC, m.told_count DESC, m.position DESC LIMIT %(limit)s::bigint
) l ORDER BY l.position;

-- name: episodes_of_stretches
-- What was done in a stretch and in those that this user began before it with this agent, in order, of one subject: what
-- is found in them is kept under that subject's key.
SELECT l.session_id, l.number, m.memory_id, m.body
FROM (
    SELECT s.session_id, s.number, s.first_position, s.end_position FROM whence.sessions s
    WHERE s.workspace_id = %(workspace_id)s AND s.owner = %(owner)s AND s.agent = %(agent)s
      AND s.first_position <= %(first)s::bigint
    ORDER BY s.first_position DESC LIMIT %(sessions)s::bigint
) l
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m
    WHERE m.session_id = l.session_id AND m.workspace_id = %(workspace_id)s AND m.position >= l.first_position
      AND m.position < coalesce(l.end_position, %(until)s::bigint + 1)
      AND m.owner = %(owner)s AND m.agent = %(agent)s AND m.subject_id = %(subject)s
      AND m.kind = 'episodic' AND m.deleted_at IS NULL AND m.body <> ''
    ORDER BY m.position DESC LIMIT %(steps)s::bigint
) m
ORDER BY l.first_position DESC, m.position;

-- name: routines_known
SELECT m.conflict_key, m.support FROM whence.memories m
WHERE m.conflict_key = ANY (%(keys)s::text[]) AND m.workspace_id = %(workspace_id)s AND m.owner = %(owner)s
  AND m.agent = %(agent)s AND m.kind = 'procedural' AND m.superseded_at IS NULL AND m.deleted_at IS NULL;

-- name: hold_head
-- While it is held, nothing is appended to the workspace.
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s FOR UPDATE;

-- name: head
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s;
