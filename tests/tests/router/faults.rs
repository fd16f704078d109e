//! A shard goes: the others go on, what needs it is told so at once, and it is taken back with all that it had.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Cluster, Session, sqlstate, until};

use super::{Rig, Servers, TMP};

/// A call that needs the shard that is down: refused at once, in words that name it.
fn down(session: &mut Session, query: &str) {
    let since = Instant::now();
    let error = session.query(query, &[]).map(|rows| rows.len()).expect_err(query);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{query}: {error:?}"));
    assert!(["08001", "08006"].contains(&error.code().code()), "{query}: {error:?}");
    assert!(error.message().contains("shard 1"), "{query}: {error:?}");
    assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{query}: {error:?}");
    assert!(since.elapsed() < Duration::from_secs(5), "{query} took {:?}", since.elapsed());
}

#[test]
fn one_shard_is_down_and_comes_back() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::alone(&servers, 3);
    let mut router = rig.router();
    let groups = [0, 1, 2].map(|shard| rig.group_of(shard));
    for (n, group) in groups.iter().enumerate() {
        let task = |name: &str, action: &str| json!({"id": format!("{name}{n}"), "action": action, "group_id": group});
        router.insert(json!([task("held", "h"), task("ready", "x"), task("later", "z")])).unwrap();
    }
    let held = router.own("w", 3, &["h"]).unwrap();
    assert_eq!(held.len(), 3);
    let of = |n: usize| held.iter().find(|grant| grant.task_id == format!("held{n}")).unwrap();
    // Workers that sleep, with connections to all shards.
    let sleepers: Vec<_> = (0..3)
        .map(|n| {
            let mut session = rig.router();
            let action = format!("sleep{n}");
            session.own_with("w", 1, &[&action], "wait => '1 s'").unwrap();
            session.background(move |session| {
                session.own_with("w", 1, &[&action], "wait => '2 minutes'").unwrap().remove(0).task_id
            })
        })
        .collect();
    // All are in their second call by then, asleep on one shard or the other.
    std::thread::sleep(Duration::from_secs(3));

    rig.server(1).kill();

    // Calls that need it, on a session that was connected and on a new one.
    for session in [&mut router, &mut rig.router()] {
        down(session, &format!("SELECT taskq.insert_task('n', 'x', group_id => '{}')", groups[1]));
        down(session, &format!("SELECT taskq.return_task('held1', '{}')", of(1).token));
        down(session, &format!("SELECT taskq.pause_group('{}')", groups[1]));
        down(session, "SELECT * FROM taskq.count_tasks()");
        down(session, "SELECT taskq.set_action('x', max_tries => 3)");
    }
    // The others go on: owning, returning, inserting, waiting.
    let since = Instant::now();
    let grants = router.own("w", 9, &["x"]).unwrap();
    assert_eq!(grants.len(), 2, "{grants:?}");
    assert!(router.own("w", 9, &["x"]).unwrap().is_empty());
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    for grant in &grants {
        router.complete(grant);
    }
    let tokens: Vec<_> = [0, 1, 2].map(|n| of(n).token).to_vec();
    let query = "SELECT sqlstate FROM taskq.return_tasks('{held0,held1,held2}', $1)";
    let rows = router.query(query, &[&tokens]).unwrap();
    let states: Vec<Option<&str>> = rows.iter().map(|row| row.get(0)).collect();
    assert!(
        states[0].is_none() && states[2].is_none() && states[1].is_some_and(|state| state.starts_with("08")),
        "{states:?}"
    );
    for _ in 0..20 {
        router.insert(json!([{"action": "anywhere"}])).unwrap();
    }
    assert_eq!(router.wait("ready0", "0").unwrap().unwrap().status_code, "completed");
    // The sleepers are woken by those that are up ...
    for (n, sleeper) in [0, 2].into_iter().zip([0, 1]) {
        rig.shard(n)
            .query("SELECT taskq.insert_task('wake' || $1, 'sleep' || $1)", &[&sleeper.to_string()])
            .unwrap();
    }
    let problem = router.one::<String>("SELECT string_agg(problem, '; ') FROM taskq.health()");
    assert!(problem.contains("shard 1"), "{problem}");

    rig.server(1).restart();

    // ... and by the one that is back, which has what it had.
    rig.shard(1).run("SELECT taskq.insert_task('wake2', 'sleep2')");
    let woken: BTreeSet<String> = sleepers.into_iter().map(|sleeper| sleeper.join().1).collect();
    assert_eq!(woken, BTreeSet::from(["wake0", "wake1", "wake2"].map(str::to_owned)));
    let late = until("the session asks it again", || router.own("w", 9, &["x"]).unwrap().pop());
    assert_eq!(late.task_id, "ready1");
    router.complete(&late);
    let code = until("its connection is had anew", || router.give("held1", of(1).token, "completed").ok());
    assert_eq!(code, "completed", "the token is as good as before");
    let later: BTreeSet<String> =
        router.own("w", 9, &["z"]).unwrap().into_iter().map(|grant| grant.task_id).collect();
    assert_eq!(later, BTreeSet::from(["later0", "later1", "later2"].map(str::to_owned)));
    assert_eq!(router.own("w", 99, &["anywhere"]).unwrap().len(), 20);
}

