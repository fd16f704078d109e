\if :begun = 0
SELECT ARRAY[('work', 'work', 0, NULL, NULL, :json::jsonb, NULL)::procrastinate_job_to_defer_v1] AS jobs \gset
\set begun 1
\endif
<<defer_jobs %(jobs)s=:jobs>>;
