//! `post_result`: one NOTIFY on the task's channel when it settles, and none for tasks that did not ask for it.

use serde_json::json;
use taskq_tests::{Db, listen, notifications};

#[test]
fn post_result_notifies_once_when_the_task_settles_and_is_committed() {
    let (_db, [mut session, mut listener]) = Db::with_tasks(
        json!([{"id": "a", "action": "x", "post_result": true}, {"id": "quiet", "action": "x"},
               {"id": "quiet too", "action": "x", "post_result": false}]),
    );
    let channel = ["quiet", "quiet too", "a"].map(|id| listen(&mut listener, "task_channel", id))[2].clone();
    session.perform("x", "pending");
    session.perform("x", "completed");
    session.perform("x", "aborted");
    let grant = session.own_one("x");
    session.run("BEGIN");
    session.complete(&grant);
    session.run("ROLLBACK");
    assert!(notifications(&mut listener, &mut session).is_empty(), "none has settled that asks for it");
    session.complete(&grant);
    let expected = (channel, json!({"task_id": "a", "status_code": "completed"}));
    assert_eq!(notifications(&mut listener, &mut session), [expected]);
}

#[test]
fn every_way_to_settle_notifies() {
    let (_db, [mut session, mut listener]) = Db::connected();
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
