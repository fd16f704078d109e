//! Statistics of one table only: of the dependencies, which a large fan-in has just come into, while what has settled since
//! was never analyzed. That is what autovacuum makes of a branch export. The planner then takes what has settled for a few
//! rows, and would look for the dependencies of each.

use taskq_tests::Db;

use crate::stale::pages;

#[test]
fn a_retry_reads_what_it_is_about() {
    let (_db, [mut session]) = Db::connected();
    for table in ["dependency", "settled", "task"] {
        session.run(&format!("ALTER TABLE taskq.{table} SET (autovacuum_enabled = off)"));
    }
    session.run("SELECT count(*) FROM taskq.insert_many('part', array_fill('b'::text, '{20000}'), ids => ARRAY(SELECT 'part ' || i FROM generate_series(1, 20000) AS i), group_id => 'g')");
    session.run("SELECT taskq.insert_task('all', 'end', depends_on => ARRAY(SELECT 'part ' || i FROM generate_series(1, 20000) AS i), group_id => 'g')");
    session.run("ANALYZE taskq.dependency");
    session.run("SELECT taskq.cancel_group('g'), taskq.insert_task('first', 'x'), taskq.insert_task('second', 'x', depends_on => '{first}')");
    session.run("SELECT taskq.cancel_tasks('{first}')");
    let read = pages(&mut session, "SELECT taskq.retry_tasks('{first}')").unwrap();
    assert_eq!(session.state("second"), "blocked");
    assert!(read < 2_000, "{read} pages for two tasks");
}
