//! A sleeper comes to what stands behind a backlog that is larger than what one look deals with.
//!
//! Why: a look that comes to nothing is rolled back, with the part of the backlog that it has moved out of its way or ended. The next one began
//! anew, and so on until the time was up, as busy as can be.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Db, Session};

#[cfg(target_os = "linux")]
use crate::sleeper::times_asleep;

/// A call that sleeps is granted this task, long before its time is up.
fn comes(session: &mut Session, task_id: &str) {
    let began = Instant::now();
    let grants = session.own_with("w", 1, &["x"], "wait => '5 minutes'").unwrap();
    assert_eq!(grants.iter().map(|g| g.task_id.as_str()).collect::<Vec<_>>(), [task_id]);
    assert!(began.elapsed() < Duration::from_secs(120), "it came after {:?}", began.elapsed());
    assert!(session.broken().is_empty(), "{:?}", session.broken());
}

#[test]
fn a_backlog_of_a_group_that_has_got_a_limit() {
    for limit in ["set_group('g', max_concurrency => 1)", "set_action('x', max_per_group => 1)"] {
        let db = Db::new();
        let mut session = db.connect();
        session.run("SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[42000]), group_id => 'g')");
        session.run(&format!("SELECT taskq.{limit}"));
        assert_eq!(session.own("first", 1, &["x"]).unwrap().len(), 1);
        session.insert(json!([{"id": "free", "action": "x"}])).unwrap();
        comes(&mut session, "free");
    }
}

#[test]
fn a_backlog_of_tries_that_have_ended() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[12000]),
             ids => (SELECT array_agg(n::text) FROM generate_series(1, 12000) AS n), max_tries => 1)",
    );
    let held = "max_duration => '8 seconds'";
    assert_eq!(db.connect().own_with("dead", 12_000, &["x"], held).unwrap().len(), 12_000);
    // Which of them is the last to be ended nobody says.
    let last: String = session.one(
        "SELECT t.id FROM taskq.task t JOIN taskq.run r USING (task_no) ORDER BY r.deadline DESC, t.task_no DESC LIMIT 1",
    );
    session
        .insert(json!([{"id": "next", "action": "x", "depends_on": [{"id": last, "condition": "settled"}]}]))
        .unwrap();
    thread::sleep(Duration::from_secs(8));
    comes(&mut session, "next");
}

/// Why: whoever met what stands behind the 20,000 that an open transaction had moved looked ahead from the first of those, saw nothing that
/// could be moved, and took the rest one by one, past all that were locked.
#[test]
fn what_an_open_transaction_has_moved_of_a_backlog_is_not_walked_for_each_entry_behind_it() {
    let limits = [
        "",
        "SELECT taskq.set_action('x', max_concurrency => 3)",
        "SELECT taskq.set_group('g', max_concurrency => 1)",
    ];
    for limit in limits {
        let db = Db::new();
        let mut session = db.connect();
        let mut open = db.connect();
        session.run(
            "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[32000]), group_id => 'g')",
        );
        let mut held = 0;
        if limit.contains("set_group") {
            session.run(limit);
            held = session.own("first", 1, &["x"]).unwrap().len();
        } else {
            session.run("SELECT taskq.pause_group('g')");
            if !limit.is_empty() {
                session.run(limit);
            }
        }
        open.run("BEGIN");
        assert!(open.own("open", 1, &["x"]).unwrap().is_empty());
        let began = Instant::now();
        assert!(session.own("w", 1, &["x"]).unwrap().is_empty());
        assert!(session.own_with("w", 1, &["x"], "wait => '1 second'").unwrap().is_empty());
        assert!(began.elapsed() < Duration::from_secs(40), "{limit}: {:?}", began.elapsed());
        open.run("ROLLBACK");
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.actors"), held as i64);
        assert!(session.broken().is_empty(), "{:?}", session.broken());
    }
}

