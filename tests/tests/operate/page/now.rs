//! What the page shows of this moment.
//!
//! On wrong code: 300 tasks that fail again and again are nowhere, and a queue that stands still looks idle.

use serde_json::json;
use taskq_tests::sleeper::{Sleeper, Way};
use taskq_tests::{Db, Session, refused};

use super::{page, part};

/// The text of a part of the page.
fn told(session: &mut Session, from: &str, to: &str) -> String {
    let (_, text) = page(session, "");
    part(&text, from, to).to_owned()
}

fn has_no(session: &mut Session, heading: &str) {
    let (_, text) = page(session, "");
    assert!(!text.contains(heading), "{heading} in {text}");
}

fn back(session: &mut Session, by: &str) {
    let now: String = session.one(&format!("SELECT (clock_timestamp() - interval '{by}')::text"));
    session.set_now(Some(&now));
}

#[test]
fn workers_and_what_they_work_on() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert((1..=4).map(|n| json!({"id": format!("t{n}"), "action": "x"})).collect()).unwrap();
    has_no(&mut session, "In progress");
    back(&mut session, "3 hours");
    session.own_with("ann", 1, &["x"], "lease => '1 hour'").unwrap();
    back(&mut session, "10 minutes");
    session.own_with("bob", 1, &["x"], "lease => '1 hour'").unwrap();
    let grant = session.own_with("carl", 1, &["x"], "lease => NULL").unwrap().remove(0);
    session
        .execute("SELECT taskq.report_status($1, $2, 'reads line 40', 0.5)", &[&grant.task_id, &grant.token])
        .unwrap();
    session.set_now(None);
    let work = told(&mut session, "In progress", "What");
    assert!(work.starts_with("3 tasks of 3 workers"), "{work}");
    assert!(work.contains("annt1x13h2h ago"), "the longest first, and its deadline has passed: {work}");
    assert!(work.contains("bobt2x110min 50m"), "{work}");
    assert!(
        work.contains("carlt3x110min 50m50 % reads line 40")
            || work.contains("carlt3x110mnone50 % reads line 40"),
        "{work}"
    );
    assert!(!work.contains("t4"), "{work}");
}

/// A call for more actions than it is registered for by name.
const WITHOUT_NAMES: &str = "SELECT taskq.own_tasks('w', 1, (SELECT array_agg('many ' || i) FROM generate_series(0, current_setting('max_locks_per_transaction')::integer / 4) AS i), wait => '60 seconds')";

/// On wrong code a call that waits for the end of a task looks like one for more actions than are known.
#[test]
fn calls_that_wait() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x", "delay": "1 day"}])).unwrap();
    has_no(&mut session, "Waiting calls");
    let way = Way {
        name: "own_tasks",
        call: "SELECT count(*) > 0 FROM taskq.own_tasks('w', 1, '{x}', wait => '60 seconds')",
    };
    let sleeper = Sleeper::start(&db, &mut session, way);
    let role: String = session.one("SELECT current_user");
    let calls = told(&mut session, "Waiting calls", "Legend");
    assert!(
        calls.starts_with("applicationrolesessionswait forlongest"),
        "a list begins with a name: {calls}"
    );
    assert!(calls.contains(&format!("{role}1x")), "{calls}");
    // Which wait for something else than tasks of some actions.
    let others = [
        (WITHOUT_NAMES, "tasks of more actions than can be listed"),
        (
            "SELECT taskq.own_tasks('w', 1, '{new}', wait => '60 seconds')",
            "tasks of actions that have had none",
        ),
        ("SELECT taskq.wait_for_task('a', '60 seconds')", "the end of a task"),
    ];
    for (call, told_of_it) in others {
        let other = Sleeper::start(&db, &mut session, Way { name: call, call });
        let calls = told(&mut session, "Waiting calls", "Legend");
        assert!(calls.contains(&format!("{role}1{told_of_it}")), "{call}: {calls}");
        session.run(&format!("SELECT pg_terminate_backend({})", other.pid()));
        other.fails();
    }
    session.run("SELECT taskq.update_tasks('{a}', delay => '0')");
    sleeper.woken_by("a task");
}

