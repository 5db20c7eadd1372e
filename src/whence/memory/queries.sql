-- The statements of memory. What is written goes through whence.memory_apply (see the ledger's `apply_effects`).

-- fragment: seen
-- Rows of the user and of the workspace itself; of all users for who asks without one.
(%(user_id)s::text IS NULL OR m.owner = ANY (ARRAY['', %(user_id)s::text]))

-- fragment: memory
-- The fields of wire.StoredMemory, in order.
m.memory_id, m.position, m.agent, m.profile, m.tier, m.kind, m.body, m.user_id, m.session_id, m.interaction_id,
m.run_id, m.world_id_context, m.fact_subject, m.fact_predicate, m.fact_object, m.confidence, m.conflict_key,
m.importance, m.valid_at, m.invalid_at, m.invalidated_at, m.invalidated_by, m.superseded_at, m.superseded_by,
m.recorded_at, m.deleted_at, m.told_count, m.access_count, m.accessed_at, m.said_by, m.sanitised::text, m.archived_at,
m.support, m.speaker, m.role, CASE WHEN m.role = 'document' THEN (
    SELECT c.location::text FROM whence.resource_chunks c WHERE c.workspace_id = m.workspace_id AND c.memory_id = m.memory_id
) END

-- fragment: began
-- From when it holds as far as was known: it may have been told later that it did from earlier on.
CASE WHEN %(known_at)s::timestamptz IS NULL OR m.told_count = 1 THEN m.valid_at ELSE coalesce((
    SELECT max(t.held_from) FROM whence.memory_tellings t
    WHERE t.workspace_id = m.workspace_id AND t.memory_id = m.memory_id AND t.told_at > %(known_at)s::timestamptz
), m.valid_at) END

-- fragment: followed
-- Whether n, of the same key, comes after m in time and ended it when the later of both was told: neither was gone by then.
-- That n was forgotten since brings nothing back.
n.workspace_id = m.workspace_id AND n.owner = m.owner AND n.agent = m.agent
  AND n.conflict_key = m.conflict_key AND n.tier = m.tier AND n.anchor = m.anchor AND n.kind = m.kind
  AND (n.valid_at, n.position) > (m.valid_at, m.position)
  AND coalesce(least(n.deleted_at, n.archived_at) > m.recorded_at, true)
  AND coalesce(m.archived_at > n.recorded_at, true)

-- fragment: held
-- What held at a moment, as far as it was known at another: then nothing that was known came after it.
m.deleted_at IS NULL AND {began} <= %(as_of)s::timestamptz
  AND (m.archived_at IS NULL OR m.archived_at > least(%(as_of)s::timestamptz, %(known_at)s::timestamptz))
  AND CASE WHEN %(known_at)s::timestamptz IS NULL THEN
    (m.invalid_at IS NULL OR m.invalid_at > %(as_of)s::timestamptz)
    AND (m.superseded_at IS NULL OR m.superseded_at > %(as_of)s::timestamptz)
  ELSE
    m.recorded_at <= %(known_at)s::timestamptz
    -- Nothing came after what ends by itself: when it is to end is known from the first. What came after others may have
    -- ended them earlier than was known then.
    AND (m.invalid_at IS NULL OR m.invalid_at > %(as_of)s::timestamptz
      OR m.invalidated_by IS NOT NULL AND m.invalidated_at > %(known_at)s::timestamptz)
    AND (m.superseded_at IS NULL OR m.superseded_at > least(%(as_of)s::timestamptz, %(known_at)s::timestamptz))
    AND (m.conflict_key IS NULL OR m.kind <> 'semantic' OR NOT EXISTS (
        SELECT 1 FROM whence.memories n
        WHERE {followed} AND n.recorded_at <= %(known_at)s::timestamptz AND n.valid_at <= %(as_of)s::timestamptz
    ))
  END

-- name: memory_by_id
SELECT {memory} FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = %(memory_id)s AND {seen};

-- fragment: wanted
-- What is asked about; what is not is NULL. Facts that accumulate have no key to compare.
{held}
  AND (%(agent)s::text IS NULL OR m.agent = %(agent)s)
  AND (%(tiers)s::text[] IS NULL OR m.tier = ANY (%(tiers)s::text[]))
  AND (%(kinds)s::text[] IS NULL OR m.kind = ANY (%(kinds)s::text[]))
  AND (%(session_id)s::text IS NULL OR m.session_id = %(session_id)s)
  AND (%(sessions)s::text[] IS NULL OR m.session_id = ANY (%(sessions)s::text[])
    OR EXISTS (SELECT FROM unnest(%(beginnings)s::text[]) b WHERE starts_with(m.session_id, b)))
  AND (%(run_id)s::uuid IS NULL OR m.run_id = %(run_id)s::uuid)
  AND (%(subject)s::text IS NULL OR (m.fact_subject IS NOT NULL AND CASE WHEN m.conflict_key IS NULL
    THEN whence.as_compared(m.fact_subject) = whence.as_compared(%(subject)s::text)
    ELSE split_part(m.conflict_key, chr(31), 1) = %(subject_key)s::text END))
  AND (%(predicate)s::text IS NULL OR (m.fact_predicate IS NOT NULL AND CASE WHEN m.conflict_key IS NULL
    THEN whence.as_compared(m.fact_predicate) = whence.as_compared(%(predicate)s::text)
    ELSE split_part(m.conflict_key, chr(31), 2) = %(predicate_key)s::text END))
  AND (%(speaker)s::text IS NULL OR m.speaker = %(speaker)s)
  AND (%(role)s::text IS NULL OR m.role = %(role)s)
  AND (%(world)s::text IS NULL OR m.world_id_context = %(world)s)
  AND (%(since)s::timestamptz IS NULL OR {began} >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR {began} < %(until)s::timestamptz)

-- name: memories_held
-- Of everybody in the workspace, the newest first. They are found by the events that told them, which are in order: one
-- after the other, as OFFSET 0 keeps the planner from reading all of them first.
SELECT {memory} FROM whence.events e
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m WHERE m.workspace_id = e.workspace_id AND m.memory_id = e.event_id OFFSET 0
) m
WHERE e.workspace_id = %(workspace_id)s AND e.event_type = 'memory.remembered'
  AND e.global_position < %(before)s::bigint AND {wanted}
