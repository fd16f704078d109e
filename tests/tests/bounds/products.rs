//! Two short arguments whose product no memory holds. PostgreSQL answers a failed allocation of its own with an error;
//! where Rust allocates, only a refusal beforehand keeps the server up.

use std::time::{Duration, Instant};

use taskq_tests::{Db, Session, refused};

fn block(tasks: usize) -> String {
    format!("(SELECT jsonb_agg('{{\"action\": \"a\"}}'::jsonb) FROM generate_series(1, {tasks}))")
}

fn dependencies(session: &mut Session, expression: &str) -> i64 {
    session.one(&format!(
        "SELECT COALESCE(sum(jsonb_array_length(t -> 'depends_on')), 0) FROM jsonb_array_elements({expression}) AS t"
    ))
}

#[test]
fn a_chord_of_two_large_blocks_is_refused_before_it_costs_anything() {
    let (_db, [mut session]) = Db::connected();
    let start = Instant::now();
    let chord = format!("SELECT taskq.chord({}, {})", block(30_000), block(3_000));
    let error = refused(&mut session, "54000", "too many dependencies", &chord, &[]);
    assert!(error.hint().is_some_and(|hint| hint.contains("spontaneous")), "{error:?}");
    // Links that are small one by one count together.
    let chain = format!("SELECT taskq.chain({0}, {0}, {0}, {0})", block(700));
    refused(&mut session, "54000", "too many dependencies", &chain, &[]);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn long_ids_count_by_their_bytes() {
    let (_db, [mut session]) = Db::connected();
    let long = "jsonb_build_array(jsonb_build_object('id', repeat('z', 1000000), 'action', 'a'))";
    let chord = format!("SELECT taskq.chord({long}, {})", block(1_000));
    refused(&mut session, "54000", "too many dependencies", &chord, &[]);
}

/// What the hint says: through a task that no worker performs, the product becomes a sum.
#[test]
fn a_spontaneous_task_between_two_blocks_makes_room() {
    let (_db, [mut session]) = Db::connected();
    let milestone = r#"'{"action": "milestone", "spontaneous": true}'::jsonb"#;
    let chain = format!("taskq.chain({}, {milestone}, {})", block(30_000), block(3_000));
    assert_eq!(dependencies(&mut session, &chain), 33_000);
    // And a product that is allowed is made.
    let chord = format!("taskq.chord({}, {})", block(1_000), block(900));
    assert_eq!(dependencies(&mut session, &chord), 900_000);
}

#[test]
fn a_call_that_builds_is_cancelled_in_time() {
    let (_db, [mut session]) = Db::connected();
    session.run("CREATE TABLE blocks AS SELECT jsonb_agg('{\"action\": \"a\"}'::jsonb) AS block FROM generate_series(1, 990)");
    session.run("SET statement_timeout = '200 ms'");
    let start = Instant::now();
    // Many calls that are allowed, one after the other.
    let error = session
        .batch_execute("SELECT length(taskq.chord(block, block)::text) FROM blocks, generate_series(1, 1000)")
        .unwrap_err();
    assert_eq!(taskq_tests::sqlstate(&error), "57014");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