/// A try failed, and another is to come: not those that only were given back, nor those that have come to an end.
#[test]
fn tasks_that_are_failing() {
    let db = Db::new();
    let mut session = db.connect();
    for id in ["later", "again", "late", "released", "mended", "lost", "fine"] {
        session.insert(json!([{"id": id, "action": id, "max_tries": 3}])).unwrap();
    }
    has_no(&mut session, "Failing now");
    let mut give = |action: &str, arguments: &str| {
        let grant = session.own_one(action);
        session.give_with(&grant.task_id, grant.token, "pending", arguments).unwrap();
    };
    give("later", "'the printer is on fire', retry_after => '2 hours'");
    give("again", "'try again', retry_after => '0'");
    give("released", "'not mine', count_try => false");
    give("mended", "'not yet', retry_after => '0'");
    give("lost", "'no', retry_after => '0'");
    session.perform("mended", "completed");
    session.perform("lost", "aborted");
    session.perform("fine", "completed");
    back(&mut session, "1 hour");
    session.own_one_with("late", "lease => '1 minute'");
    session.set_now(None);
    session.run("SELECT taskq.maintain()");
    let failing = told(&mut session, "Failing now", "What aborted last");
    assert!(failing.starts_with("3 tasks with a try that failed, and another to come"), "{failing}");
    assert!(failing.contains("laterlaterthe printer is on fireworker1"), "{failing}");
    assert!(failing.contains("in 2h"), "{failing}");
    assert!(failing.contains("againagaintry againworker1"), "{failing}");
    assert!(failing.contains("latelateits deadline passedworker1"), "{failing}");
    for other in ["released", "mended", "lost", "fine"] {
        assert!(!failing.contains(other), "{other} in {failing}");
    }
    // Put off without an end: it is not ready.
    session.run("SELECT taskq.update_tasks('{later}', not_before => 'infinity')");
    let failing = told(&mut session, "Failing now", "What aborted last");
    assert!(failing.contains("at no time"), "{failing}");
}

/// On wrong code the exception, which stands in the last line, is cut off.
#[test]
fn an_error_has_its_first_and_its_last_line_and_the_whole_to_unfold() {
    let db = Db::new();
    let mut session = db.connect();
    session.insert(json!([{"id": "a", "action": "x"}, {"id": "b", "action": "y", "max_tries": 1}])).unwrap();
    let frames = "  File \"mail.py\", line 3, in send\n".repeat(30);
    let trace = format!("Traceback (most recent call last):\n{frames}SMTPRecipientsRefused: <ann>\n");
    for action in ["x", "y"] {
        let grant = session.own_one(action);
        session
            .execute(
                "SELECT taskq.return_task($1, $2, 'pending', $3)",
                &[&grant.task_id, &grant.token, &trace],
            )
            .unwrap();
    }
    let page: String = session.one("SELECT taskq.page()");
    let folded = "<details><summary>Traceback (most recent call last):<br>SMTPRecipientsRefused: &lt;ann&gt;</summary>\
                  <pre>Traceback (most recent call last):\n  File &quot;mail.py&quot;, line 3";
    assert_eq!(
        page.matches(folded).count(),
        2,
        "of the one that is failing, and of the one that aborted: {page}"
    );
}

#[test]
fn schedules() {
    let db = Db::new();
    let mut session = db.connect();
    has_no(&mut session, "Schedules");
    for (name, zone) in [("nightly", "Europe/Berlin"), ("broken", "UTC"), ("stopped", "UTC")] {
        session
            .execute(
                "SELECT taskq.schedule($1, '30 2 1 1 *', '{\"action\": \"report\"}', $2)",
                &[&name, &zone],
            )
            .unwrap();
    }
    session.run("SELECT taskq.pause_schedule('stopped')");
    session.run("UPDATE taskq.schedule SET problem = 'group g has no such task' WHERE name = 'broken'");
    session.run("SELECT taskq.run_schedule('nightly')");
    let schedules = told(&mut session, "Schedules", "Legend");
    let (_, rows) = schedules.split_once("problem").unwrap();
    assert!(rows.starts_with("broken30 2 1 1 * UTCreportin "), "that with a problem comes first: {rows}");
    assert!(rows.contains("group g has no such task"), "{rows}");
    assert!(rows.contains("nightly30 2 1 1 * Europe/Berlinreportin "), "{rows}");
    assert!(rows.contains("stopped30 2 1 1 * UTCreportpaused"), "{rows}");
}

/// What is stopped on purpose, and limits that are full; not those with room.
#[test]
fn what_keeps_ready_tasks_from_being_claimed() {
    let db = Db::new();
    let mut session = db.connect();
    let actions = ["paused", "full", "roomy", "fast", "slow", "shared", "free"];
    for action in actions {
        let tasks =
            (0..3).map(|n| json!({"id": format!("{action} {n}"), "action": action, "group_id": "crew"}));
        session.insert(tasks.collect()).unwrap();
    }
    session.insert(json!([{"id": "p", "action": "free", "group_id": "quiet"}, {"id": "g", "action": "free", "group_id": "small"},
                          {"id": "w", "action": "free", "workgroup": "printer"}])).unwrap();
    has_no(&mut session, "at a limit");
    session.run(
        "SELECT taskq.set_action('full', max_concurrency => 2), taskq.set_action('roomy', max_concurrency => 4),
                taskq.set_action('slow', rate_limit => 2, rate_period => '1 day'), taskq.set_action('fast', rate_limit => 4, rate_period => '1 day'),
                taskq.set_action('shared', max_per_group => 1), taskq.set_group('small', max_concurrency => 1)",
    );
    session.run("SELECT taskq.delay_workgroup('printer', '2 hours')");
    session.own("w", 1, &["free"]).unwrap();
    for action in actions {
        session.own("w", 2, &[action]).unwrap();
    }
    session.run("SELECT taskq.own_tasks('w', 9, '{free}')");
    session.run("SELECT taskq.pause_action('paused'), taskq.pause_group('quiet')");
    let stopped = told(&mut session, "Held back, paused, at a limit", "Groups that are not done");
    for row in [
        "actionpausedpaused",
        "groupquietpaused",
        "workgroupprinterheld backfor 2h",
        "actionfull2 of 2 in progress",
        "actionslow2 per 24h are used upfor 12h",
        "groupsmall1 of 1 in progress",
        "groupcrewshared1 of 1 in progress",
    ] {
        assert!(stopped.contains(row), "{row} in {stopped}");
    }
    assert!(!stopped.contains("roomy") && !stopped.contains("fast"), "{stopped}");
}

