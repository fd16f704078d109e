-- The client asks for the number of each kind of task once, and then sends it with each fetch.
SELECT 'tasks={' || id || '}' FROM graphile_worker._private_tasks WHERE identifier = 'work'
