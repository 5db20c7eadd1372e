-- Where a recall or a telling is a source, what stands behind it is a memory that says the same, be it another agent's: two
-- recalls of one memory are one source.
ALTER TABLE whence.memory_sources ADD COLUMN origin uuid;
COMMENT ON COLUMN whence.memory_sources.origin IS 'The memory that says the same which the source, a recall or a telling, has found or told; NULL where there is none.';
CREATE INDEX memory_sources_by_origin ON whence.memory_sources (memory_id, origin, workspace_id) WHERE origin IS NOT NULL;

CREATE OR REPLACE VIEW whence.memory_all_sources WITH (security_invoker) AS
SELECT s.workspace_id, s.memory_id, s.source, s.role, s.position, s.event_id, s.user_id, s.said_by, s.confidence, s.told_at,
    s.byte_from, s.byte_to, s.origin
FROM whence.memory_sources s
UNION ALL
SELECT m.workspace_id, m.memory_id, m.teller, 'told', m.position, m.memory_id, m.user_id, m.said_by, NULL, m.recorded_at,
    NULL, NULL, NULL
FROM whence.memories m WHERE m.teller IS NOT NULL;

-- What a text said, too, may be told to hold from earlier on than was known: until when nobody knew.
ALTER TABLE whence.memory_tellings ADD COLUMN told_at timestamptz, ADD COLUMN held_from timestamptz;
COMMENT ON COLUMN whence.memory_tellings.held_from IS 'From when the memory held as far as was known before it was told at told_at that it held from earlier on; NULL where that was not told.';

-- Which memories a recall found is asked when something is told that was derived from it.
CREATE INDEX recall_hits_by_recall ON whence.recall_hits (recall_id, workspace_id);

-- Whether a source of what is told again is the memory that says so, an event that told it, or a recall that found it.
-- What somebody has from there is no second opinion.
CREATE FUNCTION whence.is_own_word(in_workspace text, known uuid, source text, role text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN role = 'told' THEN false ELSE
        source::uuid = known
        OR EXISTS (SELECT FROM whence.memory_tellings t
            WHERE t.workspace_id = in_workspace AND t.event_id = source::uuid AND t.memory_id = known)
        OR EXISTS (SELECT FROM whence.recall_hits h
            WHERE h.workspace_id = in_workspace AND h.recall_id = source::uuid AND h.memory_id = known)
    END
$$;

-- Whether it comes from a memory from which this one has it already, or from itself.
CREATE FUNCTION whence.is_had_already(in_workspace text, known uuid, in_origin uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT in_origin IS NOT NULL AND (in_origin = known
        OR EXISTS (SELECT FROM whence.memory_sources s
            WHERE s.workspace_id = in_workspace AND s.memory_id = known AND s.role = 'memory'
              AND s.source = in_origin::text AND s.confidence IS NOT NULL)
        OR EXISTS (SELECT FROM whence.memory_sources s
            WHERE s.workspace_id = in_workspace AND s.memory_id = known AND s.origin = in_origin
              AND s.confidence IS NOT NULL))
$$;

-- As before, with the origin of each source.
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

-- As before, but what a memory is told again from itself does not make it surer, and what a run teaches is no episode.
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
