//! A library and a schema that are not for each other.
//!
//! Files are replaced, sessions keep the library that they have loaded, and the schema changes when an administrator
//! updates it: in between either may be the older one. Nothing is done then, and the error says what to do; as soon as
//! they fit, the same sessions go on. The number of the schema is in the name of a type; here it is renamed, as an
//! update does that changes what the library relies on.

use taskq_tests::{Background, Db, Progress, Session, sqlstate, state_of_all, until};

use crate::rehearsal::update_script;

/// Calls of all sorts: what reads and writes tables directly, what runs statements, what sleeps.
const CALLS: [&str; 22] = [
    "SELECT taskq.insert_task('n', 'x')",
    "SELECT taskq.insert_many('x', '{a,b}')",
    "SELECT taskq.insert_tasks('[{\"action\": \"x\"}]')",
    "SELECT taskq.replace_tasks('[{\"id\": \"ready\", \"action\": \"x\"}]')",
    "SELECT taskq.own_tasks('w', 1, '{x}')",
    "SELECT taskq.own_tasks('w', 1, '{y}', wait => '10 seconds')",
    "SELECT taskq.return_task('held', $token$)",
    "SELECT taskq.return_tasks('{held}', ARRAY[$token$::uuid])",
    "SELECT taskq.return_and_own_tasks('w', '{held}', ARRAY[$token$::uuid], 1, '{x}')",
    "SELECT taskq.extend_tasks_ownership('w', '{held}', ARRAY[$token$::uuid], '1 hour')",
    "SELECT taskq.report_status('held', $token$, 'half', 0.5)",
    "SELECT taskq.wait_for_task('ready', '10 seconds')",
    "CALL taskq.wait_for_work('{y}', '10 seconds')",
    "CALL taskq.wait_for_tasks('{ready}', '10 seconds')",
    "SELECT taskq.add_dependencies('{held}', '{ready}')",
    "SELECT taskq.cancel_tasks('{held}')",
    "SELECT taskq.delete_tasks('{ready}')",
    "SELECT taskq.update_tasks('{ready}', priority => 3)",
    "SELECT taskq.pause_group('g')",
    "SELECT taskq.set_action('x', max_concurrency => 1)",
    "SELECT taskq.schedule('s', '* * * * *', '{\"action\": \"x\"}')",
    "SELECT taskq.maintain()",
];

/// A database with a task that is held and one that is ready, and sessions with plans; the token.
fn begun() -> (Db, Session, String) {
    let (db, [mut session]) = Db::connected();
    session.run("SELECT taskq.insert_task('held', 'h'), taskq.insert_task('ready', 'x', group_id => 'g')");
    let token = session.own_one("h").token.to_string();
    (db, session, token)
}

/// The call is refused, for that reason, and says these things.
fn refuses(session: &mut Session, call: &str, said: &[&str]) {
    let error = session.batch_execute(call).expect_err(call);
    let shown = error.as_db_error().unwrap_or_else(|| panic!("{call}: {error:?}"));
    assert_eq!(shown.code().code(), "55000", "{call}: {error:?}");
    assert_eq!(
        shown.message(),
        "the library of extension \"taskq\" does not fit its schema in this database"
    );
    let text = format!("{} {}", shown.detail().unwrap_or_default(), shown.hint().unwrap_or_default());
    for part in said {
        assert!(text.contains(part), "{call}: {text} says nothing of {part}");
    }
}

fn all_refuse(db: &Db, session: &mut Session, token: &str, said: &[&str]) {
    let before = state_of_all(&mut db.connect());
    // In a session with plans from before, and in one that begins.
    let mut other = db.connect();
    for call in CALLS {
        let call = call.replace("$token$", &format!("'{token}'"));
        refuses(session, &call, said);
        refuses(&mut other, &call, said);
    }
    assert_eq!(state_of_all(&mut db.connect()), before, "nothing was done");
}

#[test]
fn a_newer_schema_is_refused_until_the_session_has_the_newer_library() {
    let (db, mut session, token) = begun();
    // As an older library would not fill it in: a column that has to have a value.
    update_script(
        &mut session,
        "0.2.0-dev",
        "LOCK TABLE taskq.task, taskq.run, taskq.settled IN ACCESS EXCLUSIVE MODE;\n\
         ALTER TABLE taskq.run ADD COLUMN must integer NOT NULL DEFAULT 7;\n\
         ALTER TYPE taskq._schema_1 RENAME TO _schema_2;",
    );
    db.connect().run("ALTER EXTENSION taskq UPDATE TO '0.2.0-dev'");
    let said = [
        "is version 0.2.0-dev, with schema 2",
        "for schema 1;",
        "Connect anew",
        "files of version 0.2.0-dev",
    ];
    all_refuse(&db, &mut session, &token, &said);
    // What there is to look at can be looked at: views have no columns but those of their own schema.
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 2);
    db.connect()
        .run("ALTER TYPE taskq._schema_2 RENAME TO _schema_1; ALTER TABLE taskq.run DROP COLUMN must");
    session.run(&format!("SELECT taskq.return_task('held', '{token}')"));
    assert_eq!(session.perform("x", "completed"), "ready");
}

