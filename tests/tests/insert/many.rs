//! `insert_many`: many tasks that are alike but for id and body, from arrays.
//!
//! It is `insert_task` for each pair, in one call. On wrong code a key means something else here than there, ids or bodies are
//! paired wrongly, what is refused has inserted something, or two calls with the same ids meet in a deadlock.

use postgres::types::ToSql;
use serde_json::{Value, json};
use taskq_tests::session::Answer;
use taskq_tests::{Db, Progress, Session, refused};

type Texts<'a> = &'a [Option<&'a str>];

fn insert(session: &mut Session, bodies: Texts, ids: Texts, arguments: &str) -> Answer<Vec<String>> {
    let query = format!("SELECT * FROM taskq.insert_many('x', $1, $2{arguments})");
    Ok(session.query(&query, &[&bodies, &ids])?.iter().map(|row| row.get(0)).collect())
}

#[test]
fn ids_and_bodies_are_paired_and_what_is_null_is_made_or_missing() {
    let (_db, [mut session]) = Db::connected();
    let bodies = [Some("one"), None, Some("three"), Some("")];
    let ids = insert(&mut session, &bodies, &[Some("z"), Some("a"), None, Some("m")], "").unwrap();
    assert_eq!([&ids[0], &ids[1], &ids[3]], ["z", "a", "m"], "in the order given");
    assert_eq!(ids[2].len(), 36, "{}", ids[2]);
    let stored = |session: &mut Session, id: &str| session.task(id).unwrap().body;
    let expected = bodies.map(|body| body.map(str::to_owned));
    assert_eq!(ids.iter().map(|id| stored(&mut session, id)).collect::<Vec<_>>(), expected);
    let owned: Vec<String> =
        session.own("w", 10, &["x"]).unwrap().into_iter().map(|grant| grant.task_id).collect();
    assert_eq!(owned, ids, "first in, first out");

    let made: Vec<String> = session.all("SELECT * FROM taskq.insert_many('x', '{b,c}')");
    let again = made.iter().map(|id| stored(&mut session, id).unwrap()).collect::<Vec<_>>();
    assert_eq!(again, ["b", "c"]);
    assert_eq!(session.all::<String>("SELECT taskq.insert_many('x', '{}')"), Vec::<String>::new());
    assert_eq!(session.all::<String>("SELECT taskq.insert_many('never', '{}', '{}')"), Vec::<String>::new());
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.count_tasks(actions => '{never}')"), 0);
}

/// What comes behind ids and bodies has the names, types and defaults of `insert_task`.
#[test]
fn the_keys_are_those_of_insert_task() {
    let (_db, [mut session]) = Db::connected();
    let arguments = |session: &mut Session, name: &str| -> Vec<String> {
        session.all(&format!(
            "SELECT a FROM pg_proc AS p, unnest(string_to_array(pg_get_function_arguments(p.oid), ', ')) WITH ORDINALITY AS x(a, n)
              WHERE p.oid = (SELECT max(oid) FROM pg_proc WHERE proname = '{name}' AND pronamespace = 'taskq'::regnamespace) AND n > 3
              ORDER BY n"
        ))
    };
    let mut one = arguments(&mut session, "insert_task");
    assert!(one.len() >= 20, "{one:?}");
    one.push("bodies_json jsonb DEFAULT NULL::jsonb".to_owned());
    one.sort();
    let mut many = arguments(&mut session, "insert_many");
    many.sort();
    assert_eq!(many, one);
    let statement = session.prepare("SELECT * FROM taskq.insert_many($1, $2, $3, $4)").unwrap();
    let types: Vec<&str> = statement.params().iter().map(|t| t.name()).collect();
    assert_eq!(types, ["text", "_text", "_text", "int4"], "nothing is ambiguous for who sends no types");
}

/// Each key, alone, does to a task of many what it does to a single one.
#[test]
fn each_key_means_what_it_means_for_insert_task() {
    let (_db, [mut session]) =
        Db::with_tasks(json!([{"id": "p", "action": "p"}, {"id": "late", "action": "p"}]));
    session.set_now(Some("2031-01-01 12:00+00"));
    let row = |session: &mut Session, id: &str| -> Value {
        session.one(&format!("SELECT to_jsonb(t) - 'id' - 'task_id' FROM taskq.tasks AS t WHERE id = '{id}'"))
    };
    let keys = [
        "priority => -7",
        "max_tries => 3",
        "lease => '3 minutes'",
        "not_before => '2040-01-01'",
        "delay => '2 hours'",
        "depends_on => '{p,late}'",
        "to_signal_after => '{late}'",
        "spontaneous => true",
        "post_result => true",
        "group_id => 'g'",
        "retention => '3 days'",
        "metadata => '{\"trace\": 1}'",
        "backoff => '{\"kind\": \"fixed\", \"initial\": \"1 minute\"}'",
        "workgroup => 'w'",
        "merge_key => 'k'",
        "seed => true",
        "unique_by => 'true'",
        "retention_aborted => '5 days'",
        "depends_on => '{absent}', if_missing => 'ignore'",
        "priority => NULL, spontaneous => NULL, seed => NULL, post_result => NULL",
    ];
    // Deleting what it would wait for takes it along.
    let late = "SELECT taskq.insert_task('late', 'p', on_conflict => 'skip')";
    for (n, key) in keys.into_iter().enumerate() {
        session.run(late);
        session.run(&format!("SELECT taskq.insert_task('one{n}', 'act', 'body{n}', {key})"));
        // Of a unique task the key is taken by then.
        let one = row(&mut session, &format!("one{n}"));
        session.run(&format!("SELECT taskq.delete_tasks('{{one{n}}}')"));
        session.run(late);
        session.run(&format!("SELECT taskq.insert_many('act', '{{other,body{n}}}', '{{a{n},b{n}}}', {key})"));
        assert_eq!(row(&mut session, &format!("b{n}")), one, "{key}");
        let mut other = row(&mut session, &format!("a{n}"));
        assert_eq!(other["body"].take(), "other", "{key}");
        session
            .run(&format!("SELECT taskq.cancel_tasks('{{a{n},b{n}}}'), taskq.delete_tasks('{{a{n},b{n}}}')"));
    }
}

#[test]
fn ids_that_are_there_are_refused_or_skipped() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "there", "action": "x", "body": "old"}]));
    let bodies = "ARRAY['1', '2', '3']";
    for (ids, naming) in [("a,there,b", "\"there\" exists"), ("a,b,a", "\"a\" stands twice")] {
        let query = format!("SELECT taskq.insert_many('x', {bodies}, '{{{ids}}}')");
        refused(&mut session, "TQ002", naming, &query, &[]);
    }
    let query = format!("SELECT taskq.insert_many('x', {bodies}, '{{a,there,a}}', on_conflict => 'skip')");
    assert_eq!(session.all::<String>(&query), ["a"]);
    let body = |session: &mut Session, id: &str| session.task(id).unwrap().body.unwrap();
    assert_eq!([body(&mut session, "a"), body(&mut session, "there")], ["1", "old"], "the first one counts");
    // A unique task that is left out, and one that comes in its place.
    let query = "SELECT taskq.insert_many('u', '{same,same,other}', '{u1,u2,u3}', unique_by => 'true')";
    assert_eq!(session.all::<String>(query), ["u1", "u3"]);
}

