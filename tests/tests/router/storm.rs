//! A short storm: clients that only know the router, and shards that are killed under them. Each client writes down what it was
//! told; at the end the queue must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::random::Random;
use taskq_tests::{Session, sqlstate};

use super::{Rig, Servers};

/// What one client knows: insertions that were acknowledged, and ends.
#[derive(Default)]
struct Ledger {
    inserted: BTreeSet<String>,
    ended: BTreeMap<String, u32>,
    troubles: u32,
}

/// An error that a client must expect of a shard that goes.
fn expected(error: &postgres::Error) {
    assert!(["08001", "08006", "TQ001"].contains(&sqlstate(error)), "{error:?}");
}

fn client(n: u64, mut session: Session, over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger::default();
    let mut random = Random::new(n);
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        number += 1;
        let group = format!("group{}", random.below(40));
        let [first, second] = ["a", "b"].map(|part| format!("{n}-{number}-{part}"));
        let pair = json!([{"id": first, "action": "x", "group_id": group},
                          {"id": second, "action": "x", "group_id": group, "depends_on": [first]}]);
        match session.insert(pair) {
            Ok(_) => ledger.inserted.extend([first, second]),
            Err(error) => {
                expected(&error);
                ledger.troubles += 1;
            }
        }
        match session.own_with("w", 3, &["x"], "max_duration => '2 s', wait => '100 ms'") {
            Ok(grants) => {
                for grant in grants {
                    match session.give(&grant.task_id, grant.token, "completed") {
                        Ok(_) => *ledger.ended.entry(grant.task_id).or_default() += 1,
                        Err(error) => {
                            expected(&error);
                            ledger.troubles += 1;
                        }
                    }
                }
            }
            Err(error) => {
                expected(&error);
                ledger.troubles += 1;
            }
        }
    }
    ledger
}

#[test]
fn nothing_is_lost_or_done_twice_while_shards_come_and_go() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::alone(&servers, 3);
    let over = Arc::new(AtomicBool::new(false));
    let soak: u64 = std::env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let clients: Vec<_> = (0..4)
        .map(|n| {
            let (session, over) = (rig.router(), Arc::clone(&over));
            std::thread::spawn(move || client(n, session, &over))
        })
        .collect();
    let since = Instant::now();
    let mut random = Random::new(99);
    while since.elapsed() < Duration::from_secs(5 * soak) {
        std::thread::sleep(Duration::from_millis(700));
        // The first server has the router.
        rig.server(1 + usize::try_from(random.below(2)).unwrap()).crash();
    }
    over.store(true, Ordering::Relaxed);
    let ledgers: Vec<Ledger> = clients.into_iter().map(|client| client.join().unwrap()).collect();

    // Whatever is left is worked off.
    let mut router = rig.router();
    let mut ended: BTreeMap<String, u32> = BTreeMap::new();
    let since = Instant::now();
    loop {
        let grants = router.own_with("w", 100, &["x"], "wait => '2500 ms'").unwrap();
        if grants.is_empty() {
            break;
        }
        for grant in grants {
            router.complete(&grant);
            *ended.entry(grant.task_id).or_default() += 1;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "it does not end");
    }
    for ledger in &ledgers {
        for (id, times) in &ledger.ended {
            *ended.entry(id.clone()).or_default() += times;
        }
    }
    let twice: Vec<_> = ended.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "completed twice: {twice:?}");
    let mut completed = BTreeSet::new();
    for shard in 0..3 {
        let mut session = rig.shard(shard);
        assert_eq!(
            session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'"),
            0,
            "shard {shard}"
        );
        for id in session.all::<String>("SELECT id FROM taskq.tasks") {
            assert!(completed.insert(id.clone()), "{id} is on two shards");
        }
    }
    let inserted: BTreeSet<&String> = ledgers.iter().flat_map(|ledger| &ledger.inserted).collect();
    let lost: Vec<_> = inserted.iter().filter(|id| !completed.contains(**id)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    let unknown: Vec<_> = ended.keys().filter(|id| !completed.contains(*id)).collect();
    assert!(unknown.is_empty(), "completed, and not there: {unknown:?}");
    let troubles: u32 = ledgers.iter().map(|ledger| ledger.troubles).sum();
    assert!(
        inserted.len() > 20 && troubles > 0,
        "{} inserted, {troubles} calls met a shard that was down",
        inserted.len()
    );
}
