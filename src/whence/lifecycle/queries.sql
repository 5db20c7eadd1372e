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
  AND (%(user_id)s::text IS NULL OR s.owner = ANY (ARRAY['', %(user_id)s::text]))
  AND (%(agent)s::text IS NULL OR s.agent = %(agent)s)
ORDER BY s.owner, s.agent, s.closed_at IS NULL, s.number DESC;

-- name: stretch
SELECT s.owner, {session}, s.end_position FROM whence.sessions s
WHERE s.workspace_id = %(workspace_id)s AND s.owner = %(owner)s AND s.agent = %(agent)s
  AND s.session_id = %(session_id)s AND s.number = %(number)s;

-- name: stretches_to_close
-- What has ended, and what has been idle for as long as it may be, the longest first; past the one that is named.
SELECT s.last_activity_at, s.owner, s.agent, s.session_id, s.number FROM (
    SELECT s.* FROM whence.sessions s
    WHERE s.workspace_id = %(workspace_id)s AND s.closed_at IS NULL AND s.ended_at IS NOT NULL
    UNION ALL
    SELECT s.* FROM whence.sessions s
    WHERE s.workspace_id = %(workspace_id)s AND s.closed_at IS NULL AND s.ended_at IS NULL
      AND s.idle_until <= %(now)s::timestamptz AT TIME ZONE 'UTC'
) s
WHERE %(active_at)s::timestamptz IS NULL OR (s.last_activity_at, s.owner, s.agent, s.session_id, s.number)
    > (%(active_at)s::timestamptz, %(owner)s::text, %(agent)s::text, %(session_id)s::text, %(number)s::integer)
ORDER BY s.last_activity_at, s.owner, s.agent, s.session_id, s.number LIMIT %(limit)s::bigint;

-- name: workspaces_to_close
-- Run as whence_worker.
SELECT s.workspace_id FROM whence.sessions s WHERE s.closed_at IS NULL AND s.ended_at IS NOT NULL
UNION
SELECT s.workspace_id FROM whence.sessions s
WHERE s.closed_at IS NULL AND s.ended_at IS NULL AND s.idle_until <= %(now)s::timestamptz AT TIME ZONE 'UTC';

-- fragment: rows_of_stretch
-- What ends with its session.
FROM whence.memories m
WHERE m.session_id = %(session_id)s AND m.workspace_id = %(workspace_id)s AND m.position >= %(first)s::bigint
  AND m.position <= %(until)s::bigint AND m.owner = %(owner)s AND m.agent = %(agent)s
  AND m.tier <> 'persistent' AND m.deleted_at IS NULL AND m.archived_at IS NULL
ORDER BY m.position LIMIT %(limit)s::bigint

-- name: rows_of_stretch
-- With whether an action holds it.
SELECT m.memory_id, m.tier, m.kind, m.subject_id, whence.is_held(m.workspace_id, m.memory_id) {rows_of_stretch};

