//! The judge: does the bucket hold what git says, and did everything happen in the order that the tasks demanded?

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bucket::Bucket;
use crate::fleet::Killed;
use crate::git::{Git, Tree};
use crate::keys::{SUCCESS, prefixes_above, prefixes_of};
use crate::ledger::{self, Line};
use crate::queue::Queue;
use crate::tasks::{
    COPY, DELETE, DONE_EXPORT, Export, MANIFEST, MARK, NEXT_EXPORT, START_EXPORT, branch_task,
};

/// All that is to be judged.
pub struct Evidence<'a> {
    /// The objects of git.
    pub git: &'a Git,
    /// What was exported to.
    pub bucket: &'a Bucket,
    /// The two exports, in order, each with its request.
    pub exports: [(Export, String); 2],
    /// What the bucket held before.
    pub leftovers: &'a [String],
    /// The worker that was killed.
    pub killed: &'a Killed,
}

type Judgement<'a> = (&'static str, Box<dyn FnOnce(&mut Queue) -> Result<String> + 'a>);

/// Judges everything, prints each judgement, and fails if there is one against the export.
pub fn run(queue: &mut Queue, evidence: &Evidence<'_>) -> Result<()> {
    let [(first, _), (second, second_request)] = &evidence.exports;
    let trees = [evidence.git.tree(&first.commit)?, evidence.git.tree(&second.commit)?];
    let lines = [ledger::lines(queue.client(), first.export)?, ledger::lines(queue.client(), second.export)?];
    let arrived = ledger::arrival(queue.client(), second_request)?;
    let judgements: Vec<Judgement<'_>> = vec![
        ("every object is git's blob, and there is no other", Box::new(|_| objects(evidence, &trees[1]))),
        ("every prefix has its mark, of the last commit", Box::new(|_| marks(evidence, &trees[1]))),
        ("both exports have a true manifest", Box::new(|_| manifests(evidence, &trees))),
        ("every task was done, and recorded once", Box::new(|_| complete(evidence, &trees, &lines))),
        ("every mark began after all below it had ended", Box::new(|_| ordered(&lines))),
        ("the second export began after the first had ended", Box::new(|_| serialised(&lines, arrived))),
        ("the tasks of the killed worker were done by others", Box::new(|queue| inherited(queue, evidence))),
        ("the queue says so, too: all are completed", Box::new(|queue| settled(queue, evidence, &lines))),
        ("the stored state is sound", Box::new(sound)),
    ];
    let (mut failures, total) = (0, judgements.len());
    for (claim, judge) in judgements {
        match judge(queue) {
            Ok(facts) => println!("  ok      {claim} ({facts})"),
            Err(error) => {
                failures += 1;
                println!("  FAILED  {claim}: {error:#}");
            }
        }
    }
    ensure!(failures == 0, "{failures} of {total} checks failed");
    Ok(())
}

fn objects(evidence: &Evidence<'_>, tree: &Tree) -> Result<String> {
    let branch = &evidence.exports[1].0.branch;
    let found = evidence.bucket.list(branch)?.objects;
    same(tree.keys(), found.iter())?;
    let files: Vec<PathBuf> = tree.keys().map(|key| evidence.bucket.object(branch, key)).collect();
    let hashes = evidence.git.hashes(&files)?;
    for ((key, blob), hash) in tree.iter().zip(&hashes) {
        ensure!(blob == hash, "{key} should be blob {blob} and is {hash}");
    }
    Ok(format!("{} compared by hash", hashes.len()))
}

fn marks(evidence: &Evidence<'_>, tree: &Tree) -> Result<String> {
    let export = &evidence.exports[1].0;
    let prefixes = prefixes_of(tree.keys().map(String::as_str));
    same(prefixes.iter(), evidence.bucket.list(&export.branch)?.marks.iter())?;
    for prefix in &prefixes {
        let mark = json_file(&evidence.bucket.object(&export.branch, &format!("{prefix}{SUCCESS}")))?;
        ensure!(mark["commit"] == export.commit.as_str(), "the one of {prefix:?} says {mark}");
    }
    Ok(format!("{} prefixes", prefixes.len()))
}

