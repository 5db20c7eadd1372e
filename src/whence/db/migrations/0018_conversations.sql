-- Conversations: private ones, broadcasts that every member reads, and forks that replies to them make. Derived from the
-- ledger like memory, by whence.memory_apply. What is said stands sealed in payloads; here is only where.

CREATE TABLE whence.conversations (
    workspace_id text NOT NULL,
    conversation_id uuid NOT NULL,
    position bigint NOT NULL,
    state text NOT NULL,
    user_id text,
    broadcast_key text,
    forked_from uuid,
    titled_at bigint,
    message_count integer NOT NULL DEFAULT 0,
    max_messages integer NOT NULL DEFAULT 10000,
    started_at timestamptz NOT NULL,
    active_at timestamptz NOT NULL,
    deleted_at timestamptz,
    CONSTRAINT conversations_pkey PRIMARY KEY (workspace_id, conversation_id),
    CONSTRAINT conversations_fork_of FOREIGN KEY (workspace_id, forked_from)
        REFERENCES whence.conversations (workspace_id, conversation_id),
    CONSTRAINT conversations_state CHECK (CASE state
        WHEN 'private' THEN user_id IS NOT NULL AND broadcast_key IS NULL AND forked_from IS NULL
        WHEN 'broadcast' THEN user_id IS NULL AND broadcast_key IS NOT NULL AND forked_from IS NULL
        WHEN 'fork' THEN user_id IS NOT NULL AND broadcast_key IS NULL AND forked_from IS NOT NULL
        ELSE false END),
    CONSTRAINT conversations_broadcast_stays CHECK (state <> 'broadcast' OR deleted_at IS NULL),
    CONSTRAINT conversations_not_of_itself CHECK (forked_from <> conversation_id),
    CONSTRAINT conversations_names CHECK (user_id <> '' AND broadcast_key <> ''),
    CONSTRAINT conversations_room CHECK (message_count BETWEEN 0 AND max_messages)
);
COMMENT ON COLUMN whence.conversations.conversation_id IS 'The id of the event that made it.';
COMMENT ON COLUMN whence.conversations.titled_at IS 'The position of the event whose payload holds the title, where it has one.';
COMMENT ON COLUMN whence.conversations.max_messages IS
    'Of a broadcast, as many as it was published with: nobody writes into it afterwards.';
COMMENT ON COLUMN whence.conversations.active_at IS 'When the last message came, else when it was started.';

-- What tells rows apart comes first, so that no other statement takes an index for good that has only its workspace.
-- A fork that was deleted is in nobody's way: the next reply makes another.
CREATE UNIQUE INDEX conversations_one_fork ON whence.conversations (forked_from, user_id, workspace_id)
    WHERE forked_from IS NOT NULL AND deleted_at IS NULL;
-- Whoever removes a conversation asks for its forks, deleted ones too.
CREATE INDEX conversations_forks ON whence.conversations (forked_from, workspace_id) WHERE forked_from IS NOT NULL;
CREATE UNIQUE INDEX conversations_one_key ON whence.conversations (broadcast_key, workspace_id)
    WHERE broadcast_key IS NOT NULL;
CREATE INDEX conversations_of_user ON whence.conversations (user_id, workspace_id, position) WHERE deleted_at IS NULL;
-- That there is no user is nothing that an index can be in order by.
CREATE INDEX conversations_of_nobody ON whence.conversations (workspace_id, position) WHERE user_id IS NULL;
-- That a time is not before all times is what only those say who look for it by these.
CREATE INDEX conversations_idle ON whence.conversations (workspace_id, active_at)
    WHERE deleted_at IS NULL AND user_id IS NOT NULL AND active_at > '-infinity';
CREATE INDEX conversations_tombstoned ON whence.conversations (workspace_id, deleted_at) WHERE deleted_at > '-infinity';

CREATE TABLE whence.conversation_messages (
    workspace_id text NOT NULL,
    conversation_id uuid NOT NULL,
    place integer NOT NULL,
    message_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    role text NOT NULL,
    is_copy boolean NOT NULL DEFAULT false,
    recorded_at timestamptz NOT NULL,
    deleted_at timestamptz,
    CONSTRAINT conversation_messages_pkey PRIMARY KEY (workspace_id, conversation_id, place),
    CONSTRAINT conversation_messages_of FOREIGN KEY (workspace_id, conversation_id)
        REFERENCES whence.conversations (workspace_id, conversation_id),
    CONSTRAINT conversation_messages_role CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    CONSTRAINT conversation_messages_place CHECK (place >= 1),
    CONSTRAINT conversation_messages_copy_is_owned CHECK (user_id IS NOT NULL OR NOT is_copy),
    CONSTRAINT conversation_messages_broadcast_stays CHECK (user_id IS NOT NULL OR deleted_at IS NULL)
);
CREATE UNIQUE INDEX conversation_messages_once ON whence.conversation_messages (message_id, workspace_id) WHERE NOT is_copy;
COMMENT ON COLUMN whence.conversation_messages.message_id IS
    'The id of the event whose payload holds the text. A copy in a fork names the event of the broadcast.';
