//! What an administrator may do in the midst of it: rewrite tables, rebuild indexes, turn autovacuum off or loose, change
//! limits, pause and delay.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use postgres::Error;
use taskq_tests::random::Random;

use crate::book::{Deed, Fate};
use crate::client::{Client, connect};
use crate::families::{GROUPS, PER_GROUP, RATE, WORKGROUPS};
use crate::run::Run;

/// Larger tables are not rewritten: all clients would wait too long.
const REWRITABLE: i64 = 48 << 20;

/// What the busiest tables leave is swept up often: each crash makes autovacuum forget how much there is, so that with crashes
/// every few seconds it would never come.
const UPKEEP: [&str; 5] = [
    "VACUUM (ANALYZE) %s",
    "VACUUM (FREEZE) %s",
    "ANALYZE %s",
    "VACUUM taskq.run",
    "VACUUM taskq.run, taskq.blocked, taskq.lease",
];

/// Turns tables and indexes over.
pub fn rebuild(run: &Arc<Run>) {
    let mut random = Random::new(run.seed + 600);
    while !run.is_calm() {
        let mut client = connect(run, "upheaval", "lock_timeout=500ms");
        while !run.is_calm() && rebuild_one(run, &mut client, &mut random).is_ok() {
            thread::sleep(Duration::from_millis(500 + random.below(4000)));
        }
    }
    let mut client = connect(run, "upheaval", "lock_timeout=30s");
    drop_halves(&mut client).expect("what was left of indexes can be dropped");
}

