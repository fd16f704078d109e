//! LISTEN: one notification per channel and transaction, for sessions that asked; the others' commits stay clear of the
//! lock that makes all notifying commits of a server queue up.

use serde_json::{Value, json};
use taskq_tests::{Cluster, Db, Progress, listen, notifications};

#[test]
fn ids_of_any_length_have_channels_and_payloads() {
    let (_db, [mut session, mut listener]) = Db::connected();
    let ids = [
        "i".repeat(1000),
        format!("{}j", "i".repeat(999)),
        "\u{1f980}".repeat(250),
        "\u{5b57}".repeat(333),
        format!("{}x", "\u{5b57}".repeat(333)),
        "\"Mixed\" Case".to_owned(),
        "mixed case".to_owned(),
        "\"\\\n".to_owned(),
        " ".to_owned(),
    ];
    let mut expected = Vec::new();
    for id in &ids {
        let channel = listen(&mut listener, "task_channel", id);
        assert!(channel.len() <= 63, "{channel}");
        session.insert(json!([{"id": id, "action": "x", "post_result": true}])).unwrap();
        session.perform("x", "completed");
        expected.push((channel, json!({"task_id": id, "status_code": "completed"})));
    }
    assert_eq!(notifications(&mut listener, &mut session), expected);
}

#[test]
fn a_transaction_notifies_once_for_each_task_it_settles() {
    let (_db, [mut session, mut listener]) = Db::connected();
    for id in ["a", "b"] {
        listen(&mut listener, "task_channel", id);
    }
    session.insert(json!([{"id": "a", "action": "x", "post_result": true}, {"id": "b", "action": "x", "post_result": true}])).unwrap();
    session.run("BEGIN; SELECT taskq.cancel_tasks('{a,b,a}'); SELECT taskq.cancel_tasks('{a}'); COMMIT");
    let ids: Vec<Value> = notifications(&mut listener, &mut session)
        .into_iter()
        .map(|(_, payload)| payload["task_id"].clone())
        .collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(ids.contains(&json!("a")) && ids.contains(&json!("b")));
}

/// A commit with notifications takes a lock that all of the server share, and keeps it until it is over. Here one is
/// stopped in the middle: it waits for a synchronous standby that does not exist. A commit that takes the lock queues
/// up behind it.
#[test]
fn only_commits_that_notify_take_the_notification_lock() {
    let cluster = Cluster::start(
        env!("CARGO_TARGET_TMPDIR"),
        "waiting-notify",
        &["synchronous_standby_names=absent", "synchronous_commit=local"],
    );
    let mut watcher = cluster.connect();
    watcher.run(
        "SELECT taskq.insert_task('loud', 'y', post_result => true), taskq.insert_task('quiet', 'y'); \
         SELECT taskq.set_action('heard', notify => true)",
    );
    let mut holder = cluster.connect();
    holder.run("SET synchronous_commit = on");
    // The message makes it a commit that writes something, which is what a standby is waited for.
    let holder = holder
        .background(|session| session.run("SELECT pg_logical_emit_message(true, 'a', 'b'); NOTIFY anything"));
    watcher.until_asleep(holder.pid());
    let lock = "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_database'::regclass \
                AND objid = 0 AND mode = 'AccessExclusiveLock' AND granted";
    assert_eq!(watcher.one::<i64>(lock), 1);

    let quiet = cluster.connect().background(|session| {
        session.run("SELECT taskq.insert_task('n', 'x'); SELECT taskq.cancel_tasks('{quiet}')");
        session.run("CREATE TEMP TABLE held AS SELECT * FROM taskq.own_tasks('w', 1, '{x}')");
        session.run(
            "SELECT taskq.extend_tasks_ownership('w', ARRAY[task_id], ARRAY[token], '1 minute') FROM held",
        );
        session.run("SELECT taskq.report_status(task_id, token, 'half', 0.5) FROM held");
        session
            .run("SELECT taskq.return_task(task_id, token, children => '[{\"action\": \"z\"}]') FROM held");
    });
    assert_eq!(quiet.settle_down(&mut watcher), Progress::Done, "who does not notify does not need the lock");
    quiet.join();
    let loud: Vec<_> = ["SELECT taskq.cancel_tasks('{loud}')", "SELECT taskq.insert_task('h', 'heard')"]
        .into_iter()
        .map(|statement| {
            let call = cluster.connect().background(move |session| session.run(statement));
            assert_eq!(call.settle_down(&mut watcher), Progress::Blocked, "{statement} does need the lock");
            call
        })
        .collect();
    watcher.run(&format!("SELECT pg_cancel_backend({})", holder.pid()));
    holder.join();
    for call in loud {
        call.join();
    }
}
