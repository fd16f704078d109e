SELECT count(*) FROM generate_series(1, :n) AS n CROSS JOIN LATERAL absurd.spawn_task('work', 'work', jsonb_build_object('n', n));