#[test]
fn an_older_schema_is_refused_until_it_is_updated() {
    let (db, mut session, token) = begun();
    update_script(&mut session, "0.1.2-dev", "ALTER TYPE taskq._schema_0 RENAME TO _schema_1;");
    db.connect().run("ALTER TYPE taskq._schema_1 RENAME TO _schema_0");
    let said = ["with schema 0", "for schema 1;", "ALTER EXTENSION taskq UPDATE"];
    all_refuse(&db, &mut session, &token, &said);
    // What the hint says helps, in a session that was refused, and for the others.
    let mut other = db.connect();
    refuses(&mut other, CALLS[0], &said);
    session.run("ALTER EXTENSION taskq UPDATE TO '0.1.2-dev'");
    session.run(&format!("SELECT taskq.return_task('held', '{token}')"));
    assert_eq!(other.perform("x", "completed"), "ready");
}

#[test]
fn a_schema_without_a_number_is_refused() {
    let (db, mut session, token) = begun();
    db.connect().run("ALTER TYPE taskq._schema_1 RENAME TO something");
    all_refuse(&db, &mut session, &token, &["whose schema has no number", "ALTER EXTENSION taskq UPDATE"]);
    db.connect().run("ALTER TYPE taskq.something RENAME TO _schema_1");
}

/// Within the transaction that changes it, and when that is rolled back.
#[test]
fn a_change_that_is_rolled_back_leaves_the_session_at_work() {
    let (db, mut session, token) = begun();
    for end in ["ROLLBACK", "ROLLBACK TO s; COMMIT"] {
        session.run("BEGIN; SAVEPOINT s; ALTER TYPE taskq._schema_1 RENAME TO _schema_2; SAVEPOINT t");
        refuses(&mut session, CALLS[0], &["with schema 2"]);
        session.run("ROLLBACK TO t");
        refuses(&mut session, CALLS[4], &["with schema 2"]);
        session.run(end);
        session.run("SELECT taskq.insert_task(NULL, 'y')");
    }
    session.run(&format!("SELECT taskq.return_task('held', '{token}')"));
    drop(db);
}

/// A call that sleeps finds out at the latest when it is woken, and has done nothing by then.
#[test]
fn sleepers_are_refused_when_they_wake() {
    let (db, mut session, _) = begun();
    let asleep: Vec<Background<String>> = [
        "SELECT taskq.own_tasks('w', 1, '{y}', wait => '60 seconds')",
        "SELECT taskq.wait_for_task('held', '60 seconds')",
        "CALL taskq.wait_for_work('{y}', '60 seconds')",
    ]
    .into_iter()
    .map(|call| {
        db.connect().background(move |session| {
            session
                .batch_execute(call)
                .map_or_else(|error| sqlstate(&error).to_owned(), |()| format!("{call}: came back"))
        })
    })
    .collect();
    for sleeper in &asleep {
        session.until_asleep(sleeper.pid());
    }
    // The one who is to wake them is not at the new schema, or could not insert.
    session.run("BEGIN");
    session.run("SELECT taskq.insert_task('y', 'y'), taskq.cancel_tasks('{held}')");
    session.run("ALTER TYPE taskq._schema_1 RENAME TO _schema_2; COMMIT");
    for sleeper in asleep {
        assert_eq!(sleeper.join().1, "55000");
    }
    let mut other = db.connect();
    other.run("ALTER TYPE taskq._schema_2 RENAME TO _schema_1");
    let grant = until("the task is there", || other.own("w", 1, &["y"]).unwrap().pop());
    other.complete(&grant);
}

/// An update that comes while a call is on its way to a table has it fail, and not go on with what is no more.
#[test]
fn a_call_that_waits_for_the_update_is_refused_behind_it() {
    let (db, mut session, token) = begun();
    let calls = [
        "SELECT taskq.own_tasks('w', 1, '{x}')".to_owned(),
        format!("SELECT taskq.return_task('held', '{token}')"),
        "SELECT taskq.insert_task('n', 'x')".to_owned(),
        "SELECT taskq.cancel_tasks('{ready}')".to_owned(),
    ];
    // They have plans, and have found everything to be as it should.
    let ready = calls.map(|call| {
        let mut session = db.connect();
        session.run(
            "BEGIN; SELECT taskq.insert_task('p', 'p'); SELECT taskq.own_tasks('w', 1, '{p}'); \
             SELECT taskq.cancel_tasks('{p}'); ROLLBACK",
        );
        (session, call)
    });
    let mut updater = db.connect();
    updater.run("BEGIN; LOCK TABLE taskq.task, taskq.run IN ACCESS EXCLUSIVE MODE");
    let waiting = ready.map(|(session, call)| {
        session.background(move |session| {
            let done = session.batch_execute(&call);
            done.map_or_else(|error| sqlstate(&error).to_owned(), |()| format!("{call}: came back"))
        })
    });
    for call in &waiting {
        assert_eq!(call.settle_down(&mut session), Progress::Blocked);
    }
    updater.run("ALTER TYPE taskq._schema_1 RENAME TO _schema_2; COMMIT");
    for call in waiting {
        assert_eq!(call.join().1, "55000");
    }
    assert_eq!(
        session.all::<String>("SELECT id || ' ' || state FROM taskq.tasks ORDER BY id"),
        ["held in-progress", "ready ready"]
    );
    updater.run("ALTER TYPE taskq._schema_2 RENAME TO _schema_1");
}
