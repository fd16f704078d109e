-- Grants, and gives back what was granted, ready again at once, so that the backlog stays as it is.
SELECT /* measured */ COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.own_tasks('bench', :batch, '{work}', '5 minutes') \gset
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens, 'pending', retry_after => '0');
