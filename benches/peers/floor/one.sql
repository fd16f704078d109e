DELETE FROM floor USING (SELECT id FROM floor ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) AS picked WHERE floor.id = picked.id RETURNING floor.id, floor.payload \gset
