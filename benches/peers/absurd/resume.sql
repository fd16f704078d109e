SELECT run_id, task_id, params ->> 'n' AS n FROM absurd.claim_task('work', 'bench', 300, 1) \gset
SELECT checkpoint_name, state, status, owner_run_id, updated_at FROM absurd.get_task_checkpoint_states('work', :task_id, :run_id);
SELECT absurd.complete_run('work', :run_id, NULL);
