-- Memory: what agents may remember, derived from the ledger and rebuilt from it. Every row is written by
-- whence.memory_apply in the transaction that stores the event behind it.

-- Rules that nobody may repeat as if they were memory.
CREATE TABLE whence.canon_rules (
    workspace_id text NOT NULL,
    world_id text NOT NULL,
    rule_id text NOT NULL,
    body text NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT canon_rules_pkey PRIMARY KEY (workspace_id, world_id, rule_id)
);
CREATE INDEX canon_rules_alike ON whence.canon_rules USING gin (body gin_trgm_ops);

CREATE TABLE whence.memories (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    subject_id text NOT NULL,
    said_by text,
    agent text NOT NULL,
    profile text NOT NULL,
    tier text NOT NULL,
    kind text NOT NULL,
    session_id text,
    interaction_id text,
    anchor text NOT NULL GENERATED ALWAYS AS (
        CASE tier WHEN 'interaction' THEN interaction_id WHEN 'session' THEN session_id ELSE '' END
    ) STORED,
    run_id uuid,
    world_id_context text,
    body text NOT NULL,
    body_hash bytea NOT NULL,
    conflict_key text,
    fact_subject text,
    fact_predicate text,
    fact_object text,
    object_key text,
    confidence double precision,
    importance double precision NOT NULL,
    valid_at timestamptz NOT NULL,
    invalid_at timestamptz,
    invalidated_at timestamptz,
    invalidated_by uuid,
    superseded_at timestamptz,
    superseded_by uuid,
    recorded_at timestamptz NOT NULL,
    deleted_at timestamptz,
    told_count integer NOT NULL DEFAULT 1,
    access_count integer NOT NULL DEFAULT 0,
    accessed_at timestamptz,
    sanitised jsonb,
    CONSTRAINT memories_pkey PRIMARY KEY (workspace_id, memory_id),
    CONSTRAINT memories_tier_known CHECK (tier IN ('interaction', 'session', 'persistent')),
    CONSTRAINT memories_kind_known CHECK (kind IN ('episodic', 'semantic', 'procedural')),
    CONSTRAINT memories_confidence_range CHECK (confidence BETWEEN 0 AND 1),
    CONSTRAINT memories_importance_range CHECK (importance BETWEEN 0 AND 1),
    CONSTRAINT memories_session_has_session CHECK (tier <> 'session' OR session_id IS NOT NULL),
    CONSTRAINT memories_interaction_has_thread CHECK (tier <> 'interaction' OR interaction_id IS NOT NULL)
);
COMMENT ON COLUMN whence.memories.memory_id IS 'The id of the event that told it first.';
COMMENT ON COLUMN whence.memories.user_id IS 'The user whose it is; NULL where the profile anchors it on the workspace.';
COMMENT ON COLUMN whence.memories.subject_id IS 'Under whose key the event is sealed; the empty text is the workspace.';
COMMENT ON COLUMN whence.memories.invalid_at IS 'Semantic: when it stopped being so. It was learnt at invalidated_at.';
COMMENT ON COLUMN whence.memories.superseded_at IS 'Procedural: when another took its place.';

-- At most one that holds without an end, for each thing that can be said once.
CREATE UNIQUE INDEX memories_one_current ON whence.memories
    (workspace_id, owner, agent, tier, anchor, kind, conflict_key)
    WHERE conflict_key IS NOT NULL AND invalid_at IS NULL AND superseded_at IS NULL AND deleted_at IS NULL;
CREATE INDEX memories_by_key ON whence.memories (workspace_id, owner, agent, conflict_key, valid_at)
    WHERE conflict_key IS NOT NULL;
-- The same text is told once.
CREATE UNIQUE INDEX memories_same_text ON whence.memories (workspace_id, owner, agent, tier, anchor, kind, body_hash)
    WHERE kind <> 'episodic' AND conflict_key IS NULL AND invalid_at IS NULL AND superseded_at IS NULL
        AND deleted_at IS NULL;
