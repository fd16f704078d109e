//! Which name is probably meant by one that does not exist.

/// Names of keys as they were before 0.1.0.
const RENAMED: [(&str, &str); 3] = [("group", "group_id"), ("key", "merge_key"), ("unique", "unique_by")];

/// Names of arguments that are something else as a key.
const OTHERWISE: [(&str, &str, &str); 1] = [(
    "retention_aborted",
    "retention",
    ": it is \"aborted\" in \"retention\", {\"completed\": \"7 days\", \"aborted\": \"90 days\"} for instance",
)];

/// A clause about the key that is meant, if one comes near; `otherwise` has what other queues call theirs.
pub(super) fn meant(unknown: &str, known: &[&str], otherwise: &[(&str, &str)]) -> Option<String> {
    if let Some((_, now)) = RENAMED.iter().find(|(old, now)| *old == unknown && known.contains(now)) {
        return Some(format!(": it is now \"{now}\""));
    }
    if let Some((.., clause)) =
        OTHERWISE.iter().find(|(name, key, _)| *name == unknown && known.contains(key))
    {
        return Some((*clause).to_owned());
    }
    let plain = plain(unknown);
    let same = known.iter().find(|key| self::plain(key) == plain).copied();
    let foreign = || otherwise.iter().find(|(name, _)| self::plain(name) == plain).map(|(_, key)| *key);
    let key = same.or_else(foreign).or_else(|| near(unknown, known))?;
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
        const KNOWN: [&str; 7] = ["id", "action", "body", "max_tries", "depends_on", "group_id", "merge_key"];
        const FOREIGN: [(&str, &str); 2] = [("payload", "body"), ("attempts", "max_tries")];
        for (unknown, expected) in [
            ("group", Some(": it is now \"group_id\"")),
            ("key", Some(": it is now \"merge_key\"")),
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
            assert_eq!(meant(unknown, &KNOWN, &FOREIGN).as_deref(), expected, "{unknown}");
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
