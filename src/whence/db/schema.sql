-- Made by `make schema` from the migrations; a test compares it with them.

CREATE SCHEMA whence;

ALTER SCHEMA whence OWNER TO whence_owner;

CREATE DOMAIN whence.commitment AS bytea
	CONSTRAINT events_commitment_length CHECK ((octet_length(VALUE) = 32));

ALTER DOMAIN whence.commitment OWNER TO whence_owner;

CREATE DOMAIN whence.confidence AS double precision
	CONSTRAINT memories_confidence_range CHECK (((VALUE >= (0)::double precision) AND (VALUE <= (1)::double precision)));

ALTER DOMAIN whence.confidence OWNER TO whence_owner;

CREATE TYPE whence.edge_role AS ENUM (
    'direct',
    'inferred',
    'agent',
    'instrument',
    'object',
    'result',
    'participant',
    'alike',
    'alias'
);

ALTER TYPE whence.edge_role OWNER TO whence_owner;

CREATE DOMAIN whence.event_status AS text
	CONSTRAINT events_status_known CHECK ((VALUE = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text, 'timeout'::text])));

ALTER DOMAIN whence.event_status OWNER TO whence_owner;

CREATE DOMAIN whence.event_time AS timestamp with time zone
	CONSTRAINT events_time_range CHECK (((VALUE >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (VALUE < '2262-01-01 00:00:00+00'::timestamp with time zone)));

ALTER DOMAIN whence.event_time OWNER TO whence_owner;

CREATE DOMAIN whence.importance AS double precision
	CONSTRAINT memories_importance_range CHECK (((VALUE >= (0)::double precision) AND (VALUE <= (1)::double precision)));

ALTER DOMAIN whence.importance OWNER TO whence_owner;

CREATE DOMAIN whence.importance_hint AS smallint
	CONSTRAINT events_importance_range CHECK (((VALUE >= 1) AND (VALUE <= 10)));

ALTER DOMAIN whence.importance_hint OWNER TO whence_owner;

CREATE DOMAIN whence.payload_ref AS text
	CONSTRAINT events_payload_ref_length CHECK ((length(VALUE) <= 2048));

ALTER DOMAIN whence.payload_ref OWNER TO whence_owner;

CREATE TYPE whence.remembered AS (
	place bigint,
	event_id uuid,
	recorded_at timestamp with time zone,
	user_id text,
	subject_id text,
	said_by text,
	agent text,
	profile text,
	tier text,
	kind text,
	session_id text,
	interaction_id text,
	run_id uuid,
	world_id_context text,
	body text,
	body_hash text,
	conflict_key text,
	fact_subject text,
	fact_predicate text,
	fact_object text,
	object_key text,
	confidence double precision,
	importance double precision,
	valid_at timestamp with time zone,
	conflict text,
	sources jsonb,
	sanitised jsonb,
	effect text,
	embedder text,
	support integer,
	speaker text,
	role text,
	item jsonb,
	ttl_s double precision,
	vector integer
);

ALTER TYPE whence.remembered OWNER TO whence_owner;

CREATE DOMAIN whence.role AS text
	CONSTRAINT memories_role_known CHECK ((VALUE = ANY (ARRAY['user'::text, 'assistant'::text, 'tool'::text, 'document'::text])));

ALTER DOMAIN whence.role OWNER TO whence_owner;

CREATE DOMAIN whence.schema_version AS smallint
	CONSTRAINT events_schema_version_from_one CHECK ((VALUE >= 1));

ALTER DOMAIN whence.schema_version OWNER TO whence_owner;

CREATE FUNCTION whence.as_compared(said text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT lower(btrim(regexp_replace(whence.as_read(said), '\s+', ' ', 'g')));
$$;

ALTER FUNCTION whence.as_compared(said text) OWNER TO whence_owner;

CREATE FUNCTION whence.as_read(said text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
    SELECT normalize(regexp_replace(
        normalize(said, NFKC),
        '[\u0001-\u0008\u000E-\u001F\u007F-\u0084\u0086-\u009F'
            '\u00AD\u034F\u0600-\u0605\u061C\u06DD\u070F\u0890\u0891\u08E2\u115F\u1160\u17B4\u17B5\u180B-\u180F'
            '\u200B-\u200F\u202A-\u202E\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\U000110BD\U000110CD'
            '\U00013430-\U0001343F\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF]+',
        '', 'g'), NFKC);
$$;

ALTER FUNCTION whence.as_read(said text) OWNER TO whence_owner;

CREATE FUNCTION whence.canon_repeated(worlds text[], texts text[]) RETURNS TABLE(place bigint, rule_id text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT t.place, r.rule_id
    FROM unnest(worlds, texts) WITH ORDINALITY t (world, said, place)
    CROSS JOIN LATERAL whence.repeated_rule(current_setting('app.workspace_id', true), t.world, t.said) r
    WHERE r.rule_id IS NOT NULL
$$;

ALTER FUNCTION whence.canon_repeated(worlds text[], texts text[]) OWNER TO whence_owner;

CREATE FUNCTION whence.canon_world(workspace_id text, world_id text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY[workspace_id || chr(31) || world_id] $$;

ALTER FUNCTION whence.canon_world(workspace_id text, world_id text) OWNER TO whence_owner;

CREATE FUNCTION whence.defer_job(job text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'whence_jobs', 'pg_temp'
    AS $$
DECLARE
    in_workspace constant text := nullif(current_setting('app.workspace_id', true), '');
BEGIN
    IF in_workspace IS NULL THEN
        RAISE insufficient_privilege USING MESSAGE = 'a job is deferred in the scope of a workspace';
    END IF;
    RETURN defer(job, ARRAY[in_workspace], true);
END $$;

ALTER FUNCTION whence.defer_job(job text) OWNER TO whence_owner;

CREATE FUNCTION whence.drop_checkpoints() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = 'langgraph' AND c.relname = 'checkpoint_writes') THEN
        DELETE FROM langgraph.checkpoints c WHERE c.thread_id = OLD.stored_as;
        DELETE FROM langgraph.checkpoint_blobs c WHERE c.thread_id = OLD.stored_as;
        DELETE FROM langgraph.checkpoint_writes c WHERE c.thread_id = OLD.stored_as;
    END IF;
    RETURN NULL;
END $$;

ALTER FUNCTION whence.drop_checkpoints() OWNER TO whence_owner;

CREATE FUNCTION whence.drop_item() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM whence.items i WHERE i.workspace_id = OLD.workspace_id AND i.memory_id = OLD.memory_id;
    RETURN NULL;
END $$;

ALTER FUNCTION whence.drop_item() OWNER TO whence_owner;

CREATE FUNCTION whence.drop_location() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM whence.resource_chunks c WHERE c.workspace_id = OLD.workspace_id AND c.memory_id = OLD.memory_id;
    RETURN NULL;
END $$;

ALTER FUNCTION whence.drop_location() OWNER TO whence_owner;

CREATE FUNCTION whence.effect_add_message(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

ALTER FUNCTION whence.effect_add_message(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_add_resource(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- What could not be read the last time is tried again by this one.
    UPDATE whence.resources r SET deleted_at = at
    WHERE r.workspace_id = in_workspace AND r.user_id = document->>'user_id' AND r.agent = document->>'agent'
      AND r.sha256 = document->>'sha256' AND r.status = 'failed' AND r.deleted_at IS NULL;
    INSERT INTO whence.resources (workspace_id, resource_id, position, user_id, agent, app_id, project_id, uri, name,
        declared_type, size, sha256, added_by, added_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent',
        document->>'app_id', document->>'project_id', document->>'uri', document->>'name', document->>'declared_type',
        (document->>'size')::bigint, document->>'sha256', document->>'added_by', at);
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_add_resource(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_apply_retention(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    expired integer;
    of_runs integer;
    gone jsonb;
BEGIN
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.deleted_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT jsonb_array_elements_text(document->'expire')::uuid))
      AND NOT whence.is_held(in_workspace, m.memory_id)
      AND NOT whence.is_derived_from(in_workspace, m.memory_id, at_position);
    GET DIAGNOSTICS expired = ROW_COUNT;

    SELECT coalesce(jsonb_object_agg(m.memory_id, d.value), '{}'),
        count(m.run_id) FILTER (WHERE m.kind = 'episodic') INTO gone, of_runs
    FROM jsonb_array_elements(document->'dispose') d
    JOIN whence.memories m ON m.workspace_id = in_workspace AND m.memory_id = (d.value->>'memory_id')::uuid
    WHERE m.deleted_at IS NOT NULL AND m.stripped_at IS NULL AND NOT whence.is_held(in_workspace, m.memory_id)
      AND NOT whence.is_derived_from(in_workspace, m.memory_id, at_position);
    IF gone = '{}' THEN
        RETURN jsonb_build_object('expired', expired, 'disposed', 0);
    END IF;
    DELETE FROM whence.payloads p WHERE p.workspace_id = in_workspace AND p.global_position = ANY (ARRAY(
        SELECT (told->>'position')::bigint FROM jsonb_each(gone) g, jsonb_array_elements(g.value->'told') told));
    DELETE FROM whence.memory_vectors v
    WHERE v.workspace_id = in_workspace AND v.memory_id = ANY (ARRAY(SELECT jsonb_object_keys(gone)::uuid));
    -- Those whose text is kept are what the bound of episodes is about.
    UPDATE whence.memory_counts c SET episodes = c.episodes - of_runs
    WHERE c.workspace_id = in_workspace AND of_runs > 0;
    UPDATE whence.memories m SET stripped_at = at, speaker = NULL, role = NULL, body = '',
        body_hash = sha256(convert_to(m.memory_id::text, 'UTF8')),
        object_key = CASE WHEN m.object_key IS NOT NULL THEN m.memory_id::text END,
        fact_object = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' AND m.fact_object IS NOT NULL THEN '' END,
        fact_subject = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.fact_subject END,
        fact_predicate = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.fact_predicate END,
        conflict_key = CASE WHEN g.value->>'disposal' = 'RETAIN_METADATA' THEN m.conflict_key END
    FROM jsonb_each(gone) g
    WHERE m.workspace_id = in_workspace AND m.memory_id = g.key::uuid AND g.value->>'disposal' <> 'HARD_DELETE';
    PERFORM whence.retention_remove(in_workspace, ARRAY(
        SELECT g.key::uuid FROM jsonb_each(gone) g WHERE g.value->>'disposal' = 'HARD_DELETE'));
    RETURN jsonb_build_object('expired', expired, 'disposed', (SELECT count(*) FROM jsonb_object_keys(gone)));
END $$;

ALTER FUNCTION whence.effect_apply_retention(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_close_session(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    known whence.sessions;
    until constant bigint := (document->>'until')::bigint;
BEGIN
    SELECT * INTO known FROM whence.sessions s
    WHERE s.workspace_id = in_workspace AND s.owner = document->>'owner' AND s.agent = document->>'agent'
      AND s.session_id = document->>'session_id' AND s.number = (document->>'number')::integer;
    IF known.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'the session is closed' USING
            ERRCODE = '23514', CONSTRAINT = 'sessions_closed_once', TABLE = 'sessions', SCHEMA = 'whence';
    END IF;
    UPDATE whence.sessions s SET closed_at = at, close_event_id = (document->>'event_id')::uuid,
        ended_at = coalesce(s.ended_at, at), end_position = coalesce(s.end_position, until + 1),
        last_position = least(s.last_position, until)
    WHERE s.workspace_id = in_workspace AND s.owner = known.owner AND s.agent = known.agent
      AND s.session_id = known.session_id AND s.number = known.number;
    IF known.ended_at IS NULL AND known.last_position > until THEN
        INSERT INTO whence.sessions (workspace_id, owner, agent, session_id, number, idle_days, opened_at,
            first_position, last_activity_at, last_position)
        VALUES (in_workspace, known.owner, known.agent, known.session_id, known.number + 1, known.idle_days,
            known.last_activity_at, until + 1, known.last_activity_at, known.last_position);
    END IF;
    UPDATE whence.memories m SET archived_at = at
    WHERE m.workspace_id = in_workspace AND m.archived_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT id::uuid FROM jsonb_array_elements_text(document->'archived') id));
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.deleted_at IS NULL
      AND m.memory_id = ANY (ARRAY(SELECT id::uuid FROM jsonb_array_elements_text(document->'removed') id));
    RETURN jsonb_build_object('closed', known.number);
END $$;

ALTER FUNCTION whence.effect_close_session(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_delete_conversation(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE sql
    AS $$
    SELECT jsonb_build_object('changed', whence.tombstone_conversations(
        in_workspace, ARRAY[(document->>'conversation_id')::uuid], at));
$$;

ALTER FUNCTION whence.effect_delete_conversation(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_delete_resource(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    forgotten integer := whence.forget_chunks(in_workspace, (document->>'resource_id')::uuid, at);
BEGIN
    UPDATE whence.resources r SET deleted_at = at
    WHERE r.workspace_id = in_workspace AND r.resource_id = (document->>'resource_id')::uuid AND r.deleted_at IS NULL;
    DELETE FROM whence.resource_uploads u
    WHERE u.workspace_id = in_workspace AND u.resource_id = (document->>'resource_id')::uuid;
    RETURN jsonb_build_object('forgotten', forgotten);
END $$;

ALTER FUNCTION whence.effect_delete_resource(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_end_resource(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE whence.resources r SET status = document->>'status', reason = document->>'reason',
        content_type = document->>'content_type', chunks = coalesce((document->>'chunks')::integer, 0),
        refused = coalesce((document->>'refused')::integer, 0), processed_at = at
    WHERE r.workspace_id = in_workspace AND r.resource_id = (document->>'resource_id')::uuid AND r.status = 'processing';
    IF FOUND AND document->>'status' = 'failed' THEN
        PERFORM whence.forget_chunks(in_workspace, (document->>'resource_id')::uuid, at);
    END IF;
    DELETE FROM whence.resource_uploads u
    WHERE u.workspace_id = in_workspace AND u.resource_id = (document->>'resource_id')::uuid;
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_end_resource(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_erase_subject(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO whence.erasures (workspace_id, erasure_id, position, subject_hash, erased_at, erased_by, document)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'subject_hash', at,
        document->>'erased_by', document - ARRAY['place', 'recorded_at']);
    INSERT INTO whence.memories (
        workspace_id, memory_id, position, user_id, subject_id, agent, profile, tier, kind, session_id, interaction_id,
        body, body_hash, importance, valid_at, recorded_at, deleted_at
    )
    SELECT in_workspace, h.memory_id, h.position, h.user_id, '', h.agent, h.profile, h.tier, h.kind, h.session_id,
        h.interaction_id, '', '', h.importance, h.valid_at, h.recorded_at, at
    FROM jsonb_populate_recordset(NULL::whence.memories, document->'held') h
    ON CONFLICT (workspace_id, memory_id) DO NOTHING;
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_erase_subject(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_feedback(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed integer;
BEGIN
    UPDATE whence.memories m SET importance = CASE WHEN document->'helpful' ? m.memory_id::text
        THEN m.importance + (1 - m.importance) * 0.1::double precision ELSE m.importance * 0.9::double precision END
    WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (ARRAY(
        SELECT jsonb_array_elements_text(document->'helpful' || (document->'unhelpful'))::uuid));
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN jsonb_build_object('changed', changed);
END $$;

ALTER FUNCTION whence.effect_feedback(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_flush(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT '{}'::jsonb; $$;

ALTER FUNCTION whence.effect_flush(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_forget_removed(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed integer;
BEGIN
    UPDATE whence.memories m SET archived_at = at
    WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid AND m.archived_at IS NULL
      AND m.deleted_at IS NOT NULL;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN jsonb_build_object('changed', changed);
END $$;

ALTER FUNCTION whence.effect_forget_removed(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_fork_conversation(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

ALTER FUNCTION whence.effect_fork_conversation(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_leave_out(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT '{}'::jsonb; $$;

ALTER FUNCTION whence.effect_leave_out(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_locate_chunks(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO whence.resource_chunks (workspace_id, memory_id, resource_id, user_id, location)
    SELECT in_workspace, (c->>'memory_id')::uuid, (document->>'resource_id')::uuid, document->>'user_id', c - 'memory_id'
    FROM jsonb_array_elements(document->'chunks') c;
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_locate_chunks(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_override(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    is_over boolean;
BEGIN
    SELECT m.superseded_at IS NOT NULL OR m.deleted_at IS NOT NULL INTO is_over FROM whence.memories m
    WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid FOR UPDATE;
    IF is_over THEN
        RAISE EXCEPTION 'the memory was overridden or forgotten before' USING
            ERRCODE = '23514', CONSTRAINT = 'memories_overridden_once', TABLE = 'memories', SCHEMA = 'whence';
    END IF;
    UPDATE whence.memories m SET superseded_at = at, superseded_by = (document->>'superseded_by')::uuid
    WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid;
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_override(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_publish_broadcast(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, broadcast_key, titled_at,
        max_messages, started_at, active_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, 'broadcast', document->>'key',
        CASE WHEN (document->>'titled')::boolean THEN at_position END, (document->>'messages')::integer, at, at);
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_publish_broadcast(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_record_action(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO whence.actions (workspace_id, action_id, position, user_id, kind, recorded_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'kind', at);
    INSERT INTO whence.action_cites (workspace_id, action_id, cited, place, user_id)
    SELECT in_workspace, (document->>'event_id')::uuid, (c.value->>'id')::uuid, c.ordinality, c.value->>'user_id'
    FROM jsonb_array_elements(document->'cites') WITH ORDINALITY c;
    RETURN '{}'::jsonb;
END $$;

ALTER FUNCTION whence.effect_record_action(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_renew_items(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

ALTER FUNCTION whence.effect_renew_items(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_retire_conversations(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

ALTER FUNCTION whence.effect_retire_conversations(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.effect_start_conversation(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO whence.conversations (workspace_id, conversation_id, position, state, user_id, titled_at, started_at,
        active_at)
    VALUES (in_workspace, (document->>'event_id')::uuid, at_position, 'private', document->>'user_id',
        CASE WHEN (document->>'titled')::boolean THEN at_position END, at, at);
    RETURN '{}';
END $$;

ALTER FUNCTION whence.effect_start_conversation(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.erase_rows(in_workspace text, in_subject text, subject_hash text) RETURNS jsonb
    LANGUAGE plpgsql
    AS $_$
DECLARE
    events uuid[];
    positions bigint[];
    keys jsonb;
    held jsonb;
    part record;
    removed jsonb := '{}';
    gone bigint;
    digest text;
BEGIN
    SELECT coalesce(array_agg(s.event_id), '{}'), coalesce(array_agg(s.at_position), '{}') INTO events, positions
    FROM whence.subject_events(in_workspace, in_subject, 9223372036854775807) s;
    SELECT coalesce(jsonb_agg(jsonb_build_object(
        'key_id', k.key_id, 'fingerprint', encode(sha256(k.wrapped_key), 'hex')) ORDER BY k.key_id), '[]') INTO keys
    FROM whence.subject_keys k WHERE k.workspace_id = in_workspace AND k.subject_id = in_subject;
    -- Under a name that nobody has, so that they become visible to nobody else.
    SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
        'memory_id', m.memory_id, 'position', m.position,
        'user_id', CASE WHEN m.user_id = in_subject THEN 'erased:' || subject_hash ELSE m.user_id END,
        'agent', m.agent, 'profile', m.profile, 'tier', m.tier, 'kind', m.kind, 'session_id', m.session_id,
        'interaction_id', m.interaction_id, 'importance', m.importance, 'valid_at', m.valid_at,
        'recorded_at', m.recorded_at)) ORDER BY m.position), '[]') INTO held
    FROM whence.memories m
    WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (events) AND m.subject_id <> ''
      AND whence.is_held(in_workspace, m.memory_id);
    FOR part IN SELECT * FROM whence.erasure_tables() LOOP
        EXECUTE format(
            'WITH gone AS (DELETE FROM whence.%I t WHERE t.workspace_id = $1 AND (%s) RETURNING %s AS id)'
            ' SELECT count(*), encode(sha256(convert_to(coalesce('
            ' string_agg(id, chr(10) ORDER BY id COLLATE "C"), ''''), ''UTF8'')), ''hex'') FROM gone',
            part.name, part.meant, part.id)
        INTO gone, digest
        USING in_workspace, in_subject, events, positions, 9223372036854775807, 'infinity'::timestamptz;
        IF gone > 0 THEN
            removed := removed || jsonb_build_object(part.name, jsonb_build_object('count', gone, 'digest', digest));
        END IF;
    END LOOP;
    RETURN jsonb_build_object('removed', removed, 'keys', keys, 'held', held);
END $_$;

ALTER FUNCTION whence.erase_rows(in_workspace text, in_subject text, subject_hash text) OWNER TO whence_owner;

CREATE FUNCTION whence.erasure_tables() RETURNS TABLE(name text, id text, meant text)
    LANGUAGE sql IMMUTABLE
    AS $_$ VALUES 
    ('items', 't.memory_id::text', 't.memory_id = ANY ($3)'),
    ('threads', 'encode(sha256(convert_to(t.thread_id, ''UTF8'')), ''hex'')', 't.user_id = $2 AND t.created_at <= $6'),
    ('thread_keys', 't.key_id::text', 't.user_id = $2 AND t.created_at <= $6'),
    ('conversation_messages', 't.conversation_id || '' '' || t.place', 't.conversation_id = ANY ($3)'),
    ('conversations', 't.conversation_id::text', 't.conversation_id = ANY ($3)'),
    ('resource_uploads', 't.resource_id || '' '' || t.part', 't.resource_id = ANY ($3)'),
    ('resource_chunks', 't.memory_id::text', 't.memory_id = ANY ($3)'),
    ('resources', 't.resource_id::text', 't.resource_id = ANY ($3)'),
    ('payloads', '(SELECT e.event_id || '' '' || encode(e.payload_commitment, ''hex'') FROM whence.events e WHERE e.workspace_id = t.workspace_id AND e.global_position = t.global_position)', 't.global_position = ANY ($4)'),
    ('subject_keys', 't.key_id::text', 't.subject_id = $2 AND t.created_at <= $6'),
    ('memory_vectors', 't.memory_id::text', 't.memory_id = ANY ($3)'),
    ('memory_sources', 't.memory_id || '' '' || t.event_id', 't.memory_id = ANY ($3) OR t.event_id = ANY ($3)'),
    ('recall_hits', 't.recall_id || '' '' || t.memory_id', 't.recall_id = ANY ($3)'),
    ('recalls', 't.recall_id::text', 't.recall_id = ANY ($3)'),
    ('memories', 't.memory_id::text', 't.memory_id = ANY ($3) AND t.subject_id <> '''''),
    ('memory_tellings', 't.memory_id || '' '' || t.event_id', 't.memory_id = ANY ($3) OR t.event_id = ANY ($3)'),
    ('action_cites', 't.action_id || '' '' || t.cited', 't.action_id = ANY ($3)'),
    ('actions', 't.action_id::text', 't.action_id = ANY ($3)'),
    ('sessions', 'encode(sha256(convert_to(concat_ws('' '', t.agent, t.session_id, t.number), ''UTF8'')), ''hex'')', 't.owner = $2 AND t.opened_at <= $6'),
    ('runs', 't.run_id::text', 't.run_id = ANY ($3)'),
    ('workflow_selections', 't.selection_id::text', 't.selection_id = ANY ($3)'),
    ('workflows', 't.workflow_id::text', 't.workflow_id = ANY ($3)'),
    ('working_memory', 'encode(sha256(convert_to(concat_ws('' '', t.agent, t.instance, t.key), ''UTF8'')), ''hex'')', 't.user_id = $2 AND t.updated_at <= $6'),
    ('graph_edges', 't.build || '' '' || t.source || '' '' || t.target || '' '' || t.edge_type', '(t.edge_type IN (3, 5, 6) AND t.source >> 6 = ANY ($4)) OR EXISTS (SELECT FROM whence.graph_entities g WHERE g.workspace_id = t.workspace_id AND g.build = t.build AND g.node IN (t.source, t.target) AND g.sealed_name IS NOT NULL AND g.node >> 6 <= $5 AND (g.subject_id = $2 OR g.node >> 6 = ANY ($4)))'),
    ('graph_waiting', 't.build || '' '' || t.source || '' '' || t.event_id', 't.edge_type IN (5, 6) AND t.source >> 6 = ANY ($4)'),
    ('graph_entities', 't.build || '' '' || t.node', 't.sealed_name IS NOT NULL AND t.node >> 6 <= $5 AND (t.subject_id = $2 OR t.node >> 6 = ANY ($4))'),
    ('graph_aliases', 't.build || '' '' || t.name_key', 't.subject_id = $2 AND NOT EXISTS (SELECT FROM whence.subject_keys k WHERE k.workspace_id = $1 AND k.subject_id = $2 AND k.created_at > $6)'),
    ('graph_vectors', 't.build || '' '' || t.node', 't.node >> 6 = ANY ($4)'),
    ('user_keys', 't.key_id', 't.user_id = $2 AND t.created_at <= $6 AND EXISTS (SELECT FROM whence.users u WHERE u.workspace_id = $1 AND u.user_id = $2 AND u.role <> ''admin'' AND u.created_at <= $6)'),
    ('users', 't.created_at::text', 't.user_id = $2 AND t.role <> ''admin'' AND t.created_at <= $6'); $_$;

ALTER FUNCTION whence.erasure_tables() OWNER TO whence_owner;

CREATE FUNCTION whence.follow_vector() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    UPDATE whence.memory_index i SET embedder = NEW.embedder, embedding = NEW.embedding
    WHERE i.workspace_id = NEW.workspace_id AND i.memory_id = NEW.memory_id;
    RETURN NULL;
END $$;

ALTER FUNCTION whence.follow_vector() OWNER TO whence_owner;

CREATE FUNCTION whence.forget_chunks(in_workspace text, in_resource uuid, at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    gone uuid[];
BEGIN
    WITH removed AS (
        DELETE FROM whence.resource_chunks c
        WHERE c.workspace_id = in_workspace AND c.resource_id = in_resource
        RETURNING c.memory_id
    )
    SELECT array_agg(memory_id) INTO gone FROM removed;
    UPDATE whence.memories m SET deleted_at = at
    WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (gone) AND m.deleted_at IS NULL;
    RETURN coalesce(cardinality(gone), 0);
END $$;

ALTER FUNCTION whence.forget_chunks(in_workspace text, in_resource uuid, at timestamp with time zone) OWNER TO whence_owner;

CREATE FUNCTION whence.graph_name_key(entity_type text, name text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN octet_length(k.name_key) <= 1024 THEN k.name_key
        ELSE 'sha256:' || encode(sha256(convert_to(k.name_key, 'UTF8')), 'hex') END
    FROM (
        SELECT CASE WHEN entity_type IN ('agent', 'tool')
            THEN regexp_replace(btrim(lower(normalize(name, NFKC))), '\s+', ' ', 'g') ELSE name END AS name_key
    ) k;
$$;

ALTER FUNCTION whence.graph_name_key(entity_type text, name text) OWNER TO whence_owner;

CREATE FUNCTION whence.graph_next(in_workspace text, in_user text, in_build integer, nodes bigint[], direction text, kinds smallint[], as_of bigint) RETURNS TABLE(node bigint)
    LANGUAGE sql STABLE
    AS $$
    SELECT e.target FROM whence.graph_edges e
    WHERE direction <> 'down' AND e.workspace_id = in_workspace AND e.build = in_build AND e.source = ANY (nodes)
      AND e.edge_type = ANY (kinds) AND (in_user IS NULL OR e.user_id = in_user) AND e.target < (as_of + 1) << 6
    UNION ALL
    SELECT e.source FROM whence.graph_edges e
    WHERE direction <> 'up' AND e.workspace_id = in_workspace AND e.build = in_build AND e.target = ANY (nodes)
      AND e.edge_type = ANY (kinds) AND (in_user IS NULL OR e.user_id = in_user) AND e.source < (as_of + 1) << 6
    UNION ALL
    SELECT hop.neighbour FROM whence.graph_session_neighbours(in_workspace, in_user, in_build, nodes, as_of) hop
    WHERE direction = 'both' AND 1 = ANY (kinds);
$$;

ALTER FUNCTION whence.graph_next(in_workspace text, in_user text, in_build integer, nodes bigint[], direction text, kinds smallint[], as_of bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.graph_reach(in_workspace text, in_user text, in_build integer, starts bigint[], direction text, kinds smallint[], max_depth integer, after_depth integer, after_node bigint, max_nodes integer, as_of bigint) RETURNS TABLE(node bigint, depth integer)
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    beyond constant bigint := (as_of + 1) << 6;
    with_order constant boolean := direction = 'both' AND 1 = ANY (kinds);
    many constant integer := 10 * (max_nodes + 1);
    frontier bigint[] := starts;
    visited bigint[] := starts;
    level bigint[];
    page bigint[];
    past bigint;
    given integer := 0;
    room integer;
BEGIN
    IF after_depth < 0 THEN
        RETURN QUERY SELECT s, 0 FROM unnest(starts) s ORDER BY s;
        GET DIAGNOSTICS given = ROW_COUNT;
    END IF;
    -- One level more than was asked for, of which one node is enough, tells whether the depth has cut something off.
    FOR d IN 1..max_depth + 1 LOOP
        IF direction = 'both' THEN
            frontier := ARRAY(SELECT f FROM unnest(frontier) f WHERE f & 63 = 0);
        END IF;
        EXIT WHEN cardinality(frontier) = 0;
        past := CASE WHEN d = after_depth THEN after_node ELSE -1 END;
        room := CASE WHEN d > max_depth THEN 1 ELSE max_nodes + 1 - given END;
        -- Of a level that earlier pages have given, all is needed, to go on from there.
        level := ARRAY(
            SELECT n.node FROM whence.graph_next(in_workspace, in_user, in_build, frontier, direction, kinds, as_of) n
            LIMIT CASE WHEN d >= after_depth THEN many END
        );
        IF d >= after_depth AND cardinality(level) = many THEN
            -- Too many to read: the first ones from each node of the frontier, in the order of the index.
            page := ARRAY(
                SELECT DISTINCT found.n FROM (
                    SELECT hop.n FROM unnest(frontier) f, unnest(kinds) k, LATERAL (
                        SELECT e.target AS n FROM whence.graph_edges e
                        WHERE e.workspace_id = in_workspace AND e.build = in_build AND e.source = f AND e.edge_type = k
                          AND (in_user IS NULL OR e.user_id = in_user) AND e.target > past AND e.target < beyond
                          AND e.target NOT IN (SELECT unnest(visited))
                        ORDER BY e.target LIMIT room
                    ) hop WHERE direction <> 'down'
                    UNION ALL
                    SELECT hop.n FROM unnest(frontier) f, unnest(kinds) k, LATERAL (
                        SELECT e.source AS n FROM whence.graph_edges e
                        WHERE e.workspace_id = in_workspace AND e.build = in_build AND e.target = f AND e.edge_type = k
                          AND (in_user IS NULL OR e.user_id = in_user) AND e.source > past AND e.source < beyond
                          AND e.source NOT IN (SELECT unnest(visited))
                        ORDER BY e.source LIMIT room
                    ) hop WHERE direction <> 'up'
                    UNION ALL
                    SELECT hop.neighbour
                    FROM whence.graph_session_neighbours(in_workspace, in_user, in_build, frontier, as_of) hop
                    WHERE with_order AND hop.neighbour > past AND hop.neighbour NOT IN (SELECT unnest(visited))
                ) found
                ORDER BY found.n LIMIT room
            );
        ELSE
            level := ARRAY(SELECT DISTINCT l FROM unnest(level) l WHERE l NOT IN (SELECT unnest(visited)) ORDER BY l);
            page := ARRAY(SELECT l FROM unnest(level) l WHERE d >= after_depth AND l > past LIMIT room);
        END IF;
        RETURN QUERY SELECT p, d FROM unnest(page) p;
        given := given + cardinality(page);
        EXIT WHEN given > max_nodes OR d > max_depth;
        IF d >= after_depth AND cardinality(level) = many THEN
            level := ARRAY(
                SELECT DISTINCT n.node
                FROM whence.graph_next(in_workspace, in_user, in_build, frontier, direction, kinds, as_of) n
                WHERE n.node NOT IN (SELECT unnest(visited))
            );
        END IF;
        frontier := level;
        visited := visited || level;
    END LOOP;
END $$;

ALTER FUNCTION whence.graph_reach(in_workspace text, in_user text, in_build integer, starts bigint[], direction text, kinds smallint[], max_depth integer, after_depth integer, after_node bigint, max_nodes integer, as_of bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.graph_session_neighbours(in_workspace text, in_user text, in_build integer, nodes bigint[], as_of bigint) RETURNS TABLE(origin bigint, neighbour bigint, earlier boolean)
    LANGUAGE sql STABLE
    AS $$
    SELECT e.global_position << 6, n.position << 6, n.earlier
    -- Shifted before the join: the operator is not leakproof, and under row-level security would keep the index out.
    FROM (SELECT node >> 6 AS position FROM unnest(nodes) node WHERE node & 63 = 0 OFFSET 0) at
    JOIN whence.events e ON e.workspace_id = in_workspace AND e.global_position = at.position, LATERAL (
        (
            SELECT t.position, true AS earlier FROM whence.graph_timeline t
            WHERE t.workspace_id = in_workspace AND t.build = in_build AND t.session_id = e.session_id
              AND (in_user IS NULL OR t.user_id = in_user)
              AND (t.occurred_at, t.position) < (e.occurred_at, e.global_position) AND t.position <= as_of
            ORDER BY t.occurred_at DESC, t.position DESC LIMIT 1
        )
        UNION ALL
        (
            SELECT t.position, false FROM whence.graph_timeline t
            WHERE t.workspace_id = in_workspace AND t.build = in_build AND t.session_id = e.session_id
              AND (in_user IS NULL OR t.user_id = in_user)
              AND (t.occurred_at, t.position) > (e.occurred_at, e.global_position) AND t.position <= as_of
            ORDER BY t.occurred_at, t.position LIMIT 1
        )
    ) n
    WHERE in_user IS NULL OR e.user_id = in_user;
$$;

ALTER FUNCTION whence.graph_session_neighbours(in_workspace text, in_user text, in_build integer, nodes bigint[], as_of bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.guard_canon() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    PERFORM whence.refuse_repeated(NEW.workspace_id, NEW.world_id_context, NEW.body, NEW.fact_object, CASE
        -- What was sent may say it in other words: it is the same fact, and so the row is looked at again.
        WHEN TG_OP = 'UPDATE' AND (NEW.body, NEW.fact_object) IS NOT DISTINCT FROM (OLD.body, OLD.fact_object)
        THEN ', in what is remembered already' ELSE '' END);
    RETURN NEW;
END $$;

ALTER FUNCTION whence.guard_canon() OWNER TO whence_owner;

CREATE FUNCTION whence.guard_told(in_world text, body text, fact_object text) RETURNS void
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT whence.refuse_repeated(current_setting('app.workspace_id', true), in_world, body, fact_object, '')
$$;

ALTER FUNCTION whence.guard_told(in_world text, body text, fact_object text) OWNER TO whence_owner;

CREATE FUNCTION whence.is_conversation_held(in_workspace text, id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (
        SELECT 1 FROM whence.action_cites c WHERE c.workspace_id = in_workspace AND c.cited = id
    ) OR EXISTS (
        SELECT 1 FROM whence.conversation_messages m
        JOIN whence.action_cites c ON c.workspace_id = m.workspace_id AND c.cited = m.message_id
        WHERE m.workspace_id = in_workspace AND m.conversation_id = id AND NOT m.is_copy
    );
$$;

ALTER FUNCTION whence.is_conversation_held(in_workspace text, id uuid) OWNER TO whence_owner;

CREATE FUNCTION whence.is_derived_from(in_workspace text, id uuid, before bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (
        SELECT 1 FROM whence.memory_sources s
        JOIN whence.memories d ON d.workspace_id = s.workspace_id AND d.memory_id = s.memory_id
        WHERE s.workspace_id = in_workspace AND s.source = id::text AND s.role = 'memory' AND s.position < before
          AND d.memory_id <> id AND d.deleted_at IS NULL
    );
$$;

ALTER FUNCTION whence.is_derived_from(in_workspace text, id uuid, before bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.is_had_already(in_workspace text, known uuid, in_origin uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT in_origin IS NOT NULL AND (in_origin = known
        OR EXISTS (SELECT FROM whence.memory_sources s
            WHERE s.workspace_id = in_workspace AND s.memory_id = known AND s.role = 'memory'
              AND s.source = in_origin::text AND s.confidence IS NOT NULL)
        OR EXISTS (SELECT FROM whence.memory_sources s
            WHERE s.workspace_id = in_workspace AND s.memory_id = known AND s.origin = in_origin
              AND s.confidence IS NOT NULL))
$$;

ALTER FUNCTION whence.is_had_already(in_workspace text, known uuid, in_origin uuid) OWNER TO whence_owner;

CREATE FUNCTION whence.is_held(in_workspace text, id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (
        SELECT 1 FROM whence.action_cites c WHERE c.workspace_id = in_workspace AND c.cited = id
    ) OR EXISTS (
        SELECT 1 FROM whence.memory_tellings t
        JOIN whence.action_cites c ON c.workspace_id = t.workspace_id AND c.cited = t.event_id
        WHERE t.workspace_id = in_workspace AND t.memory_id = id
    );
$$;

ALTER FUNCTION whence.is_held(in_workspace text, id uuid) OWNER TO whence_owner;

CREATE FUNCTION whence.is_own_word(in_workspace text, known uuid, source text, role text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN role = 'told' THEN false ELSE
        source::uuid = known
        OR EXISTS (SELECT FROM whence.memory_tellings t
            WHERE t.workspace_id = in_workspace AND t.event_id = source::uuid AND t.memory_id = known)
        OR EXISTS (SELECT FROM whence.recall_hits h
            WHERE h.workspace_id = in_workspace AND h.recall_id = source::uuid AND h.memory_id = known)
    END
$$;

ALTER FUNCTION whence.is_own_word(in_workspace text, known uuid, source text, role text) OWNER TO whence_owner;

CREATE FUNCTION whence.item_compares(one jsonb, sign text, other jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
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
$_$;

ALTER FUNCTION whence.item_compares(one jsonb, sign text, other jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.jobs_of_workspace(only_failed boolean, before bigint, up_to integer) RETURNS TABLE(job_id bigint, job text, workspace_id text, status text, attempts integer, queued_at timestamp with time zone, scheduled_at timestamp with time zone, started_at timestamp with time zone, ended_at timestamp with time zone, error text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'whence_jobs', 'pg_temp'
    AS $$
    SELECT * FROM told(coalesce(current_setting('app.workspace_id', true), ''), only_failed, before, up_to);
$$;

ALTER FUNCTION whence.jobs_of_workspace(only_failed boolean, before bigint, up_to integer) OWNER TO whence_owner;

CREATE FUNCTION whence.leave_memory_index() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM whence.memory_index i WHERE i.workspace_id = OLD.workspace_id AND i.memory_id = OLD.memory_id;
    RETURN NULL;
END $$;

ALTER FUNCTION whence.leave_memory_index() OWNER TO whence_owner;

CREATE FUNCTION whence.memories_with_words(in_workspace text, in_owner text, telling bigint[], together bigint[], words bigint[], weights real[], at_most bigint) RETURNS uuid[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT coalesce(array_agg(f.memory_id), '{}') FROM (
        SELECT i.memory_id FROM whence.memory_index i
        WHERE i.terms && telling AND i.terms @> together AND i.owner = in_owner AND i.workspace_id = in_workspace
          AND in_workspace = current_setting('app.workspace_id', true)
          AND (current_setting('role') = 'whence_workspace' OR current_setting('app.user_id', true) <> ''
            AND in_owner IN ('', current_setting('app.user_id', true)))
        ORDER BY (
            SELECT sum(w.weight) FROM unnest(words, weights) w (word, weight) WHERE w.word = ANY (i.terms)
        ) DESC, i.position DESC
        LIMIT at_most
    ) f;
$$;

ALTER FUNCTION whence.memories_with_words(in_workspace text, in_owner text, telling bigint[], together bigint[], words bigint[], weights real[], at_most bigint) OWNER TO whence_searcher;

CREATE FUNCTION whence.memory_apply(in_workspace text, base bigint, events bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors public.halfvec[], in_order boolean) RETURNS SETOF jsonb
    LANGUAGE plpgsql
    AS $_$
DECLARE
    start bigint := base;
    done bigint[] := '{}';
    ended jsonb := '{}';
    document jsonb;
    at_position bigint;
    at timestamptz;
    told whence.remembered;
    came_of jsonb;
BEGIN
    IF start IS NULL THEN
        SELECT h.last_position - events INTO start FROM whence.workspace_heads h WHERE h.workspace_id = in_workspace;
    END IF;
    IF NOT in_order THEN
        IF documents @? '$[*].session_id' THEN
            ended := whence.session_touch(in_workspace, start, in_recorded_at, documents);
        END IF;
        IF jsonb_array_length(documents) > 1 THEN
            done := whence.memory_remember_plain(in_workspace, start, in_recorded_at, documents, vectors);
            RETURN QUERY SELECT jsonb_build_object('place', place, 'ended', ended->place::text)
                FROM unnest(done) place WHERE ended ? place::text;
            IF cardinality(done) = jsonb_array_length(documents) THEN
                RETURN;
            END IF;
        END IF;
    END IF;
    FOR document IN
        SELECT d FROM jsonb_array_elements(documents) d WHERE NOT (d->>'place')::bigint = ANY (done)
    LOOP
        at_position := start + (document->>'place')::bigint;
        at := coalesce((document->>'recorded_at')::timestamptz, in_recorded_at);
        IF in_order AND document ? 'session_id' THEN
            ended := whence.session_touch(in_workspace, start, in_recorded_at, jsonb_build_array(document));
        END IF;
        IF document->>'effect' = 'remember' THEN
            told := jsonb_populate_record(NULL::whence.remembered, document);
            told.recorded_at := at;
            IF told.run_id IS NOT NULL AND told.kind = 'episodic' AND NOT document ? 'recorded_at' AND NOT EXISTS (
                SELECT FROM whence.runs r
                WHERE r.workspace_id = in_workspace AND r.run_id = told.run_id AND r.status = 'running'
            ) THEN
                RAISE EXCEPTION 'the run is over' USING
                    ERRCODE = '23514', CONSTRAINT = 'memories_run_over', TABLE = 'memories', SCHEMA = 'whence';
            END IF;
            came_of := whence.memory_remember(in_workspace, told, at_position);
            IF told.embedder IS NOT NULL AND coalesce(came_of->>'status', 'stored') = 'stored' THEN
                INSERT INTO whence.memory_vectors (workspace_id, memory_id, user_id, embedder, embedding)
                VALUES (in_workspace, told.event_id, told.user_id, told.embedder,
                    vectors[told.vector]);
            END IF;
        ELSE
            came_of := whence.memory_change(in_workspace, at_position, at, document);
            IF document ? 'once' AND came_of->>'changed' = '0' AND NOT document ? 'recorded_at' THEN
                RAISE EXCEPTION 'somebody has done the same before' USING
                    ERRCODE = '23514', CONSTRAINT = 'effects_once', SCHEMA = 'whence';
            END IF;
        END IF;
        IF ended ? (document->>'place') THEN
            came_of := coalesce(came_of, jsonb_build_object('place', document->'place'))
                || jsonb_build_object('ended', ended->(document->>'place'));
        END IF;
        IF came_of IS NOT NULL THEN
            RETURN NEXT came_of;
        END IF;
    END LOOP;
END $_$;

ALTER FUNCTION whence.memory_apply(in_workspace text, base bigint, events bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors public.halfvec[], in_order boolean) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_change(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $_$
DECLARE
    changed integer;
    turns integer;
    came_of jsonb;
BEGIN
    CASE document->>'effect'
    WHEN 'forget' THEN
        UPDATE whence.memories m SET deleted_at = at
        WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid AND m.deleted_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        RETURN jsonb_build_object('place', document->'place', 'changed', changed);
    WHEN 'recall' THEN
        INSERT INTO whence.recalls (workspace_id, recall_id, position, user_id, agent, recalled_at)
        VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent', at);
        INSERT INTO whence.recall_hits (workspace_id, memory_id, recall_id, user_id, rank)
        SELECT in_workspace, hit.value::uuid, (document->>'event_id')::uuid, document->>'user_id', hit.ordinality
        FROM jsonb_array_elements_text(document->'hits') WITH ORDINALITY hit;
        UPDATE whence.memories m SET access_count = m.access_count + 1, accessed_at = at
        WHERE m.workspace_id = in_workspace
          AND m.memory_id = ANY (ARRAY(SELECT hit::uuid FROM jsonb_array_elements_text(document->'hits') hit));
        RETURN jsonb_build_object('place', document->'place');
    WHEN 'start_run' THEN
        SELECT coalesce(max(r.turn), 0) + 1 INTO turns FROM whence.runs r
        WHERE r.workspace_id = in_workspace AND r.owner = coalesce(document->>'user_id', '')
          AND r.agent = document->>'agent' AND r.instance = document->>'instance';
        INSERT INTO whence.runs (workspace_id, run_id, position, user_id, agent, instance, task_type, session_id,
            status, turn, started_at)
        VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent',
            document->>'instance', document->>'task_type', document->>'session_id', 'running', turns, at);
        RETURN jsonb_build_object('place', document->'place', 'turn', turns);
    WHEN 'end_run' THEN
        -- The first end counts.
        UPDATE whence.runs r SET status = document->>'status', ended_at = at, end_event_id = (document->>'event_id')::uuid
        WHERE r.workspace_id = in_workspace AND r.run_id = (document->>'run_id')::uuid AND r.status = 'running';
        GET DIAGNOSTICS changed = ROW_COUNT;
        RETURN jsonb_build_object('place', document->'place', 'changed', changed);
    WHEN 'set_rule' THEN
        INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at)
        VALUES (in_workspace, document->>'world_id', document->>'rule_id', document->>'body', at)
        ON CONFLICT (workspace_id, world_id, rule_id) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at;
        RETURN jsonb_build_object('place', document->'place');
    WHEN 'drop_rule' THEN
        DELETE FROM whence.canon_rules c
        WHERE c.workspace_id = in_workspace AND c.world_id = document->>'world_id' AND c.rule_id = document->>'rule_id';
        GET DIAGNOSTICS changed = ROW_COUNT;
        RETURN jsonb_build_object('place', document->'place', 'changed', changed);
    WHEN 'add_workflow', 'select_workflow', 'score_workflow', 'retire_workflow' THEN
        RETURN whence.workflow_apply(in_workspace, at_position, at, document);
    ELSE
        EXECUTE format('SELECT whence.%I($1, $2, $3, $4)', 'effect_' || (document->>'effect'))
        INTO came_of USING in_workspace, at_position, at, document;
        RETURN jsonb_build_object('place', document->'place') || came_of;
    END CASE;
END $_$;

ALTER FUNCTION whence.memory_change(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_clear(in_workspace text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY whence.memory_tables() LOOP
        EXECUTE format('DELETE FROM whence.%I WHERE workspace_id = $1', name) USING in_workspace;
    END LOOP;
END $_$;

ALTER FUNCTION whence.memory_clear(in_workspace text) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_digests(in_workspace text) RETURNS TABLE(name text, digest bytea)
    LANGUAGE plpgsql STABLE
    AS $_$
BEGIN
    FOREACH name IN ARRAY whence.memory_tables() LOOP
        EXECUTE format(
            'SELECT sha256(string_agg(row_digest, ''''::bytea ORDER BY row_digest)) FROM ('
            ' SELECT sha256(convert_to((to_jsonb(t) - ''workspace_id'')::text, ''UTF8'')) AS row_digest'
            ' FROM whence.%I t WHERE t.workspace_id = $1) rows', name) INTO digest USING in_workspace;
        RETURN NEXT;
    END LOOP;
END $_$;

ALTER FUNCTION whence.memory_digests(in_workspace text) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_remember(in_workspace text, m whence.remembered, at_position bigint) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
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

ALTER FUNCTION whence.memory_remember(in_workspace text, m whence.remembered, at_position bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_remember_plain(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors public.halfvec[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    done bigint[];
BEGIN
    WITH given AS MATERIALIZED (
        SELECT r.*, start + r.place AS at_position, coalesce(r.recorded_at, in_recorded_at) AS at,
            whence.teller_of(r.sources, r.confidence) AS teller
        FROM jsonb_populate_recordset(NULL::whence.remembered, documents) r
        WHERE r.effect = 'remember' AND r.conflict_key IS NULL AND (r.run_id IS NULL OR r.kind <> 'episodic')
    ), stored AS (
        INSERT INTO whence.memories (
            workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, run_id, world_id_context, body, body_hash, fact_subject, fact_predicate, fact_object, confidence,
            importance, valid_at, recorded_at, sanitised, speaker, role, teller
        )
        SELECT in_workspace, event_id, at_position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, run_id, world_id_context, body, decode(body_hash, 'hex'), fact_subject, fact_predicate, fact_object,
            confidence, importance, coalesce(valid_at, at), at, sanitised, speaker, role, teller
        FROM given
        ON CONFLICT (workspace_id, owner, agent, tier, anchor, kind, body_hash)
            WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
                AND deleted_at IS NULL AND archived_at IS NULL
            DO NOTHING
        RETURNING memory_id
    ), plain AS MATERIALIZED (
        SELECT * FROM given WHERE event_id = ANY (ARRAY(SELECT memory_id FROM stored))
    ), told AS (
        INSERT INTO whence.memory_sources (
            workspace_id, memory_id, source, role, position, event_id, user_id, said_by, confidence, told_at,
            byte_from, byte_to, origin
        )
        SELECT in_workspace, event_id, s->>'source', s->>'role', at_position, event_id, user_id, said_by, confidence, at,
            (s->>'byte_from')::integer, (s->>'byte_to')::integer, (s->>'origin')::uuid
        FROM (SELECT * FROM plain WHERE teller IS NULL) p, jsonb_array_elements(p.sources) s
        ON CONFLICT DO NOTHING
    ), embedded AS (
        INSERT INTO whence.memory_vectors (workspace_id, memory_id, user_id, embedder, embedding)
        SELECT in_workspace, event_id, user_id, embedder, vectors[vector]
        FROM plain WHERE embedder IS NOT NULL
    )
    SELECT coalesce(array_agg(p.place), '{}') INTO done FROM plain p;
    RETURN done;
END $$;

ALTER FUNCTION whence.memory_remember_plain(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors public.halfvec[]) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_remember_text(in_workspace text, m whence.remembered, at_position bigint) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    in_owner constant text := coalesce(m.user_id, '');
    in_anchor constant text := CASE m.tier WHEN 'interaction' THEN m.interaction_id WHEN 'session' THEN m.session_id ELSE '' END;
    in_teller constant text := whence.teller_of(m.sources, m.confidence);
    same uuid;
    fresh integer;
    ends timestamptz;
    ends_by uuid;
    ends_learnt timestamptz;
    replaced uuid[] := '{}';
    counted bigint;
    from_then timestamptz := m.valid_at;
BEGIN
    IF m.conflict_key IS NULL THEN
        from_then := coalesce(from_then, m.recorded_at);
    ELSE
        IF from_then IS NULL THEN
            -- Now; and not before what was said now by somebody whose clock is ahead.
            SELECT greatest(m.recorded_at, max(o.valid_at)) INTO from_then FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
              AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.archived_at IS NULL AND o.deleted_at IS NULL
              AND o.valid_at = o.recorded_at;
        END IF;
        -- The one that holds at the time of this one.
        SELECT o.memory_id INTO same FROM whence.memories o
        WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
          AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.archived_at IS NULL
          AND o.object_key = m.object_key AND o.superseded_at IS NULL AND o.deleted_at IS NULL
          AND o.valid_at <= from_then AND (o.invalid_at IS NULL OR o.invalid_at > from_then);
        IF same IS NOT NULL THEN
            NULL;
        ELSIF m.conflict = 'validity' THEN
            -- Facts of one subject and predicate follow one another in time, whatever the order in which they are learnt.
            SELECT o.valid_at, o.memory_id INTO ends, ends_by FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
              AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.archived_at IS NULL AND o.deleted_at IS NULL
              AND o.valid_at > from_then
            ORDER BY o.valid_at, o.position DESC LIMIT 1;
            WITH ended AS (
                UPDATE whence.memories o SET invalid_at = from_then, invalidated_at = m.recorded_at, invalidated_by = m.event_id
                WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
                  AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.archived_at IS NULL AND o.deleted_at IS NULL
                  AND o.valid_at <= from_then AND (o.invalid_at IS NULL OR o.invalid_at > from_then)
                RETURNING o.memory_id
            )
            SELECT coalesce(array_agg(memory_id ORDER BY memory_id), '{}') INTO replaced FROM ended;
            ends_learnt := CASE WHEN ends IS NOT NULL THEN m.recorded_at END;
        ELSIF m.conflict = 'supersede' THEN
            WITH ended AS (
                UPDATE whence.memories o SET superseded_at = m.recorded_at, superseded_by = m.event_id
                WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
                  AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.archived_at IS NULL
                  AND o.superseded_at IS NULL AND o.deleted_at IS NULL
                RETURNING o.memory_id
            )
            SELECT coalesce(array_agg(memory_id ORDER BY memory_id), '{}') INTO replaced FROM ended;
        END IF;
    END IF;
    IF same IS NULL THEN
        INSERT INTO whence.memories AS o (
            workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, run_id, world_id_context, body, body_hash, conflict_key, fact_subject, fact_predicate,
            fact_object, object_key, confidence, importance, valid_at, invalid_at, invalidated_at, invalidated_by,
            recorded_at, sanitised, support, speaker, role, teller
        ) VALUES (
            in_workspace, m.event_id, at_position, m.user_id, m.subject_id, m.said_by, m.agent, m.profile, m.tier, m.kind,
            m.session_id, m.interaction_id, m.run_id, m.world_id_context, m.body, decode(m.body_hash, 'hex'),
            m.conflict_key, m.fact_subject, m.fact_predicate, m.fact_object, m.object_key, m.confidence, m.importance,
            from_then, ends, ends_learnt, ends_by, m.recorded_at, m.sanitised, m.support, m.speaker,
            m.role, in_teller
        )
        -- The same text without a key is told once. The row is named by touching it, because only this way is sure to
        -- find it by its index, whatever the table looked like when the plan was made.
        ON CONFLICT (workspace_id, owner, agent, tier, anchor, kind, body_hash)
            WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
                AND deleted_at IS NULL AND archived_at IS NULL
            DO UPDATE SET told_count = o.told_count
        RETURNING nullif(o.memory_id, m.event_id) INTO same;
    END IF;
    IF same IS NOT NULL OR in_teller IS NULL THEN
        INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id, user_id, said_by,
            confidence, told_at, byte_from, byte_to, origin)
        SELECT in_workspace, coalesce(same, m.event_id), s.source, s.role, at_position, m.event_id, m.user_id, m.said_by,
            CASE WHEN same IS NULL OR NOT whence.is_own_word(in_workspace, same, s.source, s.role)
                AND NOT whence.is_had_already(in_workspace, same,
                    coalesce(s.origin, CASE s.role WHEN 'memory' THEN s.source::uuid END))
                THEN m.confidence END,
            m.recorded_at, s.byte_from, s.byte_to, s.origin
        FROM jsonb_to_recordset(m.sources)
            s (source text, role text, byte_from integer, byte_to integer, origin uuid)
        WHERE s.role <> 'told' OR NOT EXISTS (
            SELECT FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.memory_id = same AND o.teller = s.source
        )
        ON CONFLICT DO NOTHING;
    END IF;
    IF same IS NOT NULL THEN
        IF m.kind = 'semantic' AND m.world_id_context IS NOT NULL AND greatest(length(m.body), length(m.fact_object)) >= 100 THEN
            -- In other words than the row has: an erasure of whoever told it first makes a row of them.
            PERFORM whence.guard_told(m.world_id_context, m.body, m.fact_object) FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.memory_id = same
              AND (o.body, o.fact_object) IS DISTINCT FROM (m.body, m.fact_object);
        END IF;
        -- Of its sources those that say how sure they are of what they know by themselves.
        SELECT count(*) INTO fresh FROM whence.memory_sources s
        WHERE s.workspace_id = in_workspace AND s.memory_id = same AND s.event_id = m.event_id AND s.confidence IS NOT NULL;
        INSERT INTO whence.memory_tellings (workspace_id, event_id, memory_id, position, user_id, told_at, held_from)
        SELECT in_workspace, m.event_id, same, at_position, o.user_id,
            CASE WHEN from_then < o.valid_at THEN m.recorded_at END, CASE WHEN from_then < o.valid_at THEN o.valid_at END
        FROM whence.memories o
        WHERE o.workspace_id = in_workspace AND o.memory_id = same
        ON CONFLICT DO NOTHING;
        UPDATE whence.memories o SET
            told_count = o.told_count + 1,
            -- Sources that do not know of each other: the chance that both are wrong. One that repeats itself adds nothing.
            confidence = CASE WHEN fresh > 0
                THEN 1 - (1 - coalesce(o.confidence, 0)) * (1 - m.confidence) ELSE o.confidence END,
            importance = greatest(o.importance, m.importance),
            valid_at = least(o.valid_at, from_then),
            -- Named, so that the guard looks at it again: there may be a rule now.
            body = o.body
        WHERE o.workspace_id = in_workspace AND o.memory_id = same;
        RETURN jsonb_build_object('place', m.place, 'memory_id', same, 'status', 'reinforced', 'superseded', '[]'::jsonb);
    END IF;
    IF m.run_id IS NOT NULL AND m.kind = 'episodic' THEN
        INSERT INTO whence.memory_counts AS c (workspace_id, episodes) VALUES (in_workspace, 1)
        ON CONFLICT (workspace_id) DO UPDATE SET episodes = c.episodes + 1
        RETURNING c.episodes INTO counted;
        IF counted > 100000 THEN
            RAISE EXCEPTION 'the workspace has 100,000 episodes' USING
                ERRCODE = '23514', CONSTRAINT = 'memories_episode_cap', TABLE = 'memories', SCHEMA = 'whence';
        END IF;
    ELSIF replaced = '{}' THEN
        RETURN NULL;
    END IF;
    RETURN jsonb_build_object(
        'place', m.place, 'memory_id', m.event_id, 'status', 'stored', 'superseded', to_jsonb(replaced),
        'episodes', counted);
END $$;

ALTER FUNCTION whence.memory_remember_text(in_workspace text, m whence.remembered, at_position bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.memory_tables() RETURNS text[]
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT '{memories,memory_vectors,memory_sources,recalls,recall_hits,runs,canon_rules,memory_counts,workflows,workflow_selections,sessions,actions,action_cites,memory_tellings,erasures,resources,resource_chunks,conversation_messages,conversations,items}'::text[]; $$;

ALTER FUNCTION whence.memory_tables() OWNER TO whence_owner;

CREATE FUNCTION whence.namespace_matches(namespace text[], match text, labels text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT cardinality(labels) <= cardinality(namespace) AND NOT EXISTS (
        SELECT FROM unnest(labels) WITH ORDINALITY l (label, place)
        WHERE l.label <> '*' AND l.label <> namespace[l.place::integer
            + CASE match WHEN 'suffix' THEN cardinality(namespace) - cardinality(labels) ELSE 0 END]
    );
$$;

ALTER FUNCTION whence.namespace_matches(namespace text[], match text, labels text[]) OWNER TO whence_owner;

CREATE FUNCTION whence.no_such_key() RETURNS uuid
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'the key of this subject is gone' USING
        ERRCODE = '23503', CONSTRAINT = 'payloads_subject_key', TABLE = 'payloads', SCHEMA = 'whence';
END $$;

ALTER FUNCTION whence.no_such_key() OWNER TO whence_owner;

CREATE FUNCTION whence.refuse_repeated(in_workspace text, in_world text, body text, fact_object text, beside text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    place text;
    repeated record;
BEGIN
    FOREACH place IN ARRAY ARRAY['body', 'fact_object'] LOOP
        repeated := whence.repeated_rule(in_workspace, in_world, CASE place WHEN 'body' THEN body ELSE fact_object END);
        IF repeated.rule_id IS NOT NULL THEN
            RAISE EXCEPTION 'the % repeats rule % of world %', place, repeated.rule_id, in_world USING
                ERRCODE = '23514', CONSTRAINT = 'memories_canon', COLUMN = place, TABLE = 'memories', SCHEMA = 'whence',
                DETAIL = format('rule %s, %s alike%s', repeated.rule_id, round(repeated.alike::numeric, 2), beside);
        END IF;
    END LOOP;
END $$;

ALTER FUNCTION whence.refuse_repeated(in_workspace text, in_world text, body text, fact_object text, beside text) OWNER TO whence_owner;

CREATE FUNCTION whence.repeated_rule(in_workspace text, in_world text, said text, OUT rule_id text, OUT alike real) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'public', 'pg_temp'
    SET "pg_trgm.similarity_threshold" TO '0.85'
    SET gin_fuzzy_search_limit TO '0'
    SET enable_seqscan TO 'off'
    AS $$
DECLARE
    read text;
BEGIN
    IF length(said) >= 100 THEN
        read := whence.as_read(said);
        -- By the trigram index first: the planner takes a comparison of trigrams to be as cheap as one of numbers, and
        -- would compare all rules of the world, at 25 microseconds each.
        SELECT r.rule_id, similarity(whence.as_read(r.body), read) INTO rule_id, alike
        FROM (
            SELECT * FROM whence.canon_rules c
            WHERE whence.canon_world(c.workspace_id, c.world_id) @> whence.canon_world(in_workspace, in_world)
              AND whence.as_read(c.body) % read OFFSET 0
        ) r
        WHERE r.workspace_id = in_workspace AND r.world_id = in_world
          AND similarity(whence.as_read(r.body), read) > 0.85::real
        ORDER BY 2 DESC, 1 LIMIT 1;
    END IF;
END $$;

ALTER FUNCTION whence.repeated_rule(in_workspace text, in_world text, said text, OUT rule_id text, OUT alike real) OWNER TO whence_owner;

CREATE FUNCTION whence.retention_remove(in_workspace text, ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM whence.memory_vectors v WHERE v.workspace_id = in_workspace AND v.memory_id = ANY (ids);
    DELETE FROM whence.memory_sources s WHERE s.workspace_id = in_workspace AND s.memory_id = ANY (ids);
    DELETE FROM whence.memory_tellings t WHERE t.workspace_id = in_workspace AND t.memory_id = ANY (ids);
    DELETE FROM whence.recall_hits h WHERE h.workspace_id = in_workspace AND h.memory_id = ANY (ids);
    DELETE FROM whence.memories m WHERE m.workspace_id = in_workspace AND m.memory_id = ANY (ids);
END $$;

ALTER FUNCTION whence.retention_remove(in_workspace text, ids uuid[]) OWNER TO whence_owner;

CREATE FUNCTION whence.session_touch(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    seen record;
    known whence.sessions;
    ended jsonb := '{}';
BEGIN
    FOR seen IN
        SELECT coalesce(d->>'user_id', '') AS owner, d->>'agent' AS agent, d->>'session_id' AS session_id,
            coalesce((d->>'recorded_at')::timestamptz, in_recorded_at) AS at,
            start + min((d->>'place')::bigint) AS first, start + max((d->>'place')::bigint) AS last,
            coalesce(max((d->>'idle_days')::integer), 30) AS idle_days
        FROM jsonb_array_elements(documents) d
        WHERE d->>'effect' IN ('remember', 'start_run') AND d->>'session_id' IS NOT NULL
          AND NOT starts_with(d->>'session_id', 'resource://')
        GROUP BY 1, 2, 3, 4 ORDER BY first
    LOOP
        SELECT * INTO known FROM whence.sessions s
        WHERE s.workspace_id = in_workspace AND s.owner = seen.owner AND s.agent = seen.agent
          AND s.session_id = seen.session_id
        ORDER BY s.number DESC LIMIT 1;
        IF known.ended_at IS NULL AND seen.at - known.last_activity_at >= make_interval(days => seen.idle_days) THEN
            UPDATE whence.sessions s SET ended_at = seen.at, end_position = seen.first
            WHERE s.workspace_id = in_workspace AND s.owner = seen.owner AND s.agent = seen.agent
              AND s.session_id = seen.session_id AND s.number = known.number;
            ended := ended || jsonb_build_object((seen.first - start)::text, jsonb_build_object('owner', seen.owner,
                'agent', seen.agent, 'session_id', seen.session_id, 'number', known.number));
            known.ended_at := seen.at;
        END IF;
        IF known.number IS NULL OR known.ended_at IS NOT NULL THEN
            INSERT INTO whence.sessions (workspace_id, owner, agent, session_id, number, idle_days, opened_at,
                first_position, last_activity_at, last_position)
            VALUES (in_workspace, seen.owner, seen.agent, seen.session_id, coalesce(known.number, 0) + 1, seen.idle_days,
                seen.at, seen.first, seen.at, seen.last);
        ELSE
            UPDATE whence.sessions s SET last_activity_at = greatest(s.last_activity_at, seen.at),
                last_position = greatest(s.last_position, seen.last), idle_days = seen.idle_days
            WHERE s.workspace_id = in_workspace AND s.owner = seen.owner AND s.agent = seen.agent
              AND s.session_id = seen.session_id AND s.number = known.number;
        END IF;
    END LOOP;
    RETURN ended;
END $$;

ALTER FUNCTION whence.session_touch(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.subject_events(in_workspace text, in_subject text, upto bigint) RETURNS TABLE(at_position bigint, event_id uuid)
    LANGUAGE sql STABLE
    AS $$
    WITH own AS MATERIALIZED (
        SELECT e.global_position, e.event_id FROM whence.events e
        WHERE e.workspace_id = in_workspace AND e.subject_id = in_subject AND e.global_position <= upto
        UNION ALL
        SELECT e.global_position, e.event_id FROM whence.events e
        WHERE e.workspace_id = in_workspace AND e.user_id = in_subject AND e.global_position <= upto
          AND e.subject_id IS NULL
        UNION ALL
        SELECT e.global_position, e.event_id FROM whence.runs r
        JOIN whence.events e ON e.workspace_id = r.workspace_id AND e.event_id IN (r.run_id, r.end_event_id)
        WHERE r.workspace_id = in_workspace AND r.user_id = in_subject AND e.global_position <= upto
          AND e.user_id IS NULL AND e.subject_id IS NULL
        UNION ALL
        -- Ends that were too late, and changed nothing.
        SELECT e.global_position, e.event_id FROM whence.runs r
        JOIN whence.events e ON e.workspace_id = r.workspace_id AND e.parent_event_id = r.run_id
          AND e.event_type = 'memory.run_ended'
        WHERE r.workspace_id = in_workspace AND r.user_id = in_subject AND e.global_position <= upto
          AND e.user_id IS NULL AND e.subject_id IS NULL
    )
    SELECT o.global_position, o.event_id FROM own o
    UNION
    SELECT e.global_position, e.event_id FROM whence.events e
    WHERE e.workspace_id = in_workspace AND e.event_type = 'llm.content' AND e.global_position <= upto
      AND e.user_id IS NULL AND e.subject_id IS NULL
      AND e.parent_event_id IN (SELECT o.event_id FROM own o);
$$;

ALTER FUNCTION whence.subject_events(in_workspace text, in_subject text, upto bigint) OWNER TO whence_owner;

CREATE FUNCTION whence.subject_rows(in_workspace text, in_subject text, upto bigint, until timestamp with time zone) RETURNS TABLE(name text, rows bigint)
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    events uuid[];
    positions bigint[];
    part record;
BEGIN
    SELECT coalesce(array_agg(s.event_id), '{}'), coalesce(array_agg(s.at_position), '{}') INTO events, positions
    FROM whence.subject_events(in_workspace, in_subject, upto) s;
    FOR part IN SELECT * FROM whence.erasure_tables() LOOP
        EXECUTE format('SELECT count(*) FROM whence.%I t WHERE t.workspace_id = $1 AND (%s)', part.name, part.meant)
        INTO rows USING in_workspace, in_subject, events, positions, upto, until;
        IF rows > 0 THEN
            name := part.name;
            RETURN NEXT;
        END IF;
    END LOOP;
END $_$;

ALTER FUNCTION whence.subject_rows(in_workspace text, in_subject text, upto bigint, until timestamp with time zone) OWNER TO whence_owner;

CREATE FUNCTION whence.teller_of(sources jsonb, confidence double precision) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN confidence IS NULL AND jsonb_array_length(sources) = 1 AND sources->0->>'role' = 'told'
        THEN sources->0->>'source' END;
$$;

ALTER FUNCTION whence.teller_of(sources jsonb, confidence double precision) OWNER TO whence_owner;

CREATE FUNCTION whence.thread_prefix(in_workspace text, in_user text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT in_workspace || '/' || length(in_user) || ':' || in_user || '/';
$$;

ALTER FUNCTION whence.thread_prefix(in_workspace text, in_user text) OWNER TO whence_owner;

CREATE FUNCTION whence.tombstone_conversations(in_workspace text, ids uuid[], at timestamp with time zone) RETURNS integer
    LANGUAGE plpgsql
    AS $$
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

ALTER FUNCTION whence.tombstone_conversations(in_workspace text, ids uuid[], at timestamp with time zone) OWNER TO whence_owner;

CREATE FUNCTION whence.workflow_apply(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
DECLARE
    changed integer;
    scored uuid;
BEGIN
    CASE document->>'effect'
    WHEN 'add_workflow' THEN
        INSERT INTO whence.workflows (workspace_id, workflow_id, position, user_id, added_by, agent, task_type, name, spec,
            created_at)
        VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'added_by',
            document->>'agent', document->>'task_type', document->>'name', document->>'spec', at);
        SELECT count(*) INTO changed FROM whence.workflows w
        WHERE w.workspace_id = in_workspace AND w.owner = coalesce(document->>'user_id', '')
          AND w.task_key = whence.workflow_key(document->>'agent', document->>'task_type') AND w.retired_at IS NULL;
        IF changed > 100 THEN
            RAISE EXCEPTION 'there are 100 variants for this kind of task' USING
                ERRCODE = '23514', CONSTRAINT = 'workflows_cap', TABLE = 'workflows', SCHEMA = 'whence';
        END IF;
    WHEN 'select_workflow' THEN
        UPDATE whence.workflows w SET selections = w.selections + 1
        WHERE w.workspace_id = in_workspace AND w.workflow_id = (document->>'workflow_id')::uuid AND w.retired_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
        -- Retired between the draw and this event; who asked draws again. One that is not there at all is no failure:
        -- the event that added it may have been erased, and a replay goes on.
        IF changed = 0 AND EXISTS (
            SELECT 1 FROM whence.workflows w
            WHERE w.workspace_id = in_workspace AND w.workflow_id = (document->>'workflow_id')::uuid
        ) THEN
            RAISE EXCEPTION 'the workflow is retired' USING
                ERRCODE = '23514', CONSTRAINT = 'workflow_selections_in_use', TABLE = 'workflow_selections', SCHEMA = 'whence';
        END IF;
        INSERT INTO whence.workflow_selections (workspace_id, selection_id, position, workflow_id, user_id, selected_at)
        VALUES (in_workspace, (document->>'event_id')::uuid, at_position, (document->>'workflow_id')::uuid,
            document->>'user_id', at);
    WHEN 'score_workflow' THEN
        -- The first outcome of a selection counts, and no other.
        UPDATE whence.workflow_selections s SET score = (document->>'score')::double precision, scored_at = at,
            outcome_event_id = (document->>'event_id')::uuid
        WHERE s.workspace_id = in_workspace AND s.selection_id = (document->>'selection_id')::uuid AND s.score IS NULL
        RETURNING s.workflow_id INTO scored;
        GET DIAGNOSTICS changed = ROW_COUNT;
        UPDATE whence.workflows w SET
            alpha = w.alpha + (document->>'score')::double precision,
            beta = w.beta + (1 - (document->>'score')::double precision),
            outcomes = w.outcomes + 1
        WHERE w.workspace_id = in_workspace AND w.workflow_id = scored;
    WHEN 'retire_workflow' THEN
        UPDATE whence.workflows w SET retired_at = at
        WHERE w.workspace_id = in_workspace AND w.workflow_id = (document->>'workflow_id')::uuid AND w.retired_at IS NULL;
        GET DIAGNOSTICS changed = ROW_COUNT;
    END CASE;
    RETURN jsonb_build_object('place', document->'place', 'changed', changed);
END $$;

ALTER FUNCTION whence.workflow_apply(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) OWNER TO whence_owner;

CREATE FUNCTION whence.workflow_key(agent text, task_type text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT sha256(sha256(convert_to(agent, 'UTF8')) || sha256(convert_to(task_type, 'UTF8')));
$$;

ALTER FUNCTION whence.workflow_key(agent text, task_type text) OWNER TO whence_owner;

CREATE FUNCTION whence.working_instance_key(agent text, instance text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT sha256(sha256(convert_to(agent, 'UTF8')) || sha256(convert_to(instance, 'UTF8')));
$$;

ALTER FUNCTION whence.working_instance_key(agent text, instance text) OWNER TO whence_owner;

CREATE FUNCTION whence.working_put(in_workspace text, in_user text, in_agent text, in_instance text, in_key text, in_value text, budget integer, at timestamp with time zone, until timestamp with time zone) RETURNS TABLE(stored boolean, counts_for integer, taken bigint)
    LANGUAGE plpgsql
    AS $$
DECLARE
    in_owner constant text := coalesce(in_user, '');
    in_instance_key constant bytea := whence.working_instance_key(in_agent, in_instance);
BEGIN
    PERFORM pg_advisory_xact_lock(
        hashtextextended(concat_ws(' ', in_workspace, in_owner, encode(in_instance_key, 'hex')), 0));
    SELECT coalesce(sum(w.bytes), 0) INTO taken FROM whence.working_memory w
    WHERE w.workspace_id = in_workspace AND w.owner = in_owner AND w.instance_key = in_instance_key
      AND w.key <> in_key AND w.expires_at > at;
    counts_for := octet_length(in_key) + octet_length(in_value);
    stored := taken + counts_for <= budget;
    IF stored THEN
        INSERT INTO whence.working_memory (workspace_id, user_id, agent, instance, key, value, updated_at, expires_at)
        VALUES (in_workspace, in_user, in_agent, in_instance, in_key, in_value, at, until)
        ON CONFLICT ON CONSTRAINT working_memory_pkey DO UPDATE
            SET value = EXCLUDED.value, updated_at = EXCLUDED.updated_at, expires_at = EXCLUDED.expires_at;
    END IF;
    RETURN NEXT;
END $$;

ALTER FUNCTION whence.working_put(in_workspace text, in_user text, in_agent text, in_instance text, in_key text, in_value text, budget integer, at timestamp with time zone, until timestamp with time zone) OWNER TO whence_owner;

CREATE TABLE whence.action_cites (
    workspace_id text NOT NULL,
    action_id uuid NOT NULL,
    cited uuid NOT NULL,
    place integer NOT NULL,
    user_id text
);

ALTER TABLE ONLY whence.action_cites FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.action_cites OWNER TO whence_owner;

COMMENT ON COLUMN whence.action_cites.user_id IS 'Whose it is that is cited, so that whoever sees a memory sees that it is held, whoever recorded the action.';

CREATE TABLE whence.actions (
    workspace_id text NOT NULL,
    action_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    kind text NOT NULL,
    recorded_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY whence.actions FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.actions OWNER TO whence_owner;

COMMENT ON COLUMN whence.actions.action_id IS 'The id of the event that recorded it.';

COMMENT ON COLUMN whence.actions.user_id IS 'Who recorded it; NULL for an administrator.';

CREATE TABLE whence.canon_rules (
    workspace_id text NOT NULL,
    world_id text NOT NULL,
    rule_id text NOT NULL,
    body text NOT NULL,
    updated_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY whence.canon_rules FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.canon_rules OWNER TO whence_owner;

CREATE TABLE whence.conversation_messages (
    workspace_id text NOT NULL,
    conversation_id uuid NOT NULL,
    place integer NOT NULL,
    message_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    role text NOT NULL,
    is_copy boolean DEFAULT false NOT NULL,
    recorded_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT conversation_messages_broadcast_stays CHECK (((user_id IS NOT NULL) OR (deleted_at IS NULL))),
    CONSTRAINT conversation_messages_copy_is_owned CHECK (((user_id IS NOT NULL) OR (NOT is_copy))),
    CONSTRAINT conversation_messages_place CHECK ((place >= 1)),
    CONSTRAINT conversation_messages_role CHECK ((role = ANY (ARRAY['user'::text, 'assistant'::text, 'system'::text, 'tool'::text])))
);

ALTER TABLE ONLY whence.conversation_messages FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.conversation_messages OWNER TO whence_owner;

COMMENT ON COLUMN whence.conversation_messages.message_id IS 'The id of the event whose payload holds the text. A copy in a fork names the event of the broadcast.';

COMMENT ON COLUMN whence.conversation_messages."position" IS 'Of that event.';

COMMENT ON COLUMN whence.conversation_messages.user_id IS 'Whose conversation it is in; NULL in a broadcast.';

CREATE TABLE whence.conversations (
    workspace_id text NOT NULL,
    conversation_id uuid NOT NULL,
    "position" bigint NOT NULL,
    state text NOT NULL,
    user_id text,
    broadcast_key text,
    forked_from uuid,
    titled_at bigint,
    message_count integer DEFAULT 0 NOT NULL,
    max_messages integer DEFAULT 10000 NOT NULL,
    started_at timestamp with time zone NOT NULL,
    active_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone,
    CONSTRAINT conversations_broadcast_stays CHECK (((state <> 'broadcast'::text) OR (deleted_at IS NULL))),
    CONSTRAINT conversations_names CHECK (((user_id <> ''::text) AND (broadcast_key <> ''::text))),
    CONSTRAINT conversations_not_of_itself CHECK ((forked_from <> conversation_id)),
    CONSTRAINT conversations_room CHECK (((message_count >= 0) AND (message_count <= max_messages))),
    CONSTRAINT conversations_state CHECK (
CASE state
    WHEN 'private'::text THEN ((user_id IS NOT NULL) AND (broadcast_key IS NULL) AND (forked_from IS NULL))
    WHEN 'broadcast'::text THEN ((user_id IS NULL) AND (broadcast_key IS NOT NULL) AND (forked_from IS NULL))
    WHEN 'fork'::text THEN ((user_id IS NOT NULL) AND (broadcast_key IS NULL) AND (forked_from IS NOT NULL))
    ELSE false
END)
);

ALTER TABLE ONLY whence.conversations FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.conversations OWNER TO whence_owner;

COMMENT ON COLUMN whence.conversations.conversation_id IS 'The id of the event that made it.';

COMMENT ON COLUMN whence.conversations.titled_at IS 'The position of the event whose payload holds the title, where it has one.';

COMMENT ON COLUMN whence.conversations.max_messages IS 'Of a broadcast, as many as it was published with: nobody writes into it afterwards.';

COMMENT ON COLUMN whence.conversations.active_at IS 'When the last message came, else when it was started.';

CREATE TABLE whence.edge_types (
    edge_type smallint NOT NULL,
    name text NOT NULL
);

ALTER TABLE whence.edge_types OWNER TO whence_owner;

CREATE TABLE whence.erasures (
    workspace_id text NOT NULL,
    erasure_id uuid NOT NULL,
    "position" bigint NOT NULL,
    subject_hash text NOT NULL,
    erased_at timestamp with time zone NOT NULL,
    erased_by text NOT NULL,
    document jsonb NOT NULL
);

ALTER TABLE ONLY whence.erasures FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.erasures OWNER TO whence_owner;

COMMENT ON COLUMN whence.erasures.erasure_id IS 'The id of the event that says so.';

COMMENT ON COLUMN whence.erasures.subject_hash IS 'Keyed by the workspace''s key: the same for the same subject, and not to be guessed without it.';

COMMENT ON COLUMN whence.erasures.document IS 'What the event says was removed.';

CREATE TABLE whence.erasures_unsettled (
    workspace_id text NOT NULL,
    erasure_id uuid NOT NULL,
    since timestamp with time zone NOT NULL,
    shredded jsonb NOT NULL
);

ALTER TABLE ONLY whence.erasures_unsettled FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.erasures_unsettled OWNER TO whence_owner;

COMMENT ON COLUMN whence.erasures_unsettled.shredded IS 'Ids and fingerprints of the keys that the key provider must refuse from now on.';

CREATE TABLE whence.events (
    workspace_id text NOT NULL,
    global_position bigint NOT NULL,
    event_id uuid NOT NULL,
    parent_event_id uuid,
    occurred_at whence.event_time NOT NULL,
    ended_at whence.event_time,
    recorded_at timestamp with time zone NOT NULL,
    schema_version whence.schema_version NOT NULL,
    importance_hint whence.importance_hint,
    event_type text NOT NULL,
    session_id text NOT NULL,
    trace_id text NOT NULL,
    agent_id text,
    user_id text,
    subject_id text,
    tool_name text,
    status whence.event_status,
    data_classification text,
    payload_ref whence.payload_ref,
    payload_commitment whence.commitment,
    measures jsonb,
    CONSTRAINT events_ended_after_start CHECK (((ended_at)::timestamp with time zone >= (occurred_at)::timestamp with time zone)),
    CONSTRAINT events_not_own_parent CHECK ((parent_event_id <> event_id)),
    CONSTRAINT events_position_from_one CHECK ((global_position >= 1))
);

ALTER TABLE ONLY whence.events FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.events OWNER TO whence_owner;

CREATE TABLE whence.graph_aliases (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    entity_type text NOT NULL,
    name_key text NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    subject_id text DEFAULT ''::text NOT NULL,
    target_key text NOT NULL,
    name text,
    sealed_name bytea,
    CONSTRAINT graph_aliases_not_itself CHECK ((name_key <> target_key)),
    CONSTRAINT graph_aliases_one_name CHECK ((num_nonnulls(name, sealed_name) = 1))
);

ALTER TABLE ONLY whence.graph_aliases FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_aliases OWNER TO whence_owner;

COMMENT ON COLUMN whence.graph_aliases.target_key IS 'By what the entity that is meant is known; its name is beside it.';

CREATE TABLE whence.graph_builds (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    live boolean NOT NULL,
    "position" bigint DEFAULT 0 NOT NULL,
    last_build integer NOT NULL,
    dropped boolean DEFAULT false NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT graph_builds_position_not_negative CHECK (("position" >= 0))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

ALTER TABLE ONLY whence.graph_builds FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_builds OWNER TO whence_owner;

COMMENT ON COLUMN whence.graph_builds."position" IS 'Everything up to here is in the build; written with what it counts.';

COMMENT ON COLUMN whence.graph_builds.last_build IS 'Of the live build: the last number given to any, so that none is given twice.';

COMMENT ON COLUMN whence.graph_builds.dropped IS 'Its rows are being removed; nothing may be added to it.';

CREATE TABLE whence.graph_edges (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    source bigint NOT NULL,
    target bigint NOT NULL,
    edge_type smallint NOT NULL,
    role whence.edge_role,
    score real,
    user_id text,
    CONSTRAINT graph_edges_not_to_itself CHECK ((source <> target))
);

ALTER TABLE ONLY whence.graph_edges FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_edges OWNER TO whence_owner;

CREATE TABLE whence.graph_entities (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    node bigint NOT NULL,
    entity_type text NOT NULL,
    name_key text NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    subject_id text DEFAULT ''::text NOT NULL,
    name text,
    sealed_name bytea,
    CONSTRAINT graph_entities_one_name CHECK ((num_nonnulls(name, sealed_name) = 1))
);

ALTER TABLE ONLY whence.graph_entities FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_entities OWNER TO whence_owner;

COMMENT ON COLUMN whence.graph_entities.owner IS 'The user, or the empty text, which no user is called: for keys.';

COMMENT ON COLUMN whence.graph_entities.subject_id IS 'Whose key seals the name; the empty text is the workspace.';

CREATE TABLE whence.graph_set_aside (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    "position" bigint NOT NULL,
    reason text NOT NULL
);

ALTER TABLE ONLY whence.graph_set_aside FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_set_aside OWNER TO whence_owner;

CREATE TABLE whence.graph_timeline (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    session_id text NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    "position" bigint NOT NULL,
    user_id text
);

ALTER TABLE ONLY whence.graph_timeline FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_timeline OWNER TO whence_owner;

CREATE TABLE whence.graph_vectors (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    node bigint NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    subject_id text NOT NULL,
    trace_id text NOT NULL,
    vector bytea NOT NULL
);

ALTER TABLE ONLY whence.graph_vectors FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_vectors OWNER TO whence_owner;

CREATE TABLE whence.graph_waiting (
    workspace_id text NOT NULL,
    build integer NOT NULL,
    event_id uuid NOT NULL,
    source bigint NOT NULL,
    edge_type smallint NOT NULL,
    role whence.edge_role,
    user_id text
);

ALTER TABLE ONLY whence.graph_waiting FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.graph_waiting OWNER TO whence_owner;

CREATE TABLE whence.installation (
    only_row boolean DEFAULT true NOT NULL,
    kek_id text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT installation_only_row CHECK (only_row)
);

ALTER TABLE whence.installation OWNER TO whence_owner;

COMMENT ON COLUMN whence.installation.kek_id IS 'Names the key-encryption key that wraps the subject keys; never the key.';

CREATE TABLE whence.items (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    agent text NOT NULL,
    conflict_key text NOT NULL,
    namespace text[] NOT NULL,
    path text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL,
    value jsonb NOT NULL,
    bytes integer GENERATED ALWAYS AS (octet_length((value)::text)) STORED NOT NULL,
    searched boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    ttl_s double precision,
    expires_at timestamp with time zone,
    CONSTRAINT items_expire_by_ttl CHECK (((ttl_s IS NULL) = (expires_at IS NULL)))
);

ALTER TABLE ONLY whence.items FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.items OWNER TO whence_owner;

COMMENT ON COLUMN whence.items.memory_id IS 'The memory that the last put made: the id of its event.';

COMMENT ON COLUMN whence.items.conflict_key IS 'As in memories: the namespace and the key, hashed.';

COMMENT ON COLUMN whence.items.bytes IS 'How much an answer has of it, known without reading it.';

COMMENT ON COLUMN whence.items.searched IS 'Whether its memory has a text that a question can find.';

COMMENT ON COLUMN whence.items.expires_at IS 'From this time on nobody sees it. The same as invalid_at of its memory.';

CREATE TABLE whence.library_migrations (
    library text NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE whence.library_migrations OWNER TO whence_owner;

CREATE TABLE whence.memories (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    subject_id text NOT NULL,
    said_by text,
    agent text NOT NULL,
    profile text NOT NULL,
    tier text NOT NULL,
    kind text NOT NULL,
    session_id text,
    interaction_id text,
    anchor text GENERATED ALWAYS AS (
CASE tier
    WHEN 'interaction'::text THEN interaction_id
    WHEN 'session'::text THEN session_id
    ELSE ''::text
END) STORED NOT NULL,
    run_id uuid,
    world_id_context text,
    body text NOT NULL,
    body_hash bytea NOT NULL,
    conflict_key text COLLATE pg_catalog."C",
    fact_subject text,
    fact_predicate text,
    fact_object text,
    object_key text,
    confidence whence.confidence,
    importance whence.importance NOT NULL,
    valid_at timestamp with time zone NOT NULL,
    invalid_at timestamp with time zone,
    invalidated_at timestamp with time zone,
    invalidated_by uuid,
    superseded_at timestamp with time zone,
    superseded_by uuid,
    recorded_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone,
    told_count integer DEFAULT 1 NOT NULL,
    access_count integer DEFAULT 0 NOT NULL,
    accessed_at timestamp with time zone,
    sanitised jsonb,
    archived_at timestamp with time zone,
    support integer,
    stripped_at timestamp with time zone,
    speaker text,
    role whence.role,
    teller text,
    CONSTRAINT memories_kind_known CHECK ((kind = ANY (ARRAY['episodic'::text, 'semantic'::text, 'procedural'::text]))),
    CONSTRAINT memories_tier_known CHECK ((tier = ANY (ARRAY['interaction'::text, 'session'::text, 'persistent'::text])))
)
WITH (fillfactor='85');

ALTER TABLE ONLY whence.memories FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.memories OWNER TO whence_owner;

COMMENT ON COLUMN whence.memories.memory_id IS 'The id of the event that told it first.';

COMMENT ON COLUMN whence.memories.user_id IS 'The user whose it is; NULL where the profile anchors it on the workspace.';

COMMENT ON COLUMN whence.memories.subject_id IS 'Under whose key the event is sealed; the empty text is the workspace.';

COMMENT ON COLUMN whence.memories.invalid_at IS 'Semantic: when it stopped being so. It was learnt at invalidated_at.';

COMMENT ON COLUMN whence.memories.superseded_at IS 'Procedural: when another took its place.';

COMMENT ON COLUMN whence.memories.archived_at IS 'When its session was closed: from then on it is evidence, and not recalled.';

COMMENT ON COLUMN whence.memories.support IS 'Of a routine: the number of sessions that it was seen in.';

COMMENT ON COLUMN whence.memories.stripped_at IS 'When its content was disposed of; the row is an envelope since.';

COMMENT ON COLUMN whence.memories.speaker IS 'Whose words they are, as that person or thing is called; said_by is who sent them.';

COMMENT ON COLUMN whence.memories.teller IS 'The source that told it first and did not say how sure it is: the run, the session or the user. Of every other source there is a row in memory_sources.';

CREATE TABLE whence.memory_sources (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    source text NOT NULL,
    role text NOT NULL,
    "position" bigint NOT NULL,
    event_id uuid NOT NULL,
    user_id text,
    said_by text,
    confidence double precision,
    told_at timestamp with time zone NOT NULL,
    byte_from integer,
    byte_to integer,
    origin uuid,
    CONSTRAINT memory_sources_byte_range CHECK ((((byte_from IS NULL) = (byte_to IS NULL)) AND ((byte_from IS NULL) OR ((byte_from >= 0) AND (byte_to > byte_from))))),
    CONSTRAINT memory_sources_role_known CHECK ((role = ANY (ARRAY['told'::text, 'event'::text, 'memory'::text])))
);

ALTER TABLE ONLY whence.memory_sources FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.memory_sources OWNER TO whence_owner;

COMMENT ON COLUMN whence.memory_sources.source IS 'What counts as one source: an event or memory that it was derived from, else the run, the session or the teller.';

COMMENT ON COLUMN whence.memory_sources.event_id IS 'The event that told it and named this source.';

COMMENT ON COLUMN whence.memory_sources.byte_from IS 'Where in the source it is said, as UTF-8; NULL where nobody says.';

COMMENT ON COLUMN whence.memory_sources.origin IS 'The memory that says the same which the source, a recall or a telling, has found or told; NULL where there is none.';

CREATE VIEW whence.memory_all_sources WITH (security_invoker='true') AS
 SELECT s.workspace_id,
    s.memory_id,
    s.source,
    s.role,
    s."position",
    s.event_id,
    s.user_id,
    s.said_by,
    s.confidence,
    s.told_at,
    s.byte_from,
    s.byte_to,
    s.origin
   FROM whence.memory_sources s
UNION ALL
 SELECT m.workspace_id,
    m.memory_id,
    m.teller AS source,
    'told'::text AS role,
    m."position",
    m.memory_id AS event_id,
    m.user_id,
    m.said_by,
    NULL::double precision AS confidence,
    m.recorded_at AS told_at,
    NULL::integer AS byte_from,
    NULL::integer AS byte_to,
    NULL::uuid AS origin
   FROM whence.memories m
  WHERE (m.teller IS NOT NULL);

ALTER VIEW whence.memory_all_sources OWNER TO whence_owner;

CREATE TABLE whence.memory_counts (
    workspace_id text NOT NULL,
    episodes bigint DEFAULT 0 NOT NULL
);

ALTER TABLE ONLY whence.memory_counts FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.memory_counts OWNER TO whence_owner;

CREATE TABLE whence.memory_index (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    "position" bigint NOT NULL,
    embedder text,
    dimension integer GENERATED ALWAYS AS (public.vector_dims(embedding)) STORED,
    embedding public.halfvec,
    terms bigint[] NOT NULL
);
ALTER TABLE ONLY whence.memory_index ALTER COLUMN embedding SET STORAGE PLAIN;

ALTER TABLE ONLY whence.memory_index FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.memory_index OWNER TO whence_owner;

COMMENT ON COLUMN whence.memory_index.terms IS 'The words of its text, each a number that is its owner''s alone.';

CREATE TABLE whence.memory_tellings (
    workspace_id text NOT NULL,
    event_id uuid NOT NULL,
    memory_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    told_at timestamp with time zone,
    held_from timestamp with time zone
);

ALTER TABLE ONLY whence.memory_tellings FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.memory_tellings OWNER TO whence_owner;

COMMENT ON COLUMN whence.memory_tellings.held_from IS 'From when the memory held as far as was known before it was told at told_at that it held from earlier on; NULL where that was not told.';

CREATE TABLE whence.memory_vectors (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    user_id text,
    embedder text NOT NULL,
    embedding public.halfvec NOT NULL
);
ALTER TABLE ONLY whence.memory_vectors ALTER COLUMN embedding SET STORAGE MAIN;

ALTER TABLE ONLY whence.memory_vectors FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.memory_vectors OWNER TO whence_owner;

CREATE TABLE whence.payloads (
    workspace_id text NOT NULL,
    global_position bigint NOT NULL,
    user_id text,
    subject_id text NOT NULL,
    key_id uuid NOT NULL,
    ciphertext bytea NOT NULL
);
ALTER TABLE ONLY whence.payloads ALTER COLUMN ciphertext SET STORAGE EXTERNAL;

ALTER TABLE ONLY whence.payloads FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.payloads OWNER TO whence_owner;

COMMENT ON COLUMN whence.payloads.key_id IS 'Was among subject_keys when the payload was stored; goes with it.';

CREATE TABLE whence.recall_hits (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    recall_id uuid NOT NULL,
    user_id text,
    rank integer NOT NULL
);

ALTER TABLE ONLY whence.recall_hits FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.recall_hits OWNER TO whence_owner;

CREATE TABLE whence.recalls (
    workspace_id text NOT NULL,
    recall_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    agent text,
    recalled_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY whence.recalls FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.recalls OWNER TO whence_owner;

CREATE TABLE whence.resource_chunks (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    resource_id uuid NOT NULL,
    user_id text NOT NULL,
    location jsonb NOT NULL
);

ALTER TABLE ONLY whence.resource_chunks FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.resource_chunks OWNER TO whence_owner;

CREATE TABLE whence.resource_uploads (
    workspace_id text NOT NULL,
    resource_id uuid NOT NULL,
    part integer NOT NULL,
    user_id text NOT NULL,
    ciphertext bytea NOT NULL,
    taken_until timestamp with time zone,
    kind text,
    attempts integer DEFAULT 1 NOT NULL
);
ALTER TABLE ONLY whence.resource_uploads ALTER COLUMN ciphertext SET STORAGE EXTERNAL;

ALTER TABLE ONLY whence.resource_uploads FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.resource_uploads OWNER TO whence_owner;

COMMENT ON COLUMN whence.resource_uploads.taken_until IS 'Of the first part: until then, whoever reads the file has said to be at it.';

COMMENT ON COLUMN whence.resource_uploads.kind IS 'Of the first part: what the file is, as it was seen when it came.';

COMMENT ON COLUMN whence.resource_uploads.attempts IS 'Of the first part: how often somebody began to read it.';

CREATE TABLE whence.resources (
    workspace_id text NOT NULL,
    resource_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text NOT NULL,
    agent text NOT NULL,
    app_id text NOT NULL,
    project_id text NOT NULL,
    uri text NOT NULL,
    name text NOT NULL,
    declared_type text,
    content_type text,
    size bigint NOT NULL,
    sha256 text NOT NULL,
    status text DEFAULT 'processing'::text NOT NULL,
    reason text,
    chunks integer DEFAULT 0 NOT NULL,
    refused integer DEFAULT 0 NOT NULL,
    added_by text NOT NULL,
    added_at timestamp with time zone NOT NULL,
    processed_at timestamp with time zone,
    deleted_at timestamp with time zone,
    CONSTRAINT resources_failed_has_reason CHECK (((status = 'failed'::text) = (reason IS NOT NULL))),
    CONSTRAINT resources_status_known CHECK ((status = ANY (ARRAY['processing'::text, 'ready'::text, 'failed'::text])))
);

ALTER TABLE ONLY whence.resources FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.resources OWNER TO whence_owner;

COMMENT ON COLUMN whence.resources.resource_id IS 'The id of the event that added it.';

COMMENT ON COLUMN whence.resources.agent IS 'The partition of app_id and project_id.';

COMMENT ON COLUMN whence.resources.refused IS 'Parts that hold what the profile keeps out of memory.';

CREATE VIEW whence.retention_states WITH (security_invoker='true') AS
 SELECT m.workspace_id,
        CASE m.tier
            WHEN 'persistent'::text THEN 'memory'::text
            ELSE 'scoped_memory'::text
        END AS entity,
    m.memory_id AS id,
    m.user_id,
        CASE
            WHEN (m.deleted_at IS NOT NULL) THEN 'TOMBSTONED'::text
            WHEN (whence.is_held(m.workspace_id, m.memory_id) OR whence.is_derived_from(m.workspace_id, m.memory_id, '9223372036854775807'::bigint)) THEN 'REFERENCED'::text
            WHEN ((m.teller IS NULL) AND (EXISTS ( SELECT 1
               FROM whence.memory_sources s
              WHERE ((s.workspace_id = m.workspace_id) AND (s.memory_id = m.memory_id)))) AND (NOT (EXISTS ( SELECT 1
               FROM whence.memory_sources s
              WHERE ((s.workspace_id = m.workspace_id) AND (s.memory_id = m.memory_id) AND
                    CASE s.role
                        WHEN 'memory'::text THEN (EXISTS ( SELECT 1
                           FROM whence.memories o
                          WHERE ((o.workspace_id = s.workspace_id) AND (o.memory_id = (s.source)::uuid) AND (o.deleted_at IS NULL))))
                        ELSE true
                    END))))) THEN 'ORPHANED'::text
            ELSE 'ACTIVE'::text
        END AS state
   FROM whence.memories m
UNION ALL
 SELECT c.workspace_id,
    'conversation'::text AS entity,
    c.conversation_id AS id,
    c.user_id,
        CASE
            WHEN (c.deleted_at IS NOT NULL) THEN 'TOMBSTONED'::text
            WHEN (whence.is_conversation_held(c.workspace_id, c.conversation_id) OR ((c.state = 'broadcast'::text) AND (EXISTS ( SELECT 1
               FROM whence.conversations f
              WHERE ((f.workspace_id = c.workspace_id) AND (f.forked_from = c.conversation_id) AND (f.deleted_at IS NULL)))))) THEN 'REFERENCED'::text
            ELSE 'ACTIVE'::text
        END AS state
   FROM whence.conversations c
UNION ALL
 SELECT m.workspace_id,
    'conversation_message'::text AS entity,
    m.message_id AS id,
    m.user_id,
        CASE
            WHEN (m.deleted_at IS NOT NULL) THEN 'TOMBSTONED'::text
            WHEN (EXISTS ( SELECT 1
               FROM whence.action_cites c
              WHERE ((c.workspace_id = m.workspace_id) AND (c.cited = m.message_id)))) THEN 'REFERENCED'::text
            ELSE 'ACTIVE'::text
        END AS state
   FROM whence.conversation_messages m
  WHERE (NOT m.is_copy);

ALTER VIEW whence.retention_states OWNER TO whence_owner;

CREATE TABLE whence.runs (
    workspace_id text NOT NULL,
    run_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    agent text NOT NULL,
    instance text NOT NULL,
    task_type text,
    session_id text,
    status text NOT NULL,
    turn integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    end_event_id uuid,
    CONSTRAINT runs_status_known CHECK ((status = ANY (ARRAY['running'::text, 'completed'::text, 'failed'::text])))
);

ALTER TABLE ONLY whence.runs FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.runs OWNER TO whence_owner;

COMMENT ON COLUMN whence.runs.turn IS 'Its number among the runs of this instance of the agent.';

CREATE TABLE whence.schema_migrations (
    version integer NOT NULL,
    name text NOT NULL,
    sha256 bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE whence.schema_migrations OWNER TO whence_owner;

CREATE TABLE whence.seal_tiles (
    workspace_id text NOT NULL,
    level smallint NOT NULL,
    tile bigint NOT NULL,
    hashes bytea NOT NULL,
    CONSTRAINT seal_tiles_from_zero CHECK ((tile >= 0)),
    CONSTRAINT seal_tiles_level_range CHECK (((level >= 0) AND (level <= 7))),
    CONSTRAINT seal_tiles_whole_hashes CHECK ((((octet_length(hashes) % 32) = 0) AND (octet_length(hashes) <= 8192)))
);
ALTER TABLE ONLY whence.seal_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

ALTER TABLE ONLY whence.seal_tiles FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.seal_tiles OWNER TO whence_owner;

CREATE TABLE whence.seals (
    workspace_id text NOT NULL,
    size bigint NOT NULL,
    root bytea NOT NULL,
    sealed_at timestamp with time zone NOT NULL,
    CONSTRAINT seals_root_length CHECK ((octet_length(root) = 32)),
    CONSTRAINT seals_size_from_one CHECK ((size >= 1))
);

ALTER TABLE ONLY whence.seals FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.seals OWNER TO whence_owner;

CREATE TABLE whence.sessions (
    workspace_id text NOT NULL,
    owner text NOT NULL,
    agent text NOT NULL,
    session_id text NOT NULL,
    number integer NOT NULL,
    user_id text GENERATED ALWAYS AS (NULLIF(owner, ''::text)) STORED,
    idle_days integer NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    first_position bigint NOT NULL,
    last_activity_at timestamp with time zone NOT NULL,
    last_position bigint NOT NULL,
    ended_at timestamp with time zone,
    end_position bigint,
    closed_at timestamp with time zone,
    close_event_id uuid,
    idle_until timestamp without time zone GENERATED ALWAYS AS (((last_activity_at AT TIME ZONE 'UTC'::text) + make_interval(days => idle_days))) STORED NOT NULL
);

ALTER TABLE ONLY whence.sessions FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.sessions OWNER TO whence_owner;

COMMENT ON COLUMN whence.sessions.owner IS 'The user whose it is; the empty text is the workspace.';

COMMENT ON COLUMN whence.sessions.number IS 'Which stretch: a session id can be used again after it was closed.';

COMMENT ON COLUMN whence.sessions.idle_days IS 'After so many without activity it ends: what the profile said last.';

COMMENT ON COLUMN whence.sessions.ended_at IS 'When the next stretch began, or it was closed; from then on it grows no more.';

COMMENT ON COLUMN whence.sessions.end_position IS 'The first position that is not part of it.';

CREATE TABLE whence.subject_keys (
    workspace_id text NOT NULL,
    subject_id text NOT NULL,
    key_id uuid NOT NULL,
    wrapped_key bytea NOT NULL,
    kek_id text NOT NULL,
    created_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY whence.subject_keys FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.subject_keys OWNER TO whence_owner;

COMMENT ON COLUMN whence.subject_keys.subject_id IS 'The named subject, else the user, else the empty text for the workspace.';

CREATE TABLE whence.thread_keys (
    workspace_id text NOT NULL,
    user_id text NOT NULL,
    key_id uuid NOT NULL,
    subject_key_id uuid NOT NULL,
    sealed_key bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);

ALTER TABLE ONLY whence.thread_keys FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.thread_keys OWNER TO whence_owner;

COMMENT ON COLUMN whence.thread_keys.key_id IS 'In the order in which a user''s keys were made: the greatest one seals.';

CREATE TABLE whence.threads (
    workspace_id text NOT NULL,
    user_id text NOT NULL,
    thread_id text NOT NULL,
    stored_as text GENERATED ALWAYS AS ((whence.thread_prefix(workspace_id, user_id) || thread_id)) STORED NOT NULL,
    conversation_id text,
    key_id uuid,
    created_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone NOT NULL,
    CONSTRAINT threads_thread_id_length CHECK (((length(thread_id) >= 1) AND (length(thread_id) <= 256)))
);

ALTER TABLE ONLY whence.threads FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.threads OWNER TO whence_owner;

COMMENT ON COLUMN whence.threads.stored_as IS 'The thread_id in the tables of the framework.';

COMMENT ON COLUMN whence.threads.key_id IS 'The oldest key that something of the thread may be sealed under; NULL where nothing was ever sealed.';

COMMENT ON COLUMN whence.threads.used_at IS 'When it was written to last.';

CREATE TABLE whence.user_keys (
    workspace_id text NOT NULL,
    key_id text NOT NULL,
    user_id text NOT NULL,
    key_hash bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT user_keys_hash_length CHECK ((octet_length(key_hash) = 32))
);

ALTER TABLE ONLY whence.user_keys FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.user_keys OWNER TO whence_owner;

COMMENT ON COLUMN whence.user_keys.expires_at IS 'The key is valid before this time; revoking sets it to now.';

CREATE TABLE whence.users (
    workspace_id text NOT NULL,
    user_id text NOT NULL,
    role text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT users_id_form CHECK (((user_id <> ''::text) AND (length(user_id) <= 256))),
    CONSTRAINT users_role_known CHECK ((role = ANY (ARRAY['admin'::text, 'member'::text])))
);

ALTER TABLE ONLY whence.users FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.users OWNER TO whence_owner;

CREATE TABLE whence.workflow_selections (
    workspace_id text NOT NULL,
    selection_id uuid NOT NULL,
    "position" bigint NOT NULL,
    workflow_id uuid NOT NULL,
    user_id text,
    selected_at timestamp with time zone NOT NULL,
    score double precision,
    scored_at timestamp with time zone,
    outcome_event_id uuid,
    CONSTRAINT workflow_selections_score_range CHECK (((score >= (0)::double precision) AND (score <= (1)::double precision))),
    CONSTRAINT workflow_selections_scored_whole CHECK ((num_nulls(score, scored_at, outcome_event_id) = ANY (ARRAY[0, 3])))
);

ALTER TABLE ONLY whence.workflow_selections FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.workflow_selections OWNER TO whence_owner;

COMMENT ON COLUMN whence.workflow_selections.selection_id IS 'The id of the event that says what was selected.';

COMMENT ON COLUMN whence.workflow_selections.user_id IS 'Who asked; NULL for an administrator.';

CREATE TABLE whence.workflows (
    workspace_id text NOT NULL,
    workflow_id uuid NOT NULL,
    "position" bigint NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    added_by text,
    agent text NOT NULL,
    task_type text NOT NULL,
    task_key bytea GENERATED ALWAYS AS (whence.workflow_key(agent, task_type)) STORED NOT NULL,
    name text NOT NULL,
    spec text NOT NULL,
    alpha double precision DEFAULT 1 NOT NULL,
    beta double precision DEFAULT 1 NOT NULL,
    selections bigint DEFAULT 0 NOT NULL,
    outcomes bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone NOT NULL,
    retired_at timestamp with time zone,
    CONSTRAINT workflows_alpha_range CHECK ((alpha >= (1)::double precision)),
    CONSTRAINT workflows_beta_range CHECK ((beta >= (1)::double precision))
);

ALTER TABLE ONLY whence.workflows FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.workflows OWNER TO whence_owner;

COMMENT ON COLUMN whence.workflows.workflow_id IS 'The id of the event that added it.';

COMMENT ON COLUMN whence.workflows.user_id IS 'The user whose it is; NULL where it is for everybody in the workspace.';

COMMENT ON COLUMN whence.workflows.spec IS 'A JSON object as it was sent. Text, so that one parser alone says what JSON is, and numbers keep their digits.';

COMMENT ON COLUMN whence.workflows.alpha IS 'The prior, 1, and the sum of the scores.';

COMMENT ON COLUMN whence.workflows.beta IS 'The prior, 1, and the sum of what the scores lacked of 1.';

CREATE TABLE whence.working_memory (
    workspace_id text NOT NULL,
    user_id text,
    owner text GENERATED ALWAYS AS (COALESCE(user_id, ''::text)) STORED NOT NULL,
    agent text NOT NULL,
    instance text NOT NULL,
    instance_key bytea GENERATED ALWAYS AS (whence.working_instance_key(agent, instance)) STORED NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    bytes integer GENERATED ALWAYS AS ((octet_length(key) + octet_length(value))) STORED NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT working_memory_agent_length CHECK (((length(agent) >= 1) AND (length(agent) <= 256))),
    CONSTRAINT working_memory_expires_later CHECK ((expires_at > updated_at)),
    CONSTRAINT working_memory_instance_length CHECK (((length(instance) >= 1) AND (length(instance) <= 256))),
    CONSTRAINT working_memory_key_length CHECK (((length(key) >= 1) AND (length(key) <= 256))),
    CONSTRAINT working_memory_within_budget CHECK ((bytes <= 131072))
);

ALTER TABLE ONLY whence.working_memory FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.working_memory OWNER TO whence_owner;

COMMENT ON COLUMN whence.working_memory.owner IS 'The user, or the empty text, which no user is called: for keys.';

COMMENT ON COLUMN whence.working_memory.value IS 'JSON as it was sent. Text, so that one parser alone says what JSON is, and numbers keep their digits.';

COMMENT ON COLUMN whence.working_memory.bytes IS 'What the entry counts for in the budget of its instance.';

COMMENT ON COLUMN whence.working_memory.expires_at IS 'From this time on nobody sees the entry; a worker removes it later.';

CREATE TABLE whence.workspace_heads (
    workspace_id text NOT NULL,
    last_position bigint DEFAULT 0 NOT NULL,
    CONSTRAINT workspace_heads_not_negative CHECK ((last_position >= 0))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

ALTER TABLE ONLY whence.workspace_heads FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.workspace_heads OWNER TO whence_owner;

CREATE TABLE whence.workspaces (
    workspace_id text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT workspaces_id_form CHECK ((workspace_id ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$'::text))
);

ALTER TABLE ONLY whence.workspaces FORCE ROW LEVEL SECURITY;

ALTER TABLE whence.workspaces OWNER TO whence_owner;

ALTER TABLE ONLY whence.action_cites
    ADD CONSTRAINT action_cites_pkey PRIMARY KEY (workspace_id, action_id, cited);

ALTER TABLE ONLY whence.actions
    ADD CONSTRAINT actions_pkey PRIMARY KEY (workspace_id, action_id);

ALTER TABLE ONLY whence.canon_rules
    ADD CONSTRAINT canon_rules_pkey PRIMARY KEY (workspace_id, world_id, rule_id);

ALTER TABLE ONLY whence.conversation_messages
    ADD CONSTRAINT conversation_messages_pkey PRIMARY KEY (workspace_id, conversation_id, place);

ALTER TABLE ONLY whence.conversations
    ADD CONSTRAINT conversations_pkey PRIMARY KEY (workspace_id, conversation_id);

ALTER TABLE ONLY whence.edge_types
    ADD CONSTRAINT edge_types_name UNIQUE (name);

ALTER TABLE ONLY whence.edge_types
    ADD CONSTRAINT edge_types_pkey PRIMARY KEY (edge_type);

ALTER TABLE ONLY whence.erasures
    ADD CONSTRAINT erasures_pkey PRIMARY KEY (workspace_id, erasure_id);

ALTER TABLE ONLY whence.erasures_unsettled
    ADD CONSTRAINT erasures_unsettled_pkey PRIMARY KEY (workspace_id, erasure_id);

ALTER TABLE ONLY whence.events
    ADD CONSTRAINT events_event_id_once UNIQUE (workspace_id, event_id);

ALTER TABLE ONLY whence.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (workspace_id, global_position);

ALTER TABLE ONLY whence.graph_aliases
    ADD CONSTRAINT graph_aliases_pkey PRIMARY KEY (workspace_id, build, entity_type, name_key, owner, subject_id);

ALTER TABLE ONLY whence.graph_builds
    ADD CONSTRAINT graph_builds_pkey PRIMARY KEY (workspace_id, build);

ALTER TABLE ONLY whence.graph_edges
    ADD CONSTRAINT graph_edges_pkey PRIMARY KEY (workspace_id, build, source, edge_type, target);

ALTER TABLE ONLY whence.graph_entities
    ADD CONSTRAINT graph_entities_once UNIQUE (workspace_id, build, entity_type, name_key, owner, subject_id);

ALTER TABLE ONLY whence.graph_entities
    ADD CONSTRAINT graph_entities_pkey PRIMARY KEY (workspace_id, build, node);

ALTER TABLE ONLY whence.graph_set_aside
    ADD CONSTRAINT graph_set_aside_pkey PRIMARY KEY (workspace_id, build, "position");

ALTER TABLE ONLY whence.graph_timeline
    ADD CONSTRAINT graph_timeline_pkey PRIMARY KEY (workspace_id, build, session_id, occurred_at, "position");

ALTER TABLE ONLY whence.graph_vectors
    ADD CONSTRAINT graph_vectors_pkey PRIMARY KEY (workspace_id, build, node);

ALTER TABLE ONLY whence.graph_waiting
    ADD CONSTRAINT graph_waiting_pkey PRIMARY KEY (workspace_id, build, event_id, source, edge_type);

ALTER TABLE ONLY whence.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_row);

ALTER TABLE ONLY whence.items
    ADD CONSTRAINT items_memory UNIQUE (workspace_id, memory_id);

ALTER TABLE ONLY whence.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (workspace_id, owner, agent, conflict_key);

ALTER TABLE ONLY whence.library_migrations
    ADD CONSTRAINT library_migrations_pkey PRIMARY KEY (library, name);

ALTER TABLE ONLY whence.memories
    ADD CONSTRAINT memories_pkey PRIMARY KEY (workspace_id, memory_id);

ALTER TABLE ONLY whence.memory_counts
    ADD CONSTRAINT memory_counts_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY whence.memory_index
    ADD CONSTRAINT memory_index_pkey PRIMARY KEY (workspace_id, memory_id);

ALTER TABLE ONLY whence.memory_sources
    ADD CONSTRAINT memory_sources_pkey PRIMARY KEY (workspace_id, memory_id, role, source);

ALTER TABLE ONLY whence.memory_tellings
    ADD CONSTRAINT memory_tellings_pkey PRIMARY KEY (workspace_id, event_id);

ALTER TABLE ONLY whence.memory_vectors
    ADD CONSTRAINT memory_vectors_pkey PRIMARY KEY (workspace_id, memory_id);

ALTER TABLE ONLY whence.payloads
    ADD CONSTRAINT payloads_pkey PRIMARY KEY (workspace_id, global_position);

ALTER TABLE ONLY whence.recall_hits
    ADD CONSTRAINT recall_hits_pkey PRIMARY KEY (workspace_id, memory_id, recall_id);

ALTER TABLE ONLY whence.recalls
    ADD CONSTRAINT recalls_pkey PRIMARY KEY (workspace_id, recall_id);

ALTER TABLE ONLY whence.resource_chunks
    ADD CONSTRAINT resource_chunks_pkey PRIMARY KEY (workspace_id, memory_id);

ALTER TABLE ONLY whence.resource_uploads
    ADD CONSTRAINT resource_uploads_pkey PRIMARY KEY (workspace_id, resource_id, part);

ALTER TABLE ONLY whence.resources
    ADD CONSTRAINT resources_pkey PRIMARY KEY (workspace_id, resource_id);

ALTER TABLE ONLY whence.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (workspace_id, run_id);

ALTER TABLE ONLY whence.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY whence.seal_tiles
    ADD CONSTRAINT seal_tiles_pkey PRIMARY KEY (workspace_id, level, tile);

ALTER TABLE ONLY whence.seals
    ADD CONSTRAINT seals_pkey PRIMARY KEY (workspace_id, size);

ALTER TABLE ONLY whence.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (workspace_id, owner, agent, session_id, number);

ALTER TABLE ONLY whence.subject_keys
    ADD CONSTRAINT subject_keys_id UNIQUE (workspace_id, subject_id, key_id);

ALTER TABLE ONLY whence.subject_keys
    ADD CONSTRAINT subject_keys_pkey PRIMARY KEY (workspace_id, subject_id);

ALTER TABLE ONLY whence.thread_keys
    ADD CONSTRAINT thread_keys_pkey PRIMARY KEY (workspace_id, user_id, key_id);

ALTER TABLE ONLY whence.threads
    ADD CONSTRAINT threads_pkey PRIMARY KEY (workspace_id, user_id, thread_id);

ALTER TABLE ONLY whence.user_keys
    ADD CONSTRAINT user_keys_pkey PRIMARY KEY (workspace_id, key_id);

ALTER TABLE ONLY whence.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (workspace_id, user_id);

ALTER TABLE ONLY whence.workflow_selections
    ADD CONSTRAINT workflow_selections_pkey PRIMARY KEY (workspace_id, selection_id);

ALTER TABLE ONLY whence.workflows
    ADD CONSTRAINT workflows_pkey PRIMARY KEY (workspace_id, workflow_id);

ALTER TABLE ONLY whence.working_memory
    ADD CONSTRAINT working_memory_pkey PRIMARY KEY (workspace_id, owner, instance_key, key);

ALTER TABLE ONLY whence.workspace_heads
    ADD CONSTRAINT workspace_heads_pkey PRIMARY KEY (workspace_id);

ALTER TABLE ONLY whence.workspaces
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY (workspace_id);

CREATE INDEX action_cites_by_cited ON whence.action_cites USING btree (cited, workspace_id);

CREATE INDEX actions_in_order ON whence.actions USING btree ("position", workspace_id);

CREATE INDEX canon_rules_alike ON whence.canon_rules USING gin (whence.canon_world(workspace_id, world_id), whence.as_read(body) public.gin_trgm_ops);

CREATE UNIQUE INDEX conversation_messages_once ON whence.conversation_messages USING btree (message_id, workspace_id) WHERE (NOT is_copy);

CREATE INDEX conversations_forks ON whence.conversations USING btree (forked_from, workspace_id) WHERE (forked_from IS NOT NULL);

CREATE INDEX conversations_idle ON whence.conversations USING btree (workspace_id, active_at) WHERE ((deleted_at IS NULL) AND (user_id IS NOT NULL) AND (active_at > '-infinity'::timestamp with time zone));

CREATE INDEX conversations_of_nobody ON whence.conversations USING btree (workspace_id, "position") WHERE (user_id IS NULL);

CREATE INDEX conversations_of_user ON whence.conversations USING btree (user_id, workspace_id, "position") WHERE (deleted_at IS NULL);

CREATE UNIQUE INDEX conversations_one_fork ON whence.conversations USING btree (forked_from, user_id, workspace_id) WHERE ((forked_from IS NOT NULL) AND (deleted_at IS NULL));

CREATE UNIQUE INDEX conversations_one_key ON whence.conversations USING btree (broadcast_key, workspace_id) WHERE (broadcast_key IS NOT NULL);

CREATE INDEX conversations_tombstoned ON whence.conversations USING btree (workspace_id, deleted_at) WHERE (deleted_at > '-infinity'::timestamp with time zone);

CREATE INDEX erasures_of_subject ON whence.erasures USING btree (subject_hash, workspace_id, "position");

CREATE INDEX events_about ON whence.events USING btree (workspace_id, parent_event_id) WHERE (event_type = ANY (ARRAY['memory.forgotten'::text, 'memory.feedback'::text, 'resource.processed'::text, 'resource.deleted'::text, 'memory.run_ended'::text]));

CREATE INDEX events_by_session ON whence.events USING btree (workspace_id, session_id, global_position);

CREATE INDEX events_by_subject ON whence.events USING btree (workspace_id, subject_id, global_position) WHERE (subject_id IS NOT NULL);

CREATE INDEX events_by_trace ON whence.events USING btree (workspace_id, trace_id, global_position);

CREATE INDEX events_by_type ON whence.events USING btree (workspace_id, event_type, global_position);

CREATE INDEX events_by_user ON whence.events USING btree (workspace_id, user_id, global_position);

CREATE INDEX graph_aliases_by_target ON whence.graph_aliases USING btree (workspace_id, build, entity_type, target_key, owner, subject_id);

CREATE UNIQUE INDEX graph_builds_one_live ON whence.graph_builds USING btree (workspace_id) WHERE live;

CREATE INDEX graph_edges_back ON whence.graph_edges USING btree (workspace_id, build, target, edge_type, source);

CREATE INDEX graph_entities_by_owner ON whence.graph_entities USING btree (workspace_id, build, owner, entity_type, subject_id, ((node | (0)::bigint)));

CREATE INDEX graph_vectors_by_owner ON whence.graph_vectors USING btree (workspace_id, build, owner, ((node | (0)::bigint)));

CREATE INDEX graph_vectors_by_subject ON whence.graph_vectors USING btree (workspace_id, build, owner, subject_id, ((node | (0)::bigint)));

CREATE INDEX items_by_path ON whence.items USING btree (owner, workspace_id, agent, path);

CREATE INDEX memories_archived ON whence.memories USING btree (archived_at, workspace_id) WHERE ((archived_at IS NOT NULL) AND (deleted_at IS NULL));

CREATE INDEX memories_by_age ON whence.memories USING btree (profile, kind, workspace_id, recorded_at) WHERE ((tier = 'persistent'::text) AND (deleted_at IS NULL) AND (recorded_at > '-infinity'::timestamp with time zone));

CREATE INDEX memories_by_key ON whence.memories USING btree (conflict_key, workspace_id, owner, agent, valid_at) WHERE (conflict_key IS NOT NULL);

CREATE INDEX memories_by_owner_and_key ON whence.memories USING btree (owner, workspace_id, conflict_key) WHERE (conflict_key IS NOT NULL);

CREATE INDEX memories_by_run ON whence.memories USING btree (run_id, workspace_id, "position") WHERE (run_id IS NOT NULL);

CREATE INDEX memories_by_session ON whence.memories USING btree (session_id, workspace_id, "position") WHERE (session_id IS NOT NULL);

CREATE INDEX memories_ended ON whence.memories USING btree (GREATEST(invalid_at, invalidated_at, recorded_at), workspace_id) WHERE ((invalid_at IS NOT NULL) AND (tier = 'persistent'::text) AND (deleted_at IS NULL));

CREATE INDEX memories_facts_without_key ON whence.memories USING btree (owner, workspace_id, "position") WHERE ((fact_subject IS NOT NULL) AND (conflict_key IS NULL));

CREATE INDEX memories_in_order ON whence.memories USING btree (owner, workspace_id, "position");

CREATE INDEX memories_of_runs ON whence.memories USING btree (agent, workspace_id, "position") WHERE ((run_id IS NOT NULL) AND (kind = 'episodic'::text));

CREATE UNIQUE INDEX memories_one_current ON whence.memories USING btree (workspace_id, owner, agent, tier, anchor, kind, conflict_key) WHERE ((conflict_key IS NOT NULL) AND (invalid_at IS NULL) AND (superseded_at IS NULL) AND (deleted_at IS NULL) AND (archived_at IS NULL));

CREATE UNIQUE INDEX memories_same_text ON whence.memories USING btree (body_hash, workspace_id, owner, agent, tier, anchor, kind) WHERE ((kind <> 'episodic'::text) AND (conflict_key IS NULL) AND (invalid_at IS NULL) AND (superseded_at IS NULL) AND (deleted_at IS NULL) AND (archived_at IS NULL));

CREATE INDEX memories_told_before ON whence.memories USING btree (body_hash, workspace_id) WHERE ((kind = 'semantic'::text) AND (tier <> 'persistent'::text) AND (conflict_key IS NULL));

CREATE INDEX memories_tombstoned ON whence.memories USING btree (deleted_at, workspace_id) WHERE ((deleted_at IS NOT NULL) AND (stripped_at IS NULL));

CREATE INDEX memory_index_by_terms ON whence.memory_index USING gin (terms) WITH (fastupdate=off);

CREATE INDEX memory_index_in_order ON whence.memory_index USING btree (owner, workspace_id, "position");

CREATE INDEX memory_index_like_1024 ON whence.memory_index USING hnsw (((embedding)::public.halfvec(1024)) public.halfvec_ip_ops) WHERE (dimension = 1024);

CREATE INDEX memory_index_like_1536 ON whence.memory_index USING hnsw (((embedding)::public.halfvec(1536)) public.halfvec_ip_ops) WHERE (dimension = 1536);

CREATE INDEX memory_index_like_256 ON whence.memory_index USING hnsw (((embedding)::public.halfvec(256)) public.halfvec_ip_ops) WHERE (dimension = 256);

CREATE INDEX memory_index_like_384 ON whence.memory_index USING hnsw (((embedding)::public.halfvec(384)) public.halfvec_ip_ops) WHERE (dimension = 384);

CREATE INDEX memory_index_like_512 ON whence.memory_index USING hnsw (((embedding)::public.halfvec(512)) public.halfvec_ip_ops) WHERE (dimension = 512);

CREATE INDEX memory_index_like_768 ON whence.memory_index USING hnsw (((embedding)::public.halfvec(768)) public.halfvec_ip_ops) WHERE (dimension = 768);

CREATE INDEX memory_sources_by_event ON whence.memory_sources USING btree (event_id, workspace_id);

CREATE INDEX memory_sources_by_origin ON whence.memory_sources USING btree (memory_id, origin, workspace_id) WHERE (origin IS NOT NULL);

CREATE INDEX memory_sources_by_source ON whence.memory_sources USING btree (source, workspace_id) WHERE (role <> 'told'::text);

CREATE INDEX memory_sources_derived ON whence.memory_sources USING btree (workspace_id, memory_id) WHERE ((role = 'memory'::text) AND (told_at > '-infinity'::timestamp with time zone));

CREATE INDEX memory_tellings_by_memory ON whence.memory_tellings USING btree (memory_id, workspace_id);

CREATE INDEX recall_hits_by_recall ON whence.recall_hits USING btree (recall_id, workspace_id);

CREATE INDEX recalls_by_user ON whence.recalls USING btree (user_id, workspace_id, agent, "position");

CREATE INDEX resource_chunks_of_resource ON whence.resource_chunks USING btree (workspace_id, resource_id);

CREATE INDEX resource_uploads_waiting ON whence.resource_uploads USING btree (taken_until, workspace_id) WHERE (taken_until IS NOT NULL);

CREATE INDEX resources_in_order ON whence.resources USING btree (workspace_id, agent, "position") WHERE (deleted_at IS NULL);

CREATE INDEX resources_of_user ON whence.resources USING btree (workspace_id, user_id, agent, "position") WHERE (deleted_at IS NULL);

CREATE UNIQUE INDEX resources_once ON whence.resources USING btree (workspace_id, user_id, agent, sha256) WHERE ((deleted_at IS NULL) AND (status <> 'failed'::text));

CREATE INDEX runs_of_agent ON whence.runs USING btree (agent, workspace_id, owner, "position");

CREATE INDEX runs_of_instance ON whence.runs USING btree (instance, agent, workspace_id, owner, turn);

CREATE INDEX sessions_idle ON whence.sessions USING btree (idle_until, workspace_id) WHERE ((closed_at IS NULL) AND (ended_at IS NULL));

CREATE UNIQUE INDEX sessions_one_open ON whence.sessions USING btree (session_id, workspace_id, owner, agent) WHERE (ended_at IS NULL);

CREATE INDEX sessions_over ON whence.sessions USING btree (ended_at, workspace_id) WHERE ((closed_at IS NULL) AND (ended_at IS NOT NULL));

CREATE INDEX threads_of_conversation ON whence.threads USING btree (workspace_id, conversation_id) WHERE (conversation_id IS NOT NULL);

CREATE INDEX user_keys_by_user ON whence.user_keys USING btree (workspace_id, user_id);

CREATE INDEX workflows_in_order ON whence.workflows USING btree (workspace_id, "position");

CREATE UNIQUE INDEX workflows_one_name ON whence.workflows USING btree (workspace_id, owner, task_key, name) WHERE (retired_at IS NULL);

CREATE INDEX working_memory_by_expiry ON whence.working_memory USING btree (workspace_id, expires_at);

CREATE TRIGGER memories_canon BEFORE INSERT OR UPDATE OF body, fact_object, kind, world_id_context, workspace_id ON whence.memories FOR EACH ROW WHEN (((new.kind = 'semantic'::text) AND (new.world_id_context IS NOT NULL) AND (GREATEST(length(new.body), length(new.fact_object)) >= 100) AND ((new.workspace_id = current_setting('app.workspace_id'::text, true)) OR (NOT row_security_active('whence.memories'::text))))) EXECUTE FUNCTION whence.guard_canon();

CREATE TRIGGER memories_item AFTER UPDATE OF deleted_at, superseded_at, archived_at, stripped_at ON whence.memories FOR EACH ROW WHEN (((old.kind = 'semantic'::text) AND (old.conflict_key IS NOT NULL) AND (COALESCE(new.deleted_at, new.superseded_at, new.archived_at, new.stripped_at) IS NOT NULL))) EXECUTE FUNCTION whence.drop_item();

CREATE TRIGGER memories_item_removed AFTER DELETE ON whence.memories FOR EACH ROW WHEN (((old.kind = 'semantic'::text) AND (old.conflict_key IS NOT NULL))) EXECUTE FUNCTION whence.drop_item();

CREATE TRIGGER memories_location AFTER UPDATE OF stripped_at ON whence.memories FOR EACH ROW WHEN ((((old.role)::text = 'document'::text) AND (new.stripped_at IS NOT NULL))) EXECUTE FUNCTION whence.drop_location();

CREATE TRIGGER memories_location_removed AFTER DELETE ON whence.memories FOR EACH ROW WHEN (((old.role)::text = 'document'::text)) EXECUTE FUNCTION whence.drop_location();

CREATE TRIGGER memories_removed AFTER DELETE ON whence.memories FOR EACH ROW EXECUTE FUNCTION whence.leave_memory_index();

CREATE TRIGGER memories_stripped AFTER UPDATE OF stripped_at ON whence.memories FOR EACH ROW WHEN ((new.stripped_at IS NOT NULL)) EXECUTE FUNCTION whence.leave_memory_index();

CREATE TRIGGER memory_vectors_replaced AFTER UPDATE OF embedding ON whence.memory_vectors FOR EACH ROW EXECUTE FUNCTION whence.follow_vector();

CREATE TRIGGER threads_checkpoints AFTER DELETE ON whence.threads FOR EACH ROW EXECUTE FUNCTION whence.drop_checkpoints();

ALTER TABLE ONLY whence.conversation_messages
    ADD CONSTRAINT conversation_messages_of FOREIGN KEY (workspace_id, conversation_id) REFERENCES whence.conversations(workspace_id, conversation_id);

ALTER TABLE ONLY whence.conversations
    ADD CONSTRAINT conversations_fork_of FOREIGN KEY (workspace_id, forked_from) REFERENCES whence.conversations(workspace_id, conversation_id);

ALTER TABLE ONLY whence.graph_builds
    ADD CONSTRAINT graph_builds_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.seal_tiles
    ADD CONSTRAINT seal_tiles_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.seals
    ADD CONSTRAINT seals_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.subject_keys
    ADD CONSTRAINT subject_keys_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.thread_keys
    ADD CONSTRAINT thread_keys_subject_key FOREIGN KEY (workspace_id, user_id, subject_key_id) REFERENCES whence.subject_keys(workspace_id, subject_id, key_id);

ALTER TABLE ONLY whence.threads
    ADD CONSTRAINT threads_key_exists FOREIGN KEY (workspace_id, user_id, key_id) REFERENCES whence.thread_keys(workspace_id, user_id, key_id);

ALTER TABLE ONLY whence.user_keys
    ADD CONSTRAINT user_keys_user FOREIGN KEY (workspace_id, user_id) REFERENCES whence.users(workspace_id, user_id);

ALTER TABLE ONLY whence.users
    ADD CONSTRAINT users_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE ONLY whence.workspace_heads
    ADD CONSTRAINT workspace_heads_workspace FOREIGN KEY (workspace_id) REFERENCES whence.workspaces(workspace_id);

ALTER TABLE whence.action_cites ENABLE ROW LEVEL SECURITY;

CREATE POLICY action_cites_of_user ON whence.action_cites FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY action_cites_of_workspace ON whence.action_cites TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.actions ENABLE ROW LEVEL SECURITY;

CREATE POLICY actions_of_user ON whence.actions FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY actions_of_workspace ON whence.actions TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.canon_rules ENABLE ROW LEVEL SECURITY;

CREATE POLICY canon_rules_of_guard ON whence.canon_rules FOR SELECT TO whence_owner USING (true);

CREATE POLICY canon_rules_of_member ON whence.canon_rules FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY canon_rules_of_workspace ON whence.canon_rules TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.conversation_messages ENABLE ROW LEVEL SECURITY;

CREATE POLICY conversation_messages_of_user ON whence.conversation_messages FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY conversation_messages_of_workspace ON whence.conversation_messages TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.conversations ENABLE ROW LEVEL SECURITY;

CREATE POLICY conversations_of_user ON whence.conversations FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY conversations_of_workspace ON whence.conversations TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.erasures ENABLE ROW LEVEL SECURITY;

CREATE POLICY erasures_of_workspace ON whence.erasures TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.erasures_unsettled ENABLE ROW LEVEL SECURITY;

CREATE POLICY erasures_unsettled_of_worker ON whence.erasures_unsettled FOR SELECT TO whence_worker USING (true);

CREATE POLICY erasures_unsettled_of_workspace ON whence.erasures_unsettled TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.events ENABLE ROW LEVEL SECURITY;

CREATE POLICY events_of_user ON whence.events TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY events_of_workspace ON whence.events TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_aliases ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_aliases_of_user ON whence.graph_aliases TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY graph_aliases_of_workspace ON whence.graph_aliases TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_builds ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_builds_of_member ON whence.graph_builds FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY graph_builds_of_worker ON whence.graph_builds FOR SELECT TO whence_worker USING (true);

CREATE POLICY graph_builds_of_workspace ON whence.graph_builds TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_edges ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_edges_of_user ON whence.graph_edges TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY graph_edges_of_workspace ON whence.graph_edges TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_entities ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_entities_of_user ON whence.graph_entities TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY graph_entities_of_workspace ON whence.graph_entities TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_set_aside ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_set_aside_of_workspace ON whence.graph_set_aside TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_timeline ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_timeline_of_user ON whence.graph_timeline TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY graph_timeline_of_workspace ON whence.graph_timeline TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_vectors ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_vectors_of_user ON whence.graph_vectors TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY graph_vectors_of_workspace ON whence.graph_vectors TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.graph_waiting ENABLE ROW LEVEL SECURITY;

CREATE POLICY graph_waiting_of_user ON whence.graph_waiting TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY graph_waiting_of_workspace ON whence.graph_waiting TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.items ENABLE ROW LEVEL SECURITY;

CREATE POLICY items_of_user ON whence.items FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY items_of_workspace ON whence.items TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.memories ENABLE ROW LEVEL SECURITY;

CREATE POLICY memories_of_user ON whence.memories FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY memories_of_workspace ON whence.memories TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.memory_counts ENABLE ROW LEVEL SECURITY;

CREATE POLICY memory_counts_of_member ON whence.memory_counts FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY memory_counts_of_workspace ON whence.memory_counts TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.memory_index ENABLE ROW LEVEL SECURITY;

CREATE POLICY memory_index_of_searcher ON whence.memory_index FOR SELECT TO whence_searcher USING (true);

CREATE POLICY memory_index_of_user ON whence.memory_index FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY memory_index_of_worker ON whence.memory_index FOR SELECT TO whence_worker USING (true);

CREATE POLICY memory_index_of_workspace ON whence.memory_index TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.memory_sources ENABLE ROW LEVEL SECURITY;

CREATE POLICY memory_sources_of_user ON whence.memory_sources FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY memory_sources_of_workspace ON whence.memory_sources TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.memory_tellings ENABLE ROW LEVEL SECURITY;

CREATE POLICY memory_tellings_of_user ON whence.memory_tellings FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY memory_tellings_of_workspace ON whence.memory_tellings TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.memory_vectors ENABLE ROW LEVEL SECURITY;

CREATE POLICY memory_vectors_of_user ON whence.memory_vectors FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY memory_vectors_of_workspace ON whence.memory_vectors TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.payloads ENABLE ROW LEVEL SECURITY;

CREATE POLICY payloads_of_user ON whence.payloads TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY payloads_of_workspace ON whence.payloads TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.recall_hits ENABLE ROW LEVEL SECURITY;

CREATE POLICY recall_hits_of_user ON whence.recall_hits FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY recall_hits_of_workspace ON whence.recall_hits TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.recalls ENABLE ROW LEVEL SECURITY;

CREATE POLICY recalls_of_user ON whence.recalls FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY recalls_of_workspace ON whence.recalls TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.resource_chunks ENABLE ROW LEVEL SECURITY;

CREATE POLICY resource_chunks_of_user ON whence.resource_chunks FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY resource_chunks_of_workspace ON whence.resource_chunks TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.resource_uploads ENABLE ROW LEVEL SECURITY;

CREATE POLICY resource_uploads_of_user ON whence.resource_uploads FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY resource_uploads_of_worker ON whence.resource_uploads FOR SELECT TO whence_worker USING (true);

CREATE POLICY resource_uploads_of_workspace ON whence.resource_uploads TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.resources ENABLE ROW LEVEL SECURITY;

CREATE POLICY resources_of_user ON whence.resources FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY resources_of_workspace ON whence.resources TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.runs ENABLE ROW LEVEL SECURITY;

CREATE POLICY runs_of_user ON whence.runs FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY runs_of_workspace ON whence.runs TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.seal_tiles ENABLE ROW LEVEL SECURITY;

CREATE POLICY seal_tiles_of_member ON whence.seal_tiles FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY seal_tiles_of_workspace ON whence.seal_tiles TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.seals ENABLE ROW LEVEL SECURITY;

CREATE POLICY seals_of_member ON whence.seals FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY seals_of_worker ON whence.seals FOR SELECT TO whence_worker USING (true);

CREATE POLICY seals_of_workspace ON whence.seals TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.sessions ENABLE ROW LEVEL SECURITY;

CREATE POLICY sessions_of_user ON whence.sessions FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY sessions_of_worker ON whence.sessions FOR SELECT TO whence_worker USING (true);

CREATE POLICY sessions_of_workspace ON whence.sessions TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.subject_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY subject_keys_of_member ON whence.subject_keys FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY subject_keys_of_workspace ON whence.subject_keys TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.thread_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY thread_keys_of_user ON whence.thread_keys TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY thread_keys_of_workspace ON whence.thread_keys TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.threads ENABLE ROW LEVEL SECURITY;

CREATE POLICY threads_of_user ON whence.threads TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY threads_of_workspace ON whence.threads TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.user_keys ENABLE ROW LEVEL SECURITY;

CREATE POLICY user_keys_of_user ON whence.user_keys TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY user_keys_of_workspace ON whence.user_keys TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.users ENABLE ROW LEVEL SECURITY;

CREATE POLICY users_of_user ON whence.users TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY users_of_workspace ON whence.users TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.workflow_selections ENABLE ROW LEVEL SECURITY;

CREATE POLICY workflow_selections_of_user ON whence.workflow_selections FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY workflow_selections_of_workspace ON whence.workflow_selections TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.workflows ENABLE ROW LEVEL SECURITY;

CREATE POLICY workflows_of_user ON whence.workflows FOR SELECT TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND ((user_id = current_setting('app.user_id'::text, true)) OR ((user_id IS NULL) AND (current_setting('app.user_id'::text, true) <> ''::text)))));

CREATE POLICY workflows_of_workspace ON whence.workflows TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.working_memory ENABLE ROW LEVEL SECURITY;

CREATE POLICY working_memory_of_user ON whence.working_memory TO whence_app USING (((workspace_id = current_setting('app.workspace_id'::text, true)) AND (user_id = current_setting('app.user_id'::text, true))));

CREATE POLICY working_memory_of_worker ON whence.working_memory FOR SELECT TO whence_worker USING (true);

CREATE POLICY working_memory_of_workspace ON whence.working_memory TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.workspace_heads ENABLE ROW LEVEL SECURITY;

CREATE POLICY workspace_heads_of_member ON whence.workspace_heads FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY workspace_heads_of_worker ON whence.workspace_heads FOR SELECT TO whence_worker USING (true);

CREATE POLICY workspace_heads_of_workspace ON whence.workspace_heads TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

ALTER TABLE whence.workspaces ENABLE ROW LEVEL SECURITY;

CREATE POLICY workspaces_of_member ON whence.workspaces FOR SELECT TO whence_app USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

CREATE POLICY workspaces_of_worker ON whence.workspaces FOR SELECT TO whence_worker USING (true);

CREATE POLICY workspaces_of_workspace ON whence.workspaces TO whence_workspace USING ((workspace_id = current_setting('app.workspace_id'::text, true)));

GRANT USAGE ON SCHEMA whence TO whence_app;
GRANT USAGE ON SCHEMA whence TO whence_workspace;
GRANT USAGE ON SCHEMA whence TO whence_worker;
GRANT USAGE ON SCHEMA whence TO whence_eraser;
GRANT USAGE ON SCHEMA whence TO whence_searcher;

REVOKE ALL ON FUNCTION whence.canon_repeated(worlds text[], texts text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION whence.canon_repeated(worlds text[], texts text[]) TO whence_workspace;

REVOKE ALL ON FUNCTION whence.defer_job(job text) FROM PUBLIC;
GRANT ALL ON FUNCTION whence.defer_job(job text) TO whence_workspace;

REVOKE ALL ON FUNCTION whence.guard_told(in_world text, body text, fact_object text) FROM PUBLIC;
GRANT ALL ON FUNCTION whence.guard_told(in_world text, body text, fact_object text) TO whence_workspace;

REVOKE ALL ON FUNCTION whence.jobs_of_workspace(only_failed boolean, before bigint, up_to integer) FROM PUBLIC;
GRANT ALL ON FUNCTION whence.jobs_of_workspace(only_failed boolean, before bigint, up_to integer) TO whence_workspace;

REVOKE ALL ON FUNCTION whence.refuse_repeated(in_workspace text, in_world text, body text, fact_object text, beside text) FROM PUBLIC;

REVOKE ALL ON FUNCTION whence.repeated_rule(in_workspace text, in_world text, said text, OUT rule_id text, OUT alike real) FROM PUBLIC;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.action_cites TO whence_workspace;
GRANT SELECT ON TABLE whence.action_cites TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.actions TO whence_workspace;
GRANT SELECT ON TABLE whence.actions TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.canon_rules TO whence_workspace;
GRANT SELECT ON TABLE whence.canon_rules TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.conversation_messages TO whence_workspace;
GRANT SELECT ON TABLE whence.conversation_messages TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.conversations TO whence_workspace;
GRANT SELECT ON TABLE whence.conversations TO whence_app;

GRANT SELECT ON TABLE whence.edge_types TO whence_app;
GRANT SELECT ON TABLE whence.edge_types TO whence_workspace;

GRANT SELECT,INSERT,DELETE ON TABLE whence.erasures TO whence_workspace;
GRANT SELECT ON TABLE whence.erasures TO whence_app;

GRANT SELECT,INSERT,DELETE ON TABLE whence.erasures_unsettled TO whence_workspace;
GRANT SELECT ON TABLE whence.erasures_unsettled TO whence_app;

GRANT SELECT(workspace_id) ON TABLE whence.erasures_unsettled TO whence_worker;

GRANT SELECT(since) ON TABLE whence.erasures_unsettled TO whence_worker;

GRANT SELECT,INSERT ON TABLE whence.events TO whence_workspace;
GRANT SELECT ON TABLE whence.events TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_aliases TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_aliases TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_builds TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_builds TO whence_app;
GRANT SELECT ON TABLE whence.graph_builds TO whence_worker;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_edges TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_edges TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_entities TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_entities TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_set_aside TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_set_aside TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_timeline TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_timeline TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_vectors TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_vectors TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.graph_waiting TO whence_workspace;
GRANT SELECT ON TABLE whence.graph_waiting TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.installation TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.items TO whence_workspace;
GRANT SELECT ON TABLE whence.items TO whence_app;

GRANT SELECT ON TABLE whence.library_migrations TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.memories TO whence_workspace;
GRANT SELECT ON TABLE whence.memories TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.memory_sources TO whence_workspace;
GRANT SELECT ON TABLE whence.memory_sources TO whence_app;

GRANT SELECT ON TABLE whence.memory_all_sources TO whence_app;
GRANT SELECT ON TABLE whence.memory_all_sources TO whence_workspace;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.memory_counts TO whence_workspace;
GRANT SELECT ON TABLE whence.memory_counts TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.memory_index TO whence_workspace;
GRANT SELECT ON TABLE whence.memory_index TO whence_app;

GRANT SELECT(workspace_id) ON TABLE whence.memory_index TO whence_worker;
GRANT SELECT(workspace_id) ON TABLE whence.memory_index TO whence_searcher;

GRANT SELECT(memory_id) ON TABLE whence.memory_index TO whence_searcher;

GRANT SELECT(owner) ON TABLE whence.memory_index TO whence_searcher;

GRANT SELECT("position") ON TABLE whence.memory_index TO whence_searcher;

GRANT SELECT(terms) ON TABLE whence.memory_index TO whence_searcher;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.memory_tellings TO whence_workspace;
GRANT SELECT ON TABLE whence.memory_tellings TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.memory_vectors TO whence_workspace;
GRANT SELECT ON TABLE whence.memory_vectors TO whence_app;

GRANT SELECT,INSERT,DELETE ON TABLE whence.payloads TO whence_workspace;
GRANT SELECT ON TABLE whence.payloads TO whence_app;
GRANT DELETE ON TABLE whence.payloads TO whence_eraser;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.recall_hits TO whence_workspace;
GRANT SELECT ON TABLE whence.recall_hits TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.recalls TO whence_workspace;
GRANT SELECT ON TABLE whence.recalls TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.resource_chunks TO whence_workspace;
GRANT SELECT ON TABLE whence.resource_chunks TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.resource_uploads TO whence_workspace;
GRANT SELECT ON TABLE whence.resource_uploads TO whence_app;

GRANT SELECT(workspace_id) ON TABLE whence.resource_uploads TO whence_worker;

GRANT SELECT(taken_until) ON TABLE whence.resource_uploads TO whence_worker;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.resources TO whence_workspace;
GRANT SELECT ON TABLE whence.resources TO whence_app;

GRANT SELECT ON TABLE whence.retention_states TO whence_workspace;
GRANT SELECT ON TABLE whence.retention_states TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.runs TO whence_workspace;
GRANT SELECT ON TABLE whence.runs TO whence_app;

GRANT SELECT ON TABLE whence.schema_migrations TO whence_app;
GRANT SELECT ON TABLE whence.schema_migrations TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.seal_tiles TO whence_workspace;
GRANT SELECT ON TABLE whence.seal_tiles TO whence_app;

GRANT UPDATE(hashes) ON TABLE whence.seal_tiles TO whence_workspace;

GRANT SELECT ON TABLE whence.seals TO whence_worker;
GRANT SELECT,INSERT ON TABLE whence.seals TO whence_workspace;
GRANT SELECT ON TABLE whence.seals TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.sessions TO whence_workspace;
GRANT SELECT ON TABLE whence.sessions TO whence_app;

GRANT SELECT(workspace_id) ON TABLE whence.sessions TO whence_worker;

GRANT SELECT(idle_days) ON TABLE whence.sessions TO whence_worker;

GRANT SELECT(last_activity_at) ON TABLE whence.sessions TO whence_worker;

GRANT SELECT(ended_at) ON TABLE whence.sessions TO whence_worker;

GRANT SELECT(closed_at) ON TABLE whence.sessions TO whence_worker;

GRANT SELECT(idle_until) ON TABLE whence.sessions TO whence_worker;

GRANT SELECT,INSERT ON TABLE whence.subject_keys TO whence_workspace;
GRANT SELECT ON TABLE whence.subject_keys TO whence_app;
GRANT DELETE ON TABLE whence.subject_keys TO whence_eraser;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.thread_keys TO whence_workspace;
GRANT SELECT ON TABLE whence.thread_keys TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.threads TO whence_workspace;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.threads TO whence_app;

GRANT SELECT,INSERT ON TABLE whence.user_keys TO whence_workspace;
GRANT SELECT ON TABLE whence.user_keys TO whence_app;
GRANT DELETE ON TABLE whence.user_keys TO whence_eraser;

GRANT UPDATE(expires_at) ON TABLE whence.user_keys TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.users TO whence_workspace;
GRANT SELECT ON TABLE whence.users TO whence_app;
GRANT DELETE ON TABLE whence.users TO whence_eraser;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.workflow_selections TO whence_workspace;
GRANT SELECT ON TABLE whence.workflow_selections TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.workflows TO whence_workspace;
GRANT SELECT ON TABLE whence.workflows TO whence_app;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.working_memory TO whence_app;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE whence.working_memory TO whence_workspace;

GRANT SELECT(workspace_id) ON TABLE whence.working_memory TO whence_worker;

GRANT SELECT(expires_at) ON TABLE whence.working_memory TO whence_worker;

GRANT SELECT,INSERT ON TABLE whence.workspace_heads TO whence_workspace;
GRANT SELECT ON TABLE whence.workspace_heads TO whence_app;
GRANT SELECT ON TABLE whence.workspace_heads TO whence_worker;

GRANT UPDATE(last_position) ON TABLE whence.workspace_heads TO whence_workspace;

GRANT SELECT,INSERT ON TABLE whence.workspaces TO whence_workspace;
GRANT SELECT ON TABLE whence.workspaces TO whence_app;
GRANT SELECT ON TABLE whence.workspaces TO whence_worker;
