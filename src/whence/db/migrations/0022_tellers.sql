-- Who told a memory first stands in its own row, and in memory_sources stands what else there is to say of where it comes
-- from. Nearly every memory was told by somebody and by nobody else since: a row, two index entries and a check for each
-- of them said what its memory says too.

ALTER TABLE whence.memories ADD COLUMN teller text;
COMMENT ON COLUMN whence.memories.teller IS 'The source that told it first and did not say how sure it is: the run, the session or the user. Of every other source there is a row in memory_sources.';

-- Of all workspaces: the owner sees rows only while nothing forces it not to.
ALTER TABLE whence.memories NO FORCE ROW LEVEL SECURITY;
ALTER TABLE whence.memory_sources NO FORCE ROW LEVEL SECURITY;
UPDATE whence.memories m SET teller = s.source FROM whence.memory_sources s
WHERE s.workspace_id = m.workspace_id AND s.memory_id = m.memory_id AND s.role = 'told' AND s.event_id = m.memory_id
  AND s.confidence IS NULL;
DELETE FROM whence.memory_sources s USING whence.memories m
WHERE m.workspace_id = s.workspace_id AND m.memory_id = s.memory_id AND s.role = 'told' AND s.event_id = m.memory_id
  AND m.teller = s.source;
ALTER TABLE whence.memories FORCE ROW LEVEL SECURITY;
ALTER TABLE whence.memory_sources FORCE ROW LEVEL SECURITY;

-- All sources of a memory, the teller among them.
CREATE VIEW whence.memory_all_sources WITH (security_invoker) AS
SELECT s.workspace_id, s.memory_id, s.source, s.role, s.position, s.event_id, s.user_id, s.said_by, s.confidence, s.told_at,
    s.byte_from, s.byte_to
FROM whence.memory_sources s
UNION ALL
SELECT m.workspace_id, m.memory_id, m.teller, 'told', m.position, m.memory_id, m.user_id, m.said_by, NULL, m.recorded_at,
    NULL, NULL
FROM whence.memories m WHERE m.teller IS NOT NULL;
GRANT SELECT ON whence.memory_all_sources TO whence_app, whence_workspace;

-- The teller of a document, if it has one.
CREATE FUNCTION whence.teller_of(sources jsonb, confidence double precision) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN confidence IS NULL AND jsonb_array_length(sources) = 1 AND sources->0->>'role' = 'told'
        THEN sources->0->>'source' END;
$$;

-- That an event told a memory which another had told before is noted by whoever stores it.
DROP TRIGGER memory_sources_telling ON whence.memory_sources;
DROP FUNCTION whence.note_telling();

-- A vector travels as it is stored, as an element of an array, and not as numbers that are made into one here.
DROP FUNCTION whence.memory_apply(text, bigint, bigint, timestamptz, jsonb, real[]);
DROP FUNCTION whence.memory_remember_plain(text, bigint, timestamptz, jsonb, real[]);
ALTER TYPE whence.remembered DROP ATTRIBUTE vector_from, DROP ATTRIBUTE vector_to, ADD ATTRIBUTE vector integer;

CREATE FUNCTION whence.memory_remember_plain(in_workspace text, start bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors halfvec[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
DECLARE
    done bigint[];
BEGIN
    WITH given AS MATERIALIZED (
        SELECT r.*, start + r.place AS at_position, coalesce(r.recorded_at, in_recorded_at) AS at,
            whence.teller_of(r.sources, r.confidence) AS teller
        FROM jsonb_populate_recordset(NULL::whence.remembered, documents) r
        WHERE r.effect = 'remember' AND r.conflict_key IS NULL AND r.run_id IS NULL
    ), stored AS (
        INSERT INTO whence.memories (
            workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, world_id_context, body, body_hash, fact_subject, fact_predicate, fact_object, confidence,
            importance, valid_at, recorded_at, sanitised, speaker, role, teller
        )
        SELECT in_workspace, event_id, at_position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, world_id_context, body, decode(body_hash, 'hex'), fact_subject, fact_predicate, fact_object,
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
            byte_from, byte_to
        )
        SELECT in_workspace, event_id, s->>'source', s->>'role', at_position, event_id, user_id, said_by, confidence, at,
            (s->>'byte_from')::integer, (s->>'byte_to')::integer
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

-- `in_order`: a rule that is set or dropped among the documents guards what comes after it, or a session that is closed goes
-- on as another.
CREATE FUNCTION whence.memory_apply(in_workspace text, base bigint, events bigint, in_recorded_at timestamp with time zone, documents jsonb, vectors halfvec[], in_order boolean) RETURNS SETOF jsonb
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
            came_of := whence.memory_remember(in_workspace, told, at_position);
            IF told.embedder IS NOT NULL AND coalesce(came_of->>'status', 'stored') = 'stored' THEN
                INSERT INTO whence.memory_vectors (workspace_id, memory_id, user_id, embedder, embedding)
                VALUES (in_workspace, told.event_id, told.user_id, told.embedder,
                    vectors[told.vector]);
            END IF;
        ELSE
            came_of := whence.memory_change(in_workspace, at_position, at, document);
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

CREATE OR REPLACE FUNCTION whence.memory_remember_text(in_workspace text, m whence.remembered, at_position bigint) RETURNS jsonb
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
            confidence, told_at, byte_from, byte_to)
        SELECT in_workspace, coalesce(same, m.event_id), s->>'source', s->>'role', at_position, m.event_id, m.user_id,
            m.said_by, m.confidence, m.recorded_at, (s->>'byte_from')::integer, (s->>'byte_to')::integer
        FROM jsonb_array_elements(m.sources) s
        WHERE s->>'role' <> 'told' OR NOT EXISTS (
            SELECT FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.memory_id = same AND o.teller = s->>'source'
        )
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS fresh = ROW_COUNT;
    END IF;
    IF same IS NOT NULL THEN
        INSERT INTO whence.memory_tellings (workspace_id, event_id, memory_id, position, user_id)
        SELECT in_workspace, m.event_id, same, at_position, o.user_id FROM whence.memories o
        WHERE o.workspace_id = in_workspace AND o.memory_id = same
        ON CONFLICT DO NOTHING;
        UPDATE whence.memories o SET
            told_count = o.told_count + 1,
            -- Sources that do not know of each other: the chance that both are wrong. One that repeats itself adds nothing.
            confidence = CASE WHEN fresh > 0 AND m.confidence IS NOT NULL
                THEN 1 - (1 - coalesce(o.confidence, 0)) * (1 - m.confidence) ELSE o.confidence END,
            importance = greatest(o.importance, m.importance),
            valid_at = least(o.valid_at, from_then),
            -- Named, so that the guard looks at it again: there may be a rule now.
            body = o.body
        WHERE o.workspace_id = in_workspace AND o.memory_id = same;
        RETURN jsonb_build_object('place', m.place, 'memory_id', same, 'status', 'reinforced', 'superseded', '[]'::jsonb);
    END IF;
    IF m.run_id IS NOT NULL THEN
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

-- What somebody told hangs on no other memory.
CREATE OR REPLACE VIEW whence.retention_states WITH (security_invoker='true') AS
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
