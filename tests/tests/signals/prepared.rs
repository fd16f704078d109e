//! Two-phase commit. COMMIT PREPARED runs in any session and calls nothing of the queue's: whatever a commit does
//! beyond its rows, waking and counting, must happen without it.

use serde_json::json;
use taskq_tests::{Db, Session, until};

/// Whether the cluster allows prepared transactions at all.
fn possible(session: &mut Session) -> bool {
    session.one::<i32>("SELECT setting::int FROM pg_settings WHERE name = 'max_prepared_transactions'") > 0
}

/// A name for a prepared transaction: they are known to the whole cluster.
fn name(db: &Db, part: &str) -> String {
    format!("{} {part}", db.name())
}

#[test]
fn a_prepared_return_counts_when_it_commits() {
    let db = Db::new();
    for prepared_first in [true, false] {
        db.clear();
        let (mut one, mut two, mut watcher) = (db.connect(), db.connect(), db.connect());
        if !possible(&mut watcher) {
            return;
        }
        let tasks = json!([
            {"id": "p", "action": "x"}, {"id": "q", "action": "x"}, {"id": "child", "action": "y", "depends_on": ["p", "q"]},
            {"id": "mark", "action": "s", "spontaneous": true, "depends_on": ["p", "q"]},
        ]);
        watcher.insert(tasks).unwrap();
        let held = watcher.own("w", 2, &["x"]).unwrap();
        let gid = name(&db, "return");
        one.run("BEGIN");
        one.complete(&held[0]);
        if prepared_first {
            one.run(&format!("PREPARE TRANSACTION '{gid}'"));
            two.complete(&held[1]);
        } else {
            two.run("BEGIN");
            two.complete(&held[1]);
            one.run(&format!("PREPARE TRANSACTION '{gid}'"));
            two.run("COMMIT");
        }
        assert!(watcher.own("w", 1, &["y"]).unwrap().is_empty());
        watcher.run(&format!("COMMIT PREPARED '{gid}'"));
        until("the child is granted", || watcher.own("w", 1, &["y"]).unwrap().pop());
        until("the spontaneous one completes", || (watcher.state("mark") == "completed").then_some(()));
    }
}

#[test]
fn a_prepared_insert_and_grant_roll_back_like_any_other() {
    let (db, [mut session, mut watcher]) = Db::connected();
    if !possible(&mut watcher) {
        return;
    }
    watcher.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x"}])).unwrap();
    let gid = name(&db, "grant");
    session.run("BEGIN");
    session.own_one("x");
    session.insert(json!([{"id": "never", "action": "x"}])).unwrap();
    session.run(&format!("PREPARE TRANSACTION '{gid}'"));
    assert_eq!(watcher.own_one("x").task_id, "b", "a prepared grant is passed over");
    watcher.run(&format!("ROLLBACK PREPARED '{gid}'"));
    let grants = watcher.own("w", 5, &["x"]).unwrap();
    assert_eq!(
        grants.iter().map(|grant| (grant.task_id.as_str(), grant.num_tries)).collect::<Vec<_>>(),
        [("a", 1)]
    );
}

#[test]
fn sleepers_notice_what_a_prepared_transaction_brought() {
    let (db, [mut session, mut watcher]) = Db::connected();
    if !possible(&mut watcher) {
        return;
    }
    watcher.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let held = watcher.own_one("x");
    let worker =
        db.connect().background(|session| session.own_with("w", 1, &["y"], "wait => '60 seconds'").unwrap());
    let waiter = db.connect().background(|session| session.wait("a", "60 seconds").unwrap());
    watcher.until_asleep(worker.pid());
    watcher.until_asleep(waiter.pid());
    let gid = name(&db, "both");
    session.run("BEGIN");
    session.complete(&held);
    session.insert(json!([{"id": "b", "action": "y"}])).unwrap();
    session.run(&format!("PREPARE TRANSACTION '{gid}'"));
    watcher.run(&format!("COMMIT PREPARED '{gid}'"));
    assert_eq!(worker.join().1[0].task_id, "b");
    assert_eq!(waiter.join().1.unwrap().status_code, "completed");
}