#[test]
fn what_is_wrong_is_refused_and_named_and_nothing_is_inserted() {
    let (_db, [mut session]) = Db::with_tasks(json!([{"id": "p", "action": "x"}]));
    let long = "i".repeat(1001);
    let calls: &[(&str, &str, &str, &[&(dyn ToSql + Sync)])] = &[
        ("TQ006", "action", "insert_many(NULL, '{a}')", &[]),
        ("TQ006", "action", "insert_many('', '{a}')", &[]),
        ("22004", "bodies", "insert_many('x', NULL)", &[]),
        ("22004", "bodies", "insert_many('x', NULL, '{a}')", &[]),
        ("22023", "differ in length", "insert_many('x', '{a,b}', '{1}')", &[]),
        ("22023", "differ in length", "insert_many('x', '{a}', '{}')", &[]),
        ("22023", "differ in length", "insert_many('x', NULL, '{1,2}', bodies_json => '[1]')", &[]),
        ("22023", "both", "insert_many('x', '{a}', bodies_json => '[1]')", &[]),
        ("22023", "JSON array", "insert_many('x', NULL, bodies_json => '{\"a\": 1}')", &[]),
        ("22004", "bodies", "insert_many('x', NULL, bodies_json => 'null')", &[]),
        ("TQ006", "\"id\" is empty", "insert_many('x', '{a,b,c}', ARRAY['1', '2', ''])", &[]),
        ("TQ006", "1001 bytes", "insert_many('x', '{a,b,c}', ARRAY['1', $1, '2'])", &[&long]),
        ("TQ006", "max_tries", "insert_many('x', '{a}', max_tries => 0)", &[]),
        ("TQ006", "max_tries", "insert_many('x', '{}', max_tries => 0)", &[]),
        ("TQ006", "delay", "insert_many('x', '{a}', delay => '-1 s')", &[]),
        ("TQ006", "delay", "insert_many('x', '{a}', delay => '1 s', not_before => now())", &[]),
        ("TQ006", "metadata", "insert_many('x', '{a}', metadata => '[]')", &[]),
        ("TQ006", "backoff", "insert_many('x', '{a}', backoff => '{}')", &[]),
        ("TQ006", "unique_by", "insert_many('x', '{a}', unique_by => '{\"no\": 1}')", &[]),
        ("TQ006", "NULL", "insert_many('x', '{a}', depends_on => '{NULL}')", &[]),
        ("TQ003", "absent", "insert_many('x', '{a}', depends_on => '{absent}')", &[]),
        ("TQ004", "cycle", "insert_many('x', '{a}', '{1}', depends_on => '{1}')", &[]),
        ("22023", "on_conflict", "insert_many('x', '{a}', on_conflict => 'skpi')", &[]),
        ("22004", "on_conflict", "insert_many('x', '{a}', on_conflict => NULL)", &[]),
        ("22004", "if_missing", "insert_many('x', '{a}', if_missing => NULL)", &[]),
    ];
    for (sqlstate, naming, call, parameters) in calls {
        refused(&mut session, sqlstate, naming, &format!("SELECT taskq.{call}"), parameters);
    }
    let error = refused(
        &mut session,
        "TQ006",
        "id",
        "SELECT taskq.insert_many('x', '{a,b,c}', ARRAY['1', '2', ''])",
        &[],
    );
    assert!(error.detail().unwrap().contains("element 3"), "{error:?}");
    let error = refused(&mut session, "22023", "", "SELECT taskq.insert_many('x', '{a,b,c}', '{1}')", &[]);
    let detail = error.detail().unwrap();
    assert!(detail.contains('3') && detail.contains('1'), "both lengths: {detail}");
}

