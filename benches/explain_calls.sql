-- One call of each kind, on tasks of its own; :n tells the rounds apart.
SELECT 'p' || :n AS p, 'q' || :n AS q, 'c' || :n AS c, 'd' || :n AS d, 'e' || :n AS e \gset
SELECT * FROM taskq.insert_tasks(jsonb_build_array(
    jsonb_build_object('id', :'p', 'action', 'own' || :n), jsonb_build_object('id', :'q', 'action', 'own' || :n),
    jsonb_build_object('id', :'e', 'action', 'other' || :n),
    jsonb_build_object('id', :'c', 'action', 'blocked', 'depends_on', jsonb_build_array(:'p', :'q')),
    jsonb_build_object('id', :'d', 'action', 'blocked', 'depends_on', jsonb_build_array(:'q'))));
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens
  FROM taskq.own_tasks('bench', 2, ARRAY['own' || :n], '1 hour') \gset
SELECT * FROM taskq.extend_tasks_ownership('bench', :'ids', :'tokens', '1 hour');
SELECT * FROM taskq.return_tasks(:'ids', :'tokens');
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens
  FROM taskq.own_tasks('bench', 1, '{even}') \gset
SELECT * FROM taskq.return_tasks(:'ids', :'tokens', 'pending');
SELECT COALESCE(array_agg(task_id), '{}') AS ids, COALESCE(array_agg(token), '{}') AS tokens
  FROM taskq.own_tasks('bench', 100, '{even,odd}', '1 hour') \gset
SELECT * FROM taskq.return_tasks(:'ids', :'tokens', 'aborted');
SELECT taskq.add_dependencies(after => ARRAY[:'d'], run => ARRAY[:'e']);
SELECT * FROM taskq.wait_for_task(:'p', '0');
SELECT * FROM taskq.replace_tasks(jsonb_build_array(jsonb_build_object('id', :'e', 'action', 'blocked')));
SELECT taskq.cancel_tasks(ARRAY[:'d']);
SELECT taskq.delete_tasks(ARRAY[:'e', :'d', :'p']);
SELECT taskq.maintain();