/// Neither ends for the other all that is left of tries, again and again: nothing would come of it for either.
#[test]
fn tries_of_which_nothing_comes_are_left_alone_by_those_who_sleep() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[3000]), max_tries => 1)",
    );
    assert_eq!(
        db.connect().own_with("dead", 3000, &["x"], "max_duration => '1 second'").unwrap().len(),
        3000
    );
    thread::sleep(Duration::from_secs(1));
    let calls: Vec<_> = (0..2)
        .map(|_| {
            db.connect().background(|s| s.own_with("w", 1, &["x"], "wait => '3 seconds'").unwrap().len())
        })
        .collect();
    for call in &calls {
        session.until_asleep(call.pid());
        let ids: i64 = session.one(&format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND pid = {}",
            call.pid()
        ));
        assert_eq!(ids, 0, "it sleeps with a transaction id");
    }
    assert!(calls.into_iter().all(|call| call.join().1 == 0));
    // By their last looks.
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.dead_ends WHERE cause = 'timeout'"), 3000);
}

/// Why: it walked through all that was left of a paused group, 10 seconds for 200,000, when its time had been up at once; and each next
/// one did so again.
#[test]
fn a_call_whose_time_is_up_does_as_much_as_one_that_does_not_wait() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[100000]), group_id => 'g')",
    );
    session.run("SELECT taskq.pause_group('g')");
    session.run("VACUUM ANALYZE");
    let moved = |session: &mut Session| session.one::<i64>("SELECT count(*) FROM taskq.parked");
    let once = session.pages("SELECT count(*) FROM taskq.own_tasks('w', 1, '{x}')");
    assert_eq!(moved(&mut session), 20_000);
    // A look that is undone, and one that is not.
    let waiting = session.pages("SELECT count(*) FROM taskq.own_tasks('w', 1, '{x}', wait => '0')");
    assert_eq!(moved(&mut session), 40_000);
    assert!(waiting < 3 * once, "{waiting} pages, and {once} without waiting");
}

/// Why: of a backlog that may not run it asked the reasons for each entry, and read all before it again for each 10,000.
#[test]
fn going_through_a_backlog_takes_time_in_proportion_to_it() {
    let db = Db::new();
    let mut session = db.connect();
    let mut pages = Vec::new();
    for more in [40_000, 120_000] {
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[{more}]), group_id => 'g')"
        ));
        session.run("SELECT taskq.pause_group('g'); ");
        session.run("VACUUM ANALYZE");
        session.run("BEGIN");
        pages.push(session.pages("SELECT count(*) FROM taskq.own_tasks('w', 1, '{x}', wait => '8 seconds')"));
        session.run("ROLLBACK");
    }
    assert!(pages[1] < 8 * pages[0], "{pages:?} pages for 40,000 and 160,000");
}

/// Two who sleep come to what is overdue behind tries whose tasks may not run now.
#[test]
fn two_who_sleep_behind_overdue_tasks_of_a_paused_group() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[8000]), group_id => 'g')",
    );
    let mut dead = db.connect();
    assert_eq!(dead.own_with("dead", 8000, &["x"], "max_duration => '6 seconds'").unwrap().len(), 8000);
    session.insert(json!([{"id": "mine", "action": "x"}])).unwrap();
    assert_eq!(dead.own_with("dead", 1, &["x"], "max_duration => '6.5 seconds'").unwrap().len(), 1);
    session.run("SELECT taskq.pause_group('g')");
    thread::sleep(Duration::from_secs(6));
    let began = Instant::now();
    let calls = [(); 2].map(|()| {
        db.connect().background(|s| {
            let had = s.own_with("w", 1, &["x"], "wait => '60 seconds'").unwrap();
            if had.iter().any(|g| g.task_id == "mine") {
                s.insert(json!([{"id": "next", "action": "x"}])).unwrap();
            }
            had.len()
        })
    });
    let granted: usize = calls.into_iter().map(|call| call.join().1).sum();
    assert_eq!(granted, 2);
    assert!(began.elapsed() < Duration::from_secs(30), "they came after {:?}", began.elapsed());
}