-- name: tellings
-- Of each semantic row: what was told of the same thing by whom it is the memory of, in any session, and of a fact in any
-- tier, what persists and then the last ones; whether it says the same; and by which sources, who told it and then the last
-- ones. What a close has removed is there until it is disposed of, and counts; what somebody forgot does not. What comes
-- from a memory of theirs that says the same is no source, in whatever tier that is, be it forgotten or over; what comes
-- from another one is that one's word, by whichever recall it was found.
SELECT m.memory_id, o.memory_id, o.position, o.is_same, o.is_persistent, o.valid_at, o.confidence,
    CASE WHEN o.is_same THEN ARRAY(
    SELECT DISTINCT CASE WHEN c.origin IS NULL THEN c.role || ' ' || c.source ELSE 'memory ' || c.origin END
    FROM (
        SELECT c.role, c.source, c.origin, coalesce(c.origin, CASE c.role WHEN 'memory' THEN c.source::uuid END) AS known
        FROM whence.memory_all_sources c
        WHERE c.workspace_id = %(workspace_id)s AND c.memory_id = o.memory_id
        ORDER BY c.role = 'told' DESC, c.position DESC LIMIT %(sources)s::bigint
    ) c
    LEFT JOIN LATERAL (
        SELECT * FROM whence.memories x
        WHERE x.workspace_id = %(workspace_id)s AND x.memory_id = c.known OFFSET 0
    ) x ON true
    WHERE NOT coalesce(x.owner = m.owner AND x.agent = m.agent AND x.kind = 'semantic'
        AND x.object_key IS NOT DISTINCT FROM m.object_key AND x.conflict_key IS NOT DISTINCT FROM m.conflict_key
        AND (m.conflict_key IS NOT NULL OR x.body_hash = m.body_hash), false)
) ELSE '{}' END
FROM (SELECT m.* {rows_of_stretch}) m
CROSS JOIN LATERAL (
    SELECT o.memory_id, o.position, o.object_key IS NOT DISTINCT FROM m.object_key AS is_same, o.is_persistent, o.valid_at,
        o.confidence
    FROM (
        -- In order first, so that the sessions of the last ones alone are looked up.
        SELECT o.*, o.tier = 'persistent' AS is_persistent FROM (
            SELECT * FROM whence.memories o
            WHERE o.conflict_key = m.conflict_key AND o.workspace_id = %(workspace_id)s AND o.owner = m.owner
              AND o.agent = m.agent AND o.kind = 'semantic'
            UNION ALL
            SELECT * FROM whence.memories o
            WHERE m.conflict_key IS NULL AND o.body_hash = m.body_hash AND o.workspace_id = %(workspace_id)s
              AND o.owner = m.owner AND o.agent = m.agent AND o.kind = 'semantic' AND o.conflict_key IS NULL
              AND o.tier <> 'persistent'
            UNION ALL
            -- One at the most, by the index that keeps it one: whose it is must not lead to all that is theirs.
            SELECT * FROM whence.memories o
            WHERE m.conflict_key IS NULL AND o.body_hash = m.body_hash AND o.workspace_id = %(workspace_id)s
              AND o.owner || '' = m.owner AND o.agent = m.agent AND o.kind = 'semantic' AND o.conflict_key IS NULL
              AND o.tier = 'persistent' AND o.anchor = '' AND o.invalid_at IS NULL AND o.superseded_at IS NULL
              AND o.deleted_at IS NULL AND o.archived_at IS NULL
        ) o
        WHERE o.invalid_at IS NULL AND o.stripped_at IS NULL AND (o.deleted_at IS NULL OR o.archived_at IS NULL)
        ORDER BY is_persistent DESC, o.position DESC OFFSET 0
    ) o
    WHERE o.deleted_at IS NULL OR EXISTS (
        SELECT FROM whence.sessions s
        WHERE s.workspace_id = o.workspace_id AND s.owner = o.owner AND s.agent = o.agent
          AND s.session_id = o.session_id AND s.closed_at = o.deleted_at
    )
    LIMIT %(tellings)s::bigint
) o
WHERE m.kind = 'semantic';

-- name: canon_repeated
-- Which of these texts the guard of the canon would refuse in their worlds, by their places, and for which rule.
SELECT r.place, r.rule_id FROM whence.canon_repeated(%(worlds)s::text[], %(texts)s::text[]) r;

-- name: known
-- For each of these documents that repeats a memory, that memory and what it says: what whence.memory_remember will find,
-- and have the guard of the canon look at again.
SELECT r.event_id, o.memory_id, o.body, o.fact_object
FROM jsonb_populate_recordset(NULL::whence.remembered, %(documents)s::jsonb) r
CROSS JOIN LATERAL (
    SELECT o.memory_id, o.body, o.fact_object FROM whence.memories o
    WHERE o.conflict_key = r.conflict_key AND o.workspace_id = %(workspace_id)s AND o.owner = coalesce(r.user_id, '')
      AND o.agent = r.agent AND o.tier = r.tier AND o.kind = r.kind AND o.object_key = r.object_key
      AND o.archived_at IS NULL AND o.superseded_at IS NULL AND o.deleted_at IS NULL
      AND o.valid_at <= coalesce(r.valid_at, 'infinity')
      AND (o.invalid_at IS NULL OR o.invalid_at > coalesce(r.valid_at, 'infinity'))
    UNION ALL
    SELECT o.memory_id, o.body, o.fact_object FROM whence.memories o
    WHERE r.conflict_key IS NULL AND o.body_hash = decode(r.body_hash, 'hex') AND o.workspace_id = %(workspace_id)s
      AND o.owner = coalesce(r.user_id, '') AND o.agent = r.agent AND o.tier = r.tier AND o.anchor = ''
      AND o.kind = r.kind AND o.kind <> 'episodic' AND o.conflict_key IS NULL AND o.archived_at IS NULL
      AND o.deleted_at IS NULL AND o.invalid_at IS NULL AND o.superseded_at IS NULL
    LIMIT 1
) o;

