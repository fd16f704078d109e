//! `rerun_tasks`: which tasks start over, and how they stand then.

use serde_json::json;
use taskq_tests::session::AT_ONCE;
use taskq_tests::{Db, Session};

use crate::{counts, rerun, save, states, steps, suspend};

/// `a`, then `b` and `c`, then `d`; all completed.
fn diamond(session: &mut Session) {
    session
        .insert(json!([
            {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
            {"id": "c", "action": "c", "depends_on": ["a"]}, {"id": "d", "action": "d", "depends_on": ["b", "c"]},
        ]))
        .unwrap();
    for action in ["a", "b", "c", "d"] {
        session.perform(action, "completed");
    }
}

#[test]
fn a_diamond_runs_again_from_its_top() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    assert_eq!(rerun(&mut session, &["a"]), 4);
    assert_eq!(states(&mut session, ["a", "b", "c", "d"]), ["ready", "blocked", "blocked", "blocked"]);
    assert_eq!(counts(&mut session, "d"), ("blocked".to_owned(), 0, 2, 0));
    for action in ["a", "b", "c"] {
        assert_ne!(session.state("d"), "ready");
        session.perform(action, "completed");
    }
    assert_eq!(counts(&mut session, "d"), ("ready".to_owned(), 2, 2, 0));
    session.perform("d", "completed");
    assert_eq!(rerun(&mut session, &["d", "d"]), 1, "nothing depends on it");
    assert_eq!(states(&mut session, ["b", "c", "d"]), ["completed", "completed", "ready"]);
}

#[test]
fn what_is_in_between_and_beside_counts_once() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    assert_eq!(rerun(&mut session, &["b"]), 2);
    assert_eq!(counts(&mut session, "d"), ("blocked".to_owned(), 1, 2, 0), "c has completed and stays so");
    session.perform("b", "completed");
    assert_eq!(counts(&mut session, "d").0, "ready");
}

#[test]
fn it_begins_as_new_without_what_it_has_left() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "a", "action": "a", "max_tries": 2, "group_id": "g"}]));
    let grant = session.own_one("a");
    session.give_with("a", grant.token, "pending", AT_ONCE).unwrap();
    let grant = session.own_one("a");
    save(&mut session, &grant, "one", None).unwrap();
    session
        .execute("SELECT taskq.report_status('a', $1, 'half', 0.5, '{\"at\": 1}')", &[&grant.token])
        .unwrap();
    session.give_with("a", grant.token, "completed", "status => 'fine', result => '7'").unwrap();
    assert_eq!(rerun(&mut session, &["a"]), 1);
    let task = session.task("a").unwrap();
    assert_eq!((task.state.as_str(), task.num_tries, task.status, task.result), ("ready", 0, None, None));
    assert!(steps(&mut session, "a").is_empty());
    let checkpoint = "SELECT checkpoint IS NULL AND num_tries = 1 FROM taskq.own_tasks('w', 1, '{a}')";
    assert!(session.one::<bool>(checkpoint));
    assert_eq!(session.one::<i64>("SELECT completed FROM taskq.groups"), 0);
    let again = session.give("a", grant.token, "completed").unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&again), "TQ001");
    // What was tried stays in the history, as after a retry.
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.attempts"), 3);
}

#[test]
fn aborted_tasks_and_what_aborted_with_them_start_over_as_well() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
        {"id": "h", "action": "h", "depends_on": [{"id": "a", "condition": "aborted"}]},
        {"id": "s", "action": "s", "depends_on": [{"id": "a", "condition": "settled"}]},
    ]));
    session.perform("a", "aborted");
    session.perform("h", "completed");
    session.perform("s", "completed");
    assert_eq!(rerun(&mut session, &["a"]), 4);
    session.perform("a", "completed");
    assert_eq!(states(&mut session, ["b", "h", "s"]), ["ready", "aborted", "ready"]);
    assert_eq!(counts(&mut session, "s").3, 0);
}

#[test]
fn unknown_ids_and_what_is_not_settled_are_left_alone() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    session.insert(json!([{"id": "p", "action": "p"}, {"id": "q", "action": "q"}])).unwrap();
    session.own_one("q");
    assert_eq!(rerun(&mut session, &["nix", "p", "q"]), 0);
    assert_eq!(rerun(&mut session, &[]), 0);
    assert_eq!(rerun(&mut session, &["nix", "p", "q", "d"]), 1);
    assert_eq!(states(&mut session, ["p", "q", "d"]), ["ready", "in-progress", "ready"]);
    assert_eq!(session.one::<i64>("SELECT taskq.rerun_tasks('{NULL}')"), 0);
}

