//! Object keys: the paths of a commit as the bucket knows them, and the prefixes above them.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// The name of the object that says "everything below this prefix is there".
pub const SUCCESS: &str = "_SUCCESS";

/// Makes a key of a path in a git tree.
///
/// Keys are UTF-8, so stray bytes of a path are percent-encoded. A tree may be made by anyone: what would leave the
/// bucket's folder, or pass for one of the export's own marks, is refused.
pub fn key_of(path: &[u8]) -> Result<String> {
    let mut key = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        key.push_str(chunk.valid());
        for byte in chunk.invalid() {
            key.push_str(&format!("%{byte:02X}"));
        }
    }
    check_components(&key)?;
    ensure!(
        !key.split('/').any(|part| part == SUCCESS),
        "the commit has a path {key:?}, and the name {SUCCESS} is reserved for the export's marks"
    );
    Ok(key)
}

/// Refuses keys (and branch names) that do not stay below the folder they are joined to.
pub fn check_components(key: &str) -> Result<()> {
    ensure!(
        !key.contains('\0') && key.split('/').all(|part| !matches!(part, "" | "." | "..")),
        "{key:?} is no path inside a bucket"
    );
    Ok(())
}

/// The prefixes that a key is below, the innermost first: `a/b/c` is below `a/b/`, `a/` and the root, the empty one.
pub fn prefixes_above(key: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(key.strip_suffix('/').unwrap_or(key));
    std::iter::from_fn(move || {
        let path = rest?;
        if path.is_empty() {
            rest = None;
            return None;
        }
        let end = path.rfind('/').map_or(0, |slash| slash + 1);
        rest = Some(path[..end].trim_end_matches('/'));
        Some(&path[..end])
    })
}

/// All prefixes of these keys. The root is one of them, also of no keys at all.
pub fn prefixes_of<'a>(keys: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut prefixes = BTreeSet::from([String::new()]);
    for key in keys {
        for prefix in prefixes_above(key) {
            if !prefixes.insert(prefix.to_owned()) {
                break; // those above it are there already
            }
        }
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_the_root() {
        assert_eq!(prefixes_above("a/b/c").collect::<Vec<_>>(), ["a/b/", "a/", ""]);
        assert_eq!(prefixes_above("a/b/").collect::<Vec<_>>(), ["a/", ""]);
        assert_eq!(prefixes_above("c").collect::<Vec<_>>(), [""]);
        assert_eq!(prefixes_above("").count(), 0);
        let all = prefixes_of(["x/y/1", "x/2", "3"].into_iter());
        assert_eq!(all.iter().map(String::as_str).collect::<Vec<_>>(), ["", "x/", "x/y/"]);
    }

    #[test]
    fn keys_are_text_and_stay_in_the_bucket() {
        assert_eq!(key_of("naïve/ü.txt".as_bytes()).unwrap(), "naïve/ü.txt");
        assert_eq!(key_of(b"caf\xe9").unwrap(), "caf%E9");
        for bad in ["../x", "a//b", "/etc/passwd", "a/./b", "x/_SUCCESS", "_SUCCESS/x", ""] {
            assert!(key_of(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
