//! `cancel_tasks`, `delete_tasks`, `retry_tasks` and `wait_for_task`.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, column, insert, one, own_one, perform, refused, run, state};
    use pgrx::prelude::*;

    #[pg_test]
    fn cancelling_aborts_whatever_is_not_settled_and_counts_that() {
        insert(
            r#"[{"id": "held", "action": "h"}, {"id": "ready", "action": "x"}, {"id": "later", "action": "x", "delay": "1 day"},
                {"id": "blocked", "action": "x", "depends_on": ["ready"]}, {"id": "done", "action": "d"},
                {"id": "next", "action": "x", "depends_on": ["held"]}]"#,
        );
        let grant = own_one("h");
        perform("d", "completed");
        let cancelled: i64 =
            one("SELECT taskq.cancel_tasks('{held,ready,later,blocked,done,absent,NULL}', 'no money')");
        assert_eq!(cancelled, 4);
        for id in ["held", "ready", "later", "blocked"] {
            assert_eq!(column(id, "state || ': ' || status"), "aborted: no money");
        }
        assert_eq!(["done", "next"].map(state), ["completed", "aborted"]);
        assert_eq!(refused(&grant.return_call("")), "TQ001");
        assert_eq!(one::<i64>("SELECT taskq.cancel_tasks('{held}')"), 0);
        assert_eq!(refused("SELECT taskq.cancel_tasks(NULL)"), "22004");
    }

    #[pg_test]
    fn deleting_takes_along_what_is_left_without_any_dependency() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "done", "action": "d"}, {"id": "open", "action": "o"},
                {"id": "orphan", "action": "y", "depends_on": ["a"]},
                {"id": "orphan of orphan", "action": "y", "depends_on": ["orphan"]},
                {"id": "freed", "action": "y", "depends_on": ["a", "done"]},
                {"id": "milestone", "action": "y", "spontaneous": true, "depends_on": ["a", "done"]},
                {"id": "still", "action": "y", "depends_on": ["a", "open"]}]"#,
        );
        perform("d", "completed");
        assert_eq!(one::<i64>("SELECT taskq.delete_tasks('{a,absent,NULL}')"), 3);
        let left: Vec<String> = all("SELECT id FROM taskq.tasks ORDER BY id");
        assert_eq!(left, ["done", "freed", "milestone", "open", "still"]);
        assert_eq!(["freed", "milestone", "still"].map(state), ["ready", "completed", "blocked"]);
        assert!(all::<String>("SELECT problem FROM taskq.check()").is_empty());
    }

    #[pg_test]
    fn a_task_in_progress_cannot_be_deleted() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "y"}]"#);
        let grant = own_one("x");
        assert_eq!(refused("SELECT taskq.delete_tasks('{b,a}')"), "TQ005");
        grant.give("completed");
        assert_eq!(one::<i64>("SELECT taskq.delete_tasks('{b,a}')"), 2);
        assert_eq!(refused(&grant.return_call("")), "TQ003");
    }

    #[pg_test]
    fn waiting_looks_once_for_a_time_out_of_zero() {
        insert(r#"[{"id": "a", "action": "x"}]"#);
        let ended =
            "SELECT concat_ws('|', task_id, status_code, status, result) FROM taskq.wait_for_task('a', '0')";
        assert!(all::<String>(ended).is_empty());
        run(&own_one("x").return_call(", status => 'well', result => '[1]'"));
        assert_eq!(all::<String>(ended), ["a|completed|well|[1]"]);
        for (call, code) in [
            ("wait_for_task('absent', '0')", "TQ003"),
            ("wait_for_task(NULL, '0')", "22004"),
            ("wait_for_task('a', NULL)", "22004"),
            ("wait_for_task('a', '-1 s')", "22023"),
        ] {
            assert_eq!(refused(&format!("SELECT * FROM taskq.{call}")), code, "{call}");
        }
    }

    #[pg_test]
    fn causes_have_the_same_names_in_the_view_and_in_the_code() {
        use crate::state::Cause;
        insert(r#"[{"id": "a", "action": "x"}]"#);
        perform("x", "aborted");
        for cause in Cause::of_aborts() {
            run(&format!("UPDATE taskq.settled SET cause = '{}'", cause.stored() as u8 as char));
            assert_eq!(one::<String>("SELECT cause FROM taskq.tasks"), cause.name());
            let shown = all::<String>("SELECT cause FROM taskq.dead_ends");
            assert_eq!(shown.is_empty(), cause == Cause::Skipped, "{shown:?}");
            let retried: i64 = one(&format!(
                "SELECT taskq.retry_tasks(causes => '{{{}}}', actions => '{{y}}')",
                cause.name()
            ));
            assert_eq!(retried, 0, "the name is known");
        }
        assert_eq!(refused("SELECT taskq.retry_tasks(causes => '{spontaneous}')"), "22023");
    }
}