#[test]
fn a_pending_one_that_had_counted_the_end_waits_for_it_again() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b"},
        {"id": "ready", "action": "r", "depends_on": ["a"]},
        {"id": "blocked", "action": "w", "depends_on": ["a", "b"]},
        {"id": "later", "action": "l", "depends_on": ["a"], "delay": "1 hour"},
        {"id": "next", "action": "n", "depends_on": ["ready"]},
    ]));
    session.perform("a", "completed");
    assert_eq!(states(&mut session, ["ready", "blocked", "later"]), ["ready", "blocked", "scheduled"]);
    assert_eq!(rerun(&mut session, &["a"]), 1);
    assert_eq!(states(&mut session, ["ready", "blocked", "later", "next"]), ["blocked"; 4]);
    assert_eq!(counts(&mut session, "blocked"), ("blocked".to_owned(), 0, 2, 0));
    session.perform("b", "completed");
    assert_eq!(session.state("blocked"), "blocked");
    session.perform("a", "completed");
    assert_eq!(
        states(&mut session, ["ready", "blocked", "later", "next"]),
        ["ready", "ready", "scheduled", "blocked"]
    );
}

#[test]
fn what_has_settled_behind_a_pending_one_starts_over_too() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]},
        {"id": "c", "action": "c", "depends_on": ["b"]},
    ]));
    session.perform("a", "completed");
    session.cancel(&["c"]).unwrap();
    assert_eq!(rerun(&mut session, &["a"]), 2);
    assert_eq!(states(&mut session, ["a", "b", "c"]), ["ready", "blocked", "blocked"]);
}

#[test]
fn a_spontaneous_task_waits_and_completes_again() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "s", "action": "s", "spontaneous": true, "depends_on": ["a"]},
        {"id": "b", "action": "b", "depends_on": ["s"]},
    ]));
    session.perform("a", "completed");
    session.perform("b", "completed");
    assert_eq!(rerun(&mut session, &["a"]), 3);
    assert_eq!(states(&mut session, ["a", "s", "b"]), ["ready", "blocked", "blocked"]);
    session.perform("a", "completed");
    assert_eq!(states(&mut session, ["a", "s", "b"]), ["completed", "completed", "ready"]);
    // By itself it completes at once.
    session.perform("b", "completed");
    assert_eq!(rerun(&mut session, &["s"]), 2);
    assert_eq!(states(&mut session, ["s", "b"]), ["completed", "ready"]);
}

#[test]
fn a_task_that_needs_some_of_its_dependencies_can_do_without_one_that_stays_lost() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b"}, {"id": "c", "action": "c"},
        {"id": "d", "action": "d", "depends_on": ["a", "b", "c"], "num_required": 2},
    ]));
    session.perform("a", "aborted");
    session.perform("b", "completed");
    session.perform("c", "completed");
    session.perform("d", "completed");
    assert_eq!(rerun(&mut session, &["b"]), 2);
    assert_eq!(session.state("d"), "blocked");
    session.perform("b", "completed");
    assert_eq!(session.state("d"), "ready");
}

#[test]
fn what_a_suspension_has_added_goes_and_leads_nowhere() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "s", "action": "s"}, {"id": "x", "action": "x", "depends_on": ["a"]},
    ]));
    session.perform("a", "completed");
    suspend(&mut session, "x", &["s"]);
    session.perform("s", "aborted");
    assert_eq!(counts(&mut session, "x"), ("ready".to_owned(), 2, 2, 1));
    session.perform("x", "completed");
    // Not downstream of what it was suspended for.
    assert_eq!(rerun(&mut session, &["s"]), 1);
    assert_eq!(states(&mut session, ["s", "x"]), ["ready", "completed"]);
    session.perform("s", "aborted");
    assert_eq!(rerun(&mut session, &["a"]), 2);
    assert_eq!(counts(&mut session, "x"), ("blocked".to_owned(), 0, 1, 0));
    session.perform("a", "completed");
    assert_eq!(counts(&mut session, "x"), ("ready".to_owned(), 1, 1, 0));
}

#[test]
fn a_suspended_member_of_a_chain_waits_for_the_beginning_again() {
    let (_db, [mut session]) = Db::with_tasks(json!([
        {"id": "a", "action": "a"}, {"id": "b", "action": "b", "depends_on": ["a"]}, {"id": "s", "action": "s"},
        {"id": "c", "action": "c", "depends_on": ["b"]},
    ]));
    session.perform("a", "completed");
    suspend(&mut session, "b", &["s"]);
    assert_eq!(rerun(&mut session, &["a"]), 1);
    assert_eq!(counts(&mut session, "b"), ("blocked".to_owned(), 0, 2, 0));
    session.perform("s", "completed");
    assert_eq!(session.state("b"), "blocked");
    session.perform("a", "completed");
    assert_eq!(states(&mut session, ["b", "c"]), ["ready", "blocked"]);
}

