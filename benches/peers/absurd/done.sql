SELECT count(*) FROM absurd.t_work WHERE state = 'completed'
