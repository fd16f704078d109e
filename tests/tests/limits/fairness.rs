//! Groups of a fair action take turns, so that a million tasks of one tenant do not keep another's ten waiting.
//!
//! Why: first in, first out is unfair as soon as one producer is faster than the workers. On wrong code the ten tasks come
//! after the thousands, a weight is ignored, a worker goes home empty although there is work, or priorities are lost.

use std::collections::{BTreeSet, HashMap};
use std::thread;

use serde_json::{Value, json};
use taskq_tests::{Db, Session};

use crate::{call, owned};

/// Tasks `<group>1` to `<group>n` of action `x`, in the group, with the priority.
fn of_group(group: &str, n: usize, priority: i32) -> Value {
    (1..=n)
        .map(|i| json!({"id": format!("{group}{i}"), "action": "x", "group_id": group, "priority": priority}))
        .collect()
}

/// How many of the tasks are of each group: ids are the group and a number.
fn shares(ids: &[String]) -> HashMap<String, usize> {
    let mut shares = HashMap::new();
    for id in ids {
        *shares.entry(id.trim_end_matches(char::is_numeric).to_owned()).or_default() += 1;
    }
    shares
}

fn one_by_one(session: &mut Session, n: usize) -> Vec<String> {
    (0..n).flat_map(|_| owned(session, 1, &["x"])).collect()
}

#[test]
fn ten_tasks_of_one_group_do_not_wait_for_twenty_thousand_of_another() {
    for room in [1, 100] {
        let (_db, [mut session]) = Db::connected();
        call(&mut session, "set_action('x', fair => true)");
        session.insert(of_group("big", 20_000, 0)).unwrap();
        session.insert(of_group("small", 10, 0)).unwrap();
        let got = if room == 1 { one_by_one(&mut session, 20) } else { owned(&mut session, 20, &["x"]) };
        assert_eq!(shares(&got), HashMap::from([("big".to_owned(), 10), ("small".to_owned(), 10)]));
        // First in, first out within a group, and the group that is left has it all.
        let small: Vec<&String> = got.iter().filter(|id| id.starts_with("small")).collect();
        assert_eq!(
            small,
            (1..=10).map(|i| format!("small{i}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
        assert_eq!(owned(&mut session, room, &["x"]).len(), room as usize);
    }
}

#[test]
fn weights_are_shares_whether_one_comes_for_one_task_or_for_many() {
    for room in [1, 7, 400] {
        let (_db, [mut session]) = Db::connected();
        call(&mut session, "set_action('x', fair => true)");
        call(&mut session, "set_group('gold', weight => 3)");
        session.insert(of_group("gold", 1000, 0)).unwrap();
        session.insert(of_group("tin", 1000, 0)).unwrap();
        let mut got = Vec::new();
        while got.len() < 400 {
            got.extend(owned(&mut session, room.min(400 - got.len() as i32), &["x"]));
        }
        let shares = shares(&got);
        assert!((299..=301).contains(&shares["gold"]), "at {room} a time: {shares:?}");
        assert_eq!(shares["gold"] + shares["tin"], 400);
    }
}

#[test]
fn nothing_is_left_lying_for_the_sake_of_fairness() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    call(&mut session, "set_group('a', weight => 5)");
    for (group, n) in [("a", 3), ("b", 50), ("c", 0), ("d", 1)] {
        session.insert(of_group(group, n, 0)).unwrap();
    }
    let got = owned(&mut session, 100, &["x"]);
    assert_eq!(got.len(), 54);
    assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), 54);
    assert!(owned(&mut session, 1, &["x"]).is_empty());
}

#[test]
fn a_higher_priority_goes_first_whatever_the_turns() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    session.insert(of_group("low", 10, 0)).unwrap();
    session.insert(of_group("high", 10, 5)).unwrap();
    session.insert(json!([{"id": "top", "action": "x", "priority": 9}])).unwrap();
    assert_eq!(one_by_one(&mut session, 1), ["top"]);
    assert_eq!(shares(&one_by_one(&mut session, 6)), HashMap::from([("high".to_owned(), 6)]));
    assert_eq!(
        shares(&owned(&mut session, 6, &["x"])),
        HashMap::from([("high".to_owned(), 4), ("low".to_owned(), 2)])
    );
}

#[test]
fn tasks_without_a_group_take_turns_as_one_of_the_groups() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    session.insert(of_group("g", 100, 0)).unwrap();
    session.insert((1..=100).map(|i| json!({"id": format!("none{i}"), "action": "x"})).collect()).unwrap();
    for got in [one_by_one(&mut session, 20), owned(&mut session, 20, &["x"])] {
        assert_eq!(shares(&got), HashMap::from([("g".to_owned(), 10), ("none".to_owned(), 10)]));
    }
}

