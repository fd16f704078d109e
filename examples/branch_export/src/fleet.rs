//! The worker processes: starting them, killing one, noticing when one dies unasked.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::args::Args;
use crate::queue::Queue;

struct Member {
    actor: String,
    log: PathBuf,
    /// Its standard input is a pipe whose other end is here: it closes with this process, and the worker ends.
    process: Child,
}

/// The workers that run.
pub struct Fleet<'a> {
    args: &'a Args,
    members: Vec<Member>,
    started: usize,
}

/// A worker that was killed, and what it held at that moment.
#[derive(Debug)]
pub struct Killed {
    /// Its name.
    pub actor: String,
    /// Its tasks, with the deadline of each as the queue has it.
    pub held: Vec<(String, String)>,
}

impl<'a> Fleet<'a> {
    /// Starts as many workers as the arguments say.
    pub fn start(args: &'a Args) -> Result<Self> {
        fs::create_dir_all(args.dir.join("logs"))?;
        let mut fleet = Self { args, members: Vec::new(), started: 0 };
        for _ in 0..args.workers {
            fleet.add()?;
        }
        Ok(fleet)
    }

    /// Starts one more and returns its name.
    pub fn add(&mut self) -> Result<&str> {
        self.started += 1;
        // With the process id, as the queue may remember the workers of an earlier run.
        let actor = format!("exporter-{}@{}", self.started, std::process::id());
        let log = self.args.dir.join("logs").join(format!("exporter-{}.log", self.started));
        let program = std::env::current_exe().context("cannot find this program to start workers")?;
        let mut command = Command::new(program);
        command
            .args(["worker", "--actor", &actor, "--batch", &self.args.batch.to_string()])
            .args(["--lease-ms", &self.args.lease.as_millis().to_string()])
            .args(["--latency-ms", &self.args.latency.unwrap_or_default().as_millis().to_string()])
            .arg("--dir")
            .arg(&self.args.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        if let Some(url) = &self.args.url {
            command.args(["--url", url]);
        }
        let process = command.spawn().context("cannot start a worker")?;
        self.members.push(Member { actor, log, process });
        Ok(self.members.last().map_or("", |member| &member.actor))
    }

    /// Fails if a worker has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        for member in &mut self.members {
            if let Some(status) = member.process.try_wait()? {
                bail!("{} ended by itself ({status}){}", member.actor, last_words(member));
            }
        }
        Ok(())
    }

    /// Kills a worker that holds tasks, with SIGKILL: it has no chance to give them back. Returns what it held after
    /// its death, when nothing can change that any more but its lease. A substitute takes its place.
    pub fn kill_one(&mut self, queue: &mut Queue) -> Result<Killed> {
        let give_up = Instant::now() + Duration::from_secs(20);
        while Instant::now() < give_up {
            let Some(victim) = self.busiest(queue)? else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let mut member = self.members.swap_remove(victim);
            member.process.kill().with_context(|| format!("cannot kill {}", member.actor))?;
            member.process.wait()?;
            let held = self.estate(queue, &member.actor)?;
            self.add()?;
            // It may have returned its last task in the moment before: then it is the turn of another.
            if !held.is_empty() {
                return Ok(Killed { actor: member.actor, held });
            }
        }
        bail!("no worker could be killed while it held tasks: all are too quick (see --latency-ms)")
    }

    /// The member that holds most tasks, and will for longest.
    fn busiest(&self, queue: &mut Queue) -> Result<Option<usize>> {
        let actors: Vec<&str> = self.members.iter().map(|member| member.actor.as_str()).collect();
        let row = queue.client().query_opt(
            "SELECT actor_id FROM taskq.actors WHERE actor_id = ANY ($1) AND NOT overdue
              GROUP BY actor_id ORDER BY count(*) DESC, max(action_deadline) DESC LIMIT 1",
            &[&actors],
        )?;
        let Some(row) = row else { return Ok(None) };
        let name: String = row.get(0);
        Ok(actors.iter().position(|actor| *actor == name))
    }

    /// What a dead worker holds, once the server has noticed that its session is gone.
    fn estate(&self, queue: &mut Queue, actor: &str) -> Result<Vec<(String, String)>> {
        let client = queue.client();
        let give_up = Instant::now() + Duration::from_secs(10);
        while client
            .query_opt("SELECT FROM pg_stat_activity WHERE application_name = $1 LIMIT 1", &[&actor])?
            .is_some()
        {
            if Instant::now() > give_up {
                bail!("the session of {actor} outlives it by more than 10 seconds");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let rows = client.query(
            "SELECT task_id, action_deadline::text FROM taskq.actors WHERE actor_id = $1 ORDER BY task_id",
            &[&actor],
        )?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Lets all workers end, and waits for that.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        for member in &mut self.members {
            drop(member.process.stdin.take());
        }
        let patience = Instant::now() + Duration::from_secs(5);
        for mut member in self.members.drain(..) {
            while matches!(member.process.try_wait(), Ok(None)) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            member.process.kill().ok(); // of no effect where it has ended
            member.process.wait().ok();
        }
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn last_words(member: &Member) -> String {
    let log = fs::read_to_string(&member.log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(5)..].join("\n  ");
    if tail.is_empty() { String::new() } else { format!(", its last words were\n  {tail}") }
}
