//! Claims and returns beside transactions that hold the very entries: nothing waits.
//!
//! Why: a claim that moves an entry out of its way removes its row, and an inserter that attaches a dependency to that entry
//! holds it. On wrong code the claim waits for the inserter's commit.

use serde_json::json;
use taskq_tests::{Db, Progress, Session, until};

use crate::{call, owned};

#[test]
fn a_claim_that_moves_an_entry_does_not_wait_for_a_new_dependent_of_it() {
    for (what, hold) in [
        ("pause", "pause_group('g')"),
        ("workgroup", "delay_workgroup('w', '1 hour')"),
        ("limit", "set_group('g', max_concurrency => 0)"),
        ("turns", "set_action('x', fair => true)"),
    ] {
        let (db, [mut open, mut main]) = Db::connected();
        main.insert(json!([
            {"id": "a", "action": "x", "group_id": "g", "workgroup": "w"}, {"id": "b", "action": "x"},
        ]))
        .unwrap();
        call(&mut main, hold);
        open.run("BEGIN");
        open.insert(json!([{"id": "after", "action": "y", "depends_on": ["a"]}])).unwrap();
        let claim = db.connect().background(|s| owned(s, 9, &["x"]));
        assert_eq!(claim.settle_down(&mut main), Progress::Done, "{what}");
        let (mut session, mut got) = claim.join();
        got.sort_unstable();
        if what == "turns" {
            assert_eq!(got, ["a", "b"])
        } else {
            assert_eq!(got, ["b"], "{what}")
        }
        open.run("COMMIT");
        assert!(
            owned(&mut session, 9, &["x"]).is_empty(),
            "{what}: it is still held back, and now out of the way"
        );
        assert_eq!(
            main.state("a"),
            if what == "turns" {
                "in-progress"
            } else if what == "workgroup" {
                "scheduled"
            } else {
                "ready"
            }
        );
        assert_eq!(main.state("after"), "blocked");
        if what == "pause" {
            let aside = "SELECT count(*) FROM taskq.run WHERE aside IS NOT NULL AND NOT grantable";
            assert_eq!(main.one::<i64>(aside), 1);
            call(&mut main, "resume_group('g')");
            assert_eq!(owned(&mut session, 9, &["x"]), ["a"]);
        }
    }
}

#[test]
fn an_entry_to_which_a_dependent_is_being_attached_rides_where_it_is() {
    for (most, end) in [(1, "COMMIT"), (9, "COMMIT"), (9, "ROLLBACK")] {
        let (db, [mut open, mut main]) = Db::connected();
        let task = |id: &str| json!({"id": id, "action": "x", "merge_key": "k"});
        main.insert(json!([task("a"), task("b"), task("c")])).unwrap();
        open.run("BEGIN");
        open.insert(json!([{"id": "after", "action": "y", "depends_on": ["b"]}])).unwrap();
        let claim = db.connect().background(move |s| s.own("w", most, &["x"]).unwrap());
        assert_eq!(
            claim.settle_down(&mut main),
            Progress::Done,
            "{most} at a time: the claim waits for no other"
        );
        let (mut session, grants) = claim.join();
        assert_eq!(grants.iter().map(|g| g.task_id.as_str()).collect::<Vec<_>>(), ["a"]);
        open.run(end);
        assert!(owned(&mut main, 9, &["x"]).is_empty(), "b and c ride");
        let why: Vec<String> = main.all("SELECT taskq.why('b')");
        assert!(why.iter().any(|why| why.contains("\"a\"")), "{why:?}");
        session.give_with("a", grants[0].token, "completed", "result => '3'").unwrap();
        for id in ["a", "b", "c"] {
            assert_eq!(main.task(id).unwrap().result, Some(json!(3)), "{id}");
        }
        if end == "COMMIT" {
            assert_eq!(main.state("after"), "ready");
        }
    }
}

#[test]
fn a_rider_that_is_still_held_when_its_leader_ends_is_not_waited_for_and_runs_later() {
    for end in ["completed", "pending"] {
        let (db, [mut open, mut main]) = Db::connected();
        main.insert(json!([
            {"id": "a", "action": "x", "merge_key": "k"}, {"id": "b", "action": "x", "merge_key": "k"},
        ]))
        .unwrap();
        open.run("BEGIN");
        open.insert(json!([{"id": "after", "action": "y", "depends_on": ["b"]}])).unwrap();
        let leader = main.own_one("x");
        let ending = db.connect().background(move |s| {
            let retry = if end == "pending" { "retry_after => '0'" } else { "status => NULL" };
            s.give_with("a", leader.token, end, retry).unwrap();
        });
        assert_eq!(ending.settle_down(&mut main), Progress::Done, "it waits for no open insert");
        drop(ending.join());
        assert_eq!(main.state("b"), "ready");
        open.run("COMMIT");
        let next = main.own("w", 1, &["x"]).unwrap().remove(0);
        assert_eq!(next.task_id, if end == "pending" { "a" } else { "b" });
        main.complete(&next);
        assert_eq!(main.state("b"), "completed", "{end}");
    }
}