ORDER BY e.global_position DESC LIMIT %(limit)s::bigint;

-- name: memories_held_by_user
-- Of the user and of the workspace itself, the newest first: of each as many as are wanted together, by the index.
SELECT {memory} FROM (
    (SELECT * FROM whence.memories m
     WHERE m.workspace_id = %(workspace_id)s AND m.owner = %(user_id)s AND m.position < %(before)s::bigint AND {wanted}
     ORDER BY m.position DESC LIMIT %(limit)s::bigint)
    UNION ALL
    (SELECT * FROM whence.memories m
     WHERE m.workspace_id = %(workspace_id)s AND m.owner = '' AND m.position < %(before)s::bigint AND {wanted}
     ORDER BY m.position DESC LIMIT %(limit)s::bigint)
) m
ORDER BY m.position DESC LIMIT %(limit)s::bigint;

-- fragment: of_subject
-- What is said of a subject, or of it and a predicate: by the beginning of its key.
m.workspace_id = %(workspace_id)s AND m.conflict_key >= %(from_key)s::text AND m.conflict_key < %(to_key)s::text

-- fragment: without_key
-- Facts that accumulate, which may be about anything.
m.workspace_id = %(workspace_id)s AND m.fact_subject IS NOT NULL AND m.conflict_key IS NULL

-- fragment: of_user
m.owner = ANY (ARRAY['', %(user_id)s::text])

-- fragment: is_likely
-- Whether it is probably an answer: it holds, or has no key and names just this subject.
m.deleted_at IS NULL AND m.archived_at IS NULL AND m.superseded_at IS NULL
  AND CASE WHEN m.conflict_key IS NULL THEN m.fact_subject = %(subject)s::text ELSE m.invalid_at IS NULL END

-- name: facts_to_read
-- How many facts there are to read for those of a subject, as far as it matters, and how many of these are likely.
SELECT count(*), count(*) FILTER (WHERE {is_likely}) FROM (
    SELECT * FROM whence.memories m WHERE {of_subject}
    UNION ALL
    SELECT * FROM whence.memories m WHERE {without_key}
    LIMIT %(most)s::bigint
) m;

-- name: facts_to_read_by_user
SELECT count(*), count(*) FILTER (WHERE {is_likely}) FROM (
    SELECT * FROM whence.memories m WHERE {of_subject} AND {of_user}
    UNION ALL
    SELECT * FROM whence.memories m WHERE {without_key} AND {of_user}
    LIMIT %(most)s::bigint
) m;

-- name: facts_held
-- Of everybody in the workspace, the newest first. OFFSET 0 keeps the planner from reading in order what has a key.
SELECT {memory} FROM (
    SELECT * FROM whence.memories m WHERE {of_subject}
    UNION ALL
    SELECT * FROM whence.memories m WHERE {without_key}
    OFFSET 0
) m
WHERE m.position < %(before)s::bigint AND {wanted}
ORDER BY m.position DESC LIMIT %(limit)s::bigint;

