-- Items: values that programs keep under a namespace and a key, such as the store of a LangGraph agent. An item is a
-- memory with a value: a put is remembered in the place of the one before it, and what ends that memory ends the item.
-- Derived from the ledger like the rest of memory, by whence.memory_apply.

-- What holds now; what was there before is in the memories of the same key, and in the ledger.
CREATE TABLE whence.items (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    agent text NOT NULL,
    conflict_key text NOT NULL,
    namespace text[] NOT NULL,
    path text COLLATE "C" NOT NULL,
    key text NOT NULL,
    value jsonb NOT NULL,
    bytes integer NOT NULL GENERATED ALWAYS AS (octet_length(value::text)) STORED,
    searched boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    ttl_s double precision,
    expires_at timestamptz,
    CONSTRAINT items_pkey PRIMARY KEY (workspace_id, owner, agent, conflict_key),
    CONSTRAINT items_memory UNIQUE (workspace_id, memory_id),
    CONSTRAINT items_expire_by_ttl CHECK ((ttl_s IS NULL) = (expires_at IS NULL))
);
-- By a beginning of the namespace; the path ends every label with a full stop, which no label has.
CREATE INDEX items_by_path ON whence.items (owner, workspace_id, agent, path);
COMMENT ON COLUMN whence.items.memory_id IS 'The memory that the last put made: the id of its event.';
COMMENT ON COLUMN whence.items.conflict_key IS 'As in memories: the namespace and the key, hashed.';
COMMENT ON COLUMN whence.items.bytes IS 'How much an answer has of it, known without reading it.';
COMMENT ON COLUMN whence.items.searched IS 'Whether its memory has a text that a question can find.';
COMMENT ON COLUMN whence.items.expires_at IS 'From this time on nobody sees it. The same as invalid_at of its memory.';

DO $$
BEGIN
    ALTER TABLE whence.items ENABLE ROW LEVEL SECURITY;
    ALTER TABLE whence.items FORCE ROW LEVEL SECURITY;
    CREATE POLICY items_of_workspace ON whence.items TO whence_workspace
        USING (workspace_id = current_setting('app.workspace_id', true));
    GRANT SELECT, INSERT, UPDATE, DELETE ON whence.items TO whence_workspace;
    GRANT SELECT ON whence.items TO whence_app;
    -- What hangs on the workspace is for everybody in it.
    CREATE POLICY items_of_user ON whence.items FOR SELECT TO whence_app
        USING (workspace_id = current_setting('app.workspace_id', true)
            AND (user_id = current_setting('app.user_id', true)
                OR (user_id IS NULL AND current_setting('app.user_id', true) <> '')));
END $$;

-- Beside the document of a memory: the value that it is of, and after how many seconds it ends.
ALTER TYPE whence.remembered ADD ATTRIBUTE item jsonb, ADD ATTRIBUTE ttl_s double precision;

