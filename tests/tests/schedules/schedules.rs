//! Schedules: when runs come, under which id, and what becomes of those that overlap or were missed.
//!
//! Why: cron tables fail at the change of the clocks, after a downtime, and when a run takes longer than its period. On
//! wrong code the ids of the runs, which are made of name and time, differ.

use serde_json::json;
use taskq_tests::{Db, Session, refused};

use crate::{call, owned};

pub(crate) fn hourly(db: &Db, policies: &str) -> Session {
    let mut session = db.connect();
    session.set_now(Some("2030-01-01 00:30:00Z"));
    call(&mut session, &format!("schedule('s', '0 * * * *', '{{\"action\": \"x\"}}', {policies})"));
    session
}

/// The times of the runs there are, without the name and the day.
pub(crate) fn runs(session: &mut Session) -> Vec<String> {
    session.all("SELECT substr(id, 14, 5) FROM taskq.tasks WHERE id LIKE 's@%' ORDER BY id")
}

pub(crate) fn look_at(session: &mut Session, time: &str) {
    session.set_now(Some(&format!("2030-01-01 {time}Z")));
    call(session, "maintain()");
}

#[test]
fn a_run_comes_at_its_time_with_an_id_of_name_and_time() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:30:00Z"));
    let next: String = session.one(
        "SELECT to_char(taskq.schedule('s', '0 * * * *', '{\"action\": \"x\", \"body\": {\"n\": 1}, \"priority\": 7}') AT TIME ZONE 'UTC', 'HH24:MI:SS')",
    );
    assert_eq!(next, "01:00:00");
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    session.set_now(Some("2030-01-01 00:59:59Z"));
    assert!(owned(&mut session, 1, &["x"]).is_empty());
    session.set_now(Some("2030-01-01 01:00:00Z"));
    assert_eq!(owned(&mut session, 1, &["x"]), ["s@2030-01-01T01:00:00Z"]);
    let task = session.task("s@2030-01-01T01:00:00Z").unwrap();
    assert_eq!((task.priority, task.body.unwrap().replace(' ', "")), (7, "{\"n\":1}".to_owned()));
    let last: String = session.one("SELECT last_task_id FROM taskq.schedules WHERE name = 's'");
    assert_eq!(last, "s@2030-01-01T01:00:00Z");
    assert!(owned(&mut session, 1, &["x"]).is_empty());
}

#[test]
fn maintain_fires_and_so_does_a_claim_of_another_action() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue'");
    look_at(&mut session, "01:00:01");
    assert_eq!(runs(&mut session), ["01:00"]);
    session.set_now(Some("2030-01-01 02:00:01Z"));
    owned(&mut session, 1, &["else"]);
    assert_eq!(runs(&mut session), ["01:00", "02:00"]);
}

#[test]
fn overlap_skip_leaves_a_run_out_while_the_one_before_is_not_settled() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'skip'");
    look_at(&mut session, "01:00:01");
    look_at(&mut session, "02:00:01");
    let grant = session.own_one("x");
    look_at(&mut session, "03:00:01");
    assert_eq!(runs(&mut session), ["01:00"]);
    session.complete(&grant);
    look_at(&mut session, "04:00:01");
    assert_eq!(runs(&mut session), ["01:00", "04:00"]);
}

#[test]
fn overlap_queue_lets_a_run_wait_for_the_one_before_however_it_ends() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue'");
    for time in ["01:00:01", "02:00:01", "03:00:01"] {
        look_at(&mut session, time);
    }
    let states: Vec<String> = session.all("SELECT state::text FROM taskq.tasks ORDER BY id");
    assert_eq!(states, ["ready", "blocked", "blocked"]);
    for (code, id) in [("aborted", "01"), ("completed", "02"), ("completed", "03")] {
        assert_eq!(session.perform("x", code), format!("s@2030-01-01T{id}:00:00Z"));
    }
}

#[test]
fn overlap_replace_cancels_the_run_before_also_in_progress() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'replace'");
    look_at(&mut session, "01:00:01");
    let old = session.own_one("x");
    look_at(&mut session, "02:00:01");
    assert_eq!(session.state(&old.task_id), "aborted");
    assert!(!session.extend("w", &[(&old.task_id, old.token)], "1 hour").unwrap()[0].1);
    assert_eq!(owned(&mut session, 9, &["x"]), ["s@2030-01-01T02:00:00Z"]);
}

