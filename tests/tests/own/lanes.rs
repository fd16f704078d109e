//! What a session has learnt of the lanes of groups, where each begins, hides nothing and makes a claim cheap.
//!
//! Why: it is learnt when claims have passed many dead entries, as under a snapshot that is held for long, and then
//! each claim begins there. On wrong code an entry at the edge of what was learnt is never granted by that session, or
//! each claim goes through the whole of the lane that it was to jump over.

use std::collections::HashSet;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Grant, Session, until};

/// Tasks of a group, with a priority.
fn of(group: &str, priority: i32, count: usize) -> Value {
    (0..count).map(|_| json!({"action": "x", "group_id": group, "priority": priority})).collect()
}

/// A session that keeps whatever is dead from now on.
fn reader(db: &Db) -> Session {
    let mut reader = db.connect();
    reader.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM taskq.run");
    reader
}

/// Passes so much of a group that is dead that the session learns where the lanes begin.
fn learn(session: &mut Session) {
    let first = session.pages_of_a_claim("x");
    (0..1_000).for_each(|_| drop(session.perform("x", "completed")));
    until("a claim does not pass all that is dead", || {
        session.perform("x", "completed");
        (session.pages_of_a_claim("x") < first + 100).then_some(())
    });
}

fn owned(session: &mut Session, count: usize) -> Vec<String> {
    (0..count).flat_map(|_| session.own("w", 1, &["x"]).unwrap()).map(|grant| grant.task_id).collect()
}

/// What waits while the lanes are learnt twice: in a lane that is excepted both times, and right behind the first bound.
#[test]
#[ignore = "long"]
fn what_is_learnt_twice_leaves_out_neither_what_waited_nor_what_came_right_after() {
    let (db, [mut session, mut others]) = Db::connected();
    others.run("SELECT taskq.set_action('x', fair => true)");
    let low = |id: &str, group: &str| json!([{"id": id, "action": "x", "group_id": group, "priority": -1}]);
    others.insert(low("old 1", "old")).unwrap();
    others.insert(low("old 2", "old")).unwrap();
    others.insert(of("g", 0, 1_200)).unwrap();
    let _reader = reader(&db);
    learn(&mut session);
    others.insert(low("next", "next")).unwrap();
    others.insert(of("g", 0, 1_200)).unwrap();
    learn(&mut session);
    others.run(
        "SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE state = 'ready' AND group_id = 'g'",
    );
    let got = owned(&mut session, 4);
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), 3, "{got:?}");
    let old: Vec<&String> = got.iter().filter(|id| id.starts_with("old")).collect();
    assert_eq!(old, ["old 1", "old 2"]);
}

#[test]
#[ignore = "long"]
fn a_claim_jumps_over_a_lane_however_many_wait_in_it() {
    for setting in ["fair => true", "max_per_group => 100000"] {
        let (db, [mut session]) = Db::connected();
        session.run(&format!("SELECT taskq.set_action('x', {setting})"));
        session.insert(of("g", 0, 1_200)).unwrap();
        let reader = reader(&db);
        learn(&mut session);
        drop(reader);
        session.insert(of("long", 0, 40_000)).unwrap();
        session.insert(of("g", 0, 1_200)).unwrap();
        let _reader = self::reader(&db);
        learn(&mut session);
        session.run("ANALYZE taskq.run");
        session.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE state = 'ready' AND group_id = 'g'");
        // Forty thousand entries fill some two hundred pages of the index.
        let pages = (0..9).map(|_| session.pages_of_a_claim("x")).min().unwrap();
        assert!(pages < 250, "{pages} pages, {setting}");
    }
}

