//! Ids and bodies of every shape come back as they went in.
//!
//! A queue that interprets a body, folds or trims an id, or stores it in an index that has no room for it, fails here.

use serde_json::{Value, json};
use taskq_tests::{Db, sqlstate};
use uuid::Uuid;

#[test]
fn a_body_is_a_string_as_it_is_and_anything_else_as_its_json() {
    let (_db, [mut session]) = Db::connected();
    let strings = [
        "",
        " padded ",
        "{\"looks\": \"like json\"}",
        "line\nbreak\ttab \"quotes\" \\ back",
        "日本語 🐘 ñ",
        "null",
        "'; DROP TABLE task; --",
    ];
    for (i, body) in strings.iter().enumerate() {
        session.insert(json!([{"id": format!("s{i}"), "action": "x", "body": body}])).unwrap();
        assert_eq!(session.task(&format!("s{i}")).unwrap().body.as_deref(), Some(*body));
        assert_eq!(session.own_one("x").body.as_deref(), Some(*body));
    }
    let values = [
        json!(5),
        json!(-1.25),
        json!(true),
        json!([1, "two", null]),
        json!({"a": {"b": [1]}}),
        json!([]),
        json!({}),
    ];
    for (i, body) in values.iter().enumerate() {
        session.insert(json!([{"id": format!("v{i}"), "action": "x", "body": body}])).unwrap();
        let stored = session.own_one("x").body.expect("a body that is no JSON null is there");
        assert_eq!(&serde_json::from_str::<Value>(&stored).expect("the text is JSON"), body);
    }
    session
        .insert(json!([{"id": "none", "action": "x"}, {"id": "null", "action": "x", "body": null}]))
        .unwrap();
    assert_eq!(session.own_one("x").body, None);
    assert_eq!(session.own_one("x").body, None);
}

#[test]
fn a_body_of_a_megabyte_passes_through() {
    let (_db, [mut session]) = Db::connected();
    // One that compresses, and one that does not and so goes out of line in many pieces.
    let dull = "taskq ".repeat(200_000);
    let mut state = 1u64;
    let noise: String = (0..1_000_000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            char::from(b'!' + (state >> 33) as u8 % 90)
        })
        .collect();
    let tasks = json!([
        {"id": "dull", "action": "x", "body": dull}, {"id": "noise", "action": "x", "body": noise},
    ]);
    session.insert(tasks).unwrap();
    session.query("SELECT taskq.insert_task('typed', 'x', $1)", &[&noise]).unwrap();
    let bodies: Vec<Option<String>> =
        session.own("worker", 3, &["x"]).unwrap().into_iter().map(|g| g.body).collect();
    assert!(bodies == [Some(dull), Some(noise.clone()), Some(noise)]);
}

#[test]
fn ids_and_actions_may_be_in_any_language_and_long() {
    let (_db, [mut session]) = Db::connected();
    let mut ids: Vec<String> = [
        "任务-一",
        "zadanie żółć",
        "מְשִׂימָה",
        "مهمة",
        "задача",
        "タスク🐘",
        "a b",
        " ",
        "A",
        "a",
        "é",
        "e\u{301}",
        "ß",
        "SS",
        "%",
        "_",
        "\\",
        "'",
        "\"",
        "a,b",
        "{}",
        "NULL",
        "-> a",
        "\u{feff}x",
        "\t\n",
    ]
    .map(str::to_owned)
    .to_vec();
    for unit in ["x", "ж", "字", "🐘"] {
        ids.push(unit.repeat(1000 / unit.len()));
    }
    let tasks: Value = ids.iter().map(|id| json!({"id": id, "action": id, "body": id})).collect();
    assert_eq!(session.insert(tasks).unwrap(), ids);
    for id in &ids {
        let grant = session.own_one(id);
        assert_eq!((&grant.task_id, grant.body.as_ref()), (id, Some(id)));
        session.complete(&grant);
        assert_eq!(session.wait(id, "0").unwrap().unwrap().task_id, *id);
    }
    let listed: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(session.delete(&listed).unwrap(), ids.len() as i64);
}

