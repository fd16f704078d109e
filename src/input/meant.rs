//! Which name is probably meant by one that does not exist.

/// Names of keys as they were before 0.1.0.
const RENAMED: [(&str, &str); 4] =
    [("group", "group_id"), ("key", "merge_key"), ("unique", "unique_by"), ("maxduration", "lease")];

/// What other queues call some keys, where no spelling comes near.
const FOREIGN: [(&str, &str); 13] = [
    ("payload", "body"),
    ("args", "body"),
    ("data", "body"),
    ("queue", "action"),
    ("attempts", "max_tries"),
    ("maxattempts", "max_tries"),
    ("retries", "max_tries"),
    ("timeout", "lease"),
    ("runat", "not_before"),
    ("dependencies", "depends_on"),
    ("idempotencykey", "unique_by"),
    ("taskid", "id"),
    ("id", "task_id"),
];

/// A clause about the key that is meant, if one comes near.
pub(super) fn meant(unknown: &str, known: &[&str]) -> Option<String> {
    if unknown == "retention_aborted" && known.contains(&"retention") {
        let like = "{\"completed\": \"7 days\", \"aborted\": \"90 days\"}";
        return Some(format!(": it is \"aborted\" in \"retention\", as in {like}"));
    }
    let plain = plain(unknown);
    let of = |list: &[(&str, &'static str)]| {
        list.iter().find(|(name, key)| *name == plain && known.contains(key)).map(|(_, key)| *key)
    };
    if let Some(now) = of(&RENAMED) {
        return Some(format!(": it is now \"{now}\""));
    }
    let key = of(&FOREIGN).or_else(|| near(unknown, known))?;
    Some(format!(": \"{key}\" is probably meant"))
}

/// The name that comes nearest, if one is near.
pub(crate) fn near<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = plain(unknown);
    let distances = known.iter().map(|name| (distance(&plain, &self::plain(name)), *name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= (plain.chars().count() / 3).min(3)).then_some(name)
}

/// The letters and digits of a name, whatever its style. No known name is longer than this; what a caller gives may be.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).take(40).collect::<String>().to_lowercase()
}

/// How many steps make one text of the other: a character is changed, added, left out or swapped with its neighbour, and those
/// that were swapped stay as they are.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let changed = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = changed.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_styles_and_foreign_names_find_their_key() {
        const KNOWN: [&str; 8] =
            ["id", "action", "body", "lease", "max_tries", "depends_on", "group_id", "merge_key"];
        for (unknown, expected) in [
            ("group", Some(": it is now \"group_id\"")),
            ("key", Some(": it is now \"merge_key\"")),
            ("max_duration", Some(": it is now \"lease\"")),
            // Not a key of this object under any name.
            ("unique", None),
            ("max_trys", Some(": \"max_tries\" is probably meant")),
            ("maxTries", Some(": \"max_tries\" is probably meant")),
            ("DependsOn", Some(": \"depends_on\" is probably meant")),
            ("depend_on", Some(": \"depends_on\" is probably meant")),
            ("acton", Some(": \"action\" is probably meant")),
            ("aciton", Some(": \"action\" is probably meant")),
            ("bdoy", Some(": \"body\" is probably meant")),
            ("Payload", Some(": \"body\" is probably meant")),
            ("groupId", Some(": \"group_id\" is probably meant")),
            ("zork", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(meant(unknown, &KNOWN).as_deref(), expected, "{unknown}");
        }
    }

    #[test]
    fn distances_are_those_of_the_alphabet() {
        for (a, b, d) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), d, "{a} {b}");
        }
    }
}
