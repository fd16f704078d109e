//! `retry_tasks` beside other transactions, on real connections. The dependents that come back wait for dependencies that
//! may be settling at this very moment: if neither sees the other, the signal is lost and they wait for ever. Each race is
//! played in both orders, with commit and with rollback; `check()` at the end of each test sees a wrong counter.

use serde_json::json;
use taskq_tests::{Db, Progress};

use super::states;

const RETRY: &str = "SELECT taskq.retry_tasks('{a}')";

#[test]
fn a_dependent_that_has_not_heard_of_the_abort_yet_comes_back_with_it() {
    // Its counter is locked by an open return of b, so the abort of a waits to be counted.
    for commit in [true, false] {
        let (_db, [mut open, retrying, mut watcher]) = Db::connected();
        watcher
            .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"}, {"id": "d", "action": "d", "depends_on": ["a", "b"]},
                           {"id": "e", "action": "e", "depends_on": ["d"]}]))
            .unwrap();
        let b = watcher.own_one("b");
        open.run("BEGIN");
        open.complete(&b);
        watcher.perform("a", "aborted");
        let call = retrying.background(|session| session.run(RETRY));
        call.settle_down(&mut watcher);
        open.run(if commit { "COMMIT" } else { "ROLLBACK" });
        call.join();
        if !commit {
            open.complete(&b);
        }
        assert_eq!(
            states(&mut watcher, ["a", "d", "e"]),
            ["ready", "blocked", "blocked"],
            "commit: {commit}"
        );
        watcher.perform("a", "completed");
        assert_eq!(states(&mut watcher, ["d", "e"]), ["ready", "blocked"]);
    }
}

#[test]
fn a_signal_of_an_earlier_life_is_not_counted_in_the_next() {
    let (_db, [mut open, mut session]) = Db::connected();
    session
        .insert(json!([{"id": "a", "action": "a"}, {"id": "b", "action": "b"},
                       {"id": "d", "action": "d", "depends_on": ["a", "b"]}]))
        .unwrap();
    let a = session.own_one("a");
    // d aborts in a transaction that is still open, and has its counter's row locked: b leaves its signal behind. Neither
    // finds anything to count at its commit.
    open.run("BEGIN");
    open.give("a", a.token, "aborted").unwrap();
    session.perform("b", "completed");
    open.run("COMMIT");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.countdown"), 1, "the signal is there still");
    session.run(RETRY);
    // Counting it now, beside what the retry has found out of b, would let d go before a.
    session.run("SELECT taskq.maintain()");
    let d = session.task("d").unwrap();
    assert_eq!((d.state.as_str(), d.num_signals), ("blocked", 1));
    session.perform("a", "completed");
    let d = session.task("d").unwrap();
    assert_eq!((d.state.as_str(), d.num_signals), ("ready", 2));
}

/// On wrong code the call does not see that it has ended `d` itself, by counting what was left for it, and leaves it aborted.
#[test]
fn a_rerun_takes_along_what_ends_while_it_counts() {
    for end in ["ROLLBACK", "COMMIT"] {
        let (_db, [mut holder, second, mut watcher]) = Db::connected();
        watcher
            .insert(json!([{"id": "a", "action": "a"}, {"id": "d", "action": "d", "depends_on": ["a"]}]))
            .unwrap();
        holder.run("BEGIN; SELECT taskq.update_tasks('{d}', priority => 1)");
        watcher.perform("a", "aborted");
        let rerun = second.background(|s| s.one::<i64>("SELECT taskq.rerun_tasks('{a}')"));
        assert_eq!(rerun.settle_down(&mut watcher), Progress::Blocked);
        holder.run(end);
        assert_eq!(rerun.join().1, 2, "{end}");
        assert_eq!((watcher.state("a"), watcher.state("d")), ("ready".into(), "blocked".into()), "{end}");
    }
}
