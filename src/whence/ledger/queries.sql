-- name: lock_head
-- Appends of a workspace queue here; the statement that follows sees all that was committed before.
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s FOR UPDATE;

-- name: take_positions
-- The next ones, for so many events; says where the head was. The update takes the lock that makes appends of a workspace
-- queue: what follows it in the transaction sees all that was committed before.
UPDATE whence.workspace_heads SET last_position = last_position + %(count)s::bigint
WHERE workspace_id = %(workspace_id)s
RETURNING last_position - %(count)s::bigint;

-- fragment: head
-- Where it was before `take_positions`.
head AS (
    SELECT last_position - %(count)s::bigint AS last_position FROM whence.workspace_heads
    WHERE workspace_id = %(workspace_id)s
)

-- fragment: store_events
-- Arrays travel in binary, one a column; where all events say the same, the ledger makes statements of these that take it
-- once (see db/arrays.py).
INSERT INTO whence.events (
    workspace_id, global_position, event_id, parent_event_id, occurred_at, ended_at, recorded_at, schema_version,
    importance_hint, event_type, session_id, trace_id, agent_id, user_id, subject_id, tool_name, status,
    data_classification, payload_ref, payload_commitment, measures
)
SELECT %(workspace_id)s, head.last_position + place, event_id, parent_event_id, occurred_at, ended_at, %(recorded_at)s,
    schema_version, importance_hint, event_type, session_id, trace_id, agent_id, user_id, subject_id, tool_name, status,
    data_classification, payload_ref, payload_commitment, measures::jsonb
FROM head, unnest(
    %(event_id)b::uuid[], %(parent_event_id)b::uuid[], %(occurred_at)b::timestamptz[], %(ended_at)b::timestamptz[],
    %(schema_version)b::smallint[], %(importance_hint)b::smallint[], %(event_type)b::text[], %(session_id)b::text[],
    %(trace_id)b::text[], %(agent_id)b::text[], %(user_id)b::text[], %(subject_id)b::text[], %(tool_name)b::text[],
    %(status)b::text[], %(data_classification)b::text[], %(payload_ref)b::text[], %(payload_commitment)b::bytea[],
    %(measures)b::text[]
) WITH ORDINALITY AS t (
    event_id, parent_event_id, occurred_at, ended_at, schema_version, importance_hint, event_type, session_id, trace_id,
    agent_id, user_id, subject_id, tool_name, status, data_classification, payload_ref, payload_commitment, measures, place
)

-- fragment: sealed
-- The head has moved past these events already, and whoever removes a key waits for it or has ended: a key that is seen
-- here is there when this is committed.
sealed AS (
    INSERT INTO whence.payloads (workspace_id, global_position, user_id, subject_id, key_id, ciphertext)
    SELECT %(workspace_id)s, head.last_position + place, user_id, subject_id, coalesce((
        SELECT k.key_id FROM whence.subject_keys k
        WHERE k.workspace_id = %(workspace_id)s AND k.subject_id = t.subject_id AND k.key_id = t.key_id
    ), whence.no_such_key()), ciphertext
    FROM head, unnest(
        %(user_id)b::text[], %(payload_subject)b::text[], %(payload_key)b::uuid[], %(ciphertext)b::bytea[]
    ) WITH ORDINALITY AS t (user_id, subject_id, key_id, ciphertext, place)
    WHERE ciphertext IS NOT NULL
)

-- name: append
-- Follows `take_positions` in its transaction: stores events there, and fails as a whole where one is stored already.
WITH {head}
{store_events};

-- name: append_sealed
-- The same with the payloads of those that have one.
WITH {head}, {sealed}
{store_events};

