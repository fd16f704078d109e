//! Beside a snapshot that is held for long nothing that has been removed goes, and the looks for what is due do not walk over it again
//! and again.

use taskq_tests::Db;

#[test]
fn what_was_due_costs_later_looks_nothing() {
    let (_db, [mut old, mut session]) = Db::connected();
    old.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT");
    old.one::<i64>("SELECT count(*) FROM pg_class");
    session.run(
        "SELECT count(*) FROM taskq.insert_many('z', array_fill(NULL::text, '{10000}'), spontaneous => true, delay => '0.1 seconds');
         SELECT count(*) FROM taskq.insert_many('y', array_fill(NULL::text, '{10000}'), expires_in => '0.1 seconds');
         SELECT pg_sleep(0.2); SELECT taskq.maintain()",
    );
    let left = "SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')";
    while session.one::<i64>(left) > 0 {
        session.run("SELECT taskq.maintain()");
    }
    session.run("SELECT taskq.insert_task('x', 'x')");
    let pages = "SELECT count(*) FROM taskq.own_tasks('w', 0, '{x}')";
    let first = session.pages(pages);
    let next = session.pages(pages);
    assert!(next < 60, "{first} pages, then {next}");
    drop(old);
}
