//! What is let in goes out again: the largest values, through every grant, every column of every view, and a dump.

use std::path::PathBuf;
use std::process::Command;

use taskq_tests::{Db, Session};

/// 64 MB of newlines, each of which takes two bytes in COPY.
const NEWLINES: &str = "repeat(E'\\n', 64 * 1024 * 1024)";
/// Nearly 64 MB as text, of six bytes for each character that is stored, and of seven in COPY.
const CONTROLS: &str = "to_jsonb(repeat(E'\\x01', 11184000))";
/// As large as it is stored as an array may be: 200 MB, 50 MB as text.
const ONES: &str = "('[1' || repeat(', 1', 16700000) || ']')::jsonb";
/// A body that is so large as JSON that it just fits.
const BODY: &str = "'[1' || repeat(', 1', 11000000) || ']'";

/// Tasks `a` (long as text) and `b` (large as it is stored), each of its own action, with all the values that a grant has; and ends
/// with results.
fn fill(session: &mut Session) {
    let name = |what: &str| format!("rpad('{what}', 1000, E'\\x02')");
    session.run(&format!(
        "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', 'p' || i, 'action', 'p'))
                                                    FROM generate_series(1, 3) AS i));
         SELECT taskq.return_task(task_id, token, result => {CONTROLS}, status => repeat(E'\\x01', 70000))
           FROM taskq.own_tasks('w', 3, '{{p}}');
         SELECT taskq.insert_task(NULL, {a}, {NEWLINES}, group_id => {group}, workgroup => {group}, unique_by => to_jsonb({group}),
                                  metadata => jsonb_build_object('a', repeat(E'\\x01', 174700)),
                                  depends_on => '{{p1,p2,p3}}', max_tries => 9),
                taskq.insert_task(NULL, 'b', {BODY}, merge_key => {group}, depends_on => '{{p1,p2,p3}}')",
        a = name("a"),
        group = name("g"),
    ));
    let shorter = "to_jsonb(repeat(E'\x01', 11000000))";
    for (action, value, steps, checkpoint) in
        [(name("a"), CONTROLS, 3, shorter), ("'b'".to_owned(), ONES, 1, ONES)]
    {
        session.run(&format!(
            "CREATE TEMPORARY TABLE held AS SELECT task_id, token FROM taskq.own_tasks({actor}, 1, ARRAY[{action}]);
             SELECT taskq.report_status(task_id, token, repeat(E'\\x01', 70000), 0.5, {checkpoint}) FROM held;
             SELECT taskq.save_step(task_id, token, rpad('step ' || i, 1000, E'\\x02'), {value}) FROM held, generate_series(1, {steps}) AS i;
             SELECT taskq.return_task(task_id, token, 'pending', retry_after => '0') FROM held;
             DROP TABLE held",
            actor = name("w"),
        ));
    }
}

/// Reads all of it as a client does that asks for texts.
fn read(session: &mut Session, query: &str) -> usize {
    let rows = session.simple_query(query).unwrap_or_else(|error| panic!("{query}: {error:?}"));
    rows.iter().filter(|row| matches!(row, postgres::SimpleQueryMessage::Row(_))).count()
}

#[test]
#[ignore = "long"]
fn what_is_let_in_can_be_granted_shown_and_dumped() {
    let (db, [mut session]) = Db::connected();
    session.run("SET statement_timeout = 0");
    fill(&mut session);
    let views: Vec<String> = session.all(
        "SELECT c.relname::text FROM pg_class AS c
          WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v' AND c.relname NOT LIKE '\\_%' ORDER BY 1",
    );
    let look = |session: &mut Session| {
        for view in &views {
            read(session, &format!("SELECT * FROM taskq.{view}"));
        }
        for function in
            ["health()", "metrics()", "why('p1')", "graph('p1')", "dependency_results('p1')", "check()"]
        {
            read(session, &format!("SELECT * FROM taskq.{function}"));
        }
    };
    let actions = "ARRAY[rpad('a', 1000, E'\\x02'), 'b']";
    let with = "with_results => true, with_steps => true";
    session.run("BEGIN");
    assert_eq!(read(&mut session, &format!("SELECT * FROM taskq.own_tasks('w', 9, {actions}, {with})")), 2);
    session.run("ROLLBACK");
    let rows = read(
        &mut session,
        &format!("SELECT * FROM taskq.return_and_own_tasks('w', '[]', 9, {actions}, '1 hour', {with})"),
    );
    assert_eq!(rows, 2);
    look(&mut session);
    // Settled, with results.
    session.run("SELECT taskq.release_tasks(actions => ARRAY['b', rpad('a', 1000, E'\\x02')])");
    session.run(&format!(
        "SELECT taskq.return_task(task_id, token, 'completed', repeat(E'\\x01', 70000), to_jsonb(repeat(E'\\x01', 11000000)))
           FROM taskq.own_tasks(rpad('w', 1000, E'\\x02'), 9, {actions})"
    ));
    look(&mut session);
    dump(&mut session, &db);
}

fn dump(session: &mut Session, db: &Db) {
    let folder: String = session.one("SELECT setting FROM pg_config WHERE name = 'BINDIR'");
    let output = Command::new(PathBuf::from(folder).join("pg_dump"))
        .args(["-f", "/dev/null", db.name()])
        .output()
        .expect("pg_dump runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