fn manifests(evidence: &Evidence<'_>, trees: &[Tree; 2]) -> Result<String> {
    for ((export, _), tree) in evidence.exports.iter().zip(trees) {
        let manifest = json_file(&evidence.bucket.manifest(export))?;
        ensure!(manifest["commit"] == export.commit.as_str(), "it names {}", manifest["commit"]);
        ensure!(manifest["objects"] == serde_json::to_value(tree)?, "that of {} is wrong", export.commit);
    }
    Ok(format!("{} and {} objects", trees[0].len(), trees[1].len()))
}

/// Compares the ledger with what git says had to be done, not with the plan: that might be wrong itself.
fn complete(evidence: &Evidence<'_>, trees: &[Tree; 2], lines: &[Vec<Line>; 2]) -> Result<String> {
    let before = [evidence.leftovers.iter().collect::<Vec<_>>(), trees[0].keys().collect()];
    for ((tree, before), lines) in trees.iter().zip(before).zip(lines) {
        let of = |action: &str| {
            let objects = lines.iter().filter(|line| line.action == action).map(|line| &line.object);
            objects.collect::<Vec<_>>()
        };
        same(tree.keys(), of(COPY)).context("copies")?;
        same(before.into_iter().filter(|key| !tree.contains_key(*key)), of(DELETE)).context("deletes")?;
        let prefixes = prefixes_of(tree.keys().map(String::as_str));
        let marks: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}{SUCCESS}")).collect();
        same(&marks, of(MARK)).context("marks")?;
        for action in [NEXT_EXPORT, START_EXPORT, MANIFEST] {
            ensure!(of(action).len() == 1, "{action} is recorded {} times", of(action).len());
        }
    }
    let actors: BTreeSet<&str> = lines.iter().flatten().map(|line| line.actor.as_str()).collect();
    Ok(format!("{} and {} tasks, by {} workers", lines[0].len(), lines[1].len(), actors.len()))
}

fn ordered(lines: &[Vec<Line>; 2]) -> Result<String> {
    let mut comparisons = 0;
    for lines in lines {
        // Of each prefix, what ended last below it, the marks of sub-prefixes included.
        let mut last = HashMap::<&str, &Line>::new();
        let stored = |line: &&Line| [COPY, DELETE, MARK].contains(&line.action.as_str());
        for line in lines.iter().filter(stored) {
            let own = usize::from(line.action == MARK); // a mark is not below itself
            for prefix in prefixes_above(&line.object).skip(own) {
                let latest = last.entry(prefix).or_insert(line);
                if line.ended > latest.ended {
                    *latest = line;
                }
            }
        }
        for mark in lines.iter().filter(|line| line.action == MARK) {
            let prefix = mark.object.strip_suffix(SUCCESS).unwrap_or_default();
            if let Some(below) = last.get(prefix) {
                let (began, ended) = (mark.began, below.ended);
                ensure!(began > ended, "{} began at {began}, but {} ended at {ended}", mark.task, below.task);
                comparisons += 1;
            }
        }
    }
    Ok(format!("{comparisons} marks"))
}

fn serialised(lines: &[Vec<Line>; 2], arrived: i64) -> Result<String> {
    let touches = |line: &&Line| line.action != MANIFEST;
    let last = lines[0].iter().filter(touches).max_by_key(|line| line.ended).context("no first export")?;
    let next = lines[1].iter().min_by_key(|line| line.began).context("no second export")?;
    let (end, begin) = (last.ended, next.began);
    ensure!(
        next.action == NEXT_EXPORT && begin > end,
        "{} began at {begin}, {end} ended {}",
        next.task,
        last.task
    );
    let copies = || lines[0].iter().filter(|line| line.action == COPY);
    let (before, after) = (
        copies().filter(|line| line.ended < arrived).count(),
        copies().filter(|line| line.ended > arrived).count(),
    );
    ensure!(arrived < end && after > 0, "the second commit did not arrive in mid-export");
    Ok(format!("its commit arrived when {before} of {} objects were copied", before + after))
}

