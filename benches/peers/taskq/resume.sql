SELECT * FROM taskq.own_tasks('bench', 1, '{work}', '5 minutes', with_results => true, with_steps => true) \gset
SELECT taskq.return_task(:task_id, :token);
