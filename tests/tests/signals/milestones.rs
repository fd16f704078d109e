//! What a rollback leaves uncounted, of a task that no worker ever owns.
//!
//! Why: a call that sleeps undoes what it has no use for, and a spontaneous task is of no worker's action. On wrong
//! code a milestone stays blocked although all it waits for has come, as long as all workers wait in `own_tasks`.

use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

/// `n`, after the milestone `k`, after `p`, whose signal was left to a transaction that was then rolled back.
fn strand(session: &mut Session, holder: &mut Session) {
    session
        .insert(json!([
            {"id": "p", "action": "p"}, {"id": "k", "action": "k", "spontaneous": true, "depends_on": ["p"]},
            {"id": "n", "action": "next", "depends_on": ["k"]},
        ]))
        .unwrap();
    holder.run("BEGIN; SELECT taskq.insert_task('g', 'g', depends_on => '{k}')");
    session.run("SELECT taskq.complete_task('p')");
}

#[test]
fn a_worker_that_waits_for_what_comes_after_gets_it() {
    let (db, [mut session, mut holder]) = Db::connected();
    strand(&mut session, &mut holder);
    let worker = db
        .connect()
        .background(|session| session.own_with("w", 1, &["next"], "wait => '60 seconds'").unwrap());
    session.until_asleep(worker.pid());
    let start = Instant::now();
    holder.run("ROLLBACK");
    assert_eq!(worker.join().1[0].task_id, "n");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn a_call_that_has_waited_counts_it_when_it_ends() {
    for there_is_work in [false, true] {
        let (_db, [mut session, mut holder]) = Db::connected();
        strand(&mut session, &mut holder);
        holder.run("ROLLBACK");
        if there_is_work {
            session.run("SELECT taskq.insert_task('o', 'other')");
        }
        let grants = session.own_with("w", 1, &["other"], "wait => '0.3 seconds'").unwrap();
        assert_eq!(grants.len(), usize::from(there_is_work));
        assert_eq!(session.state("k"), "completed", "there is work: {there_is_work}");
        assert_eq!(session.state("n"), "ready");
    }
}

/// The rollback wakes one sleeper, and it need not be one that has a use for what it counts.
#[test]
fn a_worker_among_those_of_other_pools_gets_it() {
    let (db, [mut session, mut holder]) = Db::connected();
    let sleeper = |action: &'static str, session: &mut Session| {
        let call = db
            .connect()
            .background(move |session| session.own_with("w", 1, &[action], "wait => '60 seconds'").unwrap());
        session.until_asleep(call.pid());
        call
    };
    let mut others: Vec<_> = (0..3).map(|_| sleeper("other", &mut session)).collect();
    let worker = sleeper("next", &mut session);
    others.extend((0..3).map(|_| sleeper("other", &mut session)));
    strand(&mut session, &mut holder);
    for call in others.iter().chain([&worker]) {
        session.until_asleep(call.pid());
    }
    let start = Instant::now();
    holder.run("ROLLBACK");
    assert_eq!(worker.join().1[0].task_id, "n");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    for call in &others {
        session.run(&format!("SELECT pg_cancel_backend({})", call.pid()));
    }
}
