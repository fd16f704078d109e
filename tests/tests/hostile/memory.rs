//! A session that makes very many calls stays as large as it was: neither PostgreSQL's memory contexts nor the process grow,
//! whether the calls work or are refused. (A refusal leaves Rust's functions by another way than their ends.)

use std::env;
use std::thread;

use taskq_tests::{Db, Session};

/// What one round of a hot path does, and what it leaves as it was.
const HOT: &[(&str, &[&str])] = &[
    (
        "insert, own, return",
        &[
            "SELECT taskq.insert_task('t', 'x', 'body', retention => '0')",
            "SELECT * FROM taskq.own_tasks('w', 1, '{x}', '1 minute')",
            "SELECT taskq.return_task('t', (SELECT token FROM held), 'completed', result => '{\"a\": 1}')",
            "SELECT taskq.delete_tasks('{t}')",
        ],
    ),
    (
        "give back and own",
        &[
            "SELECT * FROM taskq.return_and_own_tasks('w', (SELECT jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token, \
             'status_code', 'pending', 'retry_after', '0')) FROM kept), 1, '{keep}')",
        ],
    ),
    ("own nothing", &["SELECT * FROM taskq.own_tasks('w', 5, '{x,y,z}')"]),
    ("upkeep", &["SELECT taskq.maintain()"]),
    (
        "insert a graph, delete it",
        &[
            r#"SELECT taskq.insert_tasks('[{"id": "a", "action": "g"}, {"id": "b", "action": "g", "depends_on": ["a"], "group_id": "q",
               "metadata": {"a": 1}, "unique_by": "u"}, {"id": "c", "action": "g", "depends_on": ["a", "b"]}]')"#,
            "SELECT taskq.replace_tasks('[{\"id\": \"a\", \"action\": \"g\"}]')",
            "SELECT taskq.cancel_tasks('{a}')",
            "SELECT taskq.delete_tasks('{a,b,c}')",
        ],
    ),
    (
        "extend",
        &[
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('w', '{absent}', ARRAY[gen_random_uuid()], '1 minute')",
        ],
    ),
    ("refused: a token", &["SELECT taskq.return_task('stays', gen_random_uuid())"]),
    ("refused: an id", &["SELECT taskq.insert_task('stays', 'x')"]),
    ("refused: a key", &[r#"SELECT taskq.insert_tasks('[{"action": "x", "prioritty": 1}]')"#]),
    ("refused: a cycle", &["SELECT taskq.add_dependencies('{stays}', '{stays}')"]),
    ("refused: absent", &["SELECT taskq.add_dependencies('{absent}', '{stays}')"]),
    (
        "looks",
        &[
            "SELECT * FROM taskq.why('stays')",
            "SELECT taskq.task_channel('stays')",
            "SELECT * FROM taskq.wait_for_task('stays', '0')",
        ],
    ),
    ("builders", &["SELECT taskq.chain('{\"action\": \"a\"}', taskq.map('b', '[1, 2, 3]'))"]),
];

/// More than any of them needs to have all its plans and caches.
const WARM: usize = 300;

const ROUNDS: usize = 1000;

/// The larger of the two allowances: a leak of 100 bytes a call is more.
const ALLOWED: i64 = 128 * 1024;

/// Of contexts, and of the process.
fn size(session: &mut Session) -> (i64, i64) {
    let contexts = session
        .one("SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts WHERE name NOT LIKE '%ortal%'");
    let statm =
        std::fs::read_to_string(format!("/proc/{}/statm", session.pid())).expect("a process of this machine");
    let numbers: Vec<i64> = statm.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    // What is resident and not shared.
    (contexts, (numbers[1] - numbers[2]) * 4096)
}

/// Makes the calls of a round; the tokens that they give are put where the next ones look for them.
fn round(session: &mut Session, calls: &[&str]) {
    for call in calls {
        if call.contains("FROM held") {
            let token = "UPDATE held SET token = (SELECT token FROM granted)";
            session.run(token);
        }
        if call.contains("own_tasks('w', 1") {
            let table = if call.contains("keep") { "kept" } else { "granted" };
            let rows = session.query(*call, &[]).unwrap_or_else(|error| panic!("{call}: {error:?}"));
            let (task, token): (String, uuid::Uuid) = (rows[0].get("task_id"), rows[0].get("token"));
            session.run(&format!("UPDATE {table} SET task_id = '{task}', token = '{token}'"));
        } else {
            // Refusals are meant.
            session.simple_query(call).ok();
        }
    }
}

fn flat(name: &str, calls: &[&str]) -> Option<String> {
    let (_db, [mut session]) = Db::connected();
    session.run(
        "SET jit = off; CREATE TEMPORARY TABLE held (token uuid); INSERT INTO held VALUES (NULL); \
         CREATE TEMPORARY TABLE granted (task_id text, token uuid); INSERT INTO granted VALUES (NULL, NULL); \
         SELECT taskq.insert_task('stays', 'unclaimed'), taskq.insert_task('kept', 'keep'); \
         CREATE TEMPORARY TABLE kept AS SELECT task_id, token FROM taskq.own_tasks('w', 1, '{keep}')",
    );
    for _ in 0..WARM {
        round(&mut session, calls);
    }
    // Some plans are made when time asks for them, in the middle of it: once. A leak grows each time.
    let mut leak = None;
    for _ in 0..3 {
        leak = Some(grows(&mut session, name, calls)?);
    }
    leak
}

/// How the session has grown by many rounds, if it has.
fn grows(session: &mut Session, name: &str, calls: &[&str]) -> Option<String> {
    let soak: usize = env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let before = size(session);
    for _ in 0..ROUNDS * soak {
        round(session, calls);
    }
    let after = size(session);
    let grown = (after.0 - before.0, after.1 - before.1);
    println!("{name}: {} rounds: contexts {:+}, process {:+}", ROUNDS * soak, grown.0, grown.1);
    (grown.0 > ALLOWED || grown.1 > 4 * ALLOWED).then(|| format!("{name}: {before:?} to {after:?}"))
}

#[test]
fn a_session_stays_as_large_as_it_was() {
    let leaks: Vec<String> = thread::scope(|scope| {
        let halves: Vec<_> = HOT
            .chunks(HOT.len().div_ceil(3))
            .map(|some| {
                scope.spawn(move || {
                    some.iter().filter_map(|(name, calls)| flat(name, calls)).collect::<Vec<_>>()
                })
            })
            .collect();
        halves.into_iter().flat_map(|half| half.join().expect("no panic")).collect()
    });
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// The same within one transaction, and within one statement: what a call needs it gives back when it is over.
#[test]
fn so_does_a_long_transaction() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET jit = off; SELECT taskq.insert_task('stays', 'x'); BEGIN");
    let calls = "DO $$ BEGIN FOR n IN 1..500 LOOP \
                 PERFORM taskq.own_tasks('w', 1, '{nothing}'); \
                 PERFORM taskq.insert_task('t', 'y', repeat('b', 10000)); PERFORM taskq.delete_tasks('{t}'); \
                 PERFORM taskq.why('stays'); \
                 BEGIN PERFORM taskq.insert_task('stays', 'x'); EXCEPTION WHEN SQLSTATE 'TQ002' THEN NULL; END; \
                 END LOOP; END $$";
    session.run(calls);
    let before = size(&mut session);
    session.run(calls);
    session.run(calls);
    let after = size(&mut session);
    session.run("COMMIT");
    let grown = (after.0 - before.0, after.1 - before.1);
    println!("1000 rounds in a transaction: contexts {:+}, process {:+}", grown.0, grown.1);
    // A thousand bodies would be 10 MB. A subtransaction leaves a little in the transaction.
    assert!(grown.0 < 3_000_000 && grown.1 < 6_000_000, "{before:?} to {after:?}");
}
