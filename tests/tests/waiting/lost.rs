//! `lost_channel`: a worker that listens there hears of each task that is taken from it, once for a commit.

use serde_json::{Value, json};
use taskq_tests::{Cluster, Db, Session, listen, notifications, sqlstate};

/// Two tasks that `ann` holds, one of `bob`, one that is pending; all in one group, the last of `ann` no seed of it.
fn held(session: &mut Session) {
    session
        .insert(json!([
            {"id": "a1", "action": "a", "group_id": "g", "seed": true}, {"id": "a2", "action": "a", "group_id": "g"},
            {"id": "b1", "action": "b", "group_id": "g", "seed": true}, {"id": "idle", "action": "c", "group_id": "g"},
        ]))
        .unwrap();
    for (actor, action) in [("ann", "a"), ("bob", "b")] {
        assert!(!session.own(actor, 9, &[action]).unwrap().is_empty());
    }
}

/// The actors that are told by what has been done since.
fn told(
    listener: &mut Session,
    session: &mut Session,
    channels: &[(String, &'static str)],
) -> Vec<&'static str> {
    let got = notifications(listener, session).into_iter().map(|(channel, payload)| {
        assert_eq!(payload, Value::Null, "without a payload");
        channels.iter().find(|(known, _)| *known == channel).unwrap().1
    });
    let mut got: Vec<&str> = got.collect();
    got.sort_unstable();
    got
}

fn channels(listener: &mut Session) -> Vec<(String, &'static str)> {
    ["ann", "bob"].map(|actor| (listen(listener, "lost_channel", actor), actor)).to_vec()
}

#[test]
fn each_way_to_take_tasks_tells_their_actors_once() {
    for (taking, expected) in [
        ("cancel_tasks('{a1,a2,idle}')", vec!["ann"]),
        ("cancel_tasks(actions => '{a,b}')", vec!["ann", "bob"]),
        ("cancel_tasks('{idle}')", vec![]),
        ("cancel_group('g')", vec!["ann", "bob"]),
        ("reset_group('g')", vec!["ann", "bob"]),
        ("release_tasks('{a2,b1}')", vec!["ann", "bob"]),
        ("release_tasks(actors => '{bob}')", vec!["bob"]),
        ("delete_tasks('{idle}')", vec![]),
        ("replace_tasks('[{\"id\": \"idle\", \"action\": \"c\"}]')", vec![]),
        ("delay_workgroup('g', '1 hour')", vec![]),
    ] {
        let (_db, [mut session, mut listener]) = Db::connected();
        held(&mut session);
        let channels = channels(&mut listener);
        session.run(&format!("SELECT taskq.{taking}"));
        assert_eq!(told(&mut listener, &mut session, &channels), expected, "{taking}");
    }
}

/// With seeds a reset deletes what else the group has, in progress or not.
#[test]
fn what_a_reset_deletes_is_lost_as_well() {
    let (_db, [mut session, mut listener]) = Db::connected();
    held(&mut session);
    let channels = channels(&mut listener);
    session.run("SELECT taskq.release_tasks('{a1,b1}')");
    assert_eq!(told(&mut listener, &mut session, &channels), ["ann", "bob"]);
    assert_eq!(session.one::<i64>("SELECT taskq.reset_group('g')"), 4);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id = 'a2'"), 0);
    assert_eq!(told(&mut listener, &mut session, &channels), ["ann"]);
}

#[test]
fn the_actor_is_the_one_that_extended_last() {
    let (_db, [mut session, mut listener]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x')");
    let grant = session.own_one("x");
    session.extend("bob", &[("a", grant.token)], "1 hour").unwrap();
    let channels = channels(&mut listener);
    session.run("SELECT taskq.cancel_tasks('{a}')");
    assert_eq!(told(&mut listener, &mut session, &channels), ["bob"]);
}

#[test]
fn what_ends_otherwise_tells_no_actor() {
    let (_db, [mut session, mut listener]) = Db::connected();
    session.run("SELECT taskq.insert_many('x', '{1,2,3,4}', max_tries => 1)");
    let grants = session.own("ann", 4, &["x"]).unwrap();
    let channels = channels(&mut listener);
    session.complete(&grants[0]);
    session.give(&grants[1].task_id, grants[1].token, "pending").unwrap();
    // The deadline of the others passes.
    session.run("SET taskq.now = '2100-01-01'; SELECT taskq.maintain(); RESET taskq.now");
    assert_eq!(session.state(&grants[2].task_id), "aborted");
    let held = session.insert(json!([{"action": "y"}])).unwrap();
    assert_eq!(session.own("ann", 1, &["y"]).unwrap().len(), 1);
    for verb in ["delete_tasks", "replace_tasks"] {
        let refused = match verb {
            "delete_tasks" => session.query("SELECT taskq.delete_tasks($1)", &[&held]).unwrap_err(),
            _ => session.replace(json!([{"id": held[0], "action": "y"}])).unwrap_err(),
        };
        assert_eq!(sqlstate(&refused), "TQ005", "{verb}");
    }
    assert!(told(&mut listener, &mut session, &channels).is_empty());
}

#[test]
fn what_is_undone_tells_no_actor() {
    let (_db, [mut session, mut listener]) = Db::connected();
    held(&mut session);
    let channels = channels(&mut listener);
    session.run("BEGIN; SELECT taskq.cancel_tasks('{a1,b1}'); ROLLBACK");
    assert!(told(&mut listener, &mut session, &channels).is_empty());
    session.run(
        "BEGIN; SAVEPOINT s; SELECT taskq.cancel_tasks('{a1}'); ROLLBACK TO s; \
         SAVEPOINT t; SELECT taskq.cancel_tasks('{b1}'); RELEASE t; COMMIT",
    );
    assert_eq!(told(&mut listener, &mut session, &channels), ["bob"]);
    session.run("SELECT 1");
    assert!(told(&mut listener, &mut session, &channels).is_empty(), "once");
}

#[test]
fn at_each_level_of_isolation() {
    let (_db, [mut session, mut listener]) = Db::connected();
    held(&mut session);
    let channels = channels(&mut listener);
    for (level, id) in [("REPEATABLE READ", "a1"), ("SERIALIZABLE", "a2")] {
        session.run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT taskq.cancel_tasks('{{{id}}}'); COMMIT"));
        assert_eq!(told(&mut listener, &mut session, &channels), ["ann"], "{level}");
    }
}

#[test]
fn a_transaction_that_is_prepared_sends_nothing_and_does_not_fail() {
    let cluster =
        Cluster::start(env!("CARGO_TARGET_TMPDIR"), "waiting-lost", &["max_prepared_transactions=5"]);
    let (mut session, mut listener) = (cluster.connect(), cluster.connect());
    held(&mut session);
    let channels = channels(&mut listener);
    session.run(
        "BEGIN; SELECT taskq.cancel_tasks('{a1}'); SELECT taskq.release_tasks('{b1}'); PREPARE TRANSACTION 'p'",
    );
    session.run("COMMIT PREPARED 'p'");
    assert_eq!(session.state("a1"), "aborted");
    // Nor does a later commit of this session.
    session.run("SELECT taskq.insert_task('later', 'x')");
    assert!(told(&mut listener, &mut session, &channels).is_empty());
}

#[test]
fn each_actor_has_a_channel_whatever_its_name() {
    let (_db, [mut session, mut listener]) = Db::connected();
    let actors = [
        "w".repeat(1000),
        format!("{}v", "w".repeat(999)),
        "Mixed \"Case\"".to_owned(),
        "mixed \"case\"".to_owned(),
    ];
    for actor in &actors {
        let channel = listen(&mut listener, "lost_channel", actor);
        session.run("SELECT taskq.insert_task('a', 'x')");
        assert_eq!(session.own(actor, 1, &["x"]).unwrap().len(), 1);
        session.run("SELECT taskq.cancel_tasks('{a}'); SELECT taskq.delete_tasks('{a}')");
        let got: Vec<String> =
            notifications(&mut listener, &mut session).into_iter().map(|(channel, _)| channel).collect();
        assert_eq!(got, [channel], "{actor}");
    }
}
