UPDATE floor SET token = gen_random_uuid(), deadline = now() + interval '5 minutes' FROM (SELECT id FROM floor WHERE token IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) AS picked WHERE floor.id = picked.id RETURNING floor.id, floor.payload, floor.token \gset
DELETE FROM floor WHERE id = :id AND token = :token RETURNING id \gset
