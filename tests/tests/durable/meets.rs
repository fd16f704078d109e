//! What suspended tasks meet: limits, merge keys, and whatever else changes tasks that wait.

use serde_json::json;
use taskq_tests::{Db, Session};

use super::{own_with_results, signal, suspend, suspended, waits_for};

const FOR_S: &str = "depends_on => '[{\"id\": \"s\", \"signal\": true}]'";

#[test]
fn it_gives_its_places_up() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.set_action('work', max_concurrency => 1), taskq.set_group('g', max_concurrency => 1)",
    );
    session.run("SELECT taskq.insert_task(id, 'work', group_id => 'g') FROM unnest('{a,b}'::text[]) AS id");
    let a = session.own_one("work");
    assert!(session.own("w", 1, &["work"]).unwrap().is_empty());
    suspend(&mut session, &a, FOR_S).unwrap();
    let b = session.own_one("work");
    assert!(signal(&mut session, "s"));
    assert!(session.own("w", 1, &["work"]).unwrap().is_empty(), "it goes on under the limits");
    session.complete(&b);
    assert_eq!(session.own_one("work").task_id, "a");
}

#[test]
fn a_leader_gives_its_merge_key_up() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.insert_task(id, 'work', merge_key => 'k') FROM unnest('{lead,rider}'::text[]) AS id",
    );
    let lead = session.own_one("work");
    assert!(session.own("w", 1, &["work"]).unwrap().is_empty());
    suspend(&mut session, &lead, FOR_S).unwrap();
    let rider = session.own_one("work");
    assert_eq!(rider.task_id, "rider");
    assert!(signal(&mut session, "s"));
    assert!(session.own("w", 1, &["work"]).unwrap().is_empty(), "the key is busy");
    session.complete(&rider);
    // It was not ready when the other was granted: it has an end of its own.
    let again = session.own_one("work");
    assert_eq!((again.task_id.as_str(), again.num_tries), ("lead", 1));
    session.complete(&again);
}

#[test]
fn it_is_cancelled_replaced_and_changed_as_others_that_wait() {
    let (_db, [mut session]) = Db::connected();
    for id in ["cancelled", "replaced", "changed", "longer"] {
        suspended(&mut session, id, "[{\"id\": \"s\", \"signal\": true}]");
    }
    session.run("SELECT taskq.insert_task('more', 'x')");
    assert_eq!(session.cancel(&["cancelled"]).unwrap(), 1);
    session.replace(json!([{"id": "replaced", "action": "work"}])).unwrap();
    session.run("SELECT taskq.update_tasks('{changed}', priority => 7, body => 'new')");
    session.depend_on("more", "longer").unwrap();
    assert_eq!(waits_for(&mut session, "longer").unwrap(), ["more", "s"]);
    assert_eq!(session.own_one("work").task_id, "replaced", "the new one waits for nothing");
    assert!(signal(&mut session, "s"));
    let changed = session.own_one("work");
    assert_eq!((changed.task_id.as_str(), changed.body.as_deref()), ("changed", Some("new")));
    assert_eq!(session.state("longer"), "blocked");
    session.perform("x", "completed");
    assert_eq!(session.own_one("work").task_id, "longer");
}

#[test]
fn deleting_what_it_waits_for_frees_it() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task(id, 'x') FROM unnest('{a,b}'::text[]) AS id");
    suspended(&mut session, "t", "[\"a\", \"b\"]");
    assert_eq!(session.delete(&["a"]).unwrap(), 1);
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["b"]);
    assert_eq!(session.delete(&["b"]).unwrap(), 1, "it does not go with it");
    let task = session.task("t").unwrap();
    assert_eq!((task.state.as_str(), task.total_dependencies, task.num_tries), ("ready", 0, 0));
}

#[test]
fn what_it_waited_for_is_kept_until_it_has_ended() {
    let (_db, [mut session]) = Db::connected();
    suspended(&mut session, "t", "[{\"id\": \"a\", \"signal\": true}, {\"id\": \"b\", \"signal\": true}]");
    assert!(signal(&mut session, "a"));
    let later = |session: &mut Session, year: i32| {
        session.run(&format!("SET taskq.now = '{year}-01-01'; SELECT taskq.maintain(); RESET taskq.now"));
    };
    later(&mut session, 2090);
    assert_eq!(session.state("a"), "completed");
    assert_eq!(waits_for(&mut session, "t").unwrap(), ["b"]);
    assert!(signal(&mut session, "b"));
    let (grant, results) = own_with_results(&mut session, "work");
    assert_eq!(results.as_array().unwrap().len(), 2);
    session.complete(&grant);
    later(&mut session, 2092);
    assert_eq!((session.state("a"), session.state("t")), ("gone".to_owned(), "gone".to_owned()));
}

