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
    ("SELECT taskq.delete_tasks(causes => ARRAY[$1])", "canceled", "cancelled", "expired"),
    ("SELECT taskq.count_tasks(states => ARRAY[$1])", "in_progress", "in-progress", "blocked"),
    ("SELECT taskq.count_tasks(ids => '{a}', states => ARRAY['ready', $1])", "Ready", "ready", "scheduled"),
];

fn refusal(session: &mut Session, call: &str, word: &str) -> (String, String) {
    let error = refused(session, "22023", "is not valid", call, &[&word]);
    (error.detail().unwrap().to_owned(), error.hint().unwrap().to_owned())
}

#[test]
fn the_error_of_a_wrong_word_lists_the_words_and_names_the_likely_one() {
    let (_db, [mut session]) = Db::connected();
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
    let (_db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task(id, 'x') FROM unnest('{a,b}'::text[]) AS id");
    let call = "SELECT taskq.add_dependencies('{a}', '{b}', 'settled'::taskq.dependency_condition)";
    assert_eq!(session.one::<i64>(call), 1);
    let condition: String = session.one("SELECT condition::text FROM taskq.dependencies");
    assert_eq!(condition, "settled");
}

/// Words that other queues have for how a task ends. On wrong code the hint sends to `in-progress`, which is refused, too.
#[test]
fn the_error_of_a_status_code_of_another_queue_says_what_to_use() {
    let (_db, [mut session]) = Db::connected();
    for (code, hint) in [
        ("done", "\"completed\" is probably meant."),
        ("Success", "\"completed\" is probably meant."),
        ("complete", "\"completed\" is probably meant."),
        (
            "failed",
            "Use \"aborted\" where the task has failed for good, \"pending\" to give it back for another try.",
        ),
        (
            "ERROR",
            "Use \"aborted\" where the task has failed for good, \"pending\" to give it back for another try.",
        ),
        ("retry", "\"pending\" is probably meant."),
        ("zork", "Use \"completed\", \"aborted\", or \"pending\" for another try."),
        ("", "Use \"completed\", \"aborted\", or \"pending\" for another try."),
    ] {
        for call in [
            "SELECT taskq.return_task('a', gen_random_uuid(), $1)",
            "SELECT taskq.return_tasks('{}', '{}', $1)",
            "SELECT taskq.return_tasks(jsonb_build_array(jsonb_build_object('task_id', 'a', 'token', gen_random_uuid(),
                                                                          'status_code', $1::text)))",
        ] {
            let (detail, told) = refusal(&mut session, call, code);
            assert_eq!(told, hint, "{code}: {call}");
            for known in ["pending", "in-progress", "aborted", "completed"] {
                assert!(detail.contains(&format!("\"{known}\"")), "{code}: {detail}");
            }
        }
    }
    for code in ["in-progress", "in_progress", "In-Progress"] {
        let (detail, hint) =
            refusal(&mut session, "SELECT taskq.return_task('a', gen_random_uuid(), $1)", code);
        assert!(hint.starts_with("Use \"completed\", \"aborted\", or \"pending\" for another try"), "{hint}");
        for known in ["pending", "in-progress", "aborted", "completed"] {
            assert!(detail.contains(&format!("\"{known}\"")), "{code}: {detail}");
        }
    }
}

/// Not "out of range", which is for numbers and lengths of time.
#[test]
fn what_is_no_number_is_not_valid() {
    let (_db, [mut session]) = Db::connected();
    let task = r#"'{"action": "x"}'"#;
    for (argument, call) in [
        ("cron", format!("schedule('s', '61 * * * *', {task})")),
        ("cron", format!("schedule('s', '0 0 30 2 *', {task})")),
        ("timezone", format!("schedule('s', '* * * * *', {task}, 'Mars/Olympus')")),
        ("name", format!("schedule('', '* * * * *', {task})")),
        ("actor_id", "own_tasks('', 1, '{x}')".to_owned()),
        ("actor_id", "extend_tasks_ownership('', '{}', '{}', '1 minute')".to_owned()),
        ("action", "pause_action('')".to_owned()),
        ("metadata", "update_tasks('{}', metadata => '[]')".to_owned()),
        ("delay", "update_tasks('{}', delay => '1 s', not_before => now())".to_owned()),
    ] {
        let error = refused(&mut session, "22023", argument, &format!("SELECT taskq.{call}"), &[]);
        assert!(
            error.message().starts_with(&format!("argument \"{argument}\" is not valid: ")),
            "{call}: {error}"
        );
    }
    for (argument, call) in
        [("max_tasks", "own_tasks('w', -1, '{x}')"), ("max_tries", "update_tasks('{}', max_tries => 0)")]
    {
        let error = refused(&mut session, "22023", argument, &format!("SELECT taskq.{call}"), &[]);
        assert!(
            error.message().starts_with(&format!("argument \"{argument}\" is out of range: ")),
            "{call}: {error}"
        );
    }
}

#[test]
fn the_error_of_a_null_says_what_to_give() {
    let (_db, [mut session]) = Db::connected();
    for (call, hint) in [
        ("own_tasks('w', 1, NULL)", "Give an array with the names of actions."),
        ("own_tasks('w', 1, '{a,NULL}')", "Give an array with the names of actions."),
        ("return_tasks(NULL, '{}')", "Give an array with the ids of tasks."),
        ("return_tasks('{}', NULL)", "Give an array with the performance tokens, one for each id."),
    ] {
        let error = refused(&mut session, "22004", "", &format!("SELECT taskq.{call}"), &[]);
        assert_eq!(error.hint(), Some(hint), "{call}");
    }
}