CREATE INDEX memories_in_order ON whence.memories (workspace_id, owner, agent, kind, position);
CREATE INDEX memories_by_run ON whence.memories (workspace_id, agent, position) WHERE run_id IS NOT NULL;
CREATE INDEX memories_by_session ON whence.memories (workspace_id, session_id, position) WHERE session_id IS NOT NULL;

CREATE TABLE whence.memory_vectors (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    embedder text NOT NULL,
    embedding halfvec NOT NULL,
    CONSTRAINT memory_vectors_pkey PRIMARY KEY (workspace_id, memory_id)
);
ALTER TABLE whence.memory_vectors ALTER COLUMN embedding SET STORAGE PLAIN;

-- Where a memory came from: who told it, and the events and memories that it was derived from.
CREATE TABLE whence.memory_sources (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    source text NOT NULL,
    role text NOT NULL,
    position bigint NOT NULL,
    event_id uuid NOT NULL,
    user_id text,
    said_by text,
    confidence double precision,
    told_at timestamptz NOT NULL,
    CONSTRAINT memory_sources_pkey PRIMARY KEY (workspace_id, memory_id, role, source),
    CONSTRAINT memory_sources_role_known CHECK (role IN ('told', 'event', 'memory'))
);
CREATE INDEX memory_sources_by_event ON whence.memory_sources (workspace_id, event_id);
CREATE INDEX memory_sources_by_source ON whence.memory_sources (workspace_id, source) WHERE role <> 'told';
COMMENT ON COLUMN whence.memory_sources.source IS
    'What counts as one source: an event or memory that it was derived from, else the run, the session or the teller.';
COMMENT ON COLUMN whence.memory_sources.event_id IS 'The event that told it and named this source.';

-- What was recalled, when, and by whom.
CREATE TABLE whence.recalls (
    workspace_id text NOT NULL,
    recall_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    agent text,
    recalled_at timestamptz NOT NULL,
    CONSTRAINT recalls_pkey PRIMARY KEY (workspace_id, recall_id)
);
CREATE TABLE whence.recall_hits (
    workspace_id text NOT NULL,
    memory_id uuid NOT NULL,
    recall_id uuid NOT NULL,
    user_id text,
    rank integer NOT NULL,
    CONSTRAINT recall_hits_pkey PRIMARY KEY (workspace_id, memory_id, recall_id)
);

CREATE TABLE whence.runs (
    workspace_id text NOT NULL,
    run_id uuid NOT NULL,
    position bigint NOT NULL,
    user_id text,
    owner text NOT NULL GENERATED ALWAYS AS (coalesce(user_id, '')) STORED,
    agent text NOT NULL,
    instance text NOT NULL,
    task_type text,
    session_id text,
    status text NOT NULL,
    turn integer NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    end_event_id uuid,
    CONSTRAINT runs_pkey PRIMARY KEY (workspace_id, run_id),
    CONSTRAINT runs_status_known CHECK (status IN ('running', 'completed', 'failed'))
);
CREATE INDEX runs_of_agent ON whence.runs (workspace_id, owner, agent, position);
CREATE INDEX runs_of_instance ON whence.runs (workspace_id, owner, agent, instance, turn);
COMMENT ON COLUMN whence.runs.turn IS 'Its number among the runs of this instance of the agent.';

-- Counted, because counting a hundred thousand rows at each write would cost more than the write.
CREATE TABLE whence.memory_counts (
    workspace_id text NOT NULL,
    episodes bigint NOT NULL DEFAULT 0,
    CONSTRAINT memory_counts_pkey PRIMARY KEY (workspace_id)
);

DO $$
DECLARE
    tenant_table text;
