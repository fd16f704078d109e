\if :begun = 0
SELECT jsonb_agg(jsonb_build_object('action', 'work', 'body', repeat('x', 100))) AS tasks FROM generate_series(1, :batch) \gset
\set begun 1
\endif
SELECT * FROM taskq.insert_tasks(:tasks::jsonb);
