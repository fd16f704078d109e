//! Arguments that take one of a few words refuse any other in one way: 22023, the words that there are in DETAIL, and in
//! HINT the one that is probably meant. A `CHECK` of a domain says none of this.

use taskq_tests::{Db, Session, refused};

/// Each call with a word that is nearly right, the word that is meant, and another one that there is.
const CALLS: &[(&str, &str, &str, &str)] = &[
    ("SELECT taskq.insert_task('a', 'x', on_conflict => $1)", "skipp", "skip", "error"),
    ("SELECT taskq.insert_task('a', 'x', if_missing => $1)", "ignor", "ignore", "error"),
    ("SELECT taskq.insert_task('a', 'x', '{}'::jsonb, on_conflict => $1)", "skipp", "skip", "error"),
    ("SELECT taskq.insert_tasks('[]', on_conflict => $1)", "Skip", "skip", "error"),
    ("SELECT taskq.insert_tasks('[]', if_missing => $1)", "ignored", "ignore", "error"),
    ("SELECT taskq.insert_tasks_report('[]', on_conflict => $1)", "repalce", "replace", "skip"),
    ("SELECT taskq.insert_tasks_report('[]', if_missing => $1)", "errror", "error", "ignore"),
    ("SELECT taskq.replace_tasks('[]', if_missing => $1)", "ERROR", "error", "ignore"),
    ("SELECT taskq.add_dependencies('[]', if_missing => $1)", "igmore", "ignore", "error"),
    ("SELECT taskq.add_dependencies('{}', '{}', $1)", "setled", "settled", "aborted"),
    ("SELECT taskq.add_dependencies('{}', '{}', if_missing => $1)", "igmore", "ignore", "error"),
    ("SELECT taskq.return_task('a', gen_random_uuid(), $1)", "complete", "completed", "in-progress"),
    ("SELECT taskq.return_tasks('{}', '{}', $1)", "abortd", "aborted", "pending"),
    (
        "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', overlap => $1)",
        "skip ",
        "skip",
        "queue",
    ),
    ("SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}', backfill => $1)", "alll", "all", "none"),
    ("SELECT taskq.set_action('x', on_timeout => $1)", "retri", "retry", "abort"),
    ("SELECT taskq.set_action('x', clear => ARRAY[NULL, $1])", "maxtries", "max_tries", "backoff"),
    ("SELECT taskq.set_group('g', clear => ARRAY[NULL, $1])", "wieght", "weight", "max_concurrency"),
    ("SELECT taskq.graph('a', $1)", "mermiad", "mermaid", "dot"),
    ("SELECT taskq.retry_tasks(causes => ARRAY[$1])", "timout", "timeout", "tries"),
    ("SELECT taskq.delete_tasks(causes => ARRAY[$1])", "canceled", "cancelled", "operator"),
    ("SELECT taskq.count_tasks(states => ARRAY[$1])", "in_progress", "in-progress", "blocked"),
    ("SELECT taskq.count_tasks(ids => '{a}', states => ARRAY['ready', $1])", "Ready", "ready", "scheduled"),
];

fn refusal(session: &mut Session, call: &str, word: &str) -> (String, String) {
    let error = refused(session, "22023", "is out of range", call, &[&word]);
    (error.detail().unwrap().to_owned(), error.hint().unwrap().to_owned())
}

#[test]
fn a_word_that_is_none_is_told_which_there_are_and_which_is_meant() {
    let db = Db::new();
    let mut session = db.connect();
    for (call, wrong, meant, other) in CALLS {
        let (detail, hint) = refusal(&mut session, call, wrong);
        for word in [wrong, meant, other] {
            assert!(detail.contains(&format!("\"{word}\"")), "{call}: {detail}");
        }
        assert_eq!(hint, format!("\"{meant}\" is probably meant."), "{call}");
        let (detail, hint) = refusal(&mut session, call, "zork");
        assert!(detail.contains(&format!("\"{other}\"")), "{call}: {detail}");
        assert!(!hint.contains("meant") && !hint.is_empty(), "{call}: {hint}");
    }
}

#[test]
fn a_typed_condition_is_a_word_like_any_other() {
    let db = Db::new();
    let mut session = db.connect();
    session.run("SELECT taskq.insert_task(id, 'x') FROM unnest('{a,b}'::text[]) AS id");
    let call = "SELECT taskq.add_dependencies('{a}', '{b}', 'settled'::taskq.dependency_condition)";
    assert_eq!(session.one::<i64>(call), 1);
    let condition: String = session.one("SELECT condition::text FROM taskq.dependencies");
    assert_eq!(condition, "settled");
}
