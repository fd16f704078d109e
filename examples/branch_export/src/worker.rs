//! A worker process: takes tasks, performs them, returns them, until its supervisor goes away.
//!
//! It may die at any line, and the rules that make this harmless are the same for every task:
//!
//! 1. What a task changes in the database (tasks, the ledger) is changed in the transaction that returns the task.
//! 2. What it changes in the bucket comes before that, is whole or not there at all, and may be done again.
//! 3. A task that is no longer ours ([`Lost`], `TQ001`) is dropped without a word: its new owner sees to it.
//! 4. Anything else that goes wrong gives the task back with a status that says what; its last try aborts it.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use postgres::Statement;
use serde_json::{Value, json};

use crate::args::Args;
use crate::bucket::{Bucket, Draft};
use crate::git::{Blobs, Git};
use crate::keys::SUCCESS;
use crate::lease::{Lease, Lost};
use crate::plan;
use crate::queue::{Grant, Queue, sqlstate};
use crate::tasks::{
    COPY, DELETE, Export, MANIFEST, MARK, Mark, NEXT_EXPORT, Object, Request, START_EXPORT, WORK,
};

/// How long one call of `own_tasks` waits for work.
const PATIENCE: Duration = Duration::from_secs(5);

/// Works until the supervisor closes our standard input, or the database goes away.
pub fn run(args: &Args) -> Result<()> {
    exit_with_supervisor();
    let mut queue = Queue::connect(args.url.as_deref(), &args.actor)?;
    let own = queue.prepare_own()?;
    let git = Git::open(&args.dir.join("scratch.git"));
    let mut worker = Worker {
        queue,
        own,
        blobs: Blobs::new(git.clone()),
        git,
        bucket: Bucket::open(&args.dir),
        latency: args.latency.unwrap_or_default(),
        length: args.lease,
    };
    loop {
        let grants = worker.queue.own(&worker.own, args.batch, &WORK, args.lease, PATIENCE)?;
        worker.perform_all(&grants)?;
    }
}

/// The supervisor holds the other end of our standard input, however it dies.
fn exit_with_supervisor() {
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {}
        std::process::exit(0);
    });
}

struct Worker {
    queue: Queue,
    own: Statement,
    git: Git,
    blobs: Blobs,
    bucket: Bucket,
    latency: Duration,
    length: Duration,
}