-- name: memories_there
SELECT m.memory_id FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]) AND m.deleted_at IS NULL;

-- name: texts_of
SELECT m.memory_id, m.body, m.subject_id, m.world_id_context, m.fact_subject, m.fact_predicate, m.fact_object,
    m.confidence, m.importance, m.run_id, m.speaker, m.role, m.sanitised::text, m.conflict_key, m.object_key,
    encode(m.body_hash, 'hex')
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

-- name: end_keys
-- Of a user who is to be erased, but for administrators, whose accounts stay.
UPDATE whence.user_keys k SET expires_at = %(now)s
WHERE k.workspace_id = %(workspace_id)s AND k.user_id = %(subject_id)s
  AND (k.expires_at IS NULL OR k.expires_at > %(now)s) AND EXISTS (
    SELECT FROM whence.users u WHERE u.workspace_id = k.workspace_id AND u.user_id = k.user_id AND u.role <> 'admin'
);

-- name: hold_head
-- While it is held, nothing is appended to the workspace.
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s FOR UPDATE;

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
-- What is past its active days, to be tombstoned, and what is past its grace, to be disposed of. A rule comes with the
-- moments before which the one or the other is over. Looked for by what each timer counts from, as late as any rule has
-- it, and then by the rule of each: so that nothing is read while nothing is due. Memories of a profile that there is no
-- more have the rules of the empty name; they are those between the profiles that there are.
WITH rules AS (
    SELECT * FROM unnest(
        %(profiles)s::text[], %(entities)s::text[], %(kinds)s::text[], %(classes)s::text[], %(timers)s::text[],
        %(disposals)s::text[], %(active_before)s::timestamptz[], %(grace_before)s::timestamptz[]
    ) AS r (profile, entity, kind, content_class, timer, disposal, active_before, grace_before)
), gaps AS (
    SELECT p.profile AS above, lead(p.profile) OVER (ORDER BY p.profile) AS below
    FROM (SELECT DISTINCT r.profile FROM rules r) p
), past AS (
    SELECT m.memory_id, m.position, m.profile, m.kind, m.tier, m.deleted_at, m.recorded_at AS since,
        'recorded_at' AS timer
    FROM rules r
    CROSS JOIN LATERAL (
        SELECT * FROM whence.memories m
        WHERE m.profile = r.profile AND m.kind = r.kind AND m.workspace_id = %(workspace_id)s
          AND m.recorded_at <= r.active_before AND m.recorded_at > '-infinity' AND m.tier = 'persistent'
          AND m.deleted_at IS NULL
        UNION ALL
        SELECT m.* FROM gaps g
        CROSS JOIN LATERAL (
            SELECT * FROM whence.memories m
            WHERE m.profile > g.above AND m.profile < g.below AND m.kind = r.kind AND m.workspace_id = %(workspace_id)s
              AND m.recorded_at <= r.active_before AND m.recorded_at > '-infinity' AND m.tier = 'persistent'
              AND m.deleted_at IS NULL OFFSET 0
        ) m
        WHERE r.profile = ''
        UNION ALL
        SELECT * FROM whence.memories m
        WHERE r.profile = '' AND m.profile > (SELECT max(g.above) FROM gaps g) AND m.kind = r.kind
          AND m.workspace_id = %(workspace_id)s AND m.recorded_at <= r.active_before AND m.recorded_at > '-infinity'
          AND m.tier = 'persistent' AND m.deleted_at IS NULL
    ) m
    WHERE r.entity = 'memory' AND r.timer = 'recorded_at'
    UNION ALL
    SELECT m.memory_id, m.position, m.profile, m.kind, m.tier, m.deleted_at,
        greatest(m.invalid_at, m.invalidated_at, m.recorded_at), 'invalid_at'
    FROM whence.memories m
    WHERE greatest(m.invalid_at, m.invalidated_at, m.recorded_at) <= (
        SELECT max(r.active_before) FROM rules r WHERE r.timer = 'invalid_at'
    ) AND m.workspace_id = %(workspace_id)s AND m.invalid_at IS NOT NULL AND m.tier = 'persistent'
      AND m.deleted_at IS NULL
    UNION ALL
    SELECT m.memory_id, m.position, m.profile, m.kind, m.tier, m.deleted_at, m.archived_at, 'archived_at'
    FROM whence.memories m
    WHERE m.archived_at <= (SELECT max(r.active_before) FROM rules r WHERE r.timer = 'archived_at')
      AND m.workspace_id = %(workspace_id)s AND m.archived_at IS NOT NULL AND m.deleted_at IS NULL
    UNION ALL
    SELECT m.memory_id, m.position, m.profile, m.kind, m.tier, m.deleted_at, m.deleted_at, NULL
    FROM whence.memories m
    WHERE m.deleted_at <= (SELECT max(r.grace_before) FROM rules r) AND m.workspace_id = %(workspace_id)s
      AND m.deleted_at IS NOT NULL AND m.stripped_at IS NULL
), due AS (
    SELECT p.memory_id, p.position, p.since, r.content_class,
        CASE WHEN p.deleted_at IS NULL THEN 'TOMBSTONE' ELSE r.disposal END AS becomes
    FROM past p
    JOIN rules r ON r.kind = p.kind
      AND r.entity = CASE p.tier WHEN 'persistent' THEN 'memory' ELSE 'scoped_memory' END
      AND r.profile = CASE WHEN p.profile = ANY (%(profiles)s::text[]) THEN p.profile ELSE '' END
      AND CASE WHEN p.timer IS NULL THEN p.since <= r.grace_before
            ELSE r.timer = p.timer AND p.since <= r.active_before END
)