BEGIN
    FOREACH tenant_table IN ARRAY ARRAY[
        'canon_rules', 'memories', 'memory_vectors', 'memory_sources', 'recalls', 'recall_hits', 'runs', 'memory_counts'
    ] LOOP
        EXECUTE format('ALTER TABLE whence.%I ENABLE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format('ALTER TABLE whence.%I FORCE ROW LEVEL SECURITY', tenant_table);
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I TO whence_workspace'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_workspace', tenant_table);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON whence.%I TO whence_workspace', tenant_table);
        EXECUTE format('GRANT SELECT ON whence.%I TO whence_app', tenant_table);
    END LOOP;
    -- What hangs on the workspace is for everybody in it.
    FOREACH tenant_table IN ARRAY ARRAY['memories', 'memory_vectors', 'memory_sources', 'runs'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND (user_id = current_setting(''app.user_id'', true)'
            ' OR (user_id IS NULL AND current_setting(''app.user_id'', true) <> '''')))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
    FOREACH tenant_table IN ARRAY ARRAY['recalls', 'recall_hits'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true)'
            ' AND user_id = current_setting(''app.user_id'', true))',
            tenant_table || '_of_user', tenant_table);
    END LOOP;
    FOREACH tenant_table IN ARRAY ARRAY['canon_rules', 'memory_counts'] LOOP
        EXECUTE format(
            'CREATE POLICY %I ON whence.%I FOR SELECT TO whence_app'
            ' USING (workspace_id = current_setting(''app.workspace_id'', true))',
            tenant_table || '_of_member', tenant_table);
    END LOOP;
END $$;
-- Under row-level security the trigram index could not be used, because its operators are not leakproof. So the guard
-- runs as the owner, who sees the rules, and the guard itself looks at those of the row's workspace only.
CREATE POLICY canon_rules_of_guard ON whence.canon_rules FOR SELECT TO CURRENT_USER USING (true);

-- The contract: semantic memory of 100 characters and more that is more than 0.85 alike a rule of its world is refused.
CREATE FUNCTION whence.guard_canon() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET pg_trgm.similarity_threshold = 0.85
SET enable_seqscan = off
AS $$
DECLARE
    shadowed record;
BEGIN
    IF NEW.workspace_id IS DISTINCT FROM current_setting('app.workspace_id', true) THEN
        -- Row-level security will refuse the row; it must not learn anything before that.
        RETURN NEW;
    END IF;
    -- By the trigram index first: the planner takes a comparison of trigrams to be as cheap as one of numbers, and would
    -- compare all rules of the world, at 25 microseconds each.
    SELECT r.rule_id, similarity(r.body, NEW.body) AS alike INTO shadowed
    FROM (SELECT * FROM whence.canon_rules c WHERE c.body % NEW.body OFFSET 0) r
    WHERE r.workspace_id = NEW.workspace_id AND r.world_id = NEW.world_id_context
      AND similarity(r.body, NEW.body) > 0.85
    ORDER BY alike DESC, r.rule_id LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'the text repeats rule % of world %', shadowed.rule_id, NEW.world_id_context USING
            ERRCODE = '23514', CONSTRAINT = 'memories_canon', TABLE = 'memories', SCHEMA = 'whence',
            DETAIL = format('rule %s, %s alike', shadowed.rule_id, round(shadowed.alike::numeric, 2));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER memories_canon BEFORE INSERT OR UPDATE OF body ON whence.memories
    FOR EACH ROW WHEN (NEW.kind = 'semantic' AND NEW.world_id_context IS NOT NULL AND length(NEW.body) >= 100)
    EXECUTE FUNCTION whence.guard_canon();

-- What a document of an event of the type memory.remembered says.
CREATE TYPE whence.remembered AS (
    place bigint, event_id uuid, recorded_at timestamptz, user_id text, subject_id text, said_by text, agent text,
    profile text, tier text, kind text, session_id text, interaction_id text, run_id uuid, world_id_context text,
    body text, body_hash text, conflict_key text, fact_subject text, fact_predicate text, fact_object text,
    object_key text, confidence double precision, importance double precision, valid_at timestamptz, conflict text,
    sources jsonb, sanitised jsonb
);

-- Stores one memory by the rule of its kind: `accumulate`, `validity` (the old one ends when the new one begins) or
-- `supersede` (the new one takes the place of the old). Whoever calls holds the lock of the workspace's head, so no two
-- run at once.
CREATE FUNCTION whence.memory_remember(in_workspace text, m whence.remembered, at_position bigint) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
    in_owner constant text := coalesce(m.user_id, '');
    in_anchor constant text := CASE m.tier WHEN 'interaction' THEN m.interaction_id WHEN 'session' THEN m.session_id ELSE '' END;
    same uuid;
    was_confidence double precision;
    fresh integer;
    ends timestamptz;
    ends_by uuid;
    ends_learnt timestamptz;
    replaced uuid[] := '{}';
    counted bigint;
    from_then timestamptz := m.valid_at;
BEGIN
    IF from_then IS NULL THEN
        -- Now; and not before what was said now by somebody whose clock is ahead.
        SELECT greatest(m.recorded_at, max(o.valid_at)) INTO from_then FROM whence.memories o
        WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
          AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.deleted_at IS NULL
          AND o.valid_at = o.recorded_at;
    END IF;
    IF m.kind <> 'episodic' THEN
        IF m.conflict_key IS NULL THEN
            SELECT o.memory_id, o.confidence INTO same, was_confidence FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
              AND o.anchor = in_anchor AND o.kind = m.kind AND o.body_hash = decode(m.body_hash, 'hex')
              AND o.kind <> 'episodic' AND o.conflict_key IS NULL AND o.invalid_at IS NULL AND o.superseded_at IS NULL
              AND o.deleted_at IS NULL;
        ELSE
            -- The one that holds at the time of this one.
            SELECT o.memory_id, o.confidence INTO same, was_confidence FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
              AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key
              AND o.object_key = m.object_key AND o.superseded_at IS NULL AND o.deleted_at IS NULL
              AND o.valid_at <= from_then AND (o.invalid_at IS NULL OR o.invalid_at > from_then);
        END IF;
    END IF;
    IF same IS NOT NULL THEN
        INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id, user_id, said_by,
            confidence, told_at)
        SELECT in_workspace, same, s->>'source', s->>'role', at_position, m.event_id, m.user_id, m.said_by, m.confidence,
            m.recorded_at
        FROM jsonb_array_elements(m.sources) s ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS fresh = ROW_COUNT;
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
    IF m.conflict = 'validity' AND m.conflict_key IS NOT NULL THEN
        -- Facts of one subject and predicate follow one another in time, whatever the order in which they are learnt.
        SELECT o.valid_at, o.memory_id INTO ends, ends_by FROM whence.memories o
        WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
          AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.deleted_at IS NULL
          AND o.valid_at > from_then
        ORDER BY o.valid_at, o.position DESC LIMIT 1;
        WITH ended AS (
            UPDATE whence.memories o SET invalid_at = from_then, invalidated_at = m.recorded_at, invalidated_by = m.event_id
            WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
              AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key AND o.deleted_at IS NULL
              AND o.valid_at <= from_then AND (o.invalid_at IS NULL OR o.invalid_at > from_then)
            RETURNING o.memory_id
        )
        SELECT coalesce(array_agg(memory_id ORDER BY memory_id), '{}') INTO replaced FROM ended;
        ends_learnt := CASE WHEN ends IS NOT NULL THEN m.recorded_at END;
    ELSIF m.conflict = 'supersede' AND m.conflict_key IS NOT NULL THEN
        WITH ended AS (
            UPDATE whence.memories o SET superseded_at = m.recorded_at, superseded_by = m.event_id
            WHERE o.workspace_id = in_workspace AND o.owner = in_owner AND o.agent = m.agent AND o.tier = m.tier
              AND o.anchor = in_anchor AND o.kind = m.kind AND o.conflict_key = m.conflict_key
              AND o.superseded_at IS NULL AND o.deleted_at IS NULL
            RETURNING o.memory_id
        )
        SELECT coalesce(array_agg(memory_id ORDER BY memory_id), '{}') INTO replaced FROM ended;
    END IF;
    INSERT INTO whence.memories (
        workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
        interaction_id, run_id, world_id_context, body, body_hash, conflict_key, fact_subject, fact_predicate, fact_object,
        object_key, confidence, importance, valid_at, invalid_at, invalidated_at, invalidated_by, recorded_at, sanitised
    ) VALUES (
        in_workspace, m.event_id, at_position, m.user_id, m.subject_id, m.said_by, m.agent, m.profile, m.tier, m.kind,
        m.session_id, m.interaction_id, m.run_id, m.world_id_context, m.body, decode(m.body_hash, 'hex'), m.conflict_key,
        m.fact_subject, m.fact_predicate, m.fact_object, m.object_key, m.confidence, m.importance, from_then, ends,
        ends_learnt, ends_by, m.recorded_at, m.sanitised
    );
    INSERT INTO whence.memory_sources (workspace_id, memory_id, source, role, position, event_id, user_id, said_by,
        confidence, told_at)
    SELECT in_workspace, m.event_id, s->>'source', s->>'role', at_position, m.event_id, m.user_id, m.said_by,
        m.confidence, m.recorded_at
    FROM jsonb_array_elements(m.sources) s ON CONFLICT DO NOTHING;
    IF m.run_id IS NOT NULL THEN
        INSERT INTO whence.memory_counts AS c (workspace_id, episodes) VALUES (in_workspace, 1)
        ON CONFLICT (workspace_id) DO UPDATE SET episodes = c.episodes + 1
        RETURNING c.episodes INTO counted;
        IF counted > 100000 THEN
            RAISE EXCEPTION 'the workspace has 100,000 episodes' USING
                ERRCODE = '23514', CONSTRAINT = 'memories_episode_cap', TABLE = 'memories', SCHEMA = 'whence';
        END IF;
    END IF;
    RETURN jsonb_build_object(
        'place', m.place, 'memory_id', m.event_id, 'status', 'stored', 'superseded', to_jsonb(replaced),
        'episodes', counted);
END $$;

-- The same as memory_remember for many at once: stores those of the documents that conflict with nothing, neither what is
-- stored nor one another, and returns what it did; the others are left to be looked at one by one.
CREATE FUNCTION whence.memory_remember_plain(
    in_workspace text, start bigint, in_recorded_at timestamptz, documents jsonb
) RETURNS TABLE (place bigint, came_of jsonb)
LANGUAGE sql AS $$
    WITH given AS MATERIALIZED (
        SELECT r.*, start + r.place AS at_position, coalesce(r.recorded_at, in_recorded_at) AS at,
            decode(r.body_hash, 'hex') AS hash,
            count(*) OVER (
                PARTITION BY r.user_id, r.agent, r.tier, r.session_id, r.interaction_id, r.kind, r.body_hash
            ) AS alike
        FROM jsonb_populate_recordset(NULL::whence.remembered, documents) r
        WHERE r.conflict_key IS NULL AND r.run_id IS NULL AND r.body IS NOT NULL
    ), plain AS MATERIALIZED (
        SELECT * FROM given g
        WHERE g.kind = 'episodic' OR (g.alike = 1 AND NOT EXISTS (
            SELECT 1 FROM whence.memories o
            WHERE o.workspace_id = in_workspace AND o.owner = coalesce(g.user_id, '') AND o.agent = g.agent
              AND o.tier = g.tier AND o.kind = g.kind AND o.body_hash = g.hash
              AND o.anchor = CASE g.tier WHEN 'interaction' THEN g.interaction_id WHEN 'session' THEN g.session_id ELSE '' END
              AND o.kind <> 'episodic' AND o.conflict_key IS NULL AND o.invalid_at IS NULL AND o.superseded_at IS NULL
              AND o.deleted_at IS NULL
        ))
    ), stored AS (
        INSERT INTO whence.memories (
            workspace_id, memory_id, position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, world_id_context, body, body_hash, fact_subject, fact_predicate, fact_object, confidence,
            importance, valid_at, recorded_at, sanitised
        )
        SELECT in_workspace, event_id, at_position, user_id, subject_id, said_by, agent, profile, tier, kind, session_id,
            interaction_id, world_id_context, body, hash, fact_subject, fact_predicate, fact_object, confidence,
            importance, coalesce(valid_at, at), at, sanitised
        FROM plain
    ), told AS (
        INSERT INTO whence.memory_sources (
            workspace_id, memory_id, source, role, position, event_id, user_id, said_by, confidence, told_at
        )
        SELECT in_workspace, event_id, s->>'source', s->>'role', at_position, event_id, user_id, said_by, confidence, at
        FROM plain, jsonb_array_elements(sources) s
        ON CONFLICT DO NOTHING
    )
    SELECT p.place, jsonb_build_object('place', p.place, 'memory_id', p.event_id, 'status', 'stored', 'superseded', '[]'::jsonb)
    FROM plain p;
$$;

-- What events of Whence's own do to memory. `documents` are what they say, each with its `place` after the position
-- `base`; without a base it is where the head was before these `events`. Deterministic: what it writes depends on the
-- documents and on what earlier ones have written, and on nothing else, so memory can be rebuilt from the ledger.
CREATE FUNCTION whence.memory_apply(
    in_workspace text, base bigint, events bigint, recorded_at timestamptz, documents jsonb
) RETURNS SETOF jsonb
LANGUAGE plpgsql AS $$
DECLARE
    document jsonb;
    start bigint := base;
    at_position bigint;
    at timestamptz;
    changed integer;
    turns integer;
    plain record;
    done bigint[] := '{}';
BEGIN
    IF start IS NULL THEN
        SELECT h.last_position - events INTO start FROM whence.workspace_heads h WHERE h.workspace_id = in_workspace;
    END IF;
    -- A rule that is set or dropped among them guards what comes after it, so then their order matters.
    IF jsonb_array_length(documents) > 1 AND NOT documents @? '$[*] ? (@.effect like_regex "_rule$")' THEN
        FOR plain IN
            SELECT * FROM whence.memory_remember_plain(in_workspace, start, memory_apply.recorded_at, documents)
        LOOP
            done := done || plain.place;
            RETURN NEXT plain.came_of;
        END LOOP;
    END IF;
    FOR document IN
        SELECT d FROM jsonb_array_elements(documents) d WHERE NOT (d->>'place')::bigint = ANY (done)
    LOOP
        at_position := start + (document->>'place')::bigint;
        at := coalesce((document->>'recorded_at')::timestamptz, memory_apply.recorded_at);
        CASE document->>'effect'
        WHEN 'remember' THEN
            RETURN NEXT whence.memory_remember(
                in_workspace,
                jsonb_populate_record(NULL::whence.remembered, document || jsonb_build_object('recorded_at', at)),
                at_position);
        WHEN 'forget' THEN
            UPDATE whence.memories m SET deleted_at = at
            WHERE m.workspace_id = in_workspace AND m.memory_id = (document->>'memory_id')::uuid AND m.deleted_at IS NULL;
            GET DIAGNOSTICS changed = ROW_COUNT;
            RETURN NEXT jsonb_build_object('place', document->'place', 'changed', changed);
        WHEN 'recall' THEN
            INSERT INTO whence.recalls (workspace_id, recall_id, position, user_id, agent, recalled_at)
            VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent', at);
            INSERT INTO whence.recall_hits (workspace_id, memory_id, recall_id, user_id, rank)
            SELECT in_workspace, hit.value::uuid, (document->>'event_id')::uuid, document->>'user_id', hit.ordinality
            FROM jsonb_array_elements_text(document->'hits') WITH ORDINALITY hit;
            UPDATE whence.memories m SET access_count = m.access_count + 1, accessed_at = at
            FROM jsonb_array_elements_text(document->'hits') hit
            WHERE m.workspace_id = in_workspace AND m.memory_id = hit::uuid;
            RETURN NEXT jsonb_build_object('place', document->'place');
        WHEN 'start_run' THEN
            SELECT coalesce(max(r.turn), 0) + 1 INTO turns FROM whence.runs r
            WHERE r.workspace_id = in_workspace AND r.owner = coalesce(document->>'user_id', '')
              AND r.agent = document->>'agent' AND r.instance = document->>'instance';
            INSERT INTO whence.runs (workspace_id, run_id, position, user_id, agent, instance, task_type, session_id,
                status, turn, started_at)
            VALUES (in_workspace, (document->>'event_id')::uuid, at_position, document->>'user_id', document->>'agent',
                document->>'instance', document->>'task_type', document->>'session_id', 'running', turns, at);
            RETURN NEXT jsonb_build_object('place', document->'place', 'turn', turns);
        WHEN 'end_run' THEN
            -- The first end counts.
            UPDATE whence.runs r SET status = document->>'status', ended_at = at, end_event_id = (document->>'event_id')::uuid
            WHERE r.workspace_id = in_workspace AND r.run_id = (document->>'run_id')::uuid AND r.status = 'running';
            GET DIAGNOSTICS changed = ROW_COUNT;
            RETURN NEXT jsonb_build_object('place', document->'place', 'changed', changed);
        WHEN 'set_rule' THEN
            INSERT INTO whence.canon_rules (workspace_id, world_id, rule_id, body, updated_at)
            VALUES (in_workspace, document->>'world_id', document->>'rule_id', document->>'body', at)
            ON CONFLICT (workspace_id, world_id, rule_id) DO UPDATE SET body = excluded.body, updated_at = excluded.updated_at;
            RETURN NEXT jsonb_build_object('place', document->'place');
        WHEN 'drop_rule' THEN
            DELETE FROM whence.canon_rules c
            WHERE c.workspace_id = in_workspace AND c.world_id = document->>'world_id' AND c.rule_id = document->>'rule_id';
            GET DIAGNOSTICS changed = ROW_COUNT;
            RETURN NEXT jsonb_build_object('place', document->'place', 'changed', changed);
        END CASE;
    END LOOP;
END $$;

-- The tables that memory_apply fills.
CREATE FUNCTION whence.memory_tables() RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY['memories', 'memory_vectors', 'memory_sources', 'recalls', 'recall_hits', 'runs', 'canon_rules', 'memory_counts'];
$$;

-- A digest of each table: of the rows' own digests, without the name of the workspace.
CREATE FUNCTION whence.memory_digests(in_workspace text) RETURNS TABLE (name text, digest bytea)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    FOREACH name IN ARRAY whence.memory_tables() LOOP
        EXECUTE format(
            'SELECT sha256(string_agg(row_digest, ''''::bytea ORDER BY row_digest)) FROM ('
            ' SELECT sha256(convert_to((to_jsonb(t) - ''workspace_id'')::text, ''UTF8'')) AS row_digest'
            ' FROM whence.%I t WHERE t.workspace_id = $1) rows', name) INTO digest USING in_workspace;
        RETURN NEXT;
    END LOOP;
END $$;

-- Removes all memory of a workspace, before it is made again.
CREATE FUNCTION whence.memory_clear(in_workspace text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY whence.memory_tables() LOOP
        EXECUTE format('DELETE FROM whence.%I WHERE workspace_id = $1', name) USING in_workspace;
    END LOOP;
END $$;
