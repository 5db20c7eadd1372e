-- Whether a source of what is told again is one of the memories that say so, an event that told one, or a recall that
-- found one. What somebody has from there is no second opinion.
CREATE FUNCTION whence.is_own_word(in_workspace text, known uuid[], source text, role text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN role = 'told' THEN false ELSE
        source::uuid = ANY (known)
        OR EXISTS (SELECT FROM whence.memory_tellings t
            WHERE t.workspace_id = in_workspace AND t.event_id = source::uuid AND t.memory_id = ANY (known))
        OR EXISTS (SELECT FROM whence.recall_hits h
            WHERE h.workspace_id = in_workspace AND h.recall_id = source::uuid AND h.memory_id = ANY (known))
    END
$$;

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
            confidence, told_at, byte_from, byte_to)
        SELECT in_workspace, coalesce(same, m.event_id), s->>'source', s->>'role', at_position, m.event_id, m.user_id,
            m.said_by, CASE WHEN same IS NULL OR NOT whence.is_own_word(in_workspace, ARRAY[same], s->>'source', s->>'role')
                THEN m.confidence END,
            m.recorded_at, (s->>'byte_from')::integer, (s->>'byte_to')::integer
        FROM jsonb_array_elements(m.sources) s
        WHERE s->>'role' <> 'told' OR NOT EXISTS (
            SELECT FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.memory_id = same AND o.teller = s->>'source'
        )
        ON CONFLICT DO NOTHING;
    END IF;
    IF same IS NOT NULL THEN
        -- Of its sources those that say how sure they are of what they know by themselves.
        SELECT count(*) INTO fresh FROM whence.memory_sources s
        WHERE s.workspace_id = in_workspace AND s.memory_id = same AND s.event_id = m.event_id AND s.confidence IS NOT NULL;
        INSERT INTO whence.memory_tellings (workspace_id, event_id, memory_id, position, user_id)
        SELECT in_workspace, m.event_id, same, at_position, o.user_id FROM whence.memories o
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
