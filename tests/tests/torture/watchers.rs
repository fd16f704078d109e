//! What is in the way, or looks: an open insertion that holds locks, a reader with an old snapshot, and one that
//! counts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use postgres::Error;
use taskq_tests::random::Random;

use crate::client::{Client, connect};
use crate::producer;
use crate::run::Run;

/// Holds tasks by an insertion that stays open, so that a call that returns or cancels them waits, and runs out of
/// patience.
pub fn hold_locks(run: &Arc<Run>) {
    let mut client = Client::new(run, "holder", 400);
    while !run.is_calm() {
        let after: Vec<String> = (0..3).filter_map(|_| run.some_recent(&mut client.random)).collect();
        // No task runs after these: what of the family is cut off is unknown.
        let (_, mut family) = producer::next(&mut client);
        family.tasks.truncate(20);
        family.alike = false;
        for (task, after) in family.tasks.iter_mut().zip(&after) {
            task.after.push((after.clone(), crate::book::On::Settled));
        }
        let (time, keep) = (100 + client.random.below(500), client.random.chance(60));
        let deeds = producer::inserts(&family.tasks);
        run.fault("transactions left open with locks");
        client.call("open insertion", deeds, |tx, _| {
            tx.begin()?;
            tx.query(
                "SELECT count(*) FROM taskq.insert_tasks($1)",
                &[&crate::families::json(&family.tasks)],
            )?;
            thread::sleep(Duration::from_millis(time));
            if keep { tx.commit() } else { tx.roll_back() }
        });
        thread::sleep(Duration::from_millis(200 + client.random.below(1300)));
    }
}

/// Reads in a REPEATABLE READ transaction that stays open: what it sees must not change, and holds back vacuum.
pub fn read_old(run: &Arc<Run>) {
    // What is scheduled becomes ready with time, in one snapshot too.
    const LOOK: &str = "SELECT string_agg(concat_ws(' ', action, state, count), ', ' ORDER BY action, state) \
          FROM (SELECT action, CASE state WHEN 'scheduled' THEN 'ready' ELSE state END AS state, sum(count) AS count \
                  FROM taskq.count_tasks() GROUP BY 1, 2) AS c";
    let mut random = Random::new(run.seed + 401);
    while !run.is_calm() {
        let mut client = connect(run, "reader", "default_transaction_isolation=repeatable\\ read");
        run.fault("old snapshots held open");
        let mut read = || -> Result<(), Error> {
            client.batch_execute("BEGIN")?;
            let first: Option<String> = client.query_one(LOOK, &[])?.get(0);
            for _ in 0..1 + random.below(8) {
                thread::sleep(Duration::from_millis(300 + random.below(2500)));
                if run.is_calm() {
                    break;
                }
                let again: Option<String> = client.query_one(LOOK, &[])?.get(0);
                if first != again {
                    run.complain(format!("one snapshot, two answers: {first:?} and {again:?}"));
                }
            }
            client.batch_execute("COMMIT")
        };
        // Whatever ends it: it begins anew, after a while without, in which others get their locks.
        drop(read());
        thread::sleep(Duration::from_millis(random.below(3000)));
    }
}

/// Looks again and again, each time in one snapshot: how much is open, and whether anything is held twice or too often.
pub fn count(run: &Arc<Run>) {
    // One merge key, one task; one group in `turns`, so many tasks. Overdue ones do not count any more.
    const HELD: &str = "WITH h AS (SELECT t.action, t.group_id, t.merge_key FROM taskq.actors AS a JOIN taskq.tasks AS t ON t.id = a.task_id \
                                    WHERE a.action IN ('merge', 'turns') AND a.action_deadline > clock_timestamp()) \
         SELECT action || ' ' || COALESCE(merge_key, group_id), count(*) FROM h GROUP BY 1 \
         HAVING count(*) > CASE WHEN min(action) = 'merge' THEN 1 ELSE $1::bigint END";
    const OPEN: &str = "SELECT COALESCE(sum(count), 0)::bigint FROM taskq.count_tasks(states => '{blocked,scheduled,ready,in-progress}')";
    // However old the statistics are: what is held is looked up one by one.
    const LOOKUPS: &str = "enable_hashjoin=off -c enable_mergejoin=off";
    let mut quiet = 0;
    while !run.is_over() {
        let mut client = connect(run, "counter", LOOKUPS);
        let mut look = || -> Result<(), Error> {
            while !run.is_over() {
                let open: i64 = client.query_one(OPEN, &[])?.get(0);
                run.open.store(open, Ordering::Relaxed);
                for row in client.query(HELD, &[&crate::families::PER_GROUP])? {
                    run.complain(format!(
                        "{} is held by {} at once",
                        row.get::<_, String>(0),
                        row.get::<_, i64>(1)
                    ));
                }
                quiet = if run.is_calm() && open == 0 { quiet + 1 } else { 0 };
                if quiet > 2 {
                    run.over.store(true, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(700));
            }
            Ok(())
        };
        drop(look());
    }
}
