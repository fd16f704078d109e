//! `pg_upgrade`: tables, sequences and rights come along as they are, in the objects that the old server had; the library is the
//! new server's.
//!
//! The old server is that of the tests, since pg_upgrade goes to the same version as well; or the one whose `pg_config`
//! `TASKQ_OLD_SERVER` names. `make test-matrix` goes from the machine's to each of the others.

use std::collections::BTreeMap;

use serde_json::json;
use taskq_tests::full::{fill, snapshot, work_goes_on};
use taskq_tests::{Cluster, Session};

use crate::TMP;

/// What the catalog knows of the extension. A body that was dumped and read again is printed with other brackets, and with
/// names for columns that had none: without either.
fn objects(session: &mut Session) -> BTreeMap<(String, String), String> {
    session.run("SET search_path = pg_catalog");
    let rows = session.query(include_str!("../upgrade/objects.sql"), &[]).unwrap();
    session.run("RESET search_path");
    rows.iter().map(|row| ((row.get(0), row.get(1)), bare(row.get(2)))).collect()
}

fn bare(text: &str) -> String {
    let mut words =
        text.split(|c: char| c.is_whitespace() || "(),;".contains(c)).filter(|word| !word.is_empty());
    let mut bare = String::new();
    while let Some(word) = words.next() {
        match word {
            "AS" => drop(words.next()),
            _ => {
                bare.push_str(word);
                bare.push(' ');
            }
        }
    }
    bare
}

#[test]
fn a_queue_that_pg_upgrade_has_carried_over_is_worked_to_the_end() {
    let server = std::env::var("TASKQ_OLD_SERVER").ok();
    let old = Cluster::start_other(TMP, "recover-old-server", server, &[]);
    let mut session = old.connect();
    session.run("CREATE ROLE worker LOGIN; SELECT taskq.grant_worker('worker', '{x,of role}')");
    let held = fill(&mut session);
    let before = snapshot(&mut session);
    let version = "SELECT setting FROM pg_settings WHERE name = 'server_version'";
    let from: String = session.one(version);
    drop(session);

    let new = Cluster::upgraded(TMP, "recover-new-server", &old, &[]);
    let mut session = new.connect();
    eprintln!("from {from} to {}", session.one::<String>(version));
    assert_eq!(snapshot(&mut session), before);
    assert_eq!(session.broken(), [""; 0]);
    // As a fresh one on the new server: rights that were given and taken back leave those of the owner behind.
    let taken_back = "SELECT taskq.grant_worker('worker'); SELECT taskq.revoke_worker('worker')";
    session.run(taken_back);
    session.run("CREATE DATABASE fresh TEMPLATE template0");
    let mut fresh = new.connect_to("fresh");
    fresh.run("CREATE EXTENSION taskq");
    fresh.run(taken_back);
    let (found, wanted) = (objects(&mut session), objects(&mut fresh));
    drop(fresh);
    assert!(wanted.len() > 500);
    let differences: Vec<_> = found
        .iter()
        .filter(|(key, said)| wanted.get(*key) != Some(*said))
        .map(|(key, said)| format!("{key:?}: {said}, fresh: {:?}", wanted.get(key)))
        .chain(wanted.keys().filter(|key| !found.contains_key(*key)).map(|key| format!("{key:?} is missing")))
        .collect();
    assert_eq!(differences, [""; 0]);

    session.run("SELECT taskq.grant_worker('worker', '{of role}')");
    work_goes_on(&mut session, &held);
    let mut config = new.config();
    let mut worker = Session::open(config.user("worker").dbname("postgres")).unwrap();
    worker.insert(json!([{"id": "w", "action": "of role"}])).unwrap();
    assert_eq!(worker.perform("of role", "completed"), "w");
}
