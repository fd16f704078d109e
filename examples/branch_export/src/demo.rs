//! The story of the demo: two commits, four workers, one death.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::args::Args;
use crate::bucket::Bucket;
use crate::fleet::{Fleet, Killed};
use crate::keys::{SUCCESS, prefixes_of};
use crate::ledger::{self, Extent};
use crate::progress::{Progress, bar};
use crate::queue::{Queue, Settled};
use crate::scratch::{self, Commits};
use crate::tasks::{COPY, DONE_EXPORT, Export, MANIFEST, NEXT_EXPORT, Request, WORK, branch_task};
use crate::verify::{self, Evidence};
use crate::{commit, report};

/// How long both exports are to take, where the latency is not given.
const TARGET: Duration = Duration::from_secs(24);
/// No task done for so long means that something hangs.
const STALL: Duration = Duration::from_secs(60);

/// Runs the demo from the beginning to the verdict.
pub fn run(args: &Args) -> Result<()> {
    let mut args = args.clone();
    scratch::empty_folder(&args.dir)?;
    args.dir = args.dir.canonicalize()?;
    let commits =
        scratch::prepare(&args.repo, &args.rev, args.branch.as_deref(), &args.dir.join("scratch.git"))?;
    let mut queue = Queue::connect(args.url.as_deref(), "branch_export")?;
    let known: bool = queue.client().query_one("SELECT to_regnamespace('taskq') IS NOT NULL", &[])?.get(0);
    ensure!(known, "the database has no extension taskq: CREATE EXTENSION taskq first");
    ledger::create(queue.client())?;
    let bucket = Bucket::open(&args.dir);
    args.latency = Some(args.latency.map_or_else(|| paced(&args, &commits), Ok)?);
    println!("exporting branch {} of {}", commits.branch, args.repo);
    println!("  first commit   {}", commits.first);
    println!("  second commit  {} ({})", commits.second, commits.story);
    println!("  into           {}", bucket.object(&commits.branch, "").display());
    println!("  by             {} worker processes, {}", args.workers, pace(&args));

    let fleet = Fleet::start(&args)?;
    let mut story = Story {
        args: &args,
        commits: &commits,
        queue,
        fleet,
        progress: Progress::new(),
        started: Instant::now(),
        moved: (0, Instant::now()),
    };
    story.finish_earlier()?;
    let leftovers = fill_bucket(&bucket, &commits)?;
    let (exports, killed) = story.tell()?;
    let Story { mut queue, fleet, .. } = story;
    fleet.stop();

    let branch = commits.branch.as_str();
    let tag = exports[1].0.tag();
    report::psql(&args, &[("branch", branch), ("tag", &tag)], report::FINAL)?;
    println!("the verdict:");
    let evidence =
        Evidence { git: &commits.git, bucket: &bucket, exports, leftovers: &leftovers, killed: &killed };
    verify::run(&mut queue, &evidence)
}

/// Puts objects of a time before into the bucket, so that there is something to delete, whatever the commits are.
/// Returns all that is there.
fn fill_bucket(bucket: &Bucket, commits: &Commits) -> Result<Vec<String>> {
    let mut folder = "of-an-earlier-export".to_owned();
    let trees = [commits.git.tree(&commits.first)?, commits.git.tree(&commits.second)?];
    while trees.iter().flat_map(|tree| tree.keys()).any(|key| key.starts_with(&folder)) {
        folder.push('~');
    }
    let keys = ["a.txt", "b.txt", SUCCESS].map(|name| format!("{folder}/{name}"));
    for key in &keys {
        let path = bucket.object(&commits.branch, key);
        fs::create_dir_all(path.parent().context("an object without a folder")?)?;
        fs::write(path, "left over\n")?;
    }
    Ok(bucket.list(&commits.branch)?.objects)
}

