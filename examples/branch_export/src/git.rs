//! Reading a git repository through the `git` program: trees, blobs, hashes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::keys;

/// The objects of a commit: key to blob id.
pub type Tree = BTreeMap<String, String>;

/// A git command that hears neither the caller's environment (a hook sets GIT_DIR) nor a question on a terminal.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new("git");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"] {
        command.env_remove(name);
    }
    command.env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null()).arg("-C").arg(dir);
    // The user who names a repository may read it, also one that belongs to another user (a container's mount).
    command.args(["-c", "safe.directory=*"]);
    command
}

/// Runs a git command with this input and returns what it prints.
pub fn output(mut command: Command, input: &[u8]) -> Result<Vec<u8>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run git")?;
    let mut stdin = child.stdin.take().context("git has no input")?;
    // It answers while it reads: feeding it from here could block both.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input));
        child.wait_with_output()
    })?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{}", complaint.trim().lines().next_back().unwrap_or("git failed without a word"));
    }
    Ok(output.stdout)
}

/// What a git command prints, as one line.
pub fn line(dir: &Path, args: &[&str]) -> Result<String> {
    let mut git = command(dir);
    git.args(args);
    let text = output(git, b"").with_context(|| format!("git {} failed", args.join(" ")))?;
    Ok(String::from_utf8(text)?.trim_end().to_owned())
}

/// A repository to read from.
#[derive(Clone, Debug)]
pub struct Git {
    dir: PathBuf,
}

impl Git {
    /// The repository in this folder.
    pub fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The repository's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The files of a commit. A symbolic link counts as a file that holds its target, as a bucket has no links;
    /// a submodule has no contents here and is left out.
    pub fn tree(&self, commit: &str) -> Result<Tree> {
        let mut git = command(&self.dir);
        git.args(["ls-tree", "-r", "-z", "--full-tree", commit]);
        let listing = output(git, b"").with_context(|| format!("cannot list commit {commit}"))?;
        let mut tree = Tree::new();
        for entry in listing.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()) {
            let tab = entry.iter().position(|&byte| byte == b'\t').context("odd line from git ls-tree")?;
            let meta = std::str::from_utf8(&entry[..tab])?;
            let (_, typed) = meta.split_once(' ').context("odd line from git ls-tree")?;
            let Some(blob) = typed.strip_prefix("blob ") else { continue };
            let key = keys::key_of(&entry[tab + 1..])?;
            if let Some((key, _)) = tree.insert(key.clone(), blob.to_owned()).map(|old| (key, old)) {
                bail!("two paths of commit {commit} would both become the key {key:?}");
            }
        }
        Ok(tree)
    }

    /// The blob ids that git itself computes for these files.
    pub fn hashes(&self, files: &[PathBuf]) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for file in files {
            let name = file.to_str().context("a file name that is not UTF-8")?;
            if name.contains(|c: char| c.is_ascii_control()) || name.starts_with('"') {
                names.push(b'"');
                for byte in name.bytes() {
                    match byte {
                        b'"' | b'\\' => names.extend([b'\\', byte]),
                        0..=31 | 127 => names.extend(format!("\\{byte:03o}").bytes()),
                        _ => names.push(byte),
                    }
                }
                names.push(b'"');
            } else {
                names.extend(name.bytes());
            }
            names.push(b'\n');
        }
        let mut git = command(&self.dir);
        git.args(["hash-object", "--no-filters", "--stdin-paths"]);
        let text = String::from_utf8(output(git, &names).context("git hash-object failed")?)?;
        let hashes: Vec<String> = text.lines().map(str::to_owned).collect();
        ensure!(hashes.len() == files.len(), "git hashed {} files of {}", hashes.len(), files.len());
        Ok(hashes)
    }
}

/// A running `git cat-file --batch`: one process for any number of blobs.
pub struct Blobs {
    git: Git,
    process: Option<(Child, ChildStdin, BufReader<ChildStdout>)>,
}

impl Blobs {
    /// Reads blobs of this repository; the process is started when the first is wanted.
    pub fn new(git: Git) -> Self {
        Self { git, process: None }
    }

    /// Passes a blob's contents to `sink`, piece by piece, and returns its size.
    ///
    /// If `sink` fails, the rest of the blob stays unread and the process is of no more use: it is dropped, and the
    /// next call starts another.
    pub fn read(&mut self, blob: &str, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<u64> {
        let (mut child, mut stdin, mut stdout) = match self.process.take() {
            Some(running) => running,
            None => self.start()?,
        };
        let size = transfer(&mut stdin, &mut stdout, blob, &mut sink);
        match size {
            Ok(size) => {
                self.process = Some((child, stdin, stdout));
                Ok(size)
            }
            Err(error) => {
                drop((stdin, stdout));
                child.kill().ok();
                child.wait().ok();
                Err(error)
            }
        }
    }

    fn start(&self) -> Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
        let mut git = command(self.git.dir());
        git.args(["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = git.spawn().context("cannot run git cat-file")?;
        let stdin = child.stdin.take().context("git has no input")?;
        let stdout = child.stdout.take().context("git has no output")?;
        Ok((child, stdin, BufReader::new(stdout)))
    }
}

impl Drop for Blobs {
    fn drop(&mut self) {
        if let Some((mut child, stdin, _)) = self.process.take() {
            drop(stdin); // it ends by itself at the end of its input
            child.wait().ok();
        }
    }
}

fn transfer(
    stdin: &mut ChildStdin,
    stdout: &mut BufReader<ChildStdout>,
    blob: &str,
    sink: &mut impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    writeln!(stdin, "{blob}").context("git cat-file has gone")?;
    stdin.flush()?;
    let mut header = String::new();
    stdout.read_line(&mut header)?;
    let size = match header.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "blob", size] => size.parse::<u64>()?,
        _ => bail!("git has no blob {blob}: {:?}", header.trim()),
    };
    let mut piece = [0; 64 * 1024];
    let mut left = size;
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let got = stdout.read(&mut piece[..most])?;
        ensure!(got > 0, "git cat-file ended in the middle of blob {blob}");
        sink(&piece[..got])?;
        left -= got as u64;
    }
    let mut newline = [0];
    stdout.read_exact(&mut newline)?;
    Ok(size)
}