-- name: facts_held_by_user
-- Of the user and of the workspace itself, the newest first.
SELECT {memory} FROM (
    SELECT * FROM whence.memories m WHERE {of_subject} AND {of_user}
    UNION ALL
    SELECT * FROM whence.memories m WHERE {without_key} AND {of_user}
    OFFSET 0
) m
WHERE m.position < %(before)s::bigint AND {wanted}
ORDER BY m.position DESC LIMIT %(limit)s::bigint;

-- name: memories_held_of_run
SELECT {memory} FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND {seen} AND m.position < %(before)s::bigint AND {wanted}
  AND m.run_id = %(run_id)s::uuid
ORDER BY m.position DESC LIMIT %(limit)s::bigint;

-- name: found
-- Rows of what was ranked, each with whether it holds and whether it never will again.
SELECT m.deleted_at IS NULL AND m.valid_at <= %(now)s::timestamptz AND NOT g.gone, g.gone, {memory}
FROM whence.memories m
CROSS JOIN LATERAL (
    SELECT coalesce(m.deleted_at IS NOT NULL OR m.archived_at <= %(now)s::timestamptz
        OR m.superseded_at <= %(now)s::timestamptz OR m.invalid_at <= %(now)s::timestamptz, false) AS gone
) g
WHERE m.workspace_id = %(workspace_id)s::text AND m.memory_id = ANY (%(ids)s::uuid[]);

-- name: memories_wanted
-- Of one owner, which ones are asked about; without an owner, of everybody.
SELECT m.memory_id FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND (%(owner)s::text IS NULL OR m.owner = %(owner)s) AND {wanted};

-- name: memories_wanted_among
SELECT m.memory_id FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]) AND {wanted};

-- name: memories_held_by_id
SELECT {memory} FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]) AND {held};

-- name: episodes_of_agent
-- The last ones of all its runs, the newest first.
SELECT {memory} FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.agent = %(agent)s AND m.run_id IS NOT NULL AND m.kind = 'episodic' AND {seen}
  AND m.deleted_at IS NULL AND m.archived_at IS NULL
ORDER BY m.position DESC LIMIT %(limit)s::bigint;

-- name: history_of
-- All that was ever said where only one thing can be so, in order of the time from which it was so; past the one that
-- was told at the position `after`. Nothing for a memory without a key: its history is itself.
SELECT {memory} FROM whence.memories m
JOIN whence.memories o ON o.workspace_id = m.workspace_id AND o.memory_id = %(memory_id)s
WHERE m.workspace_id = %(workspace_id)s AND {seen}
  AND m.owner = o.owner AND m.agent = o.agent AND m.tier = o.tier
  AND m.anchor = o.anchor AND m.kind = o.kind AND m.conflict_key = o.conflict_key
  AND (%(after)s::bigint IS NULL OR (m.valid_at, m.position) > (
    SELECT a.valid_at, a.position FROM whence.memories a
    WHERE a.workspace_id = o.workspace_id AND a.owner = o.owner AND a.agent = o.agent
      AND a.conflict_key = o.conflict_key AND a.position = %(after)s::bigint
  ))
ORDER BY m.valid_at, m.position LIMIT %(limit)s::bigint;

-- name: sources_of
SELECT s.source, s.role, s.event_id, s.position, s.said_by, s.confidence, s.told_at, s.byte_from, s.byte_to, (
    SELECT substring(convert_to(m.body, 'UTF8') FROM s.byte_from + 1 FOR s.byte_to - s.byte_from)
    FROM whence.memories m
    WHERE s.byte_from IS NOT NULL AND s.role = 'memory' AND m.workspace_id = s.workspace_id
      AND m.memory_id = s.source::uuid AND m.deleted_at IS NULL AND m.body <> '' AND {seen}
), whence.is_own_word(s.workspace_id, s.memory_id, s.source, s.role), s.origin
FROM whence.memory_all_sources s
WHERE s.workspace_id = %(workspace_id)s AND s.memory_id = %(memory_id)s
ORDER BY s.position, s.role, s.source LIMIT %(limit)s::bigint;