#[test]
fn a_paused_action_and_group_hold_it_when_it_goes_on() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work', group_id => 'g')");
    let grant = session.own_one("work");
    suspend(&mut session, &grant, FOR_S).unwrap();
    session.run("SELECT taskq.pause_group('g')");
    assert!(signal(&mut session, "s"));
    assert!(session.own("w", 1, &["work"]).unwrap().is_empty());
    session.run("SELECT taskq.resume_group('g'), taskq.pause_action('work')");
    assert!(session.own("w", 1, &["work"]).unwrap().is_empty());
    session.run("SELECT taskq.resume_action('work')");
    assert_eq!(session.own_one("work").num_tries, 1);
}

/// In one transaction a task may be suspended, signalled and granted again, several times.
#[test]
fn it_goes_round_within_a_transaction() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work')");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        session.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        for n in 1..4 {
            let grant = session.own_one("work");
            suspend(
                &mut session,
                &grant,
                &format!("depends_on => '[{{\"id\": \"{level} {n}\", \"signal\": true}}]'"),
            )
            .unwrap();
            assert!(signal(&mut session, &format!("{level} {n}")));
        }
        session.run("COMMIT");
        assert_eq!(session.state("t"), "ready", "{level}");
    }
}

fn prepared(session: &mut Session, end: &str) {
    suspended(session, "t", "[{\"id\": \"s\", \"signal\": true}]");
    session.run("BEGIN; SELECT taskq.signal('s'); PREPARE TRANSACTION 'p'");
    assert_eq!(session.state("t"), "blocked");
    session.run(&format!("{end} PREPARED 'p'"));
}

#[test]
fn a_signal_that_is_prepared_counts_when_it_is_committed() {
    for (end, state) in [("COMMIT", "ready"), ("ROLLBACK", "blocked")] {
        let (_db, [mut session]) = Db::connected();
        prepared(&mut session, end);
        session.run("SELECT taskq.maintain()");
        assert_eq!(session.state("t"), state);
    }
}

/// It is still the one of its key and period: it has not ended.
#[test]
fn a_unique_task_stays_the_only_one_while_it_is_suspended() {
    let (_db, [mut session]) = Db::connected();
    let unique =
        |id: &str| json!([{"id": id, "action": "work", "unique_by": {"key": "k", "period": "1 day"}}]);
    assert_eq!(session.insert(unique("first")).unwrap(), ["first"]);
    let first = session.own_one("work");
    suspend(&mut session, &first, FOR_S).unwrap();
    assert_eq!(session.insert(unique("second")).unwrap(), [""; 0]);
    assert!(session.task("second").is_none());
    assert!(signal(&mut session, "s"));
    let again = session.own_one("work");
    assert_eq!(again.task_id, "first");
    session.complete(&again);
    assert_eq!(session.insert(unique("third")).unwrap(), [""; 0], "once in its period");
}

#[test]
fn why_and_graph_show_for_what_it_waits_and_until_when() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('t', 'work', group_id => 'g')");
    let grant = session.own_one("work");
    let arguments = FOR_S.to_owned() + ", wait_at_most => '1 day'";
    suspend(&mut session, &grant, &arguments).unwrap();
    let why = session.all::<String>("SELECT taskq.why('t')").join("; ");
    let until: String = session.one("SELECT until::text FROM taskq.waits");
    assert!(why.contains("\"s\"") && why.contains(&until[..16]), "{why} ({until})");
    let graph: String = session.one("SELECT taskq.graph('g', 'mermaid')");
    assert!(graph.contains("-->") && graph.contains('s'), "{graph}");
}

/// Two tasks that one call suspends, each with a child. On wrong code the first waits for the child of the second, whose own is
/// left out, and the second for nothing.
#[test]
fn a_child_that_its_key_leaves_out_moves_no_other_childs_place() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "h", "action": "c", "unique_by": "k"}, {"id": "a", "action": "x"}, {"id": "b", "action": "x"}]),
    );
    session.run(
        "SELECT taskq.return_tasks((
             SELECT jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token, 'status_code', 'pending',
                 'children_block', true, 'children', CASE task_id
                     WHEN 'a' THEN '[{\"id\": \"ca\", \"action\": \"c\", \"unique_by\": \"k\"}, {\"id\": \"ca2\", \"action\": \"c\"}]'::jsonb
                     ELSE '[{\"id\": \"cb\", \"action\": \"c\"}]' END) ORDER BY task_id)
               FROM taskq.own_tasks('w', 2, '{x}')))",
    );
    let waits: Vec<String> = session
        .all("SELECT task_id || ': ' || array_to_string(waits_for, ' ') FROM taskq.waits ORDER BY task_id");
    assert_eq!(waits, ["a: ca2", "b: cb"]);
}