#[test]
fn switched_on_over_a_backlog_it_counts_from_then_on() {
    for (n, room) in [(3_000, 1), (30_000, 10)] {
        let (_db, [mut session]) = Db::with_tasks(of_group("big", n, 0));
        session.insert(of_group("small", 10, 0)).unwrap();
        assert_eq!(owned(&mut session, 1, &["x"]), ["big1"]);
        call(&mut session, "set_action('x', fair => true)");
        // What comes from now on takes turns at once; what was there before, as it is met.
        session.insert(of_group("late", 10, 0)).unwrap();
        let mut got = Vec::new();
        while got.len() < 50 {
            let more = owned(&mut session, room, &["x"]);
            assert!(!more.is_empty(), "never home empty: {got:?}");
            got.extend(more);
        }
        assert_eq!(shares(&got)["late"], 10, "{got:?}");
        let left: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state = 'ready'");
        assert_eq!(left, n as i64 + 19 - got.len() as i64);
        let mut rest = 0;
        while rest < left {
            let more = owned(&mut session, 50_000, &["x"]).len() as i64;
            assert!(more > 0, "{rest} of {left}");
            rest += more;
        }
        assert_eq!(rest, left, "none is lost");
    }
}

#[test]
fn switched_off_the_order_is_first_in_first_out_again() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    session.insert(of_group("a", 5, 0)).unwrap();
    session.insert(of_group("b", 5, 0)).unwrap();
    call(&mut session, "set_action('x', clear => '{fair}')");
    session.insert(of_group("c", 5, 0)).unwrap();
    session.insert(json!([{"id": "last", "action": "x"}])).unwrap();
    let all: Vec<String> =
        ["a", "b", "c"].iter().flat_map(|g| (1..=5).map(move |i| format!("{g}{i}"))).collect();
    assert_eq!(one_by_one(&mut session, 3), all[..3]);
    assert_eq!(owned(&mut session, 100, &["x"]), [&all[3..], &["last".to_owned()]].concat());
}

#[test]
fn a_fair_action_and_another_in_one_call_keep_their_orders() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    session.insert(of_group("big", 100, 0)).unwrap();
    session.insert((1..=20).map(|i| json!({"id": format!("y{i}"), "action": "y"})).collect()).unwrap();
    session.insert(of_group("small", 5, 0)).unwrap();
    session.insert(json!([{"id": "first", "action": "y", "priority": 1}])).unwrap();
    assert_eq!(owned(&mut session, 1, &["x", "y"]), ["first"]);
    // Between the actions the oldest task decides: all of `big` came before `y1`.
    let got = owned(&mut session, 10, &["x", "y"]);
    let (big, small) = (shares(&got)["big"], shares(&got)["small"]);
    assert!(big == 5 && small >= 4, "the last may be another's: {got:?}");
    let rest = owned(&mut session, 1000, &["x", "y"]);
    let y: Vec<&String> = got.iter().chain(&rest).filter(|id| id.starts_with('y')).collect();
    assert_eq!(y, (1..=20).map(|i| format!("y{i}")).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    assert_eq!(got.len() + rest.len(), 125);
}

#[test]
fn several_backends_give_each_group_a_share_and_each_task_once() {
    let (db, [mut main]) = Db::connected();
    call(&mut main, "set_action('x', fair => true)");
    main.insert(of_group("big", 5_000, 0)).unwrap();
    for i in 0..10 {
        main.insert(of_group(&format!("tenant{}-", (b'a' + i) as char), 20, 0)).unwrap();
    }
    let got: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|n| {
                let mut session = db.connect();
                scope.spawn(move || {
                    (0..110)
                        .flat_map(|_| owned(&mut session, if n % 2 == 0 { 1 } else { 2 }, &["x"]))
                        .collect()
                })
            })
            .collect();
        workers.into_iter().flat_map(|w| -> Vec<String> { w.join().unwrap() }).collect()
    });
    assert_eq!(got.iter().collect::<BTreeSet<_>>().len(), 660, "each grant is of another task");
    let shares = shares(&got);
    // Eleven lanes: sixty turns each, and twenty tasks in ten of them.
    let small: usize = shares.iter().filter(|(group, _)| *group != "big").map(|(_, n)| n).sum();
    assert_eq!(small, 200, "all of the small ones are through: {shares:?}");
}

#[test]
fn a_lane_that_an_open_grant_holds_keeps_no_other_waiting() {
    let (_db, [mut open, mut other]) = Db::connected();
    call(&mut open, "set_action('x', fair => true)");
    for group in ["a", "b", "c"] {
        open.insert(of_group(group, 4, 0)).unwrap();
    }
    open.run("BEGIN");
    assert_eq!(owned(&mut open, 6, &["x"]).len(), 6);
    assert_eq!(owned(&mut other, 100, &["x"]).len(), 6, "the other half");
    assert!(owned(&mut other, 1, &["x"]).is_empty());
    open.run("ROLLBACK");
    assert_eq!(owned(&mut other, 100, &["x"]).len(), 6);
}

