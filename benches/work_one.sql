SELECT task_id, token FROM taskq.own_tasks('bench', :batch, '{work}', '5 minutes') \gset
SELECT taskq.return_task(:task_id, :token);
