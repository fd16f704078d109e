//! Plans that are kept: none depends on who needed it first, nor on what that session had set.

#[pgrx::pg_schema]
mod tests {
    use crate::pg::kept;
    use crate::pg_test::queue::{all, insert, one, own_one, perform, run};
    use pgrx::prelude::*;

    /// What makes the planner choose otherwise, where it is left the choice.
    const HOSTILE: [&str; 7] = [
        "plan_cache_mode = force_custom_plan",
        "enable_indexscan = off",
        "enable_indexonlyscan = off",
        "enable_nestloop = off",
        "enable_hashjoin = on",
        "enable_seqscan = on",
        "enable_bitmapscan = on",
    ];

    /// Without an index, and of one row: read as a whole.
    const OF_ONE_ROW: [&str; 5] = [
        "FROM taskq.position_seq",
        "FROM taskq.graph_guard",
        "UPDATE taskq.graph_guard",
        "FROM taskq.seal",
        "UPDATE taskq.seal",
    ];

    /// A backend with kept plans drops them all when it is told to, and makes them anew at the next call of each.
    fn forget_plans() {
        run("DISCARD PLANS");
    }

    /// Calls of many kinds, one that an operator makes first.
    fn work() {
        all::<i64>("SELECT taskq.retry_tasks(NULL, status_like => 'nothing')");
        insert(
            r#"[{"id": "a", "action": "x", "group_id": "g", "merge_key": "k", "lease": "1 hour"},
                {"id": "b", "action": "x", "group_id": "g", "depends_on": ["a"]},
                {"id": "c", "action": "y", "delay": "1 hour", "unique_by": {"key": "u"}},
                {"id": "d", "action": "y", "spontaneous": true, "depends_on": ["b"]},
                {"id": "e", "action": "z", "depends_on": ["b"]}, {"id": "f", "action": "z"}]"#,
        );
        all::<String>("SELECT task_id FROM taskq.ancestors('a')");
        run(
            "SELECT taskq.set_action('z', max_concurrency => 2, max_per_group => 1, rate_limit => 100, rate_period => '1 s')",
        );
        run("SELECT * FROM taskq.own_tasks('w', 2, '{x,y}')");
        run("SELECT taskq.cancel_tasks('{a}')");
        run("SELECT taskq.retry_tasks('{a}')");
        perform("x", "completed");
        let grant = own_one("z");
        grant.give("completed");
        run("SELECT taskq.add_dependencies(ARRAY['c'], ARRAY['e'])");
        run("SELECT taskq.pause_group('g'); SELECT taskq.resume_group('g'); SELECT taskq.maintain()");
        run("SELECT taskq.reset_group('g'); SELECT taskq.delete_tasks('{a,b,c,d,e,f}')");
    }

    /// Statements that are not index scans and nested loops, with what they have instead.
    fn wrong() -> Vec<(String, Vec<&'static str>)> {
        let plans = kept::plans();
        assert!(plans.len() > 80, "only {} statements were planned", plans.len());
        let of = |sql: &str, plan: &str| -> Vec<&'static str> {
            let whole: usize = OF_ONE_ROW.iter().map(|table| sql.matches(table).count()).sum();
            [("{HASHJOIN", 0), ("{MERGEJOIN", 0), ("{BITMAPHEAPSCAN", 0), ("{SEQSCAN", whole)]
                .into_iter()
                .filter(|(method, allowed)| plan.matches(method).count() > *allowed)
                .map(|(method, _)| method)
                .collect()
        };
        plans
            .iter()
            .map(|(sql, plan)| (sql.clone(), of(sql, plan)))
            .filter(|(_, found)| !found.is_empty())
            .collect()
    }

    #[pg_test]
    fn a_kept_plan_goes_by_indexes_whatever_its_session_sets() {
        for setting in HOSTILE {
            run(&format!("SET LOCAL {setting}"));
        }
        forget_plans();
        work();
        let found = wrong();
        assert!(found.is_empty(), "{found:#?}");
        let found = kept::planned_for_one_call();
        assert!(found.is_empty(), "{found:#?}");
        // The settings of the session are as they were.
        for setting in HOSTILE {
            let (name, value) = setting.split_once(" = ").unwrap();
            assert_eq!(one::<String>(&format!("SELECT current_setting('{name}')")), value);
        }
    }

    #[pg_test]
    fn plans_that_are_made_again_go_by_indexes_as_well() {
        work();
        for setting in HOSTILE {
            run(&format!("SET LOCAL {setting}"));
        }
        run("ANALYZE");
        forget_plans();
        work();
        let found = wrong();
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Of two things that a statement joins one is looked up for each row of the other: nothing is compared with everything. Statistics of
    /// tables whose rows had not been committed would have it go through a table, and for each row through all that it has in hand.
    #[pg_test]
    fn no_kept_plan_compares_all_with_all_whatever_the_statistics_say() {
        run(
            "UPDATE pg_class SET relpages = 1000, reltuples = 0 WHERE relnamespace = 'taskq'::regnamespace AND relkind IN ('r', 'i')",
        );
        forget_plans();
        work();
        let plans = kept::plans();
        let found: Vec<&str> = plans
            .iter()
            // A condition that a join asks of each pair.
            .filter(|(_, plan)| plan.split("joinqual ").skip(1).any(|condition| !condition.starts_with("<>")))
            .map(|(sql, _)| sql.as_str())
            .collect();
        assert!(found.is_empty(), "{found:#?}");
    }

    #[pg_test]
    fn functions_leave_the_planner_to_the_statements() {
        let own: Vec<String> = all("SELECT p.oid::regprocedure::text FROM pg_proc AS p
              JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname = 'c'
              WHERE p.pronamespace = 'taskq'::regnamespace
                AND EXISTS (SELECT FROM unnest(p.proconfig) AS c WHERE c NOT LIKE 'search_path=%')");
        assert!(own.is_empty(), "{own:#?}");
    }
}