-- fragment: kept_by
-- Why d is kept all the same.
CASE WHEN whence.is_held(%(workspace_id)s, d.memory_id) THEN 'an action cites it'
    WHEN whence.is_derived_from(%(workspace_id)s, d.memory_id, 9223372036854775807)
        THEN 'a memory was derived from it' END

-- fragment: to_do
-- The first that nothing keeps: whether something does is looked at one after the other, until there are enough.
picked AS (
    SELECT d.* FROM (
        SELECT * FROM due d WHERE (d.becomes = 'TOMBSTONE') = %(tombstone)s::boolean ORDER BY d.position OFFSET 0
    ) d
    WHERE {kept_by} IS NULL LIMIT %(limit)s::bigint
)

-- name: due
-- The oldest first, those that something keeps too: with what becomes of them, and why not.
{due}, told AS (SELECT d.*, {kept_by} AS kept_by FROM due d)
SELECT d.memory_id, d.becomes, d.content_class, d.since, d.kept_by, m.agent, m.kind, m.user_id,
    left(m.body, %(text)s::integer)
FROM (
    SELECT * FROM told d ORDER BY d.kept_by IS NOT NULL, d.position LIMIT %(limit)s::bigint
) d
JOIN whence.memories m ON m.workspace_id = %(workspace_id)s AND m.memory_id = d.memory_id
ORDER BY d.kept_by IS NOT NULL, d.position;

-- name: due_totals
{due}
SELECT d.becomes, d.content_class, {kept_by}, count(*) FROM due d GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: expired
-- What is to be tombstoned now, with what an archive keeps of it.
{due}, {to_do}
SELECT m.memory_id, m.position, m.user_id, m.subject_id, m.said_by, m.agent, m.profile, m.tier, m.kind, m.session_id,
    m.interaction_id, m.run_id, m.world_id_context, m.body, m.fact_subject, m.fact_predicate, m.fact_object,
    m.confidence, m.importance, m.valid_at, m.invalid_at, m.recorded_at, m.told_count, m.access_count, m.accessed_at
FROM picked d JOIN whence.memories m ON m.workspace_id = %(workspace_id)s AND m.memory_id = d.memory_id
ORDER BY m.position;