-- name: overridden_history
-- All that stood in the place of a memory without a key, one text after the other; past the one at position `after`.
WITH RECURSIVE chain AS (
    SELECT m.memory_id, m.superseded_by FROM whence.memories m
    WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = %(memory_id)s AND m.conflict_key IS NULL
    UNION
    SELECT o.memory_id, o.superseded_by FROM chain c JOIN LATERAL (
        SELECT n.memory_id, n.superseded_by FROM whence.memories n
        WHERE n.workspace_id = %(workspace_id)s AND n.memory_id = c.superseded_by
        UNION ALL
        SELECT n.memory_id, n.superseded_by FROM (
            SELECT s.source::uuid AS source FROM whence.memory_sources s
            WHERE s.workspace_id = %(workspace_id)s AND s.memory_id = c.memory_id AND s.role = 'memory' OFFSET 0
        ) s
        CROSS JOIN LATERAL (
            SELECT * FROM whence.memories n
            WHERE n.workspace_id = %(workspace_id)s AND n.memory_id = s.source AND n.superseded_by = c.memory_id OFFSET 0
        ) n
    ) o ON true
)
SELECT {memory} FROM chain c
JOIN whence.memories m ON m.workspace_id = %(workspace_id)s AND m.memory_id = c.memory_id
WHERE {seen} AND (%(after)s::bigint IS NULL OR m.position > %(after)s::bigint)
ORDER BY m.position LIMIT %(limit)s::bigint;

-- name: confidences_told
-- How sure those were who had told each memory by then, in order: an event once, however many sources it named.
SELECT t.memory_id, array_agg(t.confidence ORDER BY t.position)
FROM (
    SELECT DISTINCT s.memory_id, s.position, s.confidence FROM whence.memory_sources s
    WHERE s.workspace_id = %(workspace_id)s AND s.memory_id = ANY (%(ids)s::uuid[])
      AND s.told_at <= %(known_at)s::timestamptz AND s.confidence IS NOT NULL
) t
GROUP BY t.memory_id;

-- name: beginnings_known
-- From when each held as far as was known by then, where it was told later that it did from earlier on.
SELECT t.memory_id, max(t.held_from) FROM whence.memory_tellings t
WHERE t.workspace_id = %(workspace_id)s AND t.memory_id = ANY (%(ids)s::uuid[])
  AND t.told_at > %(known_at)s::timestamptz
GROUP BY t.memory_id;

-- name: ends_known
-- What was known by then to end each fact: the next one of its key in time, or of several the one that was known first.
SELECT m.memory_id, n.valid_at, greatest(m.recorded_at, n.recorded_at), n.memory_id
FROM whence.memories m
CROSS JOIN LATERAL (
    SELECT n.* FROM whence.memories n
    WHERE {followed} AND n.recorded_at <= %(known_at)s::timestamptz
    ORDER BY n.valid_at, greatest(m.position, n.position), n.position DESC LIMIT 1
) n
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]);

