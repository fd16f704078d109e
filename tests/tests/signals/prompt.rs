//! The last parents of a child are returned by calls that overlap to the very ends of their commits. When all have come
//! back the child is free, without another call.
//!
//! A queue in which each of two commits takes the other for the one that will count leaves most of these children
//! behind, until the next call. Nothing in here calls for work, or `maintain`, before it looks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Background, Db, Grant, Session, sqlstate, until};

/// Children that are blocked, spontaneous ones that have not completed, and signals that are not counted.
fn left_behind(session: &mut Session) -> (i64, i64, i64) {
    let row = session
        .query_one(
            "SELECT count(*) FILTER (WHERE action = 'child' AND state <> 'ready'), \
                    count(*) FILTER (WHERE action = 'mark' AND state <> 'completed'), \
                    (SELECT count(*) FROM taskq.countdown) FROM taskq.tasks",
            &[],
        )
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

/// Has each of the sessions take its own turn of each round at the same moment as the others.
fn at_once<W>(sessions: Vec<Session>, rounds: usize, work: W) -> Vec<Session>
where
    W: Fn(&mut Session, usize, usize) + Clone + Send + 'static,
{
    let start = Arc::new(Barrier::new(sessions.len()));
    let all: Vec<Background<()>> = sessions
        .into_iter()
        .enumerate()
        .map(|(who, session)| {
            let (start, work) = (start.clone(), work.clone());
            session.background(move |session| {
                for round in 0..rounds {
                    start.wait();
                    work(session, who, round);
                }
            })
        })
        .collect();
    all.into_iter().map(|background| background.join().0).collect()
}

/// Parents `{round}-{who}` of the action `p{who}`, and below those of a round a child and a spontaneous task.
fn fan_ins(rounds: usize, parents: usize) -> Value {
    let mut tasks = Vec::new();
    for round in 0..rounds {
        let ids: Vec<String> = (0..parents).map(|who| format!("{round}-{who}")).collect();
        tasks.extend(ids.iter().enumerate().map(|(who, id)| json!({"id": id, "action": format!("p{who}")})));
        tasks.push(json!({"id": format!("child {round}"), "action": "child", "depends_on": ids}));
        tasks.push(
            json!({"id": format!("mark {round}"), "action": "mark", "spontaneous": true, "depends_on": ids}),
        );
    }
    Value::Array(tasks)
}

/// Grants by round, for each worker that returns.
fn own_all(session: &mut Session, rounds: usize, parents: usize) -> Vec<Vec<Grant>> {
    (0..parents).map(|who| session.own("w", rounds as i32, &[&format!("p{who}")]).unwrap()).collect()
}

fn return_at_once(rounds: usize, parents: usize, settings: &str) {
    let (db, [mut session]) = Db::with_tasks(fan_ins(rounds, parents));
    let grants = own_all(&mut session, rounds, parents);
    let sessions = (0..parents).map(|_| db.connect()).map(|mut s| {
        s.run(settings);
        s
    });
    let out_of_time = Arc::new(AtomicUsize::new(0));
    let times = out_of_time.clone();
    at_once(sessions.collect(), rounds, move |session, who, round| {
        let grant = &grants[who][round];
        loop {
            match session.give(&grant.task_id, grant.token, "completed") {
                Ok(_) => break,
                // As it may at these levels, and changes nothing.
                Err(error) if sqlstate(&error) == "40001" => {}
                // On a busy machine a session that extends a table may be put aside with its lock for as long.
                Err(error) if sqlstate(&error) == "55P03" => {
                    times.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    let times = out_of_time.load(Ordering::Relaxed);
    assert!(times * 10 <= rounds * parents, "{times} of {} calls ran out of time", rounds * parents);
    assert_eq!(left_behind(&mut session), (0, 0, 0), "of {rounds} rounds of {parents}");
}

#[test]
fn of_a_thousand_pairs_each_frees_its_child() {
    return_at_once(1000, 2, "");
}

#[test]
fn eight_parents_by_eight_clients_free_their_child() {
    return_at_once(150, 8, "");
}

#[test]
fn no_time_out_of_the_caller_ends_the_look_before_the_commit() {
    return_at_once(
        200,
        3,
        "SET lock_timeout = '1ms'; SET synchronous_commit = off; SET deadlock_timeout = '10s'",
    );
}

#[test]
fn repeatable_read_sees_the_signals_of_the_others_too() {
    return_at_once(150, 2, "SET default_transaction_isolation = 'repeatable read'");
}

#[test]
fn transaction_blocks_that_commit_at_once_free_their_child() {
    let (db, [mut session]) = Db::connected();
    const ROUNDS: usize = 200;
    session.insert(fan_ins(ROUNDS, 3)).unwrap();
    let grants = own_all(&mut session, ROUNDS, 3);
    let together = Arc::new(Barrier::new(3));
    at_once((0..3).map(|_| db.connect()).collect(), ROUNDS, move |session, who, round| {
        session.run("BEGIN; SAVEPOINT s");
        session.complete(&grants[who][round]);
        if round % 2 == 0 {
            session.run("ROLLBACK TO s");
            session.complete(&grants[who][round]);
        }
        // All have returned, none has committed.
        together.wait();
        session.run("COMMIT");
    });
    assert_eq!(left_behind(&mut session), (0, 0, 0));
}

#[test]
fn parents_that_share_two_children_free_both_in_whatever_order() {
    let (db, [mut session]) = Db::connected();
    const ROUNDS: usize = 300;
    let mut tasks = Vec::new();
    for round in 0..ROUNDS {
        let (c, d) = (format!("c{round}"), format!("d{round}"));
        tasks.push(json!({"id": c, "action": "child"}));
        tasks.push(json!({"id": d, "action": "child"}));
        // Both signal both; then there are two that signal one each, for calls in opposite orders.
        for who in 0..2 {
            tasks.push(
                json!({"id": format!("{round}-{who}"), "action": format!("both{who}"), "to_signal_after": [c, d]}),
            );
            tasks.push(
                json!({"id": format!("{round}-{who}c"), "action": format!("c{who}"), "to_signal_after": [c]}),
            );
            tasks.push(
                json!({"id": format!("{round}-{who}d"), "action": format!("d{who}"), "to_signal_after": [d]}),
            );
        }
    }
    session.insert(Value::Array(tasks)).unwrap();
    let mut own = |action: String| session.own("w", ROUNDS as i32, &[&action]).unwrap();
    let held: Vec<[Vec<Grant>; 3]> = (0..2)
        .map(|who| {
            let (c, d) = (own(format!("c{who}")), own(format!("d{who}")));
            let (first, last) = if who == 0 { (c, d) } else { (d, c) };
            [first, own(format!("both{who}")), last]
        })
        .collect();
    at_once((0..2).map(|_| db.connect()).collect(), ROUNDS, move |session, who, round| {
        for grants in &held[who] {
            session.complete(&grants[round]);
        }
    });
    assert_eq!(left_behind(&mut session), (0, 0, 0));
}

#[test]
fn batches_that_share_many_children_free_them_all() {
    // More children than a transaction has signs for, and fewer.
    for (children, rounds) in [(40, 60), (600, 4)] {
        let (db, [mut session]) = Db::connected();
        const CLIENTS: usize = 3;
        let mut tasks = Vec::new();
        for round in 0..rounds {
            for child in 0..children {
                let id = format!("child {round} {child}");
                tasks.push(json!({"id": id, "action": "child"}));
                for who in 0..CLIENTS {
                    tasks.push(json!({
                        "id": format!("{round}-{who}-{child}"), "action": format!("p{who}"), "to_signal_after": [id],
                    }));
                }
            }
        }
        session.insert(Value::Array(tasks)).unwrap();
        let held: Vec<Vec<Grant>> = (0..CLIENTS)
            .map(|who| {
                let mut held = session.own("w", (rounds * children) as i32, &[&format!("p{who}")]).unwrap();
                held.sort_by_key(|grant| grant.task_id.split('-').next().unwrap().parse::<usize>().unwrap());
                held
            })
            .collect();
        at_once((0..CLIENTS).map(|_| db.connect()).collect(), rounds, move |session, who, round| {
            let mut batch: Vec<&Grant> = held[who][round * children..(round + 1) * children].iter().collect();
            if who == 1 {
                batch.reverse();
            }
            let (ids, tokens): (Vec<_>, Vec<_>) = batch.iter().map(|g| (g.task_id.as_str(), g.token)).unzip();
            let query = "SELECT count(status_code) FROM taskq.return_tasks($1, $2)";
            let returned: i64 = session.query_one(query, &[&ids, &tokens]).unwrap().get(0);
            assert_eq!(returned, children as i64);
        });
        assert_eq!(left_behind(&mut session), (0, 0, 0), "{children} children");
    }
}

/// Two statements that settle the two parents of a round's tasks, at once.
fn settle_at_once(
    rounds: usize,
    parents: fn(usize, usize) -> Vec<Value>,
    statement: fn(usize, usize) -> String,
) {
    let (db, [mut session]) = Db::connected();
    let mut tasks = Vec::new();
    for round in 0..rounds {
        tasks.extend((0..2).flat_map(|who| parents(round, who)));
        let settled: Vec<Value> =
            (0..2).map(|who| json!({"id": format!("{round}-{who}"), "condition": "settled"})).collect();
        tasks.push(json!({"id": format!("child {round}"), "action": "child", "depends_on": settled}));
        tasks.push(
            json!({"id": format!("mark {round}"), "action": "mark", "spontaneous": true, "depends_on": settled}),
        );
    }
    session.insert(Value::Array(tasks)).unwrap();
    session.own_with("w", 10_000, &["dies"], "lease => '1 millisecond'").unwrap();
    at_once((0..2).map(|_| db.connect()).collect(), rounds, move |session, who, round| {
        session.run(&statement(round, who));
    });
    assert_eq!(left_behind(&mut session), (0, 0, 0));
}

#[test]
fn it_does_not_matter_what_settles_the_parents() {
    let plain = |round: usize, who: usize| vec![json!({"id": format!("{round}-{who}"), "action": "p"})];
    settle_at_once(150, plain, |round, who| format!("SELECT taskq.cancel_tasks('{{{round}-{who}}}')"));
    settle_at_once(150, plain, |round, who| {
        format!(r#"SELECT taskq.replace_tasks('[{{"id": "{round}-{who}", "action": "p"}}]')"#)
    });
    // A parent that is lost because of its own, and one that completes with its own.
    let below = |round: usize, who: usize| {
        vec![
            json!({"id": format!("top {round}-{who}"), "action": "p"}),
            json!({"id": format!("{round}-{who}"), "action": "q", "depends_on": [format!("top {round}-{who}")]}),
        ]
    };
    settle_at_once(150, below, |round, who| format!("SELECT taskq.cancel_tasks('{{top {round}-{who}}}')"));
    let spontaneous = |round: usize, who: usize| {
        let top = json!([{"id": format!("top {round}-{who}"), "condition": "settled"}]);
        vec![
            json!({"id": format!("top {round}-{who}"), "action": "p"}),
            json!({"id": format!("{round}-{who}"), "action": "q", "spontaneous": true, "depends_on": top}),
        ]
    };
    settle_at_once(150, spontaneous, |round, who| {
        format!("SELECT taskq.cancel_tasks('{{top {round}-{who}}}')")
    });
}

#[test]
fn deadlines_that_two_calls_look_after_free_the_child() {
    // Each call takes some of the leases that have passed; the last try of a parent ends with its own.
    let (db, [mut session]) = Db::connected();
    const ROUNDS: usize = 60;
    for round in 0..ROUNDS {
        let dies = |who: usize| json!({"id": format!("{round}-{who}"), "action": "dies", "max_tries": 1});
        let settled: Vec<Value> =
            (0..8).map(|who| json!({"id": format!("{round}-{who}"), "condition": "settled"})).collect();
        let mut tasks: Vec<Value> = (0..8).map(dies).collect();
        tasks.push(json!({"id": format!("child {round}"), "action": "child", "depends_on": settled}));
        session.insert(Value::Array(tasks)).unwrap();
        for _ in 0..8 {
            session.own_with("w", 1, &["dies"], "lease => '1 millisecond'").unwrap();
        }
        session.run("SELECT pg_sleep(0.002)");
        // A call in a block leaves what is due to the worker that it calls, where there may be one.
        at_once((0..4).map(|_| db.connect()).collect(), 2, |session, _, _| {
            session.run("BEGIN; SELECT * FROM taskq.own_tasks('w', 1, '{dies}'); COMMIT");
        });
    }
    until("no child is left behind", || (left_behind(&mut session) == (0, 0, 0)).then_some(()));
}

#[test]
fn an_open_transaction_beside_costs_next_to_nothing_and_counts_at_its_commit() {
    let (_db, [mut open, mut other, mut watcher]) = Db::connected();
    const CHILDREN: usize = 100;
    let children: Vec<String> = (0..CHILDREN).map(|n| format!("child {n}")).collect();
    let mut tasks: Vec<Value> = children.iter().map(|id| json!({"id": id, "action": "child"})).collect();
    tasks.extend(["p", "q"].map(|id| json!({"id": id, "action": "parent", "to_signal_after": children})));
    watcher.insert(Value::Array(tasks)).unwrap();
    let held = watcher.own("w", 2, &["parent"]).unwrap();
    open.run("BEGIN");
    open.complete(&held[0]);
    let start = Instant::now();
    other.complete(&held[1]);
    // It waits for commits that are under way only; were it to wait for each child, it would take a minute.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(left_behind(&mut watcher), (CHILDREN as i64, 0, CHILDREN as i64));
    open.run("COMMIT");
    assert_eq!(left_behind(&mut watcher), (0, 0, 0));
}

#[test]
fn an_abort_reaches_the_child_with_the_call_that_sends_it() {
    // Each child has a third parent that is not returned at all: the abort of one of the others is enough.
    let (db, [mut session]) = Db::connected();
    const ROUNDS: usize = 200;
    session.insert(fan_ins(ROUNDS, 3)).unwrap();
    let grants = own_all(&mut session, ROUNDS, 3);
    at_once((0..2).map(|_| db.connect()).collect(), ROUNDS, move |session, who, round| {
        let grant = &grants[who][round];
        session.give(&grant.task_id, grant.token, ["completed", "aborted"][who]).unwrap();
    });
    let blocked: i64 = session.one("SELECT count(*) FROM taskq.tasks WHERE state = 'blocked'");
    assert_eq!(blocked, 0, "children of {ROUNDS} whose parent has aborted");
}
