-- As grant.sql; but the session's first calls find the queue empty, so that all plans are made then.
\if :filled = 0
SELECT count(*) FROM taskq.own_tasks('bench', 1, '{work}', '5 minutes');
SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'work-' || i, 'action', 'work', 'body', repeat('x', 100))) FROM generate_series(1, 100000) AS i));
\set filled 1
\endif
SELECT /* measured */ COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.own_tasks('bench', :batch, '{work}', '5 minutes') \gset
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens, 'pending', retry_after => '0');
