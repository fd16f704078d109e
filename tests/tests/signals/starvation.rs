//! A return of a parent beside a steady stream of insertions of its children. Each insertion holds the parent until its
//! commit, and they overlap: a queue that lets the next one join the others keeps the return waiting for as long as the
//! stream lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::json;
use taskq_tests::{Background, Db};

const PRODUCERS: usize = 12;
/// How long the stream lasts if nothing ends it.
const LONGEST: Duration = Duration::from_secs(30);

#[test]
fn a_return_gets_through_a_stream_of_insertions_below_its_task() {
    let (db, [mut session]) = Db::with_tasks(json!([{"id": "parent", "action": "parent"}]));
    let parent = session.own_one("parent");
    let (over, inserted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    let start = Instant::now();
    let producers: Vec<Background<()>> = (0..PRODUCERS)
        .map(|_| {
            let (over, inserted) = (over.clone(), inserted.clone());
            db.connect().background(move |session| {
                while !over.load(SeqCst) && start.elapsed() < LONGEST {
                    // Something of the application's first, as usual.
                    session.run("BEGIN; CREATE TEMPORARY TABLE IF NOT EXISTS mine (n int); INSERT INTO mine VALUES (1)");
                    session.insert(json!([{"action": "child", "depends_on": ["parent"]}])).unwrap();
                    inserted.fetch_add(1, SeqCst);
                    session.run("SELECT pg_sleep(0.25); COMMIT");
                }
            })
        })
        .collect();
    // The stream is under way: at any time some of them hold the parent.
    taskq_tests::until("all have inserted", || (inserted.load(SeqCst) >= 2 * PRODUCERS as i64).then_some(()));
    session.complete(&parent);
    let through = !over.swap(true, SeqCst) && start.elapsed() < LONGEST;
    for producer in producers {
        producer.join();
    }
    assert!(through, "the return got through only when the stream had ended");
    let children: i64 =
        session.one("SELECT count(*) FROM taskq.tasks WHERE action = 'child' AND state = 'ready'");
    assert_eq!(children, inserted.load(SeqCst));
}

#[test]
fn an_insertion_does_not_give_way_to_a_return_that_waits_for_it() {
    // Its transaction holds the parent already: the return waits for that, and to wait for the return would be in vain.
    let (db, [mut producer, mut watcher]) = Db::connected();
    watcher.insert(json!([{"id": "parent", "action": "parent"}])).unwrap();
    let parent = watcher.own_one("parent");
    producer.run("BEGIN");
    producer.insert(json!([{"id": "c", "action": "child", "depends_on": ["parent"]}])).unwrap();
    let returning = db.connect().background(move |session| session.complete(&parent));
    returning.settle_down(&mut watcher);
    let start = Instant::now();
    const MORE: usize = 20;
    for n in 0..MORE {
        let id = format!("c{n}");
        producer.insert(json!([{"id": id, "action": "child", "depends_on": ["parent"]}])).unwrap();
    }
    // Half a second each would be ten.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    producer.run("COMMIT");
    returning.join();
    assert_eq!(watcher.own("w", 100, &["child"]).unwrap().len(), MORE + 1);
}
