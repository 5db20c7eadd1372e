-- The statements of recall. What they give back is what the asker may see, whatever was ranked before.

-- fragment: entry
-- The fields of corpus.Entry, in order.
m.memory_id, m.position, m.agent, m.tier, m.kind, m.session_id, m.body, m.speaker,
extract(epoch FROM m.valid_at)::double precision, m.importance::real, v.embedder, halfvec_send(v.embedding),
m.archived_at IS NOT NULL OR m.superseded_at IS NOT NULL OR coalesce(m.invalid_at <= m.invalidated_at, false), m.speaker IS NOT NULL OR m.role IS NOT NULL

-- fragment: with_vector
-- Row by row, whatever the tables looked like when the plan was made: there are few rows, or they come in portions.
LEFT JOIN LATERAL (
    SELECT v.embedder, v.embedding FROM whence.memory_vectors v
    WHERE v.workspace_id = m.workspace_id AND v.memory_id = m.memory_id OFFSET 0
) v ON true

-- name: entries_of_owner
SELECT {entry} FROM whence.memories m {with_vector}
WHERE m.workspace_id = %(workspace_id)s::text AND m.owner = %(owner)s::text AND m.position > %(after)s::bigint
  AND m.deleted_at IS NULL AND m.body <> ''
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
  AND e.global_position > %(after)s::bigint AND m.deleted_at IS NULL AND m.body <> ''
ORDER BY e.global_position LIMIT %(limit)s::bigint;

-- name: index_reaches
-- The last position, and how many there are past those that were counted, up to which.
SELECT coalesce((
    SELECT i.position FROM whence.memory_index i
    WHERE i.workspace_id = %(workspace_id)s AND i.owner = %(owner)s ORDER BY i.position DESC LIMIT 1
), 0), count(*), max(c.position)
FROM (
    SELECT i.position FROM whence.memory_index i
    WHERE i.workspace_id = %(workspace_id)s AND i.owner = %(owner)s AND i.position > %(counted)s::bigint
    ORDER BY i.position LIMIT %(limit)s::bigint
) c;

-- name: indexed_workspaces
-- Run as whence_worker.
SELECT w.workspace_id FROM whence.workspaces w
WHERE EXISTS (SELECT FROM whence.memory_index i WHERE i.workspace_id = w.workspace_id);

-- name: indexed_owners
-- Each found by the one before it: there are few of them, with many rows.
WITH RECURSIVE o (owner) AS (
    SELECT min(i.owner) FROM whence.memory_index i WHERE i.workspace_id = %(workspace_id)s
    UNION ALL
    SELECT (SELECT min(i.owner) FROM whence.memory_index i
        WHERE i.workspace_id = %(workspace_id)s AND i.owner > o.owner)
    FROM o WHERE o.owner IS NOT NULL
)
SELECT owner FROM o WHERE owner IS NOT NULL;

-- name: texts_to_index
-- The next ones, but for the newest.
SELECT m.memory_id, m.body FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.owner = %(owner)s
  AND m.position > coalesce((
    SELECT i.position FROM whence.memory_index i
    WHERE i.workspace_id = %(workspace_id)s AND i.owner = %(owner)s ORDER BY i.position DESC LIMIT 1
  ), 0)
  AND m.position <= (
    SELECT n.position FROM whence.memories n
    WHERE n.workspace_id = %(workspace_id)s AND n.owner = %(owner)s
    ORDER BY n.position DESC OFFSET %(newest)s::bigint LIMIT 1
  )
  AND m.stripped_at IS NULL AND m.body <> ''
ORDER BY m.position LIMIT %(limit)s::bigint;

-- name: add_to_index
-- Who removes a memory meanwhile, or takes its text away, waits, and then removes this too.
INSERT INTO whence.memory_index (workspace_id, memory_id, user_id, position, embedder, embedding, terms)
SELECT m.workspace_id, m.memory_id, m.user_id, m.position, v.embedder, v.embedding,
    (%(terms)s::bigint[])[t.first:t.last]
