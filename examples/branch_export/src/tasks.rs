//! The tasks of an export: their actions, ids and bodies.

use serde::{Deserialize, Serialize};

/// A commit arrived: create the next export.
pub const NEXT_EXPORT: &str = "next-export";
/// Plan an export: insert its tasks.
pub const START_EXPORT: &str = "start-export";
/// No worker touches the bucket any more; spontaneous, so no worker ever sees it.
pub const DONE_EXPORT: &str = "done-export";
/// Copy one object into the bucket.
pub const COPY: &str = "copy-object";
/// Delete one object from the bucket.
pub const DELETE: &str = "delete-object";
/// Write the `_SUCCESS` of one prefix.
pub const MARK: &str = "mark-success";
/// Write the list of what was exported.
pub const MANIFEST: &str = "write-manifest";

/// The actions that workers perform.
pub const WORK: [&str; 6] = [NEXT_EXPORT, START_EXPORT, COPY, DELETE, MARK, MANIFEST];

/// How often a task is tried before it counts as failed. A worker's death is a try, too.
pub const MAX_TRIES: u32 = 5;

/// The priority of tasks that are quick and that many others wait for: first in whatever batch they come with.
pub const URGENT: i32 = 1;

/// Body of `next-export`: the commit to export.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Names this request, for a client that wants to know what became of it.
    pub request: String,
    /// The branch.
    pub branch: String,
    /// The full id of the commit.
    pub commit: String,
}

/// One export; the body of `start-export` and `write-manifest`, and a part of the others'.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Export {
    /// Its number: a commit may be exported more than once.
    pub export: i64,
    /// The branch.
    pub branch: String,
    /// The full id of the commit.
    pub commit: String,
}

/// Body of `copy-object` and `delete-object`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Object {
    /// The export it belongs to.
    #[serde(flatten)]
    pub export: Export,
    /// The object's key below the branch.
    pub key: String,
    /// The git blob to copy; none to delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// Body of `mark-success`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// The export it belongs to.
    #[serde(flatten)]
    pub export: Export,
    /// The prefix, empty or with a slash at its end.
    pub prefix: String,
}

/// The id of the branch's task of this action. There is one at a time: the next export replaces the last one's.
pub fn branch_task(action: &str, branch: &str) -> String {
    format!("{action}-{branch}")
}

impl Export {
    /// What tells this export's tasks from those of any other.
    pub fn tag(&self) -> String {
        format!("{}.{}", self.commit.get(..10).unwrap_or(&self.commit), self.export)
    }

    /// The id of a task of this export alone, about this object if there is one.
    pub fn task(&self, action: &str, object: &str) -> String {
        let dash = if object.is_empty() { "" } else { "-" };
        shortened(format!("{action}-{}-{}{dash}{object}", self.branch, self.tag()), 900)
    }
}

/// Ids have a limit that paths do not: the end of a long one gives way to a hash of the whole.
fn shortened(id: String, limit: usize) -> String {
    if id.len() <= limit {
        return id;
    }
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3) // FNV-1a
    });
    let end = (0..=limit - 20).rev().find(|&end| id.is_char_boundary(end)).unwrap_or(0);
    format!("{}~{hash:016x}", &id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ids_stay_apart() {
        let (one, two) = ("é".repeat(600) + "1", "é".repeat(600) + "2");
        let (one, two) = (shortened(one, 900), shortened(two, 900));
        assert!(one != two && one.len() <= 900 && two.len() <= 900);
        assert_eq!(shortened("short".into(), 900), "short");
    }
}
