-- name: add_workspace
-- Returns a row only where the workspace is new.
INSERT INTO whence.workspaces (workspace_id, created_at)
VALUES (%(workspace_id)s, %(now)s)
ON CONFLICT DO NOTHING
RETURNING workspace_id;

-- name: add_head
INSERT INTO whence.workspace_heads (workspace_id) VALUES (%(workspace_id)s);

-- name: add_user
-- Returns a row only where the user is new.
INSERT INTO whence.users (workspace_id, user_id, role, created_at)
SELECT workspace_id, %(user_id)s, %(role)s, %(now)s FROM whence.workspaces WHERE workspace_id = %(workspace_id)s
ON CONFLICT DO NOTHING
RETURNING user_id;

-- name: add_key
INSERT INTO whence.user_keys (workspace_id, key_id, user_id, key_hash, created_at)
VALUES (%(workspace_id)s, %(key_id)s, %(user_id)s, %(key_hash)s, %(now)s);

-- name: workspace_exists
SELECT EXISTS (SELECT FROM whence.workspaces WHERE workspace_id = %(workspace_id)s);

-- name: find_user
SELECT role FROM whence.users WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s;

-- name: user_since
SELECT created_at FROM whence.users WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s;

-- name: list_users
-- With the number of keys that are valid now.
SELECT u.user_id, u.role, u.created_at,
       count(k.key_id) FILTER (WHERE k.expires_at IS NULL OR k.expires_at > %(now)s) AS live_keys
FROM whence.users u
LEFT JOIN whence.user_keys k ON k.workspace_id = u.workspace_id AND k.user_id = u.user_id
WHERE u.workspace_id = %(workspace_id)s
GROUP BY u.user_id, u.role, u.created_at
ORDER BY u.user_id;

-- name: expire_keys
-- Brings the end of a user's keys forward, never back.
UPDATE whence.user_keys SET expires_at = %(expires_at)s
WHERE workspace_id = %(workspace_id)s AND user_id = %(user_id)s
  AND (expires_at IS NULL OR expires_at > %(expires_at)s);

-- name: find_key
SELECT k.user_id, u.role, k.key_hash
FROM whence.user_keys k
JOIN whence.users u ON u.workspace_id = k.workspace_id AND u.user_id = k.user_id
WHERE k.workspace_id = %(workspace_id)s AND k.key_id = %(key_id)s
  AND (k.expires_at IS NULL OR k.expires_at > %(now)s);
