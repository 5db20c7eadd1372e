-- What is told of memory is stored with its vectors by one call, and where it has no key, without a look at what is stored
-- before: the index that the same text is told once by says so when it is inserted.

-- Every index but the primary key begins with what it is for. All of them began with the workspace, and where a workspace
-- has a row or two on average, or nobody has analysed the table yet, the planner took each for as good as any other: in
-- one with many rows it then read all of them to find one.
-- Pages are in order of position, whatever else they are narrowed by.
DROP INDEX whence.memories_in_order, whence.memories_by_key, whence.memories_by_run, whence.memories_by_session,
    whence.memory_sources_by_event, whence.memory_sources_by_source, whence.runs_of_agent, whence.runs_of_instance;
CREATE INDEX memories_in_order ON whence.memories (owner, workspace_id, position);
CREATE INDEX memories_by_key ON whence.memories (conflict_key, workspace_id, owner, agent, valid_at)
    WHERE conflict_key IS NOT NULL;
CREATE INDEX memories_by_run ON whence.memories (agent, workspace_id, position) WHERE run_id IS NOT NULL;
CREATE INDEX memories_by_session ON whence.memories (session_id, workspace_id, position) WHERE session_id IS NOT NULL;
CREATE INDEX memory_sources_by_event ON whence.memory_sources (event_id, workspace_id);
CREATE INDEX memory_sources_by_source ON whence.memory_sources (source, workspace_id) WHERE role <> 'told';
CREATE INDEX runs_of_agent ON whence.runs (agent, workspace_id, owner, position);
CREATE INDEX runs_of_instance ON whence.runs (instance, agent, workspace_id, owner, turn);

-- What its session has left behind is evidence: it is neither recalled nor told again.
ALTER TABLE whence.memories ADD COLUMN archived_at timestamptz, ADD COLUMN support integer;
COMMENT ON COLUMN whence.memories.support IS 'Of a routine: the number of sessions that it was seen in.';
COMMENT ON COLUMN whence.memories.archived_at IS 'When its session was closed: from then on it is evidence, and not recalled.';
DROP INDEX whence.memories_one_current, whence.memories_same_text;
CREATE UNIQUE INDEX memories_one_current ON whence.memories
    (workspace_id, owner, agent, tier, anchor, kind, conflict_key)
    WHERE conflict_key IS NOT NULL AND invalid_at IS NULL AND superseded_at IS NULL AND deleted_at IS NULL
        AND archived_at IS NULL;
CREATE UNIQUE INDEX memories_same_text ON whence.memories (workspace_id, owner, agent, tier, anchor, kind, body_hash)
    WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
        AND deleted_at IS NULL AND archived_at IS NULL;

-- `anchor` cannot be NULL, which says the same; each check costs a write a few microseconds.
ALTER TABLE whence.memories
    DROP CONSTRAINT memories_session_has_session,
    DROP CONSTRAINT memories_interaction_has_thread;

