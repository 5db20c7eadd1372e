-- The queue of jobs. Its tables are those of procrastinate, in a schema of their own, because the library's SQL names them
-- without one. A queue spans workspaces, so row-level security cannot keep them apart in it. Instead it holds nothing
-- that would have to be kept apart: names of jobs and ids of workspaces, which constraints below see to, and it is read
-- and written by whence_worker alone. A workspace defers jobs, and sees its own, through two functions.

-- What a library that brings its own schema has applied: its SQL is not ours, and changes with its version.
CREATE TABLE whence.library_migrations (
    library text NOT NULL,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT library_migrations_pkey PRIMARY KEY (library, name)
);
GRANT SELECT ON whence.library_migrations TO whence_app;

CREATE SCHEMA whence_jobs;
GRANT USAGE ON SCHEMA whence_jobs TO whence_worker;
-- By default, so that what a later version of the library adds can be worked with too.
ALTER DEFAULT PRIVILEGES IN SCHEMA whence_jobs GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO whence_worker;
ALTER DEFAULT PRIVILEGES IN SCHEMA whence_jobs GRANT USAGE ON SEQUENCES TO whence_worker;

-- library: procrastinate

-- A job is of a workspace, or looks for workspaces with work, and then knows only when it was due. Its queue is named
-- like it, so that a worker takes only jobs that it knows: during an upgrade there are workers of two versions. Its lock
-- keeps two of the same job and workspace from running, or from waiting, at once.
ALTER TABLE whence_jobs.procrastinate_jobs
    ADD CONSTRAINT jobs_name_form CHECK (task_name ~ '^[a-z][a-z0-9-]{0,62}$' AND queue_name = task_name),
    ADD CONSTRAINT jobs_hold_ids_only CHECK (
        args - 'workspace_id' - 'timestamp' = '{}'
        AND coalesce(jsonb_typeof(args -> 'workspace_id'), 'string') = 'string'
        AND coalesce(args ->> 'workspace_id', 'none') ~ '^[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$'
        AND coalesce(jsonb_typeof(args -> 'timestamp'), 'number') = 'number'
    ),
    ADD CONSTRAINT jobs_lock_is_their_name CHECK (
        coalesce(lock, '') = task_name || '/' || coalesce(args ->> 'workspace_id', '')
        AND queueing_lock IS NOT DISTINCT FROM lock
    );
-- For the jobs of a workspace, newest first.
CREATE INDEX jobs_by_workspace ON whence_jobs.procrastinate_jobs ((args ->> 'workspace_id'), id);

-- Why a job failed the last time: the type of the error, never what it said, which may quote what it failed at.
CREATE TABLE whence_jobs.job_errors (
    job_id bigint CONSTRAINT job_errors_pkey PRIMARY KEY
        CONSTRAINT job_errors_job REFERENCES whence_jobs.procrastinate_jobs ON DELETE CASCADE,
    error text NOT NULL,
    CONSTRAINT job_errors_type_only CHECK (error ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$')
);

-- Queues the job for each workspace, where NULL stands for none; the ids. One that waits already is enough, and is done
-- now instead of when a retry is due, if that is wanted.
CREATE FUNCTION whence_jobs.defer(job text, workspaces text[], at_once boolean) RETURNS SETOF bigint
LANGUAGE sql VOLATILE SET search_path = whence_jobs, pg_temp AS $$
    INSERT INTO procrastinate_jobs AS waiting (queue_name, task_name, lock, queueing_lock, args)
    SELECT job, job, named.lock, named.lock, jsonb_strip_nulls(jsonb_build_object('workspace_id', wanted.workspace_id))
    FROM unnest(workspaces) wanted (workspace_id),
         LATERAL (SELECT job || '/' || coalesce(wanted.workspace_id, '')) named (lock)
    ON CONFLICT (queueing_lock) WHERE status = 'todo'
        DO UPDATE SET scheduled_at = CASE WHEN NOT at_once THEN waiting.scheduled_at END
    RETURNING id;
$$;

-- The newest jobs before one, of a workspace or (NULL) of all.
CREATE FUNCTION whence_jobs.told(in_workspace text, only_failed boolean, before bigint, up_to integer)
RETURNS TABLE (
    job_id bigint, job text, workspace_id text, status text, attempts integer, queued_at timestamptz,
    scheduled_at timestamptz, started_at timestamptz, ended_at timestamptz, error text
)
LANGUAGE sql STABLE SET search_path = whence_jobs, pg_temp AS $$
    SELECT j.id, j.task_name, j.args ->> 'workspace_id', j.status::text, j.attempts, happened.queued_at,
           j.scheduled_at, happened.started_at, happened.ended_at, failure.error
    FROM procrastinate_jobs j
    LEFT JOIN job_errors failure ON failure.job_id = j.id
    CROSS JOIN LATERAL (
        SELECT min(e.at) FILTER (WHERE e.type = 'deferred'), max(e.at) FILTER (WHERE e.type = 'started'),
               max(e.at) FILTER (WHERE e.type IN ('succeeded', 'failed', 'cancelled', 'aborted'))
        FROM procrastinate_events e WHERE e.job_id = j.id
    ) happened (queued_at, started_at, ended_at)
    WHERE (in_workspace IS NULL OR j.args ->> 'workspace_id' = in_workspace)
      AND (NOT only_failed OR j.status = 'failed') AND j.id < before
    ORDER BY j.id DESC LIMIT up_to;
$$;

-- What a workspace may do with the queue, as the owner of it: the two functions act for app.workspace_id and no other.

-- The id of the job, new or waiting already. Part of the caller's transaction, like all else that it does.
CREATE FUNCTION whence.defer_job(job text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = whence_jobs, pg_temp AS $$
DECLARE
    in_workspace constant text := nullif(current_setting('app.workspace_id', true), '');
BEGIN
    IF in_workspace IS NULL THEN
        RAISE insufficient_privilege USING MESSAGE = 'a job is deferred in the scope of a workspace';
    END IF;
    RETURN defer(job, ARRAY[in_workspace], true);
END $$;

CREATE FUNCTION whence.jobs_of_workspace(only_failed boolean, before bigint, up_to integer)
RETURNS TABLE (
    job_id bigint, job text, workspace_id text, status text, attempts integer, queued_at timestamptz,
    scheduled_at timestamptz, started_at timestamptz, ended_at timestamptz, error text
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = whence_jobs, pg_temp AS $$
    SELECT * FROM told(coalesce(current_setting('app.workspace_id', true), ''), only_failed, before, up_to);
$$;

REVOKE ALL ON FUNCTION whence.defer_job(text), whence.jobs_of_workspace(boolean, bigint, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION whence.defer_job(text), whence.jobs_of_workspace(boolean, bigint, integer) TO whence_workspace;
