//! What [SQLsmith](https://github.com/anse1/sqlsmith) writes: statements at random, deep ones, with the functions of the queue at
//! every place where a value of their type could stand, and values of each other as arguments.
//!
//! It reads from the catalog what there is, and a function of `pg_catalog` is a hundred times as likely as one of the queue. So the
//! search path leads it to a catalog with the queue's functions only, those that give back sets among them, which it would leave out.
//! It only writes (`--dry-run`): the statements are run here, where their errors are looked at. Where it is not
//! installed (Debian: `sqlsmith`; `make outside-test T=hostile` installs it), the test says that it was not run.

use std::env;
use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, Instant};

use taskq_tests::{Db, state_of_all};

use crate::call::{Caller, End, hostile};
use crate::scene;

/// So long, times `TASKQ_TEST_SOAK`.
const TIME: Duration = Duration::from_secs(20);

/// But not fewer statements than this: on a busy machine sqlsmith needs all that time to read the catalog.
const LEAST_STATEMENTS: usize = 200;

/// Statements of one seed: it reads the catalog anew for each.
const OF_A_SEED: u32 = 500;

/// What it may choose from: the functions of the surface, and a table with values of the types that they take.
const CATALOG: &str = "
    CREATE SCHEMA smith;
    CREATE VIEW smith.pg_proc AS
    SELECT p.oid, p.proname, p.pronamespace, p.prorettype, p.proargtypes, false AS proretset, p.prokind
      FROM pg_catalog.pg_proc AS p
     WHERE p.pronamespace = 'taskq'::regnamespace AND p.prokind = 'f' AND p.proname !~ '^_'
       AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype);
    CREATE TABLE smith.good AS
    SELECT t.id, 'x'::text AS action, 'w'::text AS workgroup, 'g'::text AS group_id, 'completed'::text AS condition,
           ARRAY[t.id] AS ids, ARRAY['x', 'y'] AS actions, ARRAY['g'] AS groups, u.token, ARRAY[u.token] AS tokens,
           '1 minute'::interval AS duration, now() AS time, 1 AS number, 1::bigint AS many, 0.5::double precision AS part, true AS yes,
           jsonb_build_object('action', 'x', 'depends_on', jsonb_build_array(t.id)) AS task,
           jsonb_build_array(jsonb_build_object('task_id', t.id, 'token', u.token)) AS returns,
           jsonb_build_array(jsonb_build_object('id', 'new ' || t.id, 'action', 'x')) AS tasks,
           ARRAY['{\"action\": \"x\"}'::jsonb] AS blocks
      FROM taskq.tasks AS t, smith_token AS u;
";

#[test]
fn whatever_it_writes() {
    let db = Db::new();
    let (mut owner, grant) = scene::set(&db);
    let role = format!("{} smith", db.name());
    owner
        .run(&format!("CREATE TEMP TABLE smith_token AS SELECT '{}'::uuid AS token; {CATALOG}", grant.token));
    owner.run(&format!(
        "CREATE ROLE \"{role}\" LOGIN; GRANT ALL ON SCHEMA smith TO \"{role}\"; \
         GRANT ALL ON ALL TABLES IN SCHEMA smith TO \"{role}\"; \
         SELECT taskq.grant_operator('\"{role}\"'), taskq.grant_producer('\"{role}\"'), \
                taskq.grant_worker('\"{role}\"'), taskq.grant_monitor('\"{role}\"')"
    ));
    let mut session = db.connect_as(&role);
    let soak: u32 = env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let until = Instant::now() + TIME * soak;
    let before = state_of_all(&mut owner);
    let (mut worked, mut refused) = (0, 0);
    let mut seed = std::process::id();
    while Instant::now() < until || worked + refused < LEAST_STATEMENTS {
        let Some(statements) = written(&db, &role, seed) else {
            eprintln!("NOT RUN: there is no sqlsmith");
            break;
        };
        println!("seed {seed}");
        for statement in &statements {
            if Instant::now() >= until && worked + refused >= LEAST_STATEMENTS {
                break;
            }
            match hostile(&mut session, statement, Caller::Smith) {
                End::Worked => worked += 1,
                End::Refused(_) => refused += 1,
            }
        }
        assert!(before == state_of_all(&mut owner), "seed {seed}: something has changed");
        assert!(worked > 0 && refused > 0, "seed {seed}: {worked} worked, {refused} were refused");
        seed += 1;
    }
    println!("{worked} statements worked, {refused} were refused");
    drop(session);
    owner.run(&format!("DROP OWNED BY \"{role}\"; DROP ROLE \"{role}\""));
}

/// The statements of a seed; `None` without sqlsmith.
fn written(db: &Db, role: &str, seed: u32) -> Option<Vec<String>> {
    let mut command = Command::new("sqlsmith");
    command
        .args(["--dry-run", "--exclude-catalog"])
        .arg(format!("--target=dbname={}", db.name()))
        .arg(format!("--seed={seed}"))
        .arg(format!("--max-queries={OF_A_SEED}"))
        .env("PGUSER", role)
        .env("PGOPTIONS", "-c search_path=smith,pg_catalog");
    let written = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        written => written.expect("sqlsmith runs"),
    };
    let text = String::from_utf8(written.stdout).expect("text");
    let errors = String::from_utf8_lossy(&written.stderr);
    assert!(text.contains("taskq."), "sqlsmith has written nothing of the queue: {errors}");
    // It takes pseudo-types (`cast(null as anyrange)`) for types; PostgreSQL does not.
    let usable = |statement: &&str| !statement.is_empty() && !statement.contains(" as any");
    Some(text.split(";\n").map(str::trim).filter(usable).map(str::to_owned).collect())
}