#[test]
fn a_shard_that_is_closed_is_left_alone() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::new(&servers, 3);
    let (mut router, group) = (rig.router(), rig.group_of(1));
    router.query("SELECT taskq.insert_task('a', 'x', group_id => $1)", &[&group]).unwrap();
    router.run("SELECT taskq_router.close_shard(1)");
    down(&mut router, &format!("SELECT taskq.insert_task('b', 'x', group_id => '{group}')"));
    assert!(rig.router().own("w", 1, &["x"]).unwrap().is_empty());
    router.run("SELECT taskq_router.open_shard(1)");
    assert_eq!(router.own_one("x").task_id, "a");
    router.run("UPDATE taskq_router.shards SET closed = true");
    let error = router.own("w", 1, &["x"]).unwrap_err();
    assert_eq!(
        (sqlstate(&error), error.as_db_error().unwrap().message()),
        ("08001", "no shard can be reached")
    );
}

/// Sends a signal to every process of a server.
fn send(postmaster: &str, signal: &str) {
    let script = format!("kill -{signal} {postmaster}; pkill -{signal} -P {postmaster}");
    assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

/// A server that accepts connections and does not answer: once it is closed no other call comes to it, and the callers
/// that it held before go on with the others when their sessions on the router were ended.
#[test]
fn a_shard_that_hangs_is_closed_and_those_that_it_held_go_on() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::alone(&servers, 3);
    let mut router = rig.router();
    let group = rig.group_of(1);
    router.query("SELECT taskq.insert_task('held', 'h', group_id => $1)", &[&group]).unwrap();
    let held = router.own_one("h");
    let data = rig.server(1).connect().one::<String>("SHOW data_directory");
    let postmaster = std::fs::read_to_string(format!("{data}/postmaster.pid")).unwrap();
    let postmaster = postmaster.lines().next().unwrap();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let (mut session, config) = (rig.router(), rig.router_config());
            session.own("w", 1, &["x"]).unwrap();
            session.background(move |session| {
                let first = session.own_with("w", 1, &["x"], "wait => '10 minutes'");
                let state = first.expect_err("it was held").code().map(|code| code.code().to_owned());
                let mut again = Session::open(&config).unwrap();
                (state, again.own_with("w", 1, &["x"], "wait => '1 minute'").unwrap().len())
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(1));
    send(postmaster, "STOP");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        // Each comes there within three slices.
        std::thread::sleep(Duration::from_secs(3));
        let mut admin = rig.router();
        admin.run("SELECT taskq_router.close_shard(1)");
        // Refused at once, and asked for nothing.
        down(&mut admin, &format!("SELECT taskq.return_task('held', '{}')", held.token));
        assert!(admin.own("w", 9, &["x"]).unwrap().is_empty());
        let let_go = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()";
        assert_eq!(admin.one::<i64>(let_go), 3);
        for shard in [0, 2] {
            rig.shard(shard).run("SELECT taskq.insert_many('x', '{a,b}')");
        }
        for worker in workers {
            // It may be gone before its last words have come through.
            let (state, granted) = worker.join().1;
            assert!(state.as_deref().is_none_or(|state| state == "57P01"), "{state:?}");
            assert_eq!(granted, 1);
        }
    }));
    send(postmaster, "CONT");
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    rig.router().run("SELECT taskq_router.open_shard(1)");
    let code = until("it is back", || router.give("held", held.token, "completed").ok());
    assert_eq!(code, "completed", "the token is as good as before");
}

