-- The tables without a schema are the library's; the worker's role finds them by its search path.

-- name: defer_own
-- In the scope of a workspace, for that workspace. Returns the id of the job, new or waiting already.
SELECT whence.defer_job(%(job)s);

-- name: defer_each
-- Run as whence_worker. NULL among the workspaces stands for none: the job that looks for workspaces with work.
SELECT whence_jobs.defer(%(job)s, %(workspaces)s::text[], %(at_once)s::boolean);

-- name: own
-- In the scope of a workspace.
SELECT * FROM whence.jobs_of_workspace(%(only_failed)s::boolean, %(before)s::bigint, %(limit)s::integer);

-- name: of_all
-- Run as whence_worker.
SELECT * FROM whence_jobs.told(%(workspace_id)s::text, %(only_failed)s::boolean, %(before)s::bigint, %(limit)s::integer);

-- name: retry
-- Run as whence_worker. The library would take back one that is being worked on as well.
WITH failed AS MATERIALIZED (
    SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'failed' FOR UPDATE
)
SELECT procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM failed;

-- name: note_error
-- Run as whence_worker.
INSERT INTO whence_jobs.job_errors (job_id, error) VALUES (%(job_id)s, %(error)s)
ON CONFLICT ON CONSTRAINT job_errors_pkey DO UPDATE SET error = EXCLUDED.error;

-- name: depth
-- Run as whence_worker. Those that wait for a retry count from when it is due.
SELECT task_name, count(*) FROM procrastinate_jobs
WHERE status = 'todo' AND (scheduled_at IS NULL OR scheduled_at <= now()) GROUP BY task_name;

-- name: workers
-- Run as whence_worker. Those that have been heard of lately.
SELECT count(*) FROM procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => %(seconds)s::float8);

-- name: every_workspace
-- Run as whence_worker.
SELECT workspace_id FROM whence.workspaces;
