-- name: become_eraser
-- For the rest of the transaction: it may delete payloads, keys and accounts of its workspace too.
SET LOCAL ROLE whence_eraser;

-- name: hold_head
-- Nobody writes to the workspace until this transaction ends.
SELECT last_position FROM whence.workspace_heads WHERE workspace_id = %(workspace_id)s FOR UPDATE;

-- name: erase_rows
SELECT whence.erase_rows(%(workspace_id)s, %(subject_id)s, %(subject_hash)s);

-- name: add_unsettled
INSERT INTO whence.erasures_unsettled (workspace_id, erasure_id, since, shredded)
VALUES (%(workspace_id)s, %(erasure_id)s, %(now)s, %(shredded)s::jsonb);

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
SELECT ((to_jsonb(m) - ARRAY['workspace_id', 'owner', 'anchor', 'body_hash', 'object_key'])
    || jsonb_build_object(
        'sources', (
            SELECT coalesce(jsonb_agg(to_jsonb(s) - ARRAY['workspace_id', 'memory_id'] ORDER BY s.position, s.source), '[]')
            FROM whence.memory_sources s WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id),
        'recalls', (
            SELECT coalesce(jsonb_agg(h.recall_id ORDER BY h.recall_id), '[]')
            FROM whence.recall_hits h WHERE h.workspace_id = m.workspace_id AND h.memory_id = m.memory_id)))::text
FROM whence.memories m
WHERE m.workspace_id = %(workspace_id)s AND m.memory_id = ANY (%(event_ids)s::uuid[]) ORDER BY m.position;

-- name: export_recalls
SELECT (to_jsonb(r) - 'workspace_id' || jsonb_build_object('hits', (
    SELECT coalesce(jsonb_agg(h.memory_id ORDER BY h.rank), '[]')
    FROM whence.recall_hits h WHERE h.workspace_id = r.workspace_id AND h.recall_id = r.recall_id)))::text
FROM whence.recalls r
WHERE r.workspace_id = %(workspace_id)s AND r.recall_id = ANY (%(event_ids)s::uuid[]) ORDER BY r.position;

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
