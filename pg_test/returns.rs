//! `return_task` and `return_tasks`: how performances end.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{
        all, column, insert, one, own_one, own_with, owned_ids, perform, refusal, refused, run, set_now,
        state,
    };
    use pgrx::prelude::*;

    #[pg_test]
    fn a_return_settles_with_status_and_result() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]"#);
        let code: String = one(&own_one("x").return_call(r#", status => 'good', result => '{"n": 1}'"#));
        assert_eq!(code, "completed");
        assert_eq!(
            column("a", "concat_ws('|', state, status, result, num_tries)"),
            "completed|good|{\"n\": 1}|1"
        );
        assert_eq!(own_one("x").give("aborted"), "aborted");
        assert_eq!(state("b"), "aborted");
        assert_eq!(one::<i64>("SELECT count(*) FROM taskq.actors"), 0);
    }

    #[pg_test]
    fn a_token_is_good_for_one_return_of_its_own_task() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]"#);
        let grants = own_with(2, "x", "");
        let (a, b) = (&grants[0], &grants[1]);
        let mixed = refusal(&format!("SELECT taskq.return_task('a', '{}')", b.token));
        assert_eq!(mixed.sqlstate, "TQ001");
        assert!(mixed.message.contains("\"a\""), "{mixed:?}");
        assert_eq!(refused("SELECT taskq.return_task('a', gen_random_uuid())"), "TQ001");
        assert_eq!(refused(&format!("SELECT taskq.return_task('absent', '{}')", a.token)), "TQ003");
        assert_eq!(a.give("completed"), "completed");
        assert_eq!(refused(&a.return_call("")), "TQ001");
        run("SELECT taskq.cancel_tasks('{b}')");
        assert_eq!(refused(&b.return_call("")), "TQ001");
    }

    #[pg_test]
    fn pending_becomes_aborted_when_the_tries_are_used_up() {
        insert(
            r#"[{"id": "a", "action": "x", "max_tries": 2}, {"id": "next", "action": "y", "depends_on": ["a"]}]"#,
        );
        assert_eq!(own_one("x").give("pending"), "pending");
        assert_eq!(own_one("x").give("pending"), "aborted");
        assert_eq!(["a", "next"].map(state), ["aborted", "aborted"]);
    }

    #[pg_test]
    fn retry_after_holds_the_next_try_back() {
        set_now("2030-01-01 00:00:00Z");
        insert(r#"[{"id": "a", "action": "x"}]"#);
        run(&own_one("x").return_call(", 'pending', 'busy', retry_after => '5 minutes'"));
        assert_eq!(column("a", "state || ' ' || status"), "scheduled busy");
        set_now("2030-01-01 00:04:59Z");
        assert!(owned_ids(1, "x").is_empty());
        set_now("2030-01-01 00:05:00Z");
        assert_eq!(owned_ids(1, "x"), ["a"]);
        assert_eq!(column("a", "num_tries"), "2");
    }

    #[pg_test]
    fn one_bad_token_spoils_neither_the_call_nor_the_others() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"}]"#);
        let g = own_with(3, "x", "");
        let rows: Vec<String> = all(&format!(
            "SELECT concat_ws(' ', COALESCE(task_id, 'NULL'), COALESCE(status_code::text, '-'), sqlstate)
               FROM taskq.return_tasks(ARRAY['b', 'a', 'absent', 'c', NULL, 'b', 'c'],
                        ARRAY['{1}', '{0}', '{0}', '{0}', '{2}', '{1}', NULL]::uuid[])",
            g[0].token, g[1].token, g[2].token,
        ));
        assert_eq!(
            rows,
            [
                "b completed",
                "a completed",
                "absent - TQ003",
                "c - TQ001",
                "NULL - TQ001",
                "b - TQ001",
                "c - TQ001"
            ]
        );
        assert_eq!(["a", "b", "c"].map(state), ["completed", "completed", "in-progress"]);
    }

    #[pg_test]
    fn the_json_form_ends_each_performance_in_its_own_way() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x"}, {"id": "d", "action": "x"}]"#,
        );
        let g = own_with(4, "x", "");
        let rows: Vec<String> = all(&format!(
            r#"SELECT concat_ws(' ', task_id, COALESCE(status_code::text, '-'), sqlstate) FROM taskq.return_tasks('[
                 {{"task_id": "a", "token": "{}"}},
                 {{"task_id": "b", "token": "{}", "status_code": "aborted", "status": "no", "result": [1]}},
                 {{"task_id": "c", "token": "{}", "status_code": "pending", "retry_after": "1 day"}},
                 {{"task_id": "d", "token": "no uuid"}}]'::jsonb)"#,
            g[0].token, g[1].token, g[2].token,
        ));
        assert_eq!(rows, ["a completed", "b aborted", "c pending", "d - TQ001"]);
        assert_eq!(["a", "b", "c", "d"].map(state), ["completed", "aborted", "scheduled", "in-progress"]);
        assert_eq!(column("b", "status || result::text"), "no[1]");
    }

    #[pg_test]
    fn children_are_inserted_with_the_end_of_their_parent() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "next", "action": "y", "depends_on": ["a"]}]"#);
        let grant = own_one("x");
        let children = r#"children => '[{"id": "child", "action": "z"}]'"#;
        assert_eq!(refused(&grant.return_call(&format!(", 'pending', {children}"))), "22023");
        run(&grant.return_call(&format!(", children_block => true, {children}")));
        assert_eq!(["a", "child", "next"].map(state), ["completed", "ready", "blocked"]);
        perform("z", "completed");
        assert_eq!(state("next"), "ready");
    }

    #[pg_test]
    fn arguments_of_returning_that_make_no_sense_are_refused() {
        insert(r#"[{"id": "a", "action": "x"}]"#);
        let grant = own_one("x");
        for (arguments, code) in [
            (", NULL", "22004"),
            (", 'in-progress'", "22023"),
            (", 'done'", "22023"),
            (", 'pending', retry_after => '-1 s'", "22023"),
        ] {
            assert_eq!(refused(&grant.return_call(arguments)), code, "{arguments}");
        }
        for (call, code) in [
            ("return_task(NULL, gen_random_uuid())", "22004"),
            ("return_task('a', NULL)", "22004"),
            ("return_tasks(NULL, '{}')", "22004"),
            ("return_tasks('{}', NULL)", "22004"),
            ("return_tasks('{a}', '{}')", "22023"),
            ("return_tasks('{}', '{}', 'in-progress')", "22023"),
            ("return_tasks(NULL::jsonb)", "22004"),
            ("return_tasks('{}'::jsonb)", "TQ006"),
            ("return_tasks('[{\"task_id\": \"a\", \"code\": 1}]'::jsonb)", "TQ006"),
        ] {
            assert_eq!(refused(&format!("SELECT * FROM taskq.{call}")), code, "{call}");
        }
        assert_eq!(grant.give("completed"), "completed");
    }
}