COMMENT ON COLUMN whence.conversation_messages.position IS 'Of that event.';
COMMENT ON COLUMN whence.conversation_messages.user_id IS 'Whose conversation it is in; NULL in a broadcast.';

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY['conversations', 'conversation_messages'] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
        -- A broadcast is nobody's, and for every member.
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND (user_id = current_setting(''app.user_id'', true)'
            ' OR (user_id IS NULL AND current_setting(''app.user_id'', true) <> '''')))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
END $$;

CREATE FUNCTION whence.effect_start_conversation(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, titled_at, started_at,
        active_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, 'private', document->>'user_id',
        CASE WHEN (document->>'titled')::boolean THEN at_position END, at, at);
    RETURN '{}';
END $$;

-- The messages follow in the same transaction.
CREATE FUNCTION whence.effect_publish_broadcast(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, broadcast_key, titled_at,
        max_messages, started_at, active_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, 'broadcast', document->>'key',
        CASE WHEN (document->>'titled')::boolean THEN at_position END, (document->>'messages')::integer, at, at);
    RETURN '{}';
END $$;

-- The texts are not copied: they are the workspace's, which neither ends nor changes them.
CREATE FUNCTION whence.effect_fork_conversation(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, forked_from, titled_at,
        message_count, started_at, active_at)
    SELECT in_workspace, (document->>'event_id')::uuid, at_position, 'fork', document->>'user_id', b.conversation_id,
        b.titled_at, b.message_count, at, at
    FROM whence.conversations b
    WHERE b.workspace_id = in_workspace AND b.conversation_id = (document->>'forked_from')::uuid
      AND b.state = 'broadcast';
    INSERT INTO whence.conversation_messages (workspace_id, conversation_id, place, message_id, position, user_id, role,
        is_copy, recorded_at)
    SELECT in_workspace, (document->>'event_id')::uuid, m.place, m.message_id, m.position, document->>'user_id', m.role,
        true, m.recorded_at
    FROM whence.conversation_messages m
    WHERE m.workspace_id = in_workspace AND m.conversation_id = (document->>'forked_from')::uuid;
    RETURN '{}';
END $$;

CREATE FUNCTION whence.effect_add_message(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    next integer;
BEGIN
    UPDATE whence.conversations c SET message_count = c.message_count + 1, active_at = greatest(c.active_at, at)
    WHERE c.workspace_id = in_workspace AND c.conversation_id = (document->>'conversation_id')::uuid
      AND c.user_id IS NOT DISTINCT FROM document->>'user_id' AND c.deleted_at IS NULL
    RETURNING c.message_count INTO next;
    IF next IS NULL THEN
        RAISE EXCEPTION 'the conversation was deleted, or is another''s' USING
            ERRCODE = '23514', CONSTRAINT = 'conversation_messages_live', TABLE = 'conversation_messages', SCHEMA = 'whence';
    END IF;
    INSERT INTO whence.conversation_messages (workspace_id, conversation_id, place, message_id, position, user_id, role,
        recorded_at)
    VALUES (in_workspace, (document->>'conversation_id')::uuid, next, (document->>'event_id')::uuid, at_position,
        document->>'user_id', document->>'role', at);
    RETURN jsonb_build_object('message_place', next);
END $$;

-- Its messages follow.
CREATE FUNCTION whence.tombstone_conversations(in_workspace text, ids uuid[], at timestamptz) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    gone uuid[];
BEGIN
    WITH tombstoned AS (
        UPDATE whence.conversations c SET deleted_at = at
        WHERE c.workspace_id = in_workspace AND c.conversation_id = ANY (ids) AND c.deleted_at IS NULL
          AND c.state <> 'broadcast'
        RETURNING c.conversation_id
    )
    SELECT array_agg(conversation_id) INTO gone FROM tombstoned;
    UPDATE whence.conversation_messages m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.conversation_id = ANY (gone);
    RETURN coalesce(cardinality(gone), 0);
END $$;

CREATE FUNCTION whence.effect_delete_conversation(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE sql AS $$
    SELECT jsonb_build_object('changed', whence.tombstone_conversations(
        in_workspace, ARRAY[(document->>'conversation_id')::uuid], at));
$$;

-- Whether an action cites it, or something that was said in it. What a fork copied is the broadcast's.
CREATE FUNCTION whence.is_conversation_held(in_workspace text, id uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM whence.action_cites c WHERE c.workspace_id = in_workspace AND c.cited = id
    ) OR EXISTS (
        SELECT 1 FROM whence.conversation_messages m
        JOIN whence.action_cites c ON c.workspace_id = m.workspace_id AND c.cited = m.message_id
        WHERE m.workspace_id = in_workspace AND m.conversation_id = id AND NOT m.is_copy
    );
$$;

-- Tombstones conversations, and removes others with their messages and payloads. Whoever makes the document holds the
-- lock of the workspace's head, so that they are past their time and nothing holds them. The positions that it names are
-- for a replay, which will miss the payloads there.
CREATE FUNCTION whence.effect_retire_conversations(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    gone uuid[] := ARRAY(SELECT (d->>'conversation_id')::uuid FROM jsonb_array_elements(document->'retire') d);
    expired integer := whence.tombstone_conversations(
        in_workspace, ARRAY(SELECT jsonb_array_elements_text(document->'expire')::uuid), at);
    disposed integer;
BEGIN
    DELETE FROM whence.payloads p WHERE p.workspace_id = in_workspace AND p.global_position = ANY (ARRAY(
        SELECT c.position FROM whence.conversations c
        WHERE c.workspace_id = in_workspace AND c.conversation_id = ANY (gone)
        UNION ALL
        SELECT m.position FROM whence.conversation_messages m
        WHERE m.workspace_id = in_workspace AND m.conversation_id = ANY (gone) AND NOT m.is_copy));
    DELETE FROM whence.conversation_messages m WHERE m.workspace_id = in_workspace AND m.conversation_id = ANY (gone);
    DELETE FROM whence.conversations c WHERE c.workspace_id = in_workspace AND c.conversation_id = ANY (gone);
    GET DIAGNOSTICS disposed = ROW_COUNT;
    RETURN jsonb_build_object('expired', expired, 'disposed', disposed);
END $$;

-- As before, with conversations and what was said in them. A broadcast that somebody has replied to is referred to. A
-- message is tombstoned with its conversation; copies are a part of their fork, and have no state of their own.
CREATE OR REPLACE VIEW whence.retention_states WITH (security_invoker = true) AS
SELECT m.workspace_id, CASE m.tier WHEN 'persistent' THEN 'memory' ELSE 'scoped_memory' END AS entity,
    m.memory_id AS id, m.user_id,
    CASE
    WHEN m.deleted_at IS NOT NULL THEN 'TOMBSTONED'
    WHEN whence.is_held(m.workspace_id, m.memory_id)
        OR whence.is_derived_from(m.workspace_id, m.memory_id, 9223372036854775807) THEN 'REFERENCED'
    WHEN EXISTS (
        SELECT 1 FROM whence.memory_sources s WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id
    ) AND NOT EXISTS (
        SELECT 1 FROM whence.memory_sources s
        WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id AND CASE s.role WHEN 'memory' THEN EXISTS (
            SELECT 1 FROM whence.memories o
            WHERE o.workspace_id = s.workspace_id AND o.memory_id = s.source::uuid AND o.deleted_at IS NULL
        ) ELSE true END
    ) THEN 'ORPHANED'
    ELSE 'ACTIVE'
    END AS state
FROM whence.memories m
UNION ALL
SELECT c.workspace_id, 'conversation', c.conversation_id, c.user_id,
    CASE
    WHEN c.deleted_at IS NOT NULL THEN 'TOMBSTONED'
    WHEN whence.is_conversation_held(c.workspace_id, c.conversation_id) OR c.state = 'broadcast' AND EXISTS (
        SELECT 1 FROM whence.conversations f
        WHERE f.workspace_id = c.workspace_id AND f.forked_from = c.conversation_id AND f.deleted_at IS NULL
    ) THEN 'REFERENCED'
    ELSE 'ACTIVE'
    END
FROM whence.conversations c
UNION ALL
SELECT m.workspace_id, 'conversation_message', m.message_id, m.user_id,
    CASE
    WHEN m.deleted_at IS NOT NULL THEN 'TOMBSTONED'
    WHEN EXISTS (
        SELECT 1 FROM whence.action_cites c WHERE c.workspace_id = m.workspace_id AND c.cited = m.message_id
    ) THEN 'REFERENCED'
    ELSE 'ACTIVE'
    END
FROM whence.conversation_messages m WHERE NOT m.is_copy;

-- Added to the tables that there are, whichever they are by now.
DO $do$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$ SELECT %L::text[]; $$',
        whence.memory_tables() || ARRAY['conversation_messages', 'conversations']);
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.erasure_tables() RETURNS TABLE (name text, id text, meant text)'
        ' LANGUAGE sql IMMUTABLE AS $$ VALUES %s; $$',
        (SELECT string_agg(format(E'\n    (%L, %L, %L)', t.name, t.id, t.meant), ',' ORDER BY t.place) FROM (
            SELECT v.name, v.id, v.meant, v.place - 2 AS place FROM (VALUES
                ('conversation_messages', 't.conversation_id || '' '' || t.place', 't.conversation_id = ANY ($3)', 1),
                ('conversations', 't.conversation_id::text', 't.conversation_id = ANY ($3)', 2)
            ) v (name, id, meant, place)
            UNION ALL
            SELECT e.name, e.id, e.meant, e.place FROM whence.erasure_tables() WITH ORDINALITY e (name, id, meant, place)
        ) t));
END $do$;