#[test]
fn long_ids_work_as_dependencies() {
    let (_db, [mut session]) = Db::connected();
    let ids: Vec<String> = (0..5).map(|i| format!("{}{i}", "字".repeat(333))).collect();
    let tasks: Value = ids
        .iter()
        .enumerate()
        .map(|(i, id)| json!({"id": id, "action": "x", "depends_on": ids[..i]}))
        .collect();
    session.insert(tasks).unwrap();
    for id in &ids {
        assert_eq!(&session.perform("x", "completed"), id);
    }
}

#[test]
fn an_id_of_any_length_is_taken_or_refused_cleanly() {
    let (_db, [mut session]) = Db::connected();
    for length in [1001, 2000, 2700, 2800, 9000, 100_000] {
        let mut id = String::new();
        while id.len() < length {
            id.push_str(&Uuid::new_v4().to_string());
        }
        id.truncate(length);
        match session.insert(json!([{"id": id, "action": "x"}])) {
            Ok(ids) => assert_eq!(ids, [id]),
            Err(error) => assert_eq!(sqlstate(&error), "TQ006", "{error:?}"),
        }
    }
}

#[test]
fn a_missing_id_is_generated_as_uuid_version_7() {
    let (_db, [mut session]) = Db::connected();
    let ids =
        session.insert(json!([{"action": "x"}, {"id": "mine", "action": "x"}, {"action": "x"}])).unwrap();
    assert_eq!(ids[1], "mine");
    let single: String = session.one("SELECT taskq.insert_task(NULL, 'x')");
    let generated: Vec<Uuid> =
        [&ids[0], &ids[2], &single].map(|id| id.parse().expect("a generated id is a UUID")).to_vec();
    for uuid in &generated {
        assert_eq!(uuid.get_version_num(), 7, "{uuid}");
        let (seconds, _) = uuid.get_timestamp().expect("version 7 has a time").to_unix();
        let age = chrono::Utc::now().timestamp() - seconds as i64;
        assert!((-60..3600).contains(&age), "{uuid} was made {age} s ago");
    }
    assert!(generated[0] < generated[1] && generated[1] < generated[2], "they sort by time: {generated:?}");
    for id in [&ids[0], "mine", &ids[2], &single] {
        assert_eq!(session.own_one("x").task_id, *id);
    }
}

#[test]
fn ids_come_back_in_input_order() {
    let (_db, [mut session]) = Db::connected();
    let ids: Vec<String> = (0..500).map(|i| format!("{:03}", (i * 193) % 500)).collect();
    let tasks: Value = ids.iter().map(|id| json!({"id": id, "action": "x"})).collect();
    assert_eq!(session.insert(tasks).unwrap(), ids);
    let owned: Vec<String> = session.own("w", 500, &["x"]).unwrap().into_iter().map(|g| g.task_id).collect();
    assert_eq!(owned, ids);
}

#[test]
fn attributes_are_kept_as_given() {
    let (_db, [mut session]) = Db::connected();
    let metadata = json!({"traceparent": "00-ab-cd-01", "nested": {"list": [1, null]}});
    let tasks = json!([
        {"id": "a", "action": "x", "priority": -5, "max_tries": 4, "lease": "1 hour 30 minutes",
         "not_before": "2031-02-03T04:05:06+01:00", "post_result": true, "retention": "2 days", "metadata": metadata},
    ]);
    session.insert(tasks).unwrap();
    let row: String = session.one(
        "SELECT concat_ws(' ', priority, max_tries, lease = interval '90 minutes', \
         not_before = timestamptz '2031-02-03 03:05:06Z', post_result, spontaneous, retention = interval '2 days') \
         FROM taskq.tasks WHERE id = 'a'",
    );
    assert_eq!(row, "-5 4 t t t f t");
    assert_eq!(session.one::<Value>("SELECT metadata FROM taskq.tasks WHERE id = 'a'"), metadata);
}