-- name: events_of
-- What happened to a memory, as far as it may be seen: those that told it, the first ones, and what ended it. Of memory of
-- the workspace, which everybody sees, also who else told it or what ended it, as far as its rows say so: the events are
-- seen by whose they are.
SELECT DISTINCT ON (e.global_position) e.event_id, e.event_type, e.global_position, e.recorded_at, e.user_id
FROM whence.memories m
CROSS JOIN LATERAL (
    SELECT t.memory_id AS event_id, 'memory.remembered' AS event_type, t.position AS global_position, t.recorded_at,
        t.said_by AS user_id, true AS is_known_by_rows
    FROM whence.memories t
    WHERE m.owner = '' AND t.workspace_id = m.workspace_id AND t.owner = ''
      AND t.memory_id IN (m.memory_id, m.superseded_by, m.invalidated_by)
    UNION ALL
    (SELECT t.event_id, 'memory.remembered', t.position, s.told_at, s.said_by, true FROM whence.memory_tellings t
    CROSS JOIN LATERAL (
        SELECT * FROM whence.memory_sources s
        WHERE s.workspace_id = t.workspace_id AND s.memory_id = t.memory_id AND s.event_id = t.event_id LIMIT 1
    ) s
    WHERE m.owner = '' AND t.workspace_id = m.workspace_id AND t.memory_id = m.memory_id
    ORDER BY t.position LIMIT %(limit)s::bigint)
    UNION ALL
    SELECT e.event_id, e.event_type, e.global_position, e.recorded_at, e.user_id, false FROM (
    SELECT e.* FROM whence.events e
    WHERE e.workspace_id = m.workspace_id AND e.event_id IN (m.memory_id, m.superseded_by, m.invalidated_by)
    UNION ALL
    (SELECT e.* FROM whence.memory_tellings t
    JOIN whence.events e ON e.workspace_id = t.workspace_id AND e.event_id = t.event_id
    WHERE t.workspace_id = m.workspace_id AND t.memory_id = m.memory_id AND t.event_id <> m.memory_id
    ORDER BY t.position LIMIT %(limit)s::bigint)
    UNION ALL
    SELECT e.* FROM whence.events e
    WHERE e.workspace_id = m.workspace_id AND e.parent_event_id = m.memory_id AND e.event_type = 'memory.forgotten'
    UNION ALL
    -- A part of a document ends with it: it is deleted, or could not be read to its end.
    SELECT e.* FROM (
        SELECT s.source::uuid AS resource_id FROM whence.memory_sources s
        WHERE m.role = 'document' AND s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id AND s.role = 'event'
        OFFSET 0
    ) s
    CROSS JOIN LATERAL (
        SELECT * FROM whence.events e
        WHERE e.workspace_id = m.workspace_id AND e.parent_event_id = s.resource_id
          AND e.event_type IN ('resource.processed', 'resource.deleted') AND e.recorded_at = m.deleted_at OFFSET 0
    ) e
    UNION ALL
    SELECT e.* FROM whence.sessions s
    JOIN whence.events e ON e.workspace_id = s.workspace_id AND e.event_id = s.close_event_id
    WHERE s.workspace_id = m.workspace_id AND s.owner = m.owner AND s.agent = m.agent AND s.session_id = m.session_id
      AND s.closed_at IN (m.archived_at, m.deleted_at)
    UNION ALL
    -- What timers have ended, of which there are a few an hour. Their events name memories in payloads, so they are known
    -- by the moment, which is that of the group that they were stored in.
    SELECT e.* FROM whence.events e
    WHERE coalesce(m.deleted_at, m.stripped_at) IS NOT NULL
      AND e.workspace_id = m.workspace_id AND e.event_type = 'system.retention_applied'
      AND e.global_position > m.position AND e.recorded_at IN (m.deleted_at, m.stripped_at)
      AND NOT EXISTS (
        SELECT FROM whence.events f
        WHERE f.workspace_id = m.workspace_id AND f.parent_event_id = m.memory_id AND f.event_type = 'memory.forgotten'
          AND f.recorded_at = e.recorded_at
    )
    ) e
    WHERE %(user_id)s::text IS NULL OR e.user_id = %(user_id)s
) e
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = %(memory_id)s
ORDER BY e.global_position, e.is_known_by_rows;

-- name: feedback_on
SELECT e.event_id, e.event_type, e.global_position, e.recorded_at, e.user_id FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s AND e.parent_event_id = ANY (%(recall_ids)s::uuid[])
  AND e.event_type = 'memory.feedback' AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s)
ORDER BY e.global_position LIMIT %(limit)s::bigint;

-- name: replaced_by
-- What this one took the place of when it was told: of facts the one that held at its time, as far as others of the same
-- subject and predicate were told by then. What was learnt later may have ended that one earlier.
SELECT m.memory_id FROM whence.memories o
CROSS JOIN LATERAL (
    SELECT p.* FROM whence.memories p
    WHERE p.workspace_id = o.workspace_id AND p.owner = o.owner AND p.agent = o.agent AND p.tier = o.tier
      AND p.anchor = o.anchor AND p.kind = o.kind AND p.conflict_key = o.conflict_key
      AND p.position < o.position AND p.valid_at <= o.valid_at
      AND coalesce(least(p.deleted_at, p.archived_at) > o.recorded_at, true)
    ORDER BY p.valid_at DESC, p.position DESC LIMIT 1
) m
WHERE o.workspace_id = %(workspace_id)s AND o.memory_id = %(memory_id)s
  AND coalesce(m.superseded_by = o.memory_id, true)
  -- It may have been over already, because of one that was forgotten before this one was told.
  AND NOT EXISTS (
    SELECT FROM whence.memories n
    WHERE m.kind = 'semantic' AND {followed} AND n.position < o.position AND n.valid_at <= o.valid_at
  )
UNION
SELECT m.memory_id FROM (
    SELECT s.source::uuid AS source FROM whence.memory_sources s
    WHERE s.workspace_id = %(workspace_id)s AND s.memory_id = %(memory_id)s AND s.role = 'memory' OFFSET 0
) s
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m
    WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = s.source AND m.superseded_by = %(memory_id)s AND {seen}
    OFFSET 0
) m;

-- name: recalls_of
SELECT h.recall_id, r.recalled_at, r.user_id, r.agent, h.rank
FROM whence.recall_hits h
JOIN whence.recalls r ON r.workspace_id = h.workspace_id AND r.recall_id = h.recall_id
WHERE h.workspace_id = %(workspace_id)s AND h.memory_id = %(memory_id)s
  AND (%(user_id)s::text IS NULL OR h.user_id = %(user_id)s)
