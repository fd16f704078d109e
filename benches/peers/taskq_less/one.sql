SELECT * FROM taskq.own_tasks('bench', 1, '{work}') \gset
SELECT taskq.return_task(:task_id, :token);
