//! DROP EXTENSION, and CREATE EXTENSION again under sessions that used the old one.

use serde_json::json;
use taskq_tests::{Db, Session, sqlstate};

/// How many objects the catalogues know, whatever they are.
fn objects(session: &mut Session) -> String {
    session.one(
        "SELECT concat_ws(' ', (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_proc), \
         (SELECT count(*) FROM pg_type), (SELECT count(*) FROM pg_namespace), (SELECT count(*) FROM pg_operator), \
         (SELECT count(*) FROM pg_cast), (SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_trigger), \
         (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_extension), \
         (SELECT count(*) FROM pg_depend), (SELECT count(*) FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid \
          WHERE d.datname = current_database()), \
         (SELECT count(*) FROM pg_description), (SELECT count(*) FROM pg_default_acl), (SELECT count(*) FROM pg_roles))",
    )
}

#[test]
fn drop_extension_leaves_nothing_behind() {
    let db = Db::empty();
    let mut session = db.connect();
    let before = objects(&mut session);
    session.run("CREATE EXTENSION taskq");
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]}]))
        .unwrap();
    session.own_one("x");
    assert_ne!(objects(&mut session), before);
    session.run("DROP EXTENSION taskq");
    assert_eq!(objects(&mut session), before);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM pg_namespace WHERE nspname = 'taskq'"), 0);
}

#[test]
fn a_session_that_used_the_old_extension_can_use_the_new_one() {
    // Plans, caches and marks of a backend must not outlive the tables that they speak of.
    let (_db, [mut session, mut other]) = Db::connected();
    for round in 0..3 {
        session
            .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]}]))
            .unwrap();
        assert_eq!(other.perform("x", "completed"), "a", "round {round}");
        assert_eq!(session.perform("x", "pending"), "b", "round {round}");
        session.run("DROP EXTENSION taskq; CREATE EXTENSION taskq");
        assert!(other.tasks().is_empty());
    }
}

#[test]
fn what_was_left_to_the_end_of_the_transaction_that_drops_it_is_not_for_a_later_one() {
    // On wrong code the session believes for ever that its work at the end of the transaction is on its way.
    let (_db, [mut session]) = Db::connected();
    let expire = |session: &mut Session| {
        session.set_now(Some("2030-01-01 00:00:00Z"));
        session.insert(json!([{"id": "old", "action": "x", "retention": "1 second"}])).unwrap();
        session.perform("x", "completed");
        session.set_now(Some("2030-01-01 01:00:00Z"));
    };
    let call = "SELECT taskq.own_tasks('w', 1, '{y}')";
    expire(&mut session);
    session.run(&format!("BEGIN; {call}; DROP EXTENSION taskq; COMMIT"));
    session.run("CREATE EXTENSION taskq");
    expire(&mut session);
    session.run(&format!("BEGIN; {call}; COMMIT"));
    assert_eq!(session.tasks(), [], "what has expired is removed at the end of a block");
}

#[test]
fn a_rolled_back_drop_changes_nothing() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x"}]));
    session.run("BEGIN; DROP EXTENSION taskq; ROLLBACK");
    assert_eq!(session.perform("x", "completed"), "a");
}

#[test]
fn a_schema_of_that_name_is_not_taken_over() {
    // A role that may create a schema could otherwise have objects of its own in the extension.
    let db = Db::empty();
    let mut session = db.connect();
    session.run("CREATE SCHEMA taskq");
    let error = session.batch_execute("CREATE EXTENSION taskq").unwrap_err();
    assert_eq!(sqlstate(&error), "42P06");
}
