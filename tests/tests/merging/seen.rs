//! What callers see of tasks with a merge key: `merged_into`, the ends that waiting calls are told, and what `why` says.
//!
//! Why: a mail that was not sent must not look like one that was, and "tells why a task is not running". A task with a taken key looks
//! ready. On wrong code the leader is not named, or nothing is said before a claim has met the task.

use serde_json::json;
use taskq_tests::Db;

use crate::keyed;

#[test]
fn merged_into_names_the_leader_while_it_runs_and_afterwards() {
    // Else a mail that was not sent looks like one that was.
    let merged = "SELECT string_agg(concat(id, '>', merged_into), ' ' ORDER BY id) FROM taskq.tasks";
    for (way, code) in [("alike", "completed"), ("each", "aborted"), ("cancel", "aborted")] {
        let (_db, [mut session]) = Db::with_tasks(keyed(&["a", "b", "c"]));
        let leader = session.own_one("x");
        assert_eq!(session.one::<String>(merged), "a> b>a c>a", "while it runs");
        match way {
            "alike" => session.complete(&leader),
            "each" => {
                // Of several endings at once, one with a key and one without.
                session.insert(json!([{"id": "d", "action": "y"}])).unwrap();
                let other = session.own_one("y");
                let returns = json!([
                    {"task_id": "a", "token": leader.token, "status_code": "aborted", "status": "no"},
                    {"task_id": "d", "token": other.token},
                ]);
                session.query("SELECT * FROM taskq.return_tasks($1::jsonb)", &[&returns]).unwrap();
                assert_eq!(session.delete(&["d"]).unwrap(), 1);
            }
            _ => assert_eq!(session.cancel(&["a"]).unwrap(), 1),
        }
        assert_eq!(session.one::<String>(merged), "a> b>a c>a", "{way}");
        let why: Vec<String> = session.all("SELECT taskq.why('b')");
        assert_eq!(why[1], "it did not run itself: \"a\" with the same merge key \"k\" ran for it", "{way}");
        assert!(
            session.all::<String>("SELECT taskq.why('a')").iter().all(|reason| !reason.contains("merge"))
        );
        assert_eq!(session.state("c"), code);
        session.delete(&["a"]).unwrap();
        assert_eq!(session.one::<String>(merged), "b> c>");
        let why: Vec<String> = session.all("SELECT taskq.why('b')");
        assert!(why[1].contains("a task that is gone"), "{why:?}");
    }
    // One that was given back has no leader any more.
    let (_db, [mut session]) = Db::with_tasks(keyed(&["a", "b"]));
    let leader = session.own_one("x");
    session.give_with("a", leader.token, "pending", "retry_after => '0'").unwrap();
    assert_eq!(session.one::<String>(merged), "a> b>");
}

#[test]
fn callers_of_wait_for_task_learn_of_a_riders_end() {
    let (db, [mut session]) = Db::with_tasks(keyed(&["a", "b"]));
    let leader = session.own_one("x");
    let waiter = db.connect();
    let pid = waiter.pid();
    let waiting = waiter.background(|s| s.wait("b", "30 seconds").unwrap());
    session.until_asleep(pid);
    session.give_with("a", leader.token, "completed", "result => '1'").unwrap();
    assert_eq!(waiting.join().1.unwrap().result, Some(json!(1)));
}

#[test]
fn a_taken_key_is_named_before_and_after_a_claim_has_met_the_task() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "first", "action": "x", "merge_key": "k"}]));
    assert!(
        session.all::<String>("SELECT taskq.why('first')").iter().all(|reason| !reason.contains("merge"))
    );
    let first = session.own_one("x");
    session
        .insert(json!([{"id": "later", "action": "x", "merge_key": "k"},
                          {"id": "another", "action": "x", "merge_key": "l"},
                          {"id": "elsewhere", "action": "x", "merge_key": "k", "group_id": "g"}]))
        .unwrap();
    let taken = "a task with the same merge key \"k\" runs: \"first\"";
    assert_eq!(session.all::<String>("SELECT taskq.why('later')")[0], taken, "no claim has met it");
    for id in ["another", "elsewhere"] {
        let reasons: Vec<String> = session.all(&format!("SELECT taskq.why('{id}')"));
        assert!(reasons.iter().all(|reason| !reason.contains("merge")), "{id}: {reasons:?}");
    }
    session.own("w", 9, &["x"]).unwrap();
    assert_eq!(session.all::<String>("SELECT taskq.why('later')")[0], taken, "a claim has parked it");
    session.complete(&first);
    assert!(
        session.all::<String>("SELECT taskq.why('later')").iter().all(|reason| !reason.contains("merge"))
    );
}
