-- One graph of the :'shape', whose last task is `done`. Every task takes a worker.
CREATE FUNCTION pg_temp.tasks(shape text) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_agg(CASE WHEN waits IS NULL THEN task ELSE task || jsonb_build_object('depends_on', waits) END)
      FROM (
        -- As many tasks without dependencies, to compare with. The last one is called done, too.
        SELECT jsonb_build_object('id', 'n' || i, 'action', 'work'), NULL::jsonb
          FROM generate_series(1, CASE shape WHEN 'flat_1000' THEN 999 WHEN 'flat_10000' THEN 10000
                                             WHEN 'flat_20000' THEN 20400 END) AS i
        UNION ALL
        SELECT jsonb_build_object('id', 'done', 'action', 'work'), NULL WHERE shape LIKE 'flat%'
        UNION ALL
        SELECT jsonb_build_object('id', 'n' || i, 'action', 'work'), NULL
          FROM generate_series(1, 10000) AS i WHERE shape = 'fan_in'
        UNION ALL
        SELECT jsonb_build_object('id', 'done', 'action', 'work'), jsonb_agg('n' || i)
          FROM generate_series(1, 10000) AS i WHERE shape = 'fan_in' HAVING shape = 'fan_in'
        UNION ALL
        SELECT jsonb_build_object('id', CASE WHEN i < 1000 THEN 'n' || i ELSE 'done' END, 'action', 'work'),
               CASE WHEN i > 1 THEN jsonb_build_array('n' || i - 1) END
          FROM generate_series(1, 1000) AS i WHERE shape = 'chain'
        UNION ALL
        SELECT jsonb_build_object('id', 'part' || i, 'action', 'work'), NULL
          FROM generate_series(0, 19999) AS i WHERE shape = 'shards'
        UNION ALL
        SELECT jsonb_build_object('id', 'shard' || i % 400, 'action', 'work'), jsonb_agg('part' || i)
          FROM generate_series(0, 19999) AS i WHERE shape = 'shards' GROUP BY i % 400
        UNION ALL
        SELECT jsonb_build_object('id', 'done', 'action', 'work'), jsonb_agg('shard' || i)
          FROM generate_series(0, 399) AS i WHERE shape = 'shards' HAVING shape = 'shards'
      ) AS all_tasks(task, waits)
$$;
SELECT count(*) FROM taskq.insert_tasks(pg_temp.tasks(:'shape'));
-- What the workers warm up with.
SELECT count(*) FROM taskq.insert_many('warm', array_fill('x'::text, ARRAY[200]));