#[test]
fn bodies_of_json_are_stored_as_insert_tasks_stores_them() {
    let (_db, [mut session]) = Db::connected();
    let bodies = json!(["text", {"b": 1, "a": [2]}, null, 1.50, "", [], "{}"]);
    let ids: Vec<String> = session
        .query("SELECT * FROM taskq.insert_many('x', NULL, bodies_json => $1)", &[&bodies])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let of = |session: &mut Session, ids: &[String]| -> Vec<Option<String>> {
        ids.iter().map(|id| session.task(id).unwrap().body).collect()
    };
    let many = of(&mut session, &ids);
    let tasks = bodies.as_array().unwrap().iter().map(|body| json!({"action": "x", "body": body})).collect();
    let alone = session.insert(tasks).unwrap();
    assert_eq!(many, of(&mut session, &alone));
    assert_eq!(many[..3], [Some("text".to_owned()), Some(r#"{"a": [2], "b": 1}"#.to_owned()), None]);
}

/// Two calls with the same ids, the other way round: the second waits for the first, and neither is the victim of a deadlock.
#[test]
fn the_same_ids_at_the_same_time() {
    let (db, [mut first, second, mut watcher]) = Db::connected();
    first.run("BEGIN; SELECT taskq.insert_many('x', '{1,2}', '{a,b}')");
    let call = second.background(|session| {
        session
            .query("SELECT taskq.insert_many('x', '{1,2,3}', '{c,b,a}', on_conflict => 'skip')", &[])
            .map(|rows| rows.len())
    });
    assert_eq!(call.settle_down(&mut watcher), Progress::Blocked);
    first.run("COMMIT");
    assert_eq!(call.join().1.unwrap(), 1);

    let storm: Vec<_> = (0..6)
        .map(|n| {
            let session = db.connect();
            session.background(move |session| {
                for round in 0..20 {
                    let mut ids: Vec<String> = (0..50).map(|i| format!("{round}-{i}")).collect();
                    if n % 2 == 0 {
                        ids.reverse();
                    }
                    let bodies = vec!["b"; ids.len()];
                    let query = "SELECT taskq.insert_many('storm', $1, $2, on_conflict => 'skip')";
                    session.query(query, &[&bodies, &ids]).unwrap();
                }
            })
        })
        .collect();
    storm.into_iter().for_each(|call| drop(call.join()));
    assert_eq!(watcher.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE action = 'storm'"), 1_000);
}

#[test]
#[ignore = "long"]
fn a_hundred_thousand_in_one_call() {
    let (_db, [mut session]) = Db::connected();
    let count: String = session.one(
        "SELECT concat_ws(' ', count(*), count(DISTINCT id)) FROM taskq.insert_many('x',
             (SELECT array_agg(repeat('b', 100)) FROM generate_series(1, 100000)),
             (SELECT array_agg(NULLIF('t' || n, 't' || n / 10 * 10)) FROM generate_series(1, 100000) AS n), 3) AS id",
    );
    assert_eq!(count, "100000 100000");
    assert_eq!(
        session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE priority = 3 AND length(body) = 100"),
        100_000
    );
}
