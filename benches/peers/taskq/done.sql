SELECT count(*) FROM taskq.tasks WHERE action = 'work' AND state = 'completed'