-- name: disposable
-- What is to be disposed of now: the positions of the events that told it, and others that were told in its place, so
-- many that there is one that is not disposed of now, if there is any.
{due}, {to_do}
SELECT m.memory_id, d.becomes, ARRAY(
    SELECT m.position UNION ALL
    SELECT t.position FROM whence.memory_tellings t WHERE t.workspace_id = m.workspace_id AND t.memory_id = m.memory_id
), ARRAY(
    SELECT o.memory_id FROM whence.memories o
    WHERE o.workspace_id = m.workspace_id AND o.owner = m.owner AND o.agent = m.agent AND o.tier = m.tier
      AND o.anchor = m.anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.memory_id <> m.memory_id
    ORDER BY o.position DESC LIMIT %(limit)s::bigint
)
FROM picked d JOIN whence.memories m ON m.workspace_id = %(workspace_id)s AND m.memory_id = d.memory_id
ORDER BY m.position;

-- name: orphans
-- Only what was derived from a memory that is not there any more can be one.
SELECT s.id, m.agent, m.kind, m.user_id, left(m.body, %(text)s::integer), count(*) OVER ()
FROM (
    SELECT DISTINCT d.memory_id FROM whence.memory_sources d
    WHERE d.workspace_id = %(workspace_id)s AND d.role = 'memory' AND d.told_at > '-infinity' AND NOT EXISTS (
        SELECT FROM whence.memories o
        WHERE o.workspace_id = %(workspace_id)s AND o.deleted_at IS NULL
          AND o.memory_id = CASE d.role WHEN 'memory' THEN d.source::uuid END
        OFFSET 0
    )
) d
CROSS JOIN LATERAL (
    SELECT * FROM whence.retention_states s
    WHERE s.workspace_id = %(workspace_id)s AND s.id = d.memory_id AND s.state = 'ORPHANED' OFFSET 0
) s
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = s.id OFFSET 0
) m
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

-- fragment: idle
-- Conversations in which nothing was said for as long as their policy has it. A broadcast never is one.
SELECT c.conversation_id, c.user_id, c.message_count, c.active_at FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.active_at <= %(active_before)s::timestamptz AND c.deleted_at IS NULL
  AND c.user_id IS NOT NULL AND c.active_at > '-infinity'

-- fragment: tombstoned
-- Conversations past their grace.
SELECT c.conversation_id, c.user_id, c.message_count, c.deleted_at, c.position FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.deleted_at <= %(grace_before)s::timestamptz
  AND c.deleted_at > '-infinity'

-- name: conversations_due
-- The oldest first, those that something keeps too: with what becomes of them, and why not.
SELECT c.conversation_id, c.becomes, c.since, c.kept_by, c.user_id, c.message_count FROM (
    SELECT c.*, CASE WHEN whence.is_conversation_held(%(workspace_id)s, c.conversation_id)
        THEN 'an action cites it' END AS kept_by
    FROM (
        SELECT c.conversation_id, 'TOMBSTONE' AS becomes, c.active_at AS since, c.user_id, c.message_count
        FROM ({idle}) c
        UNION ALL
        SELECT c.conversation_id, 'HARD_DELETE', c.deleted_at, c.user_id, c.message_count FROM ({tombstoned}) c
    ) c
) c
ORDER BY c.kept_by IS NOT NULL, c.since LIMIT %(limit)s::bigint;

-- name: conversations_idle
-- To be tombstoned, the oldest first, with how many messages they have.
SELECT c.conversation_id, c.message_count FROM ({idle} ORDER BY c.active_at OFFSET 0) c
WHERE NOT whence.is_conversation_held(%(workspace_id)s, c.conversation_id) LIMIT %(limit)s::bigint;

-- name: conversations_still_idle
-- Of those that were found, each by its id: OFFSET 0 keeps the planner from reading all that are idle, or all there are,
-- while the head is held.
SELECT c.conversation_id FROM unnest(%(ids)s::uuid[]) k (conversation_id)
CROSS JOIN LATERAL (
    SELECT * FROM whence.conversations c
    WHERE c.workspace_id = %(workspace_id)s AND c.conversation_id = k.conversation_id OFFSET 0
) c
WHERE c.active_at <= %(active_before)s::timestamptz AND c.deleted_at IS NULL AND c.user_id IS NOT NULL
  AND NOT whence.is_conversation_held(%(workspace_id)s, c.conversation_id);

