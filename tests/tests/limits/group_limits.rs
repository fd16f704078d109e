//! Limits of groups, step by step: `max_per_group` of an action, and `max_concurrency` of a group over all actions.
//!
//! Why: a limit that leaks a place blocks a tenant for ever, and one that is not asked lets a tenant flood all others.
//! On wrong code the number of grants after one of the steps is not the number of places left, or a full group is in
//! the way.

use serde_json::{Value, json};
use taskq_tests::{Db, Session, refused, until};

use crate::{call, count, ids, owned, tasks};

pub(crate) fn of_group(action: &str, group: &str, n: usize) -> Value {
    (1..=n)
        .map(|i| json!({"id": format!("{action}{group}{i}"), "action": action, "group_id": group}))
        .collect()
}

/// Two tasks of each group of action `x` at a time.
pub(crate) fn per_group(db: &Db) -> Session {
    let mut session = db.connect();
    call(&mut session, "set_action('x', max_per_group => 2)");
    session.insert(of_group("x", "a", 10)).unwrap();
    session.insert(of_group("x", "b", 10)).unwrap();
    session
}

fn slots_held(session: &mut Session) -> i64 {
    session.one("SELECT count(*) FROM taskq.slot WHERE task_no IS NOT NULL")
}

#[test]
fn each_group_of_the_action_has_its_places_and_tasks_without_a_group_are_not_limited() {
    let db = Db::new();
    let mut session = per_group(&db);
    session.insert(tasks("x", 3)).unwrap();
    let mut got = owned(&mut session, 100, &["x"]);
    got.sort_unstable();
    assert_eq!(got, ["x1", "x2", "x3", "xa1", "xa2", "xb1", "xb2"]);
    assert!(owned(&mut session, 100, &["x"]).is_empty());
    assert_eq!(slots_held(&mut session), 4);
}

#[test]
fn a_limit_of_its_own_holds_a_group_over_all_actions() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_group('a', max_concurrency => 3)");
    for action in ["x", "y"] {
        session.insert(of_group(action, "a", 5)).unwrap();
        session.insert(of_group(action, "free", 2)).unwrap();
    }
    assert_eq!(owned(&mut session, 2, &["x"]), ["xa1", "xa2"]);
    let got = owned(&mut session, 100, &["x", "y"]);
    assert_eq!(got, ["xa3", "xfree1", "xfree2", "yfree1", "yfree2"], "in the order of insertion");
    assert!(owned(&mut session, 100, &["x", "y"]).is_empty());
    session.one::<i64>("SELECT taskq.cancel_tasks('{xa1}')");
    assert_eq!(owned(&mut session, 100, &["y"]), ["ya1"]);
}

#[test]
fn whatever_ends_a_performance_frees_its_places() {
    type End = fn(&mut Session, &taskq_tests::Grant);
    let ends: [(&str, End); 8] = [
        ("completed", |s, g| s.complete(g)),
        ("aborted", |s, g| drop(s.give(&g.task_id, g.token, "aborted").unwrap())),
        ("pending", |s, g| drop(s.give(&g.task_id, g.token, "pending").unwrap())),
        ("pending, for later", |s, g| {
            s.give_with(&g.task_id, g.token, "pending", "retry_after => '1 hour'").unwrap();
        }),
        ("cancelled", |s, g| assert_eq!(s.cancel(&[&g.task_id]).unwrap(), 1)),
        ("cancelled and deleted", |s, g| {
            s.cancel(&[&g.task_id]).unwrap();
            s.delete(&[&g.task_id]).unwrap();
        }),
        ("reset", |s, _| assert_eq!(count(s, "reset_group('a')"), 4)),
        ("cancelled and retried", |s, g| {
            s.cancel(&[&g.task_id]).unwrap();
            count(s, &format!("retry_tasks('{{{}}}')", g.task_id));
        }),
    ];
    for (what, end) in ends {
        let (_db, [mut session]) = Db::connected();
        call(&mut session, "set_action('x', max_per_group => 1, max_concurrency => 5)");
        call(&mut session, "set_group('a', max_concurrency => 1)");
        session.insert(of_group("x", "a", 4)).unwrap();
        let grant = session.own("w", 5, &["x"]).unwrap().remove(0);
        assert_eq!(slots_held(&mut session), 3, "one of each limit");
        assert!(owned(&mut session, 5, &["x"]).is_empty(), "{what}");
        end(&mut session, &grant);
        assert_eq!(slots_held(&mut session), 0, "{what}");
        assert_eq!(owned(&mut session, 5, &["x"]).len(), 1, "{what}");
    }
}

