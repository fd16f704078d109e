//! Arguments out of range are `22023`, and a refused call leaves everything as it was.

use serde_json::json;
use taskq_tests::{Db, refused};

const OUT_OF_RANGE: &[&str] = &[
    "SELECT * FROM taskq.own_tasks('ann', -1, '{x}')",
    "SELECT * FROM taskq.own_tasks('ann', 1, '{x}', lease => '-1 second')",
    "SELECT * FROM taskq.own_tasks('ann', 1, '{x}', wait => interval '-1 second')",
    "SELECT task_id, owned FROM taskq.extend_tasks_ownership('ann', '{a}', '{}', '1 minute')",
    "SELECT task_id, owned FROM taskq.extend_tasks_ownership('ann', '{}', '{}', '-1 minute')",
    "SELECT * FROM taskq.return_tasks('{a,b}', ARRAY[gen_random_uuid()])",
    "SELECT * FROM taskq.return_tasks('{}', ARRAY[gen_random_uuid()])",
    "SELECT * FROM taskq.return_tasks('{}', '{}', 'in-progress')",
    "SELECT taskq.return_task('held', gen_random_uuid(), 'in-progress')",
    "SELECT * FROM taskq.wait_for_task('held', '-1 second')",
    "SELECT taskq.add_dependencies(ARRAY['a', 'b'], ARRAY['held'])",
    "SELECT taskq.insert_tasks('[]', on_conflict => 'perhaps')",
    "SELECT taskq.insert_tasks('[]', if_missing => 'perhaps')",
    // A place is a row: a number that no caller can mean is refused before it costs anything.
    "SELECT taskq.set_action('x', max_concurrency => 2000000000)",
    "SELECT taskq.set_action('x', max_concurrency => 100001)",
    "SELECT taskq.set_action('x', max_per_group => 100001)",
    "SELECT taskq.set_action('x', rate_limit => 1000000001, rate_period => '1 day')",
    "SELECT taskq.set_group('g', max_concurrency => 100001)",
];

#[test]
fn an_argument_out_of_range_is_22023() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "held", "action": "x"}, {"id": "ready", "action": "x"}]));
    session.own_one("x");
    for query in OUT_OF_RANGE {
        refused(&mut session, "22023", "", query, &[]);
    }
}

#[test]
fn a_holder_cannot_return_in_progress_nor_retry_in_the_past() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "held", "action": "x"}]));
    let token = session.own_one("x").token;
    let calls = [
        "SELECT taskq.return_task('held', $1, 'in-progress')",
        "SELECT taskq.return_task('held', $1, 'in_progress')",
        "SELECT taskq.return_task('held', $1, 'pending', retry_after => interval '-1 second')",
    ];
    for query in calls {
        let error = refused(&mut session, "22023", "", query, &[&token]);
        // A hint may not lead to the next refusal.
        assert!(!error.hint().unwrap().contains("progress"), "{error:?}");
    }
    assert_eq!(session.give("held", token, "completed").unwrap(), "completed");
}

#[test]
fn a_word_that_is_none_is_quoted_an_empty_one_too() {
    let calls = [
        "SELECT taskq.insert_tasks('[]', on_conflict => $1)",
        "SELECT taskq.insert_tasks('[]', if_missing => $1)",
        "SELECT taskq.insert_task('a', 'x', on_conflict => $1)",
        "SELECT taskq.replace_tasks('[]', if_missing => $1)",
        "SELECT taskq.add_dependencies('{}', '{}', if_missing => $1)",
        "SELECT taskq.set_action('x', on_timeout => $1)",
        "SELECT taskq.set_action('x', clear => ARRAY[$1])",
        "SELECT taskq.set_group('g', clear => ARRAY[$1])",
        "SELECT taskq.retry_tasks(causes => ARRAY[$1])",
        "SELECT taskq.graph('held', $1)",
        "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', overlap => $1)",
        "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', backfill => $1)",
    ];
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "held", "action": "x"}]));
    for query in calls {
        for word in ["perhaps", ""] {
            let error = refused(&mut session, "22023", "", query, &[&word]);
            assert!(error.detail().unwrap().contains(&format!("\"{word}\"")), "{query}: {error:?}");
        }
    }
}