/// A latency that makes the demo long enough to watch and short enough to wait for.
fn paced(args: &Args, commits: &Commits) -> Result<Duration> {
    let mut tasks = 0;
    for commit in [&commits.first, &commits.second] {
        let tree = commits.git.tree(commit)?;
        tasks += tree.len() + prefixes_of(tree.keys().map(String::as_str)).len();
    }
    let workers = u32::try_from(args.workers)?;
    Ok((TARGET * workers / u32::try_from(tasks.max(1))?).min(Duration::from_millis(400)))
}

fn pace(args: &Args) -> String {
    let latency = args.latency.unwrap_or_default().as_millis();
    format!("a store that takes {latency} ms per object, and leases of {} ms", args.lease.as_millis())
}

struct Story<'a> {
    args: &'a Args,
    commits: &'a Commits,
    queue: Queue,
    fleet: Fleet<'a>,
    progress: Progress,
    started: Instant,
    /// How many tasks were done when the number last changed, and when that was.
    moved: (i64, Instant),
}

impl Story<'_> {
    /// Lets the workers finish what a run that was interrupted has left in the queue for this branch.
    fn finish_earlier(&mut self) -> Result<()> {
        let ours = [NEXT_EXPORT, DONE_EXPORT].map(|action| branch_task(action, &self.commits.branch));
        while let Some(row) = self.queue.client().query_opt(
            "SELECT id FROM taskq.tasks WHERE id = ANY ($1) AND state NOT IN ('completed', 'aborted') LIMIT 1",
            &[&&ours[..]],
        )? {
            let task: String = row.get(0);
            self.progress.update(&format!("an earlier export is finished first: waiting for {task}"));
            if self.queue.wait_for_task(&task, Duration::from_millis(500))?.is_none() {
                self.fleet.check()?;
                self.mind_the_time(&task)?;
            }
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<([(Export, String); 2], Killed)> {
        let branch = self.commits.branch.clone();
        let run = format!(
            "{}-{}",
            std::process::id(),
            self.queue.client().query_one("SELECT nextval('branch_export.tick')", &[])?.get::<_, i64>(0)
        );
        let requests = [format!("{run}/first"), format!("{run}/second")];
        let next = branch_task(NEXT_EXPORT, &branch);
        let done = branch_task(DONE_EXPORT, &branch);

        self.announce(&requests[0], &self.commits.first.clone(), "the first commit arrives")?;
        self.follow(&next, &requests[..1], |_| false)?;
        let objects = self.commits.git.tree(&self.commits.first)?.len();
        let a_third = i64::try_from(objects * 3 / 10)?;
        let early = self
            .follow(&done, &requests[..1], |extent| extent.planned.is_some() && extent.copied >= a_third)?;
        ensure!(early.is_none(), "the export was over before anything could go wrong (see --latency-ms)");

        let killed = self.fleet.kill_one(&mut self.queue)?;
        let held = killed.held.len();
        self.progress.say(&format!("{} is killed with SIGKILL while it holds {held} tasks", killed.actor));
        self.announce(
            &requests[1],
            &self.commits.second.clone(),
            "the second commit arrives, in mid-export",
        )?;
        self.progress.clear();
        report::psql(self.args, &[("branch", &branch)], report::MIDDLE)?;

        // It waits for the done-export of the first. When it is settled, that one has been replaced by the
        // second's: there would be no telling them apart.
        self.follow(&next, &requests, |_| false)?;
        self.progress.say("the first export is done, the second begins");
        self.follow(&done, &requests, |_| false)?;
        self.progress.say("the second export is done");

        let exports = [
            self.export(&requests[0], &self.commits.first.clone())?,
            self.export(&requests[1], &self.commits.second.clone())?,
        ];
        for (export, request) in &exports {
            self.follow(&export.task(MANIFEST, ""), std::slice::from_ref(request), |_| false)?;
        }
        self.progress.say("both manifests are written");
        Ok((exports, killed))
    }

    fn announce(&mut self, request: &str, commit: &str, event: &str) -> Result<()> {
        let request = Request {
            request: request.to_owned(),
            branch: self.commits.branch.clone(),
            commit: commit.to_owned(),
        };
        let retries = commit::announce(&mut self.queue, &request)?;
        let again = if retries > 0 { format!(", at try {}", retries + 1) } else { String::new() };
        self.progress.say(&format!("{event}{again}"));
        Ok(())
    }

    fn export(&mut self, request: &str, commit: &str) -> Result<(Export, String)> {
        let extent = ledger::extent(self.queue.client(), request, COPY)?;
        let extent = extent.with_context(|| format!("request {request} has led to no export"))?;
        let export =
            Export { export: extent.export, branch: self.commits.branch.clone(), commit: commit.to_owned() };
        Ok((export, request.to_owned()))
    }

    /// Waits for a task to complete, and shows meanwhile how far the exports of these requests are: the last that has
    /// begun. Or waits until that is far enough, and returns nothing then.
    fn follow(
        &mut self,
        task: &str,
        requests: &[String],
        enough: impl Fn(&Extent) -> bool,
    ) -> Result<Option<Settled>> {
        loop {
            let settled = self.queue.wait_for_task(task, Duration::from_millis(100))?;
            let mut extent = None;
            for request in requests {
                extent = ledger::extent(self.queue.client(), request, COPY)?.or(extent);
            }
            self.show(extent)?;
            self.fleet.check()?;
            match settled {
                Some(settled) if settled.code == "completed" => return Ok(Some(settled)),
                Some(settled) => bail!(
                    "{task} is {}: {}{}",
                    settled.code,
                    settled.status,
                    self.failures().unwrap_or_default()
                ),
                None if extent.is_some_and(|extent| enough(&extent)) => return Ok(None),
                None => self.mind_the_time(task)?,
            }
        }
    }

    fn show(&mut self, extent: Option<Extent>) -> Result<()> {
        let rows = self.queue.client().query(
            "SELECT state, sum(count)::bigint FROM taskq.count_tasks(actions => $1) GROUP BY state",
            &[&&WORK[..]],
        )?;
        let count = |wanted: &[&str]| {
            let wanted = rows.iter().filter(|row| wanted.contains(&row.get(0)));
            wanted.map(|row| row.get::<_, i64>(1)).sum::<i64>()
        };
        let Extent { done, planned, .. } = extent.unwrap_or_default();
        let so_far = match planned {
            Some(planned) => format!("{} {done}/{planned} tasks done", bar(done, planned, 24)),
            None => format!("{} no plan yet", bar(0, 1, 24)),
        };
        let (working, ready) = (count(&["in-progress"]), count(&["ready", "scheduled"]));
        let blocked = count(&["blocked"]);
        self.progress.update(&format!("{so_far}, {working} in progress, {ready} ready, {blocked} blocked"));
        Ok(())
    }

    /// Fails if the ledger does not grow any more.
    fn mind_the_time(&mut self, task: &str) -> Result<()> {
        let row = self.queue.client().query_one("SELECT count(*) FROM branch_export.ledger", &[])?;
        let done: i64 = row.get(0);
        if done != self.moved.0 {
            self.moved = (done, Instant::now());
        }
        ensure!(
            self.moved.1.elapsed() < STALL,
            "nothing has been done for {} s (of {} s), waiting for {task}{}",
            STALL.as_secs(),
            self.started.elapsed().as_secs(),
            self.failures().unwrap_or_default()
        );
        Ok(())
    }

    /// What went wrong, as the queue has it.
    fn failures(&mut self) -> Result<String> {
        // Those that a worker has tried come first: the others are aborted because of them.
        let rows = self.queue.client().query(
            "SELECT id, coalesce(status, '') FROM taskq.tasks
              WHERE state = 'aborted' AND action = ANY ($1) AND strpos(id, $2) > 0
              ORDER BY num_tries DESC, id LIMIT 5",
            &[&&WORK[..], &self.commits.branch],
        )?;
        let line = |row: &postgres::Row| {
            format!("\n  {} is aborted: {}", row.get::<_, &str>(0), row.get::<_, &str>(1))
        };
        Ok(rows.iter().map(line).collect())
    }
}