#[test]
fn backfill_says_which_runs_of_a_downtime_come() {
    for (backfill, expected) in
        [("one", vec!["05:00"]), ("none", vec![]), ("all", vec!["01:00", "02:00", "03:00", "04:00", "05:00"])]
    {
        let db = Db::new();
        let mut session = hourly(&db, &format!("overlap => 'queue', backfill => '{backfill}'"));
        look_at(&mut session, "05:20:00");
        assert_eq!(runs(&mut session), expected, "{backfill}");
        look_at(&mut session, "05:40:00");
        assert_eq!(runs(&mut session), expected, "{backfill}: only once");
        look_at(&mut session, "06:00:01");
        assert_eq!(runs(&mut session).last().map(String::as_str), Some("06:00"), "{backfill}");
        if backfill == "all" {
            for run in &expected {
                assert_eq!(session.perform("x", "completed"), format!("s@2030-01-01T{run}:00Z"));
            }
        }
    }
}

/// Ids of subtransactions burden the snapshots of all sessions: one for each missed run would be hundreds in one call.
#[test]
fn missed_runs_are_inserted_together() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:30Z"));
    call(
        &mut session,
        "schedule('s', '* * * * *', '{\"action\": \"x\"}', overlap => 'queue', backfill => 'all')",
    );
    look_at(&mut session, "02:00:30");
    // There is a limit of time for those of one go.
    let inserted = runs(&mut session).len() as i64;
    let writers: i64 = session.one("SELECT count(DISTINCT xmin::text) FROM taskq.task");
    assert!(inserted > 10 && writers < inserted / 3, "{inserted} runs by {writers} subtransactions");
}

#[test]
fn a_run_that_waits_for_an_open_insert_keeps_earlier_ones_and_the_order() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue', backfill => 'all'");
    let mut other = db.connect();
    other.run("BEGIN");
    other.insert(json!([{"id": "s@2030-01-01T03:00:00Z", "action": "z"}])).unwrap();
    look_at(&mut session, "05:20:00");
    assert_eq!(runs(&mut session), ["01:00", "02:00"]);
    other.run("ROLLBACK");
    // The backend that has waited for it lets it be for a second.
    let mut next = db.connect();
    look_at(&mut next, "05:20:00");
    assert_eq!(runs(&mut next), ["01:00", "02:00", "03:00", "04:00", "05:00"]);
    for hour in 1..=5 {
        assert_eq!(owned(&mut next, 9, &["x"]), [format!("s@2030-01-01T0{hour}:00:00Z")]);
        next.run(&format!("SELECT taskq.cancel_tasks('{{s@2030-01-01T0{hour}:00:00Z}}')"));
    }
}

#[test]
fn max_backfill_brings_the_latest_of_the_missed_runs() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'queue', backfill => 'all', max_backfill => 2");
    look_at(&mut session, "05:20:00");
    assert_eq!(runs(&mut session), ["04:00", "05:00"]);
    look_at(&mut session, "06:00:01");
    look_at(&mut session, "07:00:01");
    assert_eq!(runs(&mut session), ["04:00", "05:00", "06:00", "07:00"], "on time each comes");
    for run in ["04", "05", "06", "07"] {
        assert_eq!(session.perform("x", "completed"), format!("s@2030-01-01T{run}:00:00Z"), "in their order");
    }
    assert_eq!(session.one::<i32>("SELECT max_backfill FROM taskq.schedules"), 2);
    // More than there were.
    call(
        &mut session,
        "schedule('s', '0 * * * *', '{\"action\": \"x\"}', overlap => 'queue', backfill => 'all', max_backfill => 9)",
    );
    look_at(&mut session, "10:30:00");
    assert_eq!(runs(&mut session).len(), 7);
    // Years of seconds are not walked through.
    call(
        &mut session,
        "schedule('s', '* * * * * *', '{\"action\": \"y\"}', overlap => 'queue', backfill => 'all', max_backfill => 3)",
    );
    session.set_now(Some("2040-01-01 00:00:00.5Z"));
    let start = std::time::Instant::now();
    call(&mut session, "maintain()");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    let ids: Vec<String> =
        session.all("SELECT substr(id, 3, 19) FROM taskq.tasks WHERE action = 'y' ORDER BY id");
    assert_eq!(ids, ["2039-12-31T23:59:58", "2039-12-31T23:59:59", "2040-01-01T00:00:00"]);
}