-- name: remember_plain
-- The same where all of the events tell memories that are only to be stored: with the vector and the row of each. Fails as
-- a whole where one was told before, or twice here.
WITH {head}, {sealed}, embedded AS (
    INSERT INTO whence.memory_vectors (workspace_id, memory_id, user_id, embedder, embedding)
    SELECT %(workspace_id)s, event_id, memory_user, embedder, embedding
    FROM head, unnest(
        %(event_id)b::uuid[], %(memory_user)b::text[], %(embedder)b::text[], %(embedding)b::halfvec[]
    ) WITH ORDINALITY AS t (event_id, memory_user, embedder, embedding, place)
), remembered AS (
    INSERT INTO whence.memories (
        workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, world_id_context, body,
        body_hash, importance, valid_at, recorded_at, sanitised, speaker, role, teller
    )
    SELECT %(workspace_id)s, event_id, head.last_position + place, memory_user, subject_id, said_by, agent_id, profile,
        tier, kind, world_id_context, body, body_hash, importance, coalesce(valid_at, %(recorded_at)s), %(recorded_at)s,
        sanitised::jsonb, speaker, role, teller
    FROM head, unnest(
        %(event_id)b::uuid[], %(memory_user)b::text[], %(payload_subject)b::text[], %(said_by)b::text[],
        %(agent_id)b::text[], %(profile)b::text[], %(tier)b::text[], %(kind)b::text[], %(world_id_context)b::text[],
        %(body)b::text[], %(body_hash)b::bytea[], %(importance)b::float8[], %(valid_at)b::timestamptz[],
        %(sanitised)b::text[], %(speaker)b::text[], %(role)b::text[], %(teller)b::text[]
    ) WITH ORDINALITY AS t (
        event_id, memory_user, subject_id, said_by, agent_id, profile, tier, kind, world_id_context, body, body_hash,
        importance, valid_at, sanitised, speaker, role, teller, place
    )
)
{store_events};

-- name: apply_effects
-- Follows the events in their transaction. What the documents say is done; a row for each that is not simply stored.
SELECT whence.memory_apply(
    %(workspace_id)s, %(base)s::bigint, %(count)s::bigint, %(recorded_at)s::timestamptz, %(documents)s::jsonb,
    %(vectors)b::halfvec[], %(in_order)b::boolean
);

-- name: stored_before
-- What is stored under these ids, to compare repeats with.
SELECT global_position, event_id, parent_event_id, occurred_at, ended_at, schema_version, importance_hint, event_type,
       session_id, trace_id, agent_id, user_id, subject_id, tool_name, status, data_classification, payload_ref,
       payload_commitment, measures::text
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND event_id = ANY (%(event_ids)b::uuid[]);

-- name: head
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s;

-- fragment: envelope
-- The fields of wire.StoredEvent, in order.
event_id, global_position, event_type, occurred_at, recorded_at, session_id, trace_id, agent_id, user_id,
parent_event_id, tool_name, payload_ref, ended_at, status, schema_version, importance_hint, data_classification,
subject_id, measures::text, payload_commitment IS NOT NULL

-- name: events_after
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND global_position > %(after)s::bigint
ORDER BY global_position LIMIT %(limit)s::bigint;

-- name: events_of_user_after
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s AND global_position > %(after)s::bigint
ORDER BY global_position LIMIT %(limit)s::bigint;

-- name: events_of_trace_after
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND trace_id = %(trace_id)s AND global_position > %(after)s::bigint
  AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
  AND (%(event_type)s::text IS NULL OR event_type = %(event_type)s)
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position LIMIT %(limit)s::bigint;

-- name: events_of_session_after
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND session_id = %(session_id)s AND global_position > %(after)s::bigint
  AND (%(event_type)s::text IS NULL OR event_type = %(event_type)s)
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position LIMIT %(limit)s::bigint;

-- name: events_of_type_after
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND event_type = %(event_type)s AND global_position > %(after)s::bigint
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
ORDER BY global_position LIMIT %(limit)s::bigint;

-- name: event_by_id
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND event_id = %(event_id)s
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s);