ORDER BY r.position DESC LIMIT %(limit)s::bigint;

-- name: known_sources
-- Which of these ids are events or memories that may be seen.
SELECT e.event_id, EXISTS (
    SELECT 1 FROM whence.memories m
    WHERE m.workspace_id = e.workspace_id AND m.memory_id = e.event_id AND {seen}
)
FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s AND e.event_id = ANY (%(ids)s::uuid[])
  AND (%(user_id)s::text IS NULL OR e.user_id = %(user_id)s)
UNION
SELECT m.memory_id, true FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]) AND {seen};

-- name: origins
-- Of what documents are derived from, the memories that stand behind it and say the same, of the same owner or the workspace:
-- what a recall has found, or a telling told. Of several: the one that would be told again, then one of the same agent, then
-- the oldest. Behind a memory that says the same and has that from one memory alone, is that one. What something was taken
-- out of may be like another by that alone.
WITH told AS MATERIALIZED (
    SELECT r.event_id, coalesce(r.user_id, '') AS owner, r.agent, r.conflict_key, r.object_key, r.sources,
        decode(r.body_hash, 'hex') AS body_hash, coalesce(r.world_id_context, '') AS world,
        CASE WHEN r.subject_id IN ('', r.user_id, r.said_by) THEN '' ELSE r.subject_id END AS about,
        whence.as_compared(r.fact_subject) AS subject, whence.as_compared(r.fact_predicate) AS predicate,
        CASE WHEN r.sanitised IS NULL THEN whence.as_compared(r.fact_object) END AS object
    FROM jsonb_populate_recordset(NULL::whence.remembered, %(documents)s::jsonb) r
), asked AS MATERIALIZED (
    SELECT t.event_id, (s->>'source')::uuid AS source, s->>'role' AS role
    FROM told t, jsonb_array_elements(t.sources) s
), behind AS MATERIALIZED (
    SELECT a.source, a.role, f.memory_id FROM (SELECT DISTINCT source, role FROM asked) a
    CROSS JOIN LATERAL (
        SELECT a.source AS memory_id WHERE a.role = 'memory'
        UNION ALL
        SELECT h.memory_id FROM whence.recall_hits h
        WHERE a.role = 'event' AND h.workspace_id = %(workspace_id)s AND h.recall_id = a.source
        UNION ALL
        SELECT t.memory_id FROM whence.memory_tellings t
        WHERE a.role = 'event' AND t.workspace_id = %(workspace_id)s AND t.event_id = a.source
        OFFSET 0
    ) f
), found AS MATERIALIZED (
    SELECT m.memory_id, m.position, m.owner, m.agent, m.conflict_key, m.object_key, m.body_hash,
        coalesce(m.world_id_context, '') AS world,
        CASE WHEN m.subject_id IN ('', m.user_id, m.said_by) THEN '' ELSE m.subject_id END AS about,
        whence.as_compared(m.fact_subject) AS subject, whence.as_compared(m.fact_predicate) AS predicate,
        whence.as_compared(m.fact_object) AS object
    FROM (SELECT DISTINCT memory_id FROM behind) b
    CROSS JOIN LATERAL (
        SELECT * FROM whence.memories m WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = b.memory_id OFFSET 0
    ) m
), same AS MATERIALIZED (
    SELECT t.event_id, f.memory_id FROM told t JOIN found f ON f.body_hash = t.body_hash
    UNION
    SELECT t.event_id, f.memory_id FROM told t
    JOIN found f ON f.conflict_key = t.conflict_key AND f.object_key = t.object_key
    UNION
    SELECT t.event_id, f.memory_id FROM told t
    JOIN found f ON f.object = t.object AND f.predicate = t.predicate AND f.subject = t.subject
      AND f.world = t.world AND f.about = t.about
), echoes AS MATERIALIZED (
    SELECT m.memory_id, e.of_memory FROM (SELECT DISTINCT memory_id FROM same) s
    JOIN found m ON m.memory_id = s.memory_id
    CROSS JOIN LATERAL (
        SELECT min(k.known::text)::uuid AS of_memory
        FROM (
            SELECT coalesce(c.origin, CASE c.role WHEN 'memory' THEN c.source::uuid END) AS known
            FROM whence.memory_all_sources c
            WHERE c.workspace_id = %(workspace_id)s AND c.memory_id = m.memory_id LIMIT %(sources)s::bigint
        ) k
        LEFT JOIN LATERAL (
            SELECT * FROM whence.memories x
            WHERE x.workspace_id = %(workspace_id)s AND x.memory_id = k.known AND x.owner = ANY (ARRAY['', m.owner]) OFFSET 0
        ) x ON x.body_hash = m.body_hash OR x.conflict_key = m.conflict_key AND x.object_key = m.object_key
            OR whence.as_compared(x.fact_object) = m.object AND whence.as_compared(x.fact_predicate) = m.predicate
              AND whence.as_compared(x.fact_subject) = m.subject
        HAVING count(*) = count(x.memory_id) AND count(DISTINCT k.known) = 1
    ) e
)
SELECT DISTINCT ON (a.event_id, a.source) a.event_id, a.source, coalesce(e.of_memory, f.memory_id)
FROM same s
JOIN told t ON t.event_id = s.event_id
JOIN found f ON f.memory_id = s.memory_id AND f.owner = ANY (ARRAY['', t.owner])
JOIN behind b ON b.memory_id = s.memory_id
JOIN asked a ON a.event_id = s.event_id AND a.source = b.source
LEFT JOIN echoes e ON e.memory_id = s.memory_id
WHERE b.role = 'event' OR e.of_memory IS NOT NULL
ORDER BY a.event_id, a.source, f.owner = t.owner AND f.agent = t.agent AND CASE
    WHEN t.conflict_key IS NULL THEN f.conflict_key IS NULL AND f.body_hash = t.body_hash
    ELSE coalesce(f.conflict_key = t.conflict_key AND f.object_key = t.object_key, false)
  END DESC, f.owner = t.owner AND f.agent = t.agent DESC, f.position;

