-- Of the memories with a rare word of a question, those come first that have the most of all its words. Until now only
-- the rare ones counted, and of many that had one of them the newest came first.

DROP FUNCTION whence.memories_with_words(text, text, bigint[], real[], bigint[], bigint);

GRANT CREATE ON SCHEMA whence TO whence_searcher;

-- The memories of an owner with any of the words in `telling`, and with all of `together`: those whose `words` weigh most.
CREATE FUNCTION whence.memories_with_words(
    in_workspace text, in_owner text, telling bigint[], together bigint[], words bigint[], weights real[], at_most bigint
) RETURNS uuid[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
ALTER FUNCTION whence.memories_with_words(text, text, bigint[], bigint[], bigint[], real[], bigint) OWNER TO whence_searcher;
REVOKE ALL ON FUNCTION whence.memories_with_words(text, text, bigint[], bigint[], bigint[], real[], bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION whence.memories_with_words(text, text, bigint[], bigint[], bigint[], real[], bigint)
    TO whence_app, whence_workspace;

REVOKE CREATE ON SCHEMA whence FROM whence_searcher;