#[test]
fn a_deadline_that_passes_frees_the_places_and_a_late_actor_needs_free_ones() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_per_group => 1)");
    session.insert(of_group("x", "a", 3)).unwrap();
    let late = session.own_one_with("x", "lease => '0'");
    let next = session.own_one("x");
    assert_eq!(next.task_id, "xa2");
    assert!(!session.extend("late", &[(&late.task_id, late.token)], "1 hour").unwrap()[0].1);
    session.complete(&next);
    assert!(session.extend("late", &[(&late.task_id, late.token)], "1 hour").unwrap()[0].1);
    assert!(owned(&mut session, 5, &["x"]).is_empty(), "the late worker holds the place again");
    session.give(&late.task_id, late.token, "completed").unwrap();
    assert_eq!(owned(&mut session, 5, &["x"]), ["xa3"]);
}

#[test]
fn an_open_grant_counts_and_one_that_is_rolled_back_does_not() {
    let db = Db::new();
    let (mut open, mut other) = (per_group(&db), db.connect());
    open.run("BEGIN");
    assert_eq!(owned(&mut open, 1, &["x"]).len(), 1);
    open.run("SAVEPOINT s");
    assert_eq!(owned(&mut open, 9, &["x"]).len(), 3);
    assert!(
        owned(&mut other, 9, &["x"]).is_empty(),
        "all places are made and taken, by one who may roll back"
    );
    open.run("ROLLBACK TO s");
    let got = owned(&mut other, 9, &["x"]);
    assert!(
        (2..=3).contains(&got.len()),
        "the group of the open grant may be waited for, the other not: {got:?}"
    );
    open.run("COMMIT");
    assert_eq!(got.len() + owned(&mut other, 9, &["x"]).len(), 3);
    assert!(owned(&mut other, 9, &["x"]).is_empty());
}

#[test]
fn all_limits_at_once_allow_what_the_narrowest_does() {
    let (_db, [mut session]) = Db::connected();
    call(
        &mut session,
        "set_action('x', max_per_group => 3, max_concurrency => 7, rate_limit => 9, rate_period => '1 hour')",
    );
    call(&mut session, "set_group('a', max_concurrency => 2)");
    for group in ["a", "b", "c", "d"] {
        session.insert(of_group("x", group, 5)).unwrap();
    }
    let first = session.own("w", 100, &["x"]).unwrap();
    assert_eq!(first.len(), 7, "{:?}", ids(&first));
    for (group, most) in [("a", 2), ("b", 3), ("c", 3), ("d", 3)] {
        let n = first.iter().filter(|g| g.task_id.starts_with(&format!("x{group}"))).count();
        assert!(n <= most && n >= 1, "{n} of {group}");
    }
    first.iter().for_each(|grant| session.complete(grant));
    assert_eq!(owned(&mut session, 100, &["x"]).len(), 2, "the rate");
    assert!(owned(&mut session, 100, &["x"]).is_empty());
}

#[test]
fn a_lower_limit_waits_until_enough_have_ended_and_a_higher_one_counts_at_once() {
    for (set, clear) in [
        ("set_action('x', max_concurrency => {})", "set_action('x', clear => '{max_concurrency}')"),
        ("set_action('x', max_per_group => {})", "set_action('x', clear => '{max_per_group}')"),
        ("set_group('a', max_concurrency => {})", "set_group('a', clear => '{max_concurrency}')"),
    ] {
        let limit = |n: i32| set.replace("{}", &n.to_string());
        let (_db, [mut session]) = Db::with_tasks(of_group("x", "a", 30));
        let mut held = session.own("w", 2, &["x"]).unwrap();
        call(&mut session, &limit(4));
        held.extend(session.own("w", 100, &["x"]).unwrap());
        assert_eq!(held.len(), 4, "{set}: those that began before it count");
        call(&mut session, &limit(2));
        session.complete(&held.remove(0));
        assert!(owned(&mut session, 9, &["x"]).is_empty(), "{set}: three are held of 2");
        session.complete(&held.pop().unwrap());
        assert!(owned(&mut session, 9, &["x"]).is_empty(), "{set}: two are held of 2");
        session.complete(&held.remove(0));
        assert_eq!(owned(&mut session, 9, &["x"]).len(), 1, "{set}");
        call(&mut session, &limit(5));
        assert_eq!(owned(&mut session, 9, &["x"]).len(), 3, "{set}");
        call(&mut session, clear);
        assert_eq!(owned(&mut session, 4, &["x"]).len(), 4, "{set}: no limit any more");
        call(&mut session, &limit(9));
        assert!(owned(&mut session, 9, &["x"]).is_empty(), "{set}: those that began without it count");
    }
}

