-- A walk reads a level with one search of the index where the level is small, as nearly all are.

-- What is one step away from `nodes`, in no order and some of it more than once.
CREATE FUNCTION whence.graph_next(
    in_workspace text, in_user text, in_build integer, nodes bigint[], direction text, kinds smallint[], as_of bigint
) RETURNS TABLE (node bigint)
LANGUAGE sql STABLE AS $$
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

-- The nodes that can be reached from `starts` along edges of the `kinds`, nearest first, then by number: those that
-- come after `after_depth` and `after_node` in that order, at most `max_nodes` and one more that says that there are
-- more. Nodes of events past `as_of` are left out, so that the pages of one walk fit together while the graph grows.
-- `direction` is up (from source to target), down, or both; both also follows the order of sessions, and goes no
-- further from what is not an event, because a tool or a user leads everywhere.
CREATE OR REPLACE FUNCTION whence.graph_reach(
    in_workspace text, in_user text, in_build integer, starts bigint[], direction text, kinds smallint[],
    max_depth integer, after_depth integer, after_node bigint, max_nodes integer, as_of bigint
) RETURNS TABLE (node bigint, depth integer)
LANGUAGE plpgsql STABLE AS $$
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
