WITH taken AS (UPDATE floor SET token = gen_random_uuid(), deadline = now() + interval '5 minutes' FROM (SELECT id FROM floor WHERE token IS NULL ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED) AS picked WHERE floor.id = picked.id RETURNING floor.id, floor.payload, floor.token)
SELECT array_agg(id) AS ids, array_agg(token) AS tokens FROM taken \gset
WITH done AS (DELETE FROM floor USING unnest(:ids::bigint[], :tokens::uuid[]) AS u(id, token) WHERE floor.id = u.id AND floor.token = u.token RETURNING floor.id)
SELECT count(*) FROM done;
