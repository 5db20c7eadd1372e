-- The statements of the lifecycle. What is written goes through whence.memory_apply (see the ledger's `apply_effects`).

-- name: owners_of_cited
-- Of these ids, the events and memories that may be seen, each with whose it is.
SELECT m.memory_id, m.user_id FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[])
  AND (%(user_id)s::text IS NULL OR m.owner = ANY (ARRAY['', %(user_id)s::text]))
UNION ALL
SELECT e.event_id, e.user_id FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s AND e.event_id = ANY (%(ids)s::uuid[])
  AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s)
  AND NOT EXISTS (
    SELECT 1 FROM whence.memories m WHERE m.workspace_id = e.workspace_id AND m.memory_id = e.event_id
  );

-- fragment: action
-- The fields of wire.Action, in order, of the actions that may be seen.
SELECT a.action_id, a.position, a.kind, a.user_id, a.recorded_at, ARRAY(
    SELECT c.cited FROM whence.action_cites c
    WHERE c.workspace_id = a.workspace_id AND c.action_id = a.action_id ORDER BY c.place
)
FROM whence.actions a
WHERE a.workspace_id = %(workspace_id)s AND (%(user_id)s::text IS NULL OR a.user_id = %(user_id)s)

-- name: action_by_id
{action} AND a.action_id = %(action_id)s;

-- name: actions_page
-- The newest first. What is not asked about is NULL.
{action}
  AND (%(kind)s::text IS NULL OR a.kind = %(kind)s)
  AND (%(before)s::bigint IS NULL OR a.position < %(before)s::bigint)
  AND (%(cites)s::uuid IS NULL OR a.action_id = ANY (ARRAY(
    SELECT c.action_id FROM whence.action_cites c WHERE c.workspace_id = %(workspace_id)s AND c.cited = %(cites)s::uuid
  )))
ORDER BY a.position DESC LIMIT %(limit)s::bigint;

-- fragment: due
-- What is past its active days, to be tombstoned, and what is past its grace, to be disposed of; each with whether
-- something keeps it. A rule comes with the moments before which the one or the other is over.
WITH rules AS (
    SELECT * FROM unnest(
        %(profiles)s::text[], %(entities)s::text[], %(kinds)s::text[], %(classes)s::text[], %(timers)s::text[],
        %(disposals)s::text[], %(active_before)s::timestamptz[], %(grace_before)s::timestamptz[]
    ) AS r (profile, entity, kind, content_class, timer, disposal, active_before, grace_before)
), due AS (
    SELECT m.*, r.content_class, CASE WHEN m.deleted_at IS NULL THEN 'TOMBSTONE' ELSE r.disposal END AS becomes,
        CASE WHEN m.deleted_at IS NOT NULL THEN m.deleted_at WHEN r.timer = 'recorded_at' THEN m.recorded_at
            ELSE greatest(m.invalid_at, m.invalidated_at, m.recorded_at) END AS since,
        CASE WHEN whence.is_held(m.workspace_id, m.memory_id) THEN 'an action cites it'
            WHEN whence.is_derived_from(m.workspace_id, m.memory_id, 9223372036854775807)
                THEN 'a memory was derived from it' END AS kept_by
    FROM whence.memories m
    JOIN rules r ON r.kind = m.kind
      AND r.entity = CASE m.tier WHEN 'persistent' THEN 'memory' ELSE 'scoped_memory' END
      AND r.profile = CASE WHEN m.profile = ANY (%(profiles)s::text[]) THEN m.profile ELSE '' END
    WHERE m.workspace_id = %(workspace_id)s AND m.stripped_at IS NULL AND (
        m.deleted_at <= r.grace_before
        OR (m.deleted_at IS NULL AND r.timer = 'recorded_at' AND m.recorded_at <= r.active_before)
        OR (m.deleted_at IS NULL AND r.timer = 'invalid_at' AND m.invalid_at IS NOT NULL
            AND greatest(m.invalid_at, m.invalidated_at, m.recorded_at) <= r.active_before)
    )
)

-- name: due
-- The oldest first, those that something keeps too: with what becomes of them, and why not.
{due}
SELECT d.memory_id, d.becomes, d.content_class, d.since, d.kept_by, d.agent, d.kind, d.user_id, left(d.body, 200)
FROM due d ORDER BY d.kept_by IS NOT NULL, d.position LIMIT %(limit)s::bigint;

-- name: due_totals
{due}
SELECT d.becomes, d.content_class, d.kept_by, count(*) FROM due d GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: expired
-- What is to be tombstoned now, with what an archive keeps of it.
{due}
SELECT d.memory_id, d.position, d.user_id, d.subject_id, d.said_by, d.agent, d.profile, d.tier, d.kind, d.session_id,
    d.interaction_id, d.run_id, d.world_id_context, d.body, d.fact_subject, d.fact_predicate, d.fact_object,
    d.confidence, d.importance, d.valid_at, d.invalid_at, d.recorded_at, d.told_count, d.access_count, d.accessed_at
FROM due d WHERE d.becomes = 'TOMBSTONE' AND d.kept_by IS NULL ORDER BY d.position LIMIT %(limit)s::bigint;

-- name: disposable
-- What is to be disposed of now: the positions of the events that told it, and others that were told in its place, so
-- many that there is one that is not disposed of now, if there is any.
{due}
SELECT d.memory_id, d.becomes, ARRAY(
    SELECT d.position UNION ALL
    SELECT t.position FROM whence.memory_tellings t WHERE t.workspace_id = d.workspace_id AND t.memory_id = d.memory_id
), ARRAY(
    SELECT o.memory_id FROM whence.memories o
    WHERE o.workspace_id = d.workspace_id AND o.owner = d.owner AND o.agent = d.agent AND o.tier = d.tier
      AND o.anchor = d.anchor AND o.kind = d.kind AND o.conflict_key = d.conflict_key AND o.memory_id <> d.memory_id
    ORDER BY o.position DESC LIMIT %(limit)s::bigint
)
FROM due d WHERE d.becomes <> 'TOMBSTONE' AND d.kept_by IS NULL ORDER BY d.position LIMIT %(limit)s::bigint;

-- name: orphans
SELECT s.id, m.agent, m.kind, m.user_id, left(m.body, 200), count(*) OVER ()
FROM whence.retention_states s
JOIN whence.memories m ON m.workspace_id = s.workspace_id AND m.memory_id = s.id
WHERE s.workspace_id = %(workspace_id)s AND s.state = 'ORPHANED'
ORDER BY m.position LIMIT %(limit)s::bigint;

-- name: state_of
SELECT s.entity, s.state FROM whence.retention_states s
WHERE s.workspace_id = %(workspace_id)s AND s.id = %(memory_id)s;

-- name: held_by
-- The actions that cite it, or an event that told it again.
SELECT a.action_id FROM whence.actions a
WHERE a.workspace_id = %(workspace_id)s AND (%(user_id)s::text IS NULL OR a.user_id = %(user_id)s)
  AND a.action_id = ANY (ARRAY(
    SELECT c.action_id FROM whence.action_cites c WHERE c.workspace_id = %(workspace_id)s AND c.cited = ANY (ARRAY(
        SELECT %(memory_id)s::uuid UNION ALL
        SELECT t.event_id FROM whence.memory_tellings t
        WHERE t.workspace_id = %(workspace_id)s AND t.memory_id = %(memory_id)s
    ))
  ))
ORDER BY a.position LIMIT %(limit)s::bigint;

-- name: workspaces
-- Run as whence_worker.
SELECT workspace_id FROM whence.workspaces ORDER BY workspace_id;
