-- What is said of somebody is found by the first part of its key, which needs an order by bytes: under the collation of a
-- language, U+001F is no character at all. Two triggers name the column, and are made again.
DROP TRIGGER memories_item ON whence.memories;
DROP TRIGGER memories_item_removed ON whence.memories;
ALTER TABLE whence.memories ALTER COLUMN conflict_key TYPE text COLLATE "C";
CREATE TRIGGER memories_item AFTER UPDATE OF deleted_at, superseded_at, archived_at, stripped_at ON whence.memories
    FOR EACH ROW WHEN (OLD.kind = 'semantic' AND OLD.conflict_key IS NOT NULL AND coalesce(
        NEW.deleted_at, NEW.superseded_at, NEW.archived_at, NEW.stripped_at) IS NOT NULL)
    EXECUTE FUNCTION whence.drop_item();
CREATE TRIGGER memories_item_removed AFTER DELETE ON whence.memories
    FOR EACH ROW WHEN (OLD.kind = 'semantic' AND OLD.conflict_key IS NOT NULL) EXECUTE FUNCTION whence.drop_item();

CREATE INDEX memories_by_owner_and_key ON whence.memories (owner, workspace_id, conflict_key)
    WHERE conflict_key IS NOT NULL;
-- Facts that accumulate have no key. They are few, and read one after the other.
CREATE INDEX memories_facts_without_key ON whence.memories (owner, workspace_id, position)
    WHERE fact_subject IS NOT NULL AND conflict_key IS NULL;
-- What a run has taught, and its episodes.
CREATE INDEX memories_by_run ON whence.memories (run_id, workspace_id, position) WHERE run_id IS NOT NULL;

-- What a rebuild has left out is told by an event, which changes nothing.
CREATE FUNCTION whence.effect_leave_out(in_workspace text, at_position bigint, at timestamp with time zone, document jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT '{}'::jsonb; $$;

-- As before, and with what a run has taught, which is the same as where it was told without the run: in the order in which
-- both were told. Only episodes of runs are counted, one by one.
CREATE OR REPLACE FUNCTION whence.memory_remember_plain(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors halfvec[]) RETURNS bigint[]
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

-- As before, and an episode is told while its run goes on, and what is told once changes something. In a replay, whose
-- documents say when they were recorded, both were looked at already.
CREATE OR REPLACE FUNCTION whence.memory_apply(in_workspace text, base bigint, events bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors halfvec[], in_order boolean) RETURNS SETOF jsonb
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

-- As before, and the ends of a run that were not the first: each may say something of whoever it was for.
DROP INDEX whence.events_about;
CREATE INDEX events_about ON whence.events (workspace_id, parent_event_id)
    WHERE event_type IN ('memory.forgotten', 'memory.feedback', 'resource.processed', 'resource.deleted', 'memory.run_ended');
CREATE OR REPLACE FUNCTION whence.subject_events(in_workspace text, in_subject text, upto bigint) RETURNS TABLE(at_position bigint, event_id uuid)
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

-- As before, and without control characters, which are seen as little. What was read with them is read again.
CREATE OR REPLACE FUNCTION whence.as_read(said text) RETURNS text
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
REINDEX INDEX whence.canon_rules_alike;
