SELECT count(*)
  FROM generate_series(0, :size - 1) AS k
 CROSS JOIN LATERAL taskq.insert_tasks((
       SELECT jsonb_agg(jsonb_build_object('id', 'f' || k || '-' || i, 'action', 'done' ))
         FROM generate_series(1, 100) AS i));
SELECT count(r)
  FROM generate_series(0, :size - 1) AS k
 CROSS JOIN LATERAL (SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens
                       FROM taskq.own_tasks('bench', 100, ARRAY['done'], CASE WHEN k >= 0 THEN interval '1 hour' END)) AS g
 CROSS JOIN LATERAL taskq.return_tasks(g.ids, g.tokens) AS r;
SELECT count(*)
  FROM generate_series(0, :size - 1) AS k
 CROSS JOIN LATERAL taskq.insert_tasks((
       SELECT jsonb_agg(jsonb_build_object('id', 'r' || k || '-' || i, 'action', CASE WHEN i % 2 = 0 THEN 'even' ELSE 'odd' END,
                                           'body', repeat('x', 100)))
           || (SELECT jsonb_agg(jsonb_build_object('id', 'b' || k || '-' || i, 'action', 'blocked',
                                                   'depends_on', jsonb_build_array('r' || k || '-' || i)))
                 FROM generate_series(901, 1000) AS i)
           || (SELECT jsonb_agg(jsonb_build_object('id', 's' || k || '-' || i, 'action', 'even', 'delay', '1 day'))
                 FROM generate_series(1, 100) AS i)
         FROM generate_series(1, 1000) AS i));
-- As many names of actions as thousands of tasks.
SELECT count(*)
  FROM taskq.insert_tasks((
       SELECT jsonb_agg(jsonb_build_object('id', 'n' || k, 'action', 'action ' || k)) FROM generate_series(1, :size) AS k));
