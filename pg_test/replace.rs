//! `replace_tasks`: the old task ends as aborted in the moment before, the new one starts afresh.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, column, insert, own_one, perform, refused, state};
    use pgrx::prelude::*;

    fn replace(tasks: &str) -> Vec<String> {
        all(&format!("SELECT taskq.replace_tasks('{tasks}')"))
    }

    #[pg_test]
    fn an_unknown_id_is_inserted() {
        assert_eq!(replace(r#"[{"id": "b", "action": "x"}, {"id": "a", "action": "x"}]"#), ["b", "a"]);
        assert_eq!(state("a"), "ready");
    }

    #[pg_test]
    fn a_task_gives_way_in_every_state_but_in_progress() {
        insert(
            r#"[{"id": "gate", "action": "gate"}, {"id": "ready", "action": "x"},
                {"id": "blocked", "action": "x", "depends_on": ["gate"]},
                {"id": "scheduled", "action": "x", "delay": "1 day"}, {"id": "done", "action": "y"}]"#,
        );
        perform("y", "completed");
        for id in ["ready", "blocked", "scheduled", "done"] {
            assert_eq!(replace(&format!(r#"[{{"id": "{id}", "action": "new", "body": "{id}"}}]"#)), [id]);
            assert_eq!(column(id, "concat_ws(' ', state, body, num_tries)"), format!("ready {id} 0"));
        }
        insert(r#"[{"id": "held", "action": "z"}]"#);
        let grant = own_one("z");
        assert_eq!(
            refused(
                r#"SELECT taskq.replace_tasks('[{"id": "ready", "action": "x"}, {"id": "held", "action": "x"}]')"#
            ),
            "TQ005"
        );
        assert_eq!(grant.give("completed"), "completed", "the token is as good as before");
    }

    #[pg_test]
    fn dependents_of_the_old_one_see_an_abort() {
        insert(
            r#"[{"id": "a", "action": "x"}, {"id": "strict", "action": "y", "depends_on": ["a"]},
                {"id": "tolerant", "action": "y", "depends_on": [{"id": "a", "condition": "settled"}]},
                {"id": "handler", "action": "y", "depends_on": [{"id": "a", "condition": "aborted"}]}]"#,
        );
        replace(r#"[{"id": "a", "action": "x"}]"#);
        assert_eq!(["strict", "tolerant", "handler"].map(state), ["aborted", "ready", "ready"]);
        assert_eq!(column("tolerant", "num_failures"), "1");
        assert_eq!(state("a"), "ready");
        perform("x", "completed");
        assert_eq!(["strict", "tolerant", "handler"].map(state), ["aborted", "ready", "ready"]);
    }
}
