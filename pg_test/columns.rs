//! The tables that are read and written directly are declared as they are.

#[pgrx::pg_schema]
mod tests {
    use crate::pg_test::queue::{all, one};
    use crate::store;
    use pgrx::prelude::*;

    /// Columns of a table in their order: the name, and whether it may be NULL.
    type Columns = Vec<(&'static str, bool)>;

    fn declared() -> [(&'static str, Columns); 13] {
        [
            ("action", store::action_setting::action::columns()),
            ("action_setting", store::action_setting::columns()),
            ("blocked", store::blocked::columns()),
            ("dependency", store::dependency::columns()),
            ("lease", store::lease::columns()),
            ("progress", store::progress::columns()),
            ("run", store::run::columns()),
            ("schedule", store::schedule::columns()),
            ("scheduled", store::scheduled::columns()),
            ("settled", store::settled::columns()),
            ("countdown", store::countdown::columns()),
            ("task", store::task::columns()),
            ("task_group", store::task_group::columns()),
        ]
    }

    #[pg_test]
    fn columns_are_declared_as_they_are() {
        for (table, columns) in declared() {
            let declared: Vec<String> =
                columns.into_iter().map(|(name, null)| format!("{} {null}", name.to_lowercase())).collect();
            let stored = all::<String>(&format!(
                "SELECT attname || ' ' || (NOT attnotnull)::text FROM pg_attribute
                  WHERE attrelid = 'taskq.{table}'::regclass AND attnum > 0 ORDER BY attnum"
            ));
            assert_eq!(declared, stored, "taskq.{table}");
        }
    }

    #[pg_test]
    fn partial_indexes_are_declared_as_they_are() {
        for (table, declared) in [("run", store::run::partial()), ("task", store::task::partial())] {
            for (index, column, has) in declared {
                let condition = match has {
                    "Something" => format!("({} IS NOT NULL)", column.to_lowercase()),
                    _ => format!("({} <> 0)", column.to_lowercase()),
                };
                let stored = all::<String>(&format!(
                    "SELECT pg_get_expr(indpred, indrelid) FROM pg_index
                      WHERE indexrelid = 'taskq.{}'::regclass AND indrelid = 'taskq.{table}'::regclass
                        AND NOT indisunique",
                    index.to_string_lossy()
                ));
                assert_eq!(stored, [condition], "{index:?}");
            }
        }
    }

    #[pg_test]
    fn no_table_has_what_direct_access_would_skip() {
        // Triggers, rules, generated columns, row security, deferred constraints: direct access asks for none of them.
        let queue =
            "IN (SELECT oid FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind = 'r')";
        for odd in [
            format!("SELECT count(*) FROM pg_trigger WHERE tgrelid {queue}"),
            format!("SELECT count(*) FROM pg_rewrite WHERE ev_class {queue}"),
            format!("SELECT count(*) FROM pg_attribute WHERE attgenerated <> '' AND attrelid {queue}"),
            format!(
                "SELECT count(*) FROM pg_constraint WHERE (condeferrable OR contype IN ('f', 'x')) AND conrelid {queue}"
            ),
            format!("SELECT count(*) FROM pg_class WHERE relrowsecurity AND oid {queue}"),
        ] {
            assert_eq!(one::<i64>(&odd), 0, "{odd}");
        }
    }

    #[pg_test]
    fn hashes_are_those_of_the_sql_functions() {
        for text in ["", "g", "Ü \u{1f980}", &"long".repeat(1000)] {
            for seed in [0, 1, -1, i64::MAX] {
                let query = format!("SELECT hashtextextended('{text}' COLLATE \"C\", {seed})");
                assert_eq!(crate::pg::digest::hash(text, seed), one::<i64>(&query));
            }
        }
    }
}
