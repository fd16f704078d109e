//! `post_result`: one NOTIFY on the task's channel when it settles, and none for tasks that did not ask for it.

use serde_json::json;
use taskq_tests::{Db, listen, notifications};

#[test]
fn post_result_notifies_once_when_the_task_settles() {
    let db = Db::new();
    let (mut session, mut listener) = (db.connect(), db.connect());
    session.insert(json!([{"id": "a", "action": "x", "post_result": true}])).unwrap();
    let channel = listen(&mut listener, "task_channel", "a");
    session.perform("x", "pending");
    assert!(notifications(&mut listener, &mut session).is_empty(), "given back is not settled");
    session.perform("x", "completed");
    let expected = (channel, json!({"task_id": "a", "status_code": "completed"}));
    assert_eq!(notifications(&mut listener, &mut session), [expected]);
}

#[test]
fn every_way_to_settle_notifies() {
    let db = Db::new();
    let (mut session, mut listener) = (db.connect(), db.connect());
    let ids = ["returned", "cancelled", "lost", "mark", "replaced", "batch", "born done", "born lost"];
    let channels: Vec<String> = ids.iter().map(|id| listen(&mut listener, "task_channel", id)).collect();
    let task = |id: &str, action: &str| json!({"id": id, "action": action, "post_result": true});
    let mut lost = task("lost", "x");
    lost["depends_on"] = json!(["cancelled"]);
    let mut mark = task("mark", "s");
    mark["spontaneous"] = json!(true);
    mark["depends_on"] = json!([{"id": "lost", "condition": "settled"}]);
    session
        .insert(json!([
            task("returned", "r"),
            task("cancelled", "x"),
            lost,
            mark,
            task("replaced", "x"),
            task("batch", "b")
        ]))
        .unwrap();
    session.perform("r", "aborted");
    session.cancel(&["cancelled"]).unwrap();
    session.replace(json!([{"id": "replaced", "action": "x"}])).unwrap();
    let batch = session.own_one("b");
    session.query("SELECT taskq.return_tasks(ARRAY['batch'], ARRAY[$1::uuid])", &[&batch.token]).unwrap();
    let mut born_done = task("born done", "s");
    born_done["spontaneous"] = json!(true);
    let mut born_lost = task("born lost", "x");
    born_lost["depends_on"] = json!(["cancelled"]);
    session.insert(json!([born_done, born_lost])).unwrap();
    let mut got: Vec<String> = notifications(&mut listener, &mut session)
        .into_iter()
        .map(|(channel, payload)| {
            let id = payload["task_id"].as_str().unwrap().to_owned();
            assert_eq!(Some(&channel), ids.iter().position(|known| *known == id).map(|i| &channels[i]));
            format!("{id}: {}", payload["status_code"].as_str().unwrap())
        })
        .collect();
    got.sort();
    let expected = [
        "batch: completed",
        "born done: completed",
        "born lost: aborted",
        "cancelled: aborted",
        "lost: aborted",
        "mark: completed",
        "replaced: aborted",
        "returned: aborted",
    ];
    assert_eq!(got, expected);
}

#[test]
fn without_post_result_nothing_is_notified() {
    let db = Db::new();
    let (mut session, mut listener) = (db.connect(), db.connect());
    session
        .insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "x", "post_result": false}]))
        .unwrap();
    listen(&mut listener, "task_channel", "a");
    listen(&mut listener, "task_channel", "b");
    session.perform("x", "completed");
    session.perform("x", "aborted");
    assert!(notifications(&mut listener, &mut session).is_empty());
}

#[test]
fn a_rollback_notifies_no_listener() {
    let db = Db::new();
    let (mut session, mut listener) = (db.connect(), db.connect());
    session.insert(json!([{"id": "a", "action": "x", "post_result": true}])).unwrap();
    listen(&mut listener, "task_channel", "a");
    let grant = session.own_one("x");
    session.run("BEGIN");
    session.complete(&grant);
    session.run("ROLLBACK");
    assert!(notifications(&mut listener, &mut session).is_empty());
}

#[test]
fn long_and_foreign_ids_have_channels_of_their_own() {
    let db = Db::new();
    let (mut session, mut listener) = (db.connect(), db.connect());
    let ids: Vec<String> = vec![
        "字".repeat(333),
        format!("{}x", "字".repeat(333)),
        "\"Mixed\" Case".to_owned(),
        "mixed case".to_owned(),
        "é".repeat(100),
    ];
    let mut channels = Vec::new();
    for id in &ids {
        channels.push(listen(&mut listener, "task_channel", id));
        session.insert(json!([{"id": id, "action": "x", "post_result": true}])).unwrap();
    }
    assert!(channels.iter().all(|channel| channel.len() <= 63), "{channels:?}");
    for _ in &ids {
        session.perform("x", "completed");
    }
    let got = notifications(&mut listener, &mut session);
    let expected: Vec<_> = channels
        .into_iter()
        .zip(&ids)
        .map(|(channel, id)| (channel, json!({"task_id": id, "status_code": "completed"})))
        .collect();
    assert_eq!(got, expected);
}
