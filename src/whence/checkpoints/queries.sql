-- name: workspace_exists
SELECT FROM whence.workspaces WHERE workspace_id = %(workspace_id)s;

-- name: thread_keys
SELECT key_id, subject_key_id, sealed_key FROM whence.thread_keys
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s ORDER BY key_id;

-- name: add_thread_key
INSERT INTO whence.thread_keys (workspace_id, user_id, key_id, subject_key_id, sealed_key, created_at)
VALUES (%(workspace_id)s, %(user_id)s, %(key_id)s, %(subject_key_id)s, %(sealed_key)b, %(now)s);

-- fragment: beside_erasure
-- An erasure of the user waits until what is written now is committed, and removes that too; or it is over already.
pg_advisory_xact_lock_shared(hashtextextended(concat_ws(' ', 'whence erases', %(workspace_id)s::text, %(user_id)s::text), 0))

-- name: beside_erasure
SELECT {beside_erasure};

-- name: add_alone
-- One at a time adds a key of the user.
SELECT pg_advisory_xact_lock(hashtextextended(concat_ws(' ', 'thread keys', %(workspace_id)s::text, %(user_id)s::text), 0));

-- name: unused_keys
-- Keys older than any that a thread of the user may still need, but for the one that seals.
SELECT k.key_id FROM whence.thread_keys k
WHERE k.workspace_id = %(workspace_id)s AND k.user_id = %(user_id)s AND k.key_id <> %(key_id)s
  AND NOT EXISTS (
    SELECT FROM whence.threads t
    WHERE t.workspace_id = k.workspace_id AND t.user_id = k.user_id AND t.key_id <= k.key_id
  );

-- name: drop_key
DELETE FROM whence.thread_keys
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s AND key_id = %(key_id)s;

-- name: touch
-- Before anything of a thread is written: it is there afterwards, and until the transaction ends nobody deletes it or
-- seals it anew. Its key is the oldest that it may need, which only sealing anew moves on. What has waited for an erasure
-- is of after it, also by its times.
WITH held AS MATERIALIZED (SELECT {beside_erasure})
INSERT INTO whence.threads (workspace_id, user_id, thread_id, conversation_id, key_id, created_at, used_at)
SELECT %(workspace_id)s::text, %(user_id)s::text, %(thread_id)s::text, %(conversation_id)s::text, %(key_id)s::uuid,
    %(now)s::timestamptz + (clock_timestamp() - statement_timestamp()),
    %(now)s::timestamptz + (clock_timestamp() - statement_timestamp())
FROM held
ON CONFLICT ON CONSTRAINT threads_pkey DO UPDATE SET used_at = EXCLUDED.used_at,
    conversation_id = coalesce(EXCLUDED.conversation_id, threads.conversation_id),
    key_id = least(threads.key_id, EXCLUDED.key_id);

-- name: threads_of_user
SELECT user_id, thread_id, stored_as, conversation_id, key_id, created_at, used_at FROM whence.threads
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s ORDER BY thread_id;

-- name: users_with_threads
SELECT DISTINCT user_id FROM whence.threads
WHERE workspace_id = %(workspace_id)s AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s) ORDER BY user_id;

-- name: hold_thread
SELECT key_id FROM whence.threads
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s AND thread_id = %(thread_id)s FOR UPDATE;

-- name: sealed_anew
UPDATE whence.threads SET key_id = %(key_id)s
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s AND thread_id = %(thread_id)s;

-- name: delete_threads
-- Their checkpoints go with them, by a trigger. In order, so that two who delete do not wait for each other in a circle.
WITH gone AS MATERIALIZED (
    SELECT t.user_id, t.thread_id FROM whence.threads t
    JOIN unnest(%(user_ids)s::text[], %(thread_ids)s::text[]) AS g (user_id, thread_id)
      ON g.user_id = t.user_id AND g.thread_id = t.thread_id
    WHERE t.workspace_id = %(workspace_id)s ORDER BY t.user_id, t.thread_id FOR UPDATE OF t
)
DELETE FROM whence.threads t USING gone
WHERE t.workspace_id = %(workspace_id)s AND t.user_id = gone.user_id AND t.thread_id = gone.thread_id;

-- name: delete_threads_of_conversations
WITH gone AS MATERIALIZED (
    SELECT t.user_id, t.thread_id FROM whence.threads t
    WHERE t.workspace_id = %(workspace_id)s AND t.conversation_id = ANY (%(conversation_ids)s)
    ORDER BY t.user_id, t.thread_id FOR UPDATE
)
DELETE FROM whence.threads t USING gone
WHERE t.workspace_id = %(workspace_id)s AND t.user_id = gone.user_id AND t.thread_id = gone.thread_id;

-- name: has_checkpoints
-- Whether the tables of the framework are there for this role.
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'langgraph' AND c.relname = 'checkpoint_writes'
      AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
);