-- Whichever rule memories are stored by, an item is stored after it.
ALTER FUNCTION whence.memory_remember(text, whence.remembered, bigint) RENAME TO memory_remember_text;
CREATE FUNCTION whence.memory_remember(in_workspace text, m whence.remembered, at_position bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    came_of constant jsonb := whence.memory_remember_text(in_workspace, m, at_position);
    until constant timestamptz := m.recorded_at + make_interval(secs => m.ttl_s);
BEGIN
    IF until IS NOT NULL THEN
        UPDATE whence.memories o SET invalid_at = until, invalidated_at = m.recorded_at
        WHERE o.workspace_id = in_workspace AND o.memory_id = m.event_id;
    END IF;
    IF m.item IS NOT NULL THEN
        INSERT INTO whence.items AS i (workspace_id, memory_id, position, user_id, agent, conflict_key, namespace, path,
            key, value, searched, created_at, updated_at, ttl_s, expires_at)
        SELECT in_workspace, m.event_id, at_position, m.user_id, m.agent, m.conflict_key, n.labels,
            array_to_string(n.labels, '.') || '.', m.item->>'key', m.item->'value', m.body <> '',
            coalesce((m.item->>'created_at')::timestamptz, m.recorded_at), m.recorded_at, m.ttl_s, until
        FROM (SELECT ARRAY(SELECT jsonb_array_elements_text(m.item->'namespace')) AS labels) n
        ON CONFLICT (workspace_id, owner, agent, conflict_key) DO UPDATE SET
            memory_id = excluded.memory_id, position = excluded.position, value = excluded.value,
            searched = excluded.searched, created_at = excluded.created_at, updated_at = excluded.updated_at,
            ttl_s = excluded.ttl_s, expires_at = excluded.expires_at;
    ELSIF m.conflict_key IS NOT NULL AND m.body = '' THEN
        -- A stub: of what was put in this place nothing is left but that it was, in the place of the one before it.
        DELETE FROM whence.items i
        WHERE i.workspace_id = in_workspace AND i.owner = coalesce(m.user_id, '') AND i.agent = m.agent
          AND i.conflict_key = m.conflict_key;
    END IF;
    RETURN came_of;
END $$;

-- Items that were read live as long again. Each says how long, because nothing may be left of it but its memory.
CREATE FUNCTION whence.effect_renew_items(in_workspace text, at_position bigint, at timestamptz, document jsonb)
RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
    WITH renewed AS (
        UPDATE whence.memories m SET invalid_at = at + make_interval(secs => r.ttl_s), invalidated_at = at
        FROM jsonb_to_recordset(document->'renewed') r (memory_id uuid, ttl_s double precision)
        WHERE m.workspace_id = in_workspace AND m.memory_id = r.memory_id AND m.invalidated_by IS NULL
          AND m.invalid_at > at AND m.deleted_at IS NULL
        RETURNING m.memory_id, m.invalid_at
    )
    UPDATE whence.items i SET expires_at = r.invalid_at FROM renewed r
    WHERE i.workspace_id = in_workspace AND i.memory_id = r.memory_id;
    RETURN '{}';
END $$;

-- However a memory ends, what it is the value of ends with it.
CREATE FUNCTION whence.drop_item() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM whence.items i WHERE i.workspace_id = OLD.workspace_id AND i.memory_id = OLD.memory_id;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_item AFTER UPDATE OF deleted_at, superseded_at, archived_at, stripped_at ON whence.memories
    FOR EACH ROW WHEN (OLD.kind = 'semantic' AND OLD.conflict_key IS NOT NULL AND coalesce(
        NEW.deleted_at, NEW.superseded_at, NEW.archived_at, NEW.stripped_at) IS NOT NULL)
    EXECUTE FUNCTION whence.drop_item();
CREATE TRIGGER memories_item_removed AFTER DELETE ON whence.memories
    FOR EACH ROW WHEN (OLD.kind = 'semantic' AND OLD.conflict_key IS NOT NULL) EXECUTE FUNCTION whence.drop_item();

-- Whether two values of JSON are in an order: only values of the same kind are, and text is by its code points. What is
-- not there is in none.
CREATE FUNCTION whence.item_compares(one jsonb, sign text, other jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE sign
        WHEN '$eq' THEN one = other
        WHEN '$ne' THEN one <> other
        ELSE jsonb_typeof(one) = jsonb_typeof(other) AND CASE WHEN jsonb_typeof(one) = 'string' THEN CASE sign
            WHEN '$gt' THEN (one #>> '{}') COLLATE "C" > (other #>> '{}') COLLATE "C"
            WHEN '$gte' THEN (one #>> '{}') COLLATE "C" >= (other #>> '{}') COLLATE "C"
            WHEN '$lt' THEN (one #>> '{}') COLLATE "C" < (other #>> '{}') COLLATE "C"
            WHEN '$lte' THEN (one #>> '{}') COLLATE "C" <= (other #>> '{}') COLLATE "C"
        END ELSE CASE sign
            WHEN '$gt' THEN one > other
            WHEN '$gte' THEN one >= other
            WHEN '$lt' THEN one < other
            WHEN '$lte' THEN one <= other
        END END
    END;
$$;

-- Whether a namespace begins, or ends, with labels, of which `*` is any one.
CREATE FUNCTION whence.namespace_matches(namespace text[], match text, labels text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT cardinality(labels) <= cardinality(namespace) AND NOT EXISTS (
        SELECT FROM unnest(labels) WITH ORDINALITY l (label, place)
        WHERE l.label <> '*' AND l.label <> namespace[l.place::integer
            + CASE match WHEN 'suffix' THEN cardinality(namespace) - cardinality(labels) ELSE 0 END]
    );
$$;

-- Added to the tables that there are, whichever they are by now.
DO $do$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$ SELECT %L::text[]; $$',
        whence.memory_tables() || ARRAY['items']);
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION whence.erasure_tables() RETURNS TABLE (name text, id text, meant text)'
        ' LANGUAGE sql IMMUTABLE AS $$ VALUES %s; $$',
        (SELECT string_agg(format(E'\n    (%L, %L, %L)', t.name, t.id, t.meant), ',' ORDER BY t.place) FROM (
            SELECT 'items' AS name, 't.memory_id::text' AS id, 't.memory_id = ANY ($3)' AS meant, 0 AS place
            UNION ALL
            SELECT e.name, e.id, e.meant, e.place FROM whence.erasure_tables() WITH ORDINALITY e (name, id, meant, place)
        ) t));
END $do$;
