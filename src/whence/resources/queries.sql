-- The statements of resources. What is derived is written by whence.memory_apply (see the ledger's `apply_effects`).

-- fragment: resource
-- The fields of wire.Resource, in order.
r.resource_id, r.uri, r.uri, CASE WHEN r.deleted_at IS NULL THEN r.status ELSE 'deleted' END, r.name, r.user_id, r.app_id,
r.project_id, r.size, r.sha256, CASE WHEN r.status = 'processing' THEN (
    SELECT count(*) FROM whence.resource_chunks c
    WHERE c.workspace_id = r.workspace_id AND c.resource_id = r.resource_id
) ELSE r.chunks END, r.added_by, r.added_at, r.position, r.content_type, r.declared_type, r.processed_at, r.reason,
r.refused

-- name: resource_by_id
SELECT {resource} FROM whence.resources r
WHERE r.workspace_id = %(workspace_id)s AND r.resource_id = %(resource_id)s
  AND (%(user_id)s::text IS NULL OR r.user_id = %(user_id)s);

-- name: resources_page
-- The newest first.
SELECT {resource} FROM whence.resources r
WHERE r.workspace_id = %(workspace_id)s AND (%(user_id)s::text IS NULL OR r.user_id = %(user_id)s)
  AND r.agent = %(agent)s AND r.position < %(before)s::bigint AND r.deleted_at IS NULL
ORDER BY r.position DESC LIMIT %(limit)s::bigint;

-- name: resource_of_bytes
SELECT {resource} FROM whence.resources r
WHERE r.workspace_id = %(workspace_id)s AND r.user_id = %(owner)s AND r.agent = %(agent)s AND r.sha256 = %(sha256)s
  AND r.deleted_at IS NULL AND r.status <> 'failed';

-- name: is_processing
-- Whether there is still something to do about it.
SELECT EXISTS (
    SELECT FROM whence.resources r
    WHERE r.workspace_id = %(workspace_id)s AND r.resource_id = %(resource_id)s AND r.status = 'processing'
      AND r.deleted_at IS NULL
);

-- name: chunks_stored
SELECT c.memory_id FROM whence.resource_chunks c
WHERE c.workspace_id = %(workspace_id)s AND c.resource_id = %(resource_id)s;

-- name: add_part
INSERT INTO whence.resource_uploads (workspace_id, resource_id, part, user_id, ciphertext, taken_until, kind)
VALUES (%(workspace_id)s, %(resource_id)s, %(part)s, %(owner)s, %(ciphertext)b, %(taken_until)s, %(kind)s);

-- name: part_of
SELECT u.ciphertext FROM whence.resource_uploads u
WHERE u.workspace_id = %(workspace_id)s AND u.resource_id = %(resource_id)s AND u.part = %(part)s;

-- name: take
-- The next file that nobody is at.
UPDATE whence.resource_uploads u SET taken_until = %(until)s, attempts = u.attempts + 1
WHERE u.workspace_id = %(workspace_id)s AND u.part = 0 AND u.resource_id = (
    SELECT w.resource_id FROM whence.resource_uploads w
    WHERE w.workspace_id = %(workspace_id)s AND w.taken_until < %(now)s
    ORDER BY w.taken_until LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING u.resource_id, u.kind, u.attempts;

-- name: not_counted
-- An attempt that did not fail because of the file.
UPDATE whence.resource_uploads u SET attempts = u.attempts - 1
WHERE u.workspace_id = %(workspace_id)s AND u.resource_id = %(resource_id)s AND u.part = 0;

-- name: go_on
UPDATE whence.resource_uploads u SET taken_until = %(until)s
WHERE u.workspace_id = %(workspace_id)s AND u.resource_id = %(resource_id)s AND u.part = 0;

-- name: workspaces_waiting
-- Run as whence_worker.
SELECT DISTINCT u.workspace_id FROM whence.resource_uploads u WHERE u.taken_until < %(now)s;
