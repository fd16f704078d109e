-- Without its notifications, which would be two for each task, for listeners that are not there.
ALTER TABLE procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1;
SELECT count(procrastinate_defer_jobs_v1(array_fill(('work', 'work', 0, NULL, NULL, jsonb_build_object('body', repeat('x', 100)), NULL)::procrastinate_job_to_defer_v1, ARRAY[LEAST(100000, :n - first + 1)])))
  FROM generate_series(1, :n, 100000) AS first;
ALTER TABLE procrastinate_jobs ENABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1;