#[test]
fn a_limit_that_is_set_later_counts_what_is_in_progress_and_holds_what_is_ready() {
    let (_db, [mut session]) = Db::with_tasks(of_group("x", "a", 10));
    session.insert(of_group("x", "b", 3)).unwrap();
    let held = session.own("w", 3, &["x"]).unwrap();
    call(&mut session, "set_group('a', max_concurrency => 4)");
    let mut got = owned(&mut session, 100, &["x"]);
    got.sort_unstable();
    assert_eq!(got, ["xa4", "xb1", "xb2", "xb3"]);
    assert!(owned(&mut session, 100, &["x"]).is_empty());
    session.complete(&held[0]);
    assert_eq!(owned(&mut session, 100, &["x"]), ["xa5"]);
    call(&mut session, "set_action('x', max_per_group => 3)");
    session.complete(&held[1]);
    assert!(owned(&mut session, 100, &["x"]).is_empty(), "three are held, which is the other limit");
    session.complete(&held[2]);
    assert_eq!(owned(&mut session, 100, &["x"]), ["xa6"]);
}

/// One has its places already when the other comes: neither counts those of the other.
#[test]
fn limits_of_a_group_and_of_an_action_in_it_have_places_of_their_own() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_per_group => 2)");
    session.insert(of_group("x", "a", 4)).unwrap();
    session.insert(of_group("y", "a", 4)).unwrap();
    assert_eq!(owned(&mut session, 1, &["x"]), ["xa1"]);
    call(&mut session, "set_group('a', max_concurrency => 4)");
    assert_eq!(owned(&mut session, 9, &["x", "y"]), ["xa2", "ya1", "ya2"]);
}

/// It has been taken as if there were no limit, and is given back, since it has no place. It is still the first.
#[test]
fn a_limit_that_is_set_later_changes_no_order() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_action('x', max_concurrency => 9)");
    session.insert(of_group("x", "a", 3)).unwrap();
    call(&mut session, "set_group('a', max_concurrency => 1)");
    assert_eq!(owned(&mut session, 9, &["x"]), ["xa1"]);
}

/// They come into the lane of the group together: to meet them one by one is to take each, and to give it up again.
#[test]
fn a_limit_that_is_set_later_has_each_ready_task_moved_once() {
    let (_db, [mut session]) = Db::with_tasks(of_group("x", "g", 900));
    call(&mut session, "set_group('g', max_concurrency => 1)");
    session.run("BEGIN");
    assert_eq!(owned(&mut session, 1, &["x"]), ["xg1"]);
    let changed: i64 = session.one("SELECT pg_stat_get_xact_tuples_updated('taskq.run'::regclass)");
    session.run("COMMIT");
    assert!(changed < 1000, "{changed} changes for 900 tasks");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.run WHERE lane = 0"), 0);
}

#[test]
#[ignore = "long"]
fn a_full_group_with_thousands_of_ready_tasks_delays_no_other_claim() {
    for set in ["set_group('a', max_concurrency => 1)", "set_action('x', max_per_group => 1)"] {
        for later in [false, true] {
            let (_db, [mut session]) = Db::connected();
            if !later {
                call(&mut session, set);
            }
            session.insert(of_group("x", "a", 20_000)).unwrap();
            session.insert(of_group("x", "b", 3)).unwrap();
            if later {
                call(&mut session, set);
            }
            let mut got: Vec<String> = Vec::new();
            for _ in 0..4 {
                got.extend(owned(&mut session, 1, &["x"]));
            }
            got.extend(owned(&mut session, 10, &["x"]));
            got.sort_unstable();
            let all: &[&str] =
                if set.contains("action") { &["xa1", "xb1"] } else { &["xa1", "xb1", "xb2", "xb3"] };
            assert_eq!(got, all, "{set}, set later: {later}");
            // Looks that find nothing read a few pages, not the backlog.
            session.run("ANALYZE taskq.run");
            assert!(owned(&mut session, 1, &["x"]).is_empty());
            // Marks move once those have ended who run beside this test.
            until(&format!("{set}, set later: {later}: a look in vain reads few pages"), || {
                let read = session.pages("SELECT * FROM taskq.own_tasks('w', 1, '{x}')");
                (read < 1_000).then_some(())
            });
        }
    }
}

