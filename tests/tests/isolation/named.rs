//! Pairs that are tried each time, whatever the choice of the others is.

use crate::jobs::{Job, long, one, two};
use crate::scenes::Scene;
use crate::spec::{End, Level, Spec};

/// Pairs that have gone wrong, at all levels.
const ONCE: &[(&str, &str, &str)] = &[
    // Looked for ever for what had come after its snapshot.
    ("ready", "cancel all x", "replace p and c"),
    ("merge", "replace r", "reset g"),
    // The new one waited for ever for what the end of the old one had aborted.
    ("ready", "insert before p", "replace n"),
    // Skipped what had gone, and then missed it.
    ("ready", "delete p", "insert p or skip"),
    // Did not look the id up again.
    ("aborted", "replace c", "retry c"),
];

/// What other queues get wrong: each of the first beside each of the others.
const RACES: &[(&str, &[&str], &[&str])] = &[
    // Two that return a task; the last two parents of a task and of a milestone; an edge, a change or a removal beside the end that
    // it hears of.
    (
        "held",
        &["complete p", "abort p"],
        &[
            "abort p",
            "give p back",
            "complete q",
            "abort q",
            "insert after p",
            "insert between",
            "z after p and q",
            "update c",
            "cancel p",
            "delete c",
        ],
    ),
    // A grant beside what takes the task away or changes it.
    ("ready", &["own p"], &["cancel p", "delete p", "replace p", "update p", "insert before p"]),
    ("ready", &["replace p"], &["replace p", "delete p", "insert n"]),
    ("ready", &["update p"], &["insert n", "put p off"]),
    // A way back from an abort beside what goes by the abort.
    (
        "aborted",
        &["retry p"],
        &["complete q", "abort q", "retry p", "own s", "insert after p", "delete p", "replace p"],
    ),
    ("aborted", &["replace p"], &["insert after p", "s after d"]),
    // Children that hold back what waits for their parents.
    (
        "children",
        &["complete p with blocking k"],
        &["complete q with blocking l", "complete p", "insert after p", "cancel c", "replace c"],
    ),
    // Edges of which each is right, and both together are a cycle.
    (
        "edges",
        &["a before b", "insert b to n to a"],
        &["b before a", "insert a to o to b", "replace a after b"],
    ),
    ("edges", &["own a"], &["b before a"]),
    // A place that one gives back while the other looks for it.
    ("limit", &["own one"], &["complete p", "cancel p", "own one", "one place"]),
    (
        "unique",
        &["insert v or skip", "insert v, replacing"],
        &["insert w or skip", "own u", "insert v or fail"],
    ),
    ("schedule", &["pause s"], &["resume s", "run s", "drop s", "set s anew"]),
    ("schedule", &["drop s"], &["resume s", "run s", "set s anew"]),
];

/// Both tables; of each pair a few orders, in the long form all.
pub fn jobs(scenes: &[Scene]) -> Vec<Job<'_>> {
    let orders = if long() { 100 } else { 2 };
    let once = ONCE.iter().flat_map(|&(scene, first, second)| {
        let levels = [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
        levels.into_iter().flat_map(move |level| {
            let mut specs = ways(scenes, scene, [first, second], level, End::Alone);
            specs.extend(ways(scenes, scene, [first, second], level, End::Commit));
            specs
        })
    });
    let races = RACES.iter().flat_map(|&(scene, firsts, others)| {
        let pairs = firsts.iter().flat_map(|&first| others.iter().map(move |&other| [first, other]));
        pairs.flat_map(move |pair| {
            let mut specs = ways(scenes, scene, pair, Level::ReadCommitted, End::Alone);
            specs.extend(ways(scenes, scene, pair, Level::ReadCommitted, End::Commit).pop());
            specs
        })
    });
    once.chain(races).map(|spec| Job { spec, orders }).collect()
}

/// One in a transaction and the other beside it, which ends so; both ways round.
fn ways<'a>(scenes: &'a [Scene], scene: &str, names: [&str; 2], level: Level, end: End) -> Vec<Spec<'a>> {
    let scene = scenes.iter().find(|other| other.name == scene).expect("the scene");
    let op = |name: &str| scene.ops.iter().find(|op| op.name == name).expect("an operation");
    let [first, second] = names.map(op);
    [(first, second), (second, first)]
        .map(|(open, beside)| two(scene, one(open, End::Commit, level), one(beside, end, level)))
        .into()
}
