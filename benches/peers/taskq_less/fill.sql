-- In calls of 100,000.
SELECT count(*)
  FROM generate_series(1, :n, 100000) AS first
 CROSS JOIN LATERAL taskq.insert_many('work', array_fill(repeat('x', 100), ARRAY[LEAST(100000, :n - first + 1)]));
