-- What a busy client does over and over: tasks with a dependent, owned, extended, given back, returned.
SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_build_array(jsonb_build_object('id', 'a' || n, 'action', 'work'), jsonb_build_object('id', 'b' || n, 'action', 'work'), jsonb_build_object('id', 'c' || n, 'action', 'more', 'depends_on', jsonb_build_array('a' || n, 'b' || n))) FROM nextval('taskq.position_seq') AS n));
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.own_tasks('bench', 3, '{work}', '5 minutes') \gset
SELECT count(*) FROM taskq.extend_tasks_ownership('bench', :ids, :tokens, '10 minutes');
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens);
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens FROM taskq.own_tasks('bench', 1, '{work,more}') \gset
SELECT count(*) FROM taskq.return_tasks(:ids, :tokens, 'pending');
