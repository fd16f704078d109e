//! What the page shows: its tables, and the graph.
//!
//! On wrong code a table tells otherwise than the views, has all of a million rows, or a run in which all is well is red.

use serde_json::json;
use taskq_tests::sleeper::{Sleeper, Way};
use taskq_tests::{Db, Session};

use super::{page, part};

#[test]
fn it_tells_what_the_views_tell() {
    let (_db, [mut session]) = Db::with_tasks(
        (0..37).map(|n| json!({"id": format!("t{n}"), "action": "x", "group_id": "all"})).collect(),
    );
    session.run("SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 11, '{x}')");
    session.run("SELECT taskq.own_tasks('w', 3, '{x}'); SELECT taskq.pause_action('x')");
    for _ in 0..2 {
        let cells: Vec<String> =
            session.all("SELECT unnest(ARRAY[ready, in_progress, completed])::text FROM taskq.stats");
        assert_eq!(cells, ["23", "3", "11"]);
        let actions = part(&mut session, "", "Actions").unwrap();
        // Ready, in progress, blocked, scheduled, completed, skipped, aborted.
        assert!(actions.contains("x (paused)233001100"), "{actions}");
        let groups = part(&mut session, "", "Groups").unwrap();
        assert!(groups.contains("all29 %261100"), "done, left, completed, skipped, aborted: {groups}");
        // The same from the tallies.
        session.run("SELECT pg_sleep(1.1)");
        session.run("SELECT taskq.maintain()");
        session.run("SELECT pg_sleep(1.1)");
        session.run("SELECT taskq.maintain()");
    }
}

/// On wrong code a run in which all is well is red, and what has failed is pushed off the list by what only followed.
#[test]
fn what_was_skipped_and_what_only_followed_are_no_failures() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "good", "action": "x", "group_id": "g"}, {"id": "bad", "action": "y", "group_id": "g"},
               {"id": "last", "action": "x", "group_id": "g", "delay": "1 day"}]),
    );
    let handlers = (0..30).map(|n| {
        let (after, condition) = if n % 2 == 0 { ("good", "aborted") } else { ("bad", "completed") };
        json!({"id": format!("after {after} {n}"), "action": "alarm", "group_id": "g", "depends_on": [{"id": after, "condition": condition}]})
    });
    session.insert(handlers.collect()).unwrap();
    session.perform("y", "aborted");
    session.perform("x", "completed");
    let last = part(&mut session, "", "What aborted last").unwrap();
    assert!(last.contains("badyreturned") && !last.contains("after "), "{last}");
    let graph = part(&mut session, "'good'", "Graph").unwrap();
    assert_eq!(graph.matches("alarm skipped").count(), 15, "{graph}");
    let actions = part(&mut session, "", "Actions").unwrap();
    assert!(actions.contains("alarm000001515"), "skipped and aborted apart: {actions}");
}

/// On wrong code an edge to an error handler looks like any other, and a wide graph goes beyond its page.
#[test]
fn a_graph_fits_the_page_and_shows_the_conditions_of_its_edges() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "x"}, {"id": "b", "action": "x", "depends_on": ["a"]},
        {"id": "c", "action": "x", "depends_on": [{"id": "a", "condition": "aborted"}]},
        {"id": "d", "action": "x", "depends_on": ["b", {"id": "c", "condition": "settled"}]},
    ]));
    session
        .insert(
            (0..300).map(|n| json!({"id": format!("t{n}"), "action": "x", "depends_on": ["d"]})).collect(),
        )
        .unwrap();
    let (tags, _) = page(&mut session, "'a'");
    let edges = |class: &str| {
        tags.iter().filter(|tag| tag.starts_with(&format!("path class=\"edge {class}\""))).count()
    };
    assert_eq!(
        (edges("aborted"), edges("settled"), edges("")),
        (1, 1, 2 + 196),
        "two hundred tasks are shown"
    );
    let graph = part(&mut session, "'a'", "Graph").unwrap();
    assert!(graph.ends_with("abortedsettledThere are more tasks than are shown."), "{graph}");
    let view = tags.iter().find(|tag| tag.starts_with("svg")).unwrap();
    let width: u32 = view.split(' ').nth(3).unwrap().parse().unwrap();
    assert!(width <= 1440, "{view}");
}

