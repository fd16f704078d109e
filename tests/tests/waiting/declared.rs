//! The procedures that wait are given their arguments as Postgres resolved the call, and give back a row of the type
//! that is declared. A role that may create C functions can declare them as something else: the call is refused then,
//! and the server stays up.

use taskq_tests::{Db, sqlstate};

const WRONG: &[(&str, &str, &str)] = &[
    // A result of another type, by value and by reference; none; two.
    ("wait_for_tasks", "text[], interval, INOUT n text", "'{}', '0', NULL"),
    ("wait_for_tasks", "text[], interval, INOUT n bigint", "'{}', '0', NULL"),
    ("wait_for_tasks", "text[], interval", "'{}', '0'"),
    ("wait_for_tasks", "text[], interval, INOUT n integer, INOUT m integer", "'{}', '0', NULL, NULL"),
    ("wait_for_work", "text[], interval, INOUT n text", "'{}', '0', NULL"),
    ("wait_for_work", "text[], interval, INOUT n jsonb", "'{}', '0', NULL"),
    // Arguments of other types, and too few.
    ("wait_for_tasks", "integer, interval, INOUT n integer", "5, '0', NULL"),
    ("wait_for_tasks", "text[], text, INOUT n integer", "'{}', '0', NULL"),
    ("wait_for_tasks", "text[], INOUT n integer", "'{}', NULL"),
    ("wait_for_work", "bigint, interval, INOUT n boolean", "5, '0', NULL"),
    ("wait_for_work", "INOUT n boolean", "NULL"),
];

#[test]
fn a_procedure_that_is_declared_wrongly_is_refused() {
    let (_db, [mut session]) = Db::connected();
    let library: String = session.one("SELECT probin FROM pg_proc WHERE proname = 'wait_for_tasks'");
    for (name, arguments, values) in WRONG {
        session.run(&format!(
            "CREATE PROCEDURE mine({arguments}) LANGUAGE c AS '{library}', 'taskq_{name}_wrapper'"
        ));
        let error = session.batch_execute(&format!("CALL mine({values})")).unwrap_err();
        assert_eq!(sqlstate(&error), "XX000", "{name}({arguments}): {error:?}");
        session.run("DROP PROCEDURE mine");
    }
}

#[test]
fn the_result_is_written_where_the_caller_has_it() {
    // NULL without a type, NULL with one, a value: what drivers send for the argument that comes back.
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x')");
    for value in ["NULL", "NULL::integer", "7", "7::integer"] {
        let count: i32 = session.one(&format!("CALL taskq.wait_for_tasks('{{a}}', '0', {value})"));
        assert_eq!(count, 0, "{value}");
    }
    for value in ["NULL", "NULL::boolean", "true", "'t'"] {
        let ready: bool = session.one(&format!("CALL taskq.wait_for_work('{{x}}', '0', {value})"));
        assert!(ready, "{value}");
    }
}
