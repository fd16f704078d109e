//! The demo's own folder and the scratch repository in it: everything that the demo reads from git, and the one
//! commit that it may have to add, without a change to the user's repository.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::git::{self, Git, Tree};

/// Says that a folder is the demo's own, and may be emptied.
const OWN_FOLDER: &str = ".branch_export";

/// The two commits of the demo, and where their objects are.
pub struct Commits {
    /// The scratch repository.
    pub git: Git,
    /// The branch that the export is for.
    pub branch: String,
    /// Exported first.
    pub first: String,
    /// Arrives while the first is being exported.
    pub second: String,
    /// How the second came about.
    pub story: &'static str,
}

/// Makes or empties the demo's folder, but never a folder that is not the demo's.
pub fn empty_folder(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let stamp = dir.join(OWN_FOLDER);
    ensure!(
        stamp.exists() || fs::read_dir(dir)?.next().is_none(),
        "{} is neither empty nor of an earlier run: choose another --dir",
        dir.display()
    );
    fs::write(&stamp, "made by branch_export, which empties this folder at its start\n")?;
    for name in ["bucket", "staging", "scratch.git", "logs"] {
        let path = dir.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("cannot empty {}", path.display()))?;
        }
    }
    Ok(())
}

/// Makes a bare repository at `scratch` that sees the objects of `repo`, and chooses the two commits there: the
/// revision and its parent, or, if that has none (or an empty one), the revision and a commit on top of it.
pub fn prepare(repo: &str, rev: &str, branch: Option<&str>, scratch: &Path) -> Result<Commits> {
    let source = Path::new(repo);
    let local = source.exists();
    ensure!(local || repo.contains(':'), "there is no folder {repo}");
    if local {
        borrow(source, scratch)?;
    } else {
        let here = Path::new(".");
        let target = scratch.to_str().context("the scratch folder's name is not UTF-8")?;
        git::line(here, &["clone", "--bare", "--quiet", "--", repo, target])?;
    }
    // Revisions are names of the source's; only it knows what HEAD or origin/main or HEAD@{1} is.
    let source = if local { source } else { scratch };
    let resolve = |revision: &str| {
        let commit = format!("{revision}^{{commit}}");
        git::line(source, &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])
    };
    let head = resolve(rev).ok().with_context(|| format!("{repo} has no commit {rev:?}"))?;
    let branch = match branch {
        Some(name) => name.to_owned(),
        None => branch_of(source, rev),
    };
    crate::keys::check_components(&branch).context("not a branch name to export by")?;

    let git = Git::open(scratch);
    let tree = git.tree(&head)?;
    ensure!(!tree.is_empty(), "commit {head} has no files to export");
    let parent = resolve(&format!("{head}^1")).ok();
    let has_files = |commit: &String| git.tree(commit).is_ok_and(|tree| !tree.is_empty());
    let (first, second, story) = match parent.filter(has_files) {
        Some(parent) => (parent, head, "its child"),
        None => {
            let child = child_of(&git, &head, &tree)?;
            (head, child, "a commit made for this, as the first has no parent to export before it")
        }
    };
    Ok(Commits { git, branch, first, second, story })
}

/// An empty repository that borrows the objects of another: nothing is copied, and nothing is written there.
fn borrow(source: &Path, scratch: &Path) -> Result<()> {
    let objects = git::line(source, &["rev-parse", "--path-format=absolute", "--git-path", "objects"])
        .with_context(|| format!("{} is no git repository", source.display()))?;
    let format = git::line(source, &["rev-parse", "--show-object-format"])?;
    fs::create_dir_all(scratch)?;
    git::line(scratch, &["init", "--bare", "--quiet", &format!("--object-format={format}"), "."])?;
    fs::write(scratch.join("objects/info/alternates"), format!("{objects}\n"))?;
    Ok(())
}

fn branch_of(source: &Path, rev: &str) -> String {
    let name = git::line(source, &["rev-parse", "--abbrev-ref", "--end-of-options", rev]).unwrap_or_default();
    // A detached HEAD has no branch, and a plain commit id no name at all.
    match name.lines().next_back() {
        Some(name) if !matches!(name, "" | "HEAD" | "--end-of-options") => name.to_owned(),
        _ => "main".to_owned(),
    }
}

/// Commits a change on top of `head`: one file more, one changed, and one less if there are two.
fn child_of(git: &Git, head: &str, tree: &Tree) -> Result<String> {
    let note = b"This file was added by a commit that only the demo knows.\n";
    let mut changes = vec![(store(git, note)?, "added-by-the-demo/note.txt".to_owned())];
    // A key with an escape in it is not the path that git knows.
    let mut plain = tree.iter().filter(|(key, _)| !key.contains('%'));
    if let Some((key, blob)) = plain.next() {
        let mut show = git::command(git.dir());
        show.args(["cat-file", "blob", blob]);
        let mut content = git::output(show, b"")?;
        content.extend(b"\nchanged by the demo\n");
        changes.push((store(git, &content)?, key.clone()));
    }
    if let Some((key, blob)) = plain.next_back() {
        changes.push(("0".repeat(blob.len()), key.clone()));
    }

    let index = git.dir().join("demo-index");
    let with_index = |args: &[&str], input: &[u8]| {
        let mut command = git::command(git.dir());
        command.env("GIT_INDEX_FILE", &index).args(args);
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "branch_export");
            command.env(format!("GIT_{role}_EMAIL"), "branch_export@localhost");
        }
        let text = git::output(command, input).with_context(|| format!("git {} failed", args[0]))?;
        anyhow::Ok(String::from_utf8(text)?.trim_end().to_owned())
    };
    with_index(&["read-tree", head], b"")?;
    let mut lines = String::new();
    for (blob, path) in &changes {
        let mode = if blob.trim_matches('0').is_empty() { "0" } else { "100644" };
        lines.push_str(&format!("{mode} {blob}\t{path}\0"));
    }
    with_index(&["update-index", "-z", "--index-info"], lines.as_bytes())?;
    let tree = with_index(&["write-tree"], b"")?;
    with_index(&["commit-tree", &tree, "-p", head], b"A second commit for the demo\n")
}

fn store(git: &Git, content: &[u8]) -> Result<String> {
    let mut command = git::command(git.dir());
    command.args(["hash-object", "-w", "--stdin"]);
    Ok(String::from_utf8(git::output(command, content)?)?.trim_end().to_owned())
}