#[test]
fn a_rider_that_is_locked_when_its_leader_settles_runs_a_moment_later() {
    // No other call knows of it then: its leader is gone, and the transaction that changes it knows nothing of leaders.
    let (db, [mut open, mut main]) = Db::connected();
    main.insert(json!([
        {"id": "a", "action": "x", "merge_key": "k"}, {"id": "b", "action": "x", "merge_key": "k"},
    ]))
    .unwrap();
    open.run("BEGIN");
    open.insert(json!([{"id": "after", "action": "y", "depends_on": ["b"]}])).unwrap();
    let leader = main.own_one("x");
    open.run("COMMIT; BEGIN; SELECT FROM taskq.run r JOIN taskq.task t USING (task_no) WHERE t.id = 'b' FOR UPDATE OF r");
    let ending = db.connect().background(move |s| s.complete(&leader));
    assert_eq!(ending.settle_down(&mut main), Progress::Done, "it waits for no other");
    drop(ending.join());
    open.run("COMMIT");
    until("the rider is granted", || (owned(&mut main, 9, &["x"]) == ["b"]).then_some(()));
}

/// The row of a key goes with the last task that has it, and is locked until then: that of no other key is.
#[test]
fn a_task_that_is_deleted_keeps_no_other_key_busy() {
    let (_db, [mut open, mut main]) = Db::connected();
    let task = |id: &str, key: &str| json!({"id": id, "action": "x", "merge_key": key});
    main.insert(json!([task("done", "k")])).unwrap();
    main.perform("x", "completed");
    main.insert(json!([task("other", "l")])).unwrap();
    open.run("BEGIN");
    call(&mut open, "delete_tasks('{done}')");
    assert_eq!(owned(&mut main, 9, &["x"]), ["other"]);
    open.run("COMMIT");
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.merge_key"), 1);
}

#[test]
fn a_claim_that_stays_open_keeps_a_key_busy_in_its_action_only() {
    let (_db, [mut open, mut main]) = Db::connected();
    let task = |id: &str, action: &str| json!({"id": id, "action": action, "merge_key": "k"});
    main.insert(json!([task("a", "x"), task("b", "y")])).unwrap();
    open.run("BEGIN");
    assert_eq!(owned(&mut open, 1, &["x"]), ["a"]);
    assert_eq!(owned(&mut main, 1, &["y"]), ["b"]);
    open.run("COMMIT");
}

#[test]
fn a_claim_that_stays_open_keeps_a_key_busy_in_its_group_only() {
    let (_db, [mut open, mut main]) = Db::connected();
    let task = |id: &str, group: &str| json!({"id": id, "action": "x", "group_id": group, "merge_key": "k"});
    main.insert(json!([task("a", "g"), task("b", "h")])).unwrap();
    open.run("BEGIN");
    assert_eq!(owned(&mut open, 1, &["x"]), ["a"]);
    assert_eq!(owned(&mut main, 1, &["x"]), ["b"]);
    open.run("COMMIT");
}

/// The first entry of a group that is paused has the claim look ahead for others.
#[test]
fn a_claim_that_moves_a_backlog_does_not_wait_for_a_cancel_in_it() {
    let (db, [mut open, mut main]) = Db::connected();
    let task = |id: &str| json!({"id": id, "action": "x", "group_id": "g"});
    main.insert(json!([task("a"), task("b"), task("c"), {"id": "free", "action": "x"}])).unwrap();
    call(&mut main, "pause_group('g')");
    open.run("BEGIN");
    call(&mut open, "cancel_tasks('{b}')");
    let claim = db.connect().background(|s| owned(s, 9, &["x"]));
    assert_eq!(claim.settle_down(&mut main), Progress::Done);
    assert_eq!(claim.join().1, ["free"]);
    open.run("ROLLBACK");
    call(&mut main, "resume_group('g')");
    let mut all = owned(&mut main, 9, &["x"]);
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "c"]);
}

#[test]
fn a_claim_does_not_wait_for_a_cancel_of_what_would_ride_along() {
    let (db, [mut open, mut main]) = Db::connected();
    let task = |id: &str| json!({"id": id, "action": "x", "merge_key": "k"});
    main.insert(json!([task("a"), task("b")])).unwrap();
    open.run("BEGIN");
    call(&mut open, "cancel_tasks('{b}')");
    let claim = db.connect().background(|s| owned(s, 1, &["x"]));
    assert_eq!(claim.settle_down(&mut main), Progress::Done);
    assert_eq!(claim.join().1, ["a"]);
    open.run("COMMIT");
}

