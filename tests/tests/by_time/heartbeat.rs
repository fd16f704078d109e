//! `extend_tasks_ownership(wait =>)`: a heartbeat that sleeps, and hears at once that a task is held no more.

use std::time::{Duration, Instant};

use taskq_tests::{Background, Db, Grant, Session, refused, until};

/// The call of a worker, asleep in a session of its own: which of its tasks it is told to own, and when.
fn beat(db: &Db, watcher: &mut Session, grants: &[Grant], wait: &str) -> Background<(Vec<bool>, Instant)> {
    let ids: Vec<String> = grants.iter().map(|grant| grant.task_id.clone()).collect();
    let tokens: Vec<String> = grants.iter().map(|grant| grant.token.to_string()).collect();
    let call = format!(
        "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{{}}}', '{{{}}}', '1 hour', wait => '{wait}')",
        ids.join(","),
        tokens.join(",")
    );
    let call = db.connect().background(move |session| (session.all(&call), Instant::now()));
    watcher.until_asleep(call.pid());
    call
}

#[test]
fn each_loss_wakes_it() {
    for (name, prepare, loss) in [
        ("a cancel", "", "SELECT taskq.cancel_tasks('{a}')"),
        ("a release", "", "SELECT taskq.release_tasks('{a}')"),
        ("a reset", "", "SELECT taskq.reset_group('g')"),
        ("its end", "", "SELECT taskq.return_task('a', '{token}')"),
        ("its return", "", "SELECT taskq.return_task('a', '{token}', 'pending', retry_after => '1 hour')"),
        ("its release", "", "SELECT taskq.return_task('a', '{token}', 'pending', count_try => false)"),
        ("a take-over", "", "SET taskq.now = '2100-01-01'; SELECT taskq.own_tasks('v', 1, '{x}')"),
    ] {
        let db = Db::new();
        let mut session = db.connect();
        session.run(&format!(
            "{prepare}; SELECT taskq.insert_task('a', 'x', group_id => 'g'); SELECT taskq.insert_task('b', 'y')"
        ));
        let grants = [session.own_one("x"), session.own_one("y")];
        let call = beat(&db, &mut session, &grants, "60 seconds");
        let since = Instant::now();
        session.run(&loss.replace("{token}", &grants[0].token.to_string()));
        let (_, (owned, at)) = call.join();
        let slept = at - since;
        assert!(slept < Duration::from_secs(20), "{name}: heard of after {slept:?}");
        // By the clock that is set the other is overdue, too, and no actor has taken it.
        assert_eq!(owned, [false, true], "{name}");
    }
}

#[test]
fn it_extends_before_it_sleeps_and_afterwards() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT taskq.insert_task('a', 'x', lease => '1 minute')");
    let grant = session.own_one("x");
    let began: String = session.one("SELECT clock_timestamp()::text");
    let call = beat(&db, &mut session, std::slice::from_ref(&grant), "12 seconds");
    let extended = |since: &str| {
        format!(
            "SELECT count(*) FROM taskq.actors WHERE action_deadline > '{since}'::timestamptz + interval '1 hour' AND actor_id = 'w'"
        )
    };
    let sleeps = format!("SELECT state = 'active' FROM pg_stat_activity WHERE pid = {}", call.pid());
    until("the extension is visible", || (session.one::<i64>(&extended(&began)) == 1).then_some(()));
    assert!(session.one::<bool>(&sleeps), "while it sleeps");
    // It holds nothing that others want, but for the moment of a look.
    let locks = format!(
        "SELECT string_agg(concat_ws(' ', locktype, relation::regclass), ',') FROM pg_locks
          WHERE pid = {} AND (locktype IN ('tuple', 'transactionid') OR locktype = 'relation' AND relation > 16384)",
        call.pid()
    );
    until("it holds nothing", || session.one::<Option<String>>(&locks).is_none().then_some(()));
    let later: String = session.one("SELECT clock_timestamp()::text");
    let (_, (owned, _)) = call.join();
    assert_eq!(owned, [true]);
    assert_eq!(session.one::<i64>(&extended(&later)), 1, "once more at the end");
    session.complete(&grant);
}

