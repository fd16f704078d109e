//! A cluster with the library preloaded, and its workers.

use taskq_tests::{Cluster, Session, until};

const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// The worker may sleep for an hour: what it does earlier it was woken for, or knew of.
const SETTINGS: [&str; 5] = [
    "shared_preload_libraries=taskq",
    "taskq.databases=postgres, later, reassigned, degraded",
    "max_connections=30",
    "taskq.maintenance_interval=1h",
    "log_min_messages=debug1",
];

/// Starts a cluster whose database `postgres` has a worker that stays, and no tasks.
pub fn start(name: &str) -> Cluster {
    let cluster = Cluster::start(TMP, &format!("background-{name}"), &SETTINGS);
    // It has come before the extension, and looks for that again when something is due.
    let mut session = cluster.connect();
    session.run("SELECT taskq.insert_task('first', 'x', spontaneous => true, delay => '0.1 seconds')");
    until("it has come", || (session.state("first") == "completed").then_some(()));
    session.run("SELECT taskq.delete_tasks('{first}')");
    cluster
}

/// Starts a standby of another cluster.
pub fn standby(name: &str, primary: &Cluster) -> Cluster {
    Cluster::standby(TMP, &format!("background-{name}"), primary, &SETTINGS)
}

/// The process ids of the workers, of one database or of all.
pub fn workers(session: &mut Session, database: Option<&str>) -> Vec<i32> {
    let rows = session.query(
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'taskq worker' AND ($1::text IS NULL OR datname = $1)",
        &[&database],
    );
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}

/// Waits until the database has a worker that sleeps.
pub fn settled_down(session: &mut Session, database: &str) -> i32 {
    until("a worker sleeps", || {
        let rows = session
            .query(
                "SELECT pid FROM pg_stat_activity \
                  WHERE backend_type = 'taskq worker' AND datname = $1 AND state = 'idle' AND wait_event = \
                        CASE WHEN current_setting('server_version_num')::int >= 170000 THEN 'TaskqWorkerMain' ELSE 'Extension' END \
                    AND state_change < clock_timestamp() - interval '0.5 seconds'",
                &[&database],
            )
            .unwrap();
        rows.first().map(|row| row.get(0))
    })
}

/// Waits until that many runs of a schedule have been inserted.
pub fn runs(session: &mut Session, schedule: &str, at_least: i64) {
    until("runs are inserted", || {
        let count: i64 = session
            .query_one("SELECT count(*) FROM taskq.tasks WHERE id LIKE $1 || '@%'", &[&schedule])
            .unwrap()
            .get(0);
        (count >= at_least).then_some(())
    });
}