-- A text as people read it: letters of any width are the same, and signs that are not seen are not there (Unicode's
-- category Cf and what may be ignored by default).
CREATE FUNCTION whence.as_read(said text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT regexp_replace(
        normalize(said, NFKC),
        '[\u00AD\u034F\u0600-\u0605\u061C\u06DD\u070F\u0890\u0891\u08E2\u115F\u1160\u17B4\u17B5\u180B-\u180F'
            '\u200B-\u200F\u202A-\u202E\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\U000110BD\U000110CD'
            '\U00013430-\U0001343F\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF]+',
        '', 'g');
$$;
-- How names in facts are compared where no key says it. Lower case is what every database has for Python's folding: it
-- does not take ß for ss.
CREATE FUNCTION whence.as_compared(said text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT lower(btrim(regexp_replace(whence.as_read(said), '\s+', ' ', 'g')));
$$;
DROP INDEX whence.canon_rules_alike;
CREATE INDEX canon_rules_alike ON whence.canon_rules USING gin (whence.as_read(body) gin_trgm_ops);

-- The contract, for the object of a fact as for the text: semantic memory of 100 characters and more that is, as it is
-- read, more than 0.85 alike a rule of its world is refused. Runs as the owner, because under row-level security the
-- trigram index could not be used: its operators are not leakproof.
CREATE OR REPLACE FUNCTION whence.guard_canon() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET pg_trgm.similarity_threshold = 0.85
SET enable_seqscan = off
AS $$
DECLARE
    place text;
    said text;
    shadowed record;
BEGIN
    FOREACH place IN ARRAY ARRAY['body', 'fact_object'] LOOP
        said := CASE place WHEN 'body' THEN NEW.body ELSE NEW.fact_object END;
        CONTINUE WHEN length(said) >= 100 IS NOT TRUE;
        said := whence.as_read(said);
        -- By the trigram index first: the planner takes a comparison of trigrams to be as cheap as one of numbers, and
        -- would compare all rules of the world, at 25 microseconds each.
        SELECT r.rule_id, similarity(whence.as_read(r.body), said) AS alike INTO shadowed
        FROM (SELECT * FROM whence.canon_rules c WHERE whence.as_read(c.body) % said OFFSET 0) r
        WHERE r.workspace_id = NEW.workspace_id AND r.world_id = NEW.world_id_context
          AND similarity(whence.as_read(r.body), said) > 0.85
        ORDER BY alike DESC, r.rule_id LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'the % repeats rule % of world %', place, shadowed.rule_id, NEW.world_id_context USING
                ERRCODE = '23514', CONSTRAINT = 'memories_canon', COLUMN = place, TABLE = 'memories', SCHEMA = 'whence',
                DETAIL = format('rule %s, %s alike', shadowed.rule_id, round(shadowed.alike::numeric, 2));
        END IF;
    END LOOP;
    RETURN NEW;
END $$;
DROP TRIGGER memories_canon ON whence.memories;
-- A row of another workspace is refused by row-level security, and its writer must not learn anything before that. Whom
-- row-level security does not bind, such as a superuser, is guarded in every workspace.
CREATE TRIGGER memories_canon
    BEFORE INSERT OR UPDATE OF body, fact_object, kind, world_id_context, workspace_id ON whence.memories
    FOR EACH ROW WHEN (NEW.kind = 'semantic' AND NEW.world_id_context IS NOT NULL
        AND greatest(length(NEW.body), length(NEW.fact_object)) >= 100
        AND (NEW.workspace_id = current_setting('app.workspace_id', true) OR NOT row_security_active('whence.memories')))
    EXECUTE FUNCTION whence.guard_canon();

DROP FUNCTION whence.memory_apply(text, bigint, bigint, timestamptz, jsonb);
DROP FUNCTION whence.memory_remember_plain(text, bigint, timestamptz, jsonb);

-- Beside the document: whose vector it has, and where that begins among the components that travel with the documents.
ALTER TYPE whence.remembered
    ADD ATTRIBUTE effect text, ADD ATTRIBUTE embedder text, ADD ATTRIBUTE vector_from integer, ADD ATTRIBUTE vector_to integer,
    ADD ATTRIBUTE support integer;

-- Stores one memory by the rule of its kind: `accumulate`, `validity` (the old one ends when the new one begins) or
-- `supersede` (the new one takes the place of the old). Whoever calls holds the lock of the workspace's head, so no two
-- run at once.
CREATE OR REPLACE FUNCTION whence.memory_remember(in_workspace text, m whence.remembered, at_position bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    in_owner constant text := coalesce(m.user_id, '');
    in_anchor constant text := CASE m.tier WHEN 'interaction' THEN m.interaction_id WHEN 'session' THEN m.session_id ELSE '' END;
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
            recorded_at, sanitised, support
        ) VALUES (
            in_workspace, m.event_id, at_position, m.user_id, m.subject_id, m.said_by, m.agent, m.profile, m.tier, m.kind,
            m.session_id, m.interaction_id, m.run_id, m.world_id_context, m.body, decode(m.body_hash, 'hex'),
            m.conflict_key, m.fact_subject, m.fact_predicate, m.fact_object, m.object_key, m.confidence, m.importance,
            from_then, ends, ends_learnt, ends_by, m.recorded_at, m.sanitised, m.support
        )
        -- The same text without a key is told once. The row is named by touching it, because only this way is sure to
        -- find it by its index, whatever the table looked like when the plan was made.
        ON CONFLICT (workspace_id, owner, agent, tier, anchor, kind, body_hash)
            WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
                AND deleted_at IS NULL AND archived_at IS NULL
            DO UPDATE SET told_count = o.told_count
        RETURNING nullif(o.memory_id, m.event_id) INTO same;
    END IF;
    INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id, user_id, said_by,
        confidence, told_at)
    SELECT in_workspace, coalesce(same, m.event_id), s->>'source', s->>'role', at_position, m.event_id, m.user_id,
        m.said_by, m.confidence, m.recorded_at
    FROM jsonb_array_elements(m.sources) s ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    IF same IS NOT NULL THEN
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

-- The same as memory_remember for many at once: stores those of the documents that have no key and whose text is new, and
-- returns their places; the others are left to be looked at one by one.
CREATE FUNCTION whence.memory_remember_plain(
    in_workspace text, start bigint, in_recorded_at timestamptz, documents jsonb, components real[]
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    done bigint[];
BEGIN
    WITH given AS MATERIALIZED (
        SELECT r.*, start + r.place AS at_position, coalesce(r.recorded_at, in_recorded_at) AS at
        FROM jsonb_populate_recordset(NULL::whence.remembered, documents) r
        WHERE r.effect = 'remember' AND r.conflict_key IS NULL AND r.run_id IS NULL
    ), stored AS (
        INSERT INTO whence.memories (
            workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, world_id_context, body, body_hash, fact_subject, fact_predicate, fact_object, confidence,
            importance, valid_at, recorded_at, sanitised
        )
        SELECT in_workspace, event_id, at_position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, world_id_context, body, decode(body_hash, 'hex'), fact_subject, fact_predicate, fact_object,
            confidence, importance, coalesce(valid_at, at), at, sanitised
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
            workspace_id, memory_id, source, role, position, event_id, user_id, said_by, confidence, told_at
        )
        SELECT in_workspace, event_id, s->>'source', s->>'role', at_position, event_id, user_id, said_by, confidence, at
        FROM plain, jsonb_array_elements(sources) s
        ON CONFLICT DO NOTHING
    ), embedded AS (
        INSERT INTO whence.memory_vectors (workspace_id, memory_id, user_id, embedder, embedding)
        SELECT in_workspace, event_id, user_id, embedder, components[vector_from:vector_to]::halfvec
        FROM plain WHERE embedder IS NOT NULL
    )
    SELECT coalesce(array_agg(p.place), '{}') INTO done FROM plain p;
    RETURN done;
END $$;

-- What a document says that is not about a memory of its own. What it does not know itself is done by the function of
-- that name, such as whence.effect_close_session, so that what comes later need not change this one.
CREATE FUNCTION whence.memory_change(in_workspace text, at_position bigint, at timestamptz, document jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
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
END $$;

-- What events of Whence's own do to memory. `documents` are what they say, each with its `place` after the position
-- `base`; without a base it is where the head was before these `events`. Vectors stand one after the other in
-- `components`. Deterministic: what it writes depends on the documents and on what earlier ones have written, and on
-- nothing else, so memory can be rebuilt from the ledger. Returns a row for each document, but none for a memory that is
-- stored as it was told.
CREATE FUNCTION whence.memory_apply(
    in_workspace text, base bigint, events bigint, in_recorded_at timestamptz, documents jsonb, components real[]
) RETURNS SETOF jsonb
LANGUAGE plpgsql AS $$
DECLARE
    start bigint := base;
    -- A rule that is set or dropped among them guards what comes after it, and a session that is closed goes on as
    -- another, so then their order matters.
    in_order constant boolean := documents @? '$[*].effect ? (@ == "set_rule" || @ == "drop_rule" || @ == "close_session")';
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
            done := whence.memory_remember_plain(in_workspace, start, in_recorded_at, documents, components);
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
                    components[told.vector_from:told.vector_to]::halfvec);
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
END $$;