/// Lanes take turns, one for each task that a call wants. One that is excepted, and has nothing any more but what is in
/// progress, is none of them: what comes right behind the bound would not be met, wherever that is.
#[test]
#[ignore = "long"]
fn a_lane_in_which_all_is_in_progress_by_now_hides_no_other() {
    for (lane, priority) in [(2, -1), (0, -1), (2, -2)] {
        let (db, [mut session, mut others]) = Db::connected();
        others.run("SELECT taskq.set_action('x', fair => true)");
        let groups: Vec<String> =
            others.all("SELECT 'g' || n FROM generate_series(1, 3) AS n ORDER BY taskq._lane('g' || n)");
        let low = |id: &str, lane: usize, priority: i32| json!([{"id": id, "action": "x", "group_id": groups[lane], "priority": priority}]);
        others.insert(low("old", 1, -1)).unwrap();
        others.insert(of(&groups[0], 0, 1_200)).unwrap();
        let _reader = reader(&db);
        // The turn is that of the first lane.
        learn(&mut session);
        others.run(
            "SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE state = 'ready' AND id <> 'old'",
        );
        assert_eq!(owned(&mut others, 1), ["old"]);
        others.insert(low("new", lane, priority)).unwrap();
        assert_eq!(owned(&mut session, 1), ["new"], "in lane {lane}, priority {priority}");
    }
}

#[test]
#[ignore = "long"]
fn lanes_are_learnt_again_although_nothing_new_comes() {
    let (db, [mut session, mut others]) = Db::connected();
    session.run("SELECT taskq.set_action('x', fair => true)");
    session.insert(of("g", 0, 12_000)).unwrap();
    let _reader = reader(&db);
    // The very first one reads what the server knows of the tables, too.
    let first = (0..3).map(|_| session.pages_of_a_claim("x")).min().unwrap();
    learn(&mut session);
    for _ in 0..8 {
        drop(others.own("w", 1_000, &["x"]).unwrap());
    }
    others.run("SELECT taskq.cancel_tasks(array_agg(id)) FROM taskq.tasks WHERE state = 'in-progress'");
    let walk = session.pages_of_a_claim("x");
    (0..20).for_each(|_| drop(session.perform("x", "completed")));
    let pages = (0..9).map(|_| session.pages_of_a_claim("x")).min().unwrap();
    assert!(walk > first + 200, "{walk} pages were to be passed");
    assert!(pages < first + 100, "{first} pages, {pages} after {walk}");
}

/// One task for each group at a time, the higher priority first, then the order of insertion: whatever the session has learnt.
#[test]
#[ignore = "long"]
fn the_order_is_that_of_a_session_that_has_learnt_nothing() {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.set_group('g' || n, max_concurrency => 1) FROM generate_series(0, 11) AS n");
    let _reader = reader(&db);
    let mut random = Random::new(7);
    let mut waiting: Vec<(i32, usize, String)> = Vec::new();
    let mut held: Vec<(String, Grant)> = Vec::new();
    let mut number = 0;
    for step in 0..3_000 {
        if step % 100 == 0 {
            let tasks: Value = (0..100)
                .map(|_| {
                    number += 1;
                    // The highest priority now and then, the others in all groups.
                    let priority = if random.chance(3) { 2 } else { random.below(2) as i32 };
                    let group = format!("g{}", random.below(12));
                    waiting.push((-priority, number, group.clone()));
                    json!({"id": number.to_string(), "action": "x", "group_id": group, "priority": priority})
                })
                .collect();
            session.insert(tasks).unwrap();
            waiting.sort_unstable();
        }
        if held.len() > 8 || random.chance(50) && !held.is_empty() {
            let (_, grant) = held.swap_remove(random.below(held.len() as u64) as usize);
            session.complete(&grant);
        }
        let full = |group: &String| held.iter().any(|(of, _)| of == group);
        let expected = waiting.iter().position(|(_, _, group)| !full(group));
        let granted = session.own("w", 1, &["x"]).unwrap().pop();
        let id = expected.map(|place| waiting[place].1.to_string());
        assert_eq!(granted.as_ref().map(|grant| &grant.task_id), id.as_ref(), "step {step}");
        if let (Some(place), Some(grant)) = (expected, granted) {
            held.push((waiting.remove(place).2, grant));
        }
    }
}