#[test]
fn a_table_has_fifty_rows_and_says_that_there_are_more() {
    let (_db, [mut session]) = Db::connected();
    for (actions, more) in [(50, false), (51, true)] {
        session.run(&format!(
            "SELECT taskq.insert_task(NULL, 'x{actions} ' || i) FROM generate_series(1, {actions}) AS i"
        ));
        let table = part(&mut session, "", "Actions").unwrap();
        assert_eq!(
            (table.contains("There are more."), table.matches(&format!("x{actions} ")).count()),
            (more, 50),
            "{table}"
        );
        session.run("SELECT taskq.delete_tasks(ARRAY(SELECT id FROM taskq.tasks))");
    }
}

/// On wrong code the exception, which stands in the last line, is cut off.
#[test]
fn of_a_long_error_its_begin_and_its_end_are_shown() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "x", "max_tries": 1}]));
    let grant = session.own_one("x");
    let frames = "  File \"mail.py\", line 3, in send\n".repeat(30);
    let trace = format!("Traceback (most recent call last):\n{frames}SMTPRecipientsRefused: <ann>");
    session
        .execute("SELECT taskq.return_task($1, $2, 'pending', $3)", &[&grant.task_id, &grant.token, &trace])
        .unwrap();
    let lost = part(&mut session, "", "What aborted last").unwrap();
    assert!(
        lost.contains("Traceback (most recent") && lost.contains("SMTPRecipientsRefused: &lt;ann&gt;"),
        "{lost}"
    );
    assert!(lost.len() < 600, "{}", lost.len());
}

#[test]
fn what_goes_on_and_what_waits() {
    let (db, [mut session]) = Db::with_tasks(
        json!([{"id": "order", "action": "order", "group_id": "shop"}, {"id": "stock", "action": "count"},
               {"id": "late", "action": "late"}, {"id": "held", "action": "held"}]),
    );
    for heading in ["In progress", "Suspended", "Schedules", "Limits"] {
        assert_eq!(part(&mut session, "", heading), None, "a table without rows is left out");
    }
    let back = |session: &mut Session, by: &str| {
        let now: String = session.one(&format!("SELECT (clock_timestamp() - interval '{by}')::text"));
        session.set_now(Some(&now));
    };
    back(&mut session, "3 hours");
    session.own_one_with("late", "lease => '1 hour'");
    let grant = session.own_one_with("held", "lease => '5 days'");
    session
        .execute("SELECT taskq.report_status($1, $2, 'reads line 40', 0.5)", &[&grant.task_id, &grant.token])
        .unwrap();
    let grant = session.own_one("order");
    session
        .give_with(
            &grant.task_id,
            grant.token,
            "pending",
            "wait_at_most => '5 hours', depends_on => '[\"stock\", {\"id\": \"approve\", \"signal\": true}]'",
        )
        .unwrap();
    session.set_now(None);
    let work = part(&mut session, "", "In progress").unwrap();
    assert!(
        work.contains("workerlatelate13hoverdue for 2h")
            && work.contains("workerheldheld13hin 5d50 % reads line 40"),
        "{work}"
    );
    let suspended = part(&mut session, "", "Suspended").unwrap();
    assert!(suspended.contains("orderordershop3h2hstock, approve"), "{suspended}");
    session
        .run("SELECT taskq.schedule('nightly', '30 2 1 1 *', '{\"action\": \"report\"}', 'Europe/Berlin')");
    session.run("SELECT taskq.schedule('stopped', '30 2 1 1 *', '{\"action\": \"x\"}'), taskq.pause_schedule('stopped')");
    let schedules = part(&mut session, "", "Schedules").unwrap();
    assert!(schedules.contains("nightly30 2 1 1 *Europe/Berlinreportin "), "{schedules}");
    assert!(schedules.contains("stopped30 2 1 1 *UTCxpaused"), "{schedules}");
    session.run("SELECT taskq.set_action('count', max_concurrency => 2, rate_limit => 9, rate_period => '1 hour'), taskq.own_tasks('w', 1, '{count}')");
    session.run("SELECT taskq.delay_workgroup('printer', '2 hours')");
    let limits = part(&mut session, "", "Limits").unwrap();
    assert!(limits.contains("count1 of 29 in 60m") && limits.contains("printer2h"), "{limits}");
    let way = Way {
        name: "own_tasks",
        call: "SELECT count(*) > 0 FROM taskq.own_tasks('w', 1, '{order}', wait => '60 seconds')",
    };
    let sleeper = Sleeper::start(&db, &mut session, way);
    let role: String = session.one("SELECT current_user");
    let calls = part(&mut session, "", "Waiting calls").unwrap();
    assert!(calls.contains(&format!("{role}1order")), "{calls}");
    session.insert(json!([{"id": "next", "action": "order"}])).unwrap();
    sleeper.woken_by("a task");
}