/// An actor that comes late holds its task again if it can have the key. The transaction that has locked the key may go
/// on for long, and is not waited for: the task stays in the queue.
#[test]
fn an_extension_after_the_deadline_does_not_wait_for_a_locked_key() {
    let (db, [mut holder, mut claim, mut main]) = Db::connected();
    main.insert(json!([{"id": "a", "action": "x", "merge_key": "k"}])).unwrap();
    let late = main.own_one_with("x", "lease => '0.1 seconds'");
    until("the deadline passes", || {
        call(&mut main, "maintain()");
        main.one::<bool>("SELECT grantable FROM taskq.run").then_some(())
    });
    // A claim that locks the key, and cannot have the entry.
    holder.run("BEGIN; SELECT FROM taskq.run FOR UPDATE");
    claim.run("BEGIN");
    assert!(owned(&mut claim, 1, &["x"]).is_empty());
    holder.run("ROLLBACK");
    let hold = move |s: &mut Session| s.extend("worker", &[("a", late.token)], "1 hour").unwrap();
    let extension = db.connect().background(hold);
    assert_eq!(extension.settle_down(&mut main), Progress::Done, "it waits for no other");
    let (mut session, held) = extension.join();
    assert_eq!(held, [("a".to_owned(), false)]);
    claim.run("COMMIT");
    assert_eq!(hold(&mut session), [("a".to_owned(), true)]);
}

/// What a claim moves out of its way in one go behind the first that it has met: an entry that another transaction is
/// changing is left alone.
#[test]
fn a_claim_that_looks_ahead_does_not_wait_for_a_locked_entry_there() {
    for (what, hold) in [("pause", "pause_group('g')"), ("workgroup", "delay_workgroup('w', '1 hour')")] {
        let (db, [mut holder, mut main]) = Db::connected();
        let task = |id: &str| json!({"id": id, "action": "x", "group_id": "g", "workgroup": "w"});
        main.insert(json!([task("a"), task("b"), {"id": "c", "action": "x"}])).unwrap();
        call(&mut main, hold);
        holder.run("BEGIN; SELECT FROM taskq.run r JOIN taskq.task t USING (task_no) WHERE t.id = 'b' FOR UPDATE OF r");
        let claim = db.connect().background(|s| owned(s, 9, &["x"]));
        assert_eq!(claim.settle_down(&mut main), Progress::Done, "{what}");
        let (mut session, got) = claim.join();
        assert_eq!(got, ["c"], "{what}");
        holder.run("COMMIT");
        assert!(owned(&mut session, 9, &["x"]).is_empty(), "{what}");
    }
}

/// Nor does it keep what others have taken by the time it gets there: they would wait with their return for the end of its
/// transaction.
#[test]
fn a_claim_that_looks_ahead_locks_nothing_that_was_granted_meanwhile() {
    let (db, [mut holder, mut gate, mut claim]) = Db::connected();
    let (mut worker, mut main) = (db.connect(), db.connect());
    let task = |id: &str| json!({"id": id, "action": "x", "group_id": "g"});
    main.insert(json!([task("granted")])).unwrap();
    worker.run("BEGIN");
    let granted = worker.own_one("x");
    main.insert(json!([task("first"), task("second")])).unwrap();
    call(&mut main, "pause_group('g')");
    // The first stays where it is, and the claim looks ahead: it sees the task that was taken, goes to park the second, and is
    // stopped there.
    holder.run("BEGIN; SELECT FROM taskq.run r JOIN taskq.task t USING (task_no) WHERE t.id = 'first' FOR KEY SHARE OF r");
    gate.run(
        "BEGIN; INSERT INTO taskq.parked (task_no, kind, name, priority, position, tries, failures, dependencies, action_no) \
         SELECT task_no, 'g', 'g', 0, 0, 0, 0, 0, action_no FROM taskq.task WHERE id = 'second'",
    );
    claim.run("BEGIN");
    let claiming = claim.background(|s| owned(s, 1, &["x"]));
    assert_eq!(claiming.settle_down(&mut main), Progress::Blocked, "by the second");
    worker.run("COMMIT");
    gate.run("ROLLBACK");
    let (mut claim, got) = claiming.join();
    assert!(got.is_empty(), "{got:?}");
    let back = worker.background(move |s| s.complete(&granted));
    assert_eq!(back.settle_down(&mut main), Progress::Done, "the claim's transaction is open");
    claim.run("COMMIT");
    drop(back.join());
    holder.run("COMMIT");
    assert_eq!(main.state("granted"), "completed");
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.parked"), 1, "the second");
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.run WHERE aside IS NOT NULL"), 1, "the first");
}