#[test]
fn a_signal_of_an_earlier_life_is_not_counted_in_the_next() {
    let db = Db::new();
    for cancel_prepared in [true, false] {
        db.clear();
        let (mut cancelling, mut returning, mut watcher) = (db.connect(), db.connect(), db.connect());
        if !possible(&mut watcher) {
            return;
        }
        let tasks = json!([
            {"id": "p", "action": "x"}, {"id": "q", "action": "z"}, {"id": "child", "action": "y", "depends_on": ["p", "q"]},
        ]);
        watcher.insert(tasks).unwrap();
        let held = watcher.own_one("x");
        let gid = name(&db, "life");
        // The cancel has locked the counter, so p leaves its signal behind. Each looks before it commits or is prepared: the
        // cancel when the signal is not committed yet, the return when the counter is still there.
        cancelling.run("BEGIN");
        assert_eq!(cancelling.cancel(&["child"]).unwrap(), 1);
        if cancel_prepared {
            cancelling.run(&format!("PREPARE TRANSACTION '{gid}'"));
            returning.complete(&held);
        } else {
            returning.run("BEGIN");
            returning.complete(&held);
            returning.run(&format!("PREPARE TRANSACTION '{gid}'"));
            cancelling.run("COMMIT");
        }
        watcher.run(&format!("COMMIT PREPARED '{gid}'"));
        assert_eq!(
            watcher.one::<i64>("SELECT count(*) FROM taskq.countdown"),
            1,
            "the signal is there still"
        );
        assert_eq!(watcher.one::<i64>("SELECT taskq.retry_tasks('{child}')"), 1);
        // Counting it now, beside what the retry has found out of p, would let the child go before q.
        watcher.run("SELECT taskq.maintain()");
        let child = watcher.task("child").unwrap();
        assert_eq!((child.state.as_str(), child.num_signals), ("blocked", 1), "{cancel_prepared}");
        watcher.perform("z", "completed");
        let child = watcher.task("child").unwrap();
        assert_eq!((child.state.as_str(), child.num_signals), ("ready", 2), "{cancel_prepared}");
    }
}

/// `COMMIT PREPARED` wakes no session to count. A worker that asks for one of the tasks gets it soon, also where it
/// is behind those of many others: its calls count a part, and have the rest counted.
#[test]
fn what_a_prepared_transaction_leaves_to_be_counted_is_not_hidden_by_other_actions() {
    const MANY: usize = 1_500;
    let (db, [mut one, mut two, mut watcher]) = Db::connected();
    if !possible(&mut watcher) {
        return;
    }
    for (block, wait) in [("BEGIN", ""), ("BEGIN", ", wait => '20 seconds'"), ("", "")] {
        db.clear();
        watcher.insert((0..MANY).map(|n| json!({"id": format!("p{n}"), "action": "p"})).collect()).unwrap();
        watcher.insert((0..MANY).map(|n| json!({"id": format!("q{n}"), "action": "q"})).collect()).unwrap();
        let action = |n: usize| if n == MANY - 50 { "y" } else { "x" };
        let child = |n: usize| json!({"id": format!("d{n}"), "action": action(n), "depends_on": [format!("p{n}"), format!("q{n}")]});
        watcher.insert((0..MANY).map(child).collect()).unwrap();
        for (session, parent) in [(&mut one, "p"), (&mut two, "q")] {
            session.run("BEGIN");
            session.run(&format!(
                "SELECT taskq.return_tasks(array_agg(t.task_id), array_agg(t.token)) FROM taskq.own_tasks('w', {MANY}, '{{{parent}}}') AS t"
            ));
        }
        let gid = name(&db, "hidden");
        two.run(&format!("PREPARE TRANSACTION '{gid}'"));
        one.run("COMMIT");
        watcher.run(&format!("COMMIT PREPARED '{gid}'"));
        let call = format!("SELECT count(*) FROM taskq.own_tasks('w', 1, '{{y}}', '1 hour'{wait})");
        taskq_tests::until("one comes", || {
            watcher.run(block);
            let granted: i64 = watcher.one(&call);
            watcher.run("COMMIT");
            (granted == 1).then_some(())
        });
        assert_eq!(watcher.broken(), Vec::<String>::new());
    }
}

#[test]
fn what_was_prepared_has_nothing_done_at_the_end_of_later_transactions() {
    // A coordinator's session prepares one after the other, and leaves it to another one to commit them.
    let (db, [mut session, mut other]) = Db::connected();
    if !possible(&mut session) {
        return;
    }
    session.insert(json!([{"id": "up", "action": "x"}])).unwrap();
    session.run(
        "SELECT taskq.insert_task('down ' || n, 'y', depends_on => '{up}') FROM generate_series(0, 2) AS n;
         CREATE TABLE looks (n int);
         CREATE OR REPLACE FUNCTION taskq._before_commit() RETURNS void LANGUAGE plpgsql
         AS 'BEGIN INSERT INTO public.looks VALUES (1); END'",
    );
    let gids: Vec<String> = (0..3).map(|n| name(&db, &format!("touches {n}"))).collect();
    for (n, gid) in gids.iter().enumerate() {
        session
            .run(&format!("BEGIN; SELECT taskq.cancel_tasks('{{down {n}}}'); PREPARE TRANSACTION '{gid}'"));
    }
    let looks = |session: &mut Session| session.one::<i64>("SELECT count(*) FROM looks");
    session.run("BEGIN; COMMIT");
    assert_eq!(looks(&mut session), 0, "none of those is committed");
    for gid in &gids {
        other.run(&format!("COMMIT PREPARED '{gid}'"));
    }
    assert_eq!(looks(&mut session), 3, "one each");
}
