-- The rows that its call would make, without the two notifications for each, to which no session listens: a job, and
-- the event that it was deferred.
SET session_replication_role = replica;
WITH jobs AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, args)
    SELECT 'work', 'work', 0, jsonb_build_object('body', repeat('x', 100)) FROM generate_series(1, :n)
    RETURNING id
)
INSERT INTO procrastinate_events (job_id, type) SELECT id, 'deferred' FROM jobs;
