//! The last parents of a task are returned at the same moment, by two sessions that call nothing else. A call that
//! sleeps for what comes of it is woken: for work in both ways, for one task, for several. Where each of the two
//! commits leaves the counting to the other, they sleep until their slow looks.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use taskq_tests::{Background, Db};

#[test]
fn the_last_of_two_returns_wakes_all_waiting_calls() {
    let (db, [mut session]) = Db::connected();
    const ROUNDS: usize = 15;
    let mut slowest = Duration::ZERO;
    for round in 0..ROUNDS {
        let parents = [format!("p{round}"), format!("q{round}")];
        let (mark, seal) = (format!("mark {round}"), format!("seal {round}"));
        let tasks: Vec<Value> = parents
            .iter()
            .map(|id| json!({"id": id, "action": "parent"}))
            .chain(["granted", "announced"].map(|action| json!({"action": action, "depends_on": parents})))
            .chain(
                [&mark, &seal]
                    .map(|id| json!({"id": id, "action": "s", "spontaneous": true, "depends_on": parents})),
            )
            .collect();
        session.insert(Value::Array(tasks)).unwrap();
        let held = session.own("w", 2, &["parent"]).unwrap();
        let sleepers: Vec<Background<()>> = vec![
            db.connect().background(|session| {
                assert_eq!(session.own_with("w", 1, &["granted"], "wait => '60 s'").unwrap().len(), 1);
            }),
            db.connect().background(|session| {
                assert!(session.one::<bool>("CALL taskq.wait_for_work('{announced}', '60 s', NULL)"));
                session.own_one("announced");
            }),
            db.connect().background(move |session| {
                assert_eq!(session.wait(&mark, "60 s").unwrap().unwrap().status_code, "completed");
            }),
            db.connect().background(move |session| {
                let call = format!("CALL taskq.wait_for_tasks('{{{seal}}}', '60 s', NULL)");
                assert_eq!(session.one::<i32>(&call), 1);
            }),
        ];
        for sleeper in &sleepers {
            session.until_asleep(sleeper.pid());
        }
        let together = Arc::new(Barrier::new(2));
        let returns: Vec<Background<Instant>> = held
            .into_iter()
            .map(|grant| {
                let together = together.clone();
                db.connect().background(move |session| {
                    together.wait();
                    session.complete(&grant);
                    Instant::now()
                })
            })
            .collect();
        let returned = returns.into_iter().map(|r| r.join().1).max().unwrap();
        for sleeper in sleepers {
            sleeper.join();
        }
        slowest = slowest.max(returned.elapsed());
    }
    // Slow looks come after five seconds at the earliest, and the machine may be busy.
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
}