/// A worker that claims tasks fires schedules, too; what others have missed must not become its work.
#[test]
fn what_a_schedule_has_to_catch_up_with_delays_no_claim() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    for (name, most) in [("s", "NULL"), ("t", "1000")] {
        call(
            &mut session,
            &format!(
                "schedule('{name}', '* * * * * *', '{{\"action\": \"{name}\"}}', overlap => 'queue', backfill => 'all',
                          max_backfill => {most})"
            ),
        );
    }
    session.insert((0..20).map(|_| json!({"action": "urgent"})).collect()).unwrap();
    // Half a million runs of the one, and a thousand of the other.
    session.set_now(Some("2030-01-08 00:00:00.5Z"));
    for _ in 0..20 {
        let start = std::time::Instant::now();
        session.own_one("urgent");
        assert!(start.elapsed().as_secs() < 3, "a claim took {:?}", start.elapsed());
    }
    // It goes on where it stopped: none is missing and none comes twice.
    call(&mut session, "unschedule('s')");
    call(&mut session, "maintain()");
    let all = "SELECT count(*) FROM taskq.tasks WHERE action = 't'";
    assert_eq!(session.one::<i64>(all), 1000);
    let in_a_row =
        "SELECT max(CASE WHEN id LIKE 's@%' THEN substr(id, 3)::timestamptz END) - '2030-01-01 00:00:00Z'
                           = interval '1 second' * count(*) FILTER (WHERE id LIKE 's@%') FROM taskq.tasks";
    assert!(session.one::<bool>(in_a_row));
}

#[test]
fn years_of_downtime_cost_no_time_with_one_and_come_in_steps_with_all() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00:00Z"));
    call(&mut session, "schedule('s', '* * * * * *', '{\"action\": \"x\"}', overlap => 'queue')");
    call(
        &mut session,
        "schedule('t', '0 0 * * *', '{\"action\": \"y\"}', overlap => 'queue', backfill => 'all')",
    );
    // A hundred and fifty million times of the first schedule: a call that looks at each runs into the statement's
    // time-out.
    session.set_now(Some("2035-01-01 00:00:00Z"));
    call(&mut session, "maintain()");
    assert_eq!(
        session.all::<String>("SELECT id FROM taskq.tasks WHERE id LIKE 's@%'"),
        ["s@2035-01-01T00:00:00Z"]
    );
    for _ in 0..3 {
        call(&mut session, "maintain()");
    }
    // One of the five years has a day more.
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE id LIKE 't@%'"), 5 * 365 + 1);
}

#[test]
fn a_schedule_keeps_the_local_time_over_the_changes_of_the_clocks() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-03-29 12:00:00Z"));
    call(
        &mut session,
        "schedule('s', '30 2 * * *', '{\"action\": \"x\"}', timezone => 'Europe/Berlin', overlap => 'queue', backfill => 'all')",
    );
    session.set_now(Some("2030-04-01 12:00:00Z"));
    call(&mut session, "maintain()");
    let ids: Vec<String> = session.all("SELECT substr(id, 8, 9) FROM taskq.tasks ORDER BY id");
    // 02:30 does not exist on the 31st: the run comes right after the gap.
    assert_eq!(ids, ["03-30T01:", "03-31T01:", "04-01T00:"]);
    call(&mut session, "unschedule('s')");
    session.set_now(Some("2030-10-26 12:00:00Z"));
    call(
        &mut session,
        "schedule('s', '30 2 * * *', '{\"action\": \"x\"}', timezone => 'Europe/Berlin', overlap => 'queue', backfill => 'all')",
    );
    session.set_now(Some("2030-10-28 12:00:00Z"));
    call(&mut session, "maintain()");
    let ids: Vec<String> =
        session.all("SELECT substr(id, 8, 9) FROM taskq.tasks WHERE id LIKE 's@2030-10%' ORDER BY id");
    // 02:30 comes twice on the 27th, and one run with it.
    assert_eq!(ids, ["10-27T00:", "10-28T01:"]);
}

#[test]
fn unschedule_ends_it_and_leaves_its_tasks() {
    let db = Db::new();
    let mut session = hourly(&db, "overlap => 'skip'");
    look_at(&mut session, "01:00:01");
    call(&mut session, "unschedule('s')");
    look_at(&mut session, "09:00:01");
    assert_eq!(runs(&mut session), ["01:00"]);
    assert!(session.all::<String>("SELECT name FROM taskq.schedules").is_empty());
    refused(&mut session, "TQ007", "s", "SELECT taskq.unschedule('s')", &[]);
}

