-- As graph_work.sql; but what was owned is returned by the call that owns what comes next.
\if :warm = 0
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.own_tasks('bench', 10, '{warm}', '5 minutes') \gset
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens);
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.return_and_own_tasks('bench', '{}'::text[], '{}'::uuid[], 1, '{warm}', '5 minutes') \gset
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens);
SELECT pg_advisory_lock_shared(7);
SELECT pg_advisory_unlock_shared(7);
SELECT '{}' AS ids, '{}' AS tokens \gset
\set warm 1
\endif
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.return_and_own_tasks('bench', :ids::text[], :tokens::uuid[], :batch, '{work}', '5 minutes') \gset