#[test]
fn where_nothing_may_run_nothing_does_until_it_may_again() {
    for set in ["set_action('x', max_concurrency => {})", "set_group('a', max_concurrency => {})"] {
        let (_db, [mut session]) = Db::connected();
        call(&mut session, &set.replace("{}", "0"));
        session.insert(of_group("x", "a", 2)).unwrap();
        session.insert(of_group("y", "b", 1)).unwrap();
        assert_eq!(owned(&mut session, 9, &["x", "y"]), ["yb1"], "{set}");
        call(&mut session, &set.replace("{}", "1"));
        assert_eq!(owned(&mut session, 9, &["x", "y"]), ["xa1"], "{set}");
    }
}

#[test]
fn wait_for_work_tells_of_work_only_where_a_group_has_a_place() {
    let db = Db::new();
    let mut session = per_group(&db);
    let ready = "CALL taskq.wait_for_work('{x}', '0', NULL)";
    assert!(session.one::<bool>(ready));
    let held = session.own("w", 9, &["x"]).unwrap();
    assert_eq!(held.len(), 4);
    assert!(!session.one::<bool>(ready));
    session.complete(&held[0]);
    assert!(session.one::<bool>(ready));
}

#[test]
fn why_names_a_full_limit_and_its_holders_and_views_show_what_is_set() {
    let (_db, [mut session]) = Db::connected();
    call(&mut session, "set_group('a', max_concurrency => 1, weight => 7)");
    call(&mut session, "set_action('x', max_per_group => 1)");
    session.insert(of_group("x", "a", 2)).unwrap();
    session.own("ann", 1, &["x"]).unwrap();
    let why: Vec<String> = session.all("SELECT taskq.why('xa2')");
    for line in [
        "the limit of its group \"a\" in its action is full: 1 of 1 tasks are in progress, held by \"ann\"",
        "the limit of its group \"a\" is full: 1 of 1 tasks are in progress, held by \"ann\"",
        "it is ready, with 0 before it among the tasks of its group in its action",
    ] {
        assert!(why.iter().any(|w| w == line), "{line}: {why:#?}");
    }
    let set: String = session.one("SELECT concat_ws(' ', max_concurrency, weight) FROM taskq.groups");
    assert_eq!(set, "1 7");
    let set: String =
        session.one("SELECT concat_ws(' ', fair, max_per_group, slots_held) FROM taskq.actions");
    assert_eq!(set, "f 1 0");
    call(&mut session, "set_action('x', fair => true)");
    call(&mut session, "set_action('x', clear => '{fair,max_per_group}')");
    call(&mut session, "set_group('a', clear => '{max_concurrency,weight}')");
    let set: i64 = session.one(
        "SELECT count(*) FROM taskq.groups, taskq.actions \
          WHERE max_per_group IS NULL AND NOT fair AND groups.max_concurrency IS NULL AND weight IS NULL",
    );
    assert_eq!(set, 1);
}

#[test]
fn what_cannot_be_set_is_refused() {
    let (_db, [mut session]) = Db::connected();
    for (wrong, code) in [
        ("set_group(NULL)", "22004"),
        ("set_group('')", "22023"),
        ("set_group('a', max_concurrency => -1)", "22023"),
        ("set_group('a', weight => 0)", "22023"),
        ("set_group('a', weight => 1001)", "22023"),
        ("set_group('a', clear => '{paused}')", "22023"),
        ("set_action('x', max_per_group => 0)", "22023"),
    ] {
        refused(&mut session, code, "", &format!("SELECT taskq.{wrong}"), &[]);
    }
}
