//! `pause_group` and `resume_group`, also while claims are open: nothing of a paused group is granted, and nothing that
//! was parked for a pause is left behind by its end.
//!
//! Why: a pause is one row, so claims move what they meet out of their way; a claim that does so while the group is being
//! resumed could strand a task for ever. On wrong code a task is missing after the resume, or check() names it.

use std::thread;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Progress, until};

use crate::{at, call, count, owned};

fn members(group: &str, n: usize) -> Value {
    (1..=n).map(|i| json!({"id": format!("{group}{i:05}"), "action": "x", "group_id": group})).collect()
}

#[test]
fn a_paused_group_is_not_owned_and_comes_back_in_its_order() {
    let (_db, [mut session]) = Db::with_tasks(members("g", 4));
    session.insert(members("h", 2)).unwrap();
    let held = session.own_one("x");
    assert_eq!(count(&mut session, "pause_group('g')"), 3, "one is in progress");
    assert_eq!(count(&mut session, "pause_group('g')"), 0);
    assert_eq!(owned(&mut session, 9, &["x"]), ["h00001", "h00002"]);
    session.give(&held.task_id, held.token, "pending").unwrap();
    session.insert(json!([{"id": "g5", "action": "x", "group_id": "g"}])).unwrap();
    assert!(owned(&mut session, 9, &["x"]).is_empty(), "nor what is given back or new");
    assert!(session.one::<bool>("SELECT paused FROM taskq.groups WHERE group_id = 'g'"));
    assert_eq!(session.state("g00002"), "ready");
    assert_eq!(count(&mut session, "resume_group('g')"), 5);
    assert_eq!(count(&mut session, "resume_group('g')"), 0);
    let mut back = owned(&mut session, 9, &["x"]);
    assert_eq!(back[..3], ["g00002", "g00003", "g00004"]);
    back.sort();
    assert_eq!(back, ["g00001", "g00002", "g00003", "g00004", "g5"]);
}

#[test]
fn twenty_thousand_paused_tasks_hide_no_others_and_are_met_only_once() {
    let (_db, [mut session]) = Db::with_tasks(members("g", 20_000));
    session.insert(json!([{"id": "last", "action": "x"}])).unwrap();
    call(&mut session, "pause_group('g')");
    let mut granted = owned(&mut session, 1, &["x"]);
    if granted.is_empty() {
        // A call may stop half-way, but not for ever.
        granted = owned(&mut session, 1, &["x"]);
    }
    assert_eq!(granted, ["last"]);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.parked"), 20_000);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    call(&mut session, "resume_group('g')");
    assert_eq!(owned(&mut session, 30_000, &["x"]).len(), 20_000);
}

#[test]
fn paused_tasks_of_a_limited_action_hide_no_others() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 1, rate_limit => 5, rate_period => '1 hour')");
    session.insert(members("g", 2_000)).unwrap();
    session.insert(json!([{"id": "last", "action": "x"}])).unwrap();
    call(&mut session, "pause_group('g')");
    assert_eq!(owned(&mut session, 1, &["x"]), ["last"]);
}

#[test]
fn a_claim_open_during_the_resume_strands_nothing() {
    let (db, [mut claim, mut operator]) = Db::with_tasks(members("g", 3));
    call(&mut operator, "pause_group('g')");
    claim.run("BEGIN");
    assert!(owned(&mut claim, 9, &["x"]).is_empty());
    let resuming = operator.background(|s| count(s, "resume_group('g')"));
    let progress = resuming.settle_down(&mut db.connect());
    claim.run("COMMIT");
    let (mut operator, resumed) = resuming.join();
    assert_eq!(resumed, 3, "{progress:?}");
    assert_eq!(owned(&mut operator, 9, &["x"]).len(), 3);
}

#[test]
fn an_open_pause_or_resume_holds_no_claim_up() {
    let (db, [mut claim, mut operator]) = Db::with_tasks(members("g", 3));
    operator.run("BEGIN");
    call(&mut operator, "pause_group('g')");
    let claiming = claim.background(|s| s.own("w", 1, &["x"]).unwrap().len());
    assert_eq!(claiming.settle_down(&mut db.connect()), Progress::Done);
    (claim, _) = claiming.join();
    operator.run("COMMIT");
    assert!(owned(&mut claim, 9, &["x"]).is_empty());
    operator.run("BEGIN");
    call(&mut operator, "resume_group('g')");
    let claiming = claim.background(|s| s.own("w", 9, &["x"]).unwrap().len());
    assert_eq!(claiming.settle_down(&mut db.connect()), Progress::Done);
    (claim, _) = claiming.join();
    operator.run("COMMIT");
    assert_eq!(owned(&mut claim, 9, &["x"]).len(), 2);
}

#[test]
fn a_late_return_still_works_when_only_claims_met_the_paused_task() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    session.insert(members("g", 1)).unwrap();
    let late = session.own_one_with("x", "lease => '1 minute'");
    call(&mut session, "pause_group('g')");
    at(&mut session, 61.0);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    session.complete(&late);
}

#[test]
fn timeouts_are_counted_over_a_pause() {
    let (_db, [mut session]) = Db::connected();
    at(&mut session, 0.0);
    call(&mut session, "set_action('x', lease => '1 minute', max_timeouts => 2)");
    session.insert(members("g", 1)).unwrap();
    session.own_one("x");
    call(&mut session, "pause_group('g')");
    at(&mut session, 61.0);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    call(&mut session, "resume_group('g')");
    session.own_one("x");
    at(&mut session, 200.0);
    assert!(owned(&mut session, 1, &["x"]).is_empty(), "the second deadline was the last");
    assert_eq!(session.state("g00001"), "aborted");
}

#[test]
fn pausing_and_resuming_beside_six_workers_loses_nothing() {
    let (db, [mut main]) = Db::connected();
    for group in ["g", "h", "i"] {
        main.insert(members(group, 400)).unwrap();
    }
    thread::scope(|scope| {
        for seed in 0..6 {
            let mut session = db.connect();
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..120 {
                    let open = random.chance(30);
                    if open {
                        session.run("BEGIN");
                    }
                    let grants = session.own("w", 1 + random.below(4) as i32, &["x"]).unwrap();
                    for grant in &grants {
                        let code = if random.chance(20) { "pending" } else { "completed" };
                        session.give(&grant.task_id, grant.token, code).unwrap();
                    }
                    if open {
                        session.run(if random.chance(30) { "ROLLBACK" } else { "COMMIT" });
                    }
                }
            });
        }
        let mut operator = db.connect();
        scope.spawn(move || {
            let mut random = Random::new(77);
            for _ in 0..150 {
                let verb = random.pick(&["pause", "resume"]);
                call(&mut operator, &format!("{verb}_group('{}')", random.pick(&["g", "h", "i"])));
            }
        });
    });
    assert!(main.broken().is_empty(), "{:?}", main.broken());
    for group in ["g", "h", "i"] {
        call(&mut main, &format!("resume_group('{group}')"));
    }
    // Those that were met while their group was being resumed are held back for a second.
    until("all are done", || {
        for grant in main.own("end", 2000, &["x"]).unwrap() {
            main.complete(&grant);
        }
        (main.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'") == 1200).then_some(())
    });
}