#[test]
fn a_reset_drops_what_a_suspension_has_added() {
    for settled in [false, true] {
        let (_db, [mut session]) = Db::with_tasks(json!([
            {"id": "a", "action": "a", "group_id": "g"}, {"id": "s", "action": "s"},
            {"id": "x", "action": "x", "depends_on": ["a"], "group_id": "g"},
        ]));
        session.perform("a", "completed");
        suspend(&mut session, "x", &["s"]);
        if settled {
            session.perform("s", "aborted");
            session.perform("x", "completed");
        }
        session.run("SELECT taskq.reset_group('g')");
        assert_eq!(counts(&mut session, "x"), ("blocked".to_owned(), 0, 1, 0), "settled: {settled}");
        session.perform("a", "completed");
        assert_eq!(counts(&mut session, "x"), ("ready".to_owned(), 1, 1, 0), "settled: {settled}");
    }
}

#[test]
fn an_expiry_no_longer_counts() {
    for call in ["rerun_tasks('{a}')", "retry_tasks('{a}')", "reset_group('g')"] {
        let (_db, [mut session]) = Db::with_tasks(json!([{"id": "a", "action": "a", "group_id": "g"}]));
        session.perform("a", "aborted");
        session.run(
            "INSERT INTO taskq.expiry (task_no, due)
             SELECT t.task_no, now() - interval '1 hour' FROM taskq.task AS t
              WHERE NOT EXISTS (SELECT FROM taskq.expiry AS e WHERE e.task_no = t.task_no)",
        );
        session.run(&format!("SELECT taskq.{call}"));
        assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.expiry"), 0, "{call}");
    }
}

#[test]
fn a_rolled_back_rerun_has_not_happened() {
    let (_db, [mut session]) = Db::connected();
    diamond(&mut session);
    session.run("BEGIN; SAVEPOINT s");
    assert_eq!(rerun(&mut session, &["a"]), 4);
    session.run("ROLLBACK TO s");
    assert_eq!(rerun(&mut session, &["d"]), 1);
    session.run("ROLLBACK");
    assert_eq!(states(&mut session, ["a", "b", "c", "d"]), ["completed"; 4]);
}

#[test]
fn a_long_chain_starts_over_in_rows_that_grow_with_its_length() {
    // Rows that are read for each task of the chain: as many for a long one as for a short one.
    let read = |length: usize| -> f64 {
        let (_db, [mut session]) = Db::connected();
        let tasks: Vec<_> = (0..length)
            .map(|n| {
                let after: Vec<String> = n.checked_sub(1).map(|n| n.to_string()).into_iter().collect();
                json!({"id": n.to_string(), "action": "s", "spontaneous": true, "depends_on": after})
            })
            .collect();
        session.insert(json!(tasks)).unwrap();
        session.run("BEGIN");
        assert_eq!(rerun(&mut session, &["0"]), length as i64);
        let read = "SELECT sum(seq_tup_read + idx_tup_fetch)::float8 FROM pg_stat_xact_all_tables WHERE schemaname = 'taskq'";
        let read: f64 = session.one(read);
        session.run("COMMIT");
        assert_eq!(
            session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state = 'completed'"),
            length as i64
        );
        read / length as f64
    };
    let (short, long) = (read(200), read(3000));
    assert!(long <= 1.5 * short, "{short} rows a task, {long} of a long chain");
}

/// Pages and not rows: what a scan of an index passes over on its way is counted as no row.
#[test]
fn what_many_wait_for_starts_over_in_pages_that_grow_with_their_number() {
    let pages = |dependents: i64| -> f64 {
        let (_db, [mut session]) = Db::with_tasks(json!([{"id": "root", "action": "root"}]));
        let wait = "SELECT taskq.insert_tasks(jsonb_agg(jsonb_build_object('action', 'q', 'depends_on', \
                      '[{\"id\": \"root\", \"condition\": \"settled\"}]'::jsonb))) FROM generate_series(1, $1::bigint)";
        session.query(wait, &[&dependents]).unwrap();
        session.perform("root", "completed");
        let pages = session.pages("SELECT taskq.rerun_tasks('{root}')");
        let blocked = "SELECT count(*) FROM taskq.tasks WHERE state = 'blocked'";
        assert_eq!(session.one::<i64>(blocked), dependents);
        pages as f64 / dependents as f64
    };
    let (few, many) = (pages(2_000), pages(16_000));
    assert!(many <= 1.25 * few, "{few} pages for each of a few dependents, {many} for each of many");
}
