//! Pairs of operations that touch the same task, edge, child, key, slot or group, and transactions of two calls, in orders of their steps,
//! as PostgreSQL's isolation tester would try them: each connection does its steps one by one, and one that waits for a lock
//! stays pending until it is released.
//!
//! There are no expected outputs. After each order what must be so is looked at:
//!
//! * the answers of the calls, the state, and how everything ends that is left to run are those of some *serial* order of the
//!   calls that were committed. So nothing is settled twice, lost or half done;
//! * a call that was refused is refused in some serial order, too. No other error is accepted but `40001` of a transaction
//!   under REPEATABLE READ or SERIALIZABLE that had another one beside it, and `40P01` where one of them makes several calls. Such
//!   a transaction is run again, and then the first rule is for it;
//! * where another was beside them, less is asked of calls that wait for no other (claims, upkeep), that choose by a filter, or that leave
//!   out a dependency which is not committed: see `scenes::Kind`, `scenes::Rules` and `forms.rs`. How many tasks `pause_group` has found is
//!   not compared then, nor which of several dependencies a task names that was aborted for their sake (`signals.rs`);
//! * `taskq.check()` finds nothing, no token is given out twice, nothing is granted before its dependencies have ended;
//! * no step waits when all others have ended.
//!
//! The operations are a table, `scenes/`. `make test-all` tries the pairs of `named.rs` and a choice of the others, which is another one with another `TASKQ_ISOLATION_SEED`.
//! `TASKQ_ISOLATION=long` tries all pairs, those at READ COMMITTED in all orders, the others in some, which takes an hour or two.
//! `TASKQ_ISOLATION_SCENE` and `TASKQ_ISOLATION_SPEC` restrict that to a scene, and to specs whose names have a text in
//! them.

mod bench;
mod forms;
mod jobs;
mod named;
mod oracle;
mod scenes;
mod signals;
mod spec;
mod stepper;
mod trial;

use taskq_tests::random::Random;

use jobs::{Job, long, one, pairs, run, seed, some, two};
use scenes::{Op, Scene};
use spec::{End, Level, Spec, Tx};

const COMMITTED: Level = Level::ReadCommitted;

/// Both ways round.
fn ordered(scene: &Scene) -> impl Iterator<Item = (&Op, &Op)> {
    pairs(scene).into_iter().flat_map(|(one, other)| [(one, other), (other, one)])
}

#[test]
fn pairs_in_transactions() {
    let scenes = scenes::all();
    let all = scenes.iter().flat_map(|scene| {
        let tx = |op| one(op, End::Commit, COMMITTED);
        pairs(scene).into_iter().map(move |(first, second)| two(scene, tx(first), tx(second)))
    });
    run("pairs in transactions", some(all, 120, 100));
}

#[test]
fn a_call_alone_beside_a_transaction() {
    let scenes = scenes::all();
    let all = scenes.iter().flat_map(|scene| {
        ordered(scene).map(move |(first, second)| {
            two(scene, one(first, End::Commit, COMMITTED), one(second, End::Alone, COMMITTED))
        })
    });
    run("a call alone beside a transaction", some(all, 120, 100));
}

#[test]
fn what_is_rolled_back_or_prepared_beside_a_call() {
    let scenes = scenes::all();
    let ends = [End::Rollback, End::Undo, End::Prepare].map(|end| [(end, End::Alone), (end, End::Commit)]);
    let all = ends.as_flattened().iter().flat_map(|&(end, other)| {
        scenes.iter().flat_map(move |scene| {
            ordered(scene).map(move |(first, second)| {
                two(scene, one(first, end, COMMITTED), one(second, other, COMMITTED))
            })
        })
    });
    run("rolled back or prepared", some(all, 150, 3));
}

#[test]
fn pairs_with_snapshots_that_last() {
    let scenes = scenes::all();
    let levels =
        [Level::RepeatableRead, Level::Serializable].map(|level| [(level, End::Commit), (level, End::Alone)]);
    let all = levels.as_flattened().iter().flat_map(|&(level, other)| {
        scenes.iter().flat_map(move |scene| {
            ordered(scene).map(move |(first, second)| {
                two(scene, one(first, End::Commit, level), one(second, other, level))
            })
        })
    });
    run("pairs with snapshots that last", some(all, 160, 4));
}

/// So many specs of two or three transactions, made by chance.
fn by_chance<'a>(
    scenes: &'a [Scene],
    short: usize,
    make: impl Fn(&mut Random, &'a Scene) -> Spec<'a>,
) -> Vec<Job<'a>> {
    let mut random = Random::new(seed());
    let scenes: Vec<&Scene> = scenes.iter().filter(|scene| jobs::wanted_scene(scene)).collect();
    let most = if long() { 20_000 } else { short };
    (0..most)
        .map(|_| {
            let scene = random.pick(&scenes);
            Job { spec: make(&mut random, scene), orders: if long() { 2 } else { 1 } }
        })
        .collect()
}

/// A level for all of them: what is shared is what they have in common.
fn level(random: &mut Random) -> Level {
    *random.pick(&[COMMITTED, COMMITTED, Level::RepeatableRead, Level::Serializable])
}

#[test]
fn transactions_of_two_calls() {
    let scenes = scenes::all();
    let jobs = by_chance(&scenes, 120, |random, scene| {
        let level = level(random);
        let mut call = || random.pick(&scene.ops);
        let first = Tx::new(&[call(), call()], End::Commit, level);
        let calls = [call(), call()];
        let second = match random.below(3) {
            0 => one(calls[0], End::Alone, level),
            1 => one(calls[0], End::Commit, level),
            _ => Tx::new(&calls, End::Commit, level),
        };
        two(scene, first, second)
    });
    run("transactions of two calls", jobs);
}

#[test]
fn two_calls_behind_a_third() {
    let scenes = scenes::all();
    let jobs = by_chance(&scenes, 120, |random, scene| {
        let level = level(random);
        let end = *random.pick(&[End::Rollback, End::Commit]);
        let holder = one(random.pick(&scene.ops), end, level);
        let mut other = || {
            let end = *random.pick(&[End::Alone, End::Alone, End::Commit]);
            one(random.pick(&scene.ops), end, level)
        };
        Spec { scene, txs: vec![holder, other(), other()] }
    });
    run("two calls behind a third", jobs);
}

/// The branch export's own: a worker that puts the end of the next round in the place of this round's and then returns its
/// task, in one transaction, beside a committer who replaces that task.
#[test]
fn the_branch_export() {
    let scenes = scenes::all();
    let scene = scenes.iter().find(|scene| scene.name == "export").expect("the scene");
    let op = |name: &str| scene.ops.iter().find(|op| op.name == name).expect("an operation");
    let mut all = Vec::new();
    for level in [COMMITTED, Level::RepeatableRead, Level::Serializable] {
        for first in ["replace done-export", "replace done-export, free"] {
            for last in ["return next-export", "give next-export back"] {
                let worker = Tx::new(&[op(first), op(last)], End::Commit, level);
                let committer = one(op("replace next-export"), End::Commit, level);
                all.push(two(scene, worker.clone(), committer));
                let committer =
                    Tx::new(&[op("replace next-export"), op("replace done-export")], End::Commit, level);
                all.push(two(scene, worker.clone(), committer));
                all.push(two(scene, worker, one(op("insert next-export"), End::Alone, level)));
            }
        }
    }
    let orders = if long() { 100 } else { 4 };
    run("the branch export", all.into_iter().map(|spec| Job { spec, orders }).collect());
}

#[test]
fn pairs_that_are_named() {
    let scenes = scenes::all();
    run("pairs that are named", named::jobs(&scenes));
}
