//! Rights: nothing for PUBLIC; a role gets its part with one call, and never the tables.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, attempt, insert, one, refused, run};
    use pgrx::prelude::*;

    /// The SQLSTATE with which a role's statement is refused; `None` if it works.
    fn as_role(role: &str, statement: &str) -> Option<String> {
        run(&format!("SET LOCAL ROLE {role}"));
        let refusal = attempt(statement);
        run("RESET ROLE");
        refusal.map(|refusal| refusal.sqlstate)
    }

    fn denied(role: &str, statements: &[&str]) {
        for statement in statements {
            assert_eq!(as_role(role, statement).as_deref(), Some("42501"), "{role}: {statement}");
        }
    }

    fn allowed(role: &str, statements: &[&str]) {
        for statement in statements {
            assert_eq!(as_role(role, statement), None, "{role}: {statement}");
        }
    }

    const INSERTING: &[&str] = &[
        "SELECT taskq.insert_task('a', 'x', on_conflict => 'skip')",
        "SELECT taskq.insert_tasks('[]')",
        "SELECT taskq.insert_many('x', '{}')",
        "SELECT taskq.replace_tasks('[]')",
        "SELECT taskq.add_dependencies('[]'::jsonb)",
        "SELECT taskq.cancel_tasks('{}')",
        "SELECT taskq.delete_tasks('{}')",
        "SELECT * FROM taskq.wait_for_task('there', '0')",
        "SELECT * FROM taskq.tasks",
    ];
    const WORKING: &[&str] = &[
        "SELECT * FROM taskq.own_tasks('w', 1, '{x}')",
        "SELECT * FROM taskq.extend_tasks_ownership('w', '{}', '{}', '1 s')",
        "SELECT * FROM taskq.return_tasks('{}', '{}')",
        "SELECT * FROM taskq.return_tasks('[]'::jsonb)",
        "SELECT * FROM taskq.return_and_own_tasks('w', '[]', 1, '{x}')",
        "SELECT * FROM taskq.return_and_own_tasks('w', '{}', '{}', 1, '{x}')",
        "SELECT taskq.maintain()",
    ];
    const LOOKING: &[&str] = &[
        "SELECT * FROM taskq.tasks",
        "SELECT * FROM taskq.dependencies",
        "SELECT * FROM taskq.stats",
        "SELECT * FROM taskq.actors",
        "SELECT * FROM taskq.count_tasks()",
    ];
    const INTERNAL: &[&str] = &[
        "SELECT * FROM taskq.task",
        "SELECT * FROM taskq.run",
        "INSERT INTO taskq.graph_guard VALUES (1)",
        "DELETE FROM taskq.settled",
        "SELECT nextval('taskq.position_seq')",
        "SELECT taskq.grant_worker('postgres')",
        "SELECT taskq._before_commit()",
    ];

    #[pg_test]
    fn a_new_role_has_no_rights() {
        insert(r#"[{"id": "there", "action": "y"}]"#);
        run("CREATE ROLE taskq_test_powerless");
        for statements in [INSERTING, WORKING, LOOKING, INTERNAL] {
            denied("taskq_test_powerless", statements);
        }
    }

    #[pg_test]
    fn a_producer_inserts_and_looks_and_does_not_own() {
        insert(r#"[{"id": "there", "action": "y"}]"#);
        run("CREATE ROLE taskq_test_producer; SELECT taskq.grant_producer('taskq_test_producer')");
        allowed("taskq_test_producer", INSERTING);
        allowed("taskq_test_producer", LOOKING);
        denied("taskq_test_producer", WORKING);
        denied("taskq_test_producer", INTERNAL);
        denied("taskq_test_producer", &["SELECT * FROM taskq.check()"]);
        run("SELECT taskq.revoke_producer('taskq_test_producer')");
        denied("taskq_test_producer", INSERTING);
    }

    #[pg_test]
    fn a_worker_does_the_whole_job_and_never_sees_a_table() {
        insert(r#"[{"id": "there", "action": "y"}]"#);
        run("CREATE ROLE taskq_test_worker; SELECT taskq.grant_worker('taskq_test_worker')");
        allowed("taskq_test_worker", INSERTING);
        allowed("taskq_test_worker", WORKING);
        denied("taskq_test_worker", INTERNAL);
        allowed(
            "taskq_test_worker",
            &["SELECT taskq.return_task(g.task_id, g.token) FROM taskq.own_tasks('w', 1, '{y}') AS g"],
        );
        assert_eq!(one::<String>("SELECT state FROM taskq.tasks WHERE id = 'there'"), "completed");
        run("SELECT taskq.revoke_worker('taskq_test_worker')");
        for statements in [INSERTING, WORKING, LOOKING] {
            denied("taskq_test_worker", statements);
        }
    }

    #[pg_test]
    fn a_monitor_looks_and_checks_and_changes_nothing() {
        insert(r#"[{"id": "there", "action": "y"}]"#);
        run("CREATE ROLE \"taskq test Monitor\"; SELECT taskq.grant_monitor('\"taskq test Monitor\"')");
        let monitor = "\"taskq test Monitor\"";
        allowed(monitor, LOOKING);
        allowed(monitor, &["SELECT * FROM taskq.check()", "SELECT * FROM taskq.wait_for_task('there', '0')"]);
        denied(monitor, &INSERTING[..6]);
        denied(monitor, WORKING);
        denied(monitor, INTERNAL);
        run("SELECT taskq.revoke_monitor('\"taskq test Monitor\"')");
        denied(monitor, LOOKING);
    }

    #[pg_test]
    fn granting_wants_a_role() {
        for part in ["inserter", "producer", "worker", "operator", "monitor"] {
            for verb in ["grant", "revoke"] {
                assert_eq!(refused(&format!("SELECT taskq.{verb}_{part}(NULL)")), "22004");
            }
        }
    }

    #[pg_test]
    fn public_has_no_right_to_anything() {
        let open: Vec<String> = all(
            // Grantee 0 is PUBLIC; where nothing was granted or revoked yet, the defaults hold.
            "SELECT x.object FROM (
                SELECT p.oid::regprocedure::text, COALESCE(p.proacl, acldefault('f', p.proowner)) FROM pg_proc AS p
                 WHERE p.pronamespace = 'taskq'::regnamespace
                UNION ALL
                SELECT c.oid::regclass::text, COALESCE(c.relacl, acldefault('r', c.relowner)) FROM pg_class AS c
                 WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
                UNION ALL
                SELECT 'schema taskq', COALESCE(n.nspacl, acldefault('n', n.nspowner)) FROM pg_namespace AS n
                 WHERE n.nspname = 'taskq') AS x(object, rights)
              WHERE EXISTS (SELECT FROM aclexplode(x.rights) AS r WHERE r.grantee = 0)",
        );
        assert!(open.is_empty(), "{open:#?}\nREVOKE ALL … FROM PUBLIC belongs at the end of sql/grants.sql");
    }

    #[pg_test]
    fn functions_that_run_with_the_owners_rights_fix_their_search_path() {
        let unsafe_ones: Vec<String> = all("SELECT p.oid::regprocedure::text FROM pg_proc AS p
              WHERE p.pronamespace = 'taskq'::regnamespace AND p.prosecdef
                AND NOT COALESCE('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)");
        assert!(unsafe_ones.is_empty(), "{unsafe_ones:#?}");
    }
}
