//! What is built, inserted and worked off: a block starts once *all* of the block before it has ended, however they nest.
//! (Other libraries forward a group in a chain member by member, or lose the callback of a chord inside a chord.) Random
//! expressions are compared with the order that they say.

use std::collections::{BTreeMap, BTreeSet};

use taskq_tests::random::Random;
use taskq_tests::{Db, Session};

/// An expression of the builders.
enum Block {
    Task(String),
    Chain(Vec<Block>),
    Parallel(Vec<Block>),
    Chord(Box<Block>, Box<Block>),
}

impl Block {
    fn random(random: &mut Random, depth: usize, next: &mut usize) -> Block {
        if depth == 0 || random.chance(25) {
            *next += 1;
            return Block::Task(format!("t{next}"));
        }
        let mut blocks =
            |n: usize| (0..n).map(|_| Block::random(random, depth - 1, next)).collect::<Vec<_>>();
        match depth % 3 {
            0 => Block::Chain(blocks(3)),
            1 => Block::Parallel(blocks(3)),
            _ => {
                let mut two = blocks(2);
                let callback = two.pop().unwrap();
                Block::Chord(Box::new(two.pop().unwrap()), Box::new(callback))
            }
        }
    }

    fn sql(&self) -> String {
        let list = |blocks: &[Block]| blocks.iter().map(Block::sql).collect::<Vec<_>>().join(", ");
        match self {
            Block::Task(id) => format!("'{{\"id\": \"{id}\", \"action\": \"x\"}}'::jsonb"),
            Block::Chain(blocks) => format!("taskq.chain({})", list(blocks)),
            Block::Parallel(blocks) => format!("taskq.parallel({})", list(blocks)),
            Block::Chord(header, callback) => format!("taskq.chord({}, {})", header.sql(), callback.sql()),
        }
    }

    fn tasks(&self) -> BTreeSet<String> {
        match self {
            Block::Task(id) => BTreeSet::from([id.clone()]),
            Block::Chain(blocks) | Block::Parallel(blocks) => blocks.iter().flat_map(Block::tasks).collect(),
            Block::Chord(header, callback) => header.tasks().union(&callback.tasks()).cloned().collect(),
        }
    }

    /// For each task, which ones must have ended before it starts.
    fn before(&self, all: &mut BTreeMap<String, BTreeSet<String>>) {
        let sequence = |blocks: &[&Block], all: &mut BTreeMap<String, BTreeSet<String>>| {
            let mut earlier = BTreeSet::new();
            for block in blocks {
                block.before(all);
                for id in block.tasks() {
                    all.entry(id).or_default().extend(earlier.iter().cloned());
                }
                earlier.extend(block.tasks());
            }
        };
        match self {
            Block::Task(id) => drop(all.entry(id.clone()).or_default()),
            Block::Chain(blocks) => sequence(&blocks.iter().collect::<Vec<_>>(), all),
            Block::Parallel(blocks) => blocks.iter().for_each(|block| block.before(all)),
            Block::Chord(header, callback) => sequence(&[header, callback], all),
        }
    }
}

fn insert(session: &mut Session, expression: &str) {
    session.run(&format!("SELECT * FROM taskq.insert_tasks({expression})"));
}

#[test]
fn random_nestings_run_in_exactly_the_order_that_they_say() {
    for seed in 1..=15 {
        let (_db, [mut session]) = Db::connected();
        let mut random = Random::new(seed);
        let block = Block::random(&mut random, 5, &mut 0);
        insert(&mut session, &format!("taskq.parallel({})", block.sql()));
        let mut before = BTreeMap::new();
        block.before(&mut before);
        // What has no more to wait for must be free: neither too early, nor too late.
        let mut done = BTreeSet::new();
        while done.len() < before.len() {
            let free: BTreeSet<String> =
                session.all("SELECT id FROM taskq.tasks WHERE state = 'ready'").into_iter().collect();
            let expected: BTreeSet<String> = before
                .iter()
                .filter(|(id, waits)| !done.contains(*id) && waits.is_subset(&done))
                .map(|(id, _)| id.clone())
                .collect();
            assert_eq!(free, expected, "seed {seed}, after {done:?} of {}", block.sql());
            let some = 1 + random.below(3) as i32;
            for grant in session.own("w", some, &["x"]).unwrap() {
                session.complete(&grant);
                done.insert(grant.task_id);
            }
        }
    }
}

#[test]
fn a_chord_of_chords_calls_each_callback_once_with_the_results_of_its_own_header() {
    let (_db, [mut session]) = Db::connected();
    let inner =
        |n: i32| format!("taskq.chord(taskq.map('double', '[{n}, {}]'), '{{\"action\": \"add\"}}')", n + 1);
    let outer = format!(
        "taskq.chord(taskq.parallel({}, {}, {}), '{{\"id\": \"total\", \"action\": \"add\"}}')",
        inner(1),
        inner(10),
        inner(100)
    );
    insert(&mut session, &outer);
    session.run(
        "SELECT taskq.return_task(task_id, token, result => to_jsonb(2 * body::integer)) FROM taskq.own_tasks('w', 99, '{double}')",
    );
    // What an actor of `add` does, until there is nothing more to do.
    let add = "SELECT count(taskq.return_task(task_id, token, result =>
                       (SELECT to_jsonb(sum((r ->> 'result')::integer)) FROM jsonb_array_elements(results) AS r)))
                 FROM taskq.own_tasks('w', 99, '{add}', with_results => true)";
    assert_eq!([session.one::<i64>(add), session.one(add), session.one(add)], [3, 1, 0]);
    assert_eq!(
        session.task("total").unwrap().result,
        Some(serde_json::json!(2 * (1 + 2 + 10 + 11 + 100 + 101)))
    );
}
