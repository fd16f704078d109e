//! A spontaneous task with a time completes when its dependencies have settled and its time has come.

use taskq_tests::{Db, until};

use crate::sleeper::{Sleeper, WORK};
use crate::{at, ends};

#[test]
fn one_that_comes_earlier_is_heard_of() {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('far', 'z', spontaneous => true, delay => '1 hour')");
    let sleeper = Sleeper::start(&db, &mut session, WORK[0]);
    session.run("SELECT taskq.update_tasks('{far}', delay => '0.3 seconds')");
    until("it completes", || (session.state("far") == "completed").then_some(()));
    session.run(&format!("SELECT pg_terminate_backend({})", sleeper.pid()));
    sleeper.fails();
}

#[test]
fn the_next_call_completes_it_where_none_sleeps() {
    for (name, call) in [
        ("a call", "SELECT taskq.own_tasks('w', 1, '{other}')"),
        ("one in a transaction block", "BEGIN; SELECT taskq.own_tasks('w', 1, '{other}'); COMMIT"),
        ("upkeep", "SELECT taskq.maintain()"),
    ] {
        let (_db, [mut session]) = Db::connected();
        session.set_now(Some("2030-01-01 00:00Z"));
        session.run(
            "SELECT taskq.insert_task('t', 'z', spontaneous => true, delay => '1 minute');
             SELECT taskq.insert_task('later', 'z', spontaneous => true, delay => '1 hour');
             SELECT taskq.insert_task('after', 'z', depends_on => '{t}')",
        );
        session.run(call);
        assert_eq!(ends(&mut session), ["after blocked", "later scheduled", "t scheduled"], "{name}");
        at(&mut session, "2030-01-01 00:01Z", call);
        assert_eq!(ends(&mut session), ["after ready", "later scheduled", "t completed"], "{name}");
    }
}

#[test]
fn without_a_process_that_commits_the_call_completes_it_at_its_end() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.background_worker = off");
    session.run("SELECT taskq.insert_task('t', 'z', spontaneous => true, delay => '0.3 seconds')");
    session.run("SELECT taskq.own_tasks('w', 1, '{x}', wait => '1.5 seconds')");
    assert_eq!(session.state("t"), "completed");
}

#[test]
fn it_waits_for_its_dependencies_and_for_its_time() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT taskq.insert_task('a', 'x'); SELECT taskq.insert_task('b', 'x');
         SELECT taskq.insert_task('early', 'z', spontaneous => true, delay => '1 minute', depends_on => '{a}');
         SELECT taskq.insert_task('late', 'z', spontaneous => true, delay => '1 minute', depends_on => '{b}');
         SELECT taskq.complete_task('a')",
    );
    assert_eq!(ends(&mut session), ["a completed", "b ready", "early scheduled", "late blocked"]);
    session.set_now(Some("2030-01-01 00:02Z"));
    session.run("SELECT taskq.maintain()");
    assert_eq!(ends(&mut session), ["a completed", "b ready", "early completed", "late blocked"]);
    session.run("SELECT taskq.complete_task('b')");
    assert_eq!(session.state("late"), "completed", "its time had come before");
}

#[test]
fn whichever_comes_first_frees_what_needs_one() {
    for (by, expected) in [("timer", "ready"), ("work", "ready")] {
        let (_db, [mut session]) = Db::connected();
        session.set_now(Some("2030-01-01 00:00Z"));
        session.run(
            "SELECT taskq.insert_task('work', 'x');
             SELECT taskq.insert_task('timer', 'z', spontaneous => true, delay => '1 minute');
             SELECT taskq.insert_task('run', 'y', depends_on => '{work,timer}', num_required => 1)",
        );
        match by {
            "timer" => session.set_now(Some("2030-01-01 00:01Z")),
            _ => session.run("SELECT taskq.complete_task('work')"),
        }
        session.run("SELECT taskq.maintain()");
        assert_eq!(session.state("run"), expected, "by the {by}");
        assert_eq!(session.state("timer"), if by == "timer" { "completed" } else { "scheduled" });
    }
}

#[test]
fn nothing_that_holds_work_back_holds_a_timer_back() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT taskq.insert_task('t', 'z', spontaneous => true, delay => '1 minute', group_id => 'g', workgroup => 'w');
         SELECT taskq.pause_group('g'); SELECT taskq.pause_action('z');
         SELECT taskq.set_action('z', max_concurrency => 0, max_per_group => 1);
         SELECT taskq.set_group('g', max_concurrency => 1);
         SELECT taskq.delay_workgroup('w', '1 hour')",
    );
    at(&mut session, "2030-01-01 00:01Z", "SELECT taskq.own_tasks('w', 1, '{other}')");
    assert_eq!(session.state("t"), "completed");
}

#[test]
fn its_time_may_be_changed() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT taskq.insert_task('now', 'z', spontaneous => true, delay => '1 minute');
         SELECT taskq.insert_task('later', 'z', spontaneous => true, delay => '1 minute');
         SELECT taskq.insert_task('work', 'z', delay => '1 minute');
         SELECT taskq.insert_task('after', 'y', depends_on => '{now}');
         SELECT taskq.update_tasks('{now,work}', delay => '0'); SELECT taskq.update_tasks('{later}', delay => '1 hour')",
    );
    assert_eq!(ends(&mut session), ["after ready", "later scheduled", "now completed", "work ready"]);
    at(&mut session, "2030-01-01 00:02Z", "SELECT taskq.maintain()");
    assert_eq!(session.state("later"), "scheduled");
    at(&mut session, "2030-01-01 01:02Z", "SELECT taskq.maintain()");
    assert_eq!(session.state("later"), "completed");
}

#[test]
fn many_at_once_complete() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT count(taskq.insert_task('t' || n, 'z', spontaneous => true, delay => '1 minute'))
           FROM generate_series(1, 1000) AS n",
    );
    session.set_now(Some("2030-01-01 00:01Z"));
    // A step of each call is bounded, and a call goes on while there is more.
    session.run("SELECT taskq.own_tasks('w', 1, '{x}')");
    until("all complete", || {
        session.run("SELECT taskq.own_tasks('w', 1, '{x}')");
        (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'") == 1000)
            .then_some(())
    });
}
