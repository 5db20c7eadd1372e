-- The statements of items. What is written goes through whence.memory_apply (see the ledger's `apply_effects`).

-- fragment: item
-- The fields of wire.StoredItem, in order, but for the score. There are no values where all of them have no room.
i.memory_id, i.position, i.namespace, i.key, CASE WHEN i.bytes_in_all <= %(room)s::bigint THEN i.value::text END, i.created_at, i.updated_at, i.expires_at

-- fragment: held
-- Of one owner and agent. What has expired is seen by nobody.
i.workspace_id = %(workspace_id)s AND i.owner = %(owner)s AND i.agent = %(agent)s
  AND (i.expires_at IS NULL OR i.expires_at > %(now)s::timestamptz)

-- fragment: within
-- Under a beginning of the namespace, and as the filter says.
{held} AND i.path >= %(first)s AND i.path < %(last)s AND NOT EXISTS (
    SELECT FROM jsonb_to_recordset(%(conditions)s::jsonb) c (path text[], sign text, value jsonb)
    WHERE whence.item_compares(i.value #> c.path, c.sign, coalesce(c.value, 'null')) IS NOT TRUE
)

-- name: items_by_key
-- With how long each lives, whom its memory is about, and who said it; its value only where it is asked for. One after the
-- other, each by its key: OFFSET 0 keeps the planner from reading all items of the owner.
SELECT i.conflict_key, i.ttl_s, m.subject_id, m.said_by, {item}
FROM (
    SELECT i.*, CASE WHEN k.times > 0 THEN sum(i.bytes * k.times) OVER () END AS bytes_in_all
    FROM unnest(%(keys)s::text[], %(times)s::bigint[]) k (conflict_key, times)
    CROSS JOIN LATERAL (SELECT * FROM whence.items i WHERE {held} AND i.conflict_key = k.conflict_key OFFSET 0) i
) i
LEFT JOIN LATERAL (
    SELECT m.subject_id, m.said_by FROM whence.memories m
    WHERE m.workspace_id = i.workspace_id AND m.memory_id = i.memory_id OFFSET 0
) m ON true;

-- name: items_within
-- The newest first.
SELECT i.ttl_s, {item} FROM (
    SELECT i.*, sum(i.bytes) OVER () AS bytes_in_all FROM (
        SELECT * FROM whence.items i WHERE {within}
        ORDER BY i.position DESC LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint
    ) i
) i
ORDER BY i.position DESC;

-- name: items_searched
-- Which memories a question is about, the newest first.
SELECT i.memory_id FROM whence.items i WHERE {within} AND i.searched ORDER BY i.position DESC;

-- name: items_of_memories
SELECT i.ttl_s, {item} FROM (
    SELECT i.*, sum(i.bytes) OVER () AS bytes_in_all FROM unnest(%(ids)s::uuid[]) k (memory_id)
    CROSS JOIN LATERAL (SELECT * FROM whence.items i WHERE {held} AND i.memory_id = k.memory_id OFFSET 0) i
) i;

-- name: namespaces
-- Each is looked at once, however many items it has.
SELECT DISTINCT n.namespace[1:coalesce(%(depth)s::integer, cardinality(n.namespace))] COLLATE "C" AS labels
FROM (SELECT i.namespace FROM whence.items i WHERE {held} GROUP BY i.path, i.namespace OFFSET 0) n
WHERE NOT EXISTS (
    SELECT FROM jsonb_to_recordset(%(conditions)s::jsonb) c (match text, path text[])
    WHERE NOT whence.namespace_matches(n.namespace, c.match, c.path)
)
ORDER BY labels LIMIT %(limit)s::bigint OFFSET %(offset)s::bigint;