impl Worker {
    fn perform_all(&mut self, grants: &[Grant]) -> Result<()> {
        let mut lease = Lease::new(grants, self.length);
        for grant in grants {
            if grant.num_tries > 1 {
                eprintln!("try {} of {}", grant.num_tries, grant.id);
            }
            let outcome = self.perform(grant, &mut lease);
            lease.release(grant);
            let Err(error) = outcome else { continue };
            if self.queue.is_closed() {
                return Err(error);
            } else if is_lost(&error) {
                eprintln!("lost {}", grant.id);
            } else {
                self.give_back(grant, &error)?;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, grant: &Grant, error: &anyhow::Error) -> Result<()> {
        eprintln!("{} failed: {error:#}", grant.id);
        match self.queue.give_back(grant, &format!("{error:#}")) {
            Ok(code) => eprintln!("{} is {code}", grant.id),
            Err(error) if is_lost(&error) => eprintln!("lost {}", grant.id),
            Err(error) => return Err(error.context("cannot give a task back")),
        }
        Ok(())
    }

    fn perform(&mut self, grant: &Grant, lease: &mut Lease) -> Result<()> {
        // Also those further back in the batch want a sign of life; and this one may be lost by now.
        lease.keep_for(&mut self.queue, grant)?;
        let body = grant.body.as_str();
        match grant.action.as_str() {
            NEXT_EXPORT => self.next_export(grant, &parsed(body)?),
            START_EXPORT => self.start_export(grant, lease, &parsed(body)?),
            COPY => self.copy(grant, lease, &parsed(body)?),
            DELETE => self.delete(grant, lease, &parsed(body)?),
            MARK => self.mark(grant, lease, &parsed(body)?),
            MANIFEST => self.manifest(grant, lease, &parsed(body)?),
            action => bail!("no worker for the action {action:?}"),
        }
    }

    /// Creates the two tasks that frame an export. The ones of the export before are settled by now, and replaced:
    /// this task has waited for its `done-export`.
    fn next_export(&mut self, grant: &Grant, request: &Request) -> Result<()> {
        let mut work = self.queue.begin(grant)?;
        let number = work.new_export(request)?;
        let export =
            Export { export: number, branch: request.branch.clone(), commit: request.commit.clone() };
        work.replace_tasks(&plan::frame(&export))?;
        work.complete(number, "", &format!("created export {number}"))
    }

    /// Compares the commit with the bucket and inserts the tasks of the export.
    fn start_export(&mut self, grant: &Grant, lease: &mut Lease, export: &Export) -> Result<()> {
        let tree = self.git.tree(&export.commit)?;
        let listing = self.bucket.list(&export.branch)?;
        // From here on the marks of the export before would lie.
        for prefix in &listing.marks {
            lease.keep_for(&mut self.queue, grant)?;
            lease.secure(&mut self.queue, grant)?;
            self.bucket.delete(&export.branch, &format!("{prefix}{SUCCESS}"))?;
        }
        let tasks = plan::tasks(export, &tree, &listing.objects);
        let number = tasks.len();
        // One statement inserts them all, and while it runs there is no sign of life to be had from here.
        let long = self.length + Duration::from_millis(number as u64);
        lease.stretch(&mut self.queue, grant, long)?;
        let mut work = self.queue.begin(grant)?;
        work.insert_tasks(&Value::Array(tasks))?;
        work.planned(export.export, number)?;
        work.complete(export.export, "", &format!("planned {number} tasks"))
    }

    fn copy(&mut self, grant: &Grant, lease: &mut Lease, object: &Object) -> Result<()> {
        let Self { queue, blobs, bucket, .. } = self;
        let blob = object.blob.as_deref().context("a copy of no blob")?;
        let mut draft = bucket.draft(grant.token)?;
        let size = blobs.read(blob, |piece| {
            lease.keep_for(queue, grant)?;
            Ok(draft.write_all(piece)?)
        })?;
        let export = &object.export;
        self.put(grant, lease, export, &object.key, draft)?;
        self.queue.begin(grant)?.complete(export.export, &object.key, &format!("copied {size} bytes"))
    }

    fn delete(&mut self, grant: &Grant, lease: &mut Lease, object: &Object) -> Result<()> {
        self.pause(grant, lease)?;
        lease.secure(&mut self.queue, grant)?;
        let export = &object.export;
        self.bucket.delete(&export.branch, &object.key)?;
        self.queue.begin(grant)?.complete(export.export, &object.key, "deleted")
    }

    fn mark(&mut self, grant: &Grant, lease: &mut Lease, mark: &Mark) -> Result<()> {
        let export = &mark.export;
        let key = format!("{}{SUCCESS}", mark.prefix);
        let mut draft = self.bucket.draft(grant.token)?;
        // A mark that names its commit can be checked by its reader.
        serde_json::to_writer(&mut draft, &json!({ "commit": export.commit, "prefix": mark.prefix }))?;
        self.put(grant, lease, export, &key, draft)?;
        self.queue.begin(grant)?.complete(export.export, &key, "marked")
    }

    fn manifest(&mut self, grant: &Grant, lease: &mut Lease, export: &Export) -> Result<()> {
        let objects = self.git.tree(&export.commit)?;
        let manifest = json!({ "branch": export.branch, "commit": export.commit, "objects": objects });
        let mut draft = self.bucket.draft(grant.token)?;
        serde_json::to_writer(&mut draft, &manifest)?;
        self.pause(grant, lease)?;
        lease.secure(&mut self.queue, grant)?;
        self.bucket.put(draft, &self.bucket.manifest(export))?;
        self.queue.begin(grant)?.complete(export.export, "", &format!("lists {} objects", objects.len()))
    }

    fn put(
        &mut self,
        grant: &Grant,
        lease: &mut Lease,
        export: &Export,
        key: &str,
        draft: Draft,
    ) -> Result<()> {
        self.pause(grant, lease)?;
        lease.secure(&mut self.queue, grant)?;
        self.bucket.put(draft, &self.bucket.object(&export.branch, key))
    }

    /// The time that a store on the other side of a network would take, with signs of life in between.
    fn pause(&mut self, grant: &Grant, lease: &mut Lease) -> Result<()> {
        let end = Instant::now() + self.latency;
        loop {
            lease.keep_for(&mut self.queue, grant)?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(body: &str) -> Result<T> {
    serde_json::from_str(body).with_context(|| format!("cannot read the task's body {body:?}"))
}

fn is_lost(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Lost>()) || sqlstate(error) == Some("TQ001")
}
