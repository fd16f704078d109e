//! Retention, and the settings `taskq.retention` and `taskq.now`.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, attempt, insert, one, own_with, refused, run, set_now, state};
    use pgrx::prelude::*;

    /// Completes the ready tasks of the action, a hundred at most.
    fn complete_all(action: &str) {
        for grant in own_with(100, action, "") {
            grant.give("completed");
        }
    }

    fn ids() -> Vec<String> {
        run("SELECT taskq.maintain()");
        all("SELECT id FROM taskq.tasks ORDER BY id")
    }

    #[pg_test]
    fn a_settled_task_goes_at_the_end_of_its_retention() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "short", "action": "x", "retention": "1 hour"}, {"id": "default", "action": "x"},
                {"id": "none", "action": "x", "retention": "0"}, {"id": "open", "action": "y"}]"#,
        );
        complete_all("x");
        assert_eq!(ids(), ["default", "open", "short"]);
        set_now("2030-01-01 01:00:00Z");
        assert_eq!(ids(), ["default", "open"]);
        set_now("2030-01-07 23:59:59Z");
        assert_eq!(ids(), ["default", "open"]);
        set_now("2030-01-08 00:00:00Z");
        assert_eq!(ids(), ["open"], "7 days is the default, and what is not settled stays");
    }

    #[pg_test]
    fn the_session_that_settles_a_task_decides_how_long_it_stays() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "ever", "action": "x"}, {"id": "minute", "action": "y"}, {"id": "own", "action": "y", "retention": "1 hour"}]"#,
        );
        run("SET LOCAL taskq.retention = -1");
        complete_all("x");
        run("SET LOCAL taskq.retention = '1min'");
        complete_all("y");
        set_now("2030-01-01 00:01:00Z");
        assert_eq!(ids(), ["ever", "own"]);
        set_now("2130-01-01 00:00:00Z");
        assert_eq!(ids(), ["ever"]);
    }

    #[pg_test]
    fn removal_by_retention_frees_and_deletes_nothing_else() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "a", "action": "x", "retention": "1 hour"}, {"id": "gate", "action": "gate"},
                {"id": "waits", "action": "y", "depends_on": ["a", "gate"]}, {"id": "free", "action": "y", "depends_on": ["a"]}]"#,
        );
        complete_all("x");
        set_now("2030-01-01 02:00:00Z");
        assert_eq!(ids(), ["free", "gate", "waits"]);
        assert_eq!(["free", "waits"].map(state), ["ready", "blocked"]);
        assert!(all::<String>("SELECT problem FROM taskq.check()").is_empty());
        complete_all("gate");
        assert_eq!(state("waits"), "ready");
        assert_eq!(refused("SELECT taskq.wait_for_task('a', '0')"), "TQ003");
        assert_eq!(insert(r#"[{"id": "a", "action": "x"}]"#), ["a"], "its id is free");
    }

    #[pg_test]
    fn maintain_says_whether_there_was_something_to_do() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "a", "action": "x", "delay": "1 minute"}, {"id": "b", "action": "y", "lease": "1 minute"}]"#,
        );
        own_with(1, "y", "");
        assert_eq!(one::<i64>("SELECT taskq.maintain()"), 0);
        set_now("2030-01-01 00:02:00Z");
        assert!(one::<i64>("SELECT taskq.maintain()") > 0);
        assert_eq!(one::<i64>("SELECT taskq.maintain()"), 0);
        let grantable: Vec<String> = all("SELECT task_id FROM taskq.own_tasks('w', 9, '{x,y}')");
        assert_eq!(grantable, ["b", "a"], "in the order in which maintain came to them");
    }

    #[pg_test]
    fn settings_have_units_and_bounds() {
        run("SELECT taskq.clock()"); // loads the library, which declares them
        run("SET LOCAL taskq.retention = '2d'");
        assert_eq!(one::<String>("SELECT current_setting('taskq.retention')"), "2d");
        assert_eq!(refused("SET LOCAL taskq.retention = -2"), "22023");
        assert_eq!(refused("SET LOCAL taskq.retention = 'long'"), "22023");
        assert_ne!(refused("SET LOCAL taskq.retentoin = 1"), "00000", "a misspelt setting is an error");
    }

    #[pg_test]
    fn the_clock_can_be_replaced_by_superusers_only() {
        set_now("2030-01-01 12:00:00Z");
        assert!(one::<bool>("SELECT taskq.clock() = '2030-01-01 12:00:00Z'"));
        set_now("");
        assert!(one::<bool>("SELECT taskq.clock() - clock_timestamp() < interval '1 minute'"));
        run("CREATE ROLE taskq_test_clock");
        run("SET LOCAL ROLE taskq_test_clock");
        let refusal = attempt("SET LOCAL taskq.now = '2030-01-01'");
        assert_eq!(refusal.map(|r| r.sqlstate).as_deref(), Some("42501"));
        run("RESET ROLE");
    }
}
