//! Dead ends: what has aborted is listed with its history, and sent round again by what it has in common.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

use crate::{at, call, count};

/// One aborted task for each way of aborting, each half a minute after the one before.
fn fill(session: &mut Session) {
    at(session, 0.0);
    session
        .insert(json!([
            {"id": "returned", "action": "x", "group_id": "g", "body": "words"},
            {"id": "tries", "action": "y", "max_tries": 2},
            {"id": "timeout", "action": "z", "max_tries": 1, "lease": "1 second"},
            {"id": "below", "action": "x", "depends_on": ["returned"]},
            {"id": "cancelled", "action": "c"},
            {"id": "fine", "action": "f"},
        ]))
        .unwrap();
    let grant = session.own_one("x");
    session
        .give_with("returned", grant.token, "aborted", "status => 'no disk', result => '{\"left\": 0}'")
        .unwrap();
    for second in [30.0, 60.0] {
        let grant = session.own_one("y");
        at(session, second);
        session
            .give_with(
                "tries",
                grant.token,
                "pending",
                &format!("status => 'at {second}', retry_after => '0'"),
            )
            .unwrap();
    }
    session.own_one("z");
    at(session, 90.0);
    call(session, "maintain()");
    at(session, 120.0);
    session.cancel(&["cancelled"]).unwrap();
    session.perform("f", "completed");
}

fn dead(session: &mut Session) -> Vec<String> {
    session.all(
        "SELECT concat_ws(' ', task_id, action, group_id, cause, num_tries, status) FROM taskq.dead_ends \
         ORDER BY settled_at, task_id",
    )
}

#[test]
fn dead_ends_tell_why_and_what_became_of_each_try() {
    let (_db, [mut session]) = Db::connected();
    fill(&mut session);
    assert_eq!(
        dead(&mut session),
        [
            "returned x g returned 1 no disk",
            "below x dependency 0 dependency \"returned\" aborted",
            "tries y tries 2 at 60",
            "timeout z timeout 1 the deadline passed on try 1, and there is no other (actor \"worker\")",
            "cancelled c cancelled 0 cancelled",
        ]
    );
    let attempts: serde_json::Value =
        session.one("SELECT attempts FROM taskq.dead_ends WHERE task_id = 'tries'");
    let told: Vec<_> =
        attempts.as_array().unwrap().iter().map(|a| (a["outcome"].as_str(), a["status"].as_str())).collect();
    assert_eq!(told, [(Some("pending"), Some("at 30")), (Some("aborted"), Some("at 60"))]);
    assert_eq!(attempts[0]["actor_id"], "worker");
    let row = session
        .query_one("SELECT body, result, actor_id, kept_until = settled_at + interval '7 days' FROM taskq.dead_ends WHERE task_id = 'returned'", &[])
        .unwrap();
    assert_eq!(row.get::<_, String>(0), "words");
    assert_eq!(row.get::<_, serde_json::Value>(1), json!({"left": 0}));
    assert_eq!(row.get::<_, String>(2), "worker");
    assert!(row.get::<_, bool>(3));
    // Replaced tasks are no dead ends: they are gone.
    session.insert(json!([{"id": "old", "action": "o"}])).unwrap();
    session.replace(json!([{"id": "old", "action": "o"}])).unwrap();
    assert_eq!(dead(&mut session).len(), 5);
}

#[test]
fn a_filter_sends_round_again_what_it_names() {
    for (filter, back) in [
        ("causes => '{timeout,tries}'", "timeout tries"),
        ("causes => '{returned}'", "below returned"),
        ("causes => '{dependency}'", ""),
        ("causes => '{cancelled}', actions => '{x}'", ""),
        ("causes => '{expired,merged}'", ""),
        ("groups => '{g}'", "below returned"),
        ("status_like => 'at %'", "tries"),
        ("settled_since => '2030-01-01 00:01:00Z', settled_until => '2030-01-01 00:02:00Z'", "timeout tries"),
        ("settled_since => '2030-01-01 00:01:30Z'", "cancelled timeout"),
        ("settled_until => '2030-01-01 00:00:30Z'", "below returned"),
        ("settled_since => '2030-01-01', max_tasks => 3, actions => '{x,y}'", "below returned tries"),
        ("settled_since => '-infinity', actions => '{y,z}', max_tasks => 1", "tries"),
        ("settled_since => '2030-01-01', max_tasks => 0", ""),
        ("task_ids => '{tries,timeout,fine,absent}', causes => '{tries}'", "tries"),
    ] {
        let (_db, [mut session]) = Db::connected();
        fill(&mut session);
        let before = count(&mut session, &format!("retry_tasks({filter})"));
        let came: Vec<String> =
            session.all("SELECT id FROM taskq.tasks WHERE state NOT IN ('aborted', 'completed') ORDER BY id");
        assert_eq!(came.join(" "), back, "{filter}");
        assert_eq!(before as usize, came.len(), "{filter}");
    }
}

#[test]
fn wrong_filters_are_refused() {
    let (_db, [mut session]) = Db::connected();
    for (arguments, code, naming) in [
        ("causes => '{bad luck}'", "22023", "causes"),
        // No task that an operator has ended by hand has aborted.
        ("causes => '{operator}'", "22023", "causes"),
        ("causes => '{NULL}'", "22004", "causes"),
        ("causes => '{tries}', max_tasks => -1", "22023", "max_tasks"),
        ("max_tasks => 5", "22004", "task_ids"),
        ("status_like => 'x\\'", "22023", "status_like"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.retry_tasks({arguments})"), &[]);
    }
}
