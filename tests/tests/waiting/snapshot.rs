//! What a sleeper holds: the functions their statement's snapshot, the procedures none.

use taskq_tests::{Db, sqlstate};

use crate::sleeper::{END, Sleeper, WORK};

#[test]
fn a_sleeping_procedure_holds_no_snapshot_and_no_transaction_id() {
    let (db, [mut session, mut watcher]) = Db::connected();
    for (way, wake) in
        [(WORK[1], "SELECT taskq.insert_task('x', 'x')"), (END[1], "SELECT taskq.cancel_tasks('{a}')")]
    {
        for isolation in ["read committed", "repeatable read", "serializable"] {
            session.run("SELECT taskq.delete_tasks('{a,x}'); SELECT taskq.insert_task('a', 'y')");
            let mut caller = db.connect();
            caller.run(&format!("SET default_transaction_isolation = '{isolation}'"));
            let sleeper = Sleeper::start_in(caller, &mut watcher, way);
            let held: String = watcher.one(&format!(
                "SELECT coalesce(backend_xmin::text, 'no snapshot') || ', ' || coalesce(backend_xid::text, 'no id') \
                   FROM pg_stat_activity WHERE pid = {}",
                sleeper.pid()
            ));
            assert_eq!(held, "no snapshot, no id", "{} in {isolation}", way.name);
            session.run(wake);
            sleeper.woken_by(wake);
        }
    }
}

#[test]
fn what_follows_a_procedure_in_a_block_runs_at_the_level_that_is_set() {
    // On wrong code it is READ COMMITTED without a word, and what is to be serializable is not.
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.insert_task('a', 'x'), taskq.insert_task('over', 'y'), taskq.cancel_tasks('{over}');
         CREATE TABLE levels (level text)",
    );
    for level in ["read committed", "repeatable read", "serializable"] {
        for call in [
            "wait_for_work('{x}', '0', ready)",
            "wait_for_work('{unknown}', '10 ms', ready)",
            "wait_for_tasks('{over}', '0', n)",
            "wait_for_tasks('{a,over}', '10 ms', n)",
        ] {
            session.run(&format!(
                "SET default_transaction_isolation = '{level}';
                 TRUNCATE levels"
            ));
            session.run(&format!(
                "DO $$ DECLARE ready boolean; n int; BEGIN
                     CALL taskq.{call};
                     INSERT INTO levels VALUES (current_setting('transaction_isolation'));
                     COMMIT;
                     CALL taskq.{call};
                     INSERT INTO levels VALUES (current_setting('transaction_isolation'));
                 END $$"
            ));
            let levels: Vec<String> = session.all("SELECT level FROM levels");
            assert_eq!(levels, [level, level], "{call}");
        }
    }
}

#[test]
fn vacuum_removes_what_died_during_the_sleep_of_a_procedure() {
    let (db, [mut session, mut watcher]) = Db::connected();
    session.run("CREATE TABLE rows AS SELECT generate_series(1, 100) AS n");
    let sleeper = Sleeper::start(&db, &mut watcher, WORK[1]);
    session.run("DELETE FROM rows");
    session.run("VACUUM rows");
    assert_eq!(session.one::<i64>("SELECT pg_relation_size('rows')"), 0, "the sleeper holds the rows back");
    session.run("SELECT taskq.insert_task('a', 'x')");
    sleeper.woken_by("an insert");
}

#[test]
fn a_procedure_in_a_transaction_block_is_refused() {
    let (_db, [mut session]) = Db::connected();
    for way in [WORK[1], END[1]] {
        session.run("BEGIN");
        let error = session.simple_query(way.call).unwrap_err();
        assert_eq!(sqlstate(&error), "2D000", "{}", way.name);
        assert!(error.as_db_error().unwrap().hint().is_some());
        session.run("ROLLBACK");
    }
}

#[test]
fn bad_time_outs_are_refused_and_zero_looks_once() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'y')");
    for (call, argument) in
        [("wait_for_work('{x}'", "f"), ("wait_for_work('{y}'", "t"), ("wait_for_tasks('{a}'", "0")]
    {
        for (timeout, code) in [("NULL", "22004"), ("'-1 second'", "22023")] {
            let error = session.simple_query(&format!("CALL taskq.{call}, {timeout}, NULL)")).unwrap_err();
            assert_eq!(sqlstate(&error), code, "{call}");
        }
        let answer = session.simple_query(&format!("CALL taskq.{call}, '0', NULL)")).unwrap();
        let answer = answer.iter().find_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(answer, Some(argument), "{call}");
    }
    let error = session.simple_query("CALL taskq.wait_for_tasks('{absent}', '1 second', NULL)").unwrap_err();
    assert_eq!(sqlstate(&error), "TQ003");
}
