//! The bucket: a folder that stands for an object store.
//!
//! Objects of a branch are at `branches/<branch>/<key>`, manifests at `manifests/<branch>/<commit>.<export>.json`.
//! As in a real store an object appears whole or not at all: it is written elsewhere and renamed into its place.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use uuid::Uuid;

use crate::keys::SUCCESS;
use crate::tasks::Export;

/// The folder, and one for what is being written.
#[derive(Clone, Debug)]
pub struct Bucket {
    root: PathBuf,
    staging: PathBuf,
}

/// What is below a branch: keys, sorted.
#[derive(Debug, Default)]
pub struct Listing {
    /// Objects.
    pub objects: Vec<String>,
    /// The `_SUCCESS` marks among them, by prefix.
    pub marks: Vec<String>,
}

/// An object that is being written.
pub struct Draft {
    file: BufWriter<File>,
    path: PathBuf,
}

impl Bucket {
    /// The bucket below the demo's folder.
    pub fn open(dir: &Path) -> Self {
        // Beside the bucket, on the same file system: what a worker that was killed leaves there is no object.
        Self { root: dir.join("bucket"), staging: dir.join("staging") }
    }

    /// Where an object of a branch is.
    pub fn object(&self, branch: &str, key: &str) -> PathBuf {
        self.root.join("branches").join(branch).join(key)
    }

    /// Where the manifest of an export is.
    pub fn manifest(&self, export: &Export) -> PathBuf {
        let name = format!("{}.{}.json", export.commit, export.export);
        self.root.join("manifests").join(&export.branch).join(name)
    }

    /// Starts an object. The token makes the file this performance's own: another one of the same task, which may
    /// still be writing, has another.
    pub fn draft(&self, token: Uuid) -> Result<Draft> {
        fs::create_dir_all(&self.staging)?;
        let path = self.staging.join(token.to_string());
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Draft { file: BufWriter::new(file), path })
    }

    /// Puts a finished object into its place, over any that is there.
    pub fn put(&self, mut draft: Draft, target: &Path) -> Result<()> {
        draft.flush().context("cannot write an object")?;
        let parent = target.parent().context("an object without a folder")?;
        for _ in 0..20 {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            match fs::rename(&draft.path, target) {
                Ok(()) => return Ok(()),
                // A delete next door took the folder away as empty, just now.
                Err(error) if error.kind() == ErrorKind::NotFound && draft.path.exists() => {}
                // A folder that lost its last object, but was not empty at that moment.
                Err(error) if error.kind() == ErrorKind::IsADirectory => fs::remove_dir(target)?,
                Err(error) => return Err(error).with_context(|| format!("cannot put {}", target.display())),
            }
        }
        anyhow::bail!("cannot put {}: its folder keeps vanishing", target.display())
    }

    /// Deletes an object, if it is there, and the folders that it leaves empty: a store has no folders.
    pub fn delete(&self, branch: &str, key: &str) -> Result<()> {
        let top = self.object(branch, "");
        let path = self.object(branch, key);
        match fs::remove_file(&path) {
            Ok(()) => {}
            // Gone already; below a file, or a folder by now: then there is no such object either.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory
                ) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot delete {}", path.display())),
        }
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&top) && *folder != top)
        {
            if fs::remove_dir(folder).is_err() {
                break; // not empty, or another worker was faster
            }
        }
        Ok(())
    }

    /// Lists a branch.
    pub fn list(&self, branch: &str) -> Result<Listing> {
        let mut listing = Listing::default();
        let top = self.object(branch, "");
        let mut folders = vec![(top, String::new())];
        while let Some((folder, prefix)) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot list {}", folder.display())),
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name().into_string().ok();
                let name = name.with_context(|| format!("{} holds a foreign file", folder.display()))?;
                if entry.file_type()?.is_dir() {
                    folders.push((entry.path(), format!("{prefix}{name}/")));
                } else if name == SUCCESS {
                    listing.marks.push(prefix.clone());
                } else {
                    listing.objects.push(format!("{prefix}{name}"));
                }
            }
        }
        listing.objects.sort_unstable();
        listing.marks.sort_unstable();
        Ok(listing)
    }
}

impl Write for Draft {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        self.file.write(piece)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    /// Throws away what was not put into its place.
    fn drop(&mut self) {
        fs::remove_file(&self.path).ok();
    }
}
