WITH done AS (DELETE FROM floor USING (SELECT id FROM floor ORDER BY id LIMIT :batch FOR UPDATE SKIP LOCKED) AS picked WHERE floor.id = picked.id RETURNING floor.id, floor.payload)
SELECT array_agg(id) AS ids FROM done \gset