#[test]
fn a_run_that_cannot_be_inserted_spoils_neither_calls_nor_the_next_run() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:30:00Z"));
    session
        .insert(json!([{"id": "s@2030-01-01T01:00:00Z", "action": "z"}, {"id": "other", "action": "y"}]))
        .unwrap();
    call(&mut session, "schedule('s', '0 * * * *', '{\"action\": \"x\"}')");
    session.set_now(Some("2030-01-01 01:00:01Z"));
    assert_eq!(owned(&mut session, 9, &["x", "y"]), ["other"]);
    look_at(&mut session, "02:00:01");
    assert_eq!(owned(&mut session, 9, &["x"]), ["s@2030-01-01T02:00:00Z"]);
}

#[test]
fn wrong_schedules_are_refused() {
    let (_db, [mut session]) = Db::connected();
    for (arguments, code, naming) in [
        ("NULL, '* * * * *', '{\"action\": \"x\"}'", "22004", "name"),
        ("'s', NULL, '{\"action\": \"x\"}'", "22004", "cron"),
        ("'s', '* * * * *', NULL", "22004", "task"),
        ("'', '* * * * *', '{\"action\": \"x\"}'", "22023", "name"),
        ("'s', '61 * * * *', '{\"action\": \"x\"}'", "22023", "cron"),
        ("'s', '* * *', '{\"action\": \"x\"}'", "22023", "cron"),
        ("'s', '0 0 30 2 *', '{\"action\": \"x\"}'", "22023", "cron"),
        ("'s', '* * * * *', '{}'", "TQ006", "action"),
        ("'s', '* * * * *', '{\"action\": \"x\", \"colour\": 1}'", "TQ006", "colour"),
        ("'s', '* * * * *', '{\"action\": \"x\", \"id\": \"a\"}'", "TQ006", "id"),
        ("'s', '* * * * *', '[]'", "TQ006", ""),
        ("'s', '* * * * *', '{\"action\": \"x\"}', 'Mars/Olympus'", "22023", "timezone"),
        ("'s', '* * * * *', '{\"action\": \"x\"}', overlap => 'maybe'", "22023", "overlap"),
        ("'s', '* * * * *', '{\"action\": \"x\"}', backfill => 'some'", "22023", "backfill"),
        ("'s', '* * * * *', '{\"action\": \"x\"}', max_backfill => 0", "22023", "max_backfill"),
        ("'s', '* * * * *', '{\"action\": \"x\"}', max_backfill => 1001", "22023", "max_backfill"),
        ("'s', repeat('1,', 500) || '1 * * * *', '{\"action\": \"x\"}'", "22023", "cron"),
        ("'s', '* * * * *', '{\"action\": \"x\", \"unique_by\": true}'", "TQ006", "unique"),
    ] {
        refused(&mut session, code, naming, &format!("SELECT taskq.schedule({arguments})"), &[]);
    }
    refused(&mut session, "22004", "name", "SELECT taskq.unschedule(NULL)", &[]);
}

#[test]
fn the_error_of_a_wrong_expression_names_its_field() {
    let (_db, [mut session]) = Db::connected();
    for (cron, says) in [
        ("61 * * * *", "whose minute \"61\" cannot be read"),
        ("0 24 * * *", "whose hour \"24\" cannot be read"),
        ("0 0 * 13 *", "whose month \"13\" cannot be read"),
        ("0 0 * * FUNDAY", "whose day of week \"FUNDAY\" cannot be read"),
        ("99 0 0 * * *", "whose second \"99\" cannot be read"),
        ("* * *", "which has 3 fields instead of 5 or 6"),
        ("@often", "no name of a cron expression"),
    ] {
        let query = "SELECT taskq.schedule('s', $1, '{\"action\": \"x\"}')";
        let error = refused(&mut session, "22023", "cron", query, &[&cron]);
        let detail = error.detail().unwrap();
        assert!(detail.contains(cron) && detail.contains(says), "{detail}");
        assert!(!detail.contains(".."), "{detail}");
        for name in ["@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"] {
            assert!(error.hint().unwrap().contains(name), "{name}: {error:?}");
            let next = format!("SELECT taskq.schedule('{name}', '{name}', '{{\"action\": \"x\"}}') > now()");
            assert!(session.one::<bool>(&next), "{name} is taken");
        }
    }
}