-- name: payloads_of_event
-- The event's own payload first, then what log records said about it, as many as fit: they share its trace, and they
-- are of its owner or of nobody, because anybody can write an event that names another's as its parent.
WITH about AS (
    SELECT *, false AS joined FROM whence.events
    WHERE workspace_id = %(workspace_id)s AND event_id = %(event_id)s
    UNION ALL
    -- OFFSET 0 makes it read this trace, never all contents of the workspace.
    SELECT *, true FROM (
        SELECT * FROM whence.events
        WHERE workspace_id = %(workspace_id)s AND trace_id = %(trace_id)s OFFSET 0
    ) AS same_trace
    WHERE parent_event_id = %(event_id)s AND event_type = 'llm.content'
      AND (user_id IS NULL OR user_id = %(owner)s)
), sized AS (
    SELECT e.event_id, e.event_type, e.schema_version, p.subject_id, p.ciphertext, e.joined, count(*) OVER () AS found,
        sum(octet_length(p.ciphertext)) OVER (ORDER BY e.joined, e.occurred_at, e.global_position) AS bytes_so_far
    FROM about e
    JOIN whence.payloads p ON p.workspace_id = e.workspace_id AND p.global_position = e.global_position
    WHERE %(user_id)s::text IS NULL OR e.user_id = %(user_id)s
)
SELECT event_id, event_type, schema_version, subject_id, ciphertext, joined, found FROM sized
WHERE NOT joined OR bytes_so_far <= %(max_bytes)s::bigint
ORDER BY bytes_so_far
LIMIT %(limit)s::bigint;

-- name: contents_at
-- The payloads of events by their positions, as many as fit; sizes are known without reading them.
SELECT e.global_position, e.event_id, e.event_type, e.schema_version, e.user_id, e.trace_id, p.subject_id, p.ciphertext
FROM (
    SELECT *, sum(octet_length(ciphertext)) OVER (ORDER BY global_position) AS bytes_so_far
    FROM whence.payloads
    WHERE workspace_id = %(workspace_id)s AND global_position = ANY (%(positions)s::bigint[])
      AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
) p
JOIN whence.events e ON e.workspace_id = p.workspace_id AND e.global_position = p.global_position
-- Said of the events too: else the planner may merge the two in order, from the first event of the workspace on.
WHERE e.workspace_id = %(workspace_id)s AND e.global_position = ANY (%(positions)s::bigint[])
  AND p.bytes_so_far <= %(max_bytes)s::bigint
ORDER BY p.global_position;

-- name: events_at
-- Envelopes by position.
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND global_position = ANY (%(positions)s::bigint[])
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s);

-- name: events_named
-- Envelopes by id.
SELECT {envelope}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND event_id = ANY (%(event_ids)s::uuid[])
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s);

-- name: subject_keys
SELECT subject_id, key_id, kek_id, wrapped_key FROM whence.subject_keys
WHERE workspace_id = %(workspace_id)s AND subject_id = ANY (%(subject_ids)s);

-- name: all_subject_keys
SELECT subject_id, key_id, kek_id, wrapped_key FROM whence.subject_keys
WHERE workspace_id = %(workspace_id)s ORDER BY subject_id;

-- name: add_subject_keys
-- Sorted by the caller, so that two writers adding the same subjects do not wait for each other in a circle.
INSERT INTO whence.subject_keys (workspace_id, subject_id, key_id, wrapped_key, kek_id, created_at)
SELECT %(workspace_id)s, subject_id, key_id, wrapped_key, %(kek_id)s, %(now)s
FROM unnest(%(subject_ids)s::text[], %(key_ids)s::uuid[], %(wrapped_keys)b::bytea[]) AS t (subject_id, key_id, wrapped_key)
ON CONFLICT DO NOTHING;

-- name: installation_kek
SELECT kek_id FROM whence.installation;

-- name: set_installation_kek
INSERT INTO whence.installation (kek_id, created_at) VALUES (%(kek_id)s, %(now)s) ON CONFLICT DO NOTHING;