-- name: tellers_of
-- Who told these memories, as far as they may be seen.
SELECT m.memory_id, m.said_by FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]) AND {seen};

-- name: told_by
-- The memory that an event told first, or again.
SELECT m.memory_id, e.global_position
FROM whence.events e
CROSS JOIN LATERAL (
    SELECT e.event_id AS memory_id
    UNION ALL
    SELECT t.memory_id FROM whence.memory_tellings t
    WHERE t.workspace_id = e.workspace_id AND t.event_id = e.event_id
) told
JOIN whence.memories m ON m.workspace_id = e.workspace_id AND m.memory_id = told.memory_id
WHERE e.workspace_id = %(workspace_id)s AND e.event_id = %(event_id)s AND {seen};

-- fragment: run
-- The fields of wire.Run, in order, of the runs that may be seen.
SELECT r.run_id, r.agent, r.instance, r.task_type, r.session_id, r.status, r.turn, r.started_at, r.ended_at, r.user_id
FROM whence.runs r
WHERE r.workspace_id = %(workspace_id)s
  AND (%(user_id)s::text IS NULL OR r.owner = ANY (ARRAY['', %(user_id)s::text]))

-- name: runs_by_id
{run} AND r.run_id = ANY (%(run_ids)s::uuid[]);

-- name: runs_of_agent
{run} AND r.agent = %(agent)s
  AND (%(instance)s::text IS NULL OR r.instance = %(instance)s)
  AND (%(before)s::bigint IS NULL OR r.position < %(before)s::bigint)
ORDER BY r.position DESC LIMIT %(limit)s::bigint;

-- fragment: workflow
-- The fields of wire.Workflow, in order, but for the mean.
w.workflow_id, w.position, w.agent, w.task_type, w.name, w.user_id, w.added_by, w.spec, w.alpha, w.beta, w.selections,
w.outcomes, w.created_at, w.retired_at

-- name: workflow_by_id
SELECT {workflow} FROM whence.workflows w
WHERE w.workspace_id = %(workspace_id)s AND w.workflow_id = %(workflow_id)s
  AND (%(user_id)s::text IS NULL OR w.owner = ANY (ARRAY['', %(user_id)s::text]));

-- name: workflows_page
-- The newest first. What is not asked about is NULL.
SELECT {workflow} FROM whence.workflows w
WHERE w.workspace_id = %(workspace_id)s
  AND (%(user_id)s::text IS NULL OR w.owner = ANY (ARRAY['', %(user_id)s::text]))
  AND (%(agent)s::text IS NULL OR w.agent = %(agent)s)
  AND (%(task_type)s::text IS NULL OR w.task_type = %(task_type)s)
  AND (%(before)s::bigint IS NULL OR w.position < %(before)s::bigint)
ORDER BY w.position DESC LIMIT %(limit)s::bigint;

