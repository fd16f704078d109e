//! A refusal names what it refuses; it does not send a hundred megabytes of it back, nor write them into the log of the
//! server.

use taskq_tests::{Db, refused};

/// Every text that a call takes, a million bytes long.
#[test]
fn no_message_repeats_more_of_its_input_than_a_line() {
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('a', 'x')");
    const LONG: &str = "repeat('z', 1000000)";
    for call in [
        "SELECT taskq.return_task(?, gen_random_uuid())",
        "SELECT taskq.return_task('a', gen_random_uuid(), ?)",
        "SELECT taskq.wait_for_task(?, '0')",
        "SELECT taskq.why(?)",
        "SELECT taskq.graph(?)",
        "SELECT taskq.graph('a', ?)",
        "SELECT taskq.ancestors(?)",
        "SELECT taskq.complete_task(?)",
        "SELECT taskq.report_status(?, gen_random_uuid(), 'half done')",
        "SELECT taskq.insert_tasks('[]', on_conflict => ?)",
        "SELECT taskq.insert_tasks('[]', if_missing => ?)",
        "SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', ?, 1)))",
        "SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'delay', ?)))",
        "SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'priority', ?)))",
        "SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'id', ?)))",
        "SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'depends_on', jsonb_build_array(?))))",
        "SELECT taskq.insert_tasks(jsonb_build_array(jsonb_build_object('action', 'x', 'backoff', jsonb_build_object('kind', ?, 'initial', '1 s'))))",
        "SELECT taskq.add_dependencies(ARRAY[?], ARRAY['a'])",
        "SELECT taskq.add_dependencies(ARRAY['a'], ARRAY[?])",
        "SELECT taskq.add_dependencies('a', 'a', ?)",
        "SELECT taskq.schedule('s', ?, '{\"action\": \"x\"}')",
        "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', timezone => ?)",
        "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', overlap => ?)",
        "SELECT taskq.schedule(?, '* * * * *', '{\"action\": \"x\"}')",
        "SELECT taskq.unschedule(?)",
        "SELECT taskq.set_action('x', on_timeout => ?)",
        "SELECT taskq.set_action('x', clear => ARRAY[?])",
        "SELECT taskq.set_action(?, max_tries => 1)",
        "SELECT taskq.set_group('g', clear => ARRAY[?])",
        "SELECT taskq.pause_group(?)",
        "SELECT taskq.cancel_group(?)",
        "SELECT taskq.resume_action(?)",
        "SELECT taskq.retry_tasks(causes => ARRAY[?])",
        "SELECT taskq.retry_tasks(status_like => ? || '\\')",
    ] {
        let call = call.replace('?', LONG);
        let Err(error) = session.batch_execute(&call) else { continue };
        let error = error.as_db_error().unwrap_or_else(|| panic!("{call} cost the connection: {error:?}"));
        for part in [Some(error.message()), error.detail(), error.hint()].into_iter().flatten() {
            assert!(part.len() < 5_000, "{call}: {} bytes: {}...", part.len(), &part[..200]);
        }
    }
}

/// What PostgreSQL itself would refuse in words about something else, or not at all.
#[test]
fn odd_arguments_are_refused_by_their_names() {
    let (_db, [mut session]) = Db::connected();
    for call in ["retry_tasks", "cancel_tasks", "delete_tasks"] {
        for pattern in [r"\", r"%\", r"\\\"] {
            let query = format!("SELECT taskq.{call}(status_like => '{pattern}')");
            refused(&mut session, "22023", "status_like", &query, &[]);
        }
        session.run(&format!(r"SELECT taskq.{call}(status_like => 'a\\')"));
    }
    refused(&mut session, "22004", "task_ids", "SELECT taskq.retry_tasks()", &[]);
    assert_eq!(session.one::<i32>("SELECT taskq._num_settled('{NULL}', '{NULL}')"), 0);
}
