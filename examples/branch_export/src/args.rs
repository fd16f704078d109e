//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// What `--help` prints.
pub const USAGE: &str = "\
usage: branch_export [option ...]

Exports a commit of a git repository into a folder, twice, with taskq and several worker processes,
and checks the result. Needs a database with the extension; the repository is only read.

  --repo PATH|URL   the repository (default: the current folder)
  --rev REVISION    the commit to export, after its parent (default: HEAD)
  --branch NAME     the branch it stands for (default: the revision's own, else main)
  --workers N       worker processes (default: 4)
  --latency-ms MS   how long the bucket takes for each object (default: so that it all takes half a minute)
  --lease-ms MS     how long a worker owns a task without a sign of life (default: 2000)
  --batch N         how many tasks a worker takes at once (default: 4)
  --dir DIR         folder for bucket, scratch repository and logs (default: target/demo/export)
  --url URL         the database (default: what PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD say)";

/// What this process is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Run the demo.
    Demo,
    /// Be one of its workers; only the demo starts these.
    Worker,
    /// Print the usage.
    Help,
}

/// Everything that can be chosen; workers are started with the same options.
#[derive(Clone, Debug)]
pub struct Args {
    /// What to do.
    pub mode: Mode,
    /// Path or URL of the repository.
    pub repo: String,
    /// The revision to export in the end.
    pub rev: String,
    /// The branch's name, if not the revision's own.
    pub branch: Option<String>,
    /// How many worker processes.
    pub workers: usize,
    /// The bucket's latency per object, if not chosen by the number of objects.
    pub latency: Option<Duration>,
    /// The lease of a task.
    pub lease: Duration,
    /// How many tasks a worker takes at once.
    pub batch: i32,
    /// The folder for all that is written.
    pub dir: PathBuf,
    /// The database, if not the environment's.
    pub url: Option<String>,
    /// A worker's name in the queue.
    pub actor: String,
}

impl Args {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut args = Self {
            mode: Mode::Demo,
            repo: ".".into(),
            rev: "HEAD".into(),
            branch: None,
            workers: 4,
            latency: None,
            lease: Duration::from_millis(2000),
            batch: 4,
            dir: "target/demo/export".into(),
            url: None,
            actor: "exporter".into(),
        };
        let mut rest = arguments;
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{argument} needs a value (see --help)"));
            match argument.as_str() {
                "-h" | "--help" => args.mode = Mode::Help,
                "worker" => args.mode = Mode::Worker,
                "--repo" => args.repo = value()?,
                "--rev" => args.rev = value()?,
                "--branch" => args.branch = Some(value()?),
                "--workers" => args.workers = number(&argument, &value()?)?,
                "--latency-ms" => args.latency = Some(Duration::from_millis(number(&argument, &value()?)?)),
                "--lease-ms" => args.lease = Duration::from_millis(number(&argument, &value()?)?),
                "--batch" => args.batch = number(&argument, &value()?)?,
                "--dir" => args.dir = value()?.into(),
                "--url" => args.url = Some(value()?),
                "--actor" => args.actor = value()?,
                _ => bail!("unknown argument {argument:?} (see --help)"),
            }
        }
        ensure!((1..=64).contains(&args.workers), "--workers must be from 1 to 64");
        ensure!(args.lease >= Duration::from_millis(200), "--lease-ms must be at least 200");
        ensure!((1..=1000).contains(&args.batch), "--batch must be from 1 to 1000");
        Ok(args)
    }
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{option} {text:?} is not a number in range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args> {
        Args::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read_and_bad_ones_named() {
        let args = parse("worker --workers 7 --latency-ms 5 --branch dev").unwrap();
        assert_eq!((args.mode, args.workers), (Mode::Worker, 7));
        assert_eq!((args.latency, args.branch.as_deref()), (Some(Duration::from_millis(5)), Some("dev")));
        for (line, complaint) in [
            ("--workers 0", "--workers"),
            ("--workers x", "\"x\""),
            ("--rev", "--rev"),
            ("--no-such", "--no-such"),
            ("--lease-ms 1", "--lease-ms"),
        ] {
            assert!(parse(line).unwrap_err().to_string().contains(complaint), "{line}");
        }
    }
}