-- name: workflows_in_use
-- What a selection draws from. The database bounds how many there can be of each owner.
SELECT {workflow} FROM whence.workflows w
WHERE w.workspace_id = %(workspace_id)s AND w.owner = ANY (%(owners)s::text[])
  AND w.task_key = whence.workflow_key(%(agent)s, %(task_type)s) AND w.retired_at IS NULL
ORDER BY w.position;

-- name: selection_by_id
SELECT s.workflow_id, w.agent, s.score, s.scored_at, s.outcome_event_id
FROM whence.workflow_selections s
LEFT JOIN whence.workflows w ON w.workspace_id = s.workspace_id AND w.workflow_id = s.workflow_id
WHERE s.workspace_id = %(workspace_id)s AND s.selection_id = %(selection_id)s
  AND (%(user_id)s::text IS NULL OR s.user_id = %(user_id)s);

-- name: rules_of_world
SELECT c.rule_id, c.body, c.updated_at FROM whence.canon_rules c
WHERE c.workspace_id = %(workspace_id)s AND c.world_id = %(world_id)s
ORDER BY c.rule_id LIMIT %(limit)s::bigint;

-- name: rule_by_id
SELECT 1 FROM whence.canon_rules c
WHERE c.workspace_id = %(workspace_id)s AND c.world_id = %(world_id)s AND c.rule_id = %(rule_id)s;

-- name: own_events
-- The next events that memory is made of.
SELECT e.global_position, e.recorded_at FROM whence.events e
WHERE e.workspace_id = %(workspace_id)s AND e.event_type = ANY (%(types)s::text[])
  AND e.global_position > %(after)s::bigint AND e.global_position <= %(until)s::bigint
ORDER BY e.global_position LIMIT %(limit)s::bigint;

-- name: count_vectors_to_replace
-- Those of another embedder than the one in use; what senders gave is theirs.
SELECT count(*) FROM whence.memory_vectors v
WHERE v.workspace_id = %(workspace_id)s AND v.embedder <> ALL (%(kept)s::text[]);

-- name: vectors_to_replace
-- The newest first, which are asked for most.
SELECT v.memory_id FROM whence.memory_vectors v
JOIN whence.memories m ON m.workspace_id = v.workspace_id AND m.memory_id = v.memory_id
WHERE v.workspace_id = %(workspace_id)s AND v.embedder <> ALL (%(kept)s::text[])
ORDER BY m.position DESC LIMIT %(limit)s::bigint;

-- name: texts_to_embed
-- Those that nobody else has dealt with since.
SELECT m.memory_id, m.body FROM whence.memories m
JOIN whence.memory_vectors v ON v.workspace_id = m.workspace_id AND v.memory_id = m.memory_id
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[])
  AND v.embedder <> ALL (%(kept)s::text[]);

-- name: replace_vectors
-- In place, so that no memory is without a vector meanwhile; what is gone stays gone.
UPDATE whence.memory_vectors v SET embedder = %(embedder)s, embedding = t.embedding
FROM unnest(%(ids)s::uuid[], %(vectors)b::halfvec[]) t (memory_id, embedding)
WHERE v.workspace_id = %(workspace_id)s AND v.memory_id = t.memory_id AND v.embedder <> ALL (%(kept)s::text[]);

-- name: vectors_as_they_are
-- Those that a rebuild cannot make again and compare.
SELECT v.memory_id, v.embedder, v.embedding::real[] FROM whence.memory_vectors v
WHERE v.workspace_id = %(workspace_id)s AND v.memory_id = ANY (%(ids)s::uuid[])
  AND v.embedder <> ALL (%(comparable)s::text[]);

-- name: digest_of_vectors
-- Of those that can be compared, what they are; of others, that they are there.
SELECT sha256(string_agg(row_digest, ''::bytea ORDER BY row_digest)) FROM (
    SELECT sha256(convert_to(jsonb_build_array(v.memory_id, v.user_id,
        CASE WHEN v.embedder = ANY (%(comparable)s::text[]) THEN to_jsonb(v) - 'workspace_id' END
    )::text, 'UTF8')) AS row_digest
    FROM whence.memory_vectors v WHERE v.workspace_id = %(workspace_id)s
) rows;

-- name: digests
SELECT d.name, coalesce(d.digest, ''::bytea) FROM whence.memory_digests(%(workspace_id)s) d;

-- name: rebuild_alone
SELECT pg_advisory_xact_lock(hashtextextended('whence rebuilds ' || %(workspace_id)s::text, 0));

-- name: clear
SELECT whence.memory_clear(%(workspace_id)s);

-- name: head
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s;

-- name: hold_head
-- Nobody writes until this transaction ends.
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s FOR UPDATE;
