-- Ready tasks with bodies of 100 bytes: :n of the action :'action'.
SELECT count(*)
  FROM generate_series(0, (:n - 1) / 100000) AS k
 CROSS JOIN LATERAL taskq.insert_tasks((
       SELECT jsonb_agg(jsonb_build_object('id', :'action' || '-' || i, 'action', :'action', 'body', repeat('x', 100)))
         FROM generate_series(k * 100000 + 1, LEAST((k + 1) * 100000, :n)) AS i));
