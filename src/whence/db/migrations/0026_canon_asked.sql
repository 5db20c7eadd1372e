-- So that its setting is known in this session.
DO $$ BEGIN PERFORM public.similarity('', ''); END $$;

-- As before, and in normal form once more: a letter and its accent are one again where a sign that is not seen stood
-- between them.
CREATE OR REPLACE FUNCTION whence.as_read(said text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT normalize(regexp_replace(
        normalize(said, NFKC),
        '[\u00AD\u034F\u0600-\u0605\u061C\u06DD\u070F\u0890\u0891\u08E2\u115F\u1160\u17B4\u17B5\u180B-\u180F'
            '\u200B-\u200F\u202A-\u202E\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\U000110BD\U000110CD'
            '\U00013430-\U0001343F\U0001BCA0-\U0001BCA3\U0001D173-\U0001D17A\U000E0000-\U000E0FFF]+',
        '', 'g'), NFKC);
$$;

-- By workspace and world too: what is read of the index must not grow with how many workspaces have the same rules.
CREATE FUNCTION whence.canon_world(workspace_id text, world_id text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT ARRAY[workspace_id || chr(31) || world_id] $$;
DROP INDEX whence.canon_rules_alike;
CREATE INDEX canon_rules_alike ON whence.canon_rules
    USING gin (whence.canon_world(workspace_id, world_id), whence.as_read(body) gin_trgm_ops);

-- The guard's question by itself, so that a close can ask it before it stores what outlives a session. Alike by more than
-- 0.85 as similarities are told, which have seven digits: what is 0.85 alike passes. The owner alone may call it, because
-- it is told whose rules to look at; it runs as the owner for the sake of the trigram index (see the guard in 0008).
CREATE FUNCTION whence.repeated_rule(in_workspace text, in_world text, said text, OUT rule_id text, OUT alike real)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET pg_trgm.similarity_threshold = 0.85
SET gin_fuzzy_search_limit = 0
SET enable_seqscan = off
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
REVOKE ALL ON FUNCTION whence.repeated_rule(text, text, text) FROM PUBLIC;

-- Refuses what repeats a rule of its world. For the owner alone, as above.
CREATE FUNCTION whence.refuse_repeated(
    in_workspace text, in_world text, body text, fact_object text, beside text
) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
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
REVOKE ALL ON FUNCTION whence.refuse_repeated(text, text, text, text, text) FROM PUBLIC;

CREATE OR REPLACE FUNCTION whence.guard_canon() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM whence.refuse_repeated(NEW.workspace_id, NEW.world_id_context, NEW.body, NEW.fact_object, CASE
        -- What was sent may say it in other words: it is the same fact, and so the row is looked at again.
        WHEN TG_OP = 'UPDATE' AND (NEW.body, NEW.fact_object) IS NOT DISTINCT FROM (OLD.body, OLD.fact_object)
        THEN ', in what is remembered already' ELSE '' END);
    RETURN NEW;
END $$;

-- The same of what is told again, in the workspace that the transaction is in: it makes no row, but it is kept as said.
CREATE FUNCTION whence.guard_told(in_world text, body text, fact_object text) RETURNS void
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT whence.refuse_repeated(current_setting('app.workspace_id', true), in_world, body, fact_object, '')
$$;
REVOKE ALL ON FUNCTION whence.guard_told(text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION whence.guard_told(text, text, text) TO whence_workspace;

-- Which of these texts repeat a rule of their world, by their places; in the workspace that the transaction is in.
CREATE FUNCTION whence.canon_repeated(worlds text[], texts text[]) RETURNS TABLE (place bigint, rule_id text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.place, r.rule_id
    FROM unnest(worlds, texts) WITH ORDINALITY t (world, said, place)
    CROSS JOIN LATERAL whence.repeated_rule(current_setting('app.workspace_id', true), t.world, t.said) r
    WHERE r.rule_id IS NOT NULL
$$;
REVOKE ALL ON FUNCTION whence.canon_repeated(text[], text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION whence.canon_repeated(text[], text[]) TO whence_workspace;

-- What was said of a memory, of the document that it is a part of, or of a recall, later on: an explanation asks for it.
CREATE INDEX events_about ON whence.events (workspace_id, parent_event_id)
    WHERE event_type IN ('memory.forgotten', 'memory.feedback', 'resource.processed', 'resource.deleted');