#[test]
fn without_a_process_that_commits_it_comes_back_before_the_deadline() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .run("SET taskq.background_worker = off; SELECT taskq.insert_task('a', 'x', lease => '4 seconds')");
    let grant = session.own_one("x");
    let extend = format!(
        "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{a}}', '{{{}}}', '1 hour', wait => '50 seconds')",
        grant.token
    );
    let began = Instant::now();
    assert!(session.one::<bool>(&extend));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let extended =
        "SELECT count(*) FROM taskq.actors WHERE action_deadline > clock_timestamp() + interval '50 minutes'";
    assert_eq!(session.one::<i64>(extended), 1);
}

#[test]
fn in_a_transaction_block_it_hears_of_a_cancel_as_well() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT taskq.insert_task('a', 'x')");
    let grant = session.own_one("x");
    let call = format!(
        "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{a}}', '{{{}}}', '1 hour', wait => '50 seconds')",
        grant.token
    );
    let call = db.connect().background(move |session| {
        session.run("BEGIN");
        let owned: bool = session.one(&call);
        session.run("COMMIT");
        (owned, Instant::now())
    });
    session.until_asleep(call.pid());
    let since = Instant::now();
    session.run("SET lock_timeout = '20s'; SELECT taskq.cancel_tasks('{a}')");
    let (_, (owned, at)) = call.join();
    assert!(!owned && at - since < Duration::from_secs(20), "{owned}, {:?}", at - since);
}

#[test]
fn a_rollback_takes_back_what_it_has_extended() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT taskq.insert_task('a', 'x')");
    let grant = session.own_one_with("x", "lease => '10 minutes'");
    session.run("BEGIN");
    let call = "SELECT owned FROM taskq.extend_tasks_ownership('w', '{a}', ARRAY[$1]::uuid[], '1 hour', wait => '0.2 seconds')";
    assert!(session.query_one(call, &[&grant.token]).unwrap().get::<_, bool>(0));
    session.run("ROLLBACK");
    let deadline = session.task("a").unwrap().action_deadline;
    assert_eq!(deadline, grant.action_deadline);
}

#[test]
fn it_hears_of_the_last_of_many() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT count(taskq.insert_task('t' || n, 'x')) FROM generate_series(1, 40) AS n");
    let grants = session.own("w", 40, &["x"]).unwrap();
    let call = beat(&db, &mut session, &grants, "60 seconds");
    let since = Instant::now();
    session.run("SELECT taskq.cancel_tasks('{t40}')");
    let (_, (owned, at)) = call.join();
    assert!(at - since < Duration::from_secs(20), "{:?}", at - since);
    assert_eq!(owned.iter().filter(|owned| !**owned).count(), 1);
}

#[test]
fn it_ends_with_the_run_time() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT taskq.insert_task('a', 'x', max_run_time => '2 seconds')");
    let grant = session.own_one("x");
    let call = beat(&db, &mut session, &[grant], "50 seconds");
    let since = Instant::now();
    let (_, (owned, at)) = call.join();
    assert_eq!(owned, [false]);
    assert!(at - since < Duration::from_secs(20), "{:?}", at - since);
}

#[test]
fn what_is_nothing_to_wait_for_comes_back_at_once() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT taskq.insert_task('a', 'x'); SELECT taskq.insert_task('b', 'x')");
    let (a, b) = (session.own_one("x"), session.own_one("x"));
    session.complete(&a);
    let began = Instant::now();
    let none = "SELECT count(*) FROM taskq.extend_tasks_ownership('w', '{}', '{}', '1 minute', wait => '50 seconds')";
    assert_eq!(session.one::<i64>(none), 0);
    let lost = format!(
        "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{a,b}}', '{{{},{}}}', '1 minute', wait => '50 seconds')",
        a.token, b.token
    );
    assert_eq!(session.all::<bool>(&lost), [false, true]);
    let null = format!(
        "SELECT owned FROM taskq.extend_tasks_ownership('w', '{{b}}', '{{{}}}', '1 minute', wait => NULL)",
        b.token
    );
    assert!(session.one::<bool>(&null));
    let zero = null.replace("NULL", "'0'");
    assert!(session.one::<bool>(&zero));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let negative = null.replace("NULL", "'-1 second'");
    refused(&mut session, "22023", "wait", &negative, &[]);
}
