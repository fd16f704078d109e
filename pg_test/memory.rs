//! `taskq._session()`: what this session remembers of the queue.

#[pgrx::pg_schema]
mod tests {
    use crate::memory;
    use crate::pg_test::queue::{all, insert, one, own_with, run, set_now};
    use pgrx::prelude::*;

    /// How many entries of a memory are good.
    fn entries(memory: &str) -> i64 {
        one(&format!(
            "SELECT COALESCE(sum(entries), 0)::bigint FROM taskq._session() WHERE memory = '{memory}'"
        ))
    }

    #[pg_test]
    fn what_a_call_has_learnt_is_shown() {
        memory::forget_all();
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]"#);
        own_with(1, "x", "");
        assert_eq!((entries("actions by name"), entries("actions by number")), (1, 1));
        assert_eq!(entries("marks of claims"), 1, "of the priority that was granted");
        let bounds: Vec<bool> =
            all("SELECT valid_until BETWEEN clock_timestamp() AND clock_timestamp() + '1 s' AND version > 0
               FROM taskq._session() WHERE memory LIKE 'actions by %'");
        assert_eq!(bounds, [true, true]);
    }

    #[pg_test]
    fn a_change_of_an_action_ends_what_was_known_of_it() {
        insert(r#"[{"id": "a", "action": "x"}]"#);
        let version = "SELECT version FROM taskq._session() WHERE memory = 'actions by name'";
        let before: i64 = one(version);
        run("SELECT taskq.set_action('x', max_tries => 3)");
        insert(r#"[{"id": "b", "action": "x"}]"#);
        assert!(one::<i64>(version) > before);
    }

    #[pg_test]
    fn a_clock_that_goes_back_ends_what_goes_by_it() {
        set_now("2030-01-01 00:00:00Z");
        insert(r#"[{"id": "a", "action": "x"}]"#);
        own_with(1, "x", "");
        let marks = entries("marks of claims");
        assert_eq!((entries("nothing expired"), marks), (1, 1));
        set_now("2029-01-01 00:00:00Z");
        run("SELECT taskq.clock()");
        assert_eq!((entries("nothing expired"), entries("marks of claims")), (0, 1));
    }

    #[pg_test]
    fn everything_can_be_forgotten_at_any_time() {
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x"}]"#);
        assert_eq!(own_with(1, "x", "").len(), 1);
        memory::forget_all();
        assert_eq!(one::<i64>("SELECT sum(entries)::bigint FROM taskq._session()"), 0);
        assert_eq!(own_with(2, "x", "").len(), 1);
    }
}