FROM unnest(%(ids)s::uuid[], %(first)s::integer[], %(last)s::integer[]) t (memory_id, first, last)
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m
    WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = t.memory_id AND m.stripped_at IS NULL
    FOR SHARE
) m {with_vector}
ORDER BY m.position
ON CONFLICT DO NOTHING;

-- fragment: distant
-- Of what the index gave, what is asked about and holds now, as far as the asker may see it.
CROSS JOIN LATERAL (
    SELECT * FROM whence.memories m
    WHERE m.workspace_id = c.workspace_id AND m.memory_id = c.memory_id AND m.deleted_at IS NULL
      AND (%(now)s::timestamptz IS NULL OR coalesce(m.superseded_at, m.archived_at) IS NULL
        AND (m.invalid_at IS NULL OR m.invalid_at > %(now)s))
      AND (%(agent)s::text IS NULL OR m.agent = %(agent)s) AND (%(session_id)s::text IS NULL OR m.session_id = %(session_id)s)
      AND (%(sessions)s::text[] IS NULL OR m.session_id = ANY (%(sessions)s)
        OR EXISTS (SELECT FROM unnest(%(beginnings)s::text[]) b WHERE starts_with(m.session_id, b)))
      AND (%(tiers)s::text[] IS NULL OR m.tier = ANY (%(tiers)s))
      AND (%(kinds)s::text[] IS NULL OR m.kind = ANY (%(kinds)s))
    OFFSET 0
) m

-- name: distant_with_words
SELECT {entry} FROM unnest(whence.memories_with_words(%(workspace_id)s, %(owner)s, %(telling)s::bigint[],
    %(together)s::bigint[], %(words)s::bigint[], %(weights)s::real[], 400)) WITH ORDINALITY f (memory_id, place)
CROSS JOIN LATERAL (SELECT %(workspace_id)s::text AS workspace_id, f.memory_id) c {distant} {with_vector}
ORDER BY f.place LIMIT 100;

-- name: entries_by_id
SELECT {entry} FROM whence.memories m {with_vector}
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(ids)s::uuid[]) AND m.deleted_at IS NULL;

-- name: distant_like
-- Of vectors of this length; there is one like it for each. How many there may be is no parameter: a plan for any number
-- would be made for a tenth of all there are, and read all of them. The index has the vectors too.
SELECT {entry} FROM (
    SELECT i.workspace_id, i.memory_id, i.embedder, i.embedding FROM whence.memory_index i
    WHERE i.workspace_id = %(workspace_id)s::text AND i.owner = %(owner)s::text
      AND i.dimension = 256 AND i.embedder = %(embedder)s::text
    ORDER BY i.embedding::halfvec(256) <#> %(vector)s::halfvec(256)
) c {distant}
CROSS JOIN LATERAL (SELECT c.embedder, c.embedding) v
LIMIT 100;

-- name: sources_found
-- Of each memory the first ones that the asker may see. One memory after the other, each by its key: OFFSET 0 keeps the
-- planner from reading all sources of the workspace.
SELECT i.memory_id, d.*
FROM unnest(%(ids)s::uuid[]) i (memory_id)
CROSS JOIN LATERAL (
    SELECT s.source::uuid, s.role, coalesce(e.global_position, s.position), e.occurred_at, e.session_id, e.trace_id,
        e.agent_id, e.tool_name, s.byte_from, s.byte_to, (
            SELECT substring(convert_to(k.body, 'UTF8') FROM s.byte_from + 1 FOR s.byte_to - s.byte_from)
            FROM whence.memories k
            WHERE s.byte_from IS NOT NULL AND k.workspace_id = %(workspace_id)s::text
              AND k.memory_id = s.source::uuid AND k.deleted_at IS NULL AND k.body <> ''
        )
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
