//! `max_run_time`: a try lasts no longer, however often it is extended.

use taskq_tests::{Db, refused};

/// How long the task is held, from its grant on.
const HELD: &str = "SELECT extract(epoch FROM action_deadline - owned_at)::integer FROM taskq.actors";

#[test]
fn a_grant_ends_with_it() {
    for (name, task, own, expected) in [
        ("less than the lease", "max_run_time => '10 seconds'", "", 10),
        ("less than what the call asks for", "max_run_time => '10 seconds'", ", lease => '1 day'", 10),
        ("more than that", "max_run_time => '10 seconds'", ", lease => '5 seconds'", 5),
        ("less than the task's own lease", "max_run_time => '10 seconds', lease => '1 day'", "", 10),
    ] {
        let (_db, [mut session]) = Db::connected();
        for setting in ["'1 hour'", "''"] {
            session.run(&format!("SET taskq.lease = {setting}; SELECT taskq.insert_task('a', 'x', {task})"));
            session.run(&format!("SELECT taskq.own_tasks('w', 1, '{{x}}'{own})"));
            assert_eq!(session.one::<i32>(HELD), expected, "{name}, setting {setting}");
            session.run("SELECT taskq.cancel_tasks('{a}'); SELECT taskq.delete_tasks('{a}')");
        }
    }
}

#[test]
fn an_action_has_a_default() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.insert_task('a', 'x'); SELECT taskq.set_action('x', max_run_time => '10 seconds')",
    );
    let grant = session.own_one("x");
    assert_eq!(session.one::<i32>(HELD), 10);
    let left: i32 = session.one(&format!(
        "SELECT extract(epoch FROM action_deadline - taskq.clock())::int
           FROM taskq.extend_tasks_ownership('w', '{{a}}', '{{{}}}', '1 day')",
        grant.token
    ));
    assert_eq!((left, session.one::<i32>(HELD)), (10, 10), "the worker is told of the earlier deadline");
    session.run("SELECT taskq.set_action('x', clear => '{max_run_time}')");
    session
        .run(&format!("SELECT taskq.extend_tasks_ownership('w', '{{a}}', '{{{}}}', '1 day')", grant.token));
    assert!(session.one::<i32>(HELD) >= 86_400);
    refused(
        &mut session,
        "22023",
        "max_run_time",
        "SELECT taskq.set_action('x', max_run_time => '-1 second')",
        &[],
    );
    session.run("SELECT taskq.set_action('x', max_run_time => '10 seconds')");
    session.run("SELECT taskq.insert_task('own', 'x', max_run_time => '20 seconds', priority => 1)");
    session.run("SELECT taskq.cancel_tasks('{a}')");
    session.own_one("x");
    assert_eq!(session.one::<i32>(HELD), 20, "the task's own comes first");
    let shown = "SELECT (SELECT max_run_time FROM taskq.tasks WHERE id = 'own')::text || ' '
                     || (SELECT max_run_time FROM taskq.actions WHERE action = 'x')::text";
    assert_eq!(session.one::<String>(shown), "00:00:20 00:00:10");
}

#[test]
fn an_extension_does_not_go_beyond_it() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run("SELECT taskq.insert_task('a', 'x', max_run_time => '1 minute', lease => '10 seconds')");
    let grant = session.own_one("x");
    let extend = |duration: &str| {
        format!(
            "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{a}}', '{{{}}}', '{duration}')",
            grant.token
        )
    };
    session.set_now(Some("2030-01-01 00:00:05Z"));
    assert!(session.one::<bool>(&extend("20 seconds")));
    assert_eq!(session.one::<i32>(HELD), 25);
    assert!(session.one::<bool>(&extend("1 hour")));
    assert_eq!(session.one::<i32>(HELD), 60);
    // Back in the queue after a deadline that was earlier, it may be held again, and no longer.
    assert!(session.one::<bool>(&extend("1 second")));
    session.set_now(Some("2030-01-01 00:00:30Z"));
    session.run("SELECT taskq.maintain()");
    assert!(session.one::<bool>(&extend("1 hour")));
    assert_eq!(session.one::<i32>(HELD), 60);
    session.set_now(Some("2030-01-01 00:01Z"));
    assert!(!session.one::<bool>(&extend("1 hour")), "before upkeep has come to it");
    session.run("SELECT taskq.maintain()");
    assert!(!session.one::<bool>(&extend("1 hour")), "and after");
    // The next try has the whole of it again.
    session.own_one("x");
    assert_eq!(session.one::<i32>(HELD), 10);
}

#[test]
fn an_actor_that_comes_late_may_still_return_it() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run("SELECT taskq.insert_task('a', 'x', max_run_time => '1 minute')");
    let grant = session.own_one("x");
    session.set_now(Some("2030-01-01 00:02Z"));
    session.run("SELECT taskq.maintain()");
    session.complete(&grant);
    assert_eq!(session.state("a"), "completed");
}
