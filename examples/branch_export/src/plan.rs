//! The plan of one export: which tasks, and what waits for what. No I/O here.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::git::Tree;
use crate::keys::{SUCCESS, prefixes_above, prefixes_of};
use crate::tasks::{
    COPY, DELETE, DONE_EXPORT, Export, MANIFEST, MARK, MAX_TRIES, Mark, Object, START_EXPORT, URGENT,
    branch_task,
};

/// The two tasks that frame an export, for `replace_tasks`: their ids are the branch's.
///
/// `done-export` exists from here on, so that the next commit has something to wait for; and it waits for
/// `start-export`, without which it would be done at once.
pub fn frame(export: &Export) -> Value {
    let start = branch_task(START_EXPORT, &export.branch);
    json!([
        { "id": start, "action": START_EXPORT, "body": export, "max_tries": MAX_TRIES, "priority": URGENT },
        { "id": branch_task(DONE_EXPORT, &export.branch), "action": DONE_EXPORT, "spontaneous": true,
          "depends_on": [start] },
    ])
}

/// The tasks of an export of `tree` over the objects that the bucket holds, for `insert_tasks`.
///
/// Copies and deletes count into `done-export` however they end (`settled`): one failure must not make the bucket
/// look quiet while others are still writing to it. Marks wait for success (`completed`), so that a failure
/// leaves its prefix, and all above it, without one; and with them the manifest.
pub fn tasks(export: &Export, tree: &Tree, bucket: &[String]) -> Vec<Value> {
    let done = json!({ "id": branch_task(DONE_EXPORT, &export.branch), "condition": "settled" });
    let prefixes = prefixes_of(tree.keys().map(String::as_str));
    let mark = |prefix: &str| export.task(MARK, &format!("{prefix}{SUCCESS}"));
    let object = |key: &str, blob: Option<&String>| Object {
        export: export.clone(),
        key: key.to_owned(),
        blob: blob.cloned(),
    };
    let mut plan = Vec::with_capacity(tree.len() + prefixes.len() + 1);

    let mut in_the_way = BTreeMap::<&str, Vec<String>>::new();
    for key in bucket.iter().filter(|key| !tree.contains_key(*key)) {
        let id = export.task(DELETE, key);
        for copied in blocked_by(key, tree) {
            in_the_way.entry(copied).or_default().push(id.clone());
        }
        // The innermost prefix that will be there; the root always is.
        let prefix = prefixes_above(key).find(|prefix| prefixes.contains(*prefix)).unwrap_or_default();
        plan.push(json!({
            "id": id, "action": DELETE, "body": object(key, None), "max_tries": MAX_TRIES,
            "to_signal_after": [mark(prefix), done],
        }));
    }
    for (key, blob) in tree {
        let prefix = prefixes_above(key).next().unwrap_or_default();
        plan.push(json!({
            "id": export.task(COPY, key), "action": COPY, "body": object(key, Some(blob)), "max_tries": MAX_TRIES,
            "depends_on": in_the_way.remove(key.as_str()).unwrap_or_default(),
            "to_signal_after": [mark(prefix), done],
        }));
    }
    for prefix in &prefixes {
        let mut after = vec![done.clone()];
        // A prefix counts for the one above it through its own mark; the root's is for the manifest.
        after.push(match prefixes_above(prefix).next() {
            Some(above) => json!(mark(above)),
            None => json!(export.task(MANIFEST, "")),
        });
        plan.push(json!({
            "id": mark(prefix), "action": MARK, "max_tries": MAX_TRIES,
            "body": Mark { export: export.clone(), prefix: prefix.clone() },
            "to_signal_after": after,
        }));
    }
    plan.push(json!({
        "id": export.task(MANIFEST, ""), "action": MANIFEST, "body": export, "max_tries": MAX_TRIES,
        "depends_on": [branch_task(DONE_EXPORT, &export.branch)],
    }));
    plan
}

/// The keys of the tree that cannot be written before the object `gone` is deleted. A store would take `a` beside
/// `a/b`; a folder cannot hold both.
fn blocked_by<'a>(gone: &'a str, tree: &'a Tree) -> impl Iterator<Item = &'a str> {
    let folder = format!("{gone}/");
    let below = tree
        .range(folder.clone()..)
        .map(|(key, _)| key.as_str())
        .take_while(move |key| key.starts_with(&folder))
        .collect::<Vec<_>>();
    let above = prefixes_above(gone)
        .map(|prefix| prefix.trim_end_matches('/'))
        .filter_map(|path| tree.get_key_value(path).map(|(key, _)| key.as_str()));
    below.into_iter().chain(above)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan_of(files: &[&str], bucket: &[&str]) -> BTreeMap<String, Value> {
        let export = Export { export: 7, branch: "b".into(), commit: "0123456789abcdef".into() };
        let tree = files.iter().map(|key| (key.to_string(), "blob".to_string())).collect();
        let bucket: Vec<String> = bucket.iter().map(|key| key.to_string()).collect();
        let plan = tasks(&export, &tree, &bucket).into_iter();
        plan.map(|task| (short(task["id"].as_str().unwrap()), task)).collect()
    }

    /// Ids without what is the same in all of them.
    fn short(id: &str) -> String {
        id.replace("-b-0123456789.7", "").replacen("-object-", " ", 1).replacen("-success-", " ", 1)
    }

    fn ids(list: &Value) -> BTreeSet<String> {
        let id = |item: &Value| short(item.as_str().or(item["id"].as_str()).unwrap());
        list.as_array().unwrap().iter().map(id).collect()
    }

    #[test]
    fn every_prefix_is_marked_after_what_is_below_it() {
        let plan = plan_of(&["a/b/1", "a/2", "3"], &["a/b/1", "gone/x/4"]);
        let names: Vec<&str> = plan.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "copy 3",
                "copy a/2",
                "copy a/b/1",
                "delete gone/x/4",
                "mark _SUCCESS",
                "mark a/_SUCCESS",
                "mark a/b/_SUCCESS",
                "write-manifest"
            ]
        );
        let signals = |id: &str| ids(&plan[id]["to_signal_after"]);
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
        assert_eq!(signals("copy a/b/1"), set(&["done-export-b", "mark a/b/_SUCCESS"]));
        assert_eq!(signals("mark a/b/_SUCCESS"), set(&["done-export-b", "mark a/_SUCCESS"]));
        assert_eq!(signals("mark _SUCCESS"), set(&["done-export-b", "write-manifest"]));
        assert_eq!(signals("delete gone/x/4"), set(&["done-export-b", "mark _SUCCESS"]));
    }

    #[test]
    fn what_is_in_the_way_is_deleted_first() {
        let plan = plan_of(&["a", "b/c"], &["a/x/1", "a/2", "b"]);
        let waits = |id: &str| ids(&plan[id]["depends_on"]);
        assert_eq!(waits("copy a").len(), 2);
        assert_eq!(waits("copy b/c"), BTreeSet::from(["delete b".to_string()]));
    }
}