/// Under load the standby of a shard takes its place: what the router is pointed at has all that was acknowledged.
#[test]
fn a_standby_takes_the_place_of_its_shard_under_load() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::alone(&servers, 3);
    let mut router = rig.router();
    let group = rig.group_of(1);
    let standby = Cluster::standby(
        TMP,
        "router-standby",
        rig.server(1),
        &["max_connections=80", "max_prepared_transactions=4", "hot_standby=on"],
    );
    // A commit is acknowledged when the standby has it.
    rig.server(1).connect().run("ALTER SYSTEM SET synchronous_standby_names = '*'");
    rig.server(1).connect().run("SELECT pg_reload_conf()");
    until("the standby is synchronous", || {
        rig.server(1)
            .connect()
            .one::<bool>("SELECT bool_or(sync_state IN ('sync', 'quorum')) FROM pg_stat_replication")
            .then_some(())
    });
    // It inserts and performs, and writes down what it was told.
    let worker = rig.router().background(move |session| {
        let (mut inserted, mut done, mut failed) = (Vec::new(), Vec::new(), 0);
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(60)
            && (failed == 0 || done.len() < 20 || inserted.len() < 40)
        {
            let id = format!("t{}", inserted.len() + failed);
            let insert = json!([{"id": id, "action": "x", "group_id": group}]);
            match session.insert(insert) {
                Ok(_) => inserted.push(id),
                Err(error) => {
                    assert!(["08001", "08006"].contains(&sqlstate(&error)), "{error:?}");
                    failed += 1;
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
            for grant in session.own_with("w", 1, &["x"], "max_duration => '2 s'").unwrap_or_default() {
                if session.give(&grant.task_id, grant.token, "completed").is_ok() {
                    done.push(grant.task_id);
                }
            }
        }
        (inserted, done, failed)
    });
    let acknowledged = "SELECT count(*) FROM taskq.tasks WHERE state = 'completed'";
    until("it works", || (rig.shard(1).one::<i64>(acknowledged) > 10).then_some(()));
    rig.server(1).kill();
    let promote = standby.connect_to(&rig.database).one::<bool>("SELECT pg_promote()");
    assert!(promote);
    standby.connect().run("ALTER SYSTEM RESET synchronous_standby_names");
    standby.connect().run("SELECT pg_reload_conf()");
    router.query("SELECT taskq_router.connect_shard(1, $1)", &[&rig.connect_string(&standby)]).unwrap();
    let (_, (inserted, done, failed)) = worker.join();
    assert!(failed > 0 && done.len() >= 20, "{failed} calls failed, {} tasks were done", done.len());
    let mut there = standby.connect_to(&rig.database);
    let all: BTreeSet<String> = there.all::<String>("SELECT id FROM taskq.tasks").into_iter().collect();
    let lost: Vec<&String> = inserted.iter().filter(|id| !all.contains(*id)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let completed: BTreeSet<String> =
        there.all::<String>("SELECT id FROM taskq.tasks WHERE state = 'completed'").into_iter().collect();
    let lost: Vec<&String> = done.iter().filter(|id| !completed.contains(*id)).collect();
    assert!(lost.is_empty(), "returned, acknowledged and lost: {lost:?}");
    let problems = router.one::<i64>("SELECT count(*) FROM taskq_router.look() WHERE problem IS NOT NULL");
    assert_eq!(problems, 0);
    assert_eq!(there.broken(), [""; 0]);
    drop(there);
    rig.server(1).restart();
    // Else whatever is committed there waits for a standby that is none any more.
    rig.server(1).connect().run("ALTER SYSTEM RESET synchronous_standby_names");
    rig.server(1).connect().run("SELECT pg_reload_conf()");
}
