-- The statements of items. What is written goes through whence.memory_apply (see the ledger's `apply_effects`).

-- fragment: item
-- The fields of wire.StoredItem, in order, but for the score.
i.memory_id, i.position, i.namespace, i.key, i.value::text, i.created_at, i.updated_at, i.expires_at

-- fragment: held
-- Of one owner and agent. What has expired is seen by nobody.
i.workspace_id = %(workspace_id)s AND i.owner = %(owner)s AND i.agent = %(agent)s
  AND (i.expires_at IS NULL OR i.expires_at > %(now)s::timestamptz)

-- fragment: within
-- Under a beginning of the namespace, and as the filter says.
{held} AND i.path >= %(first)s AND i.path < %(last)s AND whence.item_matches(i.value, %(conditions)s::jsonb)

-- name: items_by_key
-- With how long each lives and whom its memory is about.
SELECT i.conflict_key, i.ttl_s, (
    SELECT m.subject_id FROM whence.memories m WHERE m.workspace_id = i.workspace_id AND m.memory_id = i.memory_id
), {item}
FROM whence.items i WHERE {held} AND i.conflict_key = ANY (%(keys)s::text[]);

-- name: items_within
-- The newest first.
SELECT i.ttl_s, {item} FROM whence.items i WHERE {within}
ORDER BY i.position DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint;

-- name: items_searched
-- Which memories a question is about, the newest first.
SELECT i.memory_id FROM whence.items i WHERE {within} AND i.searched ORDER BY i.position DESC;

-- name: items_of_memories
SELECT i.ttl_s, {item} FROM whence.items i WHERE {held} AND i.memory_id = ANY (%(ids)s::uuid[]);

-- name: namespaces
SELECT DISTINCT i.namespace[1:coalesce(%(depth)s::integer, cardinality(i.namespace))] COLLATE "C" AS labels
FROM whence.items i WHERE {held} AND whence.namespace_matches(i.namespace, %(conditions)s::jsonb)
ORDER BY labels LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint;