fn inherited(queue: &mut Queue, evidence: &Evidence<'_>) -> Result<String> {
    let Killed { actor, held } = evidence.killed;
    ensure!(!held.is_empty(), "it held none");
    for (task, deadline) in held {
        let row = queue.client().query_opt(
            "SELECT actor, num_try, began_at >= $2::text::timestamptz FROM branch_export.ledger
              WHERE task_id = $1 AND export = $3",
            &[task, deadline, &evidence.exports[0].0.export],
        )?;
        let row = row.with_context(|| format!("no worker has done {task}"))?;
        let (heir, num_try, waited): (String, i32, bool) = (row.get(0), row.get(1), row.get(2));
        ensure!(heir != *actor && num_try > 1, "{task} was done by {heir} at try {num_try}");
        ensure!(waited, "{task} was granted to {heir} before its lease had ended");
    }
    Ok(format!("{} tasks of {actor}, each after its lease", held.len()))
}

fn settled(queue: &mut Queue, evidence: &Evidence<'_>, lines: &[Vec<Line>; 2]) -> Result<String> {
    let mut ids: BTreeSet<&str> = lines.iter().flatten().map(|line| line.task.as_str()).collect();
    let done = branch_task(DONE_EXPORT, &evidence.exports[0].0.branch);
    ids.insert(&done);
    let ids: Vec<&str> = ids.into_iter().collect();
    let rows = queue.client().query(
        "SELECT state, sum(count)::bigint FROM taskq.count_tasks(ids => $1) GROUP BY state",
        &[&ids],
    )?;
    let states: BTreeMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected = BTreeMap::from([("completed".to_owned(), i64::try_from(ids.len())?)]);
    ensure!(states == expected, "of {} tasks it counts {states:?}", ids.len());
    Ok(format!("{} tasks", ids.len()))
}

fn sound(queue: &mut Queue) -> Result<String> {
    let rows = queue.client().query("SELECT violation::text FROM taskq.check() AS violation", &[])?;
    if let Some(row) = rows.first() {
        bail!("taskq.check() has {} rows, such as {}", rows.len(), row.get::<_, String>(0));
    }
    Ok("taskq.check() has no rows".into())
}

fn json_file(path: &std::path::Path) -> Result<Value> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))
}

/// Fails where these are not the same, each exactly once; says which.
fn same<'a>(
    expected: impl IntoIterator<Item = &'a String>,
    found: impl IntoIterator<Item = &'a String>,
) -> Result<()> {
    let mut balance = BTreeMap::<&str, i64>::new();
    for name in expected {
        *balance.entry(name).or_default() -= 1;
    }
    for name in found {
        *balance.entry(name).or_default() += 1;
    }
    match balance.iter().find(|(_, count)| **count != 0) {
        None => Ok(()),
        Some((name, count)) if *count < 0 => bail!("{name:?} is missing"),
        Some((name, _)) => bail!("{name:?} is there, or there twice, and should not be"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(action: &str, object: &str, began: i64, ended: i64) -> Line {
        let (action, object) = (action.to_owned(), object.to_owned());
        Line { task: format!("{action} {object}"), action, object, actor: "a".into(), began, ended }
    }

    #[test]
    fn a_mark_that_began_too_early_is_found() {
        let good =
            vec![line(COPY, "a/1", 1, 2), line(MARK, "a/_SUCCESS", 3, 4), line(MARK, "_SUCCESS", 5, 6)];
        assert!(ordered(&[good.clone(), vec![]]).is_ok());
        let mut early = good.clone();
        early[1].began = 1;
        assert!(ordered(&[early, vec![]]).is_err());
        let mut root = good;
        root[2].began = 3;
        assert!(ordered(&[vec![], root]).unwrap_err().to_string().contains("a/_SUCCESS ended at 4"));
    }

    #[test]
    fn differences_are_named() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        assert!(same(&names(&["a", "b"]), &names(&["b", "a"])).is_ok());
        assert!(
            same(&names(&["a", "b"]), &names(&["a"])).unwrap_err().to_string().contains("\"b\" is missing")
        );
        assert!(same(&names(&["a"]), &names(&["a", "a"])).is_err());
    }
}