-- fragment: leaf
-- The fields of leaves.Leaf, in order: every column of the table, sorted. A time says when it is before Christ or no
-- time at all, so that no two values share a form.
agent_id, data_classification,
coalesce(replace(to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"AD'), 'AD', ''), ended_at::text),
event_id::text, event_type, global_position, importance_hint, measures::text,
coalesce(replace(to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"AD'), 'AD', ''), occurred_at::text),
parent_event_id::text, encode(payload_commitment, 'hex'), payload_ref,
coalesce(replace(to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"AD'), 'AD', ''), recorded_at::text),
schema_version, session_id, status, subject_id, tool_name, trace_id, user_id, workspace_id

-- name: leaves
-- By bounds and not by LIMIT, so that what stands twice on a position is seen.
SELECT {leaf}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND global_position > %(after)s::bigint AND global_position <= %(up_to)s::bigint
ORDER BY global_position;

-- name: leaf_by_id
SELECT {leaf}
FROM whence.events
WHERE workspace_id = %(workspace_id)s AND event_id = %(event_id)s
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s);

-- name: lock_tiles
-- Sealers of a workspace queue here: a conflict locks the row also where it changes nothing.
INSERT INTO whence.seal_tiles AS t (workspace_id, level, tile, hashes) VALUES (%(workspace_id)s, 0, 0, '')
ON CONFLICT (workspace_id, level, tile) DO UPDATE SET hashes = t.hashes WHERE false;

-- name: tiles
SELECT level, tile, hashes
FROM whence.seal_tiles JOIN unnest(%(levels)s::smallint[], %(tiles)s::bigint[]) AS wanted (level, tile) USING (level, tile)
WHERE workspace_id = %(workspace_id)s;

-- name: put_tiles
INSERT INTO whence.seal_tiles (workspace_id, level, tile, hashes)
SELECT %(workspace_id)s, level, tile, hashes
FROM unnest(%(levels)s::smallint[], %(tiles)s::bigint[], %(hashes)b::bytea[]) AS t (level, tile, hashes)
ON CONFLICT (workspace_id, level, tile) DO UPDATE SET hashes = EXCLUDED.hashes;

-- name: add_seal
INSERT INTO whence.seals (workspace_id, size, root, sealed_at)
VALUES (%(workspace_id)s, %(size)s, %(root)s, %(sealed_at)s);

-- name: last_seal
SELECT size, encode(root, 'hex'), sealed_at FROM whence.seals
WHERE workspace_id = %(workspace_id)s ORDER BY size DESC LIMIT 1;

-- name: seals_after
SELECT size, encode(root, 'hex'), sealed_at FROM whence.seals
WHERE workspace_id = %(workspace_id)s AND size > %(after)s::bigint ORDER BY size LIMIT %(limit)s::bigint;

-- name: seals_between
SELECT size, encode(root, 'hex'), sealed_at FROM whence.seals
WHERE workspace_id = %(workspace_id)s AND size > %(after)s::bigint AND size <= %(up_to)s::bigint ORDER BY size;

-- name: seals_of_sizes
SELECT size, encode(root, 'hex'), sealed_at FROM whence.seals
WHERE workspace_id = %(workspace_id)s AND size = ANY (%(sizes)s::bigint[]) ORDER BY size;

-- name: ends
-- The last position by the head and by the events themselves, which are the same at any moment, and the first one.
SELECT coalesce((SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s), 0),
       coalesce((SELECT min(global_position) FROM whence.events WHERE workspace_id = %(workspace_id)s), 1),
       coalesce((SELECT max(global_position) FROM whence.events WHERE workspace_id = %(workspace_id)s), 0);

-- name: gaps_after
-- The first and last of the positions that are missing between two events past `after`.
SELECT previous + 1, global_position - 1 FROM (
    SELECT global_position, lag(global_position, 1, %(after)s::bigint) OVER (ORDER BY global_position) AS previous
    FROM whence.events WHERE workspace_id = %(workspace_id)s AND global_position > %(after)s::bigint
) AS neighbours
WHERE global_position <> previous + 1 ORDER BY global_position LIMIT %(limit)s::bigint;

-- name: seals_due
-- Workspaces with events that are not sealed: many, or some for a while. Run as whence_worker.
SELECT w.workspace_id
FROM whence.workspaces w
JOIN whence.workspace_heads h ON h.workspace_id = w.workspace_id
LEFT JOIN LATERAL (
    SELECT s.size, s.sealed_at FROM whence.seals s WHERE s.workspace_id = w.workspace_id ORDER BY s.size DESC LIMIT 1
) last ON true
WHERE h.last_position - coalesce(last.size, 0) >= %(many)s::bigint
   OR h.last_position > coalesce(last.size, 0) AND coalesce(last.sealed_at, w.created_at) <= %(before)s
ORDER BY coalesce(last.sealed_at, w.created_at);