-- name: conversations_tombstoned
-- To be removed, with the positions of the events whose payloads are theirs.
SELECT c.conversation_id, ARRAY(
    SELECT c.position UNION ALL
    SELECT m.position FROM whence.conversation_messages m
    WHERE m.workspace_id = %(workspace_id)s AND m.conversation_id = c.conversation_id AND NOT m.is_copy
)
FROM ({tombstoned} ORDER BY c.deleted_at OFFSET 0) c
WHERE NOT whence.is_conversation_held(%(workspace_id)s, c.conversation_id) LIMIT %(limit)s::bigint;

-- name: told_in_conversations
-- What an archive keeps of them: what was said in them, and their titles. What a fork copied is the broadcast's.
SELECT m.message_id, m.position, m.user_id, m.role, m.conversation_id, m.recorded_at FROM whence.conversation_messages m
WHERE m.workspace_id = %(workspace_id)s AND m.conversation_id = ANY (%(ids)s::uuid[]) AND NOT m.is_copy
UNION ALL
SELECT c.conversation_id, c.position, c.user_id, NULL, c.conversation_id, c.started_at FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.conversation_id = ANY (%(ids)s::uuid[]) AND c.titled_at = c.position
ORDER BY position;

-- name: conversations_of
SELECT c.conversation_id FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.user_id = %(subject_id)s;

-- name: workspaces
-- Run as whence_worker.
SELECT workspace_id FROM whence.workspaces ORDER BY workspace_id;

-- name: become_eraser
-- For the rest of the transaction: it may delete payloads, keys and accounts of its workspace too.
SET LOCAL ROLE whence_eraser;

-- name: erase_alone
-- Whoever writes what they have read of payloads ends first, or finds them gone; so does whoever writes to a thread of
-- the subject.
SELECT pg_advisory_xact_lock(hashtextextended('whence erases ' || %(workspace_id)s::text, 0)),
    pg_advisory_xact_lock(hashtextextended(concat_ws(' ', 'whence erases', %(workspace_id)s::text, %(subject_id)s::text), 0));

-- name: erase_rows
SELECT whence.erase_rows(%(workspace_id)s, %(subject_id)s, %(subject_hash)s);

-- name: add_unsettled
INSERT INTO whence.erasures_unsettled (workspace_id, erasure_id, since, shredded)
VALUES (%(workspace_id)s, %(erasure_id)s, %(now)s, %(shredded)s::jsonb);

-- name: is_unsettled
SELECT EXISTS (
    SELECT FROM whence.erasures_unsettled u
    JOIN whence.erasures e ON e.workspace_id = u.workspace_id AND e.erasure_id = u.erasure_id
    WHERE u.workspace_id = %(workspace_id)s AND e.subject_hash = %(subject_hash)s
);

-- name: unsettled
SELECT erasure_id, shredded FROM whence.erasures_unsettled WHERE workspace_id = %(workspace_id)s ORDER BY since;

-- name: settled
DELETE FROM whence.erasures_unsettled
WHERE workspace_id = %(workspace_id)s AND erasure_id = ANY (%(erasure_ids)s::uuid[]);

-- name: unsettled_due
-- Workspaces with an erasure that whoever began it has not ended. Run as whence_worker.
SELECT w.workspace_id FROM whence.workspaces w
WHERE EXISTS (
    SELECT FROM whence.erasures_unsettled u WHERE u.workspace_id = w.workspace_id AND u.since <= %(before)s
);

-- name: erased_since
SELECT EXISTS (SELECT FROM whence.erasures WHERE workspace_id = %(workspace_id)s AND erased_at >= %(since)s::timestamptz);

-- name: settle_alone
-- Two that settle the same workspace would build beside each other; the second waits.
SELECT pg_advisory_xact_lock(hashtextextended('whence settles ' || %(workspace_id)s::text, 0));

-- fragment: erasure
SELECT e.erasure_id, e.position, e.subject_hash, e.erased_at, e.erased_by, e.document::text, NOT EXISTS (
    SELECT FROM whence.erasures_unsettled u WHERE u.workspace_id = e.workspace_id AND u.erasure_id = e.erasure_id
)
FROM whence.erasures e WHERE e.workspace_id = %(workspace_id)s

