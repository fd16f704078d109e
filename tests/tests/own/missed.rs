//! Tries that end by their deadlines: the first time the task comes back at once, from the second in a row on after its back-off.

use taskq_tests::{Db, Session};

/// A task with a lease of a minute and a back-off of an hour, in a queue whose clock is set.
fn queue(session: &mut Session) {
    at(session, 0);
    session.run("SELECT taskq.insert_task('a', 'x', lease => '1 minute', backoff => '{\"kind\": \"fixed\", \"initial\": \"1 hour\", \"jitter\": 0}')");
}

/// So many minutes after the beginning.
fn at(session: &mut Session, minutes: i32) {
    session.run(&format!("SET taskq.now = '2090-01-01 {:02}:{:02}Z'", minutes / 60, minutes % 60));
}

/// Whether a worker is granted the task then.
fn granted(session: &mut Session, minutes: i32) -> bool {
    at(session, minutes);
    !session.own("w", 1, &["x"]).unwrap().is_empty()
}

#[test]
fn from_the_second_in_a_row_on_the_back_off_counts_from_the_deadline() {
    let (_db, [mut session]) = Db::connected();
    queue(&mut session);
    assert!(granted(&mut session, 0));
    assert!(granted(&mut session, 1), "at once the first time");
    // The second deadline is at 2 minutes; it is found later.
    assert!(!granted(&mut session, 30));
    let why: String = session.one("SELECT taskq.why('a')");
    assert!(why.contains("backs off"), "{why}");
    assert_eq!(session.broken(), Vec::<String>::new());
    assert!(!granted(&mut session, 61));
    assert!(granted(&mut session, 62), "an hour after its deadline");
    assert!(!granted(&mut session, 100), "the third");
    assert!(granted(&mut session, 123));
    assert_eq!(session.task("a").unwrap().num_tries, 4);
}

#[test]
fn what_is_said_within_the_try_begins_anew() {
    for saying in [
        "taskq.report_status('a', $1, 'half', 0.5)",
        "taskq.save_step('a', $1, 'one')",
        "taskq.return_task('a', $1, 'pending', retry_after => '0')",
        "taskq.return_task('a', $1, 'pending', count_try => false)",
    ] {
        let (_db, [mut session]) = Db::connected();
        queue(&mut session);
        assert!(granted(&mut session, 0));
        at(&mut session, 1);
        let grant = session.own_one("x");
        let call = saying.replace("$1", &format!("'{}'", grant.token));
        session.run(&format!("SELECT {call}"));
        let returned = saying.contains("return");
        if returned {
            assert!(granted(&mut session, 1), "{saying}");
        }
        assert!(granted(&mut session, 2), "{saying}: at once");
        assert!(!granted(&mut session, 3), "{saying}: the second in a row again");
        assert!(granted(&mut session, 63), "{saying}");
    }
}

#[test]
fn extending_does_not_and_a_late_worker_may_still_return_it() {
    let (_db, [mut session]) = Db::connected();
    queue(&mut session);
    assert!(granted(&mut session, 0));
    at(&mut session, 1);
    let grant = session.own_one("x");
    session.extend("w", &[("a", grant.token)], "5 minutes").unwrap();
    assert!(!granted(&mut session, 6), "its deadline was at 6 minutes");
    assert!(!granted(&mut session, 65));
    assert_eq!(session.extend("w", &[("a", grant.token)], "5 minutes").unwrap(), [("a".to_owned(), true)]);
    assert!(!granted(&mut session, 66), "it is held again");
    session.complete(&grant);
    assert_eq!(session.state("a"), "completed");
}

#[test]
fn starting_over_begins_anew() {
    for over in ["taskq.cancel_tasks('{a}'); SELECT taskq.retry_tasks('{a}')", "taskq.reset_group('g')"] {
        let (_db, [mut session]) = Db::connected();
        queue(&mut session);
        session.run("SELECT taskq.delete_tasks('{a}'); SELECT taskq.insert_task('a', 'x', group_id => 'g', lease => '1 minute', backoff => '{\"kind\": \"fixed\", \"initial\": \"1 hour\"}')");
        assert!(granted(&mut session, 0) && granted(&mut session, 1) && !granted(&mut session, 2));
        session.run(&format!("SELECT {over}"));
        assert!(granted(&mut session, 2), "{over}");
        assert!(granted(&mut session, 3), "{over}: the first deadline");
        assert!(!granted(&mut session, 4), "{over}");
    }
}

#[test]
fn without_a_back_off_it_comes_back_at_once() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.backoff = ''");
    at(&mut session, 0);
    session.run("SELECT taskq.insert_task('a', 'x', lease => '1 minute')");
    for minutes in 0..5 {
        assert!(granted(&mut session, minutes));
    }
}
