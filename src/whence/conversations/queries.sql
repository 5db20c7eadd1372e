-- The statements of conversations. What is written goes through whence.memory_apply (see the ledger's `apply_effects`).

-- fragment: conversation
-- The fields of Row, in order.
c.conversation_id, c.state, c.user_id, c.broadcast_key, c.forked_from, c.message_count, c.started_at, c.active_at,
c.position, c.titled_at

-- name: conversation_by_id
-- The user's own, or a broadcast; not one that was deleted.
SELECT {conversation} FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.conversation_id = %(conversation_id)s
  AND (c.user_id = %(user_id)s OR c.user_id IS NULL) AND c.deleted_at IS NULL;

-- name: fork_of
SELECT {conversation} FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.forked_from = %(conversation_id)s AND c.user_id = %(user_id)s
  AND c.deleted_at IS NULL;

-- name: broadcast_of_key
SELECT {conversation} FROM whence.conversations c
WHERE c.workspace_id = %(workspace_id)s AND c.broadcast_key = %(key)s;

-- name: conversations_page
-- The newest first: the user's own and the broadcasts, each in the order of an index, as many as there may be of either.
SELECT {conversation} FROM (
    (SELECT * FROM whence.conversations c
     WHERE c.workspace_id = %(workspace_id)s AND c.user_id = %(user_id)s AND c.deleted_at IS NULL
       AND c.position < %(before)s::bigint AND (%(state)s::text IS NULL OR c.state = %(state)s)
     ORDER BY c.position DESC LIMIT %(limit)s::bigint)
    UNION ALL
    (SELECT * FROM whence.conversations c
     WHERE c.workspace_id = %(workspace_id)s AND c.user_id IS NULL
       AND c.position < %(before)s::bigint AND coalesce(%(state)s::text, 'broadcast') = 'broadcast'
     ORDER BY c.position DESC LIMIT %(limit)s::bigint)
) c
ORDER BY c.position DESC LIMIT %(limit)s::bigint;

-- fragment: message
-- The fields of Said, in order.
m.message_id, m.place, m.role, m.recorded_at, m.position, m.is_copy, m.conversation_id

-- name: messages_page
SELECT {message} FROM whence.conversation_messages m
WHERE m.workspace_id = %(workspace_id)s AND m.conversation_id = %(conversation_id)s
  AND (m.user_id = %(user_id)s OR m.user_id IS NULL) AND m.deleted_at IS NULL AND m.place > %(after)s::integer
ORDER BY m.place LIMIT %(limit)s::bigint;

-- name: message_by_id
-- What the user said, where it still stands.
SELECT {message} FROM whence.conversation_messages m
WHERE m.workspace_id = %(workspace_id)s AND m.message_id = %(message_id)s AND NOT m.is_copy
  AND m.user_id = %(user_id)s AND m.deleted_at IS NULL;