-- name: erasure_by_id
{erasure} AND e.erasure_id = %(erasure_id)s;

-- name: last_erasure_of
{erasure} AND e.subject_hash = %(subject_hash)s ORDER BY e.position DESC LIMIT 1;

-- name: keys_left
SELECT
    (SELECT count(*) FROM whence.subject_keys WHERE workspace_id = %(workspace_id)s AND key_id = ANY (%(key_ids)s::uuid[])),
    (SELECT count(*) FROM whence.payloads WHERE workspace_id = %(workspace_id)s AND key_id = ANY (%(key_ids)s::uuid[]));

-- name: named_before
-- Everybody whose data an event up to then may be.
SELECT DISTINCT coalesce(subject_id, user_id) FROM whence.events
WHERE workspace_id = %(workspace_id)s AND global_position <= %(position)s::bigint
  AND coalesce(subject_id, user_id) IS NOT NULL;

-- name: subject_rows
SELECT r.name, r.rows FROM whence.subject_rows(
    %(workspace_id)s, %(subject_id)s, %(position)s::bigint, %(until)s::timestamptz
) r;

-- name: subject_events
-- In order. What is exported is walked through by these.
SELECT s.at_position, s.event_id FROM whence.subject_events(%(workspace_id)s, %(subject_id)s, %(upto)s::bigint) s
ORDER BY s.at_position;

-- name: export_memories
SELECT ((to_jsonb(m) - ARRAY['workspace_id', 'owner', 'anchor', 'body_hash', 'object_key', 'teller'])
    || jsonb_build_object(
        'location', (
            SELECT c.location FROM whence.resource_chunks c
            WHERE c.workspace_id = m.workspace_id AND c.memory_id = m.memory_id),
        'sources', (
            SELECT coalesce(jsonb_agg(to_jsonb(s) - ARRAY['workspace_id', 'memory_id'] ORDER BY s.position, s.source), '[]')
            FROM whence.memory_all_sources s WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id),
        'recalls', (
            SELECT coalesce(jsonb_agg(h.recall_id ORDER BY h.recall_id), '[]')
            FROM whence.recall_hits h WHERE h.workspace_id = m.workspace_id AND h.memory_id = m.memory_id)))::text
FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(event_ids)s::uuid[]) ORDER BY m.position;

-- name: export_items
-- What holds now; what was there before is in the payloads of events.
SELECT (to_jsonb(i) - ARRAY['workspace_id', 'owner', 'conflict_key', 'path'])::text FROM whence.items i
WHERE i.workspace_id = %(workspace_id)s AND i.memory_id = ANY (%(event_ids)s::uuid[]) ORDER BY i.position;

-- name: export_resources
SELECT (to_jsonb(r) - 'workspace_id')::text FROM whence.resources r
WHERE r.workspace_id = %(workspace_id)s AND r.resource_id = ANY (%(event_ids)s::uuid[]) ORDER BY r.position;

-- name: export_conversations
-- Who said what when; the words are in the payloads of the events. What a fork copied is the workspace's.
SELECT (to_jsonb(c) - ARRAY['workspace_id', 'max_messages'] || jsonb_build_object('messages', (
    SELECT coalesce(jsonb_agg(to_jsonb(m) - ARRAY['workspace_id', 'conversation_id', 'user_id'] ORDER BY m.place), '[]')
    FROM whence.conversation_messages m
    WHERE m.workspace_id = c.workspace_id AND m.conversation_id = c.conversation_id)))::text
FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.conversation_id = ANY (%(event_ids)s::uuid[]) ORDER BY c.position;

-- name: export_uploads
-- Files that are still to be read, part by part.
SELECT u.resource_id, u.part FROM whence.resource_uploads u
WHERE u.workspace_id = %(workspace_id)s AND u.user_id = %(subject_id)s ORDER BY u.resource_id, u.part;

-- name: export_upload
SELECT u.ciphertext FROM whence.resource_uploads u
WHERE u.workspace_id = %(workspace_id)s AND u.resource_id = %(resource_id)s AND u.part = %(part)s;

-- name: export_recalls
SELECT (to_jsonb(r) - 'workspace_id' || jsonb_build_object('hits', (
    SELECT coalesce(jsonb_agg(h.memory_id ORDER BY h.rank), '[]')
    FROM whence.recall_hits h WHERE h.workspace_id = r.workspace_id AND h.recall_id = r.recall_id)))::text