fn rebuild_one(run: &Run, client: &mut postgres::Client, random: &mut Random) -> Result<(), Error> {
    drop_halves(client)?;
    let (kind, statement) = match random.below(100) {
        0..20 => ("REINDEX CONCURRENTLY", index(client, "REINDEX INDEX CONCURRENTLY %s")?),
        20..30 => ("REINDEX", index(client, "REINDEX INDEX %s")?),
        30..37 => ("VACUUM FULL", table(client, "VACUUM FULL %s")?),
        37..44 => ("CLUSTER", index(client, "CLUSTER %2$s USING %3$s")?),
        44..88 => ("VACUUM or ANALYZE", table(client, UPKEEP[random.below(5) as usize])?),
        _ => {
            let settings = random.pick(&[
                ["autovacuum = off", "autovacuum_naptime = 60"],
                ["autovacuum = on", "autovacuum_naptime = 1"],
                ["autovacuum_vacuum_threshold = 50", "autovacuum_vacuum_scale_factor = 0"],
                ["autovacuum_vacuum_threshold = 100000", "autovacuum_vacuum_scale_factor = 1"],
            ]);
            run.fault("autovacuum off, on, slow or aggressive");
            for setting in settings {
                client.batch_execute(&format!("ALTER SYSTEM SET {setting}"))?;
            }
            client.batch_execute("SELECT pg_reload_conf()")?;
            return Ok(());
        }
    };
    match client.batch_execute(&statement) {
        Ok(()) => run.fault(kind),
        Err(error) if error.as_db_error().is_some_and(|error| error.severity() == "ERROR") => {
            let code = error.code().map_or("", |code| code.code());
            if !["55P03", "57014", "57P01", "40P01", "42704", "42P01", "55000"].contains(&code) {
                run.complain(format!("{statement}: {error:?}"));
            }
            run.fault("rewrites and rebuilds that gave up");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// An index of the queue, in a statement: %s is its name, %2$s that of its table, %3$s its name without the schema.
fn index(client: &mut postgres::Client, statement: &str) -> Result<String, Error> {
    let query = "SELECT format($1, x.indexrelid::regclass, x.indrelid::regclass, quote_ident(c.relname)) \
          FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid JOIN pg_class AS t ON t.oid = x.indrelid JOIN pg_am AS a ON a.oid = c.relam \
         WHERE t.relnamespace = 'taskq'::regnamespace AND t.relkind = 'r' AND pg_relation_size(t.oid) < $2 AND x.indisvalid \
           AND ($1 !~ 'CLUSTER' OR a.amname = 'btree' AND x.indpred IS NULL) ORDER BY random() LIMIT 1";
    Ok(client.query_one(query, &[&statement, &REWRITABLE])?.get(0))
}

fn table(client: &mut postgres::Client, statement: &str) -> Result<String, Error> {
    let query = "SELECT format($1, oid::regclass) FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind = 'r' \
                    AND ($1 !~ 'FULL' OR pg_relation_size(oid) < $2) ORDER BY random() LIMIT 1";
    Ok(client.query_one(query, &[&statement, &REWRITABLE])?.get(0))
}

/// Removes what a REINDEX CONCURRENTLY that was interrupted has left, without getting into a client's way.
fn drop_halves(client: &mut postgres::Client) -> Result<(), Error> {
    let halves = client.query(
        "SELECT indexrelid::regclass::text FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid \
          WHERE NOT indisvalid AND c.relnamespace = 'taskq'::regnamespace AND relname ~ '_cc(new|old)'",
        &[],
    )?;
    for half in halves {
        let half: String = half.get(0);
        match client.batch_execute(&format!("DROP INDEX CONCURRENTLY {half}")) {
            Err(error) if error.as_db_error().is_none_or(|error| error.severity() != "ERROR") => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sets the limits before the first task, so that none is granted without.
pub fn first_limits(client: &mut Client) {
    let mut set = |of: String, most: i64, statement: String| {
        // A call that is short of time may be cancelled even now.
        let again = (0..20).find(|_| {
            let deeds = vec![Deed::Limit { of: of.clone(), most }];
            client.call("limit", deeds, |tx, _| tx.batch_execute(&statement)).fate == Fate::Done
        });
        assert!(again.is_some(), "{statement}");
    };
    set("action few".to_owned(), 4, "SELECT taskq.set_action('few', max_concurrency => 4)".to_owned());
    set(
        "turns".to_owned(),
        PER_GROUP,
        format!("SELECT taskq.set_action('turns', max_per_group => {PER_GROUP})"),
    );
    set(
        "rate".to_owned(),
        RATE,
        format!("SELECT taskq.set_action('rate', rate_limit => {RATE}, rate_period => '1 second')"),
    );
    for group in 0..GROUPS {
        set(
            format!("group g{group}"),
            3,
            format!("SELECT taskq.set_group('g{group}', max_concurrency => 3)"),
        );
    }
    for (name, overlap) in [("skipping", "skip"), ("queueing", "queue"), ("replacing", "replace")] {
        let statement = format!(
            "SELECT taskq.schedule('{name}', '* * * * * *', '{{\"action\": \"beat\"}}', overlap => '{overlap}')"
        );
        set(format!("schedule {name}"), 1, statement);
    }
}

/// Changes limits, pauses actions, groups and schedules, delays workgroups.
pub fn change(run: &Arc<Run>) {
    let mut client = Client::new(run, "settings", 700);
    while !run.is_calm() {
        let most = 1 + client.random.below(6) as i64;
        let group = client.random.below(GROUPS);
        let (deed, statement) = match client.random.below(10) {
            0..3 => (
                Some("action few".to_owned()),
                format!("SELECT taskq.set_action('few', max_concurrency => {most})"),
            ),
            3..6 => (
                Some(format!("group g{group}")),
                format!("SELECT taskq.set_group('g{group}', max_concurrency => {most})"),
            ),
            6 => (None, format!("SELECT taskq.pause_group('g{group}')")),
            7 => (
                None,
                format!(
                    "SELECT taskq.delay_workgroup('w{}', '{} ms')",
                    client.random.below(WORKGROUPS),
                    most * 100
                ),
            ),
            8 => (
                None,
                format!("SELECT taskq.{}_schedule('queueing')", client.random.pick(&["pause", "resume"])),
            ),
            _ => (
                None,
                format!("SELECT taskq.pause_action('{}')", client.random.pick(&["p0", "merge", "few"])),
            ),
        };
        let deeds = deed.into_iter().map(|of| Deed::Limit { of, most }).collect();
        client.call("settings", deeds, |tx, _| tx.batch_execute(&statement));
        run.fault("settings changed (limits, pauses, delays)");
        thread::sleep(Duration::from_millis(client.random.below(400)));
        resume(&mut client, group);
        thread::sleep(Duration::from_millis(client.random.below(300)));
    }
}

fn resume(client: &mut Client, group: u64) {
    let statements = format!(
        "SELECT taskq.resume_group('g{group}') FROM taskq.groups WHERE group_id = 'g{group}'; \
         SELECT taskq.resume_action(action) FROM taskq.actions WHERE paused"
    );
    client.call("resume", Vec::new(), |tx, _| tx.batch_execute(&statements));
}

/// Ends all that holds tasks back, so that what is there can run to its end.
pub fn let_go(client: &mut Client) {
    let statements = "SELECT taskq.unschedule(name) FROM taskq.schedules; \
                      SELECT taskq.resume_action(action) FROM taskq.actions WHERE paused; \
                      SELECT taskq.resume_group(group_id) FROM taskq.groups WHERE paused; \
                      SELECT taskq.delay_workgroup(workgroup, '0') FROM taskq.workgroups";
    for _ in 0..100 {
        if client.call("let go", Vec::new(), |tx, _| tx.batch_execute(statements)).fate == Fate::Done {
            return;
        }
    }
    panic!("the pauses cannot be ended: {statements}");
}