#[test]
fn suspended_tasks_and_what_they_wait_for() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(
            json!([{"id": "order", "action": "order", "group_id": "shop"}, {"id": "stock", "action": "count"},
                       {"id": "after", "action": "order", "depends_on": ["stock"]}]),
        )
        .unwrap();
    has_no(&mut session, "Suspended");
    back(&mut session, "1 hour");
    let grant = session.own_one("order");
    session
        .give_with(
            &grant.task_id,
            grant.token,
            "pending",
            "wait_at_most => '3 hours', depends_on => '[\"stock\", {\"id\": \"approve\", \"signal\": true}]'",
        )
        .unwrap();
    session.set_now(None);
    let suspended = told(&mut session, "Suspended", "Groups that are not done");
    assert!(suspended.starts_with("1 task"), "{suspended}");
    assert!(suspended.contains("orderordershop"), "{suspended}");
    assert!(suspended.contains("stock") && suspended.contains("approve"), "{suspended}");
    assert!(suspended.ends_with("60min 2h"), "since when, and until when: {suspended}");
}

#[test]
fn names_lead_to_their_places() {
    let db = Db::new();
    let mut session = db.connect();
    session
        .insert(json!([{"id": "a", "action": "x", "group_id": "g", "max_tries": 1}, {"id": "b", "action": "y", "group_id": "g", "depends_on": ["a"]}]))
        .unwrap();
    session.perform("x", "aborted");
    let page: String = session.one("SELECT taskq.page('g')");
    let aborted = page.split_once("<h2>What aborted last").unwrap().1;
    let number: i64 = session.one("SELECT task_no FROM taskq.task WHERE id = 'a'");
    assert!(aborted.contains(&format!("<a href=\"#t{number}\">a</a>")), "to its box: {aborted}");
    assert!(
        aborted.contains("<a href=\"#a0\">x</a>") || aborted.contains("<a href=\"#a1\">x</a>"),
        "{aborted}"
    );
    for place in ["hour", "actions", "aborted", "graph", "legend"] {
        assert!(page.contains(&format!("<a href=\"#{place}\">")), "{place}");
    }
}

#[test]
fn a_browser_can_be_told_to_load_it_anew() {
    let db = Db::new();
    let mut session = db.connect();
    let refresh = |tags: &[String]| {
        tags.iter()
            .find(|tag| tag.contains("\"refresh\""))
            .map(|tag| tag.split('"').nth(3).unwrap().to_owned())
    };
    assert_eq!(refresh(&page(&mut session, "").0), None);
    assert_eq!(refresh(&page(&mut session, "refresh => '1 minute'").0).as_deref(), Some("60"));
    assert_eq!(refresh(&page(&mut session, "refresh => '1.9 seconds'").0).as_deref(), Some("2"));
    refused(&mut session, "22023", "refresh", "SELECT taskq.page(refresh => '2000 years')", &[]);
    for less in ["0.9 seconds", "-1 minute"] {
        let call = format!("SELECT taskq.page(refresh => '{less}')");
        let error = refused(&mut session, "22023", "refresh", &call, &[]);
        assert_eq!(error.hint(), Some("Give a second or more."));
    }
}

/// The lines of a chart join over minutes in which nothing ended.
#[test]
fn lines_of_a_chart_join() {
    let db = Db::new();
    let mut session = db.connect();
    for ago in [20, 17, 14, 11] {
        session.insert(json!([{"id": format!("t{ago}"), "action": "x"}])).unwrap();
        back(&mut session, &format!("{ago} minutes"));
        session.perform("x", "completed");
        session.set_now(None);
    }
    let (tags, _) = page(&mut session, "");
    let line = tags.iter().find(|tag| tag.starts_with("path class=\"p99\"")).unwrap();
    assert_eq!((line.matches('M').count(), line.matches('L').count()), (1, 3), "{line}");
}