-- fragment: found
-- Newest first, past a checkpoint; of what is sealed the metadata is compared by whoever can open it.
SELECT t.thread_id, t.stored_as, c.checkpoint_ns, c.checkpoint_id, c.metadata
FROM whence.threads t JOIN langgraph.checkpoints c ON c.thread_id = t.stored_as
WHERE t.workspace_id = %(workspace_id)s AND t.user_id = %(user_id)s
  AND (%(checkpoint_ns)s::text IS NULL OR c.checkpoint_ns = %(checkpoint_ns)s)
  AND (%(checkpoint_id)s::text IS NULL OR c.checkpoint_id = %(checkpoint_id)s)
  AND (%(before)s::text IS NULL OR c.checkpoint_id < %(before)s)
  AND (%(past)s::text[] IS NULL
       OR (c.checkpoint_id, c.thread_id, c.checkpoint_ns)
          < ((%(past)s::text[])[1], (%(past)s::text[])[2], (%(past)s::text[])[3]))
  AND (c.metadata @> %(wanted)s::jsonb OR c.metadata ? 'whence.sealed')

-- fragment: newest_first
ORDER BY c.checkpoint_id DESC, c.thread_id DESC, c.checkpoint_ns DESC LIMIT %(limit)s

-- name: find_checkpoints
{found} {newest_first};

-- name: find_in_thread
{found} AND t.thread_id = %(thread_id)s {newest_first};

-- name: hold_runs
-- The threads that have something of these runs.
SELECT t.stored_as FROM whence.threads t
WHERE t.workspace_id = %(workspace_id)s AND t.user_id = %(user_id)s AND EXISTS (
    SELECT FROM langgraph.checkpoints c WHERE c.thread_id = t.stored_as
      AND (c.metadata->>'run_id' = ANY (%(run_ids)s) OR c.metadata->>'whence.run' = ANY (%(marks)s))
)
ORDER BY t.thread_id FOR UPDATE OF t;

-- name: delete_runs
WITH gone AS (
    DELETE FROM langgraph.checkpoints c
    WHERE c.thread_id = ANY (%(stored_as)s)
      AND (c.metadata->>'run_id' = ANY (%(run_ids)s) OR c.metadata->>'whence.run' = ANY (%(marks)s))
    RETURNING c.thread_id, c.checkpoint_ns, c.checkpoint_id
)
DELETE FROM langgraph.checkpoint_writes w USING gone
WHERE w.thread_id = gone.thread_id AND w.checkpoint_ns = gone.checkpoint_ns AND w.checkpoint_id = gone.checkpoint_id;

-- name: delete_loose_blobs
-- What no checkpoint of the thread refers to any more.
DELETE FROM langgraph.checkpoint_blobs b
WHERE b.thread_id = ANY (%(stored_as)s) AND NOT EXISTS (
    SELECT FROM langgraph.checkpoints c
    WHERE c.thread_id = b.thread_id AND c.checkpoint_ns = b.checkpoint_ns
      AND c.checkpoint->'channel_versions'->>b.channel = b.version
);

-- name: hold_threads
-- Until the transaction ends nothing is written to them; what the next statements see of them is whole.
SELECT stored_as, thread_id, conversation_id FROM whence.threads
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s AND thread_id = ANY (%(thread_ids)s)
ORDER BY thread_id FOR UPDATE;

-- name: delta_threads
-- Whether one of them has channels that are kept as differences: pruned, they could not be put together again.
SELECT EXISTS (
    SELECT FROM langgraph.checkpoints c
    WHERE c.thread_id = ANY (%(stored_as)s)
      AND (c.metadata ?| ARRAY['counters_since_delta_snapshot', 'delta_writes_versioned'] OR EXISTS (
        SELECT FROM jsonb_each(c.checkpoint->'channel_values') v
        JOIN langgraph.checkpoint_blobs b ON b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns
            AND b.channel = v.key AND b.version = c.checkpoint->'channel_versions'->>v.key
        WHERE v.value = 'true'))
);

-- name: prune
-- The newest of each namespace stays, and what it reads pending sends from where it is of an old form. The namespace of
-- one call of a subgraph, which has a colon, goes with the root checkpoint that the call began from; while that one is
-- not saved yet, the call may be going on.
WITH newest AS MATERIALIZED (
    SELECT DISTINCT ON (c.thread_id, c.checkpoint_ns) c.thread_id, c.checkpoint_ns, c.checkpoint_id,
        CASE WHEN (c.checkpoint->>'v')::integer < 4 AND EXISTS (
            SELECT FROM langgraph.checkpoint_writes w
            WHERE w.thread_id = c.thread_id AND w.checkpoint_ns = c.checkpoint_ns
              AND w.checkpoint_id = c.parent_checkpoint_id AND w.channel = '__pregel_tasks'
        ) THEN c.parent_checkpoint_id END AS sends,
        c.metadata->'parents'->>'' AS root
    FROM langgraph.checkpoints c WHERE c.thread_id = ANY (%(stored_as)s)
    ORDER BY c.thread_id, c.checkpoint_ns, c.checkpoint_id DESC
), settled AS (
    SELECT n.*, position(':' IN n.checkpoint_ns) > 0 AND EXISTS (
        SELECT FROM langgraph.checkpoints r
        WHERE r.thread_id = n.thread_id AND r.checkpoint_ns = '' AND r.checkpoint_id = n.root
    ) AND NOT EXISTS (
        SELECT FROM newest k
        WHERE k.thread_id = n.thread_id AND k.checkpoint_ns = '' AND n.root IN (k.checkpoint_id, k.sends)
    ) AS is_over
    FROM newest n
), gone AS (
    DELETE FROM langgraph.checkpoints c USING settled n
    WHERE c.thread_id = n.thread_id AND c.checkpoint_ns = n.checkpoint_ns
      AND (n.is_over OR (c.checkpoint_id <> n.checkpoint_id AND c.checkpoint_id IS DISTINCT FROM n.sends))
    RETURNING c.thread_id, c.checkpoint_ns, c.checkpoint_id
)
DELETE FROM langgraph.checkpoint_writes w USING gone
WHERE w.thread_id = gone.thread_id AND w.checkpoint_ns = gone.checkpoint_ns AND w.checkpoint_id = gone.checkpoint_id;

