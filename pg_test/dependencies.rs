//! Dependencies: conditions, aborts that travel, edges that are added later.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, column, insert, one, own_one, perform, refusal, refused, run, state};
    use pgrx::prelude::*;

    #[pg_test]
    fn a_condition_decides_what_the_end_of_the_other_means() {
        for settled_first in [false, true] {
            for (condition, end, expected, failures) in [
                ("completed", "completed", "ready", 0),
                ("completed", "aborted", "aborted", 1),
                ("settled", "completed", "ready", 0),
                ("settled", "aborted", "ready", 1),
                ("aborted", "completed", "aborted", 0),
                ("aborted", "aborted", "ready", 1),
            ] {
                let after = format!("{condition} {end} {settled_first}");
                let run_id = format!("run {after}");
                insert(&format!(r#"[{{"id": "{after}", "action": "{after}"}}]"#));
                if settled_first {
                    perform(&after, end);
                }
                insert(&format!(
                    r#"[{{"id": "{run_id}", "action": "y", "depends_on": [{{"id": "{after}", "condition": "{condition}"}}]}}]"#
                ));
                if !settled_first {
                    assert_eq!(state(&run_id), "blocked");
                    perform(&after, end);
                }
                assert_eq!(state(&run_id), expected, "{run_id}");
                assert_eq!(column(&run_id, "num_failures"), failures.to_string(), "{run_id}");
                if expected == "aborted" {
                    assert!(column(&run_id, "status").contains(&after), "the status says why");
                }
            }
        }
    }

    #[pg_test]
    fn a_task_runs_once_all_its_dependencies_are_met() {
        insert(
            r#"[{"id": "join", "action": "y", "depends_on": ["a", {"id": "b", "condition": "settled"}]},
                {"id": "a", "action": "x"}, {"id": "b", "action": "x"}, {"id": "c", "action": "x", "to_signal_after": ["join"]}]"#,
        );
        perform("x", "completed");
        perform("x", "aborted");
        assert_eq!(
            column("join", "concat_ws(' ', state, num_signals, total_dependencies, num_failures)"),
            "blocked 2 3 1"
        );
        perform("x", "completed");
        assert_eq!(one::<i32>("SELECT num_failures FROM taskq.own_tasks('w', 1, '{y}')"), 1);
    }

    #[pg_test]
    fn an_abort_travels_downstream_past_those_that_tolerate_it() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]},
                {"id": "c", "action": "y", "depends_on": ["b"]},
                {"id": "cleanup", "action": "y", "depends_on": [{"id": "c", "condition": "settled"}]},
                {"id": "after", "action": "y", "depends_on": ["cleanup"]}]"#,
        );
        perform("x", "aborted");
        assert_eq!(
            ["a", "b", "c", "cleanup", "after"].map(state),
            ["aborted", "aborted", "aborted", "ready", "blocked"]
        );
    }

    #[pg_test]
    fn an_abort_with_ten_thousand_dependents_takes_one_call() {
        run("SELECT count(*) FROM taskq.insert_tasks((
                SELECT jsonb_build_array('{\"id\": \"root\", \"action\": \"root\"}'::jsonb)
                    || jsonb_agg(jsonb_build_object('action', 'x', 'depends_on', jsonb_build_array('root')))
                  FROM generate_series(1, 10000)))");
        perform("root", "aborted");
        assert_eq!(one::<i64>("SELECT count FROM taskq.count_tasks(actions => '{x}')"), 10_000);
        assert_eq!(one::<String>("SELECT state FROM taskq.count_tasks(actions => '{x}')"), "aborted");
    }

    #[pg_test]
    fn added_dependencies_block_and_are_counted() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "y", "delay": "1 day"},
                {"id": "done", "action": "z"}]"#,
        );
        perform("z", "completed");
        let edges = r#"[{"after": "a", "run": "b"}, {"after": "a", "run": "c", "condition": "settled"}, {"after": "done", "run": "b"}]"#;
        for _ in 0..2 {
            assert_eq!(one::<i64>(&format!("SELECT taskq.add_dependencies('{edges}'::jsonb)")), 2);
        }
        assert_eq!(["b", "c"].map(state), ["blocked", "blocked"]);
        assert_eq!(column("b", "concat_ws(' ', num_signals, total_dependencies)"), "1 2");
        assert_eq!(perform("x", "completed"), "a");
        assert_eq!(["b", "c"].map(state), ["ready", "scheduled"]);
        let shown: Vec<String> =
            all("SELECT concat_ws(' ', after, run, condition, settled) FROM taskq.dependencies ORDER BY 1");
        assert_eq!(shown, ["a b completed t", "a c settled t", "done b completed t"]);
    }

    #[pg_test]
    fn an_added_dependency_that_is_lost_already_aborts_the_task() {
        insert(
            r#"[{"id": "failed", "action": "x"}, {"id": "b", "action": "y"}, {"id": "c", "action": "y", "depends_on": ["b"]}]"#,
        );
        perform("x", "aborted");
        assert_eq!(one::<i64>("SELECT taskq.add_dependencies(after => '{failed}', run => '{b}')"), 0);
        assert_eq!(["b", "c"].map(state), ["aborted", "aborted"]);
    }

    #[pg_test]
    fn dependencies_that_make_no_sense_are_refused() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "y", "depends_on": ["a"]}, {"id": "held", "action": "h"},
                {"id": "done", "action": "d"}]"#,
        );
        own_one("h");
        perform("d", "completed");
        for (after, run, more, code) in [
            ("{a}", "{held}", "", "TQ005"),
            ("{a}", "{done}", "", "TQ005"),
            ("{a}", "{b}", ", condition => 'settled'", "TQ005"),
            ("{a}", "{absent}", "", "TQ003"),
            ("{absent}", "{a}", "", "TQ003"),
            ("{b}", "{a}", "", "TQ004"),
            ("{a}", "{a}", "", "TQ004"),
            ("{a,b}", "{a}", "", "22023"),
            ("{NULL}", "{a}", "", "22004"),
            ("{b}", "{NULL}", "", "22004"),
            ("{a}", "{b}", ", condition => NULL", "22004"),
            ("{a}", "{b}", ", if_missing => 'skip'", "22023"),
            ("{a}", "{b}", ", condition => 'maybe'", "22023"),
        ] {
            let call = format!("SELECT taskq.add_dependencies(after => '{after}', run => '{run}'{more})");
            assert_eq!(refused(&call), code, "{call}");
        }
        let cycle = refusal(r#"SELECT taskq.add_dependencies('[{"after": "b", "run": "a"}]'::jsonb)"#);
        assert!(cycle.detail.contains("a -> b -> a"), "{cycle:?}");
        for malformed in ["{}", "[5]", r#"[{"after": "a"}]"#, r#"[{"after": "a", "run": "b", "when": 1}]"#] {
            assert_eq!(refused(&format!("SELECT taskq.add_dependencies('{malformed}'::jsonb)")), "TQ006");
        }
        assert_eq!(refused("SELECT taskq.add_dependencies(NULL::jsonb)"), "22004");
        let ignored: i64 = one(
            "SELECT taskq.add_dependencies(after => '{absent,a}', run => '{a,b}', if_missing => 'ignore')",
        );
        assert_eq!(ignored, 1);
    }
}
