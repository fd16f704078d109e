//! Spontaneous tasks: no worker; the queue completes them in the transaction that ends their waiting.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, column, insert, one, owned_ids, perform, run, state};
    use pgrx::prelude::*;

    #[pg_test]
    fn a_spontaneous_task_without_open_dependencies_completes_at_once() {
        insert(
            r#"[{"id": "a", "action": "x", "spontaneous": true}, {"id": "b", "action": "x", "depends_on": ["a"]},
                {"id": "c", "action": "m", "spontaneous": true, "depends_on": ["a"]}]"#,
        );
        assert_eq!(["a", "b", "c"].map(state), ["completed", "ready", "completed"]);
        assert_eq!(owned_ids(9, "x,m"), ["b"], "no worker is granted a spontaneous task");
    }

    #[pg_test]
    fn a_spontaneous_task_follows_the_conditions_of_its_dependencies() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"},
                {"id": "all", "action": "m", "spontaneous": true, "depends_on": ["a", "b"]},
                {"id": "over", "action": "m", "spontaneous": true,
                 "depends_on": [{"id": "a", "condition": "settled"}, {"id": "b", "condition": "settled"}]},
                {"id": "next", "action": "y", "depends_on": ["over"]}]"#,
        );
        perform("x", "completed");
        assert_eq!(["all", "over", "next"].map(state), ["blocked", "blocked", "blocked"]);
        perform("x", "aborted");
        assert_eq!(["all", "over", "next"].map(state), ["aborted", "completed", "ready"]);
        assert_eq!(column("over", "concat_ws(' ', num_tries, num_failures)"), "0 1");
    }

    #[pg_test]
    fn a_chain_of_a_thousand_spontaneous_tasks_completes_in_one_call() {
        run("SELECT count(*) FROM taskq.insert_tasks((
                SELECT jsonb_agg(jsonb_build_object('id', 's' || i, 'action', CASE i WHEN 0 THEN 'x' ELSE 'm' END,
                           'spontaneous', i > 0, 'depends_on', CASE WHEN i > 0 THEN jsonb_build_array('s' || i - 1) ELSE '[]' END))
                  FROM generate_series(0, 1000) AS i))");
        assert_eq!(state("s1000"), "blocked");
        perform("x", "completed");
        assert_eq!(one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'"), 0);
        assert!(all::<String>("SELECT problem FROM taskq.check()").is_empty());
    }
}
