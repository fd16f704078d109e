SELECT * FROM taskq.own_tasks('bench', 1, '{work}', '5 minutes', with_steps => true) \gset
SELECT taskq.return_task(:task_id, :token, 'pending', depends_on => jsonb_build_array(jsonb_build_object('id', 'event ' || :body, 'signal', true)));
