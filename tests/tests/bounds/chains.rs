//! Graphs as long as a caller makes them. A search that calls itself at each step overflows the stack of the backend at
//! some ten thousand tasks: SIGSEGV, and the postmaster ends every session.

use std::time::{Duration, Instant};

use taskq_tests::Db;

/// Far more than any stack has frames for.
const LONG: usize = 120_000;

/// Inserts `c1`, and each of the others to run after the one before it.
fn chain(tasks: usize) -> String {
    format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'c' || i, 'action', 'x',
            'group_id', 'g', 'depends_on', CASE WHEN i > 1 THEN jsonb_build_array('c' || i - 1) ELSE '[]' END))
            FROM generate_series(1, {tasks}) AS i))"
    )
}

#[test]
fn a_ring_of_many_new_tasks_is_refused_and_its_ends_are_shown() {
    let (_db, [mut session]) = Db::connected();
    let ring = format!(
        "SELECT taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'r' || lpad(i::text, 6, '0'), 'action', 'x',
            'depends_on', jsonb_build_array('r' || lpad(((i + {LONG} - 1) % {LONG})::text, 6, '0'))))
            FROM generate_series(0, {LONG} - 1) AS i))"
    );
    let error = session.batch_execute(&ring).unwrap_err();
    let error = error.as_db_error().expect("an error, and the connection lives on");
    assert_eq!(error.code().code(), "TQ004");
    let detail = error.detail().expect("the cycle");
    assert!(detail.starts_with("r000000 -> r000001 -> "), "a before b: {detail}");
    assert!(detail.ends_with("-> r119999 -> r000000"), "and back to a: {detail}");
    assert!(detail.contains(" more "), "{detail}");
    assert!(detail.len() < 1_000, "{} bytes of it", detail.len());
    assert_eq!(session.tasks(), []);
}

#[test]
#[ignore = "long"]
fn one_wrong_edge_in_a_long_stored_chain_is_refused() {
    let (_db, [mut session]) = Db::connected();
    session.run(&chain(LONG));
    // A short cycle, with all of the chain behind it.
    let error = session.depend_on("c3", "c1").unwrap_err();
    let error = error.as_db_error().expect("an error, and the connection lives on").clone();
    assert_eq!((error.code().code(), error.detail()), ("TQ004", Some("c1 -> c2 -> c3 -> c1")));
    // And one as long as the chain.
    let error = session.depend_on(&format!("c{LONG}"), "c1").unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "TQ004");
    // Nothing has changed; to check so many tasks takes longer than all of this.
    session.run("DROP EXTENSION taskq");
}

/// From one task to many and from all of these to another, which leads back: each of them is a shortest cycle. One search
/// for each neighbour of the first would take hours.
#[test]
fn a_wide_cycle_is_found_in_one_search() {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SELECT taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'm' || i, 'action', 'x',
             'depends_on', '[\"first\"]'::jsonb)) FROM generate_series(1, 50000) AS i)
           || '[{\"id\": \"first\", \"action\": \"x\"}]'
           || jsonb_build_object('id', 'last', 'action', 'x', 'depends_on',
                                 (SELECT jsonb_agg('m' || i) FROM generate_series(1, 50000) AS i)))",
    );
    let start = Instant::now();
    let error = session.depend_on("last", "first").unwrap_err();
    let detail = error.as_db_error().and_then(|error| error.detail()).unwrap_or_default().to_owned();
    assert!(detail.starts_with("first -> m") && detail.ends_with(" -> last -> first"), "{detail}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// What looks at a graph. (What changes one as long is in the suite `workflows`.)
#[test]
#[ignore = "long"]
fn every_look_at_a_long_chain_comes_to_its_end() {
    let (_db, [mut session]) = Db::connected();
    session.run(&chain(LONG));
    for look in [
        "length(taskq.graph('c120000', 'text', 200000))",
        "length(taskq.graph('c1', 'dot', 200000))",
        "count(*) FROM taskq.ancestors('c120000')",
        "count(*) FROM taskq.descendants('c1')",
        "count(*) FROM taskq.why('c120000')",
    ] {
        assert!(session.one::<i64>(&format!("SELECT (SELECT {look})::bigint")) > 0, "{look}");
    }
    // Nothing has changed; to check so many tasks takes longer than all of this.
    session.run("DROP EXTENSION taskq");
}
