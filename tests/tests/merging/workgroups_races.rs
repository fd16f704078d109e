//! Delays of workgroups that are changed beside claims which go by them.
//!
//! Why: a claim schedules what is held back. On wrong code what it schedules beside the end of a delay stays away for the whole of
//! the old one, or the end waits for as long as claims keep coming.

use taskq_tests::{Db, Progress, Session};

use crate::workgroups::{ACTIONS, api};
use crate::{at, call, owned};

/// A claim that has set the tasks of a delayed workgroup aside, and stays open; and who has delayed it.
fn open_claim(db: &Db) -> (Session, Session) {
    let (mut claim, mut operator) = (api(db), db.connect());
    at(&mut operator, 0.0);
    call(&mut operator, "delay_workgroup('api', '1 hour')");
    claim.run("BEGIN");
    assert_eq!(owned(&mut claim, 9, &ACTIONS), ["other"]);
    (claim, operator)
}

/// A claim has set tasks aside and not committed when the delay ends: the call that ends it waits for that, and brings
/// them forward. Without that they stayed away for the whole of the old delay.
#[test]
fn a_claim_open_while_a_delay_is_made_shorter_leaves_nothing_behind() {
    let db = Db::new();
    let (mut claim, operator) = open_claim(&db);
    let ending = operator.background(|s| call(s, "delay_workgroup('api', '0')"));
    let progress = ending.settle_down(&mut db.connect());
    claim.run("COMMIT");
    let (mut operator, ()) = ending.join();
    assert_eq!(owned(&mut operator, 9, &ACTIONS).len(), 3, "{progress:?}");
}

/// The other way round: the delay is about to be made shorter when a claim meets the tasks. It waits for no other, and
/// looks again in a second.
#[test]
fn a_claim_beside_a_delay_that_is_being_made_shorter_leaves_nothing_behind() {
    let db = Db::new();
    let (mut claim, mut operator) = (api(&db), db.connect());
    at(&mut operator, 0.0);
    call(&mut operator, "delay_workgroup('api', '1 hour')");
    for end in ["ROLLBACK", "COMMIT"] {
        operator.run("BEGIN");
        call(&mut operator, "delay_workgroup('api', '0')");
        let claiming = claim.background(|s| owned(s, 9, &ACTIONS));
        assert_eq!(claiming.settle_down(&mut db.connect()), Progress::Done);
        (claim, _) = claiming.join();
        operator.run(end);
        at(&mut claim, 1.1);
        let found = owned(&mut claim, 9, &ACTIONS).len();
        assert_eq!(found, if end == "COMMIT" { 3 } else { 0 }, "{end}");
        at(&mut claim, 0.0);
    }
}

/// The row of the workgroup is just being made, by a transaction that has also set tasks aside, when a call makes the
/// delay shorter: what that has to bring forward it sees only when it has waited for the row.
#[test]
fn the_first_delay_made_shorter_before_it_is_committed_leaves_nothing_behind() {
    let db = Db::new();
    let (mut worker, mut operator) = (api(&db), db.connect());
    at(&mut operator, 0.0);
    worker.run("BEGIN");
    call(&mut worker, "delay_workgroup('api', '1 hour')");
    assert_eq!(owned(&mut worker, 9, &ACTIONS), ["other"]);
    let shorter = operator.background(|s| call(s, "delay_workgroup('api', '1 minute')"));
    assert_eq!(shorter.settle_down(&mut db.connect()), Progress::Blocked);
    worker.run("COMMIT");
    let (mut operator, ()) = shorter.join();
    at(&mut operator, 59.0);
    assert!(owned(&mut operator, 9, &ACTIONS).is_empty());
    at(&mut operator, 61.0);
    assert_eq!(owned(&mut operator, 9, &ACTIONS).len(), 3);
}

/// One claim after the other parks what belongs to a workgroup or a group, and stays open until the next one has:
/// there is no moment at which none is. A call that ends the delay, or resumes, waits for those that were there before
/// it, and is through.
#[test]
fn claims_that_overlap_for_ever_do_not_keep_a_pause_or_delay_from_ending() {
    let (db, [mut session]) = Db::connected();
    for (hold, end) in [
        ("delay_workgroup('api', '1 hour')", "delay_workgroup('api', '0')"),
        ("pause_group('api')", "resume_group('api')"),
    ] {
        let task =
            |n: usize| format!("SELECT taskq.insert_task('{n}', 'x', workgroup => 'api', group_id => 'api')");
        session.run(&task(0));
        call(&mut session, hold);
        let mut claims = [db.connect(), db.connect()];
        let open = |claim: &mut Session| {
            claim.run("BEGIN");
            assert!(owned(claim, 1, &["x"]).is_empty());
        };
        open(&mut claims[0]);
        let ending = db.connect().background(|s| call(s, end));
        assert_eq!(ending.settle_down(&mut session), Progress::Blocked);
        // One that comes later gets through to nothing, but it does not wait, and is not waited for.
        session.run(&task(1));
        open(&mut claims[1]);
        claims[0].run("COMMIT");
        ending.join();
        claims[1].run("COMMIT");
        let grants = session.own_with("w", 9, &["x"], "wait => '10 seconds'").unwrap();
        let rest = session.own_with("w", 9, &["x"], "wait => '3 seconds'").unwrap();
        assert_eq!(grants.len() + rest.len(), 2, "{end}");
        db.clear();
    }
}

#[test]
fn a_longer_delay_waits_for_no_open_claim() {
    let db = Db::new();
    let (mut claim, operator) = open_claim(&db);
    let delaying = operator.background(|s| call(s, "delay_workgroup('api', '2 hours')"));
    assert_eq!(delaying.settle_down(&mut db.connect()), Progress::Done);
    claim.run("COMMIT");
    let (mut operator, ()) = delaying.join();
    at(&mut operator, 3601.0);
    assert!(owned(&mut operator, 9, &ACTIONS).is_empty(), "back to where they were");
    at(&mut operator, 7201.0);
    assert_eq!(owned(&mut operator, 9, &ACTIONS).len(), 3);
}
