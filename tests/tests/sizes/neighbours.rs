//! What a call is about may be small, and what others have in the queue large.
//!
//! On wrong code a statement finds what it is about by the index of another column, since it wants it in that order, and goes
//! through the whole table; or what shares a number with the tasks of others is found among them.

use taskq_tests::{Db, Session};

use crate::stale::pages;

const OTHERS: usize = 20_000;
/// More than a few tasks take, and far less than the others do.
const FEW: i64 = 1_500;

fn others(session: &mut Session, keys: &str) {
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_many('others', array_fill('b'::text, ARRAY[{OTHERS}]), {keys})"
    ));
    session.run("ANALYZE");
}

/// One that is planned first reads the catalogs: so it is run once before.
fn read(session: &mut Session, prepare: &str, call: &str) -> i64 {
    session.run(prepare);
    session.run(call);
    session.run(prepare);
    pages(session, call).unwrap()
}

#[test]
fn a_small_group_beside_a_large_one() {
    let (_db, [mut session]) = Db::connected();
    others(&mut session, "group_id => 'large'");
    session.run("SELECT taskq.pause_group('large')");
    // Moves them out of its way, some with each call.
    while session.one::<i64>("SELECT count(*) FROM taskq.parked") < OTHERS as i64 {
        assert!(session.own("w", 1, &["others"]).unwrap().is_empty());
    }
    let insert = "SELECT count(*) FROM taskq.insert_many('x', '{a,b,c}', ids => '{a,b,c}', group_id => 'small', on_conflict => 'skip')";
    let cancelled = format!("{insert}; SELECT taskq.cancel_group('small')");
    let parked =
        format!("{insert}; SELECT taskq.pause_group('small'); SELECT taskq.own_tasks('w', 1, '{{x}}')");
    for (prepare, call) in [
        (insert, "SELECT taskq.graph('small')"),
        (parked.as_str(), "SELECT taskq.resume_group('small')"),
        (insert, "SELECT taskq.cancel_group('small')"),
        (cancelled.as_str(), "SELECT taskq.retry_group('small')"),
        (insert, "SELECT taskq.reset_group('small')"),
        (insert, "SELECT taskq.delete_group('small')"),
    ] {
        let read = read(&mut session, prepare, call);
        assert!(read < FEW, "{read} pages for {call}");
    }
}

#[test]
fn a_merge_key_that_another_action_uses_as_well() {
    let (_db, [mut session]) = Db::connected();
    others(&mut session, "merge_key => 'k'");
    session.run("SELECT taskq.pause_action('others')");
    let insert = "SELECT taskq.insert_task(NULL, 'x', merge_key => 'k')";
    let read = read(&mut session, insert, "SELECT taskq.own_tasks('w', 1, '{x}')");
    assert!(read < FEW, "{read} pages for a key");
}
