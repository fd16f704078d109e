//! `own_tasks` and `extend_tasks_ownership`: who gets what, for how long.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{
        all, column, insert, one, own_one, own_one_with, own_with, owned_ids, perform, refused, run, set_now,
        state,
    };
    use pgrx::prelude::*;

    #[pg_test]
    fn priority_goes_first_then_age_over_all_actions_together() {
        insert(
            r#"[{"id": "1", "action": "x"}, {"id": "2", "action": "y", "priority": 5}, {"id": "3", "action": "x", "priority": -1},
                {"id": "4", "action": "y"}, {"id": "5", "action": "x", "priority": 5}, {"id": "6", "action": "other"}]"#,
        );
        assert_eq!(owned_ids(3, "x,y"), ["2", "5", "1"]);
        assert_eq!(owned_ids(9, "y,x,nothing,y"), ["4", "3"]);
        assert!(owned_ids(9, "x,y").is_empty());
        assert!(owned_ids(9, "").is_empty());
        assert!(owned_ids(0, "other").is_empty());
    }

    #[pg_test]
    fn one_that_comes_back_goes_to_the_end_of_its_priority() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "low", "action": "x", "priority": -1}]"#,
        );
        assert_eq!(perform("x", "pending"), "a");
        assert_eq!(owned_ids(3, "x"), ["b", "a", "low"]);
    }

    #[pg_test]
    fn each_grant_counts_a_try_and_makes_a_new_token() {
        run("SET taskq.lease = ''");
        insert(r#"[{"id": "a", "action": "x", "body": "b", "metadata": {"m": 1}, "priority": 2}]"#);
        let row: String = one(
            "SELECT concat_ws('|', task_id, action, body, num_tries, num_failures, action_deadline, checkpoint, results,
                              priority, metadata) FROM taskq.own_tasks('ann', 5, '{x}')",
        );
        assert_eq!(row, "a|x|b|1|0|2|{\"m\": 1}");
        assert_eq!(column("a", "concat_ws(' ', state, actor_id, num_tries)"), "in-progress ann 1");
        run(
            "SELECT taskq.cancel_tasks('{a}'); SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"x\"}]')",
        );
        let first = own_one("x");
        first.give("pending");
        let second = own_one("x");
        assert_ne!(first.token, second.token);
        assert_eq!(refused(&first.return_call("")), "TQ001");
        assert_eq!(refused(&first.return_call(", 'pending'")), "TQ001");
        assert_eq!(second.give("completed"), "completed");
    }

    #[pg_test]
    fn the_calls_lease_goes_before_the_tasks_own() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "own", "action": "x", "lease": "1 hour"}, {"id": "call", "action": "x", "lease": "1 hour"},
                {"id": "never", "action": "x"}]"#,
        );
        own_one("x");
        own_one_with("x", ", '1 minute'");
        run("SET taskq.lease = ''");
        own_one("x");
        let deadlines: Vec<String> = all(
            "SELECT concat_ws(' ', task_id, action_deadline AT TIME ZONE 'UTC', overdue) FROM taskq.actors ORDER BY 1",
        );
        assert_eq!(deadlines, ["call 2030-01-01 00:01:00 f", "never f", "own 2030-01-01 01:00:00 f"]);
        set_now("2030-02-01 00:00:00Z");
        assert_eq!(owned_ids(9, "x").len(), 2, "the one without a deadline is not taken away");
    }

    #[pg_test]
    fn a_late_return_succeeds_until_another_worker_is_granted_the_task() {
        set_now("2030-01-01 00:00:00Z");
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]"#);
        let late = own_with(2, "x", ", '1 minute'");
        set_now("2030-01-01 00:02:00Z");
        run("SELECT taskq.maintain()");
        assert_eq!(late[0].give("completed"), "completed");
        assert_eq!(owned_ids(9, "x"), ["b"]);
        assert_eq!(refused(&late[1].return_call("")), "TQ001");
        assert_eq!(column("b", "num_tries"), "2");
    }

    #[pg_test]
    fn a_last_try_that_ran_out_is_aborted_by_the_next_call() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "a", "action": "x", "max_tries": 1}, {"id": "strict", "action": "y", "depends_on": ["a"]},
                {"id": "handler", "action": "y", "depends_on": [{"id": "a", "condition": "aborted"}]}]"#,
        );
        let grant = own_one_with("x", ", '1 minute'");
        set_now("2030-01-01 00:02:00Z");
        // A call for another action leaves it to others in a transaction that stays open.
        assert!(owned_ids(1, "x").is_empty());
        assert_eq!(["a", "strict", "handler"].map(state), ["aborted", "aborted", "ready"]);
        assert!(column("a", "status").contains("deadline"), "the status says why");
        assert_eq!(refused(&grant.return_call("")), "TQ001");
    }

    #[pg_test]
    fn results_of_dependencies_and_a_checkpoint_come_with_the_grant() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}]"#);
        let first = own_one("x");
        run(&first.return_call(r#", result => '{"n": 1}', status => 'fine'"#));
        let grant = own_one("y");
        run(&format!(
            "SELECT taskq.report_status('b', '{}', 'half', progress => 0.5, checkpoint => '{{\"at\": 7}}')",
            grant.token
        ));
        assert_eq!(column("b", "concat_ws(' ', status, progress)"), "half 0.5");
        grant.give("pending");
        let given: String = one(
            "SELECT concat_ws('|', checkpoint, results) FROM taskq.own_tasks('w', 1, '{y}', with_results => true)",
        );
        assert_eq!(
            given,
            "{\"at\": 7}|[{\"action\": \"x\", \"result\": {\"n\": 1}, \"status\": \"fine\", \"task_id\": \"a\", \
             \"status_code\": \"completed\"}]"
        );
    }

    #[pg_test]
    fn extending_answers_pair_by_pair_in_the_order_given() {
        set_now("2030-01-01 00:00:00Z");
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"}]"#);
        let grants = own_with(3, "x", ", '1 minute'");
        grants[1].give("completed");
        set_now("2030-01-01 00:02:00Z");
        run("SELECT taskq.maintain()");
        let answers: Vec<String> = all(&format!(
            "SELECT concat_ws(' ', COALESCE(task_id, 'NULL'), owned)
               FROM taskq.extend_tasks_ownership('bob', ARRAY['c', 'b', 'a', 'a', 'absent', NULL],
                        ARRAY['{c}', '{b}', '{c}', '{a}', '{a}', '{a}']::uuid[], '1 hour')",
            a = grants[0].token,
            b = grants[1].token,
            c = grants[2].token,
        ));
        assert_eq!(answers, ["c t", "b f", "a f", "a t", "absent f", "NULL f"]);
        assert_eq!(
            column("a", "concat_ws(' ', actor_id, action_deadline AT TIME ZONE 'UTC')"),
            "bob 2030-01-01 01:02:00"
        );
        assert!(owned_ids(9, "x").is_empty(), "no other worker may own them before the new deadline");
        run("SELECT taskq.cancel_tasks('{c}')");
        let owned: bool = one(&format!(
            "SELECT owned FROM taskq.extend_tasks_ownership('bob', '{{c}}', '{{{}}}', '1 hour')",
            grants[2].token
        ));
        assert!(!owned, "a cancelled task is not held any more");
    }

    #[pg_test]
    fn arguments_of_owning_that_make_no_sense_are_refused() {
        for (call, code) in [
            ("own_tasks(NULL, 1, '{x}')", "22004"),
            ("own_tasks('w', NULL, '{x}')", "22004"),
            ("own_tasks('w', 1, NULL)", "22004"),
            ("own_tasks('w', 1, '{x,NULL}')", "22004"),
            ("own_tasks('', 1, '{x}')", "22023"),
            ("own_tasks('w', -1, '{x}')", "22023"),
            ("own_tasks('w', 1, '{x}', '-1 s')", "22023"),
            ("own_tasks('w', 1, '{x}', wait => '-1 s')", "22023"),
            ("extend_tasks_ownership(NULL, '{}', '{}', '1 s')", "22004"),
            ("extend_tasks_ownership('w', NULL, '{}', '1 s')", "22004"),
            ("extend_tasks_ownership('w', '{}', NULL, '1 s')", "22004"),
            ("extend_tasks_ownership('w', '{}', '{}', NULL)", "22004"),
            ("extend_tasks_ownership('w', '{a}', '{}', '1 s')", "22023"),
            ("extend_tasks_ownership('w', '{}', '{}', '-1 s')", "22023"),
        ] {
            assert_eq!(refused(&format!("SELECT * FROM taskq.{call}")), code, "{call}");
        }
    }
}