/// Why: it walked through the backlog for all of its time, and the look that was to follow, and to move a part of it out of the way, did not end
/// before its caller's time-out. The next call began anew.
#[test]
fn the_last_look_has_its_part_of_a_time_out() {
    let db = Db::new();
    let mut session = db.connect();
    session.run(
        "SELECT count(*) FROM taskq.insert_many('x', array_fill('b'::text, ARRAY[200000]), group_id => 'g')",
    );
    session.run("SELECT taskq.pause_group('g')");
    session.run("VACUUM ANALYZE");
    session.run("SET statement_timeout = '2.4 s'");
    let parked = |session: &mut Session| session.one::<i64>("SELECT count(*) FROM taskq.parked");
    let mut before = 0;
    for _ in 0..3 {
        assert!(session.own_with("w", 1, &["x"], "wait => '1.6 s'").unwrap().is_empty());
        let now = parked(&mut session);
        assert!(now > before, "it has moved nothing of {before}");
        before = now;
    }
}

/// A worker has taken so many tasks one by one, and is gone; of use to nobody but who waits for what depends on the last of them.
fn tries_of_a_dead_worker(db: &Db, number: usize) -> Session {
    let mut session = db.connect();
    session.set_now(Some("2020-01-01"));
    // So many calls take a while on a busy machine.
    session.run("SET statement_timeout = '10min'");
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_many('y', array_fill('b'::text, ARRAY[{number}]), max_tries => 1);
         DO $$ BEGIN FOR i IN 1..{number} LOOP
             PERFORM taskq.own_tasks('dead', 1, '{{y}}', make_interval(secs => 1 + i * 0.001));
         END LOOP; END $$"
    ));
    session.insert(json!([{"id": "last", "action": "y", "max_tries": 1}])).unwrap();
    session.own_one_with("y", "max_duration => '1 hour'");
    let mine = json!([{"id": "mine", "action": "x", "depends_on": [{"id": "last", "condition": "settled"}]}]);
    session.insert(mine).unwrap();
    session.set_now(None);
    session.run("RESET statement_timeout");
    session.run("VACUUM ANALYZE");
    session
}

/// Why: a look that went on where the one before had been cut short was followed by another one in a tenth of a second, since something of
/// what it had not looked at might be of use by now; that one began at the beginning, was cut short, and so on, for ever.
#[test]
#[cfg(target_os = "linux")]
fn who_has_gone_through_a_backlog_of_no_use_sleeps() {
    let db = Db::new();
    // More than one look comes through.
    let mut session = tries_of_a_dead_worker(&db, 120_000);
    for begin in ["SELECT 1", "BEGIN; SELECT pg_current_xact_id()"] {
        let mut sleeper = db.connect();
        sleeper.run(begin);
        let pid = sleeper.pid();
        let sleeper =
            sleeper.background(|s| s.own_with("w", 1, &["w"], "wait => '17 seconds'").unwrap().len());
        // It goes through all of it, once as it begins, and once more since it was woken.
        thread::sleep(Duration::from_secs(5));
        session.run(&format!("SELECT pg_log_backend_memory_contexts({pid})"));
        thread::sleep(Duration::from_secs(7));
        let before = times_asleep(pid);
        thread::sleep(Duration::from_secs(4));
        let looks = times_asleep(pid) - before;
        assert!(looks < 5, "{begin}: {looks} looks in 4 seconds");
        assert_eq!(sleeper.join().1, 0);
    }
    // And in a transaction that had an id already nothing was remembered of what a look had gone through, so that each began anew; then, so
    // that each call did.
    for wait in ["60 seconds", "0.5 seconds"] {
        session.run("BEGIN; SELECT pg_current_xact_id(); SAVEPOINT one");
        let began = Instant::now();
        let mut own = || session.own_with("w", 1, &["x"], &format!("wait => '{wait}'")).unwrap().pop();
        let found = std::iter::from_fn(|| (began.elapsed() < Duration::from_secs(30)).then(&mut own))
            .flatten()
            .next();
        assert!(found.is_some(), "nothing in {:?} with waits of {wait}", began.elapsed());
        session.run("ROLLBACK");
    }
}