/// The first tasks of an action came from two transactions at once: two numbers stand for its name. A group has one turn all the same,
/// and its own tasks keep their order.
#[test]
fn groups_take_turns_over_all_numbers_of_a_name() {
    for room in [1, 30] {
        let (_db, [mut session, mut other]) = Db::connected();
        call(&mut session, "set_action('x', fair => true)");
        other.run("BEGIN");
        other.insert(of_group("big", 500, 0)).unwrap();
        other.insert(of_group("both", 5, 0)).unwrap();
        session.insert(of_group("small", 10, 0)).unwrap();
        let later: Value =
            (6..=10).map(|i| json!({"id": format!("both{i}"), "action": "x", "group_id": "both"})).collect();
        session.insert(later).unwrap();
        other.run("COMMIT");
        let numbers: i64 = session.one("SELECT count(*) FROM taskq.action WHERE name = 'x'");
        assert_eq!(numbers, 2, "the case that is meant");
        let got = if room == 1 { one_by_one(&mut session, 30) } else { owned(&mut session, 30, &["x"]) };
        let expected = ["big", "both", "small"].map(|group| (group.to_owned(), 10));
        assert_eq!(shares(&got), HashMap::from(expected));
        let both: Vec<String> = got.into_iter().filter(|id| id.starts_with("both")).collect();
        assert_eq!(both, (1..=10).map(|i| format!("both{i}")).collect::<Vec<_>>());
        assert_eq!(owned(&mut session, 1_000, &["x"]).len(), 490, "nothing is left lying");
    }
}

/// Of several numbers each has its next entries; only those that are next in all of them together are.
#[test]
fn a_group_with_tasks_under_two_numbers_has_one_order_and_one_share() {
    for setting in ["fair => true", "max_per_group => 90"] {
        let (_db, [mut session, mut other]) = Db::connected();
        call(&mut session, &format!("set_action('x', {setting})"));
        session.run("BEGIN");
        other.run("BEGIN");
        session.insert(of_group("g", 5, 0)).unwrap();
        other.insert(json!([{"id": "late", "action": "x", "group_id": "g"}])).unwrap();
        session.run("COMMIT");
        other.run("COMMIT");
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.action"), 2, "the case that is meant");
        assert_eq!(owned(&mut session, 2, &["x"]), ["g1", "g2"], "{setting}");
        assert_eq!(owned(&mut session, 9, &["x"]), ["g3", "g4", "g5", "late"], "{setting}");
    }
    let (_db, [mut session, mut other]) = Db::connected();
    call(&mut session, "set_action('x', fair => true)");
    session.run("BEGIN");
    other.run("BEGIN");
    for group in ["a", "b", "c", "d", "e"] {
        session.insert(of_group(group, 10, 0)).unwrap();
        let more: Value = (11..=20)
            .map(|i| json!({"id": format!("{group}{i}"), "action": "x", "group_id": group}))
            .collect();
        other.insert(more).unwrap();
    }
    session.insert(of_group("h", 20, 0)).unwrap();
    session.run("COMMIT");
    other.run("COMMIT");
    let mut got = Vec::new();
    for _ in 0..4 {
        got.extend(owned(&mut session, 9, &["x"]));
    }
    let shares = shares(&got);
    assert!(shares.len() == 6 && shares.values().all(|share| *share == 6), "{shares:?}");
}

/// What an open transaction has in hand a claim that has to choose passes over in a few strides, however much it is. It used to
/// try one entry a round, and to look at all that it had tried before the next.
#[test]
#[ignore = "long"]
fn what_others_have_in_hand_costs_a_claim_no_square_of_it() {
    let granted = |n: i64| format!("SELECT count(*) FROM taskq.own_tasks('a', {n}, '{{x}}')");
    let changed = |n: i64| {
        format!(
            "SELECT taskq.update_tasks(array_agg(id), body => 'new')
               FROM (SELECT id FROM taskq.tasks ORDER BY substr(id, 2)::integer LIMIT {n}) AS t"
        )
    };
    // (While one session makes the slots of a group, as its first grant does, no other gets one.)
    let cases: [(&str, &dyn Fn(i64) -> String); 5] = [
        ("fair => true", &granted),
        ("fair => true", &changed),
        ("max_concurrency => 90000", &granted),
        ("max_concurrency => 90000", &changed),
        ("max_per_group => 90000", &changed),
    ];
    for (setting, take) in cases {
        let pages = [300, 2_400].map(|n| {
            let (_db, [mut session, mut other]) = Db::connected();
            call(&mut session, &format!("set_action('x', {setting})"));
            session.insert(of_group("g", n as usize + 10, 0)).unwrap();
            session.run("VACUUM ANALYZE taskq.run, taskq.task, taskq.slot");
            other.run(&format!("BEGIN; {}", take(n)));
            let pages = session.pages_of_a_claim("x");
            session.own_one("x");
            pages
        });
        // Eight times as much in hand: sixty-four times as many pages, if each round looked at all of it.
        assert!(pages[1] < 24 * pages[0].max(500), "{setting}: {pages:?}");
    }
}
