//! `taskq.check()`: silent on a sound queue, and not silent on damage.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, insert, own_one_with, perform, run};
    use pgrx::prelude::*;

    fn problems() -> Vec<String> {
        all("SELECT DISTINCT concat_ws(': ', task_id, problem) FROM taskq.check() ORDER BY 1")
    }

    /// One task in every state, with dependencies.
    fn one_in_every_state() {
        insert(
            r#"[{"id": "held", "action": "h"}, {"id": "ready", "action": "x"}, {"id": "later", "action": "x", "delay": "1 day"},
                {"id": "blocked", "action": "x", "depends_on": ["ready", "held"]}, {"id": "done", "action": "d"},
                {"id": "failed", "action": "d"}, {"id": "goal", "action": "m", "spontaneous": true, "depends_on": ["blocked"]},
                {"id": "free", "action": "x", "depends_on": ["done"]}]"#,
        );
        own_one_with("h", ", '1 hour'");
        perform("d", "completed");
        perform("d", "aborted");
    }

    #[pg_test]
    fn a_queue_with_a_task_in_every_state_is_sound() {
        one_in_every_state();
        assert!(problems().is_empty(), "{:#?}", problems());
    }

    /// What a task's number is, for statements that damage its rows.
    const NUMBER: &str = "(SELECT t.task_no FROM taskq.task AS t WHERE t.id = ";

    fn damaged(statement: &str, expected: &str) {
        one_in_every_state();
        run(&statement.replace("number_of(", NUMBER));
        let problems = problems();
        assert!(problems.iter().any(|p| p.contains(expected)), "{expected} is not among {problems:#?}");
    }

    /// A statement that puts a copy of one of the table's rows beside it, with other values in some columns.
    fn copy(table: &str, changes: &str) -> String {
        format!(
            "INSERT INTO taskq.{table}
             SELECT (jsonb_populate_record(NULL::taskq.{table}, to_jsonb(x) || jsonb_build_object({changes}))).*
               FROM (SELECT * FROM taskq.{table} LIMIT 1) AS x"
        )
    }

    #[pg_test]
    fn a_tally_that_is_not_that_of_the_rows_is_found() {
        damaged(
            "INSERT INTO taskq.end_tally SELECT '-infinity', t.action_no, 'c', 'w', 1, 0 FROM taskq.task AS t WHERE t.id = 'done';
             UPDATE taskq.seal SET until = now() - interval '1 hour'",
            "wrong tally of an action",
        );
    }

    #[pg_test]
    fn a_counter_of_another_action_is_found() {
        damaged("UPDATE taskq.blocked SET action_no = action_no + 1", "blocked: counter of another action");
    }

    #[pg_test]
    fn a_task_in_no_place_is_found() {
        damaged("DELETE FROM taskq.run WHERE task_no = number_of('ready')", "ready: task is in 0 places");
    }

    #[pg_test]
    fn a_task_in_two_places_is_found() {
        damaged(&copy("scheduled", "'task_no', number_of('ready')"), "ready: task is in 2 places");
    }

    #[pg_test]
    fn a_row_without_a_task_is_found() {
        damaged("DELETE FROM taskq.task WHERE id = 'later'", "row without a task");
    }

    #[pg_test]
    fn a_wrong_count_of_dependencies_is_found() {
        damaged(
            "UPDATE taskq.blocked SET remaining = 1 WHERE task_no = number_of('blocked')",
            "blocked: wrong count of dependencies",
        );
    }

    #[pg_test]
    fn a_forgotten_dependency_is_found() {
        damaged(
            &copy("dependency", "'after_no', number_of('ready'), 'run_no', number_of('free')"),
            "free: task has an unsettled dependency but is not blocked",
        );
    }

    #[pg_test]
    fn a_task_that_waits_behind_a_lost_dependency_is_found() {
        damaged(
            &copy("dependency", "'after_no', number_of('failed'), 'run_no', number_of('blocked')"),
            "blocked: task waits although a dependency is lost",
        );
    }

    #[pg_test]
    fn a_deadline_without_a_lease_is_found() {
        damaged("DELETE FROM taskq.lease", "held: deadline without a lease");
    }

    #[pg_test]
    fn a_task_that_is_neither_held_nor_grantable_is_found() {
        damaged(
            "UPDATE taskq.run SET grantable = false WHERE task_no = number_of('ready')",
            "ready: task is neither held nor grantable",
        );
    }

    #[pg_test]
    fn a_claiming_row_that_differs_from_its_task_is_found() {
        damaged(
            "UPDATE taskq.run SET priority = 7 WHERE task_no = number_of('ready')",
            "ready: claiming row differs from its task",
        );
    }

    #[pg_test]
    fn two_slots_with_one_number_are_found() {
        damaged(
            "INSERT INTO taskq.slot (group_id, name, slot_no) VALUES ('', 'x', 1), ('', 'x', 1)",
            "two slots with one number",
        );
    }
}