FROM whence.recalls r
WHERE r.workspace_id = %(workspace_id)s AND r.recall_id = ANY (%(event_ids)s::uuid[]) ORDER BY r.position;

-- name: export_actions
SELECT (to_jsonb(a) - 'workspace_id' || jsonb_build_object('cites', (
    SELECT coalesce(jsonb_agg(c.cited ORDER BY c.place), '[]')
    FROM whence.action_cites c WHERE c.workspace_id = a.workspace_id AND c.action_id = a.action_id)))::text
FROM whence.actions a
WHERE a.workspace_id = %(workspace_id)s AND a.action_id = ANY (%(event_ids)s::uuid[]) ORDER BY a.position;

-- name: export_sessions
-- By the event that opened it, which is the subject's.
SELECT (to_jsonb(s) - ARRAY['workspace_id', 'owner', 'idle_until'])::text FROM whence.sessions s
WHERE s.workspace_id = %(workspace_id)s AND s.first_position = ANY (ARRAY(
    SELECT e.global_position FROM whence.events e
    WHERE e.workspace_id = %(workspace_id)s AND e.event_id = ANY (%(event_ids)s::uuid[])))
ORDER BY s.first_position;

-- name: export_runs
SELECT (to_jsonb(r) - ARRAY['workspace_id', 'owner'])::text FROM whence.runs r
WHERE r.workspace_id = %(workspace_id)s AND r.run_id = ANY (%(event_ids)s::uuid[]) ORDER BY r.position;

-- name: export_workflows
SELECT (to_jsonb(w) - ARRAY['workspace_id', 'owner', 'task_key'])::text FROM whence.workflows w
WHERE w.workspace_id = %(workspace_id)s AND w.workflow_id = ANY (%(event_ids)s::uuid[]) ORDER BY w.position;

-- name: export_selections
SELECT (to_jsonb(s) - 'workspace_id')::text FROM whence.workflow_selections s
WHERE s.workspace_id = %(workspace_id)s AND s.selection_id = ANY (%(event_ids)s::uuid[]) ORDER BY s.position;

-- name: export_working
-- A page, past the entry that the last one ended with.
SELECT encode(w.instance_key, 'hex'), w.key,
    (to_jsonb(w) - ARRAY['workspace_id', 'owner', 'instance_key', 'bytes'])::text
FROM whence.working_memory w
WHERE w.workspace_id = %(workspace_id)s AND w.owner = %(subject_id)s
  AND (w.instance_key, w.key) > (decode(%(after_instance)s, 'hex'), %(after_key)s::text)
ORDER BY w.instance_key, w.key LIMIT %(limit)s::bigint;

-- name: export_names
-- A page of the names that the graph found in the subject's payloads, sealed.
SELECT g.node, g.entity_type, g.sealed_name FROM whence.graph_entities g
JOIN whence.graph_builds b ON b.workspace_id = g.workspace_id AND b.build = g.build AND b.live
WHERE g.workspace_id = %(workspace_id)s AND g.subject_id = %(subject_id)s AND g.sealed_name IS NOT NULL
  AND g.node > %(after)s::bigint
ORDER BY g.node LIMIT %(limit)s::bigint;

-- name: export_account
-- The account and its keys, and the key that seals the subject's payloads: their ids, and nothing that opens anything.
SELECT jsonb_build_object('kind', 'user', 'user_id', u.user_id, 'role', u.role, 'created_at', u.created_at)::text
FROM whence.users u WHERE u.workspace_id = %(workspace_id)s AND u.user_id = %(subject_id)s
UNION ALL
SELECT jsonb_build_object(
    'kind', 'user_key', 'key_id', k.key_id, 'created_at', k.created_at, 'expires_at', k.expires_at)::text
FROM whence.user_keys k WHERE k.workspace_id = %(workspace_id)s AND k.user_id = %(subject_id)s
UNION ALL
SELECT jsonb_build_object('kind', 'subject_key', 'key_id', s.key_id, 'created_at', s.created_at)::text
FROM whence.subject_keys s WHERE s.workspace_id = %(workspace_id)s AND s.subject_id = %(subject_id)s;
