-- In calls of 100,000.
SELECT count(*)
  FROM generate_series(1, :n, 100000) AS first
 CROSS JOIN LATERAL (
       SELECT json_agg(json_build_object('identifier', 'work', 'payload', json_build_object('body', repeat('x', 100)))) AS jobs
         FROM generate_series(1, LEAST(100000, :n - first + 1))) AS j
 CROSS JOIN LATERAL (<<add_jobs $1=j.jobs $2=false>>) AS added;
