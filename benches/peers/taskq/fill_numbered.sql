SELECT count(*) FROM taskq.insert_many('work', (SELECT array_agg(n::text) FROM generate_series(1, :n) AS n));