-- name: part_with_parents
UPDATE langgraph.checkpoints c SET parent_checkpoint_id = NULL
WHERE c.thread_id = ANY (%(stored_as)s) AND c.parent_checkpoint_id IS NOT NULL AND NOT EXISTS (
    SELECT FROM langgraph.checkpoints p
    WHERE p.thread_id = c.thread_id AND p.checkpoint_ns = c.checkpoint_ns
      AND p.checkpoint_id = c.parent_checkpoint_id
);

-- name: checkpoints_after
-- With the channels whose value is kept apart although a mark stands in its place.
SELECT c.checkpoint_ns, c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata, ARRAY(
    SELECT v.key FROM jsonb_each(c.checkpoint->'channel_values') v
    WHERE v.value = 'true' AND EXISTS (
        SELECT FROM langgraph.checkpoint_blobs b
        WHERE b.thread_id = c.thread_id AND b.checkpoint_ns = c.checkpoint_ns AND b.channel = v.key
          AND b.version = c.checkpoint->'channel_versions'->>v.key)
)
FROM langgraph.checkpoints c
WHERE c.thread_id = %(stored_as)s AND (c.checkpoint_ns, c.checkpoint_id) > (%(after_1)s, %(after_2)s)
ORDER BY c.checkpoint_ns, c.checkpoint_id LIMIT %(limit)s;

-- name: set_checkpoints
INSERT INTO langgraph.checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint, metadata)
SELECT %(stored_as)s, g.* FROM unnest(
    %(checkpoint_ns)s::text[], %(checkpoint_id)s::text[], %(parent)s::text[], %(checkpoint)s::jsonb[], %(metadata)s::jsonb[]
) AS g
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id) DO UPDATE
    SET parent_checkpoint_id = EXCLUDED.parent_checkpoint_id, checkpoint = EXCLUDED.checkpoint,
        metadata = EXCLUDED.metadata;

-- name: blobs_after
SELECT b.checkpoint_ns, b.channel, b.version, b.type, b.blob FROM langgraph.checkpoint_blobs b
WHERE b.thread_id = %(stored_as)s
  AND (b.checkpoint_ns, b.channel, b.version) > (%(after_1)s, %(after_2)s, %(after_3)s)
ORDER BY b.checkpoint_ns, b.channel, b.version LIMIT %(limit)s;

-- name: set_blobs
INSERT INTO langgraph.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
SELECT %(stored_as)s, g.* FROM unnest(
    %(checkpoint_ns)s::text[], %(channel)s::text[], %(version)s::text[], %(type)s::text[], %(blob)b::bytea[]
) AS g
ON CONFLICT (thread_id, checkpoint_ns, channel, version) DO UPDATE SET type = EXCLUDED.type, blob = EXCLUDED.blob;

-- name: writes_after
SELECT w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx, w.channel, w.task_path, w.type, w.blob
FROM langgraph.checkpoint_writes w
WHERE w.thread_id = %(stored_as)s AND (w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx)
    > (%(after_1)s, %(after_2)s, %(after_3)s, %(after_4)s::integer)
ORDER BY w.checkpoint_ns, w.checkpoint_id, w.task_id, w.idx LIMIT %(limit)s;

-- name: set_writes
INSERT INTO langgraph.checkpoint_writes (
    thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, task_path, type, blob
)
SELECT %(stored_as)s, g.* FROM unnest(
    %(checkpoint_ns)s::text[], %(checkpoint_id)s::text[], %(task_id)s::text[], %(idx)s::integer[], %(channel)s::text[],
    %(task_path)s::text[], %(type)s::text[], %(blob)b::bytea[]
) AS g
ON CONFLICT (thread_id, checkpoint_ns, checkpoint_id, task_id, idx) DO UPDATE
    SET channel = EXCLUDED.channel, task_path = EXCLUDED.task_path, type = EXCLUDED.type, blob = EXCLUDED.blob;
