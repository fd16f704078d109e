//! Very many suspended tasks, and very many suspensions of one.

use taskq_tests::Db;

use super::{signal, suspend};

/// Suspends that many tasks for one signal, in steps.
const SUSPEND: &str = "DO $$ BEGIN
    FOR i IN 1..10 LOOP
        PERFORM taskq.return_tasks((SELECT jsonb_agg(jsonb_build_object('task_id', o.task_id, 'token', o.token, 'status_code', 'pending',
                                           'depends_on', jsonb_build_array(jsonb_build_object('id', 's', 'signal', true))))
                                      FROM taskq.own_tasks('w', 10000, '{work}') AS o));
    END LOOP; END $$";

#[test]
#[ignore = "long"]
fn a_hundred_thousand_wait_for_one_signal() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT count(*) FROM taskq.insert_many('work', array_fill('b'::text, ARRAY[100000]))");
    session.run(SUSPEND);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.waits"), 100_000);
    session.run("VACUUM");
    session.run("SELECT taskq.insert_task('one', 'work')");
    // The first one reads what the session has to know.
    session.pages_of_a_claim("work");
    let pages = session.pages_of_a_claim("work");
    assert!(pages < 200, "a claim reads {pages} pages");
    assert!(signal(&mut session, "s"));
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.waits"), 0);
    assert_eq!(session.own("w", 1000, &["work"]).unwrap().len(), 1000);
}

#[test]
fn many_suspensions_of_a_task_leave_no_row_each() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work'), taskq.insert_task('s', 'x')");
    session.perform("x", "completed");
    let rows = "SELECT sum(n) FROM (SELECT (xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM ' || c.oid::regclass, true, true, '')))[1]::text::bigint AS n
                  FROM pg_class AS c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r') AS x";
    let mut before = None;
    for n in 0..300 {
        let grant = session.own_one("work");
        suspend(
            &mut session,
            &grant,
            if n % 2 == 0 {
                "depends_on => '[\"s\"]'"
            } else {
                "depends_on => '[]', wait_at_most => '1 day'"
            },
        )
        .unwrap();
        if n == 10 {
            before = Some(session.one::<String>(&format!("SELECT ({rows})::text")));
        }
    }
    let after: String = session.one(&format!("SELECT ({rows})::text"));
    // Leases that are not needed any more are removed now and then.
    let (before, after): (i64, i64) = (before.unwrap().parse().unwrap(), after.parse().unwrap());
    assert!(after - before < 50, "{before} rows have become {after}");
}

/// Why: each dependency that a suspension had added was compared with the whole list of what is retried.
#[test]
#[ignore = "long"]
#[cfg(target_os = "linux")]
fn a_retry_of_many_that_were_suspended_takes_time_that_grows_with_their_number() {
    let used = |tasks: u32| {
        let (_db, [mut session]) = Db::connected();
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_many('work', array_fill('b'::text, ARRAY[{tasks}]));
             SELECT count(*) FROM taskq.return_tasks((SELECT jsonb_agg(jsonb_build_object('task_id', o.task_id, 'token', o.token,
                 'status_code', 'pending', 'depends_on', '[{{\"id\": \"s\", \"signal\": true}}]'::jsonb))
               FROM taskq.own_tasks('w', {tasks}, '{{work}}') AS o))"
        ));
        session.run("SELECT taskq.signal('s'); SELECT taskq.cancel_tasks(actions => '{work}')");
        let pid: i32 = session.one("SELECT pg_backend_pid()");
        let nanoseconds = || -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
            text.split(' ').next().unwrap().parse().unwrap()
        };
        let before = nanoseconds();
        assert_eq!(session.one::<i64>("SELECT taskq.retry_tasks(actions => '{work}')"), i64::from(tasks));
        nanoseconds() - before
    };
    let (few, many) = (used(4_000), used(40_000));
    assert!(many < 20 * few, "{few} ns of processor time for 4,000, {many} for 40,000");
}

/// Why: each suspension read all that depends on the task, directly or not, though nothing could close a cycle.
#[test]
fn a_suspension_does_not_read_what_depends_on_the_task() {
    let pages = |dependents: i32, depends_on: &str| {
        let (_db, [mut session]) = Db::connected();
        session.run("SELECT taskq.insert_task('t', 'work')");
        session.run(&format!(
            "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('action', 'x', 'depends_on', '[\"t\"]'::jsonb))
                                                        FROM generate_series(1, {dependents})))"
        ));
        let mut pages = 0;
        // The first ones read what the session has to know.
        for n in 0..4 {
            let grant = session.own_one("work");
            let token = grant.token;
            let depends_on = depends_on.replace("s0", &format!("s{n}"));
            pages = session.pages(&format!(
                "SELECT taskq.return_task('t', '{token}', 'pending', depends_on => '{depends_on}')"
            ));
            if depends_on != "[]" {
                assert!(signal(&mut session, &format!("s{n}")));
            }
        }
        pages
    };
    for depends_on in ["[]", "[{\"id\": \"s0\", \"signal\": true}]"] {
        let (few, many) = (pages(10, depends_on), pages(3000, depends_on));
        assert!(many < few + 50, "{depends_on}: {few} pages with few dependents, {many} with many");
    }
}
