SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM taskq.own_tasks('bench', :batch, '{work}') \gset
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens);
