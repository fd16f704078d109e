//! `insert_task` and `insert_tasks`: the forms, what is stored, what is refused.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{
        all, column, insert, one, own_one, owned_ids, perform, refusal, refused, set_now, state,
    };
    use pgrx::prelude::*;

    #[pg_test]
    fn insert_task_takes_the_keys_of_a_task_by_name() {
        set_now("2030-01-01 00:00:00Z");
        let id: String = one(
            "SELECT taskq.insert_task('a', 'x', 'body', priority => 3, max_tries => 2, lease => '5 min',
                                      delay => '1 hour', group_id => 'g', retention => '1 day', post_result => true,
                                      metadata => '{\"k\": 1}')",
        );
        assert_eq!(id, "a");
        let stored: String = one(
            "SELECT concat_ws('|', action, body, priority, max_tries, lease, not_before AT TIME ZONE 'UTC',
                              group_id, retention, post_result, spontaneous, metadata, status_code, state, num_tries)
               FROM taskq.tasks WHERE id = 'a'",
        );
        assert_eq!(
            stored,
            "x|body|3|2|00:05:00|2030-01-01 01:00:00|g|1 day|t|f|{\"k\": 1}|pending|scheduled|0"
        );
    }

    #[pg_test]
    fn ids_come_back_in_the_order_given() {
        let ids =
            insert(r#"[{"id": "c", "action": "x"}, {"id": "a", "action": "y"}, {"id": "b", "action": "x"}]"#);
        assert_eq!(ids, ["c", "a", "b"]);
        assert!(insert("[]").is_empty());
    }

    #[pg_test]
    fn a_missing_id_is_generated_in_ascending_order() {
        let ids = insert(r#"[{"action": "x"}, {"action": "x", "id": null}]"#);
        assert!(ids[0] < ids[1], "{ids:?}");
        for id in ids {
            assert_eq!((id.len(), &id[14..15]), (36, "7"), "{id} is a UUID of version 7");
        }
        assert_eq!(one::<String>("SELECT taskq.insert_task(NULL, 'x')").len(), 36);
    }

    #[pg_test]
    fn json_null_means_absent() {
        insert(
            r#"[{"id": "a", "action": "x", "body": null, "priority": null, "max_tries": null, "lease": null,
                 "not_before": null, "delay": null, "depends_on": null, "to_signal_after": null, "spontaneous": null,
                 "post_result": null, "group_id": null, "retention": null, "metadata": null}]"#,
        );
        assert_eq!(state("a"), "ready");
        assert_eq!(
            column("a", "concat_ws('|', priority, max_tries, body, group_id, metadata, spontaneous)"),
            "0|f"
        );
    }

    #[pg_test]
    fn a_string_body_stays_as_it_is_and_others_become_json() {
        for (body, stored) in [
            (r#""text""#, "text"),
            (r#"" \"quoted\"\n""#, " \"quoted\"\n"),
            ("12.50", "12.50"),
            ("true", "true"),
            (r#"{"a": [1, null]}"#, r#"{"a": [1, null]}"#),
            ("[]", "[]"),
        ] {
            let ids = insert(&format!(r#"[{{"action": "x", "body": {body}}}]"#));
            assert_eq!(column(&ids[0], "body"), stored);
        }
    }

    #[pg_test]
    fn not_before_and_delay_hold_a_task_back() {
        set_now("2030-01-01 00:00:00Z");
        insert(
            r#"[{"id": "a", "action": "x", "not_before": "2030-01-01 00:10:00Z"},
                {"id": "b", "action": "x", "delay": "5 minutes"},
                {"id": "c", "action": "x", "not_before": "2029-12-31 00:00:00Z"}]"#,
        );
        assert_eq!(owned_ids(9, "x"), ["c"]);
        set_now("2030-01-01 00:05:00Z");
        assert_eq!(state("b"), "ready", "also before the next claim");
        assert_eq!(owned_ids(9, "x"), ["b"]);
        set_now("2030-01-01 00:10:00Z");
        assert_eq!(owned_ids(9, "x"), ["a"]);
    }

    #[pg_test]
    fn an_id_in_use_is_refused_or_skipped() {
        insert(r#"[{"id": "a", "action": "x", "body": "first"}]"#);
        let refusal = refusal(
            r#"SELECT taskq.insert_tasks('[{"id": "b", "action": "x"}, {"id": "a", "action": "x"}]')"#,
        );
        assert_eq!(refusal.sqlstate, "TQ002");
        assert!(refusal.message.contains("\"a\""), "{refusal:?}");
        assert_eq!(
            refused(
                r#"SELECT taskq.insert_tasks('[{"id": "b", "action": "x"}, {"id": "b", "action": "x"}]')"#
            ),
            "TQ002"
        );
        let ids: Vec<String> = all(
            r#"SELECT taskq.insert_tasks('[{"id": "b", "action": "x", "depends_on": ["a"]}, {"id": "a", "action": "y"}]',
                                         on_conflict => 'skip')"#,
        );
        assert_eq!(ids, ["b"]);
        assert_eq!(column("a", "action || ' ' || body"), "x first");
        assert_eq!(state("b"), "blocked", "by the task that was there");
        let none: Option<String> =
            Spi::get_one("SELECT taskq.insert_task('a', 'x', on_conflict => 'skip')").unwrap();
        assert_eq!(none, None);
    }

    #[pg_test]
    fn a_dependency_on_an_absent_task_is_refused_or_ignored() {
        for key in ["depends_on", "to_signal_after"] {
            let tasks = format!(r#"[{{"id": "a", "action": "x", "{key}": ["absent"]}}]"#);
            let refusal = refusal(&format!("SELECT taskq.insert_tasks('{tasks}')"));
            assert_eq!(refusal.sqlstate, "TQ003");
            assert!(refusal.message.contains("absent"), "{refusal:?}");
        }
        let ids: Vec<String> =
            all("SELECT taskq.insert_task('a', 'x', depends_on => '{absent}', if_missing => 'ignore')");
        assert_eq!((ids, state("a")), (vec!["a".to_owned()], "ready".to_owned()));
    }

    #[pg_test]
    fn a_cycle_is_refused_and_shown() {
        let inside = refusal(
            r#"SELECT taskq.insert_tasks('[{"id": "c", "action": "x", "depends_on": ["b"]},
                                           {"id": "b", "action": "x", "depends_on": ["a"]},
                                           {"id": "a", "action": "x", "depends_on": ["c"]}]')"#,
        );
        assert_eq!(inside.sqlstate, "TQ004");
        assert!(inside.detail.contains("a -> b -> c -> a"), "{inside:?}");
        insert(r#"[{"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]}]"#);
        let through_stored = refusal(
            r#"SELECT taskq.insert_tasks('[{"id": "c", "action": "x", "depends_on": ["b"], "to_signal_after": ["a"]}]')"#,
        );
        assert_eq!(through_stored.sqlstate, "TQ004");
        assert!(through_stored.detail.contains("a -> b -> c -> a"), "{through_stored:?}");
        let itself = refusal("SELECT taskq.insert_task('d', 'x', depends_on => '{d}')");
        assert!(itself.sqlstate == "TQ004" && itself.detail.contains("d -> d"), "{itself:?}");
    }

    #[pg_test]
    fn nothing_can_be_put_before_what_has_started() {
        insert(r#"[{"id": "held", "action": "x"}, {"id": "done", "action": "y"}]"#);
        own_one("x");
        perform("y", "completed");
        for id in ["held", "done"] {
            let refusal =
                refusal(&format!("SELECT taskq.insert_task('a', 'x', to_signal_after => '{{{id}}}')"));
            assert_eq!(refusal.sqlstate, "TQ005");
            assert!(refusal.message.contains(id), "{refusal:?}");
        }
    }

    #[pg_test]
    fn a_malformed_task_is_named_by_element_and_key() {
        for (key, task) in [
            ("action", r#"{"id": "bad"}"#),
            ("action", r#"{"id": "bad", "action": ""}"#),
            ("id", r#"{"id": "", "action": "x"}"#),
            ("acton", r#"{"id": "bad", "action": "x", "acton": 1}"#),
            ("priority", r#"{"id": "bad", "action": "x", "priority": "high"}"#),
            ("max_tries", r#"{"id": "bad", "action": "x", "max_tries": 0}"#),
            ("lease", r#"{"id": "bad", "action": "x", "lease": "soon"}"#),
            ("delay", r#"{"id": "bad", "action": "x", "delay": "-1 s"}"#),
            ("retention", r#"{"id": "bad", "action": "x", "retention": "-1 s"}"#),
            ("metadata", r#"{"id": "bad", "action": "x", "metadata": []}"#),
            (
                "condition",
                r#"{"id": "bad", "action": "x", "depends_on": [{"id": "a", "condition": "maybe"}]}"#,
            ),
        ] {
            let refusal =
                refusal(&format!(r#"SELECT taskq.insert_tasks('[{{"id": "a", "action": "x"}}, {task}]')"#));
            assert_eq!(refusal.sqlstate, "TQ006", "{task}: {refusal:?}");
            assert!(refusal.message.contains(key), "{key} in {refusal:?}");
            assert!(refusal.detail.contains("element 2"), "{refusal:?}");
        }
        for tasks in ["{}", "5", "[5]", r#"["a"]"#, "[[]]"] {
            assert_eq!(refused(&format!("SELECT taskq.insert_tasks('{tasks}')")), "TQ006", "{tasks}");
        }
        assert_eq!(refused("SELECT taskq.insert_task('a', NULL)"), "TQ006");
        assert_eq!(refused("SELECT taskq.insert_task('a', repeat('x', 1001))"), "TQ006");
    }

    #[pg_test]
    fn null_or_unknown_options_are_refused() {
        assert_eq!(refused("SELECT taskq.insert_tasks(NULL)"), "22004");
        assert_eq!(refused("SELECT taskq.insert_tasks('[]', on_conflict => NULL)"), "22004");
        assert_eq!(refused("SELECT taskq.insert_tasks('[]', if_missing => NULL)"), "22004");
        assert_eq!(refused("SELECT taskq.insert_tasks('[]', on_conflict => 'replace')"), "22023");
        assert_eq!(refused("SELECT taskq.insert_tasks('[]', if_missing => 'skip')"), "22023");
    }

    #[pg_test]
    fn ten_thousand_tasks_with_dependencies_go_in_at_once() {
        let count: i64 = one(
            "SELECT count(*) FROM taskq.insert_tasks((
                SELECT jsonb_agg(jsonb_build_object('id', 'n' || i, 'action', 'x',
                           'depends_on', CASE WHEN i > 100 THEN jsonb_build_array('n' || i % 100 + 1) ELSE '[]' END))
                  FROM generate_series(1, 10000) AS i))",
        );
        assert_eq!(count, 10_000);
        let counts: Vec<String> = all("SELECT state || ' ' || count FROM taskq.count_tasks() ORDER BY state");
        assert_eq!(counts, ["blocked 9900", "ready 100"]);
    }
}
