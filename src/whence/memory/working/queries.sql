-- fragment: of_instance
-- The owner is a parameter by itself: with an expression such as COALESCE around it, row-level security keeps the
-- comparison out of the index.
workspace_id = %(workspace_id)s AND owner = %(owner)s
  AND instance_key = whence.working_instance_key(%(agent)s, %(instance)s) AND expires_at > %(now)s

-- name: put
SELECT stored, counts_for, taken
FROM whence.working_put(
    %(workspace_id)s, %(user_id)s, %(agent)s, %(instance)s, %(key)s, %(value)s, %(budget)s::integer, %(now)s,
    %(expires_at)s
);

-- name: get
SELECT value, expires_at FROM whence.working_memory WHERE {of_instance} AND key = %(key)s;

-- name: keys
SELECT key, bytes, updated_at, expires_at FROM whence.working_memory
WHERE {of_instance} ORDER BY key;

-- name: values
SELECT key, value, expires_at FROM whence.working_memory WHERE {of_instance} ORDER BY key;

-- name: delete
DELETE FROM whence.working_memory WHERE {of_instance} AND key = %(key)s;

-- name: due
-- Workspaces with something to sweep. Run as whence_worker.
SELECT w.workspace_id FROM whence.workspaces w
WHERE EXISTS (
    SELECT FROM whence.working_memory m WHERE m.workspace_id = w.workspace_id AND m.expires_at <= %(now)s
);

-- name: sweep
-- The longest expired first. What somebody writes at this moment is theirs, and stays. Materialized, because a join that
-- ran the choice again for every row would choose others each time.
WITH gone AS MATERIALIZED (
    SELECT owner, instance_key, key FROM whence.working_memory
    WHERE workspace_id = %(workspace_id)s AND expires_at <= %(now)s
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM whence.working_memory m USING gone
WHERE m.workspace_id = %(workspace_id)s AND m.owner = gone.owner AND m.instance_key = gone.instance_key
  AND m.key = gone.key;
